"""What a run is given beside its cluster: how the simulated world behaves, and the check of its work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from muster.engine.requests import check_request
from muster.errors import InputError
from muster.model.parallelism import check_parallelism
from muster.model.snapshot import Snapshot
from muster.model.workload import Workload
from muster.planning.placed import Network
from muster.sim.failures import FailureModel
from muster.sim.services import Service

POD_BITS = 20
"""So many bits number the pods of a gang in a run."""


class RunOptions(Struct, frozen=True):
    """How the simulated cluster behaves, apart from its scheduler.

    Attributes:
        at_limit: what becomes of work that outlives its time limit: ``kill`` or ``run-on``.
        pod_every_s: one-by-one gangs only: a gang's pods are created one after the other, one each so many seconds.
        check_every: after so many events the invariants are checked; 0: never.
        keep_places: keep where each pod was, for Gantt charts.
        keep_plans: keep every plan that is not empty, with its time.
        network: what the slow-down of placements is told from, beside the GPU models.
        stretch: run times are those at the best placement, and longer by the slow-down where a job stands.
        failures: what breaks; ``seed`` decides when.
        services: whose replicas come and go as they are wanted, up to ``services_until_s``.
        ready_timeout_s: one-by-one gangs only: a gang that has not all its pods after so long is stopped, and tried
            again after its back-off.
        busy: for jobs that do not use all that they hold: by name, steps of (seconds after the first start, GPUs used).
    """

    at_limit: Literal["kill", "run-on"] = "kill"
    pod_every_s: Annotated[float, Meta(ge=0)] = 0.05
    check_every: Annotated[int, Meta(ge=0)] = 0
    keep_places: bool = False
    keep_plans: bool = False
    network: Network = Network()
    stretch: bool = False
    failures: FailureModel = FailureModel()
    seed: int = 0
    services: tuple[Service, ...] = ()
    services_until_s: float = 0.0
    ready_timeout_s: Annotated[float, Meta(gt=0)] | None = None
    busy: dict[str, tuple[tuple[float, float], ...]] = {}


def check_workloads(snapshot: Snapshot, workloads: Sequence[Workload]) -> None:
    """Raise `InputError` for what would fail in the middle of a run."""
    seen: set[str] = set()
    checked: set[object] = set()
    for index, job in enumerate(workloads):
        where = f"workloads[{index}]"
        if job.name in seen:
            raise InputError(f"{job.name!r} is the name of another workload", field=f"{where}.name")
        seen.add(job.name)
        if not math.isfinite(job.submitted_s):
            raise InputError(f"is {job.submitted_s} ({job.name})", field=f"{where}.submitted_s", hint="a finite time")
        for key, value in (("duration_s", job.duration_s), ("time_limit_s", job.time_limit_s)):
            if value is not None and not value >= 0:
                raise InputError(f"is {value} ({job.name})", field=f"{where}.{key}", hint="seconds, 0 or more")
        if job.topology is not None and job.topology not in checked:
            checked.add(job.topology)
            check_request(snapshot.fleet.topology, job.topology, f"{where}.topology")
        if job.parallelism is not None:
            check_parallelism(job, f"{where}.parallelism")
        if any(not 0 <= each.required <= each.count < 1 << POD_BITS for each in job.pod_sets):
            raise InputError(f"a pod set of {job.name} has a wrong count", field=f"{where}.pod_sets")
