"""What would become of work that is submitted now: the scheduler's own decision, and what it changes for others."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.answers.changes import SetJob, apply_changes
from muster.answers.fit import Asked, Fit, changes_that_fit, fit
from muster.answers.specs.base import Specs
from muster.answers.specs.plain import Shape, plain_specs
from muster.engine.config import Config
from muster.engine.decide import decide
from muster.engine.scheduler import Scheduler
from muster.errors import InputError
from muster.model import PodSet, PodShape, Snapshot, Taint, Workload
from muster.model.parallelism import Parallelism
from muster.model.plan import Evict, Migrate, Place, Resize
from muster.model.queue import Queue, Quota
from muster.model.workload import Checkpointing, TopologyRequest
from muster.traces import read_fleet

FLEET, _ = read_fleet("uniform:nodes=8,gpus=8,model=H100,block=4,rack=2,cpu=64,memory_gib=512,prefix=gpu")
QUEUES = (
    Queue("org"),
    Queue("research", "org", quotas=(Quota("H100", 32_000),)),
    Queue("serving", "org", quotas=(Quota("H100", 32_000),)),
)


def work(name: str, pods: int, gpus: int = 8, queue: str = "research", **more: Any) -> Workload:
    shape = PodShape(gpus * 1000, 0, gpus)
    return Workload(name, (PodSet(shape, pods),), queue=queue, **{"time_limit_s": 3600.0, **more})


def after(works: list[Workload], now_s: float = 0.0, queues: tuple[Queue, ...] = QUEUES) -> Snapshot:
    """The cluster after a cycle in which this work was waiting."""
    scheduler = Scheduler(Snapshot(FLEET, queues, tuple(works)), Config())
    scheduler.cycle(0.0)
    return scheduler.snapshot(now_s)


def asked(snapshot: Snapshot, *works: Workload, config: Config | None = None) -> Fit:
    specs = Specs("test", "pods", works, snapshot.fleet)
    return fit(snapshot, specs, config or Config())[0]


def test_it_fits_and_disturbs_nobody() -> None:
    told = asked(after([work("a", 2)]), work("new", 2, topology=TopologyRequest("rack")))
    (answer,) = told.answers
    assert told.fits
    assert answer.nodes == "gpu-[3-4]"
    assert [(each.level, each.pods) for each in answer.domains] == [
        ("block", (("block-1", 2),)), ("rack", (("rack-2", 2),)), ("host", (("gpu-3", 1), ("gpu-4", 1))),
    ]  # fmt: skip
    assert told.displaced == told.delayed == ()


def test_what_gives_way_to_a_queue_that_wants_its_own_back() -> None:
    lent = work("lent", 6, queue="serving", checkpointing=Checkpointing(600, 60))
    told = asked(after([lent], 1800.0), work("new", 3))
    assert told.fits
    (gone,) = told.displaced
    assert (gone.job, gone.how, gone.why, gone.gpu_milli) == ("lent", "stopped", "reclaim", 48_000)
    assert gone.lost_gpu_s > 0


def test_who_would_have_started_now_starts_later() -> None:
    snapshot = after([work("a", 6)], 60.0, ())
    snapshot = replace(snapshot, pending=(work("next", 2, submitted_s=30.0),))
    assert asked(snapshot, work("new", 1)).delayed == ()  # it has to wait itself
    told = asked(snapshot, work("new", 2, priority=1))
    assert told.fits
    assert [(each.job, each.was_s, each.starts_s) for each in told.delayed] == [("next", 60.0, 3600.0)]


def test_a_reserved_start_that_comes_later() -> None:
    snapshot = after([work("a", 4, preemptible=False), work("b", 4, time_limit_s=1000.0, preemptible=False)], 60.0, ())
    snapshot = replace(snapshot, pending=(work("next", 4, submitted_s=30.0),))
    told = asked(snapshot, work("new", 4, priority=1))
    assert not told.fits
    assert [(each.job, each.was_s) for each in told.delayed] == [("next", 1000.0)]
    assert told.delayed[0].starts_s == math.inf  # one gang has a reserved start, and that is the new one
    both = asked(snapshot, work("new", 4, priority=1), config=Config(reservations=2))
    assert [(each.was_s, each.starts_s) for each in both.delayed] == [(1000.0, 3600.0)]


def test_why_not_and_when() -> None:
    told = asked(after([work("a", 4), work("b", 4, queue="serving", time_limit_s=1000.0)], 60.0), work("new", 2))
    (answer,) = told.answers
    assert not told.fits
    assert answer.place is None
    assert answer.blockers[0].first
    assert answer.forecast is not None
    assert answer.forecast.expected_s > 60.0
    never = asked(after([]), work("new", 20)).answers[0].forecast
    assert never is not None
    assert never.method == "never"


def test_several_gangs_are_asked_for_together() -> None:
    told = asked(after([]), work("new-0", 4), work("new-1", 4), work("new-2", 4))
    assert [each.place is not None for each in told.answers] == [True, True, False]
    assert not told.fits


def test_of_many_gangs_that_wait_the_first_are_explained() -> None:
    told = asked(after([]), *(work(f"new-{at}", 4) for at in range(9)))
    assert [bool(each.blockers) for each in told.answers] == [False] * 2 + [True] * 3 + [False] * 4
    assert [each.forecast is not None for each in told.answers] == [False] * 2 + [True] * 3 + [False] * 4


def test_an_elastic_gang_says_how_many_pods_start() -> None:
    elastic = replace(work("new", 8), pod_sets=(PodSet(PodShape(8000, 0, 8), 8, 2),))
    (answer,) = asked(after([work("a", 4, queue="serving")]), elastic).answers
    assert answer.pods == 4


def test_a_name_that_is_there_is_asked_beside_it() -> None:
    told = asked(after([work("a", 1)]), work("a", 1), work("a-2", 1))
    assert [each.workload.name for each in told.answers] == ["a-2", "a-2-2"]
    assert "a runs already: this is asked as a new job beside it, a-2" in str(told.notes[0])


def test_the_slowdown_is_told_with_a_parallelism() -> None:
    snapshot = after([])
    parallelism = Parallelism(tensor=8, parameters=70e9)
    told, _ = fit(snapshot, Specs("x", "pods", (work("new", 2),), FLEET), Config(), Asked(parallelism=parallelism))
    assert told.answers[0].slowdown == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        (Asked(queue="reserch"), "field '--queue': the snapshot has no queue 'reserch'; did you mean research?"),
        (Asked(flavors=("H200",)), "field '--flavor': the fleet has no flavor 'H200'; did you mean H100?"),
        (Asked(parallelism=Parallelism(tensor=3)), "neither divides the other"),
    ],
)
def test_what_the_snapshot_does_not_have(given_: Asked, message: str) -> None:
    with pytest.raises(InputError) as error:
        fit(after([]), Specs("x", "pods", (work("new", 1),), FLEET), Config(), given_)
    assert message in str(error.value)


def test_a_queue_of_the_spec_that_is_not_there() -> None:
    with pytest.raises(InputError, match="the spec names no queue; it has org, research, serving; --queue QUEUE asks"):
        asked(after([]), work("new", 1, queue=""))
    assert asked(Snapshot(FLEET), work("new", 1, queue="whatever")).fits  # without queues a name does not matter


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (Shape(), "nothing is asked for"),
        (Shape(gpus=1.5), "field '--gpus': is 1.5"),
        (Shape(gpus=8, gpu_model="H200"), "field '--gpu-model': no GPU of the fleet is a H200; it has H100"),
        (Shape(gpus=8, cpu="many"), "field '--cpu': 'many' is no quantity"),
        (Shape(gpus=8, topology="zone"), "field '--topology': unknown topology level 'zone'; known: block, rack, host"),
        (Shape(pods=4, gpus=8, segment=3), "field '--segment': 3 does not divide the 4 pods"),
        (Shape(pods=4, gpus=8, segment=2), "field '--segment': needs the level"),
    ],
)
def test_a_shape_that_makes_no_sense(shape: Shape, message: str) -> None:
    with pytest.raises(InputError) as error:
        plain_specs(shape, FLEET)
    assert message in str(error.value)


def test_a_plain_shape() -> None:
    (workload,) = plain_specs(Shape(4, 8, "16", "64Gi", "h100", "block", "rack", 2), FLEET).workloads
    shape = PodShape(16_000, 64 << 30, 8, gpu_models=("H100",))
    assert workload.pod_sets == (PodSet(shape, 4),)
    assert workload.topology == TopologyRequest("block", "rack", 2)


# -- the answer is the scheduler's


@st.composite
def works(draw: st.DrawFn, name: str) -> Workload:
    pods, gpus = draw(st.sampled_from([(1, 1), (1, 4), (2, 8), (3, 2), (4, 8)]))
    workload = work(
        name, pods, gpus, draw(st.sampled_from(["research", "serving"])),
        priority=draw(st.sampled_from([0, 0, 1])),
        time_limit_s=draw(st.sampled_from([None, 600.0, 7200.0])),
        topology=draw(st.sampled_from([None, TopologyRequest("rack"), TopologyRequest(preferred="block")])),
        checkpointing=draw(st.sampled_from([None, Checkpointing(300, 30)])),
    )  # fmt: skip
    if pods > 1 and draw(st.booleans()):
        workload = replace(workload, pod_sets=(replace(workload.pod_sets[0], min_count=1),))
    return workload


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_yes_exactly_if_the_scheduler_starts_it(data: st.DataObject) -> None:
    before = [data.draw(works(f"w{at}")) for at in range(data.draw(st.integers(0, 8)))]
    snapshot = after(before, 900.0)
    waits = tuple(replace(data.draw(works(f"p{at}")), submitted_s=800.0) for at in range(data.draw(st.integers(0, 3))))
    snapshot = replace(snapshot, pending=(*snapshot.pending, *waits))
    new = data.draw(works("new"))
    config = Config(queueing=data.draw(st.sampled_from(["backfill", "strict", "best-effort"])))
    specs = Specs("x", "pods", (new,), snapshot.fleet)
    told, view = fit(snapshot, specs, config)
    with_it = replace(snapshot, pending=(*snapshot.pending, replace(new, submitted_s=snapshot.taken_s)))
    plan = decide(with_it, snapshot.taken_s, config)
    assert view.plan.decisions == plan.decisions[: len(view.plan.decisions)]
    places = {each.workload: each for each in plan.decisions if isinstance(each, Place)}
    assert told.answers[0].place == places.get("new")
    # what would be without it is what the scheduler does without it
    usual = decide(snapshot, snapshot.taken_s, config)
    assert view.without.decisions == usual.decisions[: len(view.without.decisions)]
    started = {each.workload for each in usual.decisions if isinstance(each, Place)}
    assert started - set(places) <= {each.job for each in told.delayed}
    gone = {each.workload for each in plan.decisions if isinstance(each, (Evict, Migrate, Resize))}
    assert {each.job for each in told.displaced} <= gone


# -- the smallest changes that make it fit


def reserved_ahead() -> tuple[Snapshot, Workload]:
    """Half of the nodes are in use for an hour, and a gang that needs all has its start reserved then."""
    snapshot = after([work("a", 4)], 60.0, ())
    snapshot = replace(snapshot, pending=(work("whole", 8, submitted_s=30.0),))
    return snapshot, work("new", 2, time_limit_s=None)


def tainted() -> tuple[Snapshot, Workload]:
    snapshot = after([], 0.0, ())
    nodes = tuple(replace(node, taints=(Taint("team", "nlp"),)) for node in snapshot.fleet)
    return replace(snapshot, fleet=replace(snapshot.fleet, nodes=nodes)), work("new", 2)


def too_much_cpu() -> tuple[Snapshot, Workload]:
    return after([], 0.0, ()), replace(work("new", 2), pod_sets=(PodSet(PodShape(65_000, 0, 8), 2),))


def one_rack_is_too_small() -> tuple[Snapshot, Workload]:
    return after([], 0.0, ()), work("new", 4, topology=TopologyRequest("rack"))


def other_gpus_only() -> tuple[Snapshot, Workload]:
    shape = PodShape(8000, 0, 8, gpu_models=("H200",))
    return after([], 0.0, ()), replace(work("new", 2), pod_sets=(PodSet(shape, 2),))


@pytest.mark.parametrize(
    ("scene", "kind"),
    [
        (reserved_ahead, "limit"),
        (tainted, "taint"),
        (too_much_cpu, "host"),
        (one_rack_is_too_small, "topology"),
        (one_rack_is_too_small, "smaller"),
        (other_gpus_only, "flavor"),
    ],
)
def test_a_change_of_the_work_makes_it_fit(scene: Callable[[], tuple[Snapshot, Workload]], kind: str) -> None:
    snapshot, new = scene()
    specs = Specs("x", "pods", (new,), snapshot.fleet)
    told, view = fit(snapshot, specs, Config())
    assert not told.fits
    changes = changes_that_fit(view, told.answers[0], specs)
    assert kind in {each.kind for each in changes.own}
    for each in changes.own:
        changed = apply_changes(view.snapshot, each.changes)
        plan = decide(changed, snapshot.taken_s, Config())
        assert "new" in {one.workload for one in plan.decisions if isinstance(one, Place)}, each.title
        (job,) = {change.job for change in each.changes if isinstance(change, SetJob)}
        assert job == "new"


def test_what_others_can_do_is_told_apart() -> None:
    snapshot = after([work("a", 8, checkpointing=Checkpointing(300, 30))], 600.0, ())
    specs = Specs("x", "pods", (work("new", 2),), snapshot.fleet)
    told, view = fit(snapshot, specs, Config())
    changes = changes_that_fit(view, told.answers[0], specs)
    assert not {each.kind for each in changes.others} & {each.kind for each in changes.own}
    assert any(each.cost_gpu_s > 0 for each in changes.others)
