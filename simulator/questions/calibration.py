"""The few constants of one device that a short measurement gives; all 1 without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ISOLATED", "Calibration"]

ISOLATED = tuple(
    f"isolated_{name}_s"
    for name in ("elementwise", "softmax", "norm", "linear", "matmul", "convolution", "other", "backward", "end")
)
"""The extra time that two events around one operator show; measurements need it, predictions do not."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Factors on the values from the data sheet and the shared constants.

    ``compute`` multiplies the sustained arithmetic rate, ``bandwidth`` that of device memory, ``dispatch`` the time in
    which the host launches an operator, and ``by_class`` the time of one kernel class (``gemm``, ``convolution``,
    ``streaming``, ``rowwise``, ...).  None of them applies to the kernel classes in ``by_data_sheet``.  ``host`` holds
    measured host times in seconds, which replace the constants of the same name in
    :class:`~simulator.devices.dispatch.DispatchCosts`, or ``ISOLATED``.
    """

    compute: float = 1.0
    bandwidth: float = 1.0
    dispatch: float = 1.0
    by_class: Mapping[str, float] = field(default_factory=dict)
    host: Mapping[str, float] = field(default_factory=dict)
    by_data_sheet: tuple[str, ...] = ()
