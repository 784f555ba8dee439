"""Which operators to measure: those whose times narrow most what is not known of all (:func:`chosen`).

The choice is from the operators of networks, with what each weighs in their steps (:func:`candidates_of`), by the
correlations of calibration (docs/decisions/calibration.md).  All mechanisms are equally unknown, as tables that others
measured know little of some.  No measured time is read.
"""

import json
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from simulator.api import Session
from simulator.api.calibrations import StepKernel, longest_kernel, places_of, step_kernels
from simulator.errors import InputError
from simulator.questions.calibration import Shape
from simulator.questions.options import StepOptions
from simulator.questions.single import OperatorQuestion
from simulator.questions.where import Where
from simulator.records import dataclass, field, lists_by_key, own_data, replace
from simulator.workload.described import network_document
from simulator.workload.find import find_network
from simulator.workload.kernels import Kernel, Rowwise, Streaming
from simulator.workload.network import Network
from simulator.workload.precision import ELEMENT_BYTES
from validate.constants.calibrate import NEAR, NOISE
from validate.kinds.operators import read_operator
from validate.machine.measure.built.description import Description, description_of, operator_parts
from validate.tables.cells import NotScored
from validate.tables.names import RowNames

NETWORKS: tuple[tuple[str, int], ...] = tuple(own_data("validate.constants", "families.yaml")["networks"].items())
POLICIES: Mapping[str, float] = {"amp-bf16": 1.0, "bf16": 0.7, "tf32": 0.5, "fp32": 0.3, "fp8": 0.5}
"""Formats, and what a step in each weighs: most training is under autocast or wholly in bf16 (chosen)."""
_COMMON = 0.3  # chosen: the share of the variance that kernels of a variety have in common


@dataclass(frozen=True, slots=True)
class MeasurableOperator:
    """An operator or kernel: its main kernel's variety and shape, ``weight`` as a target, shares of ``steps``."""

    key: Hashable
    variety: str
    shape: Shape
    weight: float = 1.0
    measurable: bool = True
    steps: Mapping[str, float] = field(default_factory=dict)


def chosen(candidates: Sequence[MeasurableOperator], count: int) -> list[MeasurableOperator]:
    """Return the *count* *candidates* that narrow most, in order."""
    fields = [_Field(mine) for _, mine in sorted(lists_by_key((each.variety, each) for each in candidates).items())]
    found: list[MeasurableOperator] = []
    while len(found) < count and any(field.gain > 0.0 for field in fields):
        found.append(max(fields, key=attrgetter("gain")).take())
    return found


class _Field:
    """The candidates of one variety: the covariance of their errors given what was taken, and the best of the rest."""

    def __init__(self, candidates: Sequence[MeasurableOperator]) -> None:
        self._all = sorted(candidates, key=lambda each: (each.shape, str(each.key)))
        places = places_of(self._all[0].variety, [each.shape for each in self._all])
        squares: Any = 0.0
        for axis in zip(*(place for place, _ in places), strict=True):
            squares = squares + (np.array(axis)[:, None] - np.array(axis)) ** 2
        for axis in zip(*(words for _, words in places), strict=True):
            words = np.array([word for _, word in axis])
            squares = squares + axis[0][0] ** 2 * (words[:, None] != words)
        self._covariance = _COMMON + (1.0 - _COMMON) * np.exp(-np.sqrt(squares) / NEAR[0])
        self._weight = np.array([each.weight for each in self._all])
        names = sorted({name for each in self._all for name in each.steps}) or [""]
        self._steps = np.array([[each.steps.get(name, 0.0) for each in self._all] for name in names])
        self._left = np.array([each.measurable for each in self._all])
        self._next()

    def _next(self) -> None:
        known = self._weight @ self._covariance**2 + ((self._steps @ self._covariance) ** 2).sum(axis=0)
        gains = known / (self._covariance.diagonal() + NOISE)
        gains = np.where(self._left, gains, 0.0)
        self._best = int(np.argmax(gains))
        self.gain = float(gains[self._best])

    def take(self) -> MeasurableOperator:
        i = self._best
        column = self._covariance[:, i].copy()
        self._covariance -= np.outer(column, column) / (column[i] + NOISE)
        self._left[i] = False
        self._next()
        return self._all[i]


_MULTIPLE = 16  # of the sizes of products in fp8
_MOST_UPDATED = 1 << 28  # parameters of an update that is measured; more take as long each
_LEAST_SHARE = 1e-4  # of a step's time; kernels that take less, all of a shape together, are no targets
_Cells = Mapping[str, str | int]


def candidates_of(
    session: Session, device: str, networks: Sequence[tuple[str, int]] = NETWORKS
) -> list[MeasurableOperator]:
    """Return the kernels of a step of each of *networks* (name, batch), and measurable operators by their cells."""
    names = RowNames(session=session)
    found: dict[Hashable, MeasurableOperator] = {}

    def add(key: Hashable, kernel: StepKernel, step: str = "", part: float = 0.0) -> None:
        each = found.get(key) or MeasurableOperator(key, kernel.mechanism, kernel.shape, 0.0, not step)
        found[key] = replace(each, steps={**each.steps, step: each.steps.get(step, 0.0) + part}) if step else each

    where = names.devices.where(device)
    for name, batch in networks:
        network = find_network(name).build(batch)
        description = description_of(json.loads(json.dumps(network_document(network))))
        for policy, weight in POLICIES.items():
            step = f"{name} {policy}"
            wanted = list(_operators(description, policy, network.trained_count))
            if policy != "fp8":  # the simulator trains in fp8 with Transformer Engine's operators alone
                try:
                    kernels = list(_kernels(session, where, network, policy))
                except InputError:  # the device has no such format
                    continue
                whole_s = math.fsum(each.time_s for each in kernels)
                for each in kernels:
                    if each.variety:
                        add(("kernel", each.mechanism, each.shape), each, step, weight * each.time_s / whole_s)
                wanted += filter(None, (_measured_pass(each.kernel) for each in kernels))
            for cells in wanted:
                told = {**{column: str(value) for column, value in cells.items()}, "device": device}
                try:
                    asked = read_operator(lambda column, told=told: told.get(column, ""), names).question  # type: ignore[misc]
                    assert isinstance(asked, OperatorQuestion)
                    main = longest_kernel(session, asked)
                except (NotScored, InputError):
                    continue
                if main.variety:
                    add(tuple(sorted(cells.items())), main)
                if policy == "fp8":  # of which no kernel of a step is a target: each by itself
                    key = tuple(sorted(cells.items()))
                    found[key] = replace(found[key], weight=(weight / len(networks)) ** 2 / len(wanted))
    return [each for each in found.values() if each.measurable or max(each.steps.values()) > _LEAST_SHARE]


def _kernels(session: Session, where: tuple[Where, str], network: Network, policy: str) -> Iterator[StepKernel]:
    images = network.sample == "images"
    how: dict[str, Any] = {"precision": policy, "optimizer": "momentum" if images else "adam"}
    how |= {"channels_last": images and policy.endswith("bf16"), "fused_optimizer": not images}
    return step_kernels(session, where, network, StepOptions(**how))


def _operators(description: Description, policy: str, parameters: int) -> Iterator[_Cells]:
    for part in operator_parts(description, policy, "train", channels_last=policy.endswith("bf16")):
        if part.reason:
            continue
        if policy != "fp8":
            yield part.cells
            continue
        # torch has the product of a linear layer's forward pass alone
        sizes = {name: int(part.cells[name]) for name in ("m", "n", "k")} if part.cells["op"] == "linear" else {}
        if sizes and part.cells["phase"] == "fwd" and not any(size % _MULTIPLE for size in sizes.values()):
            yield {"op": "matmul", "phase": "fwd", "dtype": "fp8", "batch": 1, **sizes}
    if policy != "fp8":
        count = min(parameters, _MOST_UPDATED)
        for rule in ("adam-fused", "adam", "momentum"):
            yield {"op": "update", "variant": rule, "phase": "fwd", "dtype": "fp32", "rows": 1, "cols": count}


def _measured_pass(kernel: Kernel) -> _Cells | None:
    """Return the cells of the case that measures *kernel*, of a step and no layer; None where there is none."""
    if isinstance(kernel, Rowwise) and kernel.kind == "sum":
        layout = {"variant": "channels_last"} if kernel.channels_last else {}
        sizes = {"rows": kernel.rows, "cols": kernel.cols}
        return {"op": "sum", **layout, "phase": "fwd", "dtype": kernel.precision, **sizes}
    if not isinstance(kernel, Streaming) or not kernel.elements:
        return None
    size: _Cells = {"phase": "fwd", "rows": 1, "cols": kernel.elements}
    ways = kernel.read_bytes / kernel.elements, kernel.written_bytes / kernel.elements
    dtype = {4: "fp32", 2: "bf16"}.get(int(ways[0]), "")
    match kernel.function, kernel.form, ways:
        case "copy", _, (read, written) if read != written and {read, written} == {2, 4}:
            return {"op": "cast", "variant": "fp32" if written > read else "bf16", "dtype": dtype, **size}
        case "copy", "transposed", _ if dtype:  # of a square matrix
            side = max(1, math.isqrt(kernel.elements))
            return {"op": "copy", "variant": "transposed", "phase": "fwd", "dtype": dtype, "rows": side, "cols": side}
        case "copy", "" | "strided", _ if dtype:
            return {"op": "copy", "variant": kernel.form, "dtype": dtype, **size}
        case "add" | "mul", "casts", (read, 4) if read in (2, 6):
            how = "mixed" if read > ELEMENT_BYTES["fp32"] else "widened"
            return {"op": "elementwise", "variant": f"{kernel.function}_{how}", "dtype": "bf16", **size}
        case "add" | "mul", "strided", (read, written) if read == written and dtype:
            return {"op": "elementwise", "variant": f"{kernel.function}_broadcast", "dtype": dtype, **size}
    return None
