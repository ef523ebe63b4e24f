"""What may be asked of the places of a gang, and what is answered: its places, or why it has none."""

from __future__ import annotations

from msgspec import Struct

from muster.engine.state import Allocation
from muster.errors import InputError
from muster.model.fleet import Topology
from muster.model.reasons import Reason
from muster.model.workload import TopologyRequest


class GangPlacement(Struct, frozen=True):
    """A gang that was placed.

    Attributes:
        allocations: one a pod, by pod set as given, within a set in order along the topology.
        level: the level that `domains` are of: required, else preferred, else spread, else the narrowest.
        domains: names of the domains that it stands in, in order, with the pods in each.
        counts: for each level of the fleet, widest first, in how many domains the gang stands.
    """

    allocations: tuple[Allocation, ...]
    level: str = ""
    domains: tuple[tuple[str, int], ...] = ()
    counts: tuple[tuple[str, int], ...] = ()


class Refused(Struct, frozen=True):
    """A gang that was not placed, with the numbers that explain it. Nothing has changed.

    Pods are counted set by set: for each set as many as it asks for count at most.

    Attributes:
        reason: `Reason.CAPACITY`, `Reason.ONE_DOMAIN` or `Reason.APART`.
        pods: of the gang.
        room: pods of it that the fleet has room for; `Reason.APART`: and may take, with ``unit`` on one ``level``.
        level: the level that it requires, if any.
        unit: pods that must stand in one domain of it: those of the largest segment, or all.
        units: such units in all.
        units_fit: how many of them fit.
        best_domain: the domain with most room for one unit, the first of equals.
        best_room: pods of a unit that this domain has room for.
        domains: domains of the level.
        named: what several units are called.
    """

    reason: Reason
    pods: int
    room: int
    level: str = ""
    unit: int = 0
    units: int = 0
    units_fit: int = 0
    best_domain: str = ""
    best_room: int = 0
    domains: int = 0
    named: str = "segments"

    def text(self) -> str:
        """One line, such as ``64 pods must stand in one block; of 12, b3 has most room, for 41``."""
        if self.reason is Reason.CAPACITY:
            return f"{self.pods} pods are to fit at once; there is room for {self.room}"
        if self.reason is Reason.APART:
            text = f"{self.pods} pods are to stand with at most {self.unit} on one {self.level}"
            return f"{text}; there is room for {self.room}" if self.room < self.pods else text
        if not self.domains:
            return f"{self.unit} pods must stand in one {self.level}; no node has one"
        text = f"{self.unit} pods must stand in one {self.level}; of {self.domains}, {self.best_domain} has most room, "
        text += f"for {self.best_room}"
        return text if self.units <= 1 else f"{text}; {self.units_fit} of {self.units} {self.named} fit"


def check_request(topology: Topology, request: TopologyRequest | None, field: str = "topology") -> None:
    """Raise `InputError`, naming the field below ``field``, where a request makes no sense on a topology."""
    if request is None:
        return
    for name in ("required", "preferred", "spread"):
        level: str = getattr(request, name)
        if level and level not in topology.with_hosts:
            known = f"known: {', '.join(topology.with_hosts)}"
            raise InputError(f"unknown topology level {level!r}", field=f"{field}.{name}", hint=known)
    if request.segment < 0:
        raise InputError(f"is negative ({request.segment})", field=f"{field}.segment", hint="pods a segment, or 0")
    if request.segment and not request.required:
        hint = f"name the level in {field}.required"
        raise InputError("a segment needs the level in whose domains it stays", field=f"{field}.segment", hint=hint)
    levels, most = topology.with_hosts, request.at_most
    within = request.spread and request.required and levels.index(request.spread) <= levels.index(request.required)
    if within and not request.segment:
        what = f"all pods must stand in one {request.required}, so they cannot be spread over {request.spread}s"
        raise InputError(what, field=f"{field}.spread", hint="spread over a narrower level, or give a segment")
    if most < 0:
        raise InputError(f"is negative ({most})", field=f"{field}.at_most", hint="pods in one domain, or 0")
    if most and not request.spread:
        what = "a limit needs the level in whose domains it holds"
        raise InputError(what, field=f"{field}.at_most", hint=f"name the level in {field}.spread")
    if within and 0 < most < request.segment:
        what = f"is {most}, but a segment of {request.segment} pods stands in one {request.required}"
        hint = f"{request.segment} or more"
        raise InputError(f"{what}, and so in one {request.spread}", field=f"{field}.at_most", hint=hint)
