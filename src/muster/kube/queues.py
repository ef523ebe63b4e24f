"""Queues of the cluster as one tree: Kueue's ClusterQueues and Cohorts, Volcano's and KAI's Queues, Muster's own.

Kueue's quotas of GPUs become quotas of the flavors of the nodes that a ResourceFlavor selects. Volcano and KAI know no
flavors: their amounts count for each GPU model by itself. Their queues share what is left of the cluster, which a root
queue holds here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from muster.engine.quota import check_queues
from muster.errors import InputError
from muster.kube.flavors import Flavors
from muster.kube.kinds import (
    CLUSTER_QUEUES,
    COHORTS,
    KAI_QUEUES,
    LOCAL_QUEUES,
    MUSTER_QUEUES,
    RESOURCE_QUOTAS,
    VOLCANO_QUEUES,
)
from muster.kube.objects import GPU_RESOURCES, Quantity, parse_quantity
from muster.kube.queue_objects import (
    KaiResource,
    KubeClusterQueue,
    KubeCohort,
    KubeKaiQueue,
    KubeLocalQueue,
    KubeQueue,
    KubeResourceQuota,
    KubeVolcanoQueue,
    ResourceGroup,
)
from muster.kube.world import World
from muster.model.fleet import Fleet, Node
from muster.model.notes import Notes
from muster.model.queue import Queue, Quota

NO_QUEUE = "no-queue"
"""The queue of work that names none, where other schedulers have queues: it is theirs to refuse it, and they do not."""
DEFAULT_QUEUE = "default"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LEAST_WEIGHT = 1e-3
_FIELD = re.compile(r"queues\[(\d+)\](?:\.quotas\[(\d+)\])?\.(\w+)")


def parse_duration(text: str) -> float:
    """Seconds of ``1h30m``, ``45s`` or ``500ms``; raises `ValueError`."""
    parts = _DURATION.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)


class _Limits(Struct):
    """A quota of a flavor on its way: what several resources of it add up to."""

    nominal: int = 0
    borrowing: int | None = None
    lending: int | None = None


class QueueReader:
    """Reads queues, and tells which of them work is in.

    A name that two systems use is the first one's; the other's has the system before it: ``volcano/default``.
    """

    def __init__(self, world: World, flavors: Flavors, notes: Notes) -> None:
        self._world, self._flavors, self._notes = world, flavors, notes

    # -- whose queue

    def resolve(self, system: str, namespace: str, name: str) -> str:
        """The queue of work that names one: ``system`` is ``kueue`` (a LocalQueue), ``volcano``, ``kai`` or ``""``."""
        if system == "kueue":
            local = self._world.of(LOCAL_QUEUES, KubeLocalQueue).get(f"{namespace}/{name}")
            return local.spec.cluster_queue if local is not None else name
        if name:
            return self._called(system, name)
        if self._foreign:
            return NO_QUEUE
        return DEFAULT_QUEUE if DEFAULT_QUEUE in self._world.of(MUSTER_QUEUES, KubeQueue) else ""

    def local_queues(self) -> tuple[tuple[str, str], ...]:
        """The LocalQueues of Kueue, each with its ClusterQueue."""
        found = self._world.of(LOCAL_QUEUES, KubeLocalQueue)
        return tuple(sorted((key, each.spec.cluster_queue) for key, each in found.items()))

    def stopped(self, system: str, namespace: str, name: str) -> bool:
        """Whether a queue of Kueue admits nothing at present."""
        if system != "kueue":
            return False
        local = self._world.of(LOCAL_QUEUES, KubeLocalQueue).get(f"{namespace}/{name}")
        queue = self._world.of(CLUSTER_QUEUES, KubeClusterQueue).get(local.spec.cluster_queue) if local else None
        return any(each is not None and each.spec.stop_policy not in (None, "", "None") for each in (local, queue))

    @property
    def _foreign(self) -> bool:
        return any(self._world.of(kind, KubeQueue) for kind in (CLUSTER_QUEUES, VOLCANO_QUEUES, KAI_QUEUES))

    def _called(self, system: str, name: str) -> str:
        """The name here of a queue of Volcano or KAI."""
        before = [self._world.of(MUSTER_QUEUES, KubeQueue)] if system in ("volcano", "kai") else []
        if before:
            before += [self._world.of(CLUSTER_QUEUES, KubeQueue), self._world.of(COHORTS, KubeQueue)]
        if system == "kai":
            before.append(self._world.of(VOLCANO_QUEUES, KubeQueue))
        return f"{system}/{name}" if any(name in queues for queues in before) else name

    # -- the tree

    def queues(self, nodes: Iterable[Node]) -> tuple[Queue, ...]:
        """The tree of queues of a cluster of these nodes."""
        nodes = tuple(nodes)
        self._resource_quotas()
        found = [*self._muster(), *self._kueue(nodes)]
        capacity = Fleet(nodes).capacity_milli
        found += self._volcano(capacity)
        found += self._kai(capacity)
        if self._foreign:
            found.append(Queue(NO_QUEUE, quotas=tuple(Quota(flavor, milli) for flavor, milli in capacity.items())))
        return self._sound(found)

    def _sound(self, queues: list[Queue]) -> tuple[Queue, ...]:
        """The queues without what contradicts itself, each such thing noted."""
        for _ in range(1000):
            try:
                check_queues(tuple(queues))
            except InputError as error:
                match = _FIELD.match(error.field or "")
                if match is None:
                    break
                at, quota, name = int(match[1]), match[2], match[3]
                queue = queues[at]
                self._notes.add("Queue", queue.name, name, f"{error.what}: it is left out")
                if name == "name":
                    del queues[at]
                elif quota is None:
                    queues[at] = replace(queue, **{name: getattr(Queue("x"), name)})
                else:
                    quotas = list(queue.quotas)
                    if name == "flavor":
                        del quotas[int(quota)]
                    else:
                        quotas[int(quota)] = replace(
                            quotas[int(quota)], **{name: 0 if name == "nominal_milli" else None}
                        )
                    queues[at] = replace(queue, quotas=tuple(quotas))
            else:
                return tuple(queues)
        self._notes.add("Queue", "", "spec", "the queues contradict each other: none of them counts")
        return ()

    def _amount(self, kind: str, name: str, text: Quantity, where: str, scale: int = 1000) -> int:
        try:
            return max(0, parse_quantity(text, scale))
        except (ValueError, OverflowError):
            self._notes.add(kind, name, where, "is no amount: it counts as 0")
            return 0

    def _muster(self) -> list[Queue]:
        found = self._world.of(MUSTER_QUEUES, KubeQueue)
        queues: list[Queue] = []
        for each in found.values():
            name, spec = each.metadata.name, each.spec

            def milli(text: Quantity | None, where: str, name: str = name) -> int | None:
                return None if text is None else self._amount("Queue", name, text, f"spec.{where}")

            parent = spec.parent
            if parent and parent not in found:
                self._notes.add("Queue", name, "spec.parent", f"there is no queue {parent}: it counts as a root")
                parent = ""
            quotas = tuple(
                Quota(
                    quota.flavor,
                    milli(quota.nominal, "quotas.nominal") or 0,
                    milli(quota.borrowing_limit, "quotas.borrowingLimit") if parent else None,
                    milli(quota.lending_limit, "quotas.lendingLimit"),
                )
                for quota in spec.quotas or ()
            )
            weight = self._amount("Queue", name, spec.weight, "spec.weight") / 1000
            most = milli(spec.max_running_per_user, "maxRunningPerUser")
            runtime_s = self._seconds("Queue", name, spec.min_runtime, "spec.minRuntime")
            queues.append(Queue(name, parent, max(_LEAST_WEIGHT, weight), quotas, runtime_s, most, tenant=spec.tenant))
        return queues

    def _seconds(self, kind: str, name: str, text: str, where: str) -> float:
        try:
            return parse_duration(text) if text else 0.0
        except ValueError:
            self._notes.add(kind, name, where, "is no duration such as 30m: it counts as 0")
            return 0.0

    # -- Kueue

    def _kueue(self, nodes: Sequence[Node]) -> list[Queue]:
        queues, cohorts = self._world.of(CLUSTER_QUEUES, KubeClusterQueue), self._world.of(COHORTS, KubeCohort)
        if not queues:
            return []
        mapped = self._flavors.mapped(nodes)
        parents = {name: each.spec.parent_name or each.spec.parent or "" for name, each in cohorts.items()}
        for each in queues.values():
            parents.setdefault(each.spec.cohort_name or each.spec.cohort or "", "")
        for parent in list(parents.values()):
            parents.setdefault(parent, "")
        parents.pop("", None)
        found: list[Queue] = []
        for name, parent in parents.items():
            cohort = cohorts.get(name)
            sharing = cohort.spec.fair_sharing if cohort is not None else None
            groups = cohort.spec.resource_groups if cohort is not None else None
            quotas = self._quotas("Cohort", name, groups, mapped, has_parent=bool(parent))
            weight = self._weight("Cohort", name, sharing.weight if sharing is not None else None)
            found.append(Queue(_cohort(name, queues), _cohort(parent, queues) if parent else "", weight, quotas))
        for name, each in queues.items():
            spec = each.spec
            parent = spec.cohort_name or spec.cohort or ""
            fungible = spec.flavor_fungibility
            borrow = fungible.when_can_borrow if fungible is not None else None
            preempt = fungible.when_can_preempt if fungible is not None else None
            sharing = spec.fair_sharing.weight if spec.fair_sharing is not None else None
            found.append(
                Queue(
                    name,
                    _cohort(parent, queues) if parent else "",
                    self._weight("ClusterQueue", name, sharing),
                    self._quotas("ClusterQueue", name, spec.resource_groups, mapped, has_parent=bool(parent)),
                    when_can_borrow="try-next-flavor" if borrow == "TryNextFlavor" else "borrow",
                    when_can_preempt="preempt" if preempt in ("Preempt", "MayStopSearch") else "try-next-flavor",
                )
            )
        return found

    def _weight(self, kind: str, name: str, weight: Quantity | None) -> float:
        if weight is None:
            return 1.0
        return max(_LEAST_WEIGHT, self._amount(kind, name, weight, "spec.fairSharing.weight") / 1000)

    def _quotas(
        self, kind: str, name: str, groups: Sequence[ResourceGroup] | None, mapped: Mapping[str, Sequence[str]], *,
        has_parent: bool,
    ) -> tuple[Quota, ...]:  # fmt: skip
        limits: dict[str, _Limits] = {}
        where = "spec.resourceGroups"
        for flavor in (flavor for group in groups or () for flavor in group.flavors or ()):
            if flavor.name not in mapped:
                self._notes.add(kind, name, where, f"there is no ResourceFlavor {flavor.name}")
            to = mapped.get(flavor.name, (flavor.name,))
            for resource in flavor.resources or ():
                if resource.name not in GPU_RESOURCES:
                    self._notes.add(kind, name, where, f"quota of {resource.name} is not counted")
                    continue
                if len(to) > 1:
                    what = f"flavor {flavor.name} is of {', '.join(to)}: its quota counts for each of them by itself"
                    self._notes.add(kind, name, where, what)
                for each in to:
                    self._add(limits.setdefault(each, _Limits()), kind, name, resource.nominal_quota,
                              resource.borrowing_limit if has_parent else None, resource.lending_limit)  # fmt: skip
        return tuple(Quota(each, of.nominal, of.borrowing, of.lending) for each, of in limits.items())

    def _add(
        self, to: _Limits, kind: str, name: str, nominal: Quantity, borrowing: Quantity | None, lending: Quantity | None
    ) -> None:
        to.nominal += self._amount(kind, name, nominal, "nominalQuota")
        if borrowing is not None:
            to.borrowing = (to.borrowing or 0) + self._amount(kind, name, borrowing, "borrowingLimit")
        if lending is not None:
            to.lending = (to.lending or 0) + self._amount(kind, name, lending, "lendingLimit")

    # -- Volcano and KAI

    def _volcano(self, capacity: Mapping[str, int]) -> list[Queue]:
        found = self._world.of(VOLCANO_QUEUES, KubeVolcanoQueue)
        if not found:
            return []
        root = "root" if "root" in found else ""
        queues: list[Queue] = []
        for name, each in found.items():
            spec = each.spec
            parent = "" if name == root else spec.parent or root or "volcano"
            own = spec.deserved or (spec.guarantee.resource if spec.guarantee is not None else None) or {}
            nominal = self._gpus("Queue", name, own) or 0
            most = self._gpus("Queue", name, spec.capability or {})
            quotas = () if name == root else self._each(name, capacity, nominal, most)
            weight = float(spec.weight or 1)
            queues.append(
                Queue(self._called("volcano", name), self._called("volcano", parent) if parent else "", weight, quotas)
            )
        return _with_root(queues, self._called("volcano", root or "volcano"), capacity)

    def _gpus(self, kind: str, name: str, resources: Mapping[str, Quantity]) -> int | None:
        told = [resources[each] for each in GPU_RESOURCES if each in resources]
        return sum(self._amount(kind, name, each, "spec") for each in told) if told else None

    def _each(self, name: str, capacity: Mapping[str, int], nominal: int, most: int | None) -> tuple[Quota, ...]:
        """The same quota of each flavor."""
        if len(capacity) > 1 and (nominal or most is not None):
            self._notes.add("Queue", name, "spec", "its GPUs are of no model: the quota counts for each by itself")
        borrowing = None if most is None else max(0, most - nominal)
        return tuple(Quota(flavor, min(nominal, milli), borrowing) for flavor, milli in capacity.items())

    def _kai(self, capacity: Mapping[str, int]) -> list[Queue]:
        found = self._world.of(KAI_QUEUES, KubeKaiQueue)
        if not found:
            return []
        parents = {each.spec.parent_queue for each in found.values()}
        queues: list[Queue] = []
        for name, each in found.items():
            spec = each.spec
            gpu = (spec.resources.gpu if spec.resources is not None else None) or KaiResource()
            most = None if gpu.limit < 0 else round(gpu.limit * 1000)
            # what a queue with queues below it has is what those have, as amounts add up the tree here
            nominal = 0 if name in parents else min(capacity.values(), default=0) if gpu.quota < 0 else 1000 * gpu.quota
            runtime_s = self._seconds("Queue", name, spec.preempt_min_runtime or "", "spec.preemptMinRuntime")
            quotas = self._each(name, capacity, round(nominal), None if name in parents else most)
            parent = spec.parent_queue or "kai"
            queues.append(
                Queue(
                    self._called("kai", name), self._called("kai", parent), max(_LEAST_WEIGHT, gpu.over_quota_weight),
                    quotas, runtime_s,
                )
            )  # fmt: skip
        return _with_root(queues, self._called("kai", "kai"), capacity)

    def _resource_quotas(self) -> None:
        """Limits of namespaces are kept by the API server: pods beyond them are not made."""
        for key, each in self._world.of(RESOURCE_QUOTAS, KubeResourceQuota).items():
            hard = each.status.hard or each.spec.hard or {}
            used = each.status.used or {}
            for resource in hard:
                if resource.removeprefix("requests.").removeprefix("limits.") not in GPU_RESOURCES:
                    continue
                where = f"spec.hard['{resource}']"
                most = self._amount("ResourceQuota", key, hard[resource], where, 1)
                if self._amount("ResourceQuota", key, used.get(resource, 0), where, 1) >= most:
                    what = f"its namespace holds all {most:,} GPUs that it may: no more pods are made there"
                    self._notes.add("ResourceQuota", key, where, what)


def _cohort(name: str, queues: Mapping[str, object]) -> str:
    """The name of a cohort; one that is called as a queue says so."""
    return f"{name} (cohort)" if name in queues else name


def _with_root(queues: list[Queue], root: str, capacity: Mapping[str, int]) -> list[Queue]:
    """The queues with a root that holds what of the cluster is none's own."""
    own: dict[str, int] = {}
    names = {queue.name for queue in queues}
    found = [queue if queue.parent in names or queue.name == root else replace(queue, parent=root) for queue in queues]
    for quota in (quota for queue in found for quota in queue.quotas if queue.name != root):
        own[quota.flavor] = own.get(quota.flavor, 0) + quota.nominal_milli
    rest = tuple(Quota(flavor, max(0, milli - own.get(flavor, 0))) for flavor, milli in capacity.items())
    kept = next((queue for queue in found if queue.name == root), Queue(root))
    return [replace(kept, parent="", quotas=rest), *(queue for queue in found if queue.name != root)]
