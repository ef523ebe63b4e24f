"""The text of changes, as an engineer types it: ``drain block b3; quota team-a +64``. See docs/reference/changes.md."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from typing import Any, cast

import msgspec

from muster.answers.changes import grow
from muster.answers.changes.apply import apply_changes
from muster.answers.changes.names import Names
from muster.answers.changes.values import (
    KEY_OF,
    AddDomains,
    AddNodes,
    Cancel,
    Change,
    EndReservation,
    Move,
    RemoveNodes,
    Reserve,
    SetConfig,
    SetJob,
    SetLimit,
    SetNodes,
    SetPolicy,
    SetQuota,
    SetWeight,
    Stop,
    Submit,
    Wave,
)
from muster.errors import InputError
from muster.model.plan import PodPlacement
from muster.model.snapshot import Setting, Snapshot
from muster.model.workload import Workload
from muster.traces.files import near
from muster.traces.kube_objects import parse_quantity

_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SPAN = re.compile(r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?)(s|min|m|h|d|)", re.ASCII)
_GPUS = re.compile(r"[+-]?(\d{1,12})(?:\.(\d{1,3}))?", re.ASCII)
_PLACE = re.compile(r"(.+?)(?::(\d[\d,-]*)(?:@(\d+))?(?:@([^@+]+)\+(\d+))?)?", re.ASCII)
_COUNTED = ("pods", "min_pods", "gpus")


def parse_change(text: str, snapshot: Snapshot) -> tuple[Change, ...]:
    """The changes of a text: one, or several with ``;`` between; later ones may name what earlier ones add.

    Raises:
        InputError: a word is not understood or names nothing in the snapshot (near names are offered), or what is asked
            for cannot be done.
    """
    parts = _parts(text)
    if not parts:
        raise InputError("no change is given", hint=f"such as `drain gpu[01-16]`; verbs: {', '.join(VERBS)}")
    found: list[Change] = []
    step: list[Change] = []
    for at, words in enumerate(parts):
        step += _parse_words(words, Names(snapshot))
        if words[0] == "move" and at + 1 < len(parts) and parts[at + 1][0] == "move":
            continue  # moves that follow each other are one step: one may take the place of another
        found += step
        snapshot = apply_changes(snapshot, step)  # what cannot be done is told at once
        step = []
    return tuple(found)


def _parts(text: str) -> list[list[str]]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        words = list(lexer)
    except ValueError:
        raise InputError(f"a quote is not closed in {text[:80]!r}") from None
    parts: list[list[str]] = [[]]
    for word in words:
        if set(word) == {";"}:
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _parse_words(words: list[str], names: Names) -> tuple[Change, ...]:
    verb = words[0]
    if verb not in VERBS:
        hint = near(verb, list(VERBS)) or f"one of {', '.join(VERBS)}"
        raise InputError(f"{verb[:40]!r} is no change", hint=hint)
    try:
        change = VERBS[verb](_Words(verb, words[1:]), names)
    except InputError as error:
        shown = " ".join(words)
        what = f"{shown if len(shown) <= 80 else shown[:77] + '...'}: {error.what}"
        raise InputError(what, field=error.field, hint=error.hint) from None
    return change if isinstance(change, tuple) else (change,)


class _Words:
    """The words after the verb, taken from the left."""

    def __init__(self, verb: str, words: list[str]) -> None:
        self.verb = verb
        self.words = words

    def next(self, what: str) -> str:
        """The next word; raises `InputError` where there is none."""
        if not self.words:
            raise InputError(f"{what} is missing", hint=USAGE[self.verb])
        return self.words.pop(0)

    def after(self, *markers: str) -> str | None:
        """The word after the first of the markers, both taken out; None if no marker is there."""
        for marker in markers:
            if marker in self.words:
                at = self.words.index(marker)
                if at + 1 == len(self.words):
                    raise InputError(f"nothing follows {marker!r}", hint=USAGE[self.verb])
                self.words.pop(at)
                return self.words.pop(at)
        return None

    def end(self) -> None:
        """Raise `InputError` where a word is left."""
        if self.words:
            raise InputError(f"{self.words[0][:60]!r} is not understood", hint=USAGE[self.verb])


# -- nodes ------------------------------------------------------------------------------------------------------------


def _add(words: _Words, names: Names) -> Change:
    number = words.next("how many")
    count = 1 if number in ("a", "an", "another") else _integer(number, 1, 100_000)
    what = words.next("what to add")
    level = names.levels_of(what)
    if what in ("node", "nodes"):
        return _add_nodes(words, names, count)
    if level is None:
        known = ["nodes", *names.topology.levels]
        raise InputError(f"{what[:40]!r} cannot be added", hint=near(what, known) or f"one of {', '.join(known)}")
    like = words.after("like")
    words.end()
    return AddDomains(level, names.domain(level, like) if like else names.largest_domain(level), count)


def _add_nodes(words: _Words, names: Names, count: int) -> Change:
    of, like = words.after("of"), words.after("like")
    level = domain = ""
    if "in" in words.words:
        at = words.words.index("in")
        if len(words.words) < at + 3:
            raise InputError("where they stand is not said", hint="such as in rack rack-3")
        _, level, domain = words.words[at : at + 3]
        del words.words[at : at + 3]
        domain = names.domain(level, domain)
    words.end()
    flavor = grow.known_flavor(names.nodes, of) if of else ""
    if like is None and not flavor:
        raise InputError("which node they are like is not said", hint=USAGE["add"])
    model = grow.model_node(names.nodes, like) if like else grow.nearest_shape(names.nodes, flavor)
    return AddNodes(count, like or model.name, flavor, level, domain)


def _remove(words: _Words, names: Names) -> Change:
    return RemoveNodes(names.node_set(words.words))


def _nodes(words: _Words, names: Names) -> Change:
    evict = words.verb == "drain" and "evict" in words.words
    if evict:
        words.words.remove("evict")
    return SetNodes(names.node_set(words.words), cast("Any", words.verb), evict=evict)


def _taint(words: _Words, names: Names) -> Change:
    text, colon, effect = words.next("the taint").partition(":")
    key, _, value = text.partition("=")
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    if colon and effect not in effects:
        hint = near(effect, effects) or f"one of {', '.join(effects)}"
        raise InputError(f"there is no effect {effect[:40]!r}", hint=hint)
    return SetNodes(names.node_set(words.words), "taint", key, value, effect or "NoSchedule")


def _untaint(words: _Words, names: Names) -> Change:
    key = words.next("the taint's key")
    tainted = [node.name for node in names.nodes if any(taint.key == key for taint in node.taints)]
    if not tainted:
        known = sorted({taint.key for node in names.nodes for taint in node.taints})
        hint = near(key, known) or (f"there are {', '.join(known[:5])}" if known else "no node has any")
        raise InputError(f"no node has a taint {key[:60]!r}", hint=hint)
    return SetNodes(names.node_set(words.words) if words.words else tuple(tainted), "untaint", key)


# -- queues and settings ----------------------------------------------------------------------------------------------


def _quota(words: _Words, names: Names) -> Change:
    queue, amount = names.queue(words.next("the queue")), words.next("how many GPUs")
    flavor = names.flavor(words.next("")) if words.words else names.only_flavor(queue)
    words.end()
    if amount[0] in "+-":
        return SetQuota(queue.name, flavor, by_milli=_milli(amount))
    return SetQuota(queue.name, flavor, to_milli=_milli(amount))


def _limit(words: _Words, names: Names) -> Change:
    which = cast("Any", words.verb.removesuffix("-limit"))
    queue, amount = names.queue(words.next("the queue")), words.next("how many GPUs, or none")
    to_milli = None if amount == "none" else _milli(amount)
    flavor = ""
    if which != "user":
        flavor = names.flavor(words.next("")) if words.words else names.only_flavor(queue)
    words.end()
    return SetLimit(queue.name, which, to_milli, flavor)


def _weight(words: _Words, names: Names) -> Change:
    queue, text = names.queue(words.next("the queue")), words.next("the weight")
    words.end()
    return SetWeight(queue.name, _number(text))


def _set(words: _Words, names: Names) -> tuple[Change, ...]:
    if not words.words:
        raise InputError("no setting is named", hint=USAGE["set"])
    return tuple(_setting(word) for word in words.words)


def _setting(text: str) -> SetConfig:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"{text[:60]!r} is not NAME=VALUE", hint=USAGE["set"])
    return SetConfig(name, _value(value))


def _value(text: str) -> Setting:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            number = kind(text)
        except ValueError:
            continue
        return number if math.isfinite(number) else text
    return text


def _policy(words: _Words, names: Names) -> Change:
    preset = words.next("the preset")
    words.end()
    return SetPolicy(preset)


def _named_setting(words: _Words, names: Names) -> Change:
    value = words.next("which")
    words.end()
    return SetConfig(words.verb, value)


# -- work -------------------------------------------------------------------------------------------------------------


def _job(words: _Words, names: Names) -> Change:
    name = names.job(words.next("the job"))
    if not words.words:
        raise InputError("what of it changes is not said", hint=USAGE["job"])
    fields: dict[str, Any] = {}
    field_of = {written: field for field, written in KEY_OF.items()}
    keys = [KEY_OF.get(field, field) for field in SetJob.__struct_fields__[1:]]
    for word in words.words:
        key, equals, text = word.partition("=")
        if not equals or key not in keys:
            hint = near(key, keys) or f"KEY=VALUE with a KEY of {', '.join(keys)}"
            raise InputError(f"{word[:60]!r} is not understood", hint=hint)
        try:
            fields[field_of.get(key, key)] = _job_value(field_of.get(key, key), text, names)
        except ValueError:
            raise InputError(f"{key}={text[:60]} is no value", hint=_JOB_HINTS.get(key, USAGE["job"])) from None
    return SetJob(name, **fields)


_JOB_HINTS = {
    "memory": "such as memory=512Gi; one for each pod set",
    "cpu": "cores, such as cpu=96; one for each pod set",
    "released": "released=yes",
    "preemptible": "yes or no",
}


def _job_value(field: str, text: str, names: Names) -> Any:
    """A field of `SetJob` from its text; raises `ValueError` or `InputError`."""
    if field in _COUNTED:
        return tuple(_integer(part, 0, 1_000_000) for part in text.split(","))
    if field == "cpu_milli":
        return tuple(parse_quantity(part, 1000) for part in text.split(","))
    if field == "memory_bytes":
        return tuple(parse_quantity(part) for part in text.split(","))
    if field in ("priority", "segment", "at_most"):
        return _integer(text, -(2**31) if field == "priority" else 0, 2**31 - 1)
    if field in ("models", "flavors", "tolerate", "selector"):
        given = () if text in ("any", "") else tuple(text.split(","))
        return tuple(map(names.flavor, given)) if field == "flavors" else given
    if field in ("topology", "prefer", "spread"):
        level = "" if text == "none" else text
        if level and level not in names.topology.with_hosts:
            grow.level_index(names.topology, level)
        return level
    if field == "limit_s":
        return math.inf if text == "none" else seconds(text)
    if field == "queue":
        return names.queue(text).name
    if field == "released" and text != "yes":
        raise ValueError(text)
    return {"yes": True, "no": False}[text] if text in ("yes", "no") else int("no such value")


def _stop(words: _Words, names: Names) -> Change:
    name = names.job(words.next("the job"))
    words.end()
    return (Stop if words.verb == "stop" else Cancel)(name)


def _move(words: _Words, names: Names) -> Change:
    name = names.job(words.next("the job"))
    if words.next("'to'") != "to" or not words.words:
        raise InputError("where to is not said", hint=USAGE["move"])
    return Move(name, tuple(_placement(word, names) for word in words.words))


def _placement(text: str, names: Names) -> PodPlacement:
    found = _PLACE.fullmatch(text)
    node = text if text in names.node_names or found is None else found[1]
    if node not in names.node_names:
        names.node_set([node])
        raise InputError(f"{node[:60]!r} is not one node", hint=USAGE["move"])
    if node == text or found is None:
        return PodPlacement(node)
    devices: list[int] = []
    for part in found[2].split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise InputError(f"{text[:60]!r} is no place", hint=USAGE["move"])
        devices += range(int(first), int(last or first) + 1)
    milli = int(found[3] or 1000)
    return PodPlacement(node, tuple(devices), milli, found[4] or "", int(found[5]) if found[4] else -1)


def _submit(words: _Words, names: Names) -> Change:
    text = words.next("the workload")
    words.end()
    if not text.startswith("{"):
        raise InputError("a workload is written as JSON", hint=USAGE["submit"])
    try:
        return Submit(msgspec.json.decode(text, type=Workload))
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InputError(f"is no workload: {error}", hint=USAGE["submit"]) from None


# -- reservations -----------------------------------------------------------------------------------------------------


def _reserve(words: _Words, names: Names) -> Change:
    start, end = words.after("from"), words.after("to")
    queues, jobs, name = words.after("queue", "queues"), words.after("job", "jobs"), words.after("name")
    if end is None:
        raise InputError("until when is not said", hint=USAGE["reserve"])
    nodes = names.node_set(words.words)
    taken = {each.name for each in names.snapshot.reservations}
    number = next(number for number in range(1, len(taken) + 2) if f"reserved-{number}" not in taken)
    return Reserve(
        name or f"reserved-{number}",
        nodes,
        seconds(start) if start else 0.0,
        seconds(end),
        tuple(names.queue(each).name for each in queues.split(",")) if queues else (),
        tuple(map(names.job, jobs.split(","))) if jobs else (),
    )


def _end_reservation(words: _Words, names: Names) -> Change:
    name = words.next("the reservation")
    words.end()
    known = [each.name for each in names.snapshot.reservations]
    if name not in known:
        hint = near(name, known) or (f"there are {', '.join(known[:5])}" if known else "there are none")
        raise InputError(f"there is no reservation {name[:60]!r}", hint=hint)
    return EndReservation(name)


def _wave(words: _Words, names: Names) -> Change:
    batch, every, start = words.after("batch"), words.after("every"), words.after("from")
    if batch is None or every is None:
        raise InputError("how many nodes at a time, and how often, is not said", hint=USAGE["driver-wave"])
    if len(words.words) == 2 and words.words[0].isdigit() and words.words[1] == "nodes":
        nodes = _soonest_free(names, _integer(words.words[0], 1, len(names.nodes)))
    else:
        nodes = names.node_set(words.words)
    return Wave(nodes, _integer(batch, 1, 100_000), seconds(every), seconds(start) if start else 0.0)


def _soonest_free(names: Names, count: int) -> tuple[str, ...]:
    """So many nodes with GPUs, those first whose work should end first; idle ones are free now."""
    ends: dict[str, float] = {}
    for run in names.snapshot.running:
        limit_s = run.workload.time_limit_s
        end_s = run.expected_end_s if run.expected_end_s is not None else run.started_s + (limit_s or math.inf)
        for pod in run.pods:
            ends[pod.node] = max(ends.get(pod.node, 0.0), end_s)
    order = sorted((node for node in names.nodes if node.devices), key=lambda node: ends.get(node.name, 0.0))
    if len(order) < count:
        raise InputError(f"there are only {len(order)} nodes with GPUs")
    return tuple(sorted((node.name for node in order[:count]), key=names.node_names.__getitem__))


# -- numbers ----------------------------------------------------------------------------------------------------------


def seconds(text: str) -> float:
    """``90m``, ``2.5h``, ``1d``, ``45s`` or plain seconds; raises `InputError`."""
    found = _SPAN.fullmatch(text)
    value = float(found[1]) * _UNITS[found[2]] if found else -1.0
    if not 0 <= value <= 1e12:
        raise InputError(f"{text[:40]!r} is no time", hint="such as 45s, 90m, 2.5h, 1d or 5400")
    return value


def _milli(text: str) -> int:
    found = _GPUS.fullmatch(text)
    if not found:
        raise InputError(f"{text[:40]!r} is no number of GPUs", hint="such as 64, +64, -8 or 0.5")
    milli = int(found[1]) * 1000 + int((found[2] or "0").ljust(3, "0"))
    return -milli if text[0] == "-" else milli


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text[:40]!r} is no number") from None


def _integer(text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        raise InputError(f"{text[:40]!r} is no whole number") from None
    if not least <= value <= most:
        raise InputError(f"{text[:40]} is out of range", hint=f"{least:,} to {most:,}")
    return value


VERBS: dict[str, Callable[[_Words, Names], Change | tuple[Change, ...]]] = {
    "add": _add, "remove": _remove, "drain": _nodes, "uncordon": _nodes, "fail": _nodes, "repair": _nodes,
    "spare": _nodes, "unspare": _nodes, "taint": _taint, "untaint": _untaint, "reserve": _reserve,
    "end-reservation": _end_reservation, "driver-wave": _wave, "quota": _quota, "borrowing-limit": _limit,
    "lending-limit": _limit, "user-limit": _limit, "weight": _weight, "set": _set, "policy": _policy,
    "placement": _named_setting, "ordering": _named_setting, "job": _job, "stop": _stop, "move": _move,
    "submit": _submit, "cancel": _stop,
}  # fmt: skip

_NODES_USAGE = "NODES: such as gpu[01-16], gpu-1*, block b3 or all"
USAGE = {
    "add": "add 8 nodes like gpu01 [in rack rack-3], add 8 nodes of H200-SXM5-141GB, or add 2 racks [like rack-3]",
    "remove": f"remove NODES; {_NODES_USAGE}",
    "drain": f"drain NODES [evict]; {_NODES_USAGE}",
    "uncordon": f"uncordon NODES; {_NODES_USAGE}",
    "fail": f"fail NODES; {_NODES_USAGE}",
    "repair": f"repair NODES; {_NODES_USAGE}",
    "spare": f"spare NODES; {_NODES_USAGE}",
    "unspare": f"unspare NODES; {_NODES_USAGE}",
    "taint": f"taint KEY[=VALUE][:EFFECT] NODES; {_NODES_USAGE}",
    "untaint": "untaint KEY [NODES]",
    "reserve": "reserve NODES [from TIME] to TIME [queue NAME] [job NAME] [name NAME]; times are counted from now",
    "end-reservation": "end-reservation NAME",
    "driver-wave": "driver-wave 40 nodes batch 8 every 30m [from 2h], or driver-wave NODES batch 8 every 30m",
    "quota": "quota QUEUE +64 [FLAVOR], or quota QUEUE 128 [FLAVOR]",
    "borrowing-limit": "borrowing-limit QUEUE 64|none [FLAVOR]",
    "lending-limit": "lending-limit QUEUE 64|none [FLAVOR]",
    "user-limit": "user-limit QUEUE 64|none",
    "weight": "weight QUEUE 2",
    "set": "set NAME=VALUE, such as set reservations=4; `muster explain-config` lists them",
    "policy": "policy muster|kueue-like|slurm-like|volcano-like",
    "placement": "placement best-fit",
    "ordering": "ordering fair-share",
    "job": "job NAME KEY=VALUE ..., such as job llama priority=10 pods=4 topology=none",
    "stop": "stop JOB",
    "move": "move JOB to gpu01:0-7 gpu02:0-7, a place for each pod",
    "submit": "submit JSON: the fields of a workload",
    "cancel": "cancel JOB",
}
"""How each change is written, for hints."""
