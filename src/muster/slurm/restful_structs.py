"""The forms of what Slurm tells as JSON, by version of its data_parser: fields that are not here are passed over.

Sources: the OpenAPI documents that slurmrestd publishes, https://slurm.schedmd.com/rest_api.html.
"""

from __future__ import annotations

import math
from typing import Any

from msgspec import Struct

from muster.slurm.records import SlurmPartition, told
from muster.slurm.restful_accounts import Association, Qos
from muster.slurm.restful_values import Many, Num, Text, amount, hosts, many, minutes, whole


class JsonPlugin(Struct, frozen=True):
    """The part of slurmrestd or of a command that wrote an answer, with the version of its data_parser."""

    type: Text = ""
    data_parser: Text = ""


class JsonRelease(Struct, frozen=True):
    """Slurm's release and the cluster's name."""

    release: Text = ""
    cluster: Text = ""


class JsonMeta(Struct, frozen=True):
    """What an answer says of itself."""

    plugin: JsonPlugin = JsonPlugin()
    Slurm: JsonRelease = JsonRelease()  # to v0.0.39
    slurm: JsonRelease = JsonRelease()


class JsonFault(Struct, frozen=True):
    """What an answer complains of."""

    error: Text = ""
    description: Text = ""


class JsonNode(Struct, frozen=True):
    """A node."""

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


class JsonCpus(Struct, frozen=True):
    """CPUs allocated on a node, from v0.0.41."""

    count: Num = 0


class JsonMemory(Struct, frozen=True):
    """Memory allocated on a node, in MiB, from v0.0.41."""

    allocated: Num = 0


class JsonAllocated(Struct, frozen=True):
    """What a job has on a node: ``sockets`` and so on to v0.0.40, the others from v0.0.41."""

    nodename: Text = ""
    sockets: Any = None
    memory_allocated: Num = None
    name: Text = ""
    cpus: JsonCpus | int | None = None
    memory: JsonMemory | int | None = None


class JsonOnNodes(Struct, frozen=True):
    """What a job has on each node, from v0.0.41."""

    allocation: list[JsonAllocated] = []


class JsonResources(Struct, frozen=True):
    """What a job that runs has."""

    nodes: JsonOnNodes | str | None = None  # to v0.0.40 their names
    allocated_nodes: list[JsonAllocated] | dict[str, Any] | None = None  # to v0.0.40


class JsonJob(Struct, frozen=True):
    """A job. Times are seconds since 1970, limits minutes, memory MiB."""

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
    job_resources: JsonResources | None = None
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


class JsonFlatPartition(Struct, frozen=True):
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
        """It as a record."""
        modes = [mode.upper() for mode in many(self.preemption_mode)]
        most = amount(self.maximum_nodes_per_job)
        return SlurmPartition(
            self.name,
            hosts(self.nodes),
            state=(self.state or "UP").upper(),
            default="default" in many(self.flags),
            max_time_s=minutes(self.max_time_limit),
            max_nodes=int(most) if most is not None and 0 <= most < math.inf else None,
            tier=whole(self.priority_tier, 1),
            preempt_mode=",".join("OFF" if mode == "DISABLED" else mode for mode in modes),
            qos=told(self.qos),
        )


class JsonConfigured(Struct, frozen=True):
    """The nodes of a partition, as a hostlist."""

    configured: Text = ""


class JsonAssigned(Struct, frozen=True):
    """The QOS of a partition."""

    assigned: Text = ""


class JsonMaximums(Struct, frozen=True):
    """The limits of a partition: nodes, and minutes."""

    nodes: Num = None
    time: Num = None


class JsonPriority(Struct, frozen=True):
    """The PriorityTier of a partition."""

    tier: Num = 1


class JsonState(Struct, frozen=True):
    """The states of a node or of a partition."""

    state: Many = None


class JsonPartition(Struct, frozen=True):
    """As v0.0.39 and later have it."""

    name: str
    nodes: JsonConfigured = JsonConfigured()
    qos: JsonAssigned = JsonAssigned()
    maximums: JsonMaximums = JsonMaximums()
    priority: JsonPriority = JsonPriority()
    partition: JsonState = JsonState()

    def record(self) -> SlurmPartition:
        """It as a record."""
        most = amount(self.maximums.nodes)
        return SlurmPartition(
            self.name,
            hosts(self.nodes.configured),
            state=(many(self.partition.state) or ("UP",))[0].upper(),
            max_time_s=minutes(self.maximums.time),
            max_nodes=int(most) if most is not None and 0 <= most < math.inf else None,
            tier=whole(self.priority.tier, 1),
            qos=told(self.qos.assigned),
        )


class JsonReservation(Struct, frozen=True):
    """An advance reservation; times in seconds since 1970."""

    name: str
    start_time: Num = 0
    end_time: Num = None
    node_list: Text = ""
    users: Many = None
    accounts: Many = None
    flags: Many = None


class JsonNames(Struct, frozen=True):
    """Names of nodes."""

    nodes: list[str] = []


class JsonMost(Struct, frozen=True):
    """The most of a number among nodes that are alike."""

    maximum: Num = 0


class JsonFeatures(Struct, frozen=True):
    """Features of nodes that are alike."""

    total: Many = None
    active: Many = None


class JsonGres(Struct, frozen=True):
    """GRES of nodes that are alike."""

    total: Text = ""


class JsonWhy(Struct, frozen=True):
    """Why nodes are down or drained."""

    description: Text = ""


class JsonSinfo(Struct, frozen=True):
    """Nodes that are alike, in one partition, as ``sinfo --json`` has them from v0.0.39."""

    nodes: JsonNames = JsonNames()
    node: JsonState = JsonState()
    cpus: JsonMost = JsonMost()
    memory: JsonMost = JsonMost()
    weight: JsonMost = JsonMost()
    features: JsonFeatures = JsonFeatures()
    gres: JsonGres = JsonGres()
    reason: JsonWhy = JsonWhy()
    partition: JsonPartition | None = None


class JsonHead(Struct, frozen=True):
    """The part of an answer that tells its version."""

    meta: JsonMeta = JsonMeta()


class JsonAnswer(JsonHead, frozen=True):
    """All that an answer may hold, of any version but the partitions."""

    errors: list[JsonFault | str] | None = None
    nodes: list[JsonNode] | None = None
    jobs: list[JsonJob] | None = None
    reservations: list[JsonReservation] | None = None
    sinfo: list[JsonSinfo] | None = None
    associations: list[Association] | None = None
    QOS: list[Qos] | None = None  # v0.0.38
    qos: list[Qos] | None = None
    last_update: Num = None
    last_backfill: Num = None


class JsonFlatAnswer(JsonAnswer, frozen=True):
    """An answer of v0.0.38."""

    partitions: list[JsonFlatPartition] | None = None


class JsonNestedAnswer(JsonAnswer, frozen=True):
    """An answer of v0.0.39 or later."""

    partitions: list[JsonPartition] | None = None
