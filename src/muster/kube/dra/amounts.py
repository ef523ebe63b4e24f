"""How much a share of a device takes, and what is taken already. Quantities are whole numbers of billionths."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from muster.kube.dra.objects import NANO, Capacity, DraDevice, KubeDraClaim, RequestPolicy, Result, nanos
from muster.kube.dra.pools import DeviceKey
from muster.kube.objects import Quantity

_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class Allocated:
    """What claims hold: devices that are one claim's alone, and shares of others.

    Attributes:
        alone: devices that nobody else may have, each with how many claims have it (more than one is a fault).
        shares: how many shares of a device there are.
        consumed: what shares take of a device's capacities.
    """

    def __init__(self, claims: Iterable[KubeDraClaim] = ()) -> None:
        self._seen: dict[str, tuple[KubeDraClaim, list[Result]]] = {}
        self.alone: dict[DeviceKey, int] = {}
        self.shares: dict[DeviceKey, int] = {}
        self.consumed: dict[DeviceKey, dict[str, int]] = {}
        for claim in claims:
            self.add(claim)

    def add(self, claim: KubeDraClaim) -> None:
        """Count what a claim was given. Access for administrators takes nothing."""
        self._count(_results(claim), 1)

    def follow(self, claims: Mapping[str, KubeDraClaim]) -> None:
        """Count these claims and no others; those that are the same objects as the last time are not looked into."""
        for name, claim in claims.items():
            known = self._seen.get(name)
            if known is None or known[0] is not claim:
                self._count(known[1] if known else (), -1)
                self._seen[name] = claim, _results(claim)
                self._count(self._seen[name][1], 1)
        if len(self._seen) > len(claims):
            for name in [name for name in self._seen if name not in claims]:
                self._count(self._seen.pop(name)[1], -1)

    def _count(self, results: Iterable[Result], sign: int) -> None:
        for result in results:
            counts = self.alone if result.share_id is None else self.shares
            counts[result.key] = counts.get(result.key, 0) + sign
            if not counts[result.key]:
                del counts[result.key]
            if result.share_id is None:
                continue
            taken = self.consumed.setdefault(result.key, {})
            for name, amount in (result.consumed_capacity or {}).items():
                taken[name] = taken.get(name, 0) + sign * nanos(amount)
            if result.key not in self.shares:
                del self.consumed[result.key]

    def holds(self, key: DeviceKey) -> bool:
        """Whether anything of a device is given out: its counters are then taken, once."""
        return key in self.alone or key in self.shares


def _results(claim: KubeDraClaim) -> list[Result]:
    allocation = claim.status.allocation
    return [one for one in allocation.devices.results if not one.admin_access] if allocation else []


def share_of(device: DraDevice, requests: Mapping[str, Quantity]) -> dict[str, Quantity] | None:
    """What a request takes of each capacity of a device, before one looks at what is left; None: it cannot have that.

    Unasked it takes the policy's default, without a policy all there is. What it asks for is rounded up to the next
    amount that the policy allows.
    """
    capacities = device.capacity or {}
    if not set(requests) <= set(capacities):
        return None
    found = {name: _taken(capacity, requests.get(name)) for name, capacity in capacities.items()}
    if any(
        nanos(amount) < 0 or not _allowed(nanos(amount), capacities[name].request_policy)
        or nanos(amount) > nanos(capacities[name].value)
        for name, amount in found.items()
    ):  # fmt: skip
        return None
    return found


def _taken(capacity: Capacity, asked: Quantity | None) -> Quantity:
    policy = capacity.request_policy
    if asked is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return asked
    valid = policy.valid_range
    if valid is not None and valid.min is not None:
        least, step = nanos(valid.min), nanos(valid.step) if valid.step is not None else 0
        if nanos(asked) < least:
            return valid.min
        if not step:
            return asked
        assert valid.step is not None
        return quantity_text(least - (least - nanos(asked)) // step * step, like=valid.step)
    return next((one for one in policy.valid_values or () if nanos(one) >= nanos(asked)), asked)


def _allowed(amount: int, policy: RequestPolicy | None) -> bool:
    if policy is None or (policy.default is not None and amount == nanos(policy.default)):
        return True
    if (valid := policy.valid_range) is not None:
        step = nanos(valid.step) if valid.step is not None else 0
        least = nanos(valid.min) if valid.min is not None else 0
        return (valid.max is None or amount <= nanos(valid.max)) and not (step and (amount - least) % step)
    return not policy.valid_values or any(amount == nanos(one) for one in policy.valid_values)


@lru_cache(maxsize=4096)
def quantity_text(amount: int, like: Quantity) -> str:
    """An amount in billionths as Kubernetes writes it, with binary suffixes where ``like`` has one."""
    if amount % NANO:
        return f"{amount // 10**6}m" if amount % 10**6 == 0 else f"{amount}n"
    whole, suffix = amount // NANO, ""
    if str(like).endswith("i"):
        for name in _BINARY:
            if not whole or whole % 1024:
                break
            whole, suffix = whole // 1024, name
    return f"{whole}{suffix}"
