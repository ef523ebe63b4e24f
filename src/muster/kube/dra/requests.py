"""Which devices of a node each request may have, before one looks at what is taken."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.kube.dra.amounts import share_of
from muster.kube.dra.cel import CelError, Evaluator
from muster.kube.dra.objects import ALL, EXACT_COUNT, NO_SCHEDULE, ClassSpec, Exactly, KubeClass, KubeDraClaim, Selector
from muster.kube.dra.pools import Offered, Pool
from muster.kube.objects import Quantity


class Refusal(Exception):
    """Why a node cannot give a claim its devices: the claim, the request, and what is short."""


class Alternative(Struct, eq=False):
    """What would do for a request, on one node.

    Attributes:
        name: as in a result.
        asked: what it asks for.
        klass: the device class.
        devices: those of the node that match, in the order in which they are tried.
        count: how many it needs.
        shares: by position in ``devices``, what it takes of a device's capacities.
        all: whether it needs all of ``devices``.
    """

    name: str
    asked: Exactly
    klass: KubeClass
    devices: list[Offered]
    count: int
    shares: list[dict[str, Quantity]]
    all: bool = False

    @property
    def admin(self) -> bool:
        """Whether it is access for administrators, beside whoever has the device."""
        return bool(self.asked.admin_access)

    def bears(self, device: Offered) -> bool:
        """Whether it bears the device's taints."""
        return all(
            any(toleration.bears(taint) for toleration in self.asked.tolerations or ())
            for taint in device.taints
            if taint.effect in NO_SCHEDULE
        )


class Needed(Struct, eq=False):
    """A request of a claim: one of its alternatives is needed."""

    claim: int
    request: str
    alternatives: list[Alternative]


class Matcher:
    """Matches requests with devices; remembers what could not be evaluated.

    Attributes:
        notes: selectors that could not be evaluated and why; their devices are taken not to match. kube-scheduler
            would not place such a pod at all.
    """

    def __init__(self, classes: Mapping[str, KubeClass]) -> None:
        self.classes = classes
        self.notes: dict[str, str] = {}
        self._evaluator: Evaluator | None = None

    def selected(self, device: Offered, selectors: Sequence[Selector], where: str) -> bool:
        """Whether a device is what all selectors of a class or request ask for."""
        for number, selector in enumerate(selectors):
            expression = selector.expression
            if expression is None:
                self.notes.setdefault(f"{where}, selector {number}", "is of a kind that is not known")
                return False
            self._evaluator = self._evaluator or Evaluator()
            try:
                if not self._evaluator.matches(expression, device.driver, device.device):
                    return False
            except CelError as error:
                self.notes.setdefault(f"{where}, selector {number}", f"cannot be evaluated: {error}")
                return False
        return True

    def matches(self, device: Offered, asked: Exactly, where: str) -> bool:
        """Whether a device is of the class that is asked for, and what the request's own selectors ask for."""
        klass = self.klass(asked, where)
        of_class: ClassSpec = klass.spec
        if not self.selected(device, of_class.selectors or (), f"class {klass.metadata.name}"):
            return False
        return self.selected(device, asked.selectors or (), where)

    def klass(self, asked: Exactly, where: str) -> KubeClass:
        """The class that is asked for; raises `Refusal` where there is none."""
        found = self.classes.get(asked.device_class_name)
        if found is None:
            what = f"there is no device class {asked.device_class_name}" if asked.device_class_name else "has no class"
            raise Refusal(f"{where}: {what}")
        return found

    def needed(self, pools: Sequence[Pool], claims: Sequence[KubeDraClaim]) -> list[Needed]:
        """All requests of some claims, with what of a node's pools each may have.

        Raises:
            Refusal: a request that no node could serve, or that asks for all devices of a pool that is not complete.
        """
        return [
            Needed(
                number, request.name, [self._alternative(pools, claim, name, one) for name, one in request.alternatives]
            )
            for number, claim in enumerate(claims)
            for request in claim.spec.devices.requests or ()
        ]

    def _alternative(self, pools: Sequence[Pool], claim: KubeDraClaim, name: str, asked: Exactly) -> Alternative:
        where = f"claim {claim.metadata.name}, request {name}"
        if asked.allocation_mode not in (EXACT_COUNT, ALL, ""):
            raise Refusal(f"{where}: allocation mode {asked.allocation_mode} is not known")
        if asked.derived_attributes:
            raise Refusal(f"{where}: derived attributes are not understood")
        wants_all = asked.allocation_mode == ALL
        unusable = next((pool for pool in pools if not pool.usable), None)
        if wants_all and unusable is not None:
            why = unusable.invalid or "is being published"
            raise Refusal(f"{where}: asks for all devices, and pool {unusable.driver}/{unusable.name} {why}")
        requests = (asked.capacity.requests if asked.capacity else None) or {}
        devices: list[Offered] = []
        shares: list[dict[str, Quantity]] = []
        for device in (device for pool in pools if pool.usable for device in pool.devices):
            if self.matches(device, asked, where) and (share := share_of(device.device, requests)) is not None:
                devices.append(device)
                shares.append(share)
        count = len(devices) if wants_all else max(asked.count, 1)
        return Alternative(name, asked, self.klass(asked, where), devices, count, shares, wants_all)
