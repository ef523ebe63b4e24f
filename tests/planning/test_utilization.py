"""The funnel from capacity to work: classes by scenario, totals against counting, and the metrics of real exporters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.answers.plan_data.utilization import read_utilization
from muster.errors import InputError
from muster.planning.plans.utilization import Utilization
from muster.planning.question import derive
from muster.planning.utilization import CLASSES, Use, by_class, class_of, funnel, parse_use, use_text

CASES = [
    ("idle-held", Use("t", 1, 0.0, 0.0, memory=0.4)),
    ("starved", Use("t", 1, 0.0, 0.0, memory=0.01)),  # nothing is held: a pod that has just begun
    ("starved", Use("t", 1, 0.2, 0.15, memory=0.5)),
    ("launch-bound", Use("t", 1, 0.95, 0.2)),
    ("comm-bound", Use("t", 1, 0.95, 0.4, network=0.8)),
    ("memory-bound", Use("t", 1, 0.95, 0.6, 0.05, 0.7)),
    ("good", Use("t", 1, 0.99, 0.85, 0.2)),
    ("good", Use("t", 1, 0.99, 0.6, 0.45)),
    ("partial", Use("t", 1, 0.99, 0.6, 0.2)),
    ("mixed", Use("t", 1, 0.99, 0.4)),
    ("mixed", Use("t", 1, 0.99)),  # nothing but GPU_UTIL was measured
]


@pytest.mark.parametrize(("name", "use"), CASES)
def test_classes(name: str, use: Use) -> None:
    assert class_of(use) == name


share = st.floats(0, 1)
uses = st.lists(
    st.builds(Use, st.sampled_from("abc"), st.floats(0.1, 100), share, share, share), min_size=1, max_size=9
)


@example([Use("a", 1.25, 5e-324, 1.0, 0.0)])  # a share that is no longer a number with all its digits
@given(uses)
def test_stages_are_what_one_counts_gpu_by_gpu(some: list[Use]) -> None:
    found = funnel(some)
    assert found.held == pytest.approx(sum(each.gpus for each in some))
    assert found.sm == pytest.approx(sum(each.gpus * (each.sm_active or 0) for each in some), rel=1e-6, abs=1e-9)
    classes = by_class(some)
    assert set(classes) <= set(CLASSES)
    assert sum(gpus for gpus, _ in classes.values()) == pytest.approx(found.held)


@example([Use("a", 1.0, 0.1, 1.0, 0.0)], [Use("b", 1.0, 1.0)])
@given(uses, uses)
def test_no_stage_is_more_than_what_is_held_where_a_part_was_not_measured(some: list[Use], others: list[Use]) -> None:
    found = funnel([*some, *(replace(each, sm_active=None, tensor_active=None) for each in others)])
    assert found.sm is not None
    assert found.tensor is not None
    assert max(found.sm, found.tensor) <= found.held * (1 + 1e-9)


@given(uses)
def test_a_use_is_read_as_it_is_written(some: list[Use]) -> None:
    for each in some:
        again = parse_use(use_text(each))
        assert again.gpus == pytest.approx(each.gpus, rel=1e-3)
        assert again.sm_active == pytest.approx(each.sm_active, rel=1e-3, abs=1e-12)


def test_what_was_measured_in_part_is_scaled_by_gpu_util() -> None:
    found = funnel([Use("a", 10, 0.8, 0.4), Use("b", 10, 0.4)])
    assert found.sm == pytest.approx(4 * 12 / 8)


def test_acme_seren_is_told_again() -> None:
    """AcmeTrace: GPU_UTIL 66.2 and SM_ACTIVE 41.6 % of what is held."""
    question = Utilization()
    found = funnel(question.uses())
    assert found.util / found.held == pytest.approx(0.662, abs=0.003)
    assert (found.sm or 0) / found.held == pytest.approx(0.416, abs=0.003)


def test_gaps_sum_to_what_does_no_work() -> None:
    found = derive(Utilization(price=2.0), sensitivity=False)
    gaps = [float(each.value) for each in found.results if each.name.startswith("gap")]
    works = float(found.results[0].value) * 1000
    assert sum(gaps) + works == pytest.approx(1000)
    assert float(found.results[-1].value) == pytest.approx(sum(gaps) * 730 * 2)


LABELS = 'gpu="{gpu}",UUID="GPU-{gpu}",hostname="n1"{more}'
OWN = ',container="c",namespace="{ns}",pod="p"'


def exposition() -> str:
    lines = ["# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).", "# TYPE DCGM_FI_DEV_GPU_UTIL gauge"]
    for gpu, ns, util, sm in ((0, "a", 98, 0.2), (1, "a", 0, 0.0), (2, "", 0, 0.0), (3, "b", 90, 0.9)):
        labels = LABELS.format(gpu=gpu, more=OWN.format(ns=ns) if ns else "")
        lines += [
            f"DCGM_FI_DEV_GPU_UTIL{{{labels}}} {util}", f"DCGM_FI_PROF_SM_ACTIVE{{{labels}}} {sm}",
            f"DCGM_FI_DEV_FB_USED{{{labels}}} 40000", f"DCGM_FI_DEV_FB_FREE{{{labels}}} 40000",
            f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{labels}}} 9223372036854775794",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def series() -> str:
    found: list[object] = []
    for gpu, ns, util in ((0, "a", 98), (1, "a", 0), (2, "", 0), (3, "b", 90)):
        metric = {"__name__": "DCGM_FI_DEV_GPU_UTIL", "UUID": f"GPU-{gpu}", "exported_namespace": ns}
        found.append({"metric": metric, "values": [[1, str(util)], [2, str(util)], [3, "NaN"]]})
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": found}})


TABLE = "gpu,tenant,gpu_util,sm_active\n0,a,98,20\n1,a,0,0\n2,,0,0\n3,b,90,90\n"


@pytest.mark.parametrize("text", [exposition(), series(), TABLE], ids=["exporter", "prometheus", "csv"])
def test_data_of_each_form_says_the_same(text: str, tmp_path: Path) -> None:
    file = tmp_path / "it"
    file.write_text(text)
    found = read_utilization(str(file), {})
    assert found.values["capacity"] == 4
    assert found.values["allocated"] == pytest.approx(0.75)
    read = [parse_use(each) for each in found.values["use"]]
    assert sum(each.gpus for each in read) == pytest.approx(3)
    assert sum(each.gpus * each.gpu_util for each in read) == pytest.approx(1.88, abs=0.002)
    assert {each.tenant for each in read} == {"a", "b"}


def test_a_gpu_of_two_tenants_is_counted_once(tmp_path: Path) -> None:
    file = tmp_path / "it.csv"
    file.write_text("gpu,tenant,gpu_util\n0,a,50\n0,b,50\n")
    found = read_utilization(str(file), {})
    assert sum(parse_use(each).gpus for each in found.values["use"]) == pytest.approx(1)


def test_a_gpu_that_was_held_for_a_part_of_the_window_counts_for_that_part(tmp_path: Path) -> None:
    """GPU 0: three samples with nobody, one with a; GPU 1: always b. Held: 1.25 of 2, and a's part is a quarter."""
    file = tmp_path / "it.csv"
    file.write_text("gpu,tenant,gpu_util\n0,,0\n0,,0\n0,,0\n0,a,80\n" + "1,b,50\n" * 7)
    found = read_utilization(str(file), {})
    assert found.values["allocated"] == pytest.approx(1.25 / 2)
    read = {use.tenant: use for use in map(parse_use, found.values["use"])}
    assert (read["a"].gpus, read["a"].gpu_util) == pytest.approx((0.25, 0.8))
    assert read["b"].gpus == pytest.approx(1)


@pytest.mark.parametrize(
    "text",
    ["", "hello", "{}", '{"data": 3}', "gpu,tenant\n0,a\n", "gpu,tenant,gpu_util\n0,a,-\n", "DCGM_FI_DEV_GPU_UTIL{} x"],
)
def test_what_holds_no_metrics_is_told(text: str, tmp_path: Path) -> None:
    file = tmp_path / "it"
    file.write_text(text)
    with pytest.raises(InputError):
        read_utilization(str(file), {})


@pytest.mark.parametrize("text", ["a", "a:gpus=1", "a:util=1", "a:gpus=x,util=1", "a:gpus=1,util=2", ":gpus=1,util=1"])
def test_a_wrong_use_is_told(text: str) -> None:
    with pytest.raises(InputError, match="such as"):
        derive(Utilization(use=(text,)))
