"""Pods of each kind of owner, and the gangs that they are."""

from __future__ import annotations

import math
from typing import Any

import pytest

from muster.kube.translate import Seen, Translator

from .objects import NOW_S, node, pod, thing, translated, world

JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train, namespace: ns, creationTimestamp: "2025-12-31T22:00:00Z"}
spec: {parallelism: 3, completions: 3, activeDeadlineSeconds: 7200}
"""
GROUP = """
apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: g, namespace: ns}
spec:
  schedulingPolicy: {gang: {minCount: 3}}
  schedulingConstraints: {topology: [{key: topology.kubernetes.io/zone}]}
  priority: 7
"""


def of_job(index: int, **more: Any) -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/job-completion-index": str(index)}
    return pod(f"train-{index}-x", 8, labels=labels, owner="Job/train", **more)


def in_group(name: str, **more: Any) -> dict[str, Any]:
    return pod(name, 8, spec={"schedulingGroup": {"podGroupName": "g"}}, **more)


def names(seen: Seen) -> list[str]:
    return [ref.name for ref in seen.refs]


def test_a_pod_is_a_gang_by_itself() -> None:
    found = translated(node("n1"), pod("a", 2), pod("b", 4, "n1"), pod("web-7f", owner="ReplicaSet/web-7"))
    assert [each.name for each in found.snapshot.pending] == ["ns/a", "ns/web-7f"]
    (run,) = found.snapshot.running
    assert (run.workload.name, run.pods[0].node, run.pods[0].devices) == ("ns/b", "n1", (0, 1, 2, 3))
    assert found.notes == ()


def test_pods_of_an_indexed_job_are_ranks_in_order_of_their_index() -> None:
    found = translated(node("n1"), thing(JOB), of_job(2), of_job(0), of_job(1))
    (work,) = found.snapshot.pending
    assert (work.name, [each.count for each in work.pod_sets]) == ("ns/train", [3])
    assert (work.time_limit_s, work.submitted_s) == (7200.0, 1_767_218_400.0)
    assert names(found.seen["ns/train"]) == ["train-0-x", "train-1-x", "train-2-x"]


def test_pods_of_a_job_that_are_not_there_yet_are_absent_at_their_ranks() -> None:
    seen = translated(node("n1"), thing(JOB), of_job(2), of_job(0)).seen["ns/train"]
    assert (seen.absent, seen.workload.pods, names(seen)) == (1, 3, ["train-0-x", "", "train-2-x"])


def test_a_gang_of_which_some_pods_are_bound_runs_with_ranks_missing() -> None:
    found = translated(node("n1"), node("n2"), thing(JOB), of_job(0, on="n1"), of_job(1), of_job(2, on="n2"))
    assert found.snapshot.pending == ()
    (run,) = found.snapshot.running
    assert (run.workload.pods, run.missing) == (3, (1,))
    assert [place.node for place in run.pods] == ["n1", "n2"]


def test_pods_that_have_finished_count_no_more() -> None:
    done = of_job(0, on="n1", status={"phase": "Succeeded"})
    job = thing(JOB) | {"status": {"succeeded": 1}}
    (run,) = translated(node("n1"), node("n2"), job, done, of_job(1, on="n1"), of_job(2, on="n2")).snapshot.running
    assert (run.workload.pods, [place.node for place in run.pods]) == (2, ["n1", "n2"])


def test_pods_that_have_finished_count_no_more_before_their_job_says_so() -> None:
    done = of_job(0, on="n1", status={"phase": "Succeeded"})
    (run,) = translated(
        node("n1"), node("n2"), thing(JOB), done, of_job(1, on="n1"), of_job(2, on="n2")
    ).snapshot.running
    assert (run.workload.pods, run.missing) == (2, ())


def test_pods_of_a_job_with_more_completions_than_pods_are_replaced() -> None:
    done = of_job(0, on="n1", status={"phase": "Succeeded"})
    job = thing(JOB)
    job["spec"]["completions"] = 9
    (run,) = translated(node("n1"), node("n2"), job, done, of_job(1, on="n1"), of_job(2, on="n2")).snapshot.running
    assert (run.workload.pods, len(run.missing)) == (3, 1)


def test_a_native_pod_group() -> None:
    zones = {"topology.kubernetes.io/zone": "z1"}
    found = translated(node("n1", labels=zones), thing(GROUP), *map(in_group, ("p-10", "p-2", "p-1", "p-3")))
    (work,) = found.snapshot.pending
    assert work.name == "ns/g"
    assert [(each.count, each.min_count) for each in work.pod_sets] == [(4, 3)]
    assert (work.topology and work.topology.required, work.priority) == ("zone", 7)
    assert names(found.seen["ns/g"]) == ["p-1", "p-2", "p-3", "p-10"]


def test_a_native_pod_group_waits_for_as_many_pods_as_it_needs() -> None:
    seen = translated(node("n1"), thing(GROUP), in_group("p-1")).seen["ns/g"]
    assert (seen.absent, seen.workload.pods, names(seen)) == (2, 3, ["p-1", "", ""])


def test_a_pod_group_by_label() -> None:
    group = thing("""
      apiVersion: scheduling.x-k8s.io/v1alpha1
      kind: PodGroup
      metadata: {name: g, namespace: ns}
      spec: {minMember: 2}
    """)
    labels = {"scheduling.x-k8s.io/pod-group": "g"}
    found = translated(node("n1"), group, pod("a", 8, labels=labels), pod("b", 8, labels=labels))
    (work,) = found.snapshot.pending
    assert (work.name, work.pods, work.elastic) == ("ns/g", 2, False)


def test_what_is_deleted_holds_its_room_until_it_has_gone() -> None:
    gone = {"deletionTimestamp": "2026-01-01T00:00:30Z"}
    found = translated(
        node("n1"), node("n2"), thing(JOB), of_job(0, on="n1", metadata=gone), of_job(1, on="n2"), of_job(2),
        pod("alone", 1, "n3", metadata=gone), pod("never-bound", 1, metadata=gone),
        node("n3"), pod("next", 8, status={"nominatedNodeName": "n3"}),
    )  # fmt: skip
    leaving = {run.workload.name: (run.leaving_s, run.leaving_for) for run in found.snapshot.running if run.leaving_s}
    assert leaving == {"ns/train-0-x": (1_767_225_630.0, ""), "ns/alone": (1_767_225_630.0, "ns/next")}
    (job,) = [run for run in found.snapshot.running if run.workload.name == "ns/train"]
    assert (job.missing, found.seen["ns/train"].absent) == ((0, 2), 1)
    assert [each.name for each in found.snapshot.pending] == ["ns/next"]


def test_a_gang_that_goes_as_a_whole_leaves_as_a_whole() -> None:
    gone = {"deletionTimestamp": "2026-01-01T00:00:30Z"}
    pods = [of_job(at, on=f"n{at}", metadata=gone) for at in range(3)]
    (run,) = translated(*(node(f"n{at}") for at in range(3)), thing(JOB), *pods).snapshot.running
    assert (run.workload.name, run.leaving_s, run.missing) == ("ns/train", 1_767_225_630.0, ())


@pytest.mark.parametrize(
    ("spec", "gates"),
    [
        ({"schedulingGates": [{"name": "example.com/wait"}]}, ("example.com/wait",)),
        ({"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, ()),
    ],
)
def test_scheduling_gates_hold_a_pod_but_those_of_kueue_are_its_queue(
    spec: dict[str, Any], gates: tuple[str, ...]
) -> None:
    found = translated(node("n1"), pod("a", 1, spec=spec))
    assert found.seen["ns/a"].gates == gates
    assert found.snapshot.pending[0].not_before_s == (math.inf if gates else 0.0)


def test_only_the_pods_of_a_scheduler_wait_for_it() -> None:
    pods = [pod("mine", 1, spec={"schedulerName": "muster"}), pod("other", 1), pod("runs", 1, "n1")]
    found = translated(node("n1"), *pods, schedulers=frozenset({"muster"}))
    assert [each.name for each in found.snapshot.pending] == ["ns/mine"]
    assert [each.workload.name for each in found.snapshot.running] == ["ns/runs"]


def test_things_of_one_name_are_told_apart() -> None:
    found = translated(node("n1"), thing(JOB), of_job(0), pod("train", 1))
    assert set(found.seen) == {"ns/train", "ns/train.pod"}


def test_what_is_not_counted_is_noted_each_time() -> None:
    ports: dict[str, Any] = {"containers": [{"resources": {}, "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    group = thing(GROUP)
    group["spec"]["parentCompositePodGroupName"] = "whole"
    things = [group, in_group("p-0"), pod("a", spec=ports), pod("b", spec=ports | {"preemptionPolicy": "Never"})]
    translator = Translator(world(node("n1"), *things))
    first, again = translator.translate(NOW_S).notes, translator.translate(NOW_S).notes
    assert first == again
    assert {(each.kind, each.name, each.field, each.count) for each in first} == {
        ("PodGroup", "ns/g", "spec.parentCompositePodGroupName", 1),
        ("PodGroup", "ns/g", "topology", 1),
        ("Pod", "ns/a", "spec.containers.ports", 2),
        ("Pod", "ns/b", "spec.preemptionPolicy", 1),
    }


@pytest.mark.parametrize(
    "annotations",
    [
        {"kueue.x-k8s.io/podset-required-topology": "example.com/room"},
        {"kai.scheduler/topology-required-placement": "example.com/room"},
        {"kueue.x-k8s.io/podset-slice-required-topology": "example.com/room", "kueue.x-k8s.io/podset-slice-size": "1"},
    ],
)
def test_what_requires_a_level_that_is_not_known_is_not_placed_as_if_it_did_not(annotations: dict[str, str]) -> None:
    there = node("n1", labels={"example.com/room": "r1", "topology.kubernetes.io/zone": "z1"})
    found = translated(there, pod("a", 1, metadata={"annotations": annotations}))
    assert found.seen["ns/a"].gates == ("no topology level example.com/room",)
    assert found.snapshot.pending[0].not_before_s == math.inf
    (note,) = found.notes
    assert "example.com/room, which is no level of the topology here (topology.kubernetes.io/zone" in note.text
    assert note.text.endswith(": it does not start")


def test_a_group_that_requires_a_level_that_is_not_known_is_held_and_one_that_prefers_it_is_not() -> None:
    group = thing(GROUP.replace("topology.kubernetes.io/zone", "example.com/room"))
    held = translated(node("n1"), group, *map(in_group, ("p-1", "p-2", "p-3"))).seen["ns/g"]
    assert held.gates == ("no topology level example.com/room",)
    likes = {"kueue.x-k8s.io/podset-preferred-topology": "example.com/room"}
    found = translated(node("n1"), pod("a", 1, metadata={"annotations": likes}))
    assert (found.seen["ns/a"].gates, len(found.notes)) == ((), 1)
