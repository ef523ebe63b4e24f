"""The commands of a batch script, made so that pods can run them: srun's options read, what Slurm alone has told of."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, field

from muster.answers.translate.base import Remarks
from muster.answers.translate.options import SRUN_ALONE, SRUN_MAYBE, SRUN_SHORT, SRUN_SILENT
from muster.slurm.sbatch_lines import lines_of

KEPT = ("ntasks", "nodes", "ntasks-per-node", "het-group", "gpus-per-task")
"""Options that the function srun of the pods has, too."""
_SRUN = re.compile(r"(?<![\w./$-])srun(?=[ \t]|\\\n|$)", re.MULTILINE)
_BEFORE = re.compile(
    r"(?:^|[;&|({!`]|\b(?:then|do|else|if|elif|while|until|time|exec|env)(?=\s)|(?:^|\s)\w+=\S*(?=\s))\s*$"
)
_GAP = re.compile(r"(?:[ \t]|\\\n)*")
_WORD = re.compile(
    r"""(?:[^\s'"\\;|&<>()]|\\[^\n]|'[^']*'|"(?:[^"\\]|\\.)*"|\$\((?:[^()]|\([^()]*\))*\)|\$\{[^}]*\})+""", re.DOTALL
)
_FOREIGN = {
    "mpirun": "finds its hosts by Slurm there; here by a hostfile or the operator of MPIJobs",
    "mpiexec": "finds its hosts by Slurm there; here by a hostfile or the operator of MPIJobs",
    "sbatch": "submits to Slurm, which is not here",
    "salloc": "asks Slurm for nodes, which is not here",
    "squeue": "asks Slurm, which is not here: kubectl get jobs,jobsets",
    "scancel": "asks Slurm, which is not here: kubectl delete",
    "sacct": "asks Slurm, which is not here",
    "sinfo": "asks Slurm, which is not here: kubectl get nodes",
    "sbcast": "copies by Slurm; mount a volume, or put the file into the image",
    "scontrol": "only `scontrol show hostnames` is there",
    "singularity": "starts a container within the pod: name its image by --image instead",
    "apptainer": "starts a container within the pod: name its image by --image instead",
    "enroot": "starts a container within the pod: name its image by --image instead",
    "docker": "starts a container beside the pod: name its image by --image instead",
    "conda": "must be in the image, or on a volume",
    "module": "there are no modules: the image must hold what they give (--image)",
    "ml": "there are no modules: the image must hold what they give (--image)",
}
_COMMAND = re.compile(r"^\s*(?:if\s+|!\s*|time\s+|exec\s+)*(?:\w+=\S*\s+)*([\w./-]+)")
_QUIET = frozenset((
    "export", "source", ".", "cd", "set", "unset", "echo", "if", "then", "else", "elif", "fi", "for", "while", "until",
    "do", "done", "case", "esac", "module", "ml", "conda", "ulimit", "umask", "local", "declare", "readonly", "true",
    "false", "wait", "exit", "trap", "shopt", "function", "return", "eval", "srun", "hostname", "date", "sleep", "test",
    "nvidia-smi", "printenv", "env", "pwd", "which", "type", "alias",
))  # fmt: skip
"""Commands that do no harm if each pod runs them."""


class Body(Struct):
    """The commands of a script.

    Attributes:
        text: to be run in each pod.
        steps: how often srun is called.
        images: those that calls of srun name, by --container-image.
        mounts: the same of --container-mounts.
        once: lines whose commands run once on Slurm, and in each pod here.
    """

    text: str = ""
    steps: int = 0
    images: list[str] = field(default_factory=list[str])
    mounts: list[str] = field(default_factory=list[str])
    once: list[int] = field(default_factory=list[int])


def read_body(text: str, remarks: Remarks, *, components: int = 1, nodes: int = 1) -> Body:
    """The commands of a batch script; what they ask of Slurm that pods cannot do goes into the remarks.

    Args:
        text: the whole script.
        remarks: gets what is not the same.
        components: of a heterogeneous job.
        nodes: pods in all; with more than one, lines outside of srun that change things are told of.
    """
    body = Body()
    parts: list[str] = []
    done = 0
    for found in _SRUN.finditer(text):
        start = found.start()
        if start < done or not _is_command(text, start):
            continue
        line = text.count("\n", 0, start) + 1
        body.steps += 1
        before = re.sub(r"\bexec\s+$", "", text[done:start])  # a function cannot take the place of the shell
        call, done = _call(text, found.end(), line, body, remarks, components)
        parts += [before, call]
    body.text = "".join([*parts, text[done:]])
    once = list(_foreign(text, remarks))
    body.once = once if nodes > 1 else []
    return body


def _is_command(text: str, start: int) -> bool:
    begin = start
    while True:
        begin = text.rfind("\n", 0, begin)
        if begin <= 0 or text[begin - 1] != "\\":
            break
    before = text[begin + 1 : start]
    return not before.lstrip().startswith("#") and bool(_BEFORE.search(before.replace("\\\n", " ")))


def _call(
    text: str, at: int, line: int, body: Body, remarks: Remarks, components: int
) -> tuple[str, int]:  # fmt: skip
    """The call that takes the place of one of srun's, and where the rest of the text goes on."""
    steps: list[str] = []
    while True:
        kept, at = _options(text, at, line, body, remarks)
        if components > 1 and not any(each.startswith("--het-group=") for each in kept):
            kept.append(f"--het-group={len(steps)}")
        command, at, more = _until_colon(text, at)
        steps.append(" ".join(["srun", *kept, command.lstrip(" \t")]).rstrip(" \t"))
        if not more:
            break
    if len(steps) == 1:
        return steps[0], at
    remarks.note("srun", "ranks of a step over several components count anew in each of them", line)
    return "{ " + "; ".join(each.strip() for each in steps) + "; }", at


def _until_colon(text: str, at: int) -> tuple[str, int, bool]:
    """The command up to a lone colon or the end of its words; whether a colon ended it."""
    start = at
    while True:
        gap = _GAP.match(text, at)
        assert gap is not None
        word = _WORD.match(text, gap.end())
        if word is None:
            return text[start:at], at, False
        if word[0] == ":":
            return text[start:at], word.end(), True
        at = word.end()


def _options(text: str, at: int, line: int, body: Body, remarks: Remarks) -> tuple[list[str], int]:
    """The options after srun that are kept; the place where its command begins."""
    kept: list[str] = []
    for name, value, end in _given(text, at):
        at = end
        if name in KEPT:
            kept.append(f"--{name}={value}")
        elif name == "container-image":
            body.images.append(_bare(value))
        elif name == "container-mounts":
            body.mounts.append(_bare(value))
        elif name.startswith("$"):
            remarks.lost("srun", f"options in {name} are not read, and are left out", line)
        elif name == "mpi" and _bare(value) == "none":
            continue
        elif name == "mpi":
            remarks.lost(
                "srun --mpi", "ranks find each other by Slurm; here by MASTER_ADDR, or by an MPIJob for MPI", line
            )
        elif name == "multi-prog":
            remarks.lost("srun --multi-prog", "is not done: write one JobSet entry a program", line)
        elif name == "gpu-bind":
            remarks.lost("srun --gpu-bind", "each rank sees all GPUs of its pod, unless --gpus-per-task is given", line)
        elif name not in SRUN_SILENT:
            remarks.lost(f"srun --{name}", "has no counterpart, and is left out", line)
    return kept, at


def _given(text: str, at: int) -> Iterator[tuple[str, str, int]]:
    """Each option after srun: its long name, its value, and where the text goes on."""
    while True:
        gap = _GAP.match(text, at)
        assert gap is not None
        word = _WORD.match(text, gap.end())
        if word is None or not word[0].startswith(("-", "$")) or word[0] in ("-", "--"):
            return
        option, at = word[0], word.end()
        if option.startswith("$"):
            if not re.fullmatch(r"\$\{?\w*(ARGS|OPTS|OPTIONS|FLAGS)\w*\}?", option, re.IGNORECASE):
                return  # a variable that holds the command
            yield option, "", at
            continue
        if option.startswith("--"):
            name, equals, value = option[2:].partition("=")
        else:
            name, value = SRUN_SHORT.get(option[1], option[1]), option[2:]
            equals = "=" if value else ""
        if not equals and name not in SRUN_ALONE and name not in SRUN_MAYBE:
            gap = _GAP.match(text, at)
            assert gap is not None
            word = _WORD.match(text, gap.end())
            if word is not None:
                value, at = word[0], word.end()
        yield name, value, at


def _bare(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value


def _foreign(text: str, remarks: Remarks) -> Iterator[int]:
    """Tell of commands that pods do not have; the lines of commands that each pod will run."""
    heredoc = ""
    continued = False
    for number, line in enumerate(lines_of(text), 1):
        if heredoc:
            heredoc = "" if line.strip() == heredoc else heredoc
            continue
        begun, continued = continued, line.endswith("\\")
        if begun or not line.strip() or line.lstrip().startswith("#"):
            continue
        for word in re.findall(r"(?:^|[;&|(]|\$\()\s*(?:exec\s+)?([\w-]+)", line):
            if word in _FOREIGN and "scontrol show hostname" not in line:
                remarks.lost(word, _FOREIGN[word], number)
        opened = re.search(r"<<-?\s*['\"]?(\w+)", line)
        heredoc = opened[1] if opened else ""
        found = _COMMAND.match(line)
        name = found[1].rpartition("/")[2] if found else ""
        known = name in _QUIET or name in _FOREIGN or re.search(r"\bsrun\b", line)
        if name and not known and not re.match(r"\s*\w+(\+?=|\(\))", line):
            yield number


_SECRET = re.compile(r"(?i)token|secret|passw|api_?key|access_?key|credential")
_SET = re.compile(r"(?:^|[;&|{(]|\b(?:export|env|declare))\s*([A-Za-z_]\w*)=(?!\s|$)(\S*)")


def is_secret(name: str, value: str) -> bool:
    """Whether a variable is most likely a secret itself: not a path to one, nor taken from a variable or command."""
    bare = value.strip("'\"")
    return bool(_SECRET.search(name)) and bool(bare) and bare[0] not in "$`/~." and not bare.isdigit()


def secrets(text: str) -> Iterator[tuple[str, int]]:
    """The variables of a script that hold secrets word for word, with their lines."""
    for number, line in enumerate(lines_of(text), 1):
        if not line.lstrip().startswith("#"):
            yield from ((name, number) for name, value in _SET.findall(line) if is_secret(name, value))


def interpreter(text: str) -> tuple[str, ...]:
    """The words after ``#!`` of the first line; ``env`` is passed over."""
    words = lines_of(text)[0][2:].split()
    if words and words[0].endswith("/env"):
        words = [word for word in words[1:] if not word.startswith("-")]
    return tuple(words) or ("/bin/bash",)


def is_shell(words: Sequence[str]) -> bool:
    """Whether an interpreter is a shell whose scripts bash reads."""
    return words[0].rpartition("/")[2] in ("sh", "bash", "dash", "ksh", "zsh")
