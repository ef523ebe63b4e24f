"""What is said of a gang beside its pods, by the object that makes it; where that was not read, by its pods alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct, field

from muster.kube.groups import MIN_PARALLELISM, KubeJob, KubePluginGroup, KubePodGroup
from muster.kube.kinds import JOBS, PLUGIN_GROUPS, POD_GROUPS
from muster.kube.objects import KubePod, Meta, parse_time
from muster.kube.owners import Gang
from muster.kube.world import World


class Declared(Struct):
    """What is known of a gang.

    Attributes:
        meta: of the object that makes it; None where it was not read.
        counts: pods of each role at a time; empty: as many as there are.
        least: how many of all its pods must run together; None: all.
        at_least: how many pods there are before it may start at all.
        required: the node label in one value of which all pods must stand.
        queue, priority, priority_class: where the object says them itself.
        time_limit_s: how long it may run.
        suspended: whether it is not to start.
    """

    meta: Meta | None = None
    counts: dict[str, int] = field(default_factory=dict[str, int])
    least: int | None = None
    at_least: int = 0
    required: str = ""
    queue: str = ""
    priority: int | None = None
    priority_class: str = ""
    time_limit_s: float | None = None
    suspended: bool = False

    @property
    def created_s(self) -> float | None:
        """When the object was made."""
        return parse_time(self.meta.creation_timestamp) if self.meta is not None else None


def declared(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    """What is said of a gang."""
    reader = _READERS.get(gang.kind)
    return reader(gang, world, pods) if reader is not None else Declared()


def _job(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    """As many pods as the Job runs at a time, all of them together."""
    found = world.of(JOBS, KubeJob).get(f"{gang.namespace}/{gang.name}")
    if found is None:
        return Declared()
    spec = found.spec
    count = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is not None:
        count = min(count, max(0, spec.completions - (found.status.succeeded or 0)))
    least = found.metadata.annotation(MIN_PARALLELISM)
    return Declared(
        found.metadata,
        {"main": count},
        int(least) if least.isdigit() and 0 < int(least) < count else None,
        time_limit_s=None if spec.active_deadline_seconds is None else float(spec.active_deadline_seconds),
        suspended=bool(spec.suspend),
    )


def _pod_group(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    found = world.of(POD_GROUPS, KubePodGroup).get(f"{gang.namespace}/{gang.name}")
    if found is None:
        return Declared()
    spec = found.spec
    policy, constraints = spec.scheduling_policy, spec.scheduling_constraints
    least = policy.gang.min_count if policy is not None and policy.gang is not None else None
    keys = [each.key for each in (constraints.topology if constraints is not None else None) or () if each.key]
    return Declared(
        found.metadata,
        least=1 if least is None else least,
        at_least=least or 1,
        required=keys[0] if keys else "",
        priority=spec.priority,
        priority_class=spec.priority_class_name or "",
    )


def _plugin_group(gang: Gang, world: World, pods: Sequence[KubePod]) -> Declared:
    found = world.of(PLUGIN_GROUPS, KubePluginGroup).get(f"{gang.namespace}/{gang.name}")
    if found is None:
        return Declared()
    least = found.spec.min_member or 1
    return Declared(found.metadata, least=least, at_least=least)


_READERS: Mapping[str, Callable[[Gang, World, Sequence[KubePod]], Declared]] = {
    "Job": _job,
    "PodGroup": _pod_group,
    "PodGroup.scheduling.x-k8s.io": _plugin_group,
}
