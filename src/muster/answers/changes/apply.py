"""Changes applied: a snapshot in, another one out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from msgspec.structs import replace

from muster.answers.changes import grow
from muster.answers.changes.values import (
    AddDomains,
    AddNodes,
    Cancel,
    Change,
    EndReservation,
    Move,
    RemoveNodes,
    Reserve,
    SetConfig,
    SetJob,
    SetLimit,
    SetNodes,
    SetPolicy,
    SetQuota,
    SetWeight,
    Stop,
    Submit,
    Wave,
)
from muster.engine.config import Config, config_of, settings_of
from muster.engine.quota import check_queues
from muster.engine.requests import check_request
from muster.errors import InputError, near
from muster.model.fleet import Device, Node, Taint
from muster.model.parallelism import check_parallelism
from muster.model.plan import PodPlacement
from muster.model.queue import Queue, Quota
from muster.model.snapshot import AdvanceReservation, Setting, Snapshot
from muster.model.workload import PodSet, Toleration, TopologyRequest, Workload
from muster.policy.ordering.registry import find_ordering
from muster.policy.registry import POLICIES, find_policy
from muster.sim.presets import PRESETS

RUNNING_FIELDS = ("priority", "limit_s", "preemptible")
"""What may be changed of work that runs."""


class Draft:
    """A snapshot that is being changed: its parts by name."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.topology = snapshot.fleet.topology
        self.nodes = {node.name: node for node in snapshot.fleet}
        self.queues = {queue.name: queue for queue in snapshot.queues}
        self.pending = {each.name: each for each in snapshot.pending}
        self.running = {each.workload.name: each for each in snapshot.running}
        self.reservations = {each.name: each for each in snapshot.reservations}
        self.failures = snapshot.failures
        self.settings: tuple[tuple[str, Setting], ...] = snapshot.settings
        self.taken_s = snapshot.taken_s
        self.snapshot = snapshot

    def done(self) -> Snapshot:
        """The snapshot that it has become."""
        return replace(
            self.snapshot,
            fleet=replace(self.snapshot.fleet, nodes=tuple(self.nodes.values())),
            queues=tuple(self.queues.values()),
            pending=tuple(self.pending.values()),
            running=tuple(self.running.values()),
            reservations=tuple(self.reservations.values()),
            failures=self.failures,
            settings=self.settings,
        )


def apply_changes(snapshot: Snapshot, changes: Iterable[Change]) -> Snapshot:
    """The snapshot after the changes, one after the other; raises `InputError` naming the change that cannot be made.

    Several moves in a row are one step: each may take the place of another.
    """
    draft, moved = Draft(snapshot), False
    for change in changes:
        try:
            _APPLY[type(change)](draft, change)
        except InputError as error:
            raise _naming(change, error) from None
        moved = moved or isinstance(change, (Move, Submit))
    if moved:
        _check_places(draft)
    return draft.done()


def _naming(change: Change, error: InputError) -> InputError:
    text = str(change)
    what = f"{error.field}: {error.what}" if error.field else error.what
    return InputError(f"{text if len(text) <= 80 else text[:77] + '...'}: {what}", hint=error.hint)


# -- nodes ------------------------------------------------------------------------------------------------------------


def _add_nodes(draft: Draft, change: AddNodes) -> None:
    nodes = list(draft.nodes.values())
    for node in grow.new_nodes(nodes, draft.topology, change):
        draft.nodes[node.name] = node


def _add_domains(draft: Draft, change: AddDomains) -> None:
    for node in grow.new_domains(list(draft.nodes.values()), draft.topology, change):
        draft.nodes[node.name] = node


def _remove_nodes(draft: Draft, change: RemoveNodes) -> None:
    _stop_on(draft, change.names)
    for name in change.names:
        _of(draft.nodes, name, "node")
        del draft.nodes[name]
    gone = set(change.names)
    draft.failures = tuple(each for each in draft.failures if each.node not in gone)
    for name, each in list(draft.reservations.items()):
        if gone.intersection(each.nodes):
            draft.reservations[name] = replace(each, nodes=tuple(node for node in each.nodes if node not in gone))


def _set_nodes(draft: Draft, change: SetNodes) -> None:
    for name in change.names:
        draft.nodes[name] = _NODE[change.what](_of(draft.nodes, name, "node"), change)
    if change.what in ("repair", "uncordon"):
        names = set(change.names)
        draft.failures = tuple(each for each in draft.failures if each.node not in names)
    if change.evict:
        _stop_on(draft, change.names)
    if change.what == "fail":
        _lose_pods(draft, set(change.names))


def _healthy(devices: Sequence[Device], healthy: bool) -> tuple[Device, ...]:
    return tuple(each if each.healthy == healthy else replace(each, healthy=healthy) for each in devices)


def _tainted(node: Node, change: SetNodes) -> Node:
    taint = Taint(change.key, change.value, change.effect or "NoSchedule")
    return replace(node, taints=tuple(sorted({*node.taints, taint})))


_NODE: dict[str, Callable[[Node, SetNodes], Node]] = {
    "drain": lambda node, _: replace(node, schedulable=False, reason=node.reason or "drained"),
    "uncordon": lambda node, _: replace(node, schedulable=True, reason=""),
    "fail": lambda node, _: replace(node, devices=_healthy(node.devices, healthy=False)),
    "repair": lambda node, _: replace(node, schedulable=True, reason="", devices=_healthy(node.devices, healthy=True)),
    "spare": lambda node, _: replace(node, spare=True),
    "unspare": lambda node, _: replace(node, spare=False),
    "taint": _tainted,
    "untaint": lambda node, change: replace(node, taints=tuple(each for each in node.taints if each.key != change.key)),
}


def _stop_on(draft: Draft, names: Iterable[str]) -> None:
    gone = set(names)
    for name, run in list(draft.running.items()):
        if any(pod.node in gone for pod in run.pods):
            _stop(draft, Stop(name))


def _lose_pods(draft: Draft, gone: set[str]) -> None:
    """What runs loses its pods on nodes that failed, as `Running.missing` says; what has none left is stopped."""
    for name, run in list(draft.running.items()):
        if not any(pod.node in gone for pod in run.pods):
            continue
        kept = [pod for pod in run.pods if pod.node not in gone]
        if not kept:
            _stop(draft, Stop(name))
            continue
        ranks = (rank for rank in range(len(run.pods) + len(run.missing)) if rank not in run.missing)
        lost = [rank for rank, pod in zip(ranks, run.pods, strict=True) if pod.node in gone]
        draft.running[name] = replace(run, pods=tuple(kept), missing=tuple(sorted((*run.missing, *lost))))


# -- queues and settings ----------------------------------------------------------------------------------------------


def _set_quota(draft: Draft, change: SetQuota) -> None:
    queue = _of(draft.queues, change.queue, "queue")
    quota = _quota_of(queue, change.flavor)
    nominal = quota.nominal_milli + change.by_milli if change.to_milli is None else change.to_milli
    _replace_quota(draft, queue, replace(quota, nominal_milli=nominal))


def _set_limit(draft: Draft, change: SetLimit) -> None:
    queue = _of(draft.queues, change.queue, "queue")
    if change.which == "user":
        draft.queues[queue.name] = replace(queue, max_running_milli=change.to_milli)
        return
    field = {"borrowing": "borrowing_limit_milli", "lending": "lending_limit_milli"}[change.which]
    quota = cast("dict[str, Any]", {field: change.to_milli})
    _replace_quota(draft, queue, replace(_quota_of(queue, change.flavor), **quota))


def _quota_of(queue: Queue, flavor: str) -> Quota:
    return next((each for each in queue.quotas if each.flavor == flavor), Quota(flavor, 0))


def _replace_quota(draft: Draft, queue: Queue, quota: Quota) -> None:
    known = any(each.flavor == quota.flavor for each in queue.quotas)
    quotas = tuple(quota if each.flavor == quota.flavor else each for each in queue.quotas)
    draft.queues[queue.name] = replace(queue, quotas=quotas if known else (*quotas, quota))
    check_queues(tuple(draft.queues.values()))


def _set_weight(draft: Draft, change: SetWeight) -> None:
    draft.queues[change.queue] = replace(_of(draft.queues, change.queue, "queue"), weight=change.weight)
    check_queues(tuple(draft.queues.values()))


def _set_config(draft: Draft, change: SetConfig) -> None:
    if change.name not in Config.__struct_fields__:
        hint = near(change.name, Config.__struct_fields__) or "`muster explain-config` lists them"
        raise InputError(f"there is no setting {change.name[:60]!r}", hint=hint)
    config = config_of({**dict(draft.settings), change.name: change.value})
    policy = find_policy(config.placement)
    if policy.needs_tuning or policy.needs_typical:
        fits = [name for name, each in POLICIES.items() if not each.needs_tuning and not each.needs_typical]
        raise InputError(f"{policy.name} must be fitted to a mix of work first", hint=f"one of {', '.join(fits)}")
    find_ordering(config.ordering)
    draft.settings = settings_of(config)


def _set_policy(draft: Draft, change: SetPolicy) -> None:
    if change.preset not in PRESETS:
        hint = near(change.preset, list(PRESETS)) or f"one of {', '.join(PRESETS)}; how nodes are chosen: `placement X`"
        raise InputError(f"there is no preset {change.preset[:60]!r}", hint=hint)
    draft.settings = settings_of(config_of(PRESETS[change.preset]()))


# -- work -------------------------------------------------------------------------------------------------------------


def _set_job(draft: Draft, change: SetJob) -> None:
    run = draft.running.get(change.job)
    if run is None:
        workload = _job(draft, change.job)
        draft.pending[change.job] = _checked(draft, changed(workload, change))
        return
    other = [name for name in change.__struct_fields__[1:] if getattr(change, name) not in (None, False)]
    other = [name for name in other if name not in RUNNING_FIELDS]
    if other:
        what = f"it runs; of running work {', '.join(RUNNING_FIELDS)} may change, not {other[0]}"
        raise InputError(what, hint=f"put `stop {change.job};` before it")
    draft.running[change.job] = replace(run, workload=changed(run.workload, change), expected_end_s=None)


def changed(workload: Workload, change: SetJob) -> Workload:
    """A workload with what the change says; raises `InputError` where that makes no sense."""
    fields: dict[str, Any] = {"pod_sets": _pod_sets(workload.pod_sets, change), "topology": _topology(workload, change)}
    for name in ("priority", "queue", "flavors", "preemptible"):
        if getattr(change, name) is not None:
            fields[name] = getattr(change, name)
    if change.limit_s is not None:
        fields["time_limit_s"] = None if math.isinf(change.limit_s) else change.limit_s
    if change.released:
        fields |= {"not_before_s": 0.0, "depends_on": ()}
    asked = workload.parallelism
    if asked is not None and (change.pods is not None or change.gpus is not None):
        fields["parallelism"] = replace(asked, data=0)
    return replace(workload, **fields)


def _topology(workload: Workload, change: SetJob) -> TopologyRequest | None:
    asked = workload.topology or TopologyRequest()
    given = {
        "required": change.topology, "preferred": change.prefer, "segment": change.segment, "spread": change.spread,
        "at_most": change.at_most,
    }  # fmt: skip
    fields: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if change.topology == "" and change.segment is None:
        fields["segment"] = 0
    if change.spread == "" and change.at_most is None:
        fields["at_most"] = 0
    if not fields:
        return workload.topology
    asked = replace(asked, **fields)
    return None if asked == TopologyRequest() else asked


def _pod_sets(pod_sets: tuple[PodSet, ...], change: SetJob) -> tuple[PodSet, ...]:
    for name in ("pods", "min_pods", "gpus", "cpu_milli", "memory_bytes"):
        given = getattr(change, name)
        if given is not None and len(given) != len(pod_sets):
            roles = ", ".join(each.role for each in pod_sets)
            what = f"{name} has {len(given)} numbers, and the job {len(pod_sets)} pod sets ({roles})"
            raise InputError(what, hint="one number each, with commas between")
    return tuple(_pod_set(each, change, at) for at, each in enumerate(pod_sets))


def _pod_set(pod_set: PodSet, change: SetJob, at: int) -> PodSet:
    shape, fields = pod_set.shape, cast("dict[str, Any]", {})
    if change.gpus is not None and change.gpus[at] != shape.gpus:
        fields["gpus"] = change.gpus[at]
        if shape.shares_gpu or shape.mig_profile:
            raise InputError("its pods take a part of a GPU each", hint="gpus= is for jobs of whole GPUs")
        if shape.gpus:
            fields["cpu_milli"] = shape.cpu_milli * change.gpus[at] // shape.gpus
            fields["memory_bytes"] = shape.memory_bytes * change.gpus[at] // shape.gpus
    if change.cpu_milli is not None:
        fields["cpu_milli"] = change.cpu_milli[at]
    if change.memory_bytes is not None:
        fields["memory_bytes"] = change.memory_bytes[at]
    if change.models is not None and shape.gpus:
        fields["gpu_models"] = tuple(sorted(change.models))
    if change.selector is not None:
        fields["node_selector"] = tuple(sorted((key, value) for key, _, value in map(_label, change.selector)))
    if change.tolerate is not None:
        borne = (*shape.tolerations, *(Toleration(key, "Exists") for key in change.tolerate))
        fields["tolerations"] = tuple(sorted(set(borne)))
    count = pod_set.count if change.pods is None else change.pods[at]
    least = pod_set.min_count if pod_set.min_count is None else min(pod_set.min_count, count)
    if change.min_pods is not None:
        least = None if change.min_pods[at] == count else change.min_pods[at]
    if not 0 <= (count if least is None else least) <= count:
        raise InputError(f"min-pods is {least}, pods {count}", hint="at least 0 and at most pods")
    return replace(pod_set, shape=replace(shape, **fields), count=count, min_count=least)


def _label(text: str) -> tuple[str, str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise InputError(f"{text[:60]!r} is no label", hint="such as selector=pool=gold")
    return key, equals, value


def _checked(draft: Draft, workload: Workload) -> Workload:
    """A workload that the scheduler takes, else `InputError`."""
    if draft.queues and workload.queue not in draft.queues:
        raise _unknown(workload.queue, "queue", draft.queues)
    if not any(each.required for each in workload.pod_sets):
        raise InputError("it would have no pod", hint="pods=1 at least")
    check_request(draft.topology, workload.topology, "topology")
    check_parallelism(workload, "parallelism")
    return workload


def _stop(draft: Draft, change: Stop) -> None:
    run = draft.running.pop(change.job, None)
    if run is None:
        _job(draft, change.job)
        raise InputError(f"{change.job!r} does not run, it waits", hint=f"`cancel {change.job}` takes it out")
    again = replace(run.workload, attempts=run.workload.attempts + 1, start_deadline_s=None)
    draft.pending[change.job] = again


def _move(draft: Draft, change: Move) -> None:
    run = draft.running.get(change.job)
    if run is None:
        _job(draft, change.job)
        raise InputError(f"{change.job!r} does not run, it waits")
    pods = len(run.pods) + len(run.missing)
    if len(change.pods) != pods:
        raise InputError(f"names {len(change.pods)} places, and the job has {pods} pods")
    draft.running[change.job] = replace(run, pods=change.pods, missing=())


def _submit(draft: Draft, change: Submit) -> None:
    name = change.workload.name
    if name in draft.pending or name in draft.running:
        raise InputError(f"there is a job {name!r} already", hint="give it another name")
    for mark in change.marks:
        for name_of in mark.nodes:
            node = _of(draft.nodes, name_of, "node")
            draft.nodes[name_of] = replace(node, labels=tuple(sorted({*node.labels, (mark.key, mark.value)})))
    draft.pending[name] = _checked(draft, change.workload)


def _cancel(draft: Draft, change: Cancel) -> None:
    if draft.running.pop(change.job, None) is None:
        _job(draft, change.job)
        del draft.pending[change.job]


def _job(draft: Draft, name: str) -> Workload:
    if name in draft.pending:
        return draft.pending[name]
    raise _unknown(name, "job", [*draft.pending, *draft.running])


# -- reservations -----------------------------------------------------------------------------------------------------


def _reserve(draft: Draft, change: Reserve) -> None:
    if change.name in draft.reservations:
        raise InputError(f"there is a reservation {change.name!r} already", hint="name it otherwise: name NAME")
    if not 0 <= change.from_s < change.to_s:
        raise InputError("it would end before it starts", hint="from TIME to TIME, both counted from now")
    for name in change.nodes:
        _of(draft.nodes, name, "node")
    for name in change.queues:
        _of(draft.queues, name, "queue")
    for name in change.jobs:
        if name not in draft.running:
            _job(draft, name)
    start_s, end_s = draft.taken_s + change.from_s, draft.taken_s + change.to_s
    each = AdvanceReservation(change.name, start_s, end_s, change.nodes, change.queues, change.jobs)
    draft.reservations[change.name] = each


def _end_reservation(draft: Draft, change: EndReservation) -> None:
    _of(draft.reservations, change.name, "reservation")
    del draft.reservations[change.name]


def _wave(draft: Draft, change: Wave) -> None:
    if change.batch < 1 or change.every_s <= 0:
        raise InputError("a batch has 1 node at least, and takes some time", hint="such as: batch 8 every 30m")
    for number, first in enumerate(range(0, len(change.nodes), change.batch)):
        start_s = change.from_s + number * change.every_s
        name = f"driver-wave-{number + 1}"
        nodes = change.nodes[first : first + change.batch]
        _reserve(draft, Reserve(name, nodes, start_s, start_s + change.every_s))


# -- checks -----------------------------------------------------------------------------------------------------------


def _check_places(draft: Draft) -> None:
    """Raise `InputError` where a pod stands on a node or device that there is not, or two have more than a device."""
    held: dict[tuple[str, int], int] = {}
    for run in draft.running.values():
        for pod in run.pods:
            node = draft.nodes.get(pod.node)
            if node is None:
                raise _unknown(pod.node, "node", draft.nodes)
            _hold(held, pod, node, run.workload.name)


def _hold(held: dict[tuple[str, int], int], pod: PodPlacement, node: Node, name: str) -> None:
    known = {device.index for device in node.devices}
    for index in pod.devices:
        if index not in known:
            raise InputError(f"{node.name} has no GPU {index} for {name}", hint=f"it has {len(known)} GPUs")
        held[node.name, index] = held.get((node.name, index), 0) + pod.gpu_milli
        if held[node.name, index] > 1000:
            raise InputError(f"GPU {index} of {node.name} would be given out twice, to {name} and another")


def _of(known: dict[str, Any], name: str, what: str) -> Any:
    if name not in known:
        raise _unknown(name, what, known)
    return known[name]


def _unknown(name: str, what: str, known: Iterable[str]) -> InputError:
    names = list(known)
    hint = near(name, names) or (f"there are {', '.join(names[:5])}" + (" ..." if len(names) > 5 else ""))
    return InputError(f"there is no {what} {name[:80]!r}", hint=hint if names else f"there is no {what} at all")


_APPLY: dict[type[Change], Callable[[Draft, Any], None]] = {
    AddNodes: _add_nodes, AddDomains: _add_domains, RemoveNodes: _remove_nodes, SetNodes: _set_nodes,
    SetQuota: _set_quota, SetLimit: _set_limit, SetWeight: _set_weight, SetConfig: _set_config, SetPolicy: _set_policy,
    SetJob: _set_job, Stop: _stop, Move: _move, Submit: _submit, Cancel: _cancel,
    Reserve: _reserve, EndReservation: _end_reservation, Wave: _wave,
}  # fmt: skip
