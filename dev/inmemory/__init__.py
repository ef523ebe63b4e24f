"""A cluster in memory for the scheduler's state: it takes writes as an API server does, and may refuse or lose them."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import msgspec
from msgspec.structs import replace

from muster.backends.kubernetes.commit import Outcome
from muster.engine.config import Config
from muster.kube.groups import KubePodGroup
from muster.kube.kinds import NODES, POD_GROUPS, PODS, STRUCTS, VOLUME_CLAIMS, VOLUMES
from muster.kube.objects import KubeNode, KubePod
from muster.kube.storage import SELECTED_NODE, ClaimRef, KubeClaim, KubeVolume
from muster.kube.world import Kind, KubeObject, World, key_of
from muster.model.plan import Plan
from muster.service.scheduler.state import LiveState
from muster.service.scheduler.volumes import VolumeWrite
from muster.service.scheduler.writer import Stop, Write

NAME = "muster"


def node(name: str, gpus: int = 8, rack: str = "r0", healthy: int | None = None) -> KubeNode:
    """A node with GPUs of a device plugin."""
    sizes = {"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return msgspec.convert(
        {
            "metadata": {
                "name": name, "uid": name,
                "labels": {
                    "kubernetes.io/hostname": name, "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
                    "cloud.provider.com/topology-rack": rack,
                },
            },
            "status": {
                "capacity": sizes,
                "allocatable": sizes | ({"nvidia.com/gpu": str(healthy)} if healthy is not None else {}),
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        },
        KubeNode,
    )  # fmt: skip


class Cluster:
    """Nodes and pods, the scheduler's state on them, and what is bound for real."""

    def __init__(self, nodes: list[KubeNode], config: Config | None = None) -> None:
        self.world = World()
        self.now_s = 1_767_225_600.0  # 2026-01-01T00:00:00Z
        self.uids = itertools.count(1)
        self.writes: list[Write] = []
        self.state = self.begin(config or Config())
        for each in nodes:
            self.put_node(each)

    def begin(self, config: Config) -> LiveState:
        """A scheduler that has just come to lead."""
        self.config = config
        self.state = LiveState(self.world, config, NAME)
        self.state.relead()
        self.writes.clear()
        return self.state

    @property
    def pods(self) -> dict[str, KubePod]:
        """All pods, by NAMESPACE/NAME."""
        return dict(self.world.of(PODS, KubePod))

    @property
    def nodes(self) -> set[str]:
        """The names of all nodes."""
        return set(self.world.of(NODES, KubeNode))

    def put_node(self, found: KubeNode) -> None:
        """A node is there, new or changed."""
        before = self.world.of(NODES, KubeNode).get(found.metadata.name)
        self.world.put(NODES, found)
        self.state.changed(NODES, found.metadata.name, before, found)

    def drop_node(self, name: str) -> None:
        """A node and all that ran on it are gone."""
        before = self.world.of(NODES, KubeNode)[name]
        self.world.drop(NODES, name)
        self.state.changed(NODES, name, before, None)
        for key, pod in self.pods.items():
            if pod.spec.node_name == name:
                self.delete(key)

    def put_pod(
        self, name: str, gpus: int = 1, gang: str = "", rank: int = 0, scheduler: str = NAME,
        priority: int = 0, node: str = "", app: dict[str, str] | None = None, **spec: Any,
    ) -> KubePod:  # fmt: skip
        """A pod; of a gang it is one of a PodGroup with that many. ``app``: labels; ``spec``: more of its spec."""
        labels = {"batch.kubernetes.io/job-completion-index": str(rank)} if gang else {}
        pod = msgspec.convert(
            {
                "metadata": {
                    "name": name, "namespace": "ns", "uid": f"u{next(self.uids)}",
                    "labels": labels | (app or {}),
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                },
                "spec": {
                    "schedulerName": scheduler, "priority": priority,
                    **({"nodeName": node} if node else {}),
                    **({"schedulingGroup": {"podGroupName": gang}} if gang else {}),
                    "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi"},
                                                  "limits": {"nvidia.com/gpu": str(gpus)} if gpus else {}}}],
                    **spec,
                },
                "status": {"phase": "Running" if node else "Pending"},
            },
            KubePod,
        )  # fmt: skip
        self.change(pod)
        return pod

    def put_gang(self, name: str, pods: int, gpus: int = 8, priority: int = 0, least: int | None = None) -> None:
        """A PodGroup and its pods."""
        group = msgspec.convert(
            {
                "metadata": {"name": name, "namespace": "ns", "uid": f"g-{name}"},
                "spec": {
                    "schedulingPolicy": {"gang": {"minCount": pods if least is None else least}},
                    "priority": priority,
                },
            },
            KubePodGroup,
        )
        self.world.put(POD_GROUPS, group)
        self.state.changed(POD_GROUPS, f"ns/{name}", None, group)
        for rank in range(pods):
            self.put_pod(f"{name}-{rank}", gpus, name, rank, priority=priority)

    def drop_group(self, name: str) -> None:
        """A PodGroup is gone; its pods are still there."""
        before = self.world.of(POD_GROUPS, KubePodGroup)[f"ns/{name}"]
        self.world.drop(POD_GROUPS, f"ns/{name}")
        self.state.changed(POD_GROUPS, f"ns/{name}", before, None)

    def change(self, pod: KubePod) -> None:
        """A pod is there, new or changed."""
        key = f"{pod.metadata.namespace}/{pod.metadata.name}"
        before = self.pods.get(key)
        self.world.put(PODS, pod)
        self.state.changed(PODS, key, before, pod)

    def delete(self, key: str) -> None:
        """A pod is gone."""
        before = self.pods.get(key)
        if before is not None:
            self.world.drop(PODS, key)
            self.state.changed(PODS, key, before, None)

    # -- the scheduler

    def cycle(self, after_s: float = 1.0) -> Plan:
        """One cycle; its writes are not carried out yet."""
        self.now_s += after_s
        self.writes += self.state.overdue(self.now_s, 60.0)
        self.state.refresh(self.now_s)
        assert self.state.scheduler is not None
        plan = self.state.scheduler.cycle(self.now_s)
        self.writes += self.state.act(plan, self.now_s)
        return plan

    def carry_out(self, rng: random.Random | None = None, fails: float = 0.0) -> None:
        """Carry out the writes that wait; some of them fail, some are done and not answered."""
        writes, self.writes = self.writes, []
        if rng is not None:
            rng.shuffle(writes)
        for write in writes:
            lost = rng is not None and rng.random() < fails
            if lost and rng is not None and rng.random() < 0.5:
                self.state.done(write, Outcome.LATER)
                continue
            outcome = self.write(write)
            self.state.done(write, Outcome.LATER if lost else outcome)

    def write(self, write: Write) -> Outcome:
        """As the API server does it."""
        if isinstance(write, VolumeWrite):
            return self._write_volume(write)
        key = f"{write.pod.namespace}/{write.pod.name}"
        pod = self.pods.get(key)
        if pod is None or pod.metadata.uid != write.pod.uid:
            return Outcome.GONE
        if isinstance(write, Stop):
            gone = replace(pod, metadata=replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:30Z"))
            self.change(gone)
            return Outcome.DONE
        if pod.spec.node_name or pod.metadata.deletion_timestamp:
            return Outcome.TAKEN
        self.change(
            replace(pod, spec=replace(pod.spec, node_name=write.node), status=replace(pod.status, phase="Running"))
        )
        return Outcome.DONE

    def put(self, kind: Kind, found: KubeObject) -> None:
        """An object of another kind is there, new or changed."""
        key = key_of(found)
        before = self.world.of(kind, STRUCTS[kind]).get(key)
        found.metadata = replace(found.metadata, resource_version=str(next(self.uids)))
        self.world.put(kind, found)
        self.state.changed(kind, key, before, found)

    def _write_volume(self, write: VolumeWrite) -> Outcome:
        """What is said of a claim or a volume; a write that does not know the last version is refused."""
        claim = self.world.of(VOLUME_CLAIMS, KubeClaim).get(write.key)
        volume = self.world.of(VOLUMES, KubeVolume).get(write.volume)
        if claim is None or (write.volume and volume is None):
            return Outcome.GONE
        known = (volume or claim).metadata
        if known.resource_version != write.version or claim.metadata.uid != write.uid:
            return Outcome.TAKEN
        if volume is not None:
            reference = ClaimRef(write.claim, write.namespace, write.uid)
            self.put(VOLUMES, replace(volume, spec=replace(volume.spec, claim_ref=reference)))
        else:
            told = {key: value for key, value in (claim.metadata.annotations or {}).items() if key != SELECTED_NODE}
            told |= {SELECTED_NODE: write.node} if write.node else {}
            self.put(VOLUME_CLAIMS, replace(claim, metadata=replace(claim.metadata, annotations=told)))
        return Outcome.DONE

    def settle(self, rounds: int = 8) -> None:
        """Cycles, with all writes carried out, until nothing changes."""
        for _ in range(rounds):
            self.cycle()
            self.carry_out()
            for key, pod in self.pods.items():
                if pod.metadata.deletion_timestamp:
                    self.delete(key)
            if not self.state.has_news and not self.writes:
                return

    # -- what must hold

    def check(self) -> None:
        """No node gives away more GPUs than it has."""
        used: Counter[str] = Counter()
        for pod in self.pods.values():
            if pod.spec.node_name:
                limits = (pod.spec.containers or [])[0].resources
                gpus = (limits.limits or {}).get("nvidia.com/gpu", "0") if limits else "0"
                used[pod.spec.node_name] += int(gpus)
        nodes = self.world.of(NODES, KubeNode)
        for name, count in used.items():
            if name in nodes:
                assert count <= int((nodes[name].status.allocatable or {})["nvidia.com/gpu"]), (name, count)

    def bound(self, gang: str) -> int:
        """How many pods of a gang are bound."""
        return sum(bool(pod.spec.node_name) for pod in self.pods.values() if pod.metadata.name.startswith(f"{gang}-"))
