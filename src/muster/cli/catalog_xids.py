"""``muster catalog xids``: what a GPU's Xid means, what to do, and who does otherwise."""

from __future__ import annotations

import click
import msgspec

from muster.catalog.sources import SOURCES
from muster.catalog.xids import ACTIONS, SOURCES_OF, XIDS, find_xid
from muster.cli.output import Column, emit, output_option
from muster.errors import InputError

_COLUMNS = (
    Column("number", "Xid", right=True),
    Column("meaning", "Meaning"),
    Column("action", "Catalogue"),
    Column("plugin", "Plugin 0.20"),
    Column("eks", "EKS"),
    Column("azure", "Azure", show=lambda value: value or "-"),
    Column("note", "Note", wide=True),
    Column("disagrees", "Who does otherwise", wide=True),
)


@click.command(
    "xids",
    epilog="""\b
Examples:
  muster catalog xids
  muster catalog xids 63 94 109 -o wide
  muster catalog xids 79 -o json
""",
)
@click.argument("number", type=int, nargs=-1)
@click.option("--sources", is_flag=True, help="Print where each column comes from.")
@output_option
def xids(number: tuple[int, ...], sources: bool, output: str) -> None:
    """Xids of NVIDIA GPUs: meaning, the catalogue's action, and what plugin and agents do instead.

    The action is NVIDIA's. The device plugin, the EKS agent and Azure's checks have lists of their own; -o wide says
    where they contradict it.
    """
    if sources:
        for column, key in SOURCES_OF.items():
            click.echo(f"{column}: {SOURCES[key]}")
        return
    chosen = list(XIDS)
    if number:
        for each in number:
            if find_xid(each) is None:
                known = ", ".join(str(xid.number) for xid in XIDS)
                raise InputError(f"Xid {each} is not in the table", field="NUMBER", hint=f"there are {known}")
        chosen = [xid for xid in XIDS if xid.number in number]
    records = [
        {
            **msgspec.structs.asdict(xid),
            "action": xid.action or "-",
            "asks": ACTIONS[xid.action],
            "plugin": xid.plugin,
            "eks": xid.eks,
            "azure": xid.azure,
            "disagrees": xid.disagrees,
            "source": str(SOURCES[xid.source]),
        }
        for xid in chosen
    ]
    emit(records, _COLUMNS, output=output, schema="muster.catalog.xids/v1", list_key="xids")
