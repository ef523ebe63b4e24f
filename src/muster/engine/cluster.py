"""The fleet as the cycle uses it: gangs placed and released whole, and nodes held for others."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from muster.engine.config import Config
from muster.engine.domains import TopologyIndex
from muster.engine.kernels.domains import node_rooms
from muster.engine.kernels.future import take_pods
from muster.engine.kernels.gang import any_takes, count_room, place_gang, release_pods
from muster.engine.kernels.hold import hold_free
from muster.engine.kernels.nodes import apply
from muster.engine.placement import Placer
from muster.engine.requests import Refused
from muster.engine.sharing import keep_whole, with_tenant, without_tenants
from muster.engine.sizes import sizes_of
from muster.engine.state import Allocation, FleetState
from muster.engine.topology import MOST_PER_NODE
from muster.engine.topology import place_gang as place_in_topology
from muster.engine.whole import place_in_fullest
from muster.errors import InputError
from muster.kernels import ON_NODE, Ints, direct
from muster.model.fleet import TOPOLOGY_LEVELS, WHOLE_GPU_MILLI, Fleet, Node, hardware
from muster.model.parallelism import NO_GROUPS, RankGroups, rank_groups
from muster.model.plan import PodPlacement
from muster.model.reasons import Reason, Verdict
from muster.model.workload import PodSet, PodShape, TopologyRequest, Workload
from muster.policy.registry import find_policy

_place_gang, _release_pods = direct(place_gang), direct(release_pods)
_apply, _hold_free, _count_room = direct(apply), direct(hold_free), direct(count_room)
_any_takes, _take_pods, _node_rooms = direct(any_takes), direct(take_pods), direct(node_rooms)

_Key = tuple[tuple[PodSet, ...], TopologyRequest | None, tuple[str, ...], RankGroups]
"""What gangs of one kind have in common."""

FLAVOR_LABEL = "muster.dev/flavor"


class GangKind:
    """All workloads that ask for the same: they are decided once.

    ``groups`` are pods that belong together as their ranks do; ``anywhere`` says that nothing is asked of places.
    ``simple`` says that room can be counted node by node (no pod takes fractions of several GPUs).
    ``sizes`` are the counts of its pod sets with which it may run, least to full; ``least`` is the kind of the first.
    ``pods`` (by flavor) are shape and count of each pod set, ``counts`` the same as tuples; ``refused`` (by flavor) is
    the number of releases at which it was last refused and why; ``changes`` (by flavor) how often nodes had changed by
    then; ``never`` (by flavor) whether it would not fit on the empty fleet.
    """

    def __init__(
        self, pod_sets: tuple[PodSet, ...], topology: TopologyRequest | None, flavors: tuple[str, ...],
        groups: RankGroups,
    ) -> None:  # fmt: skip
        self.asked = pod_sets
        self.pod_sets = tuple(each for each in pod_sets if each.count)
        self.sizes = sizes_of(pod_sets, topology.segment if topology else 0, groups.near)
        self.least = self
        self.topology = topology
        self.groups = groups
        self.anywhere = topology is None and groups.near == 1
        self.flavors = flavors
        self.pods: dict[str, Ints] = {}
        self.counts: dict[str, tuple[tuple[int, int], ...]] = {}
        self.refused: dict[str, tuple[int, Reason]] = {}
        self.changes: dict[str, int] = {}
        self.never: dict[str, bool] = {}
        self.count = sum(each.count for each in self.pod_sets)
        self.simple = all(each.shape.gpus <= 1 or each.shape.gpu_milli == WHOLE_GPU_MILLI for each in self.pod_sets)
        self.milli = sum(each.count * each.shape.gpu_milli_total for each in self.pod_sets)

    @property
    def lasting(self) -> tuple[PodSet, ...]:
        """Its pod sets without what nodes meet or not as pods come and go."""
        return tuple(
            each if (shape := each.shape.lasting) is each.shape else replace(each, shape=shape) for each in self.asked
        )

    @property
    def asked_for(self) -> tuple[int, int]:
        """Pods and GPU (milli) at full size, as of each workload of the kind."""
        return self.count, self.milli

    def memory(self) -> Callable[[], None]:
        """What brings back all that is known of it now."""
        pods, refused, changes, never = dict(self.pods), dict(self.refused), dict(self.changes), dict(self.never)
        counts = dict(self.counts)

        def recall() -> None:
            self.pods, self.refused, self.changes, self.never = pods, refused, changes, never
            self.counts = counts

        return recall


class Cluster:
    """Places gangs on a fleet under one placement policy.

    ``flavored`` makes nodes of one flavor selectable: pods are then bound to the nodes of the flavor that is tried.
    A kind that was refused is not tried again before something was released on a node that one of its pods could use.
    ``tenants`` are those of the queues: pods that name none share GPUs as those of their queue. None: no tenants are
    told apart, also not those that pods name.
    """

    def __init__(
        self, fleet: Fleet, config: Config, *, flavored: bool, tenants: Mapping[str, str] | None = None
    ) -> None:
        placement, whole = config.placement, config.keep_whole
        policy = find_policy(placement)
        if policy.needs_tuning or policy.needs_typical:
            hint = "take one that needs no fitting, such as best-fit"
            raise InputError(f"{placement} must be fitted to a mix", field="config.placement", hint=hint)
        self.fleet = fleet
        self.tenants = tenants
        self._config = config
        self._empty: Cluster | None = None
        self.flavored = flavored
        self.state = FleetState(_with_flavors(fleet) if flavored else fleet)
        self.placer = Placer(self.state, policy.load_score(), None, policy.selection)
        self.index = TopologyIndex(self.state)
        if whole and whole not in (*self.index.levels, *TOPOLOGY_LEVELS):
            known = f"known: {', '.join(self.index.levels)}" if self.index.levels else "the fleet has none"
            raise InputError(f"unknown topology level {whole!r}", field="config.keep_whole", hint=known)
        self._whole = self.index.depth_of(whole) if whole in self.index.levels else 0
        self._unasked = TopologyRequest(preferred=whole) if self._whole else None
        self._ranked = config.rank_groups
        self.position = {name: index for index, name in enumerate(self.state.node_names)}
        self.flavors = tuple(dict.fromkeys(flavor for flavor, _ in hardware(fleet.nodes))) if flavored else ("",)
        self.looks = 0.0
        """What was looked at so far, in placements of a gang: for budgets that must not depend on the clock."""
        self._releases = 0
        self._released_at = np.zeros(len(self.state.node_list), np.int64)
        self._since: tuple[int, int, Ints] = (0, 0, np.zeros(0, np.int64))
        self._kinds: dict[_Key, GangKind] = {}
        self._out = np.zeros((3, 64), np.int64)
        self._counted: dict[int, _Counted] = {}

    def copy(self) -> Cluster:
        """An independent cluster; kinds are shared: whoever drops the copy has them forget what it taught them."""
        twin = object.__new__(Cluster)
        twin.__dict__.update(self.__dict__)
        twin.state = self.state.copy()
        twin.placer = self.placer.copy(twin.state)
        twin._released_at, twin._out = self._released_at.copy(), self._out.copy()
        twin._kinds, twin._counted = dict(self._kinds), dict(self._counted)
        return twin

    @property
    def kinds(self) -> Iterable[GangKind]:
        """All kinds that were met."""
        return self._kinds.values()

    def kind_of(self, workload: Workload) -> GangKind:
        """The kind of a workload; one object for all that ask for the same."""
        if self.tenants is None:
            pod_sets = without_tenants(workload.pod_sets)
        else:
            pod_sets = with_tenant(workload.pod_sets, self.tenants.get(workload.queue, ""))
        return self.kind(pod_sets, workload.topology, workload.flavors, self._groups_of(workload))

    def _groups_of(self, workload: Workload) -> RankGroups:
        return rank_groups(workload) if self._ranked else NO_GROUPS

    def kind(
        self, pod_sets: tuple[PodSet, ...], topology: TopologyRequest | None, flavors: tuple[str, ...],
        groups: RankGroups = NO_GROUPS,
    ) -> GangKind:  # fmt: skip
        """The kind of these pod sets."""
        key = (pod_sets, topology, flavors, groups)
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = GangKind(*key)
            if len(kind.sizes) > 1:
                kind.least = self.sized(kind, kind.sizes[0])
        return kind

    def sized(self, kind: GangKind, counts: Sequence[int]) -> GangKind:
        """The kind of an elastic gang that runs with ``counts`` pods of each pod set as it asked for them."""
        sets = tuple(replace(each, count=count, min_count=None) for each, count in zip(kind.asked, counts, strict=True))
        return self.kind(sets, kind.topology, kind.flavors, kind.groups)

    def set_node(self, node: Node) -> None:
        """A node is not as it was; what runs on it is still there, and what was refused may fit now."""
        position = self.position[node.name]
        shown = _with_flavor(node, node.flavor) if self.flavored else node
        self.state.set_node(position, shown)
        self.fleet = replace(self.fleet, nodes=(*self.fleet.nodes[:position], node, *self.fleet.nodes[position + 1 :]))
        if self.flavored and node.flavor not in self.flavors:
            self.flavors = (*self.flavors, node.flavor)
        self._note_released(position)
        self._empty = None
        for kind in self._kinds.values():
            kind.never.clear()

    def never_fits(self, kind: GangKind, flavor: str) -> bool:
        """Whether the gang would not even fit if nothing ran, on the nodes as they are."""
        known = kind.never.get(flavor)
        if known is None:
            empty = self.emptied
            twin = empty.kind(kind.lasting, kind.topology, kind.flavors, kind.groups)
            known = kind.never[flavor] = not self.fits(kind, flavor) and not empty.fits(twin, flavor)
        return known

    @property
    def emptied(self) -> Cluster:
        """The same nodes as they are, with nothing on them."""
        if self._empty is None:
            empty = object.__new__(Cluster)
            empty.__dict__.update(self.__dict__)
            empty.state, empty.looks, empty._out = self.state.emptied(), 0.0, self._out.copy()
            empty.placer = self.placer.fresh(empty.state)
            empty._kinds, empty._releases, empty._since = {}, 0, (0, 0, np.zeros(0, np.int64))
            empty._released_at = np.zeros(len(self.state.node_list), np.int64)
            self._empty = empty
        return self._empty

    def pods_of(self, kind: GangKind, flavor: str) -> Ints:
        """Row 0: the shape of each pod set on the flavor's nodes; row 1: how many pods."""
        pods = kind.pods.get(flavor)
        if pods is None:
            rows = [(self.shape_id(each.shape, flavor), each.count) for each in kind.pod_sets]
            pods = kind.pods[flavor] = np.array(rows, np.int64).reshape(-1, 2).T.copy()
        return pods

    def counts_of(self, kind: GangKind, flavor: str) -> tuple[tuple[int, int], ...]:
        """The shape of each pod set on the flavor's nodes, and how many pods."""
        counts = kind.counts.get(flavor)
        if counts is None:
            pairs: list[list[int]] = self.pods_of(kind, flavor).T.tolist()
            counts = kind.counts[flavor] = tuple((shape, count) for shape, count in pairs)
        return counts

    def counts_exactly(self, kind: GangKind) -> bool:
        """Whether a gang fits just if there is room for its pods as it can be counted; then nothing else refuses it."""
        return kind.anywhere and kind.simple and len(kind.pod_sets) == 1 and self._unasked is None

    def shape_id(self, shape: PodShape, flavor: str) -> int:
        """The row of a shape that is bound to the nodes of a flavor."""
        if self.flavored:
            selector = tuple(sorted({**dict(shape.node_selector), FLAVOR_LABEL: flavor}.items()))
            shape = replace(shape, node_selector=selector)
        return self.state.shape_id(shape)

    def place(self, kind: GangKind, flavor: str) -> Ints | Reason:
        """Place the gang, all or none: rows node, shape and device mask, a column a pod; else why it does not fit."""
        self.looks += 1.0
        pods = self.pods_of(kind, flavor)
        request = kind.topology or self._unasked
        if kind.anywhere and self._whole and pods.shape[1] == 1:
            shape, count = pods[:, 0].tolist()
            rows = place_in_fullest(self.placer, self.index, shape, count, self._whole)
            if rows is not None:
                return rows
        if not kind.anywhere or request is not None:
            asked = [(shape, count) for shape, count in pods.T.tolist()]
            found = place_in_topology(self.placer, self.index, asked, request, groups=kind.groups)
            if isinstance(found, Refused):
                return found.reason
            places = [(each.node, each.shape, each.devices) for each in found.allocations]
            return np.array(places, np.int64).reshape(-1, 3).T.copy()
        if kind.count > self._out.shape[1]:
            self._out = np.zeros((3, kind.count), np.int64)
        placed = _place_gang(pods, self.placer.scene(), self._out)
        return self._out[:, :placed].copy() if placed == kind.count else Reason.CAPACITY

    def refusal(self, kind: GangKind, flavor: str) -> Refused | None:
        """Why the gang cannot be placed now, with the numbers of its topology request; None if it can."""
        asked = [(shape, count) for shape, count in self.pods_of(kind, flavor).T.tolist()]
        request = kind.topology or self._unasked
        found = place_in_topology(self.placer, self.index, asked, request, groups=kind.groups)
        if isinstance(found, Refused):
            return found
        for each in found.allocations:
            self.state.release(each)
        return None

    def rooms(self, shape: int) -> Ints:
        """How many pods of a shape each node takes as it is now."""
        out = np.zeros(len(self.state.node_list), np.int64)
        _node_rooms(shape, MOST_PER_NODE, self.index.order, 0, len(out), self.state.nodes, self.state.shapes, out)
        return out

    def fits(self, kind: GangKind, flavor: str) -> bool:
        """Whether the gang could be placed now; nothing changes."""
        self.looks += 1.0
        pods = self.pods_of(kind, flavor)
        nodes, shapes = self.state.nodes, self.state.shapes
        for shape, count in pods.T.tolist():
            if _count_room(shape, count, nodes, shapes) < count:
                return False
        if kind.anywhere and pods.shape[1] == 1 and kind.simple:
            return True
        placed = self.place(kind, flavor)
        if isinstance(placed, Reason):
            return False
        self.give_back(placed)
        return True

    def count_room(self, shape: int, enough: int) -> int:
        """How many pods of a shape there is room for as things are now, counted up to ``enough``; an upper bound."""
        return _count_room(shape, enough, self.state.nodes, self.state.shapes)

    def has_room(self, shape: int, count: int) -> bool:
        """Whether there is room for so many pods of a shape, as far as that can be counted; nothing may be held.

        It is counted anew only after something was released on a node that takes one of them.
        """
        known = self._counted.get(shape)
        changes = self.state.nodes.change_count
        if known is not None and count > known.room and known.room < known.enough:
            if known.releases == self._releases:
                return False
            if not _any_takes(shape, self._released_since(known.releases), self.state.nodes, self.state.shapes):
                self._counted[shape] = known._replace(releases=self._releases)
                return False
        elif known is not None and known.changes == changes and count <= known.room:
            return True
        enough = 4 * count
        room = self.count_room(shape, enough)
        self._counted[shape] = _Counted(room, enough, self._releases, changes)
        return count <= room

    def give_back(self, rows: Ints) -> None:
        """Take back what a gang was given, only for a trial: what was refused stays refused."""
        # chosen columns may lie in memory the other way round, which compiled code does not look at
        _release_pods(np.ascontiguousarray(rows), self.state.nodes, self.state.shapes)

    def release(self, rows: Ints) -> None:
        """Take back what a gang was given: what was refused may fit now."""
        self.give_back(rows)
        self._note_released(rows[0])

    def _note_released(self, nodes: Ints | int) -> None:
        self._releases += 1
        self._released_at[nodes] = self._releases

    def note_refused(self, kind: GangKind, flavor: str, reason: Reason) -> None:
        """The gang does not fit on what is free now."""
        kind.refused[flavor] = (self._releases, reason)
        kind.changes[flavor] = self.state.nodes.change_count

    def still_refused(self, kind: GangKind, flavor: str) -> Reason | None:
        """Why the gang does not fit, if that is known already; None if it must be tried.

        Ideally it is tried after each release. More room elsewhere cannot help a gang of which no pod could stand on
        a node where something was released. Several pod sets are placed one after the other, greedily: for them any
        change may make the difference.
        """
        noted = kind.refused.get(flavor)
        if noted is None:
            return None
        at, reason = noted
        if len(kind.pod_sets) > 1 and kind.changes[flavor] != self.state.nodes.change_count:
            return None
        if at == self._releases:
            return reason
        nodes = self._released_since(at)
        for shape in self.pods_of(kind, flavor)[0].tolist():
            if _any_takes(shape, nodes, self.state.nodes, self.state.shapes):
                return None
        self.note_refused(kind, flavor, reason)
        return reason

    def _released_since(self, at: int) -> Ints:
        known_at, known_end, nodes = self._since
        if (known_at, known_end) != (at, self._releases):
            nodes = np.flatnonzero(self._released_at > at)
            self._since = (at, self._releases, nodes)
        return nodes

    def take(self, rows: Ints) -> None:
        """Give a gang the very places of ``rows``; the reverse of `release`."""
        _take_pods(np.ascontiguousarray(rows), self.state.nodes, self.state.shapes)

    def assign(self, kind: GangKind, flavor: str, places: Sequence[PodPlacement]) -> Ints:
        """Take the places of a gang that runs already; raises `InputError` where they are not free."""
        shapes = [shape for shape, count in self.pods_of(kind, flavor).T.tolist() for _ in range(count)]
        rows = np.zeros((3, len(places)), np.int64)
        for index, (place, shape) in enumerate(zip(places, shapes, strict=False)):
            node, devices = self.position[place.node], sum(1 << device for device in place.devices)
            row = self.state.row_on(shape, node, devices, place.mig_start)
            self.state.assign(Allocation(node, row, devices))
            rows[:, index] = node, row, devices
        return rows

    def assign_all(self, asked: Sequence[tuple[GangKind, str, Sequence[PodPlacement]]]) -> list[Ints]:
        """`assign` for many gangs: kind, flavor and places of each.

        Ideally one pod after the other. Here all are entered at once, and if then nothing is over-committed each was
        free. Otherwise, and where GPUs are shared, they are entered one by one, which tells what is wrong.
        """
        found = None if self.state.owned else self._plain_rows(asked)
        if found is None or self.state.owned:
            return [self.assign(*each) for each in asked]
        every = np.concatenate([np.zeros((3, 0), np.int64), *found], axis=1)
        self.take(every)
        nodes = self.state.nodes
        if (nodes.table[:, :ON_NODE] < 0).any() or (nodes.gpu_free < 0).any():
            self.give_back(every)
            return [self.assign(*each) for each in asked]
        return found

    def _plain_rows(self, asked: Sequence[tuple[GangKind, str, Sequence[PodPlacement]]]) -> list[Ints] | None:
        """The rows of gangs, if each pod names a node that is there and as many devices as it asks for."""
        width = self.state.nodes.gpu_free.shape[1]
        masks: dict[tuple[int, ...], int] = {}
        shapes: dict[tuple[GangKind, str], list[int]] = {}
        found: list[Ints] = []
        for kind, flavor, places in asked:
            of_pods = shapes.get((kind, flavor))
            if of_pods is None:
                pods = self.pods_of(kind, flavor).T.tolist()
                of_pods = shapes[kind, flavor] = [shape for shape, count in pods for _ in range(count)]
            rows: list[tuple[int, int, int]] = []
            for place, shape in zip(places, of_pods, strict=False):
                node, mask = self.position.get(place.node, -1), masks.get(place.devices)
                if mask is None:
                    if place.devices and not 0 <= min(place.devices) <= max(place.devices) < width:
                        return None
                    mask = masks[place.devices] = sum({1 << device for device in place.devices})
                if node < 0 or mask.bit_count() != self.state.shape_list[shape].gpus:
                    return None
                rows.append((node, shape, mask))
            found.append(np.array(rows, np.int64).reshape(-1, 3).T.copy())
        return found

    def places(self, rows: Ints) -> tuple[PodPlacement, ...]:
        """Rows as placements by name."""
        found: list[PodPlacement] = []
        pods: list[list[int]] = rows.T.tolist()
        for node, shape, devices in pods:
            indexes = tuple(index for index in range(devices.bit_length()) if devices >> index & 1)
            milli = self.state.shape_list[shape].gpu_milli if indexes else 0
            instance = self.state.instances.get(shape)
            mig = (instance.profile, instance.start) if instance else ("", -1)
            found.append(PodPlacement(self.state.node_names[node], indexes, milli, *mig))
        return tuple(found)

    def verdict(self, kind: GangKind, flavor: str) -> tuple[PodShape, Verdict]:
        """Why nodes refuse the gang: of its shapes, the one that the fewest nodes take."""
        shapes = self.pods_of(kind, flavor)[0].tolist()
        verdicts = [(self.placer.verdict(shape), index) for index, shape in enumerate(shapes)]
        worst, index = min(verdicts, key=lambda each: (each[0].feasible, each[1]))
        return kind.pod_sets[index].shape, worst

    @contextmanager
    def holding(self, hold: Hold | None) -> Generator[None]:
        """Hide what ``hold`` names while something else is placed."""
        if hold is None or not len(hold.rows):
            yield
            return
        held = hold.amounts.copy()
        if self.state.owned:
            keep_whole(held)
        _hold_free(hold.rows, held, 1, self.state.nodes)
        try:
            yield
        finally:
            _hold_free(hold.rows, held, -1, self.state.nodes)

    @contextmanager
    def holding_all(self, holds: Sequence[Hold]) -> Generator[None]:
        """Hide all that the holds name."""
        with ExitStack() as stack:
            for hold in holds:
                stack.enter_context(self.holding(hold))
            yield


class _Counted(NamedTuple):
    """Room for pods of a shape as it was counted, up to ``enough``; how many releases and changes there had been."""

    room: int
    enough: int
    releases: int
    changes: int


class Hold:
    """What is kept for others: nodes, and of each its CPU, memory, pods and devices (a row a node)."""

    def __init__(self, rows: Ints, amounts: Ints) -> None:
        self.rows = rows
        self.amounts = amounts


def whole_nodes(cluster: Cluster, rows: Sequence[int]) -> Hold:
    """A hold on all that is free on some nodes."""
    width = cluster.state.nodes.gpu_free.shape[1]
    return Hold(np.array(rows, np.int64), np.full((len(rows), ON_NODE + width), np.iinfo(np.int64).max // 4, np.int64))


def _with_flavors(fleet: Fleet) -> Fleet:
    """The fleet with its nodes' flavors as labels; what was one object for many nodes is one again."""
    known: dict[tuple[int, str], tuple[tuple[str, str], ...]] = {}
    nodes: list[Node] = []
    for node, (flavor, _) in zip(fleet.nodes, hardware(fleet.nodes), strict=True):
        key = id(node.labels), flavor
        if key not in known:
            known[key] = _with_flavor(node, flavor).labels
        nodes.append(replace(node, labels=known[key]))
    return replace(fleet, nodes=tuple(nodes))


def _with_flavor(node: Node, flavor: str) -> Node:
    labels = (*node.labels, (FLAVOR_LABEL, flavor))
    return replace(node, labels=tuple(sorted(dict(labels).items())) if node.labels else labels)
