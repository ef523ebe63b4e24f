"""slurmrestd that fails: each way is one clear line, exit code 3 where it is the server's, 2 where the user's."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from muster.backends.slurm.rest import read_rest
from muster.errors import ClusterError, InputError, MusterError

from .documented import documents

VERSION = "v0.0.42"
PATHS: dict[str, dict[str, object]] = {
    f"/slurm/{VERSION}/{what}": {} for what in ("nodes", "jobs", "partitions", "reservations")
}
GOOD = {f"/slurm/{VERSION}/{what}": document for what, document in documents(VERSION).items()}
GOOD["/openapi/v3"] = {"paths": PATHS}

Answer = tuple[int, bytes, dict[str, str]]
Change = Callable[[str, Answer], Answer]


class Rest:
    """A server that answers as slurmrestd does, but for what a test changes."""

    def __init__(self) -> None:
        self.change: Change = lambda _, answer: answer
        self.heard: list[dict[str, str]] = []
        rest = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                rest.heard.append({key.casefold(): value for key, value in self.headers.items()})
                known = self.path in GOOD
                body = json.dumps(GOOD[self.path] if known else {}).encode()
                status, body, headers = rest.change(self.path, (200 if known else 404, body, {}))
                self.send_response(status)
                for key, value in ({"Content-Length": str(len(body))} | headers).items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing is said."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.source = f"slurm+http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def rest(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rest]:
    monkeypatch.delenv("SLURM_JWT", raising=False)
    found = Rest()
    yield found
    found.close()


def of(where: str, change: Callable[[Answer], Answer]) -> Change:
    """A change of the answers to paths that end so."""
    return lambda path, answer: change(answer) if path.endswith(where) else answer


def error(text: str) -> bytes:
    return json.dumps({**GOOD[f"/slurm/{VERSION}/nodes"], "nodes": [], "errors": [{"description": text}]}).encode()


FAILS: tuple[tuple[str, Change, str], ...] = (
    ("401", of("", lambda _: (401, b"Authentication failure", {})), r"it wants a token \(401\)"),
    ("403", of("nodes", lambda _: (403, b"", {})), r"it wants a token \(403\)"),
    ("a page", of("v3", lambda _: (200, b"<html>nginx</html>", {})), r"does not say what it has .*is it slurmrestd"),
    ("no JSON", of("nodes", lambda _: (200, b"<html>", {})), r"its nodes: is not what Slurm tells as JSON"),
    ("no UTF-8", of("nodes", lambda _: (200, b'{"meta": "\xff\xfe"}', {})), r"its nodes: is not what Slurm tells"),
    ("half", of("jobs", lambda a: (a[0], a[1][: len(a[1]) // 2], {})), r"its jobs: is not what Slurm tells as JSON"),
    ("cut off", of("jobs", lambda a: (a[0], a[1][:99], {"Content-Length": "9999"})), r"breaks off"),
    ("500", of("jobs", lambda _: (500, b"Internal\nerror", {})), r"answers 500 to /slurm/v0\.0\.42/jobs: Internal er"),
    ("503", of("v3", lambda _: (503, b"", {})), r"answers 503 to /openapi/v3"),
    ("its own error", of("nodes", lambda _: (500, error("Unable to contact slurmctld"), {})),
     r"cannot tell nodes: Unable to contact slurmctld"),
    ("redirect", of("v3", lambda _: (302, b"", {"Location": "https://sso.example/login?key=secret"})),
     r"answers 302 to /openapi/v3: it leads to https://sso\.example/login(?!\?)"),
    ("old", of("v3", lambda _: (200, b'{"paths": {"/slurm/v0.0.30/nodes": {}}}', {})), r"has v0\.0\.30, none of which"),
)  # fmt: skip


@pytest.mark.parametrize(("change", "told"), [each[1:] for each in FAILS], ids=[each[0] for each in FAILS])
def test_a_server_that_fails_is_told_in_a_line(rest: Rest, change: Change, told: str) -> None:
    rest.change = change
    with pytest.raises(ClusterError, match=told) as failed:
        read_rest(rest.source, lambda _: None, within_s=5)
    assert "\n" not in str(failed.value)
    assert "secret" not in str(failed.value)


def test_whole_answers_are_read_and_the_token_goes_where_slurm_looks(
    rest: Rest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JWT", "a.b.c")
    monkeypatch.setenv("SLURM_JWT_USER", "ann")
    assert read_rest(rest.source, lambda _: None).nodes
    assert {(each["x-slurm-user-token"], each["x-slurm-user-name"]) for each in rest.heard} == {("a.b.c", "ann")}
    rest.change = of("", lambda _: (401, b"", {}))
    with pytest.raises(ClusterError, match=r"the token of SLURM_JWT is refused \(401\)") as failed:
        read_rest(rest.source, lambda _: None)
    assert "a.b.c" not in str(failed.value)


def test_without_reservations_it_goes_on_and_says_so(rest: Rest) -> None:
    rest.change = of("reservations", lambda _: (500, b"no", {}))
    said: list[str] = []
    world = read_rest(rest.source, said.append)
    assert (bool(world.nodes), world.reservations) == (True, [])
    assert any(each.startswith("reservations cannot be read") for each in said)


@pytest.mark.parametrize(
    ("source", "kind", "told"),
    [
        ("slurm+unix:/nowhere/slurmrestd.socket", ClusterError, "does not answer .No such file"),
        ("slurm+http://127.0.0.1:9", ClusterError, "does not answer .Connection refused"),
        ("slurm+http://ann:pw@head:6820", InputError, "no user, password or query"),
        ("slurm+ftp://head", InputError, "no address of slurmrestd"),
        ("slurm+http://head:port", InputError, "no address of slurmrestd"),
    ],
)
def test_where_nobody_answers(source: str, kind: type[MusterError], told: str) -> None:
    with pytest.raises(kind, match=told) as failed:
        read_rest(source, lambda _: None, within_s=5)
    assert "pw" not in str(failed.value)


def test_a_token_with_a_line_break_is_refused(rest: Rest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JWT", "SLURM_JWT=a\nb")
    with pytest.raises(InputError, match="holds more than a token"):
        read_rest(rest.source, lambda _: None)
    assert not rest.heard


def test_json_of_files_is_read_beside_text(tmp_path: Path) -> None:
    """As how-to/slurm.md says: what scontrol ... --json prints is taken like its text."""
    from muster.traces.slurm import read_slurm_files

    for path, document in GOOD.items():
        if path.startswith("/slurm/"):
            (tmp_path / f"{path.rpartition('/')[2]}.json").write_text(json.dumps(document))
    world = read_slurm_files(str(tmp_path))
    assert (bool(world.nodes), bool(world.jobs), bool(world.partitions), world.unread) == (True, True, True, [])
    assert not re.search("not read", str(world.missing))
