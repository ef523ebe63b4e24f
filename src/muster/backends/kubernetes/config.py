"""How a cluster is reached and as whom: a context of a kubeconfig, or the ServiceAccount of the pod one runs in."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from muster.backends.kubernetes.credentials import Credentials
from muster.backends.kubernetes.kubeconfig import Cluster, Kubeconfig, User, decoded, files_of
from muster.backends.kubernetes.proxies import proxy_for
from muster.errors import ClusterError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its token, the CA and its namespace."""

IN_CLUSTER = "in-cluster"
"""What the access of a pod is called, which has no context."""


class Access(Struct, frozen=True, kw_only=True):
    """Everything that is needed to ask a server.

    Attributes:
        context: the name of the context; IN_CLUSTER in a pod.
        server: its address, without a slash at the end.
        namespace: what ``-n`` is where it is not given.
        ca_pem: the certificates that are trusted; None: those of the system.
        verify: whether the server's certificate is checked at all.
        server_name: the name in its certificate, where that is another than in the address.
        proxy: the address of a proxy; empty: none.
        compress: whether answers may be compressed; near by, that costs more than it saves.
        credentials: as whom.
        impersonate: headers that say as whom to act instead.
        origin: the kubeconfig that it is from, for messages; empty in a pod.
    """

    context: str
    server: str
    namespace: str = "default"
    ca_pem: str | None = None
    verify: bool = True
    server_name: str = ""
    proxy: str = ""
    compress: bool = True
    credentials: Credentials
    impersonate: tuple[tuple[str, str], ...] = ()
    origin: str = ""

    def __repr__(self) -> str:
        return f"Access({self.context!r}, {self.server!r})"


def read_access(
    context: str = "",
    kubeconfig: str = "",
    *,
    as_user: str = "",
    environ: Mapping[str, str] | None = None,
    pod: Path = SERVICE_ACCOUNT,
) -> Access:
    """The access that a context gives; without any kubeconfig, that of the pod one runs in.

    Args:
        context: its name; empty: the current one.
        kubeconfig: the only file to read; empty: those of KUBECONFIG, else ~/.kube/config.
        as_user: as whom to act (``--as``); empty: what the kubeconfig says.
        environ: the environment; None: that of the process.
        pod: the folder of a pod's ServiceAccount.

    Raises:
        ClusterError: there is no kubeconfig, no such context, or something in it is wrong.
    """
    environ = os.environ if environ is None else environ
    files = files_of(kubeconfig, environ)
    if not files and not context and environ.get("KUBERNETES_SERVICE_HOST") and (pod / "token").is_file():
        return _in_cluster(environ, pod, as_user)
    config = Kubeconfig(files)
    name = _context(config, context, environ)
    found = config.contexts[name]
    cluster, user = config.clusters.get(found.cluster), config.users.get(found.user, User())
    origin = str(config.origin[name])
    if cluster is None:
        raise ClusterError(
            f"context {name!r} of {origin} names the cluster {found.cluster!r}, which no kubeconfig has",
            hint=_near(found.cluster, list(config.clusters)),
        )
    if found.user and found.user not in config.users:
        raise ClusterError(
            f"context {name!r} of {origin} names the user {found.user!r}, which no kubeconfig has",
            hint=_near(found.user, list(config.users)),
        )
    server = _address(cluster.server, f"cluster {found.cluster!r} of {origin}")
    return Access(
        context=name,
        server=server,
        namespace=found.namespace or "default",
        ca_pem=_ca(cluster, found.cluster),
        verify=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        proxy=cluster.proxy_url or proxy_for(server, environ),
        compress=not (cluster.disable_compression or _near_by(server)),
        credentials=Credentials(user, name=found.user, cluster=_told_to_plugins(cluster, server), environ=environ),
        impersonate=_impersonation(user, as_user),
        origin=origin,
    )


def contexts(kubeconfig: str = "", environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The names of all contexts, for completion; none where nothing can be read."""
    environ = os.environ if environ is None else environ
    try:
        return tuple(Kubeconfig(files_of(kubeconfig, environ)).contexts)
    except ClusterError:
        return ()


def _in_cluster(environ: Mapping[str, str], pod: Path, as_user: str) -> Access:
    host = environ["KUBERNETES_SERVICE_HOST"]
    port = environ.get("KUBERNETES_SERVICE_PORT_HTTPS") or environ.get("KUBERNETES_SERVICE_PORT") or "443"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    namespace = (pod / "namespace").read_text().strip() if (pod / "namespace").is_file() else ""
    user = User(token_file=str(pod / "token"))
    return Access(
        context=IN_CLUSTER,
        server=server,
        namespace=namespace or "default",
        ca_pem=_ca(Cluster(certificate_authority=str(pod / "ca.crt")), IN_CLUSTER),
        proxy=proxy_for(server, environ),
        compress=False,
        credentials=Credentials(user, name="the ServiceAccount", cluster={}, environ=environ),
        impersonate=_impersonation(user, as_user),
    )


def _context(config: Kubeconfig, asked: str, environ: Mapping[str, str]) -> str:
    """The name of the context that is meant; raises `ClusterError` where it is not there."""
    if not config.files:
        listed = environ.get("KUBECONFIG")
        where = f"KUBECONFIG names none that is there ({listed})" if listed else "~/.kube/config is not there"
        raise ClusterError(f"there is no kubeconfig: {where}", hint="--kubeconfig FILE names one")
    files = ", ".join(map(str, config.files))
    name = asked or config.current_context
    if not name:
        some = f": {', '.join(config.contexts)}" if config.contexts else ""
        raise ClusterError(f"{files} has no current context", hint=f"--context NAME chooses one{some}"[:300])
    if name not in config.contexts:
        what = f"there is no context {name!r} in {files}" if asked else f"{files}: the current context {name!r} is none"
        raise ClusterError(what, hint=_near(name, list(config.contexts)))
    return name


def _near(name: str, known: Sequence[str]) -> str:
    from muster.errors import near

    if found := near(name, known):
        return found
    if not known:
        return "there is none at all"
    return f"there {'is' if len(known) == 1 else 'are'} {', '.join(known[:8])}{' and more' if len(known) > 8 else ''}"


def _address(server: str, where: str) -> str:
    """A server's address as it is used; raises `ClusterError` where it is none."""
    if not server:
        raise ClusterError(f"{where} has no server", hint="such as server: https://10.0.0.1:6443")
    full = server if "://" in server else f"http://{server}"  # as kubectl takes it
    try:
        parts = urlsplit(full)
        good = (
            parts.scheme in ("http", "https")
            and parts.hostname
            and "@" not in parts.netloc
            and (parts.port is None or parts.port > 0)
        )
    except ValueError:
        good = False
    if not good or any(letter.isspace() for letter in full):
        raise ClusterError(f"{where}: its server is no address", hint="such as server: https://10.0.0.1:6443")
    return full.rstrip("/")


def _near_by(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def _ca(cluster: Cluster, name: str) -> str | None:
    """The certificates to trust, as PEM; raises `ClusterError` where they cannot be read."""
    if cluster.certificate_authority_data:
        return decoded(cluster.certificate_authority_data, f"certificate-authority-data of cluster {name!r}").decode()
    if not cluster.certificate_authority:
        return None
    try:
        return Path(cluster.certificate_authority).read_text()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise ClusterError(f"certificate-authority of cluster {name!r} cannot be read ({why}: "
                           f"{cluster.certificate_authority})") from None  # fmt: skip


def _told_to_plugins(cluster: Cluster, server: str) -> dict[str, Any]:
    """What a credential plugin is told of the cluster where it asks for it (client.authentication.k8s.io)."""
    told: dict[str, Any] = {"server": server}
    if cluster.tls_server_name:
        told["tls-server-name"] = cluster.tls_server_name
    if cluster.insecure_skip_tls_verify:
        told["insecure-skip-tls-verify"] = True
    if cluster.certificate_authority_data:
        told["certificate-authority-data"] = cluster.certificate_authority_data
    elif cluster.certificate_authority and (pem := _ca(cluster, "")):
        told["certificate-authority-data"] = base64.b64encode(pem.encode()).decode()
    if cluster.proxy_url:
        told["proxy-url"] = cluster.proxy_url
    for each in cluster.extensions or ():
        if isinstance(each, dict) and each.get("name") == "client.authentication.k8s.io/exec":  # pyright: ignore[reportUnknownMemberType]
            told["config"] = each.get("extension")  # pyright: ignore[reportUnknownMemberType]
    return told


def _impersonation(user: User, as_user: str) -> tuple[tuple[str, str], ...]:
    """The headers of impersonation; ``--as`` replaces all of what the kubeconfig says."""
    if as_user:
        return (("Impersonate-User", as_user),)
    if not user.impersonate:
        return ()
    headers = [("Impersonate-User", user.impersonate)]
    if user.impersonate_uid:
        headers.append(("Impersonate-Uid", user.impersonate_uid))
    headers += [("Impersonate-Group", each) for each in user.impersonate_groups or ()]
    for key, values in sorted((user.impersonate_extra or {}).items()):
        headers += [(f"Impersonate-Extra-{key}", value) for value in values]
    return tuple(headers)
