"""Prometheus as a server on this machine answers it: windows, refusals, and what is no Prometheus."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from click.testing import CliRunner

from muster.backends.prometheus import query_range
from muster.cli.main import main
from muster.errors import ClusterError, InputError


class Server(http.server.ThreadingHTTPServer):
    """Says what it is told to; keeps the queries and the tokens."""

    answer: tuple[int, str] | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[dict[str, list[str]]] = []
        self.tokens: list[str | None] = []


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        self.server.asked.append({"path": [parts.path], **query})
        self.server.tokens.append(self.headers["Authorization"])
        status, body = self.server.answer or (200, series(query["query"][0]))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


def series(metric: str) -> str:
    """Two GPUs of a and one of nobody; SM_ACTIVE is measured, the rest is not."""
    values = {"DCGM_FI_DEV_GPU_UTIL": (90, 0, 0), "DCGM_FI_PROF_SM_ACTIVE": (0.4, 0, 0)}.get(metric, ())
    result = [
        {"metric": {"__name__": metric, "UUID": f"GPU-{at}", **({"exported_namespace": "a"} if at < 2 else {})},
         "values": [[1, str(value)], [601, str(value)]]}
        for at, value in enumerate(values)
    ]  # fmt: skip
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        threading.Thread(target=found.serve_forever, args=(0.01,), daemon=True).start()
        yield found
        found.shutdown()


def address(server: Server) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"


def test_a_day_of_each_metric_is_asked_for(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROMETHEUS_TOKEN", "abc")
    answers = json.loads(query_range(f"{address(server)}/prom/", ["DCGM_FI_DEV_GPU_UTIL", "other"], 100_000.0))
    assert [len(each["data"]["result"]) for each in answers] == [3, 0]
    (first, second) = server.asked
    assert (first["path"], first["start"], first["end"]) == (["/prom/api/v1/query_range"], ["13600"], ["100000"])
    assert (first["step"], second["query"]) == (["600"], ["other"])
    assert server.tokens == ["Bearer abc"] * 2


def test_the_command(server: Server) -> None:
    found = CliRunner().invoke(main, ["plan", "utilization", "--prometheus", address(server), "-o", "json"])
    assert found.exit_code == 0, found.output
    inputs = {each["symbol"]: each for each in json.loads(found.stdout)["inputs"]}
    assert (inputs["C"]["value"], round(inputs["a"]["value"], 4)) == (3, 0.6667)
    assert inputs["C"]["origin"] == "from your data"
    (share,) = [each["value"] for each in json.loads(found.stdout)["results"] if "does work" in each["name"]]
    assert share == pytest.approx(0.4 / 3, rel=1e-3)


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((401, "no"), "refuses"),
        ((200, "<html>"), "nothing that Prometheus"),
        ((200, "[]"), "nothing that Prometheus"),
        ((400, '{"status":"error","error":"bad\\nquery"}'), "bad query"),
    ],
)
def test_refusals(answer: tuple[int, str], told: str, server: Server) -> None:
    server.answer = answer
    with pytest.raises(ClusterError, match=told):
        query_range(address(server), ["x"], 0.0)


@pytest.mark.parametrize("url", ["", "prometheus:9090", "ftp://x", "http://", "http://x:banana"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(InputError, match="--prometheus"):
        query_range(url, ["x"], 0.0)


def test_nobody_listens() -> None:
    with pytest.raises(ClusterError, match="does not answer"):
        query_range("http://127.0.0.1:9", ["x"], 0.0, within_s=2.0)
