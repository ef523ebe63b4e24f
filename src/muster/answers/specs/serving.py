"""Pods, and what keeps a number of them running: Deployment, StatefulSet, ReplicaSet, LeaderWorkerSet.

Field names: kubernetes/api apps/v1 and core/v1, kubernetes-sigs/lws api/leaderworkerset/v1.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.answers.specs.objects import ObjectReader
from muster.errors import InputError
from muster.kube.declared import KUEUE_TOTAL as POD_GROUP_SIZE
from muster.kube.declared import LWS_EXCLUSIVE as EXCLUSIVE
from muster.kube.owners import KUEUE_GROUP as POD_GROUP
from muster.model.workload import PodSet, TopologyRequest, Workload

SUBGROUP_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/subgroup-exclusive-topology"
MOST_GROUPS = 10_000


def read_pod(reader: ObjectReader) -> list[Workload]:
    """A pod by itself."""
    return [reader.gang([reader.pod_set("", 1, "main")])]


def read_pod_group(readers: Sequence[ObjectReader]) -> list[Workload]:
    """Pods of one group of Kueue: a gang; those that ask for the same are one pod set."""
    first = readers[0]
    group = first.texts("metadata.labels")[POD_GROUP]
    told = first.texts("metadata.annotations").get(POD_GROUP_SIZE, "")
    where = f"metadata.annotations.{POD_GROUP_SIZE}"
    if not told.isdigit() or int(told) != len(readers):
        what = f"is {told[:20]!r}" if told else "is missing"
        raise first.document.error(
            where, f"{what}, and the file has {len(readers)} pods of group {group}", "all pods in one file"
        )
    counts: dict[PodSet, int] = {}
    for reader in readers:
        found = reader.pod_set("", 1, "main")
        counts[found] = counts.get(found, 0) + 1
        if reader is not first:
            first.topologies += reader.topologies
    sets = [
        PodSet(each.shape, count, role=f"pods-{at}" if len(counts) > 1 else "main")
        for at, (each, count) in enumerate(counts.items())
    ]
    first.name = group
    return [first.gang(sets)]


def read_replicas(reader: ObjectReader) -> list[Workload]:
    """A Deployment, ReplicaSet or StatefulSet: whether there is room for all its pods."""
    replicas = reader.count("spec.replicas", 1)
    if not replicas:
        raise reader.document.error("spec.replicas", "is 0: it asks for no pods")
    if replicas > 1:
        reader.note("spec.replicas", f"its pods start one by one; asked is whether all {replicas} have room at once")
    return [reader.gang([reader.pod_set("spec.template", replicas, "main")])]


def read_leader_worker_set(reader: ObjectReader) -> list[Workload]:
    """A LeaderWorkerSet: each of its groups is a gang of a leader and ``size`` - 1 workers."""
    where = "spec.leaderWorkerTemplate"
    groups, size = reader.count("spec.replicas", 1), reader.count(f"{where}.size", 1, 1)
    if not 0 < groups <= MOST_GROUPS:
        raise reader.document.error("spec.replicas", f"is {groups}", f"1 to {MOST_GROUPS:,} groups")
    if reader.at(f"{where}.leaderTemplate") is None:
        sets = [reader.pod_set(f"{where}.workerTemplate", size, "workers")]
    else:
        sets = [reader.pod_set(f"{where}.leaderTemplate", 1, "leader")]
        if size > 1:
            sets.append(reader.pod_set(f"{where}.workerTemplate", size - 1, "workers"))
    annotations = reader.texts("metadata.annotations")
    for key in (EXCLUSIVE, SUBGROUP_EXCLUSIVE):
        if annotations.get(key):
            _exclusive(reader, key, annotations[key], sets, size)
    first = reader.gang(sets, suffix="-0" if groups > 1 else "")
    return [first, *(reader.gang(sets, suffix=f"-{at}") for at in range(1, groups))]


def _exclusive(reader: ObjectReader, key: str, label: str, sets: Sequence[PodSet], size: int) -> None:
    """Each group, or each part of it, in one domain."""
    where = f"metadata.annotations.{key}"
    try:
        level = reader.places.level(label)
    except InputError as error:
        raise reader.document.error(where, error.what, error.hint) from None
    segment = 0
    if key == SUBGROUP_EXCLUSIVE:
        segment = reader.count("spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize", None, 1)
        if len(sets) > 1 or size % segment:
            what = "with a leader of its own template, or a size that is no multiple of it, is not read"
            raise reader.document.error("spec.leaderWorkerTemplate.subGroupPolicy.subGroupSize", what)
    if any(request is not None for _, request in reader.topologies):
        raise reader.document.error(where, "beside another topology request of the same pods", "one of them")
    reader.note(where, f"other groups are not kept out of its {level}: each may stand in any that has room")
    reader.whole = TopologyRequest(level, segment=segment if segment < size else 0)
