"""Named settings that behave like schedulers that people have, to compare them on one's own work.

Each is Muster's own cycle with other settings: it takes over the rules named in its docstring, and no more. It is no
emulator. Sources are the projects' own documents: Kueue's cluster queue and preemption pages, slurm.conf(5), Volcano's
scheduler configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def muster() -> dict[str, Any]:
    """Muster's defaults: all of a gang or nothing, fair share, a reserved start, backfill, reclaim and preemption."""
    return {}


def kueue_like() -> dict[str, Any]:
    """Kueue with BestEffortFIFO queues, reclaim within the cohort and preemption of lower priority within a queue.

    Imitated: quotas with borrowing and lending in a tree of cohorts; a workload is admitted whole; in a queue priority,
    then age; what does not fit is passed by what does, without any reservation, so a large gang can wait forever.

    Not: Kueue admits on quota alone and leaves nodes to the pod scheduler, which can leave an admitted gang in part
    without room (unless topology-aware scheduling is on); here a gang is placed when it is admitted. Victims are
    chosen by lost work, where Kueue takes the lowest priority and the latest admission. Pods are packed, where
    Kubernetes spreads them unless told otherwise. Admission fair sharing and flavor fungibility are left out.
    Topology requests are Muster's; nobody looks at ranks of a job, or keeps domains whole.
    """
    return {
        "keep_whole": "",
        "rank_groups": False,
        "ordering": "fifo",
        "queueing": "best-effort",
        "reclaim": True,
        "preempt_lower_priority": True,
        "defragment": False,
    }


def slurm_like() -> dict[str, Any]:
    """Slurm with sched/backfill, Fair Tree, hard time limits and PreemptType=preempt/none.

    Imitated: priority, then Fair Tree; in that order each of the first 500 jobs that wait for nodes, not for quota,
    gets a reserved start (bf_max_job_test as delivered), and others run now only if they delay none of them; past use
    is decayed with a half-life of 7 days; a job is killed at its limit; a job without a limit is taken to run for a
    day; nothing is stopped or moved for others.

    Not: the weighted sum of the multifactor plugin (priority, share and age are compared in turn); bf_window,
    bf_interval and the two separate scheduling loops; partitions, limits of QOS and associations; job size as a factor.
    Nobody looks at ranks of a job (a segment says as much), or keeps domains whole for others. Where hundreds of jobs
    wait for a thousand nodes and more, a cycle takes about a second; fewer ``reservations`` make it short.
    """
    return {
        "keep_whole": "",
        "rank_groups": False,
        "ordering": "slurm-fair-tree",
        "queueing": "backfill",
        "reservations": 500,
        "half_life_s": 7 * 86400.0,
        "predict": "never",
        "run_s": 86400.0,
        "reclaim": False,
        "preempt_lower_priority": False,
        "defragment": False,
    }


def volcano_like() -> dict[str, Any]:
    """Volcano as it is delivered: the actions enqueue, allocate and backfill; the plugins priority, gang and drf.

    Imitated: a pod group starts with all its pods or not at all; priority, then the least dominant share of what runs
    now; what does not fit is passed by what does. Its reclaim and preempt actions are off unless they are asked for.

    Not: the proportion plugin's deserved shares (quotas are Muster's); the enqueue gate with its overcommit factor;
    Volcano's backfill action only places pods that ask for nothing, which do not occur here; nodeorder's weights;
    hypernodes (topology requests are Muster's, and nobody looks at ranks or keeps domains whole).
    """
    return {
        "keep_whole": "",
        "rank_groups": False,
        "ordering": "drf",
        "queueing": "best-effort",
        "reclaim": False,
        "preempt_lower_priority": False,
        "defragment": False,
    }


PRESETS: Mapping[str, Callable[[], dict[str, Any]]] = {
    "muster": muster,
    "kueue-like": kueue_like,
    "slurm-like": slurm_like,
    "volcano-like": volcano_like,
}
"""Name of a preset to the settings of `muster.engine.config.Config` in which it differs from the defaults."""
