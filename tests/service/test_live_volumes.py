"""Volumes that wait for their pod's node, on a cluster in memory: `provisioner` plays who makes them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from inmemory import Cluster, node
from muster.kube.kinds import STORAGE_CAPACITIES, STORAGE_CLASSES, STORAGE_DRIVERS, STRUCTS, VOLUME_CLAIMS, VOLUMES
from muster.kube.objects import Meta
from muster.kube.storage import BOUND, SELECTED_NODE, KubeClaim, KubeVolume
from muster.kube.world import Kind
from muster.service.scheduler.writer import Bind

HOST = "kubernetes.io/hostname"


def put(cluster: Cluster, kind: Kind, **fields: Any) -> None:
    cluster.put(kind, msgspec.convert(fields, STRUCTS[kind]))


def storage_class(cluster: Cluster, name: str, provisioner: str = "csi.example.com", **more: Any) -> None:
    mode = more.pop("mode", "WaitForFirstConsumer")
    put(
        cluster, STORAGE_CLASSES, metadata={"name": name}, provisioner=provisioner, volumeBindingMode=mode, **more
    )  # fmt: skip


def claim(cluster: Cluster, name: str, of: str = "fast", size: str = "10Gi", **annotations: str) -> None:
    told = {key.replace("__", "/"): value for key, value in annotations.items()}
    spec = {"storageClassName": of, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    put(
        cluster, VOLUME_CLAIMS,
        metadata={"name": name, "namespace": "ns", "uid": f"c-{name}", "annotations": told}, spec=spec,
        status={"phase": "Pending"},
    )  # fmt: skip


def volume(cluster: Cluster, name: str, on: str = "", of: str = "local", size: str = "10Gi", **more: Any) -> None:
    terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}]
    spec: dict[str, Any] = {"storageClassName": of, "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}}
    if on:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    put(cluster, VOLUMES, metadata={"name": name}, spec=spec | more, status={"phase": "Available"})


def uses(*claims: str) -> dict[str, Any]:
    return {"volumes": [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]}


def claims(cluster: Cluster) -> dict[str, KubeClaim]:
    return dict(cluster.world.of(VOLUME_CLAIMS, KubeClaim))


def volumes(cluster: Cluster) -> dict[str, KubeVolume]:
    return dict(cluster.world.of(VOLUMES, KubeVolume))


def bind_claim(cluster: Cluster, found: KubeClaim, name: str) -> None:
    meta = replace(found.metadata, annotations={**(found.metadata.annotations or {}), BOUND: "yes"})
    cluster.put(VOLUME_CLAIMS, KubeClaim(meta, replace(found.spec, volume_name=name)))


def provisioner(cluster: Cluster, *refuses: str) -> list[str]:
    """Binds claims to volumes that are kept for them, makes volumes where told, takes back nodes that it refuses."""
    acted: list[str] = []
    for key, found in claims(cluster).items():
        kept = next((name for name, each in volumes(cluster).items() if each.is_for(found)), "")
        on = found.metadata.annotation(SELECTED_NODE)
        if found.bound or not (kept or on):
            continue
        acted.append(key)
        if kept:
            bind_claim(cluster, found, kept)
        elif on in refuses:
            cluster.put(VOLUME_CLAIMS, replace(found, metadata=replace(found.metadata, annotations={})))
        else:
            name = f"pv-{found.metadata.name}"
            volume(cluster, name, on, "fast")
            bind_claim(cluster, found, name)
    return acted


def turn(cluster: Cluster, *refuses: str, rounds: int = 6) -> None:
    for _ in range(rounds):
        cluster.cycle()
        cluster.carry_out()
        provisioner(cluster, *refuses)


def on(cluster: Cluster, name: str) -> str:
    return cluster.pods[f"ns/{name}"].spec.node_name or ""


def test_a_pod_is_bound_after_its_volume_is_there() -> None:
    cluster = Cluster([node(f"n{index}") for index in range(2)])
    storage_class(cluster, "fast")
    claim(cluster, "data")
    cluster.put_pod("p-0", 8, **uses("data"))
    cluster.cycle()
    cluster.carry_out()
    assert claims(cluster)["ns/data"].metadata.annotation(SELECTED_NODE) in ("n0", "n1")
    assert not on(cluster, "p-0")
    cluster.put_pod("q-0", 8)
    cluster.put_pod("r-0", 8)
    turn(cluster)
    assert on(cluster, "p-0") == claims(cluster)["ns/data"].metadata.annotation(SELECTED_NODE)
    assert cluster.bound("q") + cluster.bound("r") == 1, "its room was kept while it waited"
    cluster.check()


def test_a_gang_is_bound_when_all_its_volumes_are_there() -> None:
    cluster = Cluster([node(f"n{index}") for index in range(3)])
    storage_class(cluster, "fast")
    cluster.put_gang("g", 3)
    for rank in range(3):
        claim(cluster, f"data-{rank}")
        cluster.put_pod(f"g-{rank}", 8, "g", rank, **uses(f"data-{rank}"))
    cluster.cycle()
    cluster.carry_out()
    told = claims(cluster)
    assert sorted(each.metadata.annotation(SELECTED_NODE) for each in told.values()) == ["n0", "n1", "n2"]
    bind_claim(cluster, told["ns/data-0"], "pv-first")
    volume(cluster, "pv-first", told["ns/data-0"].metadata.annotation(SELECTED_NODE), "fast")
    cluster.cycle()
    assert not [each for each in cluster.writes if isinstance(each, Bind)]
    turn(cluster)
    assert cluster.bound("g") == 3
    for rank in range(3):
        assert on(cluster, f"g-{rank}") == told[f"ns/data-{rank}"].metadata.annotation(SELECTED_NODE)
    assert not cluster.state.volumes.providing


def test_where_no_volume_can_be_made_another_node_is_taken() -> None:
    cluster = Cluster([node(f"n{index}") for index in range(3)])
    storage_class(cluster, "fast")
    claim(cluster, "data")
    cluster.put_pod("p-0", 8, **uses("data"))
    turn(cluster, "n0", "n1", rounds=12)
    assert on(cluster, "p-0") == "n2"


def test_a_volume_that_does_not_come_in_time_is_asked_for_elsewhere() -> None:
    cluster = Cluster([node(f"n{index}") for index in range(2)])
    storage_class(cluster, "fast")
    claim(cluster, "data")
    cluster.put_pod("p-0", 8, **uses("data"))
    cluster.cycle()
    cluster.carry_out()
    first = claims(cluster)["ns/data"].metadata.annotation(SELECTED_NODE)
    cluster.cycle(after_s=601.0)
    cluster.carry_out()
    cluster.cycle()
    cluster.carry_out()
    second = claims(cluster)["ns/data"].metadata.annotation(SELECTED_NODE)
    assert {first, second} == {"n0", "n1"}
    turn(cluster)
    assert on(cluster, "p-0") == second


def test_a_new_claim_of_the_name_of_another_is_another_claim() -> None:
    cluster = Cluster([node("n0")])
    storage_class(cluster, "fast")
    claim(cluster, "data")
    cluster.put_pod("p-0", 8, **uses("data"))
    turn(cluster, "n0")
    assert not on(cluster, "p-0")
    before = claims(cluster)["ns/data"]
    cluster.world.drop(VOLUME_CLAIMS, "ns/data")
    cluster.state.changed(VOLUME_CLAIMS, "ns/data", before, None)
    claim(cluster, "data")
    turn(cluster)
    assert on(cluster, "p-0") == "n0"


def test_with_no_other_node_the_name_is_taken_back_and_the_room_is_free() -> None:
    cluster = Cluster([node("n0")])
    storage_class(cluster, "fast")
    claim(cluster, "data")
    cluster.put_pod("p-0", 8, **uses("data"))
    cluster.cycle()
    cluster.carry_out()
    cluster.put_pod("q-0", 8)
    cluster.cycle(after_s=601.0)
    cluster.carry_out()
    cluster.cycle()
    cluster.carry_out()
    assert not claims(cluster)["ns/data"].metadata.annotation(SELECTED_NODE)
    assert (on(cluster, "p-0"), on(cluster, "q-0")) == ("", "n0")
    cluster.delete("ns/q-0")
    cluster.cycle(after_s=301.0)
    turn(cluster)
    assert on(cluster, "p-0") == "n0", "after a while it is tried there again"


def test_volumes_that_are_there_are_kept_for_their_claims_the_smallest_first() -> None:
    cluster = Cluster([node(f"n{index}") for index in range(3)])
    storage_class(cluster, "local", "kubernetes.io/no-provisioner")
    volume(cluster, "small", "n1", size="10Gi")
    volume(cluster, "large", "n1", size="100Gi")
    volume(cluster, "tiny", "n0", size="1Gi")
    volume(cluster, "other", "n2", of="else", size="10Gi")
    claim(cluster, "data", "local", "5Gi")
    cluster.put_pod("p-0", 8, **uses("data"))
    turn(cluster)
    assert on(cluster, "p-0") == "n1"
    assert [name for name, each in volumes(cluster).items() if each.spec.claim_ref] == ["small"]


def test_two_pods_do_not_get_one_volume() -> None:
    cluster = Cluster([node(f"n{index}") for index in range(2)])
    storage_class(cluster, "local", "kubernetes.io/no-provisioner")
    volume(cluster, "a", "n0")
    for name in ("x", "y"):
        claim(cluster, name, "local")
        cluster.put_pod(f"{name}-0", 1, **uses(name))
    turn(cluster)
    assert cluster.bound("x") + cluster.bound("y") == 1
    volume(cluster, "b", "n1")
    cluster.cycle(after_s=20.0)
    turn(cluster)
    assert cluster.bound("x") + cluster.bound("y") == 2
    assert all(each.spec.claim_ref for each in volumes(cluster).values())


def test_a_pod_with_two_claims_gets_two_volumes_of_one_node() -> None:
    cluster = Cluster([node(f"n{index}") for index in range(2)])
    storage_class(cluster, "local", "kubernetes.io/no-provisioner")
    for name, where in (("a", "n0"), ("b", "n1"), ("c", "n1")):
        volume(cluster, name, where)
    claim(cluster, "x", "local")
    claim(cluster, "y", "local")
    cluster.put_pod("p-0", 8, **uses("x", "y"))
    for _ in range(3):
        turn(cluster)
        cluster.cycle(after_s=20.0)
    assert on(cluster, "p-0") == "n1"


def test_the_pods_of_a_gang_that_need_volumes_of_one_node_each_are_dealt_out() -> None:
    cluster = Cluster([node(f"n{index}") for index in range(4)])
    storage_class(cluster, "local", "kubernetes.io/no-provisioner")
    for index in range(4):
        volume(cluster, f"v{index}", f"n{index}")
    cluster.put_gang("g", 4, gpus=1)
    for rank in range(4):
        claim(cluster, f"data-{rank}", "local")
        cluster.put_pod(f"g-{rank}", 1, "g", rank, **uses(f"data-{rank}"))
    for _ in range(5):
        turn(cluster, rounds=4)
        cluster.cycle(after_s=2.0)
    assert sorted(on(cluster, f"g-{rank}") for rank in range(4)) == ["n0", "n1", "n2", "n3"]


@pytest.mark.parametrize(
    ("says", "names"),
    [
        ({"allowedTopologies": [{"matchLabelExpressions": [{"key": HOST, "values": ["n1"]}]}]}, "n1"),
        ({"capacity": {"n2": "20Gi", "n1": "5Gi"}}, "n2"),
    ],
)
def test_a_volume_is_made_only_where_its_class_can(says: dict[str, Any], names: str) -> None:
    cluster = Cluster([node(f"n{index}") for index in range(3)])
    capacity = says.pop("capacity", {})
    storage_class(cluster, "fast", **says)
    if capacity:
        put(cluster, STORAGE_DRIVERS, metadata={"name": "csi.example.com"}, spec={"storageCapacity": True})
    for where, size in capacity.items():
        put(
            cluster, STORAGE_CAPACITIES, metadata={"name": where, "namespace": "storage"}, storageClassName="fast",
            nodeTopology={"matchLabels": {HOST: where}}, capacity=size,
        )  # fmt: skip
    claim(cluster, "data")
    cluster.put_pod("p-0", 8, **uses("data"))
    turn(cluster)
    assert on(cluster, "p-0") == names


@pytest.mark.parametrize(
    ("of", "why"),
    [
        (None, "pod p-0: its claim data is not there: make it, or take it out of the pod."),
        ("gone", "its claim data is of storage class gone, which is not there."),
        ("soon", "its claim data is not bound yet, which storage class soon does before its pod has a node."),
        ("", "its claim data is not bound, and names no storage class"),
    ],
)
def test_a_claim_that_is_not_ready_is_told(of: str | None, why: str) -> None:
    cluster = Cluster([node("n0")])
    storage_class(cluster, "soon", mode="Immediate")
    cluster.put(VOLUME_CLAIMS, KubeClaim(Meta("another", "ns")))
    if of is not None:
        claim(cluster, "data", of)
    cluster.put_pod("p-0", 8, **uses("data"))
    cluster.settle()
    assert why in cluster.state.notes["ns/p-0"]
    assert not on(cluster, "p-0")
    storage_class(cluster, "fast")
    claim(cluster, "data")
    turn(cluster)
    assert on(cluster, "p-0") == "n0"


def test_a_new_leader_goes_on_with_the_node_that_was_named() -> None:
    cluster = Cluster([node(f"n{index}") for index in range(3)])
    storage_class(cluster, "fast")
    claim(cluster, "data", volume__x="")
    cluster.put_pod("p-0", 8, **uses("data"))
    cluster.cycle()
    cluster.carry_out()
    named = claims(cluster)["ns/data"].metadata.annotation(SELECTED_NODE)
    for at in range(2):
        cluster.put_pod(f"filler-{at}", 1, node=next(each for each in ("n0", "n1", "n2") if each != named))
    cluster.begin(cluster.config)
    turn(cluster)
    assert on(cluster, "p-0") == named


def test_a_node_that_was_named_and_is_full_is_given_up_after_a_while() -> None:
    cluster = Cluster([node(f"n{index}") for index in range(2)])
    storage_class(cluster, "fast")
    claim(cluster, "data", **{SELECTED_NODE.replace("/", "__"): "n0"})
    cluster.put_pod("full-0", 8, node="n0", priority=100)
    cluster.put_pod("p-0", 8, **uses("data"))
    turn_without_provisioner(cluster)
    assert not on(cluster, "p-0")
    cluster.cycle(after_s=601.0)
    turn(cluster)
    assert on(cluster, "p-0") == "n1"


def turn_without_provisioner(cluster: Cluster) -> None:
    for _ in range(4):
        cluster.cycle()
        cluster.carry_out()
