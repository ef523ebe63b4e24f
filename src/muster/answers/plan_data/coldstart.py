"""How claims or requests arrive: their rate and how much they come in bursts, from a log with times."""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from muster.answers.words import plural
from muster.errors import InputError
from muster.planning.question import FromData
from muster.traces.files import read_text

COLUMNS = ("timestamp", "time", "arrival", "start", "submitted", "created", "gmt_create", "timestamp_anon")
WINDOW_S = 60.0


def read_arrivals(path: str, given: Mapping[str, Any]) -> FromData:
    """Rate an hour, and variance over mean of the arrivals of a minute; raises `InputError`."""
    times, left = arrivals_of(path)
    span = times[-1] - times[0]
    if len(times) < 20 or span < 5 * WINDOW_S:
        raise InputError(
            f"has {plural(len(times), 'arrival')} in {span:.0f} s", file=path, hint="five minutes and 20 at least"
        )
    counted = Counter(int((each - times[0]) // WINDOW_S) for each in times)
    windows = [counted.get(at, 0) for at in range(int(span // WINDOW_S))]
    mean = sum(windows) / len(windows)
    variance = sum((each - mean) ** 2 for each in windows) / len(windows)
    source = f"{path}: {plural(len(times), 'arrival')} in {span / 3600:.3g} h"
    values = {"claims": len(times) / span * 3600, "dispersion": max(1.0, variance / mean)}
    told = (f"{path}: {plural(left, 'row')} without a time left out",) if left else ()
    return FromData(values, dict.fromkeys(values, source), told)


def arrivals_of(path: str) -> tuple[list[float], int]:
    """Times in seconds, sorted, and how many rows had none; raises `InputError` where none have."""
    text = read_text(path)
    found = list(_of_lines(text) if text.lstrip()[:1] == "{" else _of_csv(text, path))
    times = sorted(each for each in found if each is not None)
    if len(times) < 2:
        raise InputError(
            "tells no times of arrivals", file=path, hint=f"CSV or JSON lines with {', '.join(COLUMNS[:3])}"
        )
    return times, len(found) - len(times)


def _of_lines(text: str) -> Iterator[float | None]:
    """JSON lines; a numeric ``timestamp`` of request traces is in milliseconds."""
    for line in text.splitlines():
        if not line.strip():
            continue
        try:
            row = msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.DecodeError:
            yield None
            continue
        value = next((row[name] for name in COLUMNS if name in row), None)
        if isinstance(value, (int, float)):
            yield float(value) / 1000
        else:
            yield moment_of(str(value)) if value is not None else None


def _of_csv(text: str, path: str) -> Iterator[float | None]:
    reader = csv.DictReader(io.StringIO(text))
    titles = {title.strip().lower(): title for title in reader.fieldnames or ()}
    column = next((titles[name] for name in COLUMNS if name in titles), None)
    if column is None:
        return
    for row in reader:
        yield moment_of((row.get(column) or "").strip())


def moment_of(text: str) -> float | None:
    """Seconds of a number or a date; None: it is neither."""
    try:
        value = float(text)
        return value if math.isfinite(value) else None
    except ValueError:
        pass
    text = re.sub(r"(\.\d{6})\d+", r"\1", text.replace("Z", "+00:00"))
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None
