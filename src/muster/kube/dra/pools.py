"""Pools of devices: what drivers have published in full, and which of it a node can reach.

A pool is spread over several slices. Only the newest generation counts, and of it nothing may be given out before all
its slices were seen. A device belongs to a node by name, by a selector of labels, or to all nodes; the counters that
devices of a pool divide among themselves are the pool's, on whatever nodes its devices are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from msgspec import Struct, field

from muster.kube.affinity import expression_fault, term_takes
from muster.kube.dra.objects import DraDevice, DraTaint, KubeSlice, KubeTaintRule, SliceSpec, TaintedDevices, nanos
from muster.kube.objects import Terms

DeviceKey = tuple[str, str, str]
"""Driver, pool and device."""
CounterKey = tuple[str, str]
"""Counter set and counter."""


class Place(Struct, frozen=True):
    """What of a node decides which devices it reaches."""

    name: str
    labels: Mapping[str, str]


class Offered(Struct, eq=False, dict=True):
    """A device of a pool.

    Attributes:
        driver, pool: where it is from.
        device: the device, with its fields where v1 has them.
        taints: its own, and those of rules.
        node_name, node_selector, all_nodes: which nodes reach it; one of them is set.
        counters: what it takes of its pool's counters, in billionths, each once.
    """

    driver: str
    pool: str
    device: DraDevice
    taints: tuple[DraTaint, ...] = ()
    node_name: str = ""
    node_selector: Terms | None = None
    all_nodes: bool = False
    counters: tuple[tuple[CounterKey, int], ...] = ()

    @cached_property
    def key(self) -> DeviceKey:
        """Driver, pool and device: unique in a cluster."""
        return self.driver, self.pool, self.device.name

    @property
    def shared(self) -> bool:
        """Whether several claims may have a share of it."""
        return bool(self.device.allow_multiple_allocations)

    def reached(self, place: Place) -> bool:
        """Whether a node reaches it."""
        if self.node_name:
            return self.node_name == place.name
        return self.all_nodes or (self.node_selector is not None and selects(self.node_selector, place))


class Pool(Struct, eq=False):
    """A driver's pool, or what of it a node reaches.

    Attributes:
        incomplete: slices seen and slices that there are, where some are missing.
        invalid: why nothing of it may be given out though it is complete; else empty.
        totals: what there is of each counter, in billionths.
        elsewhere: devices that the node does not reach, which take of the same counters.
    """

    driver: str
    name: str
    devices: tuple[Offered, ...] = ()
    incomplete: tuple[int, int] | None = None
    invalid: str = ""
    totals: dict[CounterKey, int] = field(default_factory=dict[CounterKey, int])
    elsewhere: tuple[Offered, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether devices of it may be given out."""
        return self.incomplete is None and not self.invalid


class Inventory:
    """All pools of a cluster."""

    def __init__(self, slices: Iterable[KubeSlice], rules: Iterable[KubeTaintRule] = ()) -> None:
        newest: dict[tuple[str, str], list[KubeSlice]] = {}
        for each in sorted(slices, key=lambda one: one.metadata.name):
            key = each.spec.driver, each.spec.pool.name
            found = newest.get(key)
            if found is None or each.spec.pool.generation > found[0].spec.pool.generation:
                newest[key] = [each]
            elif each.spec.pool.generation == found[0].spec.pool.generation:
                found.append(each)
        by_name = sorted(rules, key=lambda one: one.metadata.name)
        self.pools = tuple(_pool(*key, [one.spec for one in newest[key]], by_name) for key in sorted(newest))
        self._named: dict[str, list[Pool]] = {}
        self._anywhere: list[Pool] = []
        for pool in self.pools:
            names = dict.fromkeys(device.node_name for device in pool.devices)
            if "" in names or not names:
                self._anywhere.append(pool)
            for name in names:
                self._named.setdefault(name, []).append(pool)

    def at(self, place: Place) -> tuple[Pool, ...]:
        """What a node reaches, by driver and pool; pools of which it reaches nothing are left out."""
        found: list[Pool] = []
        candidates = {(pool.driver, pool.name): pool for pool in self._anywhere}
        candidates |= {(pool.driver, pool.name): pool for pool in self._named.get(place.name, ())}
        for _, pool in sorted(candidates.items()):
            near = tuple(device for device in pool.devices if device.reached(place))
            if not near:
                continue
            if len(near) == len(pool.devices):
                found.append(pool)
                continue
            far = tuple(device for device in pool.devices if device.counters and not device.reached(place))
            found.append(
                Pool(pool.driver, pool.name, near, pool.incomplete, pool.invalid, pool.totals, far)
            )  # fmt: skip
        return tuple(found)


def _pool(driver: str, name: str, slices: list[SliceSpec], rules: list[KubeTaintRule]) -> Pool:
    counted = slices[0].pool.resource_slice_count
    incomplete = (len(slices), counted) if len(slices) != counted else None
    totals: dict[CounterKey, int] = {}
    invalid = ""
    devices: dict[str, Offered] = {}
    try:
        for group in (group for each in slices for group in each.shared_counters or ()):
            if any(known == group.name for known, _ in totals):
                invalid = invalid or f"counter set {group.name} is there twice"
            totals.update({(group.name, key): nanos(one.value) for key, one in (group.counters or {}).items()})
        for each in slices:
            for device in each.devices or ():
                if device.name in devices:
                    invalid = invalid or f"device {device.name} is there twice"
                devices[device.name] = _offered(driver, name, each, device.full, rules)
    except ValueError as error:
        invalid = f"{error} is no quantity"
    unknown = [key for one in devices.values() for key, _ in one.counters if key not in totals]
    if unknown and not incomplete:
        invalid = invalid or f"there is no counter {unknown[0][1]} in a counter set {unknown[0][0]}"
    return Pool(driver, name, tuple(devices.values()), incomplete, invalid, totals)


def _offered(driver: str, pool: str, spec: SliceSpec, device: DraDevice, rules: list[KubeTaintRule]) -> Offered:
    each = device if spec.per_device_node_selection else spec
    taken: dict[CounterKey, int] = {}
    for one in device.consumes_counters or ():
        for name, counter in (one.counters or {}).items():
            taken[one.counter_set, name] = taken.get((one.counter_set, name), 0) + nanos(counter.value)
    by_rule = (
        rule.spec.taint
        for rule in rules
        if rule.spec.device_selector and _tainted(rule.spec.device_selector, driver, pool, device.name)
    )
    taints = tuple(dict.fromkeys((*(device.taints or ()), *by_rule)))
    node = each.node_name or ""
    return Offered(driver, pool, device, taints, node, each.node_selector, bool(each.all_nodes), tuple(taken.items()))


def _tainted(those: TaintedDevices, driver: str, pool: str, device: str) -> bool:
    return all(
        wanted is None or wanted == found
        for wanted, found in ((those.driver, driver), (those.pool, pool), (those.device, device))
    )


# -- selectors of nodes -----------------------------------------------------------------------------------------------


def selects(terms: Terms, place: Place) -> bool:
    """Whether a node selector selects a node. An empty one never does."""
    for term in terms.node_selector_terms or ():
        faults = map(expression_fault, (*(term.match_expressions or ()), *(term.match_fields or ())))
        if not any(faults) and term_takes(term, place.labels, place.name):
            return True
    return False
