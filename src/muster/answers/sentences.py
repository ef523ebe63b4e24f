"""Each reason as a sentence with its numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from muster.answers.times import span, until
from muster.answers.view import View
from muster.answers.words import gpus, listed, plural, pods_of, shape_of
from muster.engine.cluster import GangKind
from muster.engine.explain import Cause, Funnel, relaxed
from muster.engine.pending import Gang
from muster.engine.quota import Holdings
from muster.engine.state import refusing_taints
from muster.kernels import Ints
from muster.kube.marks import is_mark, label_words
from muster.model.fleet import WHOLE_GPU_MILLI, Node
from muster.model.reasons import Reason
from muster.model.workload import PASSING


class Facts(NamedTuple):
    """What a sentence may draw on. ``flavor`` is the one that is told of; ``room`` why there is none on it."""

    view: View
    gang: Gang
    flavor: str
    room: Cause | None
    funnels: tuple[Funnel, ...]
    quota: tuple[Holdings, ...]

    @property
    def kind(self) -> GangKind:
        """The gang at the least size with which it may run."""
        return self.gang.kind.least

    @property
    def holdings(self) -> Holdings | None:
        """The quota of the flavor that is told of."""
        return next((each for each in self.quota if each.flavor == self.flavor), None)

    @property
    def asked(self) -> str:
        """What it asks for, such as ``64 pods x 8 GPUs``."""
        return pods_of(self.kind.pod_sets)

    @property
    def on(self) -> str:
        """Where: `` of H100`` or nothing."""
        return f" of {self.flavor}" if self.flavor else ""

    def lost(self, key: str) -> list[Node]:
        """The nodes that fell away at a step of the funnel."""
        if not self.funnels:
            return []
        rows: Ints = next((step.lost for step in self.funnels[0].steps if step.key == key), np.zeros(0, np.int64))
        return [self.view.scheduler.cluster.state.node_list[row] for row in rows.tolist()]


def headline(reason: Reason, facts: Facts) -> str:
    """One sentence: what it needs, and what there is instead."""
    return _SENTENCES[reason](facts)


def also(facts: Facts, told: set[Reason]) -> Iterator[tuple[Reason, str]]:
    """Nodes that have room for a pod and are closed to it, by cause: true besides, if not in itself decisive."""
    for reason, key in (
        (Reason.UNSCHEDULABLE, "healthy"), (Reason.TAINT, "taints"), (Reason.SPARE, "spares"),
    ):  # fmt: skip
        nodes = facts.lost(key)
        if reason not in told and nodes:
            yield reason, _closed(reason, nodes, facts)


def _closed(reason: Reason, nodes: Sequence[Node], facts: Facts) -> str:
    count, names = plural(len(nodes), "node"), listed(node.name for node in nodes)
    are = "is" if len(nodes) == 1 else "are"
    match reason:
        case Reason.TAINT:
            shapes = [pods.shape for pods in facts.kind.pod_sets]
            taints = dict.fromkeys(
                f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
                for node in nodes for taint in refusing_taints(shapes, node)
            )  # fmt: skip
            return f"{count} {are} tainted with {listed(taints)}, which it does not tolerate ({names})."
        case Reason.SPARE:
            return f"{count} {are} kept as {'a spare' if len(nodes) == 1 else 'spares'} for replacements ({names})."
        case _:
            causes = dict.fromkeys(node.reason for node in nodes if node.reason)
            text = f": {listed(causes, 2)}" if causes else ""
            return f"{count} {are} cordoned, drained or not ready ({names}{text})."


# -- misconfigured or impossible --------------------------------------------------------------------------------------


def _unknown_queue(facts: Facts) -> str:
    from muster.errors import near

    queue, queues = facts.gang.workload.queue, list(facts.view.scheduler.queues)
    hint = near(queue, queues) or f"there are {listed(queues, 5)}"
    return f"Its queue {queue!r} does not exist; {hint}." if queue else f"It names no queue; {hint}."


def _no_flavor(facts: Facts) -> str:
    asked = listed(facts.view.scheduler.flavors_of(facts.kind), 4)
    queue = facts.gang.workload.queue
    scheduler = facts.view.scheduler
    has = [flavor for flavor in scheduler.quota.flavors if scheduler.quota.potential(queue, flavor)]
    own = f"it has one of {listed(has, 4)}" if has else "it has none at all"
    may_use = f" of a flavor that it may use ({asked})" if asked else ""
    return f"Queue {queue} has no quota{may_use}; {own}."


def _selector(facts: Facts) -> str:
    labels = dict.fromkeys(pair for each in facts.kind.pod_sets for pair in each.shape.node_selector)
    nodes = facts.view.snapshot.fleet.nodes
    counts: list[str] = []
    for key, value in labels:
        count = plural(sum(dict(node.labels).get(key) == value for node in nodes), "node")
        counts.append(f"{label_words(key, value)} ({count}{'' if is_mark(key) else ' with it'})")
    return f"Its node selector rules out what would have room: it asks for {listed(counts)}."


def _other_pods(facts: Facts) -> str:
    labels = dict.fromkeys(pair for each in facts.kind.pod_sets for pair in each.shape.node_selector)
    nodes = facts.view.snapshot.fleet.nodes
    counts = [
        f"{label_words(key, value)} ({plural(sum(dict(node.labels).get(key) == value for node in nodes), 'node')})"
        for key, value in labels
        if key.startswith(PASSING)
    ]
    return (
        f"Rules about other pods close the nodes that have room: it asks for {listed(counts)}. It starts when those "
        "pods have gone, or stand elsewhere."
    )


def _barred(reason: Reason, step: str, otherwise: str) -> Callable[[Facts], str]:
    """Of nodes that are closed to it; ``otherwise`` it would fit, if that is so."""

    def text(facts: Facts) -> str:
        empty = facts.view.scheduler.cluster.emptied
        enough = empty.fits(relaxed(empty, facts.kind, reason), facts.flavor)
        return f"{f'{otherwise} it would fit: ' if enough else ''}{_closed(reason, facts.lost(step), facts)}"

    return text


def _gpu_model(facts: Facts) -> str:
    models = dict.fromkeys(model for each in facts.kind.pod_sets for model in each.shape.gpu_models)
    there = [f"{model} ({count:,})" for model, count in facts.view.snapshot.fleet.gpus_by_model.items()]
    return f"It asks for {' or '.join(models)}; the fleet's GPUs are {listed(there, 4) or 'none'}."


def _gpu_count(facts: Facts) -> str:
    most = max(each.shape.gpus for each in facts.kind.pod_sets)
    nodes = [node for node in facts.view.snapshot.fleet.nodes if not facts.flavor or node.flavor == facts.flavor]
    has = max((node.healthy_gpus for node in nodes), default=0)
    whole = max((len(node.devices) for node in nodes), default=0)
    sick = f" ({whole} with those that are unhealthy)" if whole > has else ""
    return f"A pod asks for {plural(most, 'GPU')}; no node{facts.on} has more than {has}{sick}."


def _too_much(what: str, unit: float, name: str) -> Callable[[Facts], str]:
    def text(facts: Facts) -> str:
        most = max(getattr(each.shape, what) for each in facts.kind.pod_sets)
        nodes = [node for node in facts.view.snapshot.fleet.nodes if not facts.flavor or node.flavor == facts.flavor]
        has = max((getattr(node, what) for node in nodes), default=0)
        where = f"no node{facts.on} that it may use has more than {has / unit:,.4g}"
        return f"A pod asks for {most / unit:,.4g} {name}; {where}." if most > has else (
            f"With less {name} it would fit: a pod asks for {most / unit:,.4g}, and too few nodes have so much."
        )  # fmt: skip

    return text


def _sharing_mode(facts: Facts) -> str:
    modes = dict.fromkeys(
        each.shape.sharing or (f"MIG {each.shape.mig_profile}" if each.shape.mig_profile else "")
        for each in facts.kind.pod_sets
    )
    modes.pop("", None)
    return (
        f"It asks for {listed(modes) or 'whole GPUs'}, and the GPUs of the nodes that it may use are not given out so."
    )


def _never(facts: Facts) -> str:
    refused = facts.room.refused if facts.room else None
    return (
        f"It would not fit if nothing else ran: {refused.text() if refused else facts.asked + ' do not fit at once'}."
    )


# -- limits and quota -------------------------------------------------------------------------------------------------


def _over_limit(facts: Facts) -> str:
    workload, scheduler = facts.gang.workload, facts.view.scheduler
    most = scheduler.queues[workload.queue].max_running_milli or 0
    held = scheduler.running.held_by(workload.queue, workload.user)
    who = workload.user or "its user"
    limit = f"the {gpus(most)} that each user of {workload.queue} may hold"
    return f"{who} holds {gpus(held)} of {limit}; it needs {gpus(facts.kind.milli)}."


def _over_quota(facts: Facts) -> str:
    held = facts.holdings
    most = gpus(held.potential_milli) if held else "nothing"
    return f"It needs {gpus(facts.kind.milli)}{facts.on}; its queue could get {most} at most, if nobody else used any."


def _quota(facts: Facts) -> str:
    held = facts.holdings
    need = gpus(facts.kind.milli)
    if held is None:
        return f"Its queue's quota is used; it needs {need}."
    limit = "" if held.limited_by == held.queue else f" (the limit is {held.limited_by}'s)"
    text = (
        f"It needs {need}{facts.on}; {held.queue} uses {gpus(held.used_milli)} of {gpus(held.nominal_milli)} nominal,"
        f" and may use {gpus(held.available_milli)} more{limit}."
    )
    if held.lent_milli:
        lent = listed((f"{each.queue} {gpus(each.milli)}" for each in held.borrowers), 3)
        in_all = "who borrow in all: " if sum(each.milli for each in held.borrowers) > held.lent_milli else ""
        verb = "is" if held.lent_milli <= WHOLE_GPU_MILLI else "are"
        text += f" {gpus(held.lent_milli)} of its own {verb} lent{f' ({in_all}{lent})' if lent else ''}."
    return text


# -- room -------------------------------------------------------------------------------------------------------------


def _shortage(facts: Facts) -> str:
    free = sum(funnel.free_milli for funnel in facts.funnels[:1])
    return (
        f"It needs {facts.asked}, {gpus(facts.kind.milli)} in all; {gpus(free)}{facts.on} are free where it may stand."
    )


def _fragmentation(facts: Facts) -> str:
    hardest = facts.funnels[0] if facts.funnels else None
    if hardest is None:
        return f"It needs {facts.asked} at once; its pods do not all fit."
    need = next(each.count for each in facts.kind.pod_sets if each.shape == hardest.shape)
    free = gpus(hardest.free_milli)
    if hardest.pods >= need:
        return f"It needs {facts.asked} at once; each set finds room alone, but not all together ({free} free)."
    return f"It needs {facts.asked} at once; of {free} free there is room for {plural(hardest.pods, 'such pod')}."


def _in_shares(facts: Facts) -> str:
    hardest = facts.funnels[0] if facts.funnels else None
    free = gpus(hardest.free_milli) if hardest else "enough"
    return f"It needs {facts.asked}; {free} are free in all, but not as such shares of single GPUs."


def _mig_start(facts: Facts) -> str:
    return f"It needs {facts.asked}; enough memory slices are free, but not at a start where the profile may be."


def _shared(facts: Facts) -> str:
    return f"It needs {facts.asked}; the free parts are of GPUs that other tenants share, or that are shared otherwise."


def _domain(facts: Facts) -> str:
    refused = facts.room.refused if facts.room else None
    if refused is None:
        return f"{facts.asked} must stand in one domain, and none has room."
    never = " even if nothing else ran" if facts.room and facts.room.never else ""
    return f"Its {refused.text()}{never}."


def _host(name: str, what: str) -> Callable[[Facts], str]:
    def text(facts: Facts) -> str:
        return f"It needs {facts.asked}; GPUs are free for it, but too little {name} beside them ({what})." if any(
            each.shape.gpus for each in facts.kind.pod_sets
        ) else f"It needs {facts.asked}; too little {name} is free ({what})."  # fmt: skip

    def with_amount(facts: Facts) -> str:
        shape = max((each.shape for each in facts.kind.pod_sets), key=lambda shape: getattr(shape, what))
        amount = f"{shape.cpu_milli / 1000:,.4g} CPU" if name == "CPU" else f"{shape.memory_bytes / 2**30:,.4g} GiB"
        return text(facts).replace(f"({what})", f"(a pod of {shape_of(shape)} asks for {amount})")

    return with_amount


def _pod_count(facts: Facts) -> str:
    return f"It needs {facts.asked}; nodes have room for it, but have as many pods as their kubelets take."


def _reserved(facts: Facts) -> str:
    scheduler = facts.view.scheduler
    if facts.view.config.queueing == "strict":
        ahead = scheduler.ahead_of(facts.gang)
        are = f"{plural(ahead, 'gang')} {'is' if ahead == 1 else 'are'}"
        return f"It would fit, but {are} ahead of it, and nothing may pass them (queueing: strict)."
    slots = [slot for slot in scheduler.slots.values() if slot.name != facts.gang.workload.name]
    advance = [each for each in scheduler.reservations if each.end_s > facts.view.now_s]
    kept = [f"{slot.name}, which starts {until(facts.view, slot.start_s)}" for slot in slots]
    kept += [f"reservation {each.name}, which begins {until(facts.view, each.start_s)}" for each in advance]
    return f"It would fit now, but would be in the way of {listed(kept, 3) or 'work that is ahead of it'}."


def _evicting(facts: Facts) -> str:
    return "Work that was stopped for it has not ended yet."


# -- gates ------------------------------------------------------------------------------------------------------------


def _dependency(facts: Facts) -> str:
    scheduler = facts.view.scheduler
    open_ = [name for name in facts.gang.workload.depends_on if name not in scheduler.finished]
    told = [
        f"{name} (runs)" if name in scheduler.running else f"{name} (waits)" if name in scheduler.pending.gangs
        else f"{name} (is not there: it never ran, failed or was removed)"
        for name in open_
    ]  # fmt: skip
    return f"It depends on {listed(told)}."


def _held(facts: Facts) -> str:
    workload = facts.gang.workload
    if math.isinf(workload.not_before_s) and workload.told:
        return "Slurm does not let it start, whatever nodes are free."
    if math.isinf(workload.not_before_s):
        return (
            "It is held by a scheduling gate of its pods, by a volume claim of theirs that is not ready, by a topology "
            "level that is not known here, or suspended: it starts after somebody lets it go."
        )
    again = f", after {plural(workload.failures, 'failure')}" if workload.failures else ""
    return f"It is held for {span(workload.not_before_s - facts.view.now_s)} more{again}."


_SENTENCES: dict[Reason, Callable[[Facts], str]] = {
    Reason.UNKNOWN_QUEUE: _unknown_queue,
    Reason.NO_FLAVOR: _no_flavor,
    Reason.SELECTOR: _selector,
    Reason.TAINT: _barred(Reason.TAINT, "taints", "Without the taints"),
    Reason.UNSCHEDULABLE: _barred(Reason.UNSCHEDULABLE, "healthy", "If they were back"),
    Reason.SPARE: _barred(Reason.SPARE, "spares", "With the spares"),
    Reason.GPU_MODEL: _gpu_model,
    Reason.GPU_COUNT: _gpu_count,
    Reason.CPU_TOTAL: _too_much("cpu_milli", 1000, "CPU"),
    Reason.MEMORY_TOTAL: _too_much("memory_bytes", 2**30, "GiB"),
    Reason.SHARING_MODE: _sharing_mode,
    Reason.NEVER_FITS: _never,
    Reason.OVER_LIMIT: _over_limit,
    Reason.OVER_QUOTA: _over_quota,
    Reason.QUOTA: _quota,
    Reason.GPU_FREE: _shortage,
    Reason.CAPACITY: _fragmentation,
    Reason.GPU_SHAPE: _in_shares,
    Reason.MIG_START: _mig_start,
    Reason.GPU_SHARED: _shared,
    Reason.CPU_FREE: _host("CPU", "cpu_milli"),
    Reason.MEMORY_FREE: _host("memory", "memory_bytes"),
    Reason.POD_COUNT: _pod_count,
    Reason.ONE_DOMAIN: _domain,
    Reason.APART: _domain,
    Reason.OTHER_PODS: _other_pods,
    Reason.RESERVED: _reserved,
    Reason.EVICTING: _evicting,
    Reason.DEPENDENCY: _dependency,
    Reason.HELD: _held,
}

TAGS = {
    Reason.CAPACITY: "fragmentation", Reason.GPU_SHAPE: "fragmentation", Reason.GPU_FREE: "shortage",
    Reason.CPU_FREE: "CPU", Reason.MEMORY_FREE: "memory", Reason.ONE_DOMAIN: "topology", Reason.APART: "topology",
    Reason.RESERVED: "others are ahead", Reason.QUOTA: "quota", Reason.OVER_QUOTA: "quota",
    Reason.NEVER_FITS: "too large", Reason.OTHER_PODS: "other pods",
}  # fmt: skip
"""What a reason is called in one or two words; the others are called by their own name."""


def tag(reason: Reason) -> str:
    """A reason in one or two words."""
    return TAGS.get(reason, reason.name.lower().replace("_", " "))
