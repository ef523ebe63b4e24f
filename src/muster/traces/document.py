"""YAML documents whose mistakes are told with file, line and the field's path."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

import msgspec
import yaml
from msgspec import Struct

from muster.errors import InputError, near
from muster.traces.files import read_bytes

MOST_NODES = 20_000_000
"""Most values in a document; aliases count each time."""

MOST_ALIASED = 200_000
"""Most values that stand for others by an alias: nested aliases make a bomb of a few lines."""

_T = TypeVar("_T", bound=Struct)
_AT = re.compile(r" - at `(.*?)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`$", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`$")
_EXPECTED = re.compile(r"Expected `(.*?)`(.*?)(?:, got `(.*?)`)?$")
_EXPONENT = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)[eE][-+]?\d+")
"""A number as YAML 1.2 and people write it, such as 70e9, which YAML 1.1 takes for text."""
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "array": "a list",
    "object": "a mapping",
    "bool": "true or false",
    "null": "nothing",
}


class Document:
    """A document that was read: ``data`` in plain values, ``lines`` the 1-based line of each field's path.

    ``line`` is where it begins.
    """

    def __init__(self, file: str, data: dict[str, Any], lines: Mapping[str, int]) -> None:
        self.file = file
        self.data = data
        self.lines = lines
        self.line = lines.get("", 1)

    def items(self) -> list[Document]:
        """The mappings of a Kubernetes List, ``items``, each as a document; itself if it is none."""
        items = self.data.get("items")
        if not str(self.data.get("kind", "")).endswith("List") or not isinstance(items, list):
            return [self]
        lines: dict[str, dict[str, int]] = {}
        for path, line in self.lines.items():
            if path.startswith("items["):
                head, closed, rest = path.partition("]")
                lines.setdefault(head + closed, {})[rest.removeprefix(".")] = line
        found: list[Document] = []
        for at, item in enumerate(cast("list[Any]", items)):
            if not isinstance(item, dict):
                raise self.error(f"items[{at}]", "must be a mapping")
            found.append(Document(self.file, cast("dict[str, Any]", item), lines[f"items[{at}]"]))
        return found

    def error(self, path: str, what: str, hint: str | None = None) -> InputError:
        """An error at a field such as ``queues[1].weight``, with its line or that of the nearest field around it."""
        at = path
        while at and at not in self.lines:
            at = at[: max(at.rfind("."), at.rfind("["), 0)]
        return InputError(what, file=self.file, line=self.lines.get(at), field=path or None, hint=hint)

    def convert(self, kind: type[_T], data: object = None, path: str = "") -> _T:
        """``data`` (by default the whole document), found at ``path``, as a value of ``kind``; raises `InputError`."""
        try:
            return msgspec.convert(self.data if data is None else data, kind)
        except msgspec.ValidationError as error:
            raise self._told(str(error), kind, path) from None
        except OverflowError:
            raise self.error(path, "holds a number that is absurdly large") from None

    def _told(self, text: str, kind: type[Struct], path: str) -> InputError:
        found = _AT.search(text)
        inner = found[1].removeprefix("$") if found else ""
        text = _AT.sub("", text)
        at = f"{path}{inner}" if path else inner.removeprefix(".")
        inside = _kind_at(kind, inner)
        if match := _UNKNOWN.match(text):
            known = list(inside.__struct_encode_fields__) if inside else []
            hint = near(match[1], known) or (f"known: {', '.join(known)}" if known else None)
            return self.error(f"{at}.{match[1]}" if at else match[1], "is not known", hint)
        if match := _MISSING.match(text):
            return self.error(f"{at}.{match[1]}" if at else match[1], "is missing")
        if text.startswith("Invalid enum value"):
            owner = _kind_at(kind, inner.rpartition(".")[0])
            choices = _choices(get_type_hints(owner)[inner.rpartition(".")[2]]) if owner else ()
            hint = f"one of {', '.join(map(str, choices))}" if choices else None
            return self.error(at, f"is {text.removeprefix('Invalid enum value ')}", hint)
        if match := _EXPECTED.match(text):
            wanted = " or ".join(_WORDS.get(word, word) for word in match[1].split(" | "))
            got = f", not {_WORDS.get(match[3], match[3])}" if match[3] else ""
            return self.error(at, f"must be {wanted}{match[2]}{got}")
        return self.error(at, text)


def read_document(path: str) -> Document:
    """Read a YAML (or JSON) file that holds one mapping; raises `InputError` for anything else."""
    found = read_documents(path)
    if len(found) != 1:
        line = found[1].line if found else 1
        what = "holds another document" if found else "does not hold a mapping"
        raise InputError(what, file=path, line=line, hint="one mapping, such as fleet: example")
    return found[0]


def read_documents(path: str) -> list[Document]:
    """Read all documents of a YAML (or JSON) file, each a mapping; empty ones are left out. Raises `InputError`."""
    try:
        text = read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=path) from None
    return documents_in(text, path)


def documents_in(text: str, path: str) -> list[Document]:
    """All documents of a text that was read from ``path``, as `read_documents` returns them."""
    found: list[Document] = []
    try:
        for node in _composed(text):
            reader = _Reader(path)
            data = reader.plain(node, "")
            if data is None:
                continue
            if not isinstance(data, dict):
                line = node.start_mark.line + 1
                raise InputError("does not hold a mapping", file=path, line=line, hint="such as fleet: example")
            found.append(Document(path, cast("dict[str, Any]", data), reader.lines))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise InputError(f"is no YAML: {error.problem or error.context}", file=path, line=line) from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"is no YAML: {' '.join(str(error).split())}", file=path) from None
    except RecursionError:
        raise InputError("is nested too deeply", file=path) from None
    return found


def _composed(text: str) -> Iterable[yaml.Node]:
    """The documents of a text; the fast parser reads them, the slow one tells what is wrong."""
    fast = getattr(yaml, "CSafeLoader", None)
    if fast is not None:
        with contextlib.suppress(yaml.YAMLError, ValueError):
            return list(yaml.compose_all(text, Loader=fast))
    return yaml.compose_all(text, Loader=yaml.SafeLoader)


class _Reader:
    def __init__(self, file: str) -> None:
        self.lines: dict[str, int] = {}
        self._file = file
        self._loader = yaml.SafeLoader("")
        self._open: set[int] = set()
        self._count = 0
        self._again = 0
        self._seen: set[int] = set()

    def plain(self, node: yaml.Node, path: str) -> object:
        """The value of a node; the line of each path is noted."""
        line = node.start_mark.line + 1
        self.lines.setdefault(path, line)
        self._count += 1
        self._again += id(node) in self._seen
        self._seen.add(id(node))
        if id(node) in self._open or self._count > MOST_NODES or self._again > MOST_ALIASED:
            raise InputError("refers to itself, or is too large", file=self._file, line=line, field=path or None)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path, line)
        self._open.add(id(node))
        value: object
        if isinstance(node, yaml.SequenceNode):
            value = [self.plain(each, f"{path}[{at}]") for at, each in enumerate(node.value)]
        else:
            assert isinstance(node, yaml.MappingNode)
            value = self._mapping(node, path)
        self._open.discard(id(node))
        return value

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, object]:
        found: dict[str, object] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._loader.construct_object(key_node) if isinstance(key_node, yaml.ScalarNode) else None  # pyright: ignore[reportUnknownMemberType]
            if not isinstance(key, str):
                raise InputError("a key is no text", file=self._file, line=line, field=path or None)
            at = f"{path}.{key}" if path else key
            if key in found:
                raise InputError("is given twice", file=self._file, line=line, field=at)
            self.lines[at] = line
            found[key] = self.plain(value_node, at)
        return found

    def _scalar(self, node: yaml.ScalarNode, path: str, line: int) -> object:
        try:
            value = cast("object", self._loader.construct_object(node))  # pyright: ignore[reportUnknownMemberType]
        except (yaml.YAMLError, ValueError, OverflowError):
            shown = str(node.value)[:40]
            raise InputError(f"{shown!r} cannot be read", file=self._file, line=line, field=path or None) from None
        if isinstance(value, str) and not node.style and _EXPONENT.fullmatch(value):
            value = float(value)
        if isinstance(value, str) and not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
            raise InputError(
                "holds half a character", file=self._file, line=line, field=path or None, hint="UTF-8 text"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"is {value}", file=self._file, line=line, field=path or None, hint="a finite number")
        if isinstance(value, int) and abs(value) >= 2**63:
            raise InputError("is absurdly large", file=self._file, line=line, field=path or None)
        return value


def _kind_at(kind: type[Struct], path: str) -> type[Struct] | None:
    """The struct type at a path such as ``.queues[...].quotas[...]``; None where there is none."""
    at: type[Struct] = kind
    for name in re.findall(r"\.(\w+)", path):
        if name not in at.__struct_fields__:
            return None
        inner = _struct_in(get_type_hints(at)[name])
        if inner is None:
            return None
        at = inner
    return at


def _choices(annotation: object) -> tuple[object, ...]:
    """The values of a ``Literal``, also of one that may be left out."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return tuple(choice for each in get_args(annotation) for choice in _choices(each))


def _struct_in(annotation: object) -> type[Struct] | None:
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return annotation
    return next((found for each in get_args(annotation) if (found := _struct_in(each)) is not None), None)
