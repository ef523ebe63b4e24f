"""CEL selectors of devices, evaluated as Kubernetes does: its functions for quantities and versions, its maps.

The language itself is a library's (common-expression-language). What a selector sees is the same as on the server:
``device.driver``, ``device.attributes["DOMAIN"].NAME``, ``device.capacity["DOMAIN"].NAME`` and
``device.allowMultipleAllocations``; a domain of which a device has nothing is an empty map, yet is not ``in`` it.
Quantities and versions are maps of one entry to the library, which has no types of our own. Not understood, and told
as such: the optional syntax ``.?``, ``cel.bind``, ``format``, and functions for URLs and IP addresses.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from muster.errors import InputError
from muster.kube.dra.objects import NANO, Attribute, DraDevice, nanos

if TYPE_CHECKING:
    from cel import Context, Program

QUANTITY, VERSION = "quantity", "semver"
_OVER_ALL = {"all", "exists", "exists_one", "filter", "map", "size"}
_MOST_KNOWN = 65_536
_Held = Mapping[str, Any]
_SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z.-]+)?"
)


class CelError(Exception):
    """A selector that cannot be evaluated: it is not valid, asks for what a device has not, or is no yes or no."""


class Evaluator:
    """Evaluates selectors about devices; not for several threads at once. Expressions are compiled once in a process.

    Raises:
        InputError: the CEL library is not installed.
    """

    def __init__(self) -> None:
        self._context = _context()
        self._known: dict[tuple[object, ...], bool | CelError] = {}

    def matches(self, expression: str, driver: str, device: DraDevice) -> bool:
        """Whether a device is what an expression asks for; raises `CelError` where that cannot be said.

        Devices that differ only in what the expression does not name (a serial number) are asked about once.
        """
        key = (expression, driver, *_seen(expression, device))
        found = self._known.get(key)
        if found is None:
            try:
                found = self._matches(expression, driver, device)
            except CelError as error:
                found = error
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = found
        if isinstance(found, CelError):
            raise found
        return found

    def _matches(self, expression: str, driver: str, device: DraDevice) -> bool:
        program = _compiled(expression)
        if isinstance(program, CelError):
            raise program
        return _evaluated(program, self._context, _facts(driver, device), expression)


def _seen(expression: str, device: DraDevice) -> Iterator[object]:
    """What of a device an expression may depend on."""
    words = _words(expression)
    yield bool(device.allow_multiple_allocations)
    for name, attribute in (device.attributes or {}).items():
        domain, slash, short = name.rpartition("/")
        named = words is None or short in words
        yield (name, attribute.value) if named else domain + slash
    for name, amount in (device.capacity or {}).items():
        domain, slash, short = name.rpartition("/")
        named = words is None or short in words
        yield (name, amount.value) if named else domain + slash


@lru_cache(maxsize=4096)
def _words(expression: str) -> frozenset[str] | None:
    """The names in an expression; None where it looks at more than it names."""
    words = frozenset(re.findall(r"[A-Za-z_][A-Za-z0-9_]*", expression))
    return None if words & _OVER_ALL else words


def _evaluated(program: Program, context: Context, facts: dict[str, Any], expression: str) -> bool:
    """Run a program; where it looks into a domain that the device has nothing of, again with that domain empty."""
    for _ in range(8):
        context.add_variable("device", facts)
        try:
            found = program.execute(context)
        except KeyError as error:
            domain = str(error.args[0]) if error.args else ""
            empty = _without(facts, domain, expression)
            if empty is None:
                raise CelError(f"the device has no {domain}") from None
            facts = empty
        except Exception as error:  # the library raises whatever a function of its own or of ours raised
            raise CelError(" ".join(str(error).split())) from None
        else:
            if not isinstance(found, bool):
                raise CelError(f"it is {type(found).__name__}, not true or false")
            return found
    raise CelError("it looks into too many domains that the device has nothing of")


def _without(facts: dict[str, Any], domain: str, expression: str) -> dict[str, Any] | None:
    """The facts with an empty domain where one was looked into; None where the key is none, or has its own meaning."""
    looked_into = f'["{domain}"]' in expression.replace("'", '"')
    tested = re.search(rf'"{re.escape(domain)}"\s+in\s+device\.', expression.replace("'", '"'))
    if not looked_into or tested or (domain in facts["attributes"] and domain in facts["capacity"]):
        return None
    return facts | {part: {domain: {}} | facts[part] for part in ("attributes", "capacity")}


@lru_cache(maxsize=4096)
def _compiled(expression: str) -> Program | CelError:
    import cel

    try:
        return cel.compile(expression)
    except ValueError as error:
        return CelError(f"it is not valid CEL ({' '.join(str(error).split())})")


# -- what a selector sees ---------------------------------------------------------------------------------------------


def _facts(driver: str, device: DraDevice) -> dict[str, Any]:
    attributes: dict[str, dict[str, Any]] = {}
    for name, attribute in (device.attributes or {}).items():
        domain, short = _qualified(name, driver)
        attributes.setdefault(domain, {})[short] = _plain(attribute)
    capacity: dict[str, dict[str, Any]] = {}
    for name, amount in (device.capacity or {}).items():
        domain, short = _qualified(name, driver)
        try:
            capacity.setdefault(domain, {})[short] = _held(Fraction(nanos(amount.value), NANO))
        except ValueError:
            raise CelError(f"capacity {name} of the device is no quantity") from None
    shared = bool(device.allow_multiple_allocations)
    return {"driver": driver, "attributes": attributes, "capacity": capacity, "allowMultipleAllocations": shared}


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, short = name.partition("/")
    return (domain, short) if slash else (driver, name)


def _plain(attribute: Attribute) -> Any:
    kind, value = attribute.value or ("", None)
    if kind == "version":
        return _version(str(value))
    if kind == "versions" and isinstance(value, tuple):
        return [_version(str(one)) for one in value]
    return list(value) if isinstance(value, tuple) else value


# -- the functions of Kubernetes --------------------------------------------------------------------------------------


def _held(amount: Fraction) -> dict[str, str]:
    return {QUANTITY: str(amount)}


def _amount(held: object) -> Fraction:
    if isinstance(held, Mapping) and QUANTITY in held:
        return Fraction(str(held[QUANTITY]))  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(held, int) and not isinstance(held, bool):
        return Fraction(held)
    raise TypeError("no such overload: that is no quantity")


def _quantity(text: str) -> dict[str, str]:
    return _held(Fraction(nanos(text), NANO))


def _is_quantity(text: str) -> bool:
    try:
        nanos(text)
    except ValueError:
        return False
    return True


def _version(text: str, normalize: bool = False) -> dict[str, str]:
    if normalize:
        core, sign, rest = re.fullmatch(r"v?([0-9.]*)([-+]?)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
        parts = [str(int(part or 0)) for part in core.split(".")]
        text = ".".join([*parts, "0", "0"][: max(3, len(parts))]) + sign + rest
    if not _SEMVER.fullmatch(text):
        raise ValueError(f"'{text}' is no semantic version")
    return {VERSION: text.partition("+")[0]}  # builds do not count where versions are compared


def _is_version(text: str, normalize: bool = False) -> bool:
    try:
        _version(text, normalize)
    except ValueError:
        return False
    return True


def _order(held: _Held) -> tuple[object, ...]:
    """A version so that tuples compare as versions do: pre-releases first, numbers before words."""
    core, dash, before = str(held[VERSION]).partition("-")
    parts = [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in before.split(".")] if dash else []
    return (*map(int, core.split(".")), not dash, *parts)


def _compare(one: _Held, other: _Held) -> int:
    if VERSION in one and VERSION in other:
        left, right = _order(one), _order(other)
        return (left > right) - (left < right)
    if QUANTITY in one and QUANTITY in other:
        return (_amount(one) > _amount(other)) - (_amount(one) < _amount(other))
    raise TypeError("no such overload: quantities compare with quantities, versions with versions")


def _as_integer(held: _Held) -> int:
    amount = _amount(held)
    if amount.denominator != 1 or not -(2**63) <= amount < 2**63:
        raise ValueError("the quantity is no integer")
    return int(amount)


def _is_integer(held: _Held) -> bool:
    return _amount(held).denominator == 1 and -(2**63) <= _amount(held) < 2**63


def _as_float(held: _Held) -> float:
    return float(_amount(held))


def _sign(held: _Held) -> int:
    return (_amount(held) > 0) - (_amount(held) < 0)


def _add(one: _Held, other: _Held | int) -> dict[str, str]:
    return _held(_amount(one) + _amount(other))


def _sub(one: _Held, other: _Held | int) -> dict[str, str]:
    return _held(_amount(one) - _amount(other))


def _greater(one: _Held, other: _Held) -> bool:
    return _compare(one, other) > 0


def _less(one: _Held, other: _Held) -> bool:
    return _compare(one, other) < 0


def _core(held: _Held) -> list[int]:
    return [int(part) for part in str(held[VERSION]).partition("-")[0].split(".")]


def _major(held: _Held) -> int:
    return _core(held)[0]


def _minor(held: _Held) -> int:
    return _core(held)[1]


def _patch(held: _Held) -> int:
    return _core(held)[2]


def _sorted(items: list[Any]) -> bool:
    return all(one <= after for one, after in itertools.pairwise(items))


def _found(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    return match[0] if match else ""


def _all_found(text: str, pattern: str, most: int = -1) -> list[str]:
    found = [match[0] for match in re.finditer(pattern, text)]
    return found if most < 0 else found[:most]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "isInteger": _is_integer,
    "asInteger": _as_integer,
    "asApproximateFloat": _as_float,
    "sign": _sign,
    "add": _add,
    "sub": _sub,
    "semver": _version,
    "isSemver": _is_version,
    "major": _major,
    "minor": _minor,
    "patch": _patch,
    "compareTo": _compare,
    "isGreaterThan": _greater,
    "isLessThan": _less,
    "isSorted": _sorted,
    "find": _found,
    "findAll": _all_found,
}


def _context() -> Context:
    try:
        import cel
        from cel.stdlib import add_stdlib_to_context
    except ImportError:
        hint = "pip install 'muster-gpu[kubernetes]'"
        raise InputError("selectors of devices are in CEL, and no library for it is installed", hint=hint) from None
    log = logging.getLogger("cel")
    if not log.handlers:
        log.addHandler(logging.NullHandler())  # what its functions raise is told by us, and not on stderr
    context = cel.Context()
    add_stdlib_to_context(context, ["core", "strings", "math", "sets", "lists"])
    for name, function in _FUNCTIONS.items():
        context.add_function(name, function)
    return context
