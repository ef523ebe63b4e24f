"""From a plan to what should be true of jobs and reservations: before any thought of how to get there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.model.fleet import Fleet
from muster.model.plan import Evict, Migrate, Place, Plan, Reserve
from muster.model.snapshot import Snapshot
from muster.slurm.hostlist import compress
from muster.slurm.records import SlurmJob, SlurmReservation
from muster.slurm.steering.marks import PREFIX, hostlist, nodes_in
from muster.slurm.steering.scene import Scene

GATE, SPARES = f"{PREFIX}gate", f"{PREFIX}spares"
YEAR_S = 365 * 86400.0

_STEP = 1000
"""How far above the others in priority a job is put that starts now."""
_SLACK_S = 60.0
"""A promised start that moves by less is left as it is written."""
_LEAD_S = 5.0
"""A reservation begins so much later at least: slurmctld takes none that begins in the past."""
_FAR = 4_000_000_000
"""No priority beyond this is aimed at: it is a number of 32 bits."""


class Kept(Struct, frozen=True):
    """A reservation that there should be; ``start_s`` of what should begin at once is the time of now."""

    name: str
    nodes: tuple[str, ...]
    users: tuple[str, ...]
    start_s: float
    end_s: float
    why: str = ""


class Requeue(Struct, frozen=True):
    """A running job that goes back to its queue; ``moves``: it is to start again as soon as it may, elsewhere."""

    name: str
    job: SlurmJob
    why: str
    moves: bool = False


class Target(Struct, frozen=True):
    """What should be true.

    Attributes:
        jobs: of each job that is steered by its workload's name, the fields that are not its own values, and why.
        reservations: those of Muster that there should be.
        requeues: jobs to be stopped.
    """

    jobs: Mapping[str, tuple[Mapping[str, str], str]]
    reservations: tuple[Kept, ...] = ()
    requeues: tuple[Requeue, ...] = ()


class How(Struct, frozen=True):
    """How Muster steers.

    Attributes:
        gate_s: so long a reservation over all nodes, renewed in each cycle, lets nothing start but what the plan
            starts; 0: slurmctld goes on to start what fits.
        reserve_nodes: gangs of so many nodes get a reservation when the plan promises them a start.
        spares: nodes that are kept free to replace failed ones.
        move: jobs that save their work may be moved, also where PreemptMode lets nobody stop them.
        partition: only jobs that wait in this one are steered; empty: all.
    """

    gate_s: float = 0.0
    reserve_nodes: int = 2
    spares: int = 0
    move: bool = False
    partition: str = ""


def reservation_of_job(name: str) -> str:
    """The name of the reservation of a gang that is to start later."""
    return f"{PREFIX}job_{name.replace('[', '_').replace(']', '_').replace('+', '_')}"


def target(plan: Plan, snapshot: Snapshot, scene: Scene, how: How, now_s: float) -> Target:
    """What makes slurmctld do what a plan says.

    Args:
        plan: the engine's, of a snapshot in which jobs are `unsteered` and the reservations of Muster are not.
        snapshot: that snapshot.
        scene: what there really is.
        how: see `How`.
        now_s: the time, in seconds since 1970.
    """
    jobs: dict[str, tuple[dict[str, str], str]] = {}
    kept: list[Kept] = _spares(scene, snapshot.fleet, how, now_s)
    requeues: list[Requeue] = []
    works = {each.name: each for each in snapshot.pending}
    for each in plan.decisions:
        if isinstance(each, Evict | Migrate):
            job = scene.jobs.get(each.workload)
            if job is not None and job.state == "RUNNING" and job.requeue:
                requeues.append(Requeue(each.workload, job, _why(each), moves=isinstance(each, Migrate)))
        elif isinstance(each, Place) and _waits(scene, each.workload):
            nodes = dict.fromkeys(pod.node for pod in each.pods)
            if not nodes.keys().isdisjoint(nodes_in(scene.own(each.workload)["exc"])):
                continue  # its owner has excluded one since
            jobs[each.workload] = _pinned(scene, each.workload, nodes), f"starts now on {compress(nodes)}"
        elif (
            isinstance(each, Reserve) and not how.gate_s and _waits(scene, each.workload)
            and len(each.nodes) >= how.reserve_nodes
        ):  # fmt: skip
            reservation = _promised(scene, each, works[each.workload].time_limit_s, now_s)
            if reservation is not None and not _crossed(reservation, [*scene.reservations, *kept]):
                kept.append(reservation)
                jobs[each.workload] = {"resv": reservation.name}, reservation.why
                place = works[each.workload].topology
                if place is not None and place.required:
                    jobs[each.workload][0].update(_pinned(scene, each.workload, dict.fromkeys(each.nodes)))
    if how.gate_s:
        gate = _gate(scene, jobs, kept, how, now_s)
        for name, (values, _) in jobs.items():
            if not scene.own(name)["resv"]:
                values["resv"] = gate.name
        kept.append(gate)
    else:
        _put_first(scene, jobs)
    return Target(jobs, tuple(kept), tuple(requeues))


def _waits(scene: Scene, name: str) -> bool:
    return name in scene.jobs and scene.jobs[name].state == "PENDING"


def _why(stop: Evict | Migrate) -> str:
    lost = stop.lost_gpu_s if isinstance(stop, Evict) else stop.cost_gpu_s
    goes = "stopped" if isinstance(stop, Evict) else "moved"
    whom = f" for job {stop.for_workload}" if stop.for_workload else ""
    return f"{goes}{whom} ({stop.why or 'priority'}); loses {lost / 3600:.3g} GPU-hours"


def _pinned(scene: Scene, name: str, nodes: Mapping[str, None]) -> dict[str, str]:
    """The nodes of its partitions that a job is to leave alone, with those that its owner excludes."""
    own = nodes_in(scene.own(name)["exc"])
    others = [each for each in scene.nodes_of(scene.jobs[name]) if each not in nodes]
    return {"exc": hostlist([*own, *others])}


def _promised(scene: Scene, slot: Reserve, limit_s: float | None, now_s: float) -> Kept | None:
    """The reservation for a gang that starts later; as it was written where that is still true."""
    job = scene.jobs[slot.workload]
    if scene.own(slot.workload)["resv"]:
        return None  # its owner named one
    name = reservation_of_job(slot.workload)
    start_s = max(slot.start_s, now_s + _LEAD_S)
    known = scene.of_muster(name)
    if known is not None and sorted(known.nodes) == sorted(slot.nodes) and _still(known, start_s, now_s):
        start_s = known.start_s
    why = f"has {compress(slot.nodes)} reserved{'' if slot.sure else ', its start by prediction'}"
    end_s = start_s + (limit_s or YEAR_S)
    return Kept(name, tuple(sorted(slot.nodes)), (job.user,), start_s, end_s, why)


def _still(known: SlurmReservation, start_s: float, now_s: float) -> bool:
    """Whether a reservation need not be written anew: it has begun and waits for its nodes, or begins as it should."""
    return known.start_s <= now_s or abs(known.start_s - start_s) < _SLACK_S


def _crossed(wanted: Kept, others: Sequence[Kept | SlurmReservation]) -> bool:
    """Whether it would share nodes with another reservation at some time, which slurmctld refuses."""
    mine = set(wanted.nodes)
    others = [each for each in others if isinstance(each, Kept) or not each.name.startswith(PREFIX)]
    return any(
        each.name != wanted.name and each.start_s < wanted.end_s and wanted.start_s < each.end_s
        and not mine.isdisjoint(each.nodes)
        for each in others
    )  # fmt: skip


def _spares(scene: Scene, fleet: Fleet, how: How, now_s: float) -> list[Kept]:
    """The nodes that replace failed ones: as many as are asked for, less one for each that is away.

    Those that are spares stay so. New ones are idle nodes of the leaf that has fewest of them, so that none that is
    whole is broken up.
    """
    if not how.spares:
        return []
    leaf = {node.name: node.topology[-1] if node.topology else "" for node in fleet}
    gpus = {node.name for node in fleet if node.devices}
    steered = [each for name, each in scene.partitions.items() if not how.partition or name == how.partition]
    ours = [each for each in dict.fromkeys(node for nodes in steered for node in nodes) if each in gpus]
    count = max(0, how.spares - sum(each in scene.away for each in ours))
    known = scene.of_muster(SPARES)
    others = {node for each in scene.reservations if not each.name.startswith(PREFIX) for node in each.nodes}
    present = [node for node in known.nodes if node not in scene.away] if known is not None else []
    idle = [node for node in ours if node in scene.idle and node not in others and node not in present]
    crowd = Counter(leaf.get(node, "") for node in idle)
    idle.sort(key=lambda node: (crowd[leaf.get(node, "")], node))
    chosen = [*present, *idle][:count]
    if not chosen:
        return []
    start_s, end_s = (known.start_s, known.end_s) if known is not None else (now_s, now_s + YEAR_S)
    many = "1 node is" if len(chosen) == 1 else f"{len(chosen)} nodes are"
    return [Kept(SPARES, tuple(sorted(chosen)), ("root",), start_s, end_s, f"{many} kept to replace failed ones")]


def _gate(scene: Scene, jobs: Mapping[str, object], kept: Sequence[Kept], how: How, now_s: float) -> Kept:
    """The reservation that lets nothing start but what the plan starts; it ends by itself if nobody renews it."""
    known = scene.of_muster(GATE)
    users = {*(known.users if known is not None else ()), "root", *(scene.jobs[name].user for name in jobs)}
    taken = {
        node
        for each in scene.reservations
        if not each.name.startswith(PREFIX) and each.start_s < now_s + how.gate_s and each.end_s > now_s
        for node in each.nodes
    }
    taken.update(node for each in kept for node in each.nodes)
    nodes = sorted({node for nodes in scene.partitions.values() for node in nodes} - taken)
    start_s = known.start_s if known is not None else now_s
    end_s = now_s + how.gate_s
    if known is not None and known.end_s - now_s > how.gate_s / 2:
        end_s = known.end_s
    return Kept(GATE, tuple(nodes), tuple(sorted(users)), start_s, end_s, "nothing starts but what the plan starts")


def _put_first(scene: Scene, jobs: Mapping[str, tuple[dict[str, str], str]]) -> None:
    """Raise what starts now above all that waits, by Nice; what is above them already stays as it is."""
    now = [name for name, (values, _) in jobs.items() if "exc" in values and "resv" not in values]
    others = [
        scene.unsteered(name).priority
        for name, job in scene.jobs.items()
        if job.state == "PENDING" and job.priority and name not in now
    ]
    top = max(others, default=0)
    for name in now:
        job, plain = scene.jobs[name], scene.unsteered(name)
        if not plain.priority or plain.priority > top:
            continue
        if job.nice < plain.nice and top < job.priority < top + 10 * _STEP:
            jobs[name][0]["nice"] = str(job.nice)
        else:
            jobs[name][0]["nice"] = str(plain.nice - (min(top + _STEP, _FAR) - plain.priority))
