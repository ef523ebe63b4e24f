from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import InputError
from muster.model import Device, Fleet, Node, PodSet, PodShape, Taint, Toleration, Topology, Workload
from muster.traces import Skipped, Trace, read_fleet, read_workload, write_fleet, write_trace

words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
seconds = st.floats(0, 1e11)
pairs = st.lists(st.tuples(words, words), max_size=2).map(tuple)
shapes = st.builds(
    PodShape,
    cpu_milli=st.integers(0, 10**9),
    memory_bytes=st.integers(0, 2**50),
    gpus=st.integers(0, 16),
    gpu_milli=st.integers(1, 1000),
    gpu_models=st.lists(words, max_size=2).map(tuple),
    node_selector=pairs,
    tolerations=st.lists(st.builds(Toleration, words, words, words, words), max_size=2).map(tuple),
)
pod_sets = st.integers(1, 10**6).flatmap(
    lambda count: st.builds(
        PodSet, shapes, count=st.just(count), min_count=st.none() | st.integers(0, count), role=words
    )
)
workloads = st.builds(
    Workload,
    names,
    st.lists(pod_sets, min_size=1, max_size=3).map(tuple),
    submitted_s=st.floats(-1e11, 1e11),
    duration_s=st.none() | seconds,
    time_limit_s=st.none() | seconds,
    recorded_wait_s=st.none() | seconds,
    queue=words,
    user=words,
    namespace=words,
    priority=st.integers(-(2**31), 2**31),
    quality=words,
)
traces = st.builds(
    Trace,
    words,
    words,
    st.lists(workloads, max_size=5, unique_by=lambda workload: workload.name).map(tuple),
    st.lists(st.builds(Skipped, words, st.integers(0, 10**9), words, words), max_size=3).map(tuple),
    st.none() | words,
    pairs,
)
devices = st.lists(
    st.builds(
        lambda model, memory, healthy, mig: Device(0, model, memory, mig, healthy),
        names,
        st.integers(0, 2**50),
        st.booleans(),
        st.lists(st.tuples(words, st.integers(0, 8)), max_size=2).map(tuple),
    ),
    max_size=3,
).map(lambda found: tuple(msgspec.structs.replace(device, index=index) for index, device in enumerate(found)))
nodes = st.builds(
    Node,
    names,
    st.integers(0, 10**9),
    st.integers(0, 2**50),
    devices,
    labels=pairs,
    taints=st.lists(st.builds(Taint, words, words, words), max_size=2).map(tuple),
    topology=st.just(()) | st.tuples(words, words),
    schedulable=st.booleans(),
    reason=words,
)
fleets = st.builds(
    Fleet,
    st.lists(nodes, max_size=5, unique_by=lambda node: node.name).map(tuple),
    st.just(Topology(("zone", "rack"))),
    words,
)


@settings(deadline=None, max_examples=60)
@given(traces, st.sampled_from(["t", "t.gz"]))
def test_a_trace_comes_back_equal(trace: Trace, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        write_trace(trace, path)
        first = path.read_bytes()
        assert read_workload(f"muster:{path}") == trace
        write_trace(read_workload(str(path)), path)
        assert path.read_bytes() == first
        assert [entry.name for entry in Path(folder).iterdir()] == [name]


@settings(deadline=None, max_examples=60)
@given(fleets, st.sampled_from(["f", "f.gz"]))
def test_a_fleet_comes_back_equal(fleet: Fleet, name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        write_fleet(fleet, path)
        first = path.read_bytes()
        assert read_fleet(f"muster:{path}")[0] == fleet
        write_fleet(read_fleet(str(path))[0], path)
        assert path.read_bytes() == first


SHAPE = PodShape(1000, 2**30, 1, 500)
TRACE = Trace("t", "s", (Workload("a", (PodSet(SHAPE),)), Workload("b", (PodSet(SHAPE),), duration_s=5.0)))


def lines(tmp_path: Path) -> list[str]:
    write_trace(TRACE, tmp_path / "t")
    return (tmp_path / "t").read_text().splitlines()


def test_the_format_is_what_the_reference_says(tmp_path: Path) -> None:
    assert lines(tmp_path) == [
        '{"schema":"muster.trace/v1","name":"t","source":"s","epoch":null,"meta":[],'
        '"shapes":1,"pod_sets":1,"workloads":2,"skipped":0}',
        '{"cpu_milli":1000,"memory_bytes":1073741824,"gpus":1,"gpu_milli":500}',
        '[{"shape":0}]',
        '{"name":"a","pod_sets":0,"submitted_s":0.0}',
        '{"name":"b","pod_sets":0,"submitted_s":0.0,"duration_s":5.0}',
    ]


def test_gzip_holds_no_time_or_name(tmp_path: Path) -> None:
    write_trace(TRACE, tmp_path / "one.gz")
    write_trace(TRACE, tmp_path / "two.gz")
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()
    assert gzip.decompress((tmp_path / "one.gz").read_bytes()).startswith(b'{"schema":"muster.trace/v1"')


def edit(old: str, new: str, what: str) -> tuple[str, str, str]:
    return old, new, what


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        edit("trace/v1", "trace/v2", "1: field 'schema': is muster.trace/v2; this Muster reads up to v1; read it with"),
        edit("trace/v1", "fleet/v1", "1: field 'schema': is 'muster.fleet/v1', not 'muster.trace/v1'; this file"),
        edit('"workloads":2', '"workloads":3', "5: field 'workloads': ends after 2 of 3 workloads; copy it again"),
        edit('"workloads":2', '"workloads":1', "5: is more than the header promises"),
        edit('"workloads":2', '"workloads":-2', "1: field 'workloads': is -2"),
        edit('"shapes":1,', "", "1: field 'shapes': is missing"),
        edit('"name":"b"', '"name":"a"', "5: field 'name': 'a' is already the name on line 4"),
        edit('"name":"b"', '"name":""', "5: field 'name': is empty"),
        edit('"name":"b"', '"name":5', "5: field 'name': Expected `str`, got `int`"),
        edit('"name":"b"', '"name":"b","colour":1', "5: field 'colour': is unknown"),
        edit('"duration_s":5.0', '"duration_s":-5', "5: field 'duration_s': is negative"),
        edit('"duration_s":5.0', '"duration_s":1e30', "5: field 'duration_s': is absurd"),
        edit('"duration_s":5.0', '"duration_s":NaN', "5: is not valid JSON"),
        edit('{"name":"b","pod_sets":0', '{"name":"b","pod_sets":7', "5: field 'pod_sets': is 7; there are 1"),
        edit('"shape":0', '"shape":-1', "3: field 'shape': is -1"),
        edit('"shape":0', '"shape":0,"count":0', "3: field 'count': is 0"),
        edit('"shape":0', '"shape":0,"min_count":2', "3: field 'min_count': is 2 of 1 pods"),
        edit('"gpu_milli":500', '"gpu_milli":0', "3: field 'gpu_milli': is 0"),
        edit('[{"shape":0}]', "[]", "field 'pod_sets': has no pods"),
        edit("{", "[", "1: is not one of Muster's own files"),
    ],
)
def test_damaged_files(tmp_path: Path, old: str, new: str, what: str) -> None:
    text = "\n".join(lines(tmp_path))
    assert old in text
    path = tmp_path / "bad"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError) as caught:
        read_workload(f"muster:{path}")
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "workload",
    [
        Workload("", (PodSet(SHAPE),)),
        Workload("a", ()),
        Workload("a", (PodSet(SHAPE),), duration_s=float("nan")),
        Workload("a", (PodSet(SHAPE),), submitted_s=float("inf")),
        Workload("a", (PodSet(SHAPE, 0),)),
        Workload("a", (PodSet(PodShape(-1)),)),
        Workload("a\ud800", (PodSet(SHAPE),)),
    ],
)
def test_nothing_is_written_that_could_not_be_read(tmp_path: Path, workload: Workload) -> None:
    with pytest.raises(InputError):
        write_trace(Trace("t", "s", (workload,)), tmp_path / "t")
    with pytest.raises(InputError):
        write_trace(Trace("t", "s", (TRACE.workloads[0], TRACE.workloads[0])), tmp_path / "t")
    with pytest.raises(InputError, match="cannot be written"):
        write_trace(TRACE, tmp_path / "no" / "t")
    assert not list(tmp_path.iterdir())
