"""Fixtures that several rooms share. Public data is used from beside the checkout and never committed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from rendered import Helm


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """``shared_data(name)``: a file of the public data folder; skips the test, with the reason, where it is absent."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    root = Path(os.environ.get("MUSTER_DATA") or beside)

    def find(name: str) -> Path:
        path = root / name
        if not path.exists():
            pytest.skip(f"public data is not here: {name} (set MUSTER_DATA to its folder)")
        return path

    return find


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """The real helm, with a folder of its own; skips, with the command that builds it, where it is not here."""
    from controlplane import ClusterError
    from controlplane.build import built
    from rendered import Helm

    try:
        program = built("helm") / "helm"
    except ClusterError as error:
        if os.environ.get("MUSTER_K8S") == "required":
            pytest.fail(str(error))
        pytest.skip(str(error))
    return Helm(program, tmp_path_factory.mktemp("helm"))


@pytest.fixture(autouse=True)
def _hundred_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """As wide as the pages in docs/ show it, whatever terminal the tests are run on."""
    monkeypatch.setenv("COLUMNS", "100")
