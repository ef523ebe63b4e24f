"""What `muster fit` says, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from muster.answers.fit import Answer, Delayed, Displaced, FitView
from muster.answers.sentences import tag
from muster.answers.times import EPOCH_S, moment, span
from muster.answers.words import gpus, listed, plural, pods_of

if TYPE_CHECKING:
    from muster.answers.fixes import Fix

MOST_DOMAINS = 6
MOST_NODES_TEXT = 400


def sentence(view: FitView, each: Answer, *, verdict: bool) -> str:
    """Whether the gang starts now, with its numbers."""
    workload = each.workload
    where = f" in queue {workload.queue}" if workload.queue else ""
    what = f"{workload.name}, {pods_of(workload.pod_sets)},"
    if each.place is None:
        return f"{'No: ' if verdict else ''}{what} would not start now{where}."
    pods = "" if each.pods == workload.pods else f" with {each.pods:,} of its {workload.pods:,} pods"
    flavor = f" on {each.place.flavor}" if each.place.flavor else ""
    more: list[str] = []
    if each.place.borrowed_milli:
        more.append(f"{gpus(each.place.borrowed_milli)} of it borrowed")
    if each.place.backfilled:
        more.append("past gangs that wait, delaying no reserved start")
    tail = f" ({'; '.join(more)})" if more else ""
    return f"{'Yes: ' if verdict else ''}{what} would start now{pods}{where}{flavor}{tail}."


def where(each: Answer) -> Iterator[tuple[str, str]]:
    """Nodes, domains and what they cost a step."""
    if each.place is None:
        return
    nodes = each.nodes if len(each.nodes) <= MOST_NODES_TEXT else f"{each.nodes[:MOST_NODES_TEXT]} ..."
    yield "nodes", nodes
    told: list[str] = []
    for domains in each.domains:
        names = [name for name, _ in domains.pods]
        if domains.level == "host":
            told.append(plural(len(names), "node"))
        else:
            shown = [f"{name} ({count:,})" if len(names) > 1 else name for name, count in domains.pods]
            told.append(f"{plural(len(names), domains.level)}: {listed(shown, MOST_DOMAINS)}")
    yield "domains", "; ".join(told)
    if each.slowdown is not None:
        best = each.slowdown < 1.0005
        yield "slow-down", f"{each.slowdown:.3f}: a step takes {'as' if best else 'so many times as'} long as at best"


def starts(view: FitView, each: Answer) -> Iterator[str]:
    """Why not now, and when."""
    for number, blocker in enumerate(each.blockers):
        yield f"  {'Also: ' if number else ''}{blocker.text}  [{tag(blocker.reason)}]"
    when = each.forecast
    if when is None:
        return
    if when.method == "never" or math.isinf(when.expected_s):
        if when.method == "never":
            yield "  It would never start as things are."
        else:
            yield "  When it would start cannot be told: too much is ahead, or nothing is known of when it ends."
        return
    text = f"  It would start {_at(view, when.expected_s)}"
    if when.high_s > when.low_s:
        text += f" ({when.confidence * 100:.0f} %: {_between(view, when.low_s, when.high_s)})"
    ends = [end.job for end in when.waits_for]
    if ends:
        text += f", when {listed(ends)} {'ends' if len(ends) == 1 else 'end'}"
    if when.ahead_count:
        text += f"; {plural(when.ahead_count, 'gang')} {'is' if when.ahead_count == 1 else 'are'} ahead of it"
    yield f"{text}."


def _at(view: FitView, time_s: float) -> str:
    """``about Tue 14:20, in 3 h``; of a simulated cluster, whose clock nobody looks at, only the second."""
    left = f"in {span(time_s - view.now_s)}"
    return left if view.now_s < EPOCH_S else f"about {moment(view, time_s)}, {left}"


def _between(view: FitView, low_s: float, high_s: float) -> str:
    if view.now_s < EPOCH_S:
        return f"in {span(low_s - view.now_s)} to {span(high_s - view.now_s)}"
    return f"{moment(view, low_s)} to {moment(view, high_s)}"


def displacement(view: FitView, each: Displaced) -> list[str]:
    """A row: who, how, at what cost."""
    how = {"stopped": "is stopped", "moved": "is moved", "resized": "gets fewer pods"}[each.how]
    why = f" ({each.why})" if each.why else ""
    return [f"{each.job}, {gpus(each.gpu_milli)}", f"{how}{why}", f"{each.lost_gpu_s / 3600:,.2f} GPU-hours"]


def delay(view: FitView, each: Delayed) -> list[str]:
    """A row: who starts later, and by how much."""
    was = "now" if each.was_s <= view.now_s else _at(view, each.was_s).removeprefix("about ")
    if math.isinf(each.starts_s):
        return [each.job, f"would start {was}, and waits", "not known"]
    return [each.job, f"starts {_at(view, each.starts_s)} and not {was}", f"{span(each.starts_s - each.was_s)} later"]


def change(fix: Fix) -> list[str]:
    """A row: what to change, what that costs others, when it then starts."""
    title = fix.title if fix.slowdown is None else f"{fix.title} (its step x {fix.slowdown:.2f})"
    parts = [f"{fix.cost_gpu_s / 3600:,.1f} GPU-hours lost"] if fix.cost_gpu_s else []
    parts += [f"{fix.delayed_gpu_s / 3600:,.1f} GPU-hours later"] if fix.delayed_gpu_s else []
    return [title, ", ".join(parts) or "nothing", "now" if fix.starts_in_s <= 0 else span(fix.starts_in_s)]
