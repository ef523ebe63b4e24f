"""The output on the page about `muster fleet` is what the commands print for the cluster below."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from muster.cli.main import run

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/fleet.md"


def node(
    name: str, model: str, gpus: int, cpu: int, memory_gib: int, withdrawn: int = 0, **spec: Any
) -> dict[str, Any]:
    sizes = {"cpu": str(cpu), "memory": f"{memory_gib}Gi", "nvidia.com/gpu": str(gpus - withdrawn)}
    status = {"allocatable": sizes, "capacity": sizes | {"nvidia.com/gpu": str(gpus)}}
    labels = {"nvidia.com/gpu.product": model}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}


def pods(on: str | None, count: int, gpus: int, cpu: int, memory_gib: int) -> list[dict[str, Any]]:
    asked = {"cpu": str(cpu), "memory": f"{memory_gib}Gi", "nvidia.com/gpu": str(gpus)}
    return [
        {
            "kind": "Pod",
            "metadata": {"name": f"{on or 'waits'}-{gpus}-{number}", "namespace": "research"},
            "spec": {"nodeName": on, "containers": [{"resources": {"requests": asked}}]},
            "status": {"phase": "Running" if on else "Pending"},
        }
        for number in range(count)
    ]


CLUSTER = [
    *(node(f"gpu{at:02}", "H100", 8, 96, 1024, withdrawn=at == 6) for at in range(1, 8)),
    node("gpu08", "H100", 8, 96, 1024, unschedulable=True),
    *(node(f"inf{at:02}", "L40S", 4, 64, 512) for at in range(1, 5)),
    *pods("gpu01", 1, 8, 80, 800),
    *pods("gpu02", 1, 8, 80, 800),
    *pods("gpu03", 5, 1, 12, 100),
    *pods("gpu04", 2, 2, 20, 200),
    *pods("gpu05", 1, 4, 40, 400),
    *pods("gpu05", 5, 0, 10, 20),
    *pods("inf01", 3, 1, 8, 64),
    *pods("inf02", 4, 1, 8, 64),
    *pods("inf03", 6, 0, 10, 32),
    *pods(None, 3, 8, 80, 800),
]

SHOWN = [
    (line, output)
    for line, output in re.findall(r"```console\n\$ muster (.*?)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    if output
]


@pytest.mark.parametrize(("line", "expected"), SHOWN, ids=[line for line, _ in SHOWN])
def test_output(
    line: str, expected: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    Path("now.json").write_text(json.dumps({"kind": "List", "items": CLUSTER}))
    with pytest.raises(SystemExit) as ended:
        run(line.split())
    out, err = capfd.readouterr()
    assert (ended.value.code, err) == (0, "")
    assert [row.rstrip() for row in out.splitlines()] == expected.splitlines()


def test_there_is_output_to_test() -> None:
    assert len(SHOWN) == 2
