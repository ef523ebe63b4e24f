"""CRDs of others, and the controllers that tests run for real: Kueue, JobSet, LeaderWorkerSet.

They run as plain processes beside the control plane, with the webhooks of their own manifests pointed to loopback.
"""

from __future__ import annotations

import base64
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import yaml

from controlplane import build
from controlplane.api import Api
from controlplane.components import Place
from controlplane.errors import ClusterError

NEEDS = {"kueue": ("kueue",), "jobset": ("jobset",), "lws": ("lws",)}
"""The sets of CRDs that a controller cannot start without."""
_FRAMEWORKS = {
    "jobset": ("jobset.x-k8s.io/jobset",),
    "kuberay": ("ray.io/rayjob", "ray.io/raycluster"),
    "training-operator": ("kubeflow.org/pytorchjob",),
    "mpi-operator": ("kubeflow.org/mpijob",),
    "trainer": ("trainer.kubeflow.org/trainjob",),
}
_POD_LABELS = {"jobset": "jobset.sigs.k8s.io/jobset-name", "lws": "leaderworkerset.sigs.k8s.io/name"}
"""Their pod webhooks see only pods of their own, as in their own installations."""
_CONFIGS = {
    "kueue": ("config.kueue.x-k8s.io/v1beta2", "kueue"),
    "jobset": ("config.jobset.x-k8s.io/v1alpha1", "jobset"),
    "lws": ("config.lws.x-k8s.io/v1alpha1", "lws"),
}


def install_crds(api: Api, names: tuple[str, ...]) -> list[str]:
    """Create the sets' CRDs; returns ``/apis/GROUP/VERSION plural`` of each.

    One that is there stays: the first set that names it wins.
    """
    files: dict[str, Path] = {}
    for name in names:
        for file in sorted(build.crds(name).glob("*.yaml")):
            files.setdefault(file.name, file)
    # several at once, as the server takes a second of CPU for a large one
    with ThreadPoolExecutor(8) as pool:
        return [kind for kinds in pool.map(lambda file: _install_crd(api, file), files.values()) for kind in kinds]


def _install_crd(api: Api, file: Path) -> list[str]:
    body = yaml.load(file.read_text(), yaml.CSafeLoader)  # in C: some of these files are of megabytes
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    status, answer = api.raw("POST", path, json.dumps(body).encode())
    if status not in (201, 409):
        raise ClusterError(f"the server refused the CRD of {file}: {answer.decode(errors='replace')[:300]}")
    spec = body["spec"]
    versions = [version["name"] for version in spec["versions"] if version["served"]]
    return [f"/apis/{spec['group']}/{version} {spec['names']['plural']}" for version in versions]


def served(api: Api, kinds: list[str]) -> bool:
    """Whether the server's discovery names them all. (A CRD's own status is dear to ask for: some are of megabytes.)"""
    wanted: dict[str, set[str]] = {}
    for kind in kinds:
        path, _, plural = kind.partition(" ")
        wanted.setdefault(path, set()).add(plural)
    for path, plurals in wanted.items():
        status, answer = api.raw("GET", path)
        if status != 200 or not plurals <= {resource["name"] for resource in json.loads(answer)["resources"]}:
            return False
    return True


def command(name: str, place: Place, crds: tuple[str, ...]) -> tuple[list[str], dict[str, str]]:
    """The command line and environment of a controller; writes its configuration."""
    certs = place.folder / f"{name}-certs"
    certs.mkdir(exist_ok=True)
    shutil.copyfile(place.cert("server.crt"), certs / "tls.crt")
    shutil.copyfile(place.cert("server.key"), certs / "tls.key")
    config = place.folder / f"{name}.yaml"
    config.write_text(json.dumps(_config(name, place, certs, crds), indent=1))
    words = [str(build.built(name) / name), f"--config={config}"]
    if name == "kueue":
        words.append("--feature-gates=VisibilityOnDemand=false")
    variables = {"KUBECONFIG": place.file("kubeconfig"), "KUEUE_METRICS_CERTS": str(certs), "POD_NAMESPACE": name}
    return words, variables


def _config(name: str, place: Place, certs: Path, crds: tuple[str, ...]) -> dict[str, Any]:
    version, _ = _CONFIGS[name]
    found: dict[str, Any] = {
        "apiVersion": version,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{place.ports[f'{name}-health']}"},
        "metrics": {"bindAddress": f"127.0.0.1:{place.ports[f'{name}-metrics']}"},
        "webhook": {"host": "127.0.0.1", "port": place.ports[name], "certDir": str(certs)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 1000, "burst": 2000},
    }
    if name == "kueue":
        frameworks = ["batch/job", *(f for crd in crds for f in _FRAMEWORKS.get(crd, ()))]
        found["integrations"] = {"frameworks": frameworks}
    return found


def install_webhooks(api: Api, name: str, place: Place, crds: tuple[str, ...]) -> None:
    """Register the webhooks of a controller's own manifests, for the kinds that it handles here."""
    frameworks = _config(name, place, place.folder, crds).get("integrations", {}).get("frameworks", [])
    kinds = {f"{kind.partition('/')[2]}s" for kind in frameworks}
    bundle = base64.b64encode((place.folder / "certs" / "ca.crt").read_bytes()).decode()
    for body in yaml.safe_load_all((build.built(name) / "webhooks" / "manifests.yaml").read_text()):
        kept: list[dict[str, Any]] = []
        for hook in body["webhooks"]:
            rule = hook["rules"][0]
            own = rule["apiGroups"][0].startswith(("kueue.", "jobset.", "leaderworkerset."))
            pods = "pods" in rule["resources"]
            if name == "kueue" and not (rule["resources"][0] in kinds or rule["apiGroups"][0].startswith("kueue.")):
                continue
            if name != "kueue" and not (own or pods):
                continue
            path = hook["clientConfig"].pop("service")["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{place.ports[name]}{path}", "caBundle": bundle}
            if pods:
                hook["objectSelector"] = {"matchExpressions": [{"key": _POD_LABELS[name], "operator": "Exists"}]}
            kept.append(hook)
        plural = f"{body['kind'].lower()}s"
        body["metadata"] = {"name": f"{name}-{body['metadata']['name']}"}
        api.post(f"/apis/admissionregistration.k8s.io/v1/{plural}", body | {"webhooks": kept})


def port_names(names: tuple[str, ...]) -> list[str]:
    """The ports that controllers listen on: webhooks, health, metrics."""
    return [port for name in names for port in (name, f"{name}-health", f"{name}-metrics")]
