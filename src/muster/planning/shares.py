"""Fair share by hand: Slurm's classic formula and Fair Tree, with usage that decays.

    decayed usage    U e^(-ln 2 t / T)                   T the half-life, t since it was used
    shares           S = own shares / shares of all siblings, times the parent's S
    classic          UE = U + (UE(parent) - U) x own shares / siblings' shares;  first level: UE = U
                     F = 2^(-UE / S)
    Fair Tree        LF = (own shares / siblings') / (own usage / siblings'), compared among siblings only; a walk from
                     the root, the largest LF first, ranks the users: factor = rank / users

Usage counts as a part of all usage. Source: Slurm, classic fair share and Fair Tree algorithm documentation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from msgspec import Struct

from muster.errors import InputError


class Entity(Struct, frozen=True):
    """An account or a user: its parent (empty: the root), its shares, and what it has used itself."""

    name: str
    parent: str = ""
    shares: float = 1.0
    usage: float = 0.0


class Share(Struct, frozen=True):
    """What comes out for an entity: parts of 1. ``factor`` is Fair Tree's, 0 for accounts."""

    entity: Entity
    norm_shares: float
    usage: float
    effective: float
    classic: float
    level: float
    factor: float

    @property
    def leaf(self) -> bool:
        """Whether it is a user."""
        return self.factor > 0


def decayed(usage: float, age_s: float, half_life_s: float) -> float:
    """Usage after a time without more; a half-life of 0 keeps it all."""
    return usage * 2 ** (-age_s / half_life_s) if half_life_s > 0 else usage


def shares_of(entities: Sequence[Entity], dampening: float = 1.0) -> list[Share]:
    """The fair share of each entity, in the order of a walk from the root.

    Args:
        entities: any order; usage of accounts is theirs and what is below them.
        dampening: Slurm's FairShareDampeningFactor.

    Raises:
        InputError: a parent is not there, names repeat, or there is a cycle.
    """
    by_name, children = _tree(entities)
    total = sum(each.usage for each in entities)
    used: dict[str, float] = {}

    def use(name: str) -> float:
        used[name] = (by_name[name].usage if name else 0.0) + sum(use(each.name) for each in children.get(name, ()))
        return used[name]

    use("")
    norm: dict[str, float] = {"": 1.0}
    effective: dict[str, float] = {}
    found: list[Share] = []
    places = _places(children, used)
    factors = {name: 1 - place / len(places) for name, place in places.items()}

    def walk(parent: str) -> None:
        siblings = children.get(parent, [])
        shares = sum(each.shares for each in siblings)
        below = sum(used[each.name] for each in siblings)
        for each in siblings:
            part = each.shares / shares if shares else 0.0
            usage = used[each.name] / total if total else 0.0
            norm[each.name] = norm[parent] * part
            up = usage if not parent else effective[parent]
            effective[each.name] = usage + (up - usage) * part if parent else usage
            classic = _classic(effective[each.name], norm[each.name], dampening)
            level = _level(part, used[each.name] / below if below else 0.0)
            factor = factors.get(each.name, 0.0)
            found.append(Share(each, norm[each.name], usage, effective[each.name], classic, level, factor))
            walk(each.name)

    walk("")
    return found


def _tree(entities: Sequence[Entity]) -> tuple[dict[str, Entity], dict[str, list[Entity]]]:
    by_name = {each.name: each for each in entities}
    if len(by_name) != len(entities):
        twice = next(each.name for each in entities if sum(one.name == each.name for one in entities) > 1)
        raise InputError(f"{twice!r} is there twice", field="--queue", hint="each name once")
    children: dict[str, list[Entity]] = {}
    for each in entities:
        if each.parent and each.parent not in by_name:
            raise InputError(f"{each.parent!r}, the parent of {each.name!r}, is not there", field="--queue")
        children.setdefault(each.parent, []).append(each)
        seen, at = {each.name}, each.parent
        while at:
            if at in seen:
                raise InputError(f"{each.name!r} is above itself", field="--queue", hint="parents must end at the root")
            seen.add(at)
            at = by_name[at].parent
    return by_name, children


def _classic(effective: float, shares: float, dampening: float) -> float:
    if shares <= 0:
        return 0.0
    return 2 ** (-effective / shares / dampening)


def _level(shares: float, usage: float) -> float:
    return math.inf if not usage else shares / usage


def _places(children: Mapping[str, list[Entity]], used: Mapping[str, float]) -> dict[str, int]:
    """How many users are ahead of each by Fair Tree, with its ties, as in a race.

    Sibling users of the same level share have one place; a user with that of a sibling account has the place of the
    account's first user; sibling accounts with the same are one, and their children are sorted together. Entities
    without shares come last: they are entitled to nothing.
    """
    level: dict[str, float] = {}
    for siblings in children.values():
        shares = sum(each.shares for each in siblings)
        below = sum(used[each.name] for each in siblings)
        for each in siblings:
            part = each.shares / shares if shares else 0.0
            usage = used[each.name] / below if below else 0.0
            level[each.name] = round(_level(part, usage), 12) if part else -1.0

    def groups(siblings: Iterable[Entity]) -> list[tuple[list[Entity], bool]]:
        """What is visited in turn, and whether it ties with the one before: a user, or all tied accounts as one."""
        wanted = sorted(siblings, key=lambda one: (-level[one.name], one.name in children, one.name))
        found: list[tuple[list[Entity], bool]] = []
        for _, tied in groupby(wanted, key=lambda one: level[one.name]):
            some = list(tied)
            parts = [[one] for one in some if one.name not in children]
            accounts = [one for one in some if one.name in children]
            parts += [accounts] if accounts else []
            found += [(part, number > 0) for number, part in enumerate(parts)]
        return found

    places: dict[str, int] = {}
    place = 0
    pending = [*reversed(groups(children.get("", [])))]
    while pending:
        group, tied = pending.pop()
        if group[0].name not in children:
            place = place if tied else len(places)
            places[group[0].name] = place
            continue
        below = groups(each for account in group for each in children[account.name])
        if below:  # the first of them inherits the tie of the account itself
            below[0] = (below[0][0], tied)
        pending.extend(reversed(below))
    return places
