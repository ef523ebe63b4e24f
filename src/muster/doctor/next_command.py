"""Which command would separate best what is left: the one whose output is expected to lower the doubt most.

Doubt is the entropy of the shares, in bits. A command shows the signals of its kind that nobody looked at; each outcome
has its probability under the present shares. Signals of one command are taken one after the other, the most telling
first, as independent given the cause; the gain is per effort.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import product

from msgspec import Struct

from muster.doctor.expressions import signals_in
from muster.doctor.judge import Decided, posterior, trust, unknown_shows
from muster.doctor.rules import Command, Rules, Signal

_ANY: AbstractSet[str] = frozenset()
MOST_SIGNALS = 5
LEAST_GAIN = 0.02
"""Bits below which no command is worth to be told."""


class Advice(Struct, frozen=True):
    """A command, the bits of doubt that it is expected to take away, and what it would tell apart."""

    command: Command
    bits: float
    between: tuple[str, ...]


def next_commands(
    rules: Rules, decided: Mapping[str, Decided], most: int = 3, kinds: AbstractSet[str] = _ANY
) -> list[Advice]:
    """The best commands, the best first; empty where none would tell more.

    ``kinds`` are those of the evidence: who shows output of Kubernetes only is not sent to Slurm, and the reverse.
    """
    shares, rest = posterior(rules, decided)
    before = _entropy([*shares, rest])
    proving = _proving(rules, decided, shares)
    found: list[tuple[Advice, frozenset[str]]] = []
    for kind, signals in _open(rules, decided, kinds).items():
        telling = sorted(signals, key=lambda one: -_spread(one, rules, shares))[:MOST_SIGNALS]
        gain = before - _expected(rules, shares, rest, telling) + proving.get(kind, 0.0)
        if gain > LEAST_GAIN:
            between = [rules.causes[at].id for at in _parted(telling, rules, shares)]
            asked = frozenset(one.id for one in telling[:2])
            found.append((Advice(rules.commands[kind], gain, tuple(between)), asked))
    found.sort(key=lambda each: (-each[0].bits / each[0].command.effort, each[0].command.kind))
    chosen: list[Advice] = []
    known: set[str] = set()
    for advice, asked in found:  # a command that shows the same as a better one is no second advice
        if not asked <= known:
            chosen.append(advice)
            known |= asked
    return chosen[:most]


def _open(rules: Rules, decided: Mapping[str, Decided], kinds: AbstractSet[str]) -> dict[str, list[Signal]]:
    """Signals that nobody looked at, by the kind of output that shows them."""
    worlds = {rules.commands[kind].world for kind in kinds if kind in rules.commands} - {""}
    found: dict[str, list[Signal]] = {}
    for each in decided.values():
        if each.seen is None and not each.signal.note:
            for kind in each.signal.kinds:
                world = rules.commands[kind].world
                if not world or not worlds or world in worlds:
                    found.setdefault(kind, []).append(each.signal)
    return found


PROOF_WORTH = 0.5
"""Bits that it is worth to see the proof of a cause that is believed wholly."""


def _proving(rules: Rules, decided: Mapping[str, Decided], shares: list[float]) -> dict[str, float]:
    """What kinds of output are worth because they show the proof that the first cause still lacks."""
    at = max(range(len(shares)), key=lambda index: shares[index])
    cause = rules.causes[at]
    found: dict[str, float] = {}
    if any(decided[name].seen for name in cause.proof):
        return found
    for name in cause.proof:
        asked = [part for part in signals_in(decided[name].signal.when) if decided[part].seen is None]
        for part in asked or [name]:
            if decided[part].seen is None:
                for kind in decided[part].signal.kinds:
                    found[kind] = PROOF_WORTH * shares[at]
    return found


def _expected(rules: Rules, shares: list[float], rest: float, signals: list[Signal]) -> float:
    """The doubt that is expected to be left after a command that shows these signals.

    Ideally the posterior of each outcome; it is the present shares times what each cause says of the outcome, and
    causes of next to no share are left out: they carry no doubt.
    """
    left = 0.0
    causes = [(share, cause) for share, cause in zip(shares, rules.causes, strict=True) if share > _NO_SHARE]
    odds = [[cause.shows_it(signal) for signal in signals] for _, cause in causes]
    trusts = [trust(signal) for signal in signals]
    others = [unknown_shows(signal) for signal in signals]
    for outcome in product((True, False), repeat=len(signals)):
        chance, parts = 0.0, [rest * _of_outcome(others, trusts, outcome)]
        for (share, _), shown in zip(causes, odds, strict=True):
            chance += share * _of_outcome(shown, _FULL, outcome)
            parts.append(share * _of_outcome(shown, trusts, outcome))
        total = sum(parts)
        if chance > 1e-6 and total > 0:
            left += chance * _entropy([part / total for part in parts])
    return left


_NO_SHARE = 1e-4
_FULL = (1.0,) * MOST_SIGNALS


def _of_outcome(odds: Sequence[float], trusts: Sequence[float], outcome: Sequence[bool]) -> float:
    """How likely an outcome of several signals is, where absence is believed to a degree."""
    p = 1.0
    for odd, believed, seen in zip(odds, trusts, outcome, strict=False):
        p *= odd if seen else 1 - believed * odd
    return p


def _entropy(shares: list[float]) -> float:
    return -sum(share * math.log2(share) for share in shares if share > 0)


def _spread(signal: Signal, rules: Rules, shares: list[float]) -> float:
    """How differently the causes that are left show a signal: the variance of it under the shares."""
    mean = sum(share * cause.shows_it(signal) for share, cause in zip(shares, rules.causes, strict=True))
    return sum(share * (cause.shows_it(signal) - mean) ** 2 for share, cause in zip(shares, rules.causes, strict=True))


def _parted(signals: list[Signal], rules: Rules, shares: list[float]) -> list[int]:
    """The causes that are left and that the most telling signal tells from the rest, and the best of the rest."""
    order = sorted((at for at in range(len(shares)) if shares[at] > 0.03), key=lambda at: -shares[at])
    shows = [at for at in order if any(rules.causes[at].shows_it(signal) >= 0.5 for signal in signals[:1])]
    rest = [at for at in order if at not in shows]
    return [*shows[:2], *rest[:1]] if shows else order[:2]
