"""The families of kernels whose constants are fitted together, each by the module of its name.

Which rows shape the constants is the module's choice; all families are judged on the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from simulator.devices.gpu.gemm_tiles import GemmConstants
from simulator.devices.gpu.tensor_product import TensorProducts, is_pipelined
from simulator.errors import InputError
from validate.fit.operators.judge import Predict
from validate.fit.operators.rows import Measured, read_measured

__all__ = ["FAMILIES", "Family", "Material", "constant_lines", "read_material"]

_SHORT_ROWS = 30  # of each device, operator and precision
_SHORT_TENSOR_ROWS = 100
_SHORT_EVALUATIONS = 7


@dataclass(frozen=True, slots=True)
class Material:
    """The rows of a family: those that it is fitted to, those besides that say what a call costs, those that judge."""

    fitted: tuple[Measured, ...]
    short: tuple[Measured, ...]
    judged: tuple[Measured, ...]

    @property
    def devices(self) -> tuple[str, ...]:
        """Devices with a row that judges, sorted."""
        return tuple(sorted({row.query.device for row in self.judged}))

    def without(self, devices: Sequence[str]) -> Material:
        """Return the material of a fit that has not seen *devices*; all rows judge still."""
        kept = [tuple(r for r in rows if r.query.device not in devices) for rows in (self.fitted, self.short)]
        return Material(kept[0], kept[1], self.judged)


@dataclass(frozen=True, slots=True)
class Family:
    """``fit`` returns constants, ``predictor`` what they say of a row.

    ``usable`` are rows that can be predicted, ``fits`` those of them that shape the constants.
    A fit that leaves a device out may be short: of fewer rows, since there are many such fits.
    """

    name: str
    ops: tuple[str, ...]
    grades: str
    short_grades: str
    usable: Callable[[Measured], bool]
    fits: Callable[[Measured], bool]
    fit: Callable[[Material, bool], Any]
    predictor: Callable[[Any], Predict]


def read_material(family: Family, files: Sequence[str], judged: str) -> Material:
    """Return the rows of *files* for *family*; those with one of the grades *judged* judge."""

    def read(grades: str, wanted: Callable[[Measured], bool]) -> tuple[Measured, ...]:
        if not grades:
            return ()
        rows = [row for file in files for row in read_measured(file, grades=grades, ops=family.ops)]
        return tuple(row for row in rows if family.usable(row) and wanted(row))

    return Material(
        read(family.grades, family.fits), read(family.short_grades, family.fits), read(judged, lambda _row: True)
    )


def constant_lines(constants: Any) -> list[str]:
    """Return ``name = value`` of each constant, as the code writes them, to three digits."""
    assert is_dataclass(constants)
    found: list[str] = []

    def walk(prefix: str, values: dict[str, Any]) -> None:
        for name, value in values.items():
            if isinstance(value, dict):
                walk(f"{prefix}{name}.", value)
            elif isinstance(value, int | float):
                found.append(f"{prefix}{name} = {value:.3g}")

    walk("", asdict(constants))  # type: ignore[arg-type]
    return found


def _has_rate(row: Measured) -> bool:
    try:
        return row.gpu.peak(row.query.precision) > 0
    except InputError:
        return False


def _convolution() -> Family:
    from validate.fit.operators import convolution as module

    return Family(
        "convolution",
        ("conv2d",),
        "A",
        "",
        _has_rate,
        lambda row: row.query.precision in ("fp32", "fp16"),
        lambda material, _short: module.fit_convolution(material.fitted),
        lambda costs: lambda row: module.predicted_s(row, costs),
    )


def _memory_bound() -> Family:
    from validate.fit.operators import memory_bound as module

    def predictor(free: module.Free) -> Predict:
        costs = module.with_free(free)
        return lambda row: module.predicted_s(row, costs)

    return Family(
        "memory_bound",
        module.OPS,
        "AB",
        "C",
        lambda _row: True,
        module.usable,
        lambda material, _short: module.fit_memory_bound(material.fitted, material.short),
        predictor,
    )


def _gemm() -> Family:
    from validate.fit.operators import gemm as module

    def fit(material: Material, short: bool) -> GemmConstants:
        most, evaluations = (_SHORT_ROWS, _SHORT_EVALUATIONS) if short else (100, 10)
        return module.fit_gemm(material.fitted, most=most, max_evaluations=evaluations).constants

    return Family(
        "gemm",
        module.OPERATORS,
        "A",
        "",
        lambda row: _has_rate(row) and not is_pipelined(row.gpu, row.query.precision),
        lambda _row: True,
        fit,
        lambda constants: lambda row: module.predicted_gemm(row, constants),
    )


def _tensor_product() -> Family:
    from validate.fit.operators import tensor_product as module

    def fit(material: Material, short: bool) -> TensorProducts:
        most, evaluations = (_SHORT_TENSOR_ROWS, _SHORT_EVALUATIONS) if short else (300, 10)
        return module.fit_tensor_product(material.fitted, most=most, max_evaluations=evaluations).constants

    return Family(
        "tensor_product",
        module.OPERATORS,
        "A",
        "",
        module.usable,
        lambda _row: True,
        fit,
        lambda constants: lambda row: module.predicted_s(row, constants),
    )


def _attention() -> Family:
    from validate.fit.operators import attention as module

    def fit(material: Material, short: bool) -> module.Constants:
        return module.fit_attention(material.fitted, most=_SHORT_TENSOR_ROWS if short else 300).constants

    return Family(
        "attention",
        ("attention",),
        "AB",
        "",
        _has_rate,
        module.is_fitted,
        fit,
        lambda constants: lambda row: module.predicted_s(row, constants),
    )


def _recurrence() -> Family:
    from validate.fit.operators import recurrence as module

    return Family(
        "recurrence",
        ("rnn", "lstm", "gru"),
        "A",
        "",
        _has_rate,
        lambda _row: True,
        lambda material, _short: module.fit_recurrence(material.fitted),
        lambda costs: lambda row: module.predicted_s(row, costs),
    )


FAMILIES: dict[str, Callable[[], Family]] = {
    "gemm": _gemm,
    "tensor_product": _tensor_product,
    "attention": _attention,
    "memory_bound": _memory_bound,
    "convolution": _convolution,
    "recurrence": _recurrence,
}
