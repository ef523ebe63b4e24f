"""Conditions on facts, such as ``gpus.capacity > 0 and gpus.allocatable == 0``: a small, safe part of Python.

Names are facts' keys. A condition that reads a fact which is not there is neither true nor false: None. ``and`` and
``or`` are decided where one side decides them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, some: item in some,
    ast.NotIn: lambda item, some: item not in some,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda one, other: one / other,
}


class _Missing(Exception):
    """A fact that is not there."""


@lru_cache(maxsize=1024)
def parsed(text: str) -> ast.expr:
    """The condition as a tree; raises ValueError where it is none."""
    tree = ast.parse(text.strip(), mode="eval").body
    for each in ast.walk(tree):
        if not isinstance(each, _ALLOWED):
            raise ValueError(f"{type(each).__name__} may not stand in a condition: {text}")  # noqa: TRY004
    return tree


_ALLOWED = (
    ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.BinOp, ast.Name, ast.Attribute,
    ast.Constant, ast.Load, ast.Tuple, ast.List, ast.cmpop, ast.operator, ast.Call, ast.keyword,
)  # fmt: skip


def facts_in(text: str) -> list[str]:
    """The keys of the facts that a condition reads: those that it needs, then those that it takes if they are there."""
    needed: list[str] = []
    taken: list[str] = []

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.Attribute):
            needed.append(_key(node))
            return
        if isinstance(node, ast.Call):
            taken.extend(str(each.value) for each in node.args[:1] if isinstance(each, ast.Constant))
            return
        if isinstance(node, ast.Name):
            needed.append(node.id)
        for child in ast.iter_child_nodes(node):
            walk(child)

    walk(parsed(text))
    return list(dict.fromkeys(needed or taken))


def signals_in(text: str) -> list[str]:
    """The signals that a condition asks for by ``seen("signal")``."""
    if "seen(" not in text:
        return []
    calls = [each for each in ast.walk(parsed(text)) if isinstance(each, ast.Call)]
    return [
        str(each.args[0].value)
        for each in calls
        if isinstance(each.func, ast.Name) and each.func.id == "seen" and isinstance(each.args[0], ast.Constant)
    ]


def holds(text: str, facts: Mapping[str, Any]) -> bool | None:
    """Whether a condition holds; None where a fact that decides it is not there."""
    try:
        return bool(_value(parsed(text), facts))
    except _Missing:
        return None
    except TypeError:  # a fact is of another kind than the condition thinks: it says nothing
        return None


def _key(node: ast.Attribute | ast.Name) -> str:
    if isinstance(node, ast.Name):
        return node.id
    inner = node.value
    if not isinstance(inner, (ast.Attribute, ast.Name)):
        raise ValueError("only names of facts may have dots")  # noqa: TRY004
    return f"{_key(inner)}.{node.attr}"


def _value(node: ast.expr, facts: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, (ast.Tuple, ast.List)):
        return [_value(each, facts) for each in node.elts]
    if isinstance(node, (ast.Attribute, ast.Name)):
        return _fact(_key(node), facts)
    if isinstance(node, ast.Call):
        return _called(node, facts)
    if isinstance(node, ast.BoolOp):
        return _decided(node, facts)
    if isinstance(node, ast.UnaryOp):
        inner = _value(node.operand, facts)
        return (not inner) if isinstance(node.op, ast.Not) else -inner
    if isinstance(node, ast.BinOp):
        return _ARITHMETIC[type(node.op)](_value(node.left, facts), _value(node.right, facts))
    if isinstance(node, ast.Compare):
        left = _value(node.left, facts)
        for op, other in zip(node.ops, node.comparators, strict=True):
            right = _value(other, facts)
            if not _COMPARE[type(op)](left, right):
                return False
            left = right
        return True
    raise ValueError(f"{type(node).__name__} may not stand in a condition")


def _called(node: ast.Call, facts: Mapping[str, Any]) -> Any:
    """``known("key")``: whether a fact is there; ``get("key", otherwise)``: a fact whose key is no name;
    ``seen("signal")``: whether a signal that is a line was seen."""
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    words = [_value(each, facts) for each in node.args]
    if name == "known":
        return words[0] in facts
    if name == "seen":
        return _fact(f"seen:{words[0]}", facts)
    if name == "get" and len(words) == 2:
        return facts.get(words[0], words[1])
    if name == "get" and len(words) == 1:
        return _fact(words[0], facts)
    raise ValueError(f"{name or 'that'} cannot be called in a condition")


def _fact(key: str, facts: Mapping[str, Any]) -> Any:
    if key not in facts:
        raise _Missing(key)
    return facts[key]


def _decided(node: ast.BoolOp, facts: Mapping[str, Any]) -> bool:
    stops = isinstance(node.op, ast.Or)
    missing: _Missing | None = None
    for each in node.values:
        try:
            if bool(_value(each, facts)) is stops:
                return stops
        except _Missing as error:
            missing = error
    if missing is not None:
        raise missing
    return not stops
