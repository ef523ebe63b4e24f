"""Snapshots as documents, in short, and compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.answers.snapshots import differences, summarize
from muster.answers.sources import read_source
from muster.engine.config import config_of
from muster.engine.decide import decide
from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.plan import PodPlacement
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Running, Snapshot
from muster.model.workload import PodSet, PodShape, Workload
from muster.traces import read_fleet
from muster.traces.snapshots import snapshot_text

Make = Callable[[int], Snapshot]


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**9), form=st.sampled_from(["json", "yaml"]))
def test_a_document_read_back_is_the_same_snapshot(
    seed: int, form: str, random_snapshot: Make, tmp_path_factory: pytest.TempPathFactory
) -> None:
    snapshot = random_snapshot(seed)
    path = tmp_path_factory.mktemp("s") / f"now.{form}"
    path.write_bytes(snapshot_text(snapshot, form))
    again, skipped = read_source(str(path))
    assert (again, skipped) == (snapshot, ())
    assert msgspec.msgpack.encode(again) == msgspec.msgpack.encode(snapshot), "also by type: 1 is not 1.0"
    assert read_fleet(str(path))[0] == snapshot.fleet
    config = config_of(dict(snapshot.settings))
    assert decide(again, again.taken_s, config) == decide(snapshot, snapshot.taken_s, config)


DEVICES = tuple(Device(index, "H100") for index in range(2))
NODES = tuple(Node(f"n{number}.x", 8000, 1 << 34, DEVICES, topology=("r1",)) for number in range(3))
JOB = Workload("a.b", (PodSet(PodShape(1000, 0, 1), 2),), queue="q", user="ann")
BASE = Snapshot(
    Fleet(NODES, Topology(("rack",))), (Queue("q", quotas=(Quota("H100", 4000),)),), pending=(replace(JOB, name="w"),),
    running=(Running(JOB, 5.0, (PodPlacement("n0.x", (0,), 1000), PodPlacement("n1.x", (1,), 1000))),), taken_s=10.0,
)  # fmt: skip


def edited(path: str, value: Any) -> dict[str, Any]:
    """The document of BASE with one value put in at a dotted path, numbers for places in lists."""
    found: Any = json.loads(snapshot_text(BASE, "json"))
    *way, last = path.split(".")
    at = found
    for name in way:
        at = at[int(name) if name.isdigit() else name]
    at[int(last) if last.isdigit() else last] = value
    return found


WRONG = {
    "schema": ("muster.snapshot/v9", "is 'muster.snapshot/v9'; this Muster reads muster.snapshot/v1; read it with"),
    "fleet.nodes.1.cpu_mili": (5, "field 'fleet.nodes[1].cpu_mili': is not known; did you mean cpu_milli?"),
    "fleet.nodes.1.cpu_milli": ("many", "field 'fleet.nodes[1].cpu_milli': must be a whole number, not text"),
    "fleet.nodes.1.memory_bytes": (-1, "field 'fleet.nodes[1].memory_bytes': is negative"),
    "fleet.nodes.1.name": ("n0.x", "field 'fleet.nodes[1].name': 'n0.x' is there already"),
    "fleet.nodes.1.topology": (["r1", "x"], "field 'fleet.nodes[1].topology': has 2 domains for 1 levels"),
    "fleet.nodes.0.devices": ({"count": -2, "model": "H100"}, "nodes[0].devices.count': must be a whole number"),
    "fleet.nodes.0.devices.kount": (2, "field 'fleet.nodes[0].devices.kount': is not known; did you mean count?"),
    "queues.0.quotas.0.nominal": (2, "field 'queues[0].quotas[0].nominal': is not known; did you mean nominal_milli?"),
    "pending.0.name": ("a.b", "field 'running[0].workload.name': 'a.b' is there already"),
    "pending.0.pod_sets": ([], "field 'pending[0].pod_sets': has no pods"),
    "pending.0.pod_sets.0.count": (0, "field 'pending[0].pod_sets[0].count': is 0; at least 1"),
    "pending.0.pod_sets.0.shape.gpu_milli": (2000, "field 'pending[0].pod_sets[0].shape.gpu_milli': is absurdly large"),
    "running.0.pods.1.node": ("n7.x", "field 'running[0].pods[1].node': there is no node 'n7.x'; did you mean"),
    "running.0.pods.1.devices": ([4], "field 'running[0].pods[1].devices': there is no GPU 4 on n1.x; 0 to 1"),
    "running.0.pods.1": ({"node": "n0.x", "devices": [0], "gpu_milli": 1000}, "GPU 0 of n0.x is given out"),
    "running.0.pods": ([{"node": "n0.x", "devices": [0], "gpu_milli": 1000}], "has 1 places for 2 pods; one a pod"),
    "running.0.counts": ([1, 1], "field 'running[0].counts': has 2 numbers for 1 pod sets"),
    "running.0.missing": ([5], "field 'running[0].missing': holds a rank that there is not; each once, 0 to 1"),
    "failures": ([{"node": "n9", "workload": "w", "time_s": 0}], "field 'failures[0].node': there is no node 'n9'"),
    "runing": ([], "field 'runing': is not known; did you mean running"),
    "settings": ({"reservations": [1]}, "field 'settings.reservations': must be a single value"),
    "fleet.nodes.0.labels": ({"a": 1}, "field 'fleet.nodes[0].labels.a': must be text; put it in quotes"),
}  # fmt: skip


@pytest.mark.parametrize("path", WRONG)
@pytest.mark.parametrize("form", ["json", "yaml"])
def test_each_slip_in_a_document_is_told_with_its_path(path: str, form: str, tmp_path: Path) -> None:
    value, told = WRONG[path]
    file = tmp_path / f"s.{form}"
    document = edited(path, value)
    file.write_text(json.dumps(document) if form == "json" else yaml.safe_dump(document, sort_keys=False))
    with pytest.raises(InputError) as error:
        read_source(str(file))
    assert told in str(error.value)
    if form == "yaml":
        assert error.value.line


def test_a_document_that_is_cut_is_told(tmp_path: Path) -> None:
    file = tmp_path / "s.json"
    file.write_bytes(snapshot_text(BASE, "json")[:700])
    with pytest.raises(InputError, match=r"s\.json.*is cut short; copy it again"):
        read_source(str(file))
    file.write_bytes(snapshot_text(BASE, "json").replace(b"[", b"[[", 1))
    with pytest.raises(InputError, match=r"s\.json:\d+: is no JSON"):
        read_source(str(file))


def test_labels_and_settings_are_mappings_and_like_gpus_are_told_once() -> None:
    node = replace(NODES[0], labels=(("a", "1"), ("b", "2")))
    found = json.loads(snapshot_text(replace(BASE, fleet=Fleet((node,)), settings=(("reservations", 2),)), "json"))
    assert found["settings"] == {"reservations": 2}
    assert found["fleet"]["nodes"][0]["labels"] == {"a": "1", "b": "2"}
    assert found["fleet"]["nodes"][0]["devices"] == {"count": 2, "model": "H100"}
    sick = replace(node, devices=(DEVICES[0], replace(DEVICES[1], healthy=False)))
    told = json.loads(snapshot_text(replace(BASE, fleet=Fleet((sick,))), "json"))["fleet"]["nodes"][0]["devices"]
    assert told == [{"index": 0, "model": "H100"}, {"index": 1, "model": "H100", "healthy": False}]


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_summary_sums_up(seed: int, random_snapshot: Make) -> None:
    snapshot = random_snapshot(seed)
    found = summarize(snapshot)
    assert sum(each.gpus for each in found.flavors) == snapshot.fleet.gpus
    assert sum(each.nodes for each in found.flavors) == len(snapshot.fleet)
    assert sum(each.used_gpus for each in found.flavors) == pytest.approx(found.running_gpus)
    assert sum(each.running for each in found.queues) == found.running == len(snapshot.running)
    assert sum(each.pending_gpus for each in found.queues) == pytest.approx(found.pending_gpus)
    assert all(each.used_gpus + each.free_gpus <= each.gpus for each in found.flavors)


def run_of(name: str, node: str, started_s: float = 5.0) -> Running:
    return Running(
        replace(JOB, name=name, pod_sets=(PodSet(PodShape(0, 0, 1)),)), started_s, (PodPlacement(node, (0,), 1000),)
    )


def wait_of(name: str) -> Workload:
    return run_of(name, "n0.x").workload


def test_what_happened_between_two_snapshots() -> None:
    one = replace(BASE, running=(run_of("r.1", "n0.x"), run_of("r2", "n1.x"), run_of("r3", "n2.x")),
                  pending=(wait_of("p1"), wait_of("p2"), wait_of("p3")))  # fmt: skip
    nodes = (NODES[0], replace(NODES[1], schedulable=False, reason="drained"), NODES[2])
    other = replace(
        one, taken_s=100.0, fleet=replace(one.fleet, nodes=nodes), finished=("r3",),
        queues=(replace(BASE.queues[0], weight=2.0),), settings=(("reservations", 2),),
        running=(run_of("r.1", "n2.x", 50.0), run_of("p1", "n0.x", 60.0)),
        pending=(replace(wait_of("r2"), attempts=1), replace(wait_of("p3"), priority=5), wait_of("new")),
    )  # fmt: skip
    assert differences(one, one) == ()
    assert [f"{each.group} {each.name}: {each.text}" for each in differences(one, other)] == [
        "submitted new: 1 GPU",
        "started p1: 1 GPU on n0.x",
        "stopped r2: back in its queue, was on n1.x",
        "ended r3: finished, was on n2.x",
        "withdrawn p2: 1 GPU, had waited",
        "moved r.1: from n0.x to n2.x",
        "jobs changed p3: ~ priority: 0 -> 5",
        "nodes n1.x: ~ schedulable: true -> false",
        'nodes n1.x: ~ reason: "" -> "drained"',
        "queues q: ~ weight: 1.0 -> 2.0",
        "settings reservations: is new",
        'the rest finished: [] -> ["r3"]',
        "the rest taken_s: 10.0 -> 100.0",
    ]
