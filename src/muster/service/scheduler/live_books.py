"""The engine's books of a live cluster: what was watched is entered, what was decided is compared with what is there.

Two rules keep them right:

- What is bound is a fact: where the cluster differs from the books, the books follow.
- What was decided and is not done yet is assumed: a pod whose binding is under way stands in the books where it will
  be, until the server says otherwise.

So a binding that failed, a pod that was deleted, or a leader that was killed half-way are one and the same case: a gang
of which some pods are bound and others are not. The engine completes it (`muster.engine.failures`); what it cannot
complete within a time-out is stopped and goes back to its queue.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from muster.backends.kubernetes.commit import PodKey
from muster.engine.adopt import places_on
from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.errors import CapacityError, InputError, StateError
from muster.kube.kinds import (
    JOBS,
    NODES,
    POD_GROUPS,
    PODS,
    STRUCTS,
)
from muster.kube.objects import KubeNode, KubePod
from muster.kube.storage import KubeClaim
from muster.kube.translate import Seen
from muster.kube.world import World
from muster.model.fleet import Node
from muster.model.snapshot import Running, Snapshot
from muster.model.workload import Workload
from muster.service.scheduler.claims import waits_for_claims
from muster.service.scheduler.endings import Endings
from muster.service.scheduler.ranks import agree, run_of
from muster.service.scheduler.usage import read_usage
from muster.service.scheduler.watched import LEAVING, Watched

_MAKERS = {"Job": JOBS, "PodGroup": POD_GROUPS}


class LiveBooks(Watched):
    """Books of a cluster that changes.

    Args:
        world: what is watched; its changes are told to `changed`.
        config: how the engine decides.
        scheduler_name: whose pods are scheduled; what others run only takes room.
        all_pods: take the pods of all schedulers for one's own; for shadow mode.

    Attributes:
        scheduler: the engine, None before the first `refresh`.
        seen: each gang as the cluster has it.
        notes: what could not be entered, by gang.
        complete_s: since when each gang that waits could have been placed: all its pods are there.
    """

    def __init__(self, world: World, config: Config, scheduler_name: str, *, all_pods: bool = False) -> None:
        super().__init__(world)
        self.config, self._name, self._all = config, scheduler_name, all_pods
        self._submitted: dict[str, Workload] = {}
        self._protected: dict[str, float] = {}
        self._refused: dict[str, float] = {}
        self._anew: set[str] = set()
        self._endings = Endings()
        self._misfits: dict[str, frozenset[str]] = {}
        self._contended: dict[str, int] = {}
        self._owed: dict[str, None] = {}
        self._closed: dict[str, None] = {}
        self.scheduler: Scheduler | None = None
        self.seen: dict[str, Seen] = {}
        self.partial: dict[str, float] = {}  # since when, or since when they were last told to stop
        self.notes: dict[str, str] = {}
        self.complete_s: dict[str, float] = {}
        self.rebuilds = 0
        self._now_s = 0.0

    # -- into the books

    def refresh(self, now_s: float) -> None:
        """Enter all that changed."""
        self._now_s = now_s
        if self._stale or self.scheduler is None:
            self._rebuild(now_s)
            return
        self._kept_away()
        dirty, self._dirty = {**self._dirty, **dict.fromkeys(self._misfits)}, {}
        found = {name: self._read(name) for name in dirty}
        for node in self._translator.relabelled():
            self._dirty_nodes[node.name] = None
        self._enter_all(found, now_s)
        self._set_nodes(now_s)

    def _kept_away(self) -> None:
        """Pods came that keep others away as none did before: those that wait and are meant are read anew."""
        others = self._translator.others
        found, others.new_apart = others.new_apart, []
        if found:
            waits = [(key, gang) for key, gang in self._gang_of.items() if not self._members[gang][key].spec.node_name]
            for key, gang in waits:
                pod = self._members[gang][key]
                if any(others.selected(group, pod) for group in found):
                    self._dirty[gang] = None

    def _set_nodes(self, now_s: float) -> None:
        """Nodes as they are now.

        The API does not say which GPU fell ill. Those that nobody has are taken to be it, so that nobody is stopped for
        a GPU that may be another's; what is left over is made up for when GPUs of the node become free. On a node on
        which more runs than the books can have nothing starts.
        """
        nodes = self._world.of(NODES, KubeNode)
        full = {node for names in self._misfits.values() for node in names}
        names = dict.fromkeys((*self._dirty_nodes, *self._owed, *self._closed, *full))
        self._dirty_nodes.clear()
        self._owed.clear()
        self._closed = {name: None for name in names if name in full}
        cluster = self._books.cluster
        for name in names:
            if name not in nodes or name not in cluster.position:
                continue
            node = self._with_health(self._translator.node(nodes[name]))
            if name in full and node.schedulable:
                node = replace(node, schedulable=False, reason="more runs on it than it has room for")
            if node != cluster.fleet.nodes[cluster.position[name]]:
                self._books.set_node(node, now_s)

    def _with_health(self, node: Node) -> Node:
        """The node with its ill GPUs among those that nobody has."""
        ill = sum(not device.healthy for device in node.devices)
        if not ill:
            return node
        position = self._books.cluster.position[node.name]
        used = {
            int(index) for run in self._books.running if position in run.nodes
            for column in (run.rows[0] == position).nonzero()[0].tolist()
            for index in range(int(run.rows[2, column]).bit_length()) if int(run.rows[2, column]) >> index & 1
        }  # fmt: skip
        free = [device.index for device in node.devices if device.index not in used]
        chosen = set(free[-ill:])
        if len(chosen) < ill:
            self._owed[node.name] = None
        devices = tuple(replace(device, healthy=device.index not in chosen) for device in node.devices)
        return replace(node, devices=devices)

    def _rebuild(self, now_s: float) -> None:
        """Make the books anew from all that is known; what fair share has counted goes on."""
        old = self.scheduler
        usage = old.shares.usage(now_s) if old is not None else read_usage(self._world, now_s, self.config.half_life_s)
        past = old.running.run_times.past() if old is not None else ()
        translator = self._translator = self._new_translator()
        for node in self._world.of(NODES, KubeNode).values():
            translator.node(node)
        self._regroup()
        for members in self._members.values():
            for key, pod in members.items():
                translator.others.put(key, pod)
        translator.others.new_apart.clear()
        self.seen.clear()
        self.notes.clear()
        found = {name: self._read(name) for name in sorted(self._members)}
        fleet = translator.fleet()  # after the pods, whose affinities put marks on nodes
        ill = {node.name: None for node in fleet if any(not each.healthy for each in node.devices)}
        fleet = replace(fleet, nodes=tuple(map(_all_healthy, fleet.nodes)))  # `_set_nodes` says which are not
        empty = Snapshot(fleet, self._translator.queues(), usage=usage, taken_s=now_s, run_times=past)
        self.scheduler = Scheduler(empty, self.config)
        self._stale = False
        self._dirty.clear()
        self._submitted.clear()
        self._misfits.clear()
        self._dirty_nodes = ill
        self.rebuilds += 1
        self._enter_all(found, now_s)
        self._set_nodes(now_s)

    def _regroup(self) -> None:
        """Which pods are of which gang, as the translator of now says."""
        pods = [(key, pod) for members in self._members.values() for key, pod in members.items()]
        self._members.clear()
        self._gang_of.clear()
        for key, pod in pods:
            gang = self._name_of(pod)
            self._gang_of[key] = gang
            self._members.setdefault(gang, {})[key] = pod
        for uid, known in self._assumed.items():
            self._assumed[uid] = replace(known, gang=self._gang_of.get(known.key, known.gang))

    def _read(self, name: str) -> Seen | None:
        """A gang as the cluster has it, without the pods that are being stopped; None where nothing of it is left."""
        if name not in self._refused:
            self.notes.pop(name, None)
        members = [pod for pod in self._members.get(name, {}).values() if pod.metadata.uid not in self._stopped]
        seen = self._translator.gang(name.removesuffix(LEAVING), members) if members else None
        if seen is None:
            return None
        if name.endswith(LEAVING):
            workload = replace(seen.workload, name=name, topology=None)
            running = replace(seen.running, workload=workload) if seen.running is not None else None
            seen = replace(seen, workload=workload, running=running)
        return seen

    def _enter_all(self, found: Mapping[str, Seen | None], now_s: float) -> None:
        """Let the books have gangs as the cluster has them: first what gives up room, then what takes it.

        What really runs goes before what is only assumed to.
        """
        comes: list[tuple[bool, Running]] = []
        for name, seen in found.items():
            self._misfits.pop(name, None)
            if seen is None:
                self._leave(name, now_s)
                continue
            self.seen[name] = seen
            ours = (self._all or self._name in seen.schedulers) and not name.endswith(LEAVING)
            run = run_of(seen, now_s)
            if run is None:
                self._enter_waiting(seen, ours=ours)
                continue
            if (ends_s := self._endings.leaving_s(name, now_s, shrank=self._shrank(run))) is not None:
                run = replace(run, leaving_s=ends_s)
            if not ours or name in self._protected:
                queue = run.workload.queue if ours else ""
                run = replace(run, workload=replace(run.workload, queue=queue, preemptible=False))
            if not self._stands(run, now_s, ours=ours):
                comes.append((any(ref.uid in self._assumed for ref in seen.refs), run))
        self._anew.clear()
        for _, run in sorted(comes, key=lambda each: each[0]):
            self._enter_running(run)

    def _shrank(self, run: Running) -> bool:
        """Whether pods of a gang have ended well since it was entered, and nothing comes in their place."""
        known = self._books.running.get(run.workload.name)
        if known is None or run.missing or run.leaving_s is not None or run.workload.elastic:
            return False
        pods = self._members.get(run.workload.name, {}).values()
        return known.kind.count > run.workload.pods and any(pod.status.phase == "Succeeded" for pod in pods)

    def _leave(self, name: str, now_s: float) -> None:
        """Nothing of a gang is left that runs or waits."""
        self._endings.forget(name)
        self.seen.pop(name, None)
        self.partial.pop(name, None)
        self.complete_s.pop(name, None)
        if name in self._books.running:
            ended = self._members.get(name, {}).values()
            well = bool(ended) and all(pod.status.phase == "Succeeded" for pod in ended)
            self._books.finish(name, now_s, well=well)
        self._withdraw(name)
        self.volumes.end(name)
        self.volumes.pinned.pop(name, None)
        self._contended.pop(name, None)
        base = name.removesuffix(LEAVING)
        if base not in self._members and base + LEAVING not in self._members:
            self._translator.forget_gang(base)

    def _withdraw(self, name: str) -> None:
        """Take a gang out of the books, whatever it is there."""
        books = self._books
        self._submitted.pop(name, None)
        if name in books.pending.gangs:
            books.cancel(name)
        if name in books.running:
            books.take_out(name)

    @property
    def _books(self) -> Scheduler:
        assert self.scheduler is not None
        return self.scheduler

    def _enter_waiting(self, seen: Seen, *, ours: bool) -> None:
        name, books = seen.workload.name, self._books
        self.partial.pop(name, None)
        self.volumes.end(name)
        if ours and any(self.volumes.reader.pinned(claim) for claim in self._open_claims(seen)):
            self.volumes.pinned.setdefault(name, self._now_s)
        else:
            self.volumes.pinned.pop(name, None)
        if name in books.pending.gangs and self._submitted.get(name) == seen.workload and ours and not seen.absent:
            return
        self._withdraw(name)
        if seen.absent or not ours or name in self._refused or self._no_maker(seen) or self._no_claims(seen):
            return
        try:
            books.submit(seen.workload)
        except InputError as error:
            self.notes[name] = str(error)
        else:
            self._submitted[name] = seen.workload
            self.complete_s.setdefault(name, self._now_s)

    def _no_maker(self, seen: Seen) -> bool:
        """Whether the object that says how large the gang is has not been seen yet, or is being deleted.

        Its pods would be taken for a smaller gang.
        """
        maker = self._translator.maker(seen.workload.name)
        kind = _MAKERS.get(maker.kind) if maker is not None else None
        if maker is None or kind is None or not self._world.holds(kind):
            return False
        found = self._world.of(kind, STRUCTS[kind]).get(f"{maker.namespace}/{maker.name}")
        if found is not None:
            return found.metadata.deletion_timestamp is not None
        pods = self._members.get(seen.workload.name, {}).values()
        return kind is not JOBS or any(pod.metadata.owner is not None for pod in pods)

    def _no_claims(self, seen: Seen) -> bool:
        """Whether claims of a gang's pods are still to be made."""
        if seen.waits:
            self.notes[seen.workload.name] = f"{seen.waits}."
            return True
        dra, pods = self._translator.dra, self._world.of(PODS, KubePod)
        if not dra.there:
            return False
        for ref in seen.refs:
            pod = pods.get(f"{ref.namespace}/{ref.name}")
            if pod is not None and (why := waits_for_claims(dra, pod)):
                self.notes[seen.workload.name] = why
                return True
        return False

    def _open_claims(self, seen: Seen) -> list[KubeClaim]:
        """The volume claims of a gang's pods that get their volumes when those have nodes."""
        pods, reader = self._world.of(PODS, KubePod), self.volumes.reader
        found = (pods.get(f"{ref.namespace}/{ref.name}") for ref in seen.refs)
        return [claim for pod in found if pod is not None and pod.spec.volumes for claim in reader.open_claims(pod)]

    def _stands(self, run: Running, now_s: float, *, ours: bool) -> bool:
        """Whether the books have it so already; if not, it is taken out of them."""
        name = run.workload.name
        if run.missing and ours:
            self.partial.setdefault(name, now_s)
        else:
            self.partial.pop(name, None)
        known = self._books.running.get(name)
        if known is not None and name not in self._anew and agree(self._books, known, run):
            if run.missing:
                self._to_act[name] = None
            return True
        self._withdraw(name)
        return False

    def _enter_running(self, run: Running) -> None:
        name, books = run.workload.name, self._books
        nodes = [each.node for each in run.pods]
        try:
            gone = next((node for node in nodes if node not in books.cluster.position), None)
            kind, flavor = books.asked(run) if gone is None else (None, "")
            places = f"runs on node {gone}, which is not there"
            if kind is not None:
                places = places_on(books.cluster, kind, flavor, nodes)
            if not isinstance(places, str):
                books.put([replace(run, pods=places)])
                return
            why = places
        except (InputError, StateError, CapacityError) as error:
            why = str(error)
        self.notes[name] = why
        self._misfits[name] = frozenset(nodes)
        self._place_anew(name)

    def _place_anew(self, name: str) -> None:
        """A gang cannot have the room that it was to get: what is not bound of it is placed anew."""
        self._anew.add(name)
        seen = self.seen.get(name)
        for ref in seen.refs if seen is not None else ():
            known = self._assumed.get(ref.uid)
            if known is not None and not known.sent:
                self._doubt(name, PodKey(ref.namespace, ref.name, ref.uid))
        self._dirty[name] = None

    def _doubt(self, gang: str, pod: PodKey) -> None:
        """A pod is not bound as was assumed: it is as the world has it."""
        if self._assumed.pop(pod.uid, None) is None:
            return
        key = f"{pod.namespace}/{pod.name}"
        real = self._world.of(PODS, KubePod).get(key)
        if real is not None and real.metadata.uid == pod.uid and key in self._members.get(gang, {}):
            self._translator.forget(self._members[gang][key])
            self._members[gang][key] = real
            self._translator.others.put(key, real)
        self._dirty[gang] = None


def _all_healthy(node: Node) -> Node:
    if all(device.healthy for device in node.devices):
        return node
    return replace(node, devices=tuple(replace(device, healthy=True) for device in node.devices))
