"""Read a whole Slurm by its commands. What may not be read or is not there is told, and reading goes on without it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from muster.backends.slurm.commands import Commands
from muster.errors import ClusterError, InputError
from muster.slurm.records import (
    config_of,
    job_of,
    lines_of,
    node_of,
    partition_of,
    reservation_of,
    switch_of,
)
from muster.slurm.records_tables import assocs_of, qos_of
from muster.slurm.world import SlurmWorld

_SHOWS: dict[str, tuple[str, ...]] = {
    "nodes": ("scontrol", "-o", "-d", "show", "nodes"),
    "jobs": ("scontrol", "-o", "-d", "show", "jobs"),
    "partitions": ("scontrol", "-o", "show", "partitions"),
    "reservations": ("scontrol", "-o", "show", "reservations"),
    "switches": ("scontrol", "-o", "show", "topology"),
}
_NEEDED = ("nodes", "jobs", "partitions")


def read_commands(warn: Callable[[str], None], commands: Commands | None = None) -> SlurmWorld:
    """All of a Slurm, as its commands tell it now.

    Args:
        warn: is told, in a sentence each, what cannot be read and what that costs.
        commands: how they are run; None: on this machine, by its environment.

    Raises:
        InputError: SLURM_CONF is wrong.
        ClusterError: there is no Slurm here, the controller does not answer, or it refuses what is needed.
    """
    commands = commands or Commands()
    commands.check()
    config = config_of(commands.run("scontrol", "show", "config"))
    world = SlurmWorld(
        config.get("ClusterName", ""), config=config, version=config.get("SLURM_VERSION", ""), now_s=time.time()
    )
    shows = dict(_SHOWS)
    if config.get("TopologyPlugin", "") in ("", "topology/none", "topology/default", "topology/flat"):
        del shows["switches"]
    if config.get("AccountingStorageType", "").endswith("slurmdbd"):
        named = (f"cluster={world.cluster}",)
        shows["associations"] = ("sacctmgr", "-P", "show", "assoc", *named, "tree")
        shows["QOS"] = ("sacctmgr", "-P", "show", "qos")
    else:
        world.missing["associations"] = "no accounting (AccountingStorageType), so partitions are the queues"
    with ThreadPoolExecutor(len(shows)) as pool:
        asked: dict[str, Future[str]] = {what: pool.submit(commands.run, *show) for what, show in shows.items()}
    texts: dict[str, str] = {}
    for what, answer in asked.items():
        try:
            texts[what] = answer.result()
        except (ClusterError, InputError) as error:
            if what in _NEEDED and "does not answer" in str(error):
                raise
            world.missing[what] = str(error)
            warn(f"{what} cannot be read ({error}); the answers go on without.")
    _fill(world, texts)
    if not world.nodes:
        raise ClusterError(
            "Slurm shows no nodes", hint="sinfo -N; PrivateData=nodes hides them from others than operators"
        )
    _say_hidden(world, warn)
    return world


def _fill(world: SlurmWorld, texts: dict[str, str]) -> None:
    def shown(what: str, key: str) -> list[dict[str, str]]:
        return list(lines_of(texts.get(what, ""), key))

    world.nodes = [node_of(fields) for fields in shown("nodes", "NodeName")]
    world.jobs = [job_of(fields) for fields in shown("jobs", "JobId")]
    world.partitions = [partition_of(fields) for fields in shown("partitions", "PartitionName")]
    world.reservations = [reservation_of(fields) for fields in shown("reservations", "ReservationName")]
    world.switches = [switch_of(each) for key in ("SwitchName", "BlockName") for each in shown("switches", key)]
    world.associations = assocs_of(texts.get("associations", ""))
    world.qos = qos_of(texts.get("QOS", ""))


def _say_hidden(world: SlurmWorld, warn: Callable[[str], None]) -> None:
    """Say what PrivateData may hide from this user."""
    hidden = {part.strip() for part in world.config.get("PrivateData", "").split(",")} & {"jobs", "nodes"}
    if hidden and os.geteuid() != 0:
        many = " and ".join(sorted(hidden))
        warn(f"PrivateData hides {many} of others from users: what they hold is not seen, unless you are an operator.")
