"""Objects of Kubernetes as YAML that people read: scripts as blocks of lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar(  # pyright: ignore[reportUnknownMemberType]
        "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None
    )


_Dumper.add_representer(str, _text)


def manifests_text(objects: Iterable[dict[str, Any]]) -> str:
    """Several objects as documents of one file."""
    found: list[str] = []
    for each in objects:
        written = yaml.dump(  # pyright: ignore[reportUnknownMemberType]
            each, Dumper=_Dumper, sort_keys=False, width=1000, allow_unicode=True
        )
        found.append(f"---\n{written}")
    return "".join(found)
