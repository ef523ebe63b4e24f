"""Schedulers in a contest on real control planes: each gets one of its own, started fresh."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "dev"))

from controlplane import Cluster, Settings, Shape  # noqa: E402
from controlplane.muster import Replica, cpu_s, most_memory_mb  # noqa: E402
from controlplane.processes import running  # noqa: E402


class Contestant:
    """A scheduler on a cluster: started, ended, its CPU and memory. ``kueue`` is Kueue with kube-scheduler."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        self.name, self.cluster = name, cluster
        self._replica: Replica | None = None

    @property
    def scheduler_name(self) -> str:
        return "muster" if self.name == "muster" else "default-scheduler"

    def start(self) -> None:
        if self.name == "muster":
            self._replica = Replica(self.cluster, leaderElection={"enabled": False}).start()
        else:
            self.cluster.start("kube-scheduler")

    def end(self) -> None:
        if self._replica is not None:
            self._replica.end()
        elif "kube-scheduler" in running(self.cluster.folder):
            self.cluster.kill("kube-scheduler")

    @property
    def pids(self) -> list[int]:
        if self._replica is not None:
            return [self._replica.pid]
        there = running(self.cluster.folder)
        return [there["kube-scheduler"], *(there[name] for name in self.cluster.settings.controllers)]

    def cpu_s(self) -> float:
        return sum(map(cpu_s, self.pids))

    def memory_mb(self) -> float:
        return sum(map(most_memory_mb, self.pids))


@contextmanager
def contest(name: str, shape: Shape, gates: tuple[str, ...] = (), crds: tuple[str, ...] = ()) -> Iterator[Contestant]:
    """A control plane of its own for one contestant, which is not started yet (Kueue's controller is)."""
    controllers = ("kueue",) if name == "kueue" else ()
    settings = Settings((shape,), scheduler=False, gates=gates, crds=crds, controllers=controllers)
    cluster = Cluster(f"bench-{name}-{os.getpid()}", settings)
    cluster.up(tied=True)
    contestant = Contestant(name, cluster)
    try:
        yield contestant
    finally:
        contestant.end()
        cluster.down()
