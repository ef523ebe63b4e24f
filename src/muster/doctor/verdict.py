"""A verdict: what is broken, how sure that is, what speaks for and against it, what is healthy, what next."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct

from muster.catalog.xids import ACTIONS, find_xid
from muster.doctor.evidence import Evidence, Quote
from muster.doctor.judge import Ranked, decide, explain, is_fault, quotes_of, rank
from muster.doctor.next_command import Advice, next_commands
from muster.doctor.rules import Rules, Signal, load_rules

MOST_CAUSES = 4
XID_SIGNAL = "dmesg.xid"
_XID = re.compile(r"Xid \(PCI:[^)]*\): (\d+)|XidCriticalError: Xid=(\d+)")


class Shown(Struct, frozen=True):
    """A signal that was seen: what it says, and the lines that show it."""

    id: str
    says: str
    count: int
    quotes: tuple[Quote, ...]


class Finding(Struct, frozen=True):
    """A cause that is left.

    Attributes:
        id, cause, why, layer, fix, risk, source: as in the rules; names are filled in.
        called: ``certain``, ``likely`` or ``possible``.
        share: of the belief, 0 to 1.
        supports, contradicts: what was seen.
        besides: a second fault beside the first one.
    """

    id: str
    cause: str
    why: str
    layer: str
    called: str
    share: float
    supports: tuple[Shown, ...]
    contradicts: tuple[Shown, ...]
    fix: tuple[str, ...]
    risk: str
    source: str
    besides: bool = False


class Healthy(Struct, frozen=True):
    """A layer that is well, and what says so."""

    layer: str
    says: tuple[str, ...]


class Verdict(Struct, frozen=True):
    """The answer.

    Attributes:
        node: which one it is about; empty: the evidence names none.
        findings: causes that are left, the most likely first; empty: nothing is wrong in what was seen.
        unexplained: signs of a fault that no cause of the findings explains.
        healthy: layers where one need not look on.
        next: commands that separate best what is left.
        seen: kinds of output that were recognised.
        notes: what is worth to be told besides, such as files that could not be read.
    """

    node: str
    findings: tuple[Finding, ...]
    unexplained: tuple[Shown, ...]
    healthy: tuple[Healthy, ...]
    next: tuple[Advice, ...]
    seen: tuple[str, ...]
    notes: tuple[str, ...]


def judge(evidence: Evidence, node: str = "", rules: Rules | None = None) -> Verdict:
    """The verdict on one node; without a name on the only one, or the first that is not well."""
    rules = rules or load_rules()
    if not node:
        node = _worst(evidence, rules)
    about = evidence.of_node(node) if node else evidence
    decided = decide(rules, about)
    ranked = explain(rules, decided)[:MOST_CAUSES]
    findings = tuple(_finding(each, about, node) for each in ranked)
    explained = {shown.id for finding in findings for shown in finding.supports}
    rest = [
        each.signal for each in decided.values()
        if each.seen and is_fault(each.signal) and each.signal.id not in explained
    ]  # fmt: skip
    seen = [each.signal for each in decided.values() if each.seen]
    noted = [f"note: {signal.says}" for signal in seen if signal.note and signal.id != XID_SIGNAL]
    healthy = tuple(
        Healthy(layer.layer, tuple(decided[name].signal.says for name in layer.healthy if decided[name].seen))
        for layer in rules.layers
        if layer.healthy and any(decided[name].seen for name in layer.healthy)
        and not any(decided[name].seen is False for name in layer.healthy)
    )  # fmt: skip
    unsure = not findings or findings[0].called != "certain"
    advice = tuple(_named(each, node) for each in next_commands(rules, decided, kinds=about.kinds)) if unsure else ()
    notes = [*noted, *xid_notes(about), *(f"not read: {each}" for each in about.unread)]
    others = [each for each in evidence.nodes if each != node]
    if others and node:
        notes.append(f"the evidence is about {len(others) + 1} nodes; this is about {node} (--node NAME for another)")
    return Verdict(
        node, findings, tuple(_shown(rest, about)), healthy, advice, tuple(sorted(evidence.kinds)), tuple(notes)
    )  # fmt: skip


def xid_notes(evidence: Evidence) -> list[str]:
    """What the catalogue asks for each Xid that is quoted, and who does otherwise."""
    numbers: set[int] = set()
    for sighting in evidence.lines.values():
        for quote in sighting.quotes:
            numbers.update(int(one or other) for one, other in _XID.findall(quote.text))
    found: list[str] = []
    for number in sorted(numbers):
        if (xid := find_xid(number)) is not None:
            but = f"; {xid.disagrees}" if xid.disagrees else ""
            found.append(f"Xid {number}, {xid.meaning}: {ACTIONS[xid.action]}{but}")
    return found


def _worst(evidence: Evidence, rules: Rules) -> str:
    """The node with the surest finding, of several; the only one, of one."""
    nodes = evidence.nodes
    if len(nodes) < 2:
        return nodes[0] if nodes else ""
    best, chosen = 0.0, nodes[0]
    for node in nodes:
        ranked = rank(rules, decide(rules, evidence.of_node(node)))
        if ranked and ranked[0].share > best:
            best, chosen = ranked[0].share, node
    return chosen


def _finding(ranked: Ranked, evidence: Evidence, node: str) -> Finding:
    cause = ranked.cause
    return Finding(
        cause.id, cause.cause, cause.why, cause.layer, ranked.called, ranked.share,
        tuple(_shown(ranked.supports, evidence)), tuple(_shown(ranked.contradicts, evidence)),
        tuple(_with_names(step, node) for step in cause.fix), cause.risk, cause.source, ranked.besides,
    )  # fmt: skip


def _shown(signals: Iterable[Signal], evidence: Evidence) -> list[Shown]:
    found: list[Shown] = []
    for signal in signals:
        sighting = quotes_of(signal, evidence)
        found.append(Shown(signal.id, signal.says, sighting.count, tuple(sighting.quotes)))
    return found


def _with_names(text: str, node: str) -> str:
    return text.replace("NODE", node) if node else text


def _named(advice: Advice, node: str) -> Advice:
    from msgspec.structs import replace

    return replace(advice, command=replace(advice.command, run=_with_names(advice.command.run, node)))
