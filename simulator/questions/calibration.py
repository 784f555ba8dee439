"""The few constants of one device that a short measurement gives; all 1 without it."""

from collections.abc import Mapping

from simulator.records import dataclass, field

ISOLATED = (
    *(f"isolated_{name}_s" for name in ("elementwise", "softmax", "norm", "linear", "matmul")),
    *("searched_convolution_s", "isolated_other_s", "isolated_backward_s", "isolated_end_s"),
)
"""The extra time that two events around one operator show; measurements need it, predictions do not."""
CLOCKS = ("power", "burst", "stream")
"""Power that seconds of load show: of a long run relative to the model's, of a short run relative to a long one's, and
of a stream relative to a product's."""
MOST_MEASURED = 200
"""The most measured kernels of one variety; solving for their weights takes the cube of their number."""
Shape = tuple[float | str, ...]
"""A kernel's sizes and words, on the axes of its class in :mod:`simulator.devices.neighbours`."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Measured kernels of one variety, which correct the times of kernels near them.

    ``of`` is the variety in words, the kernel's class first.  ``near`` is the distance at which the correlation of two
    errors falls to 1/e, ``noise`` the variance of a measurement relative to that of the errors, and ``strength`` the
    share of the interpolated error that is applied.  ``measured`` holds the shape of each kernel, and its measured over
    its predicted time.
    """

    of: str
    near: float
    strength: float
    noise: float
    measured: tuple[tuple[Shape, float], ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Factors on the values from the data sheet and the shared constants.

    ``compute`` multiplies the sustained arithmetic rate, ``bandwidth`` that of device memory, ``dispatch`` the time in
    which the host launches an operator, and ``by_class`` the time of one kernel class (``gemm``, ``convolution``,
    ``streaming``, ``rowwise``, ...).  None of them applies to the kernel classes in ``by_data_sheet``.  ``host`` holds
    measured host times in seconds, which replace the constants of the same name in ``dispatch.json``, or ``ISOLATED``.
    ``neighbours`` holds measured kernels, by variety; they correct what is given to kernels near them.  ``clocks``
    holds measured values of ``CLOCKS``, and leaves the rest to the model (:mod:`simulator.devices.gpu.rates`).
    """

    compute: float = 1.0
    bandwidth: float = 1.0
    dispatch: float = 1.0
    by_class: Mapping[str, float] = field(default_factory=dict)
    host: Mapping[str, float] = field(default_factory=dict)
    by_data_sheet: tuple[str, ...] = ()
    neighbours: tuple[Neighbourhood, ...] = ()
    clocks: Mapping[str, float] = field(default_factory=dict)
