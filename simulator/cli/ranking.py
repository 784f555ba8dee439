"""Rankings of several machines: steps by throughput and price; exchanges by time, bus bandwidth and price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from simulator.console.style import Style
from simulator.results.result import Result
from simulator.topology.schema import Price

if TYPE_CHECKING:
    from simulator.results.training import TrainingResult  # steps' results import devices, which an exchange does not


def price_words(price: Price | None) -> str:
    """Return *price* as text, a dash if unknown."""
    return "-" if price is None else price.words()


def ranking_lines(results: Sequence[TrainingResult], style: Style) -> list[str]:
    """Return rankings of the machines that fit, by throughput and price (if known); empty for one."""
    best: dict[str, TrainingResult] = {}
    for result in results:
        if result.fits:
            best.setdefault(result.machine, result)
    found = list(best.values())
    if len(found) < 2:
        return []
    sample = found[0].step.sample
    orders = {f"{sample} a second": sorted(found, key=lambda result: -result.throughput)}
    return _lines(orders, found, sample, "the cheapest machine that fits", style)


def exchange_ranking_lines(results: Sequence[Result], style: Style) -> list[str]:
    """Return the machines ranked at one exchange with their fastest strategies; empty unless one has a price."""
    best: dict[str, Result] = {}
    for result in results:
        best.setdefault(result.machine, result)
    found = list(best.values())
    if len(found) < 2 or not any(result.price_per_hour for result in found):
        return []
    orders = {
        "time of an exchange": sorted(found, key=lambda result: result.sync_time_s),
        "bus bandwidth": sorted(found, key=lambda result: -result.busbw_Bps),
    }
    return _lines(orders, found, "exchanges", "the cheapest machine", style)


def _lines(
    orders: Mapping[str, Sequence[Result | TrainingResult]],
    found: Sequence[Result | TrainingResult],
    what: str,
    cheapest: str,
    style: Style,
) -> list[str]:
    """Return the *orders* by name, and the order by the price of a million of *what*."""
    priced = [(result, price) for result in found if (price := result.price_per_million) is not None]
    currencies = {price.currency for _, price in priced}
    ranked: dict[str, Sequence[Result | TrainingResult]] = dict(orders)
    if len(currencies) == 1:
        priced.sort(key=lambda each: each[1].amount)
        ranked[f"price of a million {what}"] = [result for result, _ in priced]
    width = max(map(len, ranked))
    lines = ["", style.mark("best first, by", "bold")]
    for name, order in ranked.items():
        lines += style.wrap(f"  {name.ljust(width)}  {', '.join(result.machine for result in order)}", hang=width + 4)
    if len(currencies) > 1:
        lines += style.wrap(f"prices in {' and '.join(sorted(currencies))} are not compared: give one currency")
    elif priced:
        result, price = priced[0]
        lines += style.wrap(f"{cheapest}: {result.machine}, {price.words()} for a million {what}")
    return lines
