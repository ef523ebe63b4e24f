"""Nothing is dropped silently: each option and field is made into something, or named with its line."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from muster.answers.translate.base import Remark, mount_of
from muster.answers.translate.body import Remarks, read_body
from muster.answers.translate.options import DONE, LOST, OF_THE_COMMAND
from muster.answers.translate.to_kubernetes import Choices, to_kubernetes
from muster.answers.translate.to_slurm import Choices as SlurmChoices
from muster.answers.translate.to_slurm import to_slurm
from muster.errors import InputError
from muster.slurm.sbatch_lines import ALONE, KNOWN, REFUSED


def remarks(*lines: str, body: str = "srun true", **choices: Any) -> dict[str, Remark]:
    text = "\n".join(["#!/bin/bash", *(f"#SBATCH {line}" for line in lines), body])
    made = to_kubernetes(text, "job.sbatch", Choices(image="i", **choices))
    return {each.field: each for each in made.remarks}


def test_every_option_of_sbatch_is_in_exactly_one_table() -> None:
    tables = [*DONE, *LOST, *OF_THE_COMMAND]
    assert sorted(tables) == sorted(set(KNOWN) - set(REFUSED))


SAMPLES = {"begin": "now+1hour", "licenses": "matlab:1", "hint": "nomultithread", "nice": None, "no-kill": None}


@pytest.mark.parametrize("name", sorted(LOST))
def test_an_option_without_counterpart_is_named_with_its_line(name: str) -> None:
    value = SAMPLES.get(name, "1")
    line = f"--{name}" if name in ALONE or value is None else f"--{name}={value}"
    found = remarks("-N1", line)[f"--{name}"]
    assert (found.lost, found.line, found.text) == (True, 3, LOST[name])


PARTLY = [
    ("--dependency=afterok:12", "kubectl wait --for=condition=complete job/12"),
    ("--dependency=singleton", "jobs of one name"),
    ("--qos=high", "--priority-class"),
    ("--gres=gpu:1,craynetwork:2", "craynetwork:2 is a resource of your device plugin"),
    ("-o out-%j.txt", "kubectl logs"),
    ("--export=ALL,TOKEN", "TOKEN is taken from the shell"),
    ("--gpu-bind=single:1", "--gpus-per-task"),
    ("--container-image=/images/torch.sqsh", "is a file"),
    ("--container-mounts=/data:/data", "--volume /data=pvc/CLAIM"),
    ("-m arbitrary", "in blocks"),
]


@pytest.mark.parametrize(("line", "words"), PARTLY)
def test_a_value_without_counterpart_is_named(line: str, words: str) -> None:
    text = f"#!/bin/bash\n#SBATCH {line}\nsrun true\n"
    lost = [each for each in to_kubernetes(text, "job.sbatch", Choices()).lost if each.line == 2]
    assert [each for each in lost if words in each.text], lost


BODIES = [
    ("module load cuda", "module", "no modules"),
    ("srun --mpi=pmix ./a", "srun --mpi", "MPIJob"),
    ("srun --cpu-bind=cores ./a", "srun --cpu-bind", "left out"),
    ("srun $SRUN_ARGS ./a", "srun", "not read"),
    ("mpirun -np 4 ./a", "mpirun", "hostfile"),
    ("x=$(squeue -h | wc -l)", "squeue", "kubectl"),
    ("apptainer exec a.sif python x.py", "apptainer", "--image"),
]


@pytest.mark.parametrize(("line", "field", "words"), BODIES)
def test_a_command_that_only_slurm_has_is_named(line: str, field: str, words: str) -> None:
    told = Remarks()
    read_body(f"#!/bin/bash\n# module load commented\n{line}\n", told)
    (found,) = told.all
    assert (found.field, found.line, found.lost) == (field, 3, True)
    assert words in found.text


REWRITTEN = [
    ("srun python a.py --lr 1", "srun python a.py --lr 1"),
    ("srun -l -u -c 8 --cpu-bind none python a.py", "srun python a.py"),
    ("srun -n4 --ntasks-per-node 2 -- ./a", "srun --ntasks=4 --ntasks-per-node=2 -- ./a"),
    ("time srun --label \\\n  ./a \\\n  -x", "time srun \\\n  ./a \\\n  -x"),
    ("exec srun ./a", "srun ./a"),
    ("CMD='srun ./a'; echo $CMD", "CMD='srun ./a'; echo $CMD"),
    ("X=1 srun ./a | tee log", "X=1 srun ./a | tee log"),
    ("srun $CMD --flag", "srun $CMD --flag"),
    ("srun --ntasks=$((N * 2)) ./a", "srun --ntasks=$((N * 2)) ./a"),
]


@pytest.mark.parametrize(("line", "made"), REWRITTEN)
def test_calls_of_srun_keep_what_the_function_reads(line: str, made: str) -> None:
    assert read_body(line, Remarks()).text == made


def test_what_runs_once_on_slurm_is_told_where_each_pod_runs_it() -> None:
    body = "cp a /tmp\nexport A=1\nsrun true\npython merge.py"
    assert "lines 3, 6 run once" in remarks("-N2", body=body)["script"].text
    assert "script" not in remarks("-N1", body=body)
    assert "first node only" in remarks("-N2", body="torchrun x.py")["srun"].text


def test_the_image_of_pyxis_is_the_pods_image() -> None:
    text = "#!/bin/bash\n#SBATCH -N1\nsrun --container-image=nvcr.io#nvidia/pytorch:25.09-py3 true\n"
    made = to_kubernetes(text, "job.sbatch", Choices())
    pod = made.objects[-1]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "nvcr.io/nvidia/pytorch:25.09-py3"


REFUSALS: list[tuple[list[str], dict[str, str], str]] = [
    (["--gpus-per-socket=1"], {}, "line|:2: .*--gpus-per-socket.*not read"),
    (["--nodez=4"], {}, "--nodez.*no option of sbatch.*nodes"),
    (["-N2 -n3 -c4"], {"kind": "job"}, "--as.*2 shapes.*jobset"),
    (["-N2 --array=0-200"], {}, "--array.*201 tasks of 2 pods.*at most 100"),
    (["-N2"], {"gang": "podgroup", "kind": "jobset"}, "--gang.*schedulingGroup.*--queue"),
    (["-N1"], {"gang": "kueue"}, "--gang.*--queue"),
]


@pytest.mark.parametrize(("lines", "choices", "words"), REFUSALS)
def test_what_cannot_be_translated_is_refused_in_one_line(
    lines: list[str], choices: dict[str, str], words: str
) -> None:
    with pytest.raises(InputError) as error:
        remarks(*lines, **choices)
    assert re.search(words, str(error.value)), str(error.value)


POD = """apiVersion: batch/v1
kind: Job
metadata: {name: train, labels: {kueue.x-k8s.io/queue-name: research}}
spec:
  parallelism: 2
  completions: 2
  backoffLimit: 3
  ttlSecondsAfterFinished: 60
  template:
    spec:
      serviceAccountName: robot
      restartPolicy: OnFailure
      initContainers: [{name: fetch, image: b}]
      containers:
      - name: main
        image: nvcr.io/nvidia/pytorch:25.09-py3
        command: [torchrun, --rdzv_endpoint, "train-0.train:29500", "--tag=$(TAG)", a b]
        env:
        - {name: TAG, value: x y}
        - {name: KEY, valueFrom: {secretKeyRef: {name: s, key: k}}}
        resources: {limits: {nvidia.com/gpu: 8, cpu: 8, memory: 64Gi}}
        livenessProbe: {exec: {command: [a]}}
        volumeMounts: [{name: data, mountPath: /data}, {name: home, mountPath: /home}]
      - {name: sidecar, image: c}
      volumes: [{name: data, persistentVolumeClaim: {claimName: d}}, {name: home, hostPath: {path: /nfs/home}}]
"""


def test_a_jobs_script() -> None:
    made = to_slurm(POD, "train.yaml", SlurmChoices())
    ((name, script),) = made.scripts
    assert name == "train.sbatch"
    assert [line for line in script.splitlines() if line.startswith("#SBATCH")] == [
        "#SBATCH --job-name=train", "#SBATCH --account=research", "#SBATCH --requeue", "#SBATCH --nodes=2",
        "#SBATCH --ntasks-per-node=1", "#SBATCH --gpus-per-node=8", "#SBATCH --cpus-per-task=8", "#SBATCH --mem=64G",
    ]  # fmt: skip
    assert """exec torchrun --rdzv_endpoint "$MASTER_ADDR":29500 --tag="$TAG" 'a b'""" in script
    assert "export TAG='x y'" in script
    assert "srun --container-image=nvcr.io#nvidia/pytorch:25.09-py3 --container-mounts=/nfs/home:/home bash" in script
    lost = {each.field.rpartition(".")[2]: each.line for each in made.lost}
    assert lost == {
        "backoffLimit": 7, "ttlSecondsAfterFinished": 8, "serviceAccountName": 11, "restartPolicy": 12,
        "initContainers[0]": 13, "env[1]": 20, "livenessProbe": 22, "volumeMounts[0]": 23, "containers[1]": 24,
    }  # fmt: skip


def test_a_claim_can_be_named_as_a_folder() -> None:
    made = to_slurm(POD, "train.yaml", SlurmChoices(image="none", volumes=(mount_of("/data=host/nfs/data"),)))
    assert "--container-image" not in made.scripts[0][1]
    assert not [each for each in made.lost if "volumeMounts" in each.field]


def test_scripts_are_shell(tmp_path: Path) -> None:
    for path in sorted((Path(__file__).parents[1] / "specs").glob("*.yaml")):
        for name, script in to_slurm(path.read_text(), path.name, SlurmChoices()).scripts:
            (tmp_path / name).write_text(script)
            done = subprocess.run(["bash", "-n", tmp_path / name], capture_output=True, text=True, check=False)
            assert done.returncode == 0, (path.name, done.stderr)
