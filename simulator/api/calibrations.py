"""Calibrations: the constants of one device that a short measurement gives, and the files that hold them."""

from collections.abc import Mapping

from simulator.constants import DEFAULT
from simulator.devices.calibration_file import Certificate, load_calibration, read_calibration
from simulator.devices.dispatch import HOST_TIMES, DispatchCosts
from simulator.devices.neighbours import left_out_errors, places_of, sizes_of
from simulator.questions.calibration import Calibration

__all__ = [
    "Calibration",
    "Certificate",
    "host_constants",
    "left_out_errors",
    "load_calibration",
    "places_of",
    "read_calibration",
    "sizes_of",
]


def host_constants() -> Mapping[str, float]:
    """Return the launch-cost constants that hold for any host, in seconds by name."""
    costs = DEFAULT(DispatchCosts)
    return {name: getattr(costs, name) for name in HOST_TIMES}
