"""Clusters that end with what started them: a test, or a test run."""

from __future__ import annotations

import itertools
import os
from typing import Any

from controlplane.cluster import Cluster, Settings
from controlplane.nodes import Shape

SHAPE = Shape(20, 8, "H100", per_rack=4, blocks=2)
"""What a test gets that asks for nothing else."""
_numbers = itertools.count(1)


class Starter:
    """``starter(Shape(...), scheduler=True)`` starts a cluster with a name of its own; `end` ends them all."""

    def __init__(self, kubernetes: str = "") -> None:
        self.kubernetes = kubernetes
        self.started: list[Cluster] = []

    def __call__(self, *shapes: Shape, scheduler: bool = False, **more: Any) -> Cluster:
        """Start one and wait for it; ``more`` are fields of `Settings`."""
        settings = Settings(shapes or (SHAPE,), scheduler, self.kubernetes, **more)
        cluster = Cluster(f"test-{os.getpid()}-{next(_numbers)}", settings)
        self.started.append(cluster)
        return cluster.up(tied=True)

    def end(self) -> None:
        """End all that were started."""
        while self.started:
            self.started.pop().down()
