"""The answer to a step on one or several devices: :class:`TrainingResult`."""

from __future__ import annotations

from typing import Any

from simulator.bands.composition import Band
from simulator.records import dataclass
from simulator.results import Fact, html_of
from simulator.results.changed import change_fact, said
from simulator.results.confidence import Confidence
from simulator.results.step_confidence import step_confidence, step_trust
from simulator.results.step_document import steps_document
from simulator.results.step_view import step_view
from simulator.results.training_run import TrainingRun
from simulator.results.trust import Trust
from simulator.results.words import device_words
from simulator.units import format_duration


@dataclass(frozen=True, slots=True, repr=False)
class TrainingResult(TrainingRun):
    """The answer to a step, which shows itself as a line, as a table, and as in ``--json``."""

    def __repr__(self) -> str:
        """Return the answer in one line."""
        on = f"{device_words(self)} of {self.machine}"
        rate = f"{self.throughput:.4g} {self.step.sample}/s"
        does = "" if self.fits else ", does not fit into memory"
        takes = f"{format_duration(self.step_time_s)}, {rate}{does}{said(self.changed)}"
        return f"<{self.step.workload}, {self.samples} {self.step.sample} a step on {on}: {takes}>"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as in ``--json``, without the timeline."""
        return steps_document([self], {})

    def _repr_html_(self) -> str:
        """Return the result as an HTML table, for notebooks."""
        what = f"{self.step.workload}, {self.samples} {self.step.sample} a step"
        return html_of(
            [
                Fact("machine", f"{self.machine}, {device_words(self)}"),
                *change_fact(self.changed),
                Fact("network", what),
                Fact("way", self.way),
                *step_view(self),
            ]
        )

    @property
    def confidence(self) -> Confidence:
        """The uncertainty of ``step_time_s``; ideal schedules, which cannot be measured, have no band."""
        return step_confidence(self)

    @property
    def band(self) -> Band | None:
        """The interval that holds the step time with a probability of 80 %."""
        return self.confidence.band

    @property
    def trust(self) -> Trust | None:
        """The errors of predictions for such steps, or None if nobody measured them."""
        return step_trust(self)
