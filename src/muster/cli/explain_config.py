"""`muster explain-config`: every setting of the scheduling cycle with its default and meaning."""

from __future__ import annotations

import inspect
import re
from typing import Any

import click
import msgspec

from muster.cli.output import Column, emit, output_option, tell

SCHEMA = "muster.config/v1"

EPILOG = """\b
Examples:
  muster explain-config
  muster explain-config --preset slurm-like
  muster explain-config --schema > run.schema.json
"""


@click.command(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--preset", metavar="NAME", help="Show the values of a preset: muster, kueue-like, slurm-like ...")
@click.option("--schema", is_flag=True, help="Print the JSON schema of a run file, for editors.")
@output_option
def command(preset: str | None, schema: bool, output: str) -> None:
    """Show what the scheduling cycle can be told, in the config: part of a run file.

    With --preset the values are those of the preset, and what it imitates is told.
    """
    if schema:
        from muster.sim.run_file import run_file_schema

        click.echo(msgspec.json.format(msgspec.json.encode(run_file_schema()), indent=2).decode())
        return
    values: dict[str, Any] = {}
    about = ""
    if preset is not None:
        values, about = _preset(preset)
    records = [{**record, "value": values.get(record["name"], record["default"])} for record in settings()]
    columns = [
        Column("name", "setting"),
        Column("default", "default", show=_shown),
        # a preset is for reading what it does, the list without one for choosing
        Column("value", preset, show=_shown) if preset is not None else Column("choices", "may be"),
        Column("meaning", "meaning"),
    ]
    emit(records, columns, output=output, schema=SCHEMA, list_key="settings", extra={"preset": preset or "muster"})
    if about and output in ("table", "wide"):
        click.echo()
        tell("\n\n".join(" ".join(paragraph.split()) for paragraph in about.replace("``", "").split("\n\n")))


def settings() -> list[dict[str, Any]]:
    """Each setting: ``name``, ``default``, ``choices`` (in words), ``meaning`` (from the docstring of `Config`)."""
    from muster.engine.config import Config

    meanings = _meanings(inspect.getdoc(Config) or "")
    properties: dict[str, Any] = msgspec.json.schema(Config)["$defs"]["Config"]["properties"]
    return [
        {
            "name": field.encode_name,
            "default": field.default,
            "choices": _choices(properties[field.encode_name]),
            "meaning": meanings.get(field.name, ""),
        }
        for field in msgspec.structs.fields(Config)
    ]


def _preset(name: str) -> tuple[dict[str, Any], str]:
    from muster.errors import InputError, near
    from muster.sim.presets import PRESETS

    if name not in PRESETS:
        hint = near(name, list(PRESETS)) or f"one of {', '.join(PRESETS)}"
        raise InputError(f"there is no preset {name!r}", field="--preset", hint=hint)
    return PRESETS[name](), inspect.getdoc(PRESETS[name]) or ""


def _meanings(text: str) -> dict[str, str]:
    """The ``name: meaning`` items under ``Attributes:``; an item goes on where it is indented deeper."""
    _, _, items = text.partition("Attributes:\n")
    found = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", items, re.MULTILINE)
    return {name: " ".join(meaning.split()).replace("``", "") for name, meaning in found}


def _choices(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    kinds = {"string": "a name", "number": "a number", "integer": "a whole number", "boolean": "true | false"}
    words = kinds.get(schema.get("type", ""), "")
    if "minimum" in schema and schema.get("maximum", 1e12) < 1e12:  # a limit that only keeps sums finite is none
        return f"{words} from {schema['minimum']:g} to {schema['maximum']:g}"
    if "minimum" in schema:
        return f"{words}, {schema['minimum']:g} or more"
    if "exclusiveMinimum" in schema:
        return f"{words} above {schema['exclusiveMinimum']:g}"
    return words


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)
