"""Which CUDA toolkit runs on which driver: minimum drivers, what each toolkit brings, and the two exceptions.

A driver runs every toolkit that is older than it. A toolkit that is newer than the driver runs by **minor-version
compatibility** if the driver is at least the minimum of the toolkit's major version (PTX of the newer toolkit and new
features do not), and by **forward compatibility** if the image has a ``cuda-compat`` package, the GPU is one of a data
centre, and the driver's branch is one that the package lists.
"""

from __future__ import annotations

import re

from msgspec import Struct

from muster.errors import InputError, near

SOURCE = "cuda-notes"
"""Key in `muster.catalog.sources.SOURCES` for both tables."""

MAJOR_MINIMUM: dict[int, tuple[int, ...]] = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
"""The least driver on which any toolkit of a major version runs."""

TOOLKIT_DRIVER: dict[tuple[int, int], tuple[int, ...]] = {
    (11, 4): (470, 42, 1), (11, 5): (495, 29, 5), (11, 6): (510, 39, 1), (11, 7): (515, 43, 4), (11, 8): (520, 61, 5),
    (12, 0): (525, 60, 13), (12, 1): (530, 30, 2), (12, 2): (535, 54, 3), (12, 3): (545, 23, 6), (12, 4): (550, 54, 14),
    (12, 5): (555, 42, 2), (12, 6): (560, 28, 3), (12, 8): (570, 26), (12, 9): (575, 51, 3),
    (13, 0): (580, 65, 6), (13, 1): (590, 44, 1), (13, 2): (595, 45, 4),
}  # fmt: skip
"""The driver that came with each toolkit: from it on, all of the toolkit works."""

COMPAT_BRANCHES = (470, 515, 535, 550, 555, 560, 565, 570, 575, 580, 590, 595)
"""Driver branches on which cuda-compat packages may be put; production and long-term branches and their neighbours."""


class Compatibility(Struct, frozen=True):
    """Whether a toolkit runs on a driver: ``how`` is ``native``, ``minor``, ``forward`` or ``no``, ``why`` in words."""

    how: str
    why: str

    @property
    def runs(self) -> bool:
        """Whether it runs at all."""
        return self.how != "no"


def parse_driver(text: str, field: str = "--driver") -> tuple[int, ...]:
    """``550.54.15`` or ``550`` as numbers; raises `InputError`."""
    if not re.fullmatch(r"\d{3}(?:\.\d{1,3}){0,2}", text):
        raise InputError(f"{text[:30]!r} is no driver version", field=field, hint="such as 580.95.05, or 580")
    return tuple(map(int, text.split(".")))


def parse_toolkit(text: str, field: str = "--cuda") -> tuple[int, int]:
    """``12.4`` or ``12.4.1`` as major and minor; raises `InputError`."""
    found = re.fullmatch(r"(\d{1,2})\.(\d{1,2})(?:\.\d+)*", text)
    if found is None:
        known = [f"{major}.{minor}" for major, minor in TOOLKIT_DRIVER]
        hint = near(text, known) or "such as 12.4"
        raise InputError(f"{text[:30]!r} is no CUDA version", field=field, hint=hint)
    return int(found[1]), int(found[2])


def runs(
    toolkit: tuple[int, int], driver: tuple[int, ...], *, compat_package: bool = False, data_centre: bool = True
) -> Compatibility:  # fmt: skip
    """Whether a toolkit runs on a driver.

    Args:
        toolkit: major and minor version.
        driver: its version; of a branch alone, such as ``(580,)``, the latest of the branch is meant.
        compat_package: whether the image has cuda-compat of that toolkit.
        data_centre: whether the GPU is one of a data centre.
    """
    version = driver if len(driver) > 1 else (*driver, 999)
    name, own = f"{toolkit[0]}.{toolkit[1]}", _driver_of(toolkit)
    if own is None:
        return Compatibility("no", f"CUDA {name} is not in the table")
    if version >= own:
        return Compatibility("native", f"the driver is not older than {_shown(own)}, which came with CUDA {name}")
    least = MAJOR_MINIMUM.get(toolkit[0])
    if least is not None and version >= least:
        return Compatibility(
            "minor", f"CUDA {toolkit[0]}.x runs from driver {_shown(least)} on; no PTX of {name}, no newer features"
        )
    if compat_package and data_centre and version[0] in COMPAT_BRANCHES:
        return Compatibility("forward", f"the image's cuda-compat brings the libraries of CUDA {name}")
    if compat_package and not data_centre:
        return Compatibility("no", "cuda-compat works on GPUs of data centres only (error 804)")
    needs = f"CUDA {name} needs driver {_shown(least or own)} or newer"
    return Compatibility(
        "no", f"{needs} (error 35{'; the branch is not one that cuda-compat lists' if compat_package else ''})"
    )


def _driver_of(toolkit: tuple[int, int]) -> tuple[int, ...] | None:
    """The driver of a toolkit; of a minor version that the table skips, that of the next one."""
    later = [(each, driver) for each, driver in sorted(TOOLKIT_DRIVER.items()) if each >= toolkit]
    if not later or later[0][0][0] != toolkit[0]:
        return None
    return later[0][1]


def _shown(version: tuple[int, ...]) -> str:
    return ".".join(f"{part:02d}" if at else str(part) for at, part in enumerate(version))
