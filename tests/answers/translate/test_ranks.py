"""Ranks in pods find what srun gives them: bash runs the launcher and the script once for each pod of the job."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from muster.answers.translate.to_kubernetes import Choices, to_kubernetes

SHOW = "bash -c 'echo rank $SLURM_PROCID/$SLURM_NTASKS local $SLURM_LOCALID node $SLURM_NODEID/$SLURM_NNODES'"


def pods_of(objects: tuple[dict[str, Any], ...]) -> list[dict[str, str]]:
    """The environment of each pod that the objects make."""
    found: list[dict[str, str]] = []

    def add(template: dict[str, Any], count: int, kind: str) -> None:
        env = {each["name"]: each.get("value", "0") for each in template["spec"]["containers"][0]["env"]}
        found.extend({**env, "JOB_COMPLETION_INDEX": str(at), "KIND": kind} for at in range(count))

    for each in objects:
        spec = each.get("spec", {})
        if each["kind"] == "Job":
            add(spec["template"], spec["completions"], "Job")
        for job in spec.get("replicatedJobs", ()):
            add(job["template"]["spec"]["template"], job["template"]["spec"]["completions"], "JobSet")
        for role in spec.get("pytorchReplicaSpecs", {}).values():
            add(role["template"], role["replicas"], "PyTorchJob")
    return found


def run(tmp_path: Path, options: str, body: str, **choices: Any) -> list[list[str]]:
    """What each pod of a script prints, its lines sorted."""
    text = f"#!/bin/bash\n{options}\n{body}\n"
    made = to_kubernetes(text, "job.sbatch", Choices(image="i", queue="research", **choices))
    files = made.objects[0]["data"]
    for name, content in files.items():
        (tmp_path / name).write_text(content.replace("/muster/", f"{tmp_path}/"))
    printed: list[list[str]] = []
    for env in pods_of(made.objects):
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM", "MASTER", "MUSTER"))}
        done = subprocess.run(
            ["/bin/bash", str(tmp_path / "launch")], env={**clean, **env}, capture_output=True, text=True, timeout=30,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        printed.append(sorted(done.stdout.splitlines()))
    return printed


CASES: list[tuple[str, str, list[str], list[str]]] = [
    ("#SBATCH -N 2 --ntasks-per-node=2", "srun", ["0/4 0 0/2", "1/4 1 0/2"], ["2/4 0 1/2", "3/4 1 1/2"]),
    ("#SBATCH -N 2 -n 3", "srun", ["0/3 0 0/2", "1/3 1 0/2"], ["2/3 0 1/2"]),
    ("#SBATCH -N 2 -n 4 -m cyclic", "srun", ["0/4 0 0/2", "2/4 1 0/2"], ["1/4 0 1/2", "3/4 1 1/2"]),
    ("#SBATCH -N 2 --ntasks-per-node=4", "srun -N 2 -n 2", ["0/2 0 0/2"], ["1/2 0 1/2"]),
    ("#SBATCH -N 2", "srun --ntasks-per-node=1", ["0/2 0 0/2"], ["1/2 0 1/2"]),
    ("#SBATCH -N 2", "srun -n1 -l", ["0/1 0 0/2"], []),
    ("#SBATCH -N 2", "srun -N1 -n 2", ["0/2 0 0/2", "1/2 1 0/2"], []),
    ("#SBATCH -n 2 --gpus-per-task=1", "srun", ["0/2 0 0/2"], ["1/2 0 1/2"]),
    ("#SBATCH -N2 --gpus-per-node=4 --ntasks-per-gpu=1", "srun -n 2", ["0/2 0 0/2"], ["1/2 0 1/2"]),
    ("#SBATCH -N 1 -n 1\n#SBATCH hetjob\n#SBATCH -N1 -n2", f"srun {SHOW} :", ["0/1 0 0/1"], ["0/2 0 0/1", "1/2 1 0/1"]),
]  # fmt: skip


@pytest.mark.parametrize(("options", "call", "first", "second"), CASES)
def test_ranks_by_pod(tmp_path: Path, options: str, call: str, first: list[str], second: list[str]) -> None:
    def words(lines: list[str]) -> list[str]:
        return [
            "rank {} local {} node {}".format(*line.split())
            for line in lines
        ]  # fmt: skip

    found = run(tmp_path, options, f"{call} {SHOW}", **({} if "hetjob" in options else {"kind": "jobset"}))
    assert found == [words(first), words(second)]


@pytest.mark.parametrize("kind", ["job", "jobset", "pytorchjob"])
def test_the_host_list_is_that_of_the_pods(tmp_path: Path, kind: str) -> None:
    body = "FIRST=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)\necho $FIRST $MASTER_ADDR $SLURM_NODELIST"
    hosts = {
        "job": ["job-0.job", "job-1.job", "job-2.job"],
        "jobset": ["job-main-0-0.job", "job-main-0-1.job", "job-main-0-2.job"],
        "pytorchjob": ["job-master-0", "job-worker-0", "job-worker-1"],
    }[kind]
    for lines in run(tmp_path, "#SBATCH -N 3", body, kind=kind):
        assert lines == [f"{hosts[0]} {hosts[0]} {','.join(hosts)}"]


def test_pods_of_a_pytorch_job_are_its_nodes_in_order(tmp_path: Path) -> None:
    assert run(tmp_path, "#SBATCH -N 3", "echo $SLURM_NODEID", kind="pytorchjob") == [["0"], ["1"], ["2"]]


def test_pods_of_two_shapes_count_on(tmp_path: Path) -> None:
    found = run(tmp_path, "#SBATCH -N 3 -n 5 -c 2", "srun bash -c 'echo $SLURM_NODEID $SLURM_PROCID'")
    assert found == [["0 0", "0 1"], ["1 2", "1 3"], ["2 4"]]


@pytest.mark.parametrize(("indexes", "tasks"), [("0-3", "0 1 2 3"), ("2,5-6", "2 5 6"), ("1-9:4", "1 5 9")])
def test_tasks_of_an_array_have_their_numbers(tmp_path: Path, indexes: str, tasks: str) -> None:
    body = "srun bash -c 'echo $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT'"
    expected = [[f"{task} of {len(tasks.split())}"] for task in tasks.split()]
    assert run(tmp_path, f"#SBATCH --array={indexes}", body) == expected
    assert run(tmp_path, f"#SBATCH --array={indexes}", body, kind="jobset") == expected


def test_each_rank_has_its_gpus_where_that_is_asked_for(tmp_path: Path) -> None:
    found = run(
        tmp_path, "#SBATCH -N1 -n4 --gpus-per-task=2", "srun bash -c 'echo $SLURM_LOCALID $CUDA_VISIBLE_DEVICES'"
    )
    assert found == [["0 0,1", "1 2,3", "2 4,5", "3 6,7"]]


def test_what_torch_reads(tmp_path: Path) -> None:
    body = "srun bash -c 'echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $MASTER_PORT'"
    found = run(tmp_path, "#SBATCH -N2 --ntasks-per-node=2", body)
    assert found[1] == ["2 4 0 2 job-main-0-0.job 29500", "3 4 1 2 job-main-0-0.job 29500"]


def test_a_rank_that_fails_makes_srun_fail(tmp_path: Path) -> None:
    body = "srun bash -c 'exit $SLURM_PROCID' || echo failed by $?"
    assert run(tmp_path, "#SBATCH -n1 -N1", body) == [[]]
    assert run(tmp_path, "#SBATCH -N1 --ntasks-per-node=2", body) == [["failed by 1"]]


def test_steps_at_once_and_in_turn(tmp_path: Path) -> None:
    body = """for i in 1 2; do
  srun -n1 --exclusive \\
    bash -c "echo step $i" &
done
wait
if srun true; then echo good; fi
echo "srun is a word here"   # srun in a comment"""
    assert run(tmp_path, "#SBATCH -N1 -n2", body) == [["good", "srun is a word here", "step 1", "step 2"]]
