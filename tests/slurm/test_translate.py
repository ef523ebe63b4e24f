"""A Slurm's records as a snapshot: recorded from a real one, and small worlds for single rules."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from muster.answers.queue_table import shares
from muster.answers.slurm import reading_of, settings_like
from muster.answers.sources import open_view
from muster.answers.told import said_of
from muster.answers.view import View
from muster.answers.why import why
from muster.engine.config import config_of
from muster.engine.scheduler import Scheduler
from muster.errors import MusterError
from muster.model.plan import Place, Reserve
from muster.model.reasons import Reason
from muster.model.snapshot import Snapshot
from muster.model.workload import Workload
from muster.slurm.places import levels_of
from muster.slurm.records import (
    Held,
    SlurmAssoc,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmReservation,
    SlurmSwitch,
)
from muster.slurm.translate import translate
from muster.slurm.world import SlurmWorld
from muster.traces.slurm import holds_slurm, read_slurm_files

DATA = Path(__file__).parent / "data" / "commands-22.05"
NOW_S = 1_000_000.0


@pytest.fixture(scope="module")
def recorded() -> Snapshot:
    return reading_of(read_slurm_files(str(DATA))).snapshot


def work(snapshot: Snapshot, name: str) -> Workload:
    found = [*snapshot.pending, *(run.workload for run in snapshot.running)]
    return next(each for each in found if each.name == name)


def test_every_gpu_that_slurm_says_is_used_is_held_by_its_job(recorded: Snapshot) -> None:
    used = {node.name: node.gres_used for node in read_slurm_files(str(DATA)).nodes}
    held: dict[str, set[int]] = {name: set() for name in used}
    for run in recorded.running:
        for place in run.pods:
            assert not held[place.node] & set(place.devices)
            held[place.node] |= set(place.devices)
    assert {name: len(found) for name, found in held.items()} == {
        name: int(text.split(":")[2].partition("(")[0]) for name, text in used.items()
    }


def test_the_engine_takes_it(recorded: Snapshot) -> None:
    Scheduler(recorded, config_of(dict(recorded.settings))).cycle(recorded.taken_s)


def test_the_tree_of_switches_is_the_topology(recorded: Snapshot) -> None:
    assert recorded.fleet.topology.levels == ("core", "block", "rack")
    assert recorded.fleet.nodes[4].topology == ("core", "block1", "leaf2")


def test_jobs_are_gangs_by_their_numbers(recorded: Snapshot) -> None:
    big = work(recorded, "5")
    assert (big.title, big.queue, big.pods, big.gpu_milli) == ("big", "product", 16, 128_000)
    assert big.pod_sets[0].shape.memory_bytes == 8 * 200_000 << 20
    assert work(recorded, "3").pods == 2
    assert [each.role for each in work(recorded, "21").pod_sets] == ["het0", "het1"]


def test_tasks_of_an_array_with_a_limit_wait_for_the_one_so_many_before(recorded: Snapshot) -> None:
    tasks = [each for each in recorded.pending if each.name.startswith("4_")]
    assert tasks
    assert all(len(each.depends_on) == 1 and each.depends_on[0].startswith("4_") for each in tasks)


def test_what_slurm_holds_is_held_and_what_waits_for_room_is_not(recorded: Snapshot) -> None:
    assert math.isinf(work(recorded, "7").not_before_s)  # JobHeldUser
    assert math.isinf(work(recorded, "12").not_before_s)  # PartitionTimeLimit
    assert work(recorded, "13").not_before_s == 0.0  # ReqNodeNotAvail
    assert work(recorded, "6").depends_on == ("1",)
    assert work(recorded, "11").not_before_s > recorded.taken_s  # BeginTime


def test_why_tells_slurms_code_beside_plain_words() -> None:
    view, _ = open_view(str(DATA))
    told = why(view, "12")
    said = said_of(told.workload)
    assert said is not None
    assert (said.code, said.command) == ("PartitionTimeLimit", "scontrol update JobId=12 TimeLimit=...")
    assert told.reason is Reason.HELD
    assert view.find("big").workload.name == "5"
    assert view.find("4").workload.name.startswith("4_")


def test_priority_is_slurms_with_the_tier_of_the_partition_before_it(recorded: Snapshot) -> None:
    order = sorted(recorded.pending, key=lambda each: -each.priority)
    assert order[0].name == "12"  # debug, the highest tier
    assert order[-1].name == "11"  # spot, the lowest


# -- small worlds


def world(*jobs: SlurmJob, nodes: int = 4, **more: object) -> SlurmWorld:
    names = tuple(f"n{number}" for number in range(1, nodes + 1))
    found = SlurmWorld("test", NOW_S)
    found.nodes = [SlurmNode(name, ("IDLE",), 32, 256_000, "gpu:h100:8", partitions=("gpu",)) for name in names]
    found.partitions = [SlurmPartition("gpu", names, default=True)]
    found.jobs = list(jobs)
    for name, value in more.items():
        setattr(found, name, value)
    return found


def job(number: int, **more: object) -> SlurmJob:
    fields: dict[str, object] = {
        "account": "", "partition": "gpu", "state": "PENDING", "reason": "Priority", "priority": 10,
        "submitted_s": NOW_S - 60, "tres_per_node": "gres:gpu:8", "nodes": (1, 1), "limit_s": 3600.0,
    }  # fmt: skip
    return SlurmJob(str(number), **(fields | more))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("state", "reason", "schedulable", "told"),
    [
        (("IDLE",), "", True, ""),
        (("MIXED", "PLANNED"), "", True, ""),
        (("IDLE", "CLOUD", "POWERED_DOWN"), "", True, ""),
        (("ALLOCATED", "DRAIN"), "xid 79", False, "drained: xid 79"),
        (("DOWN", "NOT_RESPONDING"), "Not responding", False, "down: Not responding"),
        (("IDLE", "INVALID_REG"), "gres/gpu count reported lower than configured (7 < 8)", False,
         "registered with less than slurm.conf says: gres/gpu count reported lower than configured (7 < 8)"),
        (("UNKNOWN",), "", False, "has not registered"),
    ],
)  # fmt: skip
def test_states_of_nodes(state: tuple[str, ...], reason: str, schedulable: bool, told: str) -> None:
    found = world()
    found.nodes[0] = SlurmNode("n1", state, 32, 256_000, "gpu:h100:8", partitions=("gpu",), reason=reason)
    node = translate(found).snapshot.fleet.nodes[0]
    assert (node.schedulable, node.reason) == (schedulable, told)


@pytest.mark.parametrize(
    ("asked", "nodes_left"),
    [
        ({"exc_nodes": "n[1-2]"}, {"n3", "n4"}),
        ({"req_nodes": "n3"}, {"n3"}),
        ({"features": "ib&!no"}, {"n1", "n2", "n3", "n4"}),  # not read: all, with a note
        ({"features": "ib"}, {"n1", "n2"}),
        ({"features": "ib|eth"}, {"n1", "n2", "n3"}),
        ({"partition": "gpu,big"}, {"n1", "n2", "n3", "n4"}),
    ],
)
def test_which_nodes_a_job_may_use(asked: dict[str, str], nodes_left: set[str]) -> None:
    found = world(job(1, **asked))
    for at, features in enumerate((("ib",), ("ib",), ("eth",), ())):
        each = found.nodes[at]
        found.nodes[at] = SlurmNode(each.name, each.state, 32, 256_000, each.gres, "", features, ("gpu",))
    snapshot = translate(found).snapshot
    selector = set(snapshot.pending[0].pod_sets[0].shape.node_selector)
    left = {node.name for node in snapshot.fleet if selector <= set(node.labels)}
    if "!" in asked.get("features", ""):
        assert left in (nodes_left, set())
    else:
        assert left == nodes_left


@pytest.mark.parametrize(
    ("reason", "more", "held"),
    [
        ("PartitionNodeLimit", {"nodes": (2, 2)}, False),  # its nodes were down when Slurm looked
        ("PartitionNodeLimit", {"nodes": (5, 5)}, True),
        ("PartitionTimeLimit", {"limit_s": 3600.0}, False),
        ("PartitionTimeLimit", {"limit_s": 90_000.0}, True),
        ("PartitionDown", {}, False),
        ("Licenses", {}, True),
        ("QOSMaxGRESPerUser", {}, True),
        ("Resources", {}, False),
        ("JobHeldAdmin", {"priority": 0}, True),
    ],
)
def test_what_slurm_says_counts_as_long_as_it_is_so(reason: str, more: dict[str, object], held: bool) -> None:
    found = world(job(1, reason=reason, **more))
    found.partitions = [SlurmPartition("gpu", found.partitions[0].nodes, max_time_s=86_400.0)]
    assert math.isinf(translate(found).snapshot.pending[0].not_before_s) is held


def test_an_account_with_a_limit_of_gpus_is_held_to_it() -> None:
    running = job(
        1, account="a", state="RUNNING", started_s=NOW_S - 10, held=(Held("n1", 8, 1000, 8, tuple(range(8))),)
    )
    found = world(
        running, job(2, account="a", reason="AssocGrpGRES"), job(3, account="b"),
        associations=[SlurmAssoc("root"), SlurmAssoc("a", parent="root", limits={"GrpTRES": "gres/gpu=8"}),
                      SlurmAssoc("b", parent="root")],
    )  # fmt: skip
    snapshot = translate(found).snapshot
    view = reading_of(found).snapshot
    scheduler = Scheduler(view, config_of(dict(view.settings)))
    started = {each.workload for each in scheduler.cycle(NOW_S).decisions if isinstance(each, Place)}
    assert snapshot.pending[0].not_before_s == 0.0
    assert started == {"3"}


def test_accounts_without_limits_wait_for_nodes_and_the_first_of_them_has_a_reserved_start() -> None:
    running = job(
        1, account="a", state="RUNNING", started_s=NOW_S - 10, held=(Held("n1", 8, 1000, 8, tuple(range(8))),)
    )
    big = job(2, account="b", nodes=(4, 4), tasks=4, priority=20)
    small = job(3, account="b", limit_s=86_400.0)
    accounts = [SlurmAssoc("root"), SlurmAssoc("a", parent="root"), SlurmAssoc("b", parent="root")]
    view = reading_of(world(running, big, small, associations=accounts)).snapshot
    decisions = Scheduler(view, config_of(dict(view.settings))).cycle(NOW_S).decisions
    starts = {each.workload: each.start_s for each in decisions if isinstance(each, Reserve)}
    assert starts["2"] == NOW_S - 10 + 3600 < starts["3"]
    (root, *_) = shares(View(view))
    assert (root.guaranteed_milli, root.used_milli, root.available_milli) == (32_000, 8_000, 24_000)


def test_a_reservation_keeps_its_nodes_for_the_jobs_that_name_it() -> None:
    kept = SlurmReservation("maint", NOW_S - 5, NOW_S + 7200, ("n1", "n2", "n3"), users=("root",))
    found = world(
        job(1, nodes=(2, 2), tasks=2, priority=5),
        job(2, nodes=(3, 3), tasks=3, reservation="maint"),
        reservations=[kept],
    )
    snapshot = reading_of(found).snapshot
    scheduler = Scheduler(snapshot, config_of(dict(snapshot.settings)))
    started = {each.workload for each in scheduler.cycle(NOW_S).decisions if isinstance(each, Place)}
    assert started == {"2"}


def test_without_details_what_runs_is_divided_and_that_is_noted() -> None:
    found = translate(world(
        job(1, state="RUNNING", started_s=NOW_S - 5, node_list="n[1-2]", cpus=64, tres={"gres/gpu": 16, "mem": 1000}),
    ))  # fmt: skip
    assert [pod.devices for pod in found.snapshot.running[0].pods] == [tuple(range(8))] * 2
    assert any("-d show job" in note.text for note in found.notes)


def test_two_jobs_that_share_a_gpu_are_not_counted_on_one_device() -> None:
    both = [
        job(n, state="RUNNING", started_s=NOW_S - 5, held=(Held("n1", 1, 100, 1, (0,), "h100"),)) for n in (1, 2)
    ]  # fmt: skip
    found = translate(world(*both))
    devices = [run.pods[0].devices for run in found.snapshot.running]
    assert sorted(devices) == [(0,), (1,)]
    assert any("others have too" in note.text for note in found.notes)


@pytest.mark.parametrize(
    ("switches", "levels", "path"),
    [
        ([SlurmSwitch("s1", ("a", "b"))], ("rack",), ("s1",)),
        ([SlurmSwitch("s1", ("a", "b")), SlurmSwitch("top", ("a", "b"), ("s1",), 1)], ("block", "rack"), ("top", "s1")),
        ([SlurmSwitch("b1", ("a", "b"), block=True)], ("block",), ("b1",)),
        ([], (), None),
    ],
)
def test_levels(switches: list[SlurmSwitch], levels: tuple[str, ...], path: tuple[str, ...] | None) -> None:
    found, paths = levels_of(switches, ["a", "b"])
    assert found == levels
    assert paths.get("a") == path


def test_settings_follow_the_configuration() -> None:
    found = world(config={"SchedulerType": "sched/backfill", "SchedulerParameters": "bf_max_job_test=40,bf_continue"})
    assert settings_like(found)["reservations"] == 40
    found = world(config={"SchedulerType": "sched/builtin"})
    assert settings_like(found)["queueing"] == "strict"


def test_files_are_recognised_by_what_is_in_them() -> None:
    for file in DATA.iterdir():
        if file.name != "topology.txt":
            assert holds_slurm(file.read_text()), file.name
    assert not holds_slurm("NodeName=n[1-4] CPUs=8\nPartitionName=gpu Nodes=ALL\n")  # slurm.conf
    assert not holds_slurm("apiVersion: v1\nkind: Pod\n")


@pytest.mark.parametrize("number", ["99999999999999999999", "9" * 17, "-1", "0"])
def test_numbers_that_cannot_be_are_no_crash(tmp_path: Path, number: str) -> None:
    """Each number of each file by turns, as in a file that was damaged."""
    for name in ("jobs.txt", "nodes.txt"):
        folder = tmp_path / name
        folder.mkdir()
        for file in DATA.iterdir():
            text = file.read_text()
            if file.name == name:
                text = re.sub(r"(?<==)\d+(?=\s|$)|(?<==gpu:h100:)\d+|(?<=,gres/gpu=)\d+|(?<=mem=)\d+", number, text)
            (folder / file.name).write_text(text)
        try:
            view, _ = open_view(str(folder))
            view.scheduler.cycle(view.now_s)
        except MusterError as error:
            told = str(error)
        else:
            told = "read"
        assert told
