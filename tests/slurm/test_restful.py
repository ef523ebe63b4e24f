"""Slurm's JSON is read into the records that its text gives: v0.0.38 as recorded, later versions as documented."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert
from msgspec.structs import replace

from muster.errors import InputError
from muster.slurm.restful import ADAPTERS, fill, holds_json, newest_of
from muster.slurm.restful_values import Num, amount, many
from muster.slurm.world import SlurmWorld
from muster.traces.slurm import holds_slurm, read_slurm_files

from .documented import JOBS, NODES, PARTITIONS, RESERVATIONS, VERSIONS, documents, meta, num

RECORDED = Path(__file__).parent / "data" / "json-22.05"


def of(*documents: dict[str, Any]) -> SlurmWorld:
    world = SlurmWorld()
    for each in documents:
        fill(world, json.dumps(each).encode())
    return world


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """What a real Slurm 22.05 told at one instant: as JSON, and as text."""
    for kind in ("json", "txt"):
        (tmp_path / kind).mkdir()
        for file in RECORDED.glob(f"*.{kind}"):
            (tmp_path / kind / file.name).write_bytes(file.read_bytes())
    return tmp_path / "json", tmp_path / "txt"


def test_a_real_slurm_tells_the_same_as_json_and_as_text(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    from_json, from_text = (read_slurm_files(str(each)) for each in folders)
    assert len(from_text.jobs) >= 9
    assert from_json.nodes == from_text.nodes
    assert from_json.partitions == from_text.partitions
    assert from_json.reservations == from_text.reservations
    assert from_json.associations == from_text.associations

    def without(world: SlurmWorld) -> list[Any]:  # --switches is what v0.0.38 lacks; for how long a job ran is rounded
        return [replace(job, switches=0, ran_s=0.0) for job in world.jobs]

    assert without(from_json) == without(from_text)
    for mine, theirs in zip(from_json.qos, from_text.qos, strict=True):
        lacks = {"GrpTRESMins", "GrpSubmit", "GrpTRES"}  # and TRES in another order
        assert (mine.name, mine.priority, mine.preempts) == (theirs.name, theirs.priority, theirs.preempts)
        assert {k: v for k, v in mine.limits.items() if k not in lacks} == {
            k: v for k, v in theirs.limits.items() if k not in lacks
        }
    assert {key for key in from_json.missing if key.startswith("JSON")} == {"JSON of nodes", "JSON of jobs"}


@pytest.mark.parametrize("version", VERSIONS)
def test_each_version_is_read_into_the_same_records(version: str) -> None:
    world = of(*documents(version).values())
    assert tuple(world.nodes) == NODES
    assert tuple(world.partitions) == PARTITIONS
    assert tuple(world.reservations) == RESERVATIONS
    assert tuple(world.jobs) == (
        JOBS if version != "v0.0.39" else (JOBS[0], JOBS[1], replace(JOBS[2], ran_s=JOBS[2].ran_s))
    )
    assert world.cluster == "lab"
    assert list(world.missing) == ["JSON of partitions"]


def test_the_versions_are_those_that_the_documentation_names() -> None:
    assert tuple(ADAPTERS) == ("v0.0.38", *VERSIONS)


@pytest.mark.parametrize(
    ("has", "chosen"),
    [
        (("v0.0.36", "v0.0.37", "v0.0.38"), "v0.0.38"),
        (("v0.0.43", "v0.0.44", "v0.0.45", "v0.0.46"), "v0.0.44"),
        (("v0.0.45", "v0.0.46"), ""),
        (("v0.0.9", "v0.0.10"), ""),
        ((), ""),
    ],
)
def test_the_newest_that_is_understood_is_asked_for(has: tuple[str, ...], chosen: str) -> None:
    paths = [f"/slurm/{version}/nodes" for version in has] + ["/slurmdb/v0.0.40/qos/"]
    assert newest_of(paths) == (chosen, tuple(has))


MISTAKES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"meta": meta("v0.0.45"), "nodes": []}, r"v0\.0\.45, which is not understood; v0\.0\.38 to v0\.0\.44 are"),
    ({"meta": meta("v0.0.37"), "nodes": []}, r"v0\.0\.37, which is not understood"),
    ({"nodes": [{"name": "a1", "gres_used": ""}]}, "does not say of which version"),
    ({"meta": meta("v0.0.42"), "jobs": [{"job_id": "x"}]}, r"not what Slurm tells as JSON .*jobs"),
)


@pytest.mark.parametrize(("document", "told"), MISTAKES, ids=lambda each: str(each)[:20])
def test_what_is_not_understood_is_said_with_what_is(document: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        of(document)


def test_a_file_that_ends_early_is_named(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps(documents("v0.0.44")["nodes"])[:-40])
    with pytest.raises(InputError, match=r"nodes\.json: is not what Slurm tells as JSON"):
        read_slurm_files(str(tmp_path))


def test_without_details_what_a_job_has_is_divided_over_its_nodes() -> None:
    document = documents("v0.0.42")["jobs"]
    document["jobs"][0]["gres_detail"] = []
    (job, *_) = of(document).jobs
    assert (job.held, job.node_list, job.tres["gres/gpu"]) == ((), "a1", 6)


def test_a_partition_whose_state_is_not_told_counts_as_up_and_that_is_noted() -> None:
    document = documents("v0.0.39")["partitions"]
    for each in document["partitions"]:
        del each["partition"]
    world = of(document)
    assert {each.state for each in world.partitions} == {"UP"}
    assert "taken as UP" in world.missing["JSON of partition states"]


def test_sinfo_alone_tells_nodes_and_partitions() -> None:
    gpu, alls = documents("v0.0.42")["partitions"]["partitions"]
    row = {
        "nodes": {"nodes": ["a1", "a2"], "total": 2}, "node": {"state": ["IDLE", "DRAIN"]},
        "cpus": {"maximum": 64, "minimum": 64}, "memory": {"maximum": 512000}, "weight": {"maximum": 3},
        "features": {"total": "h100,ib", "active": "h100,ib"}, "gres": {"total": "gpu:h100:8", "used": "gpu:h100:0"},
        "reason": {"description": "bad fan"}, "partition": gpu,
    }  # fmt: skip
    also = {**row, "nodes": {"nodes": ["a1"]}, "partition": alls}
    world = of({"sinfo": [row, also], "meta": meta("v0.0.42"), "errors": []})
    assert [(each.name, each.cpus, each.gres, each.partitions) for each in world.nodes] == [
        ("a1", 64, "gpu:h100:8", ("gpu", "all")),
        ("a2", 64, "gpu:h100:8", ("gpu",)),
    ]
    assert tuple(world.partitions) == PARTITIONS


def test_json_and_text_are_mixed_and_nothing_is_counted_twice(folders: tuple[Path, Path]) -> None:
    from_json, from_text = folders
    text = read_slurm_files(str(from_text))
    for name in ("nodes.json", "jobs.json"):
        (from_text / name).write_bytes((from_json / name).read_bytes())
    (from_text / "jobs.txt").unlink()
    mixed = read_slurm_files(str(from_text))
    assert mixed.nodes == text.nodes
    assert [job.id for job in mixed.jobs] == [job.id for job in text.jobs]
    assert mixed.now_s > 1.79e9


@pytest.mark.parametrize("version", VERSIONS)
def test_files_are_recognised_by_what_is_in_them(version: str) -> None:
    for document in documents(version).values():
        assert holds_slurm(json.dumps(document))
    assert not holds_json('{"schema": "muster.dev/snapshot", "nodes": [{"name": "a1", "gres": 8}], "jobs": []}')
    assert not holds_json('- "job_state": "x"')


@given(st.integers(0, 2**31))
def test_a_number_is_the_same_in_all_its_forms(value: int) -> None:
    forms = (value, float(value), str(value), num(value))
    assert {amount(convert(form, Num)) for form in forms} == {float(value)}


@pytest.mark.parametrize(
    ("form", "is_"),
    [
        (None, None),
        (num(), None),
        (num(infinite=True), math.inf),
        (0xFFFFFFFE, None),
        (0xFFFFFFFF, math.inf),
        ("Infinity", math.inf),
        ("UNLIMITED", math.inf),
        ("no number", None),
    ],
)
def test_what_is_no_number_is_not_set_or_without_limit(form: object, is_: float | None) -> None:
    assert amount(convert(form, Num)) == is_


@given(st.lists(st.from_regex(r"[A-Za-z_]{1,8}", fullmatch=True).filter(lambda word: word not in ("N", "None"))))
def test_words_are_the_same_as_a_list_and_with_commas(items: list[str]) -> None:
    shown = [each for each in items if each.upper() not in ("NONE", "UNKNOWN")]
    assert many(shown) == many(",".join(shown)) == tuple(shown)
