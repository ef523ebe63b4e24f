"""The Debian packages that Slurm needs: which programs are there, and how the rest is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from slurmdev.errors import SlurmError

CORE = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "scontrol": "slurm-client",
    "munged": "munge",
    "slurmrestd": "slurmrestd",
}
"""Program -> package."""
ACCOUNTING = {"slurmdbd": "slurmdbd", "mariadbd": "mariadb-server"}
_PLUGINS = ("slurm-wlm-basic-plugins", "slurm-wlm-mysql-plugin")
_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"
_WITHIN_S = 600


def program(name: str) -> str:
    """The path of a program; those of administrators' folders too. Raises `SlurmError` if it is not installed."""
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:{_SBIN}")
    if found is None:
        package = (CORE | ACCOUNTING).get(name, "slurm-client")
        raise SlurmError(f"{name} is not installed; `dev/slurm install` (as root), or `apt-get install {package}`")
    return found


def missing(accounting: bool = True) -> list[str]:
    """The packages that must be installed before Slurm can start here; empty if it can."""
    wanted = CORE | ACCOUNTING if accounting else CORE
    path = f"{os.environ.get('PATH', '')}:{_SBIN}"
    return [package for name, package in wanted.items() if shutil.which(name, path=path) is None]


def install(accounting: bool = True) -> list[str]:
    """Install what is missing with apt, without starting any service; returns what was missing.

    Raises `SlurmError`, saying what to do by hand, without apt, without root and where apt fails.
    """
    lacking = missing(accounting)
    if not lacking:
        return []
    by_hand = f"apt-get install --no-install-recommends {' '.join((*lacking, *_PLUGINS))}"
    if shutil.which("apt-get") is None:
        raise SlurmError(f"{', '.join(lacking)} are not installed, and there is no apt here; on Debian 12: {by_hand}")
    if os.geteuid() != 0:
        raise SlurmError(f"{', '.join(lacking)} are not installed; as root: {by_hand}")
    with _no_services():
        _apt("update", check=False)
        _apt("install", "--yes", "--no-install-recommends", *lacking, *_PLUGINS)
    return lacking


def _apt(*arguments: str, check: bool = True) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "-q", *arguments]
    try:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_WITHIN_S
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"`{' '.join(command)}` took longer than {_WITHIN_S} s") from None
    if check and done.returncode != 0:
        last = "\n".join(f"  {line}" for line in (done.stdout + done.stderr).strip().splitlines()[-6:])
        raise SlurmError(f"`{' '.join(command)}` failed; it ends with:\n{last}")


class _no_services:  # noqa: N801
    """Packages start their services when they are installed; a policy that refuses it stands meanwhile."""

    place = Path("/usr/sbin/policy-rc.d")

    def __enter__(self) -> None:
        self.mine = not self.place.exists()
        if self.mine:
            self.place.write_text("#!/bin/sh\nexit 101\n")
            self.place.chmod(0o755)

    def __exit__(self, *_: object) -> None:
        if self.mine:
            self.place.unlink(missing_ok=True)
