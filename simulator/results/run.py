"""The answer to a whole run, :class:`Run`: how much of it trains, how long it takes, what it costs."""

from collections.abc import Mapping
from math import hypot, sqrt
from statistics import NormalDist
from typing import Any

from simulator.bands.composition import LEVEL
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
    pace: float = 1.0  # of its steps, relative to the predicted one

    @property
    def rates(self) -> Rates:
        """The rates of a step."""
        return rates_of(self.result)

    @property
    def trained_s(self) -> float:
        """Seconds of steps that are kept."""
        return self.steps * self.pace * self.result.step_time_s

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
        ends = self._ends
        return None if ends is None else (ends[0].wall_s, ends[1].wall_s)

    @property
    def _ends(self) -> "tuple[Run, Run] | None":
        """The run with the step at either end of its band."""
        if self.low_s is None or self.high_s is None:
            return None
        ends = []
        for factor in (step_s / self.result.step_time_s for step_s in (self.low_s, self.high_s)):
            trained_s, evaluated_s = factor * self.cycle.trained_s, factor * self.cycle.evaluated_s
            cycle = replace(self.cycle, trained_s=trained_s, evaluated_s=evaluated_s)
            ends.append(replace(self, cycle=cycle, pace=factor * self.pace))
        return ends[0], ends[1]

    @property
    def lost_s(self) -> float:
        """Seconds of the run that keep no step: evaluations, stops to write, restarts, and steps done again."""
        return (1.0 - self.cycle.goodput) * (self.wall_s - self.first_s)

    @property
    def failed_times(self) -> tuple[int, int]:
        """The numbers of failures between which theirs lies in 80 % of runs.

        They are independent, so the root of their number (plus 3/8) is nearly normal, with a deviation of 1/2: F. J.
        Anscombe, "The transformation of Poisson, binomial and negative-binomial data" (1948).
        """
        half, root = NormalDist().inv_cdf((1.0 + LEVEL) / 2.0) / 2.0, sqrt(self.failures + 0.375)
        low, high = (int(max(0.0, (root + end) ** 2 - 0.375)) for end in (-min(half, root), half))
        return low, high

    @property
    def lost_band_s(self) -> tuple[float, float] | None:
        """Seconds between which ``lost_s`` lies, by the step's band and the number of failures; None without a band."""
        ends, shares = self._ends, self.cycle.shares
        if ends is None:
            return None
        each_s = (shares["restarts"] + shares["repeated"]) * (self.wall_s - self.first_s) / (self.failures or 1.0)
        terms = [
            (end.lost_s - self.lost_s, each_s * (n - self.failures))
            for end, n in zip(ends, self.failed_times, strict=True)
        ]
        return max(0.0, self.lost_s - hypot(*terms[0])), self.lost_s + hypot(*terms[1])

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
