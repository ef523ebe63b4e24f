"""Charts: the points lie where the numbers say, names are escaped, odd sizes do no harm."""

from __future__ import annotations

import math
import re
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from muster.report.palette import (
    BLUE,
    CAUSE_COLOURS,
    COLOURS,
    FILL,
    GREEN,
    POLICY_COLOURS,
    VERMILION,
    fill_level,
    policy_colour,
)  # fmt: skip
from muster.report.scale import Scale, nice_ticks, number, outward, spread
from muster.report.svg import Area, Curve, Picture, grid, line_chart, stacked_area_chart, to_svg

SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: Picture) -> ElementTree.Element:
    return ElementTree.fromstring(to_svg(picture))


def points_of(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)]


def line_of(picture: Picture, name: str) -> list[tuple[float, float]]:
    for group in parsed(picture).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        if title is not None and title.text == name:
            path = group.find(f"{SVG}path")
            assert path is not None
            return points_of(path.attrib["d"])
    raise AssertionError(name)


def texts(picture: Picture) -> dict[str, tuple[float, float]]:
    found = parsed(picture).iter(f"{SVG}text")
    return {"".join(one.itertext()): (float(one.attrib["x"]), float(one.attrib["y"])) for one in found}


def test_points_lie_where_the_numbers_say() -> None:
    curve = Curve("a", ((0.0, 0.5), (5.0, 0.25), (10.0, 1.0)), BLUE)
    chart = line_chart("t", [curve], x_label="x", y_label="y", x_range=(0, 10), y_range=(0.25, 1.25))
    drawn, where = line_of(chart, "a"), texts(chart)
    # a tick's text is centred on its x; on the other axis its base line is 4 pixels below its y
    assert drawn[0][0] == pytest.approx(where["0"][0], abs=0.2)
    assert drawn[2] == pytest.approx((where["10"][0], where["1"][1] - 4), abs=0.2)
    assert drawn[1][0] == pytest.approx((drawn[0][0] + drawn[2][0]) / 2, abs=0.2)
    assert drawn[1][1] - drawn[0][1] == pytest.approx((drawn[0][1] - drawn[2][1]) / 2, abs=0.2)


def test_the_band_surrounds_its_curve() -> None:
    curve = Curve("a", ((0.0, 5.0), (10.0, 6.0)), BLUE, band=((0.0, 4.0, 7.0), (10.0, 5.0, 9.0)))
    chart = line_chart("t", [curve], x_label="x", y_label="y", y_range=(0, 10))
    bands = [path for path in parsed(chart).iter(f"{SVG}path") if "fill-opacity" in path.attrib]
    (left_high, right_high, right_low, left_low) = points_of(bands[0].attrib["d"])
    left, right = line_of(chart, "a")
    assert left_high[1] < left[1] < left_low[1]
    assert right_high[1] < right[1] < right_low[1]


def test_names_at_the_end_do_not_overlap_and_stay_inside() -> None:
    curves = [Curve(f"policy {index}", ((0.0, 1.0), (1.0, 90.0 + index / 10)), GREEN) for index in range(7)]
    chart = line_chart("t", curves, x_label="x", y_label="y", y_range=(0, 100))
    found = sorted((at for name, at in texts(chart).items() if name.startswith("policy")), key=lambda at: at[1])
    assert len(found) == 7
    assert min(after[1] - before[1] for before, after in pairwise(found)) >= 14
    assert all(0 < y < chart.height for _, y in found)


@pytest.mark.parametrize(
    "points",
    [
        (),
        ((3.0, 4.0),),
        ((0.0, 5.0), (1.0, 5.0)),
        ((0.0, math.nan), (1.0, 2.0)),
        ((0.0, math.inf), (1.0, 1e12)),
        ((0.0, -1e-9), (1e-9, 0.0)),
    ],
)
def test_odd_curves_still_give_a_picture(points: tuple[tuple[float, float], ...]) -> None:
    chart = line_chart("t", [Curve("a", points, BLUE)], x_label="x", y_label="y", diagonal="equal")
    text = to_svg(chart)
    ElementTree.fromstring(text)
    assert "nan" not in text
    assert "inf" not in text.replace("infty", "")
    assert ("no data" in text) == (not points)
    assert ("<circle" in text) == (len([y for _, y in points if math.isfinite(y)]) == 1)


def test_no_curve_at_all() -> None:
    assert "no data" in to_svg(line_chart("t", [], x_label="x", y_label="y"))
    assert "no data" in to_svg(stacked_area_chart("t", [], [], x_label="x", y_label="y"))


def test_layers_stand_on_one_another() -> None:
    areas = [Area("low", (1.0, 1.0), BLUE), Area("none", (0.0, 0.0), GREEN), Area("high", (2.0, 3.0), VERMILION)]
    chart = stacked_area_chart("t", [0.0, 10.0], areas, x_label="x", y_label="y", y_range=(0, 4))
    layers = [path for path in parsed(chart).iter(f"{SVG}path") if path.attrib["fill"] == "currentColor"]
    assert len(layers) == 2
    low, high = (points_of(layer.attrib["d"]) for layer in layers)
    bottom, top = low[-1][1], 52.0
    assert low[0][1] == pytest.approx(bottom - (bottom - top) / 4, abs=0.1)
    assert high[1][1] == pytest.approx(top, abs=0.1)
    assert high[2] == low[1]  # the upper layer begins where the lower one ends
    assert "none" not in texts(chart)


def test_everything_is_escaped() -> None:
    evil = "<script>alert('x')</script>&\""
    chart = line_chart(evil, [Curve(evil, ((0.0, 1.0), (1.0, 2.0)), BLUE)], x_label=evil, y_label=evil, diagonal=evil)
    areas = stacked_area_chart(evil, [0.0, 1.0], [Area(evil, (1.0, 2.0), BLUE)], x_label=evil, y_label=evil)
    for picture in (chart, areas, grid([chart, areas], 2, evil)):
        assert "<script" not in to_svg(picture)
        assert "<script" not in to_svg(picture, standalone=False)
        assert parsed(picture).attrib["aria-label"] == evil
        assert any(name.startswith("<script>") for name in texts(picture))


def test_a_grid_holds_all_and_the_same_input_gives_the_same_bytes() -> None:
    def drawn() -> Picture:
        charts = [
            line_chart(f"t{index}", [Curve("a", ((0.0, 1.0), (1.0, 2.0)), BLUE)], x_label="x", y_label="y")
            for index in range(3)
        ]
        return grid(charts, 2, "all")

    assert (drawn().width, drawn().height) == (1440, 800)
    assert to_svg(drawn()) == to_svg(drawn())
    assert grid([], 2, "none").height == 0


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (60, 130, [60, 80, 100, 120]),
        (0, 0.3, [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        (-3, 3, [-3, -2, -1, 0, 1, 2, 3]),
    ],
)
def test_nice_ticks(low: float, high: float, expected: list[float]) -> None:
    assert nice_ticks(low, high) == pytest.approx(expected)


def test_scales_and_numbers() -> None:
    assert Scale(0, 10, 100, 200)(5) == 150
    assert len(nice_ticks(5, 5)) > 1
    assert len(nice_ticks(math.nan, 1)) > 1
    assert outward(61, 98) == (60, 100)
    assert [number(value) for value in (12500.0, 0.5, -0.0, 1e-3)] == ["12,500", "0.5", "0", "0.001"]
    assert spread([10, 10, 10], 5, 0, 100) == [5, 10, 15]
    assert spread([1, 2], 5, 0, 100) == [0, 5]
    assert spread([], 5, 0, 1) == []


def test_each_policy_and_cause_has_its_colour() -> None:
    from muster.policy.fragmentation import CAUSES
    from muster.policy.registry import POLICIES

    assert set(POLICIES) == set(POLICY_COLOURS)
    assert len(set(POLICY_COLOURS.values())) == len(POLICY_COLOURS)
    assert set(CAUSES) == set(CAUSE_COLOURS)
    assert policy_colour("mine") == policy_colour("mine") in COLOURS
    assert [fill_level(free, 1000) for free in (1000, 900, 500, 100, 0)] == [0, 1, 2, 3, 4]
    assert fill_level(0, 0) == len(FILL) - 1
