"""The changes themselves: values, each of which writes itself as the text that `parse_change` reads."""

from __future__ import annotations

import shlex
from typing import Literal

import msgspec
from msgspec import Struct

from muster.model.plan import PodPlacement
from muster.model.snapshot import Setting
from muster.model.workload import Workload
from muster.slurm.hostlist import compress

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./[]*?-")


class AddNodes(Struct, frozen=True, tag="add-nodes"):
    """``count`` new nodes, alike.

    Attributes:
        like: the node whose shape they have, or a flavor: the first node of it.
        of: their flavor, ``MODEL`` or ``MODEL/PURCHASE``, where it is another one than that of ``like``.
        level, domain: where they stand; empty: in new racks and NVLink domains, beside ``like`` in all that is wider.
    """

    count: int
    like: str
    of: str = ""
    level: str = ""
    domain: str = ""

    def __str__(self) -> str:
        of = f" of {word(self.of)}" if self.of else ""
        where = f" in {word(self.level)} {word(self.domain)}" if self.level else ""
        return f"add {self.count} node{'s' if self.count != 1 else ''}{of} like {word(self.like)}{where}"


class AddDomains(Struct, frozen=True, tag="add-domains"):
    """``count`` new domains of a level, each with copies of the nodes of an existing one."""

    level: str
    like: str
    count: int = 1

    def __str__(self) -> str:
        return f"add {self.count} {word(self.level + ('s' if self.count != 1 else ''))} like {word(self.like)}"


class RemoveNodes(Struct, frozen=True, tag="remove-nodes"):
    """Nodes that are no more; what runs on them is stopped and goes back to its queue."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"remove {word(compress(self.names))}"


class SetNodes(Struct, frozen=True, tag="set-nodes"):
    """What becomes of nodes.

    Attributes:
        names: of the nodes.
        what: ``drain`` (nothing more starts on them; what runs goes on), ``uncordon``, ``fail`` (their GPUs are
            unhealthy), ``repair`` (healthy again, and nothing that failed there counts), ``spare``, ``unspare``,
            ``taint``, ``untaint``.
        key, value, effect: of the taint; `untaint` takes away all of this key.
        evict: of ``drain``: what runs on them is stopped and goes back to its queue.
    """

    names: tuple[str, ...]
    what: Literal["drain", "uncordon", "fail", "repair", "spare", "unspare", "taint", "untaint"]
    key: str = ""
    value: str = ""
    effect: str = ""
    evict: bool = False

    def __str__(self) -> str:
        taint = self.key + (f"={self.value}" if self.value else "") + (f":{self.effect}" if self.effect else "")
        parts = [self.what, *([word(taint)] if taint else []), word(compress(self.names))]
        return " ".join(parts) + (" evict" if self.evict else "")


class SetQuota(Struct, frozen=True, tag="set-quota"):
    """A queue's nominal quota of a flavor: so much more (or less, in milli GPU); or ``to_milli``."""

    queue: str
    flavor: str
    by_milli: int = 0
    to_milli: int | None = None

    def __str__(self) -> str:
        sign = "-" if self.by_milli < 0 else "+"
        amount = gpus(self.to_milli) if self.to_milli is not None else f"{sign}{gpus(abs(self.by_milli))}"
        return f"quota {word(self.queue)} {amount} {word(self.flavor)}"


class SetLimit(Struct, frozen=True, tag="set-limit"):
    """A queue's borrowing or lending limit of a flavor, or the most that each of its users may hold (no flavor).

    ``to_milli`` None: there is no limit.
    """

    queue: str
    which: Literal["borrowing", "lending", "user"]
    to_milli: int | None
    flavor: str = ""

    def __str__(self) -> str:
        amount = "none" if self.to_milli is None else gpus(self.to_milli)
        flavor = f" {word(self.flavor)}" if self.flavor else ""
        return f"{self.which}-limit {word(self.queue)} {amount}{flavor}"


class SetWeight(Struct, frozen=True, tag="set-weight"):
    """A queue's weight among its siblings."""

    queue: str
    weight: float

    def __str__(self) -> str:
        return f"weight {word(self.queue)} {self.weight!r}"


class SetConfig(Struct, frozen=True, tag="set-config"):
    """One setting of the scheduler."""

    name: str
    value: Setting

    def __str__(self) -> str:
        text = str(self.value).lower() if isinstance(self.value, bool) else str(self.value)
        return f"set {word(f'{self.name}={text}')}"


class SetPolicy(Struct, frozen=True, tag="set-policy"):
    """All settings of the scheduler: those of a preset."""

    preset: str

    def __str__(self) -> str:
        return f"policy {word(self.preset)}"


class SetJob(Struct, frozen=True, tag="set-job"):
    """What a waiting workload asks for; what is None stays. Of a running one only priority, limit and preemptible.

    Attributes:
        pods, min_pods, gpus, cpu_milli, memory_bytes: one a pod set. With other ``gpus`` a pod's CPU and memory change
            in proportion, unless they are given.
        models, flavors, tolerate: all of them; empty: any (of ``tolerate``, which names taints' keys: no more).
        selector: ``key=value`` labels that nodes must have, all of them, for each pod set; empty: any node.
        topology, prefer, spread: levels; empty: none. ``segment`` and ``at_most``: 0 is none.
        limit_s: its time limit; infinite: none.
        released: it is no longer held, nor waits for work that it depends on.
    """

    job: str
    priority: int | None = None
    queue: str | None = None
    pods: tuple[int, ...] | None = None
    min_pods: tuple[int, ...] | None = None
    gpus: tuple[int, ...] | None = None
    cpu_milli: tuple[int, ...] | None = None
    memory_bytes: tuple[int, ...] | None = None
    models: tuple[str, ...] | None = None
    flavors: tuple[str, ...] | None = None
    tolerate: tuple[str, ...] | None = None
    selector: tuple[str, ...] | None = None
    topology: str | None = None
    prefer: str | None = None
    segment: int | None = None
    spread: str | None = None
    at_most: int | None = None
    limit_s: float | None = None
    preemptible: bool | None = None
    released: bool = False

    def __str__(self) -> str:
        return " ".join([f"job {word(self.job)}", *(word(f"{key}={text}") for key, text in self._pairs())])

    def _pairs(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for name in self.__struct_fields__[1:]:
            value = getattr(self, name)
            if value is None or (name == "released" and not value):
                continue
            if name == "limit_s":
                text = "none" if value == float("inf") else span(value)
            elif name == "cpu_milli":
                text = ",".join(map(gpus, value))
            elif isinstance(value, bool):
                text = "yes" if value else "no"
            elif isinstance(value, tuple):
                text = ",".join(map(str, value)) or "any"  # type: ignore[reportUnknownArgumentType]
            else:
                text = str(value) if value != "" else "none"
            found.append((KEY_OF.get(name, name), text))
        return found


KEY_OF = {
    "min_pods": "min-pods",
    "cpu_milli": "cpu",
    "memory_bytes": "memory",
    "at_most": "at-most",
    "limit_s": "limit",
}
"""How fields of `SetJob` are written where they are not written as they are called."""


class Stop(Struct, frozen=True, tag="stop"):
    """Running work is stopped and goes back to its queue."""

    job: str

    def __str__(self) -> str:
        return f"stop {word(self.job)}"


class Move(Struct, frozen=True, tag="move"):
    """Running work goes on from its last checkpoint with all its pods at these places, in the order of its pod sets."""

    job: str
    pods: tuple[PodPlacement, ...]

    def __str__(self) -> str:
        return " ".join([f"move {word(self.job)} to", *(word(place(each)) for each in self.pods)])


class Mark(Struct, frozen=True):
    """A label that a spec's own words (an affinity, a feature) put on the nodes that they allow."""

    key: str
    value: str
    nodes: tuple[str, ...]


class Submit(Struct, frozen=True, tag="submit"):
    """New work, submitted now; ``marks`` are labels that nodes get, which its pods select."""

    workload: Workload
    marks: tuple[Mark, ...] = ()

    def __str__(self) -> str:
        parts = [self.workload, *([self.marks] if self.marks else [])]
        return " ".join(["submit", *(shlex.quote(msgspec.json.encode(each).decode()) for each in parts)])


class Cancel(Struct, frozen=True, tag="cancel"):
    """Work is withdrawn, whether it waits or runs."""

    job: str

    def __str__(self) -> str:
        return f"cancel {word(self.job)}"


class Reserve(Struct, frozen=True, tag="reserve"):
    """Nodes are kept from ``from_s`` to ``to_s``, in seconds from now, for queues and jobs, or for nobody."""

    name: str
    nodes: tuple[str, ...]
    from_s: float
    to_s: float
    queues: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = [f"reserve {word(compress(self.nodes))} from {span(self.from_s)} to {span(self.to_s)}"]
        parts += [f"queue {word(','.join(self.queues))}"] if self.queues else []
        parts += [f"job {word(','.join(self.jobs))}"] if self.jobs else []
        return " ".join([*parts, f"name {word(self.name)}"])


class EndReservation(Struct, frozen=True, tag="end-reservation"):
    """An advance reservation is no more."""

    name: str

    def __str__(self) -> str:
        return f"end-reservation {word(self.name)}"


class Wave(Struct, frozen=True, tag="wave"):
    """Nodes are looked after (a new driver), ``batch`` at a time, a batch each ``every_s``, the first in ``from_s``.

    Each batch is an advance reservation for nobody over its time: what could not end before does not start there.
    What runs into it goes on: it would have to be waited for, or stopped.
    """

    nodes: tuple[str, ...]
    batch: int
    every_s: float
    from_s: float = 0.0

    def __str__(self) -> str:
        start = f" from {span(self.from_s)}" if self.from_s else ""
        return f"driver-wave {word(compress(self.nodes))} batch {self.batch} every {span(self.every_s)}{start}"


Change = (
    AddNodes | AddDomains | RemoveNodes | SetNodes | SetQuota | SetLimit | SetWeight | SetConfig | SetPolicy
    | SetJob | Stop | Move | Submit | Cancel | Reserve | EndReservation | Wave
)  # fmt: skip


def word(text: str) -> str:
    """A word as it is, or in quotes where it would be read as several or as something else."""
    return text if text and _PLAIN.issuperset(text) else shlex.quote(text)


def gpus(milli: int) -> str:
    """Thousandths as a number without needless zeros: 64000 is ``64``, 1500 is ``1.5``."""
    whole, rest = divmod(abs(milli), 1000)
    return f"{'-' if milli < 0 else ''}{whole}" + (f".{rest:03d}".rstrip("0") if rest else "")


def span(seconds: float) -> str:
    """A time in its largest unit that divides it: ``30m``, ``36h``, ``12.5s``."""
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{int(seconds // length)}{unit}"
    return f"{int(seconds)}s" if float(seconds).is_integer() else f"{seconds!r}s"


def place(pod: PodPlacement) -> str:
    """``gpu01:0-7``, with a share ``gpu01:3@500``, or a MIG instance ``gpu01:0@250@2g.20gb+2``."""
    if not pod.devices:
        return pod.node
    parts: list[list[int]] = []
    for device in pod.devices:
        if parts and device == parts[-1][-1] + 1:
            parts[-1].append(device)
        else:
            parts.append([device])
    text = ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
    share = f"@{pod.gpu_milli}" if pod.gpu_milli != 1000 or pod.mig else ""
    return f"{pod.node}:{text}{share}" + (f"@{pod.mig}+{pod.mig_start}" if pod.mig else "")
