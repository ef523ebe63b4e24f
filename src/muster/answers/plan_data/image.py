"""Layers of `muster plan image` out of a manifest or a build's history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from muster.errors import InputError
from muster.planning.plans.image import MOST_LAYERS
from muster.planning.quantities import BYTES
from muster.planning.question import FromData
from muster.traces.files import read_bytes

_HINT = "crane manifest IMAGE, docker manifest inspect IMAGE, or docker history --no-trunc --format '{{json .}}' IMAGE"


def layers_of(named: str, given: Mapping[str, Any]) -> FromData:
    """The layers of an OCI or Docker manifest (sizes as sent), or of ``docker history`` as JSON (sizes unpacked).

    Raises:
        InputError: it is neither, or it lists platforms and no layers.
    """
    del given
    data = read_bytes(named)
    try:
        document: Any = msgspec.json.decode(data)
    except msgspec.DecodeError:
        document = _lines(data, named)
    top = _object(document)
    if isinstance(top.get("layers"), list):
        return _manifest([_object(each) for each in top["layers"]], named)
    if isinstance(top.get("manifests"), list):
        hint = "crane manifest --platform linux/amd64 IMAGE"
        raise InputError("lists manifests of platforms and no layers", file=named, hint=hint)
    rows = [_object(each) for each in cast("list[Any]", document if isinstance(document, list) else [document])]
    if rows and all("Size" in each for each in rows):
        return _history(rows, named)
    raise InputError("is no manifest and no history of an image", file=named, hint=_HINT)


def _object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _lines(data: bytes, named: str) -> list[Any]:
    try:
        return [msgspec.json.decode(line) for line in data.splitlines() if line.strip()]
    except msgspec.DecodeError:
        raise InputError("is no JSON", file=named, hint=_HINT) from None


def _manifest(layers: list[dict[str, Any]], named: str) -> FromData:
    found: list[str] = []
    for at, layer in enumerate(layers):
        size: Any = layer.get("size")
        if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 10**13:
            raise InputError("has no size in bytes", file=named, field=f"layers[{at}].size", hint=_HINT)
        digest = str(layer.get("digest", "")).rpartition(":")[2][:8] or str(at)
        raw = str(layer.get("mediaType", "")).endswith(".tar")
        found.append(f"{at:02d}-{digest}:size={size}B" + (f",unpacked={size}B" if raw else ""))
    return _told(found, named, "sizes as sent")


def _history(rows: list[dict[str, Any]], named: str) -> FromData:
    """``docker history`` has the newest step first, sizes on disk; compressed they are taken as half of that."""
    found: list[str] = []
    for at, row in enumerate(reversed(rows)):
        size = row["Size"]
        unpacked = float(size) if isinstance(size, int) else BYTES.read(str(size), f"{named}, Size")
        if unpacked <= 0:
            continue
        words = str(row.get("CreatedBy", "")).replace("/bin/sh -c", "").replace("#(nop)", "").split()
        name = "".join(each for each in "-".join(words[:3])[:20] if each not in ":,=") or "layer"
        found.append(f"{at:02d}-{name}:size={unpacked / 2:.0f}B,unpacked={unpacked:.0f}B")
    return _told(found, named, "sizes on disk, half of that sent")


def _told(found: list[str], named: str, how: str) -> FromData:
    if not found or len(found) > MOST_LAYERS:
        raise InputError(f"has {len(found)} layers", file=named, hint=f"1 to {MOST_LAYERS}")
    return FromData({"layers": tuple(found)}, {"layers": f"{named}: {len(found)} layers, {how}"})
