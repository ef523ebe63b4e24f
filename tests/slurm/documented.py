"""One small cluster as each version of Slurm's data_parser tells it, by the OpenAPI documents that are published.

None of this was recorded: only v0.0.38 can be run here (`data/json-22.05`, from a real slurmrestd of Slurm 22.05).
"""

from __future__ import annotations

from typing import Any

from muster.slurm.records import Held, SlurmJob, SlurmNode, SlurmPartition, SlurmReservation

VERSIONS = ("v0.0.39", "v0.0.40", "v0.0.41", "v0.0.42", "v0.0.43", "v0.0.44")

NODES = (
    SlurmNode("a1", ("MIXED",), 60, 512_000, "gpu:h100:8", "gpu:h100:6(IDX:0-3,6-7)", ("h100", "ib"), ("gpu", "all"),
              reserved_memory_mib=8000, alloc_tres="cpu=24,mem=48G,gres/gpu=6"),
    SlurmNode("a2", ("IDLE", "DRAIN"), 60, 512_000, "gpu:h100:8", "gpu:h100:0(IDX:N/A)", ("h100", "ib"), ("gpu",),
              reason="bad fan", weight=5, reserved_memory_mib=8000),
)  # fmt: skip
JOBS = (
    SlurmJob(
        "7", "train", "ada", "research", "normal", "gpu", "RUNNING", "", 900, 1000.0, 1000.0, 2000.0, 5600.0, 3600.0,
        ran_s=500.0, requeue=True, nodes=(1, 0), cpus=24, tasks=6, tasks_per_node=6, cpus_per_task=4,
        tres={"cpu": 24, "mem": 49152, "node": 1, "gres/gpu": 6}, tres_per_node="gres/gpu:6", node_list="a1",
        memory_node_mib=49152, held=(Held("a1", 24, 49152, 6, (0, 1, 2, 3, 6, 7), "h100"),),
    ),
    SlurmJob(
        "8", "sweep", "bob", "research", "normal", "gpu,all", "PENDING", "Resources", 800, 1100.0, 1100.0, None, None,
        None, requeue=False, array_job="8", array_tasks="0-9", array_limit=2, nodes=(2, 4), cpus=16, tasks=16,
        cpus_per_task=1, memory_cpu_mib=2000, tres={"cpu": 16, "mem": 32000, "node": 2, "gres/gpu": 16},
        tres_per_node="gres/gpu:8", exclusive=True, features="ib", exc_nodes="a9", switches=1, licenses="matlab:2",
        dependency="afterok:7(unfulfilled)", comment="for the paper",
    ),
    SlurmJob(
        "9", "task", "bob", "research", "normal", "gpu", "COMPLETING", "", 800, 1100.0, 1100.0, 1200.0, 1300.0, 600.0,
        ran_s=100.0, array_job="8", array_tasks="0", nodes=(1, 0), tres={"cpu": 1, "node": 1}, node_list="a2",
        held=(Held("a2", 1, 1000),),
    ),
)  # fmt: skip
PARTITIONS = (
    SlurmPartition("gpu", ("a1", "a2"), "UP", max_time_s=86400.0, max_nodes=2, tier=10, qos="small"),
    SlurmPartition("all", ("a1",), "UP"),
)
RESERVATIONS = (SlurmReservation("maint", 9000.0, 9600.0, ("a2",), ("root",), (), ("MAINT", "SPEC_NODES")),)


def num(value: float | None = None, *, infinite: bool = False) -> dict[str, Any]:
    """A number as v0.0.39 and later tell it."""
    return {"set": value is not None, "infinite": infinite, "number": value or 0}


def meta(version: str) -> dict[str, Any]:
    """The part that names the version; v0.0.39 calls its parts otherwise."""
    if version == "v0.0.39":
        return {"plugin": {"type": "openapi/v0.0.39", "data_parser": "v0.0.39"}, "Slurm": {"release": "23.02.7"}}
    parser = f"data_parser/{version}"
    return {"plugin": {"type": "openapi/slurmctld", "data_parser": parser},
            "slurm": {"release": "25.05.1", "cluster": "lab"}}  # fmt: skip


def documents(version: str) -> dict[str, dict[str, Any]]:
    """The answers to nodes, jobs, partitions and reservations."""
    rest: dict[str, Any] = {"meta": meta(version), "errors": [], "warnings": []}
    times = {} if version == "v0.0.39" else {"last_update": num(2500)}
    return {
        "nodes": {"nodes": [_node(each) for each in NODES], **times, **rest},
        "jobs": {"jobs": [_job(each, version) for each in JOBS], **times, **rest},
        "partitions": {"partitions": [_partition(each) for each in PARTITIONS], **times, **rest},
        "reservations": {"reservations": [_reservation(each, version) for each in RESERVATIONS], **times, **rest},
    }


def _node(each: SlurmNode) -> dict[str, Any]:
    return {
        "name": each.name, "state": list(each.state), "cpus": 64, "effective_cpus": each.cpus, "sockets": 2,
        "real_memory": each.memory_mib, "specialized_memory": each.reserved_memory_mib, "gres": each.gres,
        "gres_used": each.gres_used, "features": list(each.features), "active_features": list(each.features),
        "partitions": list(each.partitions), "reason": each.reason, "weight": each.weight,
        "tres_used": each.alloc_tres, "free_mem": num(1), "external_sensors": {}, "power": {},
    }  # fmt: skip


def _job(each: SlurmJob, version: str) -> dict[str, Any]:
    states = {"COMPLETING": ["COMPLETED", "COMPLETING"]}.get(each.state, [each.state])
    old = version == "v0.0.39"
    seconds = (lambda value: int(value or 0)) if old else (lambda value: num(value or 0))  # pyright: ignore
    waiting_array = each.array_tasks == "0-9"
    shown = ",".join(f"{name}={count}{'M' if name == 'mem' else ''}" for name, count in each.tres.items())
    found: dict[str, Any] = {
        "job_id": int(each.id), "name": each.name, "user_name": each.user, "account": each.account, "qos": each.qos,
        "partition": each.partition, "cluster": "lab", "job_state": each.state if old else states,
        "state_reason": each.reason or "None", "state_description": "", "priority": num(each.priority),
        "submit_time": seconds(each.submitted_s), "eligible_time": seconds(each.eligible_s),
        "start_time": seconds(each.started_s), "end_time": seconds(each.end_s), "suspend_time": seconds(0),
        "pre_sus_time": seconds(0), "last_sched_evaluation": seconds(2500),
        "time_limit": num(each.limit_s // 60) if each.limit_s else num(infinite=True),
        "dependency": each.dependency, "requeue": each.requeue, "restart_cnt": each.restarts,
        "array_job_id": num(int(each.array_job or 0)),
        "array_task_id": num(0) if each.array_tasks == "0" else num(),
        "array_task_string": "0-9%2" if waiting_array else "", "array_max_tasks": num(each.array_limit),
        "het_job_id": num(0), "het_job_offset": num(0), "node_count": num(each.nodes[0]),
        "max_nodes": num(each.nodes[1]), "cpus": num(each.cpus), "tasks": num(each.tasks),
        "tasks_per_node": num(each.tasks_per_node), "cpus_per_task": num(each.cpus_per_task),
        "memory_per_cpu": num(each.memory_cpu_mib or None), "memory_per_node": num(each.memory_node_mib),
        "tres_req_str": shown, "tres_alloc_str": shown if each.held else "", "tres_per_node": each.tres_per_node,
        "shared": ["none"] if each.exclusive and not old else [], "features": each.features,
        "required_nodes": "", "excluded_nodes": each.exc_nodes, "nodes": each.node_list, "licenses": each.licenses,
        "resv_name": "", "preempt_time": seconds(0), "preemptable_time": seconds(0), "nice": 0,
        "comment": each.comment, "gres_detail": ["gpu:h100:6(IDX:0-3,6-7)"] if each.id == "7" else [],
        "required_switches" if version >= "v0.0.41" else "minimum_switches": each.switches,
    }  # fmt: skip
    if old:
        found["exclusive"] = ["true"] if each.exclusive else []
    if each.held:
        found["job_resources"] = _resources(each, version)
    return found


def _resources(each: SlurmJob, version: str) -> dict[str, Any]:
    if version >= "v0.0.41":
        allocation: list[dict[str, Any]] = [
            {"index": at, "name": one.node, "cpus": {"count": one.cpus, "used": 0},
             "memory": {"used": 0, "allocated": one.memory_mib}, "sockets": []}
            for at, one in enumerate(each.held)
        ]  # fmt: skip
        nodes: dict[str, Any] = {
            "count": len(each.held),
            "list": each.node_list,
            "whole": False,
            "allocation": allocation,
        }
        return {"select_type": ["CPU"], "nodes": nodes, "cpus": each.cpus, "threads_per_core": num(1)}
    return {
        "nodes": each.node_list, "allocated_hosts": len(each.held), "allocated_cores": 0,
        "allocated_nodes": [
            {"nodename": one.node, "cpus_used": 0, "memory_used": 0, "memory_allocated": one.memory_mib,
             "sockets": {"0": {"cores": {str(core): "allocated" for core in range(one.cpus)}}}}
            for one in each.held
        ],
    }  # fmt: skip


def _partition(each: SlurmPartition) -> dict[str, Any]:
    minutes = num(infinite=True) if each.max_time_s is None else num(each.max_time_s // 60)
    most = num(infinite=True) if each.max_nodes is None else num(each.max_nodes)
    return {
        "name": each.name, "nodes": {"configured": ",".join(each.nodes), "total": len(each.nodes)},
        "qos": {"allowed": "", "assigned": each.qos}, "maximums": {"time": minutes, "nodes": most},
        "priority": {"tier": each.tier, "job_factor": 1}, "partition": {"state": [each.state]},
    }  # fmt: skip


def _reservation(each: SlurmReservation, version: str) -> dict[str, Any]:
    times = (each.start_s, each.end_s)
    start, end = (int(time) if version == "v0.0.39" else num(time) for time in times)
    return {"name": each.name, "start_time": start, "end_time": end, "node_list": ",".join(each.nodes),
            "users": ",".join(each.users), "accounts": "", "flags": list(each.flags), "watts": {}}  # fmt: skip
