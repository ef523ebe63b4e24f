"""Traces of a cycle and of its writes, on the real process with a server in memory."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import asyncio
import random
import sys
from typing import Any

import pytest

from inmemory import Cluster, node
from muster.backends.kubernetes.commit import Outcome
from muster.errors import InputError
from muster.kube.world import World
from muster.service.scheduler.process import Clock, SchedulerProcess
from muster.service.scheduler.settings import LeaderElection, SchedulerSettings, Telemetry, settings_of
from muster.service.scheduler.tracing import NoTracing, OpenTelemetry, tracing_of


class Server:
    """Takes every write."""

    async def request(self, method: str, path: str, **_: object) -> bytes:
        return b"{}"

    async def discover(self) -> Server:
        return self

    def path(self, *_: object) -> None:
        return None


async def _one_cycle(tracing: Any, world: World) -> SchedulerProcess:
    """A process that reads what is in a world, decides once, and writes."""
    settings = SchedulerSettings(leader_election=LeaderElection(enabled=False))
    server: Any = Server()
    clock = Clock(lambda: 1_767_225_601.0)
    process = SchedulerProcess(server, settings, "me", random.Random(1), clock, tracing)
    for name, kept in vars(world).items():
        setattr(process.world, name, kept)
    process.state.relead()
    work = asyncio.ensure_future(process._writer.run())
    await process.cycle()
    while not process._writer.idle:
        await asyncio.sleep(0.01)
    work.cancel()
    return process


def test_a_cycle_and_its_writes_are_one_trace() -> None:
    export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
    cluster = Cluster([node(f"n{index}") for index in range(2)])
    cluster.put_gang("g", 2)
    exporter = export.InMemorySpanExporter()
    tracing = OpenTelemetry(Telemetry(enabled=True), "me", exporter)
    asyncio.run(_one_cycle(tracing, cluster.world))
    tracing._provider.force_flush()
    spans: dict[str, list[Any]] = {}
    for each in exporter.get_finished_spans():
        spans.setdefault(each.name, []).append(each)
    tracing.end()
    assert {name: len(found) for name, found in spans.items()} == {
        "cycle": 1, "refresh": 1, "plan": 1, "commit": 1, "bind": 2
    }  # fmt: skip
    (cycle,), (commit,) = spans["cycle"], spans["commit"]
    assert cycle.parent is None
    assert (cycle.attributes["muster.decisions"], cycle.attributes["muster.writes"]) == (1, 2)
    assert all(spans[name][0].parent.span_id == cycle.context.span_id for name in ("refresh", "plan", "commit"))
    for bind in spans["bind"]:
        assert bind.parent.span_id == commit.context.span_id
        assert bind.attributes["muster.gang"] == "ns/g"
        assert bind.attributes["k8s.node.name"] in ("n0", "n1")
        assert bind.attributes["muster.outcome"] == Outcome.DONE.value
    assert {each.attributes["k8s.pod.name"] for each in spans["bind"]} == {"g-0", "g-1"}
    assert cycle.resource.attributes["service.name"] == "muster-scheduler"


def test_it_is_off_by_default() -> None:
    assert isinstance(tracing_of(SchedulerSettings().telemetry, "me"), NoTracing)
    cluster = Cluster([node("n0")])
    cluster.put_gang("g", 1)
    process = asyncio.run(_one_cycle(None, cluster.world))
    assert isinstance(process.tracing, NoTracing)
    assert process.figures.writes.labels("bind", "done")._value.get() == 1


def test_without_the_packages_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(InputError) as told:
        tracing_of(Telemetry(enabled=True), "me")
    assert "telemetry.enabled" in str(told.value)
    assert "muster-gpu[telemetry]" in str(told.value)


@pytest.mark.parametrize(
    ("telemetry", "field"),
    [
        ({"endpoint": "collector:4318"}, "telemetry.endpoint"),
        ({"sample": 2}, "telemetry.sample"),
        ({"on": 1}, "telemetry"),
    ],
)
def test_what_is_wrong_in_its_settings_is_named(telemetry: dict[str, Any], field: str) -> None:
    head = {"apiVersion": "config.muster.dev/v1alpha1", "kind": "SchedulerConfiguration"}
    with pytest.raises(InputError) as told:
        settings_of(head | {"telemetry": telemetry})
    assert told.value.field == field
