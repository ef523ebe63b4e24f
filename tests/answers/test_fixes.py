"""Each fix that is proposed is made on a copy of the snapshot: the gang starts, at the price that was told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.answers.changes import Move, Stop, apply_changes
from muster.answers.fixes import Fix, fixes
from muster.answers.view import View
from muster.engine.decide import decide
from muster.model.plan import Evict, Migrate, Place, Resize
from muster.model.snapshot import Snapshot


def check(view: View, name: str, fix: Fix) -> None:
    """Make a fix, and decide as the scheduler would."""
    snapshot = apply_changes(view.snapshot, fix.changes)
    plan = decide(snapshot, view.now_s, View(snapshot).config)
    starts = [each.workload for each in plan.decisions if isinstance(each, Place)]
    told = f"{fix.title}: {'; '.join(map(str, fix.changes))}"
    if fix.kind == "wait" or fix.starts_in_s > view.config.stop_s:
        assert fix.kind in ("wait", "queue", "hold", "selector"), told
        return
    assert name in starts, f"it does not start after: {told}"
    known = set(view.plan.decisions)
    lost = {each.job: _lost(view, each.job) for each in fix.changes if isinstance(each, (Stop, Move))}
    for each in plan.decisions:
        if isinstance(each, (Evict, Migrate, Resize)) and each not in known and each.workload != name:
            more = each.lost_gpu_s if isinstance(each, Evict) else each.cost_gpu_s
            lost[each.workload] = lost.get(each.workload, 0.0) + more
    assert set(lost) == set(fix.displaced), told
    assert sum(lost.values()) == pytest.approx(fix.cost_gpu_s), told


def _lost(view: View, name: str) -> float:
    """What running work loses if it is stopped: since it was last saved, and its restart."""
    run = view.find(name).running
    assert run is not None
    saved_s = run.started_s if run.checkpointed_s is None else max(run.started_s, run.checkpointed_s)
    restart_s = run.workload.checkpointing.restart_s if run.workload.checkpointing else 0.0
    milli = sum(pod.gpu_milli * len(pod.devices) for pod in run.pods)
    return (max(0.0, view.now_s - saved_s) + restart_s) * milli / 1000


def check_all(snapshot: Snapshot, most: int = 3) -> None:
    """Check all fixes of the first gangs that wait."""
    view = View(snapshot)
    for name in list(view.scheduler.pending.gangs)[:most]:
        for fix in fixes(view, name, limit=100):
            check(view, name, fix)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_all_fixes_of_random_clusters_work(seed: int, random_snapshot: Callable[[int], Snapshot]) -> None:
    check_all(random_snapshot(seed))


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_all_fixes_of_many_random_clusters_work(seed: int, random_snapshot: Callable[[int], Snapshot]) -> None:
    check_all(random_snapshot(seed), 6)
