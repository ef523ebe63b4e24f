"""Moves that make room: for a gang that waits, or until so many nodes are whole; with price and gain.

The plan is the engine's own (`muster.engine.defrag`). It is applied to a copy of the snapshot, on which the scheduler's
cycle then runs: a plan is only told if the gang starts in that cycle, or the nodes are whole.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from muster.answers.changes import Move, apply_changes
from muster.answers.forecast import forecast
from muster.answers.snapshots import used_milli
from muster.answers.view import View
from muster.answers.words import gpus, plural
from muster.engine.defrag import Moves, plan_moves, plan_on
from muster.engine.pending import Gang
from muster.engine.scheduler import Scheduler
from muster.errors import InputError, near
from muster.model.fleet import Fleet, Node
from muster.model.plan import Evict, Migrate, PodPlacement, Resize
from muster.model.snapshot import Snapshot
from muster.model.workload import PodSet, PodShape, TopologyRequest, Workload
from muster.slurm.hostlist import compress

WHOLE = "whole nodes"
FLAVOR_LABEL = "muster.dev/flavor"
_BUSY = "the scheduler stops or moves other work in this very cycle: look again after it"


class MoveLine(Struct, frozen=True):
    """One job that moves: how many of its pods, with how much GPU, from and to which nodes, at which price."""

    job: str
    namespace: str
    pods: int
    of_pods: int
    gpu_milli: int
    from_nodes: str
    to_nodes: str
    cost_gpu_s: float
    change: Move


class RoomPlan(Struct, frozen=True):
    """What makes room, and what that brings.

    Attributes:
        outcome: ``nothing to do``, ``moves``, or ``none``: there is no such plan.
        why: for the first and the last, in a sentence.
        nodes: where the gang then stands, or which nodes are whole (those that are already, first).
        by_itself: the scheduler makes these moves in its next cycle.
        sooner_s: how much earlier the gang is then expected to start; infinite if it would never, NaN for whole nodes.
        whole_before, whole_after: whole free nodes of the flavor, before and after the moves (and before the gang).
    """

    target: str
    flavor: str
    outcome: Literal["nothing to do", "moves", "none"]
    why: str = ""
    moves: tuple[MoveLine, ...] = ()
    nodes: tuple[str, ...] = ()
    cost_gpu_s: float = 0.0
    by_itself: bool = False
    sooner_s: float = math.nan
    whole_before: int = 0
    whole_after: int = 0


def room_for_job(view: View, name: str) -> RoomPlan:
    """The moves that let a waiting job start at once, whatever they cost; raises `InputError` if it does not wait."""
    found = view.find(name)
    name = found.workload.name
    if found.running is not None:
        raise InputError(f"{name} runs already", field="--for", hint="`muster queue` lists what waits")
    if name in view.starts:
        return _starts_anyway(view, name)
    planning = _planning(view)
    if name not in planning.pending.gangs:
        raise InputError(f"{name} is given up: its start deadline has passed", field="--for")
    gang = planning.pending.gangs[name]
    queue, milli = gang.workload.queue, gang.kind.least.milli
    if planning.queues and all(
        planning.quota.fits(queue, flavor, milli) is not None for flavor in planning.flavors_of(gang.kind)
    ):
        return RoomPlan(name, "", "none", "its queue's quota does not suffice, which no move can change")
    moves = plan_moves(planning, gang, view.now_s, math.inf)
    if moves is None:
        return RoomPlan(name, "", "none", _why_none(planning, gang))
    lines = tuple(_lines(planning, moves, view.now_s))
    after = _applied(view, lines)
    if after is None:
        return RoomPlan(name, moves.flavor, "none", _BUSY)
    place = View(after, view.config).starts.get(name)
    if place is None:
        return RoomPlan(name, moves.flavor, "none", "what is ahead of it would take the room that moves can make")
    flavor = _flavor_of(view.snapshot.fleet, place.pods[0].node)
    sooner_s = forecast(view, name).expected_s - view.now_s
    return RoomPlan(
        name, flavor, "moves", moves=lines, nodes=tuple(dict.fromkeys(pod.node for pod in place.pods)),
        cost_gpu_s=moves.cost_gpu_s, sooner_s=sooner_s, whole_before=len(whole_nodes(view.snapshot, flavor)),
        whole_after=len(whole_nodes(after, flavor)),
    )  # fmt: skip


def _starts_anyway(view: View, name: str) -> RoomPlan:
    """It starts in this instant's cycle, for which the scheduler may move work itself."""
    place = view.starts[name]
    nodes = tuple(dict.fromkeys(pod.node for pod in place.pods))
    flavor = _flavor_of(view.snapshot.fleet, nodes[0])
    own = [each for each in view.plan.decisions if isinstance(each, Migrate) and each.for_workload == name]
    if not own:
        return RoomPlan(name, flavor, "nothing to do", "it starts now, and nothing need move", nodes=nodes)
    before = {run.workload.name: run for run in view.snapshot.running}
    lines = tuple(_line(view.snapshot, before[each.workload].pods, each) for each in own if each.workload in before)
    after = apply_changes(view.snapshot, [line.change for line in lines])
    return RoomPlan(
        name, flavor, "moves", moves=lines, nodes=nodes, cost_gpu_s=sum(each.cost_gpu_s for each in own),
        by_itself=True, whole_before=len(whole_nodes(view.snapshot, flavor)),
        whole_after=len(whole_nodes(after, flavor)),
    )  # fmt: skip


def room_for_nodes(view: View, count: int, flavor: str = "", level: str = "") -> RoomPlan:
    """The moves after which ``count`` nodes of a flavor have all their GPUs free, in one domain of a level if given.

    The flavor left out is that of most nodes. Raises `InputError` for one that there is not, and for such a level.
    """
    fleet = view.snapshot.fleet
    flavor = _known_flavor(fleet, flavor)
    if level and level not in fleet.topology.with_hosts:
        hint = near(level, list(fleet.topology.levels)) or f"known: {', '.join(fleet.topology.levels) or 'none'}"
        raise InputError(f"there is no topology level {level!r}", field="--in", hint=hint)
    where = f" in one {level}" if level else ""
    target = f"{plural(count, 'whole node')} of {flavor}{where}"
    workload = _nodes_as_gang(fleet, flavor, count, level)
    view, workload = _only_flavor(view, workload, flavor)
    planning = _planning(view)
    gang = Gang(workload, planning.cluster.kind_of(workload))
    engine_flavor = flavor if planning.cluster.flavored else ""
    before = whole_nodes(view.snapshot, flavor)
    if planning.cluster.fits(gang.kind, engine_flavor):
        return RoomPlan(
            target, flavor, "nothing to do", f"{plural(len(before), 'node is', 'nodes are')} whole already",
            nodes=before, whole_before=len(before), whole_after=len(before),
        )  # fmt: skip
    moves = plan_on(planning, gang, engine_flavor, view.now_s, math.inf)
    if moves is None:
        return RoomPlan(
            target, flavor, "none", _why_none(planning, gang), whole_before=len(before), whole_after=len(before)
        )
    lines = tuple(_lines(planning, moves, view.now_s))
    applied = _applied(view, lines)
    if applied is None:
        return RoomPlan(target, flavor, "none", _BUSY, whole_before=len(before), whole_after=len(before))
    after = whole_nodes(applied, flavor)
    wanted = dict.fromkeys(place.node for place in planning.cluster.places(moves.rows))
    return RoomPlan(
        target, flavor, "moves", moves=lines, nodes=tuple(name for name in after if name in wanted),
        cost_gpu_s=moves.cost_gpu_s, whole_before=len(before), whole_after=len(after),
    )  # fmt: skip


def _planning(view: View) -> Scheduler:
    """A scheduler after the cycle of now, on which moves are looked for whatever they may cost."""
    if view.config.defragment:
        return view.scheduler
    return View(view.snapshot, replace(view.config, defragment=True, move_limit=0.0)).scheduler


def _applied(view: View, lines: Sequence[MoveLine]) -> Snapshot | None:
    """The snapshot after the moves; None where places only become free by what the cycle of now does to others."""
    try:
        return apply_changes(view.snapshot, [line.change for line in lines])
    except InputError:
        if not any(isinstance(each, Evict | Migrate | Resize) for each in view.plan.decisions):
            raise
        return None


def _lines(planning: Scheduler, moves: Moves, now_s: float) -> Iterator[MoveLine]:
    snapshot = planning.snapshot(now_s)
    for run, rows in moves.moved:
        cost_gpu_s = run.lost_gpu_s(now_s)
        move = Migrate(run.workload.name, planning.cluster.places(rows), "room", cost_gpu_s)
        yield _line(snapshot, planning.cluster.places(run.rows), move)


def _line(snapshot: Snapshot, before: tuple[PodPlacement, ...], move: Migrate) -> MoveLine:
    work = next(run.workload for run in snapshot.running if run.workload.name == move.workload)
    moved = [(old, new) for old, new in zip(before, move.pods, strict=True) if old != new]
    return MoveLine(
        work.name, work.namespace, len(moved), len(before), sum(len(new.devices) * new.gpu_milli for _, new in moved),
        compress(dict.fromkeys(old.node for old, _ in moved)), compress(dict.fromkeys(new.node for _, new in moved)),
        move.cost_gpu_s, Move(work.name, move.pods),
    )  # fmt: skip


def _why_none(planning: Scheduler, gang: Gang) -> str:
    """Why no moves make room for a gang."""
    free = int(planning.cluster.state.nodes.gpu_free.sum())
    if free < gang.kind.least.milli:
        return f"{gpus(free)} are free in all and it takes {gpus(gang.kind.least.milli)}: moves free nothing"
    if not planning.running.saving:
        return "nothing that runs saves its work (checkpointing), and what does not is not moved"
    return (
        f"{gpus(free)} are free, but no moves were found that bring enough of them together: what does not save its "
        "work, may not be stopped, was moved just now, or is waited for by a reserved start stays where it is"
    )


def whole_nodes(snapshot: Snapshot, flavor: str) -> tuple[str, ...]:
    """The nodes of a flavor that take work and have all their GPUs free and healthy."""
    used = {name for (name, _), milli in used_milli(snapshot).items() if milli}
    return tuple(
        node.name for node in snapshot.fleet
        if node.flavor == flavor and node.devices and node.name not in used and _takes_work(node)
        and node.healthy_gpus == len(node.devices)
    )  # fmt: skip


def _takes_work(node: Node) -> bool:
    return node.schedulable and not node.spare and not any(taint.effect != "PreferNoSchedule" for taint in node.taints)


def _known_flavor(fleet: Fleet, asked: str) -> str:
    counted = Counter(node.flavor for node in fleet if node.devices)
    if not counted:
        raise InputError("the fleet has no GPUs", field="--whole-nodes")
    if not asked:
        return counted.most_common(1)[0][0]
    if asked not in counted:
        hint = near(asked, list(counted)) or f"known: {', '.join(counted)}"
        raise InputError(f"there is no flavor {asked[:80]!r}", field="--flavor", hint=hint)
    return asked


def _flavor_of(fleet: Fleet, name: str) -> str:
    return next(node.flavor for node in fleet if node.name == name)


def _only_flavor(view: View, workload: Workload, flavor: str) -> tuple[View, Workload]:
    """The same asked where only nodes of a flavor may be it, also where others have the same GPU model.

    Without quotas the engine knows no flavors: there the nodes bear a label that says it.
    """
    models = set(workload.pod_sets[0].shape.gpu_models)
    others = any(node.flavor != flavor and models & set(node.gpu_models) for node in view.snapshot.fleet)
    if not others or view.scheduler.cluster.flavored:
        return view, workload
    label = (FLAVOR_LABEL, flavor)
    nodes = tuple(
        replace(node, labels=tuple(sorted({*node.labels, label}))) if node.flavor == flavor else node
        for node in view.snapshot.fleet
    )
    labelled = View(replace(view.snapshot, fleet=replace(view.snapshot.fleet, nodes=nodes)), view.config)
    pods = workload.pod_sets[0]
    pods = replace(pods, shape=replace(pods.shape, node_selector=(label,)))
    return labelled, replace(workload, pod_sets=(pods,))


def _nodes_as_gang(fleet: Fleet, flavor: str, count: int, level: str) -> Workload:
    """A gang of one pod a node that takes all its GPUs."""
    nodes = [node for node in fleet if node.flavor == flavor]
    size = Counter(len(node.devices) for node in nodes).most_common(1)[0][0]
    shape = PodShape(gpus=size, gpu_models=nodes[0].gpu_models)
    topology = TopologyRequest(required=level) if level else None
    return Workload(WHOLE, (PodSet(shape, count),), flavors=(flavor,), topology=topology, time_limit_s=1.0)
