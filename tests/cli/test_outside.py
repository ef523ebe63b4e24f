"""The world around a command: streams that are closed or full, odd settings, names that are no text, Ctrl-C, kill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

LAUNCH = [sys.executable, "-c", "from muster.cli.main import run; run()"]
SPEAKING = (
    "--help",
    "catalog gpus",
    "catalog gpus -o json",
    "trace info generate:mix=default,pods=9",
    "fleet show example",
)


def shell(line: str, redirection: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = f'"$@" {line} {redirection}'
    return subprocess.run(
        ["/bin/sh", "-c", command, "sh", *LAUNCH], capture_output=True, text=True, timeout=120, cwd=folder, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("line", SPEAKING)
def test_a_full_stdout_is_one_line(line: str, tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    done = shell(line, ">/dev/full", tmp_path)
    assert done.returncode == 2
    assert done.stderr == "muster: cannot be read or written (No space left on device)\n"


@pytest.mark.parametrize("line", SPEAKING)
@pytest.mark.parametrize("redirection", [">&-", ">&- 2>&-", "| true"])
def test_a_closed_stdout_is_no_error(line: str, redirection: str, tmp_path: Path) -> None:
    done = shell(line, redirection, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("line", "code"), [("trace generate --pods 3 -O out", 0), ("trace info nothing", 2), ("x", 2)])
def test_a_stderr_that_takes_nothing_changes_no_code(redirection: str, line: str, code: int, tmp_path: Path) -> None:
    assert shell(line, redirection, tmp_path).returncode == code


@pytest.mark.parametrize("columns", ["", "abc", "-5", "0", "1.5", "9" * 5000, "٣", " "])
def test_a_width_that_is_none_is_as_good_as_none(columns: str, tmp_path: Path) -> None:
    usual = shell("fleet show example", "", tmp_path, COLUMNS="100")
    assert usual.returncode == 0
    assert shell("fleet show example", "", tmp_path, COLUMNS=columns).stdout == usual.stdout


@pytest.mark.parametrize("settings", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}])
def test_settings_of_the_terminal_change_no_byte(settings: dict[str, str], tmp_path: Path) -> None:
    usual = shell("fleet show example", "", tmp_path)
    assert usual.stdout
    assert shell("fleet show example", "", tmp_path, **settings).stdout == usual.stdout


def test_a_table_that_the_encoding_lacks_is_one_line(tmp_path: Path) -> None:
    done = shell("fleet show uniform:nodes=1,prefix=\u65e5 -o wide", "", tmp_path, PYTHONIOENCODING="ascii")
    assert done.returncode == 2
    assert done.stderr == "muster: output cannot be written in ascii; set PYTHONIOENCODING=utf-8\n"


@pytest.mark.parametrize("output", ["json", "yaml", "csv"])
@pytest.mark.parametrize("settings", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}])
def test_names_of_all_scripts_are_printed_everywhere(settings: dict[str, str], output: str, tmp_path: Path) -> None:
    line = f"fleet show uniform:nodes=1,prefix=\u65e5\u672c -o {output}"
    done = shell(line, "", tmp_path, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\u65e5\u672c-1" in done.stdout


@pytest.mark.parametrize("line", ["trace info %s -o json", "trace convert %s out", "simulate --fleet %s --workload %s"])
def test_names_that_are_no_text_are_refused(line: str, tmp_path: Path) -> None:
    name = os.fsencode(tmp_path) + b"/bad\xff.csv"
    Path(os.fsdecode(name)).write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\na,1,1,1,1000,\n")
    words = [*LAUNCH, *(name if word == "%s" else word for word in line.split())]
    done = subprocess.run(words, capture_output=True, timeout=60, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(b"muster: argument ")
    assert done.stderr.count(b"\n") == 1


SWEEP = "simulate --fleet example --workload generate:mix=default --policy best-fit --no-timings -o csv --jobs 2"


def started(tmp_path: Path, seeds: str, *more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "MUSTER_CACHE_DIR": str(tmp_path)}
    return subprocess.Popen(
        [*LAUNCH, *SWEEP.split(), "--seeds", seeds, *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment, start_new_session=True,
        # who starts the tests in the background may have let them ignore Ctrl-C, which children inherit
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip


def wait_for_runs(tmp_path: Path, count: int) -> None:
    end = time.monotonic() + 120
    while len(list(tmp_path.glob("sweeps/*/*.json"))) < count:
        assert time.monotonic() < end
        time.sleep(0.01)


def group_is_gone(group: int) -> bool:
    """Whether every process of the group has ended (an ended one that nobody has waited for counts as gone)."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(its_group) == group and state not in "ZX":
            return False
    return True


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes in /proc")
def test_ctrl_c_and_kill_leave_what_is_finished_and_nobody_behind(tmp_path: Path) -> None:
    """One sweep: Ctrl-C to the whole group, as a terminal sends it; resumed and killed; resumed to its end."""
    sweep = started(tmp_path, "1..400")
    wait_for_runs(tmp_path, 3)
    os.killpg(sweep.pid, signal.SIGINT)
    out, err = sweep.communicate(timeout=60)
    assert (sweep.returncode, out) == (130, "")
    assert err.endswith("of 400 runs are kept; the same command with --resume goes on\n")
    assert err.count("\n") == 1
    kept = len(list(tmp_path.glob("sweeps/*/*.json")))
    assert f"muster: interrupted: {kept} of 400" in err

    sweep = started(tmp_path, "1..400", "--resume")
    wait_for_runs(tmp_path, kept + 3)
    sweep.kill()
    sweep.communicate(timeout=60)
    end = time.monotonic() + 30
    while not group_is_gone(sweep.pid):
        assert time.monotonic() < end, "workers outlive their parent"
        time.sleep(0.05)

    sweep = started(tmp_path, "1..400", "--resume")
    out, err = sweep.communicate(timeout=300)
    assert (sweep.returncode, err) == (0, "")
    assert [line.split(",")[2] for line in out.splitlines()[1:]] == [str(seed) for seed in range(1, 401)]
