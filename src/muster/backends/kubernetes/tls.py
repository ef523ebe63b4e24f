"""TLS to a server: whom is trusted, what is shown, and what a certificate says of its own dates."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import tempfile
from collections.abc import Generator
from datetime import UTC, datetime

from muster.backends.kubernetes.config import Access
from muster.backends.kubernetes.credentials import Credential
from muster.errors import ClusterError

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_UTC_TIME = 0x17


def tls_for(access: Access, credential: Credential) -> ssl.SSLContext | None:
    """The TLS of an access; None of one over plain HTTP. Raises `ClusterError` for certificates that are none."""
    if access.server.startswith("http://"):
        return None
    try:
        context = ssl.create_default_context(cadata=access.ca_pem)
    except (ssl.SSLError, ValueError):
        raise ClusterError(f"the CA of context {access.context!r} holds no certificate") from None
    if not access.verify:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    # A cluster's own CA need not have the extensions that newer checks insist on; clients in Go do not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if credential.certificate:
        try:
            with _as_file(f"{credential.certificate}\n{credential.key}") as path:
                context.load_cert_chain(path, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            why = "they are not of each other" if "MISMATCH" in str(error) else "they are not PEM, or have a password"
            what = f"client certificate and key of user {access.credentials.name!r} cannot be used: {why}"
            raise ClusterError(what) from None
    return context


def _no_password() -> bytes:
    raise ValueError("a key with a password")  # else the terminal is asked for it


@contextlib.contextmanager
def _as_file(text: str) -> Generator[str]:
    """A text as a file for as long as it takes: in memory where the system can, else one that only we may read."""
    if hasattr(os, "memfd_create"):
        handle = os.memfd_create("client", os.MFD_CLOEXEC)
        try:
            os.write(handle, text.encode())
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)
        return
    with tempfile.NamedTemporaryFile("w") as stream:
        stream.write(text)
        stream.flush()
        yield stream.name


def not_after(pem: str) -> datetime | None:
    """Until when the first certificate of a PEM text is good; None where it cannot be read.

    The walk is that of RFC 5280, 4.1: Certificate > tbsCertificate > validity, the fourth field or, with a version
    before it, the fifth.
    """
    try:
        found = _PEM.search(pem)
        der = ssl.PEM_cert_to_DER_cert(found[0]) if found else b""
        fields = _children(_children(_children(der)[0][1])[0][1])
        validity = fields[4 if fields[0][0] == 0xA0 else 3]
        tag, value = _children(validity[1])[1]
        text = value.decode("ascii")
        form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
        return datetime.strptime(text, form).replace(tzinfo=UTC)
    except (ValueError, IndexError):
        return None


def _children(der: bytes) -> list[tuple[int, bytes]]:
    """The tag and content of each value in DER."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(der):
        tag, length, at = der[at], der[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(der[at : at + size], "big"), at + size
        found.append((tag, der[at : at + length]))
        at += length
    return found
