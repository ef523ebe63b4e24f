"""Slurm's commands on this machine: run with a time limit, in UTC; what they complain of becomes one clear line."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from muster.errors import ClusterError, InputError

WITHIN_S = 30.0
"""So long a command may take; a controller that hangs is tried by Slurm itself for ten seconds and more."""


class Answer(Struct, frozen=True):
    """What a command printed, and how it ended."""

    output: str
    complaint: str
    code: int


class Commands:
    """Runs Slurm's commands.

    Args:
        conf: slurm.conf; empty: the environment's SLURM_CONF, else Slurm's own place.
        within_s: how long a command may take.
    """

    def __init__(self, conf: str = "", within_s: float = WITHIN_S) -> None:
        self._within_s = within_s
        self._environment = dict(os.environ)
        # times in UTC need no zone, and the format is Slurm's own whatever the user's profile says
        self._environment.update(TZ="UTC", LC_ALL="C", SLURM_TIME_FORMAT="standard")
        for name in [name for name in self._environment if name.startswith(("SQUEUE_", "SINFO_", "SCONTROL_"))]:
            del self._environment[name]
        if conf:
            self._environment["SLURM_CONF"] = conf
        self.conf = self._environment.get("SLURM_CONF", "")

    def check(self) -> None:
        """Raise where the commands are not here, or SLURM_CONF names no file."""
        if shutil.which("scontrol", path=self._environment.get("PATH")) is None:
            hint = (
                "ask on a login node, or files that Slurm's commands wrote: --from DIR, or --cluster slurm+http://HOST"
            )
            raise ClusterError("there is no Slurm on this machine (no scontrol in PATH)", hint=hint)
        if self.conf and not Path(self.conf).is_file():
            hint = "it is the path of slurm.conf; unset it for /etc/slurm/slurm.conf or a configless controller"
            raise InputError("there is no such file", file=self.conf, field="SLURM_CONF", hint=hint)

    def ask(self, *command: str) -> Answer:
        """Run a command, whatever comes of it. Raises `ClusterError` where it is not there or takes too long."""
        try:
            done = subprocess.run(
                command, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True, check=False,
                timeout=self._within_s,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            what = f"`{' '.join(command)}` has not answered within {self._within_s:.0f} s"
            raise ClusterError(what, hint="scontrol ping; the controller may hang") from None
        except OSError as error:
            raise ClusterError(f"{command[0]} cannot be run ({error.strerror})") from None
        output, complaint = (part.decode(errors="replace") for part in (done.stdout, done.stderr))
        return Answer(output, complaint.strip() or (output.strip() if done.returncode else ""), done.returncode)

    def run(self, *command: str) -> str:
        """What a command prints. Raises `ClusterError` or `InputError` with what is wrong."""
        answer = self.ask(*command)
        if answer.code != 0:
            raise error_of(command, answer.complaint, self.conf)
        return answer.output


def error_of(command: Sequence[str], complaint: str, conf: str = "") -> ClusterError | InputError:
    """What a command's complaint means."""
    text = re.sub(r"^(?:\w+: )?(?:error|fatal): ", "", last_line(complaint))
    lower = complaint.casefold()
    where = conf or "slurm.conf"
    if "munge" in lower and ("encode failed" in lower or "is munged up" in lower or "did you start munged" in lower):
        return ClusterError(f"munge does not answer on this machine ({text})", hint="systemctl status munge")
    if "unable to process configuration file" in lower or "parse error" in lower or "parsing error" in lower:
        first = re.sub(r"^(?:\w+: )?(?:error|fatal): ", "", complaint.strip().splitlines()[0])
        return InputError(first, file=where, field="SLURM_CONF", hint="slurmctld would not start with it either")
    if "could not establish a configuration source" in lower or "could not find the required" in lower:
        hint = "SLURM_CONF=/path/to/slurm.conf; without one the commands ask DNS for a controller (configless)"
        return InputError("no slurm.conf is found", file=where, field="SLURM_CONF", hint=hint)
    if "unable to contact slurm controller" in lower or "connection refused" in lower or "timed out" in lower:
        hint = "scontrol ping, and the end of slurmctld's log; or SLURM_CONF is another cluster's"
        return ClusterError(f"the controller of {where} does not answer", hint=hint)
    if any(words in lower for words in ("access/permission denied", "invalid user id", "permission denied")):
        return ClusterError(f"`{' '.join(command)}` is refused: {text}", hint="sacctmgr show user $USER withassoc")
    return ClusterError(f"`{' '.join(command)}`: {text or 'it fails and says nothing'}")


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""
