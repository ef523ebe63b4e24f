"""Groups of commands whose modules are imported only when they are called, so that start-up stays short."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import click


class LazyGroup(click.Group):
    """A group that imports a subcommand's module only to run it or to print its own help.

    Args:
        commands: the name of a subcommand to the module that defines ``command``, and its one-line help.
    """

    def __init__(self, *args: Any, commands: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.modules = commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of all commands, in their order."""
        return list(self.modules)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None for an unknown name (click then suggests near ones)."""
        if cmd_name not in self.modules:
            return None
        command = importlib.import_module(self.modules[cmd_name][0]).command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, if there are any, without importing them."""
        if not self.modules:
            return
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self.modules.items()])
