"""The style sheet of a report: light and dark, narrow screens, paper."""

from __future__ import annotations

from muster.report.palette import COLOURS, FILL
from muster.report.svg import FONT, INK, LINE, MUTED

_DARK_INK, _DARK_MUTED, _DARK_LINE, _DARK_GROUND, _DARK_PANEL = "#e6e9ee", "#9aa4b2", "#2f3743", "#14171c", "#1c2129"


def style_sheet() -> str:
    """CSS text; needs nothing from outside."""
    light = _variables(INK, MUTED, LINE, "#ffffff", "#f6f8fa", dark=False)
    dark = _variables(_DARK_INK, _DARK_MUTED, _DARK_LINE, _DARK_GROUND, _DARK_PANEL, dark=True)
    series = "".join(f".c-{colour.name}{{color:var(--{colour.name})}}" for colour in COLOURS)
    fills = "".join(f".{colour.name}{{fill:var(--{colour.name})}}" for colour in FILL)
    return f""":root{{color-scheme:light dark;{light}}}
@media (prefers-color-scheme:dark){{:root{{{dark}}}}}
{series}
{fills}
svg .ink{{fill:var(--ink)}} svg .muted{{fill:var(--muted)}} svg .grid{{stroke:var(--line)}}
svg .rule{{stroke:var(--muted)}}
*{{box-sizing:border-box}}
body{{margin:0 auto;padding:2rem 1.25rem 4rem;max-width:64rem;background:var(--ground);color:var(--ink);
font:16px/1.5 {FONT}}}
h1{{font-size:1.7rem;line-height:1.2;margin:0 0 .75rem}} h2{{font-size:1.2rem;margin:2.5rem 0 .5rem}}
p{{margin:.4rem 0;max-width:46rem}} .lead{{font-size:1.05rem}}
figcaption,.note{{color:var(--muted);font-size:.9rem;max-width:56rem}}
ul{{margin:.4rem 0;padding-left:1.2rem}}
dl{{display:grid;grid-template-columns:max-content 1fr;gap:.2rem 1.25rem;margin:.75rem 0}}
dt{{color:var(--muted)}} dd{{margin:0;overflow-wrap:anywhere}}
.scroll{{overflow-x:auto}}
table{{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.95rem}}
th,td{{padding:.3rem .8rem .3rem 0;text-align:left;white-space:nowrap;border-bottom:1px solid var(--line)}}
th{{font-weight:600;color:var(--muted);vertical-align:bottom;white-space:normal}}
.right{{text-align:right}} .best{{font-weight:700}}
figure{{margin:1rem 0}} figure svg{{display:block;width:100%;height:auto;max-width:var(--wide);min-width:var(--least)}}
.pair{{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:0 1.5rem}}
pre{{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:.7rem .9rem;white-space:pre-wrap;
overflow-wrap:anywhere;
font:.88rem/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}}
code{{font:.9em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}}
details{{border-top:1px solid var(--line);padding:.4rem 0}} summary{{cursor:pointer}}
footer{{margin-top:3rem;color:var(--muted);font-size:.9rem}}
@media (max-width:40rem){{body{{padding:1rem .8rem 3rem}} dl{{grid-template-columns:1fr;gap:0}} dd{{margin:0 0 .5rem}}}}
@media print{{:root{{{light}}} body{{max-width:none;padding:0;font-size:11pt}} figure,tr,pre{{break-inside:avoid}}
h2{{break-after:avoid}} .scroll{{overflow:visible}} figure svg{{min-width:0}}
.pair{{grid-template-columns:1fr 1fr}} figure:has(.pair){{break-inside:auto}} .pair>*{{break-inside:avoid}}
*{{print-color-adjust:exact;-webkit-print-color-adjust:exact}}}}
"""


def _variables(ink: str, muted: str, line: str, ground: str, panel: str, *, dark: bool) -> str:
    named = {"ink": ink, "muted": muted, "line": line, "ground": ground, "panel": panel}
    named |= {colour.name: colour.dark if dark else colour.light for colour in (*COLOURS, *FILL)}
    return "".join(f"--{name}:{value};" for name, value in named.items())
