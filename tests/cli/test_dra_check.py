"""`muster k8s dra-check`: what each way to ask for GPUs becomes with DRA, and what is in the way."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from muster.cli.main import main
from muster.errors import InputError

H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-80GB"
Object = dict[str, Any]


def node(
    name: str, gpus: int = 8, model: str = H100, *, version: str = "v1.36.2", sizes: Object | None = None,
    **labels: str,
) -> Object:  # fmt: skip
    """A node; labels are those of ``nvidia.com/``, with ``_`` for a dot."""
    found = {"nvidia.com/gpu.product": model, "nvidia.com/gpu.count": "8"}
    found |= {f"nvidia.com/{key.replace('__', '-').replace('_', '.')}": value for key, value in labels.items()}
    amounts = {"cpu": "64", "memory": "1Ti", "pods": "110", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    amounts |= sizes or {}
    status = {"capacity": amounts, "allocatable": amounts, "nodeInfo": {"kubeletVersion": version}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": found}, "status": status}


def published(node: str, gpus: int = 8) -> Object:
    spec = {
        "driver": "gpu.nvidia.com", "nodeName": node, "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"gpu-{at}", "attributes": {"type": {"string": "gpu"}}} for at in range(gpus)],
    }  # fmt: skip
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


def pod(
    owner: str, asks: Object, *, node: str = "", annotations: Object | None = None, kind: str = "Job", **spec: Any
) -> Object:  # fmt: skip
    containers = [{"name": "main", "resources": {"requests": asks, "limits": asks}}]
    place = {"nodeName": node} if node else {}
    owners = [{"apiVersion": "x/v1", "kind": kind, "name": owner, "uid": owner, "controller": True}]
    meta = {"name": f"{owner}-0", "namespace": "ns", "annotations": annotations or {}, "ownerReferences": owners}
    return {
        "apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **place, **spec},
        "status": {"phase": "Running" if node else "Pending"},
    }  # fmt: skip


def gpu_class(resource: str = "", name: str = "gpu.nvidia.com") -> Object:
    spec: Object = {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]}
    if resource:
        spec["extendedResourceName"] = resource
    return {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run(objects, *words)`` asks about a dump of these objects."""
    monkeypatch.chdir(tmp_path)

    def asked(objects: list[Object], *words: str) -> Result:
        Path("now.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        return CliRunner().invoke(main, ["k8s", "dra-check", "--from", "now.json", *words])

    return asked


def document(run: Run, *objects: Object) -> Object:
    result = run(list(objects), "-o", "json")
    found: Object = json.loads(result.stdout)
    assert found["schema"] == "muster.k8s.dra-check/v1"
    assert result.exit_code == (1 if found["in_the_way"] else 0)
    return found


TIME_SLICED = {"gpu_replicas": "4", "gpu_sharing__strategy": "time-slicing"}
MIG_SIZES = {"nvidia.com/mig-1g.10gb": "56"}


@pytest.mark.parametrize(
    ("there", "work", "today", "with_dra", "change", "why"),
    [
        ([node("n")], pod("p", {"nvidia.com/gpu": "2"}), "nvidia.com/gpu: 2", "2 x gpu.nvidia.com", "by a class", ""),
        ([node("n"), gpu_class("nvidia.com/gpu")], pod("p", {"nvidia.com/gpu": "2"}), "nvidia.com/gpu: 2",
         "2 x gpu.nvidia.com", "none", ""),
        ([node("n", version="v1.35.0")], pod("p", {"nvidia.com/gpu": "2"}), "nvidia.com/gpu: 2",
         "2 x gpu.nvidia.com", "claim template", ""),
        ([node("n", 0, sizes=MIG_SIZES, mig_strategy="mixed")], pod("p", {"nvidia.com/mig-1g.10gb": "1"}),
         "nvidia.com/mig-1g.10gb: 1", "1 x mig.nvidia.com, profile 1g.10gb", "by a class", ""),
        ([node("n", 56, f"{H100}-MIG-1g.10gb", mig_strategy="single")], pod("p", {"nvidia.com/gpu": "1"}),
         "nvidia.com/gpu: 1", "1 x mig.nvidia.com, profile 1g.10gb", "by a class", ""),
        ([node("n", 32, **TIME_SLICED)], pod("p", {"nvidia.com/gpu": "1"}), "nvidia.com/gpu: 1",
         "a shared claim", "in the way", "replicas (time-slicing) are no devices"),
        ([node("n", 0, sizes={"nvidia.com/gpu.shared": "32"}, gpu_sharing__strategy="mps", gpu_replicas="4")],
         pod("p", {"nvidia.com/gpu.shared": "1"}), "nvidia.com/gpu.shared: 1", "a shared claim",
         "in the way", "replicas (mps) are no devices"),
        ([node("n"), node("m", 32, A100, **TIME_SLICED)],
         pod("p", {"nvidia.com/gpu": "1"}, nodeSelector={"nvidia.com/gpu.product": H100}), "nvidia.com/gpu: 1",
         "1 x gpu.nvidia.com", "by a class", "selects nodes by nvidia.com/gpu.product"),
        ([node("n"), node("m", 32, A100, **TIME_SLICED)], pod("p", {"nvidia.com/gpu": "1"}, node="m"),
         "nvidia.com/gpu: 1", "a shared claim", "in the way", "replicas (time-slicing) are no devices"),
        ([node("n")], pod("p", {}, annotations={"gpu-fraction": "0.25"}, schedulerName="kai-scheduler"),
         "gpu-fraction: 0.25", "consumable capacity", "in the way",
         "KAI's fractions are the scheduler's own"),
        ([node("n")], pod("p", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}),
         "nvidia.com/gpu: 1, nvidia.com/gpumem: 3000", "consumable capacity", "in the way",
         "HAMi's limits have no counterpart yet"),
        ([node("n", 0), published("n")], pod("p", {}, resourceClaims=[{"name": "c", "resourceClaimName": "mine"}]),
         "claims mine", "as today", "none", ""),
        ([node("n")], pod("p", {"nvidia.com/gpu": "1"}, schedulerName="volcano"), "nvidia.com/gpu: 1",
         "1 x gpu.nvidia.com", "by a class", "its scheduler volcano must know DRA"),
    ],
    ids=["whole", "a class stands for it", "no extended resources yet", "mig mixed", "mig single", "time-slicing",
         "mps, renamed", "by its selector on whole GPUs", "by its node on replicas", "KAI", "HAMi", "DRA",
         "another scheduler"],
)  # fmt: skip
def test_what_a_pod_becomes(
    run: Run, there: list[Object], work: Object, today: str, with_dra: str, change: str, why: str
) -> None:
    found = document(run, *there, work, published("other", 1))
    assert found["workloads"] == [
        {"workload": "ns/p", "pods": 1, "today": today, "with_dra": with_dra, "change": change, "why": why}
    ]
    blocked = [each["text"] for each in found["findings"] if each["blocks"]]
    assert blocked == ([f"1 pod of ns/p: {why}"] if change == "in the way" else [])


@pytest.mark.parametrize(
    ("objects", "shared", "advertised", "stance", "gpus"),
    [
        ([node("n")], "", "device plugin", "move", 8),
        ([node("n", 0), published("n")], "", "DRA", "done", 8),
        ([node("n"), published("n")], "", "both", "fix", 8),
        ([node("n", 4), published("n", 4)], "", "DRA, device plugin", "done", 8),
        ([node("n", 32, **TIME_SLICED)], "time-slicing x4", "device plugin", "stay", 8),
        ([node("n", 0, sizes=MIG_SIZES, mig_strategy="mixed")], "mig mixed", "device plugin", "move", 8),
        ([node("n", 0)], "", "", "", 0),
    ],
)
def test_what_nodes_should_do(
    run: Run, objects: list[Object], shared: str, advertised: str, stance: str, gpus: int
) -> None:
    found = document(run, *objects)
    assert [(each["shared"], each["advertised"], each["stance"], each["gpus"]) for each in found["pools"]] == (
        [(shared, advertised, stance, gpus)] if stance else []
    )
    assert bool(found["in_the_way"]) is (stance == "fix")


@pytest.mark.parametrize(
    ("objects", "text", "blocks"),
    [
        ([node("n", version="v1.33.4")], "Kubernetes v1.33.4 has no resource.k8s.io/v1", True),
        ([node("n", version="")], "the server's version is not told by the file", False),
        ([node("n")], "no ResourceSlices are in the file: as if there were no DRA driver", False),
        ([node("n"), published("n")],
         "8 GPUs of 1 node, such as n: given out twice, by the device plugin and by DRA", True),
        ([node("n"), published("m"), pod("p", {"nvidia.com/gpu": "1"}, schedulerName="volcano")],
         "1 pod of ns/p: placed by another scheduler", False),
        ([node("n"), published("m"), pod("p", {"nvidia.com/gpu": "1"}, priority=5), pod("q", {"nvidia.com/gpu": "1"})],
         "GPU pods have 2 priorities, and kube-scheduler preempts nobody for devices of a claim", False),
    ],
)  # fmt: skip
def test_what_is_in_the_way(run: Run, objects: list[Object], text: str, blocks: bool) -> None:
    found = document(run, *objects)
    assert [(each["text"], each["blocks"]) for each in found["findings"]] == [(text, blocks)]
    assert all(each["fix"] for each in found["findings"])


def test_pods_of_one_owner_are_one_row(run: Run) -> None:
    pods = [pod("web-5f6d7c8b9d", {"nvidia.com/gpu": "1"}, kind="ReplicaSet") for _ in range(3)]
    for at, each in enumerate(pods):
        each["metadata"]["name"] += str(at)
    done = pod("old", {"nvidia.com/gpu": "1"})
    done["status"]["phase"] = "Succeeded"
    found = document(run, node("n"), *pods, done)
    assert [(each["workload"], each["pods"]) for each in found["workloads"]] == [("ns/web", 3)]


def test_the_table_fits_and_names_the_next_command(run: Run) -> None:
    result = run([node("n"), pod("train", {"nvidia.com/gpu": "8"})])
    lines = result.stdout.splitlines()
    assert lines[0] == "Kubernetes 1.36.2, no DRA driver, 1 node with GPUs: nothing is in the way of moving to DRA."
    assert lines[-1] == "  muster k8s dra-check --from now.json --template ns/train"
    assert max(map(len, lines)) <= 100
    assert result.exit_code == 0


def test_a_template_is_what_the_pods_would_say(run: Run) -> None:
    import yaml

    work = pod("Train.Big", {"nvidia.com/gpu": "8"}, nodeSelector={"nvidia.com/gpu.product": H100, "zone": "a"})
    result = run([node("n"), work], "--template", "ns/Train.Big")
    assert result.exit_code == 0
    template, klass = yaml.safe_load_all(result.stdout)
    assert template["metadata"] == {"name": "train-big-gpus", "namespace": "ns"}
    assert template["spec"]["spec"]["devices"]["requests"] == [
        {
            "name": "gpus",
            "exactly": {
                "deviceClassName": "gpu.nvidia.com",
                "count": 8,
                "selectors": [{"cel": {"expression": "device.attributes['gpu.nvidia.com'].productName.lowerAscii()"
                                                     ".replace(' ', '-') == 'nvidia-h100-80gb-hbm3'"}}],
            },
        }
    ]  # fmt: skip
    assert klass["spec"]["extendedResourceName"] == "nvidia.com/gpu"
    assert "#   resourceClaims: [{name: gpus, resourceClaimTemplateName: train-big-gpus}]\n" in result.stdout


def test_a_template_selects_the_devices_that_the_pods_have_now(run: Run) -> None:
    """The selectors that are written are evaluated on a device as the driver publishes it."""
    import yaml
    from msgspec import convert
    from tests.kube.dra.building import gpu

    from muster.kube.dra.cel import Evaluator
    from muster.kube.dra.objects import DraDevice

    labels = {"nvidia.com/gpu.product": H100, "nvidia.com/gpu.compute.major": "9", "nvidia.com/gpu.memory": "81920"}
    result = run([node("n", gpu_compute_major="9", gpu_memory="81920"), pod("p", {"nvidia.com/gpu": "1"},
                  nodeSelector=labels)], "--template", "ns/p")  # fmt: skip
    template, klass = yaml.safe_load_all(result.stdout)
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    selectors = [*request["exactly"]["selectors"], *klass["spec"]["selectors"]]
    fitting, other = convert(gpu("g"), DraDevice), convert(gpu("g", productName="NVIDIA A100"), DraDevice)
    answers = [[Evaluator().matches(each["cel"]["expression"], "gpu.nvidia.com", device) for each in selectors]
               for device in (fitting, other)]  # fmt: skip
    assert len(selectors) == 4
    assert all(answers[0])
    assert answers[1].count(False) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--template", "ns/trian"], "field '--template': no pods of ns/trian ask for GPUs; such as ns/train, ns/frac"),
        (["--template", "ns/frac"], "ns/frac asks for gpu-fraction: 0.5: KAI's fractions are the scheduler's own; "
                                    "it stays as it is for now"),
        (["--from", "now.snap"], "field '--from': this answer needs the objects of a cluster, not a snapshot; "
                                 "kubectl get nodes,pods,resourceslices,deviceclasses -A -o json, or --context NAME"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_a_line(run: Run, words: list[str], message: str) -> None:
    frac = pod("frac", {}, annotations={"gpu-fraction": "0.5"})
    result = run([node("n"), pod("train", {"nvidia.com/gpu": "8"}), frac], *words)
    assert isinstance(result.exception, InputError)
    assert str(result.exception) == message


def test_why_tells_what_claims_ask_for(run: Run) -> None:
    """The nodes that could serve a claim are a condition of their own, told in words; no fix leaves it out."""
    request = {"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com", "count": 9}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    template = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
                "metadata": {"name": "nine", "namespace": "ns"}, "spec": spec}  # fmt: skip
    work = pod("p", {}, resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "nine"}])
    run([node("n", 0), published("n"), gpu_class(), template, work])
    result = CliRunner().invoke(main, ["why", "ns/p", "--from", "now.json"])
    told = " ".join(result.stdout.split())
    assert "it asks for nodes whose devices could serve claim gpus: 9 x gpu.nvidia.com (0 nodes)" in told
    assert "muster.dev/" not in told
