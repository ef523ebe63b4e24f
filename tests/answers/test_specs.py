"""What users submit, as gangs: each file of specs/ against specs/golden.txt, and one line for each mistake."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from muster.answers.specs.base import Specs
from muster.answers.specs.kubernetes import read_objects
from muster.answers.specs.read import read_specs
from muster.answers.specs.sbatch import read_batch
from muster.errors import InputError
from muster.model import PodSet, PodShape, Snapshot, Taint, Workload
from muster.model.queue import Queue
from muster.model.workload import Toleration, TopologyRequest
from muster.slurm.sbatch_lines import READ
from muster.traces import read_fleet

HERE = Path(__file__).parent / "specs"
FILES = sorted(path.name for path in HERE.iterdir() if path.suffix in (".yaml", ".sbatch"))


def snapshot() -> Snapshot:
    """32 nodes of 8 H100 in racks of 4 and blocks of 16; those of the first block are of a pool of their own."""
    fleet, _ = read_fleet(
        "uniform:nodes=32,gpus=8,model=H100-SXM5-80GB,block=16,rack=4,cpu=128,memory_gib=1024,prefix=gpu"
    )
    nodes = tuple(
        replace(node, labels=(("pool", "h100"), ("tier", "3")) if at < 16 else (("pool", "h100"),))
        for at, node in enumerate(fleet.nodes)
    )
    waiting = Workload("running-1", (PodSet(PodShape(1000)),))
    queues = (Queue("research"), Queue("serving"))
    return Snapshot(replace(fleet, nodes=nodes), queues=queues, pending=(waiting,), taken_s=100.0)


SNAPSHOT = snapshot()


def shown(specs: Specs) -> str:
    """The gangs and notes of a spec in words."""
    lines: list[str] = []
    marks = dict(specs.marks)
    for workload in specs.workloads:
        topology = workload.topology
        asked = {key: getattr(topology, key) for key in topology.__struct_fields__} if topology else {}
        words = {
            "queue": workload.queue, "priority": workload.priority, "limit_s": workload.time_limit_s,
            "not_before_s": workload.not_before_s, "depends_on": ",".join(workload.depends_on),
            "quality": workload.quality, **asked,
        }  # fmt: skip
        told = [
            f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
            for key, value in words.items()
            if value
        ]
        lines.append(" ".join([f"  {workload.name}", *told]))
        for pods in workload.pod_sets:
            least = "" if pods.min_count is None else f" (at least {pods.min_count})"
            pairs = (f"{key}={value}" for key, value in pods.shape.node_selector)
            where = "".join(f" on {marks.get(pair, pair)}" for pair in pairs)
            lines.append(f"    {pods.role} {pods.count}{least}: {pods.shape.describe()}{where}")
    return "\n".join([*lines, *(f"  note: {note}" for note in specs.notes)])


def golden() -> dict[str, str]:
    parts = re.split(r"^(\S+)\n", (HERE / "golden.txt").read_text(), flags=re.MULTILINE)[1:]
    return {name: text.rstrip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}


@pytest.mark.parametrize("name", FILES)
def test_the_gangs_of_a_file(name: str) -> None:
    assert shown(read_specs(str(HERE / name), SNAPSHOT)) == golden()[name]


def test_every_file_has_its_golden_gangs() -> None:
    assert sorted(golden()) == FILES


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / ("job.sbatch" if "#SBATCH" in text else "job.yaml")
    path.write_text(text)
    return str(path)


def read(tmp_path: Path, text: str) -> Specs:
    return read_specs(written(tmp_path, text), SNAPSHOT)


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(InputError) as error:
        read(tmp_path, text)
    return re.sub(r"^.*/job\.", "job.", str(error.value))


POD = """\
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: p}}
spec:
  containers: [{name: c, resources: {limits: {nvidia.com/gpu: 1}}}]
"""


def pod(*lines: str) -> str:
    return POD + "".join(f"  {line}\n" for line in lines)


# -- which nodes

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
AFFINITY = f"affinity: {{nodeAffinity: {{{REQUIRED}: {{nodeSelectorTerms: [{{matchExpressions: [%s]}}]}}}}}}"


@pytest.mark.parametrize(
    ("expression", "nodes"),
    [
        ("{key: tier, operator: In, values: ['2', '3']}", 16),
        ("{key: tier, operator: NotIn, values: ['3']}", 16),
        ("{key: tier, operator: Exists}", 16),
        ("{key: tier, operator: DoesNotExist}", 16),
        ("{key: tier, operator: Gt, values: ['2']}", 16),
        ("{key: tier, operator: Lt, values: ['3']}", 0),
        ("{key: pool, operator: Exists}, {key: tier, operator: Exists}", 16),
        ("{key: kubernetes.io/hostname, operator: In, values: [gpu-01, gpu-32]}", 2),
        ("{key: cloud.provider.com/topology-rack, operator: In, values: [rack-1]}", 4),
    ],
)
def test_a_node_affinity_is_exact(tmp_path: Path, expression: str, nodes: int) -> None:
    specs = read(tmp_path, pod(AFFINITY % expression))
    ((key, value),) = specs.workloads[0].pod_sets[0].shape.node_selector
    assert sum((key, value) in node.labels for node in specs.fleet) == nodes
    assert any("no node meets it" in note.text for note in specs.notes) == (nodes == 0)


def test_marks_of_an_earlier_spec_stay_what_they_were(tmp_path: Path) -> None:
    first = read(tmp_path, pod(AFFINITY % "{key: tier, operator: Exists}"))
    later = replace(SNAPSHOT, fleet=first.fleet)
    second = read_specs(written(tmp_path, pod(AFFINITY % "{key: tier, operator: DoesNotExist}")), later)
    pairs = [specs.workloads[0].pod_sets[0].shape.node_selector[0] for specs in (first, second)]
    marked = [{node.name for node in second.fleet if pair in node.labels} for pair in pairs]
    assert [len(names) for names in marked] == [16, 16]
    assert not marked[0] & marked[1]


def test_terms_are_alternatives_and_an_empty_one_takes_nothing(tmp_path: Path) -> None:
    terms = (
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
        "[{}, {matchFields: [{key: metadata.name, operator: In, values: [gpu-02]}]}, "
        "{matchExpressions: [{key: tier, operator: DoesNotExist}]}]}}}"
    )
    specs = read(tmp_path, pod(terms))
    pair = specs.workloads[0].pod_sets[0].shape.node_selector[0]
    assert sum(pair in node.labels for node in specs.fleet) == 17


@pytest.mark.parametrize(
    ("selector", "count"),
    [
        ("{pool: h100}", 32),  # a label that nodes bear
        ("{nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}", 32),  # nodes do not bear it, but their model is known
        ("{nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}", 0),
        ("{kubernetes.io/hostname: gpu-07}", 1),
        ("{cloud.provider.com/topology-block: block-2}", 16),
    ],
)
def test_labels_that_follow_from_what_a_node_is(tmp_path: Path, selector: str, count: int) -> None:
    specs = read(tmp_path, pod(f"nodeSelector: {selector}"))
    ((key, value),) = specs.workloads[0].pod_sets[0].shape.node_selector
    assert sum((key, value) in node.labels for node in specs.fleet) == count


def test_a_label_that_no_node_has_is_told(tmp_path: Path) -> None:
    specs = read(tmp_path, pod("nodeSelector: {team: nlp}"))
    assert [str(note) for note in specs.notes] == ["line 6, spec.nodeSelector: no node has a label team"]


def test_a_claim_may_tie_pods_to_a_zone(tmp_path: Path) -> None:
    specs = read(
        tmp_path, pod("volumes: [{name: d, persistentVolumeClaim: {claimName: data}}, {name: e, emptyDir: {}}]")
    )
    (note,) = specs.notes
    assert str(note) == "line 6, spec.volumes: claim data may be tied to a zone or a node: that is not counted"


def test_tolerations(tmp_path: Path) -> None:
    specs = read(tmp_path, pod("tolerations: [{key: gpu, operator: Exists}, {key: node.kubernetes.io/not-ready}]"))
    assert specs.workloads[0].pod_sets[0].shape.tolerations == (Toleration("gpu", "Exists"),)


@pytest.mark.parametrize(
    ("effect", "tolerations", "told"),
    [
        ("NoSchedule", "[]", True),
        ("NoSchedule", "[{key: nvidia.com/gpu, operator: Exists}]", False),
        ("NoSchedule", "[{key: nvidia.com/gpu, effect: NoExecute}]", True),
        ("PreferNoSchedule", "[]", False),
    ],
)
def test_taints_that_some_clusters_let_gpu_pods_tolerate(
    tmp_path: Path, effect: str, tolerations: str, told: bool
) -> None:
    nodes = tuple(replace(node, taints=(Taint("nvidia.com/gpu", "present", effect),)) for node in SNAPSHOT.fleet)
    tainted = replace(SNAPSHOT, fleet=replace(SNAPSHOT.fleet, nodes=nodes))
    specs = read_specs(written(tmp_path, pod(f"tolerations: {tolerations}")), tainted)
    assert any("nodes have the taint nvidia.com/gpu" in note.text for note in specs.notes) == told
    cpu_only = pod().replace("nvidia.com/gpu: 1", "cpu: 1")
    assert not read_specs(written(tmp_path, cpu_only), tainted).notes


@pytest.mark.parametrize(
    ("lines", "request_"),
    [
        (
            "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
            "[{topologyKey: cloud.provider.com/topology-rack, labelSelector: {matchLabels: {app: p}}}]}}",
            TopologyRequest(required="rack"),
        ),
        (
            "topologySpreadConstraints: [{topologyKey: rack, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, "
            "labelSelector: {matchExpressions: [{key: app, operator: In, values: [p]}]}}]",
            TopologyRequest(spread="rack", at_most=1),
        ),
        (
            "topologySpreadConstraints: [{topologyKey: rack, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, "
            "labelSelector: {matchLabels: {app: p}}}]",
            TopologyRequest(spread="rack"),
        ),
        (
            "topologySpreadConstraints: [{topologyKey: rack, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, "
            "labelSelector: {matchLabels: {app: other}}}]",
            None,
        ),
    ],
)
def test_pods_beside_each_other(tmp_path: Path, lines: str, request_: TopologyRequest | None) -> None:
    assert read(tmp_path, pod(lines)).workloads[0].topology == request_


def test_shares_of_a_gpu_that_the_nodes_divide(tmp_path: Path) -> None:
    labels = (("nvidia.com/gpu.replicas", "4"), ("nvidia.com/gpu.sharing-strategy", "mps"))
    fleet = replace(SNAPSHOT.fleet, nodes=tuple(replace(node, labels=labels) for node in SNAPSHOT.fleet))
    text = POD.replace("nvidia.com/gpu:", "nvidia.com/gpu.shared:")
    shape = read_specs(written(tmp_path, text), replace(SNAPSHOT, fleet=fleet)).workloads[0].pod_sets[0].shape
    assert (shape.gpus, shape.gpu_milli, shape.sharing) == (1, 250, "mps")


# -- sbatch


def script(*lines: str) -> str:
    return "#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in lines) + "srun x\n"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400), ("90:30", 91 * 60), ("1:2:3", 3600 + 3 * 60), ("1-0", 86400), ("2-3:4", 2 * 86400 + 11040),
        ("0-0:0:1", 60), ("0", None), ("UNLIMITED", None), ("infinite", None), ("1-2:3:4", 86400 + 7200 + 240),
    ],
)  # fmt: skip
def test_forms_of_time(tmp_path: Path, text: str, seconds: float | None) -> None:
    assert read(tmp_path, script(f"--time={text}")).workloads[0].time_limit_s == seconds


@pytest.mark.parametrize(
    ("text", "mebibytes"),
    [("1000", 1000), ("1000M", 1000), ("1024K", 1), ("2G", 2048), ("2GB", 2048), ("1t", 1 << 20), ("2gb", 2048)],
)
def test_memory_is_in_megabytes_unless_it_says_else(tmp_path: Path, text: str, mebibytes: int) -> None:
    assert read(tmp_path, script(f"--mem={text}")).workloads[0].pod_sets[0].shape.memory_bytes == mebibytes << 20


@pytest.mark.parametrize(
    ("options", "pods"),
    [
        (["-n 1"], [(1, 0, 1)]),
        (["-N 2"], [(2, 0, 1)]),
        (["--nodes=1k"], [(1024, 0, 1)]),
        (["-N 2 -n 16 -c 4"], [(2, 0, 32)]),
        (["-N 2 -n 3"], [(1, 0, 2), (1, 0, 1)]),
        (["-n 16", "--ntasks-per-node=8"], [(2, 0, 8)]),
        (["-N 2", "--gpus-per-node=4", "--ntasks-per-node=4", "-c 6"], [(2, 4, 24)]),
        (["-N 2", "--gpus-per-task=2", "--ntasks-per-node=4"], [(2, 8, 4)]),
        (["-N 2", "--gres=gpu:4", "--cpus-per-gpu=10"], [(2, 4, 40)]),
        (["-N 2", "-G 8"], [(2, 4, 1)]),
        (["--gpus=16", "--gpus-per-node=8"], [(2, 8, 1)]),
        (["-G 4", "-n 4", "-c 2"], [(4, 1, 2)]),
        (["-G 8", "--gpus-per-task=4"], [(2, 4, 1)]),
        (["--gres=gpu:2"], [(1, 2, 1)]),
        (["--gres=gres/gpu:h100:2,nvme:1"], [(1, 2, 1)]),
        (["--gres=gpu:2(S:0-1)"], [(1, 2, 1)]),
        (["-n 200", "--gres=gpu:8"], [(2, 8, 100)]),  # 200 tasks need two nodes of 128 CPUs
        (["-w gpu-[01-03]"], [(3, 0, 1)]),
        (["-N 4 -n 2"], [(2, 0, 1)]),  # Slurm takes no more nodes than tasks
        (["-N 2 --overcommit --ntasks-per-node=64"], [(2, 0, 1)]),
        (["-G 20 --exclusive"], [(3, 8, 128)]),
        (["--mincpus=16"], [(1, 0, 16)]),
        (["-N2 --ntasks-per-gpu=2 --gpus-per-node=4"], [(2, 4, 8)]),
        (["--ntasks-per-node=4 --gpus-per-task=1"], [(1, 4, 4)]),  # of one node
        (["--ntasks-per-node=4 -G 8"], [(1, 8, 4)]),
        (["--ntasks-per-node=4 -G 16"], [(16, 1, 1)]),  # one node has not so many: Slurm takes more
    ],
)
def test_nodes_tasks_and_gpus(tmp_path: Path, options: list[str], pods: list[tuple[int, int, int]]) -> None:
    workload = read(tmp_path, script(*options)).workloads[0]
    assert [(each.count, each.shape.gpus, each.shape.cpu_milli // 1000) for each in workload.pod_sets] == pods


def test_a_share_by_mps(tmp_path: Path) -> None:
    shape = read(tmp_path, script("--gres=mps:25")).workloads[0].pod_sets[0].shape
    assert (shape.gpus, shape.gpu_milli, shape.sharing) == (1, 250, "mps")


@pytest.mark.parametrize(
    ("text", "nodes"),
    [("h100", 32), ("tier", 16), ("tier&h100", 16), ("tier|pool", 32), ("(tier|a100)&pool", None), ("3", 16)],
)
def test_features(tmp_path: Path, text: str, nodes: int | None) -> None:
    if nodes is None:
        assert "no node has a feature 'a100'" in refused(tmp_path, script(f"-C '{text}'"))
        return
    specs = read(tmp_path, script(f"-C '{text}'"))
    pair = specs.workloads[0].pod_sets[0].shape.node_selector[0]
    assert sum(pair in node.labels for node in specs.fleet) == nodes


def mistakes() -> list[tuple[str, str]]:
    """Of specs/mistakes.txt: what is told (in part), and the file that it is told of."""
    parts = re.split(r"^=== (.+)\n", (HERE / "mistakes.txt").read_text(), flags=re.MULTILINE)[1:]
    return list(zip(parts[::2], parts[1::2], strict=True))


@pytest.mark.parametrize(("message", "text"), mistakes())
def test_a_mistake_is_told_in_one_line(tmp_path: Path, message: str, text: str) -> None:
    told = refused(tmp_path, text)
    assert message in told
    assert "\n" not in told


def test_a_spec_from_the_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (HERE / "job.yaml").open() as stream:
        monkeypatch.setattr("sys.stdin", stream)
        assert read_specs("-", SNAPSHOT).workloads[0].name == "research/llama-70b"


# -- whatever a file holds

VALUES = (None, 0, -1, 2**40, 1.5, True, "", "x", "8", "-1", [], ["x"], [None], {}, {"x": 1}, [{}], "1e999")
SCRIPT_VALUES = ("", "0", "1", "2", "7", "16", "2-4", "gpu:2", "h100:3", "64G", "1-2", "x", "%", "mps:20", "[1-")


def paths(data: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """The paths of all values in some data."""
    found = [path] if path else []
    if isinstance(data, dict):
        for key, value in data.items():
            found += paths(value, (*path, key))
    elif isinstance(data, list):
        for at, value in enumerate(data):
            found += paths(value, (*path, at))
    return found


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_whatever_an_object_holds_is_read_or_refused(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([name for name in FILES if name.endswith(".yaml")]))
    documents = list(yaml.safe_load_all((HERE / name).read_text()))
    for _ in range(data.draw(st.integers(1, 3))):
        *above, last = data.draw(st.sampled_from(paths(documents) or [(0,)]))
        at: Any = documents
        for key in above:
            at = at[key]
        if at and data.draw(st.booleans()):
            at[last] = copy.deepcopy(data.draw(st.sampled_from(VALUES)))
        elif at:
            at.pop(last)
    told = ""
    try:
        read_objects(yaml.safe_dump_all(documents), "x.yaml", SNAPSHOT.fleet)
    except InputError as error:
        told = str(error)
    assert "\n" not in told


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(READ), st.sampled_from(SCRIPT_VALUES)), max_size=5))
def test_whatever_a_script_holds_is_read_or_refused(options: list[tuple[str, str]]) -> None:
    lines = ["#!/bin/sh", *(f"#SBATCH --{name}={value}" if value else f"#SBATCH --{name}" for name, value in options)]
    told, sets = "", list[PodSet]()
    try:
        specs = read_batch("\n".join(lines), "x.sbatch", SNAPSHOT)
        sets = [each for workload in specs.workloads for each in workload.pod_sets]
    except InputError as error:
        told = str(error)
    assert "\n" not in told
    assert told or (sets and all(each.count > 0 for each in sets))
