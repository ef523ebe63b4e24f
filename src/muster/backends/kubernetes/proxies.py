"""Which proxy a server is asked through: HTTPS_PROXY and NO_PROXY as kubectl reads them."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_for(server: str, environ: Mapping[str, str]) -> str:
    """The proxy of the environment for a server; empty: none. This machine itself is never asked through one."""
    parts = urlsplit(server)
    host = (parts.hostname or "").lower()
    named = f"{parts.scheme}_proxy"
    proxy = environ.get(named.upper()) or environ.get(named) or ""
    if not proxy or host == "localhost" or _within(host, "127.0.0.0/8") or _within(host, "::1/128"):
        return ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    for each in (environ.get("NO_PROXY") or environ.get("no_proxy") or "").lower().split(","):
        if _excepted(host, port, each.strip()):
            return ""
    return proxy if "://" in proxy else f"http://{proxy}"


def _excepted(host: str, port: int, entry: str) -> bool:
    """Whether an entry of NO_PROXY means a host: ``*``, a network, an address, a domain, each with a port or without.

    ``example.com`` means the domain and those below it, ``.example.com`` only those below.
    """
    if not entry:
        return False
    if entry == "*" or "/" in entry:
        return entry == "*" or _within(host, entry)
    name, colon, last = entry.rpartition(":")
    if colon and last.isdigit() and (name.endswith("]") or ":" not in name):
        if int(last) != port:
            return False
        entry = name
    entry = entry.strip("[]").removeprefix("*")
    if entry.startswith("."):
        return host.endswith(entry)
    return host == entry or host.endswith(f".{entry}")


def _within(host: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
