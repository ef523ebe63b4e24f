"""Rules about backfill, priority and preemption."""

from __future__ import annotations

from collections.abc import Iterator

from muster.errors import near
from muster.slurm.conf_keys import SCHEDULER_OPTIONS
from muster.slurm.config.findings import ERROR, NOTE, WARNING, Hit, Look, Rule

BF_WINDOW_MIN, BF_RESOLUTION_S, BF_MAX_JOB_TEST, QUEUE_DEPTH, MAX_JOB_COUNT = 1440, 60, 500, 100, 10_000
"""Defaults of 22.05, slurm.conf(5): SchedulerParameters, MaxJobCount."""
WEIGHTS = ("Age", "Assoc", "Fairshare", "JobSize", "Partition", "QOS")


def _time(seconds: float) -> str:
    days, rest = divmod(int(seconds), 86400)
    return f"{f'{days}-' if days else ''}{rest // 3600:02d}:{rest % 3600 // 60:02d}:00"


def scheduler_type(look: Look) -> Iterator[Hit]:
    """The builtin scheduler starts jobs strictly in order."""
    setting = look.settings.get("SchedulerType")
    if setting is not None and "backfill" not in setting.value.lower():
        what = f"{setting.value}: while the first job waits for its nodes, nothing behind it starts"
        yield Hit(setting, what, "SchedulerType=sched/backfill")


def options(look: Look) -> Iterator[Hit]:
    """An option that there is not is passed over without a word."""
    setting = look.settings.get("SchedulerParameters")
    for name in look.scheduler:
        if setting is not None and name not in SCHEDULER_OPTIONS:
            hint = near(name, SCHEDULER_OPTIONS) or "take it out, unless your Slurm is newer than 26.05"
            yield Hit(setting, f"SchedulerParameters has no {name[:40]}: Slurm passes over it without a word", hint)


def window(look: Look) -> Iterator[Hit]:
    """Backfill plans this far; a job that fits only later is not planned, and small ones go before it for ever."""
    minutes = look.scheduler_number("bf_window", BF_WINDOW_MIN)
    setting = look.settings.get("SchedulerParameters")
    limits = [(each.max_time_s, each) for each in look.conf.partitions if each.max_time_s is not None]
    longest, partition = max(limits, key=lambda each: each[0] or 0, default=(None, None))
    told = "" if "bf_window" in look.scheduler else " (the default)"
    if longest is not None and partition is not None and longest > minutes * 60:
        wanted = int(longest // 60)
        resolution = max(BF_RESOLUTION_S, wanted // 1440 * 60)
        what = (
            f"backfill looks {_time(minutes * 60)} ahead{told}, and partition {partition.name} lets jobs run "
            f"{_time(longest)}: a large job behind such jobs is never planned, and may starve"
        )
        more = f",bf_resolution={resolution}" if resolution > BF_RESOLUTION_S else ""
        yield Hit(setting or partition.entry, what, f"SchedulerParameters=bf_window={min(wanted, 43200)}{more}")
    resolution = look.scheduler_number("bf_resolution", BF_RESOLUTION_S)
    if minutes * 60 // max(1, resolution) > 20_000 and setting is not None:
        what = (
            f"a window of {minutes:,} minutes in steps of {resolution} s is {minutes * 60 // resolution:,} steps: "
            "cycles are slow"
        )
        yield Hit(setting, what, f"bf_resolution={minutes * 60 // 10_000 // 60 * 60}", NOTE)


def limits(look: Look) -> Iterator[Hit]:
    """Backfill needs ends of jobs."""
    for each in look.conf.partitions:
        if each.max_time_s is None:
            told = "MaxTime is UNLIMITED" if "MaxTime" in each.settings else "no MaxTime, which is UNLIMITED then"
            what = f"partition {each.name}: {told}: one job without an end keeps large jobs from ever being planned"
            yield Hit(each.settings.get("MaxTime") or each.entry, what, "MaxTime=7-00:00:00, say")
        elif "DefaultTime" not in each.settings and each.max_time_s > 4 * 3600:
            what = (
                f"partition {each.name}: no DefaultTime: jobs without --time count as {_time(each.max_time_s)} "
                "long, and backfill finds no gap for them"
            )
            yield Hit(each.entry, what, "DefaultTime=01:00:00")


def depth(look: Look) -> Iterator[Hit]:
    """How many jobs of the queue are looked at."""
    setting, load = look.settings.get("SchedulerParameters"), look.workload
    place = setting or (look.conf.partitions[0].entry if look.conf.partitions else None)
    if "bf_continue" not in look.scheduler and look.nodes > 100:
        what = (
            f"without bf_continue backfill begins anew after each pause for its locks: on {look.nodes:,} nodes it "
            "does not get to the queue's end"
        )
        yield Hit(place, what, "SchedulerParameters=bf_continue", NOTE)
    if load is None:
        return
    test = look.scheduler_number("bf_max_job_test", BF_MAX_JOB_TEST)
    told = "" if "bf_max_job_test" in look.scheduler else " (the default)"
    if load.waiting > test:
        what = (
            f"{load.waiting:,} jobs wait and backfill looks at the first {test:,}{told}: {load.waiting - test:,} "
            "are never tried"
        )
        yield Hit(
            place,
            what,
            f"SchedulerParameters=bf_max_job_test={-(-load.waiting * 3 // 2 // 500) * 500},bf_max_job_user=...",
        )
    users = look.scheduler_number("bf_max_job_user", 0)
    if (
        load.most_of_a_user * 2 > test
        and load.most_of_a_user > 100
        and not users
        and "bf_max_job_user_part" not in look.scheduler
    ):
        what = (
            f"one owner has {load.most_of_a_user:,} jobs waiting, and nothing limits how many of one owner "
            "backfill tries"
        )
        yield Hit(place, what, "SchedulerParameters=bf_max_job_user=50", NOTE)
    minutes = look.scheduler_number("bf_window", BF_WINDOW_MIN)
    if load.longest_s > minutes * 60:
        what = (
            f"the longest limit in the queue is {_time(load.longest_s)} and backfill looks {_time(minutes * 60)} ahead"
        )
        yield Hit(place, what, f"SchedulerParameters=bf_window={int(load.longest_s // 60)}")
    if load.unlimited:
        what = f"{load.unlimited:,} jobs have no time limit: nothing can be planned behind them"
        yield Hit(place, what, "MaxTime and DefaultTime on the partitions", NOTE)
    most = look.settings.integer("MaxJobCount", MAX_JOB_COUNT)
    if (load.waiting + load.running) * 5 > most * 4:
        what = f"{load.waiting + load.running:,} jobs, and MaxJobCount is {most:,}: more are soon refused"
        yield Hit(look.settings.get("MaxJobCount") or place, what, f"MaxJobCount={most * 3}")


def priority(look: Look) -> Iterator[Hit]:
    """What decides the order."""
    settings = look.settings
    kind = settings.get("PriorityType")
    if kind is None or not kind.value.lower().endswith("multifactor"):
        if look.conf.partitions and look.nodes > 1:
            what = "PriorityType is priority/basic: first come, first served; fair share, QOS and size do not count"
            yield Hit(kind or look.conf.partitions[0].entry, what, "PriorityType=priority/multifactor", NOTE)
        return
    weights = {name: settings.integer(f"PriorityWeight{name}", 0) for name in WEIGHTS}
    if not any(weights.values()) and "PriorityWeightTRES" not in settings:
        yield Hit(kind, "priority/multifactor with all weights 0: every job has the same priority",
                  "PriorityWeightFairshare=100000,PriorityWeightAge=10000, say", ERROR)  # fmt: skip
        return
    yield from _constant(look, weights)
    yield from _drowned(look, weights)
    if settings.flag("PriorityFavorSmall") and weights["JobSize"]:
        what = "PriorityFavorSmall=YES: the larger a gang, the longer it waits"
        yield Hit(settings.get("PriorityFavorSmall"), what, "PriorityFavorSmall=NO")


def _constant(look: Look, weights: dict[str, int]) -> Iterator[Hit]:
    """Weights of factors that are the same for all jobs: they cancel out."""
    settings = look.settings
    if weights["Partition"]:
        factors = {each.settings.text("PriorityJobFactor") or each.settings.text("Priority", "1")
                   for each in look.conf.partitions}  # fmt: skip
        if len(factors) < 2:
            what = (
                f"PriorityWeightPartition={weights['Partition']}, and all partitions have the same "
                "PriorityJobFactor: it cancels out"
            )
            yield Hit(
                settings.get("PriorityWeightPartition"), what, "PriorityJobFactor= on the partitions, or weight 0"
            )
    if "slurmdbd" not in settings.text("AccountingStorageType").lower():
        for name in ("Fairshare", "QOS", "Assoc", "Age"):
            if weights[name]:
                harm = "Slurm ignores it" if name == "Age" else "all jobs have the same, it cancels out"
                what = f"PriorityWeight{name}={weights[name]} without slurmdbd: {harm}"
                yield Hit(
                    settings.get(f"PriorityWeight{name}"), what, "AccountingStorageType=accounting_storage/slurmdbd"
                )


def _drowned(look: Look, weights: dict[str, int]) -> Iterator[Hit]:
    """Factors lie between 0 and 1: a weight far below another never decides; age grows to its full weight."""
    settings = look.settings
    used = {name: value for name, value in weights.items() if value}
    largest = max(used.values(), default=0)
    name_of = next((name for name, value in used.items() if value == largest), "")
    for name, value in used.items():
        if value * 200 < largest and name_of != "QOS":
            what = (
                f"PriorityWeight{name}={value} beside PriorityWeight{name_of}={largest}: it never decides, as "
                "factors are 0 to 1"
            )
            yield Hit(settings.get(f"PriorityWeight{name}"), what, f"at least {largest // 50}, or 0", NOTE)
    if weights["Fairshare"] and weights["Age"] >= weights["Fairshare"]:
        what = (
            f"PriorityWeightAge={weights['Age']} is not below PriorityWeightFairshare={weights['Fairshare']}: after "
            f"{settings.text('PriorityMaxAge', '7-0')} a job goes before others, whatever its owner has used"
        )
        yield Hit(settings.get("PriorityWeightAge"), what, f"PriorityWeightAge={max(1, weights['Fairshare'] // 10)}")


def preemption(look: Look) -> Iterator[Hit]:
    """Who is stopped, how, and what is lost."""
    settings = look.settings
    kind, mode = settings.get("PreemptType"), settings.get("PreemptMode")
    modes = {part.strip().upper() for part in (mode.value if mode else "OFF").split(",")}
    on = kind is not None and not kind.value.lower().endswith("none")
    if not on:
        if mode is not None and not modes <= {"OFF", "GANG"}:
            what = f"PreemptMode={mode.value} and no PreemptType: nothing is preempted"
            yield Hit(mode, what, "PreemptType=preempt/qos or preempt/partition_prio")
        return
    assert kind is not None
    if modes <= {"OFF", "GANG"}:
        yield Hit(mode or kind, f"PreemptType={kind.value} with PreemptMode OFF: slurmctld does not start",
                  "PreemptMode=REQUEUE", ERROR)  # fmt: skip
    by_partition = kind.value.lower().endswith("partition_prio")
    if by_partition and len({each.settings.text("PriorityTier", "1") for each in look.conf.partitions}) < 2:
        yield Hit(
            kind, "all partitions have the same PriorityTier: nothing is preempted", "PriorityTier= on the partitions"
        )
    if "SUSPEND" in modes:
        if "GANG" not in modes:
            yield Hit(mode, "SUSPEND without GANG: suspended jobs are never resumed, slurmctld does not start",
                      "PreemptMode=SUSPEND,GANG", ERROR)  # fmt: skip
        if look.gpu_lines:
            what = "a suspended job keeps its memory on the GPU: what preempts it finds the GPU full"
            yield Hit(mode, what, "PreemptMode=REQUEUE")
    if "CANCEL" in modes:
        what = "PreemptMode=CANCEL: a preempted job is gone, with all work since it began"
        yield Hit(mode, what, "PreemptMode=REQUEUE, and jobs that go on from their checkpoint")
    if "REQUEUE" in modes and settings.text("JobRequeue", "1") == "0":
        what = "JobRequeue=0: PreemptMode=REQUEUE cancels all jobs that do not say --requeue"
        yield Hit(settings.get("JobRequeue"), what, "JobRequeue=1")
    grace = [each for each in look.conf.partitions if each.settings.integer("GraceTime", 0)]
    own = [each for each in look.conf.partitions if each.settings.text("PreemptMode").upper() not in ("", "OFF")]
    victims = own if by_partition and own else []
    for each in victims:
        if each not in grace:
            what = (
                f"partition {each.name}: GraceTime 0: a preempted job has no time to write a checkpoint, only "
                f"KillWait ({settings.integer('KillWait', 30)} s)"
            )
            yield Hit(each.entry, what, "GraceTime=120, the seconds that a checkpoint takes")


_FAMILY = "scheduling"
_GUIDE = "Slurm, Scheduling Configuration Guide (sched_config.html)"
RULES = (
    Rule("no-backfill", _FAMILY, WARNING, "jobs start strictly in order", "slurm.conf(5): SchedulerType",
         scheduler_type),
    Rule("scheduler-option", _FAMILY, WARNING, "an option of SchedulerParameters that there is not",
         "slurm.conf(5): SchedulerParameters", options),
    Rule("backfill-window", _FAMILY, WARNING, "backfill does not look as far as jobs run",
         "slurm.conf(5): SchedulerParameters, bf_window", window),
    Rule("time-limits", _FAMILY, WARNING, "partitions without MaxTime or DefaultTime", _GUIDE, limits),
    Rule("backfill-depth", _FAMILY, WARNING, "jobs that backfill never gets to",
         "slurm.conf(5): SchedulerParameters, bf_continue, bf_max_job_test; MaxJobCount", depth),
    Rule("priority-weights", _FAMILY, WARNING, "weights that decide nothing or cancel out",
         "Slurm, Multifactor Priority Plugin (priority_multifactor.html)", priority),
    Rule("preemption", _FAMILY, WARNING, "what preemption does to work", "Slurm, Preemption (preempt.html)",
         preemption),
)  # fmt: skip
