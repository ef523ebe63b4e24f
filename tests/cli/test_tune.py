from __future__ import annotations

import json
from pathlib import Path

import pytest

from muster.cli.main import run


def muster(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(["tune", *args])
    out, err = capfd.readouterr()
    return ended.value.code, out, err


def test_weights_bound_and_cache(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MUSTER_CACHE_DIR", str(tmp_path))
    args = ("--fleet", "uniform:nodes=3,gpus=2", "--workload", "generate:mix=default,pods=30,seed=1", "--bound")
    code, out, err = muster(capfd, *args, "-o", "json")
    document = json.loads(out)
    assert (code, document["schema"]) == (0, "muster.tune/v1")
    assert list(document["bound_percent"]) == ["100", "110", "130"]
    bounds = list(document["bound_percent"].values())
    assert 0 < bounds[0] <= bounds[1] <= bounds[2] <= 100
    assert {"hole", "price"} <= {one["weight"] for one in document["weights"]}
    assert "Fitting" in err
    code, out, err = muster(capfd, *args)
    assert code == 0
    assert f"No placement allocates more GPUs than {bounds[0]:.2f} % at 100 %" in out
    assert "Fitting" not in err
    code, out, err = muster(capfd, *args, "-o", "csv")
    assert out.startswith("weight,start,fitted,meaning\n")
    assert "No placement" in err


def test_errors_are_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = muster(capfd, "--fleet", "nosuch:x", "--workload", "generate:mix=default")
    assert (code, out, err.count("\n")) == (2, "", 1)
