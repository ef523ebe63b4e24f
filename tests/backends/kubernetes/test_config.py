"""Kubeconfigs, as kubectl reads them: what is meant, and what is told where it is wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from muster.backends.kubernetes.config import IN_CLUSTER, Access, contexts, read_access
from muster.backends.kubernetes.credentials import Credential
from muster.backends.kubernetes.proxies import proxy_for
from muster.errors import ClusterError

PEM = "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n"
DATA = base64.b64encode(PEM.encode()).decode()

PLAIN = """
apiVersion: v1
kind: Config
current-context: prod
clusters:
- name: big
  cluster: {server: "https://10.0.0.1:6443/"}
users:
- name: me
  user: {token: s3cret}
contexts:
- name: prod
  context: {cluster: big, user: me, namespace: research}
- name: staging
  context: {cluster: big, user: me}
"""


def access(tmp_path: Path, text: str, context: str = "", **more: Any) -> Access:
    path = tmp_path / "config"
    path.write_text(text)
    return read_access(context, environ={"KUBECONFIG": str(path), "PATH": os.environ["PATH"]}, **more)


def shown(found: Access) -> Credential:
    return asyncio.run(found.credentials.current())


def with_user(user: str) -> str:
    return PLAIN.replace("{token: s3cret}", user)


def with_cluster(cluster: str) -> str:
    return PLAIN.replace('{server: "https://10.0.0.1:6443/"}', cluster)


def test_the_current_context_is_taken(tmp_path: Path) -> None:
    found = access(tmp_path, PLAIN)
    assert (found.context, found.server, found.namespace) == ("prod", "https://10.0.0.1:6443", "research")
    assert (found.ca_pem, found.verify, found.proxy, found.server_name) == (None, True, "", "")
    assert shown(found).authorization == "Bearer s3cret"
    other = access(tmp_path, PLAIN, "staging")
    assert (other.context, other.namespace) == ("staging", "default")


CLUSTERS: dict[str, tuple[str, dict[str, object]]] = {
    "a CA as data": (f"{{server: 'https://a', certificate-authority-data: {DATA}}}", {"ca_pem": PEM}),
    "a CA in a file beside the kubeconfig": ("{server: 'https://a', certificate-authority: ca.pem}", {"ca_pem": PEM}),
    "data goes before a file": (
        f"{{server: 'https://a', certificate-authority: nowhere, certificate-authority-data: {DATA}}}",
        {"ca_pem": PEM},
    ),
    "no check": ("{server: 'https://a', insecure-skip-tls-verify: true}", {"verify": False}),
    "another name": ("{server: 'https://a', tls-server-name: api.inside}", {"server_name": "api.inside"}),
    "a proxy": ("{server: 'https://a', proxy-url: 'http://p:3128'}", {"proxy": "http://p:3128"}),
    "no compression": ("{server: 'https://a', disable-compression: true}", {"compress": False}),
    "compression": ("{server: 'https://a'}", {"compress": True}),
    "near by, compression does not pay": ("{server: 'https://127.0.0.1:6443'}", {"compress": False}),
    "no scheme is plain HTTP, as kubectl takes it": ("{server: 'a:8080'}", {"server": "http://a:8080"}),
    "IPv6": ("{server: 'https://[fd00::1]:6443'}", {"server": "https://[fd00::1]:6443"}),
    "a path": ("{server: 'https://rancher/k8s/clusters/c-1'}", {"server": "https://rancher/k8s/clusters/c-1"}),
}


@pytest.mark.parametrize(("cluster", "expected"), CLUSTERS.values(), ids=CLUSTERS)
def test_clusters(tmp_path: Path, cluster: str, expected: dict[str, object]) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    found = access(tmp_path, with_cluster(cluster))
    assert {key: getattr(found, key) for key in expected} == expected


USERS: dict[str, tuple[str, dict[str, str]]] = {
    "nobody": ("{}", {"authorization": "", "certificate": ""}),
    "a token of digits is text": ("{token: 0123}", {"authorization": "Bearer 0123"}),
    "null is absent": ("{token: null, username: null}", {"authorization": ""}),
    "a token in a file": ("{tokenFile: token}", {"authorization": "Bearer from-file"}),
    "the file goes before the token": ("{token: old, tokenFile: token}", {"authorization": "Bearer from-file"}),
    "the token, while the file is not there": ("{token: old, tokenFile: none}", {"authorization": "Bearer old"}),
    "name and password": ("{username: u, password: p}", {"authorization": "Basic dTpw"}),
    "a certificate as data": (
        f"{{client-certificate-data: {DATA}, client-key-data: {DATA}}}", {"certificate": PEM, "key": PEM}
    ),
    "a certificate in files": ("{client-certificate: ca.pem, client-key: ca.pem}", {"certificate": PEM, "key": PEM}),
}  # fmt: skip


@pytest.mark.parametrize(("user", "expected"), USERS.values(), ids=USERS)
def test_users(tmp_path: Path, user: str, expected: dict[str, str]) -> None:
    (tmp_path / "ca.pem").write_text(PEM)
    (tmp_path / "token").write_text("from-file\n")
    found = shown(access(tmp_path, with_user(user)))
    assert {key: getattr(found, key) for key in expected} == expected


IMPERSONATION: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    "nobody": ("{token: t}", "", ()),
    "the kubeconfig says": (
        "{token: t, as: root, as-uid: u1, as-groups: [a, b], as-user-extra: {scopes: [x]}}", "",
        (("Impersonate-User", "root"), ("Impersonate-Uid", "u1"), ("Impersonate-Group", "a"),
         ("Impersonate-Group", "b"), ("Impersonate-Extra-scopes", "x")),
    ),
    "--as replaces all of it": ("{token: t, as: root, as-groups: [a]}", "jane", (("Impersonate-User", "jane"),)),
}  # fmt: skip


@pytest.mark.parametrize(("user", "as_user", "expected"), IMPERSONATION.values(), ids=IMPERSONATION)
def test_impersonation(tmp_path: Path, user: str, as_user: str, expected: tuple[tuple[str, str], ...]) -> None:
    assert access(tmp_path, with_user(user), as_user=as_user).impersonate == expected


WRONG: dict[str, tuple[str, str, str]] = {
    "no such context": (PLAIN, "pord", "there is no context 'pord' in FILE; did you mean prod?"),
    "far from all": (PLAIN, "zz", "there is no context 'zz' in FILE; there are prod, staging"),
    "the current one is none": (
        PLAIN.replace("current-context: prod", "current-context: gone"), "",
        "FILE: the current context 'gone' is none; there are prod, staging",
    ),
    "no current one": (
        PLAIN.replace("current-context: prod", ""), "",
        "FILE has no current context; --context NAME chooses one: prod, staging",
    ),
    "empty": ("", "", "FILE has no current context; --context NAME chooses one"),
    "nothing in it": ("clusters: null\ncontexts: null\n", "a", "there is no context 'a' in FILE; there is none at all"),
    "no such cluster": (
        PLAIN.replace("cluster: big, user: me,", "cluster: bgi, user: me,"), "",
        "context 'prod' of FILE names the cluster 'bgi', which no kubeconfig has; did you mean big?",
    ),
    "no such user": (
        PLAIN.replace("user: me, n", "user: you, n"), "",
        "context 'prod' of FILE names the user 'you', which no kubeconfig has; there is me",
    ),
    "no YAML": ("clusters: [\n  -", "", "the kubeconfig FILE:2 is no YAML: "),
    "no mapping": ("- a\n", "", "the kubeconfig FILE is no kubeconfig: it holds no mapping"),
    "a list of the wrong kind": ("clusters: {a: 1}\n", "", "the kubeconfig FILE is wrong at clusters: expected array"),
    "a secret of the wrong kind is not shown": (
        with_user("{token: [s3cret]}"), "", "the kubeconfig FILE is wrong at users[0].user.token: expected str, "
    ),
    "no server": (with_cluster("{}"), "", "cluster 'big' of FILE has no server; such as server: https://"),
    "no address": (with_cluster("{server: 'ftp://a'}"), "", "cluster 'big' of FILE: its server is no address"),
    "a secret in the address": (with_cluster("{server: 'https://u:s3cret@a'}"), "", "cluster 'big' of FILE: its "),
    "the CA is not there": (
        with_cluster("{server: 'https://a', certificate-authority: gone.pem}"), "",
        "certificate-authority of cluster 'big' cannot be read (No such file or directory: DIR/gone.pem)",
    ),
    "the CA is no base64": (
        with_cluster("{server: 'https://a', certificate-authority-data: '***'}"), "",
        "certificate-authority-data of cluster 'big' is no base64 of PEM text",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "context", "expected"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told_in_one_line(tmp_path: Path, text: str, context: str, expected: str) -> None:
    with pytest.raises(ClusterError) as caught:
        access(tmp_path, text, context)
    told = str(caught.value).replace(str(tmp_path / "config"), "FILE").replace(str(tmp_path), "DIR")
    assert told.startswith(expected)
    assert "\n" not in told
    assert "s3cret" not in told


WRONG_USERS: dict[str, tuple[str, str]] = {
    "a certificate without a key": (
        f"{{client-certificate-data: {DATA}}}", "user 'me' has a client certificate without the other"
    ),
    "a key that is not there": (
        f"{{client-certificate-data: {DATA}, client-key: gone}}", "client-key of user 'me' cannot be read (No such "
    ),
    "a token file that is not there": ("{tokenFile: gone}", "the token of user 'me' cannot be read (No such file "),
    "a token file without a token": ("{tokenFile: empty}", "the file DIR/empty holds no token"),
    "an old auth provider": (
        "{auth-provider: {name: gcp, config: {access-token: s3cret}}}",
        "user 'me' has an auth-provider (gcp), which Kubernetes has removed; name a credential plugin",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("user", "expected"), WRONG_USERS.values(), ids=WRONG_USERS)
def test_users_that_are_wrong(tmp_path: Path, user: str, expected: str) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ClusterError) as caught:
        shown(access(tmp_path, with_user(user)))
    assert str(caught.value).replace(str(tmp_path), "DIR").startswith(expected)
    assert "s3cret" not in str(caught.value)


# -- files ------------------------------------------------------------------------------------------------------------


def test_of_several_files_the_first_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "sub" / "b"
    second.parent.mkdir()
    first.write_text("contexts:\n- {name: prod, context: {cluster: big, user: you, namespace: first}}\n")
    second.write_text(with_user("{tokenFile: token}").replace("name: me", "name: you"))
    (second.parent / "token").write_text("beside-b")
    both = {"KUBECONFIG": os.pathsep.join(["", str(first), str(tmp_path / "missing"), str(second), str(first)])}
    found = read_access(environ=both)
    assert (found.context, found.namespace, found.server) == ("prod", "first", "https://10.0.0.1:6443")
    assert shown(found).authorization == "Bearer beside-b"
    assert found.origin == str(first)
    assert contexts(environ=both) == ("prod", "staging")


def test_the_file_of_the_option_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "one").write_text(PLAIN)
    found = read_access("staging", str(tmp_path / "one"), environ={"KUBECONFIG": "/nowhere"})
    assert found.context == "staging"
    with pytest.raises(ClusterError, match="the kubeconfig /nowhere/x is not there; --kubeconfig FILE names a file"):
        read_access("", "/nowhere/x", environ={})
    with pytest.raises(ClusterError, match="is a directory"):
        read_access("", str(tmp_path), environ={})


def test_without_any_kubeconfig(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"there is no kubeconfig: ~/\.kube/config is not there; --kubeconfig FILE"):
        read_access(environ={"HOME": str(tmp_path)})
    with pytest.raises(ClusterError, match=r"KUBECONFIG names none that is there .*gone"):
        read_access("prod", environ={"HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "gone")})
    assert contexts(environ={"HOME": str(tmp_path)}) == ()


def test_home(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(PLAIN)
    assert read_access(environ={"HOME": str(tmp_path)}).context == "prod"


def test_nothing_shows_a_secret(tmp_path: Path) -> None:
    found = access(tmp_path, PLAIN.replace('6443/"', '6443/", proxy-url: "http://u:s3cret@p:1"'))
    texts = [repr(found), str(found), repr(found.credentials), repr(shown(found))]
    assert not [text for text in texts if "s3cret" in text]


# -- in a pod ---------------------------------------------------------------------------------------------------------


def test_in_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("token", "first"), ("ca.crt", PEM), ("namespace", "gpu-tools\n")):
        (tmp_path / name).write_text(text)
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443", "HOME": str(tmp_path)}
    found = read_access(environ=environ, pod=tmp_path)
    assert (found.context, found.server, found.namespace) == (IN_CLUSTER, "https://[fd00::1]:443", "gpu-tools")
    assert found.ca_pem == PEM
    assert shown(found).authorization == "Bearer first"
    (tmp_path / "token").write_text("second")  # the kubelet has rotated it
    assert shown(found).authorization == "Bearer first"
    refused = shown(found)
    assert asyncio.run(found.credentials.current(refused=refused)).authorization == "Bearer second"
    (tmp_path / "token").write_text("third")
    later = "muster.backends.kubernetes.credentials.time.time"
    import time

    now_s = time.time()
    monkeypatch.setattr(later, lambda: now_s + 61.0)
    assert shown(found).authorization == "Bearer third"


def test_a_context_that_is_asked_for_is_not_the_pod(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first")
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOME": str(tmp_path)}
    with pytest.raises(ClusterError, match="there is no kubeconfig"):
        read_access("prod", environ=environ, pod=tmp_path)


# -- credential plugins -----------------------------------------------------------------------------------------------


def plugin(tmp_path: Path, body: str, name: str = "get-token") -> None:
    path = tmp_path / name
    (tmp_path / "plugin.py").write_text(f"import json, os, sys\n{body}\n")
    # by a shell: what follows #! may hold no space, which the path of this Python may
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(tmp_path / "plugin.py"))} "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def exec_user(more: str = "", version: str = "v1") -> str:
    return with_user(
        f"{{exec: {{apiVersion: client.authentication.k8s.io/{version}, command: ./get-token,"
        f" interactiveMode: Never{more}}}}}"
    )


GIVES = """
n = open("runs", "a"); n.write("x"); n.close()
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
out = {"apiVersion": info["apiVersion"], "kind": "ExecCredential",
       "status": {"token": "t%d" % os.path.getsize("runs") + "/" + "/".join(sys.argv[1:])
                  + "/" + os.environ.get("WHO", "") + "/" + info["spec"].get("cluster", {}).get("server", "")}}
if "until" in sys.argv: out["status"]["expirationTimestamp"] = os.environ["UNTIL"]
print(json.dumps(out))
"""


def test_a_plugin_is_asked_once_and_anew_when_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    plugin(tmp_path, GIVES)
    more = ", args: [get, it], env: [{name: WHO, value: me}], provideClusterInfo: true"
    credentials = access(tmp_path, exec_user(more)).credentials
    first = asyncio.run(credentials.current())
    assert first.authorization == "Bearer t1/get/it/me/https://10.0.0.1:6443"
    assert asyncio.run(credentials.current()) is first
    second = asyncio.run(credentials.current(refused=first))
    assert second.authorization.startswith("Bearer t2/")
    assert asyncio.run(credentials.current(refused=first)) is second  # somebody else has renewed them meanwhile


@pytest.mark.parametrize(("until", "runs"), [("2020-01-01T00:00:00Z", 2), ("2999-01-01T00:00:00Z", 1), ("never", 1)])
def test_a_plugin_is_asked_again_when_its_credentials_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, until: str, runs: int
) -> None:
    monkeypatch.chdir(tmp_path)
    plugin(tmp_path, GIVES)
    credentials = access(tmp_path, exec_user(f", args: [until], env: [{{name: UNTIL, value: '{until}'}}]")).credentials

    async def twice() -> None:
        await asyncio.gather(credentials.current())
        await asyncio.gather(credentials.current())

    asyncio.run(twice())
    assert (tmp_path / "runs").read_text() == "x" * runs


def test_a_plugin_may_give_a_certificate(tmp_path: Path) -> None:
    out = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "kind": "ExecCredential",
        "status": {"clientCertificateData": PEM, "clientKeyData": PEM},
    }
    plugin(tmp_path, f"print({json.dumps(json.dumps(out))})")
    found = shown(access(tmp_path, exec_user(version="v1beta1")))
    assert (found.certificate, found.key, found.authorization) == (PEM, PEM, "")


ANSWER = 'print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": %s}))'

FAILING: dict[str, tuple[str, str, str]] = {
    "it fails": (
        "print('s3cret'); print('first'); sys.exit('token expired,\\tlog in anew')", exec_user(),
        "the credential plugin DIR/./get-token failed with code 1: token expired, log in anew",
    ),
    "no JSON": ("print('s3cret')", exec_user(), "the credential plugin DIR/./get-token printed no ExecCredential"),
    "another kind": ("print('{}')", exec_user(), "the credential plugin DIR/./get-token printed nothing, not ExecCred"),
    "another version": (
        ANSWER % "{'token': 's3cret'}", exec_user(version="v1beta1"),
        "the credential plugin DIR/./get-token printed ExecCredential client.authentication.k8s.io/v1, not ExecC",
    ),
    "nothing": (ANSWER % "{}", exec_user(), "the credential plugin DIR/./get-token gave neither a token nor a client"),
    "half": (
        ANSWER % "{'clientKeyData': 's3cret'}", exec_user(),
        "the credential plugin DIR/./get-token gave a client certificate or a key without the other",
    ),
    "an unknown version": (
        "", exec_user(version="v1alpha1"),
        "the credential plugin DIR/./get-token speaks client.authentication.k8s.io/v1alpha1; ",
    ),
    "it needs a terminal": (
        "", exec_user().replace("Never", "Always"), "the credential plugin DIR/./get-token needs a terminal, and there",
    ),
    "it is not there": (
        "", exec_user(", installHint: 'Get it\\n  from us.'").replace("./get-token", "get-no-token"),
        "the credential plugin get-no-token is not there; ",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "config", "expected"), FAILING.values(), ids=FAILING)
def test_plugins_that_fail(tmp_path: Path, body: str, config: str, expected: str) -> None:
    plugin(tmp_path, body)
    with pytest.raises(ClusterError) as caught:
        shown(access(tmp_path, config))
    told = str(caught.value).replace(str(tmp_path), "DIR")
    assert told.replace("DIR/get-token", "DIR/./get-token").startswith(expected)
    assert "\n" not in told
    assert "s3cret" not in told


# -- proxies ----------------------------------------------------------------------------------------------------------

PROXIES: dict[str, tuple[str, dict[str, str], str]] = {
    "none": ("https://a:6443", {}, ""),
    "by scheme": ("https://a:6443", {"HTTPS_PROXY": "http://p:1", "HTTP_PROXY": "http://q:1"}, "http://p:1"),
    "in small letters, without a scheme": ("https://a", {"https_proxy": "p:1"}, "http://p:1"),
    "this machine": ("https://localhost:6443", {"HTTPS_PROXY": "http://p:1"}, ""),
    "loopback": ("https://127.3.0.1", {"HTTPS_PROXY": "http://p:1"}, ""),
    "loopback, IPv6": ("https://[::1]:6443", {"HTTPS_PROXY": "http://p:1"}, ""),
    "excepted": ("https://a.b.c", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "x, b.c"}, ""),
    "excepted below only": ("https://b.c", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".b.c"}, "http://p:1"),
    "no part of a word": ("https://ab.c", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "b.c"}, "http://p:1"),
    "a network": ("https://10.1.2.3:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, ""),
    "another network": ("https://11.1.2.3", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
    "this port": ("https://a:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a:6443"}, ""),
    "another port": ("https://a:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a:443"}, "http://p:1"),
    "all": ("https://a", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, ""),
    "IPv6 with a port": ("https://[fd00::1]:6443", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "[fd00::1]:6443"}, ""),
}


@pytest.mark.parametrize(("server", "environ", "expected"), PROXIES.values(), ids=PROXIES)
def test_proxies(server: str, environ: dict[str, str], expected: str) -> None:
    assert proxy_for(server, environ) == expected
