"""The ``#SBATCH`` lines of a batch script: which options Slurm reads, and how it writes values.

Source: sbatch(1) of Slurm 26.05 (SchedMD/slurm doc/man/man1/sbatch.1).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from msgspec import Struct

from muster.errors import InputError, near

SHORT = {
    "A": "account", "a": "array", "b": "begin", "c": "cpus-per-task", "C": "constraint", "d": "dependency",
    "D": "chdir", "e": "error", "F": "nodefile", "G": "gpus", "H": "hold", "h": "help", "i": "input", "I": "immediate",
    "J": "job-name", "k": "no-kill", "L": "licenses", "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks",
    "O": "overcommit", "o": "output", "p": "partition", "q": "qos", "Q": "quiet", "s": "oversubscribe",
    "S": "core-spec", "t": "time", "w": "nodelist", "W": "wait", "x": "exclude", "B": "extra-node-info",
}  # fmt: skip
READ = (
    "account", "array", "begin", "comment", "constraint", "contiguous", "core-spec", "cpus-per-gpu", "cpus-per-task",
    "dependency", "exclude", "exclusive", "gpus", "gpus-per-node", "gpus-per-task", "gres", "hold", "job-name", "mem",
    "mem-per-cpu", "mem-per-gpu", "mincpus", "nodelist", "nodes", "ntasks", "ntasks-per-gpu", "ntasks-per-node",
    "overcommit", "partition", "prefer", "qos", "reservation", "segment", "spread-job", "switches", "time", "time-min",
    "licenses", "priority", "nice", "deadline", "threads-per-core", "clusters", "hint", "tmp",
)  # fmt: skip
"""Options that matter to where and when a job starts."""
REFUSED = {
    "gpus-per-socket": "sockets are not in a snapshot; give --gpus-per-node",
    "tres-per-task": "give --gpus-per-task and --cpus-per-task",
    "nodefile": "give the nodes by --nodelist",
    "oversubscribe": "CPUs that jobs share are not counted so; leave it out to ask for CPUs of its own",
    "extra-node-info": "sockets and cores are not in a snapshot; give --cpus-per-task",
    "sockets-per-node": "sockets are not in a snapshot; leave it out",
    "cores-per-socket": "sockets are not in a snapshot; leave it out",
    "ntasks-per-socket": "sockets are not in a snapshot; give --ntasks-per-node",
    "ntasks-per-core": "cores are not in a snapshot; leave it out",
}
"""Options that would change the answer and cannot be told, with what to do."""
OF_NO_MATTER = (
    "acctg-freq", "batch", "bb", "bbf", "bell", "chdir", "consolidate-segments", "container", "container-id",
    "cpu-freq", "delay-boot", "distribution", "error", "export", "export-file", "extra", "get-user-env", "gid",
    "gpu-bind", "gpu-freq", "gres-flags", "help", "ignore-pbs", "immediate", "input", "kill-on-invalid-dep",
    "mail-type", "mail-user", "mcs-label", "mem-bind", "network", "no-kill", "no-requeue", "open-mode", "output",
    "parsable", "power", "profile", "propagate", "quiet", "reboot", "requeue", "resv-ports", "signal", "stepmgr",
    "test-only", "thread-spec", "tree-width", "uid", "umask", "usage", "use-min-nodes", "verbose", "version", "wait",
    "wait-all-nodes", "wckey", "wrap", "resources", "resource-layers",
)  # fmt: skip
"""Options that decide neither where nor when a job starts."""
ALONE = frozenset((
    "contiguous", "get-user-env", "help", "hold", "ignore-pbs", "no-requeue", "overcommit", "parsable", "quiet",
    "reboot", "spread-job", "test-only", "usage", "use-min-nodes", "verbose", "version", "wait", "oversubscribe",
    "consolidate-segments", "stepmgr", "bell", "container-mount-home", "no-container-mount-home",
    "container-remap-root", "no-container-remap-root", "container-writable", "container-readonly",
    "container-entrypoint", "no-container-entrypoint", "container-entrypoint-log",
))  # fmt: skip
"""Options that take no value."""
MAYBE = frozenset(
    ("exclusive", "nice", "no-kill", "immediate", "propagate", "requeue", "resv-ports", "kill-on-invalid-dep")
)
"""Options whose value may be left out; it is given by ``=`` only."""
PYXIS = (
    "container-image", "container-mounts", "container-workdir", "container-name", "container-save",
    "container-mount-home", "no-container-mount-home", "container-remap-root", "no-container-remap-root",
    "container-writable", "container-readonly", "container-entrypoint", "no-container-entrypoint",
    "container-entrypoint-log", "container-env",
)  # fmt: skip
"""Options of pyxis, the plugin that runs jobs in containers (NVIDIA/pyxis README); they do not decide where or when."""
KNOWN = (*READ, *REFUSED, *OF_NO_MATTER, *PYXIS)

_BLANK = re.compile(r"\s*(#.*)?")


class Option(Struct, frozen=True):
    """One option of a script: its long name, its value (empty where it has none), its line and how it was written."""

    name: str
    value: str
    line: int
    written: str


class Script(Struct, frozen=True):
    """The options of a script, a tuple for each component of a heterogeneous job, and lines that Slurm ignores."""

    components: tuple[tuple[Option, ...], ...]
    ignored: tuple[int, ...]


def lines_of(text: str) -> list[str]:
    """The lines of a script, as shells and Slurm count them: a form feed or the like ends none."""
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "" else lines


def read_script(text: str, path: str, wrong: list[InputError] | None = None) -> Script:
    """The options of a script's ``#SBATCH`` lines.

    Slurm reads them up to the first line that is neither blank nor a comment, and only where ``#SBATCH`` begins the
    line.

    Args:
        text: the script.
        path: of the script, for errors.
        wrong: where given, what is wrong is entered here, and the rest is read.

    Raises:
        InputError: no ``#!`` in the first line, or an option that Slurm does not have; with its line.
    """
    lines = lines_of(text)
    if not lines or not lines[0].startswith("#!"):
        what = "does not begin with #!, so sbatch takes it for no batch script"
        error = InputError(what, file=path, line=1, hint="begin with #!/bin/bash")
        if wrong is None:
            raise error
        wrong.append(error)
    components: list[list[Option]] = [[]]
    ignored: list[int] = []
    over = False
    for number, line in enumerate(lines, 1):
        is_option = line.startswith("#SBATCH") and (len(line) == 7 or line[7].isspace())
        if not over and not _BLANK.fullmatch(line):
            over = True
        elif is_option and over:
            ignored.append(number)
        elif is_option:
            try:
                words = _words(line[7:], path, number)
            except InputError as error:
                if wrong is None:
                    raise
                wrong.append(error)
                continue
            if words[:1] in (["hetjob"], ["packjob"]):
                components.append([])
            else:
                components[-1] += read_options(words, path, number, wrong)
    return Script(tuple(map(tuple, components)), tuple(ignored))


def _words(text: str, path: str, line: int) -> list[str]:
    lexer = shlex.shlex(text, posix=True, punctuation_chars=False)
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    try:
        for word in lexer:
            if word.startswith("#"):
                break
            words.append(word)
    except ValueError as error:
        raise InputError(f"#SBATCH {text.strip()[:60]}: {error}".lower(), file=path, line=line) from None
    return words


def read_options(words: Sequence[str], path: str, line: int, wrong: list[InputError] | None = None) -> list[Option]:
    """The options that words are; what is wrong is raised, or entered in ``wrong`` where that is given."""
    found: list[Option] = []
    rest = list(words)
    while rest:
        try:
            found.append(_option(rest, path, line))
        except InputError as error:
            if wrong is None:
                raise
            wrong.append(error)
            if rest and not rest[0].startswith("-"):
                rest.pop(0)
    return found


def _option(rest: list[str], path: str, line: int) -> Option:
    """Take one option, and its value, off the words."""
    word = rest.pop(0)
    if word.startswith("--") and len(word) > 2:
        name, equals, value = word[2:].partition("=")
        name, written = _full(name, path, line), f"--{name}"
    elif word.startswith("-") and len(word) > 1 and word[1] in SHORT:
        name, value, written = SHORT[word[1]], word[2:], word[:2]
        equals = "=" if value else ""
    else:
        hint = "options begin with -- or -, such as --nodes=4"
        raise InputError(f"#SBATCH {word[:60]!r} is no option of sbatch", file=path, line=line, hint=hint)
    if name in ALONE:
        if equals:
            raise InputError(f"{written} takes no value", file=path, line=line, field=written)
    elif not equals and name not in MAYBE:
        if not rest:
            raise InputError("has no value", file=path, line=line, field=written, hint=f"such as {written}=VALUE")
        value = rest.pop(0)
    return Option(name, value.strip(), line, written)


def _full(name: str, path: str, line: int) -> str:
    """The option of a name, or of the begin of one name only, as getopt reads it."""
    if name in KNOWN:
        return name
    begun = [each for each in KNOWN if name and each.startswith(name)]
    if len(begun) == 1:
        return begun[0]
    hint = f"it may be {', '.join(begun[:4])}" if begun else near(name, KNOWN)
    raise InputError("is no option of sbatch", file=path, line=line, field=f"--{name[:60]}", hint=hint)


# -- values


def minutes_up(text: str) -> float | None:
    """A time limit in seconds, rounded up to minutes as Slurm does; None: no limit (0, UNLIMITED, INFINITE).

    Raises:
        ValueError: it is of none of Slurm's forms: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S.
    """
    if text.upper() in ("UNLIMITED", "INFINITE", "-1"):
        return None
    days, dash, rest = text.partition("-") if "-" in text else ("0", "", text)
    parts = rest.split(":")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in (days, *parts)) or len(parts) > 3:
        raise ValueError(text)
    numbers = list(map(int, parts))
    if dash:
        hours, minutes, seconds = [*numbers, 0, 0][:3]
    elif len(numbers) == 3:
        hours, minutes, seconds = numbers
    else:
        hours, (minutes, seconds) = 0, [*numbers, 0][:2]
    whole = int(days) * 86400 + hours * 3600 + minutes * 60 + seconds
    return float(-(-whole // 60) * 60) or None


def slurm_time(seconds: float) -> str:
    """A time limit as Slurm writes it: whole minutes, rounded up; `minutes_up` reads it."""
    minutes = -(-int(seconds) // 60)
    days, rest = divmod(minutes, 1440)
    return f"{days}-{rest // 60:02d}:{rest % 60:02d}:00" if days else f"{rest // 60:02d}:{rest % 60:02d}:00"


def mebibytes(text: str) -> int:
    """Memory in bytes: megabytes unless a suffix K, M, G or T says else, in powers of 1024. Raises `ValueError`."""
    match = re.fullmatch(r"(\d{1,15})([KMGT]?)B?", text.strip().upper())
    if match is None or (text.strip().upper().endswith("B") and not match[2]):
        raise ValueError(text)
    return int(match[1]) * 1024 ** ("KMGT".index(match[2] or "M") + 1)


def node_counts(text: str) -> tuple[int, int]:
    """``4``, ``2-4``, ``1k`` as least and most nodes. Raises `ValueError`."""
    low, dash, high = text.partition("-")

    def number(part: str) -> int:
        match = re.fullmatch(r"(\d{1,9})([kKmM]?)", part)
        if match is None or not int(match[1]):
            raise ValueError(text)
        return int(match[1]) * {"": 1, "k": 1024, "m": 1024 * 1024}[match[2].lower()]

    least = number(low)
    most = number(high) if dash else least
    if most < least:
        raise ValueError(text)
    return least, most


def gpus_of(text: str) -> tuple[str, int]:
    """``4``, ``h100:4`` or ``h100`` as a type (empty: any) and a number. Raises `ValueError`."""
    kind, _, count = text.rpartition(":")
    if not count.isdigit():
        kind, count = text, "1"
    if not count.isascii() or len(count) > 9 or ":" in kind:
        raise ValueError(text)
    return kind, int(count)


def array_tasks(text: str) -> tuple[int, int]:
    """``0-31%4``, ``1,3,5-7``, ``0-15:4`` as tasks in all, and how many may run at a time. Raises `ValueError`."""
    tasks, most = array_indexes(text)
    return len(tasks), min(len(tasks), most or len(tasks))


def array_indexes(text: str) -> tuple[tuple[int, ...], int]:
    """The same as the numbers of the tasks in order, and how many may run at a time; 0: all. Raises `ValueError`."""
    indexes, percent, limit = text.partition("%")
    tasks: set[int] = set()
    for part in indexes.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part.strip())
        if match is None:
            raise ValueError(text)
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if high < low or not step or (high - low) // step > 4_000_000:
            raise ValueError(text)
        tasks.update(range(low, high + 1, step))
    most = int(limit) if percent and limit.isascii() and limit.isdigit() else 0
    if percent and not most:
        raise ValueError(text)
    return tuple(sorted(tasks)), most
