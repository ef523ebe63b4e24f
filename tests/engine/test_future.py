"""Slots: what the kept future finds is what a plain search finds, and what is held keeps every promise."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.engine.cluster import Hold
from muster.engine.config import Config
from muster.engine.future import Future, Kept
from muster.engine.pending import Gang
from muster.engine.scheduler import Scheduler
from muster.engine.timeline import Slot
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.plan import Evict, Place, Reserve
from muster.model.reasons import Reason
from muster.model.snapshot import AdvanceReservation, Snapshot
from muster.model.workload import PodSet, PodShape, TopologyRequest, Workload


def fleet() -> Fleet:
    """Nodes of two sizes in two racks, and one without GPUs; some may have only so many pods."""
    sizes = (4, 4, 2, 4, 0, 2)
    return Fleet(
        tuple(
            Node(
                f"n{index}", 8000, 64, tuple(Device(device, "H100") for device in range(gpus)),
                topology=(f"r{index // 3}",), max_pods=(0, 3, 0, 2, 4, 2)[index],
            )
            for index, gpus in enumerate(sizes)
        ),
        Topology(("rack",)),
    )  # fmt: skip


def random_gang(rng: random.Random, number: int, now_s: float, priorities: Sequence[int], *, one_set: bool) -> Workload:
    """A gang of one or two pod sets; ``one_set``: of one, which is placed wherever its pods can be counted to fit."""
    shapes = [
        PodShape(1000, 8, 1), PodShape(2000, 8, 2), PodShape(1000, 8, 4), PodShape(500, 4, 1, 500), PodShape(3000, 16),
        PodShape(1000, 60, 1), PodShape(500, 4, 2, 300),
    ]  # fmt: skip
    count = 1 if one_set else rng.choice((1, 1, 1, 2))
    sets = tuple(PodSet(rng.choice(shapes[: 6 if one_set else 7]), rng.choice((1, 1, 2, 3))) for _ in range(count))
    return Workload(
        f"j{number:03}", sets, submitted_s=now_s, time_limit_s=rng.choice((100.0, 350.0, 1000.0)),
        priority=rng.choice(priorities), topology=rng.choice((None, None, TopologyRequest(required="rack"))),
    )  # fmt: skip


def plain_earliest(
    scheduler: Scheduler, future: Future, gang: Gang, flavor: str, now_s: float, others: Sequence[Slot], until_s: float
) -> tuple[float, list[int]] | None:
    """Each time at which something ends: release what has ended, hold what others will need, try."""
    cluster, running = scheduler.cluster, scheduler.running
    lasts_s = running.expected_s(gang.workload)
    ends = [(future.ends_s(run), run) for run in running]
    assert all(end_s == run.limit_s or run.limit_s <= now_s < end_s for end_s, run in ends)
    limit_s = gang.workload.time_limit_s or math.inf
    kept = [each for each in scheduler.reservations if gang.workload.name not in each.workloads]
    times = {now_s, *(end_s for end_s, _ in ends), *(slot.end_s for slot in others), *(each.end_s for each in kept)}
    for start_s in sorted(times):
        if not now_s <= start_s <= until_s:
            continue
        for end_s, run in ends:
            if end_s <= start_s:
                cluster.give_back(run.rows)
        starts = [slot.start_s for slot in others if start_s < slot.start_s < start_s + lasts_s]
        free = free_now(scheduler)
        least = free.copy()
        for time_s in [start_s, *starts]:
            at_time = free.copy()
            for end_s, run in ends:
                if start_s < end_s <= time_s:
                    use(scheduler, at_time, run.rows, 1)
            for slot in others:
                if slot.start_s <= time_s < slot.end_s:
                    use(scheduler, at_time, slot.rows, -1)
            least = np.minimum(least, at_time)
        for each in kept:
            if each.start_s < start_s + limit_s and start_s < each.end_s:
                least[[cluster.position[name] for name in each.nodes]] = 0
        with cluster.holding(Hold(np.arange(len(free)), np.maximum(0, free - least))):
            placed = cluster.place(gang.kind.least, flavor)
            if not isinstance(placed, Reason):
                cluster.give_back(placed)
        for end_s, run in ends:
            if end_s <= start_s:
                cluster.take(run.rows)
        if not isinstance(placed, Reason):
            return start_s, sorted(placed[0].tolist())
    return None


def free_now(scheduler: Scheduler) -> Any:
    nodes = scheduler.cluster.state.nodes
    return np.column_stack([nodes.cpu_free, nodes.memory_free, nodes.pods_free, nodes.gpu_free])


def use(scheduler: Scheduler, amounts: Any, rows: Any, sign: int) -> None:
    shapes = scheduler.cluster.state.shapes
    for node, shape, devices in rows.T.tolist():
        amounts[node, 0] += sign * shapes.cpu[shape]
        amounts[node, 1] += sign * shapes.memory[shape]
        amounts[node, 2] += sign
        for device in range(amounts.shape[1] - 3):
            if devices >> device & 1:
                amounts[node, 3 + device] += sign * shapes.gpu_milli[shape]


def history(
    seed: int, config: Config, *, early: bool, one_set: bool = False, priorities: Sequence[int] = (0,),
    kept: Sequence[AdvanceReservation] = (),
) -> None:  # fmt: skip
    """Random work comes, runs and ends: by its limit, or (``early``) before or after it; some nodes are ``kept``."""
    rng = random.Random(seed)
    scheduler = Scheduler(Snapshot(fleet(), reservations=tuple(kept)), config)
    ends: dict[str, float] = {}
    promised: dict[str, float] = {}
    comes_s = 0.0
    for number in range(40):
        comes_s += rng.choice((0.0, 20.0, 130.0))
        while True:
            now_s = min([comes_s, *ends.values()])
            for name in [name for name, end_s in ends.items() if end_s == now_s]:
                scheduler.finish(name, now_s)
                del ends[name]
            if now_s == comes_s:
                scheduler.submit(random_gang(rng, number, now_s, priorities, one_set=one_set))
            for each in scheduler.cycle(now_s).decisions:
                if isinstance(each, Reserve):
                    promised[each.workload] = min(each.start_s, promised.get(each.workload, math.inf))
                elif isinstance(each, Evict):
                    del ends[each.workload]
                elif isinstance(each, Place):
                    assert not one_set or now_s <= promised.get(each.workload, now_s), "no later than it was told"
                    lasts_s = scheduler.running[each.workload].limit_s - now_s
                    ends[each.workload] = now_s + lasts_s * (rng.choice((0.2, 1.0, 1.3)) if early else 1.0)
            if now_s == comes_s:
                break


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 10**6), reservations=st.sampled_from([1, 3, 50]), early=st.booleans(), windows=st.integers(0, 2)
)
def test_each_slot_is_the_one_that_a_plain_search_finds(
    seed: int, reservations: int, early: bool, windows: int
) -> None:
    searched = 0
    kept = Future.earliest

    with pytest.MonkeyPatch.context() as patch:
        schedulers: list[Scheduler] = []
        made = Scheduler.__init__

        def noted(self: Scheduler, snapshot: Snapshot, config: Config) -> None:
            made(self, snapshot, config)
            schedulers.append(self)

        def compared(
            self: Future, gang: Gang, flavor: str, now_s: float, others: Sequence[Slot], until_s: float = math.inf,
            windows: Sequence[Kept] = (),
        ) -> Slot | None:  # fmt: skip
            nonlocal searched
            searched += 1
            found = kept(self, gang, flavor, now_s, others, until_s, windows)
            expected = plain_earliest(schedulers[-1], self, gang, flavor, now_s, others, until_s)
            assert expected == (None if found is None else (found.start_s, sorted(found.rows[0].tolist())))
            return found

        patch.setattr(Scheduler, "__init__", noted)
        patch.setattr(Future, "earliest", compared)
        history(
            seed, Config(reservations=reservations, ordering="fifo"), early=early, priorities=(0, 0, 0, 1),
            kept=(AdvanceReservation("a", 300.0, 900.0, ("n0", "n3"), workloads=("j007",)),
                  AdvanceReservation("b", 600.0, 1500.0, ("n1",)))[:windows],
        )  # fmt: skip
    assert searched


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), reservations=st.sampled_from([2, 8, 50]))
def test_no_promise_is_broken_with_many_slots_on_cpus_memory_and_shares(seed: int, reservations: int) -> None:
    history(seed, Config(reservations=reservations, ordering="fifo"), early=False, one_set=True)
