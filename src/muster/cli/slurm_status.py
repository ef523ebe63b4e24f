"""`muster slurm status`: what is steered at present, and by whom."""

from __future__ import annotations

import time
from typing import Any

import click

from muster.cli.output import Column, emit, output_option, say
from muster.cli.slurm_steer import cluster_option, stamp, steering

SCHEMA = "muster.slurm.steered/1"
EPILOG = """\b
Examples:
  muster slurm status
  muster slurm status -o json
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@cluster_option
@output_option
def command(cluster: str, state: str, output: str) -> None:
    """Show the jobs and reservations that Muster changed, what was before, and which process steers."""
    from muster.engine.config import Config
    from muster.service.steering.memory import holder
    from muster.slurm.hostlist import compress
    from muster.slurm.steering.marks import FIELDS, PREFIX, is_steered, values
    from muster.slurm.steering.target import How

    one, path = steering(cluster, state, How(), Config())
    _, scene, memory, _, _ = one.look()
    records: list[dict[str, Any]] = []
    for name, job in scene.jobs.items():
        if not is_steered(job, memory.marks.get(name)):
            continue
        own, now = scene.own(name), values(job)
        for field, text in FIELDS.items():
            if own[field] != now[field]:
                records.append({
                    "what": f"job {name}", "state": job.state, "field": text, "was": own[field], "is": now[field],
                })  # fmt: skip
    for each in scene.reservations:
        if each.name.startswith(PREFIX):
            until = f"{stamp(each.start_s)} to {stamp(each.end_s)} UTC"
            records.append({
                "what": f"reservation {each.name}", "state": until, "field": "Nodes", "was": "",
                "is": compress(each.nodes),
            })  # fmt: skip
    who = holder(path)
    if output in ("table", "wide"):
        last = f"; its last cycle was {max(0, int(time.time() - memory.cycle_s))} s ago" if memory.cycle_s else ""
        say(f"Steered by {who}{last}." if who else f"No process steers this Slurm{last.replace('its', 'the')}.")
        if not records:
            say("Nothing of Muster is in it.")
            return
    columns = [Column("what", "What"), Column("state", "State"), Column("field", "Field"),
               Column("was", "Was", show=_or_nothing), Column("is", "Is", show=_or_nothing)]  # fmt: skip
    extra = {"steered_by": who, "cycle_s": memory.cycle_s, "state_file": str(path)}
    emit(records, columns, output=output, schema=SCHEMA, list_key="steered", extra=extra)


def _or_nothing(text: str) -> str:
    return text or "nothing"
