"""Configuration files of Slurm on disk: found in a folder, beside each other, or by their names."""

from __future__ import annotations

import codecs
import os
from collections.abc import Sequence
from pathlib import Path

from muster.errors import InputError
from muster.slurm.config.files import NAMES, Config, read_config
from muster.traces.files import is_dir, is_there, read_bytes

PLACES = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/run/slurm/conf/slurm.conf",
)
"""Where slurm.conf is where SLURM_CONF does not say: packages, Debian's older ones, a build, configless nodes."""


def load_config(paths: Sequence[str]) -> Config:
    """Read a cluster's configuration.

    Args:
        paths: a folder with slurm.conf, or files; beside a slurm.conf that is named alone, the others are read too.

    Raises:
        InputError: a file is not there, is none of NAMES, or is wrong.
    """
    found: dict[str, str] = {}
    for path in paths:
        if is_dir(path):
            if not is_there(str(Path(path) / "slurm.conf")):
                raise InputError("has no slurm.conf", file=path, hint="name the folder that has it")
            found.update(_beside(Path(path)))
            continue
        name = Path(path).name
        if name not in NAMES:
            name = "slurm.conf" if len(paths) == 1 else name
        if name not in NAMES:
            raise InputError("is no file of Slurm's configuration", file=path, hint=f"known: {', '.join(NAMES)}")
        found[name] = path
    if len(found) == 1 and "slurm.conf" in found:
        found = {**_beside(Path(found["slurm.conf"]).parent), **found}
    return read_config(found, read_conf_text)


def here() -> str:
    """The slurm.conf of this machine: SLURM_CONF, or where packages put it; raises `InputError`."""
    named = os.environ.get("SLURM_CONF", "")
    if named:
        return named
    for place in PLACES:
        if is_there(place):
            return place
    raise InputError("no slurm.conf is on this machine", hint="say --config DIR, or set SLURM_CONF")


def read_conf_text(path: str) -> str:
    """The text of a file; bytes that are no UTF-8 are kept as they can be.

    Raises:
        InputError: it is binary, or begins with a byte order mark, which Slurm takes for a part of the first key.
    """
    data = read_bytes(path)
    if data.startswith(codecs.BOM_UTF8):
        hint = f"sed -i '1s/^\\xef\\xbb\\xbf//' {path}"
        raise InputError("begins with a byte order mark, which Slurm does not pass over", file=path, line=1, hint=hint)
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise InputError("is not text (it holds a zero byte)", file=path, line=line, hint="is it UTF-16? save as UTF-8")
    return data.decode("utf-8", "replace")


def _beside(folder: Path) -> dict[str, str]:
    return {name: str(folder / name) for name in NAMES if is_there(str(folder / name))}
