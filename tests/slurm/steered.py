"""Runs `muster slurm schedule|release|status` on a real Slurm, and looks at what is there."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from muster.slurm.hostlist import expand
from muster.slurm.records import SlurmJob, SlurmReservation, job_of, lines_of, reservation_of
from muster.slurm.steering.marks import PREFIX, mark_of, nodes_in
from slurmdev import Slurm

SOURCE = Path(__file__).resolve().parents[2] / "src"
BLOCKS = {f"gpu{number:02}": "block1" if number <= 8 else "block2" for number in range(1, 17)}
WHOLE = "--gpus-per-node=8"


class Steered:
    """A Slurm that is steered, with a state file of its own."""

    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm
        self._folder = tempfile.TemporaryDirectory(prefix="muster-steer-", dir="/var/tmp")
        self.folder = Path(self._folder.name)
        self.folder.chmod(0o777)

    def close(self) -> None:
        """Remove the state."""
        with suppress(OSError):
            self._folder.cleanup()

    @property
    def state(self) -> Path:
        """The state file."""
        return self.folder / "state.json"

    def command(self, arguments: Sequence[str], user: str = "") -> list[str]:
        prefix = ["setpriv", f"--reuid={user}", "--regid=nogroup", "--clear-groups"] if user else []
        start = f"import sys; sys.path.insert(0, {str(SOURCE)!r}); from muster.cli.main import run; run()"
        return [*prefix, sys.executable, "-c", start, "slurm", *arguments, f"--state={self.state}"]

    def muster(self, *arguments: str, code: int = 0, user: str = "") -> str:
        """Run `muster slurm ...`; what it printed and said. Fails where the exit code is another."""
        done = subprocess.run(
            self.command(arguments, user), env=self.slurm.environment() | {"COLUMNS": "200"}, cwd="/",
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout + done.stderr

    @contextmanager
    def running(self, *arguments: str) -> Generator[subprocess.Popen[str]]:
        """The process of `muster slurm schedule`; killed at the end if it still runs."""
        log = (self.folder / "log").open("a")
        process = subprocess.Popen(
            self.command(["schedule", "--yes", *arguments]), env=self.slurm.environment(), cwd="/",
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            log.close()

    def said(self) -> str:
        """What the process printed so far."""
        return (self.folder / "log").read_text()

    def jobs(self) -> dict[str, SlurmJob]:
        """All jobs by their number as squeue prints it (``12_3``)."""
        text = self.slurm.run("scontrol", "-o", "-d", "show", "jobs")
        found = [job_of(fields) for fields in lines_of(text, "JobId")]
        return {f"{job.array_job}_{job.array_tasks}" if job.array_job else job.id: job for job in found}

    def job(self, number: int | str) -> SlurmJob:
        """One job."""
        return self.jobs()[str(number)]

    def state_of(self, number: int | str) -> str:
        """A job's state."""
        return self.job(number).state

    def blocks(self, number: int | str) -> set[str]:
        """The blocks of switches in which a job runs."""
        return {BLOCKS[node] for node in expand(self.job(number).node_list)}

    def reservations(self) -> dict[str, SlurmReservation]:
        """All reservations by name."""
        text = self.slurm.command("scontrol", "-o", "show", "reservations").stdout
        return {each.name: each for each in map(reservation_of, lines_of(text, "ReservationName"))}

    def waits(self, *numbers: int) -> None:
        """Until these jobs wait and slurmctld has looked at them."""
        self.slurm.wait("the jobs waited", lambda: all(self.state_of(each) == "PENDING" for each in numbers), 20)

    def runs(self, *numbers: int | str, within_s: float = 30) -> None:
        """Until these jobs run."""
        self.slurm.wait("the jobs ran", lambda: all(self.state_of(each) == "RUNNING" for each in numbers), within_s)

    def told(self) -> list[dict[str, Any]]:
        """What `muster slurm status` tells."""
        out = self.muster("status", "-o", "json")
        return json.loads(out[out.index("{") :])["steered"]

    def check(self) -> None:
        """What must hold after every cycle: nobody is sent where it cannot run, nothing of Muster overlaps."""
        ours = [each for name, each in self.reservations().items() if name.startswith(PREFIX)]
        for at, one in enumerate(ours):
            for other in ours[at + 1 :]:
                apart = one.end_s <= other.start_s or other.end_s <= one.start_s
                assert apart or not set(one.nodes) & set(other.nodes), (one, other)
        for name, job in self.jobs().items():
            if job.state == "PENDING":
                left = set(BLOCKS) - set(nodes_in(job.exc_nodes))
                assert len(left) >= job.nodes[0], f"job {name} is left {len(left)} nodes"
                assert not job.reservation.startswith(PREFIX) or job.reservation in {each.name for each in ours}
                assert job.priority or not mark_of(job.admin_comment), f"job {name} is held"


_PASSING = tuple(
    f"{name}="
    for name in (
        "AccrueTime", "NumNodes", "LastSchedEval", "Scheduler", "RunTime", "Reason", "StartTime", "EndTime",
        "SchedNodeList", "Priority",
    )
)  # fmt: skip
"""Fields that change by themselves."""


def plain(slurm: Slurm) -> list[str]:
    """All jobs that wait or run and all reservations as scontrol shows them, without what changes by itself.

    An AdminComment that was set and taken away is shown as an empty one.
    """
    text = slurm.run("scontrol", "-o", "show", "jobs") + slurm.command("scontrol", "-o", "show", "reservations").stdout
    return [
        " ".join(word for word in line.split() if not word.startswith(_PASSING) and word != "AdminComment=")
        for line in text.splitlines()
        if not any(f"JobState={state}" in line for state in ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT"))
    ]
