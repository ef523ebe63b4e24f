"""The page of a replay: steps that hold until the next sample, the first seed drawn, all seeds in the table."""

from __future__ import annotations

import re

import pytest

from muster.report.page import to_html
from muster.report.replay import ReplayRun, ReplaySetup, figure_text, replay_plot, replay_report
from muster.report.svg import to_svg

SERIES = ((100.0, 0, 0, 0), (200.0, 4000, 3, 500), (300.0, 8000, 6, 1000))


def run(policy: str, seed: int = 1, gpu_milli: int = 8000, series: object = SERIES) -> ReplayRun:
    return ReplayRun("w", policy, seed, gpu_milli, 1000, series, (("jobs", "3"),))  # type: ignore[arg-type]


def test_samples_hold_until_the_next() -> None:
    text = to_svg(replay_plot([run("fgd")]))
    (use, waiting) = re.findall(r"<title>fgd</title><path[^>]* d=\"([^\"]*)\"", text)
    points = [tuple(map(float, pair)) for pair in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", use)]
    (x0, y0), (x1, y1), (x2, y2), (x3, y3), (x4, y4) = points
    assert (y1, x2) == (y0, x1)
    assert (y3, x4) == (y2, x3)
    assert x1 - x0 == pytest.approx(x3 - x2, abs=0.2)
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
def test_odd_lengths(series: tuple[tuple[float, int, int, int], ...]) -> None:
    text = to_svg(replay_plot([run("fgd", gpu_milli=0, series=series)]))
    assert "CPU in use" in text
    assert "nan" not in text
    assert "section" in to_html(replay_report([], ReplaySetup("c", "v", "f", ())))


def test_figures_in_words() -> None:
    assert [figure_text(0.04, "%"), figure_text(87.46, "%"), figure_text(12345.6, "s")] == ["0 %", "87.5 %", "12,346 s"]
