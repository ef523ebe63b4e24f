"""Steering as pure functions: marks, what a plan comes to, the least writes, and the way back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.backends.slurm.commands import Answer
from muster.backends.slurm.writes import carry_out
from muster.engine.config import Config
from muster.engine.decide import decide
from muster.errors import ClusterError, InputError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.plan import Evict, Place, Plan, PodPlacement, Reserve
from muster.model.snapshot import Running, Snapshot
from muster.model.workload import PodSet, PodShape, Workload
from muster.service.steering.memory import Memory, alone, holder, keep, recall
from muster.slurm.checkpoints import checkpointing_of, last_checkpoint_s
from muster.slurm.records import SlurmJob, SlurmPartition, SlurmQos, SlurmReservation, job_of, lines_of
from muster.slurm.steering.marks import FIELDS, mark_of, marked, own_values, unsteered
from muster.slurm.steering.scene import Scene
from muster.slurm.steering.seen import Classes, for_slurm, for_the_engine
from muster.slurm.steering.target import GATE, SPARES, How, target
from muster.slurm.steering.writes import Write, left_on_running, releases, writes_for
from muster.slurm.world import SlurmWorld

NOW_S = 1_796_000_000.0
FREELY = How()
NODES = tuple(f"n{number}" for number in range(1, 9))
LEAF = {name: f"leaf{1 + at // 4}" for at, name in enumerate(NODES)}

REAL = (
    "JobId=3 JobName=wrap UserId=games(5) GroupId=games(60) MCS_label=N/A Priority=106000 Nice=-100000 "
    "Account=research QOS=normal JobState=PENDING Reason=None "
    "Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:00:00 TimeLimit=01:00:00 TimeMin=N/A SubmitTime=2026-11-30T21:15:41 EligibleTime=2026-11-30T21:15:41 "
    "AccrueTime=2026-11-30T21:15:41 StartTime=2026-11-30T21:25:39 EndTime=2026-11-30T22:25:39 Deadline=N/A "
    "SuspendTime=None SecsPreSuspend=0 LastSchedEval=2026-11-30T21:15:41 Scheduler=Main Partition=gpu "
    "AllocNode:Sid=localhost:4951 ReqNodeList=(null) ExcNodeList=gpu[01-08] NodeList= SchedNodeList=gpu[09-16] "
    "NumNodes=8-8 NumCPUs=8 NumTasks=8 CPUs/Task=1 ReqB:S:C:T=0:0:*:* TRES=cpu=8,mem=15625G,node=8,gres/gpu=64 "
    "Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0 Features=(null) "
    "DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null) Command=(null) WorkDir=/tmp "
    "AdminComment=ticket 12 muster(exc:>gpu[01-08];nice:0>-100000)  Comment=checkpoint:30m restart:2m StdErr=/dev/null"
)
"""As Slurm 22.05 printed it."""


# -- marks

texts = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="()\n\r"), max_size=20)
changes = st.dictionaries(st.sampled_from(sorted(FIELDS)), st.tuples(texts, texts), max_size=3)


@given(st.text("abc 123[]=;>.", max_size=30), changes, changes)
def test_a_mark_is_read_as_it_was_written_and_taken_out_without_a_trace(
    comment: str, mark: dict[str, tuple[str, str]], other: dict[str, tuple[str, str]]
) -> None:
    comment = comment.strip()
    written = marked(comment, mark)
    assert mark_of(written) == mark
    assert mark_of(marked(written, other)) == other, "there is one mark at most"
    assert marked(written, {}) == comment
    assert "=" not in written.removeprefix(comment), "a reader of scontrol -o could take it for a field"


@pytest.mark.parametrize("comment", ["muster(nice)", "muster(nice:0>1;hello)", "muster(priority:0>1)", "muster (", ""])
def test_a_mark_that_somebody_wrote_into_is_none(comment: str) -> None:
    assert mark_of(comment) == {}


def test_the_mark_of_a_real_job_is_undone_in_what_the_engine_sees() -> None:
    job = job_of(next(iter(lines_of(REAL, "JobId"))))
    plain = unsteered(job)
    assert (job.nice, job.exc_nodes, job.comment) == (-100_000, "gpu[01-08]", "checkpoint:30m restart:2m")
    assert (plain.nice, plain.exc_nodes, plain.priority, plain.admin_comment) == (0, "", 6000, "ticket 12")


def test_what_its_owner_changed_after_muster_is_the_owners() -> None:
    job = job_of(next(iter(lines_of(REAL, "JobId"))))
    assert own_values(replace(job, nice=50)) == {"nice": "50", "exc": "", "resv": ""}
    assert own_values(replace(job, exc_nodes="gpu07")) == {"nice": "0", "exc": "gpu07", "resv": ""}


def test_without_a_mark_the_memory_counts_and_names_of_reservations_do() -> None:
    job = replace(job_of(next(iter(lines_of(REAL, "JobId")))), admin_comment="wiped", reservation="muster_job_3")
    assert own_values(job) == {"nice": "-100000", "exc": "gpu[01-08]", "resv": ""}
    assert own_values(job, {"nice": ("3", "-100000")})["nice"] == "3"


# -- checkpoints


@pytest.mark.parametrize(
    ("comment", "interval_s", "restart_s"),
    [
        ("checkpoint:30m", 1800.0, 0.0),
        ("run 7; checkpoint:2h restart:90s", 7200.0, 90.0),
        ("checkpoint:15,restart:1.5m", 900.0, 90.0),
        ("mycheckpoint:30m", None, None),
        ("checkpoint:often", None, None),
        ("restart:5m", None, None),
        ("", None, None),
    ],
)
def test_how_a_job_saves_its_work_stands_in_its_comment(
    comment: str, interval_s: float | None, restart_s: float | None
) -> None:
    found = checkpointing_of(comment)
    assert (found.interval_s if found else None, found.restart_s if found else None) == (interval_s, restart_s)


@pytest.mark.parametrize(
    ("comment", "saved_s"),
    [
        ("checkpoint:10m", 2400.0),  # began at 0, it is 2,900 s: four intervals are over
        ("checkpoint:1h", None),
        ("checkpoint:10m checkpointed:1970-01-01T00:45:00", 2700.0),
        ("checkpoint:10m checkpointed:2999-01-01T00:00:00", 2400.0),  # in the future: nobody believes it
        ("", None),
    ],
)
def test_when_it_saved_last(comment: str, saved_s: float | None) -> None:
    assert last_checkpoint_s(comment, 0.0, 2900.0) == saved_s


# -- from a plan to writes


def job(name: str, state: str = "PENDING", nodes: int = 1, **more: object) -> SlurmJob:
    known = {"user": "ann", "partition": "gpu", "state": state, "nodes": (nodes, nodes), "priority": 100}
    return SlurmJob(name, **(known | more))  # type: ignore[arg-type]


def scene(*jobs: SlurmJob, reservations: tuple[SlurmReservation, ...] = (), idle: tuple[str, ...] = NODES) -> Scene:
    return Scene({each.id: each for each in jobs}, {"gpu": NODES}, reservations, idle=idle)


def work(name: str, nodes: int = 1) -> Workload:
    return Workload(name, (PodSet(PodShape(gpus=8), nodes),), time_limit_s=3600.0)


def snapshot(*pending: Workload, running: tuple[Running, ...] = ()) -> Snapshot:
    gpus = tuple(Device(index, "h100") for index in range(8))
    nodes = tuple(Node(name, 64_000, 1 << 40, gpus, topology=("all", LEAF[name])) for name in NODES)
    return Snapshot(Fleet(nodes, Topology(("block", "rack"))), (), pending, running, taken_s=NOW_S)


def place(name: str, *nodes: str) -> Place:
    return Place(name, tuple(PodPlacement(node, tuple(range(8)), 1000) for node in nodes))


def stamp(at_s: float) -> str:
    return f"@{at_s - NOW_S:.0f}"


def planned(where: Scene, shown: Snapshot, *decisions: object, how: How = FREELY) -> list[Write]:
    wanted = target(Plan(decisions), shown, where, how, NOW_S)  # type: ignore[arg-type]
    return writes_for(wanted, where, stamp)


def commands(writes: list[Write]) -> list[str]:
    return [" ".join(each.arguments) for each in writes]


def after(where: Scene, writes: list[Write]) -> Scene:
    """The scene after writes, as slurmctld would have it."""
    jobs = dict(where.jobs)
    kept = {each.name: each for each in where.reservations}
    for write in writes:
        fields = dict(part.split("=", 1) for part in write.arguments if "=" in part)
        if write.kind in ("steer", "free"):
            one = jobs[write.target]
            nice = int(fields.get("Nice", one.nice))
            jobs[write.target] = replace(
                one, nice=nice, priority=one.priority + one.nice - nice,
                exc_nodes=fields.get("ExcNodeList", one.exc_nodes),
                reservation=fields.get("ReservationName", one.reservation),
                admin_comment=fields.get("AdminComment", one.admin_comment),
            )  # fmt: skip
        elif write.kind == "delete":
            assert all(one.reservation != write.target for one in jobs.values()), "slurmctld: it is in use"
            del kept[write.target]
        elif write.kind == "create":
            start_s = NOW_S + float(fields["StartTime"][1:])
            kept[write.target] = SlurmReservation(
                write.target, start_s, start_s + 60 * int(fields["Duration"]),
                tuple(hosts(fields["Nodes"])), tuple(fields["Users"].split(",")),
            )  # fmt: skip
    return replace(where, jobs=jobs, reservations=tuple(kept.values()))


def hosts(text: str) -> tuple[str, ...]:
    from muster.slurm.steering.marks import nodes_in

    return nodes_in(text)


def test_a_job_that_starts_now_is_kept_from_all_other_nodes_and_put_ahead() -> None:
    where = scene(job("1", nodes=2), job("2", priority=5000))
    writes = planned(where, snapshot(work("1", 2), work("2")), place("1", "n3", "n4"))
    assert commands(writes) == [
        "update JobId=1 Nice=-5900 ExcNodeList=n[1-2,5-8] AdminComment=muster(exc:>n[1-2,5-8];nice:0>-5900)"
    ]
    assert planned(after(where, writes), snapshot(work("1", 2), work("2")), place("1", "n3", "n4")) == []


def test_what_is_ahead_already_needs_no_nice() -> None:
    where = scene(job("1", priority=900), job("2", priority=500), job("held", priority=0))
    assert "Nice" not in commands(planned(where, snapshot(work("1"), work("2")), place("1", "n3")))[0]


def test_an_owners_own_list_is_added_to_and_comes_back() -> None:
    where = scene(job("1", exc_nodes="n[7-8]", nice=3))
    writes = planned(where, snapshot(work("1")), place("1", "n1"))
    assert "ExcNodeList=n[2-8]" in commands(writes)[0]
    later = after(where, writes)
    assert commands(releases(later)) == ["update JobId=1 ExcNodeList=n[7-8] AdminComment="]
    assert after(later, releases(later)) == where


def test_a_promised_start_is_a_reservation_and_the_job_pointed_at_it() -> None:
    where = scene(job("1", nodes=2))
    writes = planned(where, snapshot(work("1", 2)), Reserve("1", NOW_S + 600, ("n1", "n2")))
    assert commands(writes) == [
        "create reservation ReservationName=muster_job_1 StartTime=@600 Duration=60 Nodes=n[1-2] Users=ann "
        "Flags=FLEX,IGNORE_JOBS,NO_HOLD_JOBS_AFTER_END",
        "update JobId=1 ExcNodeList= ReservationName=muster_job_1 AdminComment=muster(resv:>muster_job_1)",
    ]
    assert writes[1].needs == "muster_job_1"
    later = after(where, writes)
    again = planned(later, snapshot(work("1", 2)), Reserve("1", NOW_S + 630, ("n1", "n2")))
    assert again == [], "a start that moves by half a minute is left as it is written"


def test_a_reservation_goes_when_its_gang_has_started_and_the_job_leaves_it_first() -> None:
    where = scene(job("1", nodes=2))
    later = after(where, planned(where, snapshot(work("1", 2)), Reserve("1", NOW_S + 600, ("n1", "n2"))))
    runs = replace(later, jobs={"1": replace(later.jobs["1"], state="RUNNING", node_list="n[1-2]")})
    assert commands(planned(runs, snapshot())) == [
        "update JobId=1 ReservationName= AdminComment=",
        "delete ReservationName=muster_job_1",
    ]


@pytest.mark.parametrize(
    ("why", "where", "slot"),
    [
        ("its owner named a reservation", scene(job("1", nodes=2, reservation="maint")), ("n1", "n2")),
        ("it is small", scene(job("1")), ("n1",)),
        (
            "it would cross a reservation of the site",
            scene(job("1", nodes=2), reservations=(SlurmReservation("maint", NOW_S, NOW_S + 1e6, ("n2",)),)),
            ("n1", "n2"),
        ),
    ],
)
def test_no_reservation_is_made_where(why: str, where: Scene, slot: tuple[str, ...]) -> None:
    assert planned(where, snapshot(work("1", len(slot))), Reserve("1", NOW_S + 600, slot)) == [], why


def test_jobs_are_stopped_last_and_only_those_that_may_be_requeued() -> None:
    where = scene(job("1"), job("2", "RUNNING"), job("3", "RUNNING", requeue=False))
    writes = planned(where, snapshot(work("1")), Evict("2", "1"), Evict("3", "1"), place("1", "n1"))
    assert [(each.kind, each.target) for each in writes] == [("steer", "1"), ("requeue", "2")]


def test_the_gate_is_renewed_before_half_of_it_is_over_and_leaves_out_what_others_reserved() -> None:
    maintenance = SlurmReservation("maint", NOW_S + 60, NOW_S + 1e6, ("n8",))
    where = scene(job("1"), reservations=(maintenance,))
    how = How(gate_s=600.0, spares=1)
    writes = planned(where, snapshot(work("1")), place("1", "n1"), how=how)
    assert [each.target for each in writes] == [SPARES, GATE, "1"]
    later = after(where, writes)
    gate = later.of_muster(GATE)
    spares = later.of_muster(SPARES)
    assert gate is not None
    assert spares is not None
    assert spares.nodes == ("n5",), "of the leaf with fewest idle nodes"
    assert set(gate.nodes) == set(NODES) - {"n8", "n5"}
    soon = target(Plan(()), snapshot(), later, how, NOW_S + 200)
    assert not [each for each in writes_for(soon, later, stamp) if each.target == GATE]
    late = target(Plan(()), snapshot(), later, how, NOW_S + 400)
    assert [" ".join(each.arguments) for each in writes_for(late, later, stamp) if each.target == GATE] == [
        "update ReservationName=muster_gate Duration=17"
    ]


@given(st.data())
def test_whatever_was_written_release_brings_back_what_was(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 5))
    jobs, decisions = list[SlurmJob](), list[object]()
    free = list(NODES)
    for number in range(count):
        size = data.draw(st.integers(1, 2))
        mine, free = tuple(free[:size]), free[size:]
        own = data.draw(st.sampled_from(["", "n8", "n[7-8]"]))
        comment = data.draw(st.sampled_from(["", "ticket 12", "a (b) c"]))
        jobs.append(job(
            str(number), nodes=size, nice=data.draw(st.integers(-9, 9)), exc_nodes=own, admin_comment=comment,
            priority=data.draw(st.integers(1, 900)),
        ))  # fmt: skip
        if len(mine) == size and data.draw(st.booleans()):
            decisions.append(place(str(number), *mine))
        elif len(mine) == size == 2:
            decisions.append(Reserve(str(number), NOW_S + data.draw(st.integers(1, 9999)), mine))
    where = scene(*jobs)
    how = How(gate_s=data.draw(st.sampled_from([0.0, 600.0])), spares=data.draw(st.integers(0, 2)))
    shown = snapshot(*(work(each.id, each.nodes[0]) for each in jobs))
    steered = after(where, planned(where, shown, *decisions, how=how))
    for each in steered.jobs.values():
        assert len(set(NODES) - set(hosts(each.exc_nodes))) >= each.nodes[0]
    assert after(steered, releases(steered)) == where


def test_a_job_that_started_keeps_its_list_and_is_named() -> None:
    where = scene(job("1"))
    steered = after(where, planned(where, snapshot(work("1")), place("1", "n1"), how=How(gate_s=600.0)))
    runs = replace(steered, jobs={"1": replace(steered.jobs["1"], state="RUNNING", node_list="n1")})
    released = after(runs, releases(runs))
    assert left_on_running(released) == ["1"]
    assert released.reservations == ()
    waits = replace(released, jobs={"1": replace(released.jobs["1"], state="PENDING", node_list="")})
    assert after(waits, releases(waits)).jobs["1"] == where.jobs["1"], "once it was requeued, it is undone"


# -- what the engine sees


def test_slurms_own_order_holds_and_a_gang_stands_in_the_narrowest_domain_that_holds_it() -> None:
    where = scene(job("1", priority=10), job("2", nodes=4, priority=900), job("3", nodes=8, priority=500))
    shown = for_the_engine(snapshot(work("1"), work("2", 4), work("3", 8)), where, SlurmWorld(), How(), {"3": 1.0})
    assert [each.name for each in shown.pending] == ["2", "1"]
    assert [each.topology.preferred if each.topology else "" for each in shown.pending] == ["rack", ""]
    config = for_slurm(Config(), shown.fleet)
    assert (config.ordering, config.keep_whole) == ("fifo", "rack")
    placed = [each for each in decide(shown, NOW_S, config).decisions if isinstance(each, Place)]
    assert len({LEAF[pod.node] for pod in placed[0].pods}) == 1


@pytest.mark.parametrize(
    ("preempt_type", "mode", "stops"),
    [
        ("preempt/none", "OFF", []),
        ("preempt/partition_prio", "REQUEUE", ["spot"]),
        ("preempt/qos", "REQUEUE", ["low"]),
        ("preempt/qos", "CANCEL", []),
    ],
)
def test_only_those_may_be_stopped_whom_slurm_lets_be_stopped(preempt_type: str, mode: str, stops: list[str]) -> None:
    classes = Classes(SlurmWorld(
        config={"PreemptType": preempt_type, "PreemptMode": mode},
        partitions=[SlurmPartition("gpu", tier=10, preempt_mode="OFF"),
                    SlurmPartition("spot", tier=1, preempt_mode="REQUEUE")],
        qos=[SlurmQos("high", preempts=("low",)), SlurmQos("low"), SlurmQos("normal")],
    ))  # fmt: skip
    jobs = {
        "spot": job("1", partition="spot", qos="normal"), "low": job("2", partition="gpu", qos="low"),
        "normal": job("3", partition="gpu", qos="normal"),
    }  # fmt: skip
    assert [name for name, each in jobs.items() if classes.may_stop(each)] == stops
    above = job("4", partition="gpu", qos="high")
    assert all(classes.of(above) > classes.of(jobs[name]) for name in stops)


def test_quarrels_of_qos_do_not_go_round_for_ever() -> None:
    qos = [SlurmQos("a", preempts=("b",)), SlurmQos("b", preempts=("a",))]
    world = SlurmWorld(config={"PreemptType": "preempt/qos"}, qos=qos)
    assert Classes(world).of(job("1", qos="a")) == Classes(world).of(job("2", qos="b"))


# -- carrying out


def answer(words: str) -> Answer:
    return Answer("", words, 1 if words else 0)


def results(*words: str, kinds: tuple[str, ...] = ()) -> list[str]:
    kind = kinds or ("steer",) * len(words)
    writes = [Write(each, str(at), ("x",), ()) for at, each in enumerate(kind)]  # type: ignore[arg-type]
    said = iter(words)
    return [each.result for each in carry_out(writes, lambda _: answer(next(said)))]


@pytest.mark.parametrize(
    ("words", "result"),
    [
        ("", "done"),
        ("Invalid node name specified for job 13", "refused"),
        ("Requested reservation is invalid for job 35", "refused"),
        ("Job is no longer pending execution for job 20", "passed"),
        ("Invalid job id specified for job 9999", "passed"),
    ],
)
def test_one_write_that_is_refused_stops_no_other(words: str, result: str) -> None:
    assert results("", words, "") == ["done", result, "done"]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("Access/permission denied for job 36", "AdminLevel=Operator"),
        ("slurm_update error: Unable to contact slurm controller (connect failure)", "does not answer"),
    ],
)
def test_what_makes_going_on_useless_ends_it(words: str, text: str) -> None:
    with pytest.raises(ClusterError, match=text):
        results(words, "")


def test_a_job_is_not_pointed_at_a_reservation_that_was_not_made() -> None:
    writes = [
        Write("create", "muster_job_1", ("create",), ()),
        Write("steer", "1", ("update",), (), needs="muster_job_1"),
        Write("steer", "2", ("update",), ()),
    ]
    said = iter(["Requested reservation overlaps with another reservation", ""])
    assert [each.result for each in carry_out(writes, lambda _: answer(next(said)))] == ["refused", "skipped", "done"]


# -- the memory


def test_a_memory_is_of_one_cluster_and_says_where_it_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "state.json"
    memory = Memory(cluster="one")
    memory.note([Write("steer", "1", (), (), mark={"nice": ("0", "5")})])
    keep(path, memory)
    assert recall(path, "one").marks == {"1": {"nice": ("0", "5")}}
    with pytest.raises(InputError, match="is of the cluster one, not of two"):
        recall(path, "two")
    path.write_text("{")
    with pytest.raises(InputError, match="move it away"):
        recall(path, "one")
    path.unlink()
    assert recall(path, "one") == Memory(cluster="one")


def test_two_cannot_steer_at_once(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    assert holder(path) == ""
    with alone(path):
        assert holder(path).startswith("process ")
        with pytest.raises(InputError, match="steered already, by process"), alone(path):
            pass
    assert holder(path) == ""
    with alone(path):
        pass
