from __future__ import annotations

import statistics

import pytest

from muster.errors import InputError
from muster.model import Fleet, ShapeMix
from muster.traces import Trace, read_fleet, read_workload
from muster.traces.generate import job_sizes, lognormal_sigma
from muster.traces.mixes import MIXES, SHARES, JobMix, PodMix

POD_MIXES = [name for name, mix in MIXES.items() if isinstance(mix, PodMix)]
JOB_MIXES = [name for name, mix in MIXES.items() if isinstance(mix, JobMix)]


def made(text: str, fleet: Fleet | None = None) -> Trace:
    return read_workload(f"generate:{text}", fleet)


def share(part: float, whole: float) -> float:
    return part / whole


@pytest.mark.parametrize("name", POD_MIXES)
def test_pods_match_the_published_shares(name: str) -> None:
    mix = MIXES[name]
    assert isinstance(mix, PodMix)
    work = made(f"mix={name},pods=8152").workloads
    gpus = [workload.gpu_milli for workload in work]
    with_gpus = [milli for milli in gpus if milli]
    assert share(gpus.count(0), len(gpus)) == pytest.approx(mix.cpu_pods, abs=0.001)
    assert share(sum(milli for milli in gpus if milli < 1000), sum(gpus)) == pytest.approx(mix.shared, abs=0.01)
    assert share(sum(milli for milli in gpus if milli > 1000), sum(gpus)) == pytest.approx(mix.multi, abs=0.01)
    named = sum(bool(workload.pod_sets[0].shape.gpu_models) for workload in work)
    assert share(named, len(with_gpus)) == pytest.approx(mix.constrained, abs=0.001)


def test_default_is_like_the_published_workload() -> None:
    work = made("mix=default,pods=8152").workloads
    gpus = [workload.gpu_milli for workload in work]
    assert sum(gpus) / 1000 == pytest.approx(6086.8, rel=0.01)
    assert sum(workload.cpu_milli for workload in work) / 1000 == pytest.approx(85_436, rel=0.05)
    assert sum(0 < milli < 1000 for milli in gpus) == pytest.approx(3078, abs=35)
    assert [gpus.count(size * 1000) for size in (2, 4, 8)] == pytest.approx([16, 15, 44], abs=2)
    assert sum(one * weight for one, weight in SHARES) == pytest.approx(0.564, abs=0.01)
    assert sum(weight for _, weight in SHARES) == pytest.approx(1)
    assert len(ShapeMix.of(work).shapes) < 200


@pytest.mark.parametrize("name", JOB_MIXES)
def test_jobs_match_the_published_averages_and_medians(name: str) -> None:
    mix = MIXES[name]
    assert isinstance(mix, JobMix)
    work = made(f"mix={name},pods=20000").workloads
    gpus = [workload.gpu_milli / 1000 for workload in work]
    runs = [workload.duration_s or 0 for workload in work]
    assert statistics.mean(gpus) == pytest.approx(mix.mean_gpus, rel=0.03)
    assert statistics.median(gpus) == (0.5 if name == "pai" else 1)
    assert max(gpus) == mix.largest_gpus
    assert statistics.mean(runs) == pytest.approx(mix.mean_s, rel=0.06)
    assert statistics.median(runs) == pytest.approx(mix.median_s, rel=0.01)
    assert max(runs) <= mix.longest_s
    assert sum(weight for _, weight in job_sizes(mix)) == pytest.approx(1)


def test_the_same_seed_gives_the_same_work() -> None:
    for name in MIXES:
        assert made(f"mix={name},pods=300,seed=5") == made(f"mix={name},pods=300,seed=5")
        assert made(f"mix={name},pods=300,seed=5").workloads != made(f"mix={name},pods=300,seed=6").workloads


def test_arrivals_follow_the_day_and_the_load() -> None:
    fleet, _ = read_fleet("uniform:nodes=100,gpus=8")
    work = made("mix=philly,pods=20000,load=0.5", fleet).workloads
    times = [workload.submitted_s for workload in work]
    assert times == sorted(times)
    demand = sum(workload.gpu_milli / 1000 * (workload.duration_s or 0) for workload in work)
    assert demand / times[-1] == pytest.approx(0.5 * 800, rel=0.01)
    days = times[-1] // 86400
    hours = [int(second % 86400 // 3600) for second in times if second < days * 86400]
    day, night = sum(12 <= hour < 18 for hour in hours), sum(hour < 6 for hour in hours)
    assert 2.0 < day / night < 3.2


def test_constraints_come_from_the_fleet() -> None:
    fleet, _ = read_fleet("example")
    work = made("mix=constrained,constrained=1,multi=0.9,shared=0.1", fleet).workloads
    widest = {device.model: len(node.devices) for node in fleet for device in node.devices}
    for workload in work:
        shape = workload.pod_sets[0].shape
        if shape.gpus:
            assert shape.gpu_models
            assert all(widest[model] >= shape.gpus for model in shape.gpu_models)
    only, _ = read_fleet("uniform:nodes=10,model=X")
    shapes = {workload.pod_sets[0].shape for workload in made("mix=constrained", only).workloads}
    assert {shape.gpu_models for shape in shapes} == {(), ("X",)}


def test_demand_fits_the_fleet_unless_pods_are_given() -> None:
    fleet, _ = read_fleet("uniform:nodes=50,gpus=8")
    assert sum(workload.gpu_milli for workload in made("mix=default", fleet).workloads) == pytest.approx(
        392e3, rel=0.01
    )
    assert len(made("mix=default,pods=7", fleet).workloads) == 7
    no_gpus, _ = read_fleet("uniform:nodes=5,gpus=0")
    assert made("mix=constrained,pods=50", no_gpus).workloads
    assert made("mix=default,cpu_pods=1,pods=5").workloads


def test_sigma_keeps_the_mean_of_what_is_cut() -> None:
    assert lognormal_sigma(18006, 874, 1e12) == pytest.approx(2.4597, abs=1e-3)  # sqrt(2 ln(mean/median)), uncut
    assert lognormal_sigma(18006, 874, 4240676) > 2.4597


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("mix=defualt", "'defualt' is unknown; did you mean default?"),
        ("mix=default,podz=3", "field 'podz'"),
        ("mix=default,pods=0", "field 'pods'"),
        ("mix=default,pods=1e30", "field 'pods'"),
        ("mix=default,seed=-1", "field 'seed'"),
        ("mix=default,load=nan", "field 'load'"),
        ("mix=default,shared=0.8,multi=0.8", "at most 1"),
        ("mix=philly,shared=0.8", "is an option of the mixes of pods"),
        ("mix=default,gpus_per_pod=4", "is an option of the mixes of jobs"),
        ("mix=default,mix=philly", "is given twice"),
        ("default", "is not understood"),
    ],
)
def test_bad_options(text: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        made(text)
    assert what in str(caught.value)
