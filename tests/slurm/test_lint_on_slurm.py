"""What `muster slurm lint` says, held against a real Slurm: faulty and corrected scripts are run, and looked at.

Each script prints what each of its ranks saw. The nodes are busy where that is what scatters a job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from muster.slurm.lint import Lint, lint, site_of
from muster.traces.slurm_conf import load_config
from slurmdev import Slurm

SAY = 'echo "RANK ${RANK:-$SLURM_PROCID} $SLURMD_NODENAME ${LOCAL_RANK:-$SLURM_LOCALID} ${CUDA_VISIBLE_DEVICES-none}"\n'
TORCHRUN = """#!/bin/bash
# stands for torchrun: starts the ranks of its node, each with LOCAL_RANK
while [[ $1 == --* ]]; do [[ $1 == --nproc* ]] && n=${1#*=}; shift; done
for ((i = 0; i < ${n:-1}; i++)); do
  RANK=$((SLURM_NODEID * ${n:-1} + i)) LOCAL_RANK=$i "$@" &
done
wait
"""


class Ran(NamedTuple):
    """One job that ran.

    Attributes:
        nodes: node to what it had there, of ``scontrol show job -d``: GPUs.
        memory_mib: of the job on its first node.
        cpus: of the job in all.
        ranks: (node, local rank, CUDA_VISIBLE_DEVICES) of each line that a rank printed.
        output: all that it printed.
    """

    nodes: dict[str, int]
    memory_mib: int
    cpus: int
    ranks: list[tuple[str, int, str]]
    output: str


class Bench:
    """Runs scripts on a Slurm."""

    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm
        self.bin = slurm.folder / "spool" / "bin"
        self.bin.mkdir(exist_ok=True)
        for name, text in (("say", f"#!/bin/bash\n{SAY}"), ("torchrun", TORCHRUN)):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)

    def script(self, options: str, *commands: str) -> str:
        lines = [f"#SBATCH {option}" for option in options.split(" | ")]
        return "\n".join(["#!/bin/bash", *lines, f"export PATH={self.bin}:$PATH", *commands, ""])

    def lint(self, text: str) -> Lint:
        config = load_config([str(self.slurm.conf)])
        return lint(text, "job.sh", (), lambda job: site_of(config.conf, config.cgroup, job))

    def submit(self, text: str) -> tuple[int, Path]:
        out = self.slurm.folder / "spool" / f"lint-{len(list((self.slurm.folder / 'spool').glob('lint-*')))}"
        out.touch()
        end = f'scontrol show job -d -o "$SLURM_JOB_ID"\n'  # noqa: F541 - as a template it would lose its braces
        return int(self.slurm.run("sbatch", "--parsable", f"--output={out}", text=text + end)), out

    def run(self, text: str) -> Ran:
        job, out = self.submit(text)
        self.slurm.wait(f"job {job} had ended", lambda: self._ended(job), 40)
        said = out.read_text()
        nodes: dict[str, int] = {}
        memory = 0
        for found in re.finditer(r" Nodes=(\S+) CPU_IDs=\S+ Mem=(\d+) GRES=(\S*)", said):
            names = self.slurm.run("scontrol", "show", "hostnames", found[1]).split()
            count = sum(int(number) for number in re.findall(r"gpu(?::\w+)?:(\d+)", found[3]))
            nodes.update(dict.fromkeys(names, count))
            memory = memory or int(found[2])
        cpus = re.search(r" NumCPUs=(\d+)", said)
        ranks = [
            (match[1], int(match[2]), match[3]) for match in re.finditer(r"^RANK \d+ (\S+) (\d+) (\S*)$", said, re.M)
        ]
        return Ran(nodes, memory, int(cpus[1]) if cpus else 0, sorted(ranks), said)

    def _ended(self, job: int) -> bool:
        return not self.slurm.command("squeue", "-h", "-j", str(job)).stdout.strip()

    def refused(self, text: str) -> str:
        """What sbatch says of a script that it refuses."""
        done = self.slurm.command("sbatch", "--test-only", text=text)
        assert done.returncode != 0, done.stderr
        return done.stderr

    def corrected(self, text: str, rule: str) -> str:
        """The corrected script; the rule found something, and nothing in what it made of it."""
        found = self.lint(text)
        assert rule in {each.rule for each in found.findings}, [each.rule for each in found.findings]
        assert rule not in {each.rule for each in self.lint(found.corrected).findings}
        return found.corrected

    def fill(self, gpus: int) -> list[str]:
        """So many GPUs of every node are taken; returns the jobs."""
        jobs = [
            str(self.slurm.submit("--nodes=1", f"--gpus-per-node={gpus}", "--mem-per-gpu=1000", f"--nodelist={node}"))
            for node in self.slurm.settings.node_names()
        ]
        self.slurm.wait(
            "all nodes were busy", lambda: self.slurm.run("squeue", "-h", "-t", "R").count("\n") == len(jobs), 60
        )
        return jobs


@pytest.fixture
def bench(slurm_empty: Slurm) -> Bench:
    return Bench(slurm_empty)


@pytest.fixture
def busy(bench: Bench) -> Iterator[Bench]:
    """Every node has one GPU left, and the last two have all."""
    jobs = bench.fill(7)
    bench.slurm.run("scancel", *jobs[-2:])
    bench.slurm.wait("two nodes were idle", lambda: bench.slurm.idle() == 2, 30)
    yield bench
    bench.slurm.clear()


QUICK = "--time=10 | --mem-per-gpu=1G | --cpus-per-gpu=1"


@pytest.mark.parametrize(
    ("rule", "options", "ranks"),
    [
        ("gpus-without-nodes", "--gpus=8", 1),
        ("gpus-without-nodes", "--gpus=8 | --ntasks=8", 8),
        ("tasks-without-nodes", "--ntasks=8 | --gpus-per-task=1", 8),
    ],
)
def test_gpus_scatter_on_busy_nodes_and_the_corrected_script_has_one_node(
    busy: Bench, rule: str, options: str, ranks: int
) -> None:
    text = busy.script(f"{options} | {QUICK}", "srun say")
    # topology/tree keeps a small job within a leaf switch where it can: the leaf with idle nodes is left out
    faulty = busy.run(
        text.replace("srun say", "srun say", 1).replace(
            "#SBATCH --time", "#SBATCH --exclude=gpu[13-16]\n#SBATCH --time"
        )
    )
    assert faulty.nodes == {f"gpu{number:02d}": 1 for number in range(1, 9)}
    corrected = busy.run(busy.corrected(text, rule))
    assert list(corrected.nodes.values()) == [8]
    assert len(corrected.ranks) == ranks
    assert {sees for _, _, sees in corrected.ranks} == {"0,1,2,3,4,5,6,7"}


@pytest.mark.parametrize(
    ("rule", "options", "faulty", "right"),
    [
        ("tasks-uneven", "--nodes=2 | --ntasks=16 | --gpus-per-node=8", [1, 15], [8, 8]),
        ("tasks-without-nodes", "--ntasks=8 | --gres=gpu:8", [8], [8]),
    ],
)
def test_tasks_are_spread_as_said(bench: Bench, rule: str, options: str, faulty: list[int], right: list[int]) -> None:
    text = bench.script(f"{options} | --time=10 | --mem=1G | --cpus-per-task=1", "srun say")
    for script, wanted in ((text, faulty), (bench.corrected(text, rule), right)):
        nodes = [node for node, _, _ in bench.run(script).ranks]
        assert sorted(nodes.count(node) for node in set(nodes)) == wanted


def test_gpus_of_two_nodes_are_spread_as_said(bench: Bench) -> None:
    text = bench.script(f"--nodes=2 | --gpus=4 | {QUICK}", "srun say")
    assert sorted(bench.run(text).nodes.values()) == [1, 3]
    assert sorted(bench.run(bench.corrected(text, "gpus-uneven")).nodes.values()) == [2, 2]


BINDINGS = [
    # options, command: what each rank sees by local rank is what lint says
    ("--nodes=1 | --ntasks-per-node=2 | --gpus-per-node=2", "srun say"),
    ("--nodes=2 | --ntasks-per-node=2 | --gpus-per-node=2", "srun say"),
    ("--nodes=1 | --ntasks-per-node=2 | --gpus-per-task=1", "srun say"),
    ("--nodes=1 | --ntasks-per-node=2 | --gpus-per-task=2", "srun say"),
    ("--nodes=1 | --gpus-per-node=2 | --ntasks-per-node=2 | --gpu-bind=single:1", "srun say"),
    ("--nodes=1 | --gpus-per-node=2 | --ntasks-per-node=2", "srun --gpu-bind=map_gpu:1,0 say"),
    ("--nodes=1 | --gpus-per-node=4 | --ntasks-per-node=2", "srun --gpus-per-task=2 say"),
    ("--nodes=1 | --gpus=2 | --ntasks-per-gpu=1", "srun say"),
    ("--nodes=1 | --gpus-per-node=2 | --ntasks-per-node=1", "srun torchrun --nproc-per-node=2 say"),
    ("--nodes=2 | --gpus-per-node=2 | --ntasks-per-node=1",
     "srun torchrun --nnodes=2 --rdzv-endpoint=x:1 --nproc-per-node=2 say"),
    ("--nodes=1 | --gpus-per-node=2", "torchrun --nproc-per-node=2 say"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "command"), BINDINGS, ids=[f"{each[0]} {each[1]}" for each in BINDINGS])
def test_each_rank_sees_the_gpus_that_the_table_says(bench: Bench, options: str, command: str) -> None:
    from muster.slurm.lint.job import read_job
    from muster.slurm.lint.look import Look
    from muster.slurm.lint.ranks import ranks_of

    text = bench.script(f"{options} | --time=10 | --mem=1G", command)
    (said,) = ranks_of(Look(read_job(text, "job.sh"), None))
    ran = bench.run(text)
    by_node: dict[str, list[tuple[int, str]]] = {}
    for node, local, sees in ran.ranks:
        by_node.setdefault(node, []).append((local, sees))
    assert len(by_node) == said.nodes
    wanted = [(local, ",".join(map(str, sees))) for local, sees in enumerate(said.sees)]
    assert all(each == wanted for each in by_node.values()), (by_node, wanted)


def test_a_bound_rank_sees_one_gpu_and_the_corrected_script_shows_all(bench: Bench) -> None:
    text = bench.script("--nodes=1 | --ntasks-per-node=4 | --gpus-per-task=1 | --time=10 | --mem=1G", "srun say")
    assert [sees for _, _, sees in bench.run(text).ranks] == ["0", "1", "2", "3"]  # one of its own: CUDA calls it 0
    assert [sees for _, _, sees in bench.run(bench.corrected(text, "one-gpu-a-task")).ranks] == ["0,1,2,3"] * 4


def test_gpu_bind_none_takes_the_variable_away(bench: Bench) -> None:
    text = bench.script(
        "--nodes=1 | --ntasks-per-node=2 | --gpus-per-node=2 | --gpu-bind=none | --time=10 | --mem=1G", "srun say"
    )
    assert [sees for _, _, sees in bench.run(text).ranks] == ["none", "none"]
    assert [sees for _, _, sees in bench.run(bench.corrected(text, "gpu-bind-none")).ranks] == ["0,1", "0,1"]


def test_an_exclusive_job_holds_gpus_that_its_ranks_do_not_see(bench: Bench) -> None:
    text = bench.script("--nodes=1 | --exclusive | --time=10 | --mem=1G", "srun -n1 say")
    faulty = bench.run(text)
    assert list(faulty.nodes.values()) == [8]
    assert [sees for _, _, sees in faulty.ranks] == ["none"]
    corrected = bench.run(bench.corrected(text, "exclusive-hides-gpus"))
    assert [sees for _, _, sees in corrected.ranks] == ["0,1,2,3,4,5,6,7"]


def test_devices_by_hand_are_others_gpus(bench: Bench) -> None:
    first = bench.slurm.submit("--nodes=1", "--gpus-per-node=2", "--nodelist=gpu01", "--mem=1G")
    bench.slurm.wait("it ran", lambda: bench.slurm.run("squeue", "-h", "-t", "R", "-j", str(first)).strip(), 30)
    text = bench.script(
        "--nodes=1 | --gpus-per-node=2 | --nodelist=gpu01 | --time=10 | --mem=1G",
        "export CUDA_VISIBLE_DEVICES=0,1",
        'echo "RANK 0 gpu01 0 $CUDA_VISIBLE_DEVICES"',
        "srun say",
    )
    assert bench.run(text).ranks[0][2] == "0,1"  # which are the first job's
    assert {sees for _, _, sees in bench.run(bench.corrected(text, "devices-by-hand")).ranks} == {"2,3"}


def test_without_a_default_one_gpu_takes_all_memory_and_the_other_seven_are_of_no_use(bench: Bench) -> None:
    slurm = bench.slurm
    slurm.run("scontrol", "create", "PartitionName=bare", "Nodes=gpu01", "MaxTime=1:00:00", "State=UP")
    try:
        text = bench.script(
            "--partition=bare | --gpus-per-node=1 | --nodes=1 | --time=10 | --cpus-per-task=1", "srun say"
        )
        conf = slurm.conf.read_text() + "PartitionName=bare Nodes=gpu01 MaxTime=1:00:00\n"
        from muster.slurm.conf import read_slurm_conf

        found = lint(
            text, "job.sh", (), lambda job: site_of(read_slurm_conf("slurm.conf", lambda path: conf), None, job)
        )
        assert "whole-memory-by-default" in {each.rule for each in found.findings}
        assert bench.run(text).memory_mib == slurm.settings.memory_mib
        holder, _ = bench.submit(text + "sleep 60\n")
        slurm.wait("it ran", lambda: slurm.run("squeue", "-h", "-t", "R", "-j", str(holder)).strip(), 30)
        second = slurm.submit("--partition=bare", "--gpus-per-node=1", "--nodes=1", "--mem-per-gpu=10G")
        slurm.wait("it waits", lambda: "Resources" in slurm.run("squeue", "-h", "-o", "%r", "-j", str(second)), 30)
        slurm.run("scancel", str(holder), str(second))
        assert bench.run(found.corrected).memory_mib == slurm.settings.memory_mib // 8 // 1024 * 1024
    finally:
        slurm.clear()
        slurm.run("scontrol", "delete", "PartitionName=bare")


def test_torchrun_in_every_task_starts_too_many(bench: Bench) -> None:
    text = bench.script(
        "--nodes=2 | --ntasks-per-node=4 | --gpus-per-node=4 | --cpus-per-task=2 | --time=10 | --mem=1G",
        "srun torchrun --nproc-per-node=4 --nnodes=$SLURM_NNODES --rdzv-endpoint=x:1 say",
    )
    assert len(bench.run(text).ranks) == 32
    corrected = bench.run(bench.corrected(text, "launcher-in-every-task"))
    assert len(corrected.ranks) == 8
    assert corrected.cpus == 16


def test_without_srun_one_node_works(bench: Bench) -> None:
    text = bench.script(
        "--nodes=2 | --gpus-per-node=2 | --time=10 | --mem=1G | --cpus-per-task=2", "torchrun --nproc-per-node=2 say"
    )
    assert len({node for node, _, _ in bench.run(text).ranks}) == 1
    corrected = bench.run(bench.corrected(text, "only-first-node"))
    assert len({node for node, _, _ in corrected.ranks}) == 2
    assert len(corrected.ranks) == 4


def test_ranks_are_given_their_variables(bench: Bench) -> None:
    (bench.bin / "who.py").write_text("import os\nprint(*map(os.environ.get, ('RANK', 'LOCAL_RANK', 'MASTER_ADDR')))\n")
    python = f"python3 {bench.bin}/who.py"
    text = bench.script("--nodes=2 | --ntasks-per-node=2 | --gpus-per-node=2 | --time=10 | --mem=1G", f"srun {python}")
    assert bench.run(text).output.count("None None None") == 4
    said = bench.run(bench.corrected(text, "ranks-find-each-other")).output
    found = sorted(re.findall(r"^(\d) (\d) (gpu\d+)$", said, re.M))
    assert [(rank, local) for rank, local, _ in found] == [("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")]
    assert len({host for _, _, host in found}) == 1


def test_steps_wait_for_each_other_unless_they_are_told_what_they_take(bench: Bench) -> None:
    options = "--nodes=1 | --ntasks=2 | --gpus-per-node=2 | --time=10 | --mem=2G"
    step = 'srun -n1 {} bash -c "echo STEP \\$SECONDS $(date +%s); sleep 2" &'
    text = bench.script(
        options, "S=$(date +%s)", step.format(""), step.format(""), "wait", "echo TOOK $(($(date +%s) - S))"
    )
    assert "steps-in-turn" in {each.rule for each in bench.lint(text).findings}
    told = step.format("--exact --gpus-per-node=1 --mem=1G")
    beside = bench.script(options, "S=$(date +%s)", told, told, "wait", "echo TOOK $(($(date +%s) - S))")
    assert "steps-in-turn" not in {each.rule for each in bench.lint(beside).findings}
    took = [int(re.findall(r"TOOK (\d+)", bench.run(script).output)[0]) for script in (text, beside)]
    assert took[0] >= 4 > took[1]


REFUSED = [
    ("fewer-gpus-than-nodes", "--nodes=4 | --gpus=2", "--gpus < -N"),
    ("contradiction", "--gpus-per-task=1", "--gpus-per-task used without either"),
    ("contradiction", "--nodes=1 | --gpus=1 | --mem=1G | --mem-per-gpu=1G", "mutually exclusive"),
    ("contradiction", "--nodes=1 | --mem-per-gpu=1G", "Invalid generic resource"),
    ("contradiction", "--ntasks-per-gpu=1", "Invalid generic resource"),
    ("contradiction", "--nodes=1 | --gpus-per-socket=1", "requires --sockets-per-node"),
    ("contradiction", "--gpus=1 | --cpus-per-gpu=4 | --cpus-per-task=2", "Invalid generic resource"),
    ("contradiction", "--gpus=1 | --ntasks=1 | --gpus-per-task=1 | --ntasks-per-gpu=1", "mutually exclusive"),
    ("more-than-a-node-has", "--nodes=1 | --gpus-per-node=9", "configuration is not available"),
    ("unknown-gpu-type", "--nodes=1 | --gpus-per-node=a100:1", "configuration is not available"),
    ("unknown-partition", "--partition=nope", "Invalid partition name"),
    ("too-much-memory", "--nodes=1 | --gpus-per-node=1 | --mem=9T", "configuration is not available"),
    ("too-many-nodes", "--nodes=17", "Node count specification invalid|configuration is not available|More processors"),
    ("variable-in-option", "--nodes=$N", "is not a valid node count"),
    ("refused-option", "--gpus_per_node=1", "unrecognized option"),
    ("refused-option", "--share", "unrecognized option"),
    ("refused-option", "--workdir=/tmp", "unrecognized option"),
    ("refused-option", "--exact", "unrecognized option"),
    ("refused-option", "--ntask=4", "is ambiguous|unrecognized option"),
]


def test_what_is_said_to_be_refused_is_refused(bench: Bench) -> None:
    for rule, options, said in REFUSED:
        text = bench.script(options, "true")
        rules = {each.rule: each.severity for each in bench.lint(text).findings}
        assert rules.get(rule) in ("error", "warning"), (options, rules)
        done = bench.slurm.command("sbatch", "--test-only", text=text)
        assert done.returncode != 0, options
        assert re.search(said, done.stderr), (options, done.stderr)
    dos = bench.script("--nodes=1", "true").replace("\n", "\r\n")
    assert "DOS line breaks" in bench.refused(dos)
    assert "line-ends" in {each.rule for each in bench.lint(dos).findings}


def test_fewer_tasks_than_nodes_take_fewer_nodes(bench: Bench) -> None:
    text = bench.script("--nodes=3 | --ntasks=2 | --time=10 | --mem=1G", "srun say")
    assert "more-nodes-than-tasks" in {each.rule for each in bench.lint(text).findings}
    assert len({node for node, _, _ in bench.run(text).ranks}) == 2


def test_a_limit_over_the_partitions_waits_for_ever(bench: Bench) -> None:
    text = bench.script("--partition=debug | --time=2:00:00 | --nodes=1", "true")
    assert "time-over-maximum" in {each.rule for each in bench.lint(text).findings}
    job, _ = bench.submit(text)
    slurm = bench.slurm
    slurm.wait("it waits", lambda: "PartitionTimeLimit" in slurm.run("squeue", "-h", "-o", "%r", "-j", str(job)), 30)
    corrected = bench.corrected(text, "time-over-maximum")
    assert "#SBATCH --time=00:30:00" in corrected
    bench.run(corrected)


def test_options_behind_the_first_command_are_ignored(bench: Bench) -> None:
    text = bench.script("--nodes=1 | --time=10 | --mem=1G", "#SBATCH --gpus-per-node=2", "srun say")
    assert [sees for _, _, sees in bench.run(text).ranks] == ["none"]
    assert [sees for _, _, sees in bench.run(bench.corrected(text, "after-first-command")).ranks] == ["0,1"]
