"""`kubectl muster`: what it calls itself, what it asks, what it completes; and how krew installs it."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.cli.completion import complete_for_kubectl
from muster.cli.main import COMMANDS, run

ROOT = Path(__file__).resolve().parents[2]
KREW = ROOT / "deploy" / "krew"
CONFIG = """
current-context: prod
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: prod, context: {cluster: c}}, {name: pre, context: {cluster: c}}]
"""


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config"
    path.write_text(CONFIG)
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def called(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(list(args))
    out, err = capfd.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.parametrize(("name", "usage"), [("kubectl-muster", "kubectl muster"), ("muster", "muster")])
def test_usage_says_how_it_was_called(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, usage: str
) -> None:
    monkeypatch.setattr(sys, "argv", [f"/opt/bin/{name}"])
    assert called(capfd, "why", "--help")[1].startswith(f"Usage: {usage} why [OPTIONS] JOB\n")
    assert called(capfd, "why")[2] == f"muster: missing argument 'JOB' ({usage} why --help)\n"


def test_a_plugin_asks_the_current_context_and_the_command_nobody(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, config: Path
) -> None:
    how = "say --from FILE, --context NAME for a live cluster (prod, pre), or --cluster slurm"
    assert called(capfd, "queue") == (2, "", f"muster: no source is named; {how}\n")
    monkeypatch.setattr(sys, "argv", ["kubectl-muster"])
    code, _, err = called(capfd, "queue")
    assert (code, err) == (
        3, "muster: the server 127.0.0.1:1 of context 'prod' refuses the connection; is it running, and is the port "
        "right?\n",
    )  # fmt: skip


MISTAKES: dict[str, tuple[tuple[str, ...], int, str]] = {
    "a context that is none": (("queue", "--context", "prd"), 3, "there is no context 'prd' in"),
    "two sources": (("queue", "--context", "prod", "--from", "x"), 2, "field '--context': two sources are named"),
    "two sources, one before": (("--context", "prod", "queue", "--from", "x"), 2, "two sources are named"),
    "a fleet and a cluster": (
        ("fleet", "show", "example", "--context", "prod"),
        2,
        "SPEC and another source are named",
    ),
    "no fleet": (("fleet", "show"), 2, "no fleet is named; say SPEC, such as example, or --from FILE, --context"),
    "-n and -A": (("queue", "-A", "-n", "a", "--context", "prod"), 2, "one namespace and all of them are asked for"),
    "--as of a file": (("queue", "--as", "me", "--from", "x"), 2, "field '--as': is for a live cluster"),
    "an instant of a cluster": (("queue", "--context", "prod", "--at", "5"), 2, "only a run file or a history has"),
    "an unknown part": (("queue", "--from", "kubernetes:prod?name=1"), 2, "'name' is not known of a live cluster"),
    "two snapshots": (("snapshot", "save", "x", "--context", "prod", "-o", "y"), 2, "two sources are named"),
    "no record": (("history", "record"), 2, "give RUN.yaml, or a live cluster by --context"),
    "--until of a cluster": (("history", "record", "--context", "prod", "--until", "1h"), 2, "is of a run file"),
    "--for of a run": (("history", "record", "run.yaml", "--for", "1h"), 2, "is of a live cluster"),
}


@pytest.mark.parametrize(("args", "code", "expected"), MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_is_one_line(
    capfd: pytest.CaptureFixture[str], config: Path, args: tuple[str, ...], code: int, expected: str
) -> None:
    found, out, err = called(capfd, *args)
    assert (found, out) == (code, "")
    assert expected in err
    assert err.startswith("Usage") or err.count("\n") == 1


def test_a_cluster_goes_before_the_environment(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, config: Path
) -> None:
    monkeypatch.setenv("MUSTER_FROM", "gone.snap")
    assert "context 'pre' refuses" in called(capfd, "queue", "--context", "pre")[2]
    assert "gone.snap" in called(capfd, "queue")[2]
    monkeypatch.setenv("MUSTER_FROM", "kubernetes:pre")
    assert "context 'pre' refuses" in called(capfd, "queue")[2]


# -- completion --------------------------------------------------------------------------------------------------------

COMPLETED: dict[str, tuple[tuple[str, ...], set[str], int]] = {
    "commands": (("wh",), {"why", "whatif"}, 4),
    "all commands": (("",), set(COMMANDS), 4),
    "options": (("queue", "--wai"), {"--waiting"}, 4),
    "values": (("queue", "-o", "j"), {"json"}, 4),
    "contexts": (("why", "--context", "p"), {"prod", "pre"}, 4),
    "contexts of another file": (("why", "--kubeconfig", "/nowhere", "--context", ""), set(), 4),
    "groups": (("fleet", ""), {"show", "frag"}, 4),
}


@pytest.mark.parametrize(("words", "expected", "directive"), COMPLETED.values(), ids=COMPLETED)
def test_completion_by_kubectl(
    capfd: pytest.CaptureFixture[str], config: Path, words: tuple[str, ...], expected: set[str], directive: int
) -> None:
    complete_for_kubectl(list(words))
    *found, last = capfd.readouterr().out.splitlines()
    assert {line.split("\t")[0] for line in found} == expected
    assert last == f":{directive}"


def test_completion_scripts(capfd: pytest.CaptureFixture[str]) -> None:
    for shell in ("bash", "zsh", "fish"):
        code, out, _ = called(capfd, "completion", shell)
        assert code == 0
        assert "_MUSTER_COMPLETE" in out
    assert called(capfd, "completion", "csh")[0] == 2


def test_the_script_is_answered() -> None:
    """As the shell asks: by the variable, of the command however it is called."""
    environ = {**os.environ, "_MUSTER_COMPLETE": "bash_complete", "COMP_WORDS": "muster whati", "COMP_CWORD": "1"}
    command = "import sys; sys.argv[0] = 'muster'; from muster.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", command], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.split() == ["plain,whatif"]


# -- start-up ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("args", ["['--help']", "['why', 'x', '--from', 'gone.snap']", "['queue', '--help']"])
def test_the_client_is_imported_only_for_a_cluster(args: str) -> None:
    text = f"""
import sys
from muster.cli.main import run
try:
    run({args})
except SystemExit:
    pass
print(sorted({{name.partition('.')[0] for name in sys.modules}} & {{'aiohttp', 'uvloop', 'ssl'}}), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr.splitlines()[-1] == "[]"


# -- krew --------------------------------------------------------------------------------------------------------------


def package() -> Any:
    spec = importlib.util.spec_from_file_location("package", KREW / "package.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_manifest_is_as_krew_takes_it() -> None:
    """The rules of krew's validation (internal/index/validation) and of its index: names, versions, lengths, files."""
    module = package()
    packed = module.archive()
    assert packed == module.archive()
    found = module.manifest("https://example.org/kubectl-muster.tar.gz", packed)
    assert (found["apiVersion"], found["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    name, spec = found["metadata"]["name"], found["spec"]
    assert re.fullmatch(r"[\w-]+", name)
    assert re.fullmatch(r"v\d+\.\d+\.\d+(-[\w.]+)?", spec["version"])
    assert 0 < len(spec["shortDescription"]) <= 50
    assert not set("\n.") & set(spec["shortDescription"])
    assert set(spec) <= {"version", "shortDescription", "description", "caveats", "homepage", "platforms"}
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        inside = {entry.name: entry.mode for entry in tar}
    systems: list[str] = []
    for platform in spec["platforms"]:
        assert set(platform) == {"selector", "uri", "sha256", "bin", "files"}
        assert re.fullmatch(r"[0-9a-f]{64}", platform["sha256"])
        assert {each["from"] for each in platform["files"]} == set(inside)
        assert inside[platform["bin"]] == 0o755
        for expression in platform["selector"]["matchExpressions"]:
            assert (expression["key"], expression["operator"]) == ("os", "In")
            systems += expression["values"]
    assert sorted(systems) == ["darwin", "linux"]  # each once: krew refuses two that match


def test_the_shipped_manifest_names_no_address() -> None:
    text = (KREW / "muster.yaml").read_text()
    assert yaml.safe_load(text)["spec"]["platforms"][0].keys() == {"selector", "bin", "files"}
    assert "://" not in text


@pytest.mark.parametrize(("python", "code", "expected"), [
    (sys.executable, 0, "Usage: kubectl muster "), ("/nowhere/python3", 2, "pip install 'muster-gpu[kubernetes]'"),
])  # fmt: skip
def test_the_launcher(python: str, code: int, expected: str) -> None:
    environ = {**os.environ, "MUSTER_PYTHON": python}
    done = subprocess.run(
        [str(KREW / "kubectl-muster"), "--help"], env=environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == code
    assert expected in done.stdout + done.stderr


def test_the_completion_launcher(config: Path) -> None:
    environ = {**os.environ, "MUSTER_PYTHON": sys.executable}
    done = subprocess.run(
        [str(KREW / "kubectl_complete-muster"), "queue", "--context", "pro"],
        env=environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout == "prod\n:4\n"
