"""The options by which the answering commands are told what to look at."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click
from msgspec.structs import replace

from muster.cli.output import PLUGIN_NAME, say
from muster.errors import InputError
from muster.planning.quantities import seconds

if TYPE_CHECKING:
    from muster.answers.live import Live
    from muster.answers.view import View
    from muster.service.latest import Latest
    from muster.traces.trace import Skipped

_Function = TypeVar("_Function", bound=Callable[..., Any])
_LIVE = ("context", "kubeconfig", "namespace", "as_user")
_CLUSTER = (*_LIVE, "all_namespaces", "cluster")
_SOURCES = ("kubernetes:", "history:", "slurm:", "slurm+")
"""What a source that is no SPEC of a fleet begins with."""

_META = "muster.namespace"

_AT = click.option(
    "--at", metavar="TIME", help="The instant, of a run file (such as 90m or 5400) or a history (14:03)."
)
_FROM = click.option(
    "--from", "source", envvar="MUSTER_FROM", metavar="SOURCE",
    help="A snapshot, RUN.yaml, kubectl:DUMP.json, slurm:DIR, history:FILE or kubernetes:CONTEXT. [env: MUSTER_FROM]",
)  # fmt: skip


def cluster_options(function: _Function) -> _Function:
    """Add the options that say which cluster is meant, kubectl's own and `--cluster`; `named_source` reads them."""
    for option in (
        click.option("--as", "as_user", metavar="USER", help="Act as this user of the cluster."),
        click.option("-A", "--all-namespaces", is_flag=True, help="All namespaces; so it is without -n."),
        click.option("-n", "--namespace", metavar="NAME", help="The namespace that is meant."),
        click.option("--kubeconfig", metavar="FILE", help="The kubeconfig, instead of KUBECONFIG and ~/.kube/config."),
        click.option(
            "--context", metavar="NAME", shell_complete=_contexts,
            help="A live cluster: this context of the kubeconfig. Like --from kubernetes:NAME.",
        ),
        click.option(
            "--cluster", metavar="slurm",
            help="A live Slurm: `slurm` by this machine's commands (SLURM_CONF is honoured), or its slurmrestd: "
            "slurm+http://HOST:PORT, slurm+unix:/SOCKET.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def _contexts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The contexts that begin so, for completion; no cluster is asked."""
    from muster.backends.kubernetes.config import contexts

    given = ctx.params.get("kubeconfig")
    return [name for name in contexts(given if isinstance(given, str) else "") if name.startswith(incomplete)]


def source_options(function: _Function) -> _Function:
    """Add ``--from``, ``--at``, ``--set`` and those of a cluster; the parameters are ``source``, ``at``, ``settings``.

    ``source`` is what all of them together name.
    """

    @functools.wraps(function)
    def with_source(*args: Any, **given: Any) -> Any:
        cluster = {name: given.pop(name) for name in _CLUSTER}
        source = named_source(given.pop("source"), cluster, typed=is_typed("source"))
        if source is None:
            raise InputError(f"no source is named; say {_how()}")
        return function(*args, source=source, **given)

    settings = click.option(
        "--set", "settings", multiple=True, metavar="NAME=VALUE",
        help="A setting of the scheduler instead of the source's; `muster explain-config` lists them.",
    )  # fmt: skip
    for option in (cluster_options, settings, _AT, _FROM):
        with_source = option(with_source)
    return cast("_Function", with_source)


class FleetSource(NamedTuple):
    """A fleet by its SPEC, or by a source at an instant."""

    spec: str | None
    source: str
    at: str | None


def fleet_options(function: _Function) -> _Function:
    """Add SPEC, and instead of it ``--from``, ``--at`` and those of a cluster; the parameter is ``fleet``."""

    @functools.wraps(function)
    def with_fleet(*args: Any, **given: Any) -> Any:
        cluster = {name: given.pop(name) for name in _CLUSTER}
        spec, at, source = given.pop("spec"), given.pop("at"), given.pop("source")
        typed = is_typed("source")
        if spec is not None and (typed or (_live(cluster).context or _live(cluster).kubeconfig)):
            raise InputError("SPEC and another source are named", hint="leave out one of them")
        if spec is not None and spec.startswith(_SOURCES):
            spec, source = None, spec
        if spec is not None and at is not None:
            raise InputError("is of a source", field="--at", hint="name it with --from")
        found = "" if spec is not None else named_source(source, cluster, typed=typed)
        if found is None:
            raise InputError(f"no fleet is named; say SPEC, such as example, or {_how()}")
        return function(*args, fleet=FleetSource(spec, found, at), **given)

    for option in (cluster_options, _AT, _FROM, click.argument("spec", required=False)):
        with_fleet = option(with_fleet)
    return cast("_Function", with_fleet)


def named_source(source: str | None, cluster: Mapping[str, Any], *, typed: bool = True) -> str | None:
    """The source that is named by itself or by the options of a cluster; None: none is.

    A cluster is asked only where that is said: by ``--context`` or ``--kubeconfig``, also before the command, by a
    source ``kubernetes:...``, or by the command being called as a plugin of kubectl. ``typed`` says that ``source``
    is of this call: a cluster beside it is a mistake then, and goes before it else.
    """
    from muster.answers.live import is_live, live_of

    ctx = click.get_current_context()
    live = _live(cluster)
    if live.namespace and (cluster.get("all_namespaces")):
        raise InputError("one namespace and all of them are asked for", field="--namespace", hint="leave out -A or -n")
    ctx.meta[_META] = live.namespace
    if slurm := cluster.get("cluster") or ctx.find_root().params.get("cluster"):
        return _slurm(slurm, live, source if typed else None)
    if live.context or live.kubeconfig:
        if source is not None and typed:
            raise InputError("two sources are named", field="--context", hint="leave out one of them")
        return live.source
    if source is None:
        return live.source if as_plugin() else None
    if is_live(source):
        named = live_of(source)
        return replace(named, namespace=live.namespace or named.namespace, as_user=live.as_user or named.as_user).source
    if live.as_user:
        raise InputError("is for a live cluster", field="--as", hint="name one with --context")
    return source


def _slurm(named: str, live: Live, source: str | None) -> str:
    """The Slurm that ``--cluster`` names; raises `InputError` where another source is named too."""
    from muster.answers.live import is_slurm

    if source is not None or live.context or live.kubeconfig or live.as_user:
        raise InputError("two sources are named", field="--cluster", hint="leave out one of them")
    if not is_slurm(named):
        hint = "slurm, or slurm+http://HOST:PORT; for a cluster of Kubernetes --context NAME"
        raise InputError(f"{named[:60]!r} is no cluster that is known", field="--cluster", hint=hint)
    return named


def _live(cluster: Mapping[str, Any]) -> Live:
    """The cluster that the options of a command, and those before it, name."""
    from muster.answers.live import Live

    before = click.get_current_context().find_root().params
    return Live(*(cluster.get(name) or before.get(name) or "" for name in _LIVE))


def is_typed(name: str) -> bool:
    """Whether an option of this command stands on the command line."""
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def namespace_asked() -> str:
    """What ``-n`` says; empty: nothing. It is known once the source is."""
    return click.get_current_context().meta.get(_META, "")


def as_plugin() -> bool:
    """Whether the command was called as ``kubectl muster``."""
    return click.get_current_context().find_root().info_name == PLUGIN_NAME


def _how() -> str:
    """How a source is named: by files, or by the contexts of the kubeconfig, which no cluster is asked for."""
    from muster.backends.kubernetes.config import contexts

    names = contexts()
    live = f"--context NAME for a live cluster ({', '.join(names[:6])}{', ...' if len(names) > 6 else ''})"
    found = live if names else "--context NAME for a live cluster"
    return f"--from FILE, {found}, or --cluster slurm"


def view_of(source: str, at: str | None, settings: tuple[str, ...]) -> View:
    """The view that the options ask for; says what was left out of the source. Raises `InputError`."""
    from muster.answers.sources import open_view

    view, skipped = open_view(source, at_of(source, at), settings_given(settings), say)
    say_left_out(source, skipped)
    return view


def say_left_out(source: str, skipped: Sequence[Skipped]) -> None:
    """Say how much of a source was left out, and one thing of it."""
    from muster.answers.live import is_live

    if not skipped:
        return
    name = source.partition("?")[0] if is_live(source) else source
    many = "1 thing is" if len(skipped) == 1 else f"{len(skipped):,} things are"
    such = f"{skipped[0].field}: {skipped[0].why}"
    say(f"{name}: {many} left out or not fully understood, such as {such}.")


def again(source: str, at: str | None, *, always: bool = False) -> str:
    """The options that name the source once more, for a next command; nothing where the environment names it.

    ``always``: also then, for what is read elsewhere.
    """
    import os
    import shlex

    from muster.answers.live import is_live, is_slurm, live_of

    if os.environ.get("MUSTER_FROM") == source and not always:
        named = ""
    elif is_live(source):
        live = live_of(source)
        if not live.context and not live.kubeconfig and not as_plugin():
            named = f" --from {source}"
        else:
            options = {"context": live.context, "kubeconfig": live.kubeconfig, "as": live.as_user}
            named = "".join(f" --{name} {shlex.quote(value)}" for name, value in options.items() if value)
    elif is_slurm(source):
        named = f" --cluster {shlex.quote(source)}"
    else:
        named = f" --from {shlex.quote(source)}"
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

    latest = Latest(source, at_of(source, at), settings_given(settings), say)
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
