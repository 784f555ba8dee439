"""The answer to a whole run, :class:`Run`: how much of it trains, how long it takes, what it costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.questions.run import RunQuestion
from simulator.records import dataclass, replace
from simulator.results import SCHEMA_VERSION, plain, taken
from simulator.results.rates import Rates, rates_of
from simulator.results.training_run import Cycle, TrainingRun
from simulator.topology.schema import Price


@dataclass(frozen=True, slots=True)
class Run:
    """A run of ``steps`` equal steps; ``first_s`` passes before the first of them.

    ``checkpoint_bytes`` are those of all devices together; ``every_steps`` is 0 where nothing is written.
    """

    question: RunQuestion
    result: TrainingRun
    steps: int
    every_steps: int
    checkpoint_bytes: float
    cycle: Cycle
    first_s: float
    low_s: float | None = None
    high_s: float | None = None

    @property
    def rates(self) -> Rates:
        """The rates of a step."""
        return rates_of(self.result)

    @property
    def trained_s(self) -> float:
        """Seconds of steps that are kept."""
        return self.steps * self.result.step_time_s

    @property
    def wall_s(self) -> float:
        """Seconds from the first start to the end."""
        return self.first_s + self.trained_s / self.cycle.goodput

    @property
    def failures(self) -> float:
        """The expected number of failures."""
        return self.wall_s / self.cycle.mtbf_s

    @property
    def band_s(self) -> tuple[float, float] | None:
        """The run's time with the step's band, at the same interval in steps; None where the step has none."""
        if self.low_s is None or self.high_s is None:
            return None
        ends = []
        for step_s in (self.low_s, self.high_s):
            factor, cycle = step_s / self.result.step_time_s, self.cycle
            cycle = replace(cycle, trained_s=factor * cycle.trained_s, evaluated_s=factor * cycle.evaluated_s)
            ends.append(self.first_s + self.steps * step_s / cycle.goodput)
        return ends[0], ends[1]

    @property
    def gpu_hours(self) -> float:
        """Hours of the run times its devices."""
        return self.wall_s / 3600.0 * self.result.device_count

    @property
    def price(self) -> Price | None:
        """What the run costs; None without a price."""
        return self.price_of(self.wall_s)

    def price_of(self, seconds: float) -> Price | None:
        """Return what the machine costs in *seconds*; None without a price."""
        if self.question.gpu_hour is not None:
            return self.question.gpu_hour.times(self.result.device_count * seconds / 3600.0)
        price = self.result.price_per_hour
        return None if price is None else price.times(seconds / 3600.0)

    @property
    def energy_J(self) -> float | None:  # noqa: N802  the unit
        """The most that the boards use in the run, at their power limits; None where a part has no such figure."""
        each = self.rates.energy_J
        return None if each is None else each / self.result.step_time_s * self.wall_s


def run_document(run: Run, step: Mapping[str, Any]) -> dict[str, Any]:
    """Return *run* as plain data in SI units, with the document of its *step*."""
    names = "tokens samples mtbf_s gpu_mtbf_s asynchronous restart_s warmup_s evaluate_every evaluate_samples"
    return {
        "schema_version": SCHEMA_VERSION,
        "topology": run.result.machine,
        "workload": run.result.step.workload,
        "asked": taken(run.question, names),
        **taken(run, "steps every_steps checkpoint_bytes wall_s trained_s failures gpu_hours energy_J price"),
        "goodput": run.cycle.goodput,
        "shares": dict(run.cycle.shares),
        "cycle": plain(run.cycle),
        "band": None if run.band_s is None else {"low_s": run.band_s[0], "high_s": run.band_s[1]},
        "step": dict(step),
    }
