"""A fix as commands: each kind of change on Kubernetes and on Slurm, with names that the shell cannot misread."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.answers.small import small_snapshot

from muster.answers.apply import application, apply_fix, lines, save_applied
from muster.answers.changes import (
    AddNodes,
    Change,
    EndReservation,
    Move,
    SetJob,
    SetLimit,
    SetNodes,
    SetQuota,
    Stop,
    parse_change,
)
from muster.answers.fixes import Fix, fixes
from muster.answers.view import View
from muster.model.plan import PodPlacement
from muster.model.snapshot import Running, Snapshot, load_snapshot

R = "H100-SXM5-80GB/reserved"
JQ = (
    '(.spec.resourceGroups[].flavors[] | select(.name == "h100-sxm5-80gb-reserved") | .resources[]'
    ' | select(.name == "nvidia.com/gpu") | '
)

CASES: list[tuple[Change, str, str]] = [
    (
        SetNodes(("gpu03",), "uncordon"),
        "kubectl uncordon gpu03",
        "scontrol update NodeName=gpu03 State=RESUME",
    ),
    (
        SetNodes(("gpu04", "gpu05"), "untaint", "team"),
        "kubectl taint nodes gpu04 gpu05 team-",
        "# untaint team gpu[04-05]: Slurm has no taints",
    ),
    (
        Stop("small"),
        """kubectl patch job small --type merge -p '{"spec":{"suspend":true}}'""",
        "scontrol requeuehold $(squeue -h -o %A --name=small)",
    ),
    (
        Move("small", (PodPlacement("gpu09", (3,), 1000),)),
        "kubectl delete pod -l job-name=small",
        "scontrol update JobId=$(squeue -h -o %A --name=small) ReqNodeList=gpu09",
    ),
    (
        SetJob("big", limit_s=5400.0),
        """kubectl patch job big --type merge -p '{"spec":{"activeDeadlineSeconds":5400}}'""",
        "scontrol update JobId=$(squeue -h -o %A --name=big) TimeLimit=90",
    ),
    (
        SetJob("big", queue="team-b"),
        "kubectl label job big kueue.x-k8s.io/queue-name=team-b --overwrite",
        "scontrol update JobId=$(squeue -h -o %A --name=big) Account=team-b",
    ),
    (
        SetJob("big", topology="", prefer="block"),
        """"kueue.x-k8s.io/podset-preferred-topology":"cloud.provider.com/topology-block\"""",
        "scancel $(squeue -h -o %A --name=big)",
    ),
    (
        SetJob("big", pods=(4,)),
        "kubectl replace --force -f big.yaml",
        "scontrol update JobId=$(squeue -h -o %A --name=big) NumNodes=4",
    ),
    (
        SetJob("held", released=True),
        """kubectl patch job held --type merge -p '{"spec":{"suspend":false}}'""",
        "scontrol release $(squeue -h -o %A --name=held)",
    ),
    (
        SetQuota("team-a", R, 16_000),
        f"kubectl get clusterqueue team-a -o json | jq '{JQ}.nominalQuota) = \"48\"' | kubectl replace -f -",
        "sacctmgr -i modify account where name=team-a set GrpTRES=gres/gpu:h100-sxm5-80gb=48",
    ),
    (
        SetLimit("team-a", "borrowing", 24_000, R),
        f"kubectl get clusterqueue team-a -o json | jq '{JQ}.borrowingLimit) = \"24\"' | kubectl replace -f -",
        "sacctmgr -i modify account where name=team-a set GrpTRES=gres/gpu:h100-sxm5-80gb=56",
    ),
    (
        SetLimit("team-b", "user", 24_000),
        "# user-limit team-b 24: Kueue has no limit of a user",
        "sacctmgr -i modify user where account=team-b set GrpTRES=gres/gpu=24",
    ),
    (
        EndReservation("service"),
        "# reservation service: Kubernetes has none",
        "scontrol delete ReservationName=service",
    ),
    (AddNodes(2, "gpu01"), "# add 2 nodes like gpu01: grow the node group", "scontrol reconfigure"),
]


KUEUE = (("team/queue", "team-a"),)
"""A LocalQueue: Kueue is there."""


@pytest.mark.parametrize(("change", "kubectl", "slurm"), CASES, ids=[str(case[0])[:40] for case in CASES])
def test_each_change_has_its_commands(change: Change, kubectl: str, slurm: str) -> None:
    for source, expected in (("kubernetes:east", kubectl), ("slurm:east", slurm)):
        view = View(replace(small_snapshot(), source=source, local_queues=KUEUE))
        told = application(view, Fix("x", "do it", (change,)))
        assert [step.system for step in told.by_hand] == ["Kubernetes" if "kube" in source else "Slurm"]
        assert expected in "\n".join(told.by_hand[0].commands)
        assert told.changes == (str(change),)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (SetJob("big", queue="team-b"), "kubectl label job big muster.dev/queue=team-b --overwrite"),
        (SetJob("big", priority=9), "# priority 9: of pods that are there it is fixed; submit big anew"),
        (SetQuota("team-a", R, 16_000), "kubectl edit queues.muster.dev team-a  # quota"),
        (SetJob("held", limit_s=60.0), "# where held is no Job but a pod"),
    ],
    ids=["queue", "priority", "quota", "pod"],
)
def test_without_kueue_no_command_is_of_kueue(change: Change, says: str) -> None:
    view = View(replace(small_snapshot(), source="kubernetes:east"))
    (step,) = application(view, Fix("x", "do it", (change,))).by_hand
    assert any(each.startswith(says) for each in step.commands), step.commands
    assert "kueue" not in str(step.commands)


def test_of_a_pod_it_is_said_who_must_be_changed_instead() -> None:
    view = View(replace(small_snapshot(), source="kubectl:dump.json"))
    (step,) = application(view, Fix("x", "do it", (SetJob("held", limit_s=60.0),))).by_hand
    assert step.commands[0].startswith("kubectl get pod held -o")
    assert "a StatefulSet, Deployment or Job: set" in step.commands[1]
    assert step.commands[-1] == "kubectl replace --force -f held.yaml"


def test_where_a_snapshot_is_from_nobody_knows_both_are_told_and_a_wait_needs_nothing() -> None:
    view = View(small_snapshot())
    assert [step.system for step in application(view, Fix("x", "x", (Stop("small"),))).by_hand] == [
        "Kubernetes",
        "Slurm",
    ]
    assert application(view, Fix("wait", "wait")).by_hand == ()
    assert "Nothing is to be done." in list(lines(view, Fix("wait", "wait"), " --from x.snap"))


def test_what_is_stopped_goes_on_when_the_gang_has_started() -> None:
    view = View(replace(small_snapshot(), source="slurm:east"))
    commands = (
        application(view, Fix("preempt", "stop it", (Stop("small"), SetJob("big", priority=7)))).by_hand[0].commands
    )
    assert commands[1].startswith("scontrol update JobId="), "the gang's own change comes first"
    assert commands[2].startswith("scontrol requeuehold ")
    assert commands[-2:] == ("# when it has started:", "scontrol release $(squeue -h -o %A --name=small)")


EVIL = "x'; touch /tmp/pwned; $(id) `id` reboot #"


def evil_snapshot() -> Snapshot:
    """A snapshot whose names are commands."""
    snapshot = small_snapshot()
    runs = tuple(
        Running(replace(run.workload, name=EVIL), run.started_s, run.pods) if run.workload.name == "small" else run
        for run in snapshot.running
    )
    pending = tuple(replace(each, name=f"{EVIL}-gang") if each.name == "big" else each for each in snapshot.pending)
    return replace(snapshot, running=runs, pending=pending)


def test_no_name_becomes_a_command() -> None:
    """Each line is read by a shell in which every command only prints its words."""
    view = View(evil_snapshot())
    stops = (Stop(EVIL), SetJob(f"{EVIL}-gang", priority=3, limit_s=60.0, pods=(3,)))
    told = application(view, Fix("preempt", "x", stops))
    for step in told.by_hand:
        for command in step.commands:
            assert "\n" not in command
            script = "kubectl() { :; }; scontrol() { :; }; scancel() { :; }; squeue() { :; }; touch() { echo HIT; }; "
            script += f"id() {{ echo HIT >&2; }}; reboot() {{ echo HIT; }}\ncd /nowhere 2>/dev/null; {command}"
            script = script.replace(" > ", " | cat # ")
            done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=20, check=False)
            assert "HIT" not in done.stdout + done.stderr, command


def test_the_text_names_what_to_do_and_its_whatif_is_read_back() -> None:
    view = View(replace(small_snapshot(), source="kubectl:dump.json"))
    fix = Fix("preempt", "stop 1 job (small)", (Stop("small"),), 7200.0, 0.0, 120.0, 1.25, ("small",))
    text = list(lines(view, fix, " --from 'a b.snap'"))
    assert text[:2] == [
        "Stop 1 job (small).",
        "Costs others 2 GPU-hours lost; starts in 2 min; its own work takes 1.25 times as long.",
    ]
    line = next(each for each in text if each.startswith("  muster whatif"))
    words = shlex.split(line)
    assert words[:4] == ["muster", "whatif", "--from", "a b.snap"]
    assert parse_change(words[4], view.snapshot) == fix.changes
    assert "  kubectl delete pod small  # its controller starts it again; a bare pod is gone" in text


def test_the_changed_snapshot_is_written(tmp_path: Path) -> None:
    view = View(small_snapshot())
    found = [fix for fix in fixes(view, "big") if fix.changes and not fix.starts_in_s]
    assert found
    for fix in found:
        save_applied(view, fix, tmp_path / "after.snap")
        after = load_snapshot(tmp_path / "after.snap")
        assert after == apply_fix(view, fix)
        assert "big" in View(after).starts
