"""Many values of one Struct as columns: what is the same in many of them is written once, and read as one object.

So a file of 100,000 gangs of 200 shapes holds 200 shapes, and reading it makes 200 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import repeat
from types import GenericAlias
from typing import Any, TypeVar, cast

import msgspec
from msgspec import NODEFAULT, Struct

_Item = TypeVar("_Item", bound=Struct)


class Column(Struct, array_like=True):
    """One field of all items: ``values`` in their order; or, with ``at``, the distinct ones and which each item has."""

    values: msgspec.Raw
    at: list[int] | None = None


class Columns(Struct, array_like=True):
    """So many items, by field; a field that is everywhere at its default is left out."""

    count: int
    fields: dict[str, Column]


def to_columns(items: Sequence[Struct], kind: type[Struct], skip: Collection[str] = ()) -> Columns:
    """The columns of items of a kind; the same items give the same columns. ``skip`` are fields to leave out."""
    columns: dict[str, Column] = {}
    for field in msgspec.structs.fields(kind):
        if field.name in skip:
            continue
        values = [getattr(item, field.name) for item in items]
        default = _default(field)
        if default is not NODEFAULT and all(value == default for value in values):
            continue
        numbers: dict[Any, int] = {}
        known: dict[int, int] = {}
        at: list[int] = []
        for value in values:  # equal values are mostly one object; then its hash is taken once
            number = known.get(id(value))
            if number is None:
                number = known[id(value)] = numbers.setdefault(value, len(numbers))
            at.append(number)
        if 2 * len(numbers) <= len(values):
            columns[field.name] = Column(msgspec.Raw(msgspec.msgpack.encode(list(numbers))), at)
        else:
            columns[field.name] = Column(msgspec.Raw(msgspec.msgpack.encode(values)))
    return Columns(len(items), columns)


def from_columns(columns: Columns, kind: type[_Item], given: dict[str, Sequence[Any]] | None = None) -> list[_Item]:
    """The items of columns; ``given`` are the fields that were skipped.

    Raises `msgspec.ValidationError` for columns that do not hold items of the kind.
    """
    rows: list[Iterable[Any]] = []
    for field in msgspec.structs.fields(kind):
        column = columns.fields.get(field.name)
        if given is not None and field.name in given:
            rows.append(_checked(given[field.name], columns.count, field.name))
        elif column is not None:
            rows.append(_checked(_values(column, field), columns.count, field.name))
        else:
            default = _default(field)
            if default is NODEFAULT and columns.count:
                raise msgspec.ValidationError(f"Object missing required field `{field.name}`")
            rows.append(repeat(default, columns.count))
    make: Callable[..., _Item] = kind
    return [make(*row) for row in zip(*rows, strict=True)]


def _values(column: Column, field: msgspec.structs.FieldInfo) -> Sequence[Any]:
    kind: Any = GenericAlias(list, (cast("Any", field).type,))
    values = cast("list[Any]", msgspec.msgpack.decode(column.values, type=kind))
    if column.at is None:
        return values
    if column.at and not 0 <= min(column.at) <= max(column.at) < len(values):
        raise msgspec.ValidationError(f"`{field.name}` refers to values that are not there")
    return [values[number] for number in column.at]


def _checked(values: Sequence[Any], count: int, name: str) -> Sequence[Any]:
    if len(values) != count:
        raise msgspec.ValidationError(f"`{name}` has {len(values)} values for {count} items")
    return values


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()
