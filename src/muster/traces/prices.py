"""Price files: what a GPU-hour costs, with its date and its source. No price is built in.

    currency: USD
    prices:
      - {sku: cloud-a-8xh100, gpu: H100, term: on-demand, per_gpu_hour: 2.95, as_of: 2026-08-20, source: its price page}
      - {sku: cloud-a-8xh100, gpu: H100, term: spot, per_gpu_hour: 1.25, as_of: 2026-08-20, source: its price page}

Terms are ``on-demand``, ``spot``, ``block`` and commitments such as ``1y`` or ``3y``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import msgspec
from msgspec import Struct

from muster.errors import InputError, near
from muster.traces.files import read_bytes


class Price(Struct, frozen=True, forbid_unknown_fields=True):
    """One price.

    Attributes:
        sku: the offer's name.
        term: ``on-demand``, ``spot``, ``block``, or how long one commits: ``1y``, ``3y``.
        per_gpu_hour: in the file's currency.
        as_of: the day of the price.
        source: who says so.
        gpu: the model.
    """

    sku: str
    term: str
    per_gpu_hour: float
    as_of: date
    source: str
    gpu: str = ""

    def __str__(self) -> str:
        return f"{self.sku} {self.term}, {self.source}, {self.as_of.isoformat()}"


class Prices(Struct, frozen=True, forbid_unknown_fields=True):
    """A price file."""

    prices: tuple[Price, ...]
    currency: str = "USD"

    def terms(self, sku: str, file: str) -> dict[str, Price]:
        """The prices of an offer by term; an empty name is the file's only offer. Raises `InputError`."""
        known = list(dict.fromkeys(each.sku for each in self.prices))
        if not sku:
            if len(known) != 1:
                raise InputError("the file has several offers", file=file, hint=f"say --sku {' or '.join(known[:6])}")
            sku = known[0]
        if sku not in known:
            hint = near(sku, known) or f"there are {', '.join(known[:8])}"
            raise InputError(f"has no offer {sku!r}", file=file, field="--sku", hint=hint)
        return {each.term: each for each in self.prices if each.sku == sku}


def read_prices(path: str) -> Prices:
    """A price file (YAML or JSON); raises `InputError` that says what is wrong in it."""
    data = read_bytes(path)
    try:
        prices = msgspec.yaml.decode(data, type=Prices)
    except msgspec.ValidationError as error:
        raise InputError(str(error).splitlines()[0], file=path, hint=_HINT) from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise InputError(f"is no YAML ({str(error).splitlines()[0]})", file=path, hint=_HINT) from None
    _check(prices.prices, path)
    return prices


_HINT = "prices: a list of sku, term, per_gpu_hour, as_of, source; see examples/prices.yaml"


def _check(prices: Sequence[Price], path: str) -> None:
    if not prices:
        raise InputError("has no prices", file=path, hint=_HINT)
    seen: set[tuple[str, str]] = set()
    for each in prices:
        name = f"{each.sku} {each.term}"
        if not 0 <= each.per_gpu_hour < 1e6:
            raise InputError(f"costs {each.per_gpu_hour:g}", file=path, field=name, hint="a price of one GPU-hour")
        if (each.sku, each.term) in seen:
            raise InputError("is there twice", file=path, field=name, hint="keep the newer one")
        if not each.source:
            raise InputError("names no source", file=path, field=name, hint="say where the price is from")
        seen.add((each.sku, each.term))
