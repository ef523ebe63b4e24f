"""The error tree: each error says what was wrong, where, and what to do.

MusterError
├── InputError     a file, an option or a value that the user gave is wrong (exit code 2)
├── BackendError   what Muster works on or with cannot be reached or used (exit code 3)
│   └── ClusterError  a cluster: no access to it is known, it does not answer, or it refuses
├── CapacityError  an operation would over-commit a device; a bug of the caller, never of the user
└── StateError     an object was asked for something that its present state does not allow
"""

from __future__ import annotations

from collections.abc import Sequence


class MusterError(Exception):
    """Base of all errors that Muster raises on purpose."""


class InputError(MusterError):
    """Bad input, told in one line: ``FILE:LINE: field 'FIELD': what is wrong; what to do``.

    Args:
        what: what is wrong, without a full stop.
        file: the file's path as the user gave it.
        line: 1-based line number.
        field: column or dotted path of the field.
        hint: what to do about it.
    """

    def __init__(
        self,
        what: str,
        *,
        file: str | None = None,
        line: int | None = None,
        field: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.what = what
        self.file = file
        self.line = line
        self.field = field
        self.hint = hint
        super().__init__(self.__str__())

    def __str__(self) -> str:
        where = ""
        if self.file is not None:
            where = f"{self.file}:{self.line}: " if self.line is not None else f"{self.file}: "
        if self.field is not None:
            where += f"field '{self.field}': "
        return f"{where}{self.what}" + (f"; {self.hint}" if self.hint else "")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_input_error, (self.what, self.file, self.line, self.field, self.hint)


def _rebuild_input_error(
    what: str, file: str | None, line: int | None, field: str | None, hint: str | None
) -> InputError:
    """Keyword-only arguments do not survive pickling by themselves; sweeps cross processes."""
    return InputError(what, file=file, line=line, field=field, hint=hint)


class BackendError(MusterError):
    """A cluster, or another service, cannot be reached or used."""


class ClusterError(BackendError):
    """A cluster cannot be reached or refuses, told in one line: what is wrong; what to do.

    Args:
        what: what is wrong, without a full stop.
        hint: what to do about it.
    """

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        self.what = what
        self.hint = hint
        super().__init__(what + (f"; {hint}" if hint else ""))


class CapacityError(MusterError):
    """An assignment would take more of a node or device than is free."""


class StateError(MusterError):
    """The object's present state does not allow this."""


def near(word: str, known: Sequence[str]) -> str | None:
    """A hint with the known names nearest to ``word``; None where none is near."""
    from difflib import get_close_matches

    found = get_close_matches(word, list(known), n=3, cutoff=0.6)
    return f"did you mean {' or '.join(found)}?" if found else None
