"""Means over time: the exact area, equal bins, the whole span, and never more than MOST_BINS of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.engine.placement import Placer
from muster.engine.state import FleetState
from muster.model.workload import PodSet, PodShape, Workload
from muster.policy.registry import find_policy
from muster.sim.replay import Replay
from muster.sim.time_bins import MOST_BINS, TimeBins
from muster.traces import read_fleet

steps = st.lists(st.tuples(st.floats(0, 1e6), st.integers(0, 10**6)), max_size=60)


@given(st.floats(-1e6, 1e6), steps)
def test_area_span_and_width(start: float, rows: list[tuple[float, int]]) -> None:
    bins, at, area = TimeBins(start, 2), start, 0.0
    for passed, value in rows:
        area += value * (at + passed - at)
        at += passed
        bins.hold(at, (value, 1))
    means = bins.means()
    assert len(means) <= MOST_BINS
    assert sum((end - begin) * values[0] for begin, end, values in means) == pytest.approx(area, rel=1e-6, abs=1e-3)
    for begin, end, values in means:
        assert end - begin <= bins.width_s * (1 + 1e-6) + 1e-9
        assert values[1] == pytest.approx(1, rel=1e-6)
    if means:
        assert (means[0][0], means[-1][1]) == (start, pytest.approx(at))
        assert len(means) > MOST_BINS // 2 - 1 or at - start < 1


def test_what_holds_for_long_counts_for_long() -> None:
    """Many events in the first second, none for a long time after: the mean of the series is that of the table."""
    jobs = [
        Workload(f"short-{at}", (PodSet(PodShape(gpus=1)),), submitted_s=at / 2000, duration_s=0.4)
        for at in range(2000)
    ]
    jobs.append(Workload("long", (PodSet(PodShape(gpus=1)),), submitted_s=1.0, duration_s=1e6))
    fleet = read_fleet("uniform:nodes=1,gpus=4,model=T4")[0]

    def placer(state: FleetState) -> Placer:
        return Placer(state, find_policy("best-fit").load_score())

    result = Replay(fleet, jobs, placer).run()
    spans = [end - start for start, end, *_ in result.series]
    used = sum(span * row[2] for span, row in zip(spans, result.series, strict=True)) / sum(spans)
    assert used / 4000 == pytest.approx(result.gpu_utilisation)
    assert result.series[0][0] == 0
    assert result.series[-1][1] == pytest.approx(result.makespan_s)
    assert result.series[-1][2] == 1000
    assert result.gpu_most_milli == 4000
