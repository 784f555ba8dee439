"""The hourly price of a machine, if its file states one; no prices are built in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from simulator.errors import one_line

_WRITTEN = re.compile(r"(?P<amount>\d+(?:\.\d+)?)\s*(?P<currency>[^\W\d_]{1,8}|[$€£¥])?")


@dataclass(frozen=True, slots=True)
class Price:
    """An ``amount`` per hour in a ``currency``, which is empty if not stated."""

    amount: float
    currency: str = ""

    def times(self, count: float) -> Price:
        """Return the price multiplied by *count*."""
        return Price(self.amount * count, self.currency)

    def words(self) -> str:
        """Return the amount, with four digits, and its currency."""
        digits = f"{self.amount:,.0f}" if self.amount >= 1000 else f"{self.amount:.4g}"
        return f"{digits} {self.currency}".rstrip()


def price_entry(price: Price | None) -> dict[str, float | str] | None:
    """Return *price* in the form of ``--json``."""
    return None if price is None else asdict(price)


def summed(prices: Iterable[Price | None]) -> Price | None:
    """Return the sum of *prices*; None if any is unknown, or if currencies differ."""
    known = list(prices)
    found = [price for price in known if price is not None]
    if not found or len(found) < len(known) or len({price.currency for price in found}) > 1:
        return None
    return Price(sum(price.amount for price in found), found[0].currency)


def _read(value: object) -> Price:
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    match = _WRITTEN.fullmatch(text)
    if match is None or not 0 < float(match["amount"]) < math.inf:
        found = one_line(repr(value), 40)
        raise ValueError(f"needs a number above 0, with its currency if you like, for example 31.22 USD; got {found}")
    return Price(float(match["amount"]), match["currency"] or "")


PriceField = Annotated[
    Price,
    BeforeValidator(lambda value: value if isinstance(value, Price) else _read(value)),
    WithJsonSchema({"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": r"^\d"}]}),
]
"""A number, or text such as ``31.22 USD``."""
