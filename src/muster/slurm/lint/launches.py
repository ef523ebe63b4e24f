"""The commands of a script that start ranks: srun, torchrun, accelerate, deepspeed, mpirun and plain python.

Sources: srun(1) of Slurm 22.05.8; torchrun's documentation (torch.distributed.run).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from muster.slurm.sbatch_lines import ALONE, KNOWN, MAYBE, SHORT, lines_of

SRUN, TORCHRUN, MPIRUN, PYTHON, ACCELERATE, DEEPSPEED = (
    "srun", "torchrun", "mpirun", "python", "accelerate", "deepspeed",
)  # fmt: skip

_SRUN_SHORT = {**SHORT, "l": "label", "u": "unbuffered", "K": "kill-on-bad-exit", "r": "relative", "T": "threads",
               "W": "wait", "X": "disable-status", "Z": "no-allocate", "E": "preserve-env", "v": "verbose"}  # fmt: skip
_SRUN_ALONE = (ALONE - {"wait"}) | {
    "label", "unbuffered", "disable-status", "no-allocate", "preserve-env", "exact", "overlap", "pty", "multi-prog",
    "send-libs", "external-launcher", "verbose", "whole",
}  # fmt: skip
_SRUN_MAYBE = MAYBE | {"kill-on-bad-exit", "pty", "send-libs", "bcast"}
_SRUN_WITH_VALUE = ("mpi", "cpu-bind", "het-group", "relative", "threads", "wait", "container-image")
_BEFORE = {"exec", "time", "nohup", "env", "command", "if", "then", "else", "do", "while", "!", "{", "until", "elif"}
_WITH_VALUE = {"timeout", "nice", "numactl", "taskset", "stdbuf"}
_ASSIGNED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_LONG_LINE, _LONG_WORD = 10_000, 2_000
_WORD = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|[^\s;&|()'"\\]+""", re.DOTALL)
_ENDS = frozenset(("&", "&&", "|", "||", ";", ";;", "(", ")", "|&"))


class Assigned(Struct, frozen=True):
    """A variable that the script sets: its value as it is written, and the line."""

    value: str
    line: int


class Launch(Struct, frozen=True):
    """One command that starts ranks.

    Attributes:
        kind: SRUN, TORCHRUN ...
        line: the first line of the command, 1-based.
        text: the line from the command on, as it stands in the script.
        options: long name (dashes) to value, of the launcher itself.
        inner: what srun or mpirun starts, where that is known.
        background: whether it ends in ``&``.
        variables: what is set for it alone, in front of it or within its ``bash -c``.
        program: the words that follow its options.
    """

    kind: str
    line: int
    text: str
    options: Mapping[str, str]
    inner: Launch | None = None
    background: bool = False
    variables: Mapping[str, Assigned] = {}
    program: tuple[str, ...] = ()

    def innermost(self) -> Launch:
        """What the last of the launchers starts."""
        return self if self.inner is None else self.inner.innermost()


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with the continued ones joined, without comments and what stands in here-documents."""
    joined, first, until = "", 0, ""
    for number, line in enumerate(lines_of(text), 1):
        if until:
            until = "" if line.strip() == until else until
            continue
        if not joined and line.lstrip().startswith("#"):
            continue
        first = first or number
        if line.endswith("\\") and not line.endswith("\\\\"):
            joined += line[:-1] + " "
            continue
        joined += line
        here = re.search(r"<<-?\s*['\"]?([A-Za-z_]\w*)['\"]?", joined)
        until = here[1] if here else ""
        if joined.strip():
            yield first, joined
        joined, first = "", 0
    if joined.strip():
        yield first, joined


def read_launches(text: str) -> tuple[tuple[Launch, ...], dict[str, Assigned]]:
    """The commands of a script that start ranks, in order, and the variables that it sets."""
    launches: list[Launch] = []
    assigned: dict[str, Assigned] = {}
    for number, line in logical_lines(text):
        launches += _of_line(line, number, assigned)
    return tuple(launches), assigned


def _of_line(line: str, number: int, assigned: dict[str, Assigned]) -> Iterator[Launch]:
    for words, end in _commands(line):
        if words[0] in ("export", "declare", "readonly", "local"):
            words = words[1:]
        own: dict[str, Assigned] = {}
        while words and ((set_here := _ASSIGNED.fullmatch(words[0])) or words[0] in _BEFORE):
            if set_here:
                own[set_here[1]] = Assigned(set_here[2], number)
            words = words[1:]
        if not words:
            assigned.update(own)
            continue
        found = _launch(words, number, line, own)
        if found is not None:
            yield Launch(found.kind, number, line.strip(), found.options, found.inner, end == "&", found.variables,
                         found.program)  # fmt: skip


def _commands(line: str) -> Iterator[tuple[list[str], str]]:
    """The simple commands of a line, each with what ends it; a line that is no shell is passed over."""
    if len(line) > _LONG_LINE:  # data, such as base64: shlex takes the square of a word's length
        line = _WORD.sub(_cut, line)
    lexer = shlex.shlex(re.sub(r"\$\(([^()]|\([^()]*\))*\)", _quoted, line), posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        for token in lexer:
            if token in _ENDS or set(token) <= set(";&|()"):
                if words:
                    yield words, token
                words = []
            elif not (not words and token in _BEFORE):
                words.append(token)
    except ValueError:
        return
    if words:
        yield words, ""


def _cut(found: re.Match[str]) -> str:
    word = found[0]
    if len(word) <= _LONG_WORD:
        return word
    end = word[0] if word[0] in "'\"" else ""
    return word[:_LONG_WORD].rstrip("\\") + end


def _quoted(found: re.Match[str]) -> str:
    """``$(command)`` as one word, so that what is in it is not read as commands of the line."""
    return re.sub(r"[\s;&|()'\"]", lambda letter: {" ": "\u00a0"}.get(letter[0], "\u2007"), found[0])


def _launch(words: Sequence[str], line: int, text: str, own: Mapping[str, Assigned]) -> Launch | None:
    name = words[0].rpartition("/")[2]
    rest = list(words[1:])
    if name in _WITH_VALUE:
        at = next((at for at, word in enumerate(rest) if _kind(rest[at:]) or word == "srun"), None)
        return None if at is None else _launch(rest[at:], line, text, own)
    if name == SRUN:
        options, program = _srun_options(rest)
        inner, inside = _inner(program, line, text)
        return Launch(SRUN, line, text, options, inner, variables={**own, **inside}, program=tuple(program))
    if name in ("mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"):
        options, program = _other_options(rest, single=("np", "n"))
        inner, inside = _inner(program, line, text)
        return Launch(MPIRUN, line, text, options, inner, variables={**own, **inside}, program=tuple(program))
    kind = _kind(words)
    if not kind:
        return None
    if kind == TORCHRUN and name != "torchrun":
        rest = rest[rest.index("-m") + 2 :]
    if kind == ACCELERATE:
        rest = rest[1:]
    options, program = _other_options(rest) if kind != PYTHON else ({}, rest)
    return Launch(kind, line, text, options, variables=own, program=tuple(program))


def _kind(words: Sequence[str]) -> str:
    name = words[0].rpartition("/")[2]
    if name in (TORCHRUN, DEEPSPEED):
        return name
    if name == ACCELERATE and words[1:2] == ["launch"]:
        return ACCELERATE
    if re.fullmatch(r"python[0-9.]*", name):
        module = words[words.index("-m") + 1] if "-m" in words[:-1] else ""
        return TORCHRUN if module in ("torch.distributed.run", "torch.distributed.launch") else PYTHON
    return ""


def _inner(program: Sequence[str], line: int, text: str) -> tuple[Launch | None, dict[str, Assigned]]:
    """What is started, where it is a launcher or python; also within ``bash -c``."""
    if not program:
        return None, {}
    name = program[0].rpartition("/")[2]
    if name in ("bash", "sh", "zsh") and any(re.fullmatch(r"-[a-z]*c", word) for word in program[1:3]):
        at = next(at for at, word in enumerate(program) if re.fullmatch(r"-[a-z]*c", word))
        inside: dict[str, Assigned] = {}
        found = list(_of_line(program[at + 1], line, inside)) if at + 1 < len(program) else []
        return (found[-1] if found else None), inside
    return _launch(program, line, text, {}), {}


def _srun_options(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    options: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            break
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            begun = [each for each in (*KNOWN, *_SRUN_ALONE, *_SRUN_MAYBE) if each.startswith(name)]
            name = begun[0] if len(set(begun)) == 1 else name
        else:
            name, value = _SRUN_SHORT.get(word[1], word[1]), word[2:]
            equals = "=" if value else ""
            if name in _SRUN_ALONE and value:  # several letters in one word
                rest.insert(0, f"-{value}")
                value, equals = "", "="
        takes = name in KNOWN or name in _SRUN_WITH_VALUE
        if not equals and name not in _SRUN_ALONE and name not in _SRUN_MAYBE and takes and rest:
            value = rest.pop(0)
        options[name] = value.strip("'\"")
    return options, rest


_OTHER_ALONE = frozenset((
    "standalone", "no-python", "module", "m", "run-path", "use-env", "multi-gpu", "multi-node", "cpu", "fp16", "bf16",
    "use-deepspeed", "use-fsdp", "oversubscribe", "allow-run-as-root", "report-bindings", "tag-output", "debug-mode",
    "no-local-rank", "use-hostfile", "launch-agent",
))  # fmt: skip


def _other_options(words: Sequence[str], single: Sequence[str] = ()) -> tuple[dict[str, str], list[str]]:
    """Options of torchrun and its like: ``--nproc_per_node=8``, ``--nnodes 2``; names with dashes."""
    options: dict[str, str] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if name == "x" and rest:  # a variable that mpirun passes on
            rest.pop(0)
            continue
        if not equals and name not in _OTHER_ALONE and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        options["np" if name in single else name] = value
    return options, rest
