"""How many times as long one answer takes as another, with its band: errors that both share cancel (`Ratio`)."""

from __future__ import annotations

import math
from typing import NamedTuple

from simulator.bands.composition import Estimate
from simulator.results.columns import percent
from simulator.results.confidence import BAND_HEAD

TIE = 1e-2  # relative; no model of a real machine resolves less, and most resolve far less (see the bands)


class Ratio(NamedTuple):
    """A ratio of two times; ``error`` is the half-width of its logarithm, None where it is not known."""

    value: float
    error: float | None = None

    @property
    def inverse(self) -> Ratio:
        """The ratio of the two the other way round."""
        return Ratio(1.0 / self.value, self.error)

    @property
    def unsure(self) -> float:
        """The relative difference below which the two are equal."""
        return TIE if self.error is None else max(TIE, math.expm1(self.error))

    @property
    def is_clear(self) -> bool:
        """Whether one is slower by more than the model can tell."""
        return self.value > 1.0 + self.unsure

    @property
    def band(self) -> str:
        """The band of the ratio: 80 % band 1.3 to 1.9; empty without one."""
        if self.error is None:
            return ""
        low, high = (f"{self.value * math.exp(end):.3g}" for end in (-self.error, self.error))
        return f"{BAND_HEAD} {low} to {high}"

    @property
    def signed_words(self) -> str:
        """How much more or less that is: +45.9 %; 80 % band 35 to 57 %."""
        more = f"{100 * (self.value - 1):+.1f} %"
        return f"{more}; {self._percents(1.0)[2:-1]}" if self.error is not None else more

    @property
    def share_words(self) -> str:
        """The ratio as a share: 39.4 % (80 % band 34 to 45 %)."""
        return f"{percent(self.value)}{self._percents(0.0)}"

    def _percents(self, less: float) -> str:
        if self.error is None:
            return ""
        low, high = (f"{100 * (self.value * math.exp(end) - less):.0f}" for end in (-self.error, self.error))
        return f" ({BAND_HEAD} {low} to {high} %)"

    def more_words(self, what: str) -> str:
        """Return how much more of *what* that is: 27.9 % more time (80 % band 11 to 47 %)."""
        return f"{100 * (self.value - 1):.1f} % more {what}{self._percents(1.0)}"

    def equal_words(self) -> str:
        """Return that the two are equal, how far apart they are, and how far the model may err."""
        if self.value <= 1.0 + TIE and self.unsure <= TIE:
            return "equal within 1 %"
        apart = f"{100 * (self.value - 1.0):.1f} % apart"
        return f"equal within the model's error of {100 * self.unsure:.0f} %: {apart}"


class Error(NamedTuple):
    """What errs in a comparison: ``usual``, and ``own``, which the answer's parts of the class ``of`` add."""

    usual: float
    own: float = 0.0
    of: str = ""


def error_of(found: Estimate | None, *, same: bool = True) -> Error | None:
    """Return what errs of *found* against an answer for the *same* machine, or for another."""
    return None if found is None else Error(found.ways if same else found.machines, found.own, found.own_class)


def ratio_of(slower: float, faster: float, errors: tuple[Error | None, Error | None]) -> Ratio:
    """Return the ratio of two times, given what errs of each; own errors of one class cancel, others do not.

    What one step waits for its host, another that computes does not.
    """
    mine, theirs = errors
    known = None
    if mine is not None and theirs is not None:
        own = (mine.own - theirs.own,) if mine.of == theirs.of else (mine.own, theirs.own)
        known = math.hypot(mine.usual, theirs.usual, *own)
    return Ratio(slower / faster if faster > 0 else math.inf, known)


def times_words(ratio: float) -> str:
    """Return *ratio* with three digits, near 1 with five."""
    if ratio >= 1000:
        return f"{ratio:,.0f}"
    return f"{ratio:.4f}" if 1.0 < ratio < 1.01 else f"{ratio:.3g}"
