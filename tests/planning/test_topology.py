"""Placements of a training job: the golden all-reduce, rings played hop by hop, rules, and the command."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.cli.main import run
from muster.errors import InputError
from muster.model.parallelism import Parallelism
from muster.planning.communication import Fabric, hierarchical_all_reduce_s, ring_all_reduce_s
from muster.planning.kinds_of_parallelism import kinds_sent
from muster.planning.placed import Network, training_job
from muster.planning.plans.topology import Placement
from muster.planning.question import derive

LLAMA = Placement(gpu="H200", gpus=8, tensor=8, pipeline=1, layers=80, hidden=8192)


def test_golden_tensor_parallel_all_reduce() -> None:
    """134 MB, 235 MB on the wire, 0.64 ms over NVLink at 367 GB/s, 6.4 ms over NICs at 36.5 GB/s (fact H)."""
    found = derive(LLAMA, sensitivity=False)
    steps = {each.text: each.value for each in found.steps}
    assert steps["tensor: what a GPU sends for one message of 134 MB"] == pytest.approx(235e6, rel=2e-3)
    assert steps["tensor: one message inside"] * 1000 == pytest.approx(0.64, abs=0.04)  # with its hops
    assert steps["tensor: one message outside"] * 1000 == pytest.approx(6.4, abs=0.1)
    assert found.results[0].value == pytest.approx(derive(replace(LLAMA, placements=("4+4",))).results[0].value)


def played_ring(size: float, rates: list[float], latency: float, rng: random.Random | None = None) -> float:
    """A ring all-reduce chunk by chunk: GPU i sends to i+1 when it has the chunk and its link is free."""
    n = len(rates)
    ready = [[0.0] * n for _ in range(n)]  # when GPU g has chunk c as it needs it next
    free = [0.0] * n
    for step in range(2 * (n - 1)):
        arrived: list[tuple[int, int, float]] = []
        for g in range(n):
            c = (g - step) % n
            start = max(free[g], ready[g][c])
            late = rng.expovariate(1 / latency) if rng else 0.0
            end = start + latency + late + size / n / rates[g]
            free[g] = end
            arrived.append(((g + 1) % n, c, end))
        for g, c, end in arrived:
            ready[g][c] = max(ready[g][c], end)
    return max(max(row) for row in ready)


@settings(max_examples=50, deadline=None)
@given(st.integers(2, 16), st.floats(1e5, 1e9), st.floats(10, 800), st.floats(1e-7, 1e-5))
def test_a_ring_played_hop_by_hop_takes_as_long(n: int, size: float, rate: float, latency: float) -> None:
    seen = played_ring(size, [rate * 1e9] * n, latency)
    assert ring_all_reduce_s(size, n, rate, latency) == pytest.approx(seen, rel=1e-9)


def test_a_ring_over_two_nodes_goes_at_the_pace_of_the_nic() -> None:
    """4+4 as one flat ring, two of whose links are the nodes' four NICs each, against the two-level form."""
    fabric = Fabric(367.0, 36.5, 0.0, 0.0)
    flat = played_ring(134e6, [367e9, 367e9, 367e9, 4 * 36.5e9] * 2, 0.0)
    form = hierarchical_all_reduce_s(134e6, (4, 4), fabric)
    assert form == pytest.approx(flat, rel=0.1)  # within 6 % is published for whole nodes
    assert form > 1.5 * ring_all_reduce_s(134e6, 8, 367)


def test_jitter_makes_rings_slower_than_the_form() -> None:
    """Hops that are late at random: every GPU waits for the slowest, and the mean hop tells too little."""
    rng = random.Random(2)
    seen = sum(played_ring(1e6, [36.5e9] * 32, 4e-6, rng) for _ in range(20)) / 20
    assert seen > 1.15 * ring_all_reduce_s(1e6, 32, 36.5, 2 * 4e-6)


def test_rules_of_each_kind() -> None:
    """Tensor parallel groups need NVLink; pipeline neighbours may stand anywhere; experts stand in the path."""
    fabric = Network(oversubscription=4).fabric("H100")
    dense = training_job(Parallelism(8, 4, parameters=70e9), 64, "H100")
    rules = {each.kind: each.rule for each in kinds_sent(dense, 8, fabric)}
    assert rules["tensor"] == "one NVLink domain: required"
    assert rules["pipeline"] == "anywhere"
    mixed = training_job(Parallelism(1, 1, expert=8, expert_layers=32, top_k=2, parameters=47e9), 16, "H100")
    rules = {each.kind: each.rule for each in kinds_sent(mixed, 8, fabric)}
    assert rules["expert"] == "one NVLink domain: required"


def test_wide_expert_groups_that_fit_no_node_need_a_leaf() -> None:
    fabric = Network(oversubscription=8).fabric("H100")
    job = training_job(Parallelism(1, 1, expert=32, expert_layers=60, top_k=8, parameters=600e9), 64, "H100")
    expert = next(each for each in kinds_sent(job, 8, fabric) if each.kind == "expert")
    assert not expert.fits
    assert expert.rule == "one leaf: required"


def test_leaves_cost_nothing_without_oversubscription() -> None:
    found = derive(Placement(oversubscription=1.0), sensitivity=False)
    rows = {row[0]: row[1] for row in found.tables[0].rows}
    assert rows["8x8"] == rows["4x8/4x8"]


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.floats(1, 8))
def test_no_placement_beats_the_best(tensor: int, pipeline: int, oversubscription: float) -> None:
    asked = Placement(tensor=tensor, pipeline=pipeline, oversubscription=oversubscription)
    times = [each.value for each in derive(asked, sensitivity=False).results if each.unit == "s"]
    assert min(each for each in times if isinstance(each, float)) == times[0]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--tensor", "3"], "--gpus"),
        (["--placement", "4+4"], "has 8 GPUs, the job 64"),
        (["--placement", "4*4"], "--placement"),
        (["--gpu", "H1000"], "--gpu"),
        (["--nic", "fast"], "--nic"),
        (["--expert", "3"], "--expert"),
        (["--gpus", "1e6"], "--gpus"),
    ],
)
def test_bad_input_is_one_line(words: list[str], what: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(["plan", "topology", *words])
    assert ended.value.code == 2
    assert what in capsys.readouterr().err


def test_a_model_without_a_measured_rate_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        derive(Placement(gpu="MI300X", tensor=1, pipeline=1))
    assert refused.value.field == "--achieved"
    found = derive(Placement(gpu="MI300X", tensor=1, pipeline=1, achieved=500e12), sensitivity=False)
    compute = next(each for each in found.steps if each.text.startswith("compute"))
    tokens = 64 * 8192
    assert compute.value == pytest.approx(6 * 70e9 * tokens / (64 * 500e12))
