"""What a node gives to claims: `allocate`, and whether it could: `refusal`. The same rules as kube-scheduler's.

The order in which devices are tried is ours, so it may find other devices than kube-scheduler; it finds some exactly
where kube-scheduler does, as long as all selectors can be evaluated.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from muster.kube.dra.amounts import Allocated
from muster.kube.dra.objects import (
    DraAllocation,
    KubeClass,
    KubeDraClaim,
    Result,
    Results,
)
from muster.kube.dra.pools import DeviceKey, Inventory, Offered, Place, selects
from muster.kube.dra.requests import Matcher, Needed, Refusal
from muster.kube.dra.search import Choice, Search
from muster.kube.objects import Expression, Term, Terms


class Devices:
    """All that decides which devices claims get; one is made for many questions.

    Attributes:
        notes: selectors that could not be evaluated, and why.
    """

    def __init__(self, inventory: Inventory, classes: Mapping[str, KubeClass], allocated: Allocated) -> None:
        self.inventory = inventory
        self.allocated = allocated
        self.matcher = Matcher(classes)

    @property
    def notes(self) -> Mapping[str, str]:
        """Selectors that could not be evaluated, by where they stand, and why."""
        return self.matcher.notes

    def allocate(
        self, place: Place, claims: Sequence[KubeDraClaim], *, hint: Collection[DeviceKey] = (), timestamp: str = ""
    ) -> list[DraAllocation]:
        """What to write into ``status.allocation`` of each claim so that a pod with all of them may run on a node.

        Claims that have theirs keep it. ``hint`` are the devices to take where that is possible.

        Raises:
            Refusal: the node cannot give them; what is short is said.
        """
        for claim in claims:
            has = claim.status.allocation
            if has is not None and has.node_selector is not None and not selects(has.node_selector, place):
                raise Refusal(f"claim {claim.metadata.name} has devices that {place.name} does not reach")
        waiting = [claim for claim in claims if claim.status.allocation is None]
        pools = self.inventory.at(place)
        needed = self.matcher.needed(pools, waiting)
        try:
            choices = Search(pools, waiting, needed, self.allocated, hint).run()
        except Refusal as error:
            raise Refusal(self._short(needed, waiting) or str(error)) from None
        results = iter(_written(waiting, choices, place, timestamp))
        return [claim.status.allocation or next(results) for claim in claims]

    def refusal(self, place: Place, claims: Sequence[KubeDraClaim]) -> str:
        """Why a node cannot give claims their devices; empty where it can."""
        try:
            self.allocate(place, claims)
        except Refusal as error:
            return str(error)
        return ""

    def _short(self, needed: Sequence[Needed], claims: Sequence[KubeDraClaim]) -> str:
        """The first request that the node could not serve even if it were alone."""
        for each in needed:
            texts: list[str] = []
            for one in each.alternatives:
                free = [device for device in one.devices if one.admin or device.key not in self.allocated.alone]
                good = [device for device in free if one.bears(device)]
                if len(good) >= one.count > 0:
                    break
                tainted = f", {len(free) - len(good)} of them tainted" if len(free) > len(good) else ""
                texts.append(f"{one.name} needs {one.count or 1}, {len(one.devices)} match, {len(free)} free{tainted}")
            else:
                return f"claim {claims[each.claim].metadata.name}: {'; '.join(texts)}"
        return ""


def _written(
    claims: Sequence[KubeDraClaim], choices: Sequence[Choice], place: Place, timestamp: str
) -> list[DraAllocation]:
    found: list[DraAllocation] = []
    for number, claim in enumerate(claims):
        mine = [choice for choice in choices if choice.claim == number]
        results = [_result(claim, choice, at) for at, choice in enumerate(mine)]
        selector = _node_selector([choice.device for choice in mine], place)
        found.append(DraAllocation(Results(results, _config(claim, mine)), selector, timestamp or None))
    return found


def _result(claim: KubeDraClaim, choice: Choice, number: int) -> Result:
    device, asked = choice.device, choice.alternative.asked
    shared = choice.share is not None
    # no two shares of a cluster may have the same id; this one has it from the claim, and not from chance
    name = f"{claim.metadata.namespace}/{claim.metadata.name}/{number}/{'/'.join(device.key)}"
    return Result(
        choice.alternative.name,
        *device.key,
        admin_access=True if choice.alternative.admin else None,
        tolerations=asked.tolerations or None,
        binding_conditions=device.device.binding_conditions or None,
        binding_failure_conditions=device.device.binding_failure_conditions or None,
        share_id=str(uuid.uuid5(uuid.NAMESPACE_URL, name)) if shared else None,
        consumed_capacity=choice.share or None,
    )


def _config(claim: KubeDraClaim, mine: Sequence[Choice]) -> list[dict[str, Any]]:
    """The configuration of the classes, each once, and then the claim's, with the requests that each is for."""
    served = list(dict.fromkeys(choice.alternative.name for choice in mine))
    classes = {choice.alternative.klass.metadata.name: choice.alternative.klass for choice in mine}
    found: list[dict[str, Any]] = []
    for name, klass in classes.items():
        requests = [
            one
            for one in served
            if any(c.alternative.name == one and c.alternative.klass.metadata.name == name for c in mine)
        ]
        found += [{"source": "FromClass", "requests": requests, **one} for one in klass.spec.config or ()]
    for one in claim.spec.devices.config or ():
        wanted: list[str] = one.get("requests") or []
        if not wanted or any(name in wanted or name.partition("/")[0] in wanted for name in served):
            found.append({"source": "FromClaim", **one})
    for each in found:
        wanted = each.get("requests") or []
        if all(name in wanted or name.partition("/")[0] in wanted for name in served):
            each.pop("requests", None)  # none named: for all
    return found


def _node_selector(devices: Sequence[Offered], place: Place) -> Terms | None:
    """Which nodes reach the devices: this one, where one is tied to it; else those that all their selectors select."""
    if any(device.node_name or device.device.binds_to_node for device in devices):
        return Terms([Term(match_fields=[Expression("metadata.name", "In", [place.name])])])
    together = Term([], [])
    assert together.match_expressions is not None
    assert together.match_fields is not None
    for selector in (device.node_selector for device in devices):
        for term in (selector.node_selector_terms if selector else None) or ():
            for have, new in (
                (together.match_expressions, term.match_expressions), (together.match_fields, term.match_fields),
            ):  # fmt: skip
                have += [one for one in new or () if one not in have]
    return Terms([together]) if together.match_expressions or together.match_fields else None
