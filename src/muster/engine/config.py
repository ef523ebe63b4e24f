"""The settings of a scheduling cycle; `muster explain-config` prints them with these words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from muster.errors import InputError
from muster.model.snapshot import Setting

NotNegative = Annotated[float, Meta(ge=0, le=1e12)]


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """What a cycle does and in which order.

    Attributes:
        placement: the policy that scores nodes; one of those of `muster simulate --policy` that need no fitting.
        keep_whole: a topology level; work that asks for no place fills its domains one by one, the fullest first, so
            that whole ones stay whole. Fleets without the level have nothing to keep.
        rank_groups: keep the pods of a tensor parallel group in one NVLink domain, and those of a replica near.
        ordering: who goes first among equal priorities; one of docs/reference/queues.md.
        half_life_s: past use counts half after so long.
        usage_period_s: past use is brought up to date so often; what runs now counts at once.
        isolation: ``tenants`` keeps different tenants' shares (time-slicing, MPS, soft) on different GPUs; ``none``
            lets everybody share with everybody.
        gangs: ``all-or-nothing``, or ``one-by-one``: pods start as they find room (a teaching baseline: it deadlocks).
        queueing: ``backfill`` lets work run past a gang that waits if it delays no reserved start; ``strict`` lets
            nothing past it; ``best-effort`` lets everything past it.
        reservations: how many gangs that wait have a reserved start (``backfill`` only).
        predict: which work is taken to run as long as work like it ran: ``without-limit`` that whose owner stated no
            limit; ``always`` all, at most to its limit; ``never`` none. Nothing is ever stopped by a prediction.
        predict_quantile: so large a part of the work like it ended within the time that is predicted.
        run_s: how long work is taken to run that has no limit and nothing like it in the past.
        overrun: work that outlives its limit, or all work like it, is taken to run on for this part of its time so far.
        reclaim: stop borrowers when a queue asks for its own nominal quota.
        preempt_lower_priority: stop work of lower priority in the same queue.
        min_runtime_s: work is not stopped for others before it has run so long; a queue may ask for more.
        stop_s: how long work that is stopped for others takes to save and leave; so much later begins what it made
            room for.
        retries: work that fails by itself is tried so often again, then given up.
        backoff_s: after its first failure it waits so long, after each further one twice as long.
        most_backoff_s: but not longer than this.
        quarantine_failures: a node on which so many different workloads failed within ``quarantine_window_s`` gets no
            more work; 0: never.
        quarantine_window_s: how long a failure on a node counts; so long, work avoids the nodes on which it failed.
        defragment: move running work that saves its work to other places when a gang then starts at once (where it
            would have a reserved start, or others would be stopped for it at a higher price).
        move_limit: moves for a gang may cost at most this part of the GPU time that it would still wait.
        search_moves_every_s: where no such moves were found for a gang, they are not looked for again before.
        move_every_s: work that was moved or stopped before is not moved before it has run so long.
        idle_after_s: running work that has used none of its GPUs for so long is the first to be stopped, also for work
            of its own queue and priority, and however short it has run.
        grow_every_s: an elastic gang is given more pods at most so often; each change costs it a restart.
    """

    placement: str = "best-fit"
    keep_whole: str = "nvlink_domain"
    rank_groups: bool = True
    ordering: str = "fair-share"
    half_life_s: Annotated[float, Meta(gt=0, le=1e12)] = 7 * 86400.0
    usage_period_s: NotNegative = 300.0
    isolation: Literal["tenants", "none"] = "tenants"
    gangs: Literal["all-or-nothing", "one-by-one"] = "all-or-nothing"
    queueing: Literal["backfill", "strict", "best-effort"] = "backfill"
    reservations: Annotated[int, Meta(ge=1, le=1000)] = 1
    predict: Literal["without-limit", "always", "never"] = "without-limit"
    predict_quantile: Annotated[float, Meta(gt=0, le=1)] = 0.75
    run_s: Annotated[float, Meta(gt=0, le=1e12)] = 86400.0
    overrun: NotNegative = 0.1
    reclaim: bool = True
    preempt_lower_priority: bool = True
    min_runtime_s: NotNegative = 0.0
    stop_s: NotNegative = 0.0
    retries: Annotated[int, Meta(ge=0)] = 6
    backoff_s: NotNegative = 60.0
    most_backoff_s: NotNegative = 3600.0
    quarantine_failures: Annotated[int, Meta(ge=0)] = 3
    quarantine_window_s: NotNegative = 3600.0
    defragment: bool = True
    move_limit: NotNegative = 0.5
    search_moves_every_s: NotNegative = 60.0
    move_every_s: NotNegative = 3600.0
    idle_after_s: NotNegative = 1800.0
    grow_every_s: NotNegative = 600.0


def settings_of(config: Config) -> tuple[tuple[str, Setting], ...]:
    """The settings that differ from the defaults, sorted by name: what a snapshot keeps of a config."""
    plain = Config()
    names = sorted(config.__struct_fields__)
    return tuple((name, getattr(config, name)) for name in names if getattr(config, name) != getattr(plain, name))


def config_of(settings: Mapping[str, Any]) -> Config:
    """The config with these settings, the others as by default; raises `InputError` naming the setting."""
    known = Config.__struct_fields__
    for name in settings:
        if name not in known:
            raise InputError(f"there is no setting {name!r}", field=name, hint="`muster explain-config` lists them")
    try:
        return msgspec.convert(dict(settings), Config)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise InputError(what[0].lower() + what[1:], field=where.rstrip("`") or None) from None
