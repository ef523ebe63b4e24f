"""The rules as data: signals, causes and commands, one file a layer in rules/; each fact from outside names its source.

A **signal** is something that evidence shows or not: a line (``line``: a regular expression) or a condition on facts
(``when``). ``in`` names the command whose output shows it. ``fault: false`` marks signs of health.

A **cause** says how often it shows each signal, in words: always, usually, often, sometimes, rarely, never. What it
does not name, it shows as often as anything else does. ``proof`` are signals that only this cause shows: without one
of them it is never called certain.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

import msgspec
from msgspec import Struct

from muster.doctor.expressions import parsed

LIKELY = {"always": 0.97, "usually": 0.8, "often": 0.5, "sometimes": 0.2, "rarely": 0.04, "never": 0.004}
"""How often a cause shows a signal."""

BASE_FAULT, BASE_FAR, BASE_PROOF, BASE_HEALTH = 0.02, 0.01, 0.001, 0.9
"""How often signals are there that a cause does not name: signs of a fault in its layer, in another layer, proofs of
another cause, signs of health."""


class Signal(Struct, frozen=True, forbid_unknown_fields=True, rename={"shown_by": "in"}):
    """See the module's text.

    Attributes:
        id: its name, ``layer.what``.
        says: what it tells, as a sentence of the verdict.
        shown_by: the kind of piece that shows it; several: any of them.
        line: a regular expression searched for in each line.
        when: a condition on facts.
        fault: whether it is a sign of a fault; False: of health.
        note: of no weight for a cause, but worth to be told.
        hint: of weight for causes, and by itself no fault, such as a version or a setting.
        proof: some cause takes it for a proof; found by `load_rules`, not written in files, as is ``layer``.
    """

    id: str
    says: str
    shown_by: str | tuple[str, ...]
    line: str = ""
    when: str = ""
    fault: bool = True
    note: bool = False
    hint: bool = False
    proof: bool = False
    layer: str = ""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of pieces that show it."""
        return (self.shown_by,) if isinstance(self.shown_by, str) else self.shown_by


class Cause(Struct, frozen=True, forbid_unknown_fields=True):
    """See the module's text.

    Attributes:
        id: its name.
        cause: what is broken, as a sentence.
        why: how it comes to that, for who reads on.
        weight: how common it is beside the others of all layers; 1 is seen now and then, 5 often.
        shows: signal to how often.
        proof: signals of which one must be seen before it is called certain.
        fix: commands or steps, in order; ``NODE`` stands for the node's name.
        risk: what the fix may break.
        source: where this is known from.
    """

    id: str
    cause: str
    shows: dict[str, str]
    fix: tuple[str, ...]
    risk: str
    source: str
    why: str = ""
    weight: float = 1.0
    proof: tuple[str, ...] = ()
    layer: str = ""

    def shows_it(self, signal: Signal) -> float:
        """How often it shows a signal."""
        word = self.shows.get(signal.id)
        if word is not None:
            return LIKELY[word]
        if not signal.fault:
            return BASE_HEALTH
        if signal.proof:
            return BASE_PROOF
        return BASE_FAULT if signal.layer == self.layer else BASE_FAR


class Layer(Struct, frozen=True, forbid_unknown_fields=True):
    """A file of rules.

    Attributes:
        layer: its name.
        order: layers are looked at from the lowest.
        about: what the layer is, in a sentence.
        healthy: signals of health that, all seen or unknown but one seen, make it healthy.
    """

    layer: str
    order: int
    about: str
    healthy: tuple[str, ...] = ()
    signals: tuple[Signal, ...] = ()
    causes: tuple[Cause, ...] = ()


class Command(Struct, frozen=True, forbid_unknown_fields=True):
    """A command that shows a kind of piece.

    Attributes:
        kind: of piece.
        run: the command; ``NODE`` stands for the node's name.
        where: ``cluster`` (any machine with access), ``node`` (on the node), ``pod``.
        world: ``kubernetes`` or ``slurm`` where the command only exists there.
        effort: 1 is read at once by anybody, 3 needs root on the node or disturbs work.
    """

    kind: str
    run: str
    where: str = "cluster"
    effort: float = 1.0
    world: str = ""


class Rules(Struct, frozen=True):
    """All of them; ``causes`` know their layer."""

    layers: tuple[Layer, ...]
    signals: dict[str, Signal]
    causes: tuple[Cause, ...]
    commands: dict[str, Command]


@cache
def load_rules() -> Rules:
    """The rules that are shipped; raises ValueError where they contradict themselves (tests do, users never)."""
    folder = resources.files("muster.doctor") / "rules"
    names = sorted(each.name for each in folder.iterdir() if each.name.endswith(".yaml"))
    layers = [
        msgspec.yaml.decode((folder / name).read_bytes(), type=Layer) for name in names if name != "commands.yaml"
    ]
    layers.sort(key=lambda each: (each.order, each.layer))
    commands = msgspec.yaml.decode((folder / "commands.yaml").read_bytes(), type=tuple[Command, ...])
    proofs = {name for layer in layers for cause in layer.causes for name in cause.proof}
    signals = {
        signal.id: msgspec.structs.replace(signal, proof=signal.id in proofs, layer=layer.layer)
        for layer in layers
        for signal in layer.signals
    }
    causes = tuple(msgspec.structs.replace(each, layer=layer.layer) for layer in layers for each in layer.causes)
    rules = Rules(tuple(layers), signals, causes, {each.kind: each for each in commands})
    check(rules)
    return rules


def check(rules: Rules) -> None:
    """Raise ValueError where a rule names what is not there."""
    if len({cause.id for cause in rules.causes}) != len(rules.causes):
        raise ValueError("two causes have the same id")
    if len(rules.signals) != sum(len(layer.signals) for layer in rules.layers):
        raise ValueError("two signals have the same id")
    for signal in rules.signals.values():
        if bool(signal.line) == bool(signal.when):
            raise ValueError(f"{signal.id} has either a line or a condition")
        for kind in signal.kinds:
            if kind not in rules.commands:
                raise ValueError(f"{signal.id} is shown by {kind}, which no command gives")
        if signal.line:
            re.compile(signal.line)
        else:
            parsed(signal.when)
    for cause in rules.causes:
        for name, word in cause.shows.items():
            if name not in rules.signals:
                raise ValueError(f"{cause.id} shows {name}, which is no signal")
            if word not in LIKELY:
                raise ValueError(f"{cause.id} shows {name} {word}: say {', '.join(LIKELY)}")
        if unknown := [name for name in cause.proof if name not in cause.shows]:
            raise ValueError(f"{cause.id}: proof {unknown} is not among what it shows")
    for layer in rules.layers:
        if unknown := [name for name in layer.healthy if name not in rules.signals]:
            raise ValueError(f"layer {layer.layer}: healthy names {unknown}")
