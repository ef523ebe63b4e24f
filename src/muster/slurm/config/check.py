"""Check a configuration: all rules, the worst first."""

from __future__ import annotations

from collections import Counter

from muster.model.snapshot import Snapshot
from muster.slurm.conf_lines import Setting
from muster.slurm.config import nodes, scheduling, service, sharing, topology
from muster.slurm.config.files import Config
from muster.slurm.config.findings import SEVERITIES, Finding, Look, Rule, Workload

RULES: tuple[Rule, ...] = (
    *service.RULES, *nodes.RULES, *sharing.RULES, *scheduling.RULES, *topology.RULES,
)  # fmt: skip


def check(config: Config, workload: Workload | None = None) -> tuple[Finding, ...]:
    """What is wrong with a configuration, the worst first, then by file and line.

    Raises:
        InputError: a value is none of its kind; with file and line.
    """
    look = Look(config, workload)
    found: list[Finding] = []
    for rule in RULES:
        for hit in rule.check(look):
            place = hit.place
            found.append(
                Finding(
                    rule.name,
                    hit.severity or rule.severity,
                    place.file if place is not None else config.conf.path,
                    place.line if place is not None else 0,
                    place.key if isinstance(place, Setting) else "",
                    hit.what,
                    hit.fix,
                    rule.source,
                )
            )
    order = {name: at for at, name in enumerate(SEVERITIES)}
    return tuple(sorted(dict.fromkeys(found), key=lambda each: (order[each.severity], each.file, each.line)))


def workload_of(snapshot: Snapshot) -> Workload:
    """The shape of a snapshot's queue."""
    waiting = list(snapshot.pending)
    every = [*waiting, *(each.workload for each in snapshot.running)]
    owners = Counter(each.user or each.queue for each in waiting)
    return Workload(
        len(waiting),
        len(snapshot.running),
        max(owners.values(), default=0),
        max((each.time_limit_s for each in every if each.time_limit_s is not None), default=0.0),
        sum(each.time_limit_s is None for each in every),
    )
