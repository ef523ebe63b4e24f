"""Controllers of others that run for real beside the control plane: Kueue, JobSet, LeaderWorkerSet.

Each is its upstream program with its own webhooks, which are taken from its manifests and pointed to loopback. As no
kubelet mounts a Secret here, its certificate is the cluster's own, written where the program looks for it.
"""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import yaml

from controlplane import build
from controlplane.api import Api
from controlplane.components import Place

HOOKS = "/apis/admissionregistration.k8s.io/v1"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CONFIGS = {
    "kueue": "config.kueue.x-k8s.io/v1beta2",
    "jobset": "config.jobset.x-k8s.io/v1alpha1",
    "lws": "config.lws.x-k8s.io/v1alpha1",
}
_JOBS = {"batch/job": "jobs", "jobset.x-k8s.io/jobset": "jobsets"}
"""What Kueue queues here, and the resource of each; a JobSet only where its CRD is."""
_CONVERTED = ("localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters")
"""Kinds of Kueue whose versions its controller converts; it does not start where their CRDs do not say so."""
_POD_LABELS = {"jobset": "jobset.sigs.k8s.io/jobset-name", "lws": "leaderworkerset.sigs.k8s.io/name"}
"""Their webhooks for pods see only pods of their own, as in their own installations."""


def command(name: str, place: Place, crds: tuple[str, ...]) -> list[str]:
    """The command line of a controller; writes its configuration and certificate. ``crds``: the sets that are there."""
    certs = place.folder / f"{name}-certs"
    certs.mkdir(exist_ok=True)
    shutil.copyfile(place.cert("server.crt"), certs / "tls.crt")
    shutil.copyfile(place.cert("server.key"), certs / "tls.key")
    config = place.folder / f"{name}.yaml"
    config.write_text(json.dumps(_config(name, place, certs, crds), indent=1))
    return [str(build.built(name) / name), f"--config={config}", f"--kubeconfig={place.file('kubeconfig')}"]


def _config(name: str, place: Place, certs: Path, crds: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "apiVersion": _CONFIGS[name],
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{place.ports[f'{name}-health']}"},
        "metrics": {"bindAddress": f"127.0.0.1:{place.ports[f'{name}-metrics']}"},
        "webhook": {"host": "127.0.0.1", "port": place.ports[name], "certDir": str(certs)},
        "leaderElection": {"leaderElect": False},
        # Kueue without it wants a certificate for its metrics in /etc; with it, it takes the Secret as it finds it
        "internalCertManagement": {"enable": name == "kueue"},
        "clientConnection": {"qps": 1000, "burst": 2000},
    }
    if name == "kueue":
        found["integrations"] = {"frameworks": _jobs_of_kueue(crds)}
        found["featureGates"] = {"VisibilityOnDemand": False}  # an API server of its own, on a fixed port
    return found


def _jobs_of_kueue(crds: tuple[str, ...]) -> list[str]:
    return [kind for kind in _JOBS if kind == "batch/job" or "jobset" in crds]


def install(api: Api, name: str, place: Place, crds: tuple[str, ...]) -> None:
    """What a controller needs in the cluster before it starts: namespace, Secret, webhooks; its CRDs are there."""
    namespace = f"{name}-system"
    api.post("/api/v1/namespaces", {"metadata": {"name": namespace}})
    files = {"ca.crt": "ca.crt", "ca.key": "ca.key", "tls.crt": "server.crt", "tls.key": "server.key"}
    data = {key: _encoded(Path(place.cert(file))) for key, file in files.items()}
    secret = {"metadata": {"name": f"{name}-webhook-server-cert"}, "data": data}
    api.post(f"/api/v1/namespaces/{namespace}/secrets", secret)
    for body in yaml.safe_load_all((build.built(name) / "webhooks" / "manifests.yaml").read_text()):
        kept = [hook for hook in body["webhooks"] if _is_wanted(name, hook["rules"][0], crds)]
        for hook in kept:
            hook["clientConfig"] = _client(name, hook["clientConfig"]["service"]["path"], place)
            if "pods" in hook["rules"][0]["resources"]:
                hook["objectSelector"] = {"matchExpressions": [{"key": _POD_LABELS[name], "operator": "Exists"}]}
        body["metadata"]["name"] = f"{name}-{body['metadata']['name']}"
        api.post(f"{HOOKS}/{body['kind'].lower()}s", body | {"webhooks": kept})
    for plural in _CONVERTED if name == "kueue" else ():
        webhook = {"clientConfig": _client(name, "/convert", place), "conversionReviewVersions": ["v1"]}
        conversion = {"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}}
        api.patch(f"{CRDS}/{plural}.kueue.x-k8s.io", conversion)


def _is_wanted(name: str, rule: dict[str, Any], crds: tuple[str, ...]) -> bool:
    """Whether a webhook is for a kind that the controller handles here."""
    group, resource = rule["apiGroups"][0], rule["resources"][0].partition("/")[0]
    if name == "kueue":
        return group.startswith("kueue.") or resource in [_JOBS[kind] for kind in _jobs_of_kueue(crds)]
    return True


def _client(name: str, path: str, place: Place) -> dict[str, Any]:
    bundle = _encoded(Path(place.cert("ca.crt")))
    return {"url": f"https://127.0.0.1:{place.ports[name]}{path}", "caBundle": bundle}


def _encoded(file: Path) -> str:
    return base64.b64encode(file.read_bytes()).decode()


def port_names(names: tuple[str, ...]) -> list[str]:
    """The ports that controllers listen on: webhooks, health, metrics."""
    return [port for name in names for port in (name, f"{name}-health", f"{name}-metrics")]
