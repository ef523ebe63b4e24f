"""The chart of when jobs run, as it is and then."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest

from muster.answers.whatif import Waits
from muster.report.gantt import MOST_ROWS, NAMED_ROWS, JobRow, gantt
from muster.report.svg import to_svg
from muster.report.whatif import MOST_GROUPS, shown_groups


def rows(count: int) -> list[JobRow]:
    return [
        JobRow(f"job-{at:04d}", ((60.0 * at, 60.0 * at + 600),), ((30.0 * at, 30.0 * at + 600),), -30.0 * at)
        for at in range(count)
    ]


def bars(svg: str) -> list[tuple[float, float, float, float]]:
    """x, y, width and height of all bars below the legend."""
    found = re.findall(r'<rect class="c-\w+" [^>]*?x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg)
    numbers = [tuple(map(float, each)) for each in found]
    return [(x, y, wide, tall) for x, y, wide, tall in numbers if y > 60]


@pytest.mark.parametrize("count", [1, 30, NAMED_ROWS, 200, MOST_ROWS, 3 * MOST_ROWS])
def test_every_row_has_two_bars_that_touch_no_other(count: int) -> None:
    picture = gantt("when jobs run", rows(count), 60.0 * count + 600)
    svg = to_svg(picture)
    ET.fromstring(svg)
    drawn = bars(svg)
    assert len(drawn) == 2 * min(count, MOST_ROWS)
    for (_, upper_y, _, upper), (_, lower_y, _, _) in pairwise(drawn):
        assert upper_y + upper <= lower_y + 0.11
    assert all(wide >= 1.5 and x + wide <= picture.width for x, _, wide, _ in drawn)
    assert picture.height < 6.5 * MOST_ROWS


@pytest.mark.parametrize("count", [5, NAMED_ROWS, 200, MOST_ROWS])
def test_names_do_not_overlap_and_stand_beside_their_rows(count: int) -> None:
    svg = to_svg(gantt("t", rows(count), 60.0 * count + 600))
    names = re.findall(r'y="([\d.]+)" text-anchor="end" font-size="11">(job-\d+)<', svg)
    heights = [float(y) for y, _ in names]
    assert all(below - above >= 11 for above, below in pairwise(heights))
    if count <= NAMED_ROWS:
        assert len(names) == count
    first = {name: y for y, name in zip(heights, (name for _, name in names), strict=True)}
    tall = bars(svg)[2][1] - bars(svg)[0][1]
    for name, y in first.items():
        assert abs(y - 4 - (bars(svg)[2 * int(name[4:])][1] + tall / 2)) < 10


def test_where_rows_are_thin_the_jobs_that_move_most_are_named() -> None:
    moved = rows(200)
    moved[100] = JobRow("the-one", ((0.0, 60.0),), ((9e3, 9.1e3),), 9e3)
    assert "the-one" in to_svg(gantt("t", moved, 12600.0))


def test_of_many_groups_those_that_change_most_are_listed_in_their_order() -> None:
    base = [Waits(f"q{at:03d}", 1, 100.0, 0.0) for at in range(100)]
    then = [Waits(each.name, 1, 100.0 + (at % 7 == 0) * at, 0.0) for at, each in enumerate(base)]
    shown = shown_groups([base, then])
    assert len(shown) == MOST_GROUPS
    assert shown == sorted(shown)
    assert set(range(7, 100, 7)) <= set(shown)
    assert shown_groups([base[:MOST_GROUPS]]) == list(range(MOST_GROUPS))


def test_no_rows_and_odd_names_are_drawn_too() -> None:
    assert "no job waits" in to_svg(gantt("t", [], 0.0))
    long = JobRow("<" + "x" * 300 + "-7", ((0.0, 60.0),), (), 0.0, "a & b")
    svg = to_svg(gantt("t", [long], 3600.0))
    ET.fromstring(svg)
    assert "x-7<" in svg
    assert "a &amp; b" in svg
