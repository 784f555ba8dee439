"""Several machines ranked by time, by samples a second and by price, and the cheapest that fits."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.console.style import Style
from simulator.results.training import TrainingResult
from simulator.topology.price import Price

__all__ = ["price_words", "ranking_lines"]


def price_words(price: Price | None) -> str:
    """Return *price*, a dash where it is not known."""
    return "-" if price is None else price.words()


def ranking_lines(results: Sequence[TrainingResult], style: Style) -> list[str]:
    """Return how machines rank that fit, by what: their fastest way each; and the cheapest where prices are known."""
    best: dict[str, TrainingResult] = {}
    for result in results:
        if result.fits:
            best.setdefault(result.machine, result)
    found = list(best.values())
    if len(found) < 2:
        return []
    sample = found[0].step.sample
    orders = {f"{sample} a second": sorted(found, key=lambda result: -result.throughput)}
    if len({result.samples for result in found}) == 1:
        orders = {"time of a step": orders.popitem()[1]}
    else:
        orders["time of a step"] = sorted(found, key=lambda result: result.step_time_s)
    priced = [(result, price) for result in found if (price := result.price_per_million) is not None]
    currencies = {price.currency for _, price in priced}
    if len(currencies) == 1:
        priced.sort(key=lambda each: each[1].amount)
        orders[f"price of a million {sample}"] = [result for result, _ in priced]
    width = max(map(len, orders))
    lines = ["", style.mark("best first, by", "bold")]
    for name, ranked in orders.items():
        lines += style.wrap(f"  {name.ljust(width)}  {', '.join(result.machine for result in ranked)}", hang=width + 4)
    if len(currencies) > 1:
        lines += style.wrap(f"prices in {' and '.join(sorted(currencies))} are not compared: give one currency")
    elif priced:
        result, price = priced[0]
        lines += style.wrap(f"the cheapest machine that fits: {result.machine}, {price.words()} for a million {sample}")
    return lines
