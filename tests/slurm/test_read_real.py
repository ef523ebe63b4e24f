"""A real Slurm is read by its commands, and asked what Muster's users ask."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from muster.answers.slurm import open_slurm, reading_of
from muster.answers.view import View
from muster.cli.main import main
from muster.errors import ClusterError, InputError
from muster.slurm.reasons import REASONS
from slurmdev import Settings, Slurm

Ask = Callable[..., str]


@pytest.fixture
def here(slurm_empty: Slurm, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """The commands of this process ask that Slurm."""
    for name, value in slurm_empty.environment().items():
        monkeypatch.setenv(name, value)
    return slurm_empty


def asked(*args: str) -> Result:
    return CliRunner().invoke(main, ["--cluster", "slurm", *args])


def shown(slurm: Slurm, job: int) -> str:
    return slurm.run("squeue", "-h", "-j", str(job), "-o", "%r").strip()


def reading() -> View:
    return View(open_slurm("slurm", lambda _: None).snapshot)


def test_what_runs_holds_the_gpus_that_slurm_gave_it(here: Slurm) -> None:
    job = here.submit("--nodes=2", "--gpus-per-node=4", "-A", "research", "-J", "pair", user="games")
    here.wait("it ran", lambda: here.run("squeue", "-h", "-t", "R"), 30)
    view = reading()
    run = view.find(str(job)).running
    assert run is not None
    assert (run.workload.title, run.workload.user, run.workload.queue) == ("pair", "games", "research")
    assert sorted(len(pod.devices) for pod in run.pods) == [4, 4]
    assert abs(run.started_s - time.time()) < 120
    document = json.loads(asked("fleet", "show", "-o", "json").output)
    assert sum(group["gpus_free"] for group in document["groups"]) == 120


def test_muster_starts_what_slurm_starts(here: Slurm) -> None:
    """Jobs wait in a partition that is down; what Muster's cycle starts if it were up is what Slurm starts then."""
    asks = (("-N4", "--gpus-per-node=8"), ("-N11", "--gpus-per-node=8"), ("-N2", "--gpus-per-node=2"), ("--gpus=6",))
    here.run("scontrol", "update", "PartitionName=gpu", "State=DOWN")
    try:
        jobs = [here.submit(*each, "-A", "research", "-t", "30", "--mem-per-gpu=1G") for each in asks]
        world = open_slurm("slurm", lambda _: None).world
    finally:
        here.run("scontrol", "update", "PartitionName=gpu", "State=UP")
    world.partitions = [replace(each, state="UP") for each in world.partitions]
    view = View(reading_of(world).snapshot)
    here.wait("slurm started them", lambda: len(here.run("squeue", "-h", "-t", "R").splitlines()) >= 3, 60)
    time.sleep(3)  # and no more than those
    theirs = here.run("squeue", "-h", "-t", "R", "-o", "%A").split()
    assert sorted(view.starts) == sorted(theirs) == [str(job) for job in (jobs[0], jobs[1], jobs[3])]


Make = Callable[[Slurm], int]


def _partition(state: str) -> Callable[[Slurm], None]:
    def change(slurm: Slurm) -> None:
        slurm.run("scontrol", "update", "PartitionName=spot", f"State={state}")

    return change


def _drain(slurm: Slurm) -> None:
    slurm.run("scontrol", "update", "NodeName=gpu07", "State=DRAIN", "Reason=fan")


def _all_licences(slurm: Slurm) -> None:
    slurm.submit("-L", "matlab:4", "-A", "research", user="news")


def _first(*options: str) -> Callable[[Slurm], None]:
    def submit(slurm: Slurm) -> None:
        slurm.submit("-A", "research", *options, user="news")

    return submit


def _all(*steps: Callable[[Slurm], None]) -> Callable[[Slurm], None]:
    def each(slurm: Slurm) -> None:
        for step in steps:
            step(slurm)

    return each


def _hold_all(slurm: Slurm) -> None:
    slurm.submit("-N16", "--gpus-per-node=8", "--exclusive", "-A", "research", "-t", "60", user="games")
    slurm.wait("it ran", lambda: slurm.run("squeue", "-h", "-t", "R"), 30)


def _limited(what: str, where: str = "account research") -> Callable[[Slurm], None]:
    def limit(slurm: Slurm) -> None:
        kind, name = where.split()
        key = "name" if kind in ("qos", "account") else "where"
        slurm.run("sacctmgr", "-i", "-Q", "modify", kind, "where", f"{key}={name}", "set", *what.split())

    return limit


def _submit(*options: str, user: str = "news") -> Make:
    def make(slurm: Slurm) -> int:
        return slurm.submit("-A", "research", "-t", "30", *options, user=user)

    return make


def _after_failure(slurm: Slurm) -> int:
    first = slurm.submit("-A", "research", body="exit 3", user="news")
    job = slurm.submit("-A", "research", f"--dependency=afterok:{first}", user="news")
    slurm.wait("it failed", lambda: "never" in slurm.run("squeue", "-h", "-j", str(job), "-o", "%r").lower(), 40)
    return job


def _after_all(slurm: Slurm) -> int:
    return _submit(f"--dependency=afterany:{slurm.run('squeue', '-h', '-o', '%A').strip()}")(slurm)


def _in_reservation(slurm: Slurm) -> int:
    slurm.run("scontrol", "create", "reservation", "ReservationName=later", "StartTime=now+3hours", "Duration=60",
              "Nodes=gpu01", "Users=news")  # fmt: skip
    return slurm.submit("-A", "research", "--reservation=later", "-t", "10", user="news")


def _array_task(slurm: Slurm) -> int:
    return slurm.submit("-A", "research", "--array=1-4%1", "--gpus=1", user="news")


Case = tuple[str, Callable[[Slurm], None] | None, Make, Callable[[Slurm], None] | None]
SPOT_UP = _partition("UP")
CASES: tuple[Case, ...] = (
    ("Resources", _hold_all, _submit("-N2", "--gpus-per-node=8"), None),
    ("Priority", _all(_hold_all, _first("-N2", "--gpus-per-node=8", "--qos=high")),
     _submit("-N2", "--gpus-per-node=8", "-t", "20:00:00"), None),
    ("JobHeldUser", None, _submit("--hold", "--gpus=1"), None),
    ("JobHeldAdmin", _hold_all, lambda s: _held_by_root(s, _submit("--gpus=1")(s)), None),
    ("BeginTime", None, _submit("--begin=now+2hours", "--gpus=1"), None),
    ("Dependency", _hold_all, _after_all, None),
    ("DependencyNeverSatisfied", None, _after_failure, None),
    ("PartitionTimeLimit", None, _submit("-p", "debug", "-t", "5:00:00"), None),
    ("PartitionNodeLimit", None, _submit("-p", "debug", "-N2"), None),
    ("PartitionDown", _partition("DOWN"), _submit("-p", "spot"), SPOT_UP),
    ("PartitionInactive", None, lambda s: _submitted_before(s), SPOT_UP),
    ("ReqNodeNotAvail", _drain, _submit("--nodelist=gpu07"), None),
    ("Reservation", None, _in_reservation, None),
    ("JobArrayTaskLimit", None, _array_task, None),
    ("Licenses", _all_licences, _submit("-L", "matlab:2"), None),
    ("AssocGrpGRES", _all(_limited("GrpTRES=gres/gpu=8"), _first("--gpus=8")), _submit("--gpus=4"),
     _limited("GrpTRES=gres/gpu=-1")),
    ("AssocGrpJobsLimit", _all(_limited("GrpJobs=1"), _first()), _submit("--gpus=4"), _limited("GrpJobs=-1")),
    ("AssocMaxJobsLimit", _all(_limited("MaxJobs=1"), _first()), _submit("--gpus=4"), _limited("MaxJobs=-1")),
    ("QOSMaxGRESPerUser", _first("--qos=small", "--gpus=16"), _submit("--qos=small", "--gpus=4"), None),
    ("QOSMaxWallDurationPerJobLimit", None, _submit("--qos=small", "-t", "2-00:00:00"), None),
    ("QOSGrpJobsLimit", _all(_limited("GrpJobs=1", "qos small"), _first("--qos=small")),
     _submit("--qos=small", "--gpus=1"), _limited("GrpJobs=-1", "qos small")),
)  # fmt: skip


def _held_by_root(slurm: Slurm, job: int) -> int:
    slurm.run("scontrol", "hold", str(job))
    return job


def _submitted_before(slurm: Slurm) -> int:
    slurm.run("scontrol", "update", "PartitionName=spot", "State=DOWN")
    job = slurm.submit("-A", "research", "-p", "spot", user="news")
    slurm.run("scontrol", "update", "PartitionName=spot", "State=INACTIVE")
    return job


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_a_waiting_job_is_explained_by_slurms_code_in_plain_words(here: Slurm, case: Case) -> None:
    code, before, make, after = case
    try:
        if before is not None:
            before(here)
            time.sleep(1)
        job = make(here)
        here.wait(f"{job} waited for {code}", lambda: shown(here, job).startswith(code), 40, 0.3)
        told = asked("why", str(job))
        assert told.exit_code == 1, told.output
        assert f"Slurm says {code}: {REASONS[code].text}" in " ".join(told.output.split())
        queue = asked("queue", "-o", "json")
        waiting = json.loads(queue.stdout)["waiting"]
        assert code in {each["slurm"] for each in waiting if each["job"].startswith(str(job))}
    finally:
        if after is not None:
            after(here)


# -- what goes wrong


def test_a_controller_that_does_not_answer(
    start_slurm: Callable[[Settings], Slurm], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = start_slurm(Settings(nodes=1, accounting=False))
    monkeypatch.setenv("SLURM_CONF", str(mine.conf))
    mine.submit("--gpus=1")
    found = asked("queue")
    assert found.exit_code == 0, found.output
    assert "partitions are the queues" in found.stderr or "left out" in found.stderr
    mine.kill("slurmctld", signal.SIGTERM)
    with pytest.raises(ClusterError, match="does not answer"):
        open_slurm("slurm", lambda _: None)


def test_a_wrong_slurm_conf(tmp_path: object, monkeypatch: pytest.MonkeyPatch, slurm_programs: None) -> None:
    monkeypatch.setenv("SLURM_CONF", f"{tmp_path}/none.conf")
    with pytest.raises(InputError, match=r"SLURM_CONF.*no such file"):
        open_slurm("slurm", lambda _: None)


def test_a_slurm_conf_that_slurm_does_not_read(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch, slurm_programs: None
) -> None:
    from pathlib import Path

    conf = Path(str(tmp_path)) / "slurm.conf"
    conf.write_text("ClusterName=x\nNoSuchThing=1\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    with pytest.raises(InputError, match="NoSuchThing"):
        open_slurm("slurm", lambda _: None)


def test_accounting_that_is_down_costs_the_accounts_alone(here: Slurm) -> None:
    here.submit("--gpus=1", "-A", "research")
    here.kill("slurmdbd", signal.SIGTERM)
    told: list[str] = []
    try:
        found = open_slurm("slurm", told.append)
    finally:
        here.restart("slurmdbd")
        here.wait("slurmdbd answered", lambda: here.command("sacctmgr", "-n", "list", "cluster").returncode == 0, 60)
    assert len(found.snapshot.fleet) == 16
    assert any("associations cannot be read" in text for text in told)


def test_slurmrestd_tells_the_same_as_the_commands(here: Slurm) -> None:
    """But for what its oldest API lacks, which is said."""
    if os.geteuid() != 0:
        pytest.skip("dev/slurm starts slurmrestd as root only")
    here.submit("--nodes=2", "--gpus-per-node=4", "-A", "research", "-J", "pair", user="games")
    here.submit("--nodes=1", "--gpus-per-node=8", "-A", "product", "--hold", user="mail")
    here.wait("it ran", lambda: here.run("squeue", "-h", "-t", "R"), 30)
    found = open_slurm(f"slurm+unix:{here.rest_socket}", lambda _: None)
    told, known = found.snapshot, reading().snapshot
    assert [each.name for each in told.fleet] == [each.name for each in known.fleet]
    assert [run.pods for run in told.running] == [run.pods for run in known.running]
    assert [(each.name, each.told, each.gpu_milli) for each in told.pending] == [
        (each.name, each.told, each.gpu_milli) for each in known.pending
    ]
    assert {"configuration", "switches"} <= {each.field for each in found.skipped}
