"""The answers as plain values with a schema version: what `-o json`, the MCP server and the HTTP API give."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from muster.answers.fleet_table import flavors
from muster.answers.forecast import Forecast, forecasts
from muster.answers.how import by_hand
from muster.answers.queue_table import active, shares, waiting
from muster.answers.sentences import tag
from muster.answers.told import said_of
from muster.answers.view import View
from muster.answers.why import Why
from muster.engine.explain import Funnel

if TYPE_CHECKING:
    from muster.answers.fixes import Fix

WHY, QUEUE, FLEET = "muster.why/v1", "muster.queue/v1", "muster.fleet/v1"


def why_document(view: View, told: Why, *, how: bool = False) -> dict[str, Any]:
    """`muster.answers.why.Why` as plain values; ``how`` adds the steps by hand."""
    return {
        "schema": WHY,
        "job": told.workload.name,
        "queue": told.workload.queue,
        "state": told.state,
        "now_s": view.now_s,
        "submitted_s": told.workload.submitted_s,
        "title": told.workload.title,
        "slurm": msgspec.to_builtins(said_of(told.workload)),
        "reason": told.reason and told.reason.name.lower(),
        "cause": told.reason and tag(told.reason),
        "blockers": [
            {
                "reason": each.reason.name.lower(),
                "tier": each.reason.tier.name.lower(),
                "text": each.text,
                "flavor": each.flavor,
                "dominant": each.first,
            }
            for each in told.blockers
        ],
        "flavor": told.flavor,
        "funnels": [_funnel(view, each) for each in told.funnels],
        "quota": msgspec.to_builtins(told.quota),
        "gangs_ahead": told.ahead,
        "start": told.forecast and start_document(told.forecast),
        "fixes": [{"number": number, **fix_document(each)} for number, each in enumerate(told.fixes, 1)],
        "fixes_not_tried": list(told.untried),
        "placement": told.place and msgspec.to_builtins(told.place),
        "by_hand": msgspec.to_builtins(list(by_hand(view, told))) if how else [],
    }


def start_document(told: Forecast) -> dict[str, Any]:
    """`muster.answers.forecast.Forecast` as plain values; what never comes is null."""
    return {
        **_finite({key: getattr(told, f"{key}_s") for key in ("expected", "low", "high", "sure")}, "_s"),
        "confidence": told.confidence,
        "method": told.method,
        "samples": told.samples,
        "waits_for": [
            _finite({"job": each.job, "ends_s": each.ends_s, "nodes": each.nodes}) for each in told.waits_for
        ],
        "ahead": list(told.ahead[:MOST_AHEAD]),
    }


def apply_document(view: View, fix: Fix) -> dict[str, Any]:
    """`muster.answers.apply.Application` as plain values."""
    from muster.answers.apply import application

    told = application(view, fix)
    return {
        "schema": "muster.apply/v1",
        **fix_document(fix),
        "by_hand": [{"system": step.system, "commands": list(step.commands)} for step in told.by_hand],
    }


def fix_document(fix: Fix) -> dict[str, Any]:
    """`muster.answers.fixes.Fix` as plain values; changes as `muster whatif` takes them."""
    return _finite(
        {
            "kind": fix.kind,
            "title": fix.title,
            "changes": [str(change) for change in fix.changes],
            "lost_gpu_s": fix.cost_gpu_s,
            "delayed_gpu_s": fix.delayed_gpu_s,
            "starts_in_s": fix.starts_in_s,
            "slowdown": fix.slowdown,
            "displaced": list(fix.displaced),
            "delayed": list(fix.delayed),
        }
    )


def _funnel(view: View, funnel: Funnel) -> dict[str, Any]:
    names = view.scheduler.cluster.state.node_names

    def named(rows: Iterable[int]) -> list[str]:
        return [names[row] for row in rows]

    return {
        "pod": funnel.shape.describe(),
        "free_gpu_milli": funnel.free_milli,
        "usable_gpu_milli": funnel.usable_milli,
        "pods_that_fit": funnel.pods,
        "steps": [
            {"step": each.key, "text": each.text, "nodes": len(each.rows), "lost": named(each.lost.tolist())}
            for each in funnel.steps
        ],
    }


MOST_AHEAD = 100
"""So many names of gangs ahead at most; `gangs_ahead` counts them all."""

PARTS = ("tree", "waiting", "running")
FORETOLD = 20


def queue_document(
    view: View, *, queue: str = "", namespace: str = "", parts: Sequence[str] = PARTS, most: int | None = None,
    foretold: int = FORETOLD,
) -> dict[str, Any]:  # fmt: skip
    """What waits (at most ``most``, in order), what runs, and the tree of queues; ``parts`` of it.

    ``queue`` and ``namespace`` narrow it. Of the first ``foretold`` that wait it is told when they will start.
    """
    document: dict[str, Any] = {"schema": QUEUE, "now_s": view.now_s}
    if "tree" in parts:
        document["queues"] = [_finite(msgspec.to_builtins(each)) for each in shares(view, queue)]
    if "waiting" in parts:
        found, total = waiting(view, queue=queue, namespace=namespace, most=most)
        document["total_waiting"] = total
        starts = forecasts(view, [each.job for each in found[:foretold]])
        document["waiting"] = [
            {
                **_finite(msgspec.to_builtins(each)),
                "reason": each.reason.name.lower(),
                "start": start_document(starts[each.job]) if each.job in starts else None,
            }
            for each in found
        ]
    if "running" in parts:
        runs = active(view, queue=queue, namespace=namespace)
        document["total_running"] = len(runs)
        document["running"] = [_finite(msgspec.to_builtins(each)) for each in runs[:most]]
    return document


def fleet_document(view: View) -> dict[str, Any]:
    """What the fleet has and what is free of it, by flavor."""
    return {"schema": FLEET, "now_s": view.now_s, "flavors": msgspec.to_builtins(flavors(view))}


def _finite(record: dict[str, Any], ending: str = "") -> dict[str, Any]:
    """Infinite times are told as nothing, which JSON has no word for; ``ending`` is added to the keys."""
    return {
        key + ending: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in record.items()
    }
