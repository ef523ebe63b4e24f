"""What sleeps in columns is told as if all of it were awake, whatever is asked, entered and taken out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.ahead import names_ahead
from muster.engine.config import Config
from muster.engine.pending import Gang
from muster.engine.scheduler import Scheduler
from muster.errors import StateError
from muster.model.columns import Table
from muster.model.fleet import Device, Fleet, Node
from muster.model.queue import Queue, Quota
from muster.model.snapshot import Snapshot, decode_snapshot, encode_snapshot
from muster.model.workload import PodSet, PodShape, TopologyRequest, Workload

NODES = tuple(Node(f"n{at}", 64_000, 1 << 40, tuple(Device(index, "H100") for index in range(8))) for at in range(3))
QUEUES = (
    Queue("org"),
    Queue("a", parent="org", quotas=(Quota("H100", 8000),)),
    Queue("b", parent="org", quotas=(Quota("H100", 16_000),), max_priority=1),
)
SHAPES = (
    (PodSet(PodShape(1000, 0, 1)),),
    (PodSet(PodShape(1000, 0, 8), 2),),
    (PodSet(PodShape(2000, 0, 8), 2),),
    (PodSet(PodShape(1000, 0, 4), 4, min_count=2),),
    (PodSet(PodShape(8000)),),
)


@st.composite
def work(draw: st.DrawFn) -> tuple[Workload, ...]:
    """Some work, often alike and often submitted at the same time."""
    names = draw(st.lists(st.sampled_from([f"j{at}" for at in range(40)]), unique=True, max_size=14))
    return tuple(
        Workload(
            name,
            draw(st.sampled_from(SHAPES)),
            submitted_s=float(draw(st.integers(0, 2))),
            time_limit_s=draw(st.sampled_from((None, 60.0))),
            queue=draw(st.sampled_from(("a", "b", "nowhere"))),
            user=draw(st.sampled_from(("", "ann"))),
            priority=draw(st.integers(-1, 2)),
            topology=draw(st.sampled_from((None, TopologyRequest(required="host")))),
            not_before_s=draw(st.sampled_from((0.0, 1.0))),
            failures=draw(st.integers(0, 1)),
            start_deadline_s=draw(st.sampled_from((None, 50.0))),
        )
        for name in names
    )


def schedulers(pending: Sequence[Workload], queues: tuple[Queue, ...]) -> tuple[Scheduler, Scheduler, Scheduler]:
    """What waits asleep, the same read from a file, and all of it awake: submitted one by one."""
    snapshot = Snapshot(Fleet(NODES), queues, tuple(pending), taken_s=5.0)
    read = decode_snapshot(encode_snapshot(snapshot))
    awake = Scheduler(Snapshot(Fleet(NODES), queues, taken_s=5.0), Config())
    for workload in pending:
        awake.submit(workload)
    return Scheduler(snapshot, Config()), Scheduler(read, Config()), awake


def name_of(gang: Gang | None) -> str | None:
    return None if gang is None else gang.workload.name


def told(scheduler: Scheduler) -> list[object]:
    """All that can be asked of what waits."""
    pending = scheduler.pending
    asked: list[object] = [list(pending.gangs), len(pending), pending.highest_priority, list(pending.claims)]
    asked.append([kind.asked for kind in pending.kinds])
    for claim in list(pending.claims):
        asked += [pending.least(claim), name_of(pending.first(claim))]
        for milli in (0, 1000, 8000, 1 << 62):
            gang = pending.next_within(claim, None, milli)
            while gang is not None:
                asked.append((milli, gang.workload))
                gang = pending.next_within(claim, gang, milli)
    asked.append([gang.workload.name for gang in pending] == list(pending.gangs))
    for gang in list(pending):
        asked += [gang.workload, gang.order, scheduler.ahead_of(gang), list(names_ahead(scheduler, gang))]
        asked.append([[each.workload.name for each in some] for some in scheduler.groups_ahead(gang)])
    return asked


@settings(deadline=None)
@given(work(), st.booleans(), st.data())
def test_what_sleeps_is_told_as_if_it_were_awake(
    pending: tuple[Workload, ...], quotas: bool, data: st.DataObject
) -> None:
    some = schedulers(pending, QUEUES if quotas else ())
    *asleep, awake = some
    for _ in range(3):
        assert [told(each) for each in asleep] == [told(awake)] * 2
        names = list(awake.pending.gangs)
        if names and data.draw(st.booleans()):
            name = data.draw(st.sampled_from(names))
            workload = awake.pending.gangs[name].workload
            for each in some:
                each.cancel(name)
                if len(name) % 2:  # it comes again, and then is the last one
                    each.submit(workload)
        if data.draw(st.booleans()):
            new = Workload(f"new{len(names)}", SHAPES[0], submitted_s=1.0, queue="a")
            for each in some:
                if new.name not in each.pending.gangs:
                    each.submit(new)
    for claim in list(awake.pending.claims):
        groups = [
            [(kind.asked, [gang.workload for gang in gangs]) for kind, gangs in each.pending.of_claim(claim).items()]
            for each in some
        ]
        assert groups[0] == groups[1] == groups[2]
    assert asleep[0].snapshot(5.0) == asleep[1].snapshot(5.0) == awake.snapshot(5.0)


@settings(deadline=None)
@given(work(), st.booleans())
def test_a_twin_wakes_what_it_changes_and_the_other_sleeps_on(pending: tuple[Workload, ...], quotas: bool) -> None:
    asleep, read, awake = schedulers(pending, QUEUES if quotas else ())
    for each in (asleep, read):
        before = told(each)
        with each.trial() as twin:
            plan = twin.cycle(5.0)
            assert plan == awake_plan(awake)
            for name in list(twin.pending.gangs):
                twin.cancel(name)
            assert (len(twin.pending), list(twin.pending.claims), dict(twin.pending.kinds)) == (0, [], {})
        assert told(each) == before
        assert all(gang.reason is None for gang in each.pending)
        assert each.cycle(5.0) == plan


def awake_plan(awake: Scheduler) -> object:
    with awake.trial() as twin:
        return twin.cycle(5.0)


def test_two_of_one_name_are_refused() -> None:
    twice = (Workload("j", SHAPES[0]), Workload("k", SHAPES[0]), Workload("j", SHAPES[1]))
    with pytest.raises(StateError, match="workload j is there already"):
        Scheduler(Snapshot(Fleet(NODES), pending=twice), Config())


@settings(deadline=None)
@given(work(), work())
def test_a_table_is_the_tuple_of_its_items(pending: tuple[Workload, ...], more: tuple[Workload, ...]) -> None:
    def read() -> Table[Workload]:
        found = decode_snapshot(encode_snapshot(Snapshot(Fleet(()), pending=pending))).pending
        return cast("Table[Workload]", found)

    table = read()
    assert (table, hash(table), len(table)) == (pending, hash(pending), len(pending))
    assert [read()[at] for at in range(len(pending))] == list(pending)
    longer = read().followed_by(more)
    assert (longer, longer[-1:]) == ((*pending, *more), (*pending, *more)[-1:])
    for at, each in enumerate(longer):
        assert longer[at] is each
