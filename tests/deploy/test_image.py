"""The container build file, without a container engine.

What it copies is there, what it installs is locked by hash, and its install step, run here, gives a Muster that has no
kernel left to compile.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from muster.cli.scheduler import command
from rendered import CHART, ROOT

FILE = ROOT / "deploy" / "Containerfile"
IMAGE = ROOT / "deploy" / "image"
PASSED = re.compile(r"(?i)PIP_|SSL_|REQUESTS_|.*_proxy$")
"""What pip needs to know of the way to its packages."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def steps() -> list[tuple[str, str]]:
    """The instructions, with continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", FILE.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    return [(word, " ".join(rest)) for word, *rest in map(str.split, filter(str.strip, text.splitlines()))]


def of(word: str) -> list[str]:
    return [rest for found, rest in steps() if found == word]


def test_what_is_copied_is_there_and_nothing_else_is_needed() -> None:
    copied: set[str] = set()
    for rest in of("COPY"):
        *sources, _ = [word for word in rest.split() if not word.startswith("--")]
        if "--from=" in rest:
            assert rest.partition("--from=")[2].split()[0] in [line.split(" AS ")[-1] for line in of("FROM")]
            assert sources == ["/opt/muster"]
            continue
        for source in sources:
            assert (ROOT / source).exists(), source
            copied.add(source)
    # what the wheel is built from, and what installs it
    assert copied == {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"], "src", "deploy/image"}


def test_it_runs_as_the_user_of_the_chart() -> None:
    last_stage = steps()[max(at for at, (word, _) in enumerate(steps()) if word == "FROM") :]
    users = [rest for word, rest in last_stage if word == "USER"]
    (user,) = users
    uid, _, gid = user.partition(":")
    values = (CHART / "values.yaml").read_text()
    assert f"runAsUser: {uid}\n" in values
    assert f"runAsGroup: {gid}\n" in values
    assert uid != "0"


def test_it_has_labels_and_no_secret() -> None:
    labels = dict(re.findall(r'([a-z.]+)="([^"]*)"', " ".join(of("LABEL"))))
    wanted = {"title", "description", "licenses", "version", "revision"}
    assert {key.removeprefix("org.opencontainers.image.") for key in labels} == wanted
    assert labels["org.opencontainers.image.licenses"] == PROJECT["license"]
    assert f"VERSION={PROJECT['version']}" in of("ARG")
    assert not re.search(r"(?i)password|token|secret|api_?key", FILE.read_text())


def test_the_command_is_one_of_muster() -> None:
    assert of("ENTRYPOINT") == ['["muster"]']
    name, *options = json.loads(of("CMD")[0])
    assert name == "scheduler"
    assert command.make_context(name, options).params["http"] == "0.0.0.0:9401"


def locked(name: str) -> dict[str, list[str]]:
    """The packages of a lock file, and of each its hashes."""
    text = (IMAGE / name).read_text().replace("\\\n", " ")
    return {
        re.split(r"==", line)[0]: re.findall(r"--hash=sha256:[0-9a-f]{64}", line)
        for line in text.splitlines()
        if line.strip() and not line.startswith("#")
    }


@pytest.mark.parametrize("name", ["requirements.lock", "build.lock"])
def test_every_package_is_locked_by_hash(name: str) -> None:
    assert all(locked(name).values())


def test_the_lock_has_what_the_scheduler_needs() -> None:
    wanted = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["kubernetes"]]
    names = {re.split(r"[<>=!~; \[]", each)[0] for each in wanted}
    assert names <= set(locked("requirements.lock")), "run: make lock"
    assert "hatchling" in locked("build.lock")


def test_the_script_is_one_that_a_plain_shell_reads() -> None:
    subprocess.run(["sh", "-n", IMAGE / "install.sh"], check=True)
    (run,) = [rest for rest in of("RUN") if "install.sh" in rest]
    assert shlex.split(run) == ["sh", "deploy/image/install.sh", "/opt/muster"]


@pytest.mark.slow
def test_what_is_installed_runs_and_compiles_nothing(tmp_path: Path) -> None:
    """The step of the image, then runs with the environment that the image has."""
    folder, home = tmp_path / "muster", tmp_path / "home"
    home.mkdir()
    plain = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    passed = {key: value for key, value in os.environ.items() if PASSED.match(key)}
    done = subprocess.run(
        ["sh", IMAGE / "install.sh", folder], cwd=ROOT, env={**passed, **plain, "PYTHON": sys.executable},
        capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    kept = sorted(path.name for path in (folder / "cache").rglob("*.nbc"))
    assert len(kept) > 20
    muster = [str(folder / "bin" / "muster")]
    environment = {
        "PATH": str(folder / "bin"), "HOME": str(home), "MUSTER_CACHE_DIR": str(folder / "cache"),
        "NUMBA_CPU_NAME": "generic",
    }  # fmt: skip
    version = subprocess.run([*muster, "--version"], env=environment, capture_output=True, text=True, check=True)
    assert PROJECT["version"] in version.stdout
    subprocess.run([*muster, "scheduler", "--print-config"], env=environment, capture_output=True, check=True)
    line = [*muster, "simulate", str(IMAGE / "warm.yaml"), "--no-timings"]
    subprocess.run(line, env=environment, capture_output=True, check=True, timeout=120)
    assert sorted(path.name for path in (folder / "cache").rglob("*.nbc")) == kept
    assert not list(home.iterdir())
