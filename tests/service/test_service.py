"""Metrics and the MCP server give the same figures as the commands, and say what is wrong in one line."""

from __future__ import annotations

# prometheus_client has no types for its OpenMetrics parser.
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from muster.answers.documents import fleet_document, queue_document
from muster.answers.sources import open_view
from muster.errors import InputError
from muster.model.snapshot import save_snapshot
from muster.service.latest import Latest
from muster.service.mcp_server import server_of
from muster.service.metrics import metrics_text

EXAMPLE = str(Path(__file__).resolve().parents[2] / "examples" / "fragmented.yaml")
AT_S = 10_800.0


@pytest.fixture(scope="module")
def latest() -> Latest:
    return Latest(EXAMPLE, AT_S, {})


def test_metrics_are_openmetrics_and_add_up(latest: Latest) -> None:
    view = latest.view()
    text = metrics_text(view).decode()
    assert text.endswith("# EOF\n")
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    gpus = {dict(labels)["state"]: value for (name, labels), value in found.items() if name == "muster_gpus"}
    assert sum(gpus.values()) == view.snapshot.fleet.gpus
    waits = {labels: value for (name, labels), value in found.items() if name == "muster_pending_gangs"}
    assert sum(waits.values()) == len(view.scheduler.pending)
    assert found["muster_snapshot_time_seconds", ()] == AT_S
    tree = {each["queue"]: each["used_milli"] / 1000 for each in queue_document(view)["queues"]}
    used = {
        dict(labels)["queue"]: value
        for (name, labels), value in found.items()
        if name == "muster_queue_gpus" and dict(labels)["what"] == "used"
    }
    assert used == tree


def test_the_mcp_tools_are_read_only_and_answer_as_the_commands_do(latest: Latest) -> None:
    async def ask() -> None:
        async with Client(server_of(latest.view)) as client:
            tools = (await client.list_tools()).tools
            assert {"why", "fit", "queue", "fleet", "whatif"} <= {tool.name for tool in tools}
            assert all(tool.annotations and tool.annotations.read_only_hint and tool.description for tool in tools)
            view = latest.view()
            assert (await client.call_tool("fleet", {})).structured_content == fleet_document(view)
            queue = (await client.call_tool("queue", {"limit": 1})).structured_content
            assert queue is not None
            assert (len(queue["waiting"]), queue["total_waiting"]) == (1, len(view.scheduler.pending))
            told = (await client.call_tool("why", {"job": "llama-70b"})).structured_content
            assert told is not None
            assert (told["state"], told["reason"]) == ("waits", "capacity")
            fits = (await client.call_tool("fit", {"pods": 1, "gpus": 4, "queue": "product"})).structured_content
            assert fits is not None
            assert (fits["schema"], fits["fits"]) == ("muster.fit/v1", True)
            then = (await client.call_tool("whatif", {"changes": ["add 1 racks"]})).structured_content
            assert then is not None
            assert [each["name"] for each in then["variants"]][1:] == ["changed"]
            wrong = await client.call_tool("why", {"job": "llama-7b"})
            assert wrong.is_error
            assert "did you mean llama-70b?" in str(wrong.content)

    asyncio.run(ask())


def test_the_mcp_server_over_stdin(tmp_path: Path) -> None:
    snapshot = tmp_path / "now.snap"
    save_snapshot(open_view(EXAMPLE, AT_S)[0].snapshot, snapshot)
    command = "from muster.cli.main import run; run()"
    server = StdioServerParameters(
        command=sys.executable, args=["-c", command, "mcp", "--from", str(snapshot)], env=dict(os.environ)
    )

    async def ask() -> Any:
        async with Client(server) as client:
            return (await client.call_tool("fleet", {})).structured_content

    assert json.loads(json.dumps(asyncio.run(ask())))["flavors"][0]["gpu_milli"] == 512_000


def test_a_source_is_read_anew_when_it_changes(tmp_path: Path) -> None:
    view, _ = open_view(EXAMPLE, AT_S)
    path = tmp_path / "now.snap"
    save_snapshot(view.snapshot, path)
    latest = Latest(str(path), None, {})
    first = latest.view()
    assert latest.view() is first
    save_snapshot(open_view(EXAMPLE, 2 * AT_S)[0].snapshot, path)
    assert latest.view().now_s == 2 * AT_S
    path.write_bytes(b"MUSTERSNAP")
    with pytest.raises(InputError, match=r"now\.snap"):
        latest.view()


def test_a_dump_in_several_files_is_read_anew_when_one_changes(tmp_path: Path) -> None:
    def write(name: str, *kinds: str) -> str:
        sizes = {"cpu": "8", "memory": "8Gi"}
        items = [{"kind": kind, "metadata": {"name": "x"}, "status": {"allocatable": sizes}} for kind in kinds]
        (tmp_path / name).write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
        return str(tmp_path / name)

    nodes, pods = write("nodes.json", "Node"), write("pods.json")
    for source in (f"kubectl:{nodes},{pods}", str(tmp_path)):
        latest = Latest(source, None, {})
        assert latest.view().snapshot.pending == ()
        write("pods.json", "Pod")
        assert [each.name for each in latest.view().snapshot.pending] == ["x"]
        write("pods.json")
