"""`muster simulate RUN.yaml` and `muster explain-config`: mistakes as a table, presets, the contract of the output."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from muster.cli.explain_config import settings
from muster.cli.main import run
from muster.engine.config import Config
from muster.sim.presets import PRESETS
from muster.sim.run_file import run_file_schema

ROOT = Path(__file__).resolve().parents[2]

RUN = """\
fleet: uniform:nodes=8,gpus=8,model=H100
queues:
  - name: org
  - name: research
    parent: org
    quotas: [{flavor: H100, nominal_gpus: 32}]
  - name: product
    parent: org
    weight: 2
    quotas: [{flavor: H100, nominal_milli: 32000, borrowing_limit: 16, lending_limit: 32}]
workload:
  - name: llm
    pods: 6
    gpus: 8
    cpu: 8
    memory: 64Gi
    queue: research
    duration_s: 36000
    time_limit_s: 40000
    checkpointing: {interval_s: 1800, restart_s: 120}
  - {name: serve, pods: 4, gpus: 8, queue: product, submitted_s: 9100, duration_s: 7200, time_limit_s: 7200}
  - {name: eval, gpus: 0.5, queue: research, count: 12, every_s: 300, duration_s: 600, time_limit_s: 900}
config: {preset: PRESET}
check_every: 1
until_s: 86400
"""
DEADLOCK = """\
fleet: uniform:nodes=8,gpus=8
workload:
  - {name: first, pods: 8, gpus: 8, duration_s: 7200}
  - {name: second, pods: 8, gpus: 8, duration_s: 7200}
config: {gangs: one-by-one}
until_s: 86400
"""


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")


def called(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        run(arguments)
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def simulated(text: str, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str, str]:
    Path("run.yaml").write_text(text)
    return called(["simulate", "run.yaml", *options], capsys)


def changed(old: str, new: str) -> str:
    text = RUN.replace("PRESET", "muster")
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize("preset", PRESETS)
def test_each_preset_runs(preset: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = simulated(RUN.replace("PRESET", preset), capsys, "-o", "json", "--no-timings")
    document = json.loads(out)
    assert code == 0
    assert (document["schema"], document["preset"]) == ("muster.simulate.run/v1", preset)
    assert document["metrics"]["jobs"] == {"finished": 14}
    assert [job["name"] for job in document["jobs"]][:4] == ["llm", "serve", "eval-01", "eval-02"]
    llm = document["jobs"][0]
    if preset in ("muster", "kueue-like"):
        assert (llm["evictions"], llm["lost_s"], llm["restart_s"]) == (1, 100.0, 120.0), "what was lent is reclaimed"
    else:
        assert llm["evictions"] == 0
        assert document["jobs"][1]["wait_s"] > 0


def test_the_same_run_gives_the_same_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    text = changed("every_s: 300", "every_s: 300, arrivals: poisson")
    first = simulated(text, capsys, "-o", "json", "--no-timings")
    assert simulated(text, capsys, "-o", "json", "--no-timings") == first
    assert simulated(text + "seed: 7\n", capsys, "-o", "json", "--no-timings")[1] != first[1]


def test_the_deadlock_is_shown_with_what_it_costs(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = simulated(DEADLOCK, capsys, "--no-timings")
    assert code == 0
    assert re.search(r"idle +1,536 +held by gangs that had not all their pods", out)
    assert re.search(r"jobs +2 +2 waiting", out)
    code, out, _ = simulated(DEADLOCK.replace("one-by-one", "all-or-nothing"), capsys, "--no-timings")
    assert re.search(r"jobs +2 +2 finished", out)


def test_csv_yaml_name_and_gantt(capsys: pytest.CaptureFixture[str]) -> None:
    text = changed("check_every: 1", "gantt: true")
    rows = list(csv.DictReader(io.StringIO(simulated(text, capsys, "-o", "csv")[1])))
    assert len(rows) == 14
    assert rows[0]["gpus"] == "48.0"
    assert list(rows[0]) == list(json.loads(simulated(text, capsys, "-o", "json")[1])["jobs"][0])
    empty = simulated("fleet: example\nworkload: []\n", capsys, "-o", "csv")
    assert (empty[0], empty[1].count("\n")) == (0, 1)
    assert simulated(text, capsys, "-o", "name")[1].split()[0] == "llm"
    document: Any = msgspec.yaml.decode(simulated(text, capsys, "-o", "yaml")[1])
    llm = [row for row in document["gantt"] if row["job"] == "llm"]
    assert len(llm) == 2 * 6 * 8, "two starts, six pods, eight devices each"
    assert {(row["start_s"], row["end_s"]) for row in llm} == {(0.0, 9100.0), (16300.0, 43420.0)}
    assert list(llm[0]) == ["job", "pod", "node", "device", "start_s", "end_s"]
    assert "gantt" not in document["metrics"]


def test_work_from_a_generator_and_default_queue(capsys: pytest.CaptureFixture[str]) -> None:
    queues = "queues: [{name: all, quotas: [{flavor: GPU, nominal_gpus: 64}]}]\n"
    text = f"fleet: uniform:nodes=8,gpus=8\nworkload: generate:mix=philly,pods=60\n{queues}"
    code, out, _ = simulated(text + "default_queue: all\n", capsys, "-o", "json")
    assert code == 0
    assert [group["name"] for group in json.loads(out)["metrics"]["by_queue"]] == ["all"]
    code, _, err = simulated(text, capsys)
    assert code == 2
    assert "run.yaml:2: field 'workload': job-" in err
    assert "default_queue" in err


def test_quotas_beyond_the_fleet_are_warned_of(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = simulated(changed("nominal_gpus: 32", "nominal_gpus: 48"), capsys)
    assert "quotas of H100 add up to 80 GPUs; 64 are there" in err


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "run.yaml: is empty"),
        ("# nothing", "run.yaml:1: does not hold a mapping"),
        ("- 1", "run.yaml:1: does not hold a mapping"),
        ("fleet: [", "run.yaml:1: is no YAML"),
        ("fleet: &a [*a]", "run.yaml:1: field 'fleet[0]': refers to itself"),
        ("[" * 5000, "run.yaml: is nested too deeply"),
        ("1: 2", "run.yaml:1: a key is no text"),
        ("a: 1\na: 2", "run.yaml:2: field 'a': is given twice"),
        ("\xff", "run.yaml: is not UTF-8 text"),
        ("workload: []", "field 'fleet': is missing"),
        (changed("fleet:", "flet:"), "run.yaml:1: field 'flet': is not known; did you mean fleet?"),
        (changed("pods: 6", "podz: 6"), "run.yaml:13: field 'workload[0].podz': is not known; did you mean pods?"),
        (changed("weight: 2", "weight: a"), "run.yaml:9: field 'queues[2].weight': must be a number, not text"),
        (changed("weight: 2", "weight: 0"), "run.yaml:9: field 'queues[2].weight': is 0"),
        (changed("weight: 2", "weight: .inf"), "run.yaml:9: field 'queues[2].weight': is inf"),
        (changed("pods: 6", "pods: 0"), "run.yaml:13: field 'workload[0].pods': must be a whole number >= 1"),
        (changed("pods: 6", f"pods: {10**30}"), "run.yaml:13: field 'workload[0].pods': is absurdly large"),
        (changed("pods: 6", "pods: 6.5"), "run.yaml:13: field 'workload[0].pods': must be a whole number"),
        (changed("gpus: 8", "gpus: 1.5"), "run.yaml:14: field 'workload[0].gpus': is 1.5; a whole number, or a share"),
        (changed("memory: 64Gi", "memory: 64 GB"), "field 'workload[0].memory': '64 GB' is no quantity"),
        (changed("cpu: 8", "cpu: -8"), "run.yaml:15: field 'workload[0].cpu':"),
        (changed("queue: research", "queue: reserch"), "run.yaml:17: field 'workload[0].queue': llm is of queue"),
        (changed("    queue: research\n", ""), "run.yaml:12: field 'workload[0].queue': llm has no queue"),
        (changed("name: serve", "name: llm"), "run.yaml:21: field 'workload[1].name': there is a job 'llm' before"),
        (changed("name: serve", "name: eval-03"), "run.yaml:22: field 'workload[2].name': there is a job 'eval-03'"),
        (changed("interval_s: 1800", "interval_s: 0"), "field 'workload[0].checkpointing.interval_s': must be"),
        (changed("pods: 6", "topology: {required: aisle}"), "run.yaml:13: field 'workload[0].topology.required': unkn"),
        (changed("pods: 6", "depends_on: [x]"), "field 'workload[0].depends_on[0]': there is no job 'x'"),
        (changed("pods: 6", "depends_on: [eval]"), "eval is a series: name its jobs, such as eval-01"),
        (changed("pods: 6", "depends_on: [serv]"), "there is no job 'serv'; did you mean serve?"),
        (changed("check_every: 1", "spares: [gpu-7]"), "there is no node 'gpu-7'; they are called node-1 to node-8"),
        (changed("check_every: 1", "failures: {spot: {per_h: 1}}"), "name some in the field spot, such as node-1*"),
        (
            changed("check_every: 1", "failures: {outages: [{node: a, at_s: 1, for_s: 1}]}"),
            "there is no node 'a'; they are called node-1 to node-8",
        ),
        (
            changed("check_every: 1", "services: [{name: s, queue: product, daily: {low: 5, high: 2}}]"),
            "field 'services[0].daily.low': is 5, more than high, 2",
        ),
        (changed("preset: muster", "placement: default"), "take one that needs no fitting, such as best-fit"),
        (changed("parent: org", "parent: orc"), "run.yaml:5: field 'queues[1].parent': there is no queue 'orc'"),
        (changed("name: org", "name: org\n    parent: product"), "is part of a cycle"),
        (changed("lending_limit: 32", "lending_limit: 33"), "field 'queues[2].quotas[0].lending_limit': 33000 is more"),
        (changed("nominal_gpus: 32", "nominal_gpus: 32, nominal_milli: 1"), "give either nominal_gpus or"),
        (changed("{flavor: H100, nominal_gpus: 32}", "{flavor: H100}"), "run.yaml:6: field 'queues[1].quotas[0]': gi"),
        (changed("preset: muster", "preset: slurm"), "run.yaml:23: field 'config.preset': there is no preset 'slurm'"),
        (changed("preset: muster", "queueing: fifo"), "field 'config.queueing': is 'fifo'; one of backfill, strict"),
        (changed("preset: muster", "ordring: fifo"), "field 'config.ordring': is not known; did you mean ordering?"),
        (changed("preset: muster", "ordering: fifa"), "run.yaml:23: field 'config.ordering': unknown order 'fifa'"),
        (changed("preset: muster", "placement: fdg"), "run.yaml:23: field 'config.placement':"),
        (changed("preset: muster", "placement: fgd"), "run.yaml:23: field 'config.placement': fgd must be fitted"),
        (changed("{preset: muster}", "[1]"), "run.yaml:23: field 'config': must be a mapping, not a list"),
        (changed("nodes=8,", "nodes=x,"), "run.yaml:1: field 'fleet': nodes:"),
        (changed("uniform:nodes=8,gpus=8,model=H100", "muster:none"), "run.yaml:1: field 'fleet': none: does not"),
        (RUN.split("workload:")[0] + "workload: 3", "field 'workload': must be text or a list, not a whole number"),
        (changed("until_s: 86400", "at_limit: die"), "field 'at_limit': is 'die'; one of kill, run-on"),
        (changed("until_s: 86400", "default_queue: x"), "run.yaml:25: field 'default_queue': there is no queue 'x'"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_line_and_field(text: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.yaml").write_bytes(text.encode("latin-1"))
    code, out, err = called(["simulate", "run.yaml"], capsys)
    assert (code, out) == (2, "")
    assert expected in err
    assert err.count("\n") == 1


def test_a_run_file_says_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = called(["simulate", "run.yaml", "--fleet", "example"], capsys)
    assert (code, err) == (
        2, "muster: field '--fleet': cannot be given beside a run file; write it in the file instead\n",
    )  # fmt: skip
    code, _, err = called(["simulate", "run.yaml"], capsys)
    assert code == 2
    assert "run.yaml: does not exist" in err
    code, _, err = called(["simulate", "--fleet", "example"], capsys)
    assert code == 2
    assert "'--workload': no work given" in err


def test_every_setting_is_explained(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each["name"] for each in settings()] == list(Config.__struct_fields__)
    assert all(each["meaning"] and each["choices"] for each in settings())
    code, out, _ = called(["explain-config", "-o", "json"], capsys)
    document = json.loads(out)
    assert (code, document["schema"]) == (0, "muster.config/v1")
    assert document["settings"][0]["default"] == Config().placement
    code, out, _ = called(["explain-config", "--preset", "slurm-like"], capsys)
    assert code == 0
    assert "slurm-fair-tree" in out
    assert "Not: " in out
    monkeypatch.setenv("COLUMNS", "100")
    for preset in PRESETS:
        code, out, _ = called(["explain-config", "--preset", preset], capsys)
        assert max(len(line) for line in out.splitlines()) <= 100
    assert called(["explain-config", "--preset", "slurmlike"], capsys)[0] == 2


def test_the_schema_knows_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = called(["explain-config", "--schema"], capsys)
    assert code == 0
    assert json.loads(out) == json.loads(msgspec.json.encode(run_file_schema()))
    parts = run_file_schema()["$defs"]
    assert set(parts["Config"]["properties"]) == {*Config.__struct_fields__, "preset"}
    assert parts["RunDocument"]["additionalProperties"] is False


@pytest.mark.parametrize("name", PRESETS)
def test_presets_hold_settings_that_exist(name: str) -> None:
    msgspec.convert(PRESETS[name](), Config)
    page = (ROOT / "docs/reference/run-file.md").read_text()
    assert f"`{name}`" in page


@pytest.mark.parametrize("name", ["simulate-a-queue", "simulate-failures", "share-with-serving"])
def test_the_worked_example_of_the_docs_runs_and_prints_what_they_show(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    page = (ROOT / f"docs/how-to/{name}.md").read_text()
    text = re.search(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert text
    code, out, _ = simulated(text[1], capsys)
    assert code == 0
    shown = re.search(r"\$ muster simulate \w+.yaml\n(.*?)```", page, re.DOTALL)
    assert shown
    assert [line.split() for line in shown[1].rstrip().splitlines()] == [line.split() for line in out.splitlines()]


def test_the_reference_names_every_field() -> None:
    page = (ROOT / "docs/reference/run-file.md").read_text()
    for part in (
        "RunDocument",
        "JobItem",
        "QueueItem",
        "QuotaItem",
        "TopologyItem",
        "CheckpointingItem",
        "RoleItem",
        "BusyItem",
        "BundleItem",
        "RayItem",
        "RayPodItem",
        "RayGroupItem",
        "ServiceItem",
        "Daily",
    ):
        for name in run_file_schema()["$defs"][part]["properties"]:
            assert f"`{name}`" in page, f"{part}.{name}"
