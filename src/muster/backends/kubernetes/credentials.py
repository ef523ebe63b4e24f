"""As whom a server is asked: tokens, token files that change, client certificates and credential plugins."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shutil
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field

from muster.backends.kubernetes.kubeconfig import Exec, Secretive, User, decoded
from muster.errors import ClusterError

AGAIN_S = 60.0
"""A token file is read anew after so long: the kubelet replaces a ServiceAccount's token well before it expires."""

EARLY_S = 10.0
"""A plugin's credentials are renewed so long before they expire."""

PLUGIN_S = 300.0
"""A plugin that asks nobody may take so long."""

GROUP = "client.authentication.k8s.io"


class Credential(Struct, frozen=True, eq=False):
    """What is shown to the server. ``certificate`` and ``key`` are PEM text, both or none."""

    authorization: str = ""
    certificate: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return "Credential(not shown)"


class _Status(Secretive, rename="camel"):
    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: str = ""


class _ExecCredential(Secretive, rename="camel"):
    kind: str = ""
    api_version: str = ""
    status: _Status = field(default_factory=_Status)


class Credentials:
    """Of one user of a kubeconfig: those of the moment, renewed when they expire or are refused."""

    def __init__(self, user: User, *, name: str, cluster: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self.name = name
        self._user, self._cluster, self._environ = user, cluster, environ
        self._held: Credential | None = None
        self._until_s = 0.0
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"Credentials({self.name!r})"

    @property
    def renewable(self) -> bool:
        """Whether refused credentials may be replaced by others: from a file, or a plugin."""
        return bool(self._user.token_file or self._user.exec)

    async def current(self, refused: Credential | None = None) -> Credential:
        """What to show now; with ``refused``, the server has refused that, and another is wanted.

        Raises `ClusterError` where a file cannot be read or a plugin fails.
        """
        if self._held is not None and refused is None and time.time() < self._until_s:
            return self._held
        async with self._lock:
            stale = self._held is None or time.time() >= self._until_s
            if stale or (refused is not None and self.renewable and self._held is refused):
                self._held, self._until_s = await self._read()
            assert self._held is not None
            return self._held

    async def _read(self) -> tuple[Credential, float]:
        user = self._user
        certificate = self._pem(user.client_certificate_data, user.client_certificate, "client-certificate")
        key = self._pem(user.client_key_data, user.client_key, "client-key")
        if bool(certificate) != bool(key):
            raise ClusterError(f"user {self.name!r} has a client {'key' if key else 'certificate'} without the other")
        if user.token_file:
            return Credential(f"Bearer {self._token()}", certificate, key), time.time() + AGAIN_S
        if user.token:
            return Credential(f"Bearer {user.token}", certificate, key), float("inf")
        if user.username:
            both = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
            return Credential(f"Basic {both}", certificate, key), float("inf")
        if user.exec is not None:
            return await _from_plugin(user.exec, self._cluster, self._environ)
        if user.auth_provider is not None:
            what = f"user {self.name!r} has an auth-provider ({user.auth_provider.name}), which Kubernetes has removed"
            raise ClusterError(what, hint="name a credential plugin under exec instead")
        return Credential("", certificate, key), float("inf")

    def _pem(self, data: str, path: str, what: str) -> str:
        if data:
            return decoded(data, f"{what}-data of user {self.name!r}").decode()
        try:
            return Path(path).read_text() if path else ""
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise ClusterError(f"{what} of user {self.name!r} cannot be read ({why}: {path})") from None

    def _token(self) -> str:
        """The token of the file; where that cannot be read now, the one given beside it."""
        path = self._user.token_file
        try:
            token = Path(path).read_text().strip()
        except (OSError, ValueError) as error:
            if self._user.token:
                return self._user.token
            why = getattr(error, "strerror", None) or "it is no text"
            raise ClusterError(f"the token of user {self.name!r} cannot be read ({why}: {path})") from None
        if not token or not token.isprintable() or not token.isascii():
            raise ClusterError(f"the file {path} holds no token")
        return token


async def _from_plugin(
    plugin: Exec, cluster: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[Credential, float]:  # fmt: skip
    """Run a credential plugin; what it gives, and until when that is good."""
    version = plugin.api_version.removeprefix(f"{GROUP}/")
    if version not in ("v1", "v1beta1"):
        raise ClusterError(
            f"the credential plugin {plugin.command} speaks {plugin.api_version or 'no named version'}",
            hint=f"{GROUP}/v1 and v1beta1 are known: update the plugin and the kubeconfig",
        )
    if plugin.interactive_mode == "Always" and not sys.stdin.isatty():
        raise ClusterError(f"the credential plugin {plugin.command} needs a terminal, and there is none")
    interactive = plugin.interactive_mode != "Never" and sys.stdin.isatty()
    environment = {**environ, **{each.name: each.value for each in plugin.env or ()}}
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = cluster
    told = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(told).decode()
    raw = await _output(plugin, environment, interactive=interactive)
    return _credential(raw, plugin)


async def _output(plugin: Exec, environment: Mapping[str, str], *, interactive: bool) -> bytes:
    program = shutil.which(plugin.command, path=environment.get("PATH"))
    if program is None:
        # the hint is the file's own text, for people: it goes out on one line
        hint = " ".join(plugin.install_hint.split())[:400] or "install it, or put it on PATH"
        raise ClusterError(f"the credential plugin {plugin.command} is not there", hint=hint)
    process = await asyncio.create_subprocess_exec(
        program, *(plugin.args or ()),
        stdin=None if interactive else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        # what it says is for whoever sits before the terminal, who may have to answer; else it goes into the message
        stderr=None if interactive else asyncio.subprocess.PIPE,
        env=dict(environment),
    )  # fmt: skip
    try:
        async with asyncio.timeout(None if interactive else PLUGIN_S):
            out, said = await process.communicate()
    except TimeoutError:
        what = f"the credential plugin {plugin.command} has not answered after {PLUGIN_S:g} s"
        raise ClusterError(what) from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if process.returncode:
        lines = (said or b"").decode("utf-8", "replace").split("\n")
        last = next((" ".join(line.split()) for line in reversed(lines) if line.strip()), "")
        shown = "".join(letter for letter in last[:200] if letter.isprintable())
        told = f": {shown}" if shown else ""
        raise ClusterError(f"the credential plugin {plugin.command} failed with code {process.returncode}{told}")
    return out


def _credential(raw: bytes, plugin: Exec) -> tuple[Credential, float]:
    name = plugin.command
    try:
        found = msgspec.json.decode(raw, type=_ExecCredential)
    except (msgspec.DecodeError, ValueError):
        raise ClusterError(f"the credential plugin {name} printed no ExecCredential") from None
    if found.kind != "ExecCredential" or found.api_version != plugin.api_version:
        said = f"{found.kind or 'nothing'} {found.api_version}".strip()[:80]
        raise ClusterError(f"the credential plugin {name} printed {said}, not ExecCredential {plugin.api_version}")
    status = found.status
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ClusterError(f"the credential plugin {name} gave a client certificate or a key without the other")
    if not status.token and not status.client_certificate_data:
        raise ClusterError(f"the credential plugin {name} gave neither a token nor a client certificate")
    until_s = float("inf")
    if status.expiration_timestamp:
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(status.expiration_timestamp)
            until_s = moment.timestamp() - EARLY_S
    authorization = f"Bearer {status.token}" if status.token else ""
    return Credential(authorization, status.client_certificate_data, status.client_key_data), until_s
