"""A map of the fleet: a small cell a node, grouped by hardware, its devices coloured by how full they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from msgspec import Struct

from muster.report.palette import FILL, fill_level
from muster.report.scale import pixel, text_width
from muster.report.svg import INK, MUTED, TEXT_PX, TITLE_PX, Picture

WHOLE_MILLI = 1000
MOST_CELLS = 5000
"""Most cells of one map; of larger fleets every second (third ...) node is drawn."""


class FleetNode(Struct, frozen=True, array_like=True):
    """What the map shows of one node.

    Attributes:
        name, kind: the node, and its hardware in words, such as ``8 x A100-SXM4-80GB, 96 CPU, 512 GiB``.
        gpu_free_milli: free share of each device, 0 to 1000; empty on nodes without GPUs.
        cpu_milli, cpu_free_milli: in thousandths of a core.
        memory_bytes, memory_free_bytes: host memory.
    """

    name: str
    kind: str
    gpu_free_milli: tuple[int, ...] = ()
    cpu_milli: int = 0
    cpu_free_milli: int = 0
    memory_bytes: int = 0
    memory_free_bytes: int = 0


def fleet_map(title: str, nodes: Sequence[FleetNode], *, width: float = 940) -> Picture:
    """Draw the fleet: kinds by number of GPUs, the most first; inside a kind the fullest nodes first, then by name."""
    every = max(1, math.ceil(len(nodes) / MOST_CELLS))
    side = 3.0 if len(nodes) > 1500 else 5.0 if len(nodes) > 300 else 7.0
    kinds: dict[str, list[FleetNode]] = {}
    for node in nodes:
        kinds.setdefault(node.kind, []).append(node)
    order = sorted(kinds.items(), key=lambda item: (-sum(len(node.gpu_free_milli) for node in item[1]), item[0]))
    body = [_text(12, 20, title, INK, "ink", f' font-size="{TITLE_PX}" font-weight="600"'), _legend(12, 40, every)]
    top = 66.0
    for kind, members in order:
        members = sorted(members, key=lambda node: (_free_share(node), node.name))
        top = _group(body, kind, members, every, side, top, width)
    if not nodes:
        body.append(_text(12, top, "no nodes", MUTED, "muted"))
        top += 20
    return Picture(width, top, title, "\n".join(body))


def _group(
    body: list[str], kind: str, members: list[FleetNode], every: int, side: float, top: float, width: float
) -> float:
    """Draw the nodes of one kind from ``top`` on; returns where the next kind begins."""
    devices = sum(len(node.gpu_free_milli) for node in members)
    free = sum(sum(node.gpu_free_milli) for node in members) / WHOLE_MILLI
    told = f"{len(members):,} nodes" if len(members) != 1 else "1 node"
    told += f", {free:,.1f} of {devices:,} GPUs free" if devices else ", no GPU; cells show CPU"
    body.append(
        f'<text class="ink" fill="{INK}" x="12" y="{pixel(top + 10)}">{escape(kind)} '
        f'<tspan class="muted" dx="6" fill="{MUTED}">{escape(told)}</tspan></text>'
    )
    top += 18
    most = max(1, *(len(node.gpu_free_milli) for node in members))
    columns = _columns(most)
    rows = math.ceil(most / columns)
    pitch = side + 1
    wide, high = columns * pitch + side - 1, rows * pitch + side - 1
    per_row = max(1, int((width - 24) // wide))
    shown = members[::every]
    for index, node in enumerate(shown):
        x, y = 12 + index % per_row * wide, top + index // per_row * high
        body.append(_cell(node, x, y, side, columns))
    return top + math.ceil(len(shown) / per_row) * high + 12


def _cell(node: FleetNode, x: float, y: float, side: float, columns: int) -> str:
    """One node: its devices as small squares, one path a shade, and all in words on hovering."""
    shares = [(free, WHOLE_MILLI) for free in node.gpu_free_milli] or [(node.cpu_free_milli, node.cpu_milli)]
    paths: dict[int, str] = {}
    for index, (free, total) in enumerate(shares):
        row, column = divmod(index, columns)
        size = pixel(side)
        square = f"M{pixel(column * (side + 1))} {pixel(row * (side + 1))}h{size}v{size}h-{size}z"
        level = fill_level(free, total)
        paths[level] = paths.get(level, "") + square
    drawn = "".join(
        f'<path class="{FILL[level].name}" fill="{FILL[level].light}" d="{path}"/>' for level, path in paths.items()
    )
    return f'<g transform="translate({pixel(x)} {pixel(y)})"><title>{escape(_words(node))}</title>{drawn}</g>'


def _words(node: FleetNode) -> str:
    cpu = f"{node.cpu_free_milli / 1000:.3g} of {node.cpu_milli / 1000:.4g} CPU free"
    memory = f"{node.memory_free_bytes / 2**30:.4g} of {node.memory_bytes / 2**30:.4g} GiB free"
    if not node.gpu_free_milli:
        return f"{node.name}: {cpu}, {memory}"
    gpu = f"{sum(node.gpu_free_milli) / WHOLE_MILLI:.3g} of {len(node.gpu_free_milli)} GPUs free"
    return f"{node.name}: {gpu}, {cpu}, {memory}"


def _free_share(node: FleetNode) -> float:
    if node.gpu_free_milli:
        return sum(node.gpu_free_milli) / len(node.gpu_free_milli)
    return WHOLE_MILLI * node.cpu_free_milli / node.cpu_milli if node.cpu_milli else 0.0


def _columns(devices: int) -> int:
    """How many devices stand in a row: 8 as 4 x 2, 4 as 2 x 2."""
    if devices <= 2:
        return max(1, devices)
    return 2 if devices <= 4 else 4 if devices <= 8 else math.ceil(math.sqrt(devices))


def _legend(x: float, y: float, every: int) -> str:
    parts: list[str] = []
    for colour, text in zip(FILL, ("free", "to 1/3", "to 2/3", "more", "full"), strict=True):
        parts.append(
            f'<rect class="{colour.name}" fill="{colour.light}" x="{pixel(x)}" y="{pixel(y - 9)}" width="10" '
            f'height="10"/>'
        )
        parts.append(_text(x + 14, y, text, MUTED, "muted"))
        x += 26 + text_width(text)
    note = "a square is a GPU, a block a node" + (f"; one node in {every} is drawn" if every > 1 else "")
    parts.append(_text(x + 6, y, note, MUTED, "muted"))
    return "".join(parts)


def _text(x: float, y: float, text: str, fill: str, kind: str, extra: str = "") -> str:
    size = "" if "font-size" in extra else f' font-size="{TEXT_PX}"'
    return f'<text class="{kind}" fill="{fill}" x="{pixel(x)}" y="{pixel(y)}"{size}{extra}>{escape(text)}</text>'
