"""`muster slurm config`: what is found in a configuration, and what is generated from a fleet and read back."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.slurm.config.check import RULES, check
from muster.slurm.config.files import Config, read_config
from muster.slurm.config.findings import Finding, Workload
from muster.slurm.config.fleet import fleet_of
from muster.slurm.config.generate import Wanted, generate
from muster.traces import read_fleet
from muster.traces.files import write_together

IDLE = Workload(0, 0, 0, 0.0, 0)


def uniform(nodes: int = 16) -> Fleet:
    spec = f"uniform:nodes={nodes},model=H100-SXM5-80GB,cpu=96,memory_gib=1000,block=8,rack=4,prefix=n"
    return read_fleet(spec)[0]


def parsed(files: dict[str, str]) -> Config:
    def read(path: str) -> str:
        if path.removeprefix("etc/") not in files:
            raise InputError("does not exist", file=path)
        return files[path.removeprefix("etc/")]

    return read_config({name: f"etc/{name}" for name in files}, read)


class Scenario(NamedTuple):
    """One scenario of `config_scenarios.txt`."""

    rule: str
    nothing: bool
    nodes: int
    topology: str
    changes: list[str]
    queue: Workload | None
    places: list[str]
    says: list[str]


def read_scenarios() -> Iterator[Scenario]:
    """The scenarios of the text, in order."""
    text = (Path(__file__).parent / "config_scenarios.txt").read_text()
    for block in re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip().split("\n\n"):
        first, *rest = block.split("\n")
        scenario = Scenario(first.removeprefix("! "), first.startswith("! "), 16, "", [], None, [], [])
        for line in (each.strip() for each in rest):
            if line.startswith("size "):
                scenario = scenario._replace(nodes=int(line[5:]))
            elif line.startswith("topology "):
                scenario = scenario._replace(topology=line[9:])
            elif line.startswith("queue "):
                given_values = dict(each.split("=") for each in line[6:].split())
                queue = replace(IDLE, **{key: int(value) for key, value in given_values.items()})
                scenario = scenario._replace(queue=queue)
            else:
                kinds = {"@": scenario.places, ">": scenario.says}
                kinds.get(line[0], scenario.changes).append(line[2:] if line[0] in kinds else line)
        yield scenario


SCENARIOS = list(read_scenarios())


def changed(files: dict[str, str], change: str) -> None:
    """Apply one line of a scenario to the files."""
    name, _, what = change.partition(": ")
    if what == "gone":
        del files[name]
    elif what.startswith("+ "):
        files[name] += f"{what[2:]}\n"
    else:
        old, arrow, new = what.partition(" =>")
        assert arrow, change
        assert old in files[name], (change, files[name])
        line = f"{old}\n" if not new.strip() else old
        files[name] = files[name].replace(line, new.strip() if new.strip() else "", 1)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"{at}-{each.rule}" for at, each in enumerate(SCENARIOS)])
def test_what_is_found(scenario: Scenario) -> None:
    files = generate(uniform(scenario.nodes), Wanted(topology=scenario.topology))
    for change in scenario.changes:
        changed(files, change)
    found = check(parsed(files), scenario.queue)
    mine = [each for each in found if each.rule == scenario.rule]
    if scenario.nothing:
        assert mine == []
        return
    for text in scenario.says:
        assert any(text in each.what for each in mine), [f"{each.rule}: {each.what}" for each in found]
    said = [each for each in mine if any(text in each.what for text in scenario.says)]
    for place in scenario.places:
        name, key = place.split()
        assert said[0].file == f"etc/{name}"
        assert files[name].splitlines()[said[0].line - 1].startswith(key)
    assert all(each.source and each.fix and each.file for each in mine)


def test_every_rule_has_a_scenario() -> None:
    assert {each.name for each in RULES} == {each.rule for each in SCENARIOS if not each.nothing}
    assert len({each.name for each in RULES}) == len(RULES)


def clean(found: tuple[Finding, ...]) -> bool:
    return all(each.severity == "note" for each in found)


@pytest.mark.parametrize("topology", ["", "tree", "block", "none"])
@pytest.mark.parametrize("nodes", [8, 16, 600, 3000])
def test_what_is_generated_is_clean_and_is_the_fleet_again(nodes: int, topology: str) -> None:
    fleet = uniform(nodes)
    config = parsed(generate(fleet, Wanted(topology=topology)))
    assert [(each.rule, each.what) for each in check(config, IDLE) if each.severity != "note"] == []
    again = fleet_of(config)
    assert [each.name for each in again.nodes] == [each.name for each in fleet.nodes]
    assert again.gpus_by_model == fleet.gpus_by_model
    assert (again.cpu_milli, again.memory_bytes) == (fleet.cpu_milli, fleet.memory_bytes)
    if topology in ("", "tree") and nodes > 8:  # of one block there is no switch above
        assert again.topology.levels == ("block", "rack")
        assert [each.topology for each in again.nodes] == [each.topology for each in fleet.nodes]
    elif topology == "none":
        assert again.topology.levels == ()


def test_the_example_has_a_partition_for_each_model_and_is_clean() -> None:
    fleet = read_fleet("example")[0]
    config = parsed(generate(fleet, Wanted()))
    assert clean(check(config))
    assert [each.name for each in config.conf.partitions] == ["a100", "t4", "a10", "h100", "v100", "l40s"]
    assert config.conf.default_partition == config.conf.partition("a100")
    assert fleet_of(config).gpus == fleet.gpus


_NODES = st.lists(
    st.tuples(st.sampled_from(["A100-SXM4-80GB", "A100-PCIe-40GB", "H100-SXM5-80GB", "my gpu", ""]), st.integers(0, 8),
              st.integers(1, 256), st.integers(1, 4096), st.booleans()),
    min_size=1, max_size=12,
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(_NODES, st.sampled_from([(), ("rack",), ("block", "rack")]))
def test_any_fleet_is_generated_and_read_back(
    shapes: list[tuple[str, int, int, int, bool]], levels: tuple[str, ...]
) -> None:
    nodes = tuple(
        Node(
            f"n{at}", cpu * 1000, memory * 2**30, tuple(Device(index, model) for index in range(gpus if model else 0)),
            topology=tuple(f"{level} {at % (3 if level == 'rack' else 2)}" for level in levels), schedulable=up,
            reason="" if up else "bad # cable",
        )
        for at, (model, gpus, cpu, memory, up) in enumerate(shapes)
    )  # fmt: skip
    fleet = Fleet(nodes, Topology(levels))
    config = parsed(generate(fleet, Wanted()))
    assert [each.what for each in check(config) if each.severity == "error"] == []
    again = fleet_of(config)
    by_name = {each.name: each for each in again.nodes}
    for node in nodes:
        mine = by_name[node.name]
        assert (mine.cpu_milli, mine.memory_bytes) == (node.cpu_milli, node.memory_bytes)
        assert (len(mine.devices), mine.schedulable) == (len(node.devices), node.schedulable)
    assert generate(again, Wanted()).keys() >= {"slurm.conf", "cgroup.conf"}


@pytest.mark.parametrize(
    ("fleet", "wanted", "said"),
    [
        (lambda: Fleet(()), Wanted(), "the fleet has no nodes"),
        (lambda: Fleet((Node("a b", 1, 1),)), Wanted(), "node 'a b' has a name that Slurm does not take"),
        (lambda: Fleet((Node("a", 1, 1, (Device(0, "A"), Device(1, "B"))),)), Wanted(), "has GPUs of several models"),
        (lambda: Fleet((Node("a", 1, 1),)), Wanted(topology="tree"), "field '--topology': the fleet has no levels"),
        (uniform, Wanted(settings=("TreeWith=3",)), "did you mean TreeWidth?"),
    ],
)
def test_what_cannot_be_generated_is_told(fleet: Callable[[], Fleet], wanted: Wanted, said: str) -> None:
    with pytest.raises(InputError) as error:
        generate(fleet(), wanted)
    assert said in str(error.value)


def test_settings_take_the_place_of_the_generated_ones() -> None:
    text = generate(uniform(), Wanted(settings=("slurmuser=root", "TreeWidth=64", "AccountingStorageHost=")))[
        "slurm.conf"
    ]
    assert "SlurmUser=root\n" in text
    assert "TreeWidth=64\n" in text
    assert "AccountingStorageHost" not in text


def test_models_that_begin_alike_have_types_of_their_own() -> None:
    nodes = tuple(
        Node(f"n{at}", 8000, 2**36, (Device(0, model),))
        for at, model in enumerate(["A100-SXM4-80GB", "A100-PCIe-40GB"])
    )
    text = generate(Fleet(nodes), Wanted())["slurm.conf"]
    assert "gpu:a100_sxm4_80gb:1" in text
    assert sorted(fleet_of(parsed(generate(Fleet(nodes), Wanted()))).gpus_by_model) == [
        "A100-PCIe-40GB",
        "A100-SXM4-80GB",
    ]


def test_files_are_written_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"slurm.conf": "a\n", "gres.conf": "b\n", "topology.conf": "c\n"}
    write_together(files, tmp_path / "new" / "etc")
    assert {each.name: each.read_text() for each in (tmp_path / "new" / "etc").iterdir()} == files
    there = tmp_path / "there"
    there.mkdir()
    (there / "gres.conf").write_text("mine\n")
    with pytest.raises(InputError, match=r"gres\.conf: is there already"):
        write_together(files, there)
    assert [each.name for each in there.iterdir()] == ["gres.conf"]
    (there / "gres.conf").unlink()
    move = Path.rename

    def full(self: Path, target: Path) -> Path:
        if self.name == "topology.conf":
            raise OSError(28, "No space left on device")
        return move(self, target)

    monkeypatch.setattr(Path, "rename", full)
    for folder in (there, tmp_path / "other"):
        with pytest.raises(InputError, match="No space left on device"):
            write_together(files, folder)
    assert list(there.iterdir()) == []
    assert not (tmp_path / "other").exists()
