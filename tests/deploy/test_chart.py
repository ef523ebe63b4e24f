"""The Helm chart as helm renders it: safe, complete, and what the code reads and asks for."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from muster.cli.scheduler import command
from muster.service.scheduler.settings import SchedulerSettings, read_settings
from rendered import CHART, NAMESPACE, Documents, Helm, of_kind, one, options, pod_of

VALUES = Path(__file__).parent / "values"
FILES = sorted(VALUES.glob("*.yaml"))
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding"}
READS = {"get", "list", "watch"}


@pytest.fixture(scope="session")
def rendered(helm: Helm) -> Any:
    """``rendered(NAME)``: the objects with the values of a file, rendered once."""
    return cache(lambda name: helm.render(VALUES / f"{name}.yaml"))


@pytest.fixture(params=FILES, ids=lambda path: path.stem)
def documents(request: pytest.FixtureRequest, rendered: Any) -> Documents:
    return rendered(request.param.stem)


def test_every_object_has_its_place(documents: Documents) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in documents]
    assert len(set(names)) == len(names)
    for each in documents:
        assert each["apiVersion"]
        assert each["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        assert (each["metadata"].get("namespace") == NAMESPACE) == (each["kind"] not in CLUSTER_WIDE)


def test_containers_have_no_rights_that_they_do_not_need(documents: Documents) -> None:
    pod = pod_of(documents)
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
    assert all(set(volume) <= {"name", "configMap", "emptyDir", "persistentVolumeClaim"} for volume in pod["volumes"])
    for container in [*pod["initContainers"], *pod["containers"]]:
        walls = container["securityContext"]
        assert walls["readOnlyRootFilesystem"] is True
        assert walls["allowPrivilegeEscalation"] is False
        assert walls["capabilities"] == {"drop": ["ALL"]}
        assert "privileged" not in walls


def test_what_it_writes_goes_to_folders_of_its_own(documents: Documents) -> None:
    pod = pod_of(documents)
    (scheduler,) = pod["containers"]
    room = {volume["name"]: volume for volume in pod["volumes"]}
    mounted = {mount["mountPath"]: room[mount["name"]] for mount in scheduler["volumeMounts"]}
    (cache_dir,) = [each["value"] for each in scheduler["env"] if each["name"] == "MUSTER_CACHE_DIR"]
    for path in (cache_dir, "/tmp"):
        assert mounted[path]["emptyDir"]["sizeLimit"]
    assert all("sizeLimit" in each["emptyDir"] for each in room.values() if "emptyDir" in each)


def test_it_is_probed_and_limited(documents: Documents) -> None:
    (scheduler,) = pod_of(documents)["containers"]
    for probe, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz"), ("startupProbe", "/healthz")):
        assert scheduler[probe]["httpGet"] == {"path": path, "port": "http"}
    for container in [scheduler, *pod_of(documents)["initContainers"]]:
        assert set(container["resources"]) == {"requests", "limits"}
        assert all({"cpu", "memory"} <= set(each) for each in container["resources"].values())


def test_the_command_takes_its_arguments(documents: Documents) -> None:
    (scheduler,) = pod_of(documents)["containers"]
    assert scheduler["command"] == ["muster", "scheduler"]
    context = command.make_context("scheduler", list(scheduler["args"]))
    host, _, port = context.params["http"].rpartition(":")
    assert [each["containerPort"] for each in scheduler["ports"]] == [int(port)]
    assert host in ("0.0.0.0", "[::]")
    assert context.params["config"] == "/etc/muster/scheduler.yaml"
    with pytest.raises(click.NoSuchOption):
        command.make_context("scheduler", [*scheduler["args"], "--no-such-option"])


def test_everything_selects_its_pods(documents: Documents) -> None:
    labels = one(documents, "Deployment")["spec"]["template"]["metadata"]["labels"]
    pod = pod_of(documents)
    selectors = [one(documents, "Deployment")["spec"]["selector"]["matchLabels"]]
    selectors += [each["spec"]["selector"] for each in of_kind(documents, "Service")]
    selectors += [each["spec"]["selector"]["matchLabels"] for each in of_kind(documents, "PodDisruptionBudget")]
    selectors += [each["spec"]["podSelector"]["matchLabels"] for each in of_kind(documents, "NetworkPolicy")]
    selectors += [each["labelSelector"]["matchLabels"] for each in pod["topologySpreadConstraints"]]
    for selector in selectors:
        assert selector
        assert selector.items() <= labels.items()


def test_roles_name_what_they_allow(documents: Documents) -> None:
    """No `*`, no Secrets, nothing by which more rights could be had."""
    for role in [*of_kind(documents, "ClusterRole"), *of_kind(documents, "Role")]:
        for rule in role["rules"]:
            words = {*rule["apiGroups"], *rule["resources"], *rule["verbs"], *rule.get("resourceNames", [])}
            assert not words & {"*", "secrets", "escalate", "bind", "impersonate", "delete", "deletecollection"}
            assert "nonResourceURLs" not in rule


def config_of(documents: Documents, folder: Path) -> SchedulerSettings:
    """The configuration as the scheduler reads it."""
    file = folder / "scheduler.yaml"
    file.write_text(one(documents, "ConfigMap")["data"]["scheduler.yaml"])
    return read_settings(file)


def test_the_scheduler_reads_its_configuration(rendered: Any, tmp_path: Path) -> None:
    """Unless values say otherwise it is the default, but for the Lease, which is the release's own."""
    plain, default = config_of(rendered("defaults"), tmp_path), SchedulerSettings()
    assert plain.leader_election.namespace == NAMESPACE
    assert plain.leader_election.name == "muster"
    for field in SchedulerSettings.__struct_fields__:
        if field != "leader_election":
            assert getattr(plain, field) == getattr(default, field), field
    assert plain.leader_election.enabled
    assert plain.leader_election.duration_seconds == default.leader_election.duration_seconds


def test_values_reach_the_configuration(rendered: Any, tmp_path: Path) -> None:
    documents = [each for each in rendered("everything") if each["metadata"]["name"] != "gpu-scheduler-dashboard"]
    settings = config_of(documents, tmp_path)
    assert settings.scheduler_name == "muster-gpu"
    assert settings.config.reservations == 4
    assert settings.leader_election.duration_seconds == 30
    assert settings.leader_election.name == "gpu-scheduler"
    assert not settings.events_of_bindings


def test_the_lease_is_the_only_one_that_it_may_write(rendered: Any, tmp_path: Path) -> None:
    lease = config_of(rendered("defaults"), tmp_path).leader_election
    role = one(rendered("defaults"), "Role")
    assert role["metadata"]["namespace"] == lease.namespace
    assert {tuple(rule.get("resourceNames", ())): rule["verbs"] for rule in role["rules"]} == {
        (): ["create"], (lease.name,): ["get", "update"],
    }  # fmt: skip


def test_shadow_mode_cannot_write(rendered: Any, tmp_path: Path) -> None:
    documents = rendered("shadow")
    settings = config_of(documents, tmp_path)
    assert settings.shadow
    assert not settings.leader_election.enabled
    (role,) = of_kind(documents, "ClusterRole")
    assert all(set(rule["verbs"]) <= READS for rule in role["rules"])
    assert not of_kind(documents, "Role")
    deployment = one(documents, "Deployment")["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"] == {"type": "Recreate"}
    (scheduler,) = pod_of(documents)["containers"]
    assert "--report=/report/shadow.json" in scheduler["args"]


def test_two_replicas_stand_apart_and_a_drain_takes_one(rendered: Any) -> None:
    documents = rendered("defaults")
    assert one(documents, "Deployment")["spec"]["replicas"] == 2
    apart = pod_of(documents)["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert apart[0]["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    assert one(documents, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1
    assert pod_of(documents)["priorityClassName"] == "system-cluster-critical"
    assert not of_kind(rendered("own_account"), "PodDisruptionBudget")


def test_what_was_not_asked_for_is_not_made(rendered: Any) -> None:
    kinds = {each["kind"] for each in rendered("defaults")}
    assert not kinds & {"ServiceMonitor", "PrometheusRule"}
    assert {"ServiceMonitor", "PrometheusRule"} <= {each["kind"] for each in rendered("everything")}
    assert not {"ClusterRole", "Role", "ServiceAccount"} & {each["kind"] for each in rendered("own_account")}
    assert pod_of(rendered("own_account"))["serviceAccountName"] == "made-by-others"
    assert "runAsUser" not in pod_of(rendered("openshift"))["securityContext"]


def test_a_new_configuration_makes_new_pods(rendered: Any) -> None:
    sums = {
        name: one(rendered(name), "Deployment")["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
        for name in ("defaults", "openshift", "everything", "shadow")
    }
    assert sums["defaults"] == sums["openshift"]
    assert len(set(sums.values())) == 3


def test_the_network_is_closed_but_for_the_api_server_names_and_metrics(rendered: Any) -> None:
    policy = one(rendered("everything"), "NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    (inside,) = policy["ingress"]
    assert [port["port"] for port in inside["ports"]] == [9500]
    names, server = policy["egress"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert [port["port"] for port in server["ports"]] == [6443]
    assert [peer["ipBlock"]["cidr"] for peer in server["to"]] == ["10.0.0.0/24", "fd00::/64"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "say where your image of Muster is"),
        ({"image.repository": "x", "mode": "dry-run"}, "mode"),
        ({"image.repository": "x", "replicas": 0}, "replicas"),
        ({"image.repository": "x", "config.writesAtonce": 9}, "writesAtonce"),
        ({"image.repository": "x", "config.writesAtOnce": 0}, "writesAtOnce"),
        ({"image.repository": "x", "config.scheduling.orderings": "fair-share"}, "orderings"),
        ({"image.repository": "x", "config.scheduling.queueing": "fifo"}, "queueing"),
        ({"image.repository": "x", "config.shadow": True}, "shadow"),
        ({"image.repository": "x", "serviceAccount.create": False}, "serviceAccount.name"),
        ({"image.repository": "x", "networkPolicy.apiServerCIDRs": ["10.0.0.1"]}, "apiServerCIDRs"),
        ({"image.repository": "x", "replica": 3}, "replica"),
    ],
    ids=str,
)
def test_a_mistake_in_the_values_is_told(values: dict[str, Any], told: str, helm: Helm) -> None:
    done = helm.run("template", "muster", CHART, *options(values))
    assert done.returncode != 0
    assert told in done.stderr
    assert "nil pointer" not in done.stderr


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_helm_finds_no_fault(path: Path, helm: Helm) -> None:
    done = helm.run("lint", CHART, "--strict", *options(path))
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_is_packed_with_its_crd(helm: Helm, tmp_path: Path) -> None:
    done = helm.run("package", CHART, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (packed,) = tmp_path.glob("muster-*.tgz")
    shown = helm.run("show", "crds", packed)
    assert "name: queues.muster.dev" in shown.stdout


@pytest.mark.parametrize(("mode", "told"), [("active", "get lease muster"), ("shadow", "no right to write")])
def test_it_says_what_to_do_next(mode: str, told: str, helm: Helm) -> None:
    words = ["install", "muster", CHART, "--dry-run=client", "--namespace", NAMESPACE]
    done = helm.run(*words, *options({"image.repository": "x", "mode": mode}))
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("NOTES:")[2]
    assert told in notes
    assert re.search(rf"kubectl -n {NAMESPACE} rollout status deployment/muster\b", notes)
