"""The page: self-contained, escaped, small enough; the map of the fleet; published curves; where files go."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from muster.errors import InputError
from muster.report.files import PLOT_SUFFIXES, REPORT_SUFFIXES, check_target, to_png, write_plot
from muster.report.fleet_map import FleetNode, fleet_map
from muster.report.page import Cell, Commands, Figure, Pictures, Report, Section, Table, to_html
from muster.report.palette import BLUE
from muster.report.published import plain_policy, plain_workload, read_published
from muster.report.simulation import Setup, simulation_report
from muster.report.svg import Curve, line_chart, to_svg
from muster.sim.details import CURVES
from muster.sim.sweep import Task, perform

EVIL = "<script>alert('x')</script>&\""
VOID = {"meta", "path", "rect", "circle", "br"}


class Balance(HTMLParser):
    """Checks that every element is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def checked(html: str) -> set[str]:
    """The elements of a page that is well formed and asks nothing of the network; fails on others."""
    balance = Balance()
    balance.feed(html)
    assert balance.open == []
    assert not re.search(r"""(src|href)\s*=|url\((?!#)|@import|<link|<script|<iframe|https?://""", html)
    return balance.seen


def node(index: int, gpus: int = 8, name: str = "") -> FleetNode:
    free = tuple((index * 37 + device * 211) % 1001 for device in range(gpus))
    return FleetNode(name or f"node-{index:05d}", f"{gpus} x G", free, 96000, 1000 * (index % 96), 2**39, 2**38)


def page(**changed: object) -> Report:
    chart = line_chart(EVIL, [Curve(EVIL, ((0.0, 1.0), (1.0, 2.0)), BLUE)], x_label=EVIL, y_label=EVIL)
    blocks = (
        Table((EVIL, "n"), ((EVIL, Cell(EVIL)), ("b", "2")), 1, EVIL),
        Figure(chart, EVIL),
        Figure(chart, EVIL, folded=True),
        Pictures((chart, chart), EVIL),
        Commands(((EVIL, f"muster {EVIL}"),)),
        Figure(fleet_map(EVIL, [node(1, name=EVIL)])),
    )
    return Report(EVIL, (EVIL,), ((EVIL, EVIL),), (Section(EVIL, (EVIL,), blocks),), EVIL)


def test_the_page_is_whole_escaped_and_alone() -> None:
    html = to_html(page())
    seen = checked(html)
    assert {"main", "section", "table", "figure", "figcaption", "details", "svg", "pre"} <= seen
    assert html.count("&lt;script&gt;") > 15
    assert html.startswith("<!doctype html>")
    assert "prefers-color-scheme:dark" in html
    assert "@media print" in html
    assert html == to_html(page())


def test_an_empty_page() -> None:
    assert "main" in checked(to_html(Report("nothing")))


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_map_shows_each_node(count: int) -> None:
    picture = fleet_map("map", [node(index) for index in range(count)])
    root = ElementTree.fromstring(to_svg(picture))
    titles = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == count
    assert all("of 8 GPUs free" in title for title in titles)
    assert ("no nodes" in to_svg(picture)) == (count == 0)


def test_the_map_colours_each_device_by_how_full_it_is() -> None:
    one = FleetNode("n", "5 x G", (1000, 900, 500, 100, 0), 1000, 0, 0, 0)
    text = to_svg(fleet_map("map", [one, FleetNode("c", "no GPU", (), 4000, 1000, 2**30, 0)]))
    cells = re.findall(r"<g transform[^>]*><title>(\w): ([^<]*)</title>(.*?)</g>", text)
    assert [(name, re.findall(r'class="(fill\d)"', drawn)) for name, _, drawn in cells] == [
        ("n", ["fill0", "fill1", "fill2", "fill3", "fill4"]),
        ("c", ["fill3"]),
    ]
    assert cells[0][1].startswith("2.5 of 5 GPUs free, 0 of 1 CPU free")
    assert cells[1][1].startswith("1 of 4 CPU free")


def test_a_large_fleet_stays_small_and_a_huge_one_is_thinned() -> None:
    picture = fleet_map("m", [node(index) for index in range(5000)])
    html = to_html(Report("big", sections=(Section("map", blocks=(Figure(picture),)),)))
    assert len(html.encode()) < 3_000_000
    assert html.count("GPUs free,") >= 5000
    huge = to_svg(fleet_map("m", [node(index, gpus=1) for index in range(20_000)]))
    assert "one node in 4 is drawn" in huge
    assert huge.count("<title>") == 5000


HEAD = "workload,sc_policy,tune,seed,total_gpus,0,50,100\n"
ROWS = (
    "openb_pod_list_cpu250,05-BestFit,1.3,42,6212,0.2,50,90\nopenb_pod_list_cpu250,05-BestFit,1.3,43,6212,0.4,50,91\n"
)


def test_published_curves_are_matched_and_averaged(tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    path.write_text(HEAD + ROWS + "openb_pod_list_default,06-FGD,1.3,42,6212,0.2,50,95\n")
    (curve,) = read_published(str(path), ["pods_cpu250"], ["default", "best-fit"])
    assert (curve.workload, curve.policy, curve.runs) == ("pods_cpu250", "best-fit", 2)
    assert [(x, pytest.approx(y)) for x, y in curve.points] == [(0, 0.3), (50, 50), (100, 90.5)]
    assert plain_workload("openb_pod_list_default") == plain_workload("pods_default") == "default"
    assert plain_policy("02-DotProd") == "dot-product"
    assert plain_policy("07-Mine") == "Mine"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column workload"),
        ("a,b\n1,2\n", "no column workload"),
        (HEAD, "no curve of these"),
        (HEAD + ROWS.replace("cpu250", "other"), "it has openb_pod_list_other under best-fit"),
        (HEAD + ROWS.replace(",90\n", ",much\n"), ":2: field '100': is no percentage (much)"),
        (HEAD + ROWS.replace(",90\n", ",nan\n"), "is no percentage"),
        (HEAD + "openb_pod_list_cpu250,05-BestFit,1.3,42,6212\n", "has no figures"),
    ],
)
def test_published_mistakes_name_the_place(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "published.csv"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_published(str(path), ["pods_cpu250"], ["best-fit"])
    assert said in str(caught.value)
    with pytest.raises(InputError, match="cannot be read"):
        read_published(str(tmp_path / "missing.csv"), ["a"], ["b"])
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not a CSV"):
        read_published(str(path), ["a"], ["b"])


def test_the_published_file_itself(shared_data: object) -> None:
    path = shared_data("openb/published_allocation.csv")  # type: ignore[operator]
    curves = read_published(str(path), ["pods_default"], ["fgd", "random", "default"])
    assert [(curve.policy, curve.runs) for curve in curves] == [("fgd", 10), ("random", 10)]
    assert len(curves[0].points) == 131


def test_targets_are_checked(tmp_path: Path) -> None:
    check_target(str(tmp_path / "a.html"), REPORT_SUFFIXES, "--report")
    check_target(str(tmp_path / "A.SVG"), PLOT_SUFFIXES, "--plot")
    (tmp_path / "dir.svg").mkdir()
    for name, said in (("a.pdf", "unknown kind"), ("a", "no suffix"), ("no/a.svg", "folder"), ("dir.svg", "directory")):
        with pytest.raises(InputError, match=said):
            check_target(str(tmp_path / name), PLOT_SUFFIXES, "--plot")


def test_png(tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    chart = line_chart("t", [Curve("a", ((0.0, 1.0), (1.0, 2.0)), BLUE)], x_label="x", y_label="y")
    write_plot(str(tmp_path / "a.png"), chart)
    data = (tmp_path / "a.png").read_bytes()
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    assert (int.from_bytes(data[16:20]), int.from_bytes(data[20:24])) == (1440, 800)
    assert data == to_png(to_svg(chart))
    assert len(to_png(to_svg(line_chart("", [], x_label="", y_label="")))) < len(data)


def test_png_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util
    import sys

    monkeypatch.setitem(sys.modules, "resvg_py", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"pip install '\.\[png\]'"):
        check_target(str(tmp_path / "a.png"), PLOT_SUFFIXES, "--plot")
    with pytest.raises(InputError, match=r"'\.\[png\]'"):
        to_png("<svg/>")


def test_a_policy_is_called_one_and_ten_seeds_are_not_asked_for_again() -> None:
    def told(seeds: int) -> str:
        tasks = [
            Task(
                "uniform:nodes=2,gpus=2,model=T4", "generate:mix=default,pods=30,seed=1", "best-fit", seed, 1.3, CURVES
            )
            for seed in range(seeds)
        ]
        return to_html(simulation_report([perform(task) for task in tasks], Setup("c", "v", "f", ("w",), "f", "w")))

    few, ten = told(2), told(10)
    assert "ten seeds instead of few" in few
    assert "ten seeds" not in ten
    assert ", policy best-fit has allocated" in few


def test_words_stand_left_and_numbers_right_under_the_title_of_their_table() -> None:
    table = Table(("gap", "GPUs", "what closes it"), (("free", "2", "lend what is idle"),), words=(2,), title="Gaps")
    page = to_html(Report(title="t", sections=(Section("s", blocks=(table,)),)))
    assert page.index("<h3>Gaps</h3>") < page.index('<td class="right">2</td><td>lend what is idle</td>')
