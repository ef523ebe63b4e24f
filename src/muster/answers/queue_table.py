"""What waits, what runs, and who holds how much: the tables of `muster queue`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from muster.answers.sentences import tag
from muster.answers.told import word_of
from muster.answers.view import View
from muster.engine.cluster import GangKind
from muster.engine.explain import cause
from muster.engine.pending import Gang
from muster.engine.preempt import within_nominal
from muster.engine.running import RunningGang
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.queue import ALL_THERE_IS_MILLI, Queue
from muster.model.reasons import NO_ROOM, Reason


class Waiting(Struct, frozen=True):
    """A gang that waits.

    Attributes:
        position: 1 is looked at first.
        reason: why it waits, by the engine; ``cause`` in one or two words.
        borrows: whether it needs more than is left of its queue's own on each flavor that it may use.
        reserved_s: its reserved start; None: it has none. ``sure``: it rests on stated limits only.
        title: what its owner calls it, where ``job`` is a number.
        slurm: why it waits as Slurm calls it; empty where it is not Slurm's.
    """

    position: int
    job: str
    queue: str
    user: str
    priority: int
    pods: int
    gpu_milli: int
    submitted_s: float
    waited_s: float
    reason: Reason
    cause: str
    borrows: bool
    reserved_s: float | None = None
    sure: bool = False
    title: str = ""
    slurm: str = ""


class Active(Struct, frozen=True):
    """A gang that runs.

    Attributes:
        progress: part of its expected time that has passed, 0 to 1; None where nothing is known of its time.
        unsaved_s: work since its last checkpoint, in seconds; None: it does not save its work.
        expected_end_s: when it is taken to end; ``sure``: that is its stated limit.
        borrowing: whether its queue uses more of its flavor than its own.
        idle_s: since when it has used none of its GPUs; None: it uses them.
        missing: pods that were lost and not replaced.
        starts_now: it waits in the cluster, and starts in the cycle of this instant.
    """

    job: str
    queue: str
    user: str
    priority: int
    pods: int
    gpu_milli: int
    flavor: str
    started_s: float
    ran_s: float
    progress: float | None
    unsaved_s: float | None
    expected_end_s: float
    sure: bool
    borrowing: bool
    idle_s: float | None
    missing: int
    starts_now: bool = False
    title: str = ""


class Share(Struct, frozen=True):
    """A queue's standing on one flavor, in GPU milli: see docs/reference/queue.md.

    Attributes:
        depth: levels below its root.
        guaranteed_milli: its nominal quota, with what its children lend to it.
        fair_milli: its part of what the root has by weights, level by level.
        waiting: gangs of it and of the queues below it that wait.
    """

    queue: str
    flavor: str
    depth: int
    weight: float
    guaranteed_milli: int
    fair_milli: int
    used_milli: int
    borrowed_milli: int
    lent_milli: int
    available_milli: int
    waiting: int
    waiting_milli: int


def waiting(
    view: View, *, queue: str = "", namespace: str = "", most: int | None = None
) -> tuple[list[Waiting], int]:  # fmt: skip
    """What waits in the order in which it is looked at, at most so many; also how many there are in all."""
    scheduler = view.scheduler
    below = set(_below(view.snapshot.queues, queue)) if queue else set[str]()
    chosen = [
        (position, gang)
        for position, gang in enumerate(scheduler.in_order(), 1)
        if (not queue or gang.workload.queue in below) and namespace in ("", gang.workload.namespace)
    ]
    shown = chosen if most is None else chosen[:most]
    causes: dict[tuple[GangKind, str], Reason] = {}
    return [_waiting(view, position, gang, _sharp(view, gang, causes)) for position, gang in shown], len(chosen)


def _sharp(view: View, gang: Gang, causes: dict[tuple[GangKind, str], Reason]) -> Reason:
    """Why a gang waits; where it is for room, what the room lacks: that is looked at once a kind and flavor."""
    reason = view.scheduler.waits_for(gang, view.now_s)
    if reason not in (*NO_ROOM, Reason.NEVER_FITS):
        return reason
    kind = gang.kind.least
    for flavor in view.scheduler.flavors_of(gang.kind):
        if view.scheduler.refused_on(gang, flavor) is reason:
            if (kind, flavor) not in causes:
                found = cause(view.scheduler.cluster, kind, flavor)
                causes[kind, flavor] = found.reason if found else reason
            return causes[kind, flavor]
    return reason


def _waiting(view: View, position: int, gang: Gang, reason: Reason) -> Waiting:
    scheduler, workload = view.scheduler, gang.workload
    slot = scheduler.slots.get(workload.name)
    flavors = list(scheduler.flavors_of(gang.kind))
    borrows = bool(scheduler.queues) and not any(within_nominal(scheduler, gang, flavor) for flavor in flavors)
    return Waiting(
        position, workload.name, workload.queue, workload.user, workload.priority, workload.pods, workload.gpu_milli,
        workload.submitted_s, view.now_s - workload.submitted_s, reason, tag(reason), borrows,
        slot.start_s if slot else None, bool(slot and slot.sure), workload.title, word_of(workload),
    )  # fmt: skip


def active(view: View, *, queue: str = "", namespace: str = "") -> list[Active]:
    """What runs after this instant's cycle, the largest first, of equals what started first."""
    below = set(_below(view.snapshot.queues, queue)) if queue else set[str]()
    runs = [
        run
        for run in view.scheduler.running
        if (not queue or run.workload.queue in below) and namespace in ("", run.workload.namespace)
    ]
    return [_active(view, run) for run in sorted(runs, key=lambda run: (-run.kind.milli, run.started_s))]


def _active(view: View, run: RunningGang) -> Active:
    scheduler, workload, now_s = view.scheduler, run.workload, view.now_s
    whole_s = run.limit_s - run.started_s
    known = workload.time_limit_s is not None or scheduler.running.run_times.predicted_s(workload, 0.5) is not None
    borrowing = bool(scheduler.queues) and scheduler.quota.borrowed(workload.queue, run.flavor) > 0
    return Active(
        workload.name, workload.queue, workload.user, workload.priority, sum(run.counts), run.kind.milli, run.flavor,
        run.started_s, now_s - run.started_s, min(1.0, (now_s - run.started_s) / whole_s) if known else None,
        run.unsaved_s(now_s) if workload.checkpointing else None, run.limit_s, run.sure, borrowing,
        None if run.idle_since_s is None else now_s - run.idle_since_s, len(run.missing), workload.name in view.starts,
        workload.title,
    )  # fmt: skip


def shares(view: View, only: str = "") -> list[Share]:
    """The tree of queues, each with the queues below it, for each flavor of which it may use anything.

    With ``only`` that queue and those below it.
    """
    below = set(_below(view.snapshot.queues, only)) if only else {each.name for each in view.snapshot.queues}
    scheduler = view.scheduler
    queues = view.snapshot.queues
    counts: dict[str, list[int]] = {queue.name: [0, 0] for queue in queues}
    for gang in scheduler.pending:
        if gang.workload.queue in counts:
            for name in _up(queues, gang.workload.queue):
                counts[name][0] += 1
                counts[name][1] += gang.kind.milli
    there_is = {flavor: _gpus_milli(view, flavor) for flavor in scheduler.quota.flavors}

    def nominal(name: str, flavor: str) -> int:
        milli = scheduler.quota.nominal(name, flavor)
        return milli if milli < ALL_THERE_IS_MILLI else there_is[flavor]

    fair = {flavor: fair_shares(queues, nominal, flavor) for flavor in scheduler.quota.flavors}
    found: list[Share] = []
    for queue, depth in _tree(queues):
        for flavor in scheduler.quota.flavors if queue.name in below else ():
            if not scheduler.quota.potential(queue.name, flavor) and not scheduler.quota.used(queue.name, flavor):
                continue
            held = scheduler.quota.who_holds(queue.name, flavor)
            available, lent = held.available_milli, held.lent_milli
            if not held.potential_milli:  # no quota of its own: what those below it have left is what there is
                available, lent = max(0, held.nominal_milli - held.used_milli), 0
            root = list(_up(queues, queue.name))[-1]
            if scheduler.quota.nominal(root, flavor) >= ALL_THERE_IS_MILLI:
                available = min(available, there_is[flavor] - scheduler.quota.used(root, flavor))
            found.append(
                Share(
                    queue.name, flavor, depth, queue.weight, nominal(queue.name, flavor), fair[flavor][queue.name],
                    held.used_milli, held.borrowed_milli, lent, available, *counts[queue.name],
                )
            )  # fmt: skip
    return found


def _gpus_milli(view: View, flavor: str) -> int:
    """All that there is of a flavor, on nodes of any state."""
    return sum(len(node.devices) for node in view.snapshot.fleet if node.flavor == flavor) * WHOLE_GPU_MILLI


def fair_shares(queues: Sequence[Queue], nominal: Callable[[str, str], int], flavor: str) -> dict[str, int]:
    """What each queue would have if all asked for more than there is: a root its quota, a child its part by weight.

    ``nominal`` is `QuotaTree.nominal`: GPU milli of a queue and a flavor.
    """
    children: dict[str, list[Queue]] = {}
    for queue in queues:
        children.setdefault(queue.parent, []).append(queue)
    found: dict[str, int] = {queue.name: nominal(queue.name, flavor) for queue in children.get("", ())}
    for queue, _ in _tree(queues):
        below = children.get(queue.name, [])
        total = sum(each.weight for each in below)
        for each in below:
            found[each.name] = round(found[queue.name] * each.weight / total) if total else 0
    return found


def _tree(queues: Sequence[Queue]) -> Iterator[tuple[Queue, int]]:
    """Each queue with its depth, before those below it, in the order in which they are given."""
    children: dict[str, list[Queue]] = {}
    for queue in queues:
        children.setdefault(queue.parent, []).append(queue)
    stack = [(queue, 0) for queue in reversed(children.get("", []))]
    while stack:
        queue, depth = stack.pop()
        yield queue, depth
        stack += [(each, depth + 1) for each in reversed(children.get(queue.name, []))]


def _below(queues: Sequence[Queue], name: str) -> Iterator[str]:
    """A queue and all below it."""
    yield name
    for queue in queues:
        if queue.parent == name:
            yield from _below(queues, queue.name)


def _up(queues: Sequence[Queue], name: str) -> Iterator[str]:
    """A queue and those above it."""
    parents = {queue.name: queue.parent for queue in queues}
    while name:
        yield name
        name = parents.get(name, "")
