"""Hostlists, as Slurm writes them: ``gpu[01-03,07],login1`` for gpu01, gpu02, gpu03, gpu07 and login1.

Names hold no brackets, commas or blanks. A range keeps the leading zeros of its first number. Several brackets in one
name multiply: ``r[1-2]n[1-2]`` are four nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product

from muster.errors import InputError

MOST_NAMES = 64 * 1024
"""A hostlist of more is a slip of the pen: Slurm itself takes no range of more (MAX_RANGE, src/common/hostlist.c)."""

_HINT = "such as gpu[01-16], gpu[1,3,5-8] or gpu01,gpu02"
_PART = re.compile(r"\[([^][]*)\]|([^][,]+)")
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_NUMBERED = re.compile(r"([^.]*?)(\d{1,18})(\D*)", re.ASCII)


def expand(text: str) -> tuple[str, ...]:
    """The names of a hostlist in the order in which it has them, each once; raises `InputError`."""
    names: dict[str, None] = {}
    for item in _items(text):
        for name in _expand_item(item, text, MOST_NAMES - len(names)):
            names[name] = None
    return tuple(names)


def compress(names: Iterable[str]) -> str:
    """A short hostlist of the same names, each once; `expand` reads it.

    Names that differ in the last number of their part before the first dot are brought together, where the first of
    them stands; within brackets numbers are sorted.
    """
    groups: dict[tuple[str, str, int], list[int]] = {}
    single: dict[tuple[str, str, int], str] = {}
    known = dict.fromkeys(names)
    padded = {(head, tail, len(digits)) for head, digits, tail in map(split, known) if _is_padded(digits)}
    for name in known:
        head, digits, tail = split(name)
        key = head, tail, len(digits) if (head, tail, len(digits)) in padded else -1
        if not digits:
            key = name, "", 0
        groups.setdefault(key, []).append(int(digits or 0))
        single[key] = name
    return ",".join(
        single[key] if len(numbers) == 1 else f"{key[0]}[{_ranges(sorted(numbers), key[2])}]{key[1]}"
        for key, numbers in groups.items()
    )


def split(name: str) -> tuple[str, str, str]:
    """A name before, in and after the last number of its part before the first dot; without one all is before it."""
    host, dot, domain = name.partition(".")
    found = _NUMBERED.fullmatch(host)
    return (found[1], found[2], found[3] + dot + domain) if found else (name, "", "")


def following(names: Iterable[str], like: str, count: int) -> tuple[str, ...]:
    """``count`` names that continue the numbers of those of ``names`` that are like one of them, all of them new."""
    head, digits, tail = split(like)
    taken = set(names)
    head, width, last = (head, len(digits) if _is_padded(digits) else 0, -1) if digits else (f"{like}-", 0, 1)
    for name in taken:
        other = split(name)
        if other[1] and (other[0], other[2]) == (head, tail):
            last = max(last, int(other[1]))
            width = max(width, len(other[1]) if _is_padded(other[1]) else 0)
    found: list[str] = []
    while len(found) < count:
        last += 1
        name = f"{head}{last:0{width}d}{tail}"
        if name not in taken:
            found.append(name)
    return tuple(found)


def _is_padded(digits: str) -> bool:
    return len(digits) > 1 and digits[0] == "0"


def _ranges(numbers: list[int], width: int) -> str:
    width = max(width, 0)
    parts: list[str] = []
    first = last = numbers[0]
    for number in [*numbers[1:], None]:
        if number is not None and number == last + 1:
            last = number
            continue
        parts.append(f"{first:0{width}d}" if first == last else f"{first:0{width}d}-{last:0{width}d}")
        if number is not None:
            first = last = number
    return ",".join(parts)


def _items(text: str) -> Iterator[str]:
    """The parts between the commas that are in no bracket."""
    start, inside = 0, False
    for place, letter in enumerate(text):
        if letter in "[]":
            if inside == (letter == "["):
                raise InputError(f"a bracket is not closed or not opened in {text[:60]!r}", hint=_HINT)
            inside = letter == "["
        elif letter == "," and not inside:
            yield text[start:place]
            start = place + 1
    if inside:
        raise InputError(f"a bracket is not closed in {text[:60]!r}", hint=_HINT)
    yield text[start:]


def _expand_item(item: str, text: str, most: int) -> Iterator[str]:
    if not item or item != item.strip() or " " in item:
        raise InputError(f"an empty name or a blank in {text[:60]!r}", hint=_HINT)
    parts: list[list[str]] = []
    count = 1
    for found in _PART.finditer(item):
        parts.append([found[2]] if found[1] is None else _numbers(found[1], text, most))
        count *= len(parts[-1])
        if count > most:
            raise InputError(f"{text[:60]!r} names more than {MOST_NAMES:,} nodes", hint=_HINT)
    return map("".join, product(*parts))


def _numbers(text: str, whole: str, most: int) -> list[str]:
    numbers: list[str] = []
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if not found:
            raise InputError(f"{part[:40]!r} is no range of numbers in {whole[:60]!r}", hint=_HINT)
        first, last = int(found[1]), int(found[2] or found[1])
        if last < first:
            raise InputError(f"{part[:40]!r} runs backwards in {whole[:60]!r}", hint=f"write {found[2]}-{found[1]}")
        if last - first >= most:
            raise InputError(f"{whole[:60]!r} names more than {MOST_NAMES:,} nodes", hint=_HINT)
        width = len(found[1]) if _is_padded(found[1]) else 0
        numbers += [f"{number:0{width}d}" for number in range(first, last + 1)]
    return numbers
