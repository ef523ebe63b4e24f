"""What makes several pods, and which gangs they are: JobSet, LeaderWorkerSet, Kubeflow, Ray, Volcano, KAI, Kueue."""

from __future__ import annotations

from typing import Any

from muster.kube.translate import Seen, Translation
from muster.model.workload import TopologyRequest, Workload

from .objects import node, pod, thing, translated

TEMPLATE = "{spec: {containers: [{name: c, resources: {limits: {cpu: 1, memory: 1Gi, nvidia.com/gpu: 8}}}]}}"


def work(found: Translation, name: str) -> Workload:
    return found.seen[name].workload


def sets(work: Workload) -> list[tuple[str, int, int | None, int]]:
    return [(each.role, each.count, each.min_count, each.shape.gpus) for each in work.pod_sets]


def names(seen: Seen) -> list[str]:
    return [ref.name for ref in seen.refs]


JOB_SET = f"""
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {{name: js, namespace: ns}}
spec:
  replicatedJobs:
  - {{name: driver, replicas: 1, template: {{spec: {{parallelism: 1, completions: 1, template: {TEMPLATE}}}}}}}
  - {{name: workers, replicas: 2, template: {{spec: {{parallelism: 2, completions: 2, template: {TEMPLATE}}}}}}}
"""


def of_job_set(role: str, job: int, index: int) -> dict[str, Any]:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "js",
        "jobset.sigs.k8s.io/replicatedjob-name": role,
        "jobset.sigs.k8s.io/job-index": str(job),
        "batch.kubernetes.io/job-completion-index": str(index),
        "batch.kubernetes.io/job-name": f"js-{role}-{job}",
    }
    return pod(f"js-{role}-{job}-{index}", 8, labels=labels, owner=f"Job/js-{role}-{job}")


def test_a_job_set_is_one_gang_with_a_pod_set_for_each_replicated_job() -> None:
    pods = [of_job_set("workers", job, at) for job in (1, 0) for at in (1, 0)]
    found = translated(node("n1"), thing(JOB_SET), *pods, of_job_set("driver", 0, 0))
    assert sets(work(found, "ns/js")) == [("driver", 1, None, 8), ("workers", 4, None, 8)]
    assert names(found.seen["ns/js"])[1:] == [f"js-workers-{job}-{at}" for job in (0, 1) for at in (0, 1)]


def test_a_role_of_which_no_pod_is_there_yet_is_told_by_its_template() -> None:
    found = translated(node("n1"), thing(JOB_SET), of_job_set("driver", 0, 0))
    assert sets(work(found, "ns/js")) == [("driver", 1, None, 8), ("workers", 4, None, 8)]
    assert found.seen["ns/js"].absent == 4


def test_jobs_of_an_exclusive_job_set_have_a_domain_each() -> None:
    job_set = thing(JOB_SET.replace("name: js,", "name: js, annotations: {alpha.jobset.sigs.k8s.io/exclusive-topology: "
                                    "topology.kubernetes.io/zone},"))  # fmt: skip
    job_set["spec"]["replicatedJobs"] = job_set["spec"]["replicatedJobs"][1:]
    zones = {"topology.kubernetes.io/zone": "z"}
    pods = [of_job_set("workers", job, at) for job in (0, 1) for at in (0, 1)]
    found = translated(node("n1", labels=zones), job_set, *pods)
    assert work(found, "ns/js").topology == TopologyRequest("zone", segment=2, spread="zone", at_most=2)


def test_each_group_of_a_leader_worker_set_is_a_gang() -> None:
    def of_group(group: int, worker: int) -> dict[str, Any]:
        labels = {
            "leaderworkerset.sigs.k8s.io/name": "llm",
            "leaderworkerset.sigs.k8s.io/group-index": str(group),
            "leaderworkerset.sigs.k8s.io/worker-index": str(worker),
        }
        return pod(f"llm-{group}-{worker}", 8, labels=labels, annotations={"leaderworkerset.sigs.k8s.io/size": "2"})

    found = translated(node("n1"), of_group(0, 1), of_group(0, 0), of_group(1, 0))
    assert sets(work(found, "ns/llm-0")) == [("leader", 1, None, 8), ("workers", 1, None, 8)]
    assert names(found.seen["ns/llm-0"]) == ["llm-0-0", "llm-0-1"]
    assert found.seen["ns/llm-1"].absent == 1


def test_a_training_job_of_kubeflow() -> None:
    job = thing(f"""
      apiVersion: kubeflow.org/v1
      kind: PyTorchJob
      metadata: {{name: pt, namespace: ns}}
      spec:
        runPolicy: {{schedulingPolicy: {{minAvailable: 3}}}}
        pytorchReplicaSpecs:
          Worker: {{replicas: 3, template: {TEMPLATE}}}
          Master: {{replicas: 1, template: {TEMPLATE}}}
    """)

    def of_job(role: str, index: int) -> dict[str, Any]:
        labels = {f"training.kubeflow.org/{key}": value for key, value in
                  {"job-name": "pt", "replica-type": role, "replica-index": str(index)}.items()}  # fmt: skip
        return pod(f"pt-{role}-{index}", 8, labels=labels, owner="PyTorchJob/pt")

    found = translated(node("n1"), job, *(of_job("worker", at) for at in range(3)), of_job("master", 0))
    assert sets(work(found, "ns/pt")) == [("master", 1, None, 8), ("worker", 3, 2, 8)]
    assert names(found.seen["ns/pt"])[0] == "pt-master-0"


def test_a_ray_cluster_with_the_autoscaler_may_run_with_its_least_workers() -> None:
    cluster = thing(f"""
      apiVersion: ray.io/v1
      kind: RayCluster
      metadata: {{name: ray, namespace: ns}}
      spec:
        enableInTreeAutoscaling: true
        headGroupSpec: {{template: {TEMPLATE}}}
        workerGroupSpecs: [{{groupName: gpu, replicas: 3, minReplicas: 1, template: {TEMPLATE}}}]
    """)
    labels = {"ray.io/cluster": "ray"}
    head = pod("ray-head", 0, labels=labels | {"ray.io/node-type": "head", "ray.io/group": "headgroup"})
    worker = pod("ray-gpu-x", 8, labels=labels | {"ray.io/node-type": "worker", "ray.io/group": "gpu"})
    found = translated(node("n1"), cluster, worker, head)
    assert sets(work(found, "ns/ray")) == [("head", 1, None, 0), ("gpu", 3, 1, 8)]
    assert found.seen["ns/ray"].absent == 2


def test_a_volcano_job_with_its_pod_group() -> None:
    job = thing(f"""
      apiVersion: batch.volcano.sh/v1alpha1
      kind: Job
      metadata: {{name: vj, namespace: ns}}
      spec: {{queue: team, tasks: [{{name: w, replicas: 3, template: {TEMPLATE}}}]}}
    """)
    group = thing("""
      apiVersion: scheduling.volcano.sh/v1beta1
      kind: PodGroup
      metadata: {name: vj-uid, namespace: ns}
      spec: {minMember: 2, queue: team}
    """)
    queue = thing("""
      apiVersion: scheduling.volcano.sh/v1beta1
      kind: Queue
      metadata: {name: team}
      spec: {weight: 2, capability: {nvidia.com/gpu: 6}}
    """)
    pods = [
        pod(f"vj-w-{at}", 2, labels={"volcano.sh/job-name": "vj"},
            annotations={"volcano.sh/task-spec": "w", "volcano.sh/task-index": str(at),
                         "scheduling.k8s.io/group-name": "vj-uid"})
        for at in range(3)
    ]  # fmt: skip
    found = translated(node("n1"), job, group, queue, *pods)
    assert sets(work(found, "ns/vj")) == [("w", 3, 2, 2)]
    assert work(found, "ns/vj").queue == "team"
    limits = {queue.name: [(each.nominal_milli, each.borrowing_limit_milli) for each in queue.quotas]
              for queue in found.snapshot.queues}  # fmt: skip
    assert limits == {"volcano": [(8000, None)], "team": [(0, 6000)]}


def test_a_pod_group_of_kai_with_subgroups() -> None:
    group = thing("""
      apiVersion: scheduling.run.ai/v2alpha2
      kind: PodGroup
      metadata: {name: pg, namespace: ns}
      spec:
        minMember: 3
        queue: lab
        subGroups: [{name: decode, minMember: 1}, {name: prefill, minMember: 2}]
    """)
    queues = [
        thing("{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: org}, "
              "spec: {resources: {gpu: {quota: 6, limit: -1, overQuotaWeight: 2}}}}"),
        thing("{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: lab}, "
              "spec: {parentQueue: org, resources: {gpu: {quota: 4, limit: 5, overQuotaWeight: 3}}}}"),
    ]  # fmt: skip
    note = {"pod-group-name": "pg"}
    pods = [
        pod(name, 1, annotations=note, labels={"kai.scheduler/subgroup-name": role})
        for name, role in (("d-0", "decode"), ("d-1", "decode"), ("p-0", "prefill"), ("p-1", "prefill"))
    ]
    found = translated(node("n1"), group, *queues, *pods)
    assert sets(work(found, "ns/pg")) == [("decode", 2, 1, 1), ("prefill", 2, None, 1)]
    assert {queue.name: (queue.parent, queue.weight) for queue in found.snapshot.queues} == {
        "kai": ("", 1.0), "org": ("kai", 2.0), "lab": ("org", 3.0),
    }  # fmt: skip
    assert work(found, "ns/pg").queue == "lab"


def test_a_workload_of_kubernetes_1_35() -> None:
    old = thing("""
      apiVersion: scheduling.k8s.io/v1alpha1
      kind: Workload
      metadata: {name: w, namespace: ns}
      spec: {podGroups: [{name: a, policy: {gang: {minCount: 2}}}]}
    """)
    spec = {"workloadRef": {"name": "w", "podGroup": "a", "podGroupReplicaKey": "0"}}
    found = translated(node("n1"), old, pod("p-0", 8, spec=spec))
    assert (found.seen["ns/w-a-0"].absent, work(found, "ns/w-a-0").pods) == (1, 2)


KUEUE = """
{apiVersion: kueue.x-k8s.io/v1beta2, kind: Workload, metadata: {name: job-train-1, namespace: ns,
  creationTimestamp: "2025-12-31T20:00:00Z",
  ownerReferences: [{apiVersion: batch/v1, kind: Job, name: train, uid: u, controller: true}]},
 spec: {queueName: lq, priority: 5, podSets: [{name: main, count: 4, template: TEMPLATE,
   topologyRequest: {preferred: topology.kubernetes.io/zone}}]}}
""".replace("TEMPLATE", TEMPLATE)
LOCAL = """
{apiVersion: kueue.x-k8s.io/v1beta2, kind: LocalQueue, metadata: {name: lq, namespace: ns}, spec: {clusterQueue: cq}}
"""
CLUSTER = "{apiVersion: kueue.x-k8s.io/v1beta2, kind: ClusterQueue, metadata: {name: cq}, spec: {resourceGroups: []}}"
SUSPENDED = (
    "{apiVersion: batch/v1, kind: Job, metadata: {name: train, namespace: ns}, spec: {suspend: true, parallelism: 4}}"
)


def test_a_job_that_kueue_holds_waits_in_its_queue_though_it_has_no_pods() -> None:
    zones = {"topology.kubernetes.io/zone": "z1"}
    found = translated(node("n1", labels=zones), *map(thing, (SUSPENDED, KUEUE, LOCAL, CLUSTER)))
    (waits,) = found.snapshot.pending
    assert (waits.name, waits.queue, waits.priority, waits.not_before_s) == ("ns/train", "cq", 5, 0.0)
    assert (sets(waits), found.seen["ns/train"].absent) == ([("main", 4, None, 8)], 4)
    assert waits.topology == TopologyRequest(preferred="zone")


def test_a_job_that_nobody_holds_and_that_is_suspended_does_not_wait() -> None:
    assert translated(node("n1"), thing(SUSPENDED)).snapshot.pending == ()


def test_a_workload_of_kueue_that_was_deactivated_is_held() -> None:
    off = thing(KUEUE)
    off["spec"]["active"] = False
    assert translated(node("n1"), off, thing(LOCAL), thing(CLUSTER)).seen["ns/train"].gates == ("deactivated",)
    stopped = thing(CLUSTER)
    stopped["spec"]["stopPolicy"] = "Hold"
    assert translated(node("n1"), thing(KUEUE), thing(LOCAL), stopped).seen["ns/train"].gates == ("stopPolicy",)


def test_plain_pods_of_a_group_of_kueue() -> None:
    def in_group(name: str) -> dict[str, Any]:
        labels = {"kueue.x-k8s.io/pod-group-name": "grp", "kueue.x-k8s.io/queue-name": "lq"}
        return pod(name, 8, labels=labels, annotations={"kueue.x-k8s.io/pod-group-total-count": "3"})

    found = translated(node("n1"), thing(LOCAL), thing(CLUSTER), in_group("a"), in_group("b"))
    assert (work(found, "ns/grp").pods, found.seen["ns/grp"].absent, work(found, "ns/grp").queue) == (3, 1, "cq")


def test_who_may_not_be_stopped() -> None:
    budget = thing("""
      apiVersion: policy/v1
      kind: PodDisruptionBudget
      metadata: {name: b, namespace: ns}
      spec: {selector: {matchLabels: {app: db}}}
      status: {disruptionsAllowed: 0}
    """)
    found = translated(
        node("n1"), budget, pod("db", 0, "n1", labels={"app": "db"}), pod("web", 0, "n1", labels={"app": "web"}),
        pod("agent", 0, "n1", owner="DaemonSet/agent"),
    )  # fmt: skip
    assert {name: seen.workload.preemptible for name, seen in found.seen.items()} == {
        "ns/db": False, "ns/web": True, "ns/agent": False,
    }  # fmt: skip
