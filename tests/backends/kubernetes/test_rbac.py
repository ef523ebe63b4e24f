"""The shipped ClusterRole allows exactly what is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.backends.kubernetes.lists import Denied, allowing
from muster.backends.kubernetes.rbac import UNKNOWN
from muster.kube.kinds import CLAIMS, NODES, PODS, STRUCTS
from muster.kube.world import Kind

FILE = Path(__file__).resolve().parents[3] / "deploy" / "rbac" / "read-only.yaml"
AGAIN = "a kind was entered: run `python deploy/rbac/generate.py`"


def documents() -> dict[str, dict[str, Any]]:
    return {each["kind"]: each for each in yaml.safe_load_all(FILE.read_text())}


def test_the_rules_are_those_of_the_kinds_that_are_read() -> None:
    rules = documents()["ClusterRole"]["rules"]
    allowed = [(rule["apiGroups"], resource) for rule in rules for resource in rule["resources"]]
    assert sorted(allowed) == sorted(([kind.group], kind.resource) for kind in STRUCTS), AGAIN
    assert {tuple(rule["verbs"]) for rule in rules} == {("get", "list", "watch")}
    assert {frozenset(rule) for rule in rules} == {frozenset(("apiGroups", "resources", "verbs"))}


def test_the_role_is_bound_to_its_own_account() -> None:
    found = documents()
    assert set(found) == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    account, binding = found["ServiceAccount"]["metadata"], found["ClusterRoleBinding"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", **account}]
    assert binding["roleRef"]["name"] == found["ClusterRole"]["metadata"]["name"]
    assert found["ServiceAccount"]["automountServiceAccountToken"] is False


@pytest.mark.parametrize("kind", STRUCTS, ids=lambda kind: kind.name)
def test_it_is_known_what_an_answer_lacks_without_a_kind(kind: Kind) -> None:
    assert (kind.resource in UNKNOWN) != kind.needed, "say it in muster.backends.kubernetes.rbac"


def test_what_allows_it_can_be_pasted() -> None:
    denied = [Denied(PODS, "", "research"), Denied(NODES, ""), Denied(CLAIMS, "")]
    role = (
        "kubectl create clusterrole muster-read --verb=get,list,watch"
        " --resource=pods,nodes,resourceclaims.resource.k8s.io"
        " && kubectl create clusterrolebinding muster-read --clusterrole=muster-read "
    )
    assert allowing(denied, "system:serviceaccount:tools:bot") == f"{role}--serviceaccount=tools:bot"
    assert allowing(denied, "jane doe") == f"{role}--user='jane doe'"
