"""`muster slurm schedule` on a real Slurm: sixteen nodes, two blocks of two leafs of four nodes."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
from tests.slurm.steered import WHOLE, Steered, plain

from slurmdev import Slurm

GATE = ("--gate=2m", "--every=1s")


@pytest.fixture
def steered(slurm_empty: Slurm) -> Iterator[Steered]:
    """The Slurm without jobs, and nothing of Muster in it."""
    one = Steered(slurm_empty)
    yield one
    one.close()


def schedule(steered: Steered, *arguments: str) -> str:
    said = steered.muster("schedule", "--once", "--yes", *arguments)
    steered.check()
    return said


# -- places


def four_small_jobs_and_a_gang(slurm: Slurm) -> int:
    """A leaf of the second block is half used: slurmctld fills it, and goes on in the first leaf of the first block."""
    for _ in range(4):
        slurm.submit("--nodes=1", WHOLE, "--time=60")
    return slurm.submit("--nodes=8", WHOLE, "--time=60")


def test_a_gang_stands_in_one_block_where_slurmctld_alone_scatters_it(steered: Steered) -> None:
    half = ("--nodes=2", WHOLE, "--time=60", "--nodelist=gpu[13-14]")
    steered.runs(steered.slurm.submit(*half))
    alone = four_small_jobs_and_a_gang(steered.slurm)
    steered.runs(alone)
    assert steered.blocks(alone) == {"block1", "block2"}
    steered.slurm.clear()
    steered.runs(steered.slurm.submit(*half))
    schedule(steered, *GATE)
    gang = four_small_jobs_and_a_gang(steered.slurm)
    steered.waits(gang)
    schedule(steered, *GATE)
    steered.runs(gang)
    assert len(steered.blocks(gang)) == 1


def test_behind_the_gate_nothing_starts_but_what_the_plan_starts_and_it_opens_by_itself(steered: Steered) -> None:
    schedule(steered, *GATE)
    job = steered.slurm.submit("--nodes=1", WHOLE, "--time=60")
    time.sleep(3)
    steered.waits(job)
    gate = steered.reservations()["muster_gate"]
    assert gate.nodes == tuple(f"gpu{number:02}" for number in range(1, 17))
    assert 60 < gate.end_s - time.time() <= 121
    schedule(steered, *GATE)
    steered.runs(job)
    schedule(steered, *GATE)
    assert steered.job(job).reservation == "", "what has started leaves the gate's reservation"


def test_tasks_of_an_array_start_one_by_one_where_the_plan_has_them(steered: Steered) -> None:
    schedule(steered, *GATE)
    array = steered.slurm.submit("--array=1-4", "--nodes=1", WHOLE, "--time=30")
    steered.slurm.wait("it waited", lambda: waiting(steered), 20)
    said = schedule(steered, *GATE)
    tasks = [f"{array}_{number}" for number in range(1, 5)]
    assert all(f"job {task}  starts now on gpu" in said for task in tasks)
    steered.runs(*tasks)
    assert len({block for task in tasks for block in steered.blocks(task)}) == 1


@pytest.mark.slow
def test_if_muster_dies_the_gate_opens_by_itself_for_those_who_were_pointed_at_it_too(steered: Steered) -> None:
    slurm = steered.slurm
    runs = slurm.submit("--nodes=16", WHOLE, "--time=60")
    steered.runs(runs)
    schedule(steered, "--gate=60s", "--every=1s")
    job, pointed = (slurm.submit("--nodes=1", WHOLE, "--time=60") for _ in range(2))
    slurm.run("scontrol", "update", "ReservationName=muster_gate", "Users+=root")
    slurm.run("scontrol", "update", f"JobId={pointed}", "ReservationName=muster_gate")
    slurm.run("scancel", str(runs))
    steered.waits(job)
    steered.runs(job, pointed, within_s=150)
    assert steered.job(job).priority


# -- promised starts


def test_a_big_gang_has_a_reservation_and_starts_when_promised(steered: Steered) -> None:
    slurm = steered.slurm
    first = slurm.submit("--nodes=12", WHOLE, "--time=1", body="sleep 15")
    rest = slurm.submit("--nodes=4", WHOLE, "--time=1", body="sleep 8")
    steered.runs(first, rest)
    gang = slurm.submit("--nodes=16", WHOLE, "--time=30", user="games")
    steered.waits(gang)
    schedule(steered)
    kept = steered.reservations()[f"muster_job_{gang}"]
    assert len(kept.nodes) == 16
    assert kept.users == ("games",)
    assert steered.job(gang).reservation == kept.name
    # jobs that would end too late are kept off, however important; one that ends in time may run before
    others = [slurm.submit("--nodes=2", WHOLE, "--time=30", "--qos=high", user="mail") for _ in range(3)]
    steered.runs(gang, within_s=60)
    started_s = steered.job(gang).started_s
    assert started_s is not None
    assert started_s <= kept.start_s + 2, "the promise is kept; it may start sooner where work ends before its limit"
    assert all(steered.state_of(each) == "PENDING" for each in others)
    schedule(steered)
    assert f"muster_job_{gang}" not in steered.reservations(), "a reservation goes when its gang has started"
    assert steered.job(gang).reservation == ""


# -- preemption


def test_of_four_jobs_that_may_be_stopped_the_one_is_that_loses_least(steered: Steered) -> None:
    slurm = steered.slurm
    spot = [
        slurm.submit("--partition=spot", "--nodes=4", WHOLE, "--time=60", "--comment=checkpoint:1h", user="games")
        for _ in range(4)
    ]
    steered.runs(*spot)
    schedule(steered, *GATE)
    time.sleep(4)
    saved = f"Comment=checkpoint:1h checkpointed:{int(time.time())}"
    slurm.run("scontrol", "update", f"JobId={spot[2]}", saved, user="games")
    gang = slurm.submit("--nodes=4", WHOLE, "--time=60")
    steered.waits(gang)
    said = schedule(steered, *GATE)
    assert f"requeue job {spot[2]}" in said
    steered.runs(gang)
    assert [steered.state_of(each) for each in spot] == ["RUNNING", "RUNNING", "PENDING", "RUNNING"]
    assert steered.job(spot[2]).restarts == 1


def test_a_job_that_may_not_be_requeued_is_never_stopped(steered: Steered) -> None:
    spot = [steered.slurm.submit("--partition=spot", "--nodes=8", WHOLE, "--time=60", "--no-requeue") for _ in range(2)]
    steered.runs(*spot)
    schedule(steered, *GATE)
    gang = steered.slurm.submit("--nodes=4", WHOLE, "--time=60")
    steered.waits(gang)
    assert "requeue" not in schedule(steered, *GATE)
    assert [steered.state_of(each) for each in spot] == ["RUNNING", "RUNNING"]


def test_a_job_that_saves_its_work_moves_out_of_the_way_where_that_is_allowed(steered: Steered) -> None:
    slurm = steered.slurm
    small = ("--nodes=1", "--gpus-per-node=1", "--time=600", "--comment=checkpoint:1s")
    slurm.submit("--nodes=14", WHOLE, "--time=600", "--nodelist=gpu[01-14]")
    one = slurm.submit(*small)
    filler = slurm.submit("--nodes=1", "--gpus-per-node=7", "--time=60")
    steered.runs(one, filler)
    other = slurm.submit(*small)
    steered.runs(other)
    assert steered.job(one).node_list != steered.job(other).node_list
    slurm.run("scancel", str(filler))
    gang = slurm.submit("--nodes=1", WHOLE, "--time=60")
    steered.waits(gang)
    time.sleep(2)
    assert "requeue" not in schedule(steered, *GATE), "nothing moves where --move is not said"
    said = schedule(steered, *GATE, "--move")
    moved, stays = (one, other) if f"requeue job {one}" in said else (other, one)
    assert f"requeue job {moved}  moved for job {gang} (room)" in said
    with steered.running(*GATE, "--move"):
        steered.runs(gang, moved, within_s=60)
    assert steered.job(moved).node_list == steered.job(stays).node_list != steered.job(gang).node_list


# -- spares


def test_spares_are_kept_and_given_back_one_for_each_node_that_fails(steered: Steered) -> None:
    slurm = steered.slurm
    slurm.submit("--nodes=2", WHOLE, "--time=60", "--nodelist=gpu[05-06]")
    slurm.wait("it ran", lambda: slurm.idle() == 14, 20)
    schedule(steered, "--reserve-spares=2")
    spares = steered.reservations()["muster_spares"]
    assert spares.nodes == ("gpu07", "gpu08"), "of the leaf that is not whole any more"
    assert schedule(steered, "--reserve-spares=2").count("muster_spares") == 0, "they stay where they are"
    gang = slurm.submit("--nodes=14", WHOLE, "--time=60")
    steered.waits(gang)
    slurm.run("scontrol", "update", "NodeName=gpu16", "State=DRAIN", "Reason=test")
    schedule(steered, "--reserve-spares=2")
    assert len(steered.reservations()["muster_spares"].nodes) == 1
    slurm.run("scontrol", "update", "NodeName=gpu16", "State=RESUME")


# -- back to what was


def busy(steered: Steered) -> list[int]:
    """A full cluster and gangs that wait, one of them held, one with a list of its own."""
    slurm = steered.slurm
    runs = slurm.submit("--nodes=16", WHOLE, "--time=2")
    steered.runs(runs)
    waits = [
        slurm.submit("--nodes=8", WHOLE, "--time=60", "--exclude=gpu01", "--nice=7", user="games"),
        slurm.submit("--nodes=16", WHOLE, "--time=60", user="news"),
        slurm.submit("--nodes=4", WHOLE, "--time=60", "--hold"),
    ]
    slurm.wait("they waited", lambda: len(waiting(steered)) == len(waits), 20)
    return waits


@pytest.mark.parametrize("state_is_lost", [False, True], ids=["with its state", "its state lost"])
def test_release_leaves_nothing_behind(steered: Steered, state_is_lost: bool) -> None:
    busy(steered)
    before = plain(steered.slurm)
    schedule(steered, "--reserve-spares=1")
    assert plain(steered.slurm) != before
    assert {each["what"] for each in steered.told()} >= {"reservation muster_job_" + str(max_gang(steered))}
    if state_is_lost:
        steered.state.unlink()
    steered.muster("release", "--yes")
    assert plain(steered.slurm) == before
    assert steered.told() == []
    assert not steered.state.exists()
    assert "Nothing of Muster" in steered.muster("release", "--yes")


def waiting(steered: Steered) -> list[str]:
    return [name for name, job in steered.jobs().items() if job.state == "PENDING"]


def max_gang(steered: Steered) -> str:
    return next(name for name, job in steered.jobs().items() if job.nodes[0] == 16 and job.state == "PENDING")


def test_a_dry_run_writes_nothing(steered: Steered) -> None:
    busy(steered)
    before = plain(steered.slurm)
    said = steered.muster("schedule", "--once", "--dry-run", "--reserve-spares=1", "--gate=10m")
    assert "create reservation muster_gate" in said
    assert "Nothing is changed." in said
    assert plain(steered.slurm) == before
    assert not steered.state.exists()


@pytest.mark.parametrize("after_s", [0.6, 1.2, 2.0, 3.1])
def test_killed_at_any_moment_release_puts_everything_back(steered: Steered, after_s: float) -> None:
    busy(steered)
    before = plain(steered.slurm)
    with steered.running("--every=0.5s", "--reserve-spares=1") as process:
        time.sleep(after_s)
        process.kill()
        process.wait()
    steered.muster("release", "--yes")
    assert plain(steered.slurm) == before


def test_what_a_user_changed_meanwhile_is_left_alone(steered: Steered) -> None:
    slurm = steered.slurm
    runs = slurm.submit("--nodes=16", WHOLE, "--time=2")
    steered.runs(runs)
    gang = slurm.submit("--nodes=16", WHOLE, "--time=60", user="games")
    steered.waits(gang)
    schedule(steered)
    slurm.run("scontrol", "update", f"JobId={gang}", "ReservationName=", "Nice=50", user="games")
    steered.muster("release", "--yes")
    assert (steered.job(gang).nice, steered.job(gang).reservation) == (50, "")
    assert steered.job(gang).admin_comment == ""


def test_a_comment_of_the_site_stays(steered: Steered) -> None:
    slurm = steered.slurm
    steered.runs(slurm.submit("--nodes=16", WHOLE, "--time=2"))
    gang = slurm.submit("--nodes=16", WHOLE, "--time=60", user="games")
    slurm.run("scontrol", "update", f"JobId={gang}", "AdminComment=ticket 4711 (ask Ann)")
    schedule(steered)
    assert steered.job(gang).admin_comment.startswith("ticket 4711 (ask Ann) muster(")
    steered.muster("release", "--yes")
    assert steered.job(gang).admin_comment == "ticket 4711 (ask Ann)"


# -- the process


def test_a_process_that_is_told_to_stop_ends_in_order_and_releases(steered: Steered) -> None:
    busy(steered)
    before = plain(steered.slurm)
    with steered.running("--every=1s", "--release-on-exit") as process:
        steered.slurm.wait("it steered", lambda: bool(steered.reservations()), 20)
        assert "steered already, by process" in steered.muster("schedule", "--once", "--yes", code=2)
        assert "steered already, by process" in steered.muster("release", "--yes", code=2)
        assert "Steered by process" in steered.muster("status")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    assert plain(steered.slurm) == before


def test_a_controller_that_is_away_is_waited_for(steered: Steered) -> None:
    slurm = steered.slurm
    steered.runs(slurm.submit("--nodes=16", WHOLE, "--time=2"))
    with steered.running("--every=0.5s"):
        slurm.wait("it steered", lambda: "Steers every" in steered.said(), 20)
        slurm.kill("slurmctld", signal.SIGTERM)
        slurm.wait("it noticed", lambda: "the next cycle tries again" in steered.said(), 40)
        slurm.restart("slurmctld")
        gang = slurm.submit("--nodes=16", WHOLE, "--time=60")
        slurm.wait("it goes on", lambda: f"muster_job_{gang}" in steered.reservations(), 30)
    steered.muster("release", "--yes")


def test_without_rights_one_line_says_what_is_needed(steered: Steered) -> None:
    slurm = steered.slurm
    steered.runs(slurm.submit("--nodes=16", WHOLE, "--time=2"))
    slurm.submit("--nodes=16", WHOLE, "--time=60", user="games")
    said = steered.muster("schedule", "--once", "--yes", user="games", code=3)
    assert "user games may not do this" in said
    assert "set AdminLevel=Operator" in said


def test_what_slurmctld_refuses_stops_nothing_else_and_what_it_does_not_start_is_left_to_it(steered: Steered) -> None:
    slurm = steered.slurm
    schedule(steered, *GATE)
    limited = slurm.submit("--nodes=3", WHOLE, "--time=60", "--qos=small", user="games")  # 16 GPUs a user at most
    other = slurm.submit("--nodes=14", WHOLE, "--time=60")
    steered.waits(limited, other)
    with steered.running("--gate=2m", "--every=1s"):
        steered.runs(other, within_s=60)
    assert steered.state_of(limited) == "PENDING"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--every=soon",), "'soon' is no time"),
        (("--partition=gpus",), "there is no partition 'gpus'"),
        (("--gate=10m", "--partition=gpu"), "a gate closes the nodes for all partitions"),
        (("--gate=5s",), "is too short"),
        (("--cluster=slurm+http://head:6820",), "can be read, but not steered"),
        (("--set=reservation=2",), "there is no setting 'reservation'"),
    ],
)
def test_mistakes_are_named(steered: Steered, arguments: tuple[str, ...], text: str) -> None:
    assert text in steered.muster("schedule", "--once", "--yes", *arguments, code=2)


def test_nobody_to_ask(steered: Steered) -> None:
    assert "--yes writes without asking" in steered.muster("schedule", "--once", code=2)
