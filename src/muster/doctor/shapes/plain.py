"""Values of documents that may be of any kind, taken as what they should be; empty where they are not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def mapping(value: Any) -> Mapping[str, Any]:
    """A value as a mapping with text for keys."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """A value as a list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def whole(value: Any) -> int:
    """A value as a whole number that is not negative; 0 where it is none."""
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
