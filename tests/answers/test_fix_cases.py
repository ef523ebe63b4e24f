"""For each thing that keeps a gang waiting, the fix that is found, as it would be typed, and what it costs others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace
from tests.answers.test_fixes import check

from muster.answers.fixes import Fix, find_fixes, fixes
from muster.answers.view import View
from muster.model.fleet import Device, Fleet, Node, Taint, Topology
from muster.model.parallelism import Parallelism
from muster.model.plan import PodPlacement
from muster.model.queue import Queue, Quota
from muster.model.snapshot import AdvanceReservation, Running, Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, Toleration, TopologyRequest, Workload

NOW = 100_000.0
HOUR = 3600.0
WHOLE = PodShape(8000, 0, 8)
SAVES = Checkpointing(600.0, 60.0)


def fleet(count: int = 8, **changed: Any) -> Fleet:
    """Nodes n1, n2, ... with 8 GPUs in racks of 2 and blocks of 4; ``changed`` are fields of single nodes."""
    devices = tuple(Device(index, "H100-SXM5-80GB") for index in range(8))
    nodes = [
        Node(f"n{at + 1}", 64_000, 1 << 40, devices, topology=(f"b{at // 4 + 1}", f"r{at // 2 + 1}"))
        for at in range(count)
    ]
    nodes = [replace(node, **changed.get(node.name, {})) for node in nodes]
    return Fleet(tuple(nodes), Topology(("block", "rack")))


def runs(name: str, node: str, gpus: str = "0-7", **more: Any) -> Running:
    """A job with one pod on the GPUs of a node; it was saved 10 minutes ago, if it saves."""
    first, _, last = gpus.partition("-")
    devices = tuple(range(int(first), int(last or first) + 1))
    fields: dict[str, Any] = {"time_limit_s": 20 * HOUR, "checkpointing": SAVES, **more}
    job = Workload(name, (PodSet(PodShape(8000, 0, len(devices))),), submitted_s=NOW - 9000.0, **fields)
    saved_s = NOW - 600.0 if job.checkpointing else None
    return Running(job, NOW - HOUR, (PodPlacement(node, devices, 1000),), saved_s)


def busy(*nodes: str, **more: Any) -> tuple[Running, ...]:
    """A job on each of some nodes."""
    return tuple(runs(f"on-{node}", node, **more) for node in nodes)


def gang(pods: int = 1, shape: PodShape = WHOLE, **more: Any) -> Workload:
    fields: dict[str, Any] = {"submitted_s": NOW - 60.0, "time_limit_s": HOUR, **more}
    return Workload("gang", (PodSet(shape, pods),), **fields)


def at(where: Fleet, asked: Workload, running: tuple[Running, ...] = (), **more: Any) -> Snapshot:
    """An instant at which nothing is moved without being asked for: moves are to cost nothing."""
    pending = (*more.pop("ahead", ()), asked)
    more.setdefault("settings", (("move_limit", 0.0),))
    return Snapshot(where, pending=pending, running=running, taken_s=NOW, **more)


def rows(snapshot: Snapshot) -> dict[str, Fix]:
    """The fixes by their changes as text; each is made, and checked by the engine."""
    view = View(snapshot)
    found = fixes(view, "gang", limit=100)
    for fix in found:
        check(view, "gang", fix)
    return {"; ".join(map(str, fix.changes)): fix for fix in found}


ALL = ("n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8")
TWO = (
    Queue("org"),
    Queue("a", "org", quotas=(Quota("H100-SXM5-80GB", 32_000),)),
    Queue("b", "org", quotas=(Quota("H100-SXM5-80GB", 32_000),)),
)


def queues(**a: Any) -> tuple[Queue, ...]:
    """Two queues with half of the fleet each; ``a``: other fields of the first, of which ``quota`` its quota's."""
    quota = replace(TWO[1].quotas[0], **a.pop("quota", {}))
    return TWO[0], replace(TWO[1], quotas=(quota,), **a), TWO[2]


def two_halves() -> tuple[Running, ...]:
    """All 8 nodes half used."""
    return tuple(runs(f"half-{name}", name, "0-3") for name in ALL)


CASES: dict[str, tuple[Callable[[], Snapshot], str]] = {
    "its topology: a wider level has room": (
        lambda: at(fleet(), gang(2, topology=TopologyRequest("rack")), busy("n1", "n3", "n5", "n7")),
        "job gang topology=block prefer=rack",
    ),
    "its topology: any place has room": (
        lambda: at(fleet(), gang(3, topology=TopologyRequest("block")), busy("n1", "n2", "n5", "n6")),
        "job gang topology=none prefer=block",
    ),
    "its topology: smaller segments have room": (
        lambda: at(fleet(), gang(4, topology=TopologyRequest("block")), busy("n1", "n2", "n5", "n6")),
        "job gang segment=2",
    ),
    "its topology: pods may stand nearer to each other": (
        lambda: at(fleet(), gang(4, topology=TopologyRequest(spread="block", at_most=2)), busy("n1", "n2", "n3", "n4")),
        "job gang at-most=4",
    ),
    "its pods: half as large": (
        lambda: at(fleet(), gang(4), two_halves()),
        "job gang pods=8 gpus=4",
    ),
    "its size: the most that fit": (
        lambda: at(fleet(), gang(6), busy("n1", "n2", "n3")),
        "job gang pods=5",
    ),
    "its least size, where it is elastic": (
        lambda: at(fleet(), replace(gang(), pod_sets=(PodSet(WHOLE, 8, 6),)), busy("n1", "n2", "n3")),
        "job gang min-pods=5",
    ),
    "its CPU": (
        lambda: at(fleet(2), gang(2, PodShape(80_000, 0, 8))),
        "job gang cpu=64",
    ),
    "its GPU model": (
        lambda: at(fleet(), gang(1, replace(WHOLE, gpu_models=("A100-SXM4-80GB",)))),
        "job gang models=A100-SXM4-80GB,H100-SXM5-80GB",
    ),
    "a label that no node has: the nearest one": (
        lambda: at(
            fleet(n3={"labels": (("pool", "gold"),)}), gang(1, replace(WHOLE, node_selector=(("pool", "goldd"),)))
        ),
        "job gang selector=pool=gold",
    ),
    "a label of nodes without room": (
        lambda: at(
            fleet(n3={"labels": (("pool", "gold"),)}), gang(1, replace(WHOLE, node_selector=(("pool", "gold"),))),
            busy("n3"),
        ),
        "job gang selector=any",
    ),
    "a taint": (
        lambda: at(fleet(1, n1={"taints": (Taint("team", "a"),)}), gang()),
        "job gang tolerate=team",
    ),
    "a queue that does not exist": (
        lambda: at(fleet(), gang(queue="aa"), queues=TWO),
        "job gang queue=a",
    ),
    "work that it depends on and that is not there": (
        lambda: at(fleet(), gang(depends_on=("gone",))),
        "job gang released=yes",
    ),
    "a hold": (
        lambda: at(fleet(), gang(not_before_s=NOW + HOUR)),
        "job gang released=yes",
    ),
    "a reserved start that it would run into": (
        lambda: at(
            fleet(2), gang(time_limit_s=30 * HOUR), busy("n1", time_limit_s=3 * HOUR),
            ahead=(replace(gang(2), name="first", submitted_s=0.0),),
        ),
        "job gang limit=2h",
    ),
    "quota: nominal": (
        lambda: at(fleet(), gang(queue="a"), busy(*ALL[:4], queue="a"),
                   queues=(Queue("org"), *(replace(each, parent="") for each in TWO[1:]))),
        "quota a +8 H100-SXM5-80GB",
    ),
    "quota: a borrowing limit": (
        lambda: at(
            fleet(), gang(queue="a"), busy(*ALL[:4], queue="a"), queues=queues(quota={"borrowing_limit_milli": 0})
        ),
        "borrowing-limit a 8 H100-SXM5-80GB",
    ),
    "quota: what another does not lend": (
        lambda: at(
            fleet(), gang(queue="b"), busy(*ALL[:4], queue="b"), queues=queues(quota={"lending_limit_milli": 0})
        ),
        "lending-limit a none H100-SXM5-80GB",
    ),
    "the limit of a user": (
        lambda: at(fleet(), gang(queue="a", user="ann"), busy("n1", queue="a", user="ann"),
                   queues=queues(max_running_milli=8000)),
        "user-limit a 16",
    ),
    "cordoned nodes": (
        lambda: at(fleet(4, n1={"schedulable": False}, n2={"schedulable": False}), gang(3)),
        "uncordon n1",
    ),
    "broken GPUs": (
        lambda: at(fleet(2, n1={"devices": tuple(Device(at, "H100-SXM5-80GB", healthy=at > 0) for at in range(8))}),
                   gang(2)),
        "repair n1",
    ),
    "spares": (
        lambda: at(fleet(2, n2={"spare": True}), gang(2)),
        "unspare n2",
    ),
    "tainted nodes": (
        lambda: at(fleet(2, n2={"taints": (Taint("maintenance"),)}), gang(2)),
        "untaint maintenance n2",
    ),
    "nodes with a taint that it tolerates, and one that it does not": (
        lambda: at(fleet(2, n2={"taints": (Taint("maintenance"), Taint("team"))}),
                   gang(2, replace(WHOLE, tolerations=(Toleration("team", "Exists"),)))),
        "untaint maintenance n2",
    ),
    "the same beside a cordoned node": (
        lambda: at(fleet(3, n2={"taints": (Taint("maintenance"), Taint("team"))}, n3={"schedulable": False}),
                   gang(3, replace(WHOLE, tolerations=(Toleration("team", "Exists"),)))),
        "uncordon n3; untaint maintenance n2",
    ),
    "nodes that refuse it for different reasons": (
        lambda: at(fleet(3, n2={"spare": True}, n3={"schedulable": False}), gang(3)),
        "uncordon n3; unspare n2",
    ),
    "an advance reservation": (
        lambda: at(fleet(2), gang(2), reservations=(AdvanceReservation("upgrade", NOW, NOW + HOUR, ("n2",)),)),
        "end-reservation upgrade",
    ),
    "too few nodes": (
        lambda: at(fleet(4), gang(4), busy("n1", preemptible=False)),
        "add 1 node like n1",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_keeps_it_waiting_has_its_fix(case: str) -> None:
    make, expected = CASES[case]
    found = rows(make())
    assert expected in found
    assert found[expected].displaced_gpu_s == 0


def test_work_is_moved_at_the_price_of_what_it_has_not_saved() -> None:
    """The standard case: enough is free, on half-used nodes."""
    snapshot = at(fleet(), gang(2), two_halves())
    found = [fix for fix in rows(snapshot).values() if fix.kind == "moves"]
    assert len(found) == 1
    assert len(found[0].displaced) == 2
    assert found[0].cost_gpu_s == 2 * 4 * (600.0 + 60.0)
    assert found[0].title.startswith("move 2 jobs (half-n1 and half-n2; last saved 10 min ago")


def test_of_what_may_be_stopped_that_with_least_to_lose_is() -> None:
    young = tuple(runs(f"j{at}", f"n{at}", checkpointing=None) for at in (2, 3, 4))
    saved = runs("saved", "n1")
    found = rows(at(fleet(4), gang(priority=0), (saved, *young)))
    stops = next(fix for fix in found.values() if fix.displaced)
    assert stops.displaced == ("saved",)
    assert stops.cost_gpu_s == 8 * 660.0
    assert stops.delayed_gpu_s == 8 * HOUR, "it goes on when the gang has ended"


def test_who_is_passed_is_delayed_and_that_is_told() -> None:
    first = replace(gang(2), name="first", submitted_s=0.0, time_limit_s=2 * HOUR)
    snapshot = at(fleet(2), gang(time_limit_s=10 * HOUR), busy("n1", time_limit_s=3 * HOUR), ahead=(first,))
    found = rows(snapshot)["job gang priority=1"]
    assert found.displaced == ()
    assert found.delayed == ("first",)
    assert found.delayed_gpu_s == 16 * 8 * HOUR, "not in 2 hours, when n1 is free, but in 10"


def test_two_things_may_be_needed_at_once() -> None:
    own = (Queue("org"), *(replace(each, parent="") for each in TWO[1:]))
    where = fleet(6, n5={"schedulable": False}, n6={"schedulable": False})
    found = rows(
        at(where, gang(2, queue="a", depends_on=("gone",)), busy(*ALL[:4], queue="a", preemptible=False), queues=own)
    )
    changes = "job gang released=yes; quota a +16 H100-SXM5-80GB; uncordon n[5-6]"
    assert found[changes].title == (
        "do not let it wait for gone, and raise the nominal quota of a by 16 GPUs (H100-SXM5-80GB), and"
        " uncordon 2 nodes (n[5-6])"
    )


def test_the_rows_are_ranked_by_displacement_and_new_nodes_come_last() -> None:
    found = fixes(View(at(fleet(), gang(3), two_halves())), "gang", start_s=NOW + 60.0)
    kinds = [fix.kind for fix in found]
    assert kinds[0] == "shape"
    assert kinds[1] == "wait"
    assert kinds[-1] == "add"
    assert [fix.displaced_gpu_s for fix in found[:-1]] == sorted(fix.displaced_gpu_s for fix in found[:-1])
    assert found[1].starts_in_s == 60.0


def test_a_torn_job_is_told_what_it_loses() -> None:
    """Pipeline neighbours over two nodes: slower by what the engine's own placement then costs."""
    split = Parallelism(tensor=4, pipeline=2, parameters=70e9, achieved_tflops=400)
    snapshot = at(fleet(), gang(4, parallelism=split), two_halves())
    found = rows(snapshot)["job gang pods=8 gpus=4"]
    assert found.slowdown is not None
    assert 1.0 <= found.slowdown < 1.2
    fewer = rows(at(fleet(), gang(6), busy("n1", "n2", "n3")))["job gang pods=5"]
    assert fewer.slowdown == 6 / 5


def test_the_number_of_trials_is_bounded_and_what_was_not_tried_is_told() -> None:
    view = View(at(fleet(), gang(3), two_halves()))
    found = find_fixes(view, "gang", most_trials=1)
    assert [fix.kind for fix in found.fixes] == ["shape", "wait"]
    assert found.untried == ("moves", "priority", "preempt", "add")


def test_what_does_not_wait_has_no_fixes_and_a_name_is_asked_for_rightly() -> None:
    view = View(at(fleet(), gang(), busy("n1")))
    assert fixes(view, "gang") == ()
    assert fixes(view, "on-n1") == ()
    with pytest.raises(Exception, match="there is no job 'gagn'"):
        fixes(view, "gagn")
