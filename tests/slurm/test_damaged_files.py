"""Files of Slurm's commands that are damaged: each is told on stderr with file and line, or refused in one line."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.answers.sources import read_source
from muster.cli.main import main
from muster.errors import InputError
from muster.slurm.shown import pieces_of
from muster.traces import slurm as slurm_files
from muster.traces.slurm import read_slurm_files

DATA = Path(__file__).parent / "data" / "commands-22.05"
JOBS = len((DATA / "jobs.txt").read_text().splitlines())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files of a real Slurm, to be damaged."""
    for file in DATA.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def asked(folder: Path) -> Result:
    return CliRunner().invoke(main, ["fleet", "show", "--from", f"slurm:{folder}"])


def lines(keep: int | None = None, cut: int | None = None) -> Callable[[bytes], bytes]:
    return lambda data: b"".join(data.splitlines(keepends=True)[:keep])[:cut]


def instead(old: str, new: str) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        text = data.decode()
        assert re.search(old, text), old
        return re.sub(old, new, text, count=1).encode()

    return change


TOLD: tuple[tuple[str, Callable[[bytes], bytes], str], ...] = (
    ("nodes.txt", lambda data: data[:-300], r"nodes\.txt:16: NodeName=gpu16: is cut off"),
    ("nodes.txt", instead("State=", "Stat="), r"nodes\.txt:1: NodeName=gpu01: has no State"),
    ("nodes.txt", instead("CPUTot=96", "CPUTot=9o"), r"nodes\.txt:1: NodeName=gpu01: CPUTot is '9o'"),
    ("nodes.txt", instead("Gres=gpu:h100:8 ", "Gres=gpu::h1 "), r"nodes\.txt:1: NodeName=gpu01: Gres is 'gpu::h1'"),
    ("nodes.txt", lines(12), r"partitions have 4 nodes that no file shows, such as gpu13"),
    ("nodes.txt", lambda data: data + lines(1)(data), r"nodes\.txt:17: NodeName=gpu01: stands twice; that of line 1"),
    ("jobs.txt", lambda data: data[: data.index(b"JobId=3 ") + 300], r"jobs\.txt:\d+: JobId=3: (?:is cut off|has no)"),
    ("jobs.txt", instead(r"NodeList=gpu\[01-04\]", "NodeList=gpu[01-04"), r"jobs\.txt:1: JobId=1: NodeList: a bracket"),
    ("jobs.txt", instead(r" Nodes=gpu\[01-04\]", " Nodes=gpu[04-01]"), r"jobs\.txt:1: JobId=1: '04-01' runs backwards"),
    ("jobs.txt", instead("TimeLimit=02:00:00", "TimeLimit=02:0x"), r"jobs\.txt:1: JobId=1: TimeLimit is '02:0x'"),
    ("jobs.txt", instead("SubmitTime=2026-11", "SubmitTime=2026-31"), r"jobs\.txt:1: JobId=1: SubmitTime is"),
    ("jobs.txt", instead("JobId=1 ", "JobId=one "), r"jobs\.txt:1: JobId=one: is no name of one"),
    ("jobs.txt", lambda _: b"slurm_load_jobs error: Unable to contact slurm controller\n",
     r"jobs\.txt:1: 'slurm_load_jobs error: .*nothing that Slurm prints"),
    ("jobs.txt", lambda _: b"", r"jobs\.txt: is empty"),
    ("jobs.txt", lambda data: data[:500] + b"\0\1\2" + data[500:], r"jobs\.txt:1: is not text"),
    ("jobs.txt", lambda _: (DATA / "qos.txt").read_bytes(), r"jobs\.txt: its name says jobs, .*none, but QOS"),
    ("jobs.txt", lambda data: gzip.compress(data)[:-20], r"jobs\.txt: .*gzip"),
    ("reservations.txt", instead(r"Nodes=gpu\[13-14\]", "Nodes=gpu[13-14"), r"reservations\.txt:1: .*maint: Nodes: a"),
    ("reservations.txt", lines(1, 90), r"reservations\.txt:1: ReservationName=maint: has no"),
    ("reservations.txt", instead("EndTime=2026", "EndTime=x"), r"reservations\.txt:1: .*maint: EndTime is"),
    ("reservations.txt", lambda _: b"\x89PNG\r\n\x1a\n\0\0", r"reservations\.txt:3: is not text"),
    ("reservations.txt", lambda _: b"", r"reservations\.txt: is empty"),
    ("topology.txt", instead(r"gpu\[05-08\]", "gpu[05-08"), r"topology\.txt:2: SwitchName=leaf2: Nodes: a bracket"),
    ("topology.txt", instead(r" Nodes=gpu\[05-08\]", ""), r"topology\.txt:2: SwitchName=leaf2: has neither Nodes nor"),
    ("topology.txt", lambda _: b"hello\nworld\n", r"topology\.txt:1: 'hello' is nothing that Slurm prints, and 1 more"),
    ("partitions.txt", lines(2, -200), r"partitions\.txt:2: PartitionName=debug: (?:is cut off|has no)"),
    ("qos.txt", lines(3, -10), r"qos\.txt:3: 'spot|qos\.txt:3: 'high.* has \d+ of the 26 columns of QOS"),
    ("associations.txt", instead("Cluster", "Custer"), r"associations\.txt:1: 'Custer\|Account"),
)  # fmt: skip


@pytest.mark.parametrize(("name", "change", "told"), TOLD, ids=[f"{name}: {told}" for name, _, told in TOLD])
def test_what_is_damaged_is_told_and_reading_goes_on(
    folder: Path, name: str, change: Callable[[bytes], bytes], told: str
) -> None:
    (folder / name).write_bytes(change((DATA / name).read_bytes()))
    said = list[str]()
    snapshot, _ = read_source(f"slurm:{folder}", warn=said.append)
    assert len(snapshot.fleet.nodes) >= 12
    assert re.search(rf"^not read: .*{told}", "\n".join(said), re.M), said


def test_it_is_said_on_stderr_and_the_answer_is_given(folder: Path) -> None:
    (folder / "reservations.txt").write_bytes(b"ReservationName=maint StartTime=2026-1")
    result = asked(folder)
    assert result.exit_code == 0
    assert "not read: " in result.stderr
    assert "reservations.txt:1: ReservationName=maint: StartTime is '2026-1', no time" in result.stderr
    assert "h100" in result.stdout


def test_whole_files_are_read_without_a_word(folder: Path) -> None:
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    world = read_slurm_files(str(folder))
    assert (len(world.nodes), len(world.jobs), len(world.switches), len(world.qos), len(world.unread)) == (
        16, JOBS, 7, 4, 0,
    )  # fmt: skip
    assert world.jobs == read_slurm_files(str(DATA)).jobs


def test_without_any_node_it_is_refused_with_the_first_thing_that_is_wrong(folder: Path) -> None:
    (folder / "nodes.txt").write_bytes(b"\0" * 100)
    with pytest.raises(InputError, match=r"holds no nodes .*nodes\.txt:1: is not text"):
        read_slurm_files(str(folder))


def test_a_record_that_stands_in_two_files_counts_once(folder: Path) -> None:
    (folder / "old-jobs.txt").write_bytes((DATA / "jobs.txt").read_bytes())
    world = read_slurm_files(str(folder))
    assert len(world.jobs) == JOBS
    assert sum("stands in another file, too" in each for each in world.unread) == JOBS


def test_a_file_that_is_too_large_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_files, "MOST_BYTES", 1 << 10)
    with pytest.raises(InputError, match="holds more than"):
        read_slurm_files(str(folder))


def test_an_empty_cluster_says_so(folder: Path) -> None:
    (folder / "jobs.txt").write_text("No jobs in the system\n")
    (folder / "reservations.txt").write_text("No reservations in the system\n")
    world = read_slurm_files(str(folder))
    assert (world.jobs, world.reservations, world.unread) == ([], [], [])


@settings(max_examples=60, deadline=None)
@given(name=st.sampled_from(["nodes.txt", "jobs.txt", "reservations.txt"]), at=st.integers(1, 10**6))
def test_a_record_that_is_cut_anywhere_is_read_whole_or_told(name: str, at: int) -> None:
    """Of a text that ends after any letter, every record that it begins is among the pieces or told of."""
    text = (DATA / name).read_text()
    text = text[: at % len(text) + 1]
    shown = pieces_of(text)
    begun = [number for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    accounted = [piece.line for piece in shown.pieces] + [each.line for each in shown.unread]
    assert sorted(accounted) == begun
