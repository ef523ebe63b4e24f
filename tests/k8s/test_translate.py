"""Manifests that muster translate writes, on a real API server with the real CRDs: a dry run refuses none of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from controlplane import ApiError, Cluster, Starter
from muster.answers.translate.base import mount_of
from muster.answers.translate.to_kubernetes import GANGS, Choices, to_kubernetes
from muster.errors import InputError

SPECS = Path(__file__).parents[1] / "answers" / "specs"
PLURALS = {
    "ConfigMap": "configmaps", "Service": "services", "Job": "jobs", "JobSet": "jobsets", "PyTorchJob": "pytorchjobs",
    "PodGroup": "podgroups",
}  # fmt: skip
FULL = """#!/bin/bash -l
#SBATCH -J Full_Job -N 3 -n 7 -c 2 --gres=gpu:h100:8 --mem=100G --tmp=10G -t 1-0 -A research --comment=hello
#SBATCH --exclude=gpu[03-04] -C ib|roce --switches=1 --signal=USR1@60 --export=ALL,A=1 -D /home/me -o /home/me/%j.out
#SBATCH --requeue --umask=027
srun python train.py
"""


@pytest.fixture(scope="module")
def jobs(kubernetes: str) -> Any:
    """A control plane with the CRDs of JobSet and Kubeflow's training operator."""
    starter = Starter(kubernetes)
    try:
        yield starter(crds=("jobset", "training-operator"))
    finally:
        starter.end()


def apply(cluster: Cluster, each: dict[str, Any]) -> None:
    """A server-side dry run of creating one object, unknown fields refused as kubectl does."""
    group = each["apiVersion"] if "/" in each["apiVersion"] else ""
    prefix = f"/apis/{group}" if group else f"/api/{each['apiVersion']}"
    path = f"{prefix}/namespaces/default/{PLURALS[each['kind']]}"
    cluster.api.post(path, each, dryRun="All", fieldValidation="Strict")


def scripts() -> list[tuple[str, str]]:
    return [("full", FULL), *((path.name, path.read_text()) for path in sorted(SPECS.glob("*.sbatch")))]


def test_every_script_makes_objects_that_the_server_takes(jobs: Cluster) -> None:
    taken: set[tuple[str, str]] = set()
    refused: set[str] = set()
    for name, text in scripts():
        for kind in ("", "job", "jobset", "pytorchjob"):
            for gang in GANGS:
                choices = Choices(kind, gang, "research", "python:3.12", volumes=(mount_of("/home=pvc/home"),))
                try:
                    made = to_kubernetes(text, name, choices)
                except InputError as error:
                    refused.add(error.field or "")
                    continue
                for each in made.objects:
                    apply(jobs, each)
                    taken.add((each["kind"], gang))
    assert {kind for kind, _ in taken} == set(PLURALS)
    assert refused == {"--as", "--array", "--gang"}


def test_a_wrong_field_would_be_refused(jobs: Cluster) -> None:
    made = to_kubernetes(FULL, "job.sbatch", Choices(image="i"))
    made.objects[-1]["spec"]["replicatedJobs"][0]["template"]["spec"]["paralelism"] = 2
    with pytest.raises(ApiError, match="paralelism"):
        apply(jobs, made.objects[-1])
