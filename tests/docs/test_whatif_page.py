"""What the how-to shows is what its commands print; the reference has every change, and each of its examples is one."""

from __future__ import annotations

import re
import shlex
import textwrap
from pathlib import Path

import pytest

from muster.answers.changes import SetJob, parse_change
from muster.answers.changes.text import VERBS
from muster.answers.changes.values import KEY_OF
from muster.cli.main import run
from muster.model.fleet import Device, Fleet, Node, Taint, Topology
from muster.model.plan import PodPlacement
from muster.model.queue import Queue, Quota
from muster.model.snapshot import AdvanceReservation, Running, Snapshot
from muster.model.workload import PodSet, PodShape, Workload

DOCS = Path(__file__).resolve().parents[2] / "docs"
HOW_TO = (DOCS / "how-to" / "ask-what-if.md").read_text()
REFERENCE = (DOCS / "reference" / "changes.md").read_text()


def blocks(kind: str) -> list[str]:
    """The fenced blocks of a kind, without their indentation."""
    found = re.findall(rf"^( *)```{kind}\n(.*?)^\1```", HOW_TO, re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(text) for _, text in found]


def test_the_how_to_shows_what_its_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "run.yaml").write_text(blocks("yaml")[0])
    for block in blocks("console"):
        command, _, shown = block.replace("\\\n", " ").partition("\n")
        with pytest.raises(SystemExit) as ended:
            run(shlex.split(command)[2:])
        out, err = capfd.readouterr()
        assert ended.value.code == 0, err
        if shown:
            assert out + err == shown
    assert "add 2 racks: when jobs run" in (tmp_path / "whatif.html").read_text()


def whole_snapshot() -> Snapshot:
    """A snapshot with everything that the examples of the reference name."""
    devices = tuple(Device(index, "H100-SXM5-80GB") for index in range(8))
    names = [f"gpu{number:02d}" for number in range(1, 25)] + [f"gpu-1{number}" for number in range(4)]
    names += [f"gpu{number}" for number in (1, 3, 5, 6, 7, 8)]
    names += [f"r{rack}n{node}" for rack in (1, 2) for node in range(1, 5)]
    nodes = tuple(
        Node(name, 96000, 2**40, devices, taints=(Taint("team"),) if name == "gpu-10" else (),
             topology=(f"b{at // 16 + 1}", f"rack-{at // 4 + 1}"), purchase="reserved")
        for at, name in enumerate(names)
    )  # fmt: skip
    queues = tuple(Queue(f"team-{name}", "all", quotas=(Quota("H100-SXM5-80GB/reserved", 64000),)) for name in "ab")
    queues = (Queue("all"), *queues)
    llama = Workload("llama", (PodSet(PodShape(gpus=8), 2),), queue="team-a")
    places = tuple(PodPlacement(name, tuple(range(8)), 1000) for name in ("gpu05", "gpu06"))
    return Snapshot(
        Fleet(nodes, Topology(("block", "rack"))), queues,
        running=(Running(llama, 0.0, places),),
        reservations=(AdvanceReservation("NAME", 0.0, 1e6, ("gpu01",)),),
    )  # fmt: skip


SPEC = """
apiVersion: batch/v1
kind: Job
metadata: {name: fresh, labels: {kueue.x-k8s.io/queue-name: team-b}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: x, resources: {limits: {nvidia.com/gpu: 8}}}]
"""

EXAMPLES = [
    example
    for row in re.findall(r"^\| (`.+?) \|", REFERENCE, re.MULTILINE)
    for example in re.findall(r"`([^`]+)`", row)
    if example.split()[0] in VERBS
] + re.findall(r"```text\n(.*?)\n```", REFERENCE)


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_is_a_change(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(SPEC)
    snapshot = whole_snapshot()
    if example.startswith(("job", "driver-wave")):
        snapshot = Snapshot(
            snapshot.fleet, snapshot.queues,
            pending=tuple(each.workload for each in snapshot.running),
        )  # fmt: skip
    assert parse_change(example.replace("40 nodes", "20 nodes"), snapshot)


def test_every_change_and_every_key_is_there() -> None:
    words = {example.split()[0] for example in EXAMPLES}
    assert words == set(VERBS)
    keys = set(re.findall(r"`([a-z-]+)=", REFERENCE))
    assert {KEY_OF.get(name, name) for name in SetJob.__struct_fields__[1:]} <= keys


@pytest.mark.parametrize("nodes", re.findall(r"`([^`]+)`", REFERENCE.split("| NODES | |")[1].split("\n\n")[0]))
def test_each_way_to_name_nodes_names_some(nodes: str) -> None:
    assert parse_change(f"drain {nodes}", whole_snapshot())
