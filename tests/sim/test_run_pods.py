"""Jobs of a run file that are not just pods that are alike: roles, placement groups, Ray clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InputError
from muster.model.workload import TopologyRequest, Workload
from muster.sim.idle import held_idle_hours
from muster.sim.metrics import measure
from muster.sim.run_file import prepare_run


def jobs(tmp_path: Path, *lines: str, fleet: str = "uniform:nodes=4,gpus=8,cpu=96") -> tuple[Workload, ...]:
    path = tmp_path / "run.yaml"
    path.write_text("\n".join([f"fleet: {fleet}", "workload:", *(f"  {line}" for line in lines)]) + "\n")
    return prepare_run(str(path)).run.workloads


def sets_of(workload: Workload) -> list[tuple[str, int, int | None, int, int, int]]:
    return [
        (each.role, each.count, each.min_count, each.shape.gpu_milli_total, each.shape.cpu_milli,
         each.shape.memory_bytes >> 20)
        for each in workload.pod_sets
    ]  # fmt: skip


def test_roles(tmp_path: Path) -> None:
    (job,) = jobs(
        tmp_path,
        "- name: a",
        "  roles:",
        "  - {name: leader, cpu: 4, memory: 1Gi}",
        "  - {name: worker, pods: 3, min_pods: 2, gpus: 8}",
        "  - {name: eval, gpus: 0.5}",
    )
    assert sets_of(job) == [
        ("leader", 1, None, 0, 4000, 1024), ("worker", 3, 2, 8000, 0, 0), ("eval", 1, None, 500, 0, 0)
    ]  # fmt: skip
    assert job.gpu_milli == 24_500


def test_bundles_that_are_alike_are_one_pod_set(tmp_path: Path) -> None:
    (job,) = jobs(
        tmp_path,
        "- name: a",
        "  bundles: [{CPU: 1, GPU: 1}, {CPU: 8, memory: 2Gi}, {CPU: 1, GPU: 1, count: 3}]",
    )
    assert sets_of(job) == [("bundle-0", 4, None, 1000, 1000, 0), ("bundle-1", 1, None, 0, 8000, 2048)]
    assert job.topology == TopologyRequest(preferred="host")


@pytest.mark.parametrize(
    ("strategy", "topology", "expected"),
    [
        ("PACK", "", TopologyRequest(preferred="host")),
        ("STRICT_PACK", "", TopologyRequest(required="host")),
        ("SPREAD", "", TopologyRequest(spread="host")),
        ("STRICT_SPREAD", "", TopologyRequest(spread="host", at_most=1)),
        ("STRICT_SPREAD", "{required: rack}", TopologyRequest("rack", spread="host", at_most=1)),
        ("PACK", "{required: rack}", TopologyRequest("rack", "host")),
    ],
)
def test_strategies(tmp_path: Path, strategy: str, topology: str, expected: TopologyRequest) -> None:
    lines = ["- name: a", "  bundles: [{GPU: 1, count: 4}]", f"  strategy: {strategy}"]
    fleet = "uniform:nodes=4,gpus=8"
    if topology:
        lines.append(f"  topology: {topology}")
        fleet = "example"  # it has racks
    (job,) = jobs(tmp_path, *lines, fleet=fleet)
    assert job.topology == expected


def test_a_ray_cluster(tmp_path: Path) -> None:
    whole, scaled = jobs(
        tmp_path,
        "- name: whole",
        "  ray: {head: {cpu: 4, memory: 8Gi}, workers: [{name: gpu, replicas: 4, min_replicas: 1, gpus: 8}]}",
        "- name: scaled",
        "  ray:",
        "    head: {cpu: 4, memory: 8Gi}",
        "    workers:",
        "    - {name: gpu, replicas: 4, min_replicas: 1, gpus: 2}",
        "    - {name: slice, replicas: 2, min_replicas: 1, hosts: 2, gpus: 4}",
        "    autoscaler: true",
        "    submitter: true",
    )
    assert sets_of(whole) == [("head", 1, None, 0, 4000, 8192), ("gpu", 4, None, 8000, 0, 0)]
    assert sets_of(scaled) == [
        ("head", 1, None, 0, 4500, 8704), ("gpu", 4, 1, 2000, 0, 0), ("slice", 4, None, 4000, 0, 0),
        ("submitter", 1, None, 0, 500, 200),
    ]  # fmt: skip


HEAD = "ray: {head: {cpu: 1}"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("roles: [{name: a, gpus: 1}]\n    pods: 2", "'workload[0].pods': cannot be given beside roles"),
        ("roles: [{name: a, gpus: 1}]\n    bundles: [{GPU: 1}]", "'workload[0].bundles': cannot be given beside roles"),
        ("roles: []", "'workload[0].roles': is empty; one role needs a pod"),
        ("roles: [{name: a, gpus: 1, min_pods: 0}]", "'workload[0].roles': may run without any pod"),
        ("roles: [{name: a, gpus: 1, min_pods: 2}]", "'workload[0].roles[0].min_pods': is 2 of 1 pods; at most pods"),
        ("roles: [{name: a}]", "'workload[0].roles[0]': asks for nothing; GPUs, CPU or memory"),
        ("roles: [{name: a, gpus: 1}, {name: a, gpus: 2}]", "'workload[0].roles[1].name': there is a role 'a' before"),
        ("roles: [{name: a, gpus: 1.5}]", "'workload[0].roles[0].gpus': is 1.5; a whole number, or a share"),
        ("roles: [{name: a, cpu: x}]", "'workload[0].roles[0].cpu': 'x' is no quantity"),
        ("strategy: PACK", "'workload[0].strategy': is for bundles; or give topology instead"),
        ("bundles: []", "'workload[0].bundles': is empty; such as [{CPU: 1, GPU: 1}]"),
        ("bundles: [{GPU: 2.5}]", "'workload[0].bundles[0].GPU': is 2.5; a whole number"),
        ("bundles: [{gpu: 2}]", "'workload[0].bundles[0].gpu': is not known; known: CPU, GPU, memory, count"),
        ("bundles: [{GPU: 1}]\n    strategy: LOOSE", "'workload[0].strategy': is 'LOOSE'; one of PACK, STRICT_PACK,"),
        ("bundles: [{GPU: 1}]\n    strategy: SPREAD\n    topology: {spread: host}",
         "'workload[0].topology.spread': is said by strategy SPREAD already"),
        ("bundles: [{GPU: 1}]\n    strategy: STRICT_PACK\n    topology: {spread: host}",
         "topology.spread': all pods must"),
        (HEAD + ", workers: [{name: head, replicas: 1, gpus: 1}]}",
         "workers[0].name': 'head' is the name of another role"),
        (HEAD + ", workers: [{name: w, replicas: 1, min_replicas: 2, gpus: 1}]}", "min_replicas': is 2 of 1"),
        (HEAD + ", workers: [{name: w, replicas: 1}]}", "'workload[0].ray.workers[0]': asks for nothing"),
        ("min_pods: 2", "'workload[0].min_pods': is 2 of 1 pods; at most pods"),
        ("topology: {spread: host, at_most: -1}", "'workload[0].topology.at_most'"),
        ("topology: {at_most: 2}", "topology.at_most': a limit needs the level in whose domains it holds"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, lines: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        jobs(tmp_path, "- name: a", *(f"  {line.strip()}" for line in lines.split("\n")))
    text = str(caught.value)
    assert text.startswith(f"{tmp_path}/run.yaml:")
    assert told in text, text


def example() -> str:
    page = (Path(__file__).resolve().parents[2] / "docs/how-to/ray.md").read_text()
    return page.partition("```yaml\n")[2].partition("```")[0]


def waits(tmp_path: Path, text: str) -> list[float]:
    (tmp_path / "run.yaml").write_text(text)
    run = prepare_run(str(tmp_path / "run.yaml")).run
    run.run()
    run.check()
    return [story.started_s - story.submitted_s for story in run.stories]


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    assert waits(tmp_path, example()) == [0, 0, 0]
    assert waits(tmp_path, example().replace("min_replicas: 2", "min_replicas: 3")) == [0, 6600, 0]


def test_bundles_of_several_shapes_wait_though_each_shape_alone_would_fit(tmp_path: Path) -> None:
    """On one node: 8 free GPUs here, CPU there. Nothing can be moved to help, and nothing may fail by that."""
    text = example().replace("count: 2}", "count: 4}").replace("GPU: 1, count: 4}", "GPU: 2, count: 4}")
    assert waits(tmp_path, text)[1] == 6600


BUSY = "busy: [{from_s: 0, gpus: 24}, {from_s: 3600, gpus: 4}]"


def test_gpus_that_are_held_and_not_used(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text(example().replace("duration_s: 7200", f"duration_s: 7200\n  {BUSY}", 1))
    run = prepare_run(str(tmp_path / "run.yaml")).run
    run.run()
    # 24 GPUs are held but from 600 to 2400 s, where it is 16; from 3600 to 7800 s it uses 4 of its 24
    assert run.stories[0].finished_s == 7800
    assert held_idle_hours(run) == {0: pytest.approx(20 * 4200 / 3600)}
    metrics = measure(run)
    assert metrics.held_idle_hours == pytest.approx(20 * 4200 / 3600)
    assert metrics.held_idle_hours <= metrics.allocated_hours
    run = prepare_run(str(tmp_path / "run.yaml")).run
    run.run(4200.0)
    assert held_idle_hours(run) == {0: pytest.approx(20 * 600 / 3600)}


def test_steps_of_use_go_on_in_time(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'workload\[0\].busy\[1\].from_s': is 5; later than the step before"):
        jobs(tmp_path, "- name: a", "  busy: [{from_s: 5, gpus: 1}, {from_s: 5, gpus: 0}]")
