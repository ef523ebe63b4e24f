"""Many values of one Struct as columns: what is the same in many of them is written once, and read as one object.

So a file of 100,000 gangs of 200 shapes holds 200 shapes, and reading it makes 200 of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import repeat
from types import GenericAlias
from typing import Any, Generic, NamedTuple, TypeVar, cast, overload

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
        distinct, at = factored(values)
        if 2 * len(distinct) <= len(values):
            columns[field.name] = Column(msgspec.Raw(msgspec.msgpack.encode(distinct)), at)
        else:
            columns[field.name] = Column(msgspec.Raw(msgspec.msgpack.encode(values)))
    return Columns(len(items), columns)


def factored(values: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """The distinct ones of some values, in the order in which they come first, and which each of the values is."""
    numbers: dict[Any, int] = {}
    known: dict[int, int] = {}
    at: list[int] = []
    for value in values:  # equal values are mostly one object; then its hash is taken once
        number = known.get(id(value))
        if number is None:
            number = known[id(value)] = numbers.setdefault(value, len(numbers))
        at.append(number)
    return list(numbers), at


class Field(NamedTuple):
    """One field of the items of a table: ``values`` in their order; with ``at``, item i has ``values[at[i]]``.

    ``values`` of a field that is the same in all items are one value, and ``at`` is empty.
    """

    values: Sequence[Any]
    at: Sequence[int] | None = None

    def of(self, index: int) -> Any:
        """What an item has there."""
        if self.at is None:
            return self.values[index]
        return self.values[self.at[index]] if self.at else self.values[0]


class Table(Sequence[_Item], Generic[_Item]):
    """Items that are made when they are looked at; to the outside as the tuple of them, to which it is equal.

    Each is made once, so that it is one object however often it is asked for.
    """

    __slots__ = ("_count", "_fields", "_made", "_make", "_names")

    def __init__(self, count: int, fields: dict[str, Field], make: Callable[..., _Item]) -> None:
        self._count = count
        self._fields = list(fields.values())
        self._names = list(fields)
        self._make = make
        self._made: dict[int, _Item] | list[_Item] = {}

    def field(self, name: str) -> Field:
        """A field of all items."""
        return self._fields[self._names.index(name)]

    def followed_by(self, items: Sequence[_Item]) -> Table[_Item]:
        """A table of these items and some more."""
        count = self._count + len(items)
        fields: dict[str, Field] = {}
        for name, field in zip(self._names, self._fields, strict=True):
            more = [getattr(item, name) for item in items]
            if field.at is None:
                fields[name] = Field([*field.values, *more])
            elif field.at or any(value != field.values[0] for value in more):
                at = field.at or [0] * self._count
                fields[name] = Field(
                    [*field.values, *more], [*at, *range(len(field.values), len(field.values) + len(more))]
                )
            else:
                fields[name] = field
        table = Table(count, fields, self._make)
        made = dict(enumerate(self._made)) if isinstance(self._made, list) else dict(self._made)
        table._made = {**made, **dict(enumerate(items, self._count))}
        return table

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> _Item: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[_Item, ...]: ...
    def __getitem__(self, index: int | slice) -> _Item | tuple[_Item, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        index %= self._count
        made = self._made
        if isinstance(made, list):
            return made[index]
        item = made.get(index)
        if item is None:
            item = made[index] = self._make(*[field.of(index) for field in self._fields])
        return item

    def __iter__(self) -> Iterator[_Item]:
        made = self._made
        if isinstance(made, dict):
            every = [self._make(*row) for row in zip(*(self._each(field) for field in self._fields), strict=True)]
            for index, item in made.items():
                every[index] = item
            made = self._made = every
        return iter(made)

    def _each(self, field: Field) -> Iterable[Any]:
        if field.at is None:
            return field.values
        return [field.values[number] for number in field.at] if field.at else repeat(field.values[0], self._count)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(cast("Sequence[Any]", other)) if isinstance(other, (tuple, Table)) else False

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def field_of(items: Sequence[Struct], name: str) -> Sequence[Any]:
    """A field of all items; of a table none of them is made for it."""
    if not isinstance(items, Table):
        return [getattr(item, name) for item in items]
    values, at = items.field(name)
    if at is None:
        return values
    return [values[number] for number in at] if at else [values[0]] * len(items)


def followed_by(items: Sequence[_Item], more: Sequence[_Item]) -> Sequence[_Item]:
    """Items and some more, as a table where the items are one."""
    return items.followed_by(more) if isinstance(items, Table) else (*items, *more)


def distinct_of(items: Sequence[Struct], name: str) -> set[Any]:
    """What a field has in any of the items."""
    return set(items.field(name).values if isinstance(items, Table) else field_of(items, name))


def table_of(columns: Columns, kind: type[_Item]) -> Table[_Item]:
    """The items of columns as a table; all that `from_columns` would refuse is refused at once."""
    fields: dict[str, Field] = {}
    for field in msgspec.structs.fields(kind):
        column = columns.fields.get(field.name)
        if column is not None:
            values = _decoded(column, field)
            _checked(values if column.at is None else column.at, columns.count, field.name)
            fields[field.name] = Field(values, column.at)
        else:
            fields[field.name] = Field((_default_of(columns, field),), ())
    if not columns.count:
        fields = dict.fromkeys(fields, Field(()))
    return Table(columns.count, fields, kind)


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
            rows.append(repeat(_default_of(columns, field), columns.count))
    make: Callable[..., _Item] = kind
    return [make(*row) for row in zip(*rows, strict=True)]


def _values(column: Column, field: msgspec.structs.FieldInfo) -> Sequence[Any]:
    values = _decoded(column, field)
    return values if column.at is None else [values[number] for number in column.at]


def _decoded(column: Column, field: msgspec.structs.FieldInfo) -> Sequence[Any]:
    """The values of a column as they are written; what refers to them does so rightly."""
    kind: Any = GenericAlias(list, (cast("Any", field).type,))
    values = cast("list[Any]", msgspec.msgpack.decode(column.values, type=kind))
    if column.at and not 0 <= min(column.at) <= max(column.at) < len(values):
        raise msgspec.ValidationError(f"`{field.name}` refers to values that are not there")
    return values


def _default_of(columns: Columns, field: msgspec.structs.FieldInfo) -> Any:
    """What items have in a field that is left out."""
    default = _default(field)
    if default is NODEFAULT and columns.count:
        raise msgspec.ValidationError(f"Object missing required field `{field.name}`")
    return default


def _checked(values: Sequence[Any], count: int, name: str) -> Sequence[Any]:
    if len(values) != count:
        raise msgspec.ValidationError(f"`{name}` has {len(values)} values for {count} items")
    return values


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is NODEFAULT else field.default_factory()
