"""Which CUDA runs on which driver: the table of the release notes, and its two exceptions."""

from __future__ import annotations

import pytest

from muster.catalog.cuda import MAJOR_MINIMUM, TOOLKIT_DRIVER, parse_driver, parse_toolkit, runs
from muster.errors import InputError

# toolkit, driver, cuda-compat in the image, data centre GPU -> how
CASES = [
    ("12.4", "550.54.14", False, True, "native"),
    ("12.4", "550.54.15", False, True, "native"),
    ("12.4", "550", False, True, "native"),
    ("12.4", "535.183.06", False, True, "minor"),
    ("12.4", "525.60.13", False, True, "minor"),
    ("12.4", "525.53", False, True, "no"),
    ("12.4", "470.82.01", False, True, "no"),
    ("12.4", "470.82.01", True, True, "forward"),
    ("12.4", "470.82.01", True, False, "no"),
    ("12.4", "495.29.05", True, True, "no"),
    ("13.0", "570.26", False, True, "no"),
    ("13.0", "570.26", True, True, "forward"),
    ("13.0", "580.65.06", False, True, "native"),
    ("13.2", "580.95.05", False, True, "minor"),
    ("11.8", "595.45.04", False, False, "native"),
    ("12.7", "565.57.01", False, True, "minor"),  # the table skips 12.7: the driver of 12.8 has all of it
    ("12.7", "570.26", False, True, "native"),
    ("14.0", "600", False, True, "no"),
]


@pytest.mark.parametrize(("cuda", "driver", "compat", "data_centre", "how"), CASES)
def test_the_matrix(cuda: str, driver: str, compat: bool, data_centre: bool, how: str) -> None:
    found = runs(parse_toolkit(cuda), parse_driver(driver), compat_package=compat, data_centre=data_centre)
    assert found.how == how
    assert found.why


def test_a_toolkit_never_came_with_less_than_its_major_version_needs() -> None:
    assert all(driver >= MAJOR_MINIMUM[toolkit[0]] for toolkit, driver in TOOLKIT_DRIVER.items())
    assert list(TOOLKIT_DRIVER.values()) == sorted(TOOLKIT_DRIVER.values())


@pytest.mark.parametrize("text", ["", "12", "12.x", "cuda", "12.4-devel"])
def test_no_toolkit(text: str) -> None:
    with pytest.raises(InputError):
        parse_toolkit(text)


@pytest.mark.parametrize("text", ["", "55", "550.", "550.54.15.1", "R550"])
def test_no_driver(text: str) -> None:
    with pytest.raises(InputError):
        parse_driver(text)
