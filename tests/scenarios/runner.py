"""Scenarios in a text form that reads like the specification: a fleet, then rounds of events and what they change.

    fleet 8 x 8 H100, racks of 4          nodes x GPUs and model; nodes are n00, n01, ..., racks r0, r1, ...
    more 4 x 8 A100                       further nodes, numbered on, in racks of their own
    spare n07                             only replacements of lost pods may use it
    pods 4: n00 n01                       these nodes may have 4 pods each, as kubelets limit them
    queue org                             a root; then queue NAME in PARENT: nominal=32 borrow=16 lend=8 weight=2
    warns TEXT                            what the check of quotas against the fleet says

    preset naive: queueing=best-effort    settings of the cycle; each preset starts afresh. NAME alone: the defaults
    at 0: submit a 8x8 limit=1h; submit b 8x8
    expect +a, b@3600, b:CAPACITY
    where a: n00 n01                      optional: the nodes of a, in the order of its ranks; n00/1 is its GPU 1, and
                                          n00/1@4 the MIG instance on it that starts at memory slice 4
    at 1h: finish a
    expect +b
    at 1h: nothing
    expect nothing                        the last round: nothing may change any more

Events: ``submit NAME PODSxGPUS key=value ...`` (elastic: ``2-8x8``; MIG: ``1x3g.40gb``), ``finish``, ``end`` (stopped
for good), ``fail`` (``fail a n03`` where the node is known), ``cancel``, ``checkpoint NAME``, ``idle NAME`` (it uses no
GPU from now on), ``leave NAME TIME [GANG]`` (it was told to stop, for GANG, and holds its places until TIME),
``lose NODE`` (with all that runs on it), ``cordon NODE``, ``back NODE``, ``nothing``, and ``restart`` (a new scheduler
from the snapshot of the old one). ``s1..3`` stands for s1, s2 and s3. What is expected is the
difference: ``+a`` started (an elastic gang with 4 pods: ``+a=4``), ``+a*`` started past a gang with a reserved start,
``-a`` stopped, ``~a=6`` goes on with 6 pods, ``>a`` has other places, ``!n03`` is in quarantine, ``a@60`` has a
reserved start, ``a:QUOTA`` waits and did not for this reason before. With ``gangs=one-by-one``, ``a=4/8`` says that 4
of 8 pods hold their places and the gang has not begun. ``a@60?`` is a reserved start that rests on predictions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from muster.catalog.mig_placements import mig_milli
from muster.engine.config import Config
from muster.engine.quota import quota_warnings
from muster.engine.scheduler import Scheduler
from muster.engine.state import Allocation
from muster.errors import MusterError
from muster.model.fleet import Device, Fleet, Node, Topology
from muster.model.parallelism import Parallelism
from muster.model.plan import Evict, Migrate, Place, Plan, Quarantine, Reserve, Resize
from muster.model.queue import Queue, Quota
from muster.model.reasons import Reason
from muster.model.snapshot import Snapshot
from muster.model.workload import Checkpointing, PodSet, PodShape, TopologyRequest, Workload
from muster.sim.cluster_run import ClusterRun
from muster.sim.presets import PRESETS

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_FLEET = re.compile(r"(\d+) x (\d+) (\S+?)(?:, racks of (\d+))?")
_SERIES = re.compile(r"([^\d\s]\S*?)(\d+)\.\.(\d+)")


class ScenarioError(Exception):
    """A scenario that cannot be read, or does not hold: ``FILE:LINE: what``."""


class Round(msgspec.Struct):
    """What happens at one time, the difference that it makes, and where work then stands."""

    line: int
    now_s: float
    events: list[list[str]]
    expected: list[str] | None = None
    expect_line: int = 0
    where: list[tuple[int, str, list[str]]] = []


class Section(msgspec.Struct):
    """The rounds under one preset."""

    line: int
    name: str
    config: Config
    rounds: list[Round] = []


class Scenario(msgspec.Struct):
    """A file that was read."""

    path: str
    fleet: Fleet
    queues: list[Queue] = []
    sections: list[Section] = []
    warnings: list[tuple[int, str]] = []


# -- reading ----------------------------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    """``90``, ``25m``, ``1h``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if match is None:
        raise ValueError(f"{text!r} is no time; such as 90, 25m or 1h")
    return float(match[1]) * _UNITS[match[2]]


def gpus(text: str) -> int:
    """GPUs as milli GPU."""
    return round(float(text) * 1000)


def series(name: str) -> list[str]:
    """``s1..3`` as s1, s2, s3; ``s01..10`` keeps the leading 0."""
    match = _SERIES.fullmatch(name)
    if match is None:
        return [name]
    return [f"{match[1]}{number:0{len(match[2])}}" for number in range(int(match[2]), int(match[3]) + 1)]


def read_quotas(text: str) -> tuple[Quota, ...]:
    """``H100:8+A100:16``, in GPUs."""
    parts = (each.split(":") for each in text.split("+"))
    return tuple(Quota(flavor, gpus(nominal)) for flavor, nominal in parts)


_Values = dict[str, Callable[[str], Any]]
_QUEUE: _Values = {
    "quotas": read_quotas, "nominal": gpus, "borrow": gpus, "lend": gpus, "weight": float, "min_runtime": seconds,
    "user_limit": gpus, "reclaim": seconds, "ramp": gpus, "max_priority": int, "tenant": str,
}  # fmt: skip
MIG_MODELS = ("H100",)
"""Scenarios name profiles of this model."""
_RACK = {
    "required": TopologyRequest(required="rack"),
    "preferred": TopologyRequest(preferred="rack"),
    "spread": TopologyRequest(spread="rack"),
}
_SUBMIT: _Values = {
    "queue": str, "user": str, "limit": seconds, "priority": int, "quality": str, "rack": _RACK.__getitem__,
    "preemptible": {"no": False, "yes": True}.__getitem__, "after": str, "hold": seconds, "deadline": seconds,
    "restart": seconds, "flavors": lambda value: tuple(value.split("+")), "tensor": int, "pipeline": int,
    "tenant": str, "sharing": str,
}  # fmt: skip


def pairs(words: Sequence[str], known: _Values) -> dict[str, Any]:
    """``key=value`` words; unknown and repeated keys are refused."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if key not in known or not equals or key in found:
            raise ValueError(f"{word!r} is unknown or given twice; known: {', '.join(f'{each}=' for each in known)}")
        try:
            found[key] = known[key](value)
        except (KeyError, ValueError) as error:
            raise ValueError(f"{word!r} makes no sense ({error})") from None
    return found


def read_fleet(text: str) -> Fleet:
    match = _FLEET.fullmatch(text)
    if match is None:
        raise ValueError("a fleet is such as: fleet 8 x 8 H100, racks of 4")
    devices = tuple(Device(index, match[3]) for index in range(int(match[2])))
    rack = int(match[4] or match[1])
    nodes = (Node(f"n{i:02}", 64_000, 1 << 40, devices, topology=(f"r{i // rack}",)) for i in range(int(match[1])))
    return Fleet(tuple(nodes), Topology(("rack",)))


def with_more(fleet: Fleet, text: str) -> Fleet:
    """The fleet with further nodes; they stand in racks of their own."""
    nodes, racks = len(fleet), len({node.topology for node in fleet})
    more = [
        msgspec.structs.replace(node, name=f"n{nodes + at:02}", topology=(f"r{racks + int(node.topology[0][1:])}",))
        for at, node in enumerate(read_fleet(text))
    ]
    return msgspec.structs.replace(fleet, nodes=(*fleet.nodes, *more))


def read_queue(text: str, fleet: Fleet) -> Queue:
    head, _, rest = text.partition(":")
    words = head.split()
    if len(words) not in (1, 3) or words[1:2] not in ([], ["in"]):
        raise ValueError("a queue is such as: queue a in org: nominal=32 borrow=16")
    given = pairs(rest.split(), _QUEUE)
    quotas: tuple[Quota, ...] = given.get("quotas", ())
    if "nominal" in given:
        quotas = (Quota(fleet.nodes[0].flavor, given["nominal"], given.get("borrow"), given.get("lend")),)
    elif given.keys() & {"borrow", "lend"}:
        raise ValueError("limits need nominal=")
    return Queue(
        words[0], words[2] if len(words) == 3 else "", given.get("weight", 1.0), quotas,
        given.get("min_runtime", 0.0), given.get("user_limit"), given.get("max_priority"), given.get("reclaim", 0.0),
        given.get("ramp", 0.0), tenant=given.get("tenant", ""),
    )  # fmt: skip


def read_section(line: int, text: str) -> Section:
    name, _, rest = text.partition(":")
    known: _Values = {
        each.name: (lambda value: {"yes": True, "no": False}.get(value) if value in ("yes", "no") else value)
        for each in msgspec.structs.fields(Config)
    }
    given = pairs(rest.split(), known)
    if name not in PRESETS and not given:
        raise ValueError(f"preset {name!r} says nothing; name settings, or one of {', '.join(PRESETS)}")
    config = msgspec.convert({**PRESETS.get(name, dict)(), **given}, Config, strict=False)
    return Section(line, name, config)


def read_scenario(path: str, text: str) -> Scenario:
    """Read a scenario; raises `ScenarioError` with the line of whatever it does not understand."""
    scenario: Scenario | None = None
    line = 0
    try:
        for line, raw in enumerate(text.splitlines(), 1):
            said = raw.split("#")[0].strip()
            if not said:
                continue
            word, _, rest = said.partition(" ")
            if scenario is None:
                if word != "fleet":
                    raise ValueError("the fleet comes first")
                scenario = Scenario(path, read_fleet(rest))
            else:
                _read_line(scenario, line, word, rest.strip())
        if scenario is None or not scenario.sections:
            raise ValueError("has no preset and no rounds")
        for section in scenario.sections:
            line = section.line
            if len(section.rounds) < 2 or any(each.expected is None for each in section.rounds):
                raise ValueError(f"preset {section.name} needs two rounds or more, each with what is expected")
            last = section.rounds[-1]
            line = last.line
            if last.events != [["nothing"]] or last.expected:
                raise ValueError("in the last round nothing happens and nothing may change")
    except (ValueError, MusterError, msgspec.ValidationError) as error:
        raise ScenarioError(f"{path}:{line}: {error}") from None
    return scenario


def _read_line(scenario: Scenario, line: int, word: str, rest: str) -> None:
    section = scenario.sections[-1] if scenario.sections else None
    current = section.rounds[-1] if section and section.rounds else None
    if section is None and word == "queue":
        scenario.queues.append(read_queue(rest, scenario.fleet))
    elif section is None and word == "more":
        scenario.fleet = with_more(scenario.fleet, rest)
    elif section is None and word == "spare":
        nodes = (
            msgspec.structs.replace(node, spare=node.spare or node.name in rest.split()) for node in scenario.fleet
        )
        scenario.fleet = msgspec.structs.replace(scenario.fleet, nodes=tuple(nodes))
    elif section is None and word == "pods":
        count, _, names = rest.partition(":")
        nodes = (
            msgspec.structs.replace(node, max_pods=int(count) if node.name in names.split() else node.max_pods)
            for node in scenario.fleet
        )
        scenario.fleet = msgspec.structs.replace(scenario.fleet, nodes=tuple(nodes))
    elif section is None and word == "warns":
        scenario.warnings.append((line, rest))
    elif word == "preset":
        scenario.sections.append(read_section(line, rest))
    elif section is not None and word == "at":
        if current is not None and current.expected is None:
            raise ValueError("the round before expects nothing; write: expect nothing")
        time, colon, events = rest.partition(":")
        now_s = seconds(time)
        if not colon or (current is not None and now_s < current.now_s):
            raise ValueError("a round is such as: at 1h: finish a; and time does not go back")
        section.rounds.append(Round(line, now_s, [_checked_event(each.split()) for each in events.split(";")]))
    elif current is not None and word == "and" and current.expected is None:
        current.events += [_checked_event(each.split()) for each in rest.split(";")]
    elif current is not None and word == "expect" and current.expected is None:
        words = [] if rest == "nothing" else [each.strip() for each in rest.split(",")]
        current.expected = [each for word in words for each in _expanded(word)]
        current.expect_line = line
    elif current is not None and word == "where" and current.expected is not None:
        name, colon, nodes = rest.partition(":")
        if not colon:
            raise ValueError("such as: where a: n00 n01")
        current.where.append((line, name, nodes.split()))
    else:
        raise ValueError(f"{word!r} is not understood here")


_COUNTS = {
    "submit": 3, "finish": 2, "end": 2, "fail": 2, "cancel": 2, "checkpoint": 2, "lose": 2, "cordon": 2, "back": 2,
    "idle": 2, "leave": 3, "restart": 1, "nothing": 1,
}  # fmt: skip


def _checked_event(words: list[str]) -> list[str]:
    count = _COUNTS.get(words[0] if words else "")
    if count is None or len(words) < count or (len(words) > count and words[0] not in ("submit", "fail", "leave")):
        raise ValueError(f"{' '.join(words)!r} is no event; events are {', '.join(_COUNTS)}")
    if words[0] == "submit":
        pairs(words[3:], _SUBMIT)
        if re.fullmatch(r"(\d+-)?\d+x\d+(\.\d+|g\.\d+gb)?", words[2]) is None:
            raise ValueError(f"{words[2]!r} is no size; such as 4x8, pods x GPUs")
    return words


def _expanded(word: str) -> list[str]:
    match = re.fullmatch(r"([+~>!-]?)([^@:=*\s]+)((?:=\d+)?\*?|@\d+(?:\.\d+)?[smhd]?\??|:[A-Z_]+|=\d+/\d+)", word)
    if (
        match is None
        or bool(match[1]) is (match[3].startswith(("@", ":")) or "/" in match[3])
        or (match[1] == "~") > match[3].startswith("=")
        or (not match[1] and not match[3])
    ):
        raise ValueError(f"{word!r} cannot be expected; such as +a, +a*, -a, a@1h, a:QUOTA, a=4/8")
    after = match[3]
    if after.startswith("@"):
        after = f"@{seconds(after[1:].rstrip('?')):g}" + "?" * after.endswith("?")
    if after.startswith(":") and after[1:] not in Reason.__members__:
        raise ValueError(f"{after[1:]!r} is no reason; known: {', '.join(Reason.__members__)}")
    return [f"{match[1]}{name}{after}" for name in series(match[2])]


def shape_of(size: str, sharing: str, tenant: str) -> PodShape:
    """The shape of ``8`` (GPUs), ``0.5`` (of one) or ``3g.40gb`` (a MIG instance)."""
    if size.endswith("gb"):
        return PodShape(1000, 0, 1, mig_milli(size, MIG_MODELS), mig_profile=size)
    if float(size) >= 1:
        return PodShape(1000, 0, int(size))
    return PodShape(1000, 0, 1, gpus(size), sharing=sharing, tenant=tenant)


def workloads(words: list[str], now_s: float) -> list[Workload]:
    """The workloads of a ``submit``."""
    given = pairs(words[3:], _SUBMIT)
    pods, size = words[2].split("x")
    least, _, count = pods.rpartition("-")
    shape = shape_of(size, given.get("sharing", ""), given.get("tenant", ""))
    return [
        Workload(
            name, (PodSet(shape, int(count), int(least) if least else None),), submitted_s=now_s,
            flavors=given.get("flavors", ()), time_limit_s=given.get("limit"), queue=given.get("queue", ""),
            user=given.get("user", ""), priority=given.get("priority", 0),
            quality=given.get("quality", ""), preemptible=given.get("preemptible", True), topology=given.get("rack"),
            depends_on=tuple(given["after"].split("+")) if "after" in given else (),
            not_before_s=given.get("hold", 0.0), start_deadline_s=given.get("deadline"),
            checkpointing=Checkpointing(600.0, given["restart"]) if "restart" in given else None,
            parallelism=Parallelism(given.get("tensor", 1), given.get("pipeline", 1))
            if given.keys() & {"tensor", "pipeline"} else None,
        )
        for name in series(words[1])
    ]  # fmt: skip


# -- running ----------------------------------------------------------------------------------------------------------


def run_section(scenario: Scenario, section: Section) -> None:
    """Run the rounds of a preset; raises `ScenarioError` at the first that does not hold."""
    snapshot = Snapshot(scenario.fleet, tuple(scenario.queues))
    line = section.line
    try:
        one_by_one = section.config.gangs == "one-by-one"
        driver = OneByOne(snapshot, section) if one_by_one else Whole(snapshot, section.config)
        for each in section.rounds:
            line = each.line
            got = driver.step(each)
            line = each.expect_line
            if got != each.expected:
                told = [", ".join(words or ()) or "nothing" for words in (each.expected, got)]
                raise ValueError(f"under {section.name} at {each.now_s:g}\n  expected {told[0]}\n  got      {told[1]}")
            for where_line, name, nodes in each.where:
                line = where_line
                stands = driver.devices_of(name) if "/" in nodes[0] else driver.nodes_of(name)
                if stands != nodes:
                    raise ValueError(f"{name} stands on {' '.join(stands)}, not on {' '.join(nodes)}")
    except (ValueError, KeyError, AssertionError, MusterError) as error:
        raise ScenarioError(f"{scenario.path}:{line}: {error}") from error


def check_warnings(scenario: Scenario) -> None:
    """What is told of the quotas is what the scenario says, no more and no less."""
    capacity: dict[str, int] = {}
    for node in scenario.fleet.nodes:
        capacity[node.flavor] = capacity.get(node.flavor, 0) + node.healthy_gpus * 1000
    got = [each.text for each in quota_warnings(tuple(scenario.queues), capacity)] if scenario.queues else []
    for line, text in scenario.warnings:
        if text not in got:
            raise ScenarioError(f"{scenario.path}:{line}: nobody is warned so; told is: {'; '.join(got) or 'nothing'}")
    rest = [text for text in got if text not in [each for _, each in scenario.warnings]]
    if rest:
        raise ScenarioError(f"{scenario.path}: is also warned of: {'; '.join(rest)}")


class Whole:
    """Drives a scheduler by hand."""

    def __init__(self, snapshot: Snapshot, config: Config) -> None:
        self.scheduler = Scheduler(snapshot, config)
        self.waited: dict[str, Reason] = {}

    def step(self, each: Round) -> list[str]:
        for words in each.events:
            self._event(words, each.now_s)
        plan = self.scheduler.cycle(each.now_s)
        check(self.scheduler)
        waits = dict(self.scheduler.waits(each.now_s))
        new = [f"{name}:{reason.name}" for name, reason in waits.items() if self.waited.get(name) is not reason]
        self.waited = waits
        return [*told(plan), *new]

    def _event(self, words: list[str], now_s: float) -> None:
        if words[0] == "submit":
            for workload in workloads(words, now_s):
                self.scheduler.submit(workload)
        elif words[0] == "restart":
            self.scheduler = Scheduler(self.scheduler.snapshot(now_s), self.scheduler.config)
        elif words[0] != "nothing":
            for name in series(words[1]):
                match words[0]:
                    case "finish" | "end":
                        self.scheduler.finish(name, now_s, well=words[0] == "finish")
                    case "fail":
                        self.scheduler.fail(name, now_s, *words[2:])
                    case "lose" | "cordon" | "back":
                        node = self.scheduler.cluster.fleet.nodes[self.scheduler.cluster.position[name]]
                        node = msgspec.structs.replace(node, schedulable=words[0] == "back")
                        self.scheduler.set_node(node, now_s, lost=words[0] == "lose")
                    case "leave":
                        self.scheduler.leave(name, seconds(words[2]), now_s, for_workload="".join(words[3:]))
                    case "idle":
                        self.scheduler.note_idle(name, now_s)
                    case "cancel":
                        self.scheduler.cancel(name)
                    case _:
                        self.scheduler.running[name].checkpointed_s = now_s

    def nodes_of(self, name: str) -> list[str]:
        names = self.scheduler.cluster.state.node_names
        nodes: list[int] = self.scheduler.running[name].rows[0].tolist()
        stands = [names[node] for node in nodes]
        return [node for index, node in enumerate(stands) if index == 0 or stands[index - 1] != node]

    def devices_of(self, name: str) -> list[str]:
        places = self.scheduler.cluster.places(self.scheduler.running[name].rows)
        starts = [f"@{place.mig_start}" if place.mig else "" for place in places]
        return [
            f"{place.node}/{device}{start}"
            for place, start in zip(places, starts, strict=True)
            for device in place.devices
        ]


class OneByOne:
    """Gangs whose pods start one by one, in the simulated cluster; all submissions are known before it starts."""

    def __init__(self, snapshot: Snapshot, section: Section) -> None:
        work: list[Workload] = []
        for each in section.rounds:
            for words in each.events:
                if words[0] not in ("submit", "nothing"):
                    raise ValueError(f"{words[0]} cannot be used with gangs one by one")
                work += workloads(words, each.now_s) if words[0] == "submit" else []
        self.run = ClusterRun(snapshot, work, section.config)
        self.told: set[str] = set()

    def step(self, each: Round) -> list[str]:
        self.run.run(each.now_s)
        self.run.check()
        now = list(self._holds())
        new = [word for word in now if word not in self.told]
        self.told = set(now)
        return new

    def _holds(self) -> Iterator[str]:
        names = [run.workload.name for run in self.run.scheduler.running]
        for index, workload in enumerate(self.run.workloads):
            if self.run.state_of(index) == "running":
                yield f"+{workload.name}"
            elif held := sum(name.startswith(f"{workload.name}/") for name in names):
                yield f"{workload.name}={held}/{workload.pods}"

    def devices_of(self, name: str) -> list[str]:
        return self.nodes_of(name)

    def nodes_of(self, name: str) -> list[str]:
        raise ValueError(f"it is not kept where the pods of {name} stand")


def told(plan: Plan) -> list[str]:
    """The decisions of a plan in the words of a scenario."""
    words: list[str] = []
    for each in plan.decisions:
        match each:
            case Place():
                size = f"={sum(each.counts)}" if each.counts else ""
                words.append(f"+{each.workload}{size}" + ("*" if each.backfilled else ""))
            case Migrate():
                words.append(f">{each.workload}")
            case Quarantine():
                words.append(f"!{each.node}")
            case Resize():
                words.append(f"~{each.workload}={sum(each.counts)}")
            case Evict():
                words.append(f"-{each.workload}")
            case Reserve():
                words.append(f"{each.workload}@{each.start_s:g}" + ("" if each.sure else "?"))
            case _:
                words.append(str(each))
    return words


def check(scheduler: Scheduler) -> None:
    """What must hold after every round."""
    allocations = [
        Allocation(node, shape, devices) for run in scheduler.running for node, shape, devices in run.rows.T.tolist()
    ]
    scheduler.cluster.state.validate(allocations)
    for run in scheduler.running:
        least = sum(each.required for each in run.workload.pod_sets)
        there = run.rows.shape[1] + len(run.missing)
        assert least <= there == run.kind.count <= run.workload.pods, f"{run.workload.name} runs in part"
        left = run.leaving_s is not None or run.workload.name in scheduler.broken
        assert not run.missing or left, f"{run.workload.name} lost pods unnoticed"
        assert run.workload.name not in scheduler.pending.gangs, f"{run.workload.name} runs and waits"
    for queue in scheduler.queues:
        for flavor in scheduler.cluster.flavors:
            assert scheduler.quota.available(queue, flavor) >= 0, f"{queue} is above its quota of {flavor}"
            lends_all = all(
                quota.lending_limit_milli is None for each in scheduler.queues.values() for quota in each.quotas
            )
            held = sum(
                run.kind.milli
                for run in scheduler.running
                if run.flavor == flavor and run.leaving_s is None and queue in _path(scheduler, run.workload.queue)
            )
            used = scheduler.quota.used(queue, flavor)
            headroom = sum(each.headroom_milli for each in scheduler.queues.values() if each.name != queue)
            kept = held < used <= held + headroom
            assert used == held or kept or (used < held and not lends_all), f"{queue}: use is not the sum of its parts"


def _path(scheduler: Scheduler, queue: str) -> list[str]:
    path = [queue]
    while path[-1] in scheduler.queues and scheduler.queues[path[-1]].parent:
        path.append(scheduler.queues[path[-1]].parent)
    return path


def load(path: Path) -> Scenario:
    return read_scenario(path.name, path.read_text())
