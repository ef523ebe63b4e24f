from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.cli.main import run


def muster(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(["fleet", *args])
    out, err = capfd.readouterr()
    return ended.value.code, out, err


def node(
    name: str, cpu: int = 96, memory: str = "512Gi", gpus: int = 8, withdrawn: int = 0, **spec: Any
) -> dict[str, Any]:
    sizes = {"cpu": str(cpu), "memory": memory, "nvidia.com/gpu": str(gpus - withdrawn)}
    labels = {"nvidia.com/gpu.product": "H100"}
    status = {"allocatable": sizes, "capacity": sizes | {"nvidia.com/gpu": str(gpus)}}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def pod(name: str, on: str | None, gpus: int, cpu: int = 4, memory: str = "8Gi") -> dict[str, Any]:
    asked = {"cpu": str(cpu), "memory": memory, "nvidia.com/gpu": str(gpus)}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"nodeName": on, "containers": [{"resources": {"requests": asked}}]},
        "status": {"phase": "Running" if on else "Pending"},
    }


TAINT = {"key": "gpu", "effect": "NoSchedule"}
SOFT = {"key": "old", "effect": "PreferNoSchedule"}
CLUSTER = (
    node("free-1"), node("free-2", taints=[SOFT]), node("part-1"), node("full-1"), node("sick-1", withdrawn=1),
    node("taint-1", taints=[TAINT]), node("cordon-1", unschedulable=True, taints=[TAINT]),
    pod("a", "part-1", 3), pod("b", "full-1", 8), pod("waits", None, 8),
)  # fmt: skip


def dump(tmp_path: Path, *items: dict[str, Any]) -> str:
    path = tmp_path / "now.json"
    path.write_text(json.dumps({"kind": "List", "items": list(items)}))
    return f"kubectl:{path}"


def test_nodes_by_state(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = muster(capfd, "show", dump(tmp_path, *CLUSTER), "-o", "json")
    document = json.loads(out)
    assert (code, document["schema"]) == (0, "muster.fleet.show/v1")
    keys = ("nodes", "gpus", "gpus_free", "gpus_whole_free", "gpus_unhealthy", "first_nodes")
    found = {group["state"]: tuple(group[key] for key in keys) for group in document["groups"]}
    assert found == {
        "whole free": (2, 16, 16, 16, 0, "free-1 free-2"),
        "partly used": (1, 8, 5, 5, 0, "part-1"),
        "full": (1, 8, 0, 0, 0, "full-1"),
        "unhealthy devices": (1, 7, 7, 7, 1, "sick-1"),
        "tainted": (1, 8, 8, 8, 0, "taint-1"),
        "cordoned": (1, 8, 0, 0, 0, "cordon-1"),
    }


def test_fleets_without_pods_are_free(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = muster(capfd, "show", "uniform:nodes=3,gpus=8", "-o", "json")
    (group,) = json.loads(out)["groups"]
    assert (code, group["state"], group["nodes"], group["gpus"], group["gpus_whole_free"]) == (
        0,
        "whole free",
        3,
        24,
        24,
    )


# What runs beside a pod that typically comes; the cause that its free GPUs fall to, and how many.
CAUSES = [
    ("nothing", [], "useful", 8),
    ("half of the GPUs are taken", [pod("a", "n", 3)], "lack_of_gpu", 5),
    ("the CPU is taken", [pod("a", "n", 0, cpu=90)], "lack_of_cpu", 8),
    ("the memory is taken", [pod("a", "n", 0, memory="500Gi")], "lack_of_memory", 8),
]


@pytest.mark.parametrize(("running", "cause", "gpus"), [row[1:] for row in CAUSES], ids=[row[0] for row in CAUSES])
def test_causes(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, running: list[dict[str, Any]], cause: str, gpus: int
) -> None:
    # 99 waiting pods of 8 GPUs are the typical ones, the one that runs is not.
    waiting = [pod(f"w{number}", None, 8, cpu=40, memory="100Gi") for number in range(99)]
    code, out, _ = muster(capfd, "frag", dump(tmp_path, node("n"), *running, *waiting), "-o", "json")
    document = json.loads(out)
    assert (code, document["schema"], document["gpus_free"]) == (0, "muster.fleet.frag/v1", gpus)
    lost = {one["cause"]: (one["gpus"], one["percent"]) for one in document["causes"] if one["gpus"]}
    assert lost == {cause: (gpus, 100)}
    assert (document["advice"].startswith("Nothing")) == (cause == "useful")


def gangs(out: str) -> dict[int, int]:
    return {one["gpus"]: one["gangs"] for one in json.loads(out)["gangs"]}


def test_gangs_need_cpu_memory_and_open_nodes(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    few_cpus, little_memory = node("c", cpu=47), node("m", memory="50Gi")
    closed = (node("t", taints=[TAINT]), node("u", unschedulable=True))
    waiting = [pod("one", None, 1, cpu=6, memory="10Gi"), pod("eight", None, 8, cpu=48, memory="80Gi")]
    spec = dump(tmp_path, node("a"), node("b"), few_cpus, little_memory, *closed, *waiting)
    code, out, _ = muster(capfd, "frag", spec, "-o", "json")
    # Of 1 GPU: 8 + 8 + 7 by CPU + 5 by memory. Of 2 (no such pod: 6 CPU, 10 GiB a GPU): 4 + 4 + 3 + 2. Of 8: a, b.
    assert (code, gangs(out)) == (0, {1: 28, 2: 13, 4: 4 + 1 + 1, 8: 2, 16: 1, 32: 0})
    assert json.loads(out)["gangs"][4]["pod"] == "8 GPUs, 48 CPU, 80 GiB"


def test_gangs_stay_on_one_model(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = node("b")
    other["metadata"]["labels"] = {"nvidia.com/gpu.product": "A100"}
    _, out, _ = muster(capfd, "frag", dump(tmp_path, node("a"), other), "-o", "json")
    assert gangs(out) == {1: 16, 2: 8, 4: 4, 8: 2, 16: 0}


def test_every_format(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = dump(tmp_path, *CLUSTER)
    outputs = {}
    for what in ("show", "frag"):
        for form in ("table", "wide", "json", "yaml", "csv", "name"):
            code, outputs[what, form], _ = muster(capfd, what, spec, "-o", form)
            assert code == 0
    for what in ("show", "frag"):
        assert yaml.safe_load(outputs[what, "yaml"]) == json.loads(outputs[what, "json"])
    shown = list(csv.DictReader(io.StringIO(outputs["show", "csv"])))
    assert [row["state"] for row in shown if row["nodes"] == "2"] == ["whole free"]
    items = {row["item"]: row for row in csv.DictReader(io.StringIO(outputs["frag", "csv"]))}
    assert items["gangs of 8"]["gangs"] == "2"
    assert set(items) == set(outputs["frag", "name"].split("\n")) - {""}
    assert "cordon-1" in outputs["show", "wide"]
    assert "cordon-1" not in outputs["show", "table"]
    assert "Typical pods: those that run and wait on this fleet." in outputs["frag", "table"]
    assert "Most is lost to closed nodes, 8.0 GPUs (22.2 %): let the pods accept" in outputs["frag", "table"]


def test_snapshots_and_what_was_left_out(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    lost = [pod(f"lost-{number}", "gone", 1) for number in range(5)]
    code, _, err = muster(capfd, "show", dump(tmp_path, node("n"), *lost))
    assert (code, err.count("\n")) == (0, 1)
    assert "lost-0 is bound to a node that is not there: it is left out (5 alike)" in err
    others = [{"apiVersion": "v1", "kind": f"Thing{number}", "metadata": {"name": "x"}} for number in range(5)]
    code, _, err = muster(capfd, "show", dump(tmp_path, node("n"), pod("p", "n", 1), *others))
    assert (code, err.count("\n")) == (0, 4)
    assert "skipped 2 more" in err


@pytest.mark.parametrize("what", ["show", "frag"])
def test_errors_are_one_line(capfd: pytest.CaptureFixture[str], tmp_path: Path, what: str) -> None:
    broken = pod("p", "n", 1)
    broken["spec"]["containers"] = 5
    cases = [((), "holds no nodes"), ((node("n"), broken), "items[1].spec.containers")]
    for items, message in cases:
        code, out, err = muster(capfd, what, dump(tmp_path, *items))
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert message in err
    code, out, err = muster(capfd, what, "nosuch:x")
    assert (code, out, err.count("\n")) == (2, "", 1)
