"""A snapshot without the names of anybody or anything, by which the engine decides the same.

Each name becomes a word and a number: ``node-07``, ``user-3``, ``job-12u-40``. Numbers follow the alphabetical order of
the old names, as ties are broken by name; they say nothing else about them. With a key each name also has a tag that
the same key always makes of the same name (HMAC-SHA256), so that several snapshots can be compared; who has not the key
can neither tell the name nor check a guess.

Names of jobs keep their kinds: `muster.engine.predict` takes work of one user for alike if it has the same stem. So the
new name of a job is the new name of its stem and a number that the engine cuts off again. Stems that begin with other
stems still do, so that names keep their order even where kinds interleave.

Kept are sizes, shapes, GPU models, flavors, quotas, priorities, settings, and all times; calendar times are moved as a
whole to a time that says nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from muster.engine.predict import LEVELS, name_stem
from muster.model.fleet import TOPOLOGY_LEVELS, Fleet, Node, Taint, Topology
from muster.model.queue import Queue
from muster.model.snapshot import (
    AdvanceReservation,
    MoveSearch,
    NodeFailure,
    PastRuns,
    Running,
    Snapshot,
    Usage,
)
from muster.model.workload import PodSet, PodShape, Toleration, TopologyRequest, Workload

PUBLIC_DOMAINS = (
    "kubernetes.io", "k8s.io", "nvidia.com", "amd.com", "intel.com", "muster.dev", "karpenter.sh", "amazonaws.com",
    "azure.com", "google.com", "volcano.sh", "run.ai", "yunikorn.apache.org", "gke.io",
)  # fmt: skip
"""Label and taint keys of these domains and those below them are public words, and are kept."""

PUBLIC_VALUES = (
    "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type", "nvidia.com/gpu.product",
    "nvidia.com/gpu.count", "nvidia.com/gpu.memory", "nvidia.com/gpu.family", "nvidia.com/mig.strategy",
    "karpenter.sh/capacity-type", "muster.dev/flavor",
)  # fmt: skip
"""Labels whose values are public words, too."""

PUBLIC_WORDS = ("", "true", "false")
PUBLIC_ROLES = (
    "main", "worker", "master", "leader", "head", "launcher", "driver", "executor", "server", "ps", "chief",
    "evaluator", "replica",
)  # fmt: skip
PUBLIC_QUALITIES = ("", "LS", "LSR", "BE", "Burstable", "Guaranteed", "spot", "best-effort", "opportunistic")

LEAST_CALENDAR_S = 1e9
_EPOCH_S = 1e8
"""Where calendar times are moved to: far from 0, which stands for a time that nobody said."""

_TAG_DIGITS = 6


class Names(Struct, frozen=True):
    """Old names to new ones, by what they name: ``jobs``, ``users``, ``queues``, ``nodes`` and so on."""

    of: dict[str, dict[str, str]]

    def __getitem__(self, what: str) -> Mapping[str, str]:
        return self.of[what]


class Anonymized(Struct, frozen=True):
    """A snapshot without names, what the names were, and by how much its times are earlier.

    ``unkept`` are jobs whose new names do not keep both their order and their kind; there are none unless names are
    very odd.
    """

    snapshot: Snapshot
    names: Names
    earlier_s: float
    unkept: tuple[str, ...] = ()


def anonymize(snapshot: Snapshot, key: str = "") -> Anonymized:
    """A snapshot by which the engine decides as by ``snapshot``; the same snapshot and key give the same."""
    names = Names(_all_names(snapshot, key))
    earlier_s = _earlier_s(snapshot)
    found = _Writer(names, earlier_s).snapshot(snapshot)
    return Anonymized(found, names, earlier_s, _unkept(names))


# -- the new names ----------------------------------------------------------------------------------------------------


def _all_names(snapshot: Snapshot, key: str) -> dict[str, dict[str, str]]:
    work = [*snapshot.pending, *(run.workload for run in snapshot.running)]
    shapes = [pod_set.shape for each in work for pod_set in each.pod_sets]
    nodes, queues = snapshot.fleet.nodes, snapshot.queues
    tags = _tagger(key)
    levels = [level for level in snapshot.fleet.topology.levels if level not in TOPOLOGY_LEVELS]
    pairs = [pair for node in nodes for pair in node.labels] + [
        pair for shape in shapes for pair in shape.node_selector
    ]
    borne = [each for shape in shapes for each in shape.tolerations]
    taints = [taint for node in nodes for taint in node.taints]
    keys = {key for key, _ in pairs} | {each.key for each in (*taints, *borne)}
    values = {value for name, value in pairs if name not in PUBLIC_VALUES} | {each.value for each in (*taints, *borne)}
    owners = [past.key for past in snapshot.run_times if past.level in ("job", "name", "owner")]
    sized = [str(past.key[0]) for past in snapshot.run_times if past.level == "size"]
    jobs, stems = _job_names(snapshot, work, tags)
    found = {
        "jobs": jobs,
        "stems": stems,
        "users": _numbered("user", [
            *(each.user for each in work), *(each.user for each in snapshot.usage), *(str(each[0]) for each in owners),
        ], tags),
        "queues": _numbered("queue", [
            *(each.name for each in queues), *(each.parent for each in queues), *(each.queue for each in work),
            *(each.queue for each in snapshot.usage), *(str(each[1]) for each in owners), *sized,
            *(name for kept in snapshot.reservations for name in kept.queues),
        ], tags),
        "namespaces": _numbered("namespace", [each.namespace for each in work], tags),
        "nodes": _numbered("node", [
            *(node.name for node in nodes), *(each.node for each in snapshot.failures),
            *(name for kept in snapshot.reservations for name in kept.nodes),
        ], tags),
        "tenants": _numbered("tenant", [*(each.tenant for each in queues), *(each.tenant for each in shapes)], tags),
        "roles": _numbered("role", [each.role for one in work for each in one.pod_sets], tags, PUBLIC_ROLES),
        "qualities": _numbered("quality", [each.quality for each in work], tags, PUBLIC_QUALITIES),
        "reservations": _numbered("reservation", [each.name for each in snapshot.reservations], tags),
        "levels": {level: f"level-{number}" for number, level in enumerate(levels, 1)},
        "keys": _numbered("key", [each for each in keys if not _is_public(each)], tags),
        "values": _numbered("value", values, tags, PUBLIC_WORDS),
    }  # fmt: skip
    for depth, level in enumerate(snapshot.fleet.topology.levels):
        domains = [node.topology[depth] for node in nodes if node.topology]
        found[f"domains:{depth}"] = _numbered(found["levels"].get(level, level), domains, tags)
    return found


def _is_public(key: str) -> bool:
    domain = key.partition("/")[0] if "/" in key else ""
    return not key or any(domain == public or domain.endswith(f".{public}") for public in PUBLIC_DOMAINS)


def _tagger(key: str) -> Callable[[str, str], str]:
    """What a key makes of a name: digits, always the same; nothing without a key."""
    if not key:
        return lambda what, name: ""
    secret = key.encode()

    def tag(what: str, name: str) -> str:
        digest = hmac.new(secret, f"{what}\0{name}".encode(), hashlib.sha256).digest()
        return f"{int.from_bytes(digest[:8]) % 10**_TAG_DIGITS:0{_TAG_DIGITS}d}"

    return tag


def _numbered(
    word: str, names: Iterable[str], tags: Callable[[str, str], str], public: Sequence[str] = ("",)
) -> dict[str, str]:
    """Names to ``word-1``, ``word-2`` ... in their own order; public ones stay."""
    kept = {name: name for name in public}
    rest = sorted(set(names) - kept.keys() - {""})
    digits = len(str(len(rest)))
    for number, name in enumerate(rest, 1):
        tag = tags(word, name)
        kept[name] = f"{word}-{number:0{digits}d}" + (f"-{tag}" if tag else "")
    kept.setdefault("", "")
    return kept


def _job_names(
    snapshot: Snapshot, work: Sequence[Workload], tags: Callable[[str, str], str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Names of jobs, and their stems, to new ones that sort alike and are of one kind where the old ones are."""
    names = {each.name for each in work} | {name for each in work for name in each.depends_on}
    names |= {*snapshot.finished, *(each.workload for each in (*snapshot.failures, *snapshot.searches))}
    names |= {name for kept in snapshot.reservations for name in kept.workloads}
    names |= {run.leaving_for for run in snapshot.running} - {""}
    stems = {name: name_stem(name) for name in sorted(names)}
    past = {str(each.key[2]) for each in snapshot.run_times if each.level in ("job", "name")}
    items = sorted({*stems, *stems.values(), *past})
    digits = len(str(len(items)))
    numbers = {item: f"{number:0{digits}d}" for number, item in enumerate(items, 1)}

    def numbered(what: str, name: str) -> str:
        tag = tags(what, name)
        return f"{numbers[name]}-{tag}" if tag else numbers[name]

    stem_names = _stem_names(sorted({*stems.values(), *past}), lambda stem: numbered("stem", stem))
    return {name: f"{stem_names[stem]}-{numbered('job', name)}" for name, stem in stems.items()}, stem_names


def _stem_names(stems: Sequence[str], numbered: Callable[[str], str]) -> dict[str, str]:
    """Stems, sorted, to new ones; one that begins with another still does.

    They end in a letter that no pattern of `name_stem` takes for a part of a number, hash or suffix.
    """
    found: dict[str, str] = {}
    around: list[str] = []
    for stem in stems:
        while around and not stem.startswith(around[-1]):
            around.pop()
        outer = found[around[-1]] if around else "job"
        found[stem] = f"{outer}-{numbered(stem)}u"
        around.append(stem)
    return found


def _unkept(names: Names) -> tuple[str, ...]:
    """Jobs of which the new name stands elsewhere in the order, or is of another kind."""
    jobs = sorted(names["jobs"])
    placed = sorted(jobs, key=lambda name: names["jobs"][name])
    odd = {old for old, now in zip(jobs, placed, strict=True) if old != now}
    odd |= {name for name in jobs if name_stem(names["jobs"][name]) != names["stems"][name_stem(name)]}
    return tuple(sorted(odd))


# -- writing ----------------------------------------------------------------------------------------------------------


def _times(snapshot: Snapshot) -> Iterable[float]:
    """All calendar times."""
    yield snapshot.taken_s
    for work in (*snapshot.pending, *(run.workload for run in snapshot.running)):
        yield from (work.submitted_s, work.not_before_s, work.start_deadline_s or 0.0)
    for run in snapshot.running:
        yield from (run.started_s, run.checkpointed_s or 0.0, run.resized_s or 0.0, run.idle_since_s or 0.0)
        yield from (run.expected_end_s or 0.0, run.leaving_s or 0.0)
    for kept in snapshot.reservations:
        yield from (kept.start_s, kept.end_s)
    for each in (*snapshot.failures, *snapshot.searches):
        yield each.time_s


def _earlier_s(snapshot: Snapshot) -> float:
    """By how many whole seconds times are moved; 0 for those of a simulation, which begin at 0 anyway."""
    calendar = [time_s for time_s in _times(snapshot) if LEAST_CALENDAR_S <= time_s < math.inf]
    return math.floor(min(calendar)) - _EPOCH_S if calendar else 0.0


class _Writer:
    def __init__(self, names: Names, earlier_s: float) -> None:
        self._names = names
        self._earlier_s = earlier_s
        self._shapes: dict[PodShape, PodShape] = {}

    def _time(self, time_s: Any) -> Any:
        return time_s - self._earlier_s if time_s is not None and time_s >= LEAST_CALENDAR_S else time_s

    def _all(self, what: str, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(self._names[what][name] for name in names)

    def snapshot(self, old: Snapshot) -> Snapshot:
        jobs, nodes, time = self._names["jobs"], self._names["nodes"], self._time
        users, queues = self._names["users"], self._names["queues"]
        return Snapshot(
            self._fleet(old.fleet),
            tuple(self._queue(each) for each in old.queues),
            tuple(self._work(each) for each in old.pending),
            tuple(self._running(each) for each in old.running),
            tuple(self._reservation(each) for each in old.reservations),
            tuple(Usage(queues[each.queue], users[each.user], each.gpu_s) for each in old.usage),
            tuple(sorted(jobs[name] for name in old.finished)),
            tuple(NodeFailure(nodes[each.node], jobs[each.workload], time(each.time_s)) for each in old.failures),
            time(old.taken_s),
            "anonymized",
            tuple(MoveSearch(jobs[each.workload], time(each.time_s)) for each in old.searches),
            tuple(self._past(each) for each in old.run_times if each.level in LEVELS),
            tuple((name, self._level(value) if name == "keep_whole" else value) for name, value in old.settings),
        )

    def _level(self, level: Any) -> Any:
        return self._names["levels"].get(level, level)

    def _fleet(self, fleet: Fleet) -> Fleet:
        levels = tuple(self._level(level) for level in fleet.topology.levels)
        return Fleet(tuple(self._node(each) for each in fleet.nodes), Topology(levels), "fleet")

    def _node(self, node: Node) -> Node:
        domains = tuple(self._names[f"domains:{depth}"][name] for depth, name in enumerate(node.topology))
        taints = (Taint(self._key(each.key), self._value(each.value), each.effect) for each in node.taints)
        return replace(
            node, name=self._names["nodes"][node.name], labels=self._pairs(node.labels), topology=domains, reason="",
            taints=tuple(sorted(taints)),
        )  # fmt: skip

    def _key(self, key: str) -> str:
        return self._names["keys"].get(key, key)

    def _value(self, value: str) -> str:
        return self._names["values"][value]

    def _pairs(self, pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(
            (self._key(key), value if key in PUBLIC_VALUES else self._value(value)) for key, value in pairs
        ))  # fmt: skip

    def _queue(self, queue: Queue) -> Queue:
        names = self._names["queues"]
        tenant = self._names["tenants"][queue.tenant]
        return replace(queue, name=names[queue.name], parent=names[queue.parent], tenant=tenant)

    def _work(self, work: Workload) -> Workload:
        jobs = self._names["jobs"]
        return replace(
            work, name=jobs[work.name], pod_sets=tuple(self._pod_set(each) for each in work.pod_sets),
            queue=self._names["queues"][work.queue], user=self._names["users"][work.user],
            namespace=self._names["namespaces"][work.namespace], quality=self._names["qualities"][work.quality],
            submitted_s=self._time(work.submitted_s), not_before_s=self._time(work.not_before_s),
            start_deadline_s=self._time(work.start_deadline_s), depends_on=self._all("jobs", work.depends_on),
            topology=None if work.topology is None else self._request(work.topology), title="", told="",
        )  # fmt: skip

    def _request(self, asked: TopologyRequest) -> TopologyRequest:
        level = self._level
        return replace(
            asked, required=level(asked.required), preferred=level(asked.preferred), spread=level(asked.spread)
        )

    def _pod_set(self, pod_set: PodSet) -> PodSet:
        return replace(pod_set, shape=self._shape(pod_set.shape), role=self._names["roles"][pod_set.role])

    def _shape(self, shape: PodShape) -> PodShape:
        known = self._shapes.get(shape)
        if known is None:
            known = self._shapes[shape] = replace(
                shape, node_selector=self._pairs(shape.node_selector), tenant=self._names["tenants"][shape.tenant],
                tolerations=tuple(sorted(
                    Toleration(self._key(each.key), each.operator, self._value(each.value), each.effect)
                    for each in shape.tolerations
                )),
            )  # fmt: skip
        return known

    def _running(self, run: Running) -> Running:
        nodes, time = self._names["nodes"], self._time
        return replace(
            run, workload=self._work(run.workload), started_s=time(run.started_s),
            pods=tuple(replace(pod, node=nodes[pod.node]) for pod in run.pods),
            checkpointed_s=time(run.checkpointed_s), resized_s=time(run.resized_s),
            idle_since_s=time(run.idle_since_s), expected_end_s=time(run.expected_end_s),
            leaving_s=time(run.leaving_s), leaving_for=self._names["jobs"].get(run.leaving_for, ""),
        )  # fmt: skip

    def _reservation(self, kept: AdvanceReservation) -> AdvanceReservation:
        return AdvanceReservation(
            self._names["reservations"][kept.name], self._time(kept.start_s), self._time(kept.end_s),
            self._all("nodes", kept.nodes), self._all("queues", kept.queues), self._all("jobs", kept.workloads),
        )  # fmt: skip

    def _past(self, past: PastRuns) -> PastRuns:
        key = list(past.key)
        if past.level in ("job", "name", "owner"):
            key[0], key[1] = self._names["users"][str(key[0])], self._names["queues"][str(key[1])]
        if past.level in ("job", "name"):
            key[2] = self._names["stems"][str(key[2])]
        if past.level == "size":
            key[0] = self._names["queues"][str(key[0])]
        return replace(past, key=tuple(key))
