"""Figures of the running scheduler, for Prometheus; named as those of kube-scheduler are, with `muster_` before."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.openmetrics.exposition import generate_latest  # pyright: ignore[reportUnknownVariableType]

from muster.backends.kubernetes.api import ApiError
from muster.backends.kubernetes.commit import Outcome
from muster.service.names import PENDING_GANGS

if TYPE_CHECKING:
    from muster.service.scheduler.writer import Write

_FAST = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384)
_LONG = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600)


class Figures:
    """All figures of one scheduler, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.cycle_s = Histogram(
            "muster_scheduling_algorithm_duration_seconds", "One cycle of the engine.", buckets=_FAST, registry=registry
        )
        self.refresh_s = Histogram(
            "muster_refresh_duration_seconds", "Entering what changed before a cycle.", buckets=_FAST, registry=registry
        )
        self.attempts = Counter(
            "muster_schedule_attempts", "Pods that a cycle placed, or gangs that it left waiting.", ["result"],
            registry=registry,
        )  # fmt: skip
        self.gang_s = Histogram(
            "muster_gang_scheduling_sli_duration_seconds",
            "From when the last pod of a gang was there to when the last was bound.", buckets=_LONG, registry=registry,
        )  # fmt: skip
        self.writes = Counter("muster_writes", "Writes to the API server.", ["kind", "outcome"], registry=registry)
        self.write_s = Histogram(
            "muster_write_duration_seconds", "One write.", ["kind"], buckets=_FAST, registry=registry
        )
        self.errors = Counter("muster_api_errors", "Requests that failed, by status.", ["status"], registry=registry)
        name, about, labels = PENDING_GANGS
        self.pending = Gauge(name, about, labels, registry=registry)
        self.leads = Gauge(
            "muster_leader_election_master_status", "1 if this replica leads.", ["name"], registry=registry
        )
        self.partial = Gauge("muster_partial_gangs", "Gangs of which only some pods are bound.", registry=registry)
        self.watch_s = Gauge(
            "muster_watch_silence_seconds",
            "Since the API server was last heard of a kind.",
            ["kind"],
            registry=registry,
        )
        self.relists = Gauge("muster_watch_relists", "How often a kind was listed.", ["kind"], registry=registry)
        self.rebuilds = Gauge("muster_rebuilds", "How often the books were made anew.", registry=registry)

    def wrote(self, write: Write, outcome: Outcome, took_s: float) -> None:
        """A write came to an end."""
        kind = type(write).__name__.lower()
        self.writes.labels(kind, outcome.value).inc()
        self.write_s.labels(kind).observe(took_s)

    def failed(self, error: Exception) -> None:
        """A request failed."""
        status = str(error.status) if isinstance(error, ApiError) else "unreachable"
        self.errors.labels(status).inc()

    def text(self) -> bytes:
        """As OpenMetrics."""
        return cast("bytes", generate_latest(self.registry))
