"""Every command and every group tells its help."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from muster.cli.main import main


def paths(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    with click.Context(group) as ctx:
        for name in group.list_commands(ctx):
            yield (*above, name)
            command = group.get_command(ctx, name)
            if isinstance(command, click.Group):
                yield from paths(command, (*above, name))


@pytest.mark.parametrize("path", list(paths(main)), ids=" ".join)
def test_help(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(main, [*path, "--help"], catch_exceptions=False)
    assert done.exit_code == 0
    assert done.stdout.startswith("Usage: ")
