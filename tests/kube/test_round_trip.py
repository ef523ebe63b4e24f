"""A cluster that is made of a random snapshot is read as that snapshot, whole and gang by gang."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from muster.engine.books import Books
from muster.engine.config import Config
from muster.kube.kinds import NODES, PODS, STRUCTS
from muster.kube.objects import KubeNode, KubePod
from muster.kube.translate import Seen, Translator
from muster.kube.world import World
from muster.model.fleet import Device, Node, Taint
from muster.model.workload import PodSet, PodShape, Toleration, Workload

from .objects import NOW_S, world

GIB = 2**30
MODELS = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB")
SHAPES = (
    PodShape(1000, GIB), PodShape(4000, 8 * GIB, 2), PodShape(8000, 64 * GIB, 4, node_selector=(("pool", "a"),)),
    PodShape(500, GIB, 1, tolerations=(Toleration("dedicated", "Exists"),)),
)  # fmt: skip


class Gang(Struct):
    """A gang of the test: of each pod set its role, shape and pods; where each pod is bound, "" where it is not."""

    kind: str
    number: int
    sets: list[tuple[str, PodShape, int]]
    places: list[str]

    @property
    def name(self) -> str:
        return f"{self.kind.lower()}-{self.number}"


def _nodes() -> st.SearchStrategy[list[Node]]:
    def build(number: int, model: str, gpus: int, sick: int, pool: str, zone: str, shut: bool, taint: bool) -> Node:
        labels = {"kubernetes.io/hostname": f"n{number}", "pool": pool, "topology.kubernetes.io/zone": zone}
        if gpus:
            labels |= {"nvidia.com/gpu.product": model, "nvidia.com/gpu.memory": "80000"}
        devices = tuple(Device(at, model, 80000 * 2**20, healthy=at < gpus - sick) for at in range(gpus))
        return Node(
            f"n{number}", 96000, 512 * GIB, devices, tuple(sorted(labels.items())),
            (Taint("dedicated", "x"),) if taint else (), (zone,), not shut, "cordoned" if shut else "",
            sharing="soft" if gpus else "", max_pods=110,
        )  # fmt: skip

    one = st.tuples(
        st.sampled_from(MODELS), st.sampled_from((0, 4, 8)), st.integers(0, 2), st.sampled_from("ab"),
        st.sampled_from(("z1", "z2")), st.booleans(), st.booleans(),
    )  # fmt: skip
    return st.lists(one, min_size=1, max_size=5).map(
        lambda found: [build(number, *each) for number, each in enumerate(found)]
    )


@st.composite
def _clusters(draw: st.DrawFn) -> tuple[list[Node], list[Gang]]:
    nodes = draw(_nodes())
    free = {node.name: node.healthy_gpus for node in nodes}
    gangs: list[Gang] = []
    for number in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(("Pod", "Job", "PodGroup", "JobSet")))
        roles = ("driver", "workers") if kind == "JobSet" else ("main",)
        sets = [
            (role, draw(st.sampled_from(SHAPES)), 1 if kind == "Pod" else draw(st.integers(1, 3))) for role in roles
        ]
        places: list[str] = []
        for _, shape, count in sets:
            for _ in range(count):
                node = draw(st.sampled_from(("", *free)))
                fits = node and free[node] >= shape.gpus
                places.append(node if fits else "")
                if fits:
                    free[node] -= shape.gpus
        gangs.append(Gang(kind, number, sets, places))
    return nodes, gangs


def _node_object(node: Node) -> dict[str, Any]:
    sizes: dict[str, Any] = {"cpu": "96", "memory": "512Gi", "pods": "110"}
    total, healthy = len(node.devices), node.healthy_gpus
    taints = [{"key": each.key, "value": each.value, "effect": each.effect} for each in node.taints]
    spec = {"unschedulable": not node.schedulable, "taints": taints}
    gpus = {"nvidia.com/gpu": total} if total else {}
    return {
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name, "labels": dict(node.labels)}, "spec": spec,
        "status": {"capacity": sizes | gpus, "allocatable": sizes | ({"nvidia.com/gpu": healthy} if total else {})},
    }  # fmt: skip


def _pods(gang: Gang) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    rank = 0
    for role, shape, count in gang.sets:
        for index in range(count):
            labels: dict[str, str] = {}
            spec: dict[str, Any] = {"nodeSelector": dict(shape.node_selector), "priority": 3}
            name = gang.name
            if gang.kind == "Job":
                labels = {
                    "batch.kubernetes.io/job-name": gang.name,
                    "batch.kubernetes.io/job-completion-index": f"{index}",
                }
                name = f"{gang.name}-{index}"
            elif gang.kind == "PodGroup":
                spec["schedulingGroup"] = {"podGroupName": gang.name}
                name = f"{gang.name}-{index}"
            elif gang.kind == "JobSet":
                labels = {
                    "jobset.sigs.k8s.io/jobset-name": gang.name,
                    "jobset.sigs.k8s.io/replicatedjob-name": role,
                    "jobset.sigs.k8s.io/job-index": "0",
                    "batch.kubernetes.io/job-completion-index": str(index),
                }
                name = f"{gang.name}-{role}-{index}"
            limits: dict[str, Any] = {"cpu": f"{shape.cpu_milli}m", "memory": shape.memory_bytes}
            if shape.gpus:
                limits["nvidia.com/gpu"] = shape.gpus
            spec["containers"] = [{"resources": {"limits": limits}}]
            spec["tolerations"] = [{"key": each.key, "operator": each.operator} for each in shape.tolerations]
            if gang.places[rank]:
                spec["nodeName"] = gang.places[rank]
            found.append({
                "apiVersion": "v1", "kind": "Pod", "spec": spec, "status": {"phase": "Pending"},
                "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "labels": labels,
                             "creationTimestamp": "2026-01-01T00:00:00Z"},
            })  # fmt: skip
            rank += 1
    return found


def _group(gang: Gang) -> dict[str, Any]:
    count = sum(count for _, _, count in gang.sets)
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
            "metadata": {"name": gang.name, "namespace": "ns", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": count}}}}  # fmt: skip


def _cluster(nodes: list[Node], gangs: list[Gang]) -> World:
    pods = [pod for gang in gangs for pod in _pods(gang)]
    groups = [_group(gang) for gang in gangs if gang.kind == "PodGroup"]
    return world(*map(_node_object, nodes), *pods, *groups)


def _expected(gang: Gang) -> Workload:
    sets = tuple(PodSet(shape, count, role=role) for role, shape, count in gang.sets)
    return Workload(f"ns/{gang.name}", sets, submitted_s=NOW_S, namespace="ns", priority=3)


@settings(max_examples=60, deadline=None)
@given(_clusters())
def test_a_cluster_made_of_a_snapshot_is_read_as_that_snapshot(made: tuple[list[Node], list[Gang]]) -> None:
    nodes, gangs = made
    found = Translator(_cluster(nodes, gangs)).translate(NOW_S)
    assert list(found.snapshot.fleet) == nodes
    assert [seen.workload for seen in found.seen.values()] == [_expected(gang) for gang in gangs]
    for gang in gangs:
        running = found.seen[f"ns/{gang.name}"].running
        assert [ref.node for ref in found.seen[f"ns/{gang.name}"].refs] == gang.places
        assert (running is None) == (not any(gang.places))
        if running is not None:
            assert [place.node for place in running.pods] == [node for node in gang.places if node]
            assert running.missing == tuple(rank for rank, node in enumerate(gang.places) if not node)
    assert found.notes == ()
    assert Books(found.snapshot, Config()).snapshot(NOW_S).pending == found.snapshot.pending


def _ranks(seen: Seen) -> object:
    """The pods of a gang at their ranks; not what they hold, which is less where a node has not all of it any more."""
    return seen.workload.name, seen.refs, seen.absent, seen.running and seen.running.missing


@settings(max_examples=40, deadline=None)
@given(_clusters(), st.data())
def test_a_cluster_that_changes_is_seen_gang_by_gang_as_it_is_as_a_whole(
    made: tuple[list[Node], list[Gang]], data: st.DataObject
) -> None:
    """Pods are bound, finish or go, GPUs fall ill: after each change the gang is read, at the end all of it."""
    nodes, gangs = made
    there = _cluster(nodes, gangs)
    translator = Translator(there)
    translator.translate(NOW_S)
    pods = there.of(PODS, KubePod)
    for _ in range(data.draw(st.integers(0, 6))):
        if pods and data.draw(st.booleans()):
            key = data.draw(st.sampled_from(sorted(pods)))
            pod = pods[key]
            name = translator.gang_of(pod)
            what = data.draw(st.sampled_from(("bind", "end", "drop")))
            if what == "drop":
                translator.forget(pod)
                there.drop(PODS, key)
            else:
                made_anew = msgspec.convert(msgspec.to_builtins(pod), STRUCTS[PODS])
                assert isinstance(made_anew, KubePod)
                if what == "end":
                    made_anew.status.phase = "Succeeded"
                elif not made_anew.spec.node_name:
                    made_anew.spec.node_name = data.draw(st.sampled_from([node.name for node in nodes]))
                there.put(PODS, made_anew)
            translator.gang(name, [each for each in pods.values() if translator.gang_of(each) == name])
        else:
            found = there.of(NODES, KubeNode)[data.draw(st.sampled_from([node.name for node in nodes]))]
            allocatable = found.status.allocatable or {}
            if "nvidia.com/gpu" in allocatable:
                allocatable["nvidia.com/gpu"] = data.draw(st.integers(0, len(nodes[0].devices)))
            translator.node(found)
    grouped: dict[str, list[KubePod]] = {}
    for pod in pods.values():
        grouped.setdefault(translator.gang_of(pod), []).append(pod)
    seen = {name: found for name in grouped if (found := translator.gang(name, grouped[name])) is not None}
    fresh, again = Translator(there).translate(NOW_S), translator.translate(NOW_S)
    for found in (seen, again.seen):
        assert {name: _ranks(each) for name, each in found.items()} == {
            name: _ranks(each) for name, each in fresh.seen.items()
        }
    Books(fresh.snapshot, Config())  # nothing is given out twice
    Books(again.snapshot, Config())
