"""The pods of a gang by rank: where the books have them, where the cluster has them, and whether both agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from muster.engine.running import RunningGang
from muster.engine.scheduler import Scheduler
from muster.kube.translate import Seen
from muster.model.snapshot import Running


def run_of(seen: Seen, now_s: float) -> Running | None:
    """What runs of a gang; an elastic one of which enough runs is taken to run at that size.

    Work of an elastic gang is anybody's: its bound pods are the first of their set.
    """
    run = seen.running
    if run is None or run.leaving_s is not None:
        return run if run is None else replace(run, leaving_s=max(run.leaving_s or 0.0, now_s))
    if not run.workload.elastic or not run.missing:
        return run
    missing, counts, rank = set(run.missing), list[int](), 0
    for pods in run.workload.pod_sets:
        counts.append(sum(each not in missing for each in range(rank, rank + pods.count)))
        rank += pods.count
    if any(count < pods.required for count, pods in zip(counts, run.workload.pod_sets, strict=True)):
        return run
    return replace(run, counts=tuple(counts), missing=())


def agree(scheduler: Scheduler, known: RunningGang, run: Running) -> bool:
    """Whether all pods that are bound stand where the books have them, and the books know of the gang what is so.

    Pods of an elastic gang stand for each other within their set.
    """
    work, other = known.workload, run.workload
    if (known.leaving_s, work.pod_sets, work.preemptible) != (run.leaving_s, other.pod_sets, other.preemptible):
        return False
    there = nodes_by_rank(scheduler, known)
    missing = set(run.missing)
    counts = run.counts or tuple(pods.count for pods in other.pod_sets)
    nodes = iter(run.pods)
    here = {rank: next(nodes).node for rank in range(sum(counts)) if rank not in missing}
    if not other.elastic:
        return all(there.get(rank) == node for rank, node in here.items())
    mine, its = _by_set(there, known.counts), _by_set(here, counts)
    return all(not (b - a) for a, b in zip(mine, its, strict=True))


def nodes_by_rank(scheduler: Scheduler, run: RunningGang) -> dict[int, str]:
    """Where the books have each pod of a gang."""
    names = scheduler.cluster.state.node_names
    missing = set(run.missing)
    ranks = (rank for rank in range(run.kind.count) if rank not in missing)
    return {rank: names[node] for rank, node in zip(ranks, run.rows[0].tolist(), strict=True)}


def _by_set(nodes: Mapping[int, str], counts: Sequence[int]) -> list[Counter[str]]:
    """How many pods of each pod set stand on each node."""
    found: list[Counter[str]] = []
    first = 0
    for count in counts:
        found.append(Counter(nodes[rank] for rank in range(first, first + count) if rank in nodes))
        first += count
    return found


def wanted(scheduler: Scheduler, run: RunningGang, seen: Seen, stands: Mapping[int, str]) -> dict[int, str]:
    """The node on which each pod of a gang, by its rank in ``seen``, is to be; of an elastic one some have one.

    ``stands`` is where each is bound, or is to be.
    """
    there = nodes_by_rank(scheduler, run)
    if not run.workload.elastic:
        return there
    found: dict[int, str] = {}
    first = 0
    for left, pods in zip(_by_set(there, run.counts), run.workload.pod_sets, strict=True):
        ranks = [rank for rank in range(first, first + pods.count) if seen.refs[rank].name]
        known = {rank: stands.get(rank, "") for rank in ranks}
        for rank in sorted(ranks, key=lambda rank: not known[rank]):  # those that stand somewhere first
            node = known[rank] if left[known[rank]] > 0 else ""
            if not known[rank]:
                node = next((name for name, count in left.items() if count > 0), "")
            if node:
                left[node] -= 1
                found[rank] = node
        first += pods.count
    return found
