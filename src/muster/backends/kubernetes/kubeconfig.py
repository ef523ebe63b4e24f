"""Kubeconfig files as kubectl reads them: several of them merged, paths relative to the file, null as absent."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct, field

from muster.errors import ClusterError

MOST_BYTES = 16 * 2**20
"""A file that is larger is no kubeconfig."""

_T = TypeVar("_T")


class Secretive(Struct, forbid_unknown_fields=False):
    """A struct whose values are never shown: not in a traceback, not in a log."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(not shown)"


class Cluster(Struct, rename="kebab"):
    """How a server is reached; the values of an entry of ``clusters``."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""
    disable_compression: bool = False
    extensions: list[Any] | None = None


class ExecVariable(Secretive):
    """An environment variable of a credential plugin."""

    name: str
    value: str = ""


class Exec(Secretive, rename="camel"):
    """A credential plugin: a program that prints credentials."""

    api_version: str = ""
    command: str = ""
    args: list[str] | None = None
    env: list[ExecVariable] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"


class AuthProvider(Secretive):
    """What came before credential plugins; only its name is of use, to say what to do instead."""

    name: str = ""


class User(Secretive, rename="kebab"):
    """Who asks; the values of an entry of ``users``."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    impersonate: str = field(default="", name="as")
    impersonate_uid: str = field(default="", name="as-uid")
    impersonate_groups: list[str] | None = field(default=None, name="as-groups")
    impersonate_extra: dict[str, list[str]] | None = field(default=None, name="as-user-extra")
    exec: Exec | None = None
    auth_provider: AuthProvider | None = None


class Context(Struct):
    """Which server is asked by whom; the values of an entry of ``contexts``."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(Struct):
    name: str
    cluster: Cluster = field(default_factory=Cluster)


class _NamedUser(Struct):
    name: str
    user: User = field(default_factory=User)


class _NamedContext(Struct):
    name: str
    context: Context = field(default_factory=Context)


class _File(Struct, rename="kebab"):
    clusters: list[_NamedCluster] = []
    users: list[_NamedUser] = []
    contexts: list[_NamedContext] = []
    current_context: str = ""


class Kubeconfig:
    """All files together: of a name that several have, the first counts, as with kubectl.

    Attributes:
        files: those that were there, in order.
        origin: the file in which each context stands.
    """

    def __init__(self, files: Sequence[Path] = ()) -> None:
        self.files = tuple(files)
        self.clusters: dict[str, Cluster] = {}
        self.users: dict[str, User] = {}
        self.contexts: dict[str, Context] = {}
        self.origin: dict[str, Path] = {}
        self.current_context = ""
        for path in self.files:
            self._merge(read_file(path), path)

    def _merge(self, found: _File, path: Path) -> None:
        base = path.absolute().parent
        for cluster in found.clusters:
            _resolve(cluster.cluster, ("certificate_authority",), base)
            self.clusters.setdefault(cluster.name, cluster.cluster)
        for user in found.users:
            _resolve(user.user, ("client_certificate", "client_key", "token_file"), base)
            if user.user.exec is not None and "/" in user.user.exec.command:
                _resolve(user.user.exec, ("command",), base)
            self.users.setdefault(user.name, user.user)
        for context in found.contexts:
            self.contexts.setdefault(context.name, context.context)
            self.origin.setdefault(context.name, path)
        self.current_context = self.current_context or found.current_context


def _resolve(entry: object, names: Sequence[str], base: Path) -> None:
    for name in names:
        if value := cast("str", getattr(entry, name)):
            setattr(entry, name, str(base / value))


def files_of(kubeconfig: str, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The kubeconfig files that are there: that of ``--kubeconfig``, else those of KUBECONFIG, else ~/.kube/config.

    Raises `ClusterError` where ``--kubeconfig`` names none that is there.
    """
    if kubeconfig:
        path = Path(kubeconfig).expanduser()
        if not path.is_file():
            what = "is a directory" if path.is_dir() else "is not there"
            raise ClusterError(f"the kubeconfig {kubeconfig} {what}", hint="--kubeconfig FILE names a file")
        return (path,)
    if listed := environ.get("KUBECONFIG", ""):
        import os

        named = [Path(each).expanduser() for each in dict.fromkeys(listed.split(os.pathsep)) if each]
    else:
        named = [Path(environ.get("HOME") or "~").expanduser() / ".kube" / "config"]
    return tuple(path for path in named if path.is_file())


def read_file(path: Path) -> _File:
    """One file. Raises `ClusterError` with line and field where it is broken; values are never quoted."""
    import yaml

    try:
        raw = path.read_bytes() if path.stat().st_size <= MOST_BYTES else None
    except OSError as error:
        raise ClusterError(f"the kubeconfig {path} cannot be read ({error.strerror})") from None
    if raw is None:
        raise ClusterError(f"the kubeconfig {path} is no kubeconfig: it is too large")
    try:
        data: object = yaml.load(raw.decode("utf-8-sig"), Loader=_loader())
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        what = " ".join((error.problem or error.context or "").split())
        raise ClusterError(f"the kubeconfig {path}{line} is no YAML: {what}") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise ClusterError(f"the kubeconfig {path} is no YAML") from None
    if data is None:
        return _File()
    if not isinstance(data, dict):
        raise ClusterError(f"the kubeconfig {path} is no kubeconfig: it holds no mapping")
    return converted(_without_null(cast("object", data)), _File, f"the kubeconfig {path}")


def converted(data: object, kind: type[_T], what: str) -> _T:
    """Plain values as a struct; raises `ClusterError` that names the field, never its value."""
    try:
        return msgspec.convert(data, kind, strict=False)
    except msgspec.ValidationError as error:
        wrong, _, where = str(error).partition(" - at `$.")
        at = f" at {where.rstrip('`')}" if where else ""
        raise ClusterError(f"{what} is wrong{at}: {wrong[:1].lower()}{wrong[1:].replace('`', '')}") from None


def decoded(data: str, what: str) -> bytes:
    """Base64 as bytes; raises `ClusterError`, which does not show it."""
    try:
        found = base64.b64decode("".join(data.split()), validate=True)
        found.decode("ascii")
    except (binascii.Error, ValueError):
        raise ClusterError(f"{what} is no base64 of PEM text") from None
    return found


def _loader() -> Any:
    """A YAML loader that takes every scalar for text, but null: a token of digits stays what it is."""
    import yaml

    parent: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    null = "tag:yaml.org,2002:null"
    resolvers = {
        first: [each for each in some if each[0] == null] for first, some in parent.yaml_implicit_resolvers.items()
    }
    return type("TextLoader", (parent,), {"yaml_implicit_resolvers": resolvers})


def _without_null(data: object) -> object:
    if isinstance(data, dict):
        some = cast("dict[object, object]", data)
        return {key: _without_null(value) for key, value in some.items() if value is not None}
    if isinstance(data, list):
        return [_without_null(each) for each in cast("list[object]", data)]
    return data
