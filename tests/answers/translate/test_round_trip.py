"""What fit understands of a script is what it understands of its manifests, and the other way round."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.answers.translate.understood import as_manifests, as_script, read

from muster.answers.translate.documents import manifests_text
from muster.answers.translate.to_kubernetes import Choices, to_kubernetes
from muster.model import Device, Fleet, Node, Snapshot, Topology

GIB = 2**30
PRODUCTS = {
    "H100-SXM5-80GB": ("nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
    "A100-SXM4-80GB": ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"),
}


def world() -> Snapshot:
    """16 H100 nodes of 8 in two blocks of two racks, half of them with a feature, and 4 A100 nodes."""
    models = ["H100-SXM5-80GB"] * 16 + ["A100-SXM4-80GB"] * 4
    nodes = tuple(
        Node(
            f"gpu{at + 1:02d}",
            128_000,
            1024 * GIB,
            tuple(Device(index, model, 80 * GIB) for index in range(8)),
            labels=(*((("fabric", "ib"),) if at % 2 else ()), PRODUCTS[model], ("tier", "gold")),
            topology=(f"b{at // 8 + 1}", f"r{at // 4 + 1}"),
        )
        for at, model in enumerate(models)
    )
    return Snapshot(Fleet(nodes, Topology(("block", "rack")), "two models"), taken_s=1.8e9)


WORLD = world()

times = st.sampled_from(["", "#SBATCH -t 90", "#SBATCH --time=1-12", "#SBATCH -t 2:30:15"])
# mebibytes that so many nodes, tasks and GPUs divide as occur here, so that nothing is rounded
memories = st.sampled_from(["", "--mem=705600", "--mem=0", "--mem-per-cpu=1680M", "--mem-per-cpu=840"])
nodes_asked = st.sampled_from(
    ["", "--constraint=ib", "--constraint=h100", "-C ib|a100", "-C gold&ib", "--exclude=gpu[01-04]", "-w gpu02"]
)
places = st.sampled_from(["", "--switches=1", "--switches=1@10:00"])


@st.composite
def scripts(draw: st.DrawFn) -> str:
    """A batch script that asks for nodes, tasks or an array in one of many ways."""
    gpus = draw(st.integers(0, 8))
    kind = draw(st.sampled_from(["", "h100:", "a100:"])) if gpus else ""
    cpus = draw(st.integers(1, 16))
    nodes = draw(st.integers(1, 4))
    where = draw(nodes_asked)
    if kind == "a100:" and ("h100" in where or "-w" in where):
        where = ""
    if "-w" in where:
        nodes = max(nodes, 1)
    form = draw(st.sampled_from(["nodes", "tasks", "array", "total", "uneven", "range"]))
    per_node = f"--gres=gpu:{kind}{gpus}" if gpus else ""
    lines = {
        "nodes": [f"-N {nodes} {per_node} -c {cpus}", draw(places)],
        "tasks": [f"-n {draw(st.integers(2, 6))} -c {cpus}" + (f" --gpus-per-task={kind}{gpus}" if gpus else "")],
        "array": [f"--array=0-{draw(st.integers(1, 30))}%{draw(st.integers(1, 5))} -N1 {per_node} -c {cpus}"],
        "total": [f"-N {nodes} --gpus={kind}{nodes * max(1, gpus)} -c {cpus}"],
        "uneven": [f"-N 3 -n {draw(st.integers(3, 10))} {per_node} -c {min(cpus, 8)}"],
        "range": [f"-N {nodes}-{nodes + 2} {per_node} -c {cpus}"],
    }[form]
    memory = draw(memories)
    if form == "nodes" and not lines[1] and nodes % 2 == 0 and draw(st.booleans()):
        lines[1] = f"--segment={draw(st.sampled_from([nodes, nodes // 2]))}"
    options = [line for line in [*lines, memory, where] if line.strip()]
    body = "".join(f"#SBATCH {line}\n" for line in options)
    return f"#!/bin/bash\n#SBATCH -J job\n{body}{draw(times)}\nsrun true\n"


def flattened(found: list[Any]) -> list[Any]:
    """An array as one: tasks that are gangs of their own on the one side are pods on the other."""
    if len(found) < 2:
        return found
    sets, *rest = found[0]
    return [([(key, (count * len(found), 1)) for key, (count, _) in sets], *rest)]


@settings(max_examples=30, deadline=None)
@given(scripts(), st.sampled_from(["kueue", "podgroup", "muster", "none"]))
def test_manifests_ask_for_what_the_script_asks_for(script: str, gang: str) -> None:
    more = {"queue": "research"} if gang in ("kueue", "muster") else {}
    if gang == "podgroup" and "-N 3 -n" in script:
        gang = "none"  # pods of two shapes need a JobSet, whose pods can be of no PodGroup
    made = read(as_manifests(script, WORLD, gang=gang, **more), WORLD)
    assert made == flattened(read(script, WORLD))


@settings(max_examples=25, deadline=None)
@given(scripts())
def test_a_script_that_goes_there_and_back_asks_for_the_same(script: str) -> None:
    there = as_manifests(script, WORLD, gang="kueue", queue="research")
    back = as_script(there, WORLD)
    asked = flattened(read(script, WORLD))
    assert flattened(read(back, WORLD)) == asked
    assert "srun true" in back  # its commands are there, as they were


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Any]:
    """A Job, JobSet, PyTorchJob, LeaderWorkerSet or Pod, of amounts that Slurm can say: whole CPUs and mebibytes."""
    gpus, cpus = draw(st.integers(0, 8)), draw(st.integers(1, 32))
    memory = draw(st.integers(1, 64)) * max(1, gpus) * cpus
    requests = {"cpu": cpus, "memory": f"{memory}Mi"}
    if gpus:
        requests["nvidia.com/gpu"] = gpus
    pod: dict[str, Any] = {
        "spec": {"containers": [{"name": "c", "command": ["run"], "resources": {"requests": requests}}]}
    }
    where = draw(st.sampled_from(["", "fabric", "model"] if gpus else ["", "fabric"]))
    if where == "fabric":
        pod["spec"]["nodeSelector"] = {"fabric": "ib"}
    elif where == "model":
        pod["spec"]["nodeSelector"] = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    count = draw(st.integers(1, 6))
    topology = draw(st.sampled_from(["", "podset-required-topology", "podset-slice"])) if count > 1 else ""
    annotations: dict[str, str] = {}
    if topology == "podset-required-topology":
        annotations[f"kueue.x-k8s.io/{topology}"] = "block"
    elif topology and count % 2 == 0:
        annotations = {
            "kueue.x-k8s.io/podset-slice-required-topology": "block",
            "kueue.x-k8s.io/podset-slice-size": "2",
        }
    pod["metadata"] = {"annotations": annotations}
    limit = {"activeDeadlineSeconds": 60 * draw(st.integers(1, 3000))} if draw(st.booleans()) else {}
    kind = draw(st.sampled_from(["Job", "JobSet", "PyTorchJob", "LeaderWorkerSet", "Pod"]))
    spec: dict[str, Any]
    if kind == "Job":
        spec = {"parallelism": count, "completions": count, "template": pod, **limit}
    elif kind == "JobSet":
        spec = {
            "replicatedJobs": [{"name": "w", "template": {"spec": {"parallelism": count, "template": pod, **limit}}}]
        }
    elif kind == "PyTorchJob":
        roles = {"Master": {"replicas": 1, "template": pod}, "Worker": {"replicas": count, "template": pod}}
        pod["metadata"] = {}  # of several roles each has a domain of its own
        spec = {"pytorchReplicaSpecs": roles, "runPolicy": limit}
    elif kind == "LeaderWorkerSet":
        spec = {"replicas": draw(st.integers(1, 3)), "leaderWorkerTemplate": {"size": count, "workerTemplate": pod}}
    else:
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "spec": {**pod["spec"], **limit}}
    return {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}


@settings(max_examples=30, deadline=None)
@given(manifests())
def test_a_script_asks_for_what_the_manifests_ask_for(data: dict[str, Any]) -> None:
    text = manifests_text([data])
    assert read(as_script(text, WORLD), WORLD) == read(text, WORLD)


@pytest.mark.parametrize("model", ["h100", "a100", "rtx_pro_6000"])
def test_without_a_fleet_a_stand_in_has_what_the_script_names(model: str) -> None:
    script = f"#!/bin/bash\n#SBATCH -N2 --gres=gpu:{model}:8 -w n[1-2] -C ib --mem=0\nsrun true\n"
    made = to_kubernetes(script, "job.sbatch", Choices(image="i"))
    pod = made.objects[-1]["spec"]["template"]["spec"]
    assert pod["nodeSelector"]["feature.node.kubernetes.io/ib"] == "ib"
    assert pod["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 8


def test_gpus_that_slurm_may_scatter_stand_together() -> None:
    script = "#!/bin/bash\n#SBATCH --gpus=12 -c 8\nsrun true\n"
    ((sets, *_),) = read(as_manifests(script, WORLD), WORLD)
    assert [(key[0], count) for key, (count, _) in sets] == [(6, 2)]
