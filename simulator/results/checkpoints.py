"""The cost of failures and checkpoints over a run: :class:`Checkpoints`."""

from __future__ import annotations

from math import exp, expm1, sqrt

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
        """Fraction of the run spent on steps that are kept.

        The reciprocal of M / t exp(R / M) (exp((t + w) / M) - 1) for an interval t, write time w, restart time R and
        mean time between failures M (Daly 2006, equation 20).
        """
        m = self.mtbf_s
        attempt = (self.interval_s + self.write_s) / m
        return self.interval_s / m * exp(-self.restart_s / m - attempt) / -expm1(-attempt)  # no power overflows

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
