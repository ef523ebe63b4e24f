"""Muster beside kube-scheduler on the same real control plane, in the same run.

    make controlplane && .venv/bin/python benchmarks/kubernetes.py [PART...] [--nodes 1000] [--pods 5000] [--gangs 15]

Each scheduler gets a control plane of its own, started fresh: etcd, kube-apiserver, kube-controller-manager, and kwok
for the nodes, with raised client limits for both. PART is one or more of:

    singles     pods of one GPU that wait when the scheduler starts, and as many that are made while it runs
    gangs       gangs of 64 pods x 8 GPUs one after the other, without and with a required topology level
    deadlock    two gangs of 64 GPUs, interleaved on 8 nodes, again and again: neither may get half
    queues      gangs of 64 pods x 8 GPUs in queues of three tenants with quotas, beside Kueue (kubernetes_queues.py)
    memory      5,000 nodes and 20,000 pods: the resident memory of Muster
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from contestants import Contestant, contest
from controlplane import Cluster, ClusterError, Shape
from controlplane.api import ApiError
from kubernetes_queues import queues

PODS, NODES = "/api/v1/namespaces/default/pods", "/api/v1/nodes"
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
_NAME = re.compile(rb'"metadata":\{"name":"([^"]+)"')
RACK = "cloud.provider.com/topology-rack"


class Bindings:
    """When each pod whose name begins so was first seen bound: by a watch; where that breaks off, by a list."""

    def __init__(self, cluster: Cluster, prefix: str) -> None:
        self.at_s: dict[str, float] = {}
        self._cluster, self._prefix = cluster, prefix
        self._ended = False
        version = cluster.api.get(PODS, limit=1)["metadata"]["resourceVersion"]
        threading.Thread(target=self._run, args=(version,), daemon=True).start()

    def _run(self, version: str) -> None:
        while not self._ended:
            for line in self._cluster.api.watch_lines(PODS, 1800, resourceVersion=version):
                name = _NAME.search(line)
                if name and b'"nodeName":"' in line:
                    self._note(name[1].decode())
                if self._ended:
                    return
            found = self._cluster.api.get(PODS)
            version = found["metadata"]["resourceVersion"]
            for each in found["items"]:
                if each["spec"].get("nodeName"):
                    self._note(each["metadata"]["name"])

    def _note(self, name: str) -> None:
        if name.startswith(self._prefix):
            self.at_s.setdefault(name, time.monotonic())

    def wait(self, count: int, within_s: float) -> None:
        until_s = time.monotonic() + within_s
        while len(self.at_s) < count:
            if time.monotonic() > until_s:
                raise ClusterError(f"{len(self.at_s)} of {count} pods were bound within {within_s:.0f} s")
            time.sleep(0.02)

    def end(self) -> None:
        self._ended = True


def pod(name: str, gpus: int, scheduler: str, group: str = "") -> dict[str, Any]:
    limits = {"nvidia.com/gpu": str(gpus), "cpu": "1", "memory": "1Gi"}
    return {
        "metadata": {"name": name},
        "spec": {
            "schedulerName": scheduler,
            "containers": [{"name": "main", "image": "registry.example/train", "resources": {"limits": limits}}],
            **({"schedulingGroup": {"podGroupName": group}} if group else {}),
        },
    }


def group(name: str, pods: int, level: str = "") -> dict[str, Any]:
    constraints = {"schedulingConstraints": {"topology": [{"key": level}]}} if level else {}
    return {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": pods}}, **constraints}}


def clear(cluster: Cluster) -> None:
    """Remove all pods and groups, and wait until they are gone."""
    for path in (PODS, GROUPS):
        try:
            cluster.api.delete(path, {"gracePeriodSeconds": 0})
        except ApiError as error:
            if error.status != 504:  # many take longer than one request may; the server goes on
                raise
    cluster.wait("all pods were gone", lambda: not cluster.api.items(PODS), 300, 0.5)


def singles(options: argparse.Namespace) -> None:
    """Pods of one GPU."""
    count, figures = options.pods, dict[str, list[float]]()
    for name in options.only:
        with contest(name, Shape(options.nodes, 16, per_rack=8, blocks=4)) as contestant:  # room for both parts
            cluster = contestant.cluster
            cluster.create(PODS, [pod(f"w-{at}", 1, contestant.scheduler_name) for at in range(count)])
            bindings = Bindings(cluster, "w-")
            began_s = time.monotonic()
            contestant.start()
            bindings.wait(count, 600)
            waiting_s = max(bindings.at_s.values()) - began_s
            waiting_cpu_s = contestant.cpu_s()
            bindings.end()
            time.sleep(5)
            bindings, before_s, began_s = Bindings(cluster, "c-"), contestant.cpu_s(), time.monotonic()
            cluster.create(PODS, [pod(f"c-{at}", 1, contestant.scheduler_name) for at in range(count)])
            made_s = time.monotonic() - began_s
            bindings.wait(count, 600)
            created_s = max(bindings.at_s.values()) - began_s
            made_cpu_s = contestant.cpu_s() - before_s
            bindings.end()
            figures[name] = [count / waiting_s, waiting_cpu_s / count, count / created_s, made_cpu_s / count]
            print(
                f"{name:15} {count:,} waiting pods: bound after {waiting_s:6.1f} s, start included"
                f" ({count / waiting_s:5.0f}/s; {1000 * waiting_cpu_s / count:5.2f} ms of its CPU a pod)"
                f"   created in {made_s:5.1f} s: bound after {created_s:6.1f} s ({count / created_s:5.0f}/s;"
                f" {1000 * made_cpu_s / count:5.2f} ms)   memory {contestant.memory_mb():4.0f} MB",
                flush=True,
            )
    if len(figures) == 2:
        mine, other = figures["muster"], figures["kube-scheduler"]
        print(
            f"ratio            waiting: {mine[0] / other[0]:.2f} x pods/s, {mine[1] / other[1]:.2f} x CPU a pod;"
            f" created: {mine[2] / other[2]:.2f} x, {mine[3] / other[3]:.2f} x   (targets: 1.5, 0.5)"
        )


def gangs(options: argparse.Namespace) -> None:
    """Gangs one after the other: from when the last pod was made to when the last was bound."""
    for level in ("", RACK):
        took: dict[str, list[float]] = {}
        for name in options.only:
            gates = ("TopologyAwareWorkloadScheduling",) if level else ()
            with contest(name, Shape(options.nodes, 8, per_rack=66, blocks=2), gates) as contestant:
                contestant.start()
                _warm_up(contestant)
                took[name] = [_gang(contestant, f"g{at}", 64, level) for at in range(options.gangs)]
            some = sorted(took[name])
            print(
                f"{name:15} {options.gangs} gangs of 64 x 8 GPUs{', in one rack' if level else '':13} last made to last"
                f" bound: p50 {statistics.median(some):5.2f} s, p99 {some[-1]:5.2f} s, least {some[0]:5.2f} s",
                flush=True,
            )
        if len(took) == 2:
            ratios = [statistics.median(took["muster"]) / statistics.median(took["kube-scheduler"]),
                      max(took["muster"]) / max(took["kube-scheduler"])]  # fmt: skip
            print(f"ratio            p50 {ratios[0]:.2f}, p99 {ratios[1]:.2f}   (target: at most 1)")


def _warm_up(contestant: Contestant) -> None:
    """One small gang, so that start-up is not measured."""
    _gang(contestant, "warm", 2, "")
    clear(contestant.cluster)


def _gang(contestant: Contestant, name: str, pods: int, level: str) -> float:
    cluster = contestant.cluster
    bindings = Bindings(cluster, f"{name}-")
    cluster.api.post(GROUPS, group(name, pods, level))
    for at in range(pods):
        cluster.api.post(PODS, pod(f"{name}-{at}", 8, contestant.scheduler_name, name))
    made_s = time.monotonic()
    bindings.wait(pods, 120)
    bindings.end()
    if level:
        rack_of = {each["metadata"]["name"]: each["metadata"]["labels"][RACK] for each in cluster.api.items(NODES)}
        mine = [each for each in cluster.api.items(PODS) if each["metadata"]["name"].startswith(f"{name}-")]
        racks = {rack_of[each["spec"]["nodeName"]] for each in mine}
        if len(racks) != 1:
            raise ClusterError(f"{name} stands in {len(racks)} racks")
    return max(0.0, max(bindings.at_s.values()) - made_s)


def deadlock(options: argparse.Namespace) -> None:
    """Two gangs of 8 pods x 8 GPUs on 8 nodes, their pods interleaved with random delays."""
    rng = random.Random(7)
    for name in options.only:
        halves = 0
        with contest(name, Shape(8, 8, per_rack=8)) as contestant:
            cluster = contestant.cluster
            contestant.start()
            _warm_up(contestant)
            for at in range(options.rounds):
                for which in "ab":
                    cluster.api.post(GROUPS, group(f"{which}{at}", 8))
                order = [(which, rank) for rank in range(8) for which in "ab"]
                rng.shuffle(order)
                for which, rank in order:
                    cluster.api.post(PODS, pod(f"{which}{at}-{rank}", 8, contestant.scheduler_name, f"{which}{at}"))
                    if rng.random() < 0.3:
                        time.sleep(rng.random() * 0.05)
                until_s = time.monotonic() + 30
                bound: dict[str, int] = {}
                while time.monotonic() < until_s and 8 not in bound.values():
                    time.sleep(0.1)
                    bound = _bound(cluster, at)
                time.sleep(0.2)
                bound = _bound(cluster, at)
                halves += sorted(bound.values()) != [0, 8]
                clear(cluster)
        print(
            f"{name:15} {options.rounds} rounds of two gangs interleaved: {halves} without exactly one whole",
            flush=True,
        )


def _bound(cluster: Cluster, at: int) -> dict[str, int]:
    found = {f"a{at}": 0, f"b{at}": 0}
    for each in cluster.api.items(PODS):
        if each["spec"].get("nodeName"):
            found[each["metadata"]["name"].partition("-")[0]] += 1
    return found


def memory(options: argparse.Namespace) -> None:
    """5,000 nodes and 20,000 pods."""
    del options
    with contest("muster", Shape(5000, 8, per_rack=16, blocks=10)) as contestant:
        cluster = contestant.cluster
        cluster.create(PODS, [pod(f"p-{at}", 1, "muster") for at in range(20_000)])
        bindings = Bindings(cluster, "p-")
        contestant.start()
        bindings.wait(20_000, 900)
        time.sleep(5)
        print(f"muster: 5,000 nodes, 20,000 pods bound: most memory {contestant.memory_mb():.0f} MB   (target: 500)")
        bindings.end()


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "singles": singles, "gangs": gangs, "deadlock": deadlock, "queues": queues, "memory": memory,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["singles", "gangs", "deadlock"], metavar="PART")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--gangs", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=200, help="of the part queues")
    parser.add_argument("--size", type=int, default=64, help="pods of each of those")
    parser.add_argument("--seconds", default="20-200", help="how long those run")
    parser.add_argument("--reclaim", choices=["Any", "Never"], default="Any", help="reclaimWithinCohort, of Kueue")
    parser.add_argument("--only", type=lambda text: text.split(","), default=["kube-scheduler", "muster"])
    options = parser.parse_args()
    unknown: Iterable[str] = [part for part in options.parts if part not in PARTS]
    if unknown:
        parser.error(f"there is no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    print(
        f"Machine: {platform.processor() or platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    try:
        for part in options.parts:
            PARTS[part](options)
    except ClusterError as error:
        sys.exit(f"kubernetes.py: {error}")


if __name__ == "__main__":
    main()
