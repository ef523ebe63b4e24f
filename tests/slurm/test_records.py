"""Records of Slurm's commands: golden values of a real Slurm 22.05, and texts that newer ones print."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.slurm.records import (
    Held,
    config_of,
    fields_of,
    gpus_asked,
    ids_of,
    job_of,
    lines_of,
    mebibytes,
    moment_s,
    node_of,
    per_gpu,
    span_s,
    states_of,
    tres_of,
)
from muster.slurm.records_tables import assocs_of, qos_of, sdiag_of

DATA = Path(__file__).parent / "data" / "commands-22.05"
JOBS = {each["JobId"]: job_of(each) for each in lines_of((DATA / "jobs.txt").read_text(), "JobId")}


def test_a_running_gang_has_what_each_node_gives_it() -> None:
    gang = JOBS["1"]
    assert (gang.name, gang.user, gang.account, gang.partition, gang.state) == (
        "gang",
        "games",
        "research",
        "gpu",
        "RUNNING",
    )
    assert gang.limit_s == 7200.0
    assert gang.held == tuple(Held(f"gpu0{n}", 80, 1_600_000, 8, tuple(range(8)), "h100") for n in range(1, 5))
    assert gang.tres["gres/gpu"] == 32


def test_gpus_that_lie_on_two_nodes_unevenly_are_told_node_by_node() -> None:
    assert [(held.node, held.gpus, held.indexes) for held in JOBS["3"].held] == [
        ("gpu14", 8, tuple(range(8))),
        ("gpu15", 4, (0, 1, 2, 3)),
    ]


def test_a_waiting_array_keeps_its_tasks_and_its_limit() -> None:
    waiting = JOBS["4"]
    assert (waiting.array_job, waiting.array_limit) == ("4", 3)
    assert ids_of(waiting.array_tasks)[-1] == 20
    assert next(each for each in JOBS.values() if each.array_job == "4" and each.held).array_tasks == "4"


def test_heterogeneous_parts_know_each_other() -> None:
    assert [(JOBS[each].het_job, JOBS[each].het_offset) for each in ("21", "22")] == [("21", 0), ("21", 1)]


def test_what_a_waiting_job_asks_for() -> None:
    big, dep, held = JOBS["5"], JOBS["6"], JOBS["7"]
    assert (big.nodes, big.tres_per_node, per_gpu(big.memory_per_tres)) == ((16, 16), "gres:gpu:8", 200_000)
    assert (dep.dependency, dep.features, dep.switches) == ("afterok:1(unfulfilled)", "h100&nvlink", 1)
    assert (held.priority, held.tasks_per_node, held.memory_node_mib) == (0, 8, 512_000)
    assert JOBS["13"].reason == "ReqNodeNotAvail, UnavailableNodes:gpu16"


def test_a_drained_node_keeps_its_reason_without_who_and_when() -> None:
    nodes = {each["NodeName"]: node_of(each) for each in lines_of((DATA / "nodes.txt").read_text(), "NodeName")}
    assert (nodes["gpu16"].state, nodes["gpu16"].reason) == (("IDLE", "DRAIN"), "bad gpu 3")
    assert (nodes["gpu05"].gres_used, nodes["gpu05"].memory_mib) == ("gpu:h100:1(IDX:0)", 2_000_000)


def test_paragraphs_are_read_as_lines_are() -> None:
    text = "NodeName=a Arch=x86_64\n   CPUTot=8 State=IDLE\n   Gres=gpu:2\n\nNodeName=b Arch=x86_64\n   State=DOWN\n"
    assert [(node.name, node.state, node.gres) for node in map(node_of, lines_of(text, "NodeName"))] == [
        ("a", ("IDLE",), "gpu:2"),
        ("b", ("DOWN",), ""),
    ]


def test_accounts_are_a_tree_by_their_depth() -> None:
    found = assocs_of((DATA / "associations.txt").read_text())
    assert [(each.account, each.parent, each.shares) for each in found if not each.user] == [
        ("root", "", 1.0),
        ("product", "root", 40.0),
        ("research", "root", 60.0),
    ]
    assert {each.user for each in found if each.account == "research" and each.user} == {"games", "news", "root"}


def test_limits_are_kept_as_slurm_names_them() -> None:
    qos = {each.name: each for each in qos_of((DATA / "qos.txt").read_text())}
    assert qos["small"].limits == {"MaxWall": "1-00:00:00", "MaxTRESPU": "gres/gpu=16"}
    assert qos["high"].priority == 1000


def test_config_and_sdiag() -> None:
    config = config_of((DATA / "config.txt").read_text())
    assert config["SelectTypeParameters"] == "CR_CORE_MEMORY"
    found = sdiag_of((DATA / "sdiag.txt").read_text())
    assert found["Backfilling stats: Last depth cycle"] >= 0
    assert "Backfilling stats: Last cycle" in found


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("01:00:00", 3600.0),
        ("7-00:00:00", 604800.0),
        ("30:00", 1800.0),
        ("90", 5400.0),
        ("UNLIMITED", None),
        ("", None),
    ],
)
def test_spans(text: str, seconds: float | None) -> None:
    assert span_s(text) == seconds


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("IDLE+CLOUD+POWERED_DOWN", ("IDLE", "CLOUD", "POWERED_DOWN")),
        ("DOWN*", ("DOWN", "NOT_RESPONDING")),
        ("MIXED+DRAIN", ("MIXED", "DRAIN")),
    ],
)
def test_states(text: str, states: tuple[str, ...]) -> None:
    assert states_of(text) == states


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("gres:gpu:8", (8, (), ())),
        ("gres/gpu:h100:4", (4, ("h100",), ())),
        ("gres/gpu:h100=4,gres/shard=2", (4, ("h100",), ("shard=2",))),
        ("cpu=4,gres/gpu=1", (1, (), ("cpu=4",))),
        ("", (0, (), ())),
    ],
)
def test_gpus_asked_for_old_and_new(text: str, told: tuple[int, tuple[str, ...], tuple[str, ...]]) -> None:
    assert gpus_asked(text) == told


def test_times_are_of_the_zone_that_is_given() -> None:
    assert moment_s("2026-11-30T21:12:50") == 1796073170.0
    assert moment_s("2026-11-30T22:12:50", 3600) == 1796073170.0
    assert moment_s("Unknown") is None


def test_amounts() -> None:
    assert tres_of("cpu=320,mem=6250G,node=4,gres/gpu:h100=32") == {
        "cpu": 320, "mem": 6_400_000, "node": 4, "gres/gpu:h100": 32,
    }  # fmt: skip
    assert (mebibytes("1562.50G"), mebibytes("200000M"), mebibytes("500G"), mebibytes("2T")) == (
        1_600_000,
        200_000,
        512_000,
        2_097_152,
    )


@given(st.text(max_size=200))
def test_no_text_breaks_the_readers(text: str) -> None:
    line = f"JobId=1 JobName={text} UserId=a(1) JobState=PENDING"
    fields_of(line)
    for record in lines_of(line, "JobId"):
        job_of(record)
    config_of(text), assocs_of(text), qos_of(text), sdiag_of(text), span_s(text), states_of(text), tres_of(text)
    mebibytes(text), moment_s(text), gpus_asked(text)


@given(st.dictionaries(st.sampled_from(["CPUTot", "Gres", "Reason", "Weight"]), st.from_regex(r"\A[a-z0-9:,]{0,12}\Z")))
def test_what_is_written_is_read(values: dict[str, str]) -> None:
    line = "NodeName=x " + " ".join(f"{key}={value}" for key, value in values.items())
    assert fields_of(line) == {"NodeName": "x", **values}
