"""The command line of each component, in the order in which they start."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from controlplane import build, certs

NATIVE_GANGS = ("GenericWorkload", "TopologyAwareWorkloadScheduling")
"""Feature gates for gangs by kube-scheduler itself; from 1.37 on their API is beta, and off by default."""
STAGES = build.MODULES / "stages.yaml"


@dataclass(frozen=True, slots=True)
class Place:
    """What the command lines need to know of a cluster."""

    folder: Path
    ports: Mapping[str, int]
    kubernetes: str
    gates: tuple[str, ...]
    lease_s: int

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.ports['kube-apiserver']}"

    def file(self, name: str) -> str:
        """A file of the cluster's folder."""
        return str(self.folder / name)

    def cert(self, name: str) -> str:
        """A file of the folder of certificates."""
        return str(self.folder / "certs" / name)

    def program(self, name: str) -> str:
        """A program of the wanted Kubernetes version."""
        return str(build.built("kubernetes", self.kubernetes) / name)


def etcd(place: Place) -> list[str]:
    """etcd without fsync: a test's data may be lost with the machine."""
    client, peer = (f"http://127.0.0.1:{place.ports[n]}" for n in ("etcd", "etcd-peer"))
    return [
        str(build.built("etcd") / "etcd"),
        "--name=dev",
        f"--data-dir={place.file('etcd')}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=dev={peer}",
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
        "--log-level=warn",
    ]


def kube_apiserver(place: Place) -> list[str]:
    """The API server: RBAC on, service accounts, audit off; its own limits on requests are out of the way."""
    words = {
        "etcd-servers": f"http://127.0.0.1:{place.ports['etcd']}",
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "secure-port": str(place.ports["kube-apiserver"]),
        "endpoint-reconciler-type": "none",
        "authorization-mode": "Node,RBAC",
        "client-ca-file": place.cert("ca.crt"),
        "tls-cert-file": place.cert("server.crt"),
        "tls-private-key-file": place.cert("server.key"),
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": place.cert("sa.pub"),
        "service-account-signing-key-file": place.cert("sa.key"),
        "service-cluster-ip-range": "10.96.0.0/16",
        "allow-privileged": "true",
        "max-requests-inflight": "2000",
        "max-mutating-requests-inflight": "1000",
        "shutdown-delay-duration": "0s",
    }
    if native_gangs(place.kubernetes):
        words["runtime-config"] = "scheduling.k8s.io/v1beta1=true"
    return [place.program("kube-apiserver"), *_flags(words), *_gates(place)]


def kube_controller_manager(place: Place) -> list[str]:
    """The controllers, with client limits that are in nobody's way."""
    words = {
        "kubeconfig": place.file("kube-controller-manager.kubeconfig"),
        "authentication-kubeconfig": place.file("kube-controller-manager.kubeconfig"),
        "authorization-kubeconfig": place.file("kube-controller-manager.kubeconfig"),
        "bind-address": "127.0.0.1",
        "secure-port": str(place.ports["kube-controller-manager"]),
        "leader-elect": "false",
        "use-service-account-credentials": "true",
        "root-ca-file": place.cert("ca.crt"),
        "service-account-private-key-file": place.cert("sa.key"),
        "cluster-signing-cert-file": place.cert("ca.crt"),
        "cluster-signing-key-file": place.cert("ca.key"),
        "kube-api-qps": "1000",
        "kube-api-burst": "2000",
        "node-monitor-grace-period": f"{place.lease_s}s",
    }
    return [place.program("kube-controller-manager"), *_flags(words), *_gates(place)]


def kube_scheduler(place: Place) -> list[str]:
    """kube-scheduler with its default profile, client limits raised."""
    kubeconfig = place.file("kube-scheduler.kubeconfig")
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 2000, "burst": 4000},
        "leaderElection": {"leaderElect": False},
    }
    (place.folder / "kube-scheduler.yaml").write_text(json.dumps(config, indent=1))
    words = {
        "config": place.file("kube-scheduler.yaml"),
        "authentication-kubeconfig": kubeconfig,
        "authorization-kubeconfig": kubeconfig,
        "bind-address": "127.0.0.1",
        "secure-port": str(place.ports["kube-scheduler"]),
    }
    return [place.program("kube-scheduler"), *_flags(words), *_gates(place)]


def kwok(place: Place) -> list[str]:
    """kwok plays every node's kubelet: its own stages, and for how pods end ``test/controlplane/stages.yaml``."""
    folder = build.built("kwok")
    stages = [
        f for f in sorted((folder / "stages").glob("*.yaml")) if f.name not in ("pod-complete.yaml", "pod-delete.yaml")
    ]
    # one file: kwok takes one --config more readily than many
    text = "\n---\n".join(f.read_text() for f in [*stages, STAGES])
    (place.folder / "stages.yaml").write_text(text)
    return [
        str(folder / "kwok"),
        f"--kubeconfig={place.file('kwok.kubeconfig')}",
        f"--config={place.file('stages.yaml')}",
        "--manage-all-nodes=true",
        f"--node-lease-duration-seconds={place.lease_s}",
        f"--server-address=127.0.0.1:{place.ports['kwok']}",
    ]


COMMANDS: dict[str, Callable[[Place], list[str]]] = {
    "etcd": etcd,
    "kube-apiserver": kube_apiserver,
    "kube-controller-manager": kube_controller_manager,
    "kube-scheduler": kube_scheduler,
    "kwok": kwok,
}
PORT_NAMES = ("etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")


def write_configs(place: Place) -> None:
    """A kubeconfig for each of the components and for the developer (``kubeconfig``)."""
    for name in certs.CLIENTS:
        file = "kubeconfig" if name == "admin" else f"{name}.kubeconfig"
        certs.kubeconfig(place.folder / file, place.server, place.folder / "certs", name)


def native_gangs(kubernetes: str) -> bool:
    """Whether this version serves PodGroup and Workload as beta."""
    return int(kubernetes.split(".")[1]) >= 37


def _flags(words: Mapping[str, str]) -> list[str]:
    return [f"--{name}={value}" for name, value in words.items()]


def _gates(place: Place) -> list[str]:
    gates: dict[str, str] = dict.fromkeys(NATIVE_GANGS, "true") if native_gangs(place.kubernetes) else {}
    for gate in place.gates:
        name, _, value = gate.partition("=")
        gates[name] = value or "true"
    return [f"--feature-gates={','.join(f'{name}={value}' for name, value in gates.items())}"] if gates else []
