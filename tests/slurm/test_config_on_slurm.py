"""What `muster slurm config generate` writes starts a real slurmctld, which sees the fleet as it is."""

from __future__ import annotations

import getpass
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from muster.slurm.config.check import check
from muster.slurm.config.files import read_config
from muster.slurm.config.fleet import fleet_of
from muster.slurm.config.generate import Wanted, generate
from muster.traces import read_fleet
from muster.traces.slurm_conf import load_config, read_conf_text
from slurmdev import Settings, Slurm


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Controller:
    """A slurmctld without nodes, on a configuration of its own; munge is that of the session's Slurm."""

    def __init__(self, slurm: Slurm, folder: Path, fleet: str, *more: str) -> None:
        self.folder, self.fleet = folder, read_fleet(fleet)[0]
        user = getpass.getuser()
        here = (
            f"SlurmUser={user}", f"SlurmctldPort={free_port()}", f"StateSaveLocation={folder}/state",
            f"SlurmctldLogFile={folder}/ctld.log", f"SlurmctldPidFile={folder}/ctld.pid",
            f"AuthInfo=socket={slurm.place().munge_socket}", "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none", "MailProg=/bin/true", *more,
        )  # fmt: skip
        host = f"{socket.gethostname().split('.')[0]}(127.0.0.1)"
        for name, text in generate(self.fleet, Wanted(controller=host, database="", settings=here)).items():
            # no slurmd will answer: nodes that the controller could start are told apart from nodes that are away
            (folder / name).write_text(text.replace("State=UNKNOWN", "State=CLOUD") if name == "slurm.conf" else text)
        with (folder / "slurm.conf").open("a") as conf:
            conf.write("PrivateData=cloud\nSuspendProgram=/bin/true\nResumeProgram=/bin/true\nSuspendTime=60000\n")
        self.environment = {**slurm.environment(), "SLURM_CONF": str(folder / "slurm.conf")}
        self.process = subprocess.Popen(
            ["slurmctld", "-D", "-f", str(folder / "slurm.conf")], env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + 30
        while "is UP" not in self.asked("scontrol", "ping"):
            assert self.process.poll() is None, (folder / "ctld.log").read_text()[-2000:]
            assert time.monotonic() < until, (folder / "ctld.log").read_text()[-2000:]
            time.sleep(0.2)

    def asked(self, *command: str, text: str | None = None) -> str:
        done = subprocess.run(
            command, env=self.environment, input=text, capture_output=True, text=True, timeout=30, check=False
        )
        return done.stdout + done.stderr

    def complaints(self) -> list[str]:
        """Errors in the log that are not about the first start."""
        lines = (self.folder / "ctld.log").read_text().splitlines()
        known = (
            "Could not open",
            "state file",
            "backup state save",
            "High latency",
            "recover",
            "No Assoc usage",
            "Can not save",
            "creating clean",
            "mpi/pmix",
            "MPI:",
        )
        return [each for each in lines if "error:" in each and not any(word in each for word in known)]

    def end(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()


FLEETS = {
    "one kind, a tree": "uniform:nodes=64,model=H100-SXM5-80GB,cpu=96,memory_gib=1000,block=32,rack=8,prefix=gpu",
    "no levels": "uniform:nodes=5,model=A100-SXM4-80GB,gpus=4,prefix=a",
    "six kinds": "example",
}


@pytest.fixture(params=FLEETS)
def controller(request: pytest.FixtureRequest, slurm: Slurm, tmp_path: Path) -> Iterator[Controller]:
    found = Controller(slurm, tmp_path, FLEETS[request.param])
    yield found
    found.end()


def test_a_generated_configuration_starts_and_shows_the_fleet(controller: Controller) -> None:
    fleet = controller.fleet
    shown = controller.asked("scontrol", "-o", "show", "node")
    found = {
        match[1]: (int(match[2]), int(match[3]))
        for match in re.finditer(r"NodeName=(\S+) .*?CPUTot=(\d+) .*?RealMemory=(\d+)", shown)
    }
    assert found == {node.name: (node.cpu_milli // 1000, node.memory_bytes >> 20) for node in fleet.nodes}
    gpus = sum(int(number) for number in re.findall(r" Gres=gpu:\w+:(\d+)", shown))
    assert gpus == fleet.gpus
    partitions = controller.asked("scontrol", "-o", "show", "partition")
    assert sum(map(int, re.findall(r"TotalNodes=(\d+)", partitions))) == len(fleet.nodes)
    if fleet.topology.levels:
        leaves = re.findall(r"Level=0 .*?Nodes=(\S+)", controller.asked("scontrol", "show", "topology"))
        assert len(leaves) == len({node.topology for node in fleet.nodes})
    assert "\n".join(controller.complaints()) == ""


def test_a_gang_is_accepted_with_its_share_of_a_node(controller: Controller) -> None:
    largest = max(controller.fleet.nodes, key=lambda node: len(node.devices))
    options = [f"--gpus-per-node={len(largest.devices)}", "--nodes=2", "--ntasks-per-node=1"]
    said = controller.asked("sbatch", "--test-only", *options, text="#!/bin/sh\ntrue\n")
    assert "to start at" in said, said
    refused = controller.asked("sbatch", "--test-only", *options, "--time=30-0", text="#!/bin/sh\ntrue\n")
    assert "time limit" in refused.lower(), refused


def test_the_files_of_the_tests_own_slurm_are_read_as_it_shows_itself(slurm: Slurm) -> None:
    config = load_config([str(slurm.conf)])
    fleet = fleet_of(config)
    shown = slurm.run("scontrol", "-o", "show", "node")
    assert [node.name for node in fleet.nodes] == re.findall(r"NodeName=(\S+)", shown)
    assert {node.cpu_milli // 1000 for node in fleet.nodes} == set(map(int, re.findall(r"CPUTot=(\d+)", shown)))
    assert fleet.topology.levels == ("block", "rack")
    assert fleet.gpus == sum(map(int, re.findall(r" Gres=gpu:h100:(\d+)", shown)))
    found = {each.rule for each in check(config)}
    assert {"gpus-not-hidden", "process-tracking"} <= found  # it runs without cgroups, for tests
    assert not found & {"gres-counts", "gres-types", "topology-nodes", "topology-file", "memory-default", "unknown-key"}


@pytest.mark.parametrize(
    ("rule", "line", "said"),
    [
        ("unknown-key", "SlurmdTimout=300", "Parsing error at unrecognized key: SlurmdTimout"),
        ("missing-key", "-ClusterName", "ClusterName needs to be specified"),
        ("missing-key", "-SlurmctldHost", "No SlurmctldHost defined"),
        ("missing-key", "-PartitionName", "No PartitionName information available"),
        ("accounting", "AccountingStorageTRES=gres/gpu", "slurmdbd is required to run with TRES gres/gpu"),
        ("preemption", "PreemptType=preempt/qos", "PreemptType and PreemptMode values incompatible|PreemptMode"),
    ],
)
def test_what_is_said_not_to_start_does_not(slurm: Slurm, tmp_path: Path, rule: str, line: str, said: str) -> None:
    fleet = read_fleet(FLEETS["no levels"])[0]
    mine = (f"SlurmUser={getpass.getuser()}", f"StateSaveLocation={tmp_path}/state", f"SlurmctldPort={free_port()}",
            f"SlurmctldPidFile={tmp_path}/ctld.pid", "SlurmctldLogFile=", "ProctrackType=proctrack/linuxproc",
            f"AuthInfo=socket={slurm.place().munge_socket}")  # fmt: skip
    wanted = Wanted(controller=f"{socket.gethostname().split('.')[0]}(127.0.0.1)", database="", settings=mine)
    for name, text in generate(fleet, wanted).items():
        if name == "slurm.conf":  # a line more, or without those that begin so
            kept = [each for each in text.splitlines() if not (line[0] == "-" and each.startswith(line[1:]))]
            text = "\n".join([*kept, *([line] if line[0] != "-" else []), ""])
        (tmp_path / name).write_text(text)
    names = {name: str(tmp_path / name) for name in ("slurm.conf", "gres.conf", "cgroup.conf")}
    found = check(read_config(names, read_conf_text))
    assert rule in {each.rule for each in found if each.severity == "error"}
    done = subprocess.run(
        ["slurmctld", "-D", "-f", names["slurm.conf"]],
        env={**slurm.environment(), "SLURM_CONF": names["slurm.conf"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode != 0
    assert re.search(said, done.stderr + done.stdout), (done.stderr + done.stdout)[-800:]


def test_what_is_said_of_gres_conf_happens_to_the_node(start_slurm: Callable[[Settings], Slurm]) -> None:
    slurm = start_slurm(Settings(nodes=1, accounting=False))
    gres = slurm.conf.parent / "gres.conf"
    right = gres.read_text()

    def node() -> str:
        return slurm.run("scontrol", "show", "node", "gpu01")

    for rule, text in (
        ("gres-counts", right.replace("[0-7]", "[0-6]")),
        ("gres-types", right.replace("Type=h100", "Type=h200")),
        ("gres-counts", "# nothing\n"),
    ):
        gres.write_text(text)
        errors = {each.rule for each in check(load_config([str(slurm.conf)])) if each.severity == "error"}
        assert errors == {rule}
        slurm.restart("slurmctld")
        slurm.restart("gpu01")
        slurm.wait("the node was invalid", lambda: "INVALID_REG" in node(), 20)
        assert "gres/gpu count reported lower than configured (7 < 8)" in node()  # of the first time: a reason stays
        gres.write_text(right)
        assert not {each.rule for each in check(load_config([str(slurm.conf)])) if each.severity == "error"}
        slurm.restart("slurmctld")
        slurm.restart("gpu01")
        slurm.wait("the node was valid", lambda: "INVALID_REG" not in node(), 20)


def test_a_typo_in_the_schedulers_options_is_passed_over_without_a_word(
    start_slurm: Callable[[Settings], Slurm],
) -> None:
    slurm = start_slurm(Settings(nodes=1, accounting=False, parameters=("SchedulerParameters=bf_windw=5,bf_continue",)))
    found = {each.rule: each.what for each in check(load_config([str(slurm.conf)]))}
    assert "has no bf_windw: Slurm passes over it without a word" in found["scheduler-option"]
    log = (slurm.folder / "log" / "slurmctld.log").read_text()
    assert not [line for line in log.splitlines() if "windw" in line and "error" in line]
