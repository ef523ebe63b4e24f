"""A hundred nodes that are well: no finding, nothing unexplained; the files apart, and all in one paste."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from tests.doctor.healthy import MODELS, bundle, joined, node_of

from muster.cli.main import main
from muster.doctor.evidence import Evidence
from muster.doctor.judge import decide, is_fault
from muster.doctor.pile import read_text
from muster.doctor.rules import load_rules
from muster.doctor.verdict import judge

SEEDS = range(100)


def wrong_in(evidence: Evidence) -> list[str]:
    """Causes named, and signs that are not explained: without any sign of a fault there is neither."""
    decided = decide(load_rules(), evidence)
    return [name for name, each in decided.items() if each.seen and is_fault(each.signal)]


def test_files_of_healthy_nodes_give_no_finding() -> None:
    found: dict[str, list[str]] = {}
    for seed in SEEDS:
        for name, text in bundle(seed).items():
            if wrong := wrong_in(read_text(text, name)):
                found[f"{seed}/{name}"] = wrong
    assert not found


def test_healthy_nodes_pasted_at_once_give_no_finding() -> None:
    for seed in SEEDS:
        verdict = judge(read_text(joined(bundle(seed))))
        assert not verdict.findings, seed
        assert not verdict.unexplained, seed


def test_exit_code_of_a_healthy_node_is_0(tmp_path: Path) -> None:
    for name, text in bundle(5).items():
        (tmp_path / name).write_text(text)
    result = CliRunner().invoke(main, ["doctor", "--from", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "Nothing is wrong in what was seen" in result.output


def test_the_variations_are_varied_and_are_read() -> None:
    nodes = [node_of(seed) for seed in SEEDS]
    assert {node.model for node in nodes} == set(MODELS)
    assert {node.gpus for node in nodes} >= {1, 2, 4, 8, 16}
    assert {node.sharing for node in nodes} == {"none", "time-slicing", "mig-single", "mig-mixed"}
    kinds = {piece.kind for seed in SEEDS for piece in read_text(joined(bundle(seed))).pieces}
    assert kinds >= {"kubectl-node", "component-pods", "nvidia-smi", "nvidia-smi-q", "plugin-log", "dmesg", "lspci"}
