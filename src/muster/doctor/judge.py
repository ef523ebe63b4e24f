"""How causes are weighed: by Bayes' rule over what was seen, with what nobody looked at left out.

For a cause c with weight w and signals s that are decided (seen or looked for in vain):

    P(c) ~ w  prod over seen s of p(s | c)  prod over s not seen of (1 - r p(s | c))

p is how often c shows s (`muster.doctor.rules`); r below 1 says that a log may be cut: what is not in it may still have
happened. ``unknown``, a cause that nobody thought of, shows any sign of a fault now and then: with it, the best of bad
explanations is not taken for the truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.doctor.evidence import Evidence, Quote, Sighting
from muster.doctor.expressions import facts_in, holds
from muster.doctor.rules import Cause, Rules, Signal

TRUST_ABSENCE_LINE, TRUST_ABSENCE_FACT = 0.5, 1.0
"""How far the absence of a line, and of a condition that was decided, is believed."""

UNKNOWN_WEIGHT, UNKNOWN_SHOWS, UNKNOWN_PROOF, UNKNOWN_HEALTHY = 0.5, 0.12, 0.03, 0.8
CERTAIN, LIKELY_FROM = 0.9, 0.45
"""Shares of the posterior from which a cause is called certain (with proof) and likely."""


class Decided(Struct, frozen=True):
    """What is known of a signal: seen, looked for and not seen, or None: nobody looked."""

    signal: Signal
    seen: bool | None


class Ranked(Struct, frozen=True):
    """A cause with its share of the belief; ``supports`` and ``contradicts`` are signals seen.

    ``besides``: a second fault, which explains what the first cause does not; its share is of what is left.
    """

    cause: Cause
    share: float
    called: str
    supports: tuple[Signal, ...]
    contradicts: tuple[Signal, ...]
    besides: bool = False


def decide(rules: Rules, evidence: Evidence) -> dict[str, Decided]:
    """Each signal as the evidence decides it."""
    facts = dict(evidence.values())
    kinds = evidence.kinds
    found: dict[str, Decided] = {}
    for signal in rules.signals.values():  # lines first: conditions may ask whether they were seen
        if not signal.when:
            seen = True if signal.id in evidence.lines else False if kinds.intersection(signal.kinds) else None
            found[signal.id] = Decided(signal, seen)
            if seen is not None:
                facts[f"seen:{signal.id}"] = seen
    for signal in rules.signals.values():
        if signal.when:  # what a piece does not say is only known where there is such a piece
            seen = holds(signal.when, facts) if kinds.intersection(signal.kinds) else None
            found[signal.id] = Decided(signal, seen)
    return found


def posterior(rules: Rules, decided: Mapping[str, Decided]) -> tuple[list[float], float]:
    """The share of each cause, in the rules' order, and of the unknown one; they sum to 1."""
    logs = [math.log(cause.weight) + sum(_log(cause, each) for each in decided.values()) for cause in rules.causes]
    logs.append(math.log(UNKNOWN_WEIGHT) + sum(_unknown_log(each) for each in decided.values()))
    top = max(logs)
    parts = [math.exp(each - top) for each in logs]
    total = sum(parts)
    return [part / total for part in parts[:-1]], parts[-1] / total


def rank(rules: Rules, decided: Mapping[str, Decided]) -> list[Ranked]:
    """The causes that are left, the most likely first; empty where no sign of a fault was seen."""
    if not any(each.seen and is_fault(each.signal) for each in decided.values()):
        return []
    shares, _ = posterior(rules, decided)
    order = sorted(range(len(shares)), key=lambda at: (-shares[at], rules.causes[at].id))
    return [_ranked(rules.causes[at], shares[at], decided) for at in order if shares[at] > 0.01]


def explain(rules: Rules, decided: Mapping[str, Decided]) -> list[Ranked]:
    """The causes that are left, as `rank` has them; after the first one a second fault, where one is proved.

    Shares take one cause to be behind all. Where a proof of another cause is seen that the first does not show, the
    signals that the first one shows are laid aside and the rest is judged anew.
    """
    ranked = rank(rules, decided)
    if not ranked:
        return ranked
    first = ranked[0]
    left = [each.signal for each in decided.values() if each.seen and each.signal.id not in first.cause.shows]
    if not _proved(first.cause, decided) or not any(signal.proof and is_fault(signal) for signal in left):
        return ranked
    second = _without(rules, decided, first.cause)
    if second is None or second.called != "certain" or second.cause.id == first.cause.id:
        return ranked
    again = _without(rules, decided, second.cause)
    if again is not None and again.cause.id == first.cause.id:
        first = again
    rest = [each for each in ranked[1:] if each.cause.id != second.cause.id]
    return [first, replace(second, besides=True), *rest]


def _without(rules: Rules, decided: Mapping[str, Decided], cause: Cause) -> Ranked | None:
    """The first cause where what another one shows is laid aside."""
    laid = {name: Decided(each.signal, None) if name in cause.shows else each for name, each in decided.items()}
    return next(iter(rank(rules, laid)), None)


def _proved(cause: Cause, decided: Mapping[str, Decided]) -> bool:
    return any(decided[name].seen for name in cause.proof)


def _ranked(cause: Cause, share: float, decided: Mapping[str, Decided]) -> Ranked:
    supports = [
        decided[name].signal for name, word in cause.shows.items() if decided[name].seen and word not in _UNLIKE
    ]
    against = [decided[name].signal for name, word in cause.shows.items() if decided[name].seen and word in _UNLIKE]
    proved = _proved(cause, decided)
    called = "possible"
    if share >= CERTAIN and proved and not against:
        called = "certain"
    elif share >= LIKELY_FROM and supports:
        called = "likely"
    return Ranked(cause, share, called, tuple(supports), tuple(against))


_UNLIKE = ("rarely", "never")


def _log(cause: Cause, each: Decided) -> float:
    if each.seen is None or each.signal.note:
        return 0.0
    p = cause.shows_it(each.signal)
    return math.log(p) if each.seen else math.log(1 - trust(each.signal) * p)


def _unknown_log(each: Decided) -> float:
    if each.seen is None or each.signal.note:
        return 0.0
    p = unknown_shows(each.signal)
    return math.log(p) if each.seen else math.log(1 - trust(each.signal) * p)


def is_fault(signal: Signal) -> bool:
    """Whether a signal by itself says that something is wrong."""
    return signal.fault and not signal.note and not signal.hint


def unknown_shows(signal: Signal) -> float:
    """How often the cause that nobody thought of shows a signal."""
    if not signal.fault:
        return UNKNOWN_HEALTHY
    return UNKNOWN_PROOF if signal.proof else UNKNOWN_SHOWS


def trust(signal: Signal) -> float:
    """How far the absence of a signal is believed."""
    return TRUST_ABSENCE_LINE if signal.line else TRUST_ABSENCE_FACT


def quotes_of(signal: Signal, evidence: Evidence) -> Sighting:
    """Where a signal is seen: the lines, or the facts that its condition reads."""
    if signal.line:
        return evidence.lines.get(signal.id, Sighting())
    found = Sighting()
    for key in facts_in(signal.when):
        for fact in evidence.facts.get(key, [])[-1:]:
            found.add(fact.quote)
        for quote in evidence.lines.get(key, Sighting()).quotes[:1]:
            found.add(quote)
    if not found.quotes:  # it is what the output does not say
        for piece in evidence.pieces:
            if piece.kind in signal.kinds:
                found.add(Quote(piece.file, piece.line, f"not in this output ({piece.kind})"))
                break
    return found


def seen_of(decided: Mapping[str, Decided], names: Sequence[str]) -> list[Signal]:
    """Those of some signals that are seen."""
    return [decided[name].signal for name in names if decided[name].seen]
