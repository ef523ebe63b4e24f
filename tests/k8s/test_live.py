"""The answers about a live cluster, from a real API server: as an administrator, read-only, and with less than that."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controlplane import Cluster
from muster.answers.changes import SetNodes, Stop
from muster.answers.live import open_live
from muster.answers.live_changes import writes_of
from muster.backends.kubernetes import lists
from muster.backends.kubernetes.api import ApiServer
from muster.backends.kubernetes.api import run as run_loop
from muster.backends.kubernetes.changes import carry_out
from muster.cli.main import run
from muster.errors import ClusterError
from muster.kube.kinds import NODES, PODS, STRUCTS
from muster.kube.objects import KubeNode

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "rbac"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
KUBECTL = Path(sys.executable).with_name("kubectl")
Muster = Callable[..., tuple[int, str, str]]


@pytest.fixture
def muster(cluster: Cluster, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Muster:
    """Runs a command as an administrator, or as ``kubeconfig`` says: exit code, what it printed, what it said."""

    def call(*args: object, kubeconfig: Path | None = None) -> tuple[int, str, str]:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig or cluster.kubeconfig))
        with pytest.raises(SystemExit) as ended:
            run([str(arg) for arg in args])
        out, err = capfd.readouterr()
        return int(ended.value.code or 0), out, err

    return call


@pytest.fixture
def work(cluster: Cluster, namespace: str) -> str:
    """In its namespace, `serve` runs on 8 GPUs of one node, and the 3 pods of the Job `train` wait for 8 GPUs each."""
    pods = f"/api/v1/namespaces/{namespace}/pods"
    cluster.api.post(pods, pod("serve"))
    target = {"apiVersion": "v1", "kind": "Node", "name": cluster.api.items("/api/v1/nodes")[0]["metadata"]["name"]}
    cluster.api.post(f"{pods}/serve/binding", {"metadata": {"name": "serve"}, "target": target})
    for rank in range(3):
        cluster.api.post(pods, pod(f"train-{rank}", **{"batch.kubernetes.io/job-name": "train"}))
    return namespace


def pod(name: str, **labels: str) -> dict[str, Any]:
    amounts = {"nvidia.com/gpu": "8"}
    container = {"name": "main", "image": "example.org/work:1", "resources": {"limits": amounts, "requests": amounts}}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [container]}}


def allow(cluster: Cluster, kind: str, name: str, account: tuple[str, str], rules: list[dict[str, Any]]) -> None:
    """A Role in the account's namespace, or a ClusterRole, for an account."""
    namespace = account[0]
    base = RBAC if kind == "ClusterRole" else f"{RBAC}/namespaces/{namespace}"
    many = f"{kind.lower()}s"
    subjects = [{"kind": "ServiceAccount", "namespace": namespace, "name": account[1]}]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name}
    cluster.api.post(f"{base}/{many}", {"metadata": {"name": name}, "rules": rules})
    body = {"metadata": {"name": name}, "roleRef": role, "subjects": subjects}
    cluster.api.post(f"{base}/{many.removesuffix('s')}bindings", body)


@pytest.fixture(scope="session")
def reader(cluster: Cluster) -> Path:
    """The kubeconfig of the account in deploy/rbac/read-only.yaml."""
    paths = {"ServiceAccount": "/api/v1/namespaces/default/serviceaccounts", "ClusterRole": f"{RBAC}/clusterroles",
             "ClusterRoleBinding": f"{RBAC}/clusterrolebindings"}  # fmt: skip
    for each in yaml.safe_load_all((DEPLOY / "read-only.yaml").read_text()):
        cluster.api.post(paths[each["kind"]], each)
    return cluster.service_account("default", "muster-read-only")


# -- answers ----------------------------------------------------------------------------------------------------------


def test_the_fleet(muster: Muster, work: str) -> None:
    code, out, err = muster("fleet", "show", "--from", "kubernetes:", "-o", "json")
    groups = json.loads(out)["groups"]
    assert code == 0
    assert "must not" not in err
    assert sum(group["nodes"] for group in groups) == 20
    assert sum(group["gpus"] for group in groups) == 160
    assert sum(group["gpus_free"] for group in groups) <= 152


def test_why_queue_and_fit(muster: Muster, work: str, cluster: Cluster, tmp_path: Path) -> None:
    context = yaml.safe_load(cluster.kubeconfig.read_text())["current-context"]
    code, out, _ = muster("why", "train", "-n", work, "--context", context)
    assert code == 0
    assert f"{work}/train, 3 pods x 8 GPUs" in out
    assert "starts now" in out
    code, out, _ = muster("--context", context, "queue", "-n", work, "-o", "json")
    found = json.loads(out)
    assert code == 0
    assert [each["job"] for each in found["running"]] == [f"{work}/train", f"{work}/serve"]
    code, out, _ = muster("fit", "--pods", 2, "--gpus", 8, "--context", context)
    assert code == 0
    snap = tmp_path / "now.snap"
    assert muster("snapshot", "save", "--context", context, "-o", snap)[0] == 0
    code, out, _ = muster("why", f"{work}/train", "--from", snap)
    assert (code, "starts now" in out) == (0, True)


def test_a_job_that_is_not_there(muster: Muster, work: str) -> None:
    code, out, err = muster("why", "tarin", "-n", work, "--from", "kubernetes:")
    assert (code, out) == (2, "")
    assert "there is no job" in err


def test_lists_come_in_pages(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lists, "PAGE", 3)

    async def read() -> list[str]:
        async with ApiServer.open(kubeconfig=str(cluster.kubeconfig)) as server:
            found = await lists.list_kind(server, await server.discover(), NODES, KubeNode)
            return [node.metadata.name for node in found]

    names = run_loop(read())
    assert sorted(names) == sorted(node["metadata"]["name"] for node in cluster.api.items("/api/v1/nodes"))
    assert len(names) == len(set(names)) == 20


def test_the_server_has_what_is_needed(cluster: Cluster) -> None:
    async def discover() -> list[str | None]:
        async with ApiServer.open(kubeconfig=str(cluster.kubeconfig)) as server:
            found = await server.discover()
            assert found.version == f"v{cluster.kubernetes}"
            assert found.path(PODS, "research") == "/api/v1/namespaces/research/pods"
            assert found.path(NODES, "research") == "/api/v1/nodes"
            return [found.path(kind) for kind in STRUCTS if kind.group in ("", "batch", "resource.k8s.io")]

    assert None not in run_loop(discover())[:-1]  # the last kind of DRA may be off


# -- read-only --------------------------------------------------------------------------------------------------------

ANSWERS = (
    ("fleet", "show"), ("fleet", "frag"), ("queue",), ("metrics",), ("fit", "--pods", "1", "--gpus", "8"),
    ("whatif", "set reservations=4"), ("defrag", "--whole-nodes", "1"), ("why", "train"), ("spares",),
)  # fmt: skip


@pytest.mark.parametrize("args", ANSWERS, ids=lambda args: args[0])
def test_all_answers_are_given_read_only(muster: Muster, work: str, reader: Path, args: tuple[str, ...]) -> None:
    code, out, err = muster(*args, "-n", work, "--kubeconfig", reader)
    assert code in (0, 1), err
    assert out
    assert "must not" not in err


def test_a_history_is_recorded_read_only(muster: Muster, work: str, reader: Path, tmp_path: Path) -> None:
    store = tmp_path / "h.db"
    code, _, err = muster("history", "record", "--kubeconfig", reader, "--every", "1s", "--for", "1s", "--store", store)
    assert code == 0
    assert "number 1" in err
    code, out, _ = muster("why", "train", "-n", work, "--from", f"history:{store}")
    assert (code, "starts now" in out) == (0, True)


def test_nothing_can_be_written_read_only(cluster: Cluster, work: str, reader: Path) -> None:
    """Asked of the server itself, for every kind that is read and all that a write needs."""
    asked = [
        (kind.group, resource, verb)
        for kind in STRUCTS
        for resource in (kind.resource, f"{kind.resource}/status")
        for verb in ("create", "update", "patch", "delete", "deletecollection")
    ]
    asked += [("", resource, "create") for resource in ("pods/binding", "pods/eviction", "pods/exec", "secrets")]
    asked += [("", "secrets", "get"), ("", "configmaps", "list"), ("*", "*", "*")]

    async def allowed() -> list[tuple[str, str, str]]:
        found: list[tuple[str, str, str]] = []
        async with ApiServer.open(kubeconfig=str(reader)) as server:
            for group, resource, verb in asked:
                name, _, sub = resource.partition("/")
                attributes = {"group": group, "resource": name, "subresource": sub, "verb": verb, "namespace": work}
                body = {"spec": {"resourceAttributes": attributes}}
                path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
                review = json.loads(await server.request("POST", path, body=json.dumps(body).encode()))
                if review["status"]["allowed"]:
                    found.append((group, resource, verb))
        return found

    assert run_loop(allowed()) == []


# -- with less --------------------------------------------------------------------------------------------------------


def test_with_rights_in_one_namespace_what_is_missing_is_named(cluster: Cluster, muster: Muster, work: str) -> None:
    config = cluster.service_account(work, "inside")
    allow(cluster, "Role", "inside", (work, "inside"), [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}])
    code, out, err = muster("queue", "--kubeconfig", config)
    assert (code, out, err.count("\n")) == (3, "", 1)
    user = f"system:serviceaccount:{work}:inside"
    assert err.startswith(
        f"muster: {user} must not list nodes, without which nothing can be said; allow it: kubectl cr"
    )
    assert f"--serviceaccount={work}:inside" in err
    rules = [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]}]
    allow(cluster, "ClusterRole", f"nodes-{work}", (work, "inside"), rules)
    code, out, err = muster("queue", "--kubeconfig", config, "-o", "json")
    assert code == 0
    jobs = {each["job"] for part in ("waiting", "running") for each in json.loads(out)[part]}
    assert jobs == {f"{work}/serve", f"{work}/train"}
    lines = err.splitlines()
    assert lines[0] == f"{user} must not list pods of other namespaces than {work}: what they hold looks free."
    assert "persistentvolumes" in lines[1]
    assert "to which nodes volumes tie pods" in lines[1]
    assert lines[2].startswith(
        "What allows it: kubectl create clusterrole muster-read --verb=get,list,watch --resource="
    )


def test_the_role_that_is_told_suffices(cluster: Cluster, muster: Muster, work: str) -> None:
    """What the message says to an administrator, done, lets the answer be given."""
    config = cluster.service_account(work, "newcomer")
    _, _, err = muster("queue", "--kubeconfig", config)
    names = err.partition("--resource=")[2].split()[0].split(",")
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]}
        for resource, _, group in (name.partition(".") for name in names)
    ]
    allow(cluster, "ClusterRole", f"told-{work}", (work, "newcomer"), rules)
    code, _, err = muster("queue", "--kubeconfig", config)
    assert code == 0
    assert "must not" not in err


def test_as_somebody_else(muster: Muster, work: str) -> None:
    code, _, err = muster("queue", "--from", "kubernetes:", "--as", "jane")
    assert code == 3
    assert "jane must not list nodes, pods" in err
    assert "--user=jane" in err


def test_a_certificate_that_expired(cluster: Cluster, muster: Muster) -> None:
    code, out, err = muster("queue", "--kubeconfig", cluster.user("late", valid_hours=-1.0))
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "the client certificate of user" in err
    assert " expired on " in err


def test_a_token_that_is_not_known(cluster: Cluster, muster: Muster, tmp_path: Path) -> None:
    config = yaml.safe_load(cluster.service_account("default", "gone").read_text())
    config["users"][0]["user"] = {"token": "not-a-token"}
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    code, out, err = muster("queue", "--kubeconfig", path)
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "does not accept the credentials" in err
    assert "not-a-token" not in err


# -- writes ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def tainted(cluster: Cluster, namespace: str) -> Iterator[str]:
    """Two pods of a Job wait for the only nodes of a kind: one is cordoned, one has two taints."""
    names = [node["metadata"]["name"] for node in cluster.api.items("/api/v1/nodes")[-2:]]
    label = f"test.example/{namespace}"
    taints = [{"key": "one", "effect": "NoSchedule"}, {"key": "two", "effect": "NoSchedule"}]
    for name, spec in zip(names, ({"unschedulable": True}, {"taints": taints}), strict=True):
        cluster.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {label: "x"}}, "spec": spec}, "merge")
    for rank in range(2):
        body = pod(f"late-{rank}", **{"batch.kubernetes.io/job-name": "late"})
        body["spec"]["nodeSelector"] = {label: "x"}
        cluster.api.post(f"/api/v1/namespaces/{namespace}/pods", body)
    yield namespace
    for name in names:
        plain = {"metadata": {"labels": {label: None}}, "spec": {"unschedulable": None, "taints": None}}
        cluster.api.patch(f"/api/v1/nodes/{name}", plain, "merge")


def nodes_fix(muster: Muster, job: str) -> str:
    """The number of the fix that changes nodes."""
    code, out, _ = muster("why", job, "--from", "kubernetes:", "-o", "json")
    assert code == 1
    return next(str(fix["number"]) for fix in json.loads(out)["fixes"] if "uncordon" in fix["title"])


def test_a_fix_is_checked_then_made(cluster: Cluster, muster: Muster, tainted: str, reader: Path) -> None:
    job = f"{tainted}/late"
    number = nodes_fix(muster, job)
    before = cluster.api.items("/api/v1/nodes")
    code, out, err = muster("why", job, "--from", "kubernetes:", "--apply", number)
    assert code == 0
    assert out.count("kubectl patch nodes ") == 2
    assert "Nothing is changed: --yes does it, --dry-run has the server check it." in err
    code, out, err = muster("why", job, "--from", "kubernetes:", "--apply", number, "--dry-run")
    assert code == 0
    assert out.count("Checked: node") == 2
    code, _, err = muster("why", job, "--kubeconfig", reader, "--apply", number, "--yes")
    assert code == 3
    assert 'cannot patch resource "nodes"' in err
    unchanged = cluster.api.items("/api/v1/nodes")
    assert [node["spec"] for node in unchanged] == [node["spec"] for node in before]
    code, out, err = muster("why", job, "--from", "kubernetes:", "--apply", number, "--yes")
    assert code == 0
    assert out.count("Done: node") == 2
    code, out, _ = muster("why", job, "--from", "kubernetes:")
    assert (code, "starts now" in out) == (0, True)


def test_the_commands_that_are_told_do_the_same(cluster: Cluster, muster: Muster, tainted: str, work: str) -> None:
    """As whoever reads them would paste them: into a shell, with the real kubectl."""
    names = [node["metadata"]["name"] for node in cluster.api.items("/api/v1/nodes")[-2:]]
    reading = open_live(f"kubernetes:?kubeconfig={cluster.kubeconfig}", lambda _: None)
    changes = (SetNodes(names[:1], "uncordon"), SetNodes(names[1:], "untaint", "one"), Stop(f"{work}/serve"))
    environ = {"PATH": f"{KUBECTL.parent}:/usr/bin:/bin", "KUBECONFIG": str(cluster.kubeconfig), "HOME": "/nonexistent"}
    for write in writes_of(changes, reading).now:
        done = subprocess.run(
            ["sh", "-c", write.command], env=environ, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
    first, second = (cluster.api.get(f"/api/v1/nodes/{name}")["spec"] for name in names)
    assert "unschedulable" not in first
    assert [taint["key"] for taint in second["taints"]] == ["two"]
    gone = cluster.api.raw("GET", f"/api/v1/namespaces/{work}/pods/serve")
    assert gone[0] == 404 or json.loads(gone[1])["metadata"].get("deletionTimestamp")


def test_a_node_that_has_changed_meanwhile(cluster: Cluster, tainted: str) -> None:
    """Taints are taken out by place: a write that comes too late takes out nothing."""
    name = cluster.api.items("/api/v1/nodes")[-1]["metadata"]["name"]
    reading = open_live(f"kubernetes:?kubeconfig={cluster.kubeconfig}", lambda _: None)
    writes = writes_of([SetNodes((name,), "untaint", "two")], reading).now
    taints = [{"key": "new", "effect": "NoSchedule"}, {"key": "one", "effect": "NoSchedule"}]
    cluster.api.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": taints}}, "merge")

    async def send() -> None:
        async with ApiServer.open(kubeconfig=str(cluster.kubeconfig)) as server:
            async for _ in carry_out(server, writes, dry_run=False):
                pytest.fail("it was taken")

    with pytest.raises(ClusterError, match=f"node {name} has changed meanwhile; ask anew"):
        run_loop(send())
    now = cluster.api.get(f"/api/v1/nodes/{name}")["spec"]["taints"]
    assert [taint["key"] for taint in now] == ["new", "one"]


def test_eviction_honours_a_budget(cluster: Cluster, work: str) -> None:
    pods = f"/api/v1/namespaces/{work}/pods"
    cluster.api.patch(f"{pods}/serve", {"metadata": {"labels": {"app": "serve"}}}, "merge")
    cluster.wait("serve ran", lambda: cluster.api.get(f"{pods}/serve")["status"]["phase"] == "Running")
    reading = open_live(f"kubernetes:?kubeconfig={cluster.kubeconfig}", lambda _: None)
    writes = writes_of([Stop(f"{work}/serve")], reading).now
    budgets = f"/apis/policy/v1/namespaces/{work}/poddisruptionbudgets"
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "serve"}}}
    cluster.api.post(budgets, {"metadata": {"name": "serve"}, "spec": spec})
    cluster.wait(
        "the budget counted", lambda: cluster.api.get(f"{budgets}/serve").get("status", {}).get("currentHealthy") == 1
    )

    async def send() -> list[int]:
        async with ApiServer.open(kubeconfig=str(cluster.kubeconfig)) as server:
            return [index async for index in carry_out(server, writes, dry_run=False)]

    with pytest.raises(ClusterError, match=f"pod {work}/serve must not be evicted now: a disruption budget allows"):
        run_loop(send())
    cluster.api.delete(f"{budgets}/serve")
    assert run_loop(send()) == [0]
    gone = cluster.api.raw("GET", f"{pods}/serve")
    assert gone[0] == 404 or json.loads(gone[1])["metadata"].get("deletionTimestamp")


# -- kubectl -----------------------------------------------------------------------------------------------------------


def by_kubectl(cluster: Cluster, *args: str) -> subprocess.CompletedProcess[str]:
    """The real kubectl, which finds the plugin and its completion on PATH."""
    environ = {"PATH": f"{KUBECTL.parent}:/usr/bin:/bin", "KUBECONFIG": str(cluster.kubeconfig), "HOME": "/nonexistent"}
    return subprocess.run([str(KUBECTL), *args], env=environ, capture_output=True, text=True, timeout=120, check=False)


def test_kubectl_runs_it_as_a_plugin_on_the_current_context(cluster: Cluster, work: str) -> None:
    done = by_kubectl(cluster, "muster", "why", "train", "-n", work)
    assert (done.returncode, "starts now" in done.stdout) == (0, True), done.stderr
    usage = by_kubectl(cluster, "muster", "why")
    assert (usage.returncode, "(kubectl muster why --help)" in usage.stderr) == (2, True)


def test_kubectl_completes_it(cluster: Cluster) -> None:
    done = by_kubectl(cluster, "__complete", "muster", "fleet", "")
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["frag", "show", ":4"]
