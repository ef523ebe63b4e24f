"""Scripts that muster translate writes, and its rule for ranks, on a real Slurm."""

from __future__ import annotations

from pathlib import Path

from tests.answers.translate.test_ranks import run

from muster.answers.translate.to_slurm import Choices, to_slurm
from slurmdev import Slurm

SPECS = Path(__file__).parents[1] / "answers" / "specs"


def scripts() -> list[tuple[str, str]]:
    """The script of each object of the specs; partition and account as this Slurm has them."""
    found: list[tuple[str, str]] = []
    for path in sorted(SPECS.glob("*.yaml")):
        choices = Choices(account="research", partition="gpu", image="none")
        found += to_slurm(path.read_text(), path.name, choices).scripts
    return found


def test_sbatch_takes_every_script(slurm_empty: Slurm) -> None:
    """But for what this Slurm has not: more nodes, MIG, features. Those are refused in Slurm's own words."""
    known = ("Invalid generic resource", "Requested node configuration is not available", "Invalid feature",
             "More processors requested", "Memory specification can not", "unrecognized option '--segment")  # fmt: skip
    taken: list[str] = []
    for name, text in scripts():
        done = slurm_empty.command("sbatch", "--test-only", text=text)
        said = done.stderr + done.stdout
        if done.returncode == 0:
            taken.append(name)
        else:
            assert any(words in said for words in known), (name, said, text)
    assert len(taken) > len(scripts()) // 2, taken


CASES = [
    (1, 3, ""), (2, 2, ""), (3, 2, "-n5"), (3, 2, "-N2 -n4"), (3, 2, "-N3 -n3"), (2, 3, "--ntasks-per-node=1"),
    (3, 2, "-n2 -N1"),
]  # fmt: skip


def test_ranks_in_pods_are_those_of_srun(slurm_empty: Slurm, tmp_path: Path) -> None:
    show = "bash -c 'echo $SLURM_PROCID $SLURM_NTASKS $SLURM_LOCALID $SLURM_NODEID'"
    jobs: list[tuple[int, Path]] = []
    for number, (nodes, tasks, call) in enumerate(CASES):
        out = slurm_empty.folder / "spool" / f"ranks-{number}.out"
        options = ("-N", str(nodes), f"--ntasks-per-node={tasks}", "--mem=10M", f"--output={out}")
        jobs.append((slurm_empty.submit(*options, body=f"srun {call} {show}"), out))
    slurm_empty.wait("all had ended", lambda: not slurm_empty.run("squeue", "-h", "-t", "PD,R,CG").strip(), 90)
    for (nodes, tasks, call), (_, out) in zip(CASES, jobs, strict=True):
        options = f"#SBATCH -N {nodes} --ntasks-per-node={tasks} --mem=10M"
        pods = run(tmp_path, options, f"srun {call} {show}", kind="jobset")
        printed = [line for line in out.read_text().splitlines() if not line.startswith("srun: Warning")]
        assert sorted(line for lines in pods for line in lines) == sorted(printed), call
