"""Whatever the bytes are, a reader answers with a value or with one `InputError` of one line."""

from __future__ import annotations

import gzip
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import InputError
from muster.model import Fleet, PodSet, PodShape, Workload
from muster.traces import Trace, read_fleet, read_snapshot, read_workload, write_fleet, write_trace
from muster.traces.files import check_target

WORKLOADS = ("openb", "philly", "swf", "muster")
FLEETS = ("openb", "kubectl", "muster", "alibaba2026")
SAMPLES = {
    "openb": b"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time\na,1,2,1,500,T4|G2,7\nb,1,2,0,0,,8\n",
    "philly": b"timestamp,duration,num_gpus,cluster\n2017-10-09 07:01:55,66.0,1,a\n2017-10-09 06:13:03,2951.0,20,b\n",
    "swf": b"; UnixStartTime: 1\n1 0 0 10 4 -1 -1 4 60 -1 1 1 1 -1 1 -1 -1 -1\n"
    b"2 5 0 9.5 4 -1 -1 4 60 -1 1 1 1 -1 1 -1 -1 -1\n",
    "nodes": b"sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,64000,262144,0,\n",
    "kubectl": b'{"kind":"List","items":[{"kind":"Node","metadata":{"name":"n"},"status":{"allocatable":{"cpu":"4",'
    b'"memory":"1Gi","nvidia.com/gpu":"2"}}},{"kind":"Pod","metadata":{"name":"p"},"spec":{"nodeName":"n","containers":'
    b'[{"resources":{"requests":{"cpu":"1","nvidia.com/gpu":1}}}]}}]}',
    "alibaba2026": b"gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,2\n,0,96,3\n",
}


def all_readers(path: str) -> None:
    """Read ``path`` as everything; only `InputError`, in one line, may come out."""
    calls: list[Callable[[], object]] = [lambda kind=kind: read_workload(f"{kind}:{path}") for kind in WORKLOADS]
    calls += [lambda kind=kind: read_fleet(f"{kind}:{path}") for kind in FLEETS]
    calls += [lambda: read_workload(path), lambda: read_fleet(path), lambda: read_snapshot(path)]
    for call in calls:
        try:
            call()
        except InputError as error:
            told = str(error)
        else:
            continue
        assert "\n" not in told
        assert len(told) < 600


def stored_samples() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write_trace(Trace("t", "s", (Workload("a", (PodSet(PodShape(1, 2, 3)),)),)), Path(folder, "t"))
        write_fleet(read_fleet("example")[0], Path(folder, "f"))
        return [Path(folder, "t").read_bytes(), Path(folder, "f").read_bytes()[:3000]]


@settings(deadline=None, max_examples=100)
@given(st.binary(max_size=200), st.sampled_from(["x.csv", "x.swf.gz", "x.json"]))
def test_random_bytes(data: bytes, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        path.write_bytes(data)
        all_readers(str(path))


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    pieces = [
        b"-1",
        b"nan",
        b"1e400",
        b'"',
        b",",
        b"\n",
        b"\xff",
        b"\0",
        b"",
        b"9" * 40,
        b"9" * 5000,
        b"null",
        b"{",
        b"]",
    ]
    samples = [*SAMPLES.values(), *stored_samples()]
    path = tmp_path / "mutated"
    for _ in range(60):
        data = bytearray(rng.choice(samples))
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(data))
            data[place : place + rng.randint(0, 4)] = rng.choice(pieces)
        packed = gzip.compress(bytes(data)) if rng.random() < 0.2 else bytes(data)
        path.write_bytes(packed[: rng.randint(1, len(packed))] if rng.random() < 0.2 else packed)
        all_readers(str(path))


@pytest.mark.parametrize("kind", WORKLOADS)
def test_every_sample_is_read_and_cut_files_are_told(tmp_path: Path, kind: str) -> None:
    sample = SAMPLES.get(kind) or stored_samples()[0]
    path = tmp_path / "x"
    path.write_bytes(sample)
    assert read_workload(f"{kind}:{path}").workloads
    path.write_bytes(b"\xef\xbb\xbf" + sample.replace(b"\n", b"\r\n"))
    assert read_workload(f"{kind}:{path}").workloads
    path.write_bytes(gzip.compress(sample))
    assert read_workload(f"{kind}:{path}").workloads
    for data, what in [
        (b"", "is empty"),
        (b" \n\n", "is empty"),
        (gzip.compress(sample)[:-9], "is a gzip file that is cut short"),
        (gzip.compress(sample)[:5], "gzip file"),
        (b"\x1f\x8bjunk", "gzip file"),
        (sample + b"\xff\n", "is not UTF-8 text (byte 0xff)"),
        (sample + b"\0", "is not text (it holds a zero byte)"),
        (sample.decode().encode("utf-16"), "is UTF-16"),
        (b"PK\3\4", ""),
    ]:
        path.write_bytes(data)
        with pytest.raises(InputError) as caught:
            read_workload(f"{kind}:{path}")
        assert what in str(caught.value)
        assert caught.value.file == str(path)


def test_paths(tmp_path: Path) -> None:
    (tmp_path / "pods.csv").write_bytes(SAMPLES["openb"])
    for spec, what in [
        (f"openb:{tmp_path}", "is a directory; name a file in it"),
        (f"openb:{tmp_path}/podz.csv", "does not exist; did you mean pods.csv?"),
        (f"{tmp_path}/podz.csv", "is neither a file nor a kind of workload; did you mean pods.csv?"),
        (f"openb:{tmp_path}/pods.csv/x", "cannot be read"),
        ("openb:", "names no file; write openb:PATH"),
        ("openb:a\0b", "no file is named"),
        ("", "is neither a file nor"),
        ("opemb:x", "'opemb' is no kind of workload; did you mean openb?"),
        ("zzz:x", "known: openb, philly, swf, ray, muster, generate"),
        ("openb:" + "x" * 5000, "cannot be read"),
    ]:
        with pytest.raises(InputError) as caught:
            read_workload(spec)
        assert what in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_bytes(SAMPLES["openb"])
    path.chmod(0)
    with pytest.raises(InputError, match=r"cannot be read \(Permission denied\)"):
        read_workload(f"openb:{path}")


def test_uniform_fleets() -> None:
    fleet, _ = read_fleet("uniform:nodes=12,gpus=0,cpu=2.5,memory_gib=1,prefix=c")
    assert [node.name for node in fleet][:2] == ["c-01", "c-02"]
    assert (fleet.gpus, fleet.cpu_milli, fleet.memory_bytes) == (0, 30_000, 12 * 2**30)
    for spec, what in [
        ("uniform", "field 'nodes': 'uniform': is missing; add nodes=NUMBER"),
        ("uniform:nodes=0", "is 0; from 1 to 1,000,000"),
        ("uniform:nodes=ten", "'ten' is not a whole number"),
        ("uniform:nodes=1,cpu=-1", "is not a number from 0"),
        ("uniform:nodes=1,gpu=8", "unknown option; did you mean gpus"),
        ("example:nodes=3", "it has no options"),
    ]:
        with pytest.raises(InputError) as caught:
            read_fleet(spec)
        assert what in str(caught.value)


def test_the_example_fleet() -> None:
    fleet, skipped = read_fleet("example")
    assert (len(fleet), fleet.gpus, skipped) == (150, 751, ())
    assert len({node.name for node in fleet}) == 150
    assert fleet.topology.levels == ("block", "rack")
    assert all(len(nodes) == 10 for nodes in fleet.domains("rack").values())


@pytest.mark.parametrize("path", ["", "a/b/c.trace", ".", "pipe", "/dev/null", "/dev/full", "n" * 5000, "file/x.trace"])
def test_what_cannot_be_replaced_by_a_file_is_refused(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("file").write_text("kept")
    devices = {device: Path(device).stat().st_mode for device in ("/dev/null", "/dev/full") if Path(device).exists()}
    for write in (lambda: check_target(path), lambda: write_fleet(Fleet(), path)):
        with pytest.raises(InputError) as told:
            write()
        assert len(str(told.value)) < 400
        assert "\n" not in str(told.value)
    assert {device: Path(device).stat().st_mode for device in devices} == devices
    assert sorted(one.name for one in Path().iterdir()) == ["file", "pipe"]


@pytest.mark.parametrize("kind", ["", "openb:", "swf:", "muster:", "kubectl:"])
def test_links_that_lead_nowhere_are_told_as_such(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("dangling").symlink_to("nothing")
    Path("loop").symlink_to("loop")
    read = read_fleet if kind == "kubectl:" else read_workload
    with pytest.raises(InputError, match="dangling: is a symbolic link that leads nowhere"):
        read(f"{kind}dangling")
    with pytest.raises(InputError, match=r"loop: (is a symbolic link that leads nowhere|cannot be read)"):
        read(f"{kind}loop")
