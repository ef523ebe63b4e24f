"""The command ``dev/cluster``."""

from __future__ import annotations

import json
import signal
import sys
import time
from types import FrameType
from typing import Any

import click

from controlplane import build, nodes
from controlplane.cluster import Cluster, Settings, names, say_on_stderr, sweep
from controlplane.errors import ClusterError

NAME = click.option("--name", default="dev", show_default=True, help="Which cluster; several may run at once.")
EXAMPLES = """\b
Examples:
  dev/cluster up --nodes 500 --gpus 8
  export KUBECONFIG=$(dev/cluster kubeconfig)
  dev/cluster up --name mine --no-scheduler --per-rack 8 --blocks 4
  dev/cluster up --name old --k8s 1.34.4
  dev/cluster restart kube-apiserver
  dev/cluster down --all

It needs the programs that `make controlplane` builds. docs/how-to/real-control-plane.md tells more.
"""


@click.group(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """A real Kubernetes control plane on this machine, with fake GPU nodes.

    etcd, kube-apiserver, kube-controller-manager and kube-scheduler are the upstream programs; kwok plays the nodes'
    kubelets, so that pods run without containers. Everything listens on loopback alone.
    """


@main.command()
@NAME
@click.option("--nodes", "count", type=click.IntRange(0, 10_000), default=20, show_default=True, help="GPU nodes.")
@click.option("--gpus", type=click.IntRange(0, 16), default=8, show_default=True, help="GPUs of each.")
@click.option("--model", type=click.Choice(list(nodes.MODELS), case_sensitive=False), default="H100", show_default=True)
@click.option("--per-rack", type=click.IntRange(1), default=4, show_default=True, help="Nodes of a rack.")
@click.option("--blocks", type=click.IntRange(1), default=1, show_default=True, help="Blocks that share the racks.")
@click.option("--zones", type=click.IntRange(1), default=1, show_default=True, help="Zones that share the blocks.")
@click.option("--cpu-nodes", type=click.IntRange(0, 10_000), default=0, show_default=True, help="Nodes without GPUs.")
@click.option("--dra", is_flag=True, help="GPUs by DRA instead of the device plugin; short for --advertise dra.")
@click.option(
    "--advertise", type=click.Choice(nodes.ADVERTISED), default="plugin", show_default=True, help="Who names GPUs."
)
@click.option("--scheduler/--no-scheduler", default=True, show_default=True, help="Whether kube-scheduler runs.")
@click.option("--k8s", "kubernetes", default="", metavar="1.34.4", help="Kubernetes version, built with make K8S=...")
@click.option("--gates", default="", metavar="A,B=false", help="Further feature gates.")
@click.option("--crds", default="", metavar="A,B", help=f"CRDs of {', '.join(build.CRDS)}.")
@click.option("--with", "controllers", default="", metavar="A,B", help="Run kueue, jobset, lws, with their CRDs.")
@click.option("--lease", "lease_s", type=int, default=0, metavar="SECONDS", help="Life of a node's lease; 0 chooses.")
def up(
    name: str,
    count: int,
    gpus: int,
    model: str,
    per_rack: int,
    blocks: int,
    zones: int,
    cpu_nodes: int,
    dra: bool,
    advertise: str,
    scheduler: bool,
    kubernetes: str,
    gates: str,
    crds: str,
    controllers: str,
    lease_s: int,
) -> None:
    """Start a cluster and wait until pods can be created on it."""
    shape = nodes.Shape(count, gpus, model, per_rack, blocks, zones, advertise="dra" if dra else advertise)
    shapes = (shape, nodes.Shape(cpu_nodes, 0, prefix="cpu", advertise="none")) if cpu_nodes else (shape,)
    settings = Settings(
        shapes, scheduler, kubernetes.removeprefix("v"), words(gates), words(crds), lease_s, words(controllers)
    )
    # a terminal that closes and a `kill` end what was started, as Ctrl-C does
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupted)
    started = time.monotonic()
    cluster = Cluster(name, settings, say_on_stderr)
    cluster.up()
    total = f"{settings.nodes()} nodes, Kubernetes {cluster.kubernetes}, {time.monotonic() - started:.1f} s"
    click.echo(f"cluster '{name}' is up ({total}); logs in {cluster.folder}", err=True)
    if not scheduler:
        click.echo("no scheduler runs: pods stay pending until yours binds them", err=True)
    click.echo(f"export KUBECONFIG={cluster.kubeconfig}")


@main.command("build")
@click.argument("programs", nargs=-1)
@click.option("--k8s", "kubernetes", default="", metavar="1.34.4", help="Another version of Kubernetes.")
def build_programs(programs: tuple[str, ...], kubernetes: str) -> None:
    """Build what is not built yet; `make controlplane` calls it.

    PROGRAMS are etcd, kubernetes, kwok, helm and crds (all five if none is given), kueue, jobset and lws.
    """
    build.build_all(programs or build.CORE, kubernetes.removeprefix("v"))
    click.echo(f"{', '.join(programs or build.CORE)}: built, in {build.folder()}", err=True)


@main.command()
@NAME
@click.option("--all", "every", is_flag=True, help="All clusters of this user.")
def down(name: str, every: bool) -> None:
    """End a cluster and remove its state; what does not run any more is no error."""
    for one in names() if every else [name]:
        if one not in names() and not Cluster(one).processes():
            raise ClusterError(f"there is no cluster '{one}' (there are: {', '.join(names()) or 'none'})")
        Cluster(one).down()
        click.echo(f"cluster '{one}' is gone", err=True)


@main.command()
@NAME
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def status(name: str, output: str) -> None:
    """What runs of a cluster, and whether it is healthy. Exit code 1 if something that should run is not."""
    cluster = Cluster.open(name)
    there = cluster.processes()
    ports = cluster.state()["ports"]
    rows: list[dict[str, Any]] = []
    for component in cluster.wanted():
        state = "down" if component not in there else "healthy" if cluster.healthy(component) else "unhealthy"
        rows.append({"component": component, "pid": there.get(component), "port": ports.get(component), "state": state})
    if output == "json":
        click.echo(json.dumps({"name": name, "kubernetes": cluster.kubernetes, "components": rows}, indent=1))
    else:
        click.echo(f"{'COMPONENT':26}{'PID':>8}{'PORT':>8}  STATE")
        for row in rows:
            click.echo(f"{row['component']:26}{row['pid'] or '-':>8}{row['port'] or '-':>8}  {row['state']}")
    if any(row["state"] != "healthy" for row in rows):
        sys.exit(1)


@main.command("ls")
def ls() -> None:
    """All clusters of this user. Ends those whose test run was killed."""
    for gone in sweep():
        click.echo(f"cluster '{gone}' belonged to a process that is gone; ended", err=True)
    for name in names():
        cluster = Cluster.open(name)
        there = cluster.processes()
        state = f"{len(there)} of {len(cluster.wanted())} components run"
        click.echo(f"{name:24} {cluster.kubernetes:8} {cluster.settings.nodes():>6} nodes  {state}")
    if not names():
        click.echo("no clusters; `dev/cluster up` starts one", err=True)


@main.command()
@NAME
def kubeconfig(name: str) -> None:
    """The path of the administrator's kubeconfig, for ``export KUBECONFIG=$(dev/cluster kubeconfig)``."""
    click.echo(Cluster.open(name).kubeconfig)


@main.command()
@NAME
@click.argument("component")
def kill(name: str, component: str) -> None:
    """kill -9 one component."""
    Cluster.open(name).kill(component)


@main.command()
@NAME
@click.argument("component")
def restart(name: str, component: str) -> None:
    """kill -9 one component if it runs, start it again on the same port, and wait until it is healthy."""
    Cluster.open(name).restart(component)


@main.command()
@NAME
@click.argument("component")
def pause(name: str, component: str) -> None:
    """Let one component hang: connections stay open, and nothing answers."""
    Cluster.open(name).pause(component)


@main.command()
@NAME
@click.argument("component")
def resume(name: str, component: str) -> None:
    """Let a paused component go on."""
    Cluster.open(name).resume(component)


@main.command()
@NAME
@click.argument("user")
@click.option("--group", "groups", multiple=True, help="A group of the user; may be given again.")
@click.option("--hours", type=float, default=24.0, show_default=True, help="How long it holds; below 0: it expired.")
def user(name: str, user: str, groups: tuple[str, ...], hours: float) -> None:
    """A kubeconfig for a user without rights, to give it some by RBAC; prints its path."""
    click.echo(Cluster.open(name).user(user, groups, hours))


@main.command()
@NAME
@click.argument("account", metavar="NAMESPACE/NAME")
def account(name: str, account: str) -> None:
    """A kubeconfig for a service account, made if it is not there; prints its path."""
    namespace, _, of = account.rpartition("/")
    click.echo(Cluster.open(name).service_account(namespace or "default", of))


@main.command()
@NAME
def compact(name: str) -> None:
    """Let etcd forget the past, so that old resource versions are 410 Gone."""
    click.echo(f"history before revision {Cluster.open(name).compact()} is gone", err=True)


def words(text: str) -> tuple[str, ...]:
    """A list with commas, without the blanks and empty parts."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        main(prog_name="dev/cluster", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("dev/cluster: interrupted; what was started is ended", err=True)
        sys.exit(130)
    except ClusterError as error:
        click.echo(f"dev/cluster: {error}", err=True)
        sys.exit(2)
