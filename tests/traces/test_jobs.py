from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.errors import InputError
from muster.model import PodSet, PodShape
from muster.traces import Skipped, read_workload

PHILLY = """\
timestamp,duration,num_gpus,gpu_time,cluster
2017-10-09 07:01:55,66.0,1,66.0,11cb48
2017-10-09 06:13:03,2951.0,20,1,6214e9
2017-10-09 06:13:04,0,1,1,6214e9
2017-10-09 06:13:04,5,0,1,6214e9
2017-10-09 06:13:05,5,16,1,6214e9
"""
SWF = """\
; Version: 2.2
; UnixStartTime: 1027839845
; Note: a note

    1        0 308434  31405   30  31405    -1   30  37980 1000  1   1   2  -1  1 -1 -1 -1
    2        8      5  552.5   30  31039    -1   30     -1    -1  0   1   1  -1  1 -1 -1 -1 9 9 9
    3       12     -1     -1   30  30978    -1   30  37980    -1  5   1   1  -1  1 -1 -1 -1
    4       13      0     10    4     -1    -1   -1  37980    -1 -1  -1  -1  -1 -1 -1 -1 -1
    5       13      0     10   -1     -1    -1    0  37980    -1  1   1   1  -1  1 -1 -1 -1
"""


def write(tmp_path: Path, text: str | bytes, name: str) -> str:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_philly(tmp_path: Path) -> None:
    path = write(tmp_path, PHILLY, "p.csv")
    trace = read_workload(f"philly:{path}")
    assert trace.epoch == "2017-10-09T06:13:03"
    first, second, third = trace.workloads
    assert (first.name, first.submitted_s, first.duration_s, first.queue) == ("job-1", 2932.0, 66.0, "11cb48")
    assert (second.name, second.submitted_s) == ("job-2", 0.0)
    eight, four = PodShape(gpus=8), PodShape(gpus=4)
    assert second.pod_sets == (PodSet(eight, 2), PodSet(four, role="rest"))
    assert third.pod_sets == (PodSet(eight, 2),)
    assert trace.skipped == (
        Skipped(path, 4, "duration", "ran for 0 seconds"),
        Skipped(path, 5, "num_gpus", "asks for no GPU"),
    )
    assert read_workload(path).workloads == trace.workloads


def test_philly_options(tmp_path: Path) -> None:
    path = write(tmp_path, PHILLY, "p,a=b.csv")
    (_, second, _) = read_workload(f"philly:{path},gpus_per_pod=4,cpu_per_gpu=2.5,memory_gib_per_gpu=1").workloads
    assert second.pod_sets == (PodSet(PodShape(10000, 2**32, 4), 5),)
    with pytest.raises(InputError, match=r"field 'gpu_per_pod': .* did you mean gpus_per_pod"):
        read_workload(f"philly:{path},gpu_per_pod=4")
    with pytest.raises(InputError, match=r"field 'gpus_per_pod': .*is 0; from 1 to 1,024"):
        read_workload(f"philly:{path},gpus_per_pod=0")


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ("2017-13-09 07:01:55,1,1", "timestamp"),
        ("soon,1,1", "timestamp"),
        ("2017-10-09 07:01:55+00:00,1,1", "timestamp"),
        ("2017-10-09 07:01:55,-1,1", "duration"),
        ("2017-10-09 07:01:55,1e30,1", "duration"),
        ("2017-10-09 07:01:55,1,-1", "num_gpus"),
        ("2017-10-09 07:01:55,1,1\n5,1,1", "timestamp"),
    ],
)
def test_philly_bad_rows(tmp_path: Path, row: str, field: str) -> None:
    with pytest.raises(InputError) as caught:
        read_workload("philly:" + write(tmp_path, f"timestamp,duration,num_gpus\n{row}\n", "p.csv"))
    assert caught.value.field == field
    assert caught.value.line == 2 + row.count("\n")


@pytest.mark.parametrize("packed", [False, True])
def test_swf(tmp_path: Path, packed: bool) -> None:
    path = write(tmp_path, gzip.compress(SWF.encode()) if packed else SWF, "s.swf.gz" if packed else "s.swf")
    trace = read_workload(f"swf:{path}")
    assert trace.name == "s"
    assert trace.epoch == "2002-07-28T07:04:05+00:00"
    assert trace.meta == (("Version", "2.2"), ("UnixStartTime", "1027839845"), ("Note", "a note"))
    one, two, four = trace.workloads
    assert (one.name, one.submitted_s, one.duration_s, one.time_limit_s) == ("job-1", 0.0, 31405.0, 37980.0)
    assert (one.recorded_wait_s, one.user, one.namespace, one.queue) == (308434.0, "user-1", "group-2", "queue-1")
    assert one.pod_sets == (PodSet(PodShape(1000), 30),)
    assert one.pod_sets is two.pod_sets
    assert (two.duration_s, two.time_limit_s, two.quality) == (552.5, None, "failed")
    assert (four.pod_sets, four.quality, four.user) == ((PodSet(PodShape(1000), 4),), "", "")
    assert [(skip.line, skip.field) for skip in trace.skipped] == [(7, "run"), (9, "requested_processors")]
    assert read_workload(path).workloads == trace.workloads
    with_memory = read_workload(f"swf:{path},memory=1").workloads
    assert with_memory[0].pod_sets[0].shape.memory_bytes == 1000 * 1024


@pytest.mark.parametrize(
    ("column", "value", "field"),
    [
        (1, "x", "submit"),
        (1, "-5", "submit"),
        (1, "-1", "submit"),
        (3, "nan", "run"),
        (3, "1e30", "run"),
        (3, "99999999999999999999999999", "run"),
        (7, "2000000", "requested_processors"),
        (7, "1.5", "requested_processors"),
        (2, "1_0", "wait"),
        (0, "inf", "job"),
    ],
)
def test_swf_bad_columns(tmp_path: Path, column: int, value: str, field: str) -> None:
    values = ["1", "0", "0", "10", "4", "-1", "-1", "4", "60", "-1", "1", "1", "1", "-1", "1", "-1", "-1", "-1"]
    values[column] = value
    with pytest.raises(InputError) as caught:
        read_workload("swf:" + write(tmp_path, "; c\n" + " ".join(values) + "\n", "s.swf"))
    assert (caught.value.line, caught.value.field) == (2, field)


def test_swf_bad_files(tmp_path: Path) -> None:
    row = "1 0 0 10 4 -1 -1 4 60 -1 1 1 1 -1 1 -1 -1 -1\n"
    for text, what in [
        (row + row, "2: field 'job': 1 is already the number of the job on line 1"),
        (row[:20] + "\n", "has 9 columns, SWF has 18"),
        ("; only comments\n", "1: holds comments but no jobs"),
    ]:
        with pytest.raises(InputError, match=what):
            read_workload("swf:" + write(tmp_path, text, "s.swf"))
    whole = gzip.compress(SWF.encode())
    for data, what in [
        (whole[:-20], "is a gzip file that is cut short"),
        (whole[:40] + b"\xff\xff" + whole[42:], "gzip"),
        (SWF.encode(), "is not a gzip file although its name ends in .gz"),
    ]:
        with pytest.raises(InputError, match=what):
            read_workload("swf:" + write(tmp_path, data, "s.swf.gz"))


def test_real_jobs(shared_data: Callable[[str], Path]) -> None:
    philly = read_workload(f"philly:{shared_data('jobs/philly_sia.csv')}")
    assert (len(philly.workloads), len(philly.skipped)) == (82247, 0)
    assert len({workload.queue for workload in philly.workloads}) == 15
    assert max(workload.gpu_milli for workload in philly.workloads) == 128_000
    hpc2n = read_workload(f"swf:{shared_data('jobs/hpc2n.swf')}")
    assert len(hpc2n.workloads) + len(hpc2n.skipped) == 3170


@pytest.mark.slow
def test_a_large_swf_shares_what_is_equal(shared_data: Callable[[str], Path]) -> None:
    ricc = read_workload(f"swf:{shared_data('jobs/RICC-2010-2.swf.gz')}")
    assert len(ricc.workloads) + len(ricc.skipped) == 447_794
    assert len({id(workload.pod_sets) for workload in ricc.workloads}) < 1000
