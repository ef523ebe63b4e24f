"""`muster why JOB --apply N` on a live cluster: the plan, the question, the writes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from muster.cli.output import say

if TYPE_CHECKING:
    from muster.answers.fixes import Fix
    from muster.answers.live import Reading
    from muster.answers.live_changes import Write
    from muster.answers.view import View


class Order(NamedTuple):
    """What is to be done, and how it is named.

    Attributes:
        of: the options that name the source; next_line: the command that shows what came of it.
        yes: do it without asking; dry_run: have the server check it, and do nothing.
    """

    source: str
    of: str
    next_line: str
    yes: bool
    dry_run: bool


def apply_live(view: View, fix: Fix, reading: Reading, order: Order) -> None:
    """Show a fix and its writes, ask, and make them. Exit code 1 where it is not done: refused, or the answer is no."""
    from muster.answers.apply import in_order, lines
    from muster.answers.live_changes import writes_of

    writes = writes_of(in_order(fix.changes), reading)
    for line in lines(view, fix, order.of, by_hand=bool(writes.refused)):
        click.echo(line)
    if writes.refused:
        for each in writes.refused:
            say(f"Muster does not do this: {each}.")
        raise click.exceptions.Exit(1)
    if not writes.now:
        return
    click.echo("\nWhat is written, as commands:")
    for write in writes.now:
        click.echo(f"  {write.command}")
    if writes.later:
        click.echo("and when it has started, by you:")
        for write in writes.later:
            click.echo(f"  {write.command}")
    click.echo()
    if order.dry_run:
        _send(order.source, writes.now, dry_run=True)
        say("The server would take all of it; nothing is changed.")
        return
    if not order.yes:
        if not sys.stdin.isatty():
            say("Nothing is changed: --yes does it, --dry-run has the server check it.")
            return
        if not click.confirm("Do it?", default=False, err=True):
            say("Nothing is changed.")
            raise click.exceptions.Exit(1)
    _send(order.source, writes.now, dry_run=False)
    say(f"Done. Next: {order.next_line}")


def _send(source: str, writes: Sequence[Write], *, dry_run: bool) -> None:
    """Send the writes, and tell of each that was taken; an error says how many were."""
    from muster.answers.live import live_of
    from muster.backends.kubernetes.api import ApiServer, run
    from muster.backends.kubernetes.changes import carry_out
    from muster.errors import ClusterError

    live = live_of(source)
    done = 0

    async def send() -> None:
        nonlocal done
        async with ApiServer.open(live.context, live.kubeconfig, as_user=live.as_user) as server:
            async for index in carry_out(server, writes, dry_run=dry_run):
                done = index + 1
                click.echo(f"{'Checked' if dry_run else 'Done'}: {writes[index].done}.")

    try:
        run(send())
    except ClusterError as error:
        if dry_run or not done:
            raise
        raise ClusterError(f"{done} of {len(writes)} writes are done, then: {error}") from None
