"""Changes to a snapshot: their text, and what they make of it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.answers.changes import (
    AddDomains,
    AddNodes,
    Cancel,
    Change,
    EndReservation,
    Move,
    RemoveNodes,
    Reserve,
    SetConfig,
    SetJob,
    SetLimit,
    SetNodes,
    SetPolicy,
    SetQuota,
    SetWeight,
    Stop,
    Submit,
    Wave,
    apply_changes,
    parse_change,
)
from muster.answers.view import View
from muster.errors import InputError
from muster.model import Snapshot
from muster.model.plan import PodPlacement
from muster.model.snapshot import diff_snapshots
from muster.model.workload import PodSet, Workload

from .small import WHOLE_NODE, small_snapshot


@pytest.fixture
def snapshot() -> Snapshot:
    return small_snapshot()


R, S = "H100-SXM5-80GB/reserved", "H100-SXM5-80GB/spot"

TEXTS: tuple[tuple[str, Change], ...] = (
    ("add 8 nodes like gpu01", AddNodes(8, "gpu01")),
    ("add 8 nodes like H100-SXM5-80GB/spot", AddNodes(8, S)),
    ("add 2 nodes like gpu01 in block b2", AddNodes(2, "gpu01", level="block", domain="b2")),
    ("add 8 nodes of H200-SXM5-141GB", AddNodes(8, "gpu01", "H200-SXM5-141GB")),
    ("add 8 nodes of h200/spot like gpu09", AddNodes(8, "gpu09", "H200-SXM5-141GB/spot")),
    ("add 2 racks like rack-3", AddDomains("rack", "rack-3", 2)),
    ("add a rack", AddDomains("rack", "rack-1")),
    ("add 1 block", AddDomains("block", "b1")),
    ("remove gpu[15-16]", RemoveNodes(("gpu15", "gpu16"))),
    ("drain gpu[01-03,07]", SetNodes(("gpu01", "gpu02", "gpu03", "gpu07"), "drain")),
    ("drain rack rack-2 gpu16 evict", SetNodes(("gpu05", "gpu06", "gpu07", "gpu08", "gpu16"), "drain", evict=True)),
    ("drain rack rack-[1-1]", SetNodes(("gpu01", "gpu02", "gpu03", "gpu04", "login1"), "drain")),
    ("drain rack-4", SetNodes(("gpu13", "gpu14", "gpu15", "gpu16"), "drain")),
    ("drain gpu0?", SetNodes(tuple(f"gpu0{number}" for number in range(1, 10)), "drain")),
    ("uncordon gpu03", SetNodes(("gpu03",), "uncordon")),
    ("repair gpu04", SetNodes(("gpu04",), "repair")),
    ("fail gpu01", SetNodes(("gpu01",), "fail")),
    ("spare gpu16", SetNodes(("gpu16",), "spare")),
    ("unspare gpu16", SetNodes(("gpu16",), "unspare")),
    ("taint team=b:NoExecute gpu09", SetNodes(("gpu09",), "taint", "team", "b", "NoExecute")),
    ("taint maintenance gpu09", SetNodes(("gpu09",), "taint", "maintenance", "", "NoSchedule")),
    ("untaint team", SetNodes(("gpu05",), "untaint", "team")),
    ("quota team-a +64", SetQuota("team-a", R, 64000)),
    ("quota team-b -8 H100-SXM5-80GB/spot", SetQuota("team-b", S, -8000)),
    ("quota team-a 12.5", SetQuota("team-a", R, to_milli=12500)),
    ("borrowing-limit team-a none", SetLimit("team-a", "borrowing", None, R)),
    ("lending-limit team-a 8", SetLimit("team-a", "lending", 8000, R)),
    ("user-limit team-b 16", SetLimit("team-b", "user", 16000)),
    ("weight team-a 2", SetWeight("team-a", 2.0)),
    ("set reservations=4", SetConfig("reservations", 4)),
    ("set reclaim=false", SetConfig("reclaim", False)),
    ("set keep_whole=", SetConfig("keep_whole", "")),
    ("placement gpu-packing", SetConfig("placement", "gpu-packing")),
    ("ordering fifo", SetConfig("ordering", "fifo")),
    ("policy slurm-like", SetPolicy("slurm-like")),
    ("job big priority=10 pods=4 topology=none", SetJob("big", priority=10, pods=(4,), topology="")),
    ("job team-a/big queue=team-b limit=30m", SetJob("big", queue="team-b", limit_s=1800.0)),
    (f"job big flavors={R},{S} tolerate=team", SetJob("big", flavors=(R, S), tolerate=("team",))),
    ("job big selector=pool=gold,zone=a", SetJob("big", selector=("pool=gold", "zone=a"))),
    ("job big selector=any", SetJob("big", selector=())),
    ("job serve pods=1,4 min-pods=1,2 gpus=0,4", SetJob("serve", pods=(1, 4), min_pods=(1, 2), gpus=(0, 4))),
    ("job big cpu=64 memory=512Gi", SetJob("big", cpu_milli=(64000,), memory_bytes=(512 * 2**30,))),
    ("job big topology=rack segment=4 prefer=block", SetJob("big", topology="rack", prefer="block", segment=4)),
    ("job held released=yes", SetJob("held", released=True)),
    ("stop llama", Stop("llama")),
    ("cancel big", Cancel("big")),
    ("move small to gpu09:3", Move("small", (PodPlacement("gpu09", (3,), 1000),))),
    ("move llama to gpu09:0-7 gpu10:0-7",
     Move("llama", tuple(PodPlacement(node, tuple(range(8)), 1000) for node in ("gpu09", "gpu10")))),
    ("reserve gpu09 from 1h to 2h queue team-b",
     Reserve("reserved-1", ("gpu09",), 3600.0, 7200.0, queues=("team-b",))),
    ("end-reservation service", EndReservation("service")),
    ("driver-wave gpu[09-16] batch 4 every 30m", Wave(tuple(f"gpu{each:02d}" for each in range(9, 17)), 4, 1800.0)),
    ("driver-wave 2 nodes batch 1 every 1h from 2h", Wave(("gpu03", "gpu04"), 1, 3600.0, 7200.0)),
    ('submit {"name":"new","pod_sets":[{"shape":{"gpus":8}}],"queue":"team-b"}',
     Submit(Workload("new", (PodSet(replace(WHOLE_NODE, cpu_milli=0, memory_bytes=0)),), queue="team-b"))),
)  # fmt: skip


@pytest.mark.parametrize(("text", "change"), TEXTS, ids=[text for text, _ in TEXTS])
def test_what_is_typed_is_understood_and_written_back(text: str, change: Change, snapshot: Snapshot) -> None:
    text = text if not text.startswith("submit") else str(change)
    assert parse_change(text, snapshot) == (change,)
    assert parse_change(str(change), snapshot) == (change,)


@pytest.mark.parametrize(("text", "change"), TEXTS, ids=[text for text, _ in TEXTS])
def test_the_engine_takes_what_each_change_makes(text: str, change: Change, snapshot: Snapshot) -> None:
    after = apply_changes(snapshot, [change])
    assert View(after).plan is not None
    undone = apply_changes(after, [])
    assert undone == after
    assert snapshot == small_snapshot(), "the snapshot before is not touched"
    if text not in ("placement best-fit", "unspare gpu16", "job big selector=any"):
        assert diff_snapshots(snapshot, after), "each of these changes something"


def test_several_changes_may_build_on_each_other(snapshot: Snapshot) -> None:
    changes = parse_change("add 2 nodes like gpu01; taint new gpu[17-18]; cancel big", snapshot)
    assert changes == (
        AddNodes(2, "gpu01"),
        SetNodes(("gpu17", "gpu18"), "taint", "new", "", "NoSchedule"),
        Cancel("big"),
    )
    assert parse_change("; ".join(map(str, changes)), snapshot) == changes


def after(text: str, snapshot: Snapshot) -> Snapshot:
    return apply_changes(snapshot, parse_change(text, snapshot))


DIFFERENCES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("drain gpu01", {"fleet.nodes.gpu01.schedulable": False, "fleet.nodes.gpu01.reason": "drained"}),
    ("uncordon gpu03", {"fleet.nodes.gpu03.schedulable": True, "fleet.nodes.gpu03.reason": "", "failures": ()}),
    ("repair gpu04", {"fleet.nodes.gpu04.devices.0.healthy": True}),
    ("repair gpu03", {"fleet.nodes.gpu03.schedulable": True, "fleet.nodes.gpu03.reason": "", "failures": ()}),
    ("untaint team", {"fleet.nodes.gpu05.taints": ()}),
    ("untaint team gpu01", {}),
    ("set reservations=4", {"settings.reservations": 4}),
    ("set reservations=1", {}),
    ("policy muster", {}),
    ("weight team-b 1", {}),
    ("job big topology=none", {"pending.big.topology": None}),
    ("job held released=yes", {"pending.held.depends_on": ()}),
    ("job big limit=none", {"pending.big.time_limit_s": None}),
    ("end-reservation service", {"reservations.service": None}),
)


@pytest.mark.parametrize(("text", "differences"), DIFFERENCES, ids=[text for text, _ in DIFFERENCES])
def test_a_change_changes_this_and_no_more(text: str, differences: dict[str, Any], snapshot: Snapshot) -> None:
    found = diff_snapshots(snapshot, after(text, snapshot))
    assert {each.path: each.after for each in found} == differences


def test_new_nodes_stand_in_new_racks_of_the_same_size_in_the_same_block(snapshot: Snapshot) -> None:
    new = after("add 6 nodes like gpu09", snapshot).fleet.nodes[len(snapshot.fleet) :]
    assert [node.name for node in new] == [f"gpu{number}" for number in range(17, 23)]
    assert [node.topology for node in new] == [("b2", "rack-5")] * 4 + [("b2", "rack-6")] * 2
    assert new[0].labels == (("kubernetes.io/hostname", "gpu17"),)
    assert {node.flavor for node in new} == {S}


def test_new_nodes_are_well_whatever_their_model_node_suffers_from(snapshot: Snapshot) -> None:
    for like in ("gpu03", "gpu04"):
        (new,) = after(f"add 1 nodes like {like}", snapshot).fleet.nodes[len(snapshot.fleet) :]
        assert new.schedulable
        assert new.healthy_gpus == 8


def test_a_new_block_has_all_that_is_in_the_old_one(snapshot: Snapshot) -> None:
    new = after("add 1 block like b2", snapshot).fleet.nodes[len(snapshot.fleet) :]
    assert [(node.name, *node.topology) for node in new] == [
        *((f"gpu{number}", "b3", "rack-5") for number in range(17, 21)),
        *((f"gpu{number}", "b3", "rack-6") for number in range(21, 25)),
    ]


def test_nodes_of_another_model_have_its_memory(snapshot: Snapshot) -> None:
    (new,) = after("add 1 nodes of H200/spot", snapshot).fleet.nodes[len(snapshot.fleet) :]
    assert new.flavor == "H200-SXM5-141GB/spot"
    assert new.devices[0].memory_bytes > 130 * 2**30
    assert (new.cpu_milli, len(new.devices)) == (96000, 8)


def test_what_runs_on_drained_nodes_goes_on_unless_it_is_evicted(snapshot: Snapshot) -> None:
    assert after("drain block b1", snapshot).running == snapshot.running
    evicted = after("drain block b1 evict", snapshot)
    assert not evicted.running
    assert [each.name for each in evicted.pending] == ["big", "held", "serve", "llama", "small"]
    assert evicted.pending[-1].attempts == 1


def test_what_runs_on_removed_nodes_is_stopped_and_reservations_lose_them(snapshot: Snapshot) -> None:
    gone = after("remove gpu01 gpu07", snapshot)
    assert [each.workload.name for each in gone.running] == ["small"]
    assert gone.reservations[0].nodes == ("gpu08",)
    assert len(gone.fleet) == len(snapshot.fleet) - 2


def test_a_failed_node_takes_its_pods_with_it(snapshot: Snapshot) -> None:
    gone = after("fail gpu02", snapshot)
    assert (len(gone.running[0].pods), gone.running[0].missing) == (1, (1,))
    assert View(gone).plan is not None
    assert [each.workload.name for each in after("fail gpu[01-02]", snapshot).running] == ["small"]


def test_other_gpus_a_pod_take_their_share_of_cpu_and_memory(snapshot: Snapshot) -> None:
    (big, *_) = after("job big gpus=4 pods=16", snapshot).pending
    shape = big.pod_sets[0].shape
    assert (shape.gpus, shape.cpu_milli, shape.memory_bytes) == (4, 24000, 128 * 2**30)
    assert big.gpu_milli == snapshot.pending[0].gpu_milli


def test_moves_in_a_row_are_one_step(snapshot: Snapshot) -> None:
    both = [Move("small", (PodPlacement("gpu01", (0,), 1000),)),
            Move("llama", tuple(PodPlacement(node, tuple(range(8)), 1000) for node in ("gpu06", "gpu09")))]  # fmt: skip
    assert [each.pods[0].node for each in apply_changes(snapshot, both).running] == ["gpu06", "gpu01"]


def test_a_wave_is_a_reservation_for_each_batch(snapshot: Snapshot) -> None:
    waves = after("driver-wave gpu[09-13] batch 2 every 30m from 1h", snapshot).reservations[1:]
    assert [(each.start_s, each.end_s, each.nodes) for each in waves] == [
        (4600.0, 6400.0, ("gpu09", "gpu10")),
        (6400.0, 8200.0, ("gpu11", "gpu12")),
        (8200.0, 10000.0, ("gpu13",)),
    ]


SPEC = """
apiVersion: batch/v1
kind: Job
metadata: {name: fresh, labels: {kueue.x-k8s.io/queue-name: team-b}}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
              - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [gpu09, gpu10, gpu11]}]
      containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 8, cpu: 8, memory: 64Gi}}}]
"""


def test_a_spec_is_submitted_with_what_its_affinity_allows(snapshot: Snapshot, tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(SPEC)
    (change,) = parse_change(f"submit {path} priority=5 pods=3", snapshot)
    assert isinstance(change, Submit)
    assert (change.workload.name, change.workload.priority, change.workload.pods) == ("fresh", 5, 3)
    assert change.workload.submitted_s == snapshot.taken_s
    assert parse_change(str(change), snapshot) == (change,)
    placed = View(apply_changes(snapshot, [change])).starts["fresh"]
    assert sorted(pod.node for pod in placed.pods) == ["gpu09", "gpu10", "gpu11"]


MISTAKES = (
    ("", "no change is given"),
    ("dran gpu01", "'dran' is no change; did you mean drain"),
    ("drain", "no nodes are named"),
    ("drain gpu99", "there is no node 'gpu99'; did you mean"),
    ("drain gpu[01-40]", "there is no node 'gpu17' \\(and 23 more of gpu\\[01-40\\]\\)"),
    ("drain zzz*", "no range|there is no node 'zzz\\*'; they are called gpu01 to login1"),
    ("drain block b9", "there is no block 'b9'; there are b1, b2"),
    ("drain block", "which block is meant is not said; such as block b1"),
    ("drain gpu[01-", "not closed"),
    ("drain 'gpu01", "a quote is not closed"),
    ("add 8", "what to add is missing"),
    ("add x nodes like gpu01", "'x' is no whole number"),
    ("add 8 rcks", "'rcks' cannot be added; did you mean rack"),
    ("add 8 nodes", "which node they are like is not said; add 8 nodes like gpu01"),
    ("add 8 nodes of H300", "unknown GPU model 'H300'"),
    ("add 8 nodes of H200/cheap", "no purchase option 'cheap'; reserved, on-demand or spot"),
    ("add 8 nodes like gpu77", "no node or flavor 'gpu77'; did you mean"),
    ("add 1 rack like rack-9", "there is no rack 'rack-9'; did you mean"),
    ("untaint tem", "no node has a taint 'tem'; did you mean team"),
    ("taint a:No gpu01", "there is no effect 'No'"),
    ("quota team-c +64", "there is no queue 'team-c'; did you mean"),
    ("quota team-a lots", "'lots' is no number of GPUs"),
    ("quota team-a", "how many GPUs is missing"),
    ("quota team-b +64", "which flavor is meant is not said; team-b has"),
    ("quota team-a +64 H200", "there is no flavor 'H200'; "),
    ("quota team-a -64", "quota team-a -64 .*: queues\\[1\\].*negative"),
    ("weight team-a 0", "weight"),
    ("set reservation=4", "no setting 'reservation'; did you mean reservations"),
    ("set reservations=many", "set reservations=many: reservations: "),
    ("set reservations", "'reservations' is not NAME=VALUE"),
    ("policy slurmlike", "no preset 'slurmlike'; did you mean slurm-like"),
    ("placement bestfit", "bestfit"),
    ("placement fgd", "must be fitted to a mix of work first; one of random"),
    ("job bg priority=1", "there is no job 'bg'; did you mean big"),
    ("job big", "what of it changes is not said"),
    ("job big prio=1", "'prio=1' is not understood; did you mean priority"),
    ("job big priority=high", "'high' is no whole number"),
    ("job big topology=blok", "there is no level 'blok'; did you mean block"),
    ("job big pods=1,2", "pods has 2 numbers, and the job 1 pod sets"),
    ("job big pods=0", "it would have no pod"),
    ("job big queue=nobody", "there is no queue 'nobody'"),
    ("job big preemptible=perhaps", "preemptible=perhaps is no value; yes or no"),
    ("job llama pods=4", "it runs; of running work .* not pods; put `stop llama;` before it"),
    ("stop big", "'big' does not run, it waits"),
    ("cancel nothing", "there is no job 'nothing'"),
    ("move llama to gpu09:0-7", "names 1 places, and the job has 2 pods"),
    ("move small to gpu09:9", "gpu09 has no GPU 9 for small"),
    ("move small to gpu01:0", "GPU 0 of gpu01 would be given out twice"),
    ("move small gpu09:0", "where to is not said"),
    ("reserve gpu01 from 2h to 1h", "it would end before it starts"),
    ("reserve gpu01", "until when is not said"),
    ("end-reservation servce", "there is no reservation 'servce'; did you mean service"),
    ("driver-wave gpu01 batch 8", "how many nodes at a time, and how often"),
    ("driver-wave 40 nodes batch 8 every 30m", "40 is out of range"),
    ("driver-wave gpu01 batch 8 every soon", "'soon' is no time"),
    ("submit job.yaml", "does not exist"),
    ("submit", "the file is missing; submit FILE"),
    ("submit '{'", "is no workload"),
)


@pytest.mark.parametrize(("text", "what"), MISTAKES)
def test_mistakes_are_told_in_one_line(text: str, what: str, snapshot: Snapshot) -> None:
    with pytest.raises(InputError, match=what) as told:
        parse_change(text, snapshot)
    assert "\n" not in str(told.value)


# -- round trips ------------------------------------------------------------------------------------------------------

SNAPSHOT = small_snapshot()
NODES = st.lists(st.sampled_from([node.name for node in SNAPSHOT.fleet]), min_size=1, unique=True).map(
    lambda names: tuple(node.name for node in SNAPSHOT.fleet if node.name in names)
)
MILLI = st.integers(0, 10**9)
WORDS = st.text(min_size=1, max_size=12)
TIMES = st.integers(1, 10**9).map(float) | st.floats(1e-3, 1e9)
LEVELS = st.sampled_from(["", "block", "rack", "host"])


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


CHANGES: st.SearchStrategy[Change] = st.one_of(
    st.builds(RemoveNodes, NODES),
    st.builds(SetNodes, NODES, st.sampled_from(["uncordon", "fail", "repair", "spare", "unspare"])),
    st.builds(SetNodes, NODES, st.just("drain"), evict=st.booleans()),
    st.builds(
        SetNodes, NODES, st.just("taint"), st.text("abc./-", min_size=1), st.text("ab", max_size=3),
        st.sampled_from(["NoSchedule", "NoExecute"]),
    ),
    st.builds(SetQuota, st.just("team-b"), st.sampled_from([R, S]), by_milli=st.integers(-32000, 10**9)),
    st.builds(SetQuota, st.just("team-a"), st.just(R), to_milli=MILLI),
    st.builds(SetLimit, st.just("team-a"), st.just("borrowing"), maybe(MILLI), st.just(R)),
    st.builds(SetLimit, st.just("team-a"), st.just("user"), maybe(MILLI)),
    st.builds(SetWeight, st.just("team-a"), st.floats(1e-3, 1e6)),
    st.builds(SetConfig, st.just("run_s"), st.floats(1.0, 1e9)),
    st.builds(SetConfig, st.just("defragment"), st.booleans()),
    st.builds(SetPolicy, st.sampled_from(["muster", "kueue-like", "slurm-like", "volcano-like"])),
    st.builds(
        SetJob, st.just("serve"), priority=maybe(st.integers(-(2**31), 2**31 - 1)),
        queue=maybe(st.sampled_from(["team-a", "team-b"])), pods=maybe(st.tuples(st.integers(0, 9), st.integers(1, 9))),
        gpus=maybe(st.tuples(st.just(0), st.integers(0, 8))), cpu_milli=maybe(st.tuples(MILLI, MILLI)),
        memory_bytes=maybe(st.tuples(st.integers(0, 2**50), st.integers(0, 2**50))),
        models=maybe(st.lists(st.text("ABC-1", min_size=1).filter(lambda each: each != "any"), unique=True).map(tuple)),
        flavors=maybe(st.lists(st.sampled_from([R, S]), unique=True).map(tuple)), topology=maybe(LEVELS),
        prefer=maybe(LEVELS), spread=maybe(LEVELS), limit_s=maybe(TIMES | st.just(float("inf"))),
        preemptible=maybe(st.booleans()), released=st.booleans(),
    ).filter(lambda each: str(each) != "job serve"),
    st.builds(Submit, st.builds(Workload, WORDS, st.just((PodSet(WHOLE_NODE),)), queue=st.just("team-b"), user=WORDS)),
    st.builds(Reserve, WORDS, NODES, st.floats(0, 1e6), st.floats(2e6, 1e9), st.just(("team-a", "team-b"))),
    st.builds(Wave, NODES, st.integers(1, 20), TIMES),
)  # fmt: skip


@given(CHANGES)
def test_what_a_change_writes_is_read_as_the_same(change: Change) -> None:
    try:
        apply_changes(SNAPSHOT, [change])
    except InputError:
        return  # what cannot be done here is refused when it is read, too
    assert parse_change(str(change), SNAPSHOT) == (change,)


PLACES = st.builds(
    PodPlacement,
    st.sampled_from(["gpu09", "gpu10"]),
    st.lists(st.integers(0, 7), min_size=1, unique=True).map(tuple),
    st.integers(1, 1000),
)


@given(PLACES)
def test_a_place_is_read_as_it_was_written(place: PodPlacement) -> None:
    change = Move("small", (place,))
    assert parse_change(str(change), SNAPSHOT) == (change,)


@given(st.text("gpu0123[]-,*?; '\"\\ab", max_size=20))
def test_no_text_breaks_it(text: str) -> None:
    with contextlib.suppress(InputError):
        assert parse_change(f"drain {text}", SNAPSHOT)
