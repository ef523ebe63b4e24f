"""Readers and writers of public formats, and the generator of synthetic workloads.

`read_workload` and `read_fleet` take a spec such as ``openb:PODS.csv`` or ``uniform:nodes=312,gpus=8,model=P100``.
"""

from muster.traces.read import (
    FLEET_KINDS,
    SNAPSHOT_KINDS,
    WORKLOAD_KINDS,
    read_fleet,
    read_fleet_as_it_is,
    read_snapshot,
    read_snapshot_and_skipped,
    read_workload,
)
from muster.traces.store import write_fleet, write_trace
from muster.traces.trace import Skipped, Trace

__all__ = [
    "FLEET_KINDS", "SNAPSHOT_KINDS", "WORKLOAD_KINDS", "Skipped", "Trace", "read_fleet", "read_fleet_as_it_is",
    "read_snapshot", "read_snapshot_and_skipped", "read_workload", "write_fleet", "write_trace",
]  # fmt: skip
