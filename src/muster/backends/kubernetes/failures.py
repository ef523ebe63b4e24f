"""What goes wrong between a server and us, each in one line with what to do."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime
from urllib.parse import urlsplit

import aiohttp

from muster.backends.kubernetes.config import Access
from muster.backends.kubernetes.tls import not_after
from muster.errors import ClusterError

_EXPIRED, _NOT_YET, _SELF_SIGNED = 10, 9, (18, 19)
_UNKNOWN_CA = (2, 20, 21)
_OTHER_NAME = (62, 64)
"""X509_V_ERR_* of OpenSSL."""


MOST_SKEW_S = 30.0
"""Clocks that differ by no more count as the same."""


class ServerUnreachable(ClusterError):
    """The server does not answer, or cannot be trusted. ``again``: whether trying once more may help."""

    def __init__(self, what: str, *, hint: str | None = None, again: bool = True) -> None:
        super().__init__(what, hint=hint)
        self.again = again


class ApiError(ClusterError):
    """The server answers with an error.

    Attributes:
        status: the HTTP status, such as 403.
        reason: the word of Kubernetes for it: Forbidden, NotFound, Conflict, AlreadyExists, Expired, Invalid.
        message: what the server says.
        verb: the HTTP method of the request, path: its path.
        retry_after_s: how long the server wants to be left alone; None where it does not say.
        details: what the server adds, such as the causes of what is invalid.
    """

    def __init__(
        self, status: int, reason: str, message: str, verb: str, path: str, *,
        retry_after_s: float | None = None, details: object = None, hint: str | None = None,
    ) -> None:  # fmt: skip
        self.status = status
        self.reason = reason
        self.message = message
        self.verb = verb
        self.path = path
        self.retry_after_s = retry_after_s
        self.details = details
        told = message or reason or "no reason given"
        super().__init__(f"{verb} {path}: {' '.join(told.split())[:600]} ({status})", hint=hint)


def unreachable(error: Exception, access: Access) -> ServerUnreachable:
    """What an exception of the HTTP client means to the user."""
    host = urlsplit(access.server).netloc.rpartition("@")[2]
    where = f"the server {host} of context {access.context!r}"
    if access.proxy:
        where += f" (through the proxy {urlsplit(access.proxy).netloc.rpartition('@')[2]})"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return _mistrusted(error.certificate_error, where, access)
    if isinstance(error, ssl.SSLCertVerificationError):
        return _mistrusted(error, where, access)
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return ServerUnreachable(f"{where} is not reached: the proxy does not answer")
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return ServerUnreachable(f"{where} is not reached: the proxy refuses ({error.status})", again=False)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        hint = "check the address, the resolver and the VPN"
        return ServerUnreachable(f"the name of {where} is not known", hint=hint)
    if isinstance(error, aiohttp.ClientConnectorSSLError | ssl.SSLError):
        return _no_tls(error, where)
    if isinstance(error, TimeoutError | asyncio.TimeoutError):
        return ServerUnreachable(f"{where} does not answer in time", hint="check the network, the VPN and the firewall")
    if isinstance(error, aiohttp.ClientConnectorError):
        return _not_connected(error, where)
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientPayloadError | ConnectionError):
        return ServerUnreachable(f"{where} has closed the connection")
    if isinstance(error, aiohttp.ClientOSError):
        return ServerUnreachable(f"the connection to {where} broke ({error.strerror or error})")
    return ServerUnreachable(f"{where} does not answer as HTTP ({type(error).__name__})", hint="check its address")


def _not_connected(error: aiohttp.ClientConnectorError, where: str) -> ServerUnreachable:
    inner = error.os_error
    if isinstance(inner, ConnectionRefusedError):
        hint = "is it running, and is the port right?"
        return ServerUnreachable(f"{where} refuses the connection", hint=hint)
    return ServerUnreachable(f"{where} cannot be connected to ({inner.strerror or inner})", hint="check the network")


def _no_tls(error: Exception, where: str) -> ServerUnreachable:
    text = str(error)
    if "WRONG_VERSION_NUMBER" in text or "RECORD_LAYER_FAILURE" in text or "HTTP_REQUEST" in text:
        return ServerUnreachable(f"{where} does not speak TLS", hint="is its address http://?", again=False)
    if "ALERT" in text and "CERTIFICATE" in text:
        hint = "is the client certificate of this cluster, and not expired?"
        return ServerUnreachable(f"{where} refuses our certificate", hint=hint, again=False)
    return ServerUnreachable(f"{where}: TLS fails ({text.partition('(_ssl.c')[0].strip()[:200]})", again=False)


def _mistrusted(error: Exception, where: str, access: Access) -> ServerUnreachable:
    code = getattr(error, "verify_code", 0)
    said = str(getattr(error, "verify_message", "") or error)
    if code == _EXPIRED:
        hint = "renew it on the server (kubeadm certs renew all); or this machine's clock is ahead"
        what = f"the certificate of {where} has expired"
    elif code == _NOT_YET:
        hint = "is this machine's clock behind?"
        what = f"the certificate of {where} is not valid yet"
    elif code in _OTHER_NAME:
        hint = "address it by a name in its certificate, or set tls-server-name"
        what = f"the certificate of {where} is for another name ({said.rstrip('.')})"
    elif code in _UNKNOWN_CA or code in _SELF_SIGNED:
        whose = "certificate-authority-data of the cluster" if access.ca_pem else "the system's list"
        hint = f"the kubeconfig may be of an older cluster at this address: write it anew; it is checked by {whose}"
        what = f"the certificate of {where} is of a CA that is not trusted"
    else:
        hint, what = "check the cluster's certificate-authority", f"{where} is not trusted: {said}"
    return ServerUnreachable(what, hint=hint, again=False)


def unauthorized(access: Access, certificate: str, *, token: bool) -> ClusterError:
    """What 401 means: the server does not know who asks."""
    name = access.credentials.name or "(none)"
    where = f"the server of context {access.context!r} does not accept the credentials of user {name!r}"
    until = not_after(certificate) if certificate else None
    if until is not None and until < datetime.now(UTC):
        what = f"the client certificate of user {name!r} expired on {until:%Y-%m-%d %H:%M} UTC"
        return ClusterError(what, hint="write the kubeconfig anew, or renew the certificate")
    if not certificate and not token:
        return ClusterError(f"context {access.context!r} has no credentials", hint="name a user in the kubeconfig")
    what = "the token may have expired or been deleted" if token else "it may be of another cluster"
    return ClusterError(where, hint=f"{what}: log in anew")


def clock_skew(date_s: float, now_s: float, access: Access) -> str | None:
    """A warning where the server's clock and ours differ by more than MOST_SKEW_S: ages would be wrong by that."""
    ahead = now_s - date_s
    if abs(ahead) <= MOST_SKEW_S:
        return None
    which = "ahead of" if ahead > 0 else "behind"
    size = f"{abs(ahead):,.0f} s"
    server = f"the server of context {access.context!r}"
    return f"This machine's clock is {size} {which} that of {server}: times are told by the server's; set one of them."
