"""What queues have used, kept in the status of the `Queue` objects: so that fair share outlives the scheduler."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import msgspec

from muster.backends.kubernetes.api import ApiError, ApiServer
from muster.backends.kubernetes.commit import MERGE
from muster.engine.scheduler import Scheduler
from muster.kube.kinds import MUSTER_QUEUES
from muster.kube.objects import parse_time
from muster.kube.queue_objects import KubeQueue
from muster.kube.world import World
from muster.model.fleet import WHOLE_GPU_MILLI
from muster.model.snapshot import Usage

LEAST_GPU_S = 1.0
MOST_USERS = 500
"""Users a queue whose use is kept; those who used least are left out."""


def read_usage(world: World, now_s: float, half_life_s: float) -> tuple[Usage, ...]:
    """What the queues' statuses say was used, decayed from when it was written until now."""
    found: list[Usage] = []
    for name, queue in sorted(world.of(MUSTER_QUEUES, KubeQueue).items()):
        written_s = parse_time(queue.status.as_of) or now_s
        decay = 0.5 ** (max(0.0, now_s - written_s) / half_life_s)
        found += [Usage(name, each.user, each.gpu_seconds * decay) for each in queue.status.usage or ()]
    return tuple(found)


def statuses(scheduler: Scheduler, now_s: float) -> dict[str, dict[str, Any]]:
    """The status of each queue as things are: what waits, runs and is held counts in the queues above, too.

    ``usage`` is a queue's own: fair share adds up what is below by itself.
    """
    pending, running = Counter[str](), Counter[str]()
    held: dict[str, Counter[str]] = {}
    for gang in scheduler.pending:
        pending.update(_with_parents(scheduler, gang.workload.queue))
    for run in scheduler.running:
        for name in _with_parents(scheduler, run.workload.queue):
            running[name] += 1
            held.setdefault(name, Counter())[run.flavor] += run.kind.milli
    used: dict[str, list[Usage]] = {}
    for use in scheduler.shares.usage(now_s):
        if use.gpu_s >= LEAST_GPU_S:
            used.setdefault(use.queue, []).append(use)
    as_of = datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        name: {
            "pending": pending[name],
            "running": running[name],
            "allocated": ", ".join(
                f"{flavor or 'GPU'} {milli / WHOLE_GPU_MILLI:g}"
                for flavor, milli in sorted(held.get(name, Counter()).items())
                if milli
            ),
            "usage": [
                {"user": use.user, "gpuSeconds": round(use.gpu_s, 3)}
                for use in sorted(used.get(name, ()), key=lambda use: (-use.gpu_s, use.user))[:MOST_USERS]
            ],
            "asOf": as_of,
        }
        for name in scheduler.queues
    }


def _with_parents(scheduler: Scheduler, name: str) -> list[str]:
    """A queue and those above it."""
    found: list[str] = []
    while name in scheduler.queues and name not in found:
        found.append(name)
        name = scheduler.queues[name].parent
    return found


async def write_statuses(server: ApiServer, world: World, scheduler: Scheduler, now_s: float) -> None:
    """Write the status of each queue that is an object of Muster's own; queues of others are left alone."""
    path = (await server.discover()).path(MUSTER_QUEUES)
    there = world.of(MUSTER_QUEUES, KubeQueue)
    if path is None:
        return
    for name, status in statuses(scheduler, now_s).items():
        if name in there:
            body = msgspec.json.encode({"status": status})
            try:
                await server.request("PATCH", f"{path}/{name}/status", body=body, content_type=MERGE)
            except ApiError as error:
                if error.status != 404:
                    raise
