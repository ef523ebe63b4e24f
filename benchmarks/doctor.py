"""How the doctor's verdict holds where evidence is missing: every part of every case's evidence.

    .venv/bin/python benchmarks/doctor.py

The cases are public reports, rebuilt (tests/doctor/cases). Of each, every part of the evidence that is not empty is
judged. Parts that show no sign of a fault, such as a healthy nvidia-smi alone, are counted apart: there the answer is
that nothing is wrong in what was seen.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def main() -> None:
    """Print the table by number of pieces missing."""
    from tests.doctor.cases import load_cases, subsets

    rows: dict[str, list[int]] = {}
    for case in load_cases():
        for names, ranked in subsets(case):
            missing = len(case.files) - len(names)
            for key in (str(missing) if missing < 3 else "3 and more", "all"):
                row = rows.setdefault(key, [0] * 6)
                row[0] += 1
                if not ranked:
                    row[1] += 1
                    continue
                ids = [each.cause.id for each in ranked]
                row[2] += ids[0] == case.cause
                row[3] += case.cause in ids[:3]
                row[4] += ranked[0].called == "certain"
                row[5] += any(
                    each.called == "certain" and each.cause.id not in (case.cause, *case.also) for each in ranked
                )
    print("| pieces missing | parts | show no fault | first | among the first three | called certain | wrongly |")
    print("|---|---|---|---|---|---|---|")
    for key in sorted(rows, key=lambda each: (each == "all", each)):
        parts, silent, first, three, certain, wrong = rows[key]
        told = parts - silent
        share = [f"{100 * each / told:.1f} %" for each in (first, three, certain)]
        print(f"| {key} | {parts} | {silent} | {' | '.join(share)} | {wrong} |")


def off(seed: int) -> tuple[float, float, int]:
    """The shares of first and among the first three, and wrong certainties, with every weight off by up to two."""
    from msgspec.structs import replace
    from tests.doctor.cases import load_cases, subsets

    from muster.doctor.rules import load_rules

    rng, rules = random.Random(seed), load_rules()
    causes = tuple(replace(each, weight=each.weight * 2 ** rng.uniform(-1, 1)) for each in rules.causes)
    rules = replace(rules, causes=causes)
    told = first = three = wrong = 0
    for case in load_cases():
        for _, ranked in subsets(case, rules):
            ids = [each.cause.id for each in ranked]
            told += bool(ids)
            first += ids[:1] == [case.cause]
            three += case.cause in ids[:3]
            wrong += any(each.called == "certain" and each.cause.id not in (case.cause, *case.also) for each in ranked)
    return first / told, three / told, wrong


def weights_off() -> None:
    """Print the range over 20 sets of weights."""
    found = [off(seed) for seed in range(20)]
    low, high = min(each[0] for each in found), max(each[0] for each in found)
    worst, wrong = min(each[1] for each in found), sum(each[2] for each in found)
    print(f"\nWeights off by a factor of up to two, 20 sets: first in {100 * low:.1f} to {100 * high:.1f} %, ", end="")
    print(f"among the first three in at least {100 * worst:.1f} %, wrongly certain {wrong} times.")


if __name__ == "__main__":
    main()
    weights_off()
