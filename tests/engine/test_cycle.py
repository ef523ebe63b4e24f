"""The scheduling cycle: scenarios that read like the specification, and invariants over random histories."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.config import Config
from muster.engine.decide import decide
from muster.engine.kernels.future import add_use
from muster.engine.scheduler import Scheduler
from muster.engine.state import Allocation
from muster.errors import InputError, StateError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.plan import Evict, Migrate, Place, Plan, Reserve, Resize, Wait
from muster.model.queue import Queue, Quota
from muster.model.reasons import Reason
from muster.model.snapshot import AdvanceReservation, Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, TopologyRequest, Workload


def fleet(nodes: int, gpus: int = 8, rack: int = 4) -> Fleet:
    devices = tuple(Device(index, "H100") for index in range(gpus))
    return Fleet(
        tuple(Node(f"n{i:02}", 64_000, 1 << 40, devices, topology=(f"r{i // rack}",)) for i in range(nodes)),
        Topology(("rack",)),
    )


def gang(
    name: str, pods: int, gpus: int = 8, submitted_s: float = 0.0, limit_s: float | None = 3600.0, **more: Any
) -> Workload:
    return Workload(
        name,
        (PodSet(PodShape(1000, 0, gpus), pods),),
        submitted_s=submitted_s,
        time_limit_s=limit_s,
        **more,
    )


def two_queues(nominal_gpus: int) -> tuple[Queue, ...]:
    quota = (Quota("H100", nominal_gpus * 1000),)
    return Queue("org"), Queue("a", parent="org", quotas=quota), Queue("b", parent="org", quotas=quota)


def told(plan: Plan) -> list[str]:
    """The plan in short: ``+a`` started, ``+a*`` backfilled, ``-a`` stopped, ``a@100`` reserved, ``a:QUOTA`` waits."""
    words: list[str] = []
    for each in plan.decisions:
        match each:
            case Place():
                words.append(f"+{each.workload}" + ("*" if each.backfilled else ""))
            case Evict():
                words.append(f"-{each.workload}")
            case Reserve():
                words.append(f"{each.workload}@{each.start_s:g}" + ("" if each.sure else "?"))
            case Wait():
                words.append(f"{each.workload}:{each.reason.name}")
            case _:
                words.append(str(each))
    return words


def check(scheduler: Scheduler) -> None:
    """What must hold after every step."""
    scheduler.cluster.state.validate(
        Allocation(node, shape, devices) for run in scheduler.running for node, shape, devices in run.rows.T.tolist()
    )
    cluster = scheduler.cluster
    for kind in scheduler.pending.kinds:
        for shape, count in (each for flavor in scheduler.flavors_of(kind) for each in cluster.counts_of(kind, flavor)):
            assert cluster.has_room(shape, count) == (cluster.count_room(shape, count) == count), "room is as counted"
    for run in scheduler.running:
        assert run.rows.shape[1] + len(run.missing) == run.kind.count, "a gang runs whole or not at all"
        assert all(map(int.__ge__, run.counts, (each.required for each in run.workload.pod_sets))), (
            "never below its least"
        )
    for slot in scheduler.slots.values():
        coming = slot.coming * 0
        for name in slot.waits_for:
            add_use(scheduler.running[name].rows, 1, slot.nodes, coming, scheduler.cluster.state.shapes)
        assert (coming == slot.coming).all(), "what will come is the sum of what it waits for"
    for queue in scheduler.queues:
        for flavor in scheduler.cluster.flavors:
            used = scheduler.quota.used(queue, flavor)
            held = sum(
                run.kind.milli
                for run in scheduler.running
                if run.flavor == flavor and queue in ancestors(scheduler, run.workload.queue)
            )
            assert used == held or queue == "org", "used is the sum of its parts"
            if queue == "org":
                assert held <= sum(each.nominal_milli for q in scheduler.queues.values() for each in q.quotas)


def ancestors(scheduler: Scheduler, queue: str) -> list[str]:
    path = [queue]
    while scheduler.queues[path[-1]].parent:
        path.append(scheduler.queues[path[-1]].parent)
    return path


RACK = TopologyRequest(required="rack")
BUSY = gang("busy", 6)
HEAD = gang("head", 8, submitted_s=1)

SCENARIOS: dict[str, tuple[list[Workload], dict[str, str], list[str]]] = {
    "two gangs that each need the whole fleet: one runs, one waits with a start": (
        [gang("a", 8), gang("b", 8, submitted_s=1)], {}, ["+a", "b@3610", "b:CAPACITY"],
    ),
    "small work runs past a gang that waits, if it ends before the reserved start": (
        [BUSY, HEAD, gang("short", 1, submitted_s=2, limit_s=600)], {},
        ["+busy", "head@3610", "+short*", "head:CAPACITY"],
    ),
    "and not if it would delay it": (
        [BUSY, HEAD, gang("long", 1, submitted_s=2, limit_s=7200)], {},
        ["+busy", "head@3610", "head:CAPACITY", "long:RESERVED"],
    ),
    "long work may use what the gang ahead will not need": (
        [BUSY, gang("head", 7, submitted_s=1), gang("long", 1, submitted_s=2, limit_s=7200)], {},
        ["+busy", "head@3610", "+long*", "head:CAPACITY"],
    ),
    "strict order lets nothing past": (
        [BUSY, HEAD, gang("short", 1, submitted_s=2, limit_s=600)], {"queueing": "strict"},
        ["+busy", "head:CAPACITY", "short:RESERVED"],
    ),
    "best effort lets everything past": (
        [BUSY, HEAD, gang("long", 2, submitted_s=2, limit_s=7200)], {"queueing": "best-effort"},
        ["+busy", "+long", "head:CAPACITY"],
    ),
    "priority goes first": (
        [gang("low", 8), gang("high", 8, submitted_s=1, priority=5)], {}, ["+high", "low@3610", "low:CAPACITY"],
    ),
    "what depends on others, or is held, waits and blocks nobody": (
        [gang("next", 8, depends_on=("first",)), gang("later", 8, not_before_s=99.0), gang("now", 8, submitted_s=5)],
        {},
        ["+now", "next:DEPENDENCY", "later:HELD"],
    ),
    "a gang that must stand in one rack waits while others have room": (
        [gang("two", 2, topology=TopologyRequest(spread="rack")),
         gang("rack", 4, submitted_s=1, topology=TopologyRequest(required="rack"))], {},
        ["+two", "rack@3610", "rack:ONE_DOMAIN"],
    ),
    "what never fits has no start, and blocks nobody": (
        [gang("huge", 9), gang("small", 1, submitted_s=1)], {}, ["+small", "huge:NEVER_FITS"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SCENARIOS)
def test_scenarios(name: str) -> None:
    pending, config, expected = SCENARIOS[name]
    snapshot = Snapshot(fleet(8), pending=tuple(pending))
    assert told(decide(snapshot, 10.0, msgspec.convert(config, Config))) == expected


def test_lent_quota_is_reclaimed_by_as_few_as_needed_and_the_plan_becomes_empty() -> None:
    scheduler = Scheduler(
        Snapshot(fleet(8), two_queues(32), pending=tuple(gang(f"a{i}", 2, queue="a") for i in range(4))), Config()
    )
    assert told(scheduler.cycle(0.0)) == ["+a0", "+a1", "+a2", "+a3"]
    scheduler.submit(gang("b", 3, queue="b", submitted_s=5))
    plan = scheduler.cycle(5.0)
    check(scheduler)
    assert told(plan) == ["-a0", "-a1", "+b"]
    assert dict(scheduler.waits(5.0)) == {"a0": Reason.QUOTA, "a1": Reason.QUOTA}
    assert told(scheduler.cycle(6.0)) == told(scheduler.cycle(7.0)) == []


def test_reclaim_looks_at_departments() -> None:
    quota = lambda gpus: (Quota("H100", gpus * 1000),)  # noqa: E731
    queues = (
        Queue("org"), Queue("research", parent="org"), Queue("llm", parent="research", quotas=quota(16)),
        Queue("vision", parent="research", quotas=quota(8)), Queue("product", parent="org"),
        Queue("ads", parent="product", quotas=quota(8)),
    )  # fmt: skip
    scheduler = Scheduler(Snapshot(fleet(4), queues), Config())
    for index in range(3):  # vision borrows, but from llm beside it: research stays within its 24
        scheduler.submit(gang(f"v{index}", 1, queue="vision"))
    scheduler.submit(gang("a", 1, queue="ads", submitted_s=1))
    assert told(scheduler.cycle(0.0)) == ["+v0", "+a", "+v1", "+v2"]
    scheduler.submit(gang("more", 1, queue="ads", submitted_s=2))
    assert told(scheduler.cycle(10.0)) == []
    scheduler.submit(gang("m", 2, queue="llm", submitted_s=3))
    assert told(scheduler.cycle(20.0)) == ["-v0", "-v1", "+m"]
    check(scheduler)


def test_a_team_reclaims_what_is_its_departments() -> None:
    quota = (Quota("H100", 16_000),)
    queues = (
        Queue("org"), Queue("research", parent="org", quotas=quota), Queue("llm", parent="research"),
        Queue("ads", parent="org", quotas=quota),
    )  # fmt: skip
    work = tuple(gang(f"d{index}", 1, queue="ads") for index in range(4))
    scheduler = Scheduler(Snapshot(fleet(4), queues, pending=work), Config())
    scheduler.cycle(0.0)
    scheduler.submit(gang("m", 1, queue="llm", submitted_s=1))
    assert told(scheduler.cycle(10.0)) == ["-d0", "+m"]


def test_each_gang_of_a_kind_has_a_reserved_start_of_its_own() -> None:
    work = (
        gang("a", 4),
        gang("b", 3, submitted_s=1),
        gang("c", 3, submitted_s=2),
        gang("d", 2, submitted_s=3, limit_s=9e4),
    )
    plan = decide(Snapshot(fleet(4), pending=work), 0.0, Config(reservations=8))
    assert told(plan)[:4] == ["+a", "b@3600", "c@7200", "d@10800"]


def test_victims_are_those_that_lose_least() -> None:
    saved, unsaved = Checkpointing(600.0, 60.0), None
    work = (
        gang("unsaved", 4, queue="a", checkpointing=unsaved),
        gang("saved", 4, queue="a", submitted_s=1, checkpointing=saved),
    )
    scheduler = Scheduler(Snapshot(fleet(8), two_queues(32), pending=work), Config())
    scheduler.cycle(0.0)
    scheduler.running["saved"].checkpointed_s = 990.0
    scheduler.submit(gang("b", 4, queue="b", submitted_s=1000))
    plan = scheduler.cycle(1000.0)
    assert told(plan) == ["-saved", "+b"]
    (evict,) = (each for each in plan.decisions if isinstance(each, Evict))
    assert evict.lost_gpu_s == (10 + 60) * 32


def test_nobody_is_stopped_unless_the_gang_then_starts() -> None:
    pinned = gang("pinned", 1, gpus=1, queue="a", preemptible=False)
    work = (pinned, *(gang(f"a{i}", 1, queue="a", submitted_s=1) for i in range(7)))
    scheduler = Scheduler(Snapshot(fleet(8), two_queues(64), pending=work), Config())
    scheduler.cycle(0.0)
    scheduler.submit(gang("all", 8, queue="b", submitted_s=2))
    assert told(scheduler.cycle(10.0))[0].startswith("all@")


def test_maintenance_keeps_work_off_that_would_run_into_it() -> None:
    window = AdvanceReservation("fabric", 1000.0, 5000.0, tuple(f"n{i:02}" for i in range(4)))
    work = (gang("long", 6, limit_s=7200), gang("short", 6, submitted_s=1, limit_s=900))
    plan = decide(Snapshot(fleet(8), pending=work, reservations=(window,)), 0.0, Config(queueing="best-effort"))
    assert told(plan) == ["+short", "long:CAPACITY"]


@pytest.mark.parametrize(
    ("limit_s", "mine", "starts_s"),
    [
        (400, (), 500.0),  # it ends before the nodes are kept
        (600, (), 5000.0),  # it would run into that: after it
        (600, ("big",), 500.0),  # they are kept for it
    ],
)
def test_a_reserved_start_leaves_alone_what_is_kept_for_others(
    limit_s: float, mine: tuple[str, ...], starts_s: float
) -> None:
    window = AdvanceReservation("fabric", 1000.0, 5000.0, ("n00", "n01"), workloads=mine)
    scheduler = Scheduler(Snapshot(fleet(4), pending=(gang("runs", 4, limit_s=500),), reservations=(window,)), Config())
    assert told(scheduler.cycle(0.0)) == ["+runs"]
    scheduler.submit(gang("big", 4, submitted_s=1, limit_s=limit_s))
    scheduler.submit(gang("next", 2, submitted_s=2, limit_s=900))
    starts = {each.workload: each.start_s for each in scheduler.cycle(1.0).decisions if isinstance(each, Reserve)}
    assert starts["big"] == starts_s
    check(scheduler)


def test_a_big_gang_waits_no_longer_than_its_reserved_start_under_a_stream_of_small_work() -> None:
    scheduler = Scheduler(Snapshot(fleet(8), pending=(gang("first", 1, limit_s=3600),)), Config())
    scheduler.cycle(0.0)
    scheduler.submit(gang("big", 8, submitted_s=1))
    ends: list[tuple[float, str]] = [(3600.0, "first")]
    started: float | None = None
    for step in range(1, 400):
        now_s = step * 20.0
        for end_s, name in sorted(ends):
            if end_s <= now_s:
                scheduler.finish(name, now_s)
                ends.remove((end_s, name))
        scheduler.submit(gang(f"small{step}", 1, submitted_s=now_s, limit_s=1500))
        for each in scheduler.cycle(now_s).decisions:
            if isinstance(each, Place):
                if each.workload == "big":
                    started = now_s
                ends.append((now_s + (1500 if each.workload.startswith("small") else 3600), each.workload))
        check(scheduler)
        if started is not None:
            break
    assert started == 3600.0


def test_names_are_unique_and_requests_make_sense() -> None:
    scheduler = Scheduler(Snapshot(fleet(2), pending=(gang("a", 1),)), Config())
    with pytest.raises(StateError):
        scheduler.submit(gang("a", 1))
    with pytest.raises(InputError, match="required"):
        scheduler.submit(gang("b", 1, topology=TopologyRequest(required="aisle")))
    with pytest.raises(InputError, match="min_count"):
        scheduler.submit(Workload("c", (PodSet(PodShape(gpus=1), 2, 3),)))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    queueing=st.sampled_from(["backfill", "strict", "best-effort"]),
    with_queues=st.booleans(),
)
def test_invariants_over_random_histories(seed: int, queueing: str, with_queues: bool) -> None:
    rng = random.Random(seed)
    queues = two_queues(16) if with_queues else ()
    scheduler = Scheduler(Snapshot(fleet(4), queues), Config(queueing=queueing, reservations=rng.choice((1, 3))))  # pyright: ignore[reportArgumentType]
    now_s, number = 0.0, 0
    for _ in range(40):
        now_s += rng.choice((0.0, 60.0, 900.0))
        for _ in range(rng.randrange(3)):
            number += 1
            scheduler.submit(
                gang(
                    f"j{number}", rng.choice((1, 1, 2, 4)), rng.choice((1, 2, 4, 8)), now_s,
                    rng.choice((300.0, 3600.0, None)),
                    queue=rng.choice("ab") if with_queues else "", priority=rng.choice((0, 0, 1)),
                    topology=rng.choice((None, TopologyRequest(required="rack"))),
                )
            )  # fmt: skip
        if rng.random() < 0.5 and len(scheduler.running):
            scheduler.finish(rng.choice(sorted(run.workload.name for run in scheduler.running)), now_s)
        scheduler.cycle(now_s)
        check(scheduler)
        plans = [told(scheduler.cycle(now_s)) for _ in range(4)]
        assert plans[-1] == [], "with nothing new the plan becomes empty"
        if queueing != "backfill":
            again = decide(scheduler.snapshot(now_s), now_s, scheduler.config)
            assert not [each for each in told(again) if each[0] in "+-"], "what was kept between cycles hid nothing"


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), reservations=st.sampled_from([1, 2, 8]))
def test_a_reserved_start_never_slips_while_work_ends_by_its_limit(seed: int, reservations: int) -> None:
    rng = random.Random(seed)
    scheduler = Scheduler(Snapshot(fleet(4)), Config(reservations=reservations))
    ends: dict[str, float] = {}
    promised: dict[str, float] = {}
    work: list[Workload] = []
    submitted_s = 0.0
    for number in range(40):
        submitted_s += rng.choice((0.0, 30.0, 400.0))
        shape = rng.choice((1, 1, 2, 3, 4)), rng.choice((1, 2, 4, 8))
        work.append(gang(f"j{number:02}", *shape, submitted_s, rng.choice((300.0, 3600.0))))
    while work or ends:
        now_s = min([each.submitted_s for each in work[:1]] + list(ends.values()))
        for name in [name for name, end_s in ends.items() if end_s == now_s]:
            scheduler.finish(name, now_s)
            del ends[name]
        while work and work[0].submitted_s == now_s:
            scheduler.submit(work.pop(0))
        for each in scheduler.cycle(now_s).decisions:
            if isinstance(each, Place):
                assert now_s <= promised.get(each.workload, now_s), "it starts no later than it was told"
                limit_s = scheduler.running[each.workload].limit_s - now_s
                ends[each.workload] = now_s + rng.choice((1.0, 0.5, 0.1)) * limit_s
        for name, slot in scheduler.slots.items():
            assert slot.start_s <= promised.get(name, slot.start_s)
            promised[name] = slot.start_s
        check(scheduler)
    assert not len(scheduler.pending)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), with_queues=st.booleans())
def test_elastic_gangs_and_failing_nodes_over_random_histories(seed: int, with_queues: bool) -> None:
    rng = random.Random(seed)
    nodes = fleet(6, rack=3).nodes
    spares = tuple(msgspec.structs.replace(node, spare=node.name == "n02") for node in nodes)
    config = Config(grow_every_s=0.0 if seed % 2 else 300.0, reservations=rng.choice((1, 4)), quarantine_failures=2)
    queues = two_queues(24) if with_queues else ()
    scheduler = Scheduler(Snapshot(Fleet(spares, Topology(("rack",))), queues), config)
    now_s = 0.0
    for number in range(50):
        now_s += rng.choice((0.0, 60.0, 900.0))
        for _ in range(rng.randrange(2)):
            pods = rng.choice((1, 2, 3, 4))
            work = gang(
                f"j{number}", pods, rng.choice((2, 4, 8)), now_s, rng.choice((900.0, 3600.0, None)),
                queue=rng.choice("ab") if with_queues else "", priority=rng.choice((0, 0, 1)),
                topology=rng.choice((None, RACK, TopologyRequest(required="rack", segment=2))),
                checkpointing=rng.choice((None, Checkpointing(300.0, 60.0))),
            )  # fmt: skip
            sets = (msgspec.structs.replace(work.pod_sets[0], min_count=rng.randint(1, pods)),)
            scheduler.submit(msgspec.structs.replace(work, pod_sets=sets))
        names = sorted(run.workload.name for run in scheduler.running)
        node = rng.choice(scheduler.cluster.fleet.nodes)
        match rng.randrange(6):
            case 0 if names:
                scheduler.finish(rng.choice(names), now_s)
            case 1 if names:
                scheduler.fail(rng.choice(names), now_s, node.name)
            case 2:
                scheduler.set_node(msgspec.structs.replace(node, schedulable=False), now_s, lost=rng.random() < 0.7)
            case 3:
                sick = tuple(
                    msgspec.structs.replace(each, healthy=each.healthy and rng.random() < 0.8) for each in node.devices
                )
                scheduler.set_node(msgspec.structs.replace(node, devices=sick), now_s)
            case 4:
                scheduler.set_node(nodes[0] if rng.random() < 0.5 else spares[int(node.name[1:])], now_s)
            case _:
                pass
        again = Scheduler(scheduler.snapshot(now_s), config)
        assert again.snapshot(now_s) == scheduler.snapshot(now_s), "a snapshot holds all"
        plan = scheduler.cycle(now_s)
        check(scheduler)
        for each in plan.decisions:
            if isinstance(each, Place | Migrate | Resize) and each.workload in scheduler.running:
                run = scheduler.running[each.workload]
                for pod in each.pods if scheduler.cluster.places(run.rows) == each.pods else ():
                    stands = scheduler.cluster.fleet.nodes[scheduler.cluster.position[pod.node]]
                    assert stands.schedulable or not isinstance(each, Place), "nothing starts on a node that is down"
                    assert all(stands.devices[index].healthy for index in pod.devices)
                    assert not (stands.spare and isinstance(each, Place)), "spares are for replacements"
        plans = [told(scheduler.cycle(now_s)) for _ in range(5)]
        assert plans[-1] == [], "with nothing new the plan becomes empty"
