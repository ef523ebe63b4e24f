"""A cluster's objects as the engine has them: whole, as a snapshot, or gang by gang as things change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from muster.kube.claims import ClaimReader
from muster.kube.dra.reader import DraReader
from muster.kube.flavors import Flavors
from muster.kube.gangs import GangReader, Names, PodRef, Seen, pod_key
from muster.kube.kinds import NODES, PODS
from muster.kube.ledger import Ledger
from muster.kube.marks import Marks
from muster.kube.nodes import NodeReader, levels_of, topologies_in
from muster.kube.objects import KubeNode, KubePod
from muster.kube.others import Others, Rules
from muster.kube.owners import Gang, gang_of
from muster.kube.queues import NO_QUEUE, QueueReader
from muster.kube.shapes import ShapeReader
from muster.kube.world import World
from muster.model.fleet import Fleet, Node
from muster.model.notes import Note, Notes
from muster.model.queue import Queue
from muster.model.snapshot import Running, Snapshot
from muster.model.workload import Workload

__all__ = ["Note", "Options", "PodRef", "Seen", "Translation", "Translator"]


class Options(Struct, frozen=True):
    """What of a cluster is translated.

    Attributes:
        name: the fleet's.
        source: the snapshot's, such as ``kubernetes:CONTEXT``.
        schedulers: only gangs whose pods all name one of these wait; empty: all. What runs counts whoever placed it.
    """

    name: str = ""
    source: str = "kubernetes"
    schedulers: frozenset[str] = frozenset()


class Translation(Struct, frozen=True):
    """A cluster at one instant: ``seen`` has each gang by its workload's name."""

    snapshot: Snapshot
    notes: tuple[Note, ...]
    seen: Mapping[str, Seen]


class Translator:
    """Translates what a `World` holds at the time of each call.

    The levels of the topology are those of the nodes at its making.
    """

    def __init__(self, world: World, *, options: Options | None = None) -> None:
        self.options = options or Options()
        self._world = world
        self._notes = Notes()
        self._marks = Marks()
        self.ledger = Ledger()
        self._names = Names()
        nodes = list(world.of(NODES, KubeNode).values())
        self.dra = DraReader(world, self._marks, self._notes)
        levels = levels_of(nodes, topologies_in(world), self._notes)
        self._nodes = NodeReader(levels, self._marks, self._notes, self.dra)
        self._known: dict[str, Node] = {}
        flavors = Flavors(world)
        flavors.split((node, self._nodes.node(node).gpu_models) for node in nodes)
        self._nodes.purchase = flavors.purchase
        self._queues = QueueReader(world, flavors, self._notes)
        self.others = Others(world)
        self.rules = Rules(world, self.others)
        shapes = ShapeReader(world, self._nodes, self._marks, self._notes, self.dra, self.rules)
        self.volumes = shapes.volumes
        self._claims = ClaimReader(world, self._nodes.levels, self._queues, self.dra, self.others, self._notes)
        self._gangs = GangReader(shapes, self.ledger, self._claims, self._names, self._notes)
        self._read_marks = 0
        self._remark = False

    def translate(self, now_s: float) -> Translation:
        """All there is. O(objects)."""
        self._notes.clear()
        levels_of(list(self._world.of(NODES, KubeNode).values()), topologies_in(self._world), self._notes)
        pods = self._world.of(PODS, KubePod)
        self.ledger.keep({pod_key(pod) for pod in pods.values()})
        self.others.keep(pods)
        for key, pod in pods.items():
            self.others.put(key, pod)
        grouped: dict[str, list[KubePod]] = {}
        for pod in pods.values():
            grouped.setdefault(self.gang_of(pod), []).append(pod)
        nodes = self._world.of(NODES, KubeNode)
        for name in [name for name in self._known if name not in nodes]:
            self.drop_node(name)
        for node in nodes.values():
            self.node(node)
        leaving_for = self._nominated(pods.values())
        seen: dict[str, Seen] = {}
        pending: list[Workload] = []
        running: list[Running] = []
        there = {gang for name in grouped if (gang := self._names.gang(name)) is not None}
        for gang in self._claims.kueue.waiting(there):
            grouped.setdefault(self._names.of(gang), [])
        for name, members in grouped.items():
            gang = self._names.gang(name)
            found = self._gangs.gang(name, gang, members, leaving_for) if gang is not None else None
            if found is None:
                continue
            seen[name] = found
            running += found.leaving
            if found.running is not None:
                running.append(found.running)
            elif not self.options.schedulers or found.schedulers <= self.options.schedulers:
                pending.append(found.workload)
        fleet, queues = self.fleet(), self.queues()
        if not any(each.queue == NO_QUEUE for each in (*pending, *(run.workload for run in running))):
            queues = tuple(queue for queue in queues if queue.name != NO_QUEUE)
        snapshot = Snapshot(
            fleet,
            queues,
            tuple(pending),
            tuple(running),
            taken_s=now_s,
            source=self.options.source,
            local_queues=self._queues.local_queues(),
        )
        return Translation(snapshot, self._notes.all(), seen)

    # -- as things change

    def gang_of(self, pod: KubePod) -> str:
        """The name of the workload that a pod belongs to, NAMESPACE/NAME of what makes the gang; always the same."""
        return self._names.of(gang_of(pod))

    def gang(self, name: str, pods: Iterable[KubePod]) -> Seen | None:
        """A gang by its name and all pods of it that there are; None where it has none that count.

        Pods keep their GPUs from call to call until they are finished, or `forget` is called for them.
        """
        gang = self._names.gang(name)
        if gang is None:
            return None
        pods = list(pods)
        return self._gangs.gang(name, gang, pods, {})

    def node(self, found: KubeNode) -> Node:
        """A node, new or other than before."""
        node = self._nodes.node(found)
        if self._known.get(node.name) != node:
            self.ledger.set_node(node)
        self._known[node.name] = node
        return node

    @property
    def unmarked(self) -> bool:
        """Whether `relabelled` may find something."""
        return self._remark or self.others.changed or self._read_marks != len(self._marks)

    def remark(self) -> None:
        """What the labels of nodes stand for, such as where volumes can be, may not be as it was."""
        self._remark = len(self._marks) > 0

    def relabelled(self) -> tuple[Node, ...]:
        """Nodes that bear another label since the last call, as pods asked for what no node selector says."""
        if not self.unmarked:
            return ()
        self._read_marks, self._remark, self.others.changed = len(self._marks), False, False
        nodes = self._world.of(NODES, KubeNode)
        changed: list[Node] = []
        others = self._marks.changed((name, node.metadata.labels or {}) for name, node in nodes.items())
        for name in (name for name in nodes if name in others) if others else ():
            node = self._nodes.node(nodes[name])
            if node != self._known.get(name):
                self._known[name] = node
                changed.append(node)
        return tuple(changed)

    def refuses(self, pods: Sequence[tuple[str, KubePod]]) -> str:
        """Why pods with their nodes, by their keys, cannot stand beside what stands there; else they count by now."""
        if any(self.rules.concern(pod) for _, pod in pods):
            for key, _ in pods:
                self.others.put(key, None)
            return self.rules.refuses(list(pods), self._world.of(NODES, KubeNode))
        for key, pod in pods:
            self.others.put(key, pod)
        return ""

    def fleet(self) -> Fleet:
        """All nodes that were told of and are still there, in the world's order."""
        self.relabelled()
        there = self._world.of(NODES, KubeNode)
        nodes = tuple(self._known[name] for name in there if name in self._known)
        return Fleet(nodes, self._nodes.topology, self.options.name)

    def maker(self, name: str) -> Gang | None:
        """What makes the gang of a name: kind, namespace and name of the object; None for names that were not given."""
        return self._names.gang(name)

    def forget_gang(self, name: str) -> None:
        """Nothing of a gang is left: its name is free."""
        self._names.forget(name)

    def drop_node(self, name: str) -> None:
        """A node is there no more."""
        self._known.pop(name, None)
        self.ledger.drop_node(name)

    def forget(self, pod: KubePod) -> None:
        """A pod is there no more: what it held is free."""
        self.ledger.release(pod_key(pod))

    def queues(self) -> tuple[Queue, ...]:
        """The tree of queues."""
        return self._queues.queues(self._known.values())

    def notes(self) -> tuple[Note, ...]:
        """What was not understood so far."""
        return self._notes.all()

    def _nominated(self, pods: Iterable[KubePod]) -> dict[str, str]:
        """Of each node, the gang that is nominated to it: what leaves it leaves for that."""
        found: dict[str, str] = {}
        for pod in pods:
            if pod.status.nominated_node_name and not pod.spec.node_name:
                found.setdefault(pod.status.nominated_node_name, self.gang_of(pod))
        return found
