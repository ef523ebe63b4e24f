"""The text of changes, as an engineer types it: ``drain block b3; quota team-a +64``. See docs/reference/changes.md."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from muster.answers.changes import grow
from muster.answers.changes.apply import apply_changes, changed
from muster.answers.changes.names import Names
from muster.answers.changes.values import (
    KEY_OF,
    AddDomains,
    AddNodes,
    Cancel,
    Change,
    EndReservation,
    Mark,
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
from muster.answers.changes.words import USAGE, Words, integer, milli, number
from muster.errors import InputError, near
from muster.kube.objects import parse_quantity
from muster.model.fleet import Fleet
from muster.model.plan import PodPlacement
from muster.model.snapshot import Setting, Snapshot
from muster.model.workload import Workload
from muster.planning.quantities import seconds

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
        change = VERBS[verb](Words(verb, words[1:]), names)
    except InputError as error:
        shown = " ".join(words)
        what = f"{shown if len(shown) <= 80 else shown[:77] + '...'}: {error.what}"
        raise InputError(what, field=error.field, hint=error.hint) from None
    return change if isinstance(change, tuple) else (change,)


# -- nodes ------------------------------------------------------------------------------------------------------------


def _add(words: Words, names: Names) -> Change:
    number = words.next("how many")
    count = 1 if number in ("a", "an", "another") else integer(number, 1, 100_000)
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


def _add_nodes(words: Words, names: Names, count: int) -> Change:
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


def _remove(words: Words, names: Names) -> Change:
    return RemoveNodes(names.node_set(words.words))


def _nodes(words: Words, names: Names) -> Change:
    evict = words.verb == "drain" and "evict" in words.words
    if evict:
        words.words.remove("evict")
    return SetNodes(names.node_set(words.words), cast("Any", words.verb), evict=evict)


def _taint(words: Words, names: Names) -> Change:
    text, colon, effect = words.next("the taint").partition(":")
    key, _, value = text.partition("=")
    effects = ("NoSchedule", "PreferNoSchedule", "NoExecute")
    if colon and effect not in effects:
        hint = near(effect, effects) or f"one of {', '.join(effects)}"
        raise InputError(f"there is no effect {effect[:40]!r}", hint=hint)
    return SetNodes(names.node_set(words.words), "taint", key, value, effect or "NoSchedule")


def _untaint(words: Words, names: Names) -> Change:
    key = words.next("the taint's key")
    tainted = [node.name for node in names.nodes if any(taint.key == key for taint in node.taints)]
    if not tainted:
        known = sorted({taint.key for node in names.nodes for taint in node.taints})
        hint = near(key, known) or (f"there are {', '.join(known[:5])}" if known else "no node has any")
        raise InputError(f"no node has a taint {key[:60]!r}", hint=hint)
    return SetNodes(names.node_set(words.words) if words.words else tuple(tainted), "untaint", key)


# -- queues and settings ----------------------------------------------------------------------------------------------


def _quota(words: Words, names: Names) -> Change:
    queue, amount = names.queue(words.next("the queue")), words.next("how many GPUs")
    flavor = names.flavor(words.next("")) if words.words else names.only_flavor(queue)
    words.end()
    if amount[0] in "+-":
        return SetQuota(queue.name, flavor, by_milli=milli(amount))
    return SetQuota(queue.name, flavor, to_milli=milli(amount))


def _limit(words: Words, names: Names) -> Change:
    which = cast("Any", words.verb.removesuffix("-limit"))
    queue, amount = names.queue(words.next("the queue")), words.next("how many GPUs, or none")
    to_milli = None if amount == "none" else milli(amount)
    flavor = ""
    if which != "user":
        flavor = names.flavor(words.next("")) if words.words else names.only_flavor(queue)
    words.end()
    return SetLimit(queue.name, which, to_milli, flavor)


def _weight(words: Words, names: Names) -> Change:
    queue, text = names.queue(words.next("the queue")), words.next("the weight")
    words.end()
    return SetWeight(queue.name, number(text))


def _set(words: Words, names: Names) -> tuple[Change, ...]:
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


def _policy(words: Words, names: Names) -> Change:
    preset = words.next("the preset")
    words.end()
    return SetPolicy(preset)


def _named_setting(words: Words, names: Names) -> Change:
    value = words.next("which")
    words.end()
    return SetConfig(words.verb, value)


# -- work -------------------------------------------------------------------------------------------------------------


def _job(words: Words, names: Names) -> Change:
    name = names.job(words.next("the job"))
    if not words.words:
        raise InputError("what of it changes is not said", hint=USAGE["job"])
    return SetJob(name, **_job_fields(words, names))


def _job_fields(words: Words, names: Names) -> dict[str, Any]:
    """What KEY=VALUE words say of a job."""
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
    return fields


_JOB_HINTS = {
    "memory": "such as memory=512Gi; one for each pod set",
    "cpu": "cores, such as cpu=96; one for each pod set",
    "released": "released=yes",
    "preemptible": "yes or no",
}


def _job_value(field: str, text: str, names: Names) -> Any:
    """A field of `SetJob` from its text; raises `ValueError` or `InputError`."""
    if field in _COUNTED:
        return tuple(integer(part, 0, 1_000_000) for part in text.split(","))
    if field == "cpu_milli":
        return tuple(parse_quantity(part, 1000) for part in text.split(","))
    if field == "memory_bytes":
        return tuple(parse_quantity(part) for part in text.split(","))
    if field in ("priority", "segment", "at_most"):
        return integer(text, -(2**31) if field == "priority" else 0, 2**31 - 1)
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


def _stop(words: Words, names: Names) -> Change:
    name = names.job(words.next("the job"))
    words.end()
    return (Stop if words.verb == "stop" else Cancel)(name)


def _move(words: Words, names: Names) -> Change:
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


def _submit(words: Words, names: Names) -> tuple[Change, ...]:
    text = words.next("the file")
    if text.startswith("{"):
        marks = words.next("") if words.words else "[]"
        words.end()
        try:
            workload = msgspec.json.decode(text, type=Workload)
            return (Submit(workload, msgspec.json.decode(marks, type=tuple[Mark, ...])),)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise InputError(f"is no workload: {error}", hint=USAGE["submit"]) from None
    from muster.answers.specs.read import read_specs

    snapshot = names.snapshot
    specs = read_specs(text, snapshot)
    fields = _job_fields(words, names)
    marks = _marks(snapshot.fleet, specs.fleet)
    return tuple(
        Submit(changed(replace(each, submitted_s=snapshot.taken_s), SetJob(each.name, **fields)), marks)
        for each in specs.workloads
    )


def _marks(before: Fleet, after: Fleet) -> tuple[Mark, ...]:
    """The labels that a spec put on nodes, with the nodes."""
    found: dict[tuple[str, str], list[str]] = {}
    if after is not before:
        for old, new in zip(before, after, strict=True):
            for pair in set(new.labels) - set(old.labels):
                found.setdefault(pair, []).append(new.name)
    return tuple(Mark(*pair, tuple(nodes)) for pair, nodes in sorted(found.items()))


# -- reservations -----------------------------------------------------------------------------------------------------


def _reserve(words: Words, names: Names) -> Change:
    start, end = words.after("from"), words.after("to")
    queues, jobs, name = words.after("queue", "queues"), words.after("job", "jobs"), words.after("name")
    if end is None:
        raise InputError("until when is not said", hint=USAGE["reserve"])
    nodes = names.node_set(words.words)
    taken = {each.name for each in names.snapshot.reservations}
    free = next(at for at in range(1, len(taken) + 2) if f"reserved-{at}" not in taken)
    return Reserve(
        name or f"reserved-{free}",
        nodes,
        seconds(start) if start else 0.0,
        seconds(end),
        tuple(names.queue(each).name for each in queues.split(",")) if queues else (),
        tuple(map(names.job, jobs.split(","))) if jobs else (),
    )


def _end_reservation(words: Words, names: Names) -> Change:
    name = words.next("the reservation")
    words.end()
    known = [each.name for each in names.snapshot.reservations]
    if name not in known:
        hint = near(name, known) or (f"there are {', '.join(known[:5])}" if known else "there are none")
        raise InputError(f"there is no reservation {name[:60]!r}", hint=hint)
    return EndReservation(name)


def _wave(words: Words, names: Names) -> Change:
    batch, every, start = words.after("batch"), words.after("every"), words.after("from")
    if batch is None or every is None:
        raise InputError("how many nodes at a time, and how often, is not said", hint=USAGE["driver-wave"])
    if len(words.words) == 2 and words.words[0].isdigit() and words.words[1] == "nodes":
        nodes = _soonest_free(names, integer(words.words[0], 1, len(names.nodes)))
    else:
        nodes = names.node_set(words.words)
    return Wave(nodes, integer(batch, 1, 100_000), seconds(every), seconds(start) if start else 0.0)


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


VERBS: dict[str, Callable[[Words, Names], Change | tuple[Change, ...]]] = {
    "add": _add, "remove": _remove, "drain": _nodes, "uncordon": _nodes, "fail": _nodes, "repair": _nodes,
    "spare": _nodes, "unspare": _nodes, "taint": _taint, "untaint": _untaint, "reserve": _reserve,
    "end-reservation": _end_reservation, "driver-wave": _wave, "quota": _quota, "borrowing-limit": _limit,
    "lending-limit": _limit, "user-limit": _limit, "weight": _weight, "set": _set, "policy": _policy,
    "placement": _named_setting, "ordering": _named_setting, "job": _job, "stop": _stop, "move": _move,
    "submit": _submit, "cancel": _stop,
}  # fmt: skip
