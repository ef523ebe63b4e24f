from __future__ import annotations

import json

import pytest

from muster.cli.main import run


def muster(capfd: pytest.CaptureFixture[str], *args: str) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(["fleet", *args])
    out, err = capfd.readouterr()
    return ended.value.code, out, err


def test_show(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = muster(capfd, "show", "uniform:nodes=3,gpus=8", "-o", "json")
    document = json.loads(out)
    assert (code, document["schema"]) == (0, "muster.fleet.show/v1")
    (group,) = document["groups"]
    assert (group["state"], group["nodes"], group["gpus"], group["gpus_whole_free"]) == ("whole free", 3, 24, 24)


def test_frag(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = muster(capfd, "frag", "uniform:nodes=3,gpus=8", "-o", "json")
    items = {one["item"]: one["value"] for one in json.loads(out)["items"]}
    assert (code, items["free GPUs"], items["gangs of 8"], items["gangs of 16"]) == (0, 24, 3, 1)


def test_errors_are_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = muster(capfd, "show", "nosuch:x")
    assert (code, out, err.count("\n")) == (2, "", 1)
