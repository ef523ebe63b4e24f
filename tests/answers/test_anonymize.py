"""Snapshots without names: the engine decides the same, and nothing of the old names is left."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.answers.anonymize import Anonymized, anonymize
from muster.engine.config import Config, config_of
from muster.engine.decide import decide
from muster.engine.predict import name_stem
from muster.engine.scheduler import Scheduler
from muster.model.fleet import Device, Fleet, Node, Taint, Topology
from muster.model.plan import Plan
from muster.model.snapshot import Snapshot, encode_snapshot
from muster.model.workload import PodSet, PodShape, Toleration, TopologyRequest, Workload
from muster.traces.snapshots import snapshot_text

Make = Callable[[int], Snapshot]
KEYS = st.sampled_from(["", "a secret"])


def renamed(plan: Plan, found: Anonymized) -> list[dict[str, Any]]:
    """A plan with the new names and times."""
    return _renamed(told(plan), found)


def told(plan: Plan) -> list[dict[str, Any]]:
    """A plan in plain values."""
    return msgspec.json.decode(msgspec.json.encode(plan.decisions))


def _renamed(value: Any, found: Anonymized, field: str = "") -> Any:
    jobs, nodes = found.names["jobs"], found.names["nodes"]
    if isinstance(value, Mapping):
        return {key: _renamed(each, found, key) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_renamed(each, found, field) for each in value]
    if field in ("workload", "workloads", "for_workload"):
        return jobs.get(value, value)
    if field in ("node", "nodes"):
        return nodes[value]
    return value - found.earlier_s if field == "start_s" else value


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9), key=KEYS, queueing=st.sampled_from(["", "strict", "best-effort"]))
def test_the_engine_decides_the_same(seed: int, key: str, queueing: str, random_snapshot: Make) -> None:
    snapshot = random_snapshot(seed)
    found = anonymize(snapshot, key)
    assert found.unkept == ()
    config = config_of({**dict(snapshot.settings), **({"queueing": queueing} if queueing else {})})
    old = decide(snapshot, snapshot.taken_s, config)
    new = decide(found.snapshot, found.snapshot.taken_s, config)
    assert told(new) == renamed(old, found)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**9), key=KEYS)
def test_what_is_decided_later_is_the_same_too(seed: int, key: str, random_snapshot: Make) -> None:
    """Predictions come into play as work ends: kinds of work must have been kept."""
    rng = random.Random(seed)
    snapshot = random_snapshot(seed)
    found = anonymize(snapshot, key)
    config = Config(predict="always", reservations=3)
    old, new = Scheduler(snapshot, config), Scheduler(found.snapshot, config)
    now_s = snapshot.taken_s
    for _ in range(12):
        now_s += rng.choice((0.0, 300.0, 4000.0))
        if len(old.running):
            name = rng.choice(sorted(run.workload.name for run in old.running))
            old.finish(name, now_s)
            new.finish(found.names["jobs"][name], now_s - found.earlier_s)
        plan = new.cycle(now_s - found.earlier_s)
        assert told(plan) == renamed(old.cycle(now_s), found)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**9), key=KEYS)
def test_no_old_name_is_left(seed: int, key: str, random_snapshot: Make) -> None:
    snapshot = random_snapshot(seed)
    found = anonymize(snapshot, key)
    words = {"ann", "bob", "carol", "acme", "secret", "gold", "iron", "hall-", "aisle-", "tenant-red", "tenant-blue"}
    words |= {"NIC", "worker-of", "x7f2k", "llama", "sweep", "finetune", "etl"}
    for what in ("jobs", "stems", "users", "queues", "namespaces", "tenants", "reservations"):
        words |= set(found.names[what]) - {""}
    words |= {node.name for node in snapshot.fleet}
    for text in (msgspec.msgpack.encode(found.snapshot), snapshot_text(found.snapshot, "json")):
        assert [word for word in sorted(words) if word.encode() in text] == []
    assert anonymize(snapshot, key) == found, "the same again"
    assert encode_snapshot(anonymize(snapshot, key).snapshot) == encode_snapshot(found.snapshot)
    again = anonymize(found.snapshot, key)
    assert again.unkept == ()


NAMES = st.text("ab-_.0123456789xf~T", min_size=1, max_size=14)


@settings(max_examples=300, deadline=None)
@given(names=st.sets(NAMES, min_size=1, max_size=30), key=KEYS)
def test_names_keep_their_order_and_kind_or_it_is_told(names: set[str], key: str) -> None:
    found = anonymize(Snapshot(Fleet(), finished=tuple(sorted(names))), key)
    jobs, odd = found.names["jobs"], set(found.unkept)
    assert len(set(jobs.values())) == len(names)
    kept = [name for name in sorted(names) if name not in odd]
    if not odd:
        assert [jobs[name] for name in kept] == sorted(jobs.values())
    for one in kept:
        for other in kept:
            assert (name_stem(one) == name_stem(other)) == (name_stem(jobs[one]) == name_stem(jobs[other]))


@pytest.mark.parametrize("names", [
    ("1", "2", "10", "12a", "9"),  # Slurm's numbers
    ("train-1", "train-2", "train-x-1", "train-x-2", "train-zz"),
    ("train", "train-bcdfg", "train-l-1", "train-xzxzx"),  # a kind in the middle of another
    ("default/train-7d9f6c5b4-x7f2k", "default/train-7d9f6c5b4-z4q5w", "default/trainer-0"),
    ("a-20260131T0910", "a-deadbeef1", "a.b_c[7]", "ä-1", "ä-2"),
])  # fmt: skip
@pytest.mark.parametrize("key", ["", "k"])
def test_usual_names_are_kept_apart_and_in_order(names: tuple[str, ...], key: str) -> None:
    assert anonymize(Snapshot(Fleet(), finished=names), key).unkept == ()


def small(**fields: Any) -> Snapshot:
    node = Node(
        "n1", 8000, 1 << 34, (Device(0, "H100"),),
        (("kubernetes.io/hostname", "n1"), ("lab", "x"), ("nvidia.com/gpu.product", "NVIDIA-H100"), ("on", "true")),
        (Taint("nvidia.com/gpu", "present"), Taint("team", "red")), ("room-7",),
    )  # fmt: skip
    return Snapshot(Fleet((node,), Topology(("acme-hall",)), "east"), **fields)


def test_what_is_public_stays_and_what_is_not_does_not() -> None:
    shape = PodShape(0, 0, 1, node_selector=(("lab", "x"),), tolerations=(Toleration("team", "Equal", "red"),))
    job = Workload(
        "j", (PodSet(shape, role="worker"), PodSet(shape, role="anns")), topology=TopologyRequest("acme-hall")
    )
    found = anonymize(small(pending=(job,), settings=(("keep_whole", "acme-hall"),))).snapshot
    node, work = found.fleet.nodes[0], found.pending[0]
    labels = dict(node.labels)
    assert labels["nvidia.com/gpu.product"] == "NVIDIA-H100"
    assert labels["kubernetes.io/hostname"].startswith("value-")
    assert "true" in labels.values()
    assert "lab" not in labels
    assert work.pod_sets[0].shape.node_selector[0] in node.labels
    assert {each.key for each in node.taints} == {"nvidia.com/gpu", work.pod_sets[0].shape.tolerations[0].key}
    assert (found.fleet.topology.levels, node.topology) == (("level-1",), ("level-1-1",))
    assert work.topology == TopologyRequest("level-1")
    assert found.settings == (("keep_whole", "level-1"),)
    assert [each.role for each in work.pod_sets] == ["worker", "role-1"]


def test_a_key_gives_the_same_tags_in_every_snapshot_and_none_can_be_guessed() -> None:
    one = anonymize(small(finished=("b-1",)), "k").names
    two = anonymize(small(finished=("a-1", "b-1")), "k").names
    tag = one["jobs"]["b-1"].rpartition("-")[2]
    assert two["jobs"]["b-1"].rpartition("-")[2] == tag
    assert one["nodes"] == two["nodes"]
    assert anonymize(small(finished=("b-1",)), "other").names["jobs"]["b-1"].rpartition("-")[2] != tag
    assert anonymize(small(finished=("zebra-1",))).names["jobs"]["zebra-1"] == "job-1u-2"
    assert anonymize(small(finished=("b-1",))).names["jobs"]["b-1"] == "job-1u-2", "without a key names are numbers"


def test_calendar_times_are_moved_as_a_whole_and_those_of_a_simulation_stay() -> None:
    job = Workload("j", (PodSet(PodShape()),), 1.7e9 + 30.25, not_before_s=1.7e9 + 90.0)
    found = anonymize(small(pending=(job,), taken_s=1.7e9 + 60.5))
    work = found.snapshot.pending[0]
    assert found.snapshot.taken_s - work.submitted_s == 30.25
    assert (work.not_before_s - work.submitted_s, work.start_deadline_s) == (59.75, None)
    assert 0 < found.snapshot.taken_s < 1e9
    plain = anonymize(small(pending=(replace(job, submitted_s=0.0, not_before_s=0.0),), taken_s=60.5))
    assert (plain.earlier_s, plain.snapshot.taken_s) == (0.0, 60.5)
