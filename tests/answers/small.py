"""A small cluster with something of everything, for tests that read like a specification."""

from __future__ import annotations

from msgspec.structs import replace

from muster.model import Device, Fleet, Node, PodPlacement, PodSet, PodShape, Running, Snapshot, Topology, Workload
from muster.model.fleet import Taint
from muster.model.queue import Queue, Quota
from muster.model.snapshot import AdvanceReservation, NodeFailure
from muster.model.workload import TopologyRequest

GIB = 2**30
WHOLE_NODE = PodShape(48000, 256 * GIB, 8)


def small_snapshot() -> Snapshot:
    """16 H100 nodes in 2 blocks of 2 racks of 4, and a login node; two jobs run, three wait, in two queues."""
    devices = tuple(Device(index, "H100-SXM5-80GB", 80 * GIB) for index in range(8))
    nodes = [
        Node(
            f"gpu{number + 1:02d}",
            96000,
            1024 * GIB,
            devices,
            labels=(("kubernetes.io/hostname", f"gpu{number + 1:02d}"),),
            topology=(f"b{number // 8 + 1}", f"rack-{number // 4 + 1}"),
            purchase="reserved" if number < 8 else "spot",
        )
        for number in range(16)
    ]
    nodes[2] = replace(nodes[2], schedulable=False, reason="cordoned")
    nodes[3] = replace(nodes[3], devices=(replace(devices[0], healthy=False), *devices[1:]))
    nodes[4] = replace(nodes[4], taints=(Taint("team", "a"),))
    nodes.append(Node("login1", 16000, 64 * GIB, topology=("b1", "rack-1")))
    flavors = ("H100-SXM5-80GB/reserved", "H100-SXM5-80GB/spot")
    queues = (
        Queue("all", quotas=tuple(Quota(flavor, 64000) for flavor in flavors)),
        Queue("team-a", "all", quotas=(Quota(flavors[0], 32000, borrowing_limit_milli=16000),)),
        Queue("team-b", "all", quotas=(Quota(flavors[0], 32000), Quota(flavors[1], 64000))),
    )
    llama = Workload("llama", (PodSet(WHOLE_NODE, 2),), submitted_s=100.0, queue="team-a", time_limit_s=7200.0)
    small = Workload("small", (PodSet(PodShape(6000, 32 * GIB, 1)),), submitted_s=200.0, queue="team-b")
    return Snapshot(
        Fleet(tuple(nodes), Topology(("block", "rack")), "small"),
        queues,
        pending=(
            Workload(
                "big", (PodSet(WHOLE_NODE, 8),), submitted_s=300.0, queue="team-a", time_limit_s=3600.0,
                topology=TopologyRequest(required="block"),
            ),
            Workload("held", (PodSet(WHOLE_NODE),), submitted_s=400.0, queue="team-b", depends_on=("llama",)),
            Workload(
                "serve", (PodSet(PodShape(4000), role="router"), PodSet(WHOLE_NODE, 2, 1, "worker")),
                submitted_s=500.0, queue="team-b",
            ),
        ),
        running=(
            Running(llama, 600.0, tuple(PodPlacement(node, tuple(range(8)), 1000) for node in ("gpu01", "gpu02"))),
            Running(small, 700.0, (PodPlacement("gpu06", (0,), 1000),)),
        ),
        reservations=(AdvanceReservation("service", 9000.0, 12600.0, ("gpu07", "gpu08")),),
        failures=(NodeFailure("gpu03", "x", 900.0),),
        taken_s=1000.0,
    )  # fmt: skip
