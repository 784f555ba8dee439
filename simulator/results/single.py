"""The answer to a single operation: :class:`SingleResult`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simulator.bands.composition import Band
from simulator.host.answer import HostTime
from simulator.records import dataclass, field
from simulator.results import SCHEMA_VERSION, Fact, html_of, taken
from simulator.results.changed import ChangeEffect, change_fact, changed_entry, said
from simulator.results.confidence import BAND_HEAD, Confidence
from simulator.units import format_duration, format_size


@dataclass(frozen=True, slots=True)
class SingleResult:
    """The time of an operator, a copy, memory accesses, a launch, a disk or a message: *words* say which.

    ``least_s`` are the seconds from data-sheet rates alone, None where these say nothing.  ``account`` holds the facts
    behind the time of an operator, ``answer`` those behind the time of other operations.  ``size_bytes``: the size, if
    the question is asked over sizes.
    """

    words: str
    machine: str
    time_s: float
    confidence: Confidence
    least_s: float | None = None
    account: Mapping[str, Any] = field(default_factory=dict)
    answer: HostTime | None = None
    size_bytes: int | None = None
    changed: ChangeEffect | None = None

    def __repr__(self) -> str:
        """Return the answer in one line."""
        of = f" {self.answer.of}" if self.answer is not None else ""
        return f"<{self.words} on {self.machine} takes {format_duration(self.time_s)}{of}{said(self.changed)}>"

    def _repr_html_(self) -> str:
        """Return the answer as an HTML table, for notebooks."""
        time = Fact("time", format_duration(self.time_s)), Fact(BAND_HEAD, self.confidence.words)
        return html_of([Fact("machine", self.machine), *change_fact(self.changed), Fact("question", self.words), *time])

    def name_among(self, found: Sequence[SingleResult]) -> str:
        """Return its name in what is said of *found*: its size in a sweep; nothing, if it is the only one."""
        if len(found) == 1:
            return ""
        return self.words if self.size_bytes is None else format_size(self.size_bytes)

    @property
    def band(self) -> Band | None:
        """The interval that holds the time with a probability of 80 %."""
        return self.confidence.band

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as in ``--json``."""
        found = {
            "topology": self.machine,
            **changed_entry(self.changed),
            **taken(self, "question=words time_s"),
            **self.confidence.to_dict(),
            "trust": self.confidence.why or None,
            **taken(self, "least_s account"),
        }
        if self.size_bytes is not None:
            found["size_bytes"] = self.size_bytes
        return found if self.answer is None else {**found, **taken(self.answer, "of bound why figures")}


def singles_document(workload: str, results: Sequence[SingleResult]) -> dict[str, Any]:
    """Return *results* as plain data."""
    entries = [result.to_dict() for result in results]
    return {"schema_version": SCHEMA_VERSION, "workload": workload, "results": entries}
