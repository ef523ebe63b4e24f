"""What goes wrong on the way to a server, on real sockets with real TLS: each is one line, with what to do."""

from __future__ import annotations

import http.server
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from muster.backends.kubernetes import api
from muster.backends.kubernetes.api import ApiError, ApiServer, ServerUnreachable, run
from muster.backends.kubernetes.config import read_access
from muster.backends.kubernetes.tls import not_after
from muster.errors import ClusterError

from .certificates import Authority

AUTHORITY, OTHER = Authority(), Authority("another")
DAY = timedelta(days=1)

Answer = Callable[[http.server.BaseHTTPRequestHandler], None]


def ok(handler: http.server.BaseHTTPRequestHandler) -> None:
    answer(handler, 200, {"kind": "Status"})


def answer(handler: http.server.BaseHTTPRequestHandler, status: int, body: object, **headers: str) -> None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    handler.send_response_only(status)
    for name, value in {"Content-Length": str(len(raw)), **headers}.items():
        handler.send_header(name, value)
    if "Date" not in headers:
        handler.send_header("Date", handler.date_time_string())
    handler.end_headers()
    handler.wfile.write(raw)


@contextmanager
def served(reply: Answer, certificate: tuple[str, str] | None, tmp_path: Path) -> Iterator[str]:
    """The address of a server on loopback that answers so; over TLS where a certificate is given."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            reply(self)

        def log_message(self, format: str, *args: Any) -> None:
            """It says nothing."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that breaks off is what is tested."""

    server = Server(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        path = tmp_path / "server.pem"
        path.write_text("".join(certificate))
        context.load_cert_chain(path)
        context.load_verify_locations(cadata=AUTHORITY.pem)
        context.verify_mode = ssl.CERT_OPTIONAL  # as an API server: who asks may show a certificate
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def server_at(tmp_path: Path, address: str, cluster: dict[str, object], user: dict[str, object]) -> ApiServer:
    config = {
        "current-context": "prod",
        "clusters": [{"name": "big", "cluster": {"server": address, **cluster}}],
        "users": [{"name": "me", "user": {"token": "s3cret", **user}}],
        "contexts": [{"name": "prod", "context": {"cluster": "big", "user": "me"}}],
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    return ApiServer(read_access(environ={"KUBECONFIG": str(path)}))


def asked(server: ApiServer, *, tries: int = 1, timeout_s: float = 5.0) -> bytes:
    async def ask() -> bytes:
        async with server:
            return await server.request("GET", "/api/v1/pods", tries=tries, timeout_s=timeout_s)

    return run(ask())


def told(server: ApiServer, address: str, **more: Any) -> str:
    """The error of a request, in which the address is HOST and no secret is."""
    with pytest.raises(ClusterError) as caught:
        asked(server, **more)
    text = str(caught.value)
    assert "\n" not in text
    assert "s3cret" not in text
    return text.replace(address.partition("://")[2] or "-", "HOST")


Issued = tuple[Authority, tuple[str, ...], timedelta, timedelta]

TLS: dict[str, tuple[Issued, dict[str, object], str]] = {
    "as it should be": ((AUTHORITY, ("127.0.0.1",), -DAY, DAY), {}, ""),
    "expired": (
        (AUTHORITY, ("127.0.0.1",), -9 * DAY, -DAY), {},
        "the certificate of the server HOST of context 'prod' has expired; renew it on the server (kubeadm certs",
    ),
    "not valid yet": (
        (AUTHORITY, ("127.0.0.1",), DAY, 9 * DAY), {},
        "the certificate of the server HOST of context 'prod' is not valid yet; is this machine's clock behind?",
    ),
    "of another CA": (
        (OTHER, ("127.0.0.1",), -DAY, DAY), {},
        "the certificate of the server HOST of context 'prod' is of a CA that is not trusted; the kubeconfig may be",
    ),
    "for another name": (
        (AUTHORITY, ("10.9.9.9", "api.inside"), -DAY, DAY), {},
        "the certificate of the server HOST of context 'prod' is for another name (IP address mismatch, certificate",
    ),
    "for another name that is known": ((AUTHORITY, ("api.inside",), -DAY, DAY), {"tls-server-name": "api.inside"}, ""),
    "of another CA, which is not looked at": (
        (OTHER, ("x",), -9 * DAY, -DAY),
        {"insecure-skip-tls-verify": True, "certificate-authority": None}, "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("issued", "cluster", "expected"), TLS.values(), ids=TLS)
def test_certificates_of_servers(tmp_path: Path, issued: Issued, cluster: dict[str, object], expected: str) -> None:
    authority, names, begins, ends = issued
    (tmp_path / "ca.pem").write_text(AUTHORITY.pem)
    with served(ok, authority.issue(*names, begins=begins, ends=ends), tmp_path) as address:
        server = server_at(tmp_path, address, {"certificate-authority": "ca.pem", **cluster}, {})
        if expected:
            assert told(server, address, tries=4).startswith(expected)
        else:
            assert json.loads(asked(server)) == {"kind": "Status"}


def test_a_ca_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    server = server_at(tmp_path, "https://127.0.0.1:1", {"certificate-authority": "ca.pem"}, {})
    assert told(server, "") == "the CA of context 'prod' holds no certificate"


def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    certificate, key = AUTHORITY.issue("me")
    for name, text in (("ca.pem", AUTHORITY.pem), ("me.pem", certificate), ("me.key", key)):
        (tmp_path / name).write_text(text)
    seen: list[tuple[str, str | None]] = []

    def note(handler: http.server.BaseHTTPRequestHandler) -> None:
        assert isinstance(handler.connection, ssl.SSLSocket)
        seen.append((str((handler.connection.getpeercert() or {}).get("subject")), handler.headers["Authorization"]))
        ok(handler)

    with served(note, AUTHORITY.issue("127.0.0.1"), tmp_path) as address:
        server = server_at(
            tmp_path, address, {"certificate-authority": "ca.pem"},
            {"client-certificate": "me.pem", "client-key": "me.key", "token": None},
        )  # fmt: skip
        asked(server)
    assert seen == [("((('commonName', 'me'),),)", None)]
    (tmp_path / "me.key").write_text(AUTHORITY.issue("other")[1])
    server = server_at(
        tmp_path, "https://127.0.0.1:1", {"certificate-authority": "ca.pem"},
        {"client-certificate": "me.pem", "client-key": "me.key"},
    )  # fmt: skip
    assert told(server, "") == "client certificate and key of user 'me' cannot be used: they are not of each other"


def test_credentials_that_are_not_accepted(tmp_path: Path) -> None:
    certificate, key = AUTHORITY.issue("me", begins=-9 * DAY, ends=-DAY)
    (tmp_path / "me.pem").write_text(certificate)
    (tmp_path / "me.key").write_text(key)
    until = datetime.now(UTC) - DAY
    found = not_after(certificate)
    assert found
    assert abs((found - until).total_seconds()) < 60
    assert not_after(AUTHORITY.issue("me", ends=timedelta(days=30000))[0]) > datetime(2100, 1, 1, tzinfo=UTC)  # type: ignore[operator]
    assert not_after("nothing") is None

    def refuse(handler: http.server.BaseHTTPRequestHandler) -> None:
        answer(handler, 401, {"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"})

    files = {"client-certificate": "me.pem", "client-key": "me.key", "token": None}
    with served(refuse, None, tmp_path) as address:
        expired = told(server_at(tmp_path, address, {}, files), address)
        assert expired.startswith(f"the client certificate of user 'me' expired on {until:%Y-%m-%d} ")
        token = told(server_at(tmp_path, address, {}, {}), address)
        assert token == (
            "the server of context 'prod' does not accept the credentials of user 'me'; "
            "the token may have expired or been deleted: log in anew"
        )
        nobody = told(server_at(tmp_path, address, {}, {"token": None}), address)
        assert nobody == "context 'prod' has no credentials; name a user in the kubeconfig"


def test_a_token_that_was_rotated_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("old")
    seen: list[str] = []

    def only_new(handler: http.server.BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["Authorization"])
        (tmp_path / "token").write_text("new")
        if seen[-1] == "Bearer new":
            ok(handler)
        else:
            answer(handler, 401, {})

    with served(only_new, None, tmp_path) as address:
        asked(server_at(tmp_path, address, {}, {"token": None, "tokenFile": "token"}))
    assert seen == ["Bearer old", "Bearer new"]


# -- connections ------------------------------------------------------------------------------------------------------


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"https://127.0.0.1:{held.getsockname()[1]}"
        text = told(server_at(tmp_path, address, {}, {}), address)
    assert text == "the server HOST of context 'prod' refuses the connection; is it running, and is the port right?"


def test_a_name_that_is_not_known(tmp_path: Path) -> None:
    address = "https://no-such-host.invalid:6443"
    text = told(server_at(tmp_path, address, {}, {}), address)
    assert text.startswith(
        "the name of the server HOST of context 'prod' is not known; check the address, the resolver"
    )


def test_a_server_that_says_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = f"http://127.0.0.1:{held.getsockname()[1]}"
        text = told(server_at(tmp_path, address, {}, {}), address, timeout_s=0.2)
    assert text.startswith("the server HOST of context 'prod' does not answer in time; check the network, the VPN")


def test_a_server_without_tls(tmp_path: Path) -> None:
    with served(ok, None, tmp_path) as address:
        secure = address.replace("http:", "https:")
        text = told(server_at(tmp_path, secure, {}, {}), secure)
    assert text == "the server HOST of context 'prod' does not speak TLS; is its address http://?"


def test_what_is_no_http(tmp_path: Path) -> None:
    def greet() -> None:
        peer, _ = held.accept()
        with peer:
            peer.recv(65536)  # all of the request: what is left unread would reset the connection
            peer.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
            time.sleep(0.2)

    with socket.create_server(("127.0.0.1", 0)) as held:
        thread = threading.Thread(target=greet)
        thread.start()
        address = f"http://127.0.0.1:{held.getsockname()[1]}"
        text = told(server_at(tmp_path, address, {}, {}), address)
        thread.join()
    assert text.startswith("the server HOST of context 'prod' does not answer as HTTP")


def test_a_connection_that_breaks(tmp_path: Path) -> None:
    def breaks(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.close_connection = True

    def half(handler: http.server.BaseHTTPRequestHandler) -> None:
        answer(handler, 200, b"{", **{"Content-Length": "1000"})
        handler.close_connection = True

    for reply in (breaks, half):
        with served(reply, None, tmp_path) as address:
            text = told(server_at(tmp_path, address, {}, {}), address)
            assert text == "the server HOST of context 'prod' has closed the connection"


# -- answers ----------------------------------------------------------------------------------------------------------


class Script:
    """Answers in turn, the last for ever; notes when."""

    def __init__(self, *answers: tuple[int, dict[str, str]]) -> None:
        self.answers = list(answers)
        self.times: list[float] = []

    def __call__(self, handler: http.server.BaseHTTPRequestHandler) -> None:
        self.times.append(time.monotonic())
        status, headers = self.answers[min(len(self.times), len(self.answers)) - 1]
        reason = {429: "TooManyRequests", 503: "ServiceUnavailable", 403: "Forbidden", 404: "NotFound"}.get(status, "")
        answer(handler, status, {"reason": reason, "message": f"answer {status}"}, **headers)


RETRIES: dict[str, tuple[tuple[tuple[int, dict[str, str]], ...], int, int]] = {
    "busy twice": (((429, {}), (503, {}), (200, {})), 4, 3),
    "busy for ever": (((500, {}),), 3, 3),
    "not allowed": (((403, {}),), 4, 1),
    "not there": (((404, {}),), 4, 1),
    "the server wants a pause": (((429, {"Retry-After": "1"}), (200, {})), 4, 2),
}


@pytest.mark.parametrize(("answers", "tries", "sent"), RETRIES.values(), ids=RETRIES)
def test_requests_are_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: tuple[tuple[int, dict[str, str]], ...], tries: int,
    sent: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(api, "FIRST_PAUSE_S", 0.02)
    script = Script(*answers)
    with served(script, None, tmp_path) as address:
        server = server_at(tmp_path, address, {}, {})
        if answers[-1][0] == 200:
            asked(server, tries=tries)
        else:
            with pytest.raises(ApiError) as caught:
                asked(server, tries=tries)
            error = caught.value
            assert (error.status, error.message) == (answers[-1][0], f"answer {answers[-1][0]}")
            assert (error.verb, error.path) == ("GET", "/api/v1/pods")
            assert str(error) == f"GET /api/v1/pods: answer {error.status} ({error.status})"
    assert len(script.times) == sent
    if answers[0][1]:
        assert script.times[1] - script.times[0] >= 0.99


def test_an_answer_that_is_no_status(tmp_path: Path) -> None:
    with served(lambda handler: answer(handler, 502, b"<h1>Bad\x1b[31m gateway</h1>"), None, tmp_path) as address:
        text = told(server_at(tmp_path, address, {}, {}), address)
    assert text == "GET /api/v1/pods: <h1>Bad[31m gateway</h1> (502)"


@pytest.mark.parametrize(("ahead_s", "warned"), [(0, ""), (25, ""), (3600, "behind"), (-120, "ahead of")])
def test_clocks_that_differ(tmp_path: Path, ahead_s: float, warned: str) -> None:
    def dated(handler: http.server.BaseHTTPRequestHandler) -> None:
        moment = datetime.now(UTC) + timedelta(seconds=ahead_s)
        answer(handler, 200, {}, Date=format_datetime(moment, usegmt=True))

    with served(dated, None, tmp_path) as address:
        server = server_at(tmp_path, address, {}, {})
        asked(server)
    assert len(server.warnings) == bool(warned)
    if warned:
        assert warned in server.warnings[0]
        assert abs(server.now_s() - time.time() - ahead_s) < 3
    else:
        assert server.now_s() == pytest.approx(time.time(), abs=1)


def test_lines_are_whole_however_they_come(tmp_path: Path) -> None:
    lines = [b'{"a":1}', b'{"b":"' + b"x" * 300_000 + b'"}', b'{"c":3}']

    def trickle(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        raw = b"\n".join(lines) + b"\n"
        for at in range(0, len(raw), 70_001):
            handler.wfile.write(raw[at : at + 70_001])
            handler.wfile.flush()
        handler.close_connection = True

    async def read(address: str) -> list[bytes]:
        async with server_at(tmp_path, address, {}, {}) as server:
            return [line async for line in server.stream("/api/v1/pods", {"watch": "1"})]

    with served(trickle, None, tmp_path) as address:
        assert run(read(address)) == lines


def test_a_stream_that_is_silent_or_refused(tmp_path: Path) -> None:
    def silent(handler: http.server.BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(b'{"half')
        handler.wfile.flush()
        time.sleep(1.0)
        handler.close_connection = True

    async def read(address: str) -> None:
        async with server_at(tmp_path, address, {}, {}) as server:
            async for _ in server.stream("/api/v1/pods", {"watch": "1"}, idle_s=0.2):
                pytest.fail("half a line")

    with served(silent, None, tmp_path) as address, pytest.raises(ServerUnreachable, match="does not answer in time"):
        run(read(address))
    with served(Script((410, {})), None, tmp_path) as address, pytest.raises(ApiError, match=r"answer 410 \(410\)"):
        run(read(address))
