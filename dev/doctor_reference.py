"""Writes docs/reference/doctor.md out of the doctor's rules: every layer, signal, cause, fix and source.

    python dev/doctor_reference.py

A test compares the page with the rules, so that they cannot drift apart.
"""

from __future__ import annotations

from pathlib import Path

from muster.doctor.rules import LIKELY, Cause, Layer, Rules, Signal, load_rules

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "doctor.md"

HEAD = """# The doctor's rules

`muster doctor` knows {signals} signals and {causes} causes in {layers} layers, and {commands} kinds of output. This
page is written from the rules in `src/muster/doctor/rules/` by `python dev/doctor_reference.py`. How causes are weighed
is in [how the doctor weighs causes](../explanation/doctor.md); how to use it in
[find the broken layer of a node](../how-to/doctor.md).

A signal is a line (a regular expression) or a condition on facts that were read. A cause shows a signal {words}. What a
cause does not name, it shows as rarely as anything else does. It is called certain only when one of its proofs was
seen, nothing speaks against it, and its share of the belief is 0.9 or more.
"""


def page(rules: Rules) -> str:
    """The whole page."""
    words = ", ".join(f"{word} ({share:g})" for word, share in LIKELY.items())
    parts = [
        HEAD.format(
            signals=len(rules.signals), causes=len(rules.causes), layers=len(rules.layers),
            commands=len(rules.commands), words=words,
        )
    ]  # fmt: skip
    for layer in rules.layers:
        parts.append(_layer(layer, [cause for cause in rules.causes if cause.layer == layer.layer]))
    parts.append("## Kinds of output\n\n| kind | shown by | where |\n|---|---|---|\n")
    parts.extend(f"| `{each.kind}` | `{_cell(each.run)}` | {each.where} |\n" for each in rules.commands.values())
    return "".join(parts)


def _layer(layer: Layer, causes: list[Cause]) -> str:
    title = f"{layer.layer[0].upper()}{layer.layer[1:]}"
    rows = [f"\n## {title}\n\n{layer.about}\n", "| signal | what it tells | shown by | how it is found |"]
    rows.append("|---|---|---|---|")
    rows.extend(_signal(signal) for signal in layer.signals)
    return "\n".join(rows) + "\n" + "".join(_cause(cause) for cause in causes)


def _signal(signal: Signal) -> str:
    kind = "" if signal.fault else " (health)"
    kind = " (note)" if signal.note else " (hint)" if signal.hint else kind
    return (
        f"| `{signal.id}`{kind} | {signal.says} | {', '.join(signal.kinds)} | `{_cell(signal.line or signal.when)}` |"
    )


def _cause(cause: Cause) -> str:
    by_word: dict[str, list[str]] = {}
    for name, word in cause.shows.items():
        by_word.setdefault(word, []).append(f"`{name}`")
    shows = "; ".join(f"{word} {', '.join(by_word[word])}" for word in LIKELY if word in by_word)
    proof = ", ".join(f"`{name}`" for name in cause.proof) or "none: it is never called certain"
    fix = "\n".join(f"{at}. `{step}`" for at, step in enumerate(cause.fix, 1))
    why = f"{cause.why.strip()}\n\n" if cause.why else ""
    return (
        f"\n### {cause.id}\n\n**{cause.cause}**\n\n{why}Weight {cause.weight:g}. Shows {shows}. Proof: {proof}.\n\n"
        f"{fix}\n\nRisk: {cause.risk} Source: {cause.source}.\n"
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(load_rules()))


if __name__ == "__main__":
    main()
