from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.errors import InputError
from muster.kube.objects import parse_quantity
from muster.model import PodPlacement, Taint, Toleration, load_snapshot, save_snapshot
from muster.model.reasons import Reason
from muster.traces import read_fleet, read_snapshot, read_snapshot_and_skipped


def node(name: str, gpus: int = 8, **status: Any) -> dict[str, Any]:
    sizes = {"cpu": "95500m", "memory": "512Gi", "nvidia.com/gpu": str(gpus), "pods": "110"}
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.memory": "81559",
        "topology.kubernetes.io/zone": "z1",
    }
    if not gpus:
        del labels["nvidia.com/gpu.product"]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels, "creationTimestamp": None},
        "status": {"allocatable": sizes, "capacity": sizes | {"cpu": "96"}} | status,
    }


def pod(name: str, on: str | None = None, gpus: int = 0, phase: str = "Running", **spec: Any) -> dict[str, Any]:
    requests = {"cpu": "1500m", "memory": "1Gi"} | ({"nvidia.com/gpu": gpus} if gpus else {})
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"nodeName": on, "containers": [{"resources": {"requests": requests}}, {}]} | spec,
        "status": {"phase": phase, "startTime": "2026-01-01T00:00:30Z" if on else None, "qosClass": "Burstable"},
    }


def dump(tmp_path: Path, *items: Any, kind: str = "List", **options: Any) -> str:
    path = tmp_path / "dump.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": kind, "items": list(items)}, indent=1, **options))
    return str(path)


def test_nodes(tmp_path: Path) -> None:
    cordoned = node("n2") | {"spec": {"unschedulable": True, "taints": [{"key": "a", "effect": "NoExecute"}]}}
    down = node("n3", conditions=[{"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}])
    sick = node("n4")
    sick["status"]["capacity"] = sick["status"]["capacity"] | {"nvidia.com/gpu": "9"}
    path = dump(tmp_path, node("n1"), cordoned, down, sick, node("cpu", 0))
    fleet, skipped = read_fleet(f"kubectl:{path}")
    n1, n2, n3, n4, cpu = fleet.nodes
    assert (n1.cpu_milli, n1.memory_bytes, len(n1.devices)) == (95500, 2**39, 8)
    assert (n1.devices[0].model, n1.devices[0].memory_bytes) == ("NVIDIA-H100-80GB-HBM3", 81559 * 2**20)
    assert (fleet.topology.levels, n1.topology) == (("zone",), ("z1",))
    assert (n2.schedulable, n2.reason, n2.taints) == (False, "cordoned", (Taint("a", "", "NoExecute"),))
    assert (n3.schedulable, n3.reason) == (False, "not ready (NodeStatusUnknown)")
    assert (len(n4.devices), n4.healthy_gpus) == (9, 8)
    assert cpu.devices == ()
    assert n1.max_pods == 110
    assert skipped == ()
    assert read_fleet(path)[0] == fleet


def test_pods(tmp_path: Path) -> None:
    first = pod("first", "n1", 2, tolerations=[{"key": "gpu", "operator": "Exists"}])
    first["spec"]["tolerations"].append({"key": "node.kubernetes.io/not-ready", "operator": "Exists"})
    init = {"resources": {"requests": {"cpu": "4"}}}
    sidecar = {"resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always"}
    path = dump(
        tmp_path,
        first,
        pod("second", "n1", 3),
        pod("too-many", "n1", 4),
        pod("elsewhere", "gone"),
        pod("done", "n1", 8, phase="Succeeded"),
        pod("waits", None, 8, phase="Pending", initContainers=[sidecar, init], overhead={"cpu": "250m"}, priority=7),
        node("n1"),
        {"kind": "ConfigMap"},
    )
    snapshot, skipped = read_snapshot_and_skipped(f"kubectl:{path}")
    assert [run.workload.name for run in snapshot.running] == ["ns/first", "ns/second", "ns/too-many"]
    assert [run.pods for run in snapshot.running] == [
        (PodPlacement("n1", (0, 1), 1000),),
        (PodPlacement("n1", (2, 3, 4), 1000),),
        (PodPlacement("n1", (5, 6, 7), 1000),),
    ]
    assert snapshot.running[0].workload.pod_sets[0].shape.tolerations == (Toleration("gpu", "Exists"),)
    (waiting,) = snapshot.pending
    assert (waiting.pod_sets[0].shape.cpu_milli, waiting.gpu_milli, waiting.priority) == (5250, 8000, 7)
    assert snapshot.taken_s - waiting.submitted_s == 30
    assert [one.field for one in skipped] == ["items[7].kind", "items[2].spec.nodeName", "items[3].spec.nodeName"]
    assert [Path(path).read_text().splitlines()[one.line - 1].strip() for one in skipped] == ["{"] * 3
    assert "Pod ns/too-many has more than its node has now: it holds what there is" in str(skipped[1])
    (whole,), (free,) = read_fleet(f"kubectl:{path}")[0].nodes, read_fleet(f"kubectl:{path},pods=subtract")[0].nodes
    assert (whole.healthy_gpus, whole.cpu_milli) == (8, 95500)
    assert (free.healthy_gpus, free.cpu_milli, free.memory_bytes) == (0, 91000, 509 * 2**30)
    save_snapshot(snapshot, tmp_path / "s.snap")
    assert load_snapshot(tmp_path / "s.snap") == snapshot
    assert read_fleet(str(tmp_path / "s.snap"))[0] == snapshot.fleet
    assert read_snapshot(str(tmp_path / "s.snap")) == snapshot


def test_a_single_node_and_a_node_list_without_kinds(tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text(json.dumps(node("n1")))
    assert len(read_fleet(f"kubectl:{tmp_path / 'one.json'}")[0]) == 1
    bare = node("n1")
    del bare["kind"]
    assert len(read_fleet("kubectl:" + dump(tmp_path, bare, kind="NodeList"))[0]) == 1


def without(path: str) -> dict[str, Any]:
    broken = node("n1")
    del broken["status"][path]
    return broken


@pytest.mark.parametrize(
    ("items", "what"),
    [
        ([], "field 'items': holds no nodes"),
        ([pod("p")], "holds no nodes"),
        ([node("n1"), node("n1")], "field 'metadata.name': Node 'n1' is already on line 5"),
        ([node("n1", allocatable=[])], "field 'items[0].status.allocatable': Expected `object | null`, got `array`"),
        ([{"kind": "Node"}], "items[0]"),
        ([{"kind": "Node", "metadata": {}, "status": node("n")["status"]}], "field 'items[0].metadata.name': is empty"),
        ([5], "items[0]"),
        ([node("n1"), pod("p", "n1"), pod("p", "n1")], "Pod 'ns/p' is already on line"),
    ],
)
def test_bad_objects(tmp_path: Path, items: list[Any], what: str) -> None:
    path = dump(tmp_path, *items)
    with pytest.raises(InputError) as caught:
        read_fleet(f"kubectl:{path}")
    assert what in str(caught.value)
    assert caught.value.file == path


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"kind": "List",\n "items": [}', "2: is not valid JSON"),
        ('{"kind": "Deployment"}', "field 'kind': is of kind 'Deployment', not a List"),
        ("[]", "is JSON but no Kubernetes list"),
        ('{"a": 1}', "is not a Kubernetes list"),
        ("[" * 100_000, "no Kubernetes list"),
    ],
)
def test_bad_documents(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(InputError) as caught:
        read_fleet(f"kubectl:{tmp_path / 'bad.json'}")
    assert what in str(caught.value)


def test_quantities() -> None:
    expected = {"100m": 1, "1": 1, "1.5": 2, "2Ki": 2048, "1e3": 1000, "1E": 10**18, "5k": 5000, ".5Gi": 2**29}
    assert {text: parse_quantity(text) for text in expected} == expected
    assert parse_quantity("1500m", 1000) == 1500
    for bad in ("", "x", "1x", "1 Gi", "--1", "1e", "nan", "1e999"):
        with pytest.raises(ValueError, match=r".*"):
            parse_quantity(bad)


@pytest.mark.parametrize(
    ("sizes", "field", "why"),
    [
        ({}, "status.allocatable", "states no cpu: it takes no pods"),
        ({"cpu": "lots", "memory": "1"}, "status.allocatable['cpu']", "is no amount that makes sense"),
        ({"cpu": "-1", "memory": "1"}, "status.allocatable['cpu']", "is no amount that makes sense"),
        ({"cpu": "1", "memory": "99E"}, "status.allocatable['memory']", "is no amount that makes sense"),
    ],
)
def test_a_node_that_makes_no_sense_takes_no_more_than_it_says(
    tmp_path: Path, sizes: dict[str, str], field: str, why: str
) -> None:
    fleet, skipped = read_fleet("kubectl:" + dump(tmp_path, node("n1", allocatable=sizes, capacity=sizes), node("n2")))
    assert [len(each.devices) for each in fleet.nodes] == [0, 8]
    assert [(each.field, each.line) for each in skipped] == [(f"items[0].{field}", 5)]
    assert why in skipped[0].why


def test_a_dump_in_several_files_or_a_folder(tmp_path: Path) -> None:
    def write(name: str, *items: Any) -> str:
        (tmp_path / name).write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        return str(tmp_path / name)

    nodes, pods = write("nodes.json", node("n1")), write("pods.json", pod("p", "n1", 2))
    (tmp_path / "notes.txt").write_text("not read")
    for spec in (f"kubectl:{nodes},{pods}", f"{nodes},{pods}", f"kubectl:{tmp_path}", str(tmp_path)):
        snapshot, skipped = read_snapshot_and_skipped(spec)
        assert ([run.workload.name for run in snapshot.running], skipped) == (["ns/p"], ())
    write("again.json", node("n1"))
    with pytest.raises(InputError, match=r"nodes\.json.*Node 'n1' is already on .*again\.json:1"):
        read_snapshot_and_skipped(str(tmp_path))


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"holds no \.json file; write the file with: kubectl get nodes,pods"):
        read_snapshot(f"kubectl:{tmp_path / 'empty'}")
    snapshot, skipped = read_snapshot_and_skipped("kubectl:" + dump(tmp_path, node("n1")))
    assert (snapshot.running, [each.field for each in skipped]) == ((), ["items"])
    assert "holds no pods: every node counts as free" in skipped[0].why


def test_kinds_that_are_not_read_are_told_once_each(tmp_path: Path) -> None:
    others = [{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": f"d{at}"}} for at in range(3)]
    _, skipped = read_snapshot_and_skipped("kubectl:" + dump(tmp_path, node("n1"), pod("p", "n1"), *others))
    assert [(each.field, each.why) for each in skipped] == [
        ("items[2].kind", "is of kind Deployment.apps, which is not read (3 of them)")
    ]


def volume(name: str, *values: str, operator: str = "In") -> list[dict[str, Any]]:
    term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": operator, "values": list(values)}]}
    return [
        {
            "kind": "PersistentVolume",
            "metadata": {"name": f"pv-{name}"},
            "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}},
        },
        {
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": name,
                "namespace": "ns",
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {"volumeName": f"pv-{name}"},
            "status": {"phase": "Bound"},
        },
    ]


def test_a_volume_that_only_some_nodes_reach_is_a_node_selector(tmp_path: Path) -> None:
    def with_claim(name: str, claim: str) -> dict[str, Any]:
        return pod(name, None, 1, phase="Pending", volumes=[{"persistentVolumeClaim": {"claimName": claim}}, {}])

    waits = [with_claim("one", "z1"), with_claim("many", "either"), with_claim("unbound", "none")]
    path = dump(tmp_path, *volume("z1", "z1"), *volume("either", "z1", "z2"), node("n1"), *waits)
    snapshot, skipped = read_snapshot_and_skipped(f"kubectl:{path}")
    selectors = [each.pod_sets[0].shape.node_selector for each in snapshot.pending]
    (mark,) = selectors[1]
    assert selectors == [(("topology.kubernetes.io/zone", "z1"),), (mark,), ()]
    assert mark in snapshot.fleet.nodes[0].labels
    (note,) = skipped
    assert (
        note.why
        == "Pod ns/unbound its claim none is not there: make it, or take it out of the pod: it is held until then"
    )


def test_pods_that_terminate_hold_their_room_for_who_is_nominated(tmp_path: Path) -> None:
    leaves = pod("old", "n1", 8)
    leaves["metadata"]["deletionTimestamp"] = "2026-01-01T00:02:00Z"
    gone = pod("gone", None, 8, phase="Pending")
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:02:00Z"
    waits = pod("new", None, 8, phase="Pending")
    waits["status"]["nominatedNodeName"] = "n1"
    full = node("n2")
    full["status"]["allocatable"] = full["status"]["allocatable"] | {"pods": "1"}
    path = dump(tmp_path, node("n1"), full, leaves, gone, waits, pod("small", "n2"), pod("one-more", "n2"))
    snapshot, skipped = read_snapshot_and_skipped(f"kubectl:{path}")
    old, small = snapshot.running
    assert (old.workload.name, old.leaving_for, small.leaving_s) == ("ns/old", "ns/new", None)
    assert old.leaving_s == pytest.approx(1767225720.0)
    assert [each.name for each in snapshot.pending] == ["ns/new"]
    assert "ns/one-more is one more than the pods that its node may have" in skipped[0].why
    scheduler = Scheduler(snapshot, Config())
    scheduler.cycle(1767225700.0)
    assert list(scheduler.waits(1767225700.0)) == [("ns/new", Reason.EVICTING)]
