"""Gangs in queues: Kueue with kube-scheduler, then Muster, which reads the same queues of Kueue, without Kueue.

    .venv/bin/python benchmarks/kubernetes.py queues [--nodes 1000] [--jobs 200] [--seconds 20-200]
    .venv/bin/python benchmarks/kubernetes.py queues --nodes 41 --size 8 --jobs 20 --seconds 5-30      # three minutes

Jobs of 64 pods x 8 GPUs of three tenants; each tenant has a ClusterQueue with a part of the cluster's GPUs as its
nominal quota, in one cohort, and takes back what others borrowed (`--reclaim Never`: in Kueue it does not). All Jobs
are made in the same order for both while the queues' ResourceFlavor is missing, until they all wait: in Kueue as
Workloads, for Muster with their pods. Then it is made, and the clock starts. A Job's pods end by themselves. By a watch
of the pods it is measured how much of the cluster's GPU time went to pods that ended well (from their binding to their
end, over the time to the last one's end, and to the last gang's start, while there is work that waits), how long each
gang waited until its last pod was bound, how long a part of one was bound and the rest not, and what was lost of pods
that were stopped for others.
"""

from __future__ import annotations

import argparse
import random
import re
import statistics
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from contestants import Contestant, contest
from controlplane import Cluster, ClusterError, Shape

PODS, JOBS = "/api/v1/namespaces/default/pods", "/apis/batch/v1/namespaces/default/jobs"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"
TENANTS = {"research": (0.5, 0.4), "product": (0.3, 0.3), "students": (0.2, 0.3)}
"""Each tenant's part of the quota, and of the jobs."""
GPUS = 8
_NAME = re.compile(rb'"metadata":\{"name":"(j\d+)-([^"]+)"')
_VERSION = re.compile(rb'"resourceVersion":"(\d+)"')


@dataclass(frozen=True, slots=True)
class Gang:
    """A Job: whose, how long its pods run, and how many they are."""

    name: str
    tenant: str
    seconds: int
    pods: int


@dataclass(slots=True)
class Life:
    """When a pod was first seen bound, and ended or gone, on the clock of this process."""

    bound_s: float = 0.0
    ended_s: float = 0.0
    well: bool = False


def jobs(count: int, least_s: int, most_s: int, pods: int) -> list[Gang]:
    """The same jobs each time."""
    rng = random.Random(7)
    names, parts = list(TENANTS), [part for _, part in TENANTS.values()]
    return [Gang(f"j{at}", rng.choices(names, parts)[0], rng.randint(least_s, most_s), pods) for at in range(count)]


class Lives:
    """The pods' lives, by a watch; where that breaks off, it goes on from where it was."""

    def __init__(self, cluster: Cluster) -> None:
        self.of: dict[str, dict[str, Life]] = {}
        self.troubles = 0
        self._cluster, self._ended = cluster, False
        self._version = cluster.api.get(PODS, limit=1)["metadata"]["resourceVersion"]
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._ended:
            try:
                for line in self._cluster.api.watch_lines(PODS, 3000, resourceVersion=self._version):
                    self._note(line)
                    if self._ended:
                        return
            except (OSError, ClusterError):
                self.troubles += 1
                time.sleep(0.5)

    def _note(self, line: bytes) -> None:
        name, now_s = _NAME.search(line), time.monotonic()
        if found := _VERSION.search(line):
            self._version = found[1].decode()
        if name is None:
            return
        life = self.of.setdefault(name[1].decode(), {}).setdefault(name[2].decode(), Life())
        if not life.bound_s and b'"nodeName":"' in line:
            life.bound_s = now_s
        if not life.ended_s and (line.startswith(b'{"type":"DELETED"') or b'"phase":"Failed"' in line):
            life.ended_s = now_s
        elif not life.ended_s and b'"phase":"Succeeded"' in line:
            life.ended_s, life.well = now_s, True

    def done(self, gang: Gang) -> bool:
        return sum(life.well for life in list(self.of.get(gang.name, {}).values())) >= gang.pods

    def end(self) -> None:
        self._ended = True


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a contestant."""

    took_s: float
    used: float
    used_while_waiting: float
    waits_s: list[float]
    part_gpu_s: float
    lost_gpu_s: float
    tenants: dict[str, float] = field(default_factory=dict[str, float])


def queues(options: argparse.Namespace) -> None:
    """Gangs in queues of three tenants."""
    least_s, _, most_s = options.seconds.partition("-")
    gangs = jobs(options.jobs, int(least_s), int(most_s or least_s), options.size)
    names = ["kueue" if name == "kube-scheduler" else name for name in options.only]
    results: dict[str, Result] = {}
    for name in names:
        shape = Shape(options.nodes, GPUS, per_rack=66)
        with contest(name, shape, crds=("kueue",)) as contestant:
            make_queues(contestant.cluster, options.nodes * GPUS, options.reclaim)
            contestant.start()
            results[name] = run(contestant, gangs, options.nodes * GPUS)
            tell(contestant, results[name], gangs)
    if len(results) == 2:
        mine, other = results["muster"], results["kueue"]
        print(
            f"ratio            GPU time used {mine.used / other.used:.3f} (target: at least 1), while work"
            f" waited {mine.used_while_waiting / other.used_while_waiting:.3f}; time to the end"
            f" {mine.took_s / other.took_s:.3f},"
            f" longest wait {max(mine.waits_s) / max(other.waits_s):.3f}"
        )


def make(cluster: Cluster, kind: str, name: str, spec: dict[str, Any], where: str = "") -> None:
    """An object of Kueue."""
    body = {"apiVersion": KUEUE.removeprefix("/apis/"), "kind": kind, "metadata": {"name": name}, "spec": spec}
    cluster.api.post(f"{KUEUE}{where}/{kind.lower()}s", body)


def make_queues(cluster: Cluster, gpus: int, reclaim: str = "Any") -> None:
    """The tenants' queues, in Kueue's objects, for both contestants; without their flavor nothing starts."""
    for tenant, (part, _) in TENANTS.items():
        quota = {"name": "nvidia.com/gpu", "nominalQuota": round(part * gpus)}
        groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "h100", "resources": [quota]}]}]
        spec = {"cohortName": "all", "namespaceSelector": {}, "resourceGroups": groups}
        make(cluster, "ClusterQueue", tenant, spec | {"preemption": {"reclaimWithinCohort": reclaim}})
        make(cluster, "LocalQueue", tenant, {"clusterQueue": tenant}, "/namespaces/default")


def job(gang: Gang, scheduler: str) -> dict[str, Any]:
    """A gang as a Job that survives being stopped for others."""
    labels = {"kueue.x-k8s.io/queue-name": gang.tenant}
    limits = {"limits": {"nvidia.com/gpu": str(GPUS)}}
    pod = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": "registry.example/train", "resources": limits}],
    }
    notes = {"dev.muster/runs-for": f"{gang.seconds}s"}
    policy = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}
    return {
        "metadata": {"name": gang.name, "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": gang.pods,
            "parallelism": gang.pods,
            # each index has its own back-off: the whole Job's would be ten minutes once 64 pods were stopped
            "backoffLimitPerIndex": 6,
            "podFailurePolicy": policy,
            "template": {"metadata": {"labels": labels, "annotations": notes}, "spec": pod},
        },
    }


def run(contestant: Contestant, gangs: list[Gang], gpus: int) -> Result:
    """All Jobs, from when the queues have their flavor to the last one's end."""
    cluster = contestant.cluster
    lives = Lives(cluster)
    cluster.create(JOBS, [job(gang, contestant.scheduler_name) for gang in gangs])

    def all_wait() -> bool:
        if contestant.name == "kueue":
            return len(cluster.api.items(f"{KUEUE}/namespaces/default/workloads")) == len(gangs)
        return sum(len(pods) for pods in list(lives.of.values())) == sum(gang.pods for gang in gangs)

    cluster.wait("all gangs waited", all_wait, 60 + 3 * len(gangs), 1.0)
    time.sleep(5.0)
    began_s = time.monotonic()
    make(cluster, "ResourceFlavor", "h100", {})
    at_once = max(1, gpus // (gangs[0].pods * GPUS))
    until_s = began_s + 300 + 4 * sum(gang.seconds for gang in gangs) / at_once
    while open_ := [gang.name for gang in gangs if not lives.done(gang)]:
        if time.monotonic() > until_s:
            raise ClusterError(f"{contestant.name}: {len(open_)} gangs did not end, such as {', '.join(open_[:5])}")
        time.sleep(0.5)
    lives.end()
    return result(gangs, lives, began_s, gpus)


def result(gangs: list[Gang], lives: Lives, began_s: float, gpus: int) -> Result:
    """What the pods' lives come to."""
    all_lives = [(life, gang.tenant) for gang in gangs for life in lives.of[gang.name].values() if life.bound_s]
    spans = [(life.bound_s, life.ended_s, tenant) for life, tenant in all_lives if life.well]
    starts = {gang.name: _whole(lives.of[gang.name]) for gang in gangs}
    ends_s, last_s = max(end for _, end, _ in spans), max(starts.values())
    # until the first tenant has no work that waits, all three ask for more than they have
    last_of = {tenant: max(starts[g.name] for g in gangs if g.tenant == tenant) for tenant in {g.tenant for g in gangs}}
    all_wait_s = min(last_of.values())
    part: Counter[str] = Counter()
    for start_s, end_s, tenant in spans:
        part[tenant] += max(0.0, min(end_s, all_wait_s) - start_s)
    return Result(
        ends_s - began_s,
        sum(end - start for start, end, _ in spans) * GPUS / gpus / (ends_s - began_s),
        sum(max(0.0, min(end, last_s) - start) for start, end, _ in spans) * GPUS / gpus / (last_s - began_s),
        [starts[gang.name] - began_s for gang in gangs],
        sum(GPUS * (starts[gang.name] - life.bound_s) for gang in gangs for life in lives.of[gang.name].values()
            if life.well),
        sum(GPUS * (life.ended_s - life.bound_s) for life, _ in all_lives if not life.well),
        {tenant: part[tenant] / max(1e-9, part.total()) for tenant in TENANTS},
    )  # fmt: skip


def _whole(pods: dict[str, Life]) -> float:
    """When the last of the pods that ended well was bound."""
    return max(life.bound_s for life in pods.values() if life.well)


def tell(contestant: Contestant, found: Result, gangs: list[Gang]) -> None:
    """One contestant's figures."""
    shares = ", ".join(f"{tenant} {100 * part:.0f} %" for tenant, part in found.tenants.items())
    print(
        f"{contestant.name:15} {len(gangs)} gangs of {gangs[0].pods} x {GPUS} GPUs ended after"
        f" {found.took_s:,.0f} s; GPU time used {100 * found.used:.1f} %, while work"
        f" waited {100 * found.used_while_waiting:.1f} %; waits:"
        f" median {statistics.median(found.waits_s):,.0f} s, longest {max(found.waits_s):,.0f} s\n"
        f"{'':15} GPU-hours of gangs in part {found.part_gpu_s / 3600:.1f}; lost {found.lost_gpu_s / 3600:.1f}; while"
        f" all wait: {shares} of it; its CPU {contestant.cpu_s():.0f} s, memory {contestant.memory_mb():.0f} MB",
        flush=True,
    )
