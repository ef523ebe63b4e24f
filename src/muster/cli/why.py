"""`muster why JOB`: what keeps a job waiting, when it will start, and what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from muster.cli.output import Column, emit_document, print_table, say, tell
from muster.cli.source import again, namespace_asked, source_options, view_of
from muster.cli.starts import start_lines

if TYPE_CHECKING:
    from muster.answers.fixes import Fix
    from muster.answers.view import View
    from muster.answers.why import Why
    from muster.engine.explain import Funnel
    from muster.model.workload import Workload

EPILOG = """\b
Examples:
  muster why research/llama-70b --from now.snap
  muster why llama-70b -n research --context prod
  muster why llama-70b --from run.yaml --at 3h --nodes gpus
  muster why llama-70b --from now.snap --how
  muster why llama-70b --from now.snap --apply 1
  muster why llama-70b --context prod --apply 1 --dry-run
  muster why llama-70b --from now.snap -o json
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("job")
@source_options
@click.option("--nodes", "step", metavar="STEP", help="List the nodes that fall away at a step of the funnel.")
@click.option("--apply", "number", type=int, metavar="N", help="How fix N is carried out: changes, and commands.")
@click.option("--write", metavar="FILE", help="With --apply: also write the snapshot with the fix made.")
@click.option("--yes", is_flag=True, help="With --apply on a live cluster: do it without asking.")
@click.option(
    "--dry-run", is_flag=True, help="With --apply on a live cluster: have the server check it, and do nothing."
)
@click.option("--how", is_flag=True, help="Add the kubectl and Slurm commands that show the same by hand.")
@click.option(
    "-o", "--output", type=click.Choice(("table", "json", "yaml")), default="table", show_default=True,
    help="table for people; json or yaml for machines.",
)  # fmt: skip
def command(
    job: str, source: str, at: str | None, settings: tuple[str, ...], step: str | None, number: int | None,
    write: str | None, yes: bool, dry_run: bool, how: bool, output: str,
) -> None:  # fmt: skip
    """Tell why a job waits, by the scheduler's own code.

    First the dominant reason, then the nodes that are left step by step, the quota, and everything else in the way.
    JOB is a name, QUEUE/NAME or NAMESPACE/NAME. Exit code 0 if it runs or starts now, 1 if it waits. With --apply on a
    live cluster the plan is shown, and done only after a yes.
    """
    from muster.answers.documents import why_document
    from muster.answers.forecast import Budget
    from muster.answers.live import is_live
    from muster.answers.why import why

    if write is not None and number is None:
        raise click.UsageError("--write needs --apply N")
    if write is not None:
        from muster.traces.files import check_target

        check_target(write, "--write")
    if yes or dry_run:
        _check_doing(source, number, output)
    if number is not None and output == "table" and is_live(source):
        _apply_on_cluster(job, source, settings, number, write, yes=yes, dry_run=dry_run)
        return
    view = view_of(source, at, settings)
    told = why(view, _asked(job), budget=None if step is not None else Budget())
    if number is not None:
        _print_apply(view, told, number, source, at, write, output)
        return
    if output != "table":
        emit_document(why_document(view, told, how=how), output)
    elif step is not None:
        _print_nodes(view, told, step)
    else:
        show_why(view, told, again(source, at))
        if how:
            _print_how(view, told)
    raise click.exceptions.Exit(1 if told.blockers else 0)


def _asked(job: str) -> str:
    """The job in the namespace of ``-n``, where it does not say one itself."""
    namespace = namespace_asked()
    return f"{namespace}/{job}" if namespace and "/" not in job else job


def _check_doing(source: str, number: int | None, output: str) -> None:
    from muster.answers.live import is_live
    from muster.errors import InputError

    if number is None:
        raise click.UsageError("--yes and --dry-run need --apply N")
    if not is_live(source):
        raise InputError("only a live cluster can be changed", field="--yes", hint="name one with --context")
    if output != "table":
        raise InputError("tells only how", field="-o", hint="leave it out to have it done")


def _apply_on_cluster(
    job: str, source: str, settings: tuple[str, ...], number: int, write: str | None, *, yes: bool, dry_run: bool
) -> None:
    """Fix N of a job on a live cluster: told, and done where that is said."""
    from muster.answers.by_hand.quoting import quoted
    from muster.answers.forecast import Budget
    from muster.answers.live import open_live
    from muster.answers.view import View
    from muster.answers.why import why
    from muster.cli.apply_live import Order, apply_live
    from muster.cli.source import settings_given
    from muster.engine.config import config_of

    reading = open_live(source, say)
    given = settings_given(settings)
    view = View(reading.snapshot, config_of({**dict(reading.snapshot.settings), **given}) if given else None)
    told = why(view, _asked(job), budget=Budget())
    fix = _chosen(view, told, number, write)
    next_line = f"muster why {quoted(told.workload.name)}{again(source, None)}"
    apply_live(view, fix, reading, Order(source, again(source, None, always=True), next_line, yes, dry_run))


def show_why(view: View, told: Why, of: str = "") -> None:
    """Print it for people; ``of`` are the options that name the source again."""
    from muster.answers.documents import start_document
    from muster.answers.sentences import tag
    from muster.answers.times import span, until
    from muster.answers.words import pods_of

    workload = told.workload
    waited = view.now_s - workload.submitted_s
    where = f" in queue {workload.queue}" if workload.queue else ""
    begin = f"{workload.name}{f' ({workload.title})' if workload.title else ''}, {pods_of(workload.pod_sets)},"
    if told.state == "runs":
        run = view.scheduler.running[workload.name]
        tell(f"{begin} has run for {span(view.now_s - run.started_s)}{where}.")
        tell(f"It should end {until(view, run.limit_s)} ({'its limit' if run.sure else 'predicted'}).")
        _print_place(told)
        return
    if told.state == "starts":
        tell(f"{begin} has waited {span(waited)}{where}, and starts now.")
        _print_said(view, workload)
        _print_place(told)
        return
    tell(f"{begin} has waited {span(waited)}{where}.")
    _print_said(view, workload)
    first, *others = told.blockers
    tell(f"{first.text}  [{tag(first.reason)}]")
    for number, funnel in enumerate(told.funnels):
        click.echo()
        _print_funnel(funnel, sets=len(told.funnels), first=not number)
    if told.forecast is not None:
        click.echo()
        for line in start_lines(view, start_document(told.forecast)):
            tell(line)
    _print_fixes(told, of)
    also = [f"{each.text}  [{tag(each.reason)}]" for each in others]
    if not any(each.reason.name in ("QUOTA", "OVER_QUOTA") for each in told.blockers):
        also += [f"{held.describe()}." for held in told.quota if not workload.told or _is_limited(view, workload)]
    if also:
        click.echo()
        tell("Also true:")
        for each in also:
            tell(f"  {each}")


def _is_limited(view: View, workload: Workload) -> bool:
    """Whether an account of Slurm, or one above it, has a limit of GPUs."""
    queues, name = view.scheduler.queues, workload.queue
    while name in queues and queues[name].parent:
        if queues[name].quotas:
            return True
        name = queues[name].parent
    return False


def _print_said(view: View, workload: Workload) -> None:
    """Slurm's own reason beside plain words, and what is to be done about it."""
    from muster.answers.told import met_by, said_of

    said = said_of(workload)
    if said is None:
        return
    met = met_by(view.snapshot, workload)
    of = next((each for each in met if each.limit.code == said.code), None)
    detail = f" ({said.detail})" if said.detail and said.detail != said.code else ""
    detail = f" ({of.words})" if of and not detail else detail
    tell(f"Slurm says {said.code}: {said.text}{detail}")
    tell(f"  {said.fix}{f'  {said.command}' if said.command else ''}")
    if met and of is None:
        tell(f"  A limit stands before it, too: {met[0].limit.code} ({met[0].words}).")


def _print_fixes(told: Why, of: str) -> None:
    """Ways to start sooner: what each costs others and itself, and how it is applied."""
    from muster.answers.times import span

    if not told.fixes:
        return
    columns = [
        Column("number", "#", right=True), Column("title", "Cheapest ways to start sooner"),
        Column("cost", "costs others"), Column("starts", "starts in", right=True),
        Column("own", "its own step", right=True),
    ]  # fmt: skip
    rows = [
        [
            str(number), fix.title, _cost(fix), "now" if not fix.starts_in_s else span(fix.starts_in_s),
            "" if fix.slowdown is None or fix.slowdown == 1 else f"x {fix.slowdown:.3g}",
        ]
        for number, fix in enumerate(told.fixes, 1)
    ]  # fmt: skip
    if all(not row[-1] for row in rows):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    click.echo()
    print_table(columns, rows)
    if told.untried:
        tell(f"Not tried, as it would take too long: {', '.join(told.untried)}.")
    if any(fix.changes for fix in told.fixes):
        from muster.answers.by_hand.quoting import quoted

        first = next(number for number, fix in enumerate(told.fixes, 1) if fix.changes)
        tell(f"How to carry one out: muster why {quoted(told.workload.name)} --apply {first}{of}")


def _cost(fix: Fix) -> str:
    from muster.answers.apply import displacement

    return displacement(fix) or ("new nodes" if fix.kind == "add" else "nothing")


def _print_apply(
    view: View, told: Why, number: int, source: str, at: str | None, write: str | None, output: str
) -> None:  # fmt: skip
    """How a fix is carried out; with ``write`` the snapshot with it goes to a file."""
    from muster.answers.apply import lines
    from muster.answers.documents import apply_document

    fix = _chosen(view, told, number, write)
    if output != "table":
        emit_document(apply_document(view, fix), output)
        return
    for line in lines(view, fix, again(source, at, always=True)):
        click.echo(line)


def _chosen(view: View, told: Why, number: int, write: str | None) -> Fix:
    """The fix of a number; with ``write`` the snapshot with it goes to a file. Raises `InputError`."""
    from muster.answers.apply import save_applied
    from muster.errors import InputError
    from muster.traces.files import check_target

    if not 1 <= number <= len(told.fixes):
        most = f"there are 1 to {len(told.fixes)}" if told.fixes else "there is none: it does not wait"
        raise InputError(f"there is no fix {number}", field="--apply", hint=most)
    fix = told.fixes[number - 1]
    if write is not None:
        check_target(write, "--write")
        save_applied(view, fix, write)
        say(f"{write}: the snapshot with it.")
    return fix


def _print_funnel(funnel: Funnel, *, sets: int, first: bool) -> None:
    from muster.answers.words import gpus, shape_of

    steps = " > ".join(f"{step.text} {len(step.rows):,}" for step in funnel.steps)
    if sets > 1:
        click.echo(f"  a pod of {shape_of(funnel.shape)}:")
    tell(f"  {steps}")
    if funnel.shape.gpus and funnel.free_milli != funnel.usable_milli and first:
        stuck = funnel.free_milli - funnel.usable_milli
        tell(f"  {gpus(funnel.free_milli)} free there, of which {gpus(stuck)} are of no use to such pods")


def _print_place(told: Why) -> None:
    from collections import Counter

    from muster.answers.words import plural
    from muster.slurm.hostlist import compress

    if told.place is None:
        return
    alike: dict[int, list[str]] = {}
    for node, count in Counter(pod.node for pod in told.place.pods).items():
        alike.setdefault(count, []).append(node)
    for count, nodes in alike.items():
        tell(f"{plural(count, 'pod')} on {'each of ' if len(nodes) > 1 else ''}{compress(nodes)}")


def _print_nodes(view: View, told: Why, step: str) -> None:
    from muster.errors import InputError

    names = view.scheduler.cluster.state.node_names
    known = {each.key: each for funnel in told.funnels[:1] for each in funnel.steps}
    if step not in known:
        hint = f"the steps are {', '.join(known)}" if known else "nodes were not looked at"
        raise InputError(f"there is no step {step!r}", field="--nodes", hint=hint)
    rows: list[int] = known[step].lost.tolist()
    for row in rows:
        click.echo(names[row])


def _print_how(view: View, told: Why) -> None:
    from muster.answers.how import by_hand

    click.echo()
    click.echo("By hand:")
    for step in by_hand(view, told):
        click.echo(f"  {step.title}")
        click.echo(f"    Kubernetes:  {step.kubectl}")
        click.echo(f"    Slurm:       {step.slurm}")
        tell(f"    {step.read}")
