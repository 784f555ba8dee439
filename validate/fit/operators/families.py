"""The families of kernels whose constants are fitted together, each by the module of its name.

Which rows shape the constants is the module's choice; all families are judged on the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any

from validate.fit.operators.judge import Predict
from validate.fit.operators.rows import Measured, read_measured

__all__ = ["FAMILIES", "Family", "Material", "constant_lines", "read_material"]


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
    """``fit`` returns constants, ``predictor`` what they say of a row."""

    name: str
    ops: tuple[str, ...]
    grades: str
    short_grades: str
    usable: Callable[[Measured], bool]
    fit: Callable[[Material], Any]
    predictor: Callable[[Any], Predict]


def read_material(family: Family, files: Sequence[str], judged: str) -> Material:
    """Return the rows of *files* for *family*; those with one of the grades *judged* judge."""

    def read(grades: str) -> tuple[Measured, ...]:
        if not grades:
            return ()
        rows = [row for file in files for row in read_measured(file, grades=grades, ops=family.ops)]
        return tuple(row for row in rows if family.usable(row))

    return Material(read(family.grades), read(family.short_grades), read(judged))


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


def _makers(row: Measured) -> bool:
    return row.gpu.vendor in ("nvidia", "amd")


def _convolution() -> Family:
    from validate.fit.operators import convolution as module

    return Family(
        "convolution",
        ("conv2d",),
        "A",
        "",
        lambda row: _makers(row) and row.query.precision in ("fp32", "fp16"),
        lambda material: module.fit_convolution(material.fitted),
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
        lambda row: _makers(row) and row.dataset == "neusight_ops",
        lambda material: module.fit_memory_bound(material.fitted, material.short),
        predictor,
    )


FAMILIES: dict[str, Callable[[], Family]] = {"memory_bound": _memory_bound, "convolution": _convolution}
