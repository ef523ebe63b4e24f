"""Colours that colour-blind readers can tell apart; a policy has the same one in every picture.

Based on Okabe and Ito, "Color Universal Design" (2008), some shades darker so that lines show on white. Each colour has
a second value for dark pages. Colour is never the only sign: curves carry their name, published ones are dashed.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple


class Colour(NamedTuple):
    """One colour: its name (also a CSS class ``c-NAME``), and its value on light and on dark ground."""

    name: str
    light: str
    dark: str


BLUE = Colour("blue", "#0064a8", "#58b0f0")
VERMILION = Colour("vermilion", "#cc4f00", "#ff8a4c")
GREEN = Colour("green", "#00805e", "#2fc79b")
PURPLE = Colour("purple", "#a9468a", "#e08cc4")
OCHRE = Colour("ochre", "#a87200", "#e8b13a")
SKY = Colour("sky", "#3a8fc4", "#8ccbf2")
GREY = Colour("grey", "#6b7280", "#9aa4b2")
SAND = Colour("sand", "#d9b36c", "#8f7135")
MINT = Colour("mint", "#8fcbb5", "#3f7d68")
ASH = Colour("ash", "#c3cad3", "#4a5361")
COLOURS = (BLUE, VERMILION, GREEN, PURPLE, OCHRE, SKY, GREY, SAND, MINT, ASH)

POLICY_COLOURS = {
    "default": BLUE,
    "fgd": VERMILION,
    "best-fit": GREEN,
    "gpu-packing": PURPLE,
    "dot-product": OCHRE,
    "gpu-clustering": SKY,
    "random": GREY,
}

CAUSE_COLOURS = {
    "no_gpu_asked": ASH,
    "wrong_model": SAND,
    "lack_of_gpu": SKY,
    "wrong_shape": BLUE,
    "lack_of_cpu": VERMILION,
    "lack_of_memory": PURPLE,
    "leftover": MINT,
}

FILL = (
    Colour("fill0", "#eef1f4", "#262c36"),
    Colour("fill1", "#c3dbee", "#234a6b"),
    Colour("fill2", "#86b8de", "#2f6f9f"),
    Colour("fill3", "#3f8cc4", "#4a9bd6"),
    Colour("fill4", "#084c85", "#a5d8ff"),
)
"""How full a device is: free, up to a third, up to two thirds, more, full."""


def policy_colour(name: str) -> Colour:
    """The colour of a policy; one that is not in the list always gets the same of the others."""
    known = POLICY_COLOURS.get(name)
    return known or (PURPLE, OCHRE, SKY, GREEN)[zlib.crc32(name.encode()) % 4]


def fill_level(free_milli: int, total_milli: int) -> int:
    """0 (all free) to 4 (nothing free), an index of FILL."""
    used = total_milli - free_milli
    if total_milli <= 0 or used <= 0:
        return 0 if total_milli > 0 else 4
    return 4 if free_milli <= 0 else 1 + min(2, 3 * used // total_milli)
