"""`muster scheduler` of this checkout on a cluster: replicas that tests and benchmarks start, measure and kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from controlplane.cluster import Cluster
from controlplane.errors import ClusterError

SOURCE = Path(__file__).resolve().parents[2] / "src"
_COMMAND = "from muster.cli.main import run; run()"
_TICKS = os.sysconf("SC_CLK_TCK")


class Replica:
    """One replica of the scheduler; ``settings`` are fields of its configuration file, ``more`` further arguments."""

    def __init__(self, cluster: Cluster, name: str = "muster", more: tuple[str, ...] = (), **settings: Any) -> None:
        self.cluster, self.name, self.more = cluster, name, more
        self.log = cluster.folder / f"{name}.log"
        self._config = cluster.folder / f"{name}.json"
        self._process: subprocess.Popen[bytes] | None = None
        head = {"apiVersion": "config.muster.dev/v1alpha1", "kind": "SchedulerConfiguration"}
        self._config.write_text(json.dumps(head | settings))

    def start(self, kubeconfig: Path | None = None) -> Replica:
        """Start it; does not wait."""
        command = [
            sys.executable, "-c", _COMMAND, "scheduler", "--config", str(self._config),
            "--kubeconfig", str(kubeconfig or self.cluster.kubeconfig), *self.more,
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(SOURCE)}
            )
        return self

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def leads(self) -> bool:
        """Whether it said so last."""
        told = self.log.read_text(errors="replace") if self.log.exists() else ""
        return self.running and "  identity=" in told.rpartition("starts")[2]

    def kill(self) -> None:
        """kill -9."""
        self._send(signal.SIGKILL)

    def end(self) -> int:
        """End it in order; its exit code."""
        return self._send(signal.SIGTERM)

    def pause(self) -> None:
        """Stop its clock."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _send(self, number: int) -> int:
        if self._process is None:
            return 0
        if self._process.poll() is None:
            self._process.send_signal(number)
        code = self._process.wait(60)
        self._process = None
        return code

    def wait_for(self, text: str, within_s: float = 60.0) -> None:
        """Wait until its log has a text. Raises `ClusterError` with the log's end."""
        until_s = time.monotonic() + within_s
        while text not in (self.log.read_text(errors="replace") if self.log.exists() else ""):
            if not self.running or time.monotonic() > until_s:
                raise ClusterError(f"{self.name}: no {text!r}; its log ends with:\n{self.tail()}")
            time.sleep(0.05)

    def tail(self, lines: int = 20) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:]) if self.log.exists() else ""

    @property
    def pid(self) -> int:
        """Its process; raises `ClusterError` where it does not run."""
        if self._process is None:
            raise ClusterError(f"{self.name} does not run")
        return self._process.pid


def cpu_s(pid: int) -> float:
    """CPU that a process has used since its start, of all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def most_memory_mb(pid: int) -> float:
    """The most resident memory that a process has had."""
    status = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) / 1000 for line in status.splitlines() if line.startswith("VmHWM"))
