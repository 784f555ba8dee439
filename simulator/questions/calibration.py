"""The few constants of one device that a short measurement fixes; all 1 without it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ISOLATED", "Calibration"]

ISOLATED = tuple(
    f"isolated_{name}_s"
    for name in ("elementwise", "softmax", "norm", "linear", "matmul", "convolution", "other", "backward", "end")
)
"""What two events around one operator show besides; measuring needs it, predicting does not."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Factors on what the data sheet and the shared constants give.

    ``compute`` multiplies the sustained rate of arithmetic, ``bandwidth`` that of device memory,
    ``dispatch`` the time in which the host issues an operator; ``by_class`` multiplies the time of
    one class of kernels (``gemm``, ``convolution``, ``streaming``, ``rowwise``, ...).  Kernels of the classes
    ``by_data_sheet`` cost what they do without any of these.  ``host`` holds
    what a host was measured to take, in seconds, by the constants of
    :class:`~simulator.devices.dispatch.DispatchCosts` in whose place it stands, or of ``ISOLATED``.
    """

    compute: float = 1.0
    bandwidth: float = 1.0
    dispatch: float = 1.0
    by_class: Mapping[str, float] = field(default_factory=dict)
    host: Mapping[str, float] = field(default_factory=dict)
    by_data_sheet: tuple[str, ...] = ()
