"""Shares, MIG instances and tenants in run files: what they come to, and each likely mistake with line and field."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.errors import InputError
from muster.sim.run_file import prepare_run

RUN = """\
fleet: FLEET
queues:
  - {name: lab, tenant: lab, quotas: [{flavor: H100, nominal_gpus: 4}]}
  - {name: own, parent: lab}
workload:
  - {name: a, queue: lab, JOB}
"""


def prepared(tmp_path: Path, job: str, fleet: str = "uniform:nodes=2,gpus=2,model=H100"):
    path = tmp_path / "run.yaml"
    path.write_text(RUN.replace("JOB", job).replace("FLEET", fleet))
    return prepare_run(str(path))


@pytest.mark.parametrize(
    ("job", "milli", "described"),
    [
        ("mig: 1g.10gb", 125, "MIG 1g.10gb, 0 CPU"),
        ("mig: nvidia.com/mig-3g.40gb", 500, "MIG 3g.40gb, 0 CPU"),
        ("mig: 7g.80gb", 1000, "MIG 7g.80gb, 0 CPU"),
        ("gpus: 0.25, sharing: mps", 250, "0.25 GPU by mps, 0 CPU"),
        ("gpus: 0.25, tenant: x", 250, "0.25 GPU, 0 CPU"),
        ("gpus: 2, tenant: x", 2000, "2 GPUs, 0 CPU"),
    ],
)
def test_what_a_job_takes(tmp_path: Path, job: str, milli: int, described: str) -> None:
    (workload,) = prepared(tmp_path, job).run.workloads
    shape = workload.pod_sets[0].shape
    assert (workload.gpu_milli, shape.describe()) == (milli, described)
    run = prepared(tmp_path, f"{job}, duration_s: 60").run
    run.run()
    assert run.state_of(0) == "finished"
    run.check()


@pytest.mark.parametrize(
    ("job", "field", "says"),
    [
        ("mig: 1g.99gb", "workload[0].mig", "there is no MIG profile '1g.99gb'"),
        (
            "mig: 1g.5gb",
            "workload[0].mig",
            "may use has the MIG profile '1g.5gb'; H100 has 1g.10gb",
        ),
        ("mig: 1g.10gb, gpu_models: [T4]", "workload[0].mig", "none of them can be split by MIG"),
        ("mig: 1g.10gb, gpus: 2", "workload[0].gpus", "a pod takes one MIG instance"),
        ("mig: 1g.10gb, gpus: 0.5", "workload[0].gpus", "is 0.5 with mig: 1g.10gb"),
        ("mig: 1g.10gb, sharing: mps", "workload[0].sharing", "a MIG instance is not shared"),
        ("gpus: 1, sharing: mps", "workload[0].sharing", "is mps, but the job takes 1 GPU whole"),
        ("gpus: 0, sharing: mps", "workload[0].sharing", "takes no GPUs whole"),
        ("gpus: 1.5", "workload[0].gpus", "a whole number, or a share"),
        ("gpus: 0.02, sharing: mps", "workload[0].gpus", "MPS serves at most 48 clients on one; at least 0.021"),
        ("gpus: 0.5, sharing: turns", "workload[0].sharing", "turns"),
    ],
)
def test_mistakes(tmp_path: Path, job: str, field: str, says: str) -> None:
    with pytest.raises(InputError) as refused:
        prepared(tmp_path, job)
    assert (refused.value.field, refused.value.line) == (field, 6)
    assert says in str(refused.value)


def test_a_profile_that_means_other_slices_must_be_narrowed(tmp_path: Path) -> None:
    from muster.model.fleet import Device, Fleet, Node
    from muster.traces.store import write_fleet

    nodes = [Node(model, 1000, 1000, (Device(0, model),)) for model in ("H100", "A100-SXM4-40GB")]
    write_fleet(Fleet(tuple(nodes)), tmp_path / "two.fleet")
    spec = f"{tmp_path}/two.fleet"
    with pytest.raises(InputError, match=r"is 0\.125 of H100 and 0\.25 of A100-SXM4-40GB; name in gpu_models which"):
        prepared(tmp_path, "mig: 1g.10gb", spec)
    run = prepared(tmp_path, "mig: 1g.10gb, gpu_models: [A100-SXM4-40GB]", spec).run
    assert run.workloads[0].gpu_milli == 250


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ("sharing=turns", "'turns' is unknown"),
        ("mig=3g.40gb", "is no MIG instance"),
        ("mig=3g.40gb@1", "may start at 0, 4 only"),
        ("mig=3g.40gb@0,sharing=mps", "with sharing=mps"),
    ],
)
def test_a_fleet_that_cannot_be_shared_so(tmp_path: Path, option: str, says: str) -> None:
    with pytest.raises(InputError, match=r"uniform|mig|sharing") as refused:
        prepared(tmp_path, "gpus: 1", f"uniform:nodes=1,gpus=1,model=H100,{option}")
    assert says in str(refused.value)


def test_fleets_are_kept_with_how_they_are_shared(tmp_path: Path) -> None:
    from muster.traces import read_fleet
    from muster.traces.store import write_fleet

    fleet, _ = read_fleet("uniform:nodes=2,gpus=2,model=H100,sharing=mig,mig=3g.40gb@4/1g.10gb@0")
    assert fleet.nodes[0].devices[1].mig_profiles == (("1g.10gb", 0), ("3g.40gb", 4))
    write_fleet(fleet, tmp_path / "kept.fleet")
    assert read_fleet(f"{tmp_path}/kept.fleet")[0] == fleet


@pytest.mark.parametrize("job", ["mig: 1g.10gb", "gpus: 0.25", "gpus: 1", "mig: 3g.40gb, pods: 3"])
def test_small_work_on_a_fleet_with_nvlink_domains(tmp_path: Path, job: str) -> None:
    fleet = "uniform:nodes=4,gpus=4,model=H100,nvlink_domain=2"
    run = prepared(tmp_path, f"{job}, duration_s: 10, count: 12", fleet).run
    run.run()
    run.check()
    assert {story.end for story in run.stories} == {"finished"}
