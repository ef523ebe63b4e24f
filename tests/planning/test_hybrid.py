"""What two systems beside each other cost: the closed forms, by hand and against counting second by second."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.planning.hybrid import Spell, bring_up_cost, moves, stranded, yearly_cost


def test_gpus_beside_waiting_work_by_hand() -> None:
    # side 0 has 8 GPUs and 6 free; from 10 to 30 s work of 4 GPUs waits on side 1: 4 GPUs for 20 of 40 s
    spells = [Spell(0, 2, 0, 0, 40), Spell(1, 8, 0, 0, 30), Spell(1, 4, 10, 30, 40)]
    assert stranded(spells, [8, 8], 0, 40) == pytest.approx(4 * 20 / 40)


def test_what_waits_beside_its_own_free_gpus_is_not_stranded_by_the_split() -> None:
    assert stranded([Spell(0, 8, 0, math.inf, math.inf)], [8], 0, 10) == 0


spells = st.lists(
    st.builds(
        lambda side, gpus, at, wait, length: Spell(side, gpus, at, at + wait, at + wait + length),
        st.integers(0, 1), st.integers(1, 4), st.integers(0, 20), st.integers(0, 10), st.integers(1, 15),
    ),
    max_size=8,
)  # fmt: skip


@given(spells)
def test_it_is_what_one_counts_second_by_second(some: list[Spell]) -> None:
    capacity, total = [16.0, 16.0], 0.0
    for second in range(5, 40):
        at = second + 0.5
        busy = [sum(s.gpus for s in some if s.side == side and s.started_s <= at < s.ended_s) for side in (0, 1)]
        waits = [sum(s.gpus for s in some if s.side == side and s.submitted_s <= at < s.started_s) for side in (0, 1)]
        total += min(max(0, 16 - busy[0]), waits[1]) + min(max(0, 16 - busy[1]), waits[0])
    assert stranded(some, capacity, 5, 40) == pytest.approx(total / 35)


def test_nodes_that_change_sides_follow_the_peaks_of_days() -> None:
    day = 86400.0
    some = [Spell(1, 8, 0, 0, 3600), Spell(1, 24, day, day, day + 3600), Spell(1, 16, 2 * day, 2 * day, 2 * day + 60)]
    assert moves(some, 8, 0, 3 * day) == pytest.approx((2 + 1) / 2)  # peaks of 1, 3 and 2 nodes


def test_money_by_hand() -> None:
    assert yearly_cost(2, 8, 2.5, 3.5, 2, 180_000) == pytest.approx(2 * 8 * 8760 * 2.5 + 1.5 * 180_000)
    assert bring_up_cost(55, 2, 220_000) == pytest.approx(110_000)
