"""Volume claims in a dump: which pods are held by them, and which nodes are left for the others."""

from __future__ import annotations

import math
from typing import Any

import pytest

from muster.kube.kinds import NODES, PODS, VOLUME_CLAIMS
from muster.kube.objects import KubeNode, KubePod
from muster.kube.storage import KubeClaim
from muster.kube.translate import Translation, Translator
from muster.kube.world import World

from .objects import NOW_S, node, pod, thing, translated, world


def claim(phase: str = "Pending", of: str = "fast", volume: str = "", bound: bool = False) -> dict[str, Any]:
    told = {"pv.kubernetes.io/bind-completed": "yes"} if bound else {}
    spec: dict[str, Any] = {"storageClassName": of, "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "ns", "uid": "c", "annotations": told},
        "spec": spec | ({"volumeName": volume} if volume else {}), "status": {"phase": phase},
    }  # fmt: skip


def storage_class(name: str, mode: str = "WaitForFirstConsumer", who: str = "csi.example.com") -> dict[str, Any]:
    return thing(
        f"{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: {name}}}, "
        f"provisioner: {who}, volumeBindingMode: {mode}}}"
    )


USES: dict[str, Any] = {"spec": {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}}
OWN: dict[str, Any] = {"spec": {"volumes": [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]}}


def open_to(found: Translation) -> list[str]:
    """The nodes that the one gang that waits may use by its selector."""
    (gang,) = found.snapshot.pending
    asked = dict(gang.pod_sets[0].shape.node_selector)
    return [each.name for each in found.snapshot.fleet if asked.items() <= dict(each.labels).items()]


@pytest.mark.parametrize(
    ("objects", "more", "why"),
    [
        ([claim()], USES, "is of storage class fast, which is not there"),
        ([claim(of="soon"), storage_class("soon", "Immediate")], USES, "is not bound yet, which storage class soon"),
        ([claim("Lost", volume="gone", bound=True)], USES, "has lost its volume gone"),
        ([claim(volume="kept")], USES, "is to be bound to volume kept"),
        ([], OWN, "its claim p-scratch has not been made yet"),
        ([], USES, "its claim data is not there"),
    ],
)
def test_a_pod_whose_claim_is_not_ready_is_held_and_noted(
    objects: list[dict[str, Any]], more: dict[str, Any], why: str
) -> None:
    found = translated(node("n0"), pod("p", 1, **more), *objects)
    (gang,) = found.snapshot.pending
    assert math.isinf(gang.not_before_s)
    assert [note for note in found.notes if why in note.text and note.field == "spec.volumes"]


def test_a_claim_that_waits_leaves_the_nodes_where_its_volume_can_be() -> None:
    nodes = [node(f"n{index}") for index in range(3)]
    fast = storage_class("fast") | {
        "allowedTopologies": [{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["n1", "n2"]}]}]
    }
    found = translated(*nodes, fast, claim(), pod("p", 1, **USES))
    assert open_to(found) == ["n1", "n2"]
    assert not math.isinf(found.snapshot.pending[0].not_before_s)
    named = claim()
    named["metadata"]["annotations"] = {"volume.kubernetes.io/selected-node": "n2"}
    assert open_to(translated(*nodes, fast, named, pod("p", 1, **USES))) == ["n2"]


def test_without_storage_classes_in_the_dump_it_is_noted_and_nothing_is_held() -> None:
    found = World()
    for kind, struct in ((NODES, KubeNode), (PODS, KubePod)):
        found.put_all(kind, world(node("n0"), pod("p", 1, **USES)).of(kind, struct).values())
    told = Translator(found).translate(NOW_S)
    assert not math.isinf(told.snapshot.pending[0].not_before_s), "claims are not in the dump either"
    found.put_all(VOLUME_CLAIMS, world(claim()).of(VOLUME_CLAIMS, KubeClaim).values())
    told = Translator(found).translate(NOW_S)
    assert not math.isinf(told.snapshot.pending[0].not_before_s)
    assert [note for note in told.notes if "storage classes are not known" in note.text]
