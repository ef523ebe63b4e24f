"""CSV tables with a header line, and the numbers in them, with line and column in every error."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Sequence

from muster.errors import InputError, near
from muster.traces.files import read_text

MAX_CPU_MILLI = 10**9
"""A million cores in one pod or node: more is a mistake."""
MAX_MEMORY_MIB = 2**30
"""One PiB in one pod or node: more is a mistake."""
MAX_GPUS = 1024
"""GPUs of one node or pod."""
MAX_JOB_GPUS = 10**6
"""GPUs, processors or pods of one job."""
MAX_SECONDS = 10**11
"""3,000 years: any later time is a mistake."""


def parse_number(text: str) -> float:
    """A finite number; raises `ValueError`. Underscores and other scripts' digits, which Python takes, are refused."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def parse_integer(text: str) -> int:
    """A whole number, also written as 12.0 or 1e3; raises `ValueError`."""
    if "_" in text or not text.isascii():
        raise ValueError(text)
    try:
        return int(text)
    except ValueError:
        value = parse_number(text)
        if not value.is_integer():
            raise
        return int(value)


class Record:
    """One row of a table; its methods return checked values or raise `InputError` with file, line and column."""

    __slots__ = ("_columns", "_file", "_values", "line")

    def __init__(self, file: str, line: int, columns: dict[str, int], values: list[str]) -> None:
        self._file = file
        self.line = line
        self._columns = columns
        self._values = values

    def text(self, column: str, default: str = "") -> str:
        """The cell without surrounding blanks; ``default`` where the table has no such column."""
        position = self._columns.get(column)
        return default if position is None else self._values[position].strip()

    def name(self, column: str) -> str:
        """A cell that must not be empty."""
        text = self.text(column)
        if not text:
            raise self.error(column, "is empty", "every row needs a name")
        return text

    def integer(self, column: str, low: int, high: int) -> int:
        """A whole number between ``low`` and ``high``, both included."""
        text = self.text(column)
        try:
            value = parse_integer(text)
        except (ValueError, OverflowError):
            raise self.error(column, f"{_quoted(text)} is not a whole number") from None
        return int(self._within(column, text, value, low, high))

    def number(self, column: str, low: float, high: float) -> float:
        """A finite number between ``low`` and ``high``, both included."""
        text = self.text(column)
        try:
            value = parse_number(text)
        except (ValueError, OverflowError):
            raise self.error(column, f"{_quoted(text)} is not a number") from None
        return self._within(column, text, value, low, high)

    def optional_number(self, column: str, low: float, high: float) -> float | None:
        """As `number`; None for an empty cell or a column that the table lacks."""
        return self.number(column, low, high) if self.text(column) else None

    def error(self, column: str, what: str, hint: str | None = None) -> InputError:
        """The error for a cell of this row."""
        return InputError(what, file=self._file, line=self.line, field=column, hint=hint)

    def _within(self, column: str, text: str, value: float, low: float, high: float) -> float:
        if value < low:
            what = "is negative" if value < 0 <= low else f"is below {low:,}"
            raise self.error(column, f"{_quoted(text)} {what}")
        if value > high:
            raise self.error(column, f"{_quoted(text)} is absurdly large", f"at most {high:,}")
        return value


def read_table(path: str, required: Sequence[str], optional: Sequence[str] = ()) -> Iterator[Record]:
    """The rows of a CSV file with a header line; blank lines are ignored, CRLF and a byte order mark accepted.

    Raises `InputError` for a missing column, a row of another width, broken quotes, and a file without rows.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""), strict=True)
    columns: dict[str, int] | None = None
    width = rows = last = 0
    while True:
        try:
            values = next(reader, None)
        except csv.Error as error:
            raise InputError(f"is not valid CSV ({error})", file=path, line=reader.line_num) from None
        line, last = last + 1, reader.line_num
        if values is None:
            break
        if not any(value.strip() for value in values):
            continue
        if columns is None:
            columns = _header(path, line, values, required, optional)
            width = len(values)
            continue
        if len(values) != width:
            what = f"has {len(values)} columns, the header has {width}"
            raise InputError(what, file=path, line=line, hint="a comma in a value needs quotes around the value")
        rows += 1
        yield Record(path, line, columns, values)
    if not rows:
        raise InputError("has a header but no rows", file=path, line=max(last, 1))


def refuse_duplicate(seen: dict[str, int], name: str, path: str, line: int, field: str) -> None:
    """Note ``name`` as seen on ``line``; raises `InputError` if it was seen before."""
    if name in seen:
        what = f"{_quoted(name)} is already the name on line {seen[name]}"
        raise InputError(what, file=path, line=line, field=field, hint="names must be unique")
    seen[name] = line


def _header(
    path: str, line: int, values: list[str], required: Sequence[str], optional: Sequence[str]
) -> dict[str, int]:
    columns: dict[str, int] = {}
    for position, value in enumerate(values):
        if value.strip() in columns:
            raise InputError("column is there twice", file=path, line=line, field=ascii(value.strip()[:40])[1:-1])
        columns[value.strip()] = position
    for column in required:
        if column not in columns:
            hint = near(column, list(columns)) or f"the first line must name {', '.join(required)}"
            raise InputError("column is missing", file=path, line=line, field=column, hint=hint)
    known = {*required, *optional}
    return {column: position for column, position in columns.items() if column in known}


def _quoted(text: str, limit: int = 40) -> str:
    """A cell for an error message: short, on one line."""
    return repr(text if len(text) <= limit else text[: limit - 3] + "...")
