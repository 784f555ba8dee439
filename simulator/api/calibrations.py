"""What a short measurement of one device fixes, and the files that hold it."""

from collections.abc import Mapping

from simulator.constants import DEFAULT
from simulator.devices.calibration_file import load_calibration, read_calibration
from simulator.devices.dispatch import HOST_TIMES, DispatchCosts
from simulator.questions.calibration import Calibration

__all__ = ["Calibration", "host_constants", "load_calibration", "read_calibration"]


def host_constants() -> Mapping[str, float]:
    """Return the constants of dispatch that hold for any host, in seconds."""
    costs = DEFAULT(DispatchCosts)
    return {name: getattr(costs, name) for name in HOST_TIMES}
