"""Services in a run file: `services`, checked and turned into `muster.sim.services.Service`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Annotated

from msgspec import Meta, Struct, field

from muster.engine.loans import loan_warnings
from muster.errors import near
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.queue import Queue
from muster.model.workload import PodShape
from muster.sim.services import Daily, Service, steepest
from muster.traces.document import Document

MOST_STEPS = 5_000_000
"""Most steps of a daily demand: many years of the usual ones."""
MOST_REPLICAS = 5_000_000

_Seconds = Annotated[float, Meta(ge=0, le=1e12)]
_Step = Annotated[tuple[_Seconds, Annotated[int, Meta(ge=0, le=1_000_000)]], Meta(description="time, replicas")]


class ServiceItem(Struct, frozen=True, forbid_unknown_fields=True):
    """A service of replicas of ``pods`` pods with ``gpus`` each, as many as are wanted: ``replicas`` or ``daily``.

    A replica serves ``start_s`` after it has its place.
    """

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    replicas: list[_Step] = field(default_factory=list[_Step])
    daily: Daily | None = None
    pods: Annotated[int, Meta(ge=1, le=10_000)] = 1
    gpus: Annotated[float, Meta(gt=0, le=1024)] = 1.0
    queue: str = ""
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31)] = 0
    start_s: _Seconds = 0.0


def services_of(
    document: Document, items: Sequence[ServiceItem], queues: Collection[str], jobs: Collection[str],
    until_s: float | None,
) -> tuple[Service, ...]:  # fmt: skip
    """The services of a run file; raises `InputError` with the line and field of what makes no sense."""
    services: list[Service] = []
    total = 0
    for number, item in enumerate(items):
        where = f"services[{number}]"
        if until_s is None:
            raise document.error(where, "goes on for ever", "say with until_s when the run ends")
        if (item.daily is None) == (not item.replicas):
            raise document.error(where, "needs one of replicas and daily", "such as replicas: [[0, 4], [3600, 8]]")
        if queues and item.queue not in queues:
            hint = near(item.queue, list(queues)) or f"one of {', '.join(queues)}"
            raise document.error(f"{where}.queue", f"there is no queue {item.queue!r}", hint)
        if item.name in {each.name for each in services} or item.name in jobs:
            raise document.error(f"{where}.name", f"{item.name!r} is the name of something else")
        if item.daily and item.daily.low > item.daily.high:
            what = f"is {item.daily.low}, more than high, {item.daily.high}"
            raise document.error(f"{where}.daily.low", what, "peak_s is the time of high")
        if item.daily and until_s / item.daily.step_s > MOST_STEPS:
            what = f"is {until_s / item.daily.step_s:.3g} steps up to until_s"
            raise document.error(f"{where}.daily.step_s", what, f"longer steps: at most {MOST_STEPS:,}")
        wanted = tuple(item.daily.wanted(until_s)) if item.daily else tuple(item.replicas)
        for at, (before, after) in enumerate(pairwise(wanted)):
            if after[0] <= before[0]:
                raise document.error(f"{where}.replicas[{at + 1}]", f"{after[0]:g} is not after {before[0]:g}")
        total += sum(
            max(0, count - before)
            for before, (_, count) in zip((0, *(each for _, each in wanted)), wanted, strict=False)
        )
        if total > MOST_REPLICAS:
            raise document.error(where, f"makes {total:,} replicas", f"at most {MOST_REPLICAS:,} in all")
        whole = item.gpus >= 1
        milli = WHOLE_GPU_MILLI if whole else round(item.gpus * WHOLE_GPU_MILLI)
        if (whole and item.gpus != int(item.gpus)) or not milli:
            raise document.error(f"{where}.gpus", f"is {item.gpus:g}", "a whole number, or a share from 0.001 to 0.999")
        shape = PodShape(0, 0, int(item.gpus) if whole else 1, milli)
        services.append(Service(item.name, shape, item.pods, wanted, item.queue, item.priority, item.start_s))
    return tuple(services)


def service_notes(services: Sequence[Service], queues: Sequence[Queue], stop_s: float) -> Iterator[str]:
    """What cannot be as it is said: loans that are back too late, and ramps that are steeper than stated."""
    start_s = max((each.start_s for each in services), default=0.0)
    yield from loan_warnings(queues, stop_s, start_s)
    by_name = {queue.name: queue for queue in queues}
    for service in services:
        queue = by_name.get(service.queue)
        if queue is None or not queue.headroom_milli:
            continue
        at_s, more = steepest(service, queue.reclaim_s)
        milli = more * service.pods * service.shape.gpu_milli_total
        if milli > queue.headroom_milli:
            yield (
                f"{service.name} grows by {milli / 1000:g} GPUs within {queue.reclaim_s:g} s of {at_s:g}; the headroom "
                f"of {queue.name} is {queue.headroom_milli / 1000:g}: a higher ramp_gpus_per_s keeps more"
            )
