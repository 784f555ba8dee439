"""Ratios of two answers with their bands (docs/decisions/results.md)."""

import math
from collections.abc import Callable
from typing import NamedTuple

from simulator.bands.composition import Estimate
from simulator.results import percent
from simulator.results.confidence import BAND_HEAD

TIE = 1e-2  # relative; no model of a real machine resolves less, and most resolve far less (see the bands)


class Ratio(NamedTuple):
    """A ratio of two times; ``half_width`` is that of its logarithm, None where it is not known.

    ``traffic``: what other jobs on a shared network may add to its logarithm, or take from it where it is negative.
    """

    value: float
    half_width: float | None = None
    traffic: float = 0.0

    @property
    def inverse(self) -> "Ratio":
        """The ratio of the two the other way round."""
        return Ratio(1.0 / self.value, self.half_width, -self.traffic)

    @property
    def unsure(self) -> float:
        """The relative difference below which the two are equal."""
        return TIE if self.half_width is None else max(TIE, math.expm1(self.half_width - min(0.0, self.traffic)))

    @property
    def is_clear(self) -> bool:
        """Whether one is slower by more than the model can tell."""
        return self.value > 1.0 + self.unsure

    @property
    def band(self) -> str:
        """The band of the ratio, in brackets: (80 % band 1.3 to 1.9); empty without one."""
        return self._ends(lambda value: f"{value:.3g}")

    @property
    def signed_words(self) -> str:
        """How much more or less that is: +45.9 %; 80 % band 35 to 57 %."""
        more = f"{100 * (self.value - 1):+.1f} %"
        return f"{more}; {self._percents(1.0)[2:-1]}" if self.half_width is not None else more

    @property
    def share_words(self) -> str:
        """The ratio as a share: 39.4 % (80 % band 34 to 45 %)."""
        return f"{percent(self.value)}{self._percents(0.0)}"

    def _percents(self, less: float) -> str:
        return self._ends(lambda value: f"{100 * (value - less):.0f}", " %")

    def _ends(self, words: Callable[[float], str], unit: str = "") -> str:
        if self.half_width is None:
            return ""
        ends = min(0.0, self.traffic) - self.half_width, max(0.0, self.traffic) + self.half_width
        low, high = (words(self.value * math.exp(end)) for end in ends)
        return f" ({BAND_HEAD} {low} to {high}{unit})"

    def more_words(self, what: str) -> str:
        """Return how much more of *what* that is: 27.9 % more time (80 % band 11 to 47 %)."""
        return f"{100 * (self.value - 1):.1f} % more {what}{self._percents(1.0)}"

    @property
    def unsure_words(self) -> str:
        """Within what the two are equal: the model's error, or what no model resolves."""
        return f"the model's error of {100 * self.unsure:.0f} %" if self.unsure > TIE else "1 %"


class ComparisonWidth(NamedTuple):
    """An answer's part of a :class:`Ratio`'s ``half_width``: logarithms, as in :class:`Estimate`.

    ``common``: of all such answers.  ``own``: what this answer's parts of the class ``own_class`` add.  ``network``:
    what other jobs on a shared network may add; they slow both answers alike.
    """

    common: float
    own: float = 0.0
    own_class: str = ""
    network: float = 0.0


def comparison_width(found: Estimate | None, *, same: bool = True) -> ComparisonWidth | None:
    """Return the part of *found* in a comparison with an answer for the *same* machine, or for another."""
    if found is None:
        return None
    return ComparisonWidth(found.ways if same else found.machines, found.own, found.own_class, found.network)


def ratio_of(slower: float, faster: float, widths: tuple[ComparisonWidth | None, ComparisonWidth | None]) -> Ratio:
    """Return the ratio of two times, given the width of each; own ones of one class cancel, others do not."""
    mine, theirs = widths
    known, traffic = None, 0.0
    if mine is not None and theirs is not None:
        own = (mine.own - theirs.own,) if mine.own_class == theirs.own_class else (mine.own, theirs.own)
        known, traffic = math.hypot(mine.common, theirs.common, *own), mine.network - theirs.network
    return Ratio(slower / faster if faster > 0 else math.inf, known, traffic)


def times_words(ratio: float) -> str:
    """Return *ratio* with three digits, near 1 with five."""
    if ratio >= 1000:
        return f"{ratio:,.0f}"
    return f"{ratio:.4f}" if 1.0 < ratio < 1.01 else f"{ratio:.3g}"
