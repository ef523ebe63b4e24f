"""Every reason code has plain words and a fix; what Slurm prints is found among them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.cli.main import run
from muster.slurm.reasons import REASONS, WAITS, Kind, fitted, reason_of

DOCUMENTED = """
    None Priority Dependency Resources PartitionNodeLimit PartitionTimeLimit PartitionDown PartitionInactive
    JobHeldAdmin BeginTime Licenses AssociationJobLimit AssociationResourceLimit AssociationTimeLimit
    Reservation ReqNodeNotAvail JobHeldUser FrontEndDown SchedDefer NodeDown BadConstraints SystemFailure
    JobLaunchFailure NonZeroExitCode RaisedSignal TimeLimit InactiveLimit InvalidAccount InvalidQOS
    QOSUsageThreshold QOSJobLimit QOSResourceLimit QOSTimeLimit Cleaning Prolog QOSNotAllowed AccountNotAllowed
    DependencyNeverSatisfied QOSGrpCpuLimit QOSGrpJobsLimit QOSGrpNodeLimit QOSGrpWallLimit
    QOSMaxCpuPerUserLimit QOSMaxJobsPerUserLimit QOSMaxGRESPerUser QOSMaxGRESPerJob
    QOSMaxWallDurationPerJobLimit QOSMinGRES QOSGrpGRES QOSGrpGRESRunMinutes AssocGrpGRES AssocGrpGRESMinutes
    AssocGrpCpuLimit AssocGrpJobsLimit AssocMaxJobsLimit AssocMaxGRESPerJob AssocMaxWallDurationPerJobLimit
    AssocGrpMemLimit AssocMaxCpuPerJobLimit JobHoldMaxRequeue JobArrayTaskLimit BurstBufferResources
    BurstBufferStageIn BurstBufferOperation PowerNotAvail PowerReserved MaxGRESPerAccount MaxJobsPerAccount
    ReservationDeleted PartitionConfig AccountingPolicy FedJobLock OutOfMemory MaxMemPerLimit Deadline
    QOSGrpBilling AssocMaxBillingPerJob
"""
"""Of Slurm's page on job reason codes."""


def test_the_documented_codes_are_all_there() -> None:
    documented = DOCUMENTED.split()
    assert [code for code in documented if code not in REASONS] == []
    assert len(REASONS) > 190


@pytest.mark.parametrize("code", sorted(REASONS))
def test_each_is_a_sentence_with_a_fix(code: str) -> None:
    reason = REASONS[code]
    assert reason.text[0].isupper()
    assert reason.text.endswith(".")
    assert reason.fix.endswith(".")
    assert "{" not in fitted(reason.command, job="7", user="ann", account="a", qos="q", partition="p")
    assert "{" not in reason.text + reason.fix


@pytest.mark.parametrize(
    ("printed", "code", "detail"),
    [
        ("(Resources)", "Resources", ""),
        ("ReqNodeNotAvail,_UnavailableNodes:gpu16", "ReqNodeNotAvail", "UnavailableNodes:gpu16"),
        ("ReqNodeNotAvail, Reserved for maintenance", "ReqNodeNotAvail", "Reserved for maintenance"),
        ("assocgrpgres", "AssocGrpGRES", ""),
        ("", "None", ""),
        ("launch failed requeued held", "JobHeldAdmin", "launch failed requeued held"),
        ("job requeued in special exit state", "JobHeldUser", "job requeued in special exit state"),
    ],
)
def test_what_slurm_prints(printed: str, code: str, detail: str) -> None:
    told = reason_of(printed)
    assert (told.reason.code, told.detail, told.known) == (code, detail, True)


def test_the_sentence_of_nodes_that_are_down_is_resources() -> None:
    text = "Nodes_required_for_job_are_DOWN,_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions"
    told = reason_of(text)
    assert told.reason.code == "Resources"
    assert "drained" in told.reason.text
    assert told.reason.kind in WAITS


def test_a_code_of_a_newer_slurm_is_told_as_it_is() -> None:
    told = reason_of("QuantumEntanglement")
    assert (told.known, told.reason.code, told.reason.kind) == (False, "QuantumEntanglement", Kind.HELD)


@given(st.text(max_size=80))
def test_any_text_has_an_answer(text: str) -> None:
    assert reason_of(text).reason.text


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["ReqNodeNotAvail, UnavailableNodes:gpu16"], 0, "Slurm adds: UnavailableNodes:gpu16"),
        (["reqnodenotavail"], 0, "ReqNodeNotAvail: A node that it needs"),
        (["QOSMaxG"], 0, "QOSMaxGRESPerUser"),
        ([], 0, "JobHeldAdmin"),
        (["Depndency"], 2, "did you mean Dependency"),
        (["AssocGrpGRES", "-o", "json"], 0, '"command": "sacctmgr -p show assoc account=ACCOUNT tree"'),
        (["Priority", "-o", "name"], 0, "Priority"),
    ],
)
def test_the_command_explains_them(
    args: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    with pytest.raises(SystemExit) as ended:
        run(["slurm", "reasons", *args])
    out = capsys.readouterr()
    assert ended.value.code == code
    assert said in out.out + out.err
