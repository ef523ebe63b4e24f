"""CRDs of others, as they lie in their Go modules."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

from controlplane import build
from controlplane.api import Api
from controlplane.errors import ClusterError


def install(api: Api, names: tuple[str, ...]) -> list[str]:
    """Create the sets' CRDs; returns ``/apis/GROUP/VERSION plural`` of each.

    One that is there stays: the first set that names it wins.
    """
    files: dict[str, Path] = {}
    for name in names:
        for file in sorted(build.crds(name).glob("*.yaml")):
            files.setdefault(file.name, file)
    # several at once, as the server takes a second of CPU for a large one
    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(_install_one, api, file) for file in files.values()]
    return [kind for one in made for kind in one.result()]


def _install_one(api: Api, file: Path) -> list[str]:
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
