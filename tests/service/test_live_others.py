"""Affinity to other pods and topology spread, on a cluster in memory: scenarios, and random rounds against an oracle.

The oracle is written from the documentation of Kubernetes (Assigning Pods to Nodes, Pod Topology Spread Constraints)
and shares no code with what it checks: it admits a pod on a node by counting all pods by hand.
"""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from inmemory import Cluster, node
from muster.kube.kinds import NAMESPACES, STRUCTS
from muster.kube.objects import KubePod
from muster.service.scheduler.writer import Bind

HOST, ZONE = "kubernetes.io/hostname", "cloud.provider.com/topology-rack"


def term(key: str, labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    selector = {"labelSelector": {"matchLabels": labels}} if labels is not None else {}
    return {"topologyKey": key, **selector, **more}


def affinity(beside: list[Any] | None = None, apart: list[Any] | None = None) -> dict[str, Any]:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    found: dict[str, Any] = {}
    if beside:
        found["podAffinity"] = {required: beside}
    if apart:
        found["podAntiAffinity"] = {required: apart}
    return {"affinity": found}


def spread(key: str, labels: dict[str, str], skew: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels}, **more,
    }  # fmt: skip


def cluster_of(nodes: int = 6, zones: int = 3) -> Cluster:
    return Cluster([node(f"n{at}", rack=f"z{at % zones}") for at in range(nodes)])


def at(cluster: Cluster, *names: str) -> list[str]:
    return [cluster.pods[f"ns/{name}"].spec.node_name or "" for name in names]


def zones(cluster: Cluster, *names: str) -> list[str]:
    return [f"z{int(each[1:]) % 3}" if each else "" for each in at(cluster, *names)]


WEB = {"app": "web"}


def test_replicas_that_keep_apart_have_a_node_each() -> None:
    cluster = cluster_of(6)
    for index in range(7):
        cluster.put_pod(f"w-{index}", 1, app=WEB, **affinity(apart=[term(HOST, WEB)]))
    for _ in range(10):
        cluster.settle()
    nodes = at(cluster, *(f"w-{index}" for index in range(7)))
    assert sorted(filter(None, nodes)) == [f"n{index}" for index in range(6)]
    assert nodes.count("") == 1


def test_who_runs_keeps_others_away_though_they_ask_for_nothing() -> None:
    cluster = cluster_of(3)
    cluster.put_pod("alone-0", 1, app={"app": "alone"}, node="n0", **affinity(apart=[term(ZONE, WEB)]))
    for index in range(3):
        cluster.put_pod(f"w-{index}", 8, app=WEB)
    cluster.settle()
    assert sorted(at(cluster, "w-0", "w-1", "w-2")) == ["", "n1", "n2"]
    cluster.delete("ns/alone-0")
    cluster.settle()
    assert sorted(at(cluster, "w-0", "w-1", "w-2")) == ["n0", "n1", "n2"]


def test_a_pod_that_waits_is_kept_away_by_one_that_came_later() -> None:
    cluster = cluster_of(2)
    cluster.put_pod("full-0", 8, node="n0", priority=9)
    cluster.put_pod("full-1", 8, node="n1", priority=9)
    cluster.put_pod("w-0", 1, app=WEB)
    cluster.settle()
    cluster.delete("ns/full-0")
    cluster.put_pod("alone-0", 1, node="n0", app={"app": "alone"}, **affinity(apart=[term(HOST, WEB)]))
    cluster.settle()
    assert at(cluster, "w-0") == [""]
    cluster.delete("ns/full-1")
    cluster.settle()
    assert at(cluster, "w-0") == ["n1"]


def test_with_others_in_their_zone_and_not_before_they_are_there() -> None:
    cluster = cluster_of(6)
    cluster.put_pod("w-0", 1, **affinity(beside=[term(ZONE, {"app": "cache"})]))
    cluster.settle()
    assert at(cluster, "w-0") == [""]
    cluster.put_pod("cache-0", 1, app={"app": "cache"}, node="n1")
    cluster.settle()
    assert zones(cluster, "w-0") == ["z1"]


def test_the_first_of_those_that_want_each_other_goes_anywhere() -> None:
    cluster = cluster_of(6)
    for index in range(4):
        cluster.put_pod(f"w-{index}", 4, app=WEB, **affinity(beside=[term(ZONE, WEB)]))
    for _ in range(4):
        cluster.settle()
    assert len(set(zones(cluster, "w-0", "w-1", "w-2", "w-3"))) == 1


def test_a_gang_stands_together_and_apart() -> None:
    cluster = cluster_of(9)
    cluster.put_gang("g", 3, gpus=1)
    for rank in range(3):
        both = affinity(beside=[term(ZONE, {"app": "g"})])
        cluster.put_pod(f"g-{rank}", 4, "g", rank, app={"app": "g"}, **both)
    cluster.put_gang("h", 3, gpus=1)
    for rank in range(3):
        apart = affinity(apart=[term(HOST, {"app": "h"})])
        cluster.put_pod(f"h-{rank}", 1, "h", rank, app={"app": "h"}, **apart)
    cluster.settle()
    assert len(set(zones(cluster, "g-0", "g-1", "g-2"))) == 1
    assert len(set(filter(None, at(cluster, "h-0", "h-1", "h-2")))) == 3


def test_workers_want_their_own_leader() -> None:
    cluster = cluster_of(6)
    cluster.put_gang("g", 3, gpus=4)
    cluster.put_pod("g-0", 4, "g", 0, app={"role": "leader"})
    for rank in (1, 2):
        cluster.put_pod(f"g-{rank}", 4, "g", rank, **affinity(beside=[term(ZONE, {"role": "leader"})]))
    cluster.settle()
    assert len(set(zones(cluster, "g-0", "g-1", "g-2"))) == 1
    assert at(cluster, "g-0") != [""]


def test_replicas_are_spread_evenly_over_zones() -> None:
    cluster = cluster_of(6)
    for index in range(7):
        cluster.put_pod(f"w-{index}", 1, app=WEB, topologySpreadConstraints=[spread(ZONE, WEB)])
    for _ in range(8):
        cluster.settle()
    found = zones(cluster, *(f"w-{index}" for index in range(7)))
    assert sorted(found.count(zone) for zone in ("z0", "z1", "z2")) == [2, 2, 3]


def test_a_zone_that_is_full_holds_the_others_up() -> None:
    cluster = cluster_of(3)
    cluster.put_pod("full-0", 8, node="n0", priority=9)
    for index in range(4):
        cluster.put_pod(f"w-{index}", 1, app=WEB, topologySpreadConstraints=[spread(ZONE, WEB)])
    for _ in range(5):
        cluster.settle()
    assert sorted(at(cluster, *(f"w-{index}" for index in range(4)))) == ["", "", "n1", "n2"]


def test_namespaces_are_meant_by_name_and_by_label() -> None:
    cluster = cluster_of(3)
    cluster.put(NAMESPACES, msgspec.convert({"metadata": {"name": "ns", "labels": {"team": "a"}}}, STRUCTS[NAMESPACES]))
    cluster.put_pod("kept-0", 1, app=WEB, node="n0")
    chosen = {"matchLabels": {"team": "a"}}
    asked: dict[str, dict[str, Any]] = {
        "elsewhere": {"namespaces": ["other"]}, "named": {"namespaces": ["ns"]}, "all": {"namespaceSelector": {}},
        "team": {"namespaceSelector": chosen},
        "others": {"namespaceSelector": {"matchLabels": {"team": "b"}}},
    }  # fmt: skip
    for name, more in asked.items():
        only = {"nodeSelector": {HOST: "n0"}}
        cluster.put_pod(f"{name}-0", 1, **only, **affinity(apart=[term(HOST, WEB, **more)]))
    cluster.settle()
    names = ("elsewhere", "named", "all", "team", "others")
    assert at(cluster, *(f"{each}-0" for each in names)) == ["n0", "", "", "", "n0"]


# -- random rounds ----------------------------------------------------------------------------------------------------


def chosen(selector: dict[str, Any] | None, labels: dict[str, str]) -> bool:
    return selector is not None and all(labels.get(key) == value for key, value in selector["matchLabels"].items())


class Oracle:
    """What stands where, and whether one pod more may."""

    def __init__(self, nodes: dict[str, dict[str, str]]) -> None:
        self.nodes = nodes
        self.there: dict[str, tuple[KubePod, str]] = {}
        self.leaving: set[str] = set()

    def admits(self, pod: KubePod, on: str) -> bool:
        raw: dict[str, Any] = msgspec.to_builtins(pod)
        labels = pod.metadata.labels or {}
        asked: dict[str, Any] = raw["spec"].get("affinity") or {}
        here = self.nodes[on]
        beside = self._terms(asked, "podAffinity")
        if beside:
            alike = [
                where for other, where in self.there.values()
                if all(chosen(each.get("labelSelector"), other.metadata.labels or {}) for each in beside)
            ]  # fmt: skip
            mine = all(chosen(each.get("labelSelector"), labels) for each in beside)
            if alike or not mine:
                for each in beside:
                    key = each["topologyKey"]
                    if not any(self.nodes[where].get(key) == here[key] for where in alike):
                        return False
        for other, where in self.there.values():
            for each in self._terms(asked, "podAntiAffinity"):
                key = each["topologyKey"]
                same = self.nodes[where].get(key) == here.get(key)
                if same and chosen(each.get("labelSelector"), other.metadata.labels or {}):
                    return False
            for each in self._terms(msgspec.to_builtins(other)["spec"].get("affinity") or {}, "podAntiAffinity"):
                key = each["topologyKey"]
                if self.nodes[where].get(key) == here.get(key) and chosen(each.get("labelSelector"), labels):
                    return False
        return all(self._evenly(each, labels, here) for each in raw["spec"].get("topologySpreadConstraints") or ())

    @staticmethod
    def _terms(asked: dict[str, Any], field: str) -> list[dict[str, Any]]:
        found: dict[str, Any] = asked.get(field) or {}
        return found.get("requiredDuringSchedulingIgnoredDuringExecution") or []

    def _evenly(self, each: dict[str, Any], labels: dict[str, str], here: dict[str, str]) -> bool:
        key, selector = each["topologyKey"], each["labelSelector"]
        counts = {found[key]: 0 for found in self.nodes.values()}
        for other, where in self.there.values():
            if chosen(selector, other.metadata.labels or {}) and other.metadata.uid not in self.leaving:
                counts[self.nodes[where][key]] += 1
        return counts[here[key]] + chosen(selector, labels) - min(counts.values()) <= each["maxSkew"]

    def enter(self, pods: list[tuple[KubePod, str]]) -> None:
        """Pods of a gang in some order in which each is admitted."""
        left = list(pods)
        while left:
            able = next((each for each in left if self.admits(*each)), None)
            assert able is not None, [(each.metadata.name, where) for each, where in left]
            left.remove(able)
            self.there[able[0].metadata.uid] = able


def promised(cluster: Cluster) -> dict[str, tuple[KubePod, str]]:
    """The pods that have their nodes and wait for others to leave: they count, as kube-scheduler's assumed pods do."""
    found = {uid: each for uid, each in cluster.state._assumed.items() if not each.sent}
    return {uid: (cluster.pods[each.key], each.node) for uid, each in found.items()}


def random_spec(rng: random.Random) -> dict[str, Any]:
    apps = [{"app": rng.choice("abc")} for _ in range(3)]
    keys = [rng.choice([HOST, ZONE]) for _ in range(3)]
    found: dict[str, Any] = {}
    kind = rng.random()
    if kind < 0.3:
        found = affinity(apart=[term(keys[0], apps[0])])
    elif kind < 0.5:
        found = affinity(beside=[term(ZONE, apps[1])])
    elif kind < 0.7:
        found = {"topologySpreadConstraints": [spread(keys[2], apps[2], rng.randint(1, 2))]}
    return found


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_bound_the_filters_of_kube_scheduler_admit(seed: int) -> None:
    rng = random.Random(seed)
    cluster = cluster_of(rng.randint(3, 9))
    oracle = Oracle({f"n{at}": {HOST: f"n{at}", ZONE: f"z{at % 3}"} for at in range(len(cluster.nodes))})
    placed = 0
    assumed: dict[str, tuple[KubePod, str]] = {}
    for number in range(25):
        if rng.random() < 0.25:
            size = rng.randint(2, 4)
            name, app, spec = f"g{number}", {"app": rng.choice("abc")}, random_spec(rng)
            cluster.put_gang(name, size, gpus=1)
            for rank in range(size):
                cluster.put_pod(f"{name}-{rank}", rng.choice([1, 2]), name, rank, app=app, **spec)
        else:
            cluster.put_pod(f"p{number}-0", rng.choice([1, 2, 4]), app={"app": rng.choice("abc")}, **random_spec(rng))
        for _ in range(rng.randint(1, 3)):
            leaving = [pod for pod in cluster.pods.values() if pod.metadata.deletion_timestamp]
            oracle.leaving = {pod.metadata.uid for pod in leaving}
            for uid in assumed:
                oracle.there.pop(uid, None)
            cluster.cycle(after_s=rng.choice([0.1, 1.0, 20.0]))
            assumed = promised(cluster)
            oracle.there |= assumed
            gangs: dict[str, list[tuple[KubePod, str]]] = {}
            for write in cluster.writes:
                if isinstance(write, Bind):
                    pod = cluster.pods[f"{write.pod.namespace}/{write.pod.name}"]
                    gangs.setdefault(write.gang, []).append((pod, write.node))
            for pods in gangs.values():
                for pod, _ in pods:
                    oracle.there.pop(pod.metadata.uid, None)
                oracle.enter(pods)
                placed += len(pods)
            cluster.carry_out()
            gone = [key for key, pod in cluster.pods.items() if pod.spec.node_name and rng.random() < 0.05]
            for key in gone:
                oracle.there.pop(cluster.pods[key].metadata.uid)
                cluster.delete(key)
    assert placed > 8
    cluster.check()


def test_what_one_node_and_nothing_else_keeps_waiting_the_oracle_refuses_everywhere() -> None:
    """The other side: with room for all, a pod waits only where no node is admitted."""
    waited = 0
    for seed in range(20):
        rng = random.Random(1000 + seed)
        cluster = cluster_of(6)
        for number in range(12):
            cluster.put_pod(f"p{number}-0", 0, app={"app": rng.choice("abc")}, **random_spec(rng))
        for _ in range(12):
            cluster.settle()
            cluster.now_s += 20.0
        oracle = Oracle({f"n{at}": {HOST: f"n{at}", ZONE: f"z{at % 3}"} for at in range(6)})
        for pod in cluster.pods.values():
            if pod.spec.node_name:
                oracle.there[pod.metadata.uid] = pod, pod.spec.node_name
        for pod in cluster.pods.values():
            if not pod.spec.node_name:
                waited += 1
                assert not any(oracle.admits(pod, each) for each in oracle.nodes), pod.metadata.name
    assert waited
