"""A pod that rules about other pods keep off every node may fit later: it is never told that it never will."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from muster.answers.sources import open_view
from muster.answers.why import why
from muster.model.reasons import Reason

WEB = {"app": "web"}
HOST = "kubernetes.io/hostname"


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"kind": "Node", "metadata": {"name": name, "labels": {HOST: name}}, "spec": {}, "status": status}


def pod(name: str, gpus: int, on: str = "", labels: dict[str, str] | None = None, **affinity: Any) -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}]}
    spec |= {"nodeName": on} if on else {}
    spec |= {"affinity": {name: inner[name] for name, inner in affinity.items()}} if affinity else {}
    meta = {"name": name, "namespace": "d", "uid": name, "labels": labels or {}}
    return {"kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": "Running" if on else "Pending"}}


def rule(kind: str, labels: dict[str, str]) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": HOST}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


NODES = [node("n1"), node("n2")]
ON_BOTH = [pod("w1", 1, "n1", WEB), pod("w2", 1, "n2", WEB)]
CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("apart from what stands everywhere", ON_BOTH, pod("p", 1, podAntiAffinity=rule("podAntiAffinity", WEB))),
    ("with pods that are not there", [], pod("p", 1, podAffinity=rule("podAffinity", WEB))),
    (
        "kept away by what stands",
        [
            pod("a", 1, "n1", podAntiAffinity=rule("podAntiAffinity", WEB)),
            pod("b", 1, "n2", podAntiAffinity=rule("podAntiAffinity", WEB)),
        ],
        pod("p", 1, labels=WEB),
    ),
]


@pytest.mark.parametrize(("standing", "asks"), [(each[1], each[2]) for each in CASES], ids=[each[0] for each in CASES])
def test_it_waits_for_other_pods(standing: list[Any], asks: dict[str, Any], tmp_path: Path) -> None:
    first = reasons(tmp_path, [*NODES, *standing, asks])[0]
    assert first is Reason.OTHER_PODS


def test_what_is_too_large_on_its_own_never_fits(tmp_path: Path) -> None:
    asks = pod("p", 16, podAntiAffinity=rule("podAntiAffinity", WEB))
    assert reasons(tmp_path, [*NODES, *ON_BOTH, asks])[0] is Reason.GPU_COUNT


def test_room_comes_before_rules_that_close_nothing_more(tmp_path: Path) -> None:
    """Both nodes are full; the rule closes none of them."""
    full = [pod("f1", 8, "n1"), pod("f2", 8, "n2")]
    asks = pod("p", 1, podAntiAffinity=rule("podAntiAffinity", WEB))
    assert reasons(tmp_path, [*NODES, *full, asks])[0] is Reason.GPU_FREE


def reasons(folder: Path, items: list[Any]) -> list[Reason]:
    dump = folder / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "items": items}))
    return [each.reason for each in why(open_view(f"kubectl:{dump}")[0], "d/p").blockers]
