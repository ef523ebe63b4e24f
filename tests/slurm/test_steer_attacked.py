"""`muster slurm schedule` and `release` on a real Slurm, hurt at a chosen write: killed, or slurmctld or jobs gone.

A ``scontrol`` in front of Slurm's own counts the writes, and does something before the one that is chosen.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator

import pytest
from tests.slurm.steered import WHOLE, Steered, plain

from slurmdev import Slurm

IN_FRONT = """#!/bin/sh
case "$1" in
update|create|delete|requeue)
    n=$(($(cat {folder}/count 2>/dev/null || echo 0) + 1))
    echo $n >{folder}/count
    if [ -e {folder}/attack-$n ]; then . {folder}/attack-$n; fi
esac
exec {real} "$@"
"""
KILL = "kill -9 $PPID; exit 1"


class Attacked(Steered):
    """A Slurm that is steered through a ``scontrol`` that does something before a chosen write."""

    def __init__(self, slurm: Slurm) -> None:
        super().__init__(slurm)
        real = shutil.which("scontrol")
        self.bin = self.folder / "bin"
        self.bin.mkdir()
        front = self.bin / "scontrol"
        front.write_text(IN_FRONT.format(folder=self.bin, real=real))
        front.chmod(0o755)

    def attack(self, at: int, script: str) -> None:
        """Before the write with this number, counted from here, run a script of sh."""
        for each in self.bin.glob("attack-*"):
            each.unlink()
        (self.bin / "count").unlink(missing_ok=True)
        (self.bin / f"attack-{at}").write_text(script + "\n")

    def attacked(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `muster slurm ...` so; how it ended is the caller's to judge."""
        environment = self.slurm.environment()
        environment |= {"COLUMNS": "200", "PATH": f"{self.bin}{os.pathsep}{environment['PATH']}"}
        done = subprocess.run(
            self.command(arguments), env=environment, cwd="/", stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=120, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def busy(self) -> list[int]:
        """A full cluster and three that wait: a gang with a list of its own, one of all nodes, and one held."""
        self.runs(self.slurm.submit("--nodes=16", WHOLE, "--time=2"))
        waits = [
            self.slurm.submit("--nodes=8", WHOLE, "--time=60", "--exclude=gpu01", "--nice=7", user="games"),
            self.slurm.submit("--nodes=16", WHOLE, "--time=60", user="news"),
            self.slurm.submit("--nodes=4", WHOLE, "--time=60", "--hold"),
        ]
        self.waits(*waits)
        return waits


@pytest.fixture
def attacked(slurm_empty: Slurm) -> Iterator[Attacked]:
    """The Slurm without jobs, and nothing of Muster in it."""
    one = Attacked(slurm_empty)
    yield one
    one.close()


SCHEDULE = ("schedule", "--once", "--yes", "--reserve-spares=1")


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stderr.splitlines() if line.strip()]


@pytest.mark.slow
@pytest.mark.parametrize("state_is_lost", [False, True], ids=["with its state", "its state lost"])
def test_killed_before_each_write_in_turn_release_puts_everything_back(attacked: Attacked, state_is_lost: bool) -> None:
    attacked.busy()
    before = plain(attacked.slurm)
    at = 1
    for at in range(1, 20):
        attacked.attack(at, KILL)
        done = attacked.attacked(*SCHEDULE)
        if state_is_lost:
            attacked.state.unlink(missing_ok=True)
        attacked.muster("release", "--yes")
        assert plain(attacked.slurm) == before, f"killed before write {at}"
        assert attacked.told() == []
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL
    assert at > 3, "it was killed before several writes"


@pytest.mark.slow
def test_a_release_that_is_killed_before_each_write_in_turn_is_finished_by_the_next(attacked: Attacked) -> None:
    attacked.busy()
    before = plain(attacked.slurm)
    at = 1
    for at in range(1, 20):
        attacked.attack(99, KILL)
        assert attacked.attacked(*SCHEDULE).returncode == 0
        attacked.attack(at, KILL)
        done = attacked.attacked("release", "--yes")
        attacked.muster("release", "--yes")
        assert plain(attacked.slurm) == before, f"killed before write {at}"
        assert not attacked.state.exists()
        if done.returncode == 0:
            break
    assert at > 3


@pytest.mark.parametrize("at", [1, 2, 3])
def test_jobs_that_are_cancelled_between_plan_and_write_are_passed_over(attacked: Attacked, at: int) -> None:
    gone = attacked.busy()
    attacked.attack(at, f"scancel {' '.join(map(str, gone))}")
    done = attacked.attacked(*SCHEDULE)
    assert done.returncode == 0, done.stderr
    assert "refused" not in done.stderr
    assert "not needed any more" in done.stderr
    attacked.muster("schedule", "--once", "--yes")
    assert attacked.reservations() == {}, "the next cycle takes away what was made for them"
    attacked.muster("release", "--yes")
    assert attacked.told() == []


@pytest.mark.slow
@pytest.mark.parametrize("what", ["schedule", "release"])
def test_slurmctld_that_goes_in_the_midst_of_the_writes_is_one_line(attacked: Attacked, what: str) -> None:
    attacked.busy()
    before = plain(attacked.slurm)
    if what == "release":
        attacked.muster(*SCHEDULE)
    reached, gone = attacked.bin / "reached", attacked.bin / "gone"
    attacked.attack(2, f"touch {reached}; while [ ! -e {gone} ]; do sleep 0.1; done")

    def end_it() -> None:
        attacked.slurm.wait("the write was reached", reached.exists, 60)
        attacked.slurm.kill("slurmctld", signal.SIGTERM)
        gone.touch()

    ending = threading.Thread(target=end_it)
    ending.start()
    try:
        done = attacked.attacked(*(SCHEDULE if what == "schedule" else ("release", "--yes")))
    finally:
        ending.join()
        attacked.slurm.restart("slurmctld")
    assert done.returncode == 3, done.stderr
    troubles = [line for line in lines(done) if "does not answer" in line or "has not answered within" in line]
    assert len(troubles) == 1, done.stderr
    attacked.slurm.wait("it answers", lambda: bool(attacked.jobs()), 30)
    attacked.muster("release", "--yes")
    assert plain(attacked.slurm) == before


@pytest.mark.slow
def test_without_slurmctld_each_command_says_so_in_one_line_and_ends_with_3(attacked: Attacked) -> None:
    attacked.slurm.kill("slurmctld", signal.SIGTERM)
    try:
        for arguments in (SCHEDULE, ("schedule", "--once", "--dry-run"), ("release", "--yes"), ("status",)):
            said = attacked.muster(*arguments, code=3)
            assert "does not answer" in said
            assert len(said.strip().splitlines()) <= 2, said
    finally:
        attacked.slurm.restart("slurmctld")
    attacked.slurm.wait("it answers", lambda: attacked.slurm.command("scontrol", "show", "jobs").returncode == 0, 30)


def test_release_without_rights_is_one_line_and_changes_nothing(attacked: Attacked) -> None:
    attacked.busy()
    attacked.muster(*SCHEDULE)
    steered = plain(attacked.slurm)
    for path in attacked.folder.glob("state.json*"):
        path.chmod(0o666)
    said = attacked.muster("release", "--yes", user="games", code=3)
    assert "user games may not do this" in said
    assert plain(attacked.slurm) == steered
    attacked.muster("release", "--yes")
    assert attacked.told() == []


def test_two_that_do_not_know_of_each_other_leave_nothing_behind_either(attacked: Attacked) -> None:
    """State files of their own, as on two machines: no lock keeps them apart."""
    attacked.busy()
    before = plain(attacked.slurm)
    other = Attacked(attacked.slurm)
    try:
        commands = [one.command(SCHEDULE) for one in (attacked, other)]
        both = [
            subprocess.Popen(each, env=attacked.slurm.environment(), cwd="/", stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for each in commands
        ]  # fmt: skip
        for process in both:
            said = process.communicate(timeout=120)[0]
            assert process.returncode == 0, said
            assert "Traceback" not in said
        attacked.muster("release", "--yes")
        assert plain(attacked.slurm) == before
        assert "Nothing of Muster" in other.muster("release", "--yes")
    finally:
        other.close()
