"""The cost of failures and checkpoints over a run: :class:`Cycle`, :class:`Checkpoints`."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, expm1, inf, sqrt

from simulator.records import dataclass, replace


def best_interval_s(write_s: float, mtbf_s: float) -> float:
    """Return the interval between checkpoints that loses least time, in seconds of training.

    J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future Generation
    Computer Systems 22 (2006), equation 37; to first order sqrt(2 write_s mtbf_s), as J. W. Young found ("A first
    order approximation to the optimum checkpoint interval", Communications of the ACM 17 (1974)).
    """
    if write_s >= 2.0 * mtbf_s:
        return mtbf_s
    x = write_s / (2.0 * mtbf_s)
    return sqrt(2.0 * write_s * mtbf_s) * (1.0 + sqrt(x) / 3.0 + x / 9.0) - write_s


@dataclass(frozen=True, slots=True)
class Cycle:
    """What is between two checkpoints, in seconds: ``trained_s`` of steps, evaluations, and the stop to write.

    A checkpoint is safe ``background_s`` after the stop.  Failures are independent, ``mtbf_s`` apart on average
    (infinite: none), and happen at any time; a failed run is back at its last safe checkpoint after ``restart_s``.
    """

    trained_s: float
    evaluated_s: float = 0.0
    stopped_s: float = 0.0
    background_s: float = 0.0
    restart_s: float = 0.0
    mtbf_s: float = inf

    @property
    def length_s(self) -> float:
        """Seconds of a cycle in which nothing fails."""
        return self.trained_s + self.evaluated_s + self.stopped_s

    @property
    def goodput(self) -> float:
        """Fraction of the run spent on steps that are kept: the effective training time.

        With a cycle of c = t + e + s, of which t trains, and restarts that fail too, a run that fails once in M loses
        t / M exp(-(R + b) / M) / (exp(c / M) - 1): J. T. Daly, "A higher order estimate of the optimum checkpoint
        interval for restart dumps" (2006), equation 20, where the first checkpoint after a restart is safe b later.
        """
        if self.mtbf_s == inf:
            return self.trained_s / self.length_s
        m, c = self.mtbf_s, self.length_s / self.mtbf_s
        return self.trained_s / m * exp(-(self.restart_s + self.background_s) / m - c) / -expm1(-c)

    @property
    def shares(self) -> Mapping[str, float]:
        """The fractions of the run: kept steps, evaluations, stops to write, restarts, and steps done again."""
        kept = self.goodput
        found = {
            "training": kept,
            "evaluation": kept * self.evaluated_s / self.trained_s,
            "checkpoints": kept * self.stopped_s / self.trained_s,
            "restarts": 0.0 if self.mtbf_s == inf else -expm1(-self.restart_s / self.mtbf_s),
        }
        return {**found, "repeated": max(0.0, 1.0 - sum(found.values()))}


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """A run with a checkpoint after every ``every_steps`` steps of ``step_s``, and random failures.

    Failures are independent, ``mtbf_s`` apart on average, and also occur while writing and restarting.
    """

    step_s: float
    every_steps: int
    write_s: float
    restart_s: float
    mtbf_s: float

    @property
    def interval_s(self) -> float:
        """Seconds of training between two checkpoints."""
        return self.every_steps * self.step_s

    @property
    def goodput(self) -> float:
        """Fraction of the run spent on steps that are kept."""
        return Cycle(self.interval_s, 0.0, self.write_s, 0.0, self.restart_s, self.mtbf_s).goodput

    @property
    def written_share(self) -> float:
        """Fraction of the run spent on writing checkpoints that are kept."""
        return self.goodput * self.write_s / self.interval_s

    @property
    def failed_share(self) -> float:
        """Fraction of the run spent on repeated steps and restarts."""
        return 1.0 - self.goodput - self.written_share

    @property
    def young_s(self) -> float:
        """Young's first-order estimate of the best interval, in seconds."""
        return sqrt(2.0 * self.write_s * self.mtbf_s)

    @property
    def best_steps(self) -> int:
        """The best interval, in whole steps."""
        return max(1, round(best_interval_s(self.write_s, self.mtbf_s) / self.step_s))

    @property
    def best_goodput(self) -> float:
        """The goodput with the best interval."""
        return replace(self, every_steps=self.best_steps).goodput
