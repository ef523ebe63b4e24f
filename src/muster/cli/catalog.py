"""``muster catalog``: what Muster knows of GPU models, MIG profiles and links, and from where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import click
import msgspec

from muster.catalog import (
    FACTS,
    GPUS,
    LINKS,
    MIG_TABLES,
    SOURCES,
    Gpu,
    Layout,
    MigTable,
    can_add,
    check_layout,
    find_gpu,
    legal_layouts,
    mig_table,
    room_for,
)
from muster.catalog.links import KINDS
from muster.cli.catalog_xids import xids
from muster.cli.output import Column, emit, output_option, terminal_width, thousands, wrapped
from muster.errors import InputError

_GIB = 2**30


def _number(value: Any) -> str:
    return "-" if value is None else thousands(value)


def _text(value: Any) -> str:
    return "-" if value in (None, "") else str(value)


def _yes_no(value: Any) -> str:
    return "-" if value is None else ("yes" if value else "no")


def _percent(value: Any) -> str:
    return "" if value is None else f"{100 * value:.0f} %"


def _starts(value: Any) -> str:
    return ",".join(map(str, value)) if value else "none"


def _sources_option(function: Any) -> Any:
    return click.option("--sources", is_flag=True, help="Print where each fact comes from, one line a fact.")(function)


@click.group(
    epilog="""\b
Examples:
  muster catalog gpus
  muster catalog gpus H100 NVIDIA-A100-SXM4-80GB -o wide
  muster catalog gpus B200 --sources
  muster catalog mig H100 --layouts
  muster catalog links -o json
  muster catalog xids 63 94 109
"""
)
def command() -> None:
    """Facts that Muster knows: GPU models, MIG profiles, links, Xids; each with its source, - is not known."""


# --- GPU models ------------------------------------------------------------------------------------------------------

_GPU_COLUMNS = (
    Column("name", "GPU"),
    Column("memory_bytes", "GiB", right=True, show=lambda value: "-" if value is None else f"{value // _GIB:,}"),
    Column("memory_gb_per_s", "Mem GB/s", right=True, show=_number),
    Column("link", "Link", show=_text),
    Column("link_gb_per_s", "GB/s", right=True, show=_number),
    Column("pcie_generation", "PCIe", right=True, show=_text),
    Column("power_w", "Watt", right=True, show=_number),
    Column("compute_capability", "CUDA", right=True, show=_text),
    Column("mig_capable", "MIG", show=_yes_no),
    Column("form", "Form", show=_text),
    Column("gpus_per_node", "/node", right=True, show=_text),
    Column("vendor", "Vendor", wide=True, show=_text),
    Column("architecture", "Architecture", wide=True, show=_text),
    Column("pcie_gb_per_s", "PCIe GB/s", right=True, wide=True, show=_number),
)
_GPU_CSV_COLUMNS = (*_GPU_COLUMNS, Column("aliases", "Also called"), Column("note", "Note"))

_SOURCE_COLUMNS = (
    Column("of", "Of"),
    Column("fact", "Fact"),
    Column("value", "Value", show=_text),
    Column("source", "Source"),
)


def _gpu_record(gpu: Gpu) -> dict[str, Any]:
    return {**msgspec.structs.asdict(gpu), "sources": {field: str(SOURCES[key]) for field, key in gpu.sources}}


def _fact(of: str, fact: str, value: Any, key: str | None) -> dict[str, Any]:
    return {"of": of, "fact": fact, "value": value, "source": str(SOURCES[key]) if key else "no source found"}


def _emit_sources(records: Sequence[Mapping[str, Any]], output: str) -> None:
    columns, title = _SOURCE_COLUMNS, ""
    subjects = {record["of"] for record in records}
    if output in ("table", "wide") and len(subjects) == 1:
        columns, title = columns[1:], subjects.pop()
    emit(records, columns, output=output, schema="muster.catalog.sources/v1", list_key="facts", title=title)


def _flat(records: Sequence[Mapping[str, Any]], output: str) -> list[Mapping[str, Any]]:
    """For csv, write lists as one cell; the other formats take the records as they are."""
    if output != "csv":
        return list(records)
    return [{key: _cell(value) for key, value in record.items()} for record in records]


def _cell(value: Any) -> Any:
    if not isinstance(value, (list, tuple)):
        return value
    items = cast("Sequence[Any]", value)
    return "; ".join(str(item["name"]) if hasattr(item, "keys") else str(item) for item in items)


@command.command(
    epilog="""\b
Examples:
  muster catalog gpus
  muster catalog gpus h100 "NVIDIA A100 80GB PCIe"
  muster catalog gpus H100 B200 --sources
  muster catalog gpus -o csv
"""
)
@click.argument("names", nargs=-1, metavar="[NAME...]")
@_sources_option
@output_option
def gpus(names: tuple[str, ...], sources: bool, output: str) -> None:
    """GPU models: memory, bandwidths, links, power. Rates are GB/s in one direction.

    NAME is a canonical name, an nvidia-smi name, a value of the node label nvidia.com/gpu.product or a short name
    such as H100, V100M32 or G2; without one, all models are shown.
    """
    chosen = list(dict.fromkeys(find_gpu(name) for name in names)) if names else list(GPUS)
    if sources:
        facts = [
            _fact(gpu.name, field, getattr(gpu, field), gpu.source_of(field))
            for gpu in chosen
            for field in FACTS
            if getattr(gpu, field) is not None
        ]
        _emit_sources(facts, output)
        return
    columns = _GPU_CSV_COLUMNS if output == "csv" else _GPU_COLUMNS
    records = _flat([_gpu_record(gpu) for gpu in chosen], output)
    emit(records, columns, output=output, schema="muster.catalog.gpus/v1", list_key="gpus")
    if names and output in ("table", "wide"):
        click.echo()
        for gpu in chosen:
            text = f"{gpu.name} is also called {', '.join(gpu.aliases)}. {gpu.note}".strip()
            click.echo(wrapped(text, terminal_width()))


# --- MIG -------------------------------------------------------------------------------------------------------------

_MODEL_COLUMNS = (
    Column("name", "GPU"),
    Column("compute_slices", "Compute", right=True),
    Column("memory_slices", "Memory", right=True),
    Column(
        "profiles", "Profiles (at most)", show=lambda value: ", ".join(f"{p['name']} x{p['max_count']}" for p in value)
    ),
)

_PROFILE_COLUMNS = (
    Column("name", "Profile"),
    Column("compute_slices", "Compute", right=True),
    Column("memory_slices", "Memory", right=True),
    Column("memory_mib", "MiB", right=True, show=_number),
    Column("starts", "Starts", show=_starts),
    Column("max_count", "At most", right=True),
    Column("profile_id", "ID", right=True, show=_text),
    Column("variant", "Variant", wide=True, show=_yes_no),
)

_ROOM_COLUMNS = (
    Column("name", "Profile"),
    Column("compute_slices", "Compute", right=True),
    Column("memory_slices", "Memory", right=True),
    Column("starts", "Starts", show=_starts),
    Column("free_starts", "Free now", show=_starts),
    Column("more", "More fit", right=True),
)

_LAYOUT_COLUMNS = (
    Column("number", "No", right=True),
    Column("layout", "Profile@start", show="  ".join),
    Column("compute_slices", "Compute", right=True),
    Column("memory_slices", "Memory", right=True),
)


@command.command(
    epilog="""\b
Examples:
  muster catalog mig
  muster catalog mig H100
  muster catalog mig H100 --layouts
  muster catalog mig H100 --with 3g.40gb@0
  muster catalog mig A30 --sources
"""
)
@click.argument("gpu", required=False, metavar="[GPU]")
@click.option(
    "--layouts", is_flag=True, help="Print all maximal layouts: sets of instances to which none can be added."
)
@click.option("--variants", is_flag=True, help="With --layouts: count +me, -me and +gfx profiles as their own.")
@click.option(
    "--with", "placed", metavar="P@S,...", help="Show what still fits beside these, such as 3g.40gb@4,1g.10gb@0."
)
@_sources_option
@output_option
def mig(gpu: str | None, layouts: bool, variants: bool, placed: str | None, sources: bool, output: str) -> None:
    """MIG profiles of a GPU model: slices, memory, starts. Starts and sizes are in memory slices.

    Without GPU, the models that can be split are listed.
    """
    if gpu is None:
        if layouts or variants or placed:
            raise click.UsageError(
                "--layouts, --variants and --with need a GPU, such as: muster catalog mig H100 --layouts"
            )
        _mig_models(sources, output)
        return
    if variants and not layouts:
        raise click.UsageError("--variants belongs to --layouts")
    if bool(placed) + layouts + sources > 1:
        raise click.UsageError("choose one of --layouts, --with and --sources")
    model, table = find_gpu(gpu), mig_table(gpu)
    if sources:
        _emit_sources(_mig_facts(model.name, table), output)
    elif layouts:
        _mig_layouts(model, variants, output)
    elif placed:
        _mig_room(model, table, placed, output)
    else:
        records = _flat([msgspec.structs.asdict(profile) for profile in table.profiles], output)
        extra = _mig_extra(model, table)
        title = f"{model.name}: {table.compute_slices} compute and {table.memory_slices} memory slices"
        emit(
            records,
            _PROFILE_COLUMNS,
            output=output,
            schema="muster.catalog.mig/v1",
            list_key="profiles",
            extra=extra,
            title=title,
        )
        if table.note and output in ("table", "wide"):
            click.echo(table.note)


def _mig_extra(model: Gpu, table: MigTable) -> dict[str, Any]:
    return {
        "gpu": model.name,
        "compute_slices": table.compute_slices,
        "memory_slices": table.memory_slices,
        "sm_per_slice": table.sm_per_slice,
        "reset_to_toggle": table.reset_to_toggle,
        "note": table.note,
        "sources": {fact["fact"]: fact["source"] for fact in _mig_facts(model.name, table)},
    }


def _mig_facts(name: str, table: MigTable) -> list[dict[str, Any]]:
    profiles = table.profiles
    facts = [
        _fact(name, "profiles", " ".join(profile.name for profile in profiles), table.names_source),
        _fact(name, "slices and starts", f"{table.compute_slices} + {table.memory_slices}", table.placement_source),
    ]
    if table.memory_source:
        mib = " ".join(str(profile.memory_mib) for profile in profiles)
        facts.append(_fact(name, "memory_mib", mib, table.memory_source))
    if table.sm_per_slice:
        facts.append(_fact(name, "sm_per_slice", table.sm_per_slice, table.sm_source))
    if table.reset_to_toggle is not None:
        facts.append(_fact(name, "reset_to_toggle", table.reset_to_toggle, table.reset_source))
    return facts


def _mig_models(sources: bool, output: str) -> None:
    pairs = [(name, table) for table in MIG_TABLES for name in table.gpus]
    if sources:
        _emit_sources([fact for name, table in pairs for fact in _mig_facts(name, table)], output)
        return
    records = [
        {
            "name": name,
            "compute_slices": table.compute_slices,
            "memory_slices": table.memory_slices,
            "profiles": [msgspec.structs.asdict(profile) for profile in table.profiles],
        }
        for name, table in pairs
    ]
    title = "Slices of each GPU, and its MIG profiles with how many fit at most"
    emit(
        _flat(records, output),
        _MODEL_COLUMNS,
        output=output,
        schema="muster.catalog.mig.models/v1",
        list_key="gpus",
        title=title,
    )


def _mig_layouts(model: Gpu, variants: bool, output: str) -> None:
    table, found = mig_table(model), legal_layouts(model, variants=variants)
    records = [
        {
            "number": number,
            "layout": [f"{name}@{start}" for name, start in layout],
            "compute_slices": sum(table.profile(name).compute_slices for name, _ in layout),
            "memory_slices": sum(table.profile(name).memory_slices for name, _ in layout),
        }
        for number, layout in enumerate(found, start=1)
    ]
    slices = f"{table.compute_slices} compute and {table.memory_slices} memory slices"
    emit(
        _flat(records, output),
        _LAYOUT_COLUMNS,
        output=output,
        schema="muster.catalog.mig.layouts/v1",
        list_key="layouts",
        extra={"gpu": model.name, "variants": variants},
        title=f"{model.name}: {len(found)} maximal layouts of {slices}",
    )


def _mig_room(model: Gpu, table: MigTable, placed: str, output: str) -> None:
    layout = check_layout(model, parse_layout(placed))
    records = [
        {
            "name": profile.name,
            "compute_slices": profile.compute_slices,
            "memory_slices": profile.memory_slices,
            "starts": profile.starts,
            "free_starts": can_add(model, layout, profile.name),
            "more": room_for(model, layout, profile.name),
        }
        for profile in table.profiles
    ]
    shown = [f"{name}@{start}" for name, start in layout]
    emit(
        _flat(records, output),
        _ROOM_COLUMNS,
        output=output,
        schema="muster.catalog.mig.room/v1",
        list_key="profiles",
        extra={"gpu": model.name, "placed": shown},
        title=f"{model.name} with {', '.join(shown)}",
    )


def parse_layout(text: str) -> Layout:
    """``3g.40gb@4,1g.10gb@0`` to ``(("3g.40gb", 4), ("1g.10gb", 0))``; the profiles themselves are not checked.

    Raises:
        InputError: for a part that is not ``profile@start``.
    """
    found: list[tuple[str, int]] = []
    for part in text.split(","):
        name, _, start = part.strip().partition("@")
        if not name or not start.isdecimal():
            raise InputError(f"'{part.strip()}' is not PROFILE@START", field="--with", hint="write it as 3g.40gb@4")
        found.append((name, int(start)))
    return tuple(found)


# --- links -----------------------------------------------------------------------------------------------------------

_LINK_COLUMNS = (
    Column("name", "Link"),
    Column("kind", "Kind"),
    Column("gb_per_s", "GB/s", right=True, show=_number),
    Column("high_gb_per_s", "To", right=True, show=lambda value: "" if value is None else thousands(value)),
    Column("of_gb_per_s", "Of", right=True, show=lambda value: "" if value is None else thousands(value)),
    Column("fraction", "Part", right=True, show=_percent),
    Column("per", "Per"),
    Column("made_of", "Made of"),
    Column("note", "Note"),
)


@command.command(
    epilog="""\b
Examples:
  muster catalog links
  muster catalog links --kind node --kind measured
  muster catalog links --sources
"""
)
@click.option(
    "--kind",
    multiple=True,
    help="Only this kind (repeatable): nvlink, scale-up, pcie, infiniband, nic, node, measured.",
)
@_sources_option
@output_option
def links(kind: tuple[str, ...], sources: bool, output: str) -> None:
    """Links, node totals and what was measured on them. Rates are GB/s in one direction."""
    for name in kind:
        if name not in KINDS:
            raise InputError(f"unknown kind of link '{name}'", field="--kind", hint=f"one of {', '.join(KINDS)}")
    chosen = [link for link in LINKS if not kind or link.kind in kind]
    if sources:
        _emit_sources([_fact(link.name, "gb_per_s", link.gb_per_s, link.source) for link in chosen], output)
        return
    records = [
        {**msgspec.structs.asdict(link), "fraction": link.fraction, "source": str(SOURCES[link.source])}
        for link in chosen
    ]
    columns = (*_LINK_COLUMNS, Column("source", "Source")) if output == "csv" else _LINK_COLUMNS
    emit(records, columns, output=output, schema="muster.catalog.links/v1", list_key="links")


command.add_command(xids)
