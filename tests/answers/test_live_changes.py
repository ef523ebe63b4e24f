"""Changes as writes of the API: what each becomes, as the kubectl command that it is, and what is refused."""

from __future__ import annotations

import json
import shlex

import pytest
from tests.kube.objects import NOW_S, node, pod, world

from muster.answers.changes import AddNodes, Change, EndReservation, Move, SetJob, SetNodes, SetQuota, Stop
from muster.answers.live import Reading
from muster.answers.live_changes import JSON_PATCH, writes_of
from muster.kube.translate import Translator
from muster.model.snapshot import PodPlacement

JOB, SET = "batch.kubernetes.io/job-name", "jobset.sigs.k8s.io/jobset-name"


@pytest.fixture(scope="module")
def reading() -> Reading:
    """A Job `train` of two pods, a JobSet `grid`, a pod `bare`, one of a ReplicaSet, and nodes with taints."""
    taints = [
        {"key": key, "effect": "NoSchedule"} for key in ("first", "dedicated", "other", "dedicated", "muster.dev/spare")
    ]
    there = world(
        node("a"), node("b", unschedulable=True), node("c", taints=taints),
        pod("train-0", 8, labels={JOB: "train"}, owner="Job/train"),
        pod("train-1", 8, labels={JOB: "train"}, owner="Job/train"),
        pod("grid-x-0-0", 4, on="a", labels={SET: "grid"}, owner="Job/grid-x-0"),
        pod("bare", 1, on="a"), pod("web-1", 1, on="a", owner="ReplicaSet/web"),
    )  # fmt: skip
    found = Translator(there).translate(NOW_S)
    return Reading(found.snapshot, (), there, found.seen)


def evict(name: str) -> str:
    body = (
        f'{{"apiVersion":"policy/v1","kind":"Eviction","metadata":{{"name":"{name}","namespace":"ns"}},'
        f'"deleteOptions":{{"preconditions":{{"uid":"uid-{name}"}}}}}}'
    )
    return f"echo '{body}' | kubectl create --raw /api/v1/namespaces/ns/pods/{name}/eviction -f -"


def patch(what: str, body: str, form: str = "merge") -> str:
    return f"kubectl {what} --type {form} -p '{body}'"


SPARE = [
    patch("patch nodes c", '{"metadata":{"labels":{"muster.dev/spare":null}}}'),
    patch(
        "patch nodes c",
        '[{"op":"test","path":"/spec/taints/4/key","value":"muster.dev/spare"},{"op":"remove","path":"/spec/taints/4"}]',
        "json",
    ),
]
DEDICATED = patch(
    "patch nodes c",
    '[{"op":"test","path":"/spec/taints/3/key","value":"dedicated"},{"op":"remove","path":"/spec/taints/3"},'
    '{"op":"test","path":"/spec/taints/1/key","value":"dedicated"},{"op":"remove","path":"/spec/taints/1"}]',
    "json",
)

WRITES: dict[str, tuple[Change, list[str], list[str]]] = {
    "a Job is suspended, and goes on later": (
        Stop("ns/train"),
        [patch("-n ns patch jobs.batch train", '{"spec":{"suspend":true}}')],
        [patch("-n ns patch jobs.batch train", '{"spec":{"suspend":false}}')],
    ),
    "so is a JobSet": (
        Stop("ns/grid"),
        [patch("-n ns patch jobsets.jobset.x-k8s.io grid", '{"spec":{"suspend":true}}')],
        [patch("-n ns patch jobsets.jobset.x-k8s.io grid", '{"spec":{"suspend":false}}')],
    ),
    "a bare pod is evicted": (Stop("ns/bare"), [evict("bare")], []),
    "one that is made anew, too": (Stop("ns/web-1"), [evict("web-1")], []),
    "uncordon": (SetNodes(("b",), "uncordon"), [patch("patch nodes b", '{"spec":{"unschedulable":null}}')], []),
    "a taint, wherever it is": (SetNodes(("c",), "untaint", "dedicated"), [DEDICATED], []),
    "a spare node": (SetNodes(("c",), "unspare"), SPARE, []),
    "another queue": (
        SetJob("ns/train", queue="prod"),
        [patch("-n ns patch jobs.batch train", '{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":"prod"}}}')], [],
    ),
    "released": (
        SetJob("ns/train", released=True), [patch("-n ns patch jobs.batch train", '{"spec":{"suspend":false}}')], []
    ),
    "a limit": (
        SetJob("ns/train", limit_s=3600.0),
        [patch("-n ns patch jobs.batch train", '{"spec":{"activeDeadlineSeconds":3600}}')], [],
    ),
    "another level, and taints borne": (
        SetJob("ns/train", topology="block", tolerate=("dedicated",)),
        [patch(
            "-n ns patch jobs.batch train",
            '{"spec":{"template":{"metadata":{"annotations":{"kueue.x-k8s.io/podset-required-topology":'
            '"cloud.provider.com/topology-block"}},"spec":{"tolerations":[{"key":"dedicated","operator":"Exists"}]}}}}',
        )], [],
    ),
    "no level, any node": (
        SetJob("ns/train", topology="", selector=()),
        [patch(
            "-n ns patch jobs.batch train",
            '{"spec":{"template":{"metadata":{"annotations":{"kueue.x-k8s.io/podset-required-topology":null}},'
            '"spec":{"nodeSelector":null}}}}',
        )], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("change", "now", "later"), WRITES.values(), ids=WRITES)
def test_writes(reading: Reading, change: Change, now: list[str], later: list[str]) -> None:
    found = writes_of([change], reading)
    assert found.refused == ()
    assert [write.command for write in found.now] == now
    assert [write.command for write in found.later] == later


REFUSED: dict[str, tuple[Change, str]] = {
    "fewer pods": (SetJob("ns/train", pods=(1,)), "job ns/train pods=1: pods keep what they were made with: submit it"),
    "a priority": (SetJob("ns/train", priority=7), "job ns/train priority=7: pods keep what they were made with"),
    "a JobSet's limit": (SetJob("ns/grid", limit_s=60.0), "job ns/grid limit=1m: of a JobSet that is done where it is"),
    "one that is gone": (Stop("ns/gone"), "stop ns/gone: it has no pods any more"),
    "a move": (Move("ns/bare", (PodPlacement("b", (0,)),)), "where its pods start again is for their scheduler to say"),
    "a quota": (SetQuota("prod", "H100", 8000), "quotas are changed where they are defined"),
    "new nodes": (AddNodes(2, "a"), "nodes are added by whoever provides them"),
    "repair": (SetNodes(("a",), "repair"), "that needs hands"),
    "a reservation": (EndReservation("upkeep"), "Kubernetes has no reservations"),
}


@pytest.mark.parametrize(("change", "expected"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(reading: Reading, change: Change, expected: str) -> None:
    found = writes_of([change], reading)
    assert found.now == found.later == ()
    assert len(found.refused) == 1
    assert expected in found.refused[0]


def test_all_taints_of_a_node_go_at_once(reading: Reading) -> None:
    """Their places shift when one goes, so that a second write would miss."""
    changes = [
        SetNodes(("b",), "uncordon"), SetNodes(("c",), "untaint", "other"), SetNodes(("c",), "untaint", "first"),
    ]  # fmt: skip
    found = writes_of(changes, reading)
    assert [write.name for write in found.now] == ["b", "c"]
    assert [step["path"] for step in found.now[1].body if step["op"] == "remove"] == [
        "/spec/taints/2",
        "/spec/taints/0",
    ]
    assert found.now[1].done == "node c loses the taints other and first"
    assert found.now[1].content_type == JSON_PATCH


def test_what_is_said_of_a_pod_that_nothing_makes_anew(reading: Reading) -> None:
    assert writes_of([Stop("ns/bare")], reading).now[0].done.endswith("and is gone: nothing makes it anew")
    assert writes_of([Stop("ns/web-1")], reading).now[0].done == "pod ns/web-1 is evicted"


def test_a_command_is_one_word_of_the_shell_a_value(reading: Reading) -> None:
    for change in (Stop("ns/train"), SetNodes(("c",), "untaint", "dedicated")):
        write = writes_of([change], reading).now[0]
        words = shlex.split(write.command)
        assert json.loads(words[-1]) == write.body
