"""slurmrestd: asked over HTTP or its socket, with the token of SLURM_JWT; what it answers becomes a world."""

from __future__ import annotations

import getpass
import http.client
import os
import re
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from muster.errors import ClusterError, InputError
from muster.slurm.restful import UNDERSTOOD, fill, newest_of
from muster.slurm.world import SlurmWorld

PREFIX = "slurm+"
WITHIN_S = 30.0
"""So long slurmrestd may take; it waits for slurmctld itself."""

_WHAT = ("nodes", "jobs", "partitions", "reservations")
_NEEDED = ("nodes", "jobs", "partitions")
_FORMS = "slurm+http://HOST:PORT, slurm+https://HOST:PORT or slurm+unix:/PATH/OF/SOCKET"
_TOKEN = "export $(scontrol token): Muster sends SLURM_JWT as the token, and SLURM_JWT_USER or you as the user"
_NOT_TOLD = {
    "configuration": "slurmrestd does not tell it: memory is counted, and sched/backfill is taken",
    "switches": "slurmrestd does not tell them: nodes have no place in a tree",
}


class _OpenApi(Struct):
    paths: dict[str, Any] = {}


class Server:
    """A slurmrestd.

    Args:
        source: ``slurm+http://HOST:PORT``, ``slurm+https://...`` or ``slurm+unix:/PATH``.
        within_s: how long an answer may take.

    Raises `InputError` where the source is none of these.
    """

    def __init__(self, source: str, within_s: float = WITHIN_S) -> None:
        self._within_s = within_s
        self._host, self._port, self._path, self._base = "", 0, "", ""
        address = source.removeprefix(PREFIX)
        kind, _, rest = address.partition(":")
        self._kind = kind
        if kind == "unix" and rest.startswith("/"):
            self._path = "/" + rest.lstrip("/")
            self.name = f"slurmrestd at {self._path}"
            return
        try:
            parts = urlsplit(address)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            host, port, parts = "", None, urlsplit("")
        if "@" in parts.netloc or parts.query:
            # the source is not repeated: it may hold a secret
            raise InputError("an address has no user, password or query", field="--cluster", hint=_TOKEN)
        if kind not in ("http", "https") or not host:
            raise InputError(f"{source[:60]!r} is no address of slurmrestd", field="--cluster", hint=_FORMS)
        self._host, self._port, self._base = host, port or (443 if kind == "https" else 6820), parts.path.rstrip("/")
        self.name = f"slurmrestd at {host}:{self._port}"

    def get(self, path: str) -> bytes:
        """What it answers. Raises `ClusterError` where it does not answer, or refuses."""
        connection = self._connection()
        try:
            connection.request("GET", self._base + path, headers=_headers())
            answer = connection.getresponse()
            body = answer.read()
        except TimeoutError:
            what = f"{self.name} has not answered within {self._within_s:.0f} s"
            raise ClusterError(what, hint="scontrol ping; slurmctld may hang") from None
        except ssl.SSLError as error:
            what = f"no secure connection to {self.name} ({error.reason or error})"
            raise ClusterError(what, hint="SSL_CERT_FILE names the certificates to trust") from None
        except http.client.IncompleteRead as error:
            what = f"{self.name}: its answer to {path} breaks off after {len(error.partial):,} bytes"
            raise ClusterError(what, hint="ask again; a proxy may limit the size of answers") from None
        except (OSError, http.client.HTTPException) as error:
            why = (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]
            hint = "does it run, and is that its address? systemctl status slurmrestd"
            raise ClusterError(f"{self.name} does not answer ({why})", hint=hint) from None
        finally:
            connection.close()
        if answer.status in (401, 403):
            how = "the token of SLURM_JWT is refused" if os.environ.get("SLURM_JWT") else "it wants a token"
            raise ClusterError(f"{self.name}: {how} ({answer.status})", hint=_TOKEN)
        if 300 <= answer.status < 400:
            # what follows the path is not repeated: it may hold a secret
            leads = re.split(r"[?#]", answer.getheader("Location") or "nowhere")[0][:200]
            hint = "give the address of slurmrestd itself; the token goes nowhere else"
            raise ClusterError(f"{self.name} answers {answer.status} to {path}: it leads to {leads}", hint=hint)
        if answer.status != 200 and not body.lstrip().startswith(b"{"):
            said = " ".join(body.decode(errors="replace").split())[:200]
            raise ClusterError(f"{self.name} answers {answer.status} to {path}: {said or answer.reason}")
        return body

    def _connection(self) -> http.client.HTTPConnection:
        if self._path:
            return _Socket(self._path, self._within_s)
        if self._kind == "https":
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._within_s)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._within_s)


class _Socket(http.client.HTTPConnection):
    """A connection to a socket of this machine."""

    def __init__(self, path: str, within_s: float) -> None:
        super().__init__("localhost", timeout=within_s)
        self._socket_path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._socket_path)


def _headers() -> dict[str, str]:
    """Without a token slurmrestd goes by who connects (auth/local), where it is a socket."""
    found = {"Accept": "application/json", "Connection": "close"}
    if token := os.environ.get("SLURM_JWT", ""):
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise InputError("holds more than a token", field="SLURM_JWT", hint=_TOKEN)
        user = os.environ.get("SLURM_JWT_USER") or getpass.getuser()
        found |= {"X-SLURM-USER-NAME": user, "X-SLURM-USER-TOKEN": token}
    return found


def read_rest(source: str, warn: Callable[[str], None], within_s: float = WITHIN_S) -> SlurmWorld:
    """All of a Slurm, as slurmrestd tells it now.

    Args:
        source: as `Server` takes it.
        warn: is told, in a sentence each, what cannot be read.
        within_s: how long an answer may take.

    Raises:
        InputError: the source is no address.
        ClusterError: it does not answer, refuses, or has only versions that are not understood.
    """
    server = Server(source, within_s)
    paths, version = _version_of(server)
    world = SlurmWorld(now_s=time.time(), missing=dict(_NOT_TOLD))
    asked = {what: f"/slurm/{version}/{what}" for what in _WHAT}
    for what, name in (("associations", "associations"), ("QOS", "qos")):
        path = next((f"/slurmdb/{version}/{name}{end}" for end in ("", "/")
                     if f"/slurmdb/{version}/{name}{end}" in paths), "")  # fmt: skip
        if path:
            asked[what] = path
        else:
            world.missing[what] = f"slurmrestd has none of {version}: partitions are the queues"
    with ThreadPoolExecutor(len(asked)) as pool:
        answers = {what: pool.submit(server.get, path) for what, path in asked.items()}
    for what, answer in answers.items():
        try:
            errors = fill(world, answer.result()).errors
        except InputError as error:
            raise ClusterError(f"{server.name}: its {what}: {error.what}", hint=error.hint) from None
        except ClusterError as error:
            if what in _NEEDED:
                raise
            errors = (error.what,)
        if errors and what in _NEEDED and not getattr(world, what):
            raise ClusterError(f"{server.name} cannot tell {what}: {errors[0][:200]}", hint="scontrol ping")
        if errors:
            world.missing[what] = errors[0][:200]
            warn(f"{what} cannot be read ({errors[0][:200]}); the answers go on without.")
    if not world.nodes:
        hint = "PrivateData=nodes hides them from others than operators"
        raise ClusterError(f"{server.name} shows no nodes", hint=hint)
    return world


def _version_of(server: Server) -> tuple[dict[str, Any], str]:
    """What there is to ask, and the newest version of it that is understood."""
    try:
        paths = msgspec.json.decode(server.get("/openapi/v3"), type=_OpenApi).paths
    except (msgspec.DecodeError, UnicodeDecodeError):
        hint = "is it slurmrestd that listens there?"
        raise ClusterError(f"{server.name} does not say what it has (/openapi/v3)", hint=hint) from None
    version, there = newest_of(tuple(paths))
    if not version:
        has = f"has {', '.join(there)}, none of which is understood" if there else "has nothing of slurmctld"
        hint = f"{UNDERSTOOD} are understood; --cluster slurm asks the commands instead"
        raise ClusterError(f"{server.name} {has}", hint=hint)
    return paths, version
