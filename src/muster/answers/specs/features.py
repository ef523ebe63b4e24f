"""Slurm's feature expressions (``--constraint``) over the labels and GPU models of nodes."""

from __future__ import annotations

import re
from collections.abc import Callable

from muster.answers.specs.places import Places, is_model
from muster.errors import InputError
from muster.model.fleet import Node

Test = Callable[[Node], bool]
_TOKEN = re.compile(r"\s*([&|()]|[^&|()\[\]\s]+|\[|\])")


def feature_mark(places: Places, text: str) -> dict[str, str]:
    """The label of the nodes that an expression such as ``h100&ib|gpu`` takes.

    A node has a feature that is the name of one of its labels, the value of one, or its GPU model.

    Raises:
        InputError: an expression that is not read, or a feature that no node has, which Slurm refuses too.
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
    return places.mark(f"--constraint={text}", _Parser(places, tokens, text).parse())


class _Parser:
    """``&`` binds before ``|``."""

    def __init__(self, places: Places, tokens: list[str], text: str) -> None:
        self._places, self._tokens, self._text = places, tokens, text

    def parse(self) -> Test:
        found = self._either()
        if self._tokens:
            raise InputError(f"is {self._text[:40]!r}", hint="features joined by & and |")
        return found

    def _either(self) -> Test:
        parts = [self._both()]
        while self._tokens[:1] == ["|"]:
            self._tokens.pop(0)
            parts.append(self._both())
        return lambda node: any(part(node) for part in parts)

    def _both(self) -> Test:
        parts = [self._one()]
        while self._tokens[:1] == ["&"]:
            self._tokens.pop(0)
            parts.append(self._one())
        return lambda node: all(part(node) for part in parts)

    def _one(self) -> Test:
        token = self._tokens.pop(0) if self._tokens else ""
        if token == "(":
            found = self._either()
            if self._tokens[:1] != [")"]:
                raise InputError(f"is {self._text[:40]!r}: a bracket is not closed")
            self._tokens.pop(0)
            return found
        if not token or token in "&|)":
            raise InputError(f"is {self._text[:40]!r}", hint="features joined by & and |")

        def has(node: Node) -> bool:
            return any(token in pair for pair in node.labels) or is_model(node, token)

        if not any(map(has, self._places.nodes)):
            raise InputError(f"no node has a feature {token[:40]!r}", hint="a label, its value, or a GPU model")
        return has
