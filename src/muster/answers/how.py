"""How to see the same by hand, in the order that isolates fastest: quota, fit, nodes, then one node's device plugin."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from muster.answers.by_hand.quoting import quoted_one
from muster.answers.view import View
from muster.answers.why import Why


class HandStep(Struct, frozen=True):
    """One step: what it tells, the command on Kubernetes and on Slurm, and how to read what it prints."""

    title: str
    kubectl: str
    slurm: str
    read: str


def by_hand(view: View, told: Why) -> Iterator[HandStep]:
    """The steps for one job."""
    workload = told.workload
    name, queue = quoted_one(workload.name.rpartition("/")[2]), quoted_one(workload.queue or "QUEUE")
    space = quoted_one(workload.namespace or "NAMESPACE")
    resource = _resource(told)
    node = quoted_one(_one_node(view, told))
    yield HandStep(
        "What the scheduler says of it",
        f"kubectl -n {space} describe workload {name}; kubectl -n {space} get events --field-selector"
        f" involvedObject.name={name}",
        f"scontrol show job {name}  # Reason=, and squeue -j {name} -o '%i %T %r %S'",
        "A condition QuotaReserved=False, or the reason in brackets, is the first obstacle, not the only one.",
    )
    yield HandStep(
        "1. Quota",
        f"kubectl describe clusterqueue {queue}; kubectl get clusterqueue {queue} -o"
        " jsonpath='{.status.flavorsUsage}'",
        f"sacctmgr show assoc where account={queue} format=account,user,grptres; sshare -A {queue};"
        f" scontrol show assoc_mgr accounts={queue} flags=assoc",
        "Used plus what the job asks for must stay within nominal + borrowing limit, at the queue and at each cohort"
        " above it; on Slurm within GrpTRES of the account and of all its parents, and within the QOS's limits.",
    )
    yield HandStep(
        "2. Fit: what is free",
        f"kubectl get nodes -o custom-columns=NODE:.metadata.name,GPUS:.status.allocatable.{resource};"
        " kubectl get pods -A --field-selector=status.phase=Running -o json",
        "sinfo -N -o '%N %t %G %C %m'; scontrol show node | grep -E 'NodeName|CfgTRES|AllocTRES'",
        "Per node allocatable less the sum of the requests of its pods (AllocTRES on Slurm). Count nodes with"
        " enough free for one pod, not the sum of free GPUs: a pod cannot use GPUs of two nodes.",
    )
    yield HandStep(
        "3. Reasons per node",
        f"kubectl -n {space} describe pod -l job-name={name}  # Events: 0/N nodes are available: ...",
        "sinfo -R; scontrol show reservation; scontrol show partition",
        "Each node is counted once in '0/N nodes are available', under its first obstacle. untolerated taint: compare"
        " spec.taints with tolerations. didn't match node selector: kubectl get nodes --show-labels.",
    )
    yield HandStep(
        "4. One node's devices",
        f"kubectl describe node {node}; kubectl -n gpu-operator get pods -o wide --field-selector spec.nodeName={node}",
        f"scontrol show node {node} -d; ssh {node} nvidia-smi -L",
        "Capacity below the number of cards: the device plugin or the driver. Allocatable below capacity: a device is"
        " unhealthy. Then the plugin's log on that node, and dmesg for Xid lines.",
    )


def _resource(told: Why) -> str:
    profiles = [each.shape.mig_profile for each in told.workload.pod_sets if each.shape.mig_profile]
    name = f"nvidia.com/mig-{quoted_one(profiles[0])}" if profiles else "nvidia.com/gpu"
    return name.replace(".", "\\.")


def _one_node(view: View, told: Why) -> str:
    """A node that should have taken it: one that fell away late in the funnel."""
    for funnel in told.funnels[:1]:
        for step in reversed(funnel.steps):
            if len(step.lost):
                return view.scheduler.cluster.state.node_names[int(step.lost[0])]
    names = view.scheduler.cluster.state.node_names
    return names[0] if names else "NODE"
