"""Decisions as records: one a decision, with its reason and its numbers, for tables, JSON and the history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from muster.answers.times import span
from muster.answers.words import gpu_hours, gpus, plural
from muster.model.plan import Decision, Evict, Migrate, Place, PodPlacement, Quarantine, Reserve, Resize, Wait
from muster.model.reasons import Reason
from muster.slurm.hostlist import compress

_WHY = {
    "reclaim": "its queue takes back what it lent",
    "priority": "a higher priority",
    "yield": "pods above its least size",
    "headroom": "the headroom of a queue",
    "failure": "a node was lost",
    "room": "room",
}


def record_of(decision: Decision) -> dict[str, Any]:
    """A decision as a record of plain values: ``decision``, ``workload``, and what else it has.

    ``nodes`` is a hostlist; ``gpu_milli`` what it takes; costs are GPU-seconds.
    """
    match decision:
        case Place():
            return {
                "decision": "place", "workload": decision.workload, **_where(decision.pods), "flavor": decision.flavor,
                "borrowed_milli": decision.borrowed_milli, "backfilled": decision.backfilled,
                **_counts(decision.counts),
            }  # fmt: skip
        case Wait():
            return {
                "decision": "wait", "workload": decision.workload, "reason": decision.reason.name,
                "text": decision.reason.text, "tier": decision.reason.tier.name, **dict(decision.numbers),
            }  # fmt: skip
        case Evict():
            return {
                "decision": "evict", "workload": decision.workload, "for": decision.for_workload, "why": decision.why,
                "lost_gpu_s": decision.lost_gpu_s,
            }  # fmt: skip
        case Reserve():
            return {
                "decision": "reserve", "workload": decision.workload, "start_s": decision.start_s,
                "nodes": compress(decision.nodes), "sure": decision.sure,
            }  # fmt: skip
        case Migrate():
            return {
                "decision": "migrate", "workload": decision.workload, "for": decision.for_workload, "why": decision.why,
                "cost_gpu_s": decision.cost_gpu_s, **_where(decision.pods),
            }  # fmt: skip
        case Resize():
            return {
                "decision": "resize", "workload": decision.workload, "for": decision.for_workload, "why": decision.why,
                "cost_gpu_s": decision.cost_gpu_s, **_where(decision.pods), **_counts(decision.counts),
            }  # fmt: skip
        case Quarantine():
            return {
                "decision": "quarantine",
                "nodes": decision.node,
                "workload": "",
                "failed": list(decision.workloads),
            }


def _where(pods: tuple[PodPlacement, ...]) -> dict[str, Any]:
    nodes = list(dict.fromkeys(pod.node for pod in pods))
    milli = sum(len(pod.devices) * pod.gpu_milli for pod in pods)
    return {"pods": len(pods), "gpu_milli": milli, "nodes": compress(nodes)}


def _counts(counts: tuple[int, ...]) -> dict[str, Any]:
    return {"counts": list(counts)} if counts else {}


def text_of(record: dict[str, Any], now_s: float) -> str:
    """A record in words, without the name of its workload."""
    match record["decision"]:
        case "place":
            more = [f"{gpus(record['borrowed_milli'])} of it borrowed"] if record["borrowed_milli"] else []
            more += ["runs past others that have a reserved start"] if record["backfilled"] else []
            more += [f"{plural(record['pods'], 'pod')} for a start"] if record.get("counts") else []
            return ", ".join([f"starts on {_stands(record)}", *more])
        case "wait":
            return f"waits: {record['text']}"
        case "evict":
            return f"stopped{_for(record)}; {gpu_hours(record['lost_gpu_s'])} of its work are lost"
        case "reserve":
            sure = "" if record["sure"] else ", by predictions"
            where = f" on {record['nodes']}" if record["nodes"] else ""
            return f"will start in {span(record['start_s'] - now_s)}{where}{sure}"
        case "migrate":
            return f"moves to {_stands(record)}{_for(record)}; that costs {gpu_hours(record['cost_gpu_s'])}"
        case "resize":
            cost = f"; that costs {gpu_hours(record['cost_gpu_s'])}" if record["cost_gpu_s"] else ""
            return f"goes on with {plural(record['pods'], 'pod')} on {_stands(record)}{_for(record)}{cost}"
        case _:
            return f"nothing more starts on {record['nodes']}: {plural(len(record['failed']), 'workload')} failed there"


def _stands(record: dict[str, Any]) -> str:
    return f"{record['nodes']} ({gpus(record['gpu_milli'])})" if record["gpu_milli"] else record["nodes"]


def _for(record: dict[str, Any]) -> str:
    why = _WHY.get(record["why"], record["why"])
    whom = f" for {record['for']}" if record["for"] else ""
    return f"{whom} ({why})" if why else whom


def counted(waits: Iterable[tuple[str, Reason]]) -> Iterator[dict[str, Any]]:
    """Those who wait, counted by reason, the earliest tier first: records like those of single ones."""
    by_reason: dict[Reason, list[str]] = {}
    for name, reason in waits:
        by_reason.setdefault(reason, []).append(name)
    for reason in sorted(by_reason, key=lambda each: (each.tier, each.bit)):
        names = by_reason[reason]
        yield {
            "decision": "wait", "workload": names[0] if len(names) == 1 else "", "workloads": len(names),
            "examples": names[:3], "reason": reason.name, "text": reason.text, "tier": reason.tier.name,
        }  # fmt: skip
