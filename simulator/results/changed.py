"""What a question changes of its machine, and what that changes of the answer (:class:`ChangeEffect`)."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from simulator.records import dataclass, replace
from simulator.results import Fact
from simulator.results.comparison import Ratio
from simulator.units import format_bandwidth, format_duration

Q = TypeVar("Q")
_NEARLY = 0.9  # of a loss: all of it


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
