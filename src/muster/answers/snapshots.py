"""What a snapshot holds, in short, and what happened between two of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from muster.model.fleet import WHOLE_GPU_MILLI, Fleet
from muster.model.queue import ALL_THERE_IS_MILLI
from muster.model.snapshot import Change, Running, Setting, Snapshot, diff_snapshots
from muster.model.workload import Workload


class FlavorLine(Struct, frozen=True):
    """Nodes and GPUs of one flavor. ``unusable_nodes`` are cordoned or not ready; spares are neither free nor used."""

    flavor: str
    nodes: int
    unusable_nodes: int
    spare_nodes: int
    gpus: int
    unhealthy_gpus: int
    used_gpus: float
    free_gpus: float
    whole_free_nodes: int


class QueueLine(Struct, frozen=True):
    """One queue: its nominal quota of all flavors and what its own work holds and asks for, in GPUs."""

    queue: str
    parent: str
    weight: float
    nominal_gpus: float | None
    running: int
    running_gpus: float
    pending: int
    pending_gpus: float


class WorkLine(Struct, frozen=True):
    """One workload: ``since_s`` is when it started, or was submitted if it waits."""

    workload: str
    state: str
    queue: str
    user: str
    pods: int
    gpus: float
    since_s: float


class Summary(Struct, frozen=True):
    """A snapshot in short; ``largest`` are the largest gangs that wait and that run."""

    taken_s: float
    source: str
    settings: tuple[tuple[str, Setting], ...]
    fleet: str
    levels: tuple[tuple[str, int], ...]
    flavors: tuple[FlavorLine, ...]
    queues: tuple[QueueLine, ...]
    running: int
    running_gpus: float
    pending: int
    pending_gpus: float
    gangs_pending: int
    reservations: int
    failures: int
    kinds_of_past_runs: int
    largest: tuple[WorkLine, ...]


def summarize(snapshot: Snapshot, largest: int = 3) -> Summary:
    """Count a snapshot; ``largest`` so many of the largest gangs that wait, and as many of those that run."""
    running = [(run.workload, _held_milli(run)) for run in snapshot.running]
    pending = [(work, work.gpu_milli) for work in snapshot.pending]
    lines = [_work_line("pending", work, milli, work.submitted_s) for work, milli in _top(pending, largest)]
    started = {run.workload.name: run.started_s for run in snapshot.running}
    lines += [_work_line("running", work, milli, started[work.name]) for work, milli in _top(running, largest)]
    levels = tuple((level, len(snapshot.fleet.domains(level))) for level in snapshot.fleet.topology.levels)
    return Summary(
        snapshot.taken_s, snapshot.source, snapshot.settings, snapshot.fleet.name, levels,
        tuple(_flavors(snapshot)), tuple(_queues(snapshot)),
        len(running), _gpus(milli for _, milli in running),
        len(pending), _gpus(milli for _, milli in pending),
        sum(work.pods > 1 for work, _ in pending),
        len(snapshot.reservations), len(snapshot.failures), len(snapshot.run_times), tuple(lines),
    )  # fmt: skip


def _held_milli(run: Running) -> int:
    return sum(len(pod.devices) * pod.gpu_milli for pod in run.pods)


def _gpus(milli: Iterable[int]) -> float:
    return sum(milli) / WHOLE_GPU_MILLI


def _top(work: list[tuple[Workload, int]], most: int) -> list[tuple[Workload, int]]:
    return sorted(work, key=lambda each: (-each[1], each[0].submitted_s, each[0].name))[:most]


def _work_line(state: str, work: Workload, milli: int, since_s: float) -> WorkLine:
    return WorkLine(work.name, state, work.queue, work.user, work.pods, milli / WHOLE_GPU_MILLI, since_s)


def used_milli(snapshot: Snapshot) -> dict[tuple[str, int], int]:
    """What running work holds of each GPU, in thousandths."""
    used: dict[tuple[str, int], int] = {}
    for run in snapshot.running:
        for pod in run.pods:
            for index in pod.devices:
                used[pod.node, index] = used.get((pod.node, index), 0) + pod.gpu_milli
    return used


def _flavors(snapshot: Snapshot) -> Iterator[FlavorLine]:
    used = used_milli(snapshot)
    busy = {pod.node for run in snapshot.running for pod in run.pods}
    groups: dict[str, list[int]] = {}
    for node in snapshot.fleet:
        held = sum(min(used.get((node.name, each.index), 0), WHOLE_GPU_MILLI) for each in node.devices)
        open_ = node.schedulable and not node.spare
        free = sum(
            max(0, WHOLE_GPU_MILLI - used.get((node.name, each.index), 0)) for each in node.devices if each.healthy
        )
        line = groups.setdefault(node.flavor, [0] * 8)
        whole = open_ and node.name not in busy and node.healthy_gpus == len(node.devices)
        for at, value in enumerate((
            1, not node.schedulable, node.spare, len(node.devices), len(node.devices) - node.healthy_gpus, held,
            free if open_ else 0, whole,
        )):  # fmt: skip
            line[at] += value
    for flavor, (nodes, shut, spare, gpus, sick, held, free, whole) in groups.items():
        yield FlavorLine(flavor, nodes, shut, spare, gpus, sick, held / WHOLE_GPU_MILLI, free / WHOLE_GPU_MILLI, whole)


def _queues(snapshot: Snapshot) -> Iterator[QueueLine]:
    """All queues in their order, then those that work names and that there are not."""
    counted: dict[str, list[float]] = {queue.name: [0.0] * 4 for queue in snapshot.queues}
    for run in snapshot.running:
        line = counted.setdefault(run.workload.queue, [0.0] * 4)
        line[0] += 1
        line[1] += _held_milli(run) / WHOLE_GPU_MILLI
    for work in snapshot.pending:
        line = counted.setdefault(work.queue, [0.0] * 4)
        line[2] += 1
        line[3] += work.gpu_milli / WHOLE_GPU_MILLI
    known = {queue.name: queue for queue in snapshot.queues}
    for name, (running, running_gpus, pending, pending_gpus) in counted.items():
        queue = known.get(name)
        quotas = [quota.nominal_milli for quota in queue.quotas] if queue else []
        nominal = _gpus(quotas) if quotas and max(quotas) < ALL_THERE_IS_MILLI else None
        yield QueueLine(
            name, queue.parent if queue else "", queue.weight if queue else 1.0, nominal,
            int(running), running_gpus, int(pending), pending_gpus,
        )  # fmt: skip


# -- what happened between two ----------------------------------------------------------------------------------------

WHAT_HAPPENED = (
    "submitted", "started", "stopped", "ended", "withdrawn", "moved", "jobs changed", "nodes", "queues", "settings",
    "the rest",
)  # fmt: skip
"""The groups of differences, in the order in which they are told."""


class Difference(Struct, frozen=True):
    """One difference: its group, the object's name, and what is told of it."""

    group: str
    name: str
    text: str
    path: str = ""
    before: object = None
    after: object = None


def differences(before: Snapshot, after: Snapshot) -> tuple[Difference, ...]:
    """What differs, grouped by what happened, in the order of WHAT_HAPPENED; the order of lists is no difference."""
    found = list(job_differences(before, after))
    told = {each.name for each in found if each.group != "submitted"}
    was, now = _states(before), _states(after)
    for change in diff_snapshots(before, after):
        room, _, rest = change.path.partition(".")
        if room in ("pending", "running"):
            name = _longest(rest, was, now)
            field = rest[len(name) + 1 :]
            if field and not (field in ("pods", "started_s") and name in told):
                found.append(_difference("jobs changed", name, change, field))
        elif change.path.startswith("fleet.nodes."):
            name = _longest(change.path.removeprefix("fleet.nodes."), _nodes(before.fleet), _nodes(after.fleet))
            found.append(_difference("nodes", name, change, change.path.removeprefix(f"fleet.nodes.{name}")[1:]))
        elif room in ("queues", "settings"):
            name = _longest(rest, *({each.name: each for each in one.queues} for one in (before, after)))
            found.append(_difference(room, name, change, rest[len(name) + 1 :]))
        else:
            found.append(_difference("the rest", room, change, rest))
    return tuple(sorted(found, key=lambda each: WHAT_HAPPENED.index(each.group)))


def _difference(group: str, name: str, change: Change, field: str) -> Difference:
    """A change of an object's field, or of the object as a whole (no field)."""
    text = str(change)
    if field:
        text = text.replace(f" {change.path}:", f" {field}:", 1)
    elif change.before is None or change.after is None:
        text = "is gone" if change.after is None else "is new"
    else:
        text = text.removeprefix(f"~ {change.path}: ")
    return Difference(group, name, text, change.path, change.before, change.after)


def _states(snapshot: Snapshot) -> dict[str, Running | Workload]:
    states: dict[str, Running | Workload] = {work.name: work for work in snapshot.pending}
    states.update({run.workload.name: run for run in snapshot.running})
    return states


def _nodes(fleet: Fleet) -> dict[str, Any]:
    return {node.name: node for node in fleet}


def _longest(path: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The object that a dotted path begins with; names may have dots themselves."""
    name = path
    while name not in was and name not in now and "." in name:
        name = name.rpartition(".")[0]
    return name


def job_differences(before: Snapshot, after: Snapshot) -> Iterator[Difference]:
    """What became of each job: submitted, started, stopped, moved, ended or withdrawn."""
    was, now = _states(before), _states(after)
    for name, there in now.items():
        earlier = was.get(name)
        if earlier is None:
            work = there.workload if isinstance(there, Running) else there
            yield Difference("submitted", name, _asks(work))
        if isinstance(there, Running):
            if not isinstance(earlier, Running):
                yield Difference("started", name, f"{_asks(there.workload)} on {_places(there)}")
            elif there.started_s != earlier.started_s or there.pods != earlier.pods:
                if _places(there) != _places(earlier):
                    yield Difference("moved", name, f"from {_places(earlier)} to {_places(there)}")
                else:
                    again = there.started_s != earlier.started_s
                    yield Difference("moved", name, f"{'started again' if again else 'other GPUs'} on {_places(there)}")
        elif isinstance(earlier, Running):
            yield Difference("stopped", name, f"back in its queue, was on {_places(earlier)}")
    finished = set(after.finished) - set(before.finished)
    for name, earlier in was.items():
        if name not in now:
            if isinstance(earlier, Running):
                how = "finished" if name in finished else "ended, not well"
                yield Difference("ended", name, f"{how}, was on {_places(earlier)}")
            elif name in finished:
                yield Difference("ended", name, "started and finished in between")
            else:
                yield Difference("withdrawn", name, f"{_asks(earlier)}, had waited")


def _asks(work: Workload) -> str:
    gpus = work.gpu_milli / WHOLE_GPU_MILLI
    size = f"{gpus:g} {'GPU' if gpus == 1 else 'GPUs'}" if work.gpu_milli else f"{work.cpu_milli / 1000:g} CPU"
    return size if work.pods == 1 else f"{work.pods} pods, {size}"


def _places(run: Running, shown: int = 3) -> str:
    """The nodes of a workload, a few by name."""
    nodes = list(dict.fromkeys(pod.node for pod in run.pods))
    more = f" and {len(nodes) - shown} more" if len(nodes) > shown else ""
    return ", ".join(nodes[:shown]) + more if nodes else "no node"
