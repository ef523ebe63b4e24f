"""A history: what goes in comes out, jobs have their stories, and nothing breaks it."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.answers import history as module
from muster.answers.history import APPLICATION_ID, Added, History
from muster.answers.recording import record
from muster.answers.sources import open_view, read_source
from muster.answers.times import parse_instant
from muster.answers.view import View
from muster.errors import InputError
from muster.model.fleet import Device, Fleet, Node
from muster.model.plan import Evict, Place, Plan, PodPlacement
from muster.model.snapshot import Running, Snapshot, save_snapshot
from muster.model.workload import PodSet, PodShape, Workload

Make = Callable[[int], Snapshot]
DEVICES = tuple(Device(index, "H100") for index in range(8))
FLEET = Fleet(tuple(Node(f"n{number}", 96_000, 1 << 40, DEVICES) for number in range(300)))


def job(name: str, gpus: int = 8, submitted_s: float = 0.0, pods: int = 1, priority: int = 0) -> Workload:
    return Workload(name, (PodSet(PodShape(gpus=gpus), pods),), submitted_s, priority=priority)


def runs(work: Workload, node: str, started_s: float) -> Running:
    return Running(work, started_s, (PodPlacement(node, tuple(range(8)), 1000),))


def small(
    now_s: float, running: tuple[Running, ...] = (), pending: tuple[Workload, ...] = (), **more: object
) -> Snapshot:
    return Snapshot(replace(FLEET, nodes=FLEET.nodes[:1]), (), pending, running, taken_s=now_s, **more)  # pyright: ignore[reportArgumentType]


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**9), count=st.integers(1, 4))
def test_what_goes_in_comes_out(
    seed: int, count: int, random_snapshot: Make, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(seed)
    given_ = [replace(random_snapshot(seed + each), taken_s=2e9 + 600.0 * each) for each in range(count)]
    order = rng.sample(range(count), count)
    path = str(tmp_path_factory.mktemp("h") / "h.db")
    with History(path, write=True) as history:
        numbers = {each: history.add(given_[each]) for each in order}
        for each in range(count):
            assert history.snapshot(numbers[each].id) == given_[each]
            again = history.add(given_[each])
            assert again == Added(numbers[each].id, new=False, bytes=0)
        kept = history.kept()
        assert [each.taken_s for each in kept] == [each.taken_s for each in given_]
        for each, snapshot in zip(kept, given_, strict=True):
            decided = history.decisions(snapshot.taken_s, snapshot.taken_s)
            assert len(decided) == each.decisions == len(View(snapshot).plan.decisions)
    for each, snapshot in enumerate(given_):
        assert read_source(f"history:{path}", snapshot.taken_s + 1.0)[0] == snapshot
        assert open_view(f"history:{path}@{snapshot.taken_s!r}")[0].snapshot == given_[each]


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**9))
@example(seed=111944)  # two snapshots have other work of one name, submitted at one time
def test_events_do_not_depend_on_the_order_of_adding(
    seed: int, random_snapshot: Make, tmp_path_factory: pytest.TempPathFactory
) -> None:
    given_ = [replace(random_snapshot(seed), taken_s=2e9), replace(random_snapshot(seed + 1), taken_s=2e9 + 60.0),
              replace(random_snapshot(seed + 2), taken_s=2e9 + 120.0)]  # fmt: skip
    stories = []
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        with History(str(tmp_path_factory.mktemp("h") / "h.db"), write=True) as history:
            for each in order:
                history.add(given_[each])
            names = {each.name for snapshot in given_ for each in snapshot.pending}
            stories.append({n: [(e.time_s, e.kind, e.text) for e in history.story(n)] for n in sorted(names)})
    assert stories[0] == stories[1] == stories[2]


def test_what_does_not_change_is_kept_once(tmp_path: Path) -> None:
    work = tuple(job(f"j{number:05}", pods=400) for number in range(3000))
    snapshot = Snapshot(FLEET, (), work, taken_s=0.0)
    with History(str(tmp_path / "h.db"), write=True) as history:
        first = history.add(snapshot).bytes
        nodes = tuple(replace(node, schedulable=node.name != "n7") for node in FLEET.nodes)
        changed = replace(snapshot, taken_s=60.0, fleet=replace(FLEET, nodes=nodes), pending=(*work[:50], *work[51:]))
        assert history.add(changed).bytes < first / 10
        assert history.snapshot(2) == changed


def test_the_story_of_a_job_that_was_stopped(tmp_path: Path) -> None:
    low, high = job("low", submitted_s=5.0), job("high", submitted_s=290.0, priority=5)
    shots = [
        (small(10.0, pending=(low,)), None),
        (small(200.0, (runs(low, "n0", 30.0),)), [(30.0, Plan((Place("low", runs(low, "n0", 0.0).pods),)))]),
        (small(400.0, (runs(high, "n0", 300.0),), (replace(low, attempts=1),)),
         [(300.0, Plan((Evict("low", "high", "priority", 2160.0), Place("high", runs(high, "n0", 0.0).pods))))]),
        (small(900.0, (runs(replace(low, attempts=1), "n0", 800.0),), finished=("high",)), None),
        (small(2000.0, finished=("high", "low")), None),
    ]  # fmt: skip
    with History(str(tmp_path / "h.db"), write=True) as history:
        for snapshot, done in shots:
            history.add(snapshot, done)
        assert [f"{each.time_s:g} {each.kind}: {each.text}" for each in history.story("low")] == [
            "5 submitted: 8 GPUs",
            "10 proposed: Muster decides: it starts on n0 (8 GPUs)",
            "30 started: starts on n0 (8 GPUs)",
            "300 stopped: stopped for high (a higher priority); 0.6 GPU-hours of its work are lost",
            "400 waits: its pods do not all fit at once",
            "800 started: 8 GPUs on n0",
            "2000 ended: finished, was on n0",
        ]
        assert [each.kind for each in history.story("high")] == ["submitted", "started", "ended"]
        with pytest.raises(InputError, match="knows no job 'lo'; did you mean low"):
            history.story("lo")
        near = history.decisions(299.0, 301.0)
        assert [(each.record["decision"], each.record["workload"], each.carried_out) for each in near] == [
            ("evict", "low", True), ("place", "high", True),
        ]  # fmt: skip


RUN = """
fleet: uniform:nodes=2,gpus=8,model=H100
workload:
  - {name: eval, gpus: 8, duration_s: 3000, time_limit_s: 4000}
  - {name: train, pods: 2, gpus: 8, submitted_s: 100, duration_s: 1000}
"""


def test_a_run_is_recorded_with_what_it_did(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(RUN)
    with History(str(tmp_path / "h.db"), write=True) as history:
        times = [time_s for time_s, _ in record(history, str(path), 600.0)]
        assert times == [600.0 * number for number in range(8)]
        assert [(each.kind, each.time_s) for each in history.story("train")] == [
            ("submitted", 100.0), ("reserved", 100.0), ("waits", 600.0), ("started", 3000.0), ("ended", 4200.0),
        ]  # fmt: skip
        assert all("duration_s" not in str(work) or work.duration_s is None for work in history.snapshot(2).pending)
        assert all(each.carried_out for each in history.kept())


def test_what_can_never_start_does_not_keep_a_recording_going(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text(RUN.replace("pods: 2", "pods: 3"))
    with History(str(tmp_path / "h.db"), write=True) as history:
        assert len(list(record(history, str(path), 600.0))) == 6
        with pytest.raises(InputError, match="is not above 0"):
            list(record(history, str(path), 0.0))


def test_old_snapshots_are_removed_and_what_only_they_held(tmp_path: Path) -> None:
    path = str(tmp_path / "h.db")
    with History(path, write=True) as history:
        for number in range(20):
            work = tuple(job(f"{number}-{each:04}", pods=2) for each in range(200))
            history.add(small(3600.0 * number, pending=work))
        full = history.bytes
        assert history.prune(keep_s=10 * 3600.0) == list(range(1, 10))
        assert len(history.kept()) == 11
        assert history.bytes < 0.7 * full
        aim = int(0.25 * full)
        history.prune(most_bytes=aim)
        assert history.bytes <= aim
        left = history.kept()
        assert 1 < len(left) < 6
        assert left[-1].taken_s == 19 * 3600.0
        assert [len(history.snapshot(each.id).pending) for each in left] == [200] * len(left)
        history.prune(most_bytes=1)
        assert [each.id for each in history.kept()] == [20], "the newest stays"
        assert os.path.getsize(path) < 0.2 * full  # noqa: PTH202


ADDER = """
import sys
from msgspec.structs import replace
from muster.answers.history import History
from muster.model.snapshot import load_snapshot
snapshot, path, first = load_snapshot(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for number in range(first, first + int(sys.argv[4])):
    with History(path, write=True) as history:
        history.add(replace(snapshot, taken_s=float(number)))
    print(number, flush=True)
"""


def adder(snapshot: Path, path: Path, first: int, count: int) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = [sys.executable, "-c", ADDER, str(snapshot), str(path), str(first), str(count)]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_several_processes_write_at_once_and_one_is_killed(tmp_path: Path) -> None:
    snapshot, path = tmp_path / "s.snap", tmp_path / "h.db"
    save_snapshot(small(0.0, pending=tuple(job(f"j{each}", pods=2) for each in range(100))), snapshot)
    writers = [adder(snapshot, path, 1000 * number, 15) for number in range(2)]
    victim = adder(snapshot, path, 5000, 10_000)
    assert victim.stdout is not None
    for _ in range(5):
        victim.stdout.readline()
    time.sleep(random.Random(7).random() * 0.05)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    for each in writers:
        _, err = each.communicate(timeout=120)
        assert each.returncode == 0, err
    with History(str(path), write=True) as history:
        kept = history.kept()
        assert {1000.0 * number + each for number in range(2) for each in range(15)} < {each.taken_s for each in kept}
        assert sum(each.taken_s >= 5000 for each in kept) >= 5
        for each in kept:
            assert len(history.snapshot(each.id).pending) == 100
            assert each.decisions == 0
        assert sqlite3.connect(path).execute("PRAGMA integrity_check").fetchone() == ("ok",)


def _other_program(path: Path) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE photos (name TEXT)")


def _newer(path: Path) -> None:
    History(str(path), write=True).__exit__()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 9")


def _damaged(path: Path) -> None:
    with History(str(path), write=True) as history:
        history.add(small(0.0, pending=tuple(job(f"j{each}", pods=2) for each in range(500))))
    data = bytearray(path.read_bytes())
    data[4096:] = b"\x55" * (len(data) - 4096)
    path.write_bytes(data)


WRONG: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "there is no such history; `muster history add` makes one"),
    "text": (lambda path: path.write_text("hello " * 100), "is no history; name a file that"),
    "other": (_other_program, "is a database of another program"),
    "newer": (_newer, "is a history of version 9; this Muster reads up to 1; read it with a newer Muster"),
    "damaged": (_damaged, "is damaged"),
    "empty": (lambda path: path.touch(), "is a database of another program"),
    "nothing": (lambda path: History(str(path), write=True).__exit__(), "holds no snapshot; add one with"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_with_the_file_is_one_line(what: str, tmp_path: Path) -> None:
    make, told = WRONG[what]
    path = tmp_path / "h.db"
    make(path)
    with pytest.raises(InputError, match=told):
        read_source(f"history:{path}")


def test_a_locked_history_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "h.db"
    monkeypatch.setattr(module, "LOCKED_AFTER_S", 0.05)
    with History(str(path), write=True) as history:
        history.add(small(0.0))
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InputError, match=r"is locked by another process; tried for 0\.05 s; try again"):
            history.add(small(1.0))
        assert [each.id for each in history.kept()] == [1], "reading goes on"
        other.execute("ROLLBACK")
        other.close()
        history.add(small(1.0))
    assert sqlite3.connect(path).execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)


def test_an_instant_before_the_history(tmp_path: Path) -> None:
    path = tmp_path / "h.db"
    with History(str(path), write=True) as history:
        history.add(small(500.0))
    with pytest.raises(InputError, match=r"has nothing up to 400 s .*; it begins at 500 s"):
        read_source(f"history:{path}", 400.0)
    with pytest.raises(InputError, match="the instant is given twice"):
        read_source(f"history:{path}@600", 600.0)


DAY = 1_795_996_800.0  # 2026-11-30 at midnight, UTC
TIMES = [
    ("14:03", DAY + 15 * 3600, DAY + 14 * 3600 + 180),
    ("14:03", DAY + 13 * 3600, DAY - 10 * 3600 + 180),  # the last one there was: yesterday
    ("14:03:05", DAY + 15 * 3600, DAY + 14 * 3600 + 185),
    ("2026-11-30T14:03", DAY, DAY + 14 * 3600 + 180),
    ("2026-11-30 14:03:05", DAY, DAY + 14 * 3600 + 185),
    ("2026-11-30T14:03+01:00", DAY, DAY + 13 * 3600 + 180),
    ("2026-11-30", DAY, DAY),
    ("2h", DAY, DAY - 7200),
    ("1795996800", DAY, DAY),
    ("1:30", 50_000.0, 5400.0),
    ("90m", 50_000.0, 5400.0),
    ("30:00", 500_000.0, 108_000.0),
    ("5400.5", 50_000.0, 5400.5),
]


@pytest.mark.parametrize(("text", "newest_s", "seconds"), TIMES)
def test_instants_as_people_write_them(text: str, newest_s: float, seconds: float) -> None:
    assert parse_instant(text, newest_s) == seconds


@pytest.mark.parametrize("text", ["", "noon", "25:00", "14:61", "-5", "nan", "inf", "2026-13-01", "1e99", "5w"])
def test_what_is_no_instant(text: str) -> None:
    with pytest.raises(InputError, match="is no time; such as 14:03"):
        parse_instant(text, DAY)
