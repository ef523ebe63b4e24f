"""Figures of fleet and queues in the text format of OpenMetrics (https://openmetrics.io)."""

from __future__ import annotations

# prometheus_client has no types for its OpenMetrics writer.
# pyright: reportUnknownVariableType=false
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from muster.answers.fleet_table import flavors
from muster.answers.queue_table import shares
from muster.answers.view import View
from muster.errors import MusterError
from muster.service.names import PENDING_GANGS

GPUS = {
    "allocated": "allocated_milli",
    "free": "free_milli",
    "closed": "closed_milli",
    "unhealthy": "unhealthy_milli",
}
"""What GPUs are: the four add up. ``closed`` are free on nodes on which nothing may start."""
SHARES = ("guaranteed", "fair", "used", "borrowed", "lent", "available")


def metrics_text(view: View) -> bytes:
    """All figures of a view; ends with ``# EOF``."""
    return generate_latest(registry_of(lambda: view))


def registry_of(view: Callable[[], View]) -> CollectorRegistry:
    """A registry whose figures are those of the view at the time of each scrape."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(view))
    return registry


class _Figures(Collector):
    def __init__(self, view: Callable[[], View]) -> None:
        self._view = view

    def describe(self) -> list[Metric]:
        """Nothing: names are known when figures are asked for, which is dear."""
        return []

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("muster_up", "1 if the source could be read, else 0: then nothing else is told")
        try:
            view = self._view()
        except MusterError:
            up.add_metric([], 0.0)
            yield up
            return
        up.add_metric([], 1.0)
        yield up
        yield from _fleet(view)
        yield from _queues(view)
        yield from _work(view)
        yield GaugeMetricFamily(
            "muster_snapshot_time_seconds", "The instant of the snapshot, since its epoch", value=view.now_s
        )


def _fleet(view: View) -> Iterator[Metric]:
    gpus = GaugeMetricFamily("muster_gpus", "GPUs by flavor and what they are", labels=["flavor", "state"])
    nodes = GaugeMetricFamily("muster_nodes", "Nodes by flavor; closed: nothing may start", labels=["flavor", "state"])
    whole = GaugeMetricFamily("muster_whole_free_nodes", "Open nodes of which all GPUs are free", labels=["flavor"])
    idle = GaugeMetricFamily("muster_idle_gpus", "Allocated to work that does not use them", labels=["flavor"])
    for of in flavors(view):
        for state, key in GPUS.items():
            gpus.add_metric([of.flavor, state], getattr(of, key) / 1000)
        nodes.add_metric([of.flavor, "open"], of.nodes - of.closed_nodes)
        nodes.add_metric([of.flavor, "closed"], of.closed_nodes)
        whole.add_metric([of.flavor], of.whole_free_nodes)
        idle.add_metric([of.flavor], of.idle_milli / 1000)
    yield from (gpus, nodes, whole, idle)


def _queues(view: View) -> Iterator[Metric]:
    family = GaugeMetricFamily("muster_queue_gpus", "GPUs of a queue by flavor", labels=["queue", "flavor", "what"])
    for each in shares(view):
        for what in SHARES:
            family.add_metric([each.queue, each.flavor, what], getattr(each, f"{what}_milli") / 1000)
    yield family


def _work(view: View) -> Iterator[Metric]:
    scheduler = view.scheduler
    counts: dict[tuple[str, str], int] = {}
    waiting: dict[str, list[float]] = {}
    for gang in scheduler.pending:
        queue, reason = gang.workload.queue, scheduler.waits_for(gang, view.now_s).name.lower()
        counts[queue, reason] = counts.get((queue, reason), 0) + 1
        known = waiting.setdefault(queue, [0.0, 0.0])
        known[0] += gang.kind.milli / 1000
        known[1] = max(known[1], view.now_s - gang.workload.submitted_s)
    running: dict[str, int] = {}
    for run in scheduler.running:
        running[run.workload.queue] = running.get(run.workload.queue, 0) + 1
    pending = GaugeMetricFamily(PENDING_GANGS.name, PENDING_GANGS.about, labels=PENDING_GANGS.labels)
    for (queue, reason), count in sorted(counts.items()):
        pending.add_metric([queue, reason], count)
    gpus = GaugeMetricFamily("muster_pending_gpus", "GPUs that waiting gangs ask for", labels=["queue"])
    oldest = GaugeMetricFamily("muster_oldest_wait_seconds", "How long the oldest gang has waited", labels=["queue"])
    for queue, (wanted, waited_s) in sorted(waiting.items()):
        gpus.add_metric([queue], wanted)
        oldest.add_metric([queue], waited_s)
    runs = GaugeMetricFamily("muster_running_gangs", "Gangs that run", labels=["queue"])
    for queue, count in sorted(running.items()):
        runs.add_metric([queue], count)
    yield from (pending, gpus, oldest, runs)
