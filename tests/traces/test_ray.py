"""KubeRay's objects as gangs: who is counted, with what, and what is told of mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InputError
from muster.model.workload import PodShape, Workload
from muster.traces import read_workload

CLUSTER = """\
apiVersion: ray.io/v1
kind: RayCluster
metadata:
  name: llm
  namespace: research
  labels:
    kueue.x-k8s.io/queue-name: gpu
spec:
  rayVersion: 2.46.0
  headGroupSpec:
    rayStartParams: {}
    template:
      spec:
        containers:
        - name: ray-head
          resources:
            limits: {cpu: 4, memory: 16Gi}
            requests: {cpu: 2}
  workerGroupSpecs:
  - groupName: gpu-group
    replicas: 4
    minReplicas: 2
    maxReplicas: 8
    template:
      spec:
        nodeSelector: {pool: h100}
        containers:
        - name: ray-worker
          resources:
            limits: {nvidia.com/gpu: 8, cpu: 32, memory: 200Gi}
"""
JOB = """\
apiVersion: ray.io/v1
kind: RayJob
metadata: {name: tune}
spec:
  entrypoint: python tune.py
  activeDeadlineSeconds: 3600
  rayClusterSpec:
    headGroupSpec:
      template: {spec: {containers: [{name: h, resources: {requests: {cpu: 1, memory: 4Gi}}}]}}
    workerGroupSpecs: []
"""


def read(tmp_path: Path, text: str) -> tuple[list[Workload], list[str]]:
    path = tmp_path / "ray.yaml"
    path.write_text(text)
    trace = read_workload(f"ray:{path}")
    return list(trace.workloads), [str(each).replace(f"{path}:", "") for each in trace.skipped]


def sets_of(workload: Workload) -> list[tuple[str, int, int | None, int, int, int]]:
    """Role, pods, least, and of a pod milli CPU, MiB and GPUs."""
    return [
        (each.role, each.count, each.min_count, each.shape.cpu_milli, each.shape.memory_bytes >> 20, each.shape.gpus)
        for each in workload.pod_sets
    ]


WORKERS = ("gpu-group", 4, None, 32_000, 200 << 10, 8)


def test_a_cluster_without_autoscaler(tmp_path: Path) -> None:
    (cluster,), skipped = read(tmp_path, CLUSTER)
    assert (cluster.name, cluster.queue, cluster.namespace) == ("research/llm", "gpu", "research")
    # requests before limits; the memory is that of the limits
    assert sets_of(cluster) == [("head", 1, None, 2000, 16 << 10, 0), WORKERS]
    assert cluster.gpu_milli == 32_000
    assert cluster.pod_sets[1].shape.node_selector == (("pool", "h100"),)
    assert not skipped


def test_the_autoscaler_is_counted_and_makes_groups_elastic(tmp_path: Path) -> None:
    text = CLUSTER.replace("spec:\n  rayVersion", "spec:\n  enableInTreeAutoscaling: true\n  rayVersion")
    (cluster,), _ = read(tmp_path, text)
    assert sets_of(cluster) == [("head", 1, None, 2500, (16 << 10) + 512, 0), ("gpu-group", 4, 2, *WORKERS[3:])]
    given = "  autoscalerOptions: {resources: {requests: {cpu: 200m}, limits: {cpu: 1, memory: 1Gi}}}\n  rayVersion"
    (cluster,), _ = read(tmp_path, text.replace("  rayVersion", given))
    assert sets_of(cluster)[0] == ("head", 1, None, 2200, 17 << 10, 0)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("replicas: 1", (2, None)),  # never below minReplicas
        ("replicas: 9", (8, None)),  # nor above maxReplicas
        ("replicas: null", (2, None)),
        ("replicas: 4\n    numOfHosts: 4", (16, None)),
    ],
)
def test_replicas(tmp_path: Path, change: str, expected: tuple[int, int | None]) -> None:
    (cluster,), _ = read(tmp_path, CLUSTER.replace("replicas: 4", change))
    assert (cluster.pod_sets[1].count, cluster.pod_sets[1].min_count) == expected


def test_part_of_a_replica_of_several_hosts_is_of_no_use(tmp_path: Path) -> None:
    text = CLUSTER.replace("spec:\n  rayVersion", "spec:\n  enableInTreeAutoscaling: true\n  rayVersion")
    (cluster,), _ = read(tmp_path, text.replace("replicas: 4", "replicas: 4\n    numOfHosts: 2"))
    assert (cluster.pod_sets[1].count, cluster.pod_sets[1].min_count) == (8, None)


def test_a_suspended_group_has_no_pods(tmp_path: Path) -> None:
    (cluster,), _ = read(tmp_path, CLUSTER.replace("groupName: gpu-group", "groupName: gpu-group\n    suspend: true"))
    assert [each.role for each in cluster.pod_sets] == ["head"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("", [("head", 1, None, 1000, 4096, 0), ("submitter", 1, None, 500, 200, 0)]),
        ("submissionMode: SidecarMode", [("head", 1, None, 1500, 4296, 0)]),
        ("submissionMode: HTTPMode", [("head", 1, None, 1000, 4096, 0)]),
        ("submitterPodTemplate: {spec: {containers: [{resources: {requests: {cpu: 2}}}]}}",
         [("head", 1, None, 1000, 4096, 0), ("submitter", 1, None, 2000, 0, 0)]),
    ],
)  # fmt: skip
def test_what_submits_a_job(tmp_path: Path, mode: str, expected: list[object]) -> None:
    (job,), _ = read(tmp_path, JOB.replace("  entrypoint", f"  {mode}\n  entrypoint"))
    assert sets_of(job) == expected
    assert job.time_limit_s == 3600


def test_each_pod_has_one_owner(tmp_path: Path) -> None:
    """What a RayJob makes, what another system manages, and what runs in a cluster of its own is not counted again."""
    made = CLUSTER.replace("  name: llm", "  name: tune-x\n  ownerReferences: [{kind: RayJob, name: tune}]")
    elsewhere = CLUSTER.replace("spec:\n  ray", "spec:\n  managedBy: kueue.x-k8s.io/multikueue\n  ray")
    held = JOB.replace("tune}", "held}").replace("spec:\n  entry", "spec:\n  suspend: true\n  entry")
    inside = JOB.replace("tune}", "inside}").replace("  entry", "  clusterSelector: {ray.io/cluster: llm}\n  entry")
    other = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n"
    workloads, skipped = read(tmp_path, "---\n".join([JOB, made, elsewhere, held, inside, other]))
    assert [each.name for each in workloads] == ["tune"]
    assert [each.split(": ", 2)[-1] for each in skipped] == [
        "tune-x belongs to RayJob tune, which is admitted with all that it makes",
        "llm is managed by kueue.x-k8s.io/multikueue, which admits it",
        "held is suspended, and no label kueue.x-k8s.io/queue-name says for which queue it waits",
        "inside runs in a cluster that is there already and is admitted with that",
        "is a Service, not one of RayCluster, RayJob, RayService",
    ]
    assert skipped[0].startswith("12: field 'metadata.ownerReferences'")


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("name: llm", "name: ''", ":4: field 'metadata.name': is missing or empty"),
        ("replicas: 4", "replicas: four", ":21: field 'spec.workerGroupSpecs[0].replicas': must be a whole number"),
        ("replicas: 4", "replicas: -4", ":21: field 'spec.workerGroupSpecs[0].replicas': is -4; 0 or more"),
        ("minReplicas: 2", "minReplicas: 9", ":22: field 'spec.workerGroupSpecs[0].minReplicas': is 9, and maxRep"),
        ("cpu: 32", "cpu: lots", "field 'spec.workerGroupSpecs[0].template.spec.containers.resources': cpu 'lots' is"),
        ("  headGroupSpec:", "  head:", ":8: field 'spec.headGroupSpec': is missing"),
        ("spec:\n  ray", "spec: 3\nx:\n  ray", ":8: field 'spec': must be a mapping"),
        (CLUSTER, "", "is empty"),
        (CLUSTER, "- 1", "does not hold a mapping"),
    ],
)
def test_mistakes(tmp_path: Path, before: str, after: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, CLUSTER.replace(before, after))
    assert told in str(caught.value)


def test_two_of_a_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'research/llm' is the name of another object"):
        read(tmp_path, f"{CLUSTER}---\n{CLUSTER}")


def test_shapes_are_those_of_the_dump_reader(tmp_path: Path) -> None:
    """Init containers, native sidecars and overhead count as Kubernetes counts them."""
    spec = (
        "{overhead: {cpu: 100m}, initContainers: [{restartPolicy: Always, resources: {requests: {cpu: 1}}},"
        " {resources: {requests: {cpu: 5}}}], containers: [{resources: {requests: {cpu: 2}}}]}"
    )
    (job,), _ = read(
        tmp_path, JOB.replace("{containers: [{name: h, resources: {requests: {cpu: 1, memory: 4Gi}}}]}", spec)
    )
    assert job.pod_sets[0].shape == PodShape(6100)


def test_a_list_of_kubectl(tmp_path: Path) -> None:
    """As `kubectl get rayclusters,rayjobs -o yaml` writes it; lines are those of the file."""
    items = "".join("- " + text.rstrip("\n").replace("\n", "\n  ") + "\n" for text in (CLUSTER, JOB))
    text = f"apiVersion: v1\nkind: List\nitems:\n{items}"
    workloads, skipped = read(tmp_path, text)
    assert [each.name for each in workloads] == ["research/llm", "tune"]
    assert not skipped
    with pytest.raises(InputError, match=r"ray\.yaml:24: field 'spec\.workerGroupSpecs\[0\]\.replicas': is -1"):
        read(tmp_path, text.replace("replicas: 4", "replicas: -1"))
    with pytest.raises(InputError, match=r":4: field 'items\[0\]': must be a mapping"):
        read(tmp_path, "kind: List\nitems:\n\n- 3\n")
