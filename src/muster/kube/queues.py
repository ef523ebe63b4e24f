"""Queues of the cluster as a tree of queues with quotas."""

from __future__ import annotations

import re
from collections.abc import Mapping

from muster.kube.kinds import MUSTER_QUEUES
from muster.kube.notes import Notes
from muster.kube.objects import Quantity, parse_quantity
from muster.kube.queue_objects import KubeQueue
from muster.kube.world import World
from muster.model.queue import Queue, Quota

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_duration(text: str) -> float:
    """Seconds of ``1h30m``, ``45s`` or ``500ms``; raises `ValueError`."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


def read_queues(world: World, notes: Notes) -> tuple[Queue, ...]:
    """All queues."""
    return _muster(world.of(MUSTER_QUEUES, KubeQueue), notes)


def _muster(found: Mapping[str, KubeQueue], notes: Notes) -> tuple[Queue, ...]:
    queues: list[Queue] = []
    for each in found.values():
        name, spec = each.metadata.name, each.spec

        def milli(text: Quantity | None, where: str, name: str = name) -> int | None:
            if text is None:
                return None
            try:
                return max(0, parse_quantity(text, 1000))
            except (ValueError, OverflowError):
                notes.add("Queue", name, f"spec.{where}", "is no number of GPUs: it counts as 0")
                return 0

        parent = spec.parent
        if parent and parent not in found:
            notes.add("Queue", name, "spec.parent", f"there is no queue {parent}: it counts as a root")
            parent = ""
        try:
            runtime_s = parse_duration(spec.min_runtime) if spec.min_runtime else 0.0
        except ValueError:
            notes.add("Queue", name, "spec.minRuntime", "is no duration such as 30m: it counts as 0")
            runtime_s = 0.0
        quotas = tuple(
            Quota(
                quota.flavor,
                milli(quota.nominal, "quotas.nominal") or 0,
                milli(quota.borrowing_limit, "quotas.borrowingLimit") if parent else None,
                milli(quota.lending_limit, "quotas.lendingLimit"),
            )
            for quota in spec.quotas or ()
        )
        queues.append(
            Queue(
                name,
                parent,
                max(1e-3, parse_quantity(spec.weight, 1000) / 1000),
                quotas,
                runtime_s,
                milli(spec.max_running_per_user, "maxRunningPerUser"),
                tenant=spec.tenant,
            )
        )
    return tuple(queues)
