"""What Slurm tells as JSON (slurmrestd, ``squeue``, ``scontrol show nodes`` and ``sinfo`` with ``--json``), as records.

All that differs by version of its data_parser is here, in `ADAPTERS` and the structs below. v0.0.38 is that of Slurm
22.05 and was checked against it; the others follow the OpenAPI documents that slurmrestd publishes. Numbers are plain,
null, or ``{set, infinite, number}``; lists are lists or words with commas: both are taken wherever they stand.
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
from muster.slurm.hostlist import expand
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
from muster.slurm.restful_accounts import Association, Qos, assocs_of, qos_of
from muster.slurm.restful_values import Many, Num, Text, amount, many, whole
from muster.slurm.world import SlurmWorld

_VERSION = re.compile(r"v0\.0\.(\d+)")
_OF_SLURM = re.compile(
    r'"(?:gres_used|job_state|accrue_time|gres_detail|billing_weights|priority_tier|core_specializations|core_spec_cnt'
    r'|shares_raw|usage_factor|data_parser)"\s*:|"type"\s*:\s*"openapi\\?/'
)
_MARKS = ("COMPLETING", "STAGE_OUT", "CONFIGURING", "RESIZING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD",
          "SPECIAL_EXIT", "STOPPED", "REVOKED", "RESV_DEL_HOLD", "SIGNALING")  # fmt: skip
"""Of a job in several states the text names the first of these, else its base state."""


# -- as it is told ----------------------------------------------------------------------------------------------------


class _Plugin(Struct, frozen=True):
    type: Text = ""
    data_parser: Text = ""


class _Release(Struct, frozen=True):
    release: Text = ""
    cluster: Text = ""


class _Meta(Struct, frozen=True):
    plugin: _Plugin = _Plugin()
    Slurm: _Release = _Release()  # to v0.0.39
    slurm: _Release = _Release()


class _Fault(Struct, frozen=True):
    error: Text = ""
    description: Text = ""


class _Node(Struct, frozen=True):
    name: str
    state: Many = None
    state_flags: Many = None  # v0.0.38
    cpus: Num = 0
    effective_cpus: Num = None  # from v0.0.39
    real_memory: Num = 0
    specialized_memory: Num = None  # from v0.0.39
    gres: Text = ""
    gres_used: Text = ""
    features: Many = None
    active_features: Many = None
    partitions: Many = None
    reason: Text = ""
    weight: Num = 1
    tres_used: Text = ""


class _Cpus(Struct, frozen=True):
    count: Num = 0


class _Memory(Struct, frozen=True):
    allocated: Num = 0


class _Allocated(Struct, frozen=True):
    """What a job has on a node: ``sockets`` and so on to v0.0.40, the others from v0.0.41."""

    nodename: Text = ""
    sockets: Any = None
    memory_allocated: Num = None
    name: Text = ""
    cpus: _Cpus | int | None = None
    memory: _Memory | int | None = None


class _OnNodes(Struct, frozen=True):
    allocation: list[_Allocated] = []


class _Resources(Struct, frozen=True):
    nodes: _OnNodes | str | None = None  # to v0.0.40 their names
    allocated_nodes: list[_Allocated] | dict[str, Any] | None = None  # to v0.0.40


class _Job(Struct, frozen=True):
    job_id: int
    name: Text = ""
    user_name: Text = ""
    account: Text = ""
    qos: Text = ""
    partition: Text = ""
    cluster: Text = ""
    job_state: Many = None  # a list from v0.0.40
    state_reason: Text = ""
    state_description: Text = ""
    priority: Num = 0
    submit_time: Num = 0
    eligible_time: Num = 0
    start_time: Num = 0
    end_time: Num = 0
    suspend_time: Num = 0
    pre_sus_time: Num = 0
    last_sched_evaluation: Num = 0
    time_limit: Num = None
    dependency: Text = ""
    requeue: bool | None = True
    restart_cnt: Num = 0
    array_job_id: Num = 0
    array_task_id: Num = None
    array_task_string: Text = ""
    array_max_tasks: Num = 0
    het_job_id: Num = 0
    het_job_offset: Num = 0
    node_count: Num = 1
    max_nodes: Num = 0
    cpus: Num = 1
    tasks: Num = 1
    tasks_per_node: Num = 0
    cpus_per_task: Num = None
    memory_per_node: Num = None
    memory_per_cpu: Num = None
    tres_req_str: Text = ""
    tres_alloc_str: Text = ""
    tres_per_node: Text = ""
    tres_per_job: Text = ""
    tres_per_task: Text = ""
    tres_per_socket: Text = ""
    cpus_per_tres: Text = ""
    memory_per_tres: Text = ""
    shared: Many = None
    exclusive: Many = None  # v0.0.39
    features: Text = ""
    required_nodes: Text = ""
    excluded_nodes: Text = ""
    nodes: Text = ""
    job_resources: _Resources | None = None
    gres_detail: list[str] | None = None
    licenses: Text = ""
    resv_name: Text = ""
    minimum_switches: Num = None  # v0.0.39 and after
    required_switches: Num = None  # instead of it, later
    preempt_time: Num = 0
    preemptable_time: Num = 0
    nice: Num = 0
    comment: Text | dict[str, Any] = ""
    admin_comment: Text = ""


class _FlatPartition(Struct, frozen=True):
    """As v0.0.38 has it."""

    name: str
    nodes: Text = ""
    state: Text = ""
    flags: Many = None
    max_time_limit: Num = None
    maximum_nodes_per_job: Num = None
    priority_tier: Num = 1
    preemption_mode: Many = None
    qos: Text = ""

    def record(self) -> SlurmPartition:
        modes = [mode.upper() for mode in many(self.preemption_mode)]
        most = amount(self.maximum_nodes_per_job)
        return SlurmPartition(
            self.name,
            _hosts(self.nodes),
            state=(self.state or "UP").upper(),
            default="default" in many(self.flags),
            max_time_s=_minutes(self.max_time_limit),
            max_nodes=int(most) if most is not None and 0 <= most < math.inf else None,
            tier=whole(self.priority_tier, 1),
            preempt_mode=",".join("OFF" if mode == "DISABLED" else mode for mode in modes),
            qos=told(self.qos),
        )


class _Configured(Struct, frozen=True):
    configured: Text = ""


class _Assigned(Struct, frozen=True):
    assigned: Text = ""


class _Maximums(Struct, frozen=True):
    nodes: Num = None
    time: Num = None


class _Priority(Struct, frozen=True):
    tier: Num = 1


class _State(Struct, frozen=True):
    state: Many = None


class _Partition(Struct, frozen=True):
    """As v0.0.39 and later have it."""

    name: str
    nodes: _Configured = _Configured()
    qos: _Assigned = _Assigned()
    maximums: _Maximums = _Maximums()
    priority: _Priority = _Priority()
    partition: _State = _State()

    def record(self) -> SlurmPartition:
        most = amount(self.maximums.nodes)
        return SlurmPartition(
            self.name,
            _hosts(self.nodes.configured),
            state=(many(self.partition.state) or ("UP",))[0].upper(),
            max_time_s=_minutes(self.maximums.time),
            max_nodes=int(most) if most is not None and 0 <= most < math.inf else None,
            tier=whole(self.priority.tier, 1),
            qos=told(self.qos.assigned),
        )


class _Reservation(Struct, frozen=True):
    name: str
    start_time: Num = 0
    end_time: Num = None
    node_list: Text = ""
    users: Many = None
    accounts: Many = None
    flags: Many = None


class _Names(Struct, frozen=True):
    nodes: list[str] = []


class _Most(Struct, frozen=True):
    maximum: Num = 0


class _Features(Struct, frozen=True):
    total: Many = None
    active: Many = None


class _Gres(Struct, frozen=True):
    total: Text = ""


class _Why(Struct, frozen=True):
    description: Text = ""


class _Sinfo(Struct, frozen=True):
    """Nodes that are alike, in one partition, as ``sinfo --json`` has them from v0.0.39."""

    nodes: _Names = _Names()
    node: _State = _State()
    cpus: _Most = _Most()
    memory: _Most = _Most()
    weight: _Most = _Most()
    features: _Features = _Features()
    gres: _Gres = _Gres()
    reason: _Why = _Why()
    partition: _Partition | None = None


class _Head(Struct, frozen=True):
    meta: _Meta = _Meta()


class _Answer(_Head, frozen=True):
    errors: list[_Fault | str] | None = None
    nodes: list[_Node] | None = None
    jobs: list[_Job] | None = None
    reservations: list[_Reservation] | None = None
    sinfo: list[_Sinfo] | None = None
    associations: list[Association] | None = None
    QOS: list[Qos] | None = None  # v0.0.38
    qos: list[Qos] | None = None
    last_update: Num = None
    last_backfill: Num = None


class _FlatAnswer(_Answer, frozen=True):
    partitions: list[_FlatPartition] | None = None


class _NestedAnswer(_Answer, frozen=True):
    partitions: list[_Partition] | None = None


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
    answer: type[_FlatAnswer] | type[_NestedAnswer]
    lacks: Mapping[str, str]


_LACKS_38 = {
    "jobs": "of jobs --switches and CPUs a task: taken as none, and as CPUs divided by tasks",
    "nodes": "of nodes the CPUs and the memory that are kept for the system: taken as none",
}
_LACKS = {"partitions": "of partitions the default and PreemptMode: that of the cluster is taken"}

ADAPTERS: Final[Mapping[str, Adapter]] = {
    each.version: each
    for each in (
        Adapter("v0.0.38", "22.05", _FlatAnswer, _LACKS_38),
        Adapter("v0.0.39", "23.02", _NestedAnswer, _LACKS),
        Adapter("v0.0.40", "23.11", _NestedAnswer, _LACKS),
        Adapter("v0.0.41", "24.05", _NestedAnswer, _LACKS),
        Adapter("v0.0.42", "24.11", _NestedAnswer, _LACKS),
        Adapter("v0.0.43", "25.05", _NestedAnswer, _LACKS),
        Adapter("v0.0.44", "25.11", _NestedAnswer, _LACKS),
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
        adapter = _adapter_of(msgspec.json.decode(data, type=_Head).meta.plugin)
        answer: _FlatAnswer | _NestedAnswer = msgspec.json.decode(data, type=adapter.answer)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        what = f"is not what Slurm tells as JSON ({error})"
        raise InputError(what, hint="write it once more; a file that ends early is the usual cause") from None
    now_s = max((_time(each) or 0.0 for each in (answer.last_update, answer.last_backfill)), default=0.0)
    if answer.jobs:
        now_s = max(now_s, max(_time(job.last_sched_evaluation) or 0.0 for job in answer.jobs))
    for kind, records in _records(answer, now_s).items():
        kept: list[Any] = getattr(world, kind)
        known = {_key(each) for each in kept}
        kept += [each for each in records if _key(each) not in known]
        if records and kind in adapter.lacks:
            world.missing[f"JSON of {kind}"] = f"{adapter.version} does not tell {adapter.lacks[kind]}"
    if isinstance(answer, _NestedAnswer) and answer.partitions:
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


def _adapter_of(plugin: _Plugin) -> Adapter:
    match = _VERSION.search(plugin.data_parser or "") or _VERSION.search(plugin.type or "")
    if match is None:
        raise InputError("does not say of which version of Slurm's data_parser it is", hint="keep its part `meta`")
    if match[0] not in ADAPTERS:
        hint = f"{UNDERSTOOD} are: --json={max(ADAPTERS)}, where this Slurm has it, or the commands' text"
        raise InputError(f"is of data_parser {match[0]}, which is not understood", hint=hint)
    return ADAPTERS[match[0]]


def _name(world: SlurmWorld, answer: _Answer) -> None:
    releases = (answer.meta.Slurm, answer.meta.slurm)
    names = [told(each.cluster) for each in releases] + [told(job.cluster) for job in (answer.jobs or ())[:1]]
    world.cluster = world.cluster or next((name for name in names if name), "")
    world.version = world.version or next((each.release for each in releases if each.release), "")


def _records(answer: _FlatAnswer | _NestedAnswer, now_s: float) -> dict[str, list[Any]]:
    grouped = _grouped(answer.sinfo or ())
    partitions: Sequence[_FlatPartition | _Partition] = answer.partitions or ()
    return {
        "nodes": [_node_of(each) for each in answer.nodes or ()] + grouped[0],
        "jobs": [_job_of(each, now_s) for each in answer.jobs or ()],
        "partitions": [each.record() for each in partitions] + grouped[1],
        "reservations": [_reservation_of(each) for each in answer.reservations or ()],
    }


def _key(record: SlurmNode | SlurmJob | SlurmPartition | SlurmReservation) -> tuple[str, str]:
    return (record.id, record.array_tasks) if isinstance(record, SlurmJob) else (record.name, "")


# -- records ----------------------------------------------------------------------------------------------------------


def _node_of(each: _Node) -> SlurmNode:
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


def _job_of(each: _Job, now_s: float) -> SlurmJob:
    state = _state(many(each.job_state))
    tasks = told(each.array_task_string)
    one = amount(each.array_task_id)
    count = max(1, whole(each.tasks, 1))
    cpus = whole(each.cpus, 1)
    requested = tres_of(each.tres_req_str)
    array = whole(each.array_job_id)
    het = whole(each.het_job_id)
    preempt_s = _time(each.preempt_time)
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
        submitted_s=_time(each.submit_time) or 0.0,
        eligible_s=_time(each.eligible_time),
        started_s=_time(each.start_time),
        end_s=_time(each.end_time),
        limit_s=_minutes(each.time_limit),
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
        preempt_s=(_time(each.preemptable_time) or preempt_s) if preempt_s else None,
        nice=whole(each.nice),
        comment=told(each.comment) if isinstance(each.comment, str) else "",
        admin_comment=told(each.admin_comment),
    )


def _held(each: _Job, state: str) -> Iterator[Held]:
    """What a job has node by node; nothing where it has GPUs and the answer does not tell which: no details."""
    found = each.job_resources
    nodes = (found.nodes.allocation if isinstance(found.nodes, _OnNodes) else found.allocated_nodes) if found else None
    if not found or not isinstance(nodes, list):
        return
    gres = each.gres_detail or []
    if not gres and state in ("RUNNING", "SUSPENDED", "CONFIGURING") and "gres/gpu" in (each.tres_alloc_str or ""):
        return
    cores = [_cores(node.sockets) for node in nodes]
    # cores are told to v0.0.40, and a core may be two CPUs
    scale = max(1, whole(each.cpus) // max(1, sum(cores)))
    for at, node in enumerate(nodes):
        cpus = whole(node.cpus.count) if isinstance(node.cpus, _Cpus) else cores[at] * scale
        memory = node.memory.allocated if isinstance(node.memory, _Memory) else node.memory_allocated
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


def _reservation_of(each: _Reservation) -> SlurmReservation:
    flags = many(each.flags)
    return SlurmReservation(
        each.name,
        _time(each.start_time) or 0.0,
        _time(each.end_time) or math.inf,
        _hosts(each.node_list),
        many(each.users),
        many(each.accounts),
        flags,
        partial="PARTIAL_NODES" in flags or "FLEX" in flags,
    )


def _grouped(rows: Sequence[_Sinfo]) -> tuple[list[SlurmNode], list[SlurmPartition]]:
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


def _ran_s(each: _Job, state: str, now_s: float) -> float:
    start, suspended, before = (
        _time(value) or 0.0 for value in (each.start_time, each.suspend_time, each.pre_sus_time)
    )
    if state == "PENDING" or not start:
        return 0.0
    if state == "SUSPENDED":
        return before
    end = now_s if state in ("RUNNING", "CONFIGURING") else _time(each.end_time) or start
    return max(0.0, end - suspended + before if suspended else end - start)


def _time(value: Num) -> float | None:
    """Seconds since 1970; None: not told, or never."""
    found = amount(value)
    return found if found and 0 < found < math.inf else None


def _minutes(value: Num) -> float | None:
    found = amount(value)
    return 60.0 * found if found is not None and 0 < found < math.inf else None


def _hosts(text: str | None) -> tuple[str, ...]:
    return expand(told(text)) if told(text) else ()
