"""What the status of a Queue object says, and what work that names no queue is told."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import msgspec

from inmemory import Cluster, node
from muster.kube.kinds import MUSTER_QUEUES
from muster.kube.queue_objects import KubeQueue
from muster.service.scheduler.process import _queues_to_name
from muster.service.scheduler.usage import statuses

TREE = {"root": "", "research": "root", "vision": "research", "product": "root"}


def tree() -> Cluster:
    cluster = Cluster([node(f"n{index}") for index in range(3)])
    for name, parent in TREE.items():
        spec = {"parent": parent} if parent else {"quotas": [{"flavor": "NVIDIA-H100-80GB-HBM3", "nominal": 24}]}
        found = msgspec.convert({"metadata": {"name": name, "uid": name}, "spec": spec}, KubeQueue)
        cluster.put(MUSTER_QUEUES, found)
    return cluster


def test_what_is_held_counts_in_the_queues_above_too() -> None:
    cluster = tree()
    for name, queue, gpus in (
        ("a-0", "vision", 8),
        ("b-0", "research", 4),
        ("c-0", "product", 2),
        ("d-0", "vision", 9),
    ):
        cluster.put_pod(name, gpus, app={"muster.dev/queue": queue})
    cluster.settle()
    assert cluster.state.scheduler is not None
    found = statuses(cluster.state.scheduler, cluster.now_s)
    told = {name: (found[name]["running"], found[name]["pending"], found[name]["allocated"]) for name in TREE}
    assert told == {
        "root": (3, 1, "NVIDIA-H100-80GB-HBM3 14"), "research": (2, 1, "NVIDIA-H100-80GB-HBM3 12"),
        "vision": (1, 1, "NVIDIA-H100-80GB-HBM3 8"), "product": (1, 0, "NVIDIA-H100-80GB-HBM3 2"),
    }  # fmt: skip
    cluster.cycle(after_s=60.0)
    used = statuses(cluster.state.scheduler, cluster.now_s)
    assert used["vision"]["usage"]
    assert not used["root"]["usage"], "what is read back after a restart is added up then"


def test_work_that_names_no_queue_is_told_the_label_and_the_leaves() -> None:
    cluster = tree()
    cluster.put_pod("a-0", 1)
    cluster.settle()
    assert cluster.state.scheduler is not None
    assert cluster.bound("a") == 0
    told = _queues_to_name(cluster.state.scheduler)
    assert "Set the label muster.dev/queue on the pods" in told
    assert "to one of: vision, product." in told or "to one of: product, vision." in told
