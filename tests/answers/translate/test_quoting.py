"""What stands in a file is data: no name, image, path or value of it becomes a command of what is made of it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.answers.translate.base import Mount
from muster.answers.translate.to_kubernetes import Choices, to_kubernetes
from muster.answers.translate.to_slurm import Choices as SlurmChoices
from muster.answers.translate.to_slurm import to_slurm
from muster.errors import InputError

EVIL = [
    "a; touch PWNED",
    "$(touch PWNED)",
    "`touch PWNED`",
    "a\nPOD\ntouch PWNED\n",
    "'; touch PWNED; '",
    'x" touch PWNED "',
]


def job(kind: str, **of_container: Any) -> dict[str, Any]:
    container = {
        "name": "main", "image": "i", "command": ["true"], "resources": {"limits": {"nvidia.com/gpu": 8}},
        **of_container,
    }  # fmt: skip
    volumes = [
        {"name": each["name"], "hostPath": {"path": each["name"]}} for each in of_container.get("volumeMounts", ())
    ]
    template = {"spec": {"restartPolicy": "Never", "containers": [container], "volumes": volumes}}
    data: dict[str, Any] = {"kind": kind, "metadata": {"name": "train"}}
    if kind == "PyTorchJob":
        roles = {"Master": {"replicas": 1, "template": template}, "Worker": {"replicas": 1, "template": template}}
        return {**data, "apiVersion": "kubeflow.org/v1", "spec": {"pytorchReplicaSpecs": roles}}
    return {**data, "apiVersion": "batch/v1", "spec": {"template": template}}


def run(text: str, folder: Path) -> None:
    """Run a batch script as slurmd would, with an srun that runs its ``bash -c`` once."""
    (folder / "srun").write_text('#!/bin/bash\nwhile [[ $1 == --* ]]; do shift; done\nexec "$@"\n')
    (folder / "scontrol").write_text("#!/bin/bash\necho node1\n")
    for name in ("srun", "scontrol"):
        (folder / name).chmod(0o755)
    (folder / "job").write_text(text)
    env = {"PATH": f"{folder}:/usr/bin:/bin", "SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_NODELIST": "node1"}
    subprocess.run(["bash", "job"], cwd=folder, env=env, capture_output=True, timeout=30, check=False)
    assert not (folder / "PWNED").exists()


PLACES: list[dict[str, Any]] = [
    {"image": "{}"}, {"workingDir": "{}"}, {"command": ["echo", "{}"]}, {"command": ["{}"]},
    {"env": [{"name": "A", "value": "{}"}]}, {"env": [{"name": "{}", "value": "1"}]},
    {"volumeMounts": [{"name": "v", "mountPath": "{}"}]}, {"volumeMounts": [{"name": "{}", "mountPath": "/data"}]},
]  # fmt: skip


def filled(place: dict[str, Any], value: str) -> dict[str, Any]:
    written = msgspec.json.encode(place).replace(b'"{}"', msgspec.json.encode(value))
    return msgspec.json.decode(written, type=dict[str, Any])


@pytest.mark.parametrize("kind", ["Job", "PyTorchJob"])
@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("value", EVIL)
def test_a_manifest_puts_no_command_into_the_script(kind: str, place: Any, value: str, tmp_path: Path) -> None:
    text = msgspec.json.encode(job(kind, **filled(place, value))).decode()
    try:
        made = to_slurm(text, "job.json", SlurmChoices())
    except InputError:
        return  # refused, which is as good
    run(made.scripts[0][1], tmp_path)


@pytest.mark.parametrize("value", EVIL)
def test_a_number_of_processes_that_is_none_is_no_command(value: str, tmp_path: Path) -> None:
    data = job("PyTorchJob")
    data["spec"]["nprocPerNode"] = value
    run(to_slurm(msgspec.json.encode(data).decode(), "job.json", SlurmChoices()).scripts[0][1], tmp_path)


@pytest.mark.parametrize("key", ["pool", "muster.dev/feature"])
def test_an_option_with_a_line_end_is_refused_with_its_file(key: str) -> None:
    data = job("Job")
    data["spec"]["template"]["spec"]["nodeSelector"] = {key: "a\ntouch PWNED"}
    with pytest.raises(InputError, match=r"job\.json:1: .*--constraint=.* holds a line end"):
        to_slurm(msgspec.json.encode(data).decode(), "job.json", SlurmChoices())


@pytest.mark.parametrize("to_k8s", [True, False])
def test_a_file_name_with_a_line_end_stays_in_its_comment(to_k8s: bool, tmp_path: Path) -> None:
    name = "x\ntouch PWNED"
    if to_k8s:
        from muster.cli.translate import text_of

        text = text_of(to_kubernetes("#!/bin/bash\n#SBATCH -N1\nsrun true\n", name, Choices(image="i")))
    else:
        text = to_slurm(msgspec.json.encode(job("Job")).decode(), name, SlurmChoices()).scripts[0][1]
    assert not [line for line in text.splitlines() if line.startswith("touch")]


@pytest.mark.parametrize("value", ["$(touch PWNED)", "`touch PWNED`", '"; touch PWNED; "', "$HOME", "a\\b"])
def test_the_path_of_the_output_is_no_command_in_the_pods(value: str, tmp_path: Path) -> None:
    """Slurm takes the path as it stands, but for %j and its like."""
    script = f"#!/bin/bash\n#SBATCH -N1\n#SBATCH --output='{tmp_path}/{value}-%j.out'\necho hi\n"
    choices = Choices(image="i", volumes=(Mount(str(tmp_path), claim="c"),))
    files = to_kubernetes(script, "job.sh", choices).objects[0]["data"]
    (tmp_path / "launch").write_text(files["launch"].replace("/muster/job", str(tmp_path / "job")))
    (tmp_path / "job").write_text(files["job"])
    env = {"PATH": "/usr/bin:/bin", "MUSTER_NAME": "job"}
    subprocess.run(["bash", "launch"], cwd=tmp_path, env=env, capture_output=True, timeout=30, check=True)
    assert not (tmp_path / "PWNED").exists()
    assert next(tmp_path.glob("*.out")).name.startswith(f"{value}-")


SECRETS = [
    ("export HF_TOKEN=hf_abcdef", "HF_TOKEN"), ("export WANDB_API_KEY='0123abc'", "WANDB_API_KEY"),
    ("cd /x && AWS_SECRET_ACCESS_KEY=abc srun ./a", "AWS_SECRET_ACCESS_KEY"), ("DB_PASSWORD=x", "DB_PASSWORD"),
    ("export HF_TOKEN=$(cat ~/.token)", ""), ("export HF_TOKEN_PATH=/home/me/token", ""), ("MAX_TOKENS=4096", ""),
    ("# export HF_TOKEN=hf_abcdef", ""), ("export TOKEN=$OTHER", ""), ("python x.py --api-key=abc", ""),
]  # fmt: skip


@pytest.mark.parametrize(("line", "name"), SECRETS)
def test_a_secret_that_others_can_read_then_is_told_without_its_value(line: str, name: str) -> None:
    made = to_kubernetes(f"#!/bin/bash\n#SBATCH -N1\n{line}\nsrun true\n", "job.sh", Choices(image="i"))
    told = {each.field: each for each in made.remarks if "name a Secret" in each.text}
    assert list(told) == ([name] if name else [])
    assert not name or (told[name].line == 3 and "abc" not in told[name].text)


def test_a_secret_of_export_is_told() -> None:
    script = "#!/bin/bash\n#SBATCH -N1\n#SBATCH --export=ALL,HF_TOKEN=hf_abc,N=3\nsrun true\n"
    made = to_kubernetes(script, "job.sh", Choices(image="i"))
    assert [(each.field, each.line) for each in made.remarks if "name a Secret" in each.text] == [("HF_TOKEN", 3)]
