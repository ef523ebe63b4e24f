"""Slurm's feature expressions (``--constraint``), such as ``h100&ib|gpu``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Generic, TypeVar

from muster.errors import InputError

_T = TypeVar("_T")
_TOKEN = re.compile(r"\s*([&|()]|[^&|()\[\]\s]+|\[|\])")


def feature_test(text: str, one: Callable[[str], Callable[[_T], bool]]) -> Callable[[_T], bool]:
    """What a feature expression says of a node; ``one`` tells of a single feature which nodes have it.

    Raises:
        InputError: an expression that is not read: numbers of nodes for each feature, one feature for all nodes.
    """
    if re.search(r"[*]", text):
        raise InputError(
            f"is {text[:40]!r}: a number of nodes for each feature is not read", hint="ask for one of them"
        )
    if "[" in text:
        what = f"is {text[:40]!r}: one feature for all nodes is not read"
        raise InputError(what, hint="without brackets nodes of either kind count")
    tokens = _TOKEN.findall(text)
    if "".join(tokens) != re.sub(r"\s", "", text) or not tokens:
        raise InputError(f"is {text[:40]!r}", hint="features joined by & and |")
    return _Parser(tokens, text, one).parse()


class _Parser(Generic[_T]):
    """``&`` binds before ``|``."""

    def __init__(self, tokens: list[str], text: str, one: Callable[[str], Callable[[_T], bool]]) -> None:
        self._tokens, self._text, self._single = tokens, text, one

    def parse(self) -> Callable[[_T], bool]:
        found = self._either()
        if self._tokens:
            raise InputError(f"is {self._text[:40]!r}", hint="features joined by & and |")
        return found

    def _either(self) -> Callable[[_T], bool]:
        parts = [self._both()]
        while self._tokens[:1] == ["|"]:
            self._tokens.pop(0)
            parts.append(self._both())
        return lambda node: any(part(node) for part in parts)

    def _both(self) -> Callable[[_T], bool]:
        parts = [self._one()]
        while self._tokens[:1] == ["&"]:
            self._tokens.pop(0)
            parts.append(self._one())
        return lambda node: all(part(node) for part in parts)

    def _one(self) -> Callable[[_T], bool]:
        token = self._tokens.pop(0) if self._tokens else ""
        if token == "(":
            found = self._either()
            if self._tokens[:1] != [")"]:
                raise InputError(f"is {self._text[:40]!r}: a bracket is not closed")
            self._tokens.pop(0)
            return found
        if not token or token in "&|)":
            raise InputError(f"is {self._text[:40]!r}", hint="features joined by & and |")
        return self._single(token)
