"""The search for devices on one node: exact, and the same devices each time.

Requests are served in the claims' order, each by its first alternative that leads to a solution; devices in their
order, so that each set of devices is tried once. A device is skipped where one like it was tried in vain in the same
place: it matches the same requests, has the same values of constrained attributes, and is taken as much.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from muster.kube.dra.amounts import Allocated
from muster.kube.dra.objects import MOST_RESULTS, Constraint, KubeDraClaim, nanos
from muster.kube.dra.pools import CounterKey, DeviceKey, Offered, Pool
from muster.kube.dra.requests import Alternative, Needed, Refusal
from muster.kube.objects import Quantity

MOST_STEPS = 200_000
"""Tries, after which a search is given up; a request for eight of eight devices takes nine."""


class Choice(Struct, eq=False):
    """A device that a request gets; ``share`` is what it takes of the capacities of a device that has several users."""

    claim: int
    alternative: Alternative
    device: Offered
    share: dict[str, Quantity] | None


class _Rule(Struct, eq=False):
    """A constraint of a claim, and the values of the devices that it covers so far."""

    claim: int
    of: Constraint
    values: list[tuple[str, object]]

    @property
    def attribute(self) -> str:
        return self.of.match_attribute or self.of.distinct_attribute or ""

    def covers(self, claim: int, name: str) -> bool:
        requests = self.of.requests
        return claim == self.claim and (not requests or name in requests or name.partition("/")[0] in requests)

    def value(self, device: Offered) -> tuple[str, object] | None:
        found = device.device.attribute(self.attribute, device.driver)
        return found.value if found else None

    def allows(self, device: Offered) -> bool:
        value = self.value(device)
        if value is None or (self.values and value[0] in ("ints", "bools", "strings", "versions")):
            return False
        if self.of.match_attribute:
            return not self.values or value == self.values[0]
        return value not in self.values


class Search:
    """One search; ``run`` raises `Refusal` where there is no solution."""

    def __init__(
        self, pools: Sequence[Pool], claims: Sequence[KubeDraClaim], needed: list[Needed], allocated: Allocated,
        hint: Collection[DeviceKey] = (),
    ) -> None:  # fmt: skip
        self._claims, self._needed, self._allocated = claims, needed, allocated
        self._hint = hint
        self._rules = [
            _Rule(number, one, [])
            for number, claim in enumerate(claims)
            for one in claim.spec.devices.constraints or ()
        ]
        if any(not rule.attribute for rule in self._rules):
            raise Refusal(f"claim {claims[0].metadata.name}: a constraint is of a kind that is not known")
        self._left = {(pool.driver, pool.name): _counters(pool, allocated) for pool in pools}
        self._ours: dict[DeviceKey, list[int]] = {}
        self._shares: dict[DeviceKey, int] = {}
        self._taken: dict[DeviceKey, dict[str, int]] = {}
        self._chosen: list[Choice] = []
        self._steps = 0
        self._kinds = self._look_alikes()
        if hint:
            for alternative in (one for each in needed for one in each.alternatives):
                _hinted_first(alternative, hint)

    def run(self) -> list[Choice]:
        """The devices for all requests, in their order."""
        if not self._request(0):
            raise Refusal("no choice of its devices satisfies all requests and constraints at once")
        return self._chosen

    # -- the search ----------------------------------------------------------------------------------------------------

    def _request(self, at: int) -> bool:
        if at == len(self._needed):
            return True
        needed = self._needed[at]
        return any(self._device(at, needed, one, 0, 0) for one in needed.alternatives)

    def _device(self, at: int, needed: Needed, alternative: Alternative, number: int, start: int) -> bool:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise Refusal(f"no solution among {MOST_STEPS:,} tries; its constraints leave too many choices")
        if number == alternative.count and number:
            return self._request(at + 1)
        have = sum(choice.claim == needed.claim for choice in self._chosen)
        if alternative.count - number > min(MOST_RESULTS - have, len(alternative.devices) - start):
            return False
        tried: set[object] = set()
        for position in range(start, len(alternative.devices)):
            device = alternative.devices[position]
            kind = self._state(device, needed.claim)
            if kind in tried:
                continue
            undo = self._take(needed.claim, alternative, position)
            if undo is not None:
                if self._device(at, needed, alternative, number + 1, position + 1):
                    return True
                undo()
            if alternative.all:
                return False
            tried.add(kind)
        return False

    def _take(self, claim: int, alternative: Alternative, position: int) -> Callable[[], None] | None:
        """Give a device to a request; how to take it back, or None where it cannot have it."""
        device, key = alternative.devices[position], alternative.devices[position].key
        share = alternative.shares[position] if device.shared else None
        if not self._open(claim, alternative, device) or not alternative.bears(device):
            return None
        if share is not None and not self._room(device, share):
            return None
        counted = bool(device.counters) and not (device.shared and (key in self._shares or self._allocated.holds(key)))
        left = self._left[device.driver, device.pool]
        if counted and not _enough(left, device):
            return None
        rules = [rule for rule in self._rules if rule.covers(claim, alternative.name)]
        if not all(rule.allows(device) for rule in rules):
            return None
        for rule in rules:
            value = rule.value(device)
            assert value is not None
            rule.values.append(value)
        _add(left, device.counters if counted else (), -1)
        self._hold(claim, device, share, 1)
        self._chosen.append(Choice(claim, alternative, device, share))

        def undo() -> None:
            self._chosen.pop()
            self._hold(claim, device, share, -1)
            _add(left, device.counters if counted else (), 1)
            for rule in rules:
                rule.values.pop()

        return undo

    def _open(self, claim: int, alternative: Alternative, device: Offered) -> bool:
        """Whether nobody has the device alone; an administrator's claim only may not have it twice."""
        ours = self._ours.get(device.key, ())
        if alternative.admin:
            return device.shared or claim not in ours
        return not ours and device.key not in self._allocated.alone

    def _room(self, device: Offered, share: dict[str, Quantity]) -> bool:
        before, ours = self._allocated.consumed.get(device.key, {}), self._taken.get(device.key, {})
        capacities = device.device.capacity or {}
        return all(
            before.get(name, 0) + ours.get(name, 0) + nanos(amount) <= nanos(capacities[name].value)
            for name, amount in share.items()
        )

    def _hold(self, claim: int, device: Offered, share: dict[str, Quantity] | None, sign: int) -> None:
        key = device.key
        if share is None:
            ours = self._ours.setdefault(key, [])
            ours.append(claim) if sign > 0 else ours.pop()
            return
        self._shares[key] = self._shares.get(key, 0) + sign
        if not self._shares[key]:
            del self._shares[key]
        taken = self._taken.setdefault(key, {})
        for name, amount in share.items():
            taken[name] = taken.get(name, 0) + sign * nanos(amount)

    # -- devices that are alike ---------------------------------------------------------------------------------------

    def _look_alikes(self) -> dict[DeviceKey, object]:
        """What tells two devices apart, for this search, before anything is taken."""
        matched: dict[DeviceKey, list[tuple[int, tuple[tuple[str, Quantity], ...]]]] = {}
        devices: dict[DeviceKey, Offered] = {}
        alternatives = [one for each in self._needed for one in each.alternatives]
        for number, alternative in enumerate(alternatives):
            for device, share in zip(alternative.devices, alternative.shares, strict=True):
                devices[device.key] = device
                matched.setdefault(device.key, []).append((number, tuple(sorted(share.items()))))
        return {
            key: key if device.counters or key in self._hint else (
                tuple(matched[key]), device.shared, device.taints, tuple(rule.value(device) for rule in self._rules),
                key in self._allocated.alone, self._allocated.shares.get(key, 0),
                tuple(sorted(self._allocated.consumed.get(key, {}).items())),
                tuple(sorted((name, str(one.value)) for name, one in (device.device.capacity or {}).items())),
            )
            for key, device in devices.items()
        }  # fmt: skip

    def _state(self, device: Offered, claim: int) -> object:
        taken = self._taken.get(device.key, {})
        ours = tuple(self._ours.get(device.key, ()))
        return self._kinds[device.key], claim, ours, self._shares.get(device.key, 0), tuple(sorted(taken.items()))


def _hinted_first(alternative: Alternative, hint: Collection[DeviceKey]) -> None:
    order = sorted(range(len(alternative.devices)), key=lambda at: alternative.devices[at].key not in hint)
    alternative.devices = [alternative.devices[at] for at in order]
    alternative.shares = [alternative.shares[at] for at in order]


def _counters(pool: Pool, allocated: Allocated) -> dict[CounterKey, int]:
    """What is left of a pool's counters; less than nothing where devices overlap that were given out."""
    left = dict(pool.totals)
    for device in (*pool.devices, *pool.elsewhere):
        if device.counters and allocated.holds(device.key):
            _add(left, device.counters, -1)
    return left


def _enough(left: dict[CounterKey, int], device: Offered) -> bool:
    """Whether a pool has the counters for one more device. A pool with any counter below zero has none for anybody."""
    return all(amount >= 0 for amount in left.values()) and all(left[key] >= amount for key, amount in device.counters)


def _add(left: dict[CounterKey, int], counters: Sequence[tuple[CounterKey, int]], sign: int) -> None:
    for key, amount in counters:
        left[key] = left.get(key, 0) + sign * amount
