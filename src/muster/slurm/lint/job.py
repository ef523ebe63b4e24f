"""A script and its command line as one job: its options, what it starts, and numbers with Slurm's variables in them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec import Struct

from muster.errors import InputError
from muster.slurm.lint.launches import Assigned, Launch, read_launches
from muster.slurm.sbatch_lines import (
    Option,
    gpus_of,
    lines_of,
    mebibytes,
    minutes_up,
    node_counts,
    read_options,
    read_script,
)

COMMAND_LINE = 0
"""The line of an option that was given on the command line."""

_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)(?::-[^}]*)?\}?")


class Job(Struct, frozen=True):
    """An sbatch script.

    Attributes:
        text: the script.
        path: of the script.
        options: long name to the option that counts: the command line's, else the last of the script.
        given: all options, in order.
        ignored: lines with ``#SBATCH`` that stand after the first command.
        wrong: options that sbatch refuses, as errors with their lines.
        launches: what it starts, in order.
        assigned: variables that it sets.
        components: how many components the job has; more than one in a heterogeneous job.
    """

    text: str
    path: str
    options: Mapping[str, Option]
    given: tuple[Option, ...]
    ignored: tuple[int, ...]
    wrong: tuple[InputError, ...]
    launches: tuple[Launch, ...]
    assigned: Mapping[str, Assigned]
    components: int = 1

    @property
    def lines(self) -> Sequence[str]:
        """Its lines; the first has the index 0."""
        return lines_of(self.text)

    def option(self, *names: str) -> Option | None:
        """The first of the options that is given."""
        return next((self.options[name] for name in names if name in self.options), None)

    def value(self, name: str) -> str:
        """An option's value; empty where it is not given."""
        return self.options[name].value if name in self.options else ""

    def number(self, name: str) -> int | None:
        """A whole number of 1 or more; None where the option is not given or is none (sbatch refuses 0)."""
        value = self.value(name)
        return int(value) or None if value.isascii() and value.isdigit() and len(value) < 10 else None

    @property
    def nodes(self) -> tuple[int, int] | None:
        """``--nodes`` as least and most."""
        try:
            return node_counts(self.value("nodes")) if "nodes" in self.options else None
        except ValueError:
            return None

    def gpus(self, name: str) -> tuple[str, int] | None:
        """An option such as ``--gpus``: type (empty: any) and number, of several types the sum."""
        if name not in self.options:
            return None
        kinds: list[str] = []
        total = 0
        for part in self.value(name).split(","):
            try:
                kind, count = gpus_of(part)
            except ValueError:
                return None
            kinds.append(kind)
            total += count
        return (kinds[0] if len(set(kinds)) == 1 else ""), total

    @property
    def gres_gpus(self) -> tuple[str, int] | None:
        """GPUs a node that ``--gres`` asks for."""
        kind, total = "", 0
        for part in re.sub(r"\([^)]*\)", "", self.value("gres")).split(","):
            name, colon, rest = part.strip().removeprefix("gres/").removeprefix("gres:").partition(":")
            if name == "gpu":
                try:
                    kind, count = gpus_of(rest if colon else "1")
                except ValueError:
                    return None
                total += count
        return (kind, total) if total else None

    def memory_bytes(self, name: str) -> int | None:
        """A memory option in bytes."""
        try:
            return mebibytes(self.value(name)) if name in self.options else None
        except ValueError:
            return None

    @property
    def limit_s(self) -> float | None:
        """``--time`` in seconds; None where it is not given or is no limit."""
        try:
            return minutes_up(self.value("time")) if "time" in self.options else None
        except (ValueError, OverflowError):
            return None


def read_job(text: str, path: str, command_line: Sequence[str] = ()) -> Job:
    """Read a script; what is wrong with its options is in ``wrong``.

    Raises:
        InputError: an option of the command line is wrong.
    """
    wrong: list[InputError] = []
    script = read_script(text, path, wrong)
    try:
        more = tuple(read_options(list(command_line), "command line", COMMAND_LINE))
    except InputError as error:
        raise InputError(error.what, file=error.file, field=error.field, hint=error.hint) from None
    given = (*script.components[0], *more)
    launches, assigned = read_launches(text)
    return Job(text, path, {option.name: option for option in given}, given, script.ignored, tuple(wrong), launches,
               assigned, len(script.components))  # fmt: skip


def resolved(text: str, known: Mapping[str, int | None], assigned: Mapping[str, Assigned]) -> int | None:
    """A number of a launcher's option: digits, or a variable that Slurm or the script sets; None: not known here."""
    value = text.strip().strip("\"'")
    for _ in range(4):
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
        found = _VARIABLE.fullmatch(value)
        if found is None:
            return None
        if found[1] in known and found[1] not in assigned:
            return known[found[1]]
        if found[1] not in assigned:
            return None
        value = assigned[found[1]].value.strip("\"'")
    return None
