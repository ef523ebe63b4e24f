"""The dominant reason: one hand-made case for each reason, and two for each pair that is easily confused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from muster.answers.view import View
from muster.answers.why import Why, why
from muster.engine.config import Config
from muster.engine.scheduler import Scheduler
from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node, Taint, Topology
from muster.model.plan import PodPlacement
from muster.model.queue import Queue, Quota
from muster.model.reasons import Reason
from muster.model.snapshot import AdvanceReservation, Running, Snapshot
from muster.model.workload import PASSING, PodSet, PodShape, Toleration, TopologyRequest, Workload

NOW_S = 3600.0


def job(name: str, pods: int = 1, gpus: int = 8, **what: Any) -> Workload:
    """A job; fields of `PodShape` and of `Workload` may be mixed, ``least`` makes it elastic."""
    least = what.pop("least", None)
    shape = {key: what.pop(key) for key in list(what) if key in PodShape.__struct_fields__}
    shape.setdefault("cpu_milli", 1000)
    sets = (PodSet(PodShape(gpus=gpus, **shape), pods, least),)
    what.setdefault("submitted_s", NOW_S - 60)
    return Workload(name, sets, **what)


def nodes(
    count: int, gpus: int = 8, model: str = "H100", *, rack: int = 4, cpu_milli: int = 64_000, first: int = 0,
    **what: Any,
) -> list[Node]:  # fmt: skip
    """Nodes n00, n01, ... in racks r0, r1, ..."""
    devices = tuple(Device(index, model) for index in range(gpus))
    return [
        Node(f"n{at:02}", cpu_milli, 512 << 30, devices, topology=(f"r{at // rack}",), **what)
        for at in range(first, first + count)
    ]


def queue(name: str, nominal: int | None = None, parent: str = "org", flavor: str = "H100", **what: Any) -> Queue:
    """A queue with a quota in GPUs."""
    quotas = () if nominal is None else (Quota(flavor, 1000 * nominal, *(what.pop("limits", ()))),)
    return Queue(name, parent, quotas=quotas, **what)


def world(
    fleet: Sequence[Node], *, queues: Sequence[Queue] = (), runs: Sequence[Workload] = (),
    waits: Sequence[Workload] = (), edits: Mapping[str, Mapping[str, Any]] | None = None,
    reservations: Sequence[AdvanceReservation] = (), finished: Sequence[str] = (), **config: Any,
) -> View:  # fmt: skip
    """A view at NOW_S: ``runs`` were started by the scheduler itself, then nodes were edited, then ``waits`` came."""
    settings = Config(**config)
    scheduler = Scheduler(Snapshot(Fleet(tuple(fleet), Topology(("rack",))), tuple(queues)), settings)
    for workload in runs:
        scheduler.submit(replace(workload, submitted_s=0.0))
        scheduler.cycle(0.0)
        assert workload.name in scheduler.running, f"{workload.name} does not run"
    taken = scheduler.snapshot(NOW_S)
    edited = tuple(replace(node, **(edits or {}).get(node.name, {})) for node in taken.fleet.nodes)
    snapshot = replace(
        taken, fleet=replace(taken.fleet, nodes=edited), pending=tuple(waits), reservations=tuple(reservations),
        finished=tuple(finished),
    )  # fmt: skip
    return View(snapshot)


RACK = TopologyRequest(required="rack")
TAINTED: dict[str, Any] = {"taints": (Taint("dedicated", "ml"),)}
CORDONED: dict[str, Any] = {"schedulable": False, "reason": "driver update"}
ORG = queue("org", None, "")

CASES: dict[str, tuple[Callable[[], View], Reason, str]] = {
    # misconfigured
    "its queue is not there": (
        lambda: world(nodes(2), queues=[ORG, queue("research", 16)], waits=[job("a", queue="reserch")]),
        Reason.UNKNOWN_QUEUE, "did you mean research?",
    ),
    "its queue has no quota of the flavor": (
        lambda: world(
            [*nodes(2), *nodes(2, model="A100", first=2)], queues=[ORG, queue("research", 16)],
            waits=[job("a", queue="research", flavors=("A100",))],
        ),
        Reason.NO_FLAVOR, "has no quota of a flavor that it may use (A100)",
    ),
    "no node has the label": (
        lambda: world(nodes(2), waits=[job("a", node_selector=(("zone", "eu"),))]),
        Reason.SELECTOR, "zone=eu (0 nodes with it)",
    ),
    "other pods keep it off all nodes": (
        lambda: world(nodes(2), waits=[job("a", node_selector=((f"{PASSING}1", "nodes_with_no_pod_of_app_web"),))]),
        Reason.OTHER_PODS, "nodes with no pod of app web (0 nodes)",
    ),
    "all nodes are tainted": (
        lambda: world(nodes(2, **TAINTED), waits=[job("a")]), Reason.TAINT, "dedicated=ml:NoSchedule",
    ),
    "all nodes are cordoned": (
        lambda: world(nodes(2, **CORDONED), waits=[job("a")]), Reason.UNSCHEDULABLE, "driver update",
    ),
    "only spares would take it": (
        lambda: world(nodes(2, spare=True), waits=[job("a")]), Reason.SPARE, "2 nodes are kept as spares",
    ),
    # impossible
    "another GPU model": (
        lambda: world(nodes(2), waits=[job("a", gpu_models=("H200",))]), Reason.GPU_MODEL, "asks for H200",
    ),
    "more GPUs than a node has": (
        lambda: world(nodes(2), waits=[job("a", gpus=16)]), Reason.GPU_COUNT, "no node has more than 8",
    ),
    "more GPUs than are healthy": (
        lambda: world(
            nodes(2), waits=[job("a")],
            edits={name: {"devices": tuple(Device(each, "H100", healthy=each > 0) for each in range(8))}
                   for name in ("n00", "n01")},
        ),
        Reason.GPU_COUNT, "more than 7 (8 with those that are unhealthy)",
    ),
    "more CPU than a node has": (
        lambda: world(nodes(2), waits=[job("a", cpu_milli=65_000)]), Reason.CPU_TOTAL, "A pod asks for 65 CPU",
    ),
    "more memory than a node has": (
        lambda: world(nodes(2), waits=[job("a", memory_bytes=600 << 30)]),
        Reason.MEMORY_TOTAL, "A pod asks for 600 GiB",
    ),
    "a MIG slice where GPUs are not split": (
        lambda: world(
            nodes(2, model="H100-SXM5-80GB", sharing="none"),
            waits=[job("a", gpus=1, gpu_milli=125, mig_profile="1g.10gb")],
        ),
        Reason.SHARING_MODE, "asks for MIG 1g.10gb",
    ),
    "more pods than the empty fleet holds": (
        lambda: world(nodes(2), waits=[job("a", 3)]), Reason.NEVER_FITS, "there is room for 2",
    ),
    # over a limit
    "its user holds what one may": (
        lambda: world(
            nodes(4), queues=[ORG, queue("research", 32, max_running_milli=16_000)],
            runs=[job("r", 2, queue="research", user="ann")], waits=[job("a", queue="research", user="ann")],
        ),
        Reason.OVER_LIMIT, "ann holds 16 GPUs of the 16 GPUs",
    ),
    "more than its queue could ever borrow": (
        lambda: world(nodes(4), queues=[ORG, queue("research", 16)], waits=[job("a", 3, queue="research")]),
        Reason.OVER_QUOTA, "its queue could get 16 GPUs at most",
    ),
    # waiting
    "quota is used": (
        lambda: world(
            nodes(4), queues=[ORG, queue("research", 16)], runs=[job("r", 2, queue="research")],
            waits=[job("a", queue="research")],
        ),
        Reason.QUOTA, "research uses 16 GPUs of 16 GPUs nominal, and may use 0 GPUs more",
    ),
    "all GPUs are taken": (
        lambda: world(nodes(2), runs=[job("r", 2)], waits=[job("a")]), Reason.GPU_FREE, "0 GPUs are free",
    ),
    "GPUs are free, but not whole nodes": (
        lambda: world(nodes(2), runs=[job("r1", gpus=5), job("r2", gpus=5)], waits=[job("a", gpus=6)]),
        Reason.CAPACITY, "of 6 GPUs free there is room for 0 such pods",
    ),
    "parts of GPUs are free, but none of the size": (
        lambda: world(
            nodes(1, gpus=2), runs=[job("r1", gpus=1, gpu_milli=600), job("r2", gpus=1, gpu_milli=600)],
            waits=[job("a", gpus=1, gpu_milli=500)],
        ),
        Reason.GPU_SHAPE, "0.8 GPU are free in all",
    ),
    "CPU is taken": (
        lambda: world(nodes(1), runs=[job("r", gpus=1, cpu_milli=60_000)], waits=[job("a", gpus=1, cpu_milli=8000)]),
        Reason.CPU_FREE, "too little CPU beside them (a pod of 1 GPU asks for 8 CPU)",
    ),
    "memory is taken": (
        lambda: world(
            nodes(1), runs=[job("r", gpus=1, memory_bytes=500 << 30)],
            waits=[job("a", gpus=1, memory_bytes=100 << 30)],
        ),
        Reason.MEMORY_FREE, "asks for 100 GiB",
    ),
    "the kubelet takes no more pods": (
        lambda: world(nodes(1, max_pods=1), runs=[job("r", gpus=1)], waits=[job("a", gpus=1)]),
        Reason.POD_COUNT, "have as many pods as their kubelets take",
    ),
    "pods or GPUs: with any number of pods the GPUs would be too few": (
        lambda: world(nodes(1, max_pods=1), runs=[job("r", gpus=1)], waits=[job("a", gpus=8)]),
        Reason.GPU_FREE, "7 GPUs are free",
    ),
    "another tenant shares the GPUs": (
        lambda: world(
            nodes(1, gpus=1), runs=[job("r", gpus=1, gpu_milli=200, tenant="t1")],
            waits=[job("a", gpus=1, gpu_milli=200, tenant="t2")],
        ),
        Reason.GPU_SHARED, "other tenants",
    ),
    "no rack has room": (
        lambda: world(
            nodes(8), runs=[job("r1", 2, topology=RACK), job("r2", 3, topology=RACK)],
            waits=[job("a", 3, topology=RACK)],
        ),
        Reason.ONE_DOMAIN, "3 pods must stand in one rack",
    ),
    "not so far apart": (
        lambda: world(nodes(8), waits=[job("a", 6, topology=TopologyRequest(spread="rack", at_most=2))]),
        Reason.APART, "at most 2 on one rack",
    ),
    "a gang ahead has a reserved start": (
        lambda: world(
            nodes(2), runs=[job("r", time_limit_s=7200.0)],
            waits=[job("big", 2, submitted_s=100.0), job("a", submitted_s=200.0, time_limit_s=9e5)],
        ),
        Reason.RESERVED, "in the way of big",
    ),
    "nodes are reserved in advance": (
        lambda: world(
            nodes(1), waits=[job("a", time_limit_s=7200.0)],
            reservations=[AdvanceReservation("upgrade", NOW_S + 600, NOW_S + 4000, ("n00",))],
        ),
        Reason.RESERVED, "reservation upgrade",
    ),
    # gated
    "what it depends on has not finished": (
        lambda: world(nodes(2), runs=[job("r")], waits=[job("a", depends_on=("r", "gone"))]),
        Reason.DEPENDENCY, "r (runs) and gone (is not there",
    ),
    "it is held": (
        lambda: world(nodes(2), waits=[job("a", not_before_s=NOW_S + 1800)]), Reason.HELD, "held for 30 min more",
    ),
    "it is held by a gate": (
        lambda: world(nodes(2), waits=[job("a", not_before_s=math.inf)]),
        Reason.HELD, "held by a scheduling gate of its pods, by a volume claim of theirs that is not ready",
    ),
    # pairs that are easily confused, from both sides
    "quota or capacity: quota is left, nodes are full": (
        lambda: world(
            nodes(2), queues=[ORG, queue("research", 32), queue("other", 0)], runs=[job("r", 2, queue="research")],
            waits=[job("a", queue="research")],
        ),
        Reason.GPU_FREE, "0 GPUs of H100 are free",
    ),
    "quota or capacity: nodes are free, quota is not": (
        lambda: world(
            nodes(8), queues=[ORG, queue("research", 8)], runs=[job("r", queue="research")],
            waits=[job("a", queue="research")],
        ),
        Reason.QUOTA, "may use 0 GPUs more",
    ),
    "quota or capacity: both; quota is told first": (
        lambda: world(
            nodes(1), queues=[ORG, queue("research", 8)], runs=[job("r", queue="research")],
            waits=[job("a", queue="research")],
        ),
        Reason.QUOTA, "may use 0 GPUs more",
    ),
    "fragmentation or shortage: enough is free in all": (
        lambda: world(nodes(4), runs=[job(f"r{at}", gpus=5) for at in range(4)], waits=[job("a", gpus=8)]),
        Reason.CAPACITY, "of 12 GPUs free there is room for 0 such pods",
    ),
    "fragmentation or shortage: one GPU too few": (
        lambda: world(
            nodes(4), runs=[*(job(f"r{at}", gpus=6) for at in range(3)), job("r", gpus=7)], waits=[job("a", gpus=8)]
        ),
        Reason.GPU_FREE, "7 GPUs are free",
    ),
    "fragmentation or shortage: what is free on tainted nodes does not count": (
        lambda: world(
            nodes(3), runs=[job("r1", gpus=4), job("r2", 2, gpus=8)], waits=[job("a", gpus=8)],
            edits={"n02": TAINTED, "n01": TAINTED},
        ),
        Reason.GPU_FREE, "4 GPUs are free",
    ),
    "taint or health: the tainted node would do, the sick one is tainted too": (
        lambda: world(
            nodes(2), waits=[job("a")], edits={"n00": TAINTED, "n01": {**TAINTED, **CORDONED}},
        ),
        Reason.TAINT, "1 node is tainted",
    ),
    "taint or health: the cordoned node would do": (
        lambda: world(
            nodes(3), waits=[job("a", 2)],
            edits={"n00": {**TAINTED, **CORDONED}, "n01": CORDONED},
        ),
        Reason.UNSCHEDULABLE, "cordoned, drained or not ready",
    ),
    "taint or health: all are tainted, and without that they would be too few": (
        lambda: world(nodes(2, **TAINTED), waits=[job("a", 4, topology=RACK)]), Reason.TAINT, "2 nodes are tainted",
    ),
    "taint or health: it tolerates the taint, so it is health": (
        lambda: world(
            nodes(2), waits=[job("a", tolerations=(Toleration("dedicated", "Exists"),))],
            edits={"n00": {**TAINTED, **CORDONED}, "n01": {**TAINTED, **CORDONED}},
        ),
        Reason.UNSCHEDULABLE, "2 nodes are cordoned",
    ),
    "topology or count: as many nodes are free, in two racks": (
        lambda: world(nodes(8), runs=[job("r1", 2, topology=RACK), job("r2", 3, topology=RACK)], waits=[
            job("a", 3, topology=RACK)]),
        Reason.ONE_DOMAIN, "3 pods must stand in one rack",
    ),
    "topology or count: the rack is asked for, but all in all too little is free": (
        lambda: world(nodes(8), runs=[job("r", 6)], waits=[job("a", 3, topology=RACK)]),
        Reason.GPU_FREE, "16 GPUs are free",
    ),
    "topology or count: no rack is so large": (
        lambda: world(nodes(8), waits=[job("a", 5, topology=RACK)]), Reason.ONE_DOMAIN, "even if nothing else ran",
    ),
    "topology or count: the fleet is not so large": (
        lambda: world(nodes(8), waits=[job("a", 9, topology=RACK)]), Reason.NEVER_FITS, "there is room for 8",
    ),
}  # fmt: skip


def asked(view: View) -> Why:
    return why(view, "a")


@pytest.mark.parametrize("name", CASES)
def test_the_dominant_reason(name: str) -> None:
    make, reason, words = CASES[name]
    view = make()
    told = asked(view)
    assert told.state == "waits"
    assert (told.reason, words in told.blockers[0].text) == (reason, True), told.blockers[0].text
    counted(view, told)


def test_what_would_not_help_is_not_promised() -> None:
    few = world(nodes(2, **TAINTED), waits=[job("a", 4, topology=RACK)])
    enough = world(nodes(2, **TAINTED), waits=[job("a", 2, topology=RACK)])
    assert [each.blockers[0].text.startswith("Without the taints") for each in map(asked, (few, enough))] == [
        False,
        True,
    ]


def counted(view: View, told: Why) -> None:
    """The funnel adds up: each step keeps or loses each node that was left, and ends with those that take a pod."""
    for funnel in told.funnels:
        left = set(range(len(view.snapshot.fleet)))
        for step in funnel.steps:
            assert set(step.lost.tolist()) | set(step.rows.tolist()) == left
            assert not set(step.lost.tolist()) & set(step.rows.tolist())
            left = set(step.rows.tolist())
        assert funnel.usable_milli <= funnel.free_milli


def test_a_mig_slice_at_no_legal_start() -> None:
    """Instances of four slices begin at slice 0 only, where a small one stands."""
    small = job("r", gpus=1, gpu_milli=125, mig_profile="1g.10gb")
    large = job("a", gpus=1, gpu_milli=500, mig_profile="4g.40gb")
    view = world(nodes(1, gpus=1, model="H100-SXM5-80GB"), waits=[large])
    stands = Running(small, 0.0, (PodPlacement("n00", (0,), 125, "1g.10gb", 0),))
    told = asked(View(replace(view.snapshot, running=(stands,))))
    assert told.reason is Reason.MIG_START
    assert "not at a start" in told.blockers[0].text


def test_who_others_were_stopped_for_waits_until_they_have_gone() -> None:
    view = world(nodes(1), runs=[job("r")], waits=[job("a"), job("b")])
    leaves = tuple(replace(each, leaving_s=NOW_S + 30, leaving_for="a") for each in view.snapshot.running)
    view = View(replace(view.snapshot, running=leaves))
    assert (asked(view).reason, why(view, "b").reason) == (Reason.EVICTING, Reason.GPU_FREE)
    assert "stopped for it" in asked(view).blockers[0].text


def test_every_reason_has_its_case_and_its_sentence() -> None:
    told = {reason for _, reason, _ in CASES.values()}
    assert {reason for reason in Reason if reason not in told} <= {Reason.MIG_START, Reason.EVICTING}


def test_the_other_obstacles_are_told_too() -> None:
    view = world(
        nodes(3), queues=[ORG, queue("research", 8)], runs=[job("r", queue="research")],
        waits=[job("a", 3, queue="research", topology=RACK, not_before_s=NOW_S + 60)], edits={"n02": TAINTED},
    )  # fmt: skip
    told = asked(view)
    reasons = [each.reason for each in told.blockers]
    assert reasons == [Reason.TAINT, Reason.HELD, Reason.OVER_QUOTA]
    assert [each.first for each in told.blockers] == [True, False, False]


def test_a_job_that_runs_or_starts_now_has_no_obstacle() -> None:
    view = world(nodes(2), runs=[job("r")], waits=[job("a")])
    assert (why(view, "r").state, why(view, "a").state, asked(view).blockers) == ("runs", "starts", ())
    assert [pod.node for pod in why(view, "a").place.pods] == ["n01"]  # pyright: ignore[reportOptionalMemberAccess]


def test_names() -> None:
    view = world(nodes(1), queues=[queue("team", 8, "")], waits=[job("llama-70b", queue="team", namespace="ns")])
    assert view.find("team/llama-70b") == view.find("llama-70b") == view.find("ns/llama-70b")
    with pytest.raises(InputError, match="did you mean llama-70b"):
        view.find("llama-7b")
    with pytest.raises(InputError, match="llama-70b is in queue team"):
        view.find("other/llama-70b")
    kube = world(nodes(1), waits=[job("a/x", queue="q"), job("b/y", queue="q"), job("c/y", queue="q")])
    assert kube.find("x").workload.name == kube.find("q/x").workload.name == "a/x"
    with pytest.raises(InputError, match="there is no job 'y'"):
        kube.find("y")
    names = world(nodes(1), waits=[job("research/big", queue="q"), job("b/other", queue="q")])
    for asked in ("research/bigg", "bigg", "nope/bigg"):
        with pytest.raises(InputError, match=r"did you mean research/big\?"):
            names.find(asked)


def test_gangs_ahead_are_those_that_are_looked_at_before() -> None:
    work = [
        job(f"j{at}", 2, queue=f"q{at % 3}", user=f"u{at % 2}", priority=at % 4, submitted_s=float(at * 7 % 11))
        for at in range(24)
    ]
    queues = [queue("org", None, ""), *(queue(f"q{at}", 8 * at) for at in range(3))]
    scheduler = world(nodes(1), queues=queues, runs=[], waits=work).scheduler
    assert [scheduler.ahead_of(gang) for gang in scheduler.in_order()] == list(range(24))
