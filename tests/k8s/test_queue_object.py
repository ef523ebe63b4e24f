"""The CRD of queues on a real API server: right queues are taken, wrong ones refused in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from controlplane import ApiError, Cluster
from rendered import ROOT

QUEUES = "/apis/muster.dev/v1alpha1/queues"
CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture(scope="module")
def queues(cluster: Cluster) -> Iterator[Cluster]:
    """The shared cluster, with the CRD while this file's tests run."""
    crd = yaml.safe_load((ROOT / "deploy" / "crds" / "queues.muster.dev.yaml").read_text())
    cluster.api.post(CRD, crd)
    cluster.wait("queues were served", lambda: cluster.api.raw("GET", QUEUES)[0] == 200)
    yield cluster
    cluster.api.delete(f"{CRD}/queues.muster.dev")


def ask(cluster: Cluster, spec: dict[str, Any]) -> dict[str, Any]:
    """Create a queue, without keeping it."""
    body = {"apiVersion": "muster.dev/v1alpha1", "kind": "Queue", "metadata": {"name": "q"}, "spec": spec}
    return dict(cluster.api.post(QUEUES, body, dryRun="All"))


RIGHT = [
    {},
    {"parent": "org", "weight": 2},
    {"parent": "org", "weight": "0.5", "minRuntime": "1h30m", "maxRunningPerUser": "16"},
    {"quotas": [{"flavor": "H100-SXM5-80GB", "nominal": 64}]},
    {"parent": "org", "quotas": [{"flavor": "H100", "nominal": "1.75", "borrowingLimit": 8, "lendingLimit": "500m"}]},
]


@pytest.mark.parametrize("spec", RIGHT, ids=str)
def test_a_right_queue_is_taken(queues: Cluster, spec: dict[str, Any]) -> None:
    assert ask(queues, spec)["spec"].items() >= {"weight": 1, **spec}.items()


WRONG = [
    ({"parent": ""}, "parent must name a queue"),
    ({"weight": 0}, "weight must be above 0"),
    ({"weight": "-1"}, "weight must be above 0"),
    ({"weight": "much"}, "weight must be above 0"),
    ({"maxRunningPerUser": -1}, "must be a number of GPUs"),
    ({"minRuntime": "soon"}, "spec.minRuntime"),
    ({"quotas": [{"flavor": "H100"}]}, "nominal: Required value"),
    ({"quotas": [{"flavor": "H100", "nominal": -1}]}, "must be a number of GPUs, 0 or more"),
    ({"quotas": [{"flavor": "H100", "nominal": "a lot"}]}, "must be a number of GPUs, 0 or more"),
    ({"quotas": [{"flavor": "H100", "nominal": 1}, {"flavor": "H100", "nominal": 2}]}, "Duplicate value"),
    ({"quotas": [{"flavor": "H100", "nominal": 1, "borrowingLimit": 1}]}, "a root has no cohort to borrow from"),
    (
        {"parent": "org", "quotas": [{"flavor": "H100", "nominal": 1, "lendingLimit": 2}]},
        "lendingLimit must not be above nominal",
    ),
    ({"quotas": [{"flavor": "H100", "nominal": "1" * 33}]}, "Too long"),
]


@pytest.mark.parametrize(("spec", "told"), WRONG, ids=str)
def test_a_wrong_queue_is_refused_in_words(queues: Cluster, spec: dict[str, Any], told: str) -> None:
    with pytest.raises(ApiError, match="(?s)" + told) as refused:
        ask(queues, spec)
    assert refused.value.status == 422
