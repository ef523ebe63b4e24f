"""GPUs that jobs hold and do not use: of a Ray cluster whose tasks have ended, of workers that an autoscaler keeps."""

from __future__ import annotations

import math

from muster.sim.carrier import WHOLE
from muster.sim.cluster_run import ClusterRun


def held_idle_hours(run: ClusterRun) -> dict[int, float]:
    """For each job whose use is known (`RunOptions.busy`) the GPU-hours that it held beyond what it used.

    Use counts from the first start. Before the first step all that is held is in use.
    """
    hours: dict[int, float] = {}
    for each in run.holdings:
        steps = run.options.busy.get(run.workloads[each.job].name)
        if not steps or each.pod != WHOLE:
            continue
        began_s = run.stories[each.job].started_s
        held_until_s = run.now_s if math.isnan(each.end_s) else min(each.end_s, run.now_s)
        ends = [*(began_s + from_s for from_s, _ in steps[1:]), math.inf]
        idle_milli_s = 0.0
        for (from_s, gpus), until_s in zip(steps, ends, strict=True):
            span_s = min(until_s, held_until_s) - max(began_s + from_s, each.start_s)
            idle_milli_s += max(0.0, span_s) * max(0.0, each.gpu_milli - 1000 * gpus)
        hours[each.job] = hours.get(each.job, 0.0) + idle_milli_s / 3_600_000
    return hours
