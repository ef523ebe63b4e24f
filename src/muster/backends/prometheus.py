"""Prometheus' HTTP API: some metrics over a window of time, as it answers them."""

from __future__ import annotations

import http.client
import os
import re
import ssl
from collections.abc import Iterable
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from muster.errors import ClusterError, InputError

WITHIN_S = 60.0
"""So long an answer may take."""
WINDOW_S, STEP_S = 86_400.0, 600.0
_TOKEN = "export PROMETHEUS_TOKEN=...: Muster sends it as the bearer token"


class _Answer(Struct):
    status: str
    error: str = ""


def query_range(url: str, metrics: Iterable[str], now_s: float, within_s: float = WITHIN_S) -> str:
    """The answers for the last day in steps of ten minutes, one a metric, as a JSON list.

    Args:
        url: such as ``http://prometheus:9090``; a path before ``/api/v1`` is kept. Also what speaks the same (Thanos,
            Mimir, VictoriaMetrics).
        metrics: their names.
        now_s: the end of the window, in seconds since 1970.
        within_s: so long one answer may take.

    Raises:
        InputError: that is no address.
        ClusterError: it cannot be reached, or refuses.
    """
    parts = urlsplit(url)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme not in ("http", "https") or not host:
        raise InputError(f"is {url[:60]!r}", field="--prometheus", hint="such as http://prometheus:9090")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    base = parts.path.rstrip("/").removesuffix("/api/v1")
    found: list[str] = []
    for metric in metrics:
        asked = {"query": metric, "start": f"{now_s - WINDOW_S:.0f}", "end": f"{now_s:.0f}", "step": f"{STEP_S:.0f}"}
        connection = kind(host, port, timeout=within_s)
        found.append(
            _get(connection, f"{base}/api/v1/query_range?{urlencode(asked)}", f"{host}:{port or parts.scheme}")
        )
    return "[" + ",".join(found) + "]"


def _get(connection: http.client.HTTPConnection, path: str, name: str) -> str:
    try:
        connection.request("GET", path, headers=_headers())
        answer = connection.getresponse()
        body = answer.read()
    except TimeoutError:
        raise ClusterError(f"{name} has not answered in time", hint="is that Prometheus' address?") from None
    except ssl.SSLError as error:
        what = f"no secure connection to {name} ({error.reason or error})"
        raise ClusterError(what, hint="SSL_CERT_FILE names the certificates to trust") from None
    except (OSError, http.client.HTTPException) as error:
        why = (getattr(error, "strerror", None) or str(error) or type(error).__name__)[:200]
        hint = "kubectl port-forward -n monitoring svc/prometheus 9090 makes it http://localhost:9090"
        raise ClusterError(f"{name} does not answer ({why})", hint=hint) from None
    finally:
        connection.close()
    if answer.status in (401, 403):
        raise ClusterError(f"{name} refuses ({answer.status})", hint=_TOKEN)
    try:
        told = msgspec.json.decode(body, type=_Answer)
    except msgspec.MsgspecError:
        what = f"{name} answers {answer.status}, and nothing that Prometheus would say"
        raise ClusterError(what, hint="is that Prometheus' address, with the path before /api/v1?") from None
    if told.status != "success":
        raise ClusterError(f"{name} answers {answer.status}: {' '.join(told.error.split())[:200]}")
    return body.decode(errors="replace")


def _headers() -> dict[str, str]:
    found = {"Accept": "application/json", "Connection": "close"}
    if token := os.environ.get("PROMETHEUS_TOKEN", ""):
        if not re.fullmatch(r"[\x21-\x7e]+", token):
            raise InputError("holds more than a token", field="PROMETHEUS_TOKEN", hint=_TOKEN)
        found["Authorization"] = f"Bearer {token}"
    return found
