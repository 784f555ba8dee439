"""Shared constants that are fitted to the same kind of rows (:class:`Family`), and terms that can be turned off."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulator.constants import constants_file
from simulator.records import dataclass, field
from validate.constants.least import Prior
from validate.kinds.row import MeasuredRow


@dataclass(frozen=True, slots=True)
class FitStage:
    """Constants that are fitted together: ``free`` ones, and ``tied`` ones, which equal others.

    Rows count if ``counts`` holds and their predictions depend on a free constant; of rows with the same text in the
    columns ``alike``, at most ``most``, evenly spaced over the tables.
    """

    free: Mapping[str, Prior]
    alike: tuple[str, ...]
    most: int
    counts: Callable[[MeasuredRow], bool] = lambda _row: True
    tied: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """Constants that are fitted to the same kind of rows, in ``stages`` one after the other.

    ``kind`` is the kind of table; ``ops`` are operators or collectives, empty for all; ``grades`` maps trust grades to
    weights; ``held_out`` names the sizes that make up a shape, of which one in 16 is never fitted to; ``predicts``
    selects the rows that this model predicts, if other models share the operators.  ``straight``: the fit is linearised
    at the constants in use (:mod:`validate.constants.least`).
    """

    name: str
    kind: str
    ops: tuple[str, ...]
    grades: Mapping[str, float]
    stages: tuple[FitStage, ...]
    held_out: tuple[str, ...] = ()
    predicts: Callable[[MeasuredRow], bool] = lambda _row: True
    straight: bool = False


def drawn(file: str, known: Mapping[str, tuple[float, float]], factor: float = 30.0) -> dict[str, Prior]:
    """Return priors of constants of *file*, from (value, standard deviation of the logarithm).

    Bounds are the value divided and multiplied by *factor*.
    """
    return {
        f"{file}.{name}" if "." not in name else name: Prior(value, sigma, value / factor, value * factor)
        for name, (value, sigma) in known.items()
    }


def within(file: str, bounds: Mapping[str, tuple[float, float]]) -> dict[str, Prior]:
    """Return priors of constants of *file* with known bounds, weakly centred on the values in the file."""
    entries = constants_file(file)["constants"]
    return {f"{file}.{name}": Prior(entries[name]["value"], 1.0, low, high) for name, (low, high) in bounds.items()}


_NEVER, _FREE = 1e-12, 1e15  # rates of a way that is never the fastest, and of an effect that takes no time


@dataclass(frozen=True, slots=True)
class Term:
    """A term of *family*, an effect with constants of its own: values that turn it ``off``, and those then ``idle``."""

    family: str
    name: str
    off: Mapping[str, float]
    idle: tuple[str, ...] = ()


TERMS: tuple[Term, ...] = (
    Term(
        "gemm",
        "address translation",
        {"gemm.walks_early": _FREE, "gemm.walks_late": _FREE},
        (
            *("gemm.pages_early", "gemm.page_sharpness_early", "gemm.pages_late", "gemm.page_sharpness_late"),
            *("gemm.walk_again", "gemm.walk_held_bytes", "gemm.walk_reach_bytes", "gemm.walk_near"),
        ),
    ),
    Term("gemm", "part of the last wave", {"gemm.idle_early": 1.0, "gemm.idle_late": 1.0}),
    Term("gemm", "operands turned on their way", {"gemm.transpose": 0.0, "gemm.straight_volta": 0.0}),
    Term("gemm", "odd rows", {"gemm.unaligned": 1.0}),
    Term("gemm", "start and end of a tile", {"gemm.tile_clocks": 0.0}),
    Term("gemm", "slower where k is split", {"gemm.split_share": 1.0}),
    Term("gemm", "dot products", {"gemm.thin_share": _NEVER}),
    Term("gemm", "clocks above boost", {"power.headroom": 1.0}),
    Term("gemm", "power", {"power.multiply_add_J": 1e-15}, ("power.sm_lanes",)),
    Term("matrix_product", "start and end of a tile", {"gemm.tile_clocks_tensor": 0.0}),
    Term("matrix_product", "power", {"power.tensor_16_bit": 1e-6}),
    Term("checked_memory", "check bits", {"memory.check_turnaround": 0.0}),
    *(
        Term("tensor_product", f"{name} ({way})", {f"tensor_product.{way}.{constant}": value})
        for way in ("copies", "warps")
        for name, constant, value in (
            ("latency along k", "latency_s", 0.0),
            ("writing not hidden", "exposed", 0.0),
            ("start and end of a tile", "edge_clocks", 0.0),
            ("sums through memory", "partial", 0.0),
        )
    ),
    Term("tensor_product", "energy", {"power.async_16_bit_J": 0.0}),
    Term("attention", "memory not hidden", {"attention.exposed_memory": 0.0}),
    Term("attention", "start and end of a block", {"attention.block_clocks": 0.0}),
    Term("attention", "blocks alone", {"attention.alone": 1.0}),
    Term("memory_bound", "turnaround", {"memory.turnaround": 0.0}),
    Term("memory_bound", "slots of pow", {"streaming.pow_slots": 0.0}),
    Term("memory_bound", "slots of softmax", {"rowwise.softmax_slots": 0.0, "rowwise.warp_slots": 0.0}),
    Term("memory_bound", "start of a row", {"rowwise.softmax_row_s": 0.0, "rowwise.norm_row_s": 0.0}),
    Term("memory_bound", "wait for loads", {"rowwise.load_s": 0.0}),
    Term("convolution", "phases", {f"convolution.{phase}": 1.0 for phase in ("backward_data", "backward_weight")}),
    Term("convolution", "filters of 1 x 1", {"convolution.backward_weight_1x1": 1.0}),
    Term("convolution", "shared integers", {"convolution.separate_integers": 1.0}),
    Term("convolution", "start of k", {"convolution.prologue_k": 1.0}),
    Term("convolution", "waves", {"convolution.quantisation": _NEVER}),
    Term("recurrence", "start of k", {"recurrence.prologue_k": 1.0}),
    Term("recurrence", "waves kept", {"recurrence.residency": _NEVER}),
)
"""The terms of all families, in the order of reports.

``validate fit --terms`` fits each family again without one term at a time, on the same rows and with the same devices
left out, and compares the errors on these devices: a term that does not lower them should go.
"""
