"""`muster slurm lint`: a script, what is found in it, and what of it is put right."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.errors import InputError
from muster.slurm.conf import read_slurm_conf
from muster.slurm.conf_gres import read_cgroup_conf
from muster.slurm.lint import Lint, Site, lint, rules, site_of
from muster.slurm.lint.job import Job
from muster.slurm.lint.launches import read_launches

CONF = """
ClusterName=test
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
TaskPlugin=task/affinity{cgroup}
NodeName=gpu[01-16] CPUs=96 RealMemory=1024000 Gres=gpu:h100:8
NodeName=cpu[01-04] CPUs=32 RealMemory=128000
PartitionName=train Nodes=gpu[01-16] Default=YES MaxTime=2-0 {more}
PartitionName=small Nodes=gpu[01-02] MaxTime=1:00:00 DefaultTime=30 MaxNodes=1
PartitionName=free Nodes=cpu[01-04]
"""


def site(
    more: str = "DefMemPerGPU=120000 DefCpuPerGPU=12 DefaultTime=60", *, hides: bool = True
) -> Callable[[Job], Site]:
    """A site with all defaults set, unless ``more`` says else."""
    conf = read_slurm_conf("slurm.conf", lambda path: CONF.format(more=more, cgroup=",task/cgroup" if hides else ""))
    cgroup = read_cgroup_conf("cgroup.conf", lambda path: f"ConstrainDevices={'yes' if hides else 'no'}")
    return lambda job: site_of(conf, cgroup, job)


def script(options: str, *commands: str) -> str:
    """A script with these options, one a line, and commands."""
    lines = [f"#SBATCH {option}" for option in options.split(" | ") if option]
    return "\n".join(["#!/bin/bash", *lines, *(commands or ("srun hostname",)), ""])


def found(text: str, where: Callable[[Job], Site] | None = None, *command_line: str) -> dict[str, str]:
    """Rule to what it says."""
    return {each.rule: each.what for each in lint(text, "job.sh", command_line, where).findings}


GOOD = "--time=4:00:00 | --mem-per-gpu=100G | --cpus-per-task=8"
"""Options that leave nothing to be said of time, memory and CPUs."""
QUIET = "srun --cpus-per-task=8 ./program"


class Scenario(NamedTuple):
    """One scenario of `lint_scenarios.txt`."""

    rule: str
    site: str
    alone: bool
    options: list[str]
    commands: list[str]
    says: list[str]
    has: list[str]
    lacks: list[str]


def read_scenarios() -> Iterator[Scenario]:
    """The scenarios of the text, in order."""
    text = (Path(__file__).parent / "lint_scenarios.txt").read_text()
    for block in re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).strip().split("\n\n"):
        first, *rest = block.split("\n")
        rule, where, *alone = first.split()
        scenario = Scenario(rule, where, alone == ["alone"], [], [], [], [], [])
        kinds = {"$ ": scenario.commands, "> ": scenario.says, "+ ": scenario.has, "- ": scenario.lacks}
        for line in rest:
            assert line.startswith("  "), line
            kinds.get(line[2:4], scenario.options).append(line[4:] if line[2:4] in kinds else line[2:])
        yield scenario


SCENARIOS = list(read_scenarios())
SITES: dict[str, Callable[[Job], Site] | None] = {
    "none": None, "full": site(), "bare": site(""), "open": site(hides=False),
}  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=[f"{at}-{each.rule}" for at, each in enumerate(SCENARIOS)])
def test_what_is_found_and_put_right(scenario: Scenario) -> None:
    options = scenario.options if scenario.alone else [*scenario.options, *GOOD.split(" | ")]
    commands = [QUIET if each == "QUIET" else each for each in scenario.commands or ["QUIET"]]
    where = SITES[scenario.site]
    linted = lint(script(" | ".join(options), *commands), "job.sh", (), where)
    mine = [each.what for each in linted.findings if each.rule == scenario.rule]
    assert mine, [f"{each.rule}: {each.what}" for each in linted.findings]
    assert scenario.says
    for text in scenario.says:
        assert any(text in what for what in mine), mine
    for line in scenario.has:
        assert line in linted.corrected, linted.corrected
    for line in scenario.lacks:
        assert line not in linted.corrected, linted.corrected
    if scenario.has or scenario.lacks:
        assert scenario.rule not in found(linted.corrected, where), linted.corrected


def test_every_rule_has_a_scenario() -> None:
    elsewhere = {"line-ends", "no-partition", "heterogeneous"}
    assert {each.name for each in rules()} == {each.rule for each in SCENARIOS} | elsewhere
    assert len({each.name for each in rules()}) == len(rules())


GOOD_SCRIPTS = {
    "torchrun": script(
        "--nodes=4 | --ntasks-per-node=1 | --gpus-per-node=8 | --cpus-per-task=96 | --mem=0 | --time=1-0",
        "export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))",
        "srun torchrun --nnodes=$SLURM_NNODES --nproc-per-node=8 --rdzv-id=$SLURM_JOB_ID --rdzv-backend=c10d \\",
        "  --rdzv-endpoint=$MASTER_ADDR:$MASTER_PORT train.py",
    ),
    "ranks": script(
        "--nodes=2 | --ntasks-per-node=8 | --gpus-per-node=8 | --cpus-per-task=12 | --mem-per-gpu=120G | --time=1-0",
        'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 20000))",
        "export WORLD_SIZE=$SLURM_NTASKS",
        "srun -c 12 bash -c 'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID exec python train.py'",
    ),
    "one GPU": script("--gpus=1 | --mem=100G | --cpus-per-task=8 | --time=2:00:00", "python train.py"),
    "no GPU": script("--ntasks=1 | --mem=4G | --time=2:00:00 | -p free", "python prepare.py"),
    "array": script("--array=0-99 | --gpus=1 | --mem=60G | --cpus-per-task=8 | --time=1:30:00", "python x.py"),
}


@pytest.mark.parametrize("name", GOOD_SCRIPTS)
@pytest.mark.parametrize("where", ["none", "full"])
def test_nothing_is_said_of_a_good_script(name: str, where: str) -> None:
    linted = lint(GOOD_SCRIPTS[name], "job.sh", (), SITES[where])
    assert [(each.rule, each.what) for each in linted.findings if each.severity != "note"] == []
    assert linted.corrected == GOOD_SCRIPTS[name]


def test_the_command_line_counts_and_goes_into_the_corrected_script() -> None:
    text = script(f"--nodes=1 | --gpus=8 | {GOOD}", QUIET)
    assert "gpus-uneven" not in found(text)
    linted = lint(text, "job.sh", ["--nodes", "4"])
    assert "gpus-uneven" in {each.rule for each in linted.findings}
    assert "#SBATCH --nodes=4" in linted.corrected
    assert "#SBATCH --gpus-per-node=2" in linted.corrected
    with pytest.raises(InputError, match="command line: field '--nods': is no option of sbatch; did you mean nodes or"):
        lint(text, "job.sh", ["--nods", "4"])


def test_a_script_of_windows_and_one_without_a_shell() -> None:
    text = script(f"--nodes=1 | --gpus-per-node=8 | {GOOD}", QUIET)
    dos = lint(text.replace("\n", "\r\n"), "job.sh")
    assert "line-ends" in {each.rule for each in dos.findings}
    assert dos.corrected == text
    bare = lint(text.removeprefix("#!/bin/bash\n"), "job.sh")
    assert [each.what for each in bare.findings if each.severity == "error"] == [
        "the first line does not begin with #!: sbatch refuses it"
    ]
    assert bare.corrected == text


def test_a_heterogeneous_job_is_said_to_be_looked_at_in_part() -> None:
    text = script(f"--nodes=1 | {GOOD} | hetjob | --nodes=4", QUIET)
    assert "a job of 2 components" in found(text)["heterogeneous"]


def test_no_default_partition_is_said() -> None:
    conf = read_slurm_conf("slurm.conf", lambda path: CONF.format(more="", cgroup="").replace("Default=YES", ""))
    told = found(script("--nodes=1", QUIET), lambda job: site_of(conf, None, job))
    assert told["no-partition"] == "no --partition, and no partition is the default: sbatch refuses it"


@pytest.mark.parametrize(
    ("options", "command", "sees", "device"),
    [
        (
            "--nodes=1 | --ntasks-per-node=2 | --gpus-per-node=2",
            "srun python x.py",
            ((0, 1), (0, 1)),
            "cuda:$SLURM_LOCALID",
        ),
        (
            "--nodes=1 | --ntasks-per-node=2 | --gpus-per-node=2 | --gpu-bind=single:1",
            "srun ./x",
            ((0,), (1,)),
            "cuda:0",
        ),
        (
            "--nodes=1 | --ntasks-per-node=2 | --gpus-per-node=2",
            "srun --gpu-bind=map_gpu:1,0 ./x",
            ((1,), (0,)),
            "cuda:0",
        ),
        (
            "--nodes=1 | --ntasks-per-node=2 | --gpus-per-node=4",
            "srun --gpus-per-task=2 ./x",
            ((0, 1), (2, 3)),
            "cuda:0",
        ),
        ("--nodes=1 | --gpus-per-node=2", "torchrun --nproc-per-node=2 x.py", ((0, 1), (0, 1)), "cuda:$LOCAL_RANK"),
        (
            "--nodes=1 | --ntasks-per-node=2 | --gpus-per-node=2",
            "mpirun ./x",
            ((0, 1), (0, 1)),
            "cuda:$OMPI_COMM_WORLD_LOCAL_RANK",
        ),
    ],
)
def test_how_each_rank_finds_its_gpu(
    options: str, command: str, sees: tuple[tuple[int, ...], ...], device: str
) -> None:
    (ranks,) = lint(script(f"{options} | --mem=10G", command), "job.sh").ranks
    assert (ranks.sees, ranks.device) == (sees, device)


def test_commands_that_start_ranks_are_found_wherever_they_stand() -> None:
    text = """#!/bin/bash
if [ -f x ]; then
  srun -N2 --ntasks-per-node 8 -l bash -lc 'export RANK=$SLURM_PROCID; python -u train.py' &> log
fi
for i in 1 2; do timeout 5 srun --exclusive -n1 ./step $i & done
# srun commented
FOO=1 python3 -m torch.distributed.run --nproc_per_node 4 \\
   --nnodes=2 train.py | tee out
cat <<EOF
srun in a text
EOF
X=$(srun -n1 hostname)
accelerate launch --num_processes 8 train.py
"""
    launches, assigned = read_launches(text)
    assert [(each.kind, each.line, each.innermost().kind) for each in launches] == [
        ("srun", 3, "python"), ("srun", 5, "srun"), ("torchrun", 7, "torchrun"), ("accelerate", 13, "accelerate"),
    ]  # fmt: skip
    assert launches[0].options == {"nodes": "2", "ntasks-per-node": "8", "label": ""}
    assert launches[0].variables["RANK"].value == "$SLURM_PROCID"
    assert launches[1].background
    assert launches[2].options == {"nproc-per-node": "4", "nnodes": "2"}
    assert launches[2].variables["FOO"].value == "1"
    assert set(assigned) == {"X"}


_NUMBERS = st.integers(0, 20)
_OPTIONS = st.lists(
    st.one_of(
        st.builds(
            "--{}={}".format,
            st.sampled_from(
                [
                    "nodes",
                    "ntasks",
                    "gpus",
                    "ntasks-per-node",
                    "gpus-per-node",
                    "gpus-per-task",
                    "cpus-per-task",
                    "mem",
                    "time",
                    "ntasks-per-gpu",
                    "cpus-per-gpu",
                    "mem-per-gpu",
                ]
            ),
            _NUMBERS,
        ),
        st.sampled_from(
            [
                "--exclusive",
                "--gres=gpu:h100:4",
                "-p small",
                "-N 2-4",
                "--gpu-bind=map_gpu:0",
                "--mem=0",
                "--share",
                "--nods=3",
                "--time=1-0",
                "--gpus=h100:8",
                "--output=$X",
                "--nodes",
            ]
        ),
    ),
    max_size=6,
)
_COMMANDS = st.lists(
    st.sampled_from(
        [
            "srun python x.py",
            "srun -n4 torchrun --nproc_per_node=8 x.py",
            "torchrun x.py",
            "mpirun -np 4 ./x",
            "python x.py",
            "srun ./a &",
            "wait",
            "export MASTER_PORT=1",
            "export CUDA_VISIBLE_DEVICES=0",
            "#SBATCH --nodes=3",
            "# SBATCH --mem=3",
            "srun mpirun ./x",
            "if x; then srun 'a",
            "srun -N4 ./x",
        ]
    ),
    max_size=4,
)


@settings(max_examples=150, deadline=None)
@given(_OPTIONS, _COMMANDS, st.sampled_from(sorted(SITES)))
def test_any_script_is_looked_at_and_what_is_corrected_stays_so(
    options: list[str], commands: list[str], where: str
) -> None:
    text = script(" | ".join(options), *commands)
    linted: Lint = lint(text, "job.sh", (), SITES[where])
    again = lint(linted.corrected, "job.sh", (), SITES[where])
    assert again.corrected == linted.corrected
    assert subprocess.run(
        ["bash", "-n"], input=linted.corrected, text=True, capture_output=True, check=False
    ).returncode == (subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).returncode)


@pytest.mark.parametrize("where", sorted(SITES))
@pytest.mark.parametrize(
    "zero",
    [
        *("--nodes=0", "--ntasks=0", "--ntasks-per-node=0", "--ntasks-per-gpu=0", "--cpus-per-task=0"),
        *("--cpus-per-gpu=0", "--gpus=0", "--gpus-per-node=0", "--gpus-per-task=0", "--mem=0", "--mem-per-gpu=0"),
    ],
)
@pytest.mark.parametrize("beside", ["--gres=gpu:h100:4", "--gpus=8", "--nodes=2 | --gpus-per-task=1", "--ntasks=4"])
def test_a_count_of_nothing_is_looked_at_as_any_other(zero: str, beside: str, where: str) -> None:
    linted = lint(script(f"{beside} | {zero}", "srun -n0 python x.py", "srun python x.py"), "job.sh", (), SITES[where])
    assert lint(linted.corrected, "job.sh", (), SITES[where]).corrected == linted.corrected
