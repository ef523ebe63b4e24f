"""Snapshots: exact round trip, readable differences, clear words for what cannot be read."""

from __future__ import annotations

import contextlib
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.errors import InputError
from muster.model import (
    Device,
    Fleet,
    Node,
    PodPlacement,
    PodSet,
    PodShape,
    Queue,
    Quota,
    Running,
    ShapeMix,
    Snapshot,
    Taint,
    Topology,
    Workload,
    checked_shape,
    diff_snapshots,
    load_snapshot,
    save_snapshot,
    single_pod,
)  # fmt: skip
from muster.model.columns import Column, Columns, from_columns
from muster.model.snapshot import decode_snapshot, encode_snapshot

NAMES = st.text("abcdefgh-0123456789", min_size=1, max_size=8)
SHAPES = st.builds(
    PodShape,
    cpu_milli=st.integers(0, 10**6),
    memory_bytes=st.integers(0, 2**45),
    gpus=st.integers(0, 8),
    gpu_milli=st.integers(1, 1000),
    gpu_models=st.lists(NAMES, max_size=2).map(tuple),
)
NODES = st.builds(
    Node,
    name=NAMES,
    cpu_milli=st.integers(0, 10**6),
    memory_bytes=st.integers(0, 2**45),
    devices=st.integers(0, 8).map(lambda count: tuple(Device(index, "T4", 2**34) for index in range(count))),
    labels=st.just((("zone", "a"),)),
    taints=st.just((Taint("gpu"),)),
    topology=st.just(("zone-a", "rack-1")),
)
WORKLOADS = st.builds(
    Workload,
    name=NAMES,
    pod_sets=st.lists(st.builds(PodSet, shape=SHAPES, count=st.integers(1, 99)), min_size=1, max_size=2).map(tuple),
    submitted_s=st.floats(0, 1e9),
    duration_s=st.none() | st.floats(0, 1e9),
)
SNAPSHOTS = st.builds(
    Snapshot,
    fleet=st.builds(
        Fleet,
        nodes=st.lists(NODES, max_size=4, unique_by=lambda node: node.name).map(tuple),
        topology=st.just(Topology(("zone", "rack"))),
    ),
    queues=st.just((Queue("research", quotas=(Quota("H100/reserved", 8000),)),)),
    pending=st.lists(WORKLOADS, max_size=3, unique_by=lambda workload: workload.name).map(tuple),
    running=st.lists(
        st.builds(
            Running, workload=WORKLOADS, started_s=st.floats(0, 1e9), pods=st.just((PodPlacement("a", (0, 1), 1000),))
        ),
        max_size=2,
    ).map(tuple),
    taken_s=st.floats(0, 1e9),
)


@given(SNAPSHOTS)
def test_round_trip_is_exact_and_bytes_are_stable(snapshot: Snapshot) -> None:
    data = encode_snapshot(snapshot)
    assert decode_snapshot(data) == snapshot
    assert encode_snapshot(decode_snapshot(data)) == data
    assert diff_snapshots(snapshot, snapshot) == ()


@given(SNAPSHOTS)
def test_files_of_version_1_are_read(snapshot: Snapshot) -> None:
    first = b"MUSTERSNAP\x01" + zlib.compress(msgspec.msgpack.encode(snapshot))
    assert decode_snapshot(first) == snapshot


def test_what_is_the_same_is_written_once_and_read_as_one_object() -> None:
    sets = tuple((PodSet(PodShape(1000 * (at % 2), gpus=8), 4),) for at in range(1000))
    devices = tuple(tuple(Device(index, "T4") for index in range(8)) for _ in range(1000))
    nodes = tuple(Node(f"n{at}", 1000, 1000, each) for at, each in enumerate(devices))
    work = tuple(Workload(f"w{at}", each, queue="q") for at, each in enumerate(sets))
    data = encode_snapshot(Snapshot(Fleet(nodes), pending=work))
    again = decode_snapshot(data)
    assert (again.fleet.nodes, again.pending) == (nodes, work)
    assert len({id(node.devices) for node in again.fleet}) == 1
    assert len({id(each.pod_sets) for each in again.pending}) == 2
    assert len(zlib.decompress(data[11:])) < 40 * (len(nodes) + len(work))


@given(SNAPSHOTS, st.data())
def test_a_damaged_file_is_told_or_read_and_never_fails_otherwise(snapshot: Snapshot, data: st.DataObject) -> None:
    raw = bytearray(zlib.decompress(encode_snapshot(snapshot)[11:]))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = raw[: data.draw(st.integers(len(raw) // 2, len(raw)))]
    with contextlib.suppress(InputError):
        decode_snapshot(b"MUSTERSNAP\x02" + zlib.compress(bytes(cut)))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (Columns(1, {}), "missing required field `name`"),
        (Columns(2, {"name": Column(msgspec.Raw(b"\x91\xa1a"))}), "`name` has 1 values for 2 items"),
        (Columns(1, {"name": Column(msgspec.Raw(b"\x91\xa1a"), [1])}), "`name` refers to values that are not there"),
        (Columns(1, {"name": Column(msgspec.Raw(b"\x91\xa1a"), [-1])}), "`name` refers to values that are not there"),
        (Columns(1, {"name": Column(msgspec.Raw(b"\x91\x01"))}), "Expected `str`, got `int`"),
    ],
)
def test_columns_that_hold_nothing_are_refused(columns: Columns, said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=said):
        from_columns(columns, Queue)


def test_a_difference_names_the_object_and_both_values() -> None:
    before = Snapshot(Fleet((Node("gpu01", 8000, 2**30, (Device(0, "T4"),)), Node("gpu02", 8000, 2**30))))
    after = Snapshot(Fleet((Node("gpu01", 8000, 2**30, (Device(0, "T4", healthy=False),)),)), taken_s=5.0)
    assert [str(change) for change in diff_snapshots(before, after)][:1] == [
        "~ fleet.nodes.gpu01.devices.0.healthy: true -> false"
    ]
    assert any(str(change).startswith("- fleet.nodes.gpu02") for change in diff_snapshots(before, after))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is not a Muster snapshot"),
        (b"MUSTERSNAP", "is not a Muster snapshot"),
        (b"MUSTERSNAP\x63rest", "version 99"),
        (b"MUSTERSNAP\x01rest", "cut short or damaged"),
        (b"MUSTERSNAP\x02rest", "cut short or damaged"),
        (b"MUSTERSNAP\x02" + zlib.compress(b"rest"), "does not hold a snapshot"),
        (b"MUSTERSNAP\x02" + zlib.compress(b""), "does not hold a snapshot"),
        (encode_snapshot(Snapshot(Fleet()))[:-3], "cut short or damaged"),
    ],
)
def test_what_is_no_snapshot_is_refused_in_one_line(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.snap"
    path.write_bytes(data)
    with pytest.raises(InputError, match=said) as error:
        load_snapshot(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    save_snapshot(Snapshot(Fleet()), tmp_path / "a.snap")
    assert [path.name for path in tmp_path.iterdir()] == ["a.snap"]
    with pytest.raises(InputError, match="cannot be written"):
        save_snapshot(Snapshot(Fleet()), tmp_path / "none" / "a.snap")


@pytest.mark.parametrize(
    "shape",
    [PodShape(cpu_milli=-1), PodShape(memory_bytes=-1), PodShape(gpus=-1), PodShape(gpus=1, gpu_milli=0),
     PodShape(gpus=1, gpu_milli=1001), PodShape(cpu_milli=2**60)],
)  # fmt: skip
def test_absurd_shapes_are_refused_with_their_field(shape: PodShape) -> None:
    with pytest.raises(InputError, match="field '"):
        checked_shape(shape, file="f", line=3)


def test_a_mix_counts_shapes_the_most_frequent_first() -> None:
    rare, common = PodShape(gpus=8), PodShape(gpus=1)
    mix = ShapeMix.of([single_pod("a", rare), single_pod("b", common), single_pod("c", common)])
    assert mix == ShapeMix((common, rare), (2, 1))
