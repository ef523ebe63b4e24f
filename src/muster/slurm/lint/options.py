"""Rules about the options themselves: typos, what is ignored, what contradicts, what sbatch refuses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from muster.slurm.lint.findings import ERROR, NOTE, WARNING, Edit, Hit, Rule
from muster.slurm.lint.look import Look
from muster.slurm.sbatch_lines import KNOWN

_NUMERIC = ("nodes", "ntasks", "gpus", "time", "mem", "cpus-per-task", "array", "ntasks-per-node", "gpus-per-node")
_ALMOST = re.compile(r"\s*#+\s*#?\s*SBATCH(\s.*|$)")
OLD = {
    "share": ("oversubscribe", "sbatch(1): -s, --oversubscribe"),
    "workdir": ("chdir", "sbatch(1): -D, --chdir"),
    "tres-per-node": ("gres", "sbatch(1): --gres"),
    "gpu": ("gpus", "sbatch(1): -G, --gpus"),
    "cpu_bind": ("", "srun(1): --cpu-bind"),
    "cpu-bind": ("", "srun(1): --cpu-bind"),
    "exact": ("", "srun(1): --exact"),
    "label": ("", "srun(1): --label"),
    "overlap": ("", "srun(1): --overlap"),
    "mpi": ("", "srun(1): --mpi"),
}
"""Names that sbatch does not know (tried on 22.05), and what it knows instead; empty: an option of srun only."""


def refused_options(look: Look) -> Iterator[Hit]:
    """sbatch stops at the first of them."""
    for error in look.job.wrong:
        if error.field is None and error.line == 1 and "#!" in error.what:
            edits = (Edit("before", value="#!/bin/bash", line=1),)
            yield Hit("the first line does not begin with #!: sbatch refuses it", "#!/bin/bash", 1, edits)
            continue
        name = (error.field or "").lstrip("-")
        new, _ = OLD.get(name, ("", ""))
        line = look.job.lines[error.line - 1] if error.line else ""
        if name in OLD:
            fix = f"--{new}" if new else f"it is an option of srun: srun --{name}"
            edits = (Edit("replace", value=f"--{new}", line=error.line or 0, old=f"--{name}"),) if new else ()
            yield Hit(f"--{name} is no option of sbatch, which refuses the script", fix, error.line, edits)
            continue
        hint = error.hint or ""
        found = re.search(r"did you mean ([a-z-]+)(?: or ([a-z-]+))?", hint)
        dashed = name.replace("_", "-")
        if dashed != name and dashed in KNOWN:
            hint, nearest = f"--{dashed}", dashed
        else:
            nearest = found[1] if found else ""
        edits = ()
        if nearest and line and f"--{name}" in line:
            edits = (Edit("replace", value=f"--{nearest}", line=error.line or 0, old=f"--{name}"),)
        what = f"{error.field + ' ' if error.field else ''}{error.what}: sbatch refuses the script"
        yield Hit(what, hint or "see sbatch --help", error.line, edits)


def after_the_first_command(look: Look) -> Iterator[Hit]:
    """sbatch stops reading at the first command."""
    lines = look.job.lines
    over = next(
        (number for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")), 0
    )
    last = max((option.line for option in look.job.given), default=1)
    for number in look.job.ignored:
        text = lines[number - 1].rstrip()
        edits = (Edit("delete", line=number), Edit("before", value=text, line=min(last + 1, over)))
        yield Hit(f"{text[8:].strip()} is ignored: it stands after the first command (line {over})",
                  "move it above the first command", number, edits)  # fmt: skip


def almost_an_option(look: Look) -> Iterator[Hit]:
    """Only a line that begins with ``#SBATCH`` counts."""
    for number, line in enumerate(look.job.lines, 1):
        found = _ALMOST.fullmatch(line)
        if found is None or line.startswith("#SBATCH") or line.lstrip().startswith("##SBATCH"):
            continue
        rest = found[1].strip()
        if rest.startswith("-"):
            what = f"{line.strip()[:60]} is a comment: only a line that begins with #SBATCH counts"
            edits = (Edit("replace", value=f"#SBATCH {rest}", line=number, old=line),)
            yield Hit(what, f"#SBATCH {rest}", number, edits, "whether it was meant to be out")


def variables_in_options(look: Look) -> Iterator[Hit]:
    """The shell has not run yet when sbatch reads them."""
    for option in look.job.given:
        if option.line and re.search(r"\$\{?[A-Za-z_]", option.value):
            numeric = option.name in _NUMERIC
            then = "sbatch refuses it" if numeric else "it stays as it stands"
            what = f"--{option.name}={option.value[:40]} has a variable, and #SBATCH lines have none: {then}"
            fix = f"say it on the command line: sbatch --{option.name}=VALUE"
            if not numeric:
                fix = "say it on the command line, or by %j, %x and %u for the job, its name and its user"
            yield Hit(what, fix, option.line, (), "", ERROR if numeric else WARNING)


def line_ends(look: Look) -> Iterator[Hit]:
    """sbatch refuses scripts of Windows."""
    if "\r\n" in look.job.text:
        yield Hit("lines end as on Windows (\\r\\n): sbatch refuses the script", "sed -i 's/\\r$//' FILE", 1,
                  (Edit("unix"),))  # fmt: skip


def twice(look: Look) -> Iterator[Hit]:
    """The last of an option counts."""
    last: dict[str, str] = {}
    where: dict[str, int] = {}
    for option in look.job.given:
        if option.name in last and last[option.name] != option.value:
            at = f"line {where[option.name]}" if where[option.name] else "the command line"
            over = "the command line" if not option.line else f"line {option.line}"
            what = (
                f"--{option.name}={last[option.name]} of {at} does not count: {over} says {option.value or 'it again'}"
            )
            edits = (Edit("delete-option", option.name, line=where[option.name]),) if option.line else ()
            yield Hit(what, "leave one out", where[option.name] if option.line else 0, edits, "",
                      WARNING if option.line else NOTE)  # fmt: skip
        last[option.name], where[option.name] = option.value, option.line


def contradictions(look: Look) -> Iterator[Hit]:
    """Pairs that sbatch refuses, each tried on 22.05."""
    job = look.job
    memory = [name for name in ("mem", "mem-per-cpu", "mem-per-gpu") if name in job.options]
    if len(memory) > 1:
        yield Hit(f"{' and '.join(f'--{name}' for name in memory)}: sbatch refuses more than one of them",
                  f"keep --{memory[-1]}", job.options[memory[0]].line,
                  tuple(Edit("drop", name) for name in memory[:-1]))  # fmt: skip
    if "gpus-per-task" in job.options and not job.option("ntasks", "gpus", "ntasks-per-node", "nodes"):
        yield Hit("--gpus-per-task without --ntasks: sbatch refuses it", "add --ntasks-per-node and --nodes",
                  job.options["gpus-per-task"].line)  # fmt: skip
    for one, other in (("gpus-per-task", "ntasks-per-gpu"), ("cpus-per-gpu", "cpus-per-task")):
        if one in job.options and other in job.options:
            yield Hit(f"--{one} with --{other}: sbatch refuses it", f"keep --{other if one[0] == 'c' else one}",
                      job.options[one].line, (Edit("drop", one if one[0] == "c" else other),))  # fmt: skip
    for name in ("mem-per-gpu", *(() if "nodes" in job.options else ("ntasks-per-gpu",))):
        if name in job.options and not look.shape.gpus:
            yield Hit(f"--{name} without GPUs: sbatch refuses it", "add --gpus-per-node", job.options[name].line)
    if "gpus-per-socket" in job.options and "sockets-per-node" not in job.options:
        yield Hit("--gpus-per-socket without --sockets-per-node: sbatch refuses it", "use --gpus-per-node",
                  job.options["gpus-per-socket"].line)  # fmt: skip
    gres, per_node = job.gres_gpus, job.gpus("gpus-per-node")
    if gres and per_node and gres[1] != per_node[1]:
        what = (
            f"--gres asks for {gres[1]} GPUs of a node and --gpus-per-node for {per_node[1]}: the job gets "
            f"{gres[1]}, and srun fails (Invalid generic resource)"
        )
        yield Hit(what, "keep --gpus-per-node", job.options["gres"].line, (Edit("drop", "gres"),))


def overridden(look: Look) -> Iterator[Hit]:
    """GPUs are asked for twice, in ways that must agree."""
    job, total, per_node, nodes = look.job, look.job.gpus("gpus"), look.per_node, look.job.nodes
    if total and per_node and nodes and nodes[0] == nodes[1] and per_node * nodes[0] != total[1]:
        what = f"--gpus={total[1]} and {per_node} a node on {nodes[0]} nodes, {per_node * nodes[0]}: they do not agree"
        yield Hit(
            what, f"leave --gpus out: {per_node * nodes[0]} GPUs", job.options["gpus"].line, (Edit("drop", "gpus"),)
        )


_FAMILY = "options"
RULES = (
    Rule("refused-option", _FAMILY, ERROR, "no option of sbatch, or no value", "sbatch(1): OPTIONS", refused_options),
    Rule("after-first-command", _FAMILY, ERROR, "#SBATCH lines that are ignored", "sbatch(1): DESCRIPTION",
         after_the_first_command),
    Rule("almost-an-option", _FAMILY, WARNING, "a comment that looks like #SBATCH", "sbatch(1): DESCRIPTION",
         almost_an_option),
    Rule("variable-in-option", _FAMILY, ERROR, "variables are not replaced in #SBATCH lines",
         "sbatch(1): DESCRIPTION, FILENAME PATTERN", variables_in_options),
    Rule("line-ends", _FAMILY, ERROR, "line ends of Windows", "sbatch: Batch script contains DOS line breaks",
         line_ends),
    Rule("given-twice", _FAMILY, WARNING, "the same option with two values", "sbatch(1): OPTIONS", twice),
    Rule("contradiction", _FAMILY, ERROR, "options that exclude each other",
         "sbatch(1): --mem, --gpus-per-task, --cpus-per-gpu, --gpus-per-socket", contradictions),
    Rule("gpus-disagree", _FAMILY, ERROR, "GPUs of the job and GPUs a node do not agree", "sbatch(1): -G, --gpus",
         overridden),
)  # fmt: skip
