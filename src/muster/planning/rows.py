"""Rows on a command line, ``name:key=value,key=value``: how planners are told of several workloads, sites or layers."""

from __future__ import annotations

from collections.abc import Sequence

from muster.errors import InputError, near


def read_row(
    text: str, needed: Sequence[str], optional: Sequence[str], field: str, hint: str
) -> tuple[str, dict[str, str]]:
    """The name and the values by key; raises `InputError` for a key that is unknown, there twice, or missing."""
    name, _, rest = text.partition(":")
    name = name.strip()
    if not name or not rest:
        raise InputError(f"is {text[:60]!r}", field=field, hint=hint)
    said: dict[str, str] = {}
    known = (*needed, *optional)
    for part in rest.split(","):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or key not in known or key in said:
            what = f"{part[:30]!r} of {name[:30]!r} is {'there twice' if key in said else 'not understood'}"
            raise InputError(what, field=field, hint=near(key, known) or hint)
        said[key] = value.strip()
    if missing := [key for key in needed if key not in said]:
        raise InputError(f"{name[:30]!r} needs {' and '.join(missing)}", field=field, hint=hint)
    return name, said
