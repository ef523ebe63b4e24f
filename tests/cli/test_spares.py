from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from muster.answers.spares import failure_rate, spares_by_group
from muster.answers.view import View
from muster.catalog.reliability import FAILURE_RATES
from muster.catalog.sources import SOURCES
from muster.cli.main import run
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.snapshot import NodeFailure, Snapshot, save_snapshot

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "size-spares.md"


def muster(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(["spares", *args])
    out, err = capfd.readouterr()
    return ended.value.code, out, err


def fleet(nodes: int, spares: int, **more: object) -> Snapshot:
    devices = tuple(Device(index, "H100") for index in range(8))
    made = tuple(
        Node(f"n{number}", 96_000, 1 << 40, devices, topology=(f"b{number * 2 // nodes}",), spare=number < spares)
        for number in range(nodes)
    )
    return Snapshot(Fleet(made, Topology(("block",))), taken_s=1e6, **more)  # pyright: ignore[reportArgumentType]


@pytest.fixture
def snap(tmp_path: Path) -> str:
    path = str(tmp_path / "f.snap")
    save_snapshot(fleet(130, 2), path)
    return path


def test_the_page_is_what_it_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        run(["snapshot", "save", "--fleet", "uniform:nodes=128,gpus=8,model=H100,block=64", "-o", "fleet.snap"])
    code, out, _ = muster(capfd, "--from", "fleet.snap")
    told = re.search(r"\$ muster spares --from fleet.snap\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert told
    assert (code, out.startswith(told[1])) == (1, True)
    for each in FAILURE_RATES:
        assert f"| {each.cluster} | {each.per_1000_node_days:g} |" in PAGE.read_text()
        assert each.source in SOURCES


def test_what_is_needed_there_and_missing(snap: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = muster(capfd, "--from", snap, "--rate", "6.5", "-o", "json")
    document = json.loads(out)
    group = document["groups"][0]
    assert (code, document["schema"], document["rate_origin"]) == (1, "muster.spares/v1", "given")
    assert (group["nodes"], group["spares"], group["present"], group["missing"]) == (128, 7, 2, 5)
    assert group["mean_away"] == pytest.approx(128 * 0.0195 / 1.0195)
    assert [each["spares"] for each in group["steps"]] == [0, 1, 2, 3, 6, 7, 8, 9]
    code, out, _ = muster(capfd, "--from", snap, "--rate", "0.5", "--repair", "1d", "-o", "csv")
    assert code == 0
    assert [(row["spares"], row["missing"]) for row in csv.DictReader(io.StringIO(out))] == [("1", "0")]
    _, out, _ = muster(capfd, "--from", snap, "--mtbf", "200d", "--per", "block")
    assert "Failures: 5 of each 1,000 nodes in a day; as given." in out
    rows = [line.split() for line in out.splitlines()]
    assert ["H100", "b0", "63", "0.9", "4", "2", "2", "4"] in rows
    assert ["H100", "b1", "65", "1.0", "4", "0", "4", "4"] in rows


def test_failures_in_the_snapshot_count_if_there_are_enough() -> None:
    def rate(nodes: int, failed: int, ago_s: float) -> tuple[str, float]:
        failures = tuple(NodeFailure(f"n{number}", f"w{number}", 1e6 - ago_s) for number in range(failed))
        found = failure_rate(View(fleet(nodes, 0, failures=failures)))
        return found.origin, found.per_node_day

    assert rate(1000, 10, 60.0) == ("measured", pytest.approx(10 / 1000 * 24))
    assert rate(1000, 9, 60.0) == ("catalog", 0.0065)
    assert rate(1000, 20, 7200.0) == ("catalog", 0.0065), "those that count no more"
    assert failure_rate(View(fleet(5, 0)), 0.001).origin == "given"


def test_a_spare_that_is_down_is_none() -> None:
    snapshot = fleet(64, 4)
    nodes = (replace(snapshot.fleet.nodes[0], schedulable=False), *snapshot.fleet.nodes[1:])
    view = View(replace(snapshot, fleet=replace(snapshot.fleet, nodes=nodes)))
    group = spares_by_group(view, failure_rate(view), 3.0, 0.99)[0]
    assert (group.need.nodes, group.present) == (60, 3)


MISTAKES = [
    (("--rate", "5", "--mtbf", "3d"), "give --rate or --mtbf"),
    (("--rate", "-5"), "field '--rate': is -5; failures of each 1,000 nodes in a day"),
    (("--mtbf", "0"), "field '--mtbf': is 0; such as 200d"),
    (("--mtbf", "long"), "'long' is no time"),
    (("--target", "1"), "field '--target': is 1; above 0 and below 1"),
    (("--repair", "soon"), "'soon' is no time"),
    (("--per", "blok"), "there is no topology level 'blok'; did you mean block?"),
]


@pytest.mark.parametrize(("args", "told"), MISTAKES)
def test_each_mistake_is_one_line(
    args: tuple[str, ...], told: str, snap: str, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = muster(capfd, "--from", snap, *args)
    assert (code, out) == (2, "")
    assert told in err
