"""What the gang may ask for instead: other places, fewer or smaller pods, other GPUs, a shorter limit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from msgspec.structs import replace

from muster.answers.changes import SetJob
from muster.answers.remedies.ask import Ask, Candidate
from muster.answers.times import span
from muster.answers.words import gpus, listed, plural, shape_of
from muster.catalog import training_tflops
from muster.engine.sizes import largest, sizes_of
from muster.errors import InputError
from muster.kube.marks import is_mark
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.reasons import Reason
from muster.model.workload import PodSet, TopologyRequest, Workload

MINUTE_S = 60.0


def _candidate(
    ask: Ask, kind: str, title: str, change: SetJob, slower: float = 1.0, known: Workload | None = None
) -> Candidate | None:
    """A change of the gang, if that leaves a gang that the engine takes and that finds room."""
    try:
        workload = ask.changed(change) if known is None else known
    except InputError:
        return None
    return Candidate(kind, title, (change,), workload, slower=slower) if ask.fits(workload) else None


# -- where its pods stand ---------------------------------------------------------------------------------------------


def segments(ask: Ask) -> Iterator[Candidate]:
    """Smaller segments, each still in one domain of the level that it requires; the largest that helps."""
    request = ask.workload.topology
    if request is None or not request.required or len(ask.workload.pod_sets) > 1:
        return
    pods = ask.workload.pods
    size = request.segment or pods
    together = ask.gang.kind.groups.together
    for segment in range(size - 1, 1, -1):
        if size % segment or segment % together or pods % segment:
            continue
        title = f"let it stand in segments of {plural(segment, 'pod')}, each in one {request.required}"
        found = _candidate(ask, "topology", title, ask.job(segment=segment))
        if found is not None:
            yield found


def wider(ask: Ask) -> Iterator[Candidate]:
    """A wider level than the one that it requires, down to any place; the required one is then preferred."""
    request = ask.workload.topology
    if request is None or not request.required:
        return
    levels = ask.cluster.fleet.topology.with_hosts
    at, prefer = levels.index(request.required), request.required
    for level in (*reversed(levels[:at]), ""):
        if request.spread and level and not request.segment and levels.index(request.spread) <= levels.index(level):
            continue
        segment = None if level and request.segment else 0
        change = ask.job(topology=level, prefer=prefer, segment=segment if request.segment else None)
        where = f"require one {level}, and prefer" if level else "let it stand anywhere, and prefer"
        found = _candidate(ask, "topology", f"{where} one {prefer}", change)
        if found is not None:
            yield found


def closer(ask: Ask) -> Iterator[Candidate]:
    """More pods in one failure domain than it allows."""
    request = ask.workload.topology
    if request is None or not request.spread:
        return
    pods, most = ask.workload.pods, request.at_most
    while most and most < pods:
        most = min(pods, most + max(1, most // 4))
        title = f"let up to {plural(most, 'pod')} stand in one {request.spread} (now {request.at_most})"
        found = _candidate(ask, "topology", title, ask.job(at_most=most))
        if found is not None:
            yield found
            return
    found = _candidate(ask, "topology", f"do not spread it over {request.spread}s", ask.job(spread="", at_most=0))
    if found is not None:
        yield found


# -- its size and shape -----------------------------------------------------------------------------------------------


def smaller(ask: Ask) -> Iterator[Candidate]:
    """Fewer pods: the most with which it finds room now."""
    workload, kind = ask.workload, ask.gang.kind
    least = tuple(replace(each, count=each.required, min_count=min(1, each.required)) for each in workload.pod_sets)
    segment = workload.topology.segment if workload.topology else 0
    sizes = [size for size in sizes_of(least, segment, kind.groups.near) if any(size)][:-1]

    def as_small(counts: Sequence[int]) -> Workload:
        pod_sets = tuple(
            replace(each, count=count, min_count=None) for each, count in zip(workload.pod_sets, counts, strict=True)
        )
        asked = workload.parallelism
        return replace(workload, pod_sets=pod_sets, parallelism=replace(asked, data=0) if asked else None)

    found = largest(sizes, lambda counts: ask.fits(as_small(counts)))
    if found is None:
        return
    before, after = sum(each.required for each in workload.pod_sets), sum(found)
    then_milli = as_small(found).gpu_milli
    slower = ask.kind.milli / then_milli if then_milli else before / after
    title = f"start with {plural(after, 'pod')} ({gpus(then_milli)}) instead of {before:,}: the most that fit now"
    change = ask.job(min_pods=found) if workload.elastic else ask.job(pods=found)
    yield Candidate("smaller", title, (change,), ask.changed(change), slower=slower)


def reshaped(ask: Ask) -> Iterator[Candidate]:
    """As many GPUs in more and smaller pods."""
    workload, at = ask.workload, ask.pod_set
    pod_set = ask.shape_set
    shape = pod_set.shape
    if shape.gpus < 2 or shape.gpu_milli != WHOLE_GPU_MILLI or workload.elastic:
        return
    request = workload.topology or TopologyRequest()
    for each in range(shape.gpus - 1, 0, -1):
        if shape.gpus % each:
            continue
        times = shape.gpus // each
        pods = tuple(one.count * (times if index == at else 1) for index, one in enumerate(workload.pod_sets))
        sizes = tuple(each if index == at else one.shape.gpus for index, one in enumerate(workload.pod_sets))
        segment = request.segment * times if request.segment else None
        change = ask.job(pods=pods, gpus=sizes, segment=segment)
        one = replace(shape, gpus=each)
        title = f"split its pods: {pods[at]:,} x {shape_of(one)} instead of {pod_set.count:,} x {shape_of(shape)}"
        found = _candidate(ask, "shape", title, change)
        if found is not None:
            yield found


def less_host(ask: Ask) -> Iterator[Candidate]:
    """Less CPU, or less memory, a pod: the most with which it finds room."""
    workload, at = ask.workload, ask.pod_set
    shape = ask.shape_set.shape
    for field, unit, name in (("cpu_milli", 1000, "CPU"), ("memory_bytes", 1 << 30, "GiB of memory")):
        asked: int = getattr(shape, field)
        if asked < 2 * unit:
            continue

        def with_only(amount: int, field: str = field) -> Workload:
            sets = list[PodSet](workload.pod_sets)
            sets[at] = replace(sets[at], shape=replace(shape, **{field: amount}))  # type: ignore[arg-type]
            return replace(workload, pod_sets=tuple(sets))

        low, high = 0, asked // unit
        if not ask.fits(with_only(unit)):
            continue
        low = 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if ask.fits(with_only(middle * unit)) else (low, middle)
        amounts = tuple(
            low * unit if index == at else getattr(each.shape, field) for index, each in enumerate(workload.pod_sets)
        )
        title = f"ask for {low:,} {name} a pod instead of {asked / unit:,g}"
        yield Candidate("host", title, (ask.job(**{field: amounts}),), with_only(low * unit))


# -- other GPUs -------------------------------------------------------------------------------------------------------


def other_gpus(ask: Ask) -> Iterator[Candidate]:
    """Another flavor or GPU model than those that it allows, the fastest first."""
    workload, shape = ask.workload, ask.shape_set.shape
    if not shape.gpu_models and not workload.flavors:
        return
    present: dict[str, int] = {}
    for node in ask.cluster.fleet.nodes:
        for model in node.gpu_models:
            present.setdefault(model, node.healthy_gpus)
    own = set(shape.gpu_models)
    of_flavors = {flavor.partition("/")[0] for flavor in workload.flavors}
    choices: list[tuple[float, str, SetJob]] = []
    for flavor in ask.cluster.flavors if ask.cluster.flavored else ("",):
        model = flavor.partition("/")[0]
        if flavor and workload.flavors and flavor in workload.flavors and (not own or model in own):
            continue
        for other in [model] if flavor else list(present):
            if (other in own and not flavor) or other not in present:
                continue
            if not flavor and not own:
                continue
            fields: dict[str, object] = {}
            if flavor and workload.flavors and flavor not in workload.flavors:
                fields["flavors"] = (*workload.flavors, flavor)
            if own and other not in own:
                fields["models"] = (*shape.gpu_models, other)
            if fields:
                slower = _slower(own or of_flavors, other)
                choices.append((slower, flavor or other, ask.job(**fields)))
    for slower, name, change in sorted(choices, key=lambda each: (each[0], each[1])):
        found = _candidate(ask, "flavor", f"let it use {name}, too", change, slower)
        if found is not None:
            yield found


def _slower(own: set[str], other: str) -> float:
    """How many times as long training takes on another model than on the fastest of its own; 1 if that is not known."""
    known = [tflops for model in own if (tflops := _tflops(model))]
    theirs = _tflops(other)
    return max(known) / theirs if known and theirs else 1.0


def _tflops(model: str) -> float | None:
    try:
        return training_tflops(model)
    except InputError:
        return None


# -- its limit, and what gates it -------------------------------------------------------------------------------------


def shorter(ask: Ask) -> Iterator[Candidate]:
    """A time limit with which it ends before the reserved starts that it may not delay."""
    if Reason.RESERVED not in ask.reasons.values():
        return
    workload = ask.workload
    starts = sorted(
        {slot.start_s for slot in ask.scheduler.slots.values() if slot.name != workload.name}
        | {each.start_s for each in ask.scheduler.reservations if each.start_s > ask.now_s}
    )
    lasts_s = ask.scheduler.running.expected_s(workload)
    for start_s in reversed(starts):
        limit_s = math.floor((start_s - ask.now_s) / MINUTE_S) * MINUTE_S
        if not MINUTE_S <= limit_s < max(lasts_s, workload.time_limit_s or math.inf):
            continue
        now = "none" if workload.time_limit_s is None else span(workload.time_limit_s)
        title = f"give it a time limit of {span(limit_s)} (now {now}): it then ends before the reserved start behind it"
        found = _candidate(ask, "limit", title, ask.job(limit_s=limit_s))
        if found is not None:
            yield found


def wrong_labels(ask: Ask) -> Iterator[Candidate]:
    """Labels of its node selector that no node has: the nearest value that nodes have, else none."""
    present: dict[str, dict[str, None]] = {}
    for node in ask.cluster.fleet.nodes:
        for key, value in node.labels:
            present.setdefault(key, {})[value] = None
    pairs = _selector(ask)
    for key, value in pairs:
        if value in present.get(key, ()) or is_mark(key):
            continue
        rest = tuple(f"{other}={of}" for other, of in pairs if other != key)
        for near in get_close_matches(value, list(present.get(key, ())), n=1):
            change = ask.job(selector=tuple(sorted((*rest, f"{key}={near}"))))
            title = f"select nodes by {key}={near}: none has {key}={value}"
            yield Candidate("selector", title, (change,), ask.changed(change))
        change = ask.job(selector=rest)
        yield Candidate(
            "selector", f"do not select nodes by {key}={value}, which none has", (change,), ask.changed(change)
        )


def any_label(ask: Ask) -> Iterator[Candidate]:
    """Its node selector without one label, or without any; conditions that no label says stay."""
    texts = [f"{key}={value}" for key, value in _selector(ask)]
    kept = [text for text in texts if is_mark(text)]
    for text in (text for text in texts if not is_mark(text)):
        change = ask.job(selector=tuple(each for each in texts if each != text))
        found = _candidate(ask, "selector", f"let it use nodes without the label {text}", change)
        if found is not None:
            yield found
    dropped = [text for text in texts if text not in kept]
    if len(dropped) > 1:
        found = _candidate(
            ask, "selector", f"let it use nodes without the labels {listed(dropped)}", ask.job(selector=tuple(kept))
        )
        if found is not None:
            yield found


def _selector(ask: Ask) -> list[tuple[str, str]]:
    """All labels that its pods ask for."""
    return sorted({pair for each in ask.workload.pod_sets for pair in each.shape.node_selector})


def higher(ask: Ask) -> Iterator[Candidate]:
    """A priority above those who wait before it; then above work that runs, which it may then stop."""
    workload, scheduler = ask.workload, ask.scheduler
    queue = scheduler.queues.get(workload.queue)
    most = math.inf if queue is None or queue.max_priority is None else queue.max_priority
    runs = scheduler.running.in_queue(workload.queue) if scheduler.queues else scheduler.running
    targets = [scheduler.pending.highest_priority + 1]
    running = sorted({run.workload.priority + 1 for run in runs if run.workload.preemptible})
    if scheduler.config.preempt_lower_priority and running:
        targets += [running[0], running[-1]]
    for target in sorted({int(each) for each in targets if workload.priority < each <= most}):
        title = f"raise its priority from {workload.priority} to {target}"
        yield Candidate("priority", title, (ask.job(priority=target),), replace(workload, priority=target))


def tolerated(ask: Ask) -> Iterator[Candidate]:
    """Taints that it could bear: those of the nodes that refuse it for nothing else."""
    from muster.answers.remedies.nodes import refused_only_by

    keys: dict[str, None] = {}
    for node in refused_only_by(ask, Reason.TAINT):
        keys.update((taint.key, None) for taint in node.taints if taint.effect != "PreferNoSchedule")
    for some in [*((key,) for key in keys), tuple(keys)][:4]:
        found = _candidate(ask, "taint", f"let it tolerate the taint {listed(some)}", ask.job(tolerate=some))
        if found is not None:
            yield found
