"""The real Slurm that the other tests use: it starts, runs jobs that see GPUs, is hurt, and ends without a trace."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from slurmdev import Settings, Slurm, SlurmError
from slurmdev.settings import topology_conf


def test_a_gang_runs_and_each_rank_sees_the_gpus_of_its_node(slurm_empty: Slurm) -> None:
    out = slurm_empty.folder / "spool" / "gang.out"
    job = slurm_empty.submit(
        "--nodes=2",
        "--ntasks-per-node=2",
        "--gpus-per-node=8",
        f"--output={out}",
        "--wait-all-nodes=1",
        body='srun sh -c "echo $SLURMD_NODENAME \\$SLURM_LOCALID \\$CUDA_VISIBLE_DEVICES"',
    )
    slurm_empty.wait("the gang had ended", lambda: "COMPLETED" in state(slurm_empty, job), 30)
    ranks = sorted(line.split()[1:] for line in out.read_text().splitlines())
    assert ranks == [["0", "0,1,2,3,4,5,6,7"]] * 2 + [["1", "0,1,2,3,4,5,6,7"]] * 2


def test_other_users_submit_and_are_refused_what_operators_may(slurm_empty: Slurm) -> None:
    job = slurm_empty.submit("--gpus=1", user="games")
    assert "UserId=games" in slurm_empty.run("scontrol", "show", "job", str(job))
    refused = slurm_empty.command("scontrol", "update", "NodeName=gpu01", "State=DRAIN", "Reason=x", user="games")
    assert refused.returncode != 0
    assert "Invalid user id" in refused.stderr + refused.stdout


def test_what_a_job_left_running_ends_with_its_slurm(start_slurm: Callable[[Settings], Slurm]) -> None:
    mine = start_slurm(Settings(nodes=2, accounting=False))
    mark = f"{mine.folder}/spool/child"
    job = mine.submit("--nodes=1", body=f"sleep 1234 & echo $! > {mark}; wait")
    mine.wait("the job ran", lambda: Path(mark).exists() and Path(mark).read_text().strip(), 30)
    child = int(Path(mark).read_text())
    assert "RUNNING" in state(mine, job)
    mine.down()
    assert not mine.processes()
    assert not mine.folder.exists()
    assert is_gone(child)


def test_a_wrong_configuration_is_named_with_the_words_of_slurm(start_slurm: Callable[[Settings], Slurm]) -> None:
    with pytest.raises(SlurmError, match="Can't find plugin for select/nothing"):
        start_slurm(Settings(nodes=1, accounting=False, parameters=("SelectType=select/nothing",)))


def test_a_controller_that_was_ended_comes_back_with_its_jobs(slurm_empty: Slurm) -> None:
    job = slurm_empty.submit("--gpus=8")
    slurm_empty.wait("the job ran", lambda: "RUNNING" in state(slurm_empty, job), 30)
    slurm_empty.kill("slurmctld", signal.SIGTERM)
    assert slurm_empty.command("scontrol", "ping").returncode != 0
    slurm_empty.restart("slurmctld")
    assert "RUNNING" in state(slurm_empty, job)


def test_the_tree_has_leafs_blocks_and_a_core() -> None:
    assert topology_conf(Settings(nodes=10)).splitlines() == [
        "SwitchName=leaf1 Nodes=gpu[01-04]",
        "SwitchName=leaf2 Nodes=gpu[05-08]",
        "SwitchName=leaf3 Nodes=gpu[09-10]",
        "SwitchName=block1 Switches=leaf1,leaf2",
        "SwitchName=block2 Switches=leaf3",
        "SwitchName=core Switches=block1,block2",
    ]


def state(slurm: Slurm, job: int) -> str:
    """The job's line of states, as scontrol prints it."""
    return slurm.run("scontrol", "-o", "show", "job", str(job))


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
