"""What sacct printed: a real record of Slurm 22.05, and what newer ones and jobstats add."""

from __future__ import annotations

import base64
import gzip
import json
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from muster.answers.efficiency import advice, advice_of, efficiency, held_gpu_hours, use_of
from muster.cli.main import main
from muster.errors import InputError
from muster.slurm.accounting import FIELDS, JobUse, Run, amount, jobstats, read_sacct, seconds, tres
from slurmdev import Slurm

RECORDED = Path(__file__).parent / "sacct_22_05.txt"
"""sacct of a real slurmctld: a job that used one process, a gang, a failure, a time-out, an array, a requeue."""


@pytest.fixture(scope="module")
def jobs() -> dict[str, JobUse]:
    return {job.id: job for job in read_sacct(RECORDED.read_text(), "sacct")}


def test_the_jobs_of_a_real_record(jobs: dict[str, JobUse]) -> None:
    assert list(jobs) == ["1", "2", "3", "4", "6", "5_0", "5_1", "5_2", "5_3", "10"]
    hog = jobs["1"]
    assert (hog.name, hog.user, hog.account, hog.state) == ("hog", "root", "research", "COMPLETED")
    assert (hog.gpus, hog.gpu_type, hog.cpus, hog.nodes, hog.memory_bytes) == (8, "h100", 1, 1, 64 * 2**30)
    assert (hog.elapsed_s, hog.limit_s, hog.wait_s, round(hog.cpu_s or 0, 3), hog.tasks) == (17, 7200, 0, 3.821, 1)
    assert hog.gpu_hours == pytest.approx(8 * 17 / 3600)
    assert held_gpu_hours(hog) == pytest.approx(8 * (7200 - 17) / 3600)
    assert jobs["2"].tasks == 2
    assert jobs["4"].used_bytes == 3_190_784  # TRESUsageInTot: mem=3116K


def test_runs_that_failed_or_were_put_back_are_lost(jobs: dict[str, JobUse]) -> None:
    again = jobs["6"]
    assert [(run.state, run.lost) for run in again.runs] == [("REQUEUED", True), ("COMPLETED", False)]
    assert again.requeues == 1
    assert again.lost_gpu_hours == pytest.approx(2 * 4 / 3600)
    assert jobs["3"].lost_gpu_hours == jobs["3"].gpu_hours > 0
    assert jobs["2"].lost_gpu_hours == 0


def test_groups_sum_to_the_whole(jobs: dict[str, JobUse]) -> None:
    found = list(jobs.values())
    whole = use_of("all", found)
    for by in ("job", "user", "account", "partition"):
        rows = efficiency(found, by)
        for field in ("jobs", "gpu_hours", "lost_gpu_hours", "held_gpu_hours", "requeues", "failed", "started"):
            assert sum(getattr(row, field) for row in rows) == pytest.approx(getattr(whole, field))
    assert [row.name for row in efficiency(found, "account")] == ["root", "research"]
    assert whole.gpu is None


HEADER = (
    "JobID|JobName|User|State|ElapsedRaw|TimelimitRaw|AllocTRES|NTasks|AllocCPUS|TotalCPU|MaxRSS|TRESUsageInTot|"
    "TRESUsageInAve|AdminComment"
)


def read(*rows: str) -> JobUse:
    (job,) = read_sacct("\n".join([HEADER, *rows]), "x")
    return job


def test_utilisation_of_newer_slurm_and_of_jobstats() -> None:
    tres_ = "cpu=16,gres/gpu=2,mem=64G,node=1"
    job = read(f"7|a|u|COMPLETED|3600|60|{tres_}||16|08:00:00||||",
               f"7.0||u|COMPLETED|3600||{tres_}|2|16|08:00:00|3G|mem=6G|gres/gpumem=9G,gres/gpuutil=37|")  # fmt: skip
    assert (job.gpu_percent, job.gpu_from, job.used_bytes, job.tasks) == (37.0, "gres/gpuutil", 6 * 2**30, 2)
    assert use_of("x", [job]).cpu == 0.5
    summary = {"nodes": {"n1": {"gpu_utilization": {"0": 96.0, "1": 0.0}, "total_time": 9}}, "total_time": 9}
    packed = "JS1:" + base64.b64encode(gzip.compress(json.dumps(summary).encode())).decode()
    job = read(f"7|a|u|COMPLETED|3600|60|{tres_}||16|08:00:00||||{packed}")
    assert (job.gpu_percent, job.gpu_from) == (48.0, "jobstats")
    assert dict(job.gpu_percents) == {"n1:0": 96.0, "n1:1": 0.0}
    ((_, text, hours),) = [each for each in advice_of(job) if each[0] == "idle"]
    assert "1 of its 2 GPUs did nothing (n1:1)" in text
    assert hours == 1.0


@pytest.mark.parametrize("comment", ["JS1:None", "JS1:Short", "JS1:!!", "", "{", "a note of the admin", '{"nodes": 3}'])
def test_comments_that_are_no_summary_say_nothing(comment: str) -> None:
    assert jobstats(comment) == ()


VALUES = [
    ("1-02:03:04", 93784.0), ("02:03:04", 7384.0), ("03:04.5", 184.5), ("00:00:00", 0.0), ("UNLIMITED", None),
    ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_times(text: str, value: float | None) -> None:
    assert seconds(text) == value


def test_amounts() -> None:
    assert tres("cpu=8,mem=1562.50G,gres/gpu:h100=3,gres/gpu:a100=1") == {
        "cpu": 8, "mem": 1677721600000, "gres/gpu:h100": 3, "gres/gpu:a100": 1, "gres/gpu": 4,
    }  # fmt: skip
    assert [amount(text) for text in ("4000Mc", "2Gn", "512K", "7", "x")] == [4000 * 2**20, 2 * 2**30, 2**19, 7, 0]


MISTAKES = [
    ("", "is empty"),
    ("a|b\n1|2", "has no column JobID"),
    ("JobID|State\n1|R", "has no column ElapsedRaw"),
    ("JobID|State|Elapsed\n1|R|00:01|x", "x:2: has 4 fields, and the header 3"),
]


@pytest.mark.parametrize(("text", "words"), MISTAKES)
def test_what_is_no_record_is_told_in_one_line(text: str, words: str) -> None:
    with pytest.raises(InputError) as error:
        read_sacct(text, "x")
    assert words in str(error.value)


def job(**fields: object) -> JobUse:
    """A job of two hours on 8 GPUs that did well."""
    usual: dict[str, object] = {
        "id": "1", "name": "train", "user": "anna", "state": "COMPLETED", "runs": (Run("COMPLETED", 7200, 8),),
        "limit_s": 9000.0, "gpus": 8, "cpus": 64, "memory_bytes": 2**39, "cpu_s": 300_000.0, "used_bytes": 2**38,
        "tasks": 8,
    }  # fmt: skip
    return JobUse(**{**usual, **fields})  # pyright: ignore[reportArgumentType]


STOPPED = (Run("TIMEOUT", 9000, 8, lost=True),)
ADVICE = [
    (job(), [], 0.0),
    (job(tasks=1, cpu_s=7000.0), ["asks 8 GPUs, used 1 process and 1.0 cores"], 14.0),
    (job(cpu_s=10.0), ["held 8 GPUs for 2 h and used 0.1 % of one core: nothing ran"], 16.0),
    (job(gpu_percent=4.0), ["its 8 GPUs were busy 4 % of the time"], 15.36),
    (job(gpu_percent=80.0, tasks=1, cpu_s=7000.0), [], 0.0),
    (job(limit_s=86400.0), ["asks for 24 h and took 2 h: --time=03:00:00"], 176.0),
    (job(used_bytes=2**33), ["has 512.0 GiB of memory and used 8.0 GiB: --mem=11G is enough"], 0.0),
    (
        job(state="TIMEOUT", runs=(Run("TIMEOUT", 9000, 8, lost=True),)),
        ["was stopped at its limit of 2 h 30 min"],
        20.0,
    ),
    (job(state="OUT_OF_MEMORY", runs=(Run("OUT_OF_MEMORY", 9000, 8, lost=True),)), ["ran out of its 512.0 GiB"], 20.0),
    (
        job(requeues=2, runs=(Run("PREEMPTED", 3600, 8, lost=True), Run("COMPLETED", 7200, 8))),
        ["again twice, and 8 GPU"],
        8.0,
    ),
    (job(runs=(Run("COMPLETED", 30, 8),), cpu_s=0.0), [], 0.0),
]


@pytest.mark.parametrize(("one", "words", "hours"), ADVICE)
def test_advice_has_its_number(one: JobUse, words: list[str], hours: float) -> None:
    told = [(text, hours) for _, text, hours in advice_of(one)]
    assert len(told) == len(words), told
    for (text, found), word in zip(told, words, strict=True):
        assert word in text
        assert found == pytest.approx(hours)


def test_jobs_alike_get_one_advice() -> None:
    several = [job(id=f"5_{at}", cpu_s=10.0) for at in range(3)]
    (told,) = advice([*several, job(id="9")])
    assert "(and 2 more like it)" in told.text
    assert (told.gpu_hours, told.jobs) == (48.0, ("5_0", "5_1", "5_2"))


def run(words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, shlex.split(words))
    return done.exit_code, done.output


def test_the_command_on_a_record() -> None:
    code, told = run(f"slurm efficiency --from {shlex.quote(str(RECORDED))} --by account")
    assert code == 0
    assert "10 jobs of 1 user" in told
    assert "GPU utilisation is unknown" in told
    code, told = run(f"slurm efficiency 1 --from {shlex.quote(str(RECORDED))}")
    assert "22.5 %: 3.82 s of 17 s core time" in told
    code, told = run(f"slurm efficiency --from {shlex.quote(str(RECORDED))} --by job -o json")
    document = json.loads(told)
    assert document["schema"] == "muster.slurm-efficiency/v1"
    assert [each["id"] for each in document["jobs"]][:2] == ["1", "2"]
    code, told = run(f"slurm efficiency --from {shlex.quote(str(RECORDED))} --by job --sort lost -o csv")
    assert [line.split(",")[0] for line in told.splitlines()[:3]] == ["name", "4", "6"]
    code, told = run(f"slurm efficiency 5 --from {shlex.quote(str(RECORDED))}")
    assert "4 jobs of 1 user" in told


def test_the_page_shows_what_is_printed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "slurm-efficiency.md").read_text()
    _, told = run(f"slurm efficiency --from {shlex.quote(str(RECORDED))} --by account")
    assert told.splitlines()[0] in page


def test_the_fields_to_ask_for_are_told() -> None:
    assert run("slurm efficiency --fields") == (0, ",".join(FIELDS) + "\n")


def test_a_real_sacct(slurm_empty: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    number = slurm_empty.submit("--gpus=2", "--time=30", body="exit 3")
    slurm_empty.wait("it had failed", lambda: "FAILED" in slurm_empty.run("sacct", "-n", "-X", "-j", str(number)), 30)
    monkeypatch.setenv("SLURM_CONF", slurm_empty.environment()["SLURM_CONF"])
    code, told = run(f"slurm efficiency {number} -o json")
    assert code == 0, told
    ((row,)) = json.loads(told)["rows"]
    assert (row["name"], row["failed"]) == (str(number), 1)
    code, told = run("slurm efficiency 999999")
    assert code != 0


def test_a_file_without_jobs_is_named(tmp_path: Path) -> None:
    record = tmp_path / "week.txt"
    record.write_text(RECORDED.read_text().splitlines()[0] + "\n")
    done = CliRunner().invoke(main, ["slurm", "efficiency", "--from", str(record)])
    assert isinstance(done.exception, InputError)
    assert f"{record}: has no job, only the header" in str(done.exception)
    done = CliRunner().invoke(main, ["slurm", "efficiency", "--from", str(RECORDED), "-u", "nobody"])
    assert f"{RECORDED}: has no such job" in str(done.exception)


@pytest.mark.parametrize("words", ["--by job", "--by user", "--by account", "--by partition", "1"])
def test_a_terminal_obeys_nothing_of_a_record(words: str, tmp_path: Path) -> None:
    header, *rows = RECORDED.read_text().splitlines()
    names = [header.split("|").index(each) for each in ("JobName", "User", "Account", "Partition")]
    lines: list[str] = []
    for row in rows:
        fields = row.split("|")
        for at in names:
            fields[at] = f"{fields[at]}\x1b]0;mine\x07" if fields[at] else ""
        lines.append("|".join(fields))
    (tmp_path / "week.txt").write_text("\n".join([header, *lines]) + "\n")
    code, told = run(f"slurm efficiency {words} --from {shlex.quote(str(tmp_path / 'week.txt'))}")
    assert (code, "\\x1b]0;mine\\x07" in told) == (0, True)
    assert not [each for each in told if not each.isprintable() and each != "\n"]


@pytest.mark.parametrize("option", ["--since=now-1days", "--until=2026-11-01"])
def test_times_that_a_file_cannot_be_asked_for_are_refused(option: str) -> None:
    done = CliRunner().invoke(main, ["slurm", "efficiency", "--from", str(RECORDED), option])
    assert isinstance(done.exception, InputError)
    assert done.exception.field == option.partition("=")[0]
    assert CliRunner().invoke(main, ["slurm", "efficiency", "--from", str(RECORDED)]).exit_code == 0
