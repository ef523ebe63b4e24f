"""Which command would separate best what is left: the one whose output is expected to lower the doubt most.

Doubt is the entropy of the shares, in bits. A command shows the signals of its kind that nobody looked at; each outcome
has its probability under the present shares. Signals of one command are taken one after the other, the most telling
first, as independent given the cause; the gain is per effort.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product

from msgspec import Struct
from msgspec.structs import replace

from muster.doctor.judge import Decided, posterior
from muster.doctor.rules import Command, Rules, Signal

MOST_SIGNALS = 5
LEAST_GAIN = 0.02
"""Bits below which no command is worth to be told."""


class Advice(Struct, frozen=True):
    """A command, the bits of doubt that it is expected to take away, and what it would tell apart."""

    command: Command
    bits: float
    between: tuple[str, ...]


def next_commands(rules: Rules, decided: Mapping[str, Decided], most: int = 3) -> list[Advice]:
    """The best commands, the best first; empty where none would tell more."""
    shares, rest = posterior(rules, decided)
    before = _entropy([*shares, rest])
    by_kind: dict[str, list[Signal]] = {}
    for each in decided.values():
        if each.seen is None and not each.signal.note:
            for kind in each.signal.kinds:
                by_kind.setdefault(kind, []).append(each.signal)
    found: list[Advice] = []
    for kind, signals in by_kind.items():
        command = rules.commands[kind]
        telling = sorted(signals, key=lambda one: -_spread(one, rules, shares))[:MOST_SIGNALS]
        gain = before - _expected(rules, decided, telling)
        if gain > LEAST_GAIN:
            between = [rules.causes[at].id for at in _parted(telling, rules, shares)]
            found.append(Advice(command, gain, tuple(between)))
    found.sort(key=lambda each: (-each.bits / each.command.effort, each.command.kind))
    return found[:most]


def _expected(rules: Rules, decided: Mapping[str, Decided], signals: list[Signal]) -> float:
    """The doubt that is expected to be left after a command that shows these signals."""
    shares, _ = posterior(rules, decided)
    left = 0.0
    for outcome in product((True, False), repeat=len(signals)):
        chance = 0.0
        for share, cause in zip(shares, rules.causes, strict=True):
            p = share
            for signal, seen in zip(signals, outcome, strict=True):
                q = cause.shows_it(signal)
                p *= q if seen else 1 - q
            chance += p
        if chance < 1e-6:
            continue
        then = dict(decided)
        for signal, seen in zip(signals, outcome, strict=True):
            then[signal.id] = replace(decided[signal.id], seen=seen)
        after, rest = posterior(rules, then)
        left += chance * _entropy([*after, rest])
    return left


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
