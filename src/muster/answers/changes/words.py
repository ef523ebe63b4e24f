"""The words of a change taken from the left, the numbers among them, and how each change is written."""

from __future__ import annotations

import re

from muster.errors import InputError

_GPUS = re.compile(r"[+-]?(\d{1,12})(?:\.(\d{1,3}))?", re.ASCII)


class Words:
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


def milli(text: str) -> int:
    """GPUs, perhaps with a sign, in thousandths; raises `InputError`."""
    found = _GPUS.fullmatch(text)
    if not found:
        raise InputError(f"{text[:40]!r} is no number of GPUs", hint="such as 64, +64, -8 or 0.5")
    value = int(found[1]) * 1000 + int((found[2] or "0").ljust(3, "0"))
    return -value if text[0] == "-" else value


def number(text: str) -> float:
    """A number; raises `InputError`."""
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{text[:40]!r} is no number") from None


def integer(text: str, least: int, most: int) -> int:
    """A whole number in a range; raises `InputError`."""
    try:
        value = int(text)
    except ValueError:
        raise InputError(f"{text[:40]!r} is no whole number") from None
    if not least <= value <= most:
        raise InputError(f"{text[:40]} is out of range", hint=f"{least:,} to {most:,}")
    return value


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
    "submit": "submit FILE [KEY=VALUE ...], a Kubernetes object or an sbatch script; KEYs as in `job`",
    "cancel": "cancel JOB",
}
"""How each change is written, for hints."""
