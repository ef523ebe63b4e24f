"""Real control planes for tests: `cluster` has no scheduler, `scheduled` runs kube-scheduler; 20 nodes of 8 GPUs each.

Both are started once a session, when the first test asks. Tests that use them are marked ``k8s``; they are skipped,
with the command that builds the programs, where these are not built (and fail under ``MUSTER_K8S=required``).
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from controlplane import Cluster, ClusterError, Starter
from controlplane.build import built
from controlplane.cluster import sweep
from controlplane.components import native_gangs

REQUIRED = os.environ.get("MUSTER_K8S") == "required"
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a control plane, and skip it where none can be started: one line a file says why."""
    missing = _missing()
    for item in items:
        if isinstance(item, pytest.Function) and "kubernetes" in item.fixturenames:
            item.add_marker(pytest.mark.k8s)
            if "start_cluster" in item.fixturenames:
                item.add_marker(pytest.mark.slow)  # ten seconds and more to start
            if missing and not REQUIRED:
                item.add_marker(pytest.mark.skip(reason=missing))


def _version() -> str:
    return os.environ.get("MUSTER_K8S_VERSION", "")


def _missing() -> str:
    try:
        for program in ("etcd", "kubernetes", "kwok"):
            built(program, _version() if program == "kubernetes" else "")
    except ClusterError as error:
        return str(error)
    return ""


@pytest.fixture(scope="session")
def kubernetes() -> str:
    """The version of Kubernetes to test on (``MUSTER_K8S_VERSION``); empty for the default one."""
    if missing := _missing():
        pytest.fail(missing)
    sweep()
    return _version()


@pytest.fixture(scope="session")
def _starter(kubernetes: str) -> Iterator[Starter]:
    starter = Starter(kubernetes)
    yield starter
    starter.end()


@pytest.fixture
def start_cluster(kubernetes: str) -> Iterator[Starter]:
    """``start_cluster(Shape(...), scheduler=True)``: a control plane of this test's own."""
    starter = Starter(kubernetes)
    yield starter
    starter.end()


@pytest.fixture(scope="session")
def cluster(_starter: Starter) -> Cluster:
    """A control plane without a scheduler, shared by the session."""
    return _starter()


@pytest.fixture(scope="session")
def scheduled(_starter: Starter) -> Cluster:
    """A control plane with kube-scheduler, shared by the session."""
    return _starter(scheduler=True)


@pytest.fixture
def native_groups(cluster: Cluster) -> None:
    """For tests of native PodGroups: skips on versions that do not have them as beta."""
    if not native_gangs(cluster.kubernetes):
        pytest.skip(f"Kubernetes {cluster.kubernetes} has no PodGroups in scheduling.k8s.io/v1beta1; 1.37 has")


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A fresh namespace of `cluster`, removed with its pods after the test."""
    with cluster.namespace(f"test-{next(_numbers)}") as name:
        yield name


@pytest.fixture
def scheduled_namespace(scheduled: Cluster) -> Iterator[str]:
    """A fresh namespace of `scheduled`."""
    with scheduled.namespace(f"test-{next(_numbers)}") as name:
        yield name
