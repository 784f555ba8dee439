"""Devices that work together wait for the slowest: its time relative to the mean."""

from __future__ import annotations

from statistics import NormalDist

from simulator.constants import Constants, constants
from simulator.records import dataclass


@constants("fleet")
@dataclass(frozen=True, slots=True)
class FleetCosts:
    """Constants of a fleet of equal devices."""

    device_spread: float


def slowest_of(count: int, known: Constants) -> float:
    """Return the time of the slowest of *count* devices relative to the mean; 1 for one device.

    It is the expected maximum of *count* normal deviates by Blom's approximation ("Statistical Estimates and
    Transformed Beta-Variables", 1958), within 5 % for two or more.  GPUs of one part differ by some percent, more so
    where power limits them: Sinha et al., "Not All GPUs Are Created Equal", SC 2022.
    """
    greatest = NormalDist().inv_cdf((count - 0.375) / (count + 0.25))
    return 1.0 + known(FleetCosts).device_spread * greatest
