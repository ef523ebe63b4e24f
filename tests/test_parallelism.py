"""Degrees of parallelism: what they ask of places, and what of them is refused with the field's path."""

from __future__ import annotations

import pytest

from muster.errors import InputError
from muster.model.parallelism import Parallelism, RankGroups, check_parallelism, rank_groups
from muster.model.workload import PodSet, PodShape, TopologyRequest, Workload


def job(pods: int, gpus: int, asked: Parallelism, topology: TopologyRequest | None = None) -> Workload:
    leader = PodSet(PodShape(cpu_milli=1000), 1, role="leader")
    return Workload("a", (leader, PodSet(PodShape(gpus=gpus), pods)), parallelism=asked, topology=topology)


# Pods, GPUs of each; tensor, pipeline, data, expert; pods together and near.
GROUPS = [
    ((8, 8), (8, 1, 8, 1), (1, 1)),
    ((8, 8), (8, 4, 2, 1), (1, 4)),
    ((16, 4), (8, 1, 8, 1), (2, 2)),
    ((16, 4), (8, 4, 2, 1), (2, 8)),
    ((16, 4), (8, 2, 4, 4), (2, 16)),
    ((64, 1), (8, 1, 8, 1), (8, 8)),
    ((4, 8), (4, 2, 4, 1), (1, 1)),
    ((3, 8), (4, 3, 2, 1), (1, 3)),  # a replica of 12 GPUs does not end with a pod, two of them do
]


@pytest.mark.parametrize(("pods", "degrees", "groups"), GROUPS)
def test_groups(pods: tuple[int, int], degrees: tuple[int, int, int, int], groups: tuple[int, int]) -> None:
    workload = job(*pods, Parallelism(*degrees))
    check_parallelism(workload)
    assert rank_groups(workload) == RankGroups(*groups)


def test_data_is_what_the_others_leave() -> None:
    workload = job(8, 8, Parallelism(8, 4))
    check_parallelism(workload)
    assert workload.parallelism is not None
    assert workload.parallelism.data_of(64) == 2


@pytest.mark.parametrize(
    ("asked", "field", "said"),
    [
        (Parallelism(0), "p.tensor", "is 0, not within 1 to"),
        (Parallelism(data=-1), "p.data", "is -1, not within 0 to"),
        (Parallelism(overlap=2.0), "p.overlap", "is 2.0, not within 0 to 1"),
        (Parallelism(3), "p.tensor", "3 GPUs of a group and 8 of a pod: neither divides the other"),
        (Parallelism(12), "p.tensor", "12 GPUs of a group and 8 of a pod: neither divides the other"),
        (Parallelism(8, 3), "p.pipeline", "8 x 3 = 24 GPUs, and the pods have 64"),
        (Parallelism(8, 2, 3), "p.data", "8 x 2 x 3 = 48 GPUs, and the pods have 64"),
        (Parallelism(8, 1, 8, 3), "p.expert", "3 does not divide the data parallel degree 8"),
    ],
)
def test_what_does_not_go_together_is_refused(asked: Parallelism, field: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        check_parallelism(job(8, 8, asked), "p")
    assert caught.value.field == field


def test_pods_that_have_no_order_are_refused() -> None:
    with pytest.raises(InputError, match="cuts tensor parallel groups of 2 pods"):
        check_parallelism(job(8, 8, Parallelism(16), TopologyRequest("rack", segment=3)))
    shared = PodSet(PodShape(gpus=1, gpu_milli=500), 8)
    with pytest.raises(InputError, match="shares of a GPU, so ranks have no order"):
        check_parallelism(Workload("a", (shared,), parallelism=Parallelism(8)))
    two = (PodSet(PodShape(gpus=8), 1), PodSet(PodShape(gpus=4), 2))
    with pytest.raises(InputError, match="not all alike"):
        check_parallelism(Workload("a", two, parallelism=Parallelism(8)))
    with pytest.raises(InputError, match="ask for no GPU"):
        check_parallelism(Workload("a", (PodSet(PodShape(cpu_milli=1)),), parallelism=Parallelism()))
    elastic = PodSet(PodShape(gpus=8), 8, min_count=3)
    with pytest.raises(InputError, match="a minimum of 3 pods is no whole number of replicas of 2 pods"):
        check_parallelism(Workload("a", (elastic,), parallelism=Parallelism(8, 2)))
    apart = (PodSet(PodShape(gpus=4), 1), PodSet(PodShape(gpus=4), 3))
    with pytest.raises(InputError, match="would stand in two pod sets"):
        check_parallelism(Workload("a", apart, parallelism=Parallelism(8)))
