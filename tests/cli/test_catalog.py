"""``muster catalog``: what it prints, for people and for machines, and its exit codes."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys

import pytest
import yaml

from muster.catalog import GPUS, LINKS
from muster.cli.main import run


def call(capsys, *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        run(["catalog", *args])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


@pytest.mark.parametrize(
    "args",
    [("gpus",), ("gpus", "B300", "GB300"),
     ("gpus", "H100", "--sources"), ("mig",), ("mig", "H100"), ("mig", "H100", "--layouts"), ("links",),
     ("mig", "RTX PRO 6000", "--with", "1g.24gb+me.all@0"), ("links", "--sources"), ("gpus", "--sources")],
    ids=" ".join,
)  # fmt: skip
def test_tables_fit_in_100_columns_and_exit_0(capsys, args, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, out, err = call(capsys, *args)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 100


def test_the_first_column_is_never_broken(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    _, out, _ = call(capsys, "gpus")
    assert [line.split()[0] for line in out.splitlines()[1:]] == [gpu.name for gpu in GPUS]
    _, out, _ = call(capsys, "links")
    assert len(out.splitlines()) == len(LINKS) + 1


@pytest.mark.parametrize(
    ("args", "schema", "key"),
    [
        (("gpus",), "muster.catalog.gpus/v1", "gpus"),
        (("gpus", "--sources"), "muster.catalog.sources/v1", "facts"),
        (("mig",), "muster.catalog.mig.models/v1", "gpus"),
        (("mig", "H100"), "muster.catalog.mig/v1", "profiles"),
        (("mig", "H100", "--layouts"), "muster.catalog.mig.layouts/v1", "layouts"),
        (("mig", "H100", "--with", "3g.40gb@0"), "muster.catalog.mig.room/v1", "profiles"),
        (("links",), "muster.catalog.links/v1", "links"),
    ],
)
def test_json_and_yaml_carry_a_schema_and_agree(capsys, args, schema, key):
    _, out, _ = call(capsys, *args, "-o", "json")
    document = json.loads(out)
    assert document["schema"] == schema
    assert document[key]
    _, out, _ = call(capsys, *args, "-o", "yaml")
    assert yaml.safe_load(out) == document
    _, out, _ = call(capsys, *args, "-o", "csv")
    assert len(list(csv.DictReader(io.StringIO(out)))) == len(document[key])
    _, out, _ = call(capsys, *args, "-o", "name")
    assert len(out.splitlines()) == len(document[key])


def test_json_of_a_model_has_values_and_sources(capsys):
    _, out, _ = call(capsys, "gpus", "nvidia-h100-80gb-hbm3", "-o", "json")
    (gpu,) = json.loads(out)["gpus"]
    assert gpu["name"] == "H100-SXM5-80GB"
    assert gpu["memory_bytes"] == 85_899_345_920
    assert gpu["sources"]["power_w"].startswith("NVIDIA/DCGM")


def test_mig_prints_profiles_with_starts(capsys):
    _, out, _ = call(capsys, "mig", "H100")
    lines = out.splitlines()
    assert lines[0] == "H100-SXM5-80GB: 7 compute and 8 memory slices"
    assert lines[6].split() == ["3g.40gb", "3", "4", "40,960", "0,4", "2", "9"]


def test_mig_with_shows_what_still_fits(capsys):
    _, out, _ = call(capsys, "mig", "H100", "--with", "3g.40gb@4", "-o", "json")
    free = {profile["name"]: (profile["free_starts"], profile["more"]) for profile in json.loads(out)["profiles"]}
    assert free["1g.10gb"] == ([0, 1, 2, 3], 4)
    assert free["7g.80gb"] == ([], 0)


def test_mig_layouts(capsys):
    _, out, _ = call(capsys, "mig", "A30", "--layouts", "-o", "csv")
    assert out.splitlines()[1:3] == ["1,4g.24gb@0,4,4", "2,2g.12gb@0; 2g.12gb@2,4,4"]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("gpus", "A100-SXM"), "muster: unknown GPU model 'A100-SXM'; did you mean A100-SXM4-40GB or "),
        (("gpus", "H100", "zzz"), "muster: unknown GPU model 'zzz'; 'muster catalog gpus' lists the known ones"),
        (("mig", "L4"), "muster: L4-PCIe-24GB cannot be split by MIG; 'muster catalog mig' lists "),
        (("mig", "H100", "--with", "3g.40gb"), "muster: field '--with': '3g.40gb' is not PROFILE@START; write it as "),
        (("mig", "H100", "--with", "3g.40gb@1"), "muster: 3g.40gb at slice 1 may start at 0, 4 only"),
        (("links", "--kind", "rope"), "muster: field '--kind': unknown kind of link 'rope'; one of nvlink, "),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(capsys, args, line):
    code, out, err = call(capsys, *args)
    assert (code, out) == (2, "")
    assert err.startswith(line)
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "args",
    [("mig", "--layouts"), ("mig", "H100", "--variants"), ("mig", "H100", "--layouts", "--with", "3g.40gb@0")],
)
def test_options_that_do_not_go_together_are_usage_errors(capsys, args):
    code, out, err = call(capsys, *args)
    assert (code, out) == (2, "")
    assert err.startswith("muster: ")


@pytest.mark.parametrize("args", [(), ("gpus",), ("mig",), ("links",)])
def test_help_has_examples(capsys, args):
    code, out, _ = call(capsys, *args, "--help")
    assert code == 0
    assert "Examples:" in out


def test_from_the_shell():
    done = subprocess.run(
        [sys.executable, "-c", "from muster.cli.main import run; run()", "catalog", "gpus", "H1000"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("muster: unknown GPU model 'H1000'; did you mean H100-")


def test_the_nearest_model_begins_alike(capsys):
    _, _, err = call(capsys, "gpus", "A100-SXM")
    assert "did you mean A100-SXM4-40GB or A100-SXM4-80GB" in err
    assert "H100" not in err
    _, _, err = call(capsys, "gpus", "A100-SMX4")
    assert err.index("A100-SXM4") < (err.index("A100-PCIe") if "A100-PCIe" in err else len(err))


def test_wide_tables_are_not_broken_and_no_line_ends_in_blanks(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = call(capsys, "gpus", "-o", "wide")
    assert len(out.splitlines()) == len(GPUS) + 1
    assert all(line == line.rstrip() for line in out.splitlines())
