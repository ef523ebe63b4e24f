"""The page of a replay: means over spans of time, the first seed drawn, all seeds in the table."""

from __future__ import annotations

import re

import pytest

from muster.report.page import to_html
from muster.report.replay import ReplayRun, ReplaySetup, figure_text, replay_plot, replay_report
from muster.report.scale import duration, text_width
from muster.report.svg import to_svg

SERIES = ((100.0, 200.0, 0.0, 0.0, 0.0), (200.0, 300.0, 4000.0, 3.0, 500.0), (300.0, 350.0, 8000.0, 6.0, 1000.0))


def run(policy: str, seed: int = 1, gpu_milli: int = 8000, series: object = SERIES) -> ReplayRun:
    return ReplayRun("w", policy, seed, gpu_milli, 1000, series, (("jobs", "3"),))  # type: ignore[arg-type]


def test_a_mean_is_drawn_over_its_whole_time() -> None:
    text = to_svg(replay_plot([run("fgd")]))
    (use, waiting) = re.findall(r"<title>fgd</title><path[^>]* d=\"([^\"]*)\"", text)
    points = [tuple(map(float, pair)) for pair in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", use)]
    (x0, y0), (x1, y1), (x2, y2), (x3, y3), (x4, y4), (x5, y5) = points
    assert (y1, x2) == (y0, x1)
    assert (y3, x4, y5) == (y2, x3, y4)
    assert x1 - x0 == pytest.approx(x3 - x2, abs=0.2)
    assert x3 - x2 == pytest.approx(2 * (x5 - x4), abs=0.3)
    assert y0 - y2 == pytest.approx(y2 - y4, abs=0.2)
    assert use != waiting
    assert "GPUs in use" in text


def test_the_first_seed_is_drawn_and_all_are_told() -> None:
    html = to_html(replay_report([run("fgd", 1), run("fgd", 2), run("<b>", 1)], ReplaySetup("c", "v", "f", ("w",))))
    assert html.count("<title>fgd</title>") == 2
    assert html.count("<td>fgd</td>") == 2
    assert "&lt;b&gt;" in html
    assert "<b>" not in html


@pytest.mark.parametrize("series", [(), SERIES[:1], SERIES])
def test_odd_lengths(series: tuple[tuple[float, ...], ...]) -> None:
    text = to_svg(replay_plot([run("fgd", gpu_milli=0, series=series)]))
    assert "CPU in use" in text
    assert "nan" not in text
    assert "section" in to_html(replay_report([], ReplaySetup("c", "v", "f", ())))


def test_figures_in_words() -> None:
    assert [figure_text(0.04, "%"), figure_text(87.46, "%"), figure_text(12345.6, "s")] == ["0 %", "87.5 %", "12,346 s"]


def test_long_numbers_have_room_beside_the_axis() -> None:
    waiting = tuple((float(at), at + 1.0, 0.0, 1_500_000.0 * at, 0.0) for at in range(3))
    text = to_svg(replay_plot([run("fgd", series=waiting)]))
    (x,) = {float(x) for x in re.findall(r'x="([\d.]+)" y="[\d.]+" text-anchor="end">2,000,000<', text)}
    assert x - text_width("2,000,000") >= 12


def test_waits_are_in_the_unit_that_suits() -> None:
    assert [duration(seconds) for seconds in (45, 1200, 12240, 1054080)] == ["45 s", "20 min", "3.4 h", "12.2 d"]
