"""What Slurm tells as JSON (slurmrestd, ``squeue``, ``scontrol show nodes`` and ``sinfo`` with ``--json``), as records.

All that differs by version of its data_parser is in `ADAPTERS` and the forms of `restful_structs`. v0.0.38 is that of
Slurm 22.05 and was checked against it; the others follow the OpenAPI documents that slurmrestd publishes. Numbers are
plain, null, or ``{set, infinite, number}``; lists are lists or words with commas: both are taken wherever they stand.
Sources: https://slurm.schedmd.com/rest_api.html, https://slurm.schedmd.com/rest_clients.html.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from muster.errors import InputError
from muster.slurm.records import (
    Held,
    SlurmJob,
    SlurmNode,
    SlurmPartition,
    SlurmReservation,
    gpus_held,
    number,
    states_of,
    told,
    tres_of,
)
from muster.slurm.restful_accounts import assocs_of, qos_of
from muster.slurm.restful_structs import (
    JsonAnswer,
    JsonCpus,
    JsonFlatAnswer,
    JsonFlatPartition,
    JsonHead,
    JsonJob,
    JsonMemory,
    JsonNestedAnswer,
    JsonNode,
    JsonOnNodes,
    JsonPartition,
    JsonPlugin,
    JsonReservation,
    JsonSinfo,
)
from muster.slurm.restful_values import amount, hosts, many, minutes, moment, whole
from muster.slurm.world import SlurmWorld

_VERSION = re.compile(r"v0\.0\.(\d+)")
_OF_SLURM = re.compile(
    r'"(?:gres_used|job_state|accrue_time|gres_detail|billing_weights|priority_tier|core_specializations|core_spec_cnt'
    r'|shares_raw|usage_factor|data_parser)"\s*:|"type"\s*:\s*"openapi\\?/'
)
_MARKS = ("COMPLETING", "STAGE_OUT", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
          "SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING")  # fmt: skip
"""Of a job in several states the text names the first of these, else its base state."""


# -- by version -------------------------------------------------------------------------------------------------------


class Adapter(Struct, frozen=True):
    """How a version of the data_parser is read.

    Attributes:
        version: such as ``v0.0.40``.
        since: the first Slurm that has it.
        answer: the struct of its answers.
        lacks: what it does not tell of a kind of records, besides the commands' text; what is taken instead.
    """

    version: str
    since: str
    answer: type[JsonFlatAnswer] | type[JsonNestedAnswer]
    lacks: Mapping[str, str]


_LACKS_38 = {
    "jobs": "of jobs --switches and CPUs a task: taken as none, and as CPUs divided by tasks",
    "nodes": "of nodes the CPUs and the memory that are kept for the system: taken as none",
}
_LACKS = {"partitions": "of partitions the default and PreemptMode: that of the cluster is taken"}

ADAPTERS: Final[Mapping[str, Adapter]] = {
    each.version: each
    for each in (
        Adapter("v0.0.38", "22.05", JsonFlatAnswer, _LACKS_38),
        Adapter("v0.0.39", "23.02", JsonNestedAnswer, _LACKS),
        Adapter("v0.0.40", "23.11", JsonNestedAnswer, _LACKS),
        Adapter("v0.0.41", "24.05", JsonNestedAnswer, _LACKS),
        Adapter("v0.0.42", "24.11", JsonNestedAnswer, _LACKS),
        Adapter("v0.0.43", "25.05", JsonNestedAnswer, _LACKS),
        Adapter("v0.0.44", "25.11", JsonNestedAnswer, _LACKS),
    )
}
UNDERSTOOD: Final = f"{min(ADAPTERS)} to {max(ADAPTERS)}"


def newest_of(paths: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """The newest version understood among the paths of an OpenAPI document (empty: none is), and all that it has."""
    found = {match[0] for path in paths if path.startswith("/slurm/") and (match := _VERSION.search(path))}
    ordered = sorted(found, key=lambda version: int(version.rpartition(".")[2]))
    return max((version for version in ordered if version in ADAPTERS), default=""), tuple(ordered)


def holds_json(text: str) -> bool:
    """Whether a text, or its beginning, is what Slurm tells as JSON."""
    return text.lstrip()[:1] == "{" and _OF_SLURM.search(text[:65536]) is not None


class Told(Struct, frozen=True):
    """What an answer says besides its records: its version, what it complains of, and when it was, where it says."""

    version: str
    errors: tuple[str, ...]
    now_s: float = 0.0


def fill(world: SlurmWorld, data: bytes) -> Told:
    """Add the records of an answer to a world, except those that it has; note what its version does not tell.

    Raises `InputError` where it is no answer, or of a version that is not understood.
    """
    try:
        adapter = _adapter_of(msgspec.json.decode(data, type=JsonHead).meta.plugin)
        answer: JsonFlatAnswer | JsonNestedAnswer = msgspec.json.decode(data, type=adapter.answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = f"is not what Slurm tells as JSON ({error})"
        raise InputError(what, hint="write it once more; a file that ends early is the usual cause") from None
    now_s = max((moment(each) or 0.0 for each in (answer.last_update, answer.last_backfill)), default=0.0)
    if answer.jobs:
        now_s = max(now_s, max(moment(job.last_sched_evaluation) or 0.0 for job in answer.jobs))
    for kind, records in _records(answer, now_s).items():
        kept: list[Any] = getattr(world, kind)
        known = {_key(each) for each in kept}
        kept += [each for each in records if _key(each) not in known]
        if records and kind in adapter.lacks:
            world.missing[f"JSON of {kind}"] = f"{adapter.version} does not tell {adapter.lacks[kind]}"
    if isinstance(answer, JsonNestedAnswer) and answer.partitions:
        has_states = any(many(each.partition.state) for each in answer.partitions)
        if not has_states:
            world.missing["JSON of partition states"] = f"{adapter.version} does not tell them: taken as UP"
    _name(world, answer)
    accounts = [each for each in answer.associations or () if not world.cluster or each.cluster in ("", world.cluster)]
    world.associations = world.associations or assocs_of(accounts)
    world.qos = world.qos or qos_of(answer.QOS or answer.qos or ())
    faults = (each if isinstance(each, str) else told(each.description) or told(each.error)
              for each in answer.errors or ())  # fmt: skip
    return Told(adapter.version, tuple(each for each in faults if each), now_s)


def _adapter_of(plugin: JsonPlugin) -> Adapter:
    match = _VERSION.search(plugin.data_parser or "") or _VERSION.search(plugin.type or "")
    if match is None:
        raise InputError("does not say of which version of Slurm's data_parser it is", hint="keep its part `meta`")
    if match[0] not in ADAPTERS:
        hint = f"{UNDERSTOOD} are: --json={max(ADAPTERS)}, where this Slurm has it, or the commands' text"
        raise InputError(f"is of data_parser {match[0]}, which is not understood", hint=hint)
    return ADAPTERS[match[0]]


def _name(world: SlurmWorld, answer: JsonAnswer) -> None:
    releases = (answer.meta.Slurm, answer.meta.slurm)
    names = [told(each.cluster) for each in releases] + [told(job.cluster) for job in (answer.jobs or ())[:1]]
    world.cluster = world.cluster or next((name for name in names if name), "")
    world.version = world.version or next((each.release for each in releases if each.release), "")


def _records(answer: JsonFlatAnswer | JsonNestedAnswer, now_s: float) -> dict[str, list[Any]]:
    grouped = _grouped(answer.sinfo or ())
    partitions: Sequence[JsonFlatPartition | JsonPartition] = answer.partitions or ()
    return {
        "nodes": [_node_of(each) for each in answer.nodes or ()] + grouped[0],
        "jobs": [_job_of(each, now_s) for each in answer.jobs or ()],
        "partitions": [each.record() for each in partitions] + grouped[1],
        "reservations": [_reservation_of(each) for each in answer.reservations or ()],
    }


def _key(record: SlurmNode | SlurmJob | SlurmPartition | SlurmReservation) -> tuple[str, str]:
    return (record.id, record.array_tasks) if isinstance(record, SlurmJob) else (record.name, "")


# -- records ----------------------------------------------------------------------------------------------------------


def _node_of(each: JsonNode) -> SlurmNode:
    return SlurmNode(
        each.name,
        states_of("+".join((*many(each.state), *many(each.state_flags)))),
        cpus=whole(each.effective_cpus) or whole(each.cpus),
        memory_mib=whole(each.real_memory),
        gres=told(each.gres),
        gres_used=told(each.gres_used),
        features=many(each.active_features) or many(each.features),
        partitions=many(each.partitions),
        reason=told(each.reason),
        weight=whole(each.weight, 1),
        reserved_memory_mib=whole(each.specialized_memory),
        alloc_tres=told(each.tres_used),
    )


def _job_of(each: JsonJob, now_s: float) -> SlurmJob:
    state = _state(many(each.job_state))
    tasks = told(each.array_task_string)
    one = amount(each.array_task_id)
    count = max(1, whole(each.tasks, 1))
    cpus = whole(each.cpus, 1)
    requested = tres_of(each.tres_req_str)
    array = whole(each.array_job_id)
    het = whole(each.het_job_id)
    preempt_s = moment(each.preempt_time)
    return SlurmJob(
        str(each.job_id),
        name=each.name or "",
        user=told(each.user_name),
        account=told(each.account),
        qos=told(each.qos),
        partition=told(each.partition),
        state=state,
        reason=(told(each.state_description) or told(each.state_reason)).replace("_", " "),
        priority=whole(each.priority),
        submitted_s=moment(each.submit_time) or 0.0,
        eligible_s=moment(each.eligible_time),
        started_s=moment(each.start_time),
        end_s=moment(each.end_time),
        limit_s=minutes(each.time_limit),
        ran_s=_ran_s(each, state, now_s),
        dependency=told(each.dependency),
        requeue=bool(each.requeue),
        restarts=whole(each.restart_cnt),
        array_job=str(array) if array else "",
        array_tasks=tasks.partition("%")[0] or (str(int(one)) if array and one is not None else ""),
        array_limit=whole(each.array_max_tasks) or number(tasks.partition("%")[2]),
        het_job=str(het) if het else "",
        het_offset=whole(each.het_job_offset) if het else 0,
        nodes=(max(1, whole(each.node_count, 1)), whole(each.max_nodes)),
        cpus=cpus,
        tasks=count,
        tasks_per_node=whole(each.tasks_per_node),
        cpus_per_task=whole(each.cpus_per_task) or max(1, requested.get("cpu", cpus) // count),
        memory_node_mib=whole(each.memory_per_node),
        memory_cpu_mib=whole(each.memory_per_cpu),
        tres=tres_of(told(each.tres_alloc_str) or each.tres_req_str),
        tres_per_node=told(each.tres_per_node),
        tres_per_job=told(each.tres_per_job),
        tres_per_task=told(each.tres_per_task),
        tres_per_socket=told(each.tres_per_socket),
        cpus_per_tres=told(each.cpus_per_tres),
        memory_per_tres=told(each.memory_per_tres),
        exclusive="none" in many(each.shared) or "true" in many(each.exclusive),
        features=told(each.features),
        req_nodes=told(each.required_nodes),
        exc_nodes=told(each.excluded_nodes),
        node_list=told(each.nodes),
        held=tuple(_held(each, state)),
        licenses=told(each.licenses),
        reservation=told(each.resv_name),
        switches=whole(each.required_switches) or whole(each.minimum_switches),
        preempt_s=(moment(each.preemptable_time) or preempt_s) if preempt_s else None,
        nice=whole(each.nice),
        comment=told(each.comment) if isinstance(each.comment, str) else "",
        admin_comment=told(each.admin_comment),
    )


def _held(each: JsonJob, state: str) -> Iterator[Held]:
    """What a job has node by node; nothing where it has GPUs and the answer does not tell which: no details."""
    found = each.job_resources
    nodes = (
        (found.nodes.allocation if isinstance(found.nodes, JsonOnNodes) else found.allocated_nodes) if found else None
    )
    if not found or not isinstance(nodes, list):
        return
    gres = each.gres_detail or []
    if not gres and state in ("RUNNING", "SUSPENDED", "CONFIGURING") and "gres/gpu" in (each.tres_alloc_str or ""):
        return
    cores = [_cores(node.sockets) for node in nodes]
    # cores are told to v0.0.40, and a core may be two CPUs
    scale = max(1, whole(each.cpus) // max(1, sum(cores)))
    for at, node in enumerate(nodes):
        cpus = whole(node.cpus.count) if isinstance(node.cpus, JsonCpus) else cores[at] * scale
        memory = node.memory.allocated if isinstance(node.memory, JsonMemory) else node.memory_allocated
        name = told(node.nodename) or told(node.name)
        yield Held(name, cpus, whole(memory), *gpus_held(gres[at] if at < len(gres) else ""))


def _cores(sockets: object) -> int:
    """How many cores are allocated in ``{"0": {"cores": {"0": "allocated"}}}``."""
    found = 0
    for socket in _inner(sockets).values():
        found += sum(str(core).startswith("allocated") for core in _inner(_inner(socket).get("cores")).values())
    return found


def _inner(value: object) -> dict[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _reservation_of(each: JsonReservation) -> SlurmReservation:
    flags = many(each.flags)
    return SlurmReservation(
        each.name,
        moment(each.start_time) or 0.0,
        moment(each.end_time) or math.inf,
        hosts(each.node_list),
        many(each.users),
        many(each.accounts),
        flags,
        partial="PARTIAL_NODES" in flags or "FLEX" in flags,
    )


def _grouped(rows: Sequence[JsonSinfo]) -> tuple[list[SlurmNode], list[SlurmPartition]]:
    """Nodes and partitions of ``sinfo --json``; which GPUs are used it tells of all alike together: not taken."""
    nodes: dict[str, SlurmNode] = {}
    partitions: dict[str, SlurmPartition] = {}
    for row in rows:
        if row.partition is not None:
            partitions.setdefault(row.partition.name, row.partition.record())
        within = (row.partition.name,) if row.partition is not None else ()
        for name in row.nodes.nodes:
            before = nodes[name].partitions if name in nodes else ()
            nodes[name] = SlurmNode(
                name,
                states_of("+".join(many(row.node.state))),
                cpus=whole(row.cpus.maximum),
                memory_mib=whole(row.memory.maximum),
                gres=told(row.gres.total),
                features=many(row.features.active) or many(row.features.total),
                partitions=(*before, *within),
                reason=told(row.reason.description),
                weight=whole(row.weight.maximum, 1),
            )
    return list(nodes.values()), list(partitions.values())


def _state(states: Sequence[str]) -> str:
    return next((mark for mark in _MARKS if mark in states), states[0] if states else "")


def _ran_s(each: JsonJob, state: str, now_s: float) -> float:
    start, suspended, before = (
        moment(value) or 0.0 for value in (each.start_time, each.suspend_time, each.pre_sus_time)
    )
    if state == "PENDING" or not start:
        return 0.0
    if state == "SUSPENDED":
        return before
    end = now_s if state in ("RUNNING", "CONFIGURING") else moment(each.end_time) or start
    return max(0.0, end - suspended + before if suspended else end - start)
