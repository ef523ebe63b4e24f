"""`muster scheduler`: schedule a Kubernetes cluster."""

from __future__ import annotations

import click
from msgspec.structs import replace

from muster.cli.source import address
from muster.errors import ClusterError, InputError

EPILOG = """\b
Examples:
  muster scheduler --context test --shadow             # what it would do; writes nothing
  muster scheduler --config scheduler.yaml             # in the cluster, or by the current context
  muster scheduler --config scheduler.yaml --http 0.0.0.0:9401
  muster scheduler --print-config > scheduler.yaml
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--config", metavar="FILE", help="Settings; --print-config shows all of them.")
@click.option("--context", default="", help="Context of the kubeconfig. [default: the current one, or in-cluster]")
@click.option("--kubeconfig", default="", metavar="FILE", help="Instead of $KUBECONFIG or ~/.kube/config.")
@click.option("--shadow", "--dry-run", "shadow", is_flag=True, help="Only log what it would do, beside others.")
@click.option("--report", metavar="FILE", help="With --shadow: write what it would have done beside what happened.")
@click.option("--http", metavar="HOST:PORT", help="Serve /metrics, /healthz and /readyz there.")
@click.option("--log-format", type=click.Choice(("text", "json")), default="text", show_default=True)
@click.option(
    "--log-level", type=click.Choice(("debug", "info", "warning", "error")), default="info", show_default=True
)
@click.option("--print-config", is_flag=True, help="Print the settings as they are and end.")
def command(
    config: str | None, context: str, kubeconfig: str, shadow: bool, report: str | None, http: str | None,
    log_format: str, log_level: str, print_config: bool,
) -> None:  # fmt: skip
    """Schedule pods with `schedulerName: muster`: gangs start whole or not at all.

    Run two replicas for safety: one leads by a Lease, the other takes over. It needs the extra `kubernetes`:
    pip install 'muster-gpu[kubernetes]'.
    """
    from muster.service.scheduler.settings import printed, read_settings

    settings = read_settings(config)
    if shadow:
        settings = replace(settings, shadow=True)
    if print_config:
        click.echo(printed(settings), nl=False)
        return
    if report and not settings.shadow:
        raise InputError("only shadow mode has a report", field="--report", hint="add --shadow")
    listen = address(http, "--http") if http else None
    try:
        import aiohttp
    except ImportError:
        hint = "pip install 'muster-gpu[kubernetes]'"
        raise InputError("the package aiohttp is not installed", hint=hint) from None
    assert aiohttp
    from muster.backends.kubernetes.api import ApiServer, run
    from muster.service.scheduler.main import run as run_replica
    from muster.service.scheduler.main import set_up_logs

    set_up_logs(log_format, log_level)
    if not run(run_replica(ApiServer.open(context, kubeconfig), settings, listen, report)):
        raise ClusterError(
            "lost the lease: another replica leads, or it could not be renewed in time",
            hint="start it again; it then stands by",
        )
