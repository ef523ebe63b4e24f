"""`muster simulate --report --plot --published`: what is written, equal bytes, a line for each mistake."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from muster.cli.main import main, run

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(
    f"<n{index:02d}>,{cpu},262144,{gpus},{model}\n"
    for index in range(12)
    for cpu, gpus, model in [((96000, 8, "G2"), (64000, 2, "T4"), (32000, 0, ""))[index % 3]]
)
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{index:03d},{cpu},{memory},{gpus},{milli},{spec}\n"
    for index in range(60)
    for cpu, memory, gpus, milli, spec in [
        (
            (8000, 16384, 1, 1000, ""),
            (4000, 8192, 1, 460, ""),
            (16000, 32768, 0, 0, ""),
            (32000, 65536, 4, 1000, "G2"),
        )[index % 4]
    ]
)
PUBLISHED = "workload,sc_policy,tune,seed,total_gpus,0,50,100,130\n" + "".join(
    f"openb_pod_list_x,06-FGD,1.3,{seed},40,0,50,90,91\n" for seed in (42, 43)
)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    (tmp_path / "twelve.csv").write_text(NODES)
    (tmp_path / "pods_x.csv").write_text(PODS)
    (tmp_path / "published.csv").write_text(PUBLISHED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return ["simulate", "--fleet", "openb:twelve.csv", "--workload", "openb:pods_x.csv"]


def called(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        run(arguments)
    captured = capsys.readouterr()
    return int(stop.value.code or 0), captured.out, captured.err


def test_report_and_chart_are_written(inputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    sweep = [*inputs, "--policy", "random,fgd", "--seeds", "42,43", "--published", "published.csv"]
    code, out, err = called([*sweep, "--report", "r.html", "--plot", "p.svg", "--no-timings"], capsys)
    html = Path("r.html").read_text()
    assert code == 0
    assert "random" in out
    assert err.splitlines()[-2:] == ["Report: r.html", "Chart: p.svg"]
    assert "muster simulate --fleet openb:twelve.csv --workload openb:pods_x.csv" in html
    assert "(published 91.0)" in html
    assert "dashed: published" in html
    assert "the mean of 2 runs in published.csv" in html
    assert "12 nodes, 40 GPUs (32 G2, 8 T4)" in html
    assert html.count("The fleet at the end under") >= 2
    assert "&lt;n00&gt;" in html
    assert "<n0" not in html
    assert "pods/s" not in html
    assert "no GPU, 32 CPU" in html
    root = ElementTree.fromstring(Path("p.svg").read_text())
    assert {"random", "fgd", "fgd, published"} <= {one.text for one in root.iter("{http://www.w3.org/2000/svg}title")}


def test_the_same_bytes_in_one_process_or_several(inputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    sweep = [*inputs, "--policy", "random,fgd", "--seeds", "1,2", "--no-timings", "--report", "r.html"]
    called([*sweep, "--plot", "a.svg"], capsys)
    first = Path("r.html").read_bytes()
    called([*sweep, "--plot", "b.svg", "--jobs", "2", "-o", "json"], capsys)
    assert Path("r.html").read_bytes() == first
    assert Path("a.svg").read_bytes() == Path("b.svg").read_bytes()


def test_details_change_no_figure(inputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    _, plain, _ = called([*inputs, "--no-timings", "-o", "json"], capsys)
    _, drawn, _ = called([*inputs, "--no-timings", "-o", "json", "--report", "r.html"], capsys)
    assert plain == drawn


def test_the_next_commands_exist(inputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    import html
    import shlex

    called([*inputs, "--report", "r.html"], capsys)
    (block,) = re.findall(r"<pre>(.*?)</pre>", Path("r.html").read_text(), re.DOTALL)
    lines = [line for line in html.unescape(block).splitlines() if line.startswith("muster ")]
    assert len(lines) >= 4
    for line in lines:
        words = shlex.split(line)[1:]
        command = main.get_command(main.make_context("muster", words), words[0])
        assert command is not None
        with command.make_context(words[0], words[1:]):
            pass


SWF = "".join(f"{job} {100 * job} 0 {500 + job} 2 -1 -1 2 600 -1 1 1 1 1 1 1 -1 -1\n" for job in range(1, 41))


def test_a_replay_has_a_page_of_its_own(inputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("jobs.swf").write_text(SWF)
    replay = [
        "simulate",
        "--fleet",
        "uniform:nodes=2,gpus=0,cpu=4",
        "--workload",
        "swf:jobs.swf",
        "--policy",
        "best-fit",
    ]
    code, _, err = called([*replay, "--report", "r.html", "--plot", "p.svg"], capsys)
    html = Path("r.html").read_text()
    assert code == 0
    assert err.splitlines()[-2:] == ["Report: r.html", "Chart: p.svg"]
    assert "CPU in use" in html
    assert "Jobs that wait" in html
    assert "GPU used" not in html
    assert "--arrivals replay" in html
    root = ElementTree.fromstring(Path("p.svg").read_text())
    assert "best-fit" in {one.text for one in root.iter("{http://www.w3.org/2000/svg}title")}
    called([*replay, "--report", "again.html"], capsys)
    assert Path("again.html").read_text() == html


@pytest.mark.parametrize("factor", ["0.01", "0.3", "3"])
def test_short_and_long_runs(inputs: list[str], factor: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [*inputs, "--arrivals", f"inflate:{factor}", "--report", "r.html", "--plot", "p.svg"]
    assert called(arguments, capsys)[0] == 0
    ElementTree.fromstring(Path("p.svg").read_text())
    assert "nan" not in re.findall(r"<svg.*</svg>", Path("r.html").read_text(), re.DOTALL)[0]


def test_one_node(inputs: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    inputs[2] = "uniform:nodes=1,gpus=1"
    assert called([*inputs, "--keep-unfit", "--report", "r.html"], capsys)[0] == 0
    assert "1 node" in Path("r.html").read_text()


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--report", "r.pdf"], "*.html"),
        (["--report", "no/such/r.html"], "its folder does not exist"),
        (["--plot", "p.gif"], "*.svg or *.png"),
        (["--plot", "p"], "no suffix"),
        (["--plot", "dir.svg"], "is a directory"),
        (["--published", "published.csv"], "add --report"),
        (["--published", "missing.csv", "--plot", "p.svg"], "missing.csv"),
        (["--published", "published.csv", "--plot", "p.svg", "--policy", "best-fit"], "no curve of these"),
        (["--arrivals", "replay", "--published", "published.csv"], "--published"),
    ],
)
def test_each_mistake_is_one_line_before_anything_runs(
    inputs: list[str], extra: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("dir.svg").mkdir()
    monkeypatch.setattr("muster.sim.sweep.sweep", None)
    before = sorted(Path().iterdir())
    code, out, err = called([*inputs, *extra], capsys)
    assert code == 2
    assert out == ""
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert "Traceback" not in err
    assert sorted(Path().iterdir()) == before
