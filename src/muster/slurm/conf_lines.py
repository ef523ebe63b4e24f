"""The lines of Slurm's configuration files: comments, continuation, Include, and ``key=value`` pairs with their place.

Source: slurm.conf(5), INCLUDE MODIFIERS and the first section; what is told there of ``#`` and of keys holds for
gres.conf, cgroup.conf and topology.conf too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from muster.errors import InputError, near

Read = Callable[[str], str]
"""The text of a file by its path; raises `InputError` where there is none."""

MOST_INCLUDES = 10
"""Files that include each other deeper than this do so in a circle."""

_PAIR = re.compile(r"\s*([A-Za-z0-9_.]+)\s*[-+*/]?=\s*(?:\"([^\"]*)\"|([^\s\"]\S*)|(?=\s|$))(?=\s|$)")
_INCLUDE = re.compile(r"\s*include\s+(\S+)\s*", re.IGNORECASE)
_COMMENT = re.compile(r"(?<!\\)((?:\\\\)*)#.*")
_END = re.compile(r"(?<!\\)((?:\\\\)*)\\\s*$")


class Setting(Struct, frozen=True):
    """A key with its value and where it stands.

    Attributes:
        key: as Slurm's manual spells it, where the key is known; else as it was written.
        value: without quotes.
        file: path as it was read.
        line: 1-based.
    """

    key: str
    value: str
    file: str = ""
    line: int = 0

    def error(self, what: str, hint: str | None = None) -> InputError:
        """What is wrong with this value."""
        return InputError(what, file=self.file or None, line=self.line or None, field=self.key, hint=hint)

    @property
    def where(self) -> str:
        """``FILE:LINE``."""
        return f"{self.file}:{self.line}"


class Settings:
    """Settings by key, whatever the case of its letters; the last of a key counts, as for Slurm.

    The methods give typed values, and raise `InputError` with the file, the line and the key.
    """

    def __init__(self, settings: Mapping[str, Setting] | None = None) -> None:
        self._by_key = dict(settings or {})

    def __iter__(self) -> Iterator[Setting]:
        return iter(self._by_key.values())

    def __contains__(self, key: str) -> bool:
        return key.lower() in self._by_key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self._by_key == other._by_key

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Settings({', '.join(f'{each.key}={each.value}' for each in self)})"

    def get(self, *keys: str) -> Setting | None:
        """The first of the keys that is set."""
        return next((self._by_key[key.lower()] for key in keys if key.lower() in self._by_key), None)

    def over(self, others: Settings) -> Settings:
        """These, and those of ``others`` that are not set here."""
        return Settings({**others._by_key, **self._by_key})

    def text(self, key: str, default: str = "") -> str:
        """A value as it is."""
        found = self.get(key)
        return default if found is None else found.value

    def words(self, key: str) -> tuple[str, ...]:
        """The parts of a value with commas between them."""
        return tuple(part.strip() for part in self.text(key).split(",") if part.strip())

    def number(self, key: str, default: int | None = None) -> int | None:
        """A whole number; None for UNLIMITED and INFINITE."""
        found = self.get(key)
        if found is None:
            return default
        if found.value.upper() in ("UNLIMITED", "INFINITE", "-1"):
            return None
        if not (found.value.isascii() and found.value.isdigit() and len(found.value) < 19):
            raise found.error(f"is {found.value[:40]!r}", "a whole number, or UNLIMITED")
        return int(found.value)

    def integer(self, key: str, default: int) -> int:
        """A whole number."""
        found = self.number(key, default)
        if found is None:
            setting = self.get(key)
            assert setting is not None
            raise setting.error(f"is {setting.value[:40]!r}", "a whole number")
        return found

    def flag(self, key: str, *, default: bool = False) -> bool:
        """YES, NO, TRUE, FALSE, UP, DOWN, 1, 0 in any case."""
        found = self.get(key)
        if found is None:
            return default
        value = found.value.lower()
        if value in ("yes", "true", "up", "1"):
            return True
        if value in ("no", "false", "down", "0"):
            return False
        raise found.error(f"is {found.value[:40]!r}", "YES or NO")

    def options(self, key: str) -> Mapping[str, str]:
        """``bf_window=4320,bf_continue`` as option (lower case) to value; empty where it has none."""
        found: dict[str, str] = {}
        for word in self.words(key):
            name, _, value = word.partition("=")
            found[name.strip().lower()] = value.strip()
        return found


class Entry(Struct, frozen=True):
    """A line such as ``NodeName=gpu[01-16] CPUs=96``: its first key, that one's value, and the other settings.

    Attributes:
        key: ``NodeName``, ``PartitionName`` ...
        name: its value.
        settings: of the line itself, without those of a DEFAULT line.
        file: path as it was read.
        line: 1-based, of its first line where it is continued.
    """

    key: str
    name: str
    settings: Settings
    file: str = ""
    line: int = 0

    def error(self, what: str, hint: str | None = None) -> InputError:
        """What is wrong with this line."""
        return InputError(what, file=self.file or None, line=self.line or None, field=self.key, hint=hint)

    @property
    def where(self) -> str:
        """``FILE:LINE``."""
        return f"{self.file}:{self.line}"


class Unknown(Struct, frozen=True):
    """A key that no Slurm from 22.05 on knows; slurmctld does not start with it.

    Attributes:
        setting: the key with its value and place.
        among: what it is a key of: a file or ``NodeName`` lines, say.
        hint: near names; empty where none is near.
    """

    setting: Setting
    among: str
    hint: str


class Keys:
    """The keys of a file or of a kind of line; finds them whatever the case of their letters."""

    def __init__(self, among: str, names: str) -> None:
        self.among = among
        self.names = tuple(names.split())
        self._spelled = {name.lower(): name for name in self.names}

    def spelled(self, key: str) -> str | None:
        """The manual's spelling of a key; None where it is not known."""
        return self._spelled.get(key.lower())

    def check(self, setting: Setting, unknown: list[Unknown]) -> Setting:
        """The setting under the manual's spelling; one that is not known is entered in ``unknown``."""
        spelled = self.spelled(setting.key)
        if spelled is None:
            by_lower = near(setting.key.lower(), tuple(self._spelled)) or ""
            hint = re.sub(r"[a-z0-9]{3,}", lambda word: self._spelled.get(word[0], word[0]), by_lower)
            unknown.append(Unknown(setting, self.among, hint))
            return setting
        return setting if spelled == setting.key else Setting(spelled, setting.value, setting.file, setting.line)


class Line(Struct, frozen=True):
    """The pairs of one line, continued lines joined."""

    pairs: tuple[Setting, ...]


def read_lines(path: str, read: Read, *, cluster: str = "") -> Iterator[Line]:
    """The lines of a file and of those that it includes, in the order in which Slurm reads them.

    Args:
        path: of the file.
        read: gives a file's text; relative names of included files are asked for beside ``path``.
        cluster: takes the place of ``%c`` in the name of an included file.

    Raises:
        InputError: a file cannot be read, files include each other in a circle, or a line is not made of
            ``key=value``; with file and line.
    """
    yield from _lines(path, read, cluster, 0)


def _lines(path: str, read: Read, cluster: str, depth: int) -> Iterator[Line]:
    for number, line in _whole_lines(read(path)):
        include = _INCLUDE.fullmatch(line)
        if include is not None:
            name = include[1].replace("%c", cluster)
            if depth >= MOST_INCLUDES:
                raise InputError(f"includes {name[:80]}, the eleventh in a row", file=path, line=number,
                                 hint="do they include each other?")  # fmt: skip
            inner = name if name.startswith("/") else f"{path.rpartition('/')[0] or '.'}/{name}"
            try:
                yield from _lines(inner, read, cluster, depth + 1)
            except InputError as error:
                if error.file == inner and error.line is None:
                    raise InputError(f"includes {name[:80]}, which {error.what}", file=path, line=number,
                                     hint=error.hint) from None  # fmt: skip
                raise
        else:
            yield Line(tuple(_pairs(line, path, number)))


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines without comments, continued ones joined, empty ones left out; each with the number of its first."""
    joined, first = "", 0
    for number, raw in enumerate(text.replace("\r", "").split("\n"), 1):
        line = _COMMENT.sub(r"\1", raw)
        first = first or number
        if _END.search(line):
            joined += _END.sub(r"\1", line)
            continue
        joined += line
        if joined.strip():
            yield first, joined.replace("\\#", "#").replace("\\\\", "\\")
        joined, first = "", 0
    if joined.strip():
        yield first, joined


def _pairs(line: str, path: str, number: int) -> Iterator[Setting]:
    place = 0
    while line[place:].strip():
        found = _PAIR.match(line, place)
        if found is None:
            rest = line[place:].strip()
            what = f"{rest[:60]!r} is no key=value"
            hint = "quote a value that has blanks" if place else "such as ClusterName=prod"
            raise InputError(what, file=path, line=number, hint=hint)
        value = found[2] if found[2] is not None else found[3] or ""
        yield Setting(found[1], value, path, number)
        place = found.end()
