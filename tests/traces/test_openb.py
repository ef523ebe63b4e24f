from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from muster.errors import InputError
from muster.model import Device, Node, PodShape, ShapeMix
from muster.traces import read_fleet, read_workload

PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,12000,16384,1,1000,,LS,Running,0,12537496,5
b,6000,12288,1,460,T4|G2,BE,Pending,427061,427099,
c,4000,1024,0,0,,BE,Succeeded,7,19,8

d,96000,1,8,1000,"P100",LS,Running,7,7,7
"""
SHORT = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,8000,1024,0,\n"


def write(tmp_path: Path, text: str | bytes, name: str = "file.csv") -> str:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def test_pods(tmp_path: Path) -> None:
    trace = read_workload("openb:" + write(tmp_path, PODS))
    a, b, c, d = trace.workloads
    assert (a.name, a.quality, a.submitted_s, a.duration_s, a.recorded_wait_s) == ("a", "LS", 0.0, 12537491.0, 5.0)
    assert a.pod_sets[0].shape == PodShape(12000, 2**34, 1, 1000)
    assert b.pod_sets[0].shape == PodShape(6000, 12288 * 2**20, 1, 460, ("G2", "T4"))
    # Never scheduled: it lived from creation to deletion, and no wait is recorded.
    assert (b.duration_s, b.recorded_wait_s) == (38.0, None)
    assert c.pod_sets[0].shape == PodShape(4000, 2**30)
    assert d.duration_s == 0.0
    assert d.gpu_milli == 8000
    assert not trace.skipped


def test_five_columns_are_enough_and_equal_shapes_are_one_object(tmp_path: Path) -> None:
    trace = read_workload("openb:" + write(tmp_path, SHORT + "a,1,2,1,500\nb,1,2,1,500\n"))
    a, b = trace.workloads
    assert a.pod_sets is b.pod_sets
    assert (a.submitted_s, a.duration_s, a.recorded_wait_s) == (0.0, None, None)


def test_byte_order_mark_crlf_and_quoted_commas(tmp_path: Path) -> None:
    text = "\ufeff" + SHORT.replace("\n", "\r\n") + '"a,b",1,2,0,0\r\n\r\n'
    assert read_workload("openb:" + write(tmp_path, text)).workloads[0].name == "a,b"


def test_a_plain_path_is_recognised(tmp_path: Path) -> None:
    assert len(read_workload(write(tmp_path, PODS)).workloads) == 4
    assert len(read_fleet(write(tmp_path, NODES))[0]) == 2
    with pytest.raises(InputError, match="holds a fleet, not a workload"):
        read_workload(write(tmp_path, NODES))


def test_nodes(tmp_path: Path) -> None:
    fleet, skipped = read_fleet("openb:" + write(tmp_path, NODES))
    devices = (Device(0, "P100"), Device(1, "P100"))
    assert fleet.nodes == (Node("n0", 64000, 2**38, devices), Node("n1", 8000, 2**30))
    assert skipped == ()


@pytest.mark.parametrize(
    ("row", "line", "field", "what"),
    [
        ("a,-1,2,0,0", 2, "cpu_milli", "'-1' is negative"),
        ("a,nan,2,0,0", 2, "cpu_milli", "'nan' is not a whole number"),
        ("a,inf,2,0,0", 2, "cpu_milli", "is not a whole number"),
        ("a,1e30,2,0,0", 2, "cpu_milli", "absurdly large"),
        ("a,1_0,2,0,0", 2, "cpu_milli", "is not a whole number"),
        ("a,1.5,2,0,0", 2, "cpu_milli", "is not a whole number"),
        ("a,1,lots,0,0", 2, "memory_mib", "'lots' is not a whole number"),
        ("a,1,,0,0", 2, "memory_mib", "'' is not a whole number"),
        ("a,1,2,1,1001", 2, "gpu_milli", "is 1001 with num_gpu 1; 1 to 1000"),
        ("a,1,2,1,0", 2, "gpu_milli", "is 0 with num_gpu 1"),
        ("a,1,2,2,500", 2, "gpu_milli", "several GPUs are whole ones"),
        ("a,1,2,0,500", 2, "gpu_milli", "with num_gpu 0"),
        ("a,1,2,9999,1000", 2, "num_gpu", "absurdly large"),
        (",1,2,0,0", 2, "name", "is empty"),
        ("a,1,2,0,0\n\nb,1,2,0,0\na,1,2,0,0", 5, "name", "'a' is already the name on line 2"),
        ("a,1,2,0", 2, None, "has 4 columns, the header has 5"),
        ("a,1,2,0,0,7", 2, None, "has 6 columns"),
        ('"a\nb",1,2,0,0\nc,x,2,0,0', 4, "cpu_milli", "is not a whole number"),
        ('"a,1,2,0,0', 2, None, "is not valid CSV"),
    ],
)
def test_bad_rows(tmp_path: Path, row: str, line: int, field: str | None, what: str) -> None:
    path = write(tmp_path, SHORT + row + "\n")
    with pytest.raises(InputError) as caught:
        read_workload("openb:" + path)
    assert (caught.value.file, caught.value.field) == (path, field)
    assert caught.value.line == line or "CSV" in what
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("times", "field"), [("5,9,4", "scheduled_time"), ("5,4,", "deletion_time"), ("5,nan,5", "deletion_time")]
)
def test_clocks_that_run_backwards(tmp_path: Path, times: str, field: str) -> None:
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\n"
    with pytest.raises(InputError) as caught:
        read_workload("openb:" + write(tmp_path, f"{header}a,1,2,0,0,{times}\n"))
    assert caught.value.field == field


def test_missing_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"file.csv:1: field 'num_gpu': column is missing; did you mean num_gpus\?"):
        read_workload("openb:" + write(tmp_path, "name,cpu_milli,memory_mib,num_gpus,gpu_milli\na,1,2,3,4\n"))
    with pytest.raises(InputError, match="field 'sn': column is missing"):
        read_fleet("openb:" + write(tmp_path, "a,b\n1,2\n"))
    with pytest.raises(InputError, match="field 'name': column is there twice"):
        read_workload("openb:" + write(tmp_path, "name,name\n1,2\n"))


def test_header_only(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"file.csv:1: has a header but no rows"):
        read_workload("openb:" + write(tmp_path, SHORT))


def test_the_published_workloads(shared_data: Callable[[str], Path]) -> None:
    trace = read_workload(f"openb:{shared_data('openb/pods_default.csv')}")
    assert len(trace.workloads) == 8152
    assert sum(workload.gpu_milli for workload in trace.workloads) == 6_086_800
    assert sum(workload.gpu_milli > 0 for workload in trace.workloads) == 7064
    assert round(sum(workload.cpu_milli for workload in trace.workloads) / 1000) == 85_436
    fleet, _ = read_fleet(f"openb:{shared_data('openb/nodes.csv')}")
    assert (len(fleet), fleet.gpus, fleet.cpu_milli) == (1213, 6212, 107_018_000)
    assert fleet.memory_bytes == 503_828_480 * 2**20
    five_columns = read_workload(str(shared_data("openb/pods_multigpu50.csv")))
    assert len(ShapeMix.of(five_columns.workloads).shapes) == 151
    spot, _ = read_fleet(f"alibaba2026:{shared_data('fleets/alibaba_2026_nodes.csv')}")
    assert (len(spot), spot.gpus) == (4278, 10412)
