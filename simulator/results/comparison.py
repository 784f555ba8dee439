"""Ratios of two answers with their bands, and what a question changes (docs/decisions/results.md)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from simulator.bands.composition import Estimate
from simulator.records import dataclass, replace
from simulator.results import Fact
from simulator.results.columns import percent
from simulator.results.confidence import BAND_HEAD
from simulator.units import format_bandwidth, format_duration

Q = TypeVar("Q")
_NEARLY = 0.9  # of a loss: all of it
TIE = 1e-2  # relative; no model of a real machine resolves less, and most resolve far less (see the bands)


class Ratio(NamedTuple):
    """A ratio of two times; ``half_width`` is that of its logarithm, None where it is not known."""

    value: float
    half_width: float | None = None

    @property
    def inverse(self) -> Ratio:
        """The ratio of the two the other way round."""
        return Ratio(1.0 / self.value, self.half_width)

    @property
    def unsure(self) -> float:
        """The relative difference below which the two are equal."""
        return TIE if self.half_width is None else max(TIE, math.expm1(self.half_width))

    @property
    def is_clear(self) -> bool:
        """Whether one is slower by more than the model can tell."""
        return self.value > 1.0 + self.unsure

    @property
    def band(self) -> str:
        """The band of the ratio: 80 % band 1.3 to 1.9; empty without one."""
        if self.half_width is None:
            return ""
        low, high = (f"{self.value * math.exp(end):.3g}" for end in (-self.half_width, self.half_width))
        return f"{BAND_HEAD} {low} to {high}"

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
        if self.half_width is None:
            return ""
        low, high = (f"{100 * (self.value * math.exp(end) - less):.0f}" for end in (-self.half_width, self.half_width))
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


class ComparisonWidth(NamedTuple):
    """An answer's part of a :class:`Ratio`'s ``half_width``: logarithms, as in :class:`Estimate`.

    ``common``: of all such answers.  ``own``: what this answer's parts of the class ``own_class`` add.
    """

    common: float
    own: float = 0.0
    own_class: str = ""


def comparison_width(found: Estimate | None, *, same: bool = True) -> ComparisonWidth | None:
    """Return the part of *found* in a comparison with an answer for the *same* machine, or for another."""
    return (
        None if found is None else ComparisonWidth(found.ways if same else found.machines, found.own, found.own_class)
    )


def ratio_of(slower: float, faster: float, widths: tuple[ComparisonWidth | None, ComparisonWidth | None]) -> Ratio:
    """Return the ratio of two times, given the width of each; own ones of one class cancel, others do not."""
    mine, theirs = widths
    known = None
    if mine is not None and theirs is not None:
        own = (mine.own - theirs.own,) if mine.own_class == theirs.own_class else (mine.own, theirs.own)
        known = math.hypot(mine.common, theirs.common, *own)
    return Ratio(slower / faster if faster > 0 else math.inf, known)


def times_words(ratio: float) -> str:
    """Return *ratio* with three digits, near 1 with five."""
    if ratio >= 1000:
        return f"{ratio:,.0f}"
    return f"{ratio:.4f}" if 1.0 < ratio < 1.01 else f"{ratio:.3g}"


@dataclass(frozen=True, slots=True)
class ChangeEffect:
    """What was changed, in words, the time with it, and that of the same question without, if it has an answer.

    ``delay_s``: how much later the next step ends after the loss of a server, which changes none before; each step
    after that takes ``then_s``.  ``parts_s`` are the parts of the time without and with the changes, in seconds; each
    side adds up to its time.  ``others`` is what else differs, in words: the slowest link, rings, NCCL's choice.
    """

    what: tuple[str, ...]
    time_s: float
    without_s: float | None
    delay_s: float | None = None
    then_s: float | None = None
    parts_s: tuple[tuple[str, float, float], ...] = ()
    others: tuple[tuple[str, str, str], ...] = ()

    def losses_s(self, least: float = 0.0) -> list[tuple[str, float, float]]:
        """Return those of ``parts_s`` that differ, by at least this share of the loss or gain, the most first."""
        least_s = max(least * abs(self.time_s - (self.without_s or self.time_s)), 1e-12)
        found = [part for part in self.parts_s if abs(part[2] - part[1]) >= least_s]
        return sorted(found, key=lambda part: -round(abs(part[2] - part[1]), 12))

    def said(self, of: str = "", half_width: float | None = None) -> str:
        """Return the first line of an answer; *of* names what took the time; *half_width*: as :class:`Ratio` has it."""
        line = f"changed: {'; '.join(self.what)}"
        if self.delay_s is not None and self.then_s is not None:
            late = f"{format_duration(abs(self.delay_s))} {'earlier' if self.delay_s < 0 else 'later'}"
            line += f"; the next step ends {late}, and those after it take {format_duration(self.then_s)}"
        if self.without_s is None:
            return f"{line}; without that there is no answer"
        takes = f": {of or 'the whole'} takes" if self.delay_s is None else f"; {of or 'it'} takes"
        takes, without = f"{takes} {format_duration(self.time_s)}", format_duration(self.without_s)
        if not math.isclose(self.without_s, self.time_s, rel_tol=1e-9):
            more = Ratio(self.time_s / self.without_s, half_width).signed_words
            return f"{line}{takes} instead of {without} ({more}){self._cause()}"
        return f"{line}{f' instead of {without}' if self.delay_s is not None else f'{takes}, as without that'}"

    def _cause(self) -> str:
        lost_s = self.time_s - (self.without_s or 0.0)
        if losses := self.losses_s():
            name, without_s, with_s = losses[0]
            if (share := (with_s - without_s) / lost_s) > 0:
                most = "all" if share >= 1 else "nearly all" if share > _NEARLY else f"{100 * share:.0f} %"
                takes = f"{format_duration(with_s, 3)} instead of {format_duration(without_s, 3)}"
                return f"; {most} of the {'gain' if lost_s < 0 else 'loss'}: {name}, {takes}"
        if not self.others:
            return ""
        what, without, instead = self.others[0]
        return f"; {what}: {instead} instead of {without}"


def unlike(found: Mapping[str, tuple[object, object]]) -> tuple[tuple[str, str, str], ...]:
    """Return those of *found*, without and with the changes, which differ, in words; of links, their names."""
    words = {name: [str(getattr(each, "name", each)) for each in pair] for name, pair in found.items()}
    return tuple((name, without, instead) for name, (without, instead) in words.items() if without != instead)


def changed_entry(changed: ChangeEffect | None) -> dict[str, Any]:
    """Return *changed* as in ``--json``, beside the time with the changes; empty if there is none."""
    if changed is None:
        return {}
    parts = [{"part": name, "without_s": s, "with_s": with_s} for name, s, with_s in changed.parts_s]
    others = [{"name": name, "without": without, "with": instead} for name, without, instead in changed.others]
    return {"changed": {"what": list(changed.what), "without_s": changed.without_s, "parts": parts, "differs": others}}


def said(changed: ChangeEffect | None, begin: str = "; ", of: str = "") -> str:
    """Return *begin* and the line of *changed*, as :meth:`ChangeEffect.said`; empty if there is none."""
    return f"{begin}{changed.said(of)}" if changed is not None else ""


def change_fact(changed: ChangeEffect | None) -> list[Fact]:
    """Return the line of *changed* in the view of its answer; empty if there is none."""
    return [Fact("changed", changed.said())] if changed is not None else []


def changes_of(question: Any) -> Iterator[str]:
    """Yield what *question* changes of its machine, in words."""
    for slow in question.where.slow_links:
        yield f"{slow.ends} {f'at {slow.factor:g} of its bandwidth' if slow.factor else 'down'}{slow.when}"
    for neighbour in question.where.neighbours:
        yield f"another job moves {format_bandwidth(neighbour.rate_Bps)} over {neighbour.ends}"
    if question.topic == "step":
        for name, factor in question.stragglers:
            yield f"{name} takes {factor:g} times as long"
        if question.lost is not None:
            name, after_s = question.lost
            yield f"the server on {name} fails {format_duration(after_s)} after the start of a step"


def is_changed(question: Any) -> bool:
    """Return whether *question* changes its machine, or joins machines by a fabric of its own choice."""
    return question.where.fabric is not None or any(changes_of(question))


def unchanged(question: Q) -> Q:
    """Return *question* without its changes."""
    found: Any = question
    whole = {"stragglers": (), "lost": None} if found.topic == "step" else {}
    return replace(found, where=replace(found.where, slow_links=(), neighbours=()), **whole)  # type: ignore[no-any-return]
