"""The options by which the answering commands are told what to look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.output import say
from muster.errors import InputError

if TYPE_CHECKING:
    from muster.answers.view import View
    from muster.service.latest import Latest

_Function = TypeVar("_Function", bound=Callable[..., Any])
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def source_options(function: _Function) -> _Function:
    """Add ``--from``, ``--at`` and ``--set``; the parameters are ``source``, ``at`` and ``settings``."""
    for option in (
        click.option(
            "--set", "settings", multiple=True, metavar="NAME=VALUE",
            help="A setting of the scheduler instead of the source's; `muster explain-config` lists them.",
        ),
        click.option(
            "--at", metavar="TIME", help="The instant, of a run file (such as 90m or 5400) or a history (14:03)."
        ),
        click.option(
            "--from", "source", envvar="MUSTER_FROM", required=True, metavar="SOURCE",
            help="A snapshot, RUN.yaml, kubectl:DUMP.json or history:FILE. [env: MUSTER_FROM]",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def view_of(source: str, at: str | None, settings: tuple[str, ...]) -> View:
    """The view that the options ask for; says what was left out of the source. Raises `InputError`."""
    from muster.answers.sources import open_view

    view, skipped = open_view(source, at_of(source, at), settings_given(settings))
    if skipped:
        say(f"{source}: {len(skipped):,} objects left out, such as {skipped[0].field}: {skipped[0].why}.")
    return view


def again(source: str, at: str | None) -> str:
    """The options that name the source once more, for a next command; nothing where the environment names it."""
    import os
    import shlex

    named = "" if os.environ.get("MUSTER_FROM") == source else f" --from {shlex.quote(source)}"
    return named + (f" --at {shlex.quote(at)}" if at else "")


def at_of(source: str, at: str | None) -> float | None:
    """``--at`` in seconds: of a history a time of day or a date, too. Raises `InputError`."""
    from muster.answers.sources import instant_in, is_history

    if at is None:
        return None
    return instant_in(source, at) if is_history(source) else seconds(at, "--at")


def latest_of(source: str, at: str | None, settings: tuple[str, ...]) -> Latest:
    """A source that is read anew when it changes, for services; raises `InputError` if it is wrong."""
    from muster.service.latest import Latest

    latest = Latest(source, at_of(source, at), settings_given(settings))
    latest.view()
    return latest


def address(text: str, field: str) -> tuple[str, int]:
    """``HOST:PORT`` (an IPv6 host in brackets); raises `InputError`."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdigit() and len(port) < 6) or not 0 < int(port) < 65536:
        raise InputError(f"{text[:80]!r} is not HOST:PORT", field=field, hint="such as 127.0.0.1:9400")
    return host.strip("[]"), int(port)


def no_listening(text: str, field: str, error: Exception) -> InputError:
    """What is told where an address cannot be listened on."""
    why = getattr(error, "strerror", None) or error
    return InputError(f"cannot listen on {text[:80]!r} ({why})", field=field)


def seconds(text: str, field: str) -> float:
    """``90m``, ``2.5h``, ``1d``, ``45s`` or plain seconds as a number; raises `InputError`."""
    number = text.rstrip("smindh")
    try:
        value = float(number) * _UNITS[text[len(number) :] or "s"]
    except (ValueError, KeyError):
        value = -1.0
    if not 0 <= value <= 1e12:
        raise InputError(f"{text[:40]!r} is no time", field=field, hint="such as 45s, 90m, 2.5h, 1d or 5400")
    return value


def settings_given(pairs: tuple[str, ...]) -> dict[str, Any]:
    """``NAME=VALUE`` pairs as settings; values are read as in a run file."""
    import yaml

    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise InputError(f"{pair[:60]!r} is not NAME=VALUE", field="--set", hint="such as reservations=4")
        try:
            settings[name] = yaml.safe_load(text)
        except (yaml.YAMLError, ValueError, RecursionError):
            raise InputError(f"{text[:60]!r} is no value", field=f"--set {name}") from None
    return settings
