"""Which operators to measure: those whose times narrow most what is not known of all (:func:`chosen`).

The choice is from the operators of networks, with what each weighs in their steps (:func:`candidates_of`).

Errors of kernels are modelled as in calibration (:mod:`simulator.devices.neighbours`): those of one variety have a part
in common and a part with the correlation exp(-d / near).  Each measurement is taken where it reduces the mean
variance of the weighted targets most, given those before it (Cohn, Ghahramani and Jordan, *Active learning with
statistical models*, 1996, section 4).  No measured time is read.
"""

from __future__ import annotations

import heapq
import json
import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from simulator.api import Session
from simulator.api.calibrations import places_of
from simulator.bands import evidence, kernel_chain
from simulator.errors import InputError, MissingDependency
from simulator.package_data import own_data
from simulator.questions.calibration import Shape
from simulator.records import dataclass
from simulator.workload.described import network_document
from simulator.workload.find import find_network
from validate.constants.calibrate import NEAR, NOISE
from validate.kinds.operators import read_operator
from validate.machine.measure.built.description import Description, description_of, operator_parts
from validate.tables.cells import NotScored
from validate.tables.names import RowNames

_COMMON = 0.3  # chosen: the share of the variance that kernels of a variety have in common


@dataclass(frozen=True, slots=True)
class MeasurableOperator:
    """An operator: its main kernel's variety and shape, what it weighs as a target, and whether it can be measured."""

    key: Hashable
    variety: str
    shape: Shape
    weight: float = 1.0
    measurable: bool = True


def chosen(candidates: Sequence[MeasurableOperator], count: int) -> list[MeasurableOperator]:
    """Return the *count* of *candidates* that narrow the most, in the order in which each narrows most.

    Raises MissingDependency where NumPy is not installed.
    """
    by_variety: dict[str, list[MeasurableOperator]] = {}
    for each in candidates:
        by_variety.setdefault(each.variety, []).append(each)
    fields = [_Field(mine) for _, mine in sorted(by_variety.items())]
    waiting = [(-field.gain, i) for i, field in enumerate(fields) if field.gain > 0.0]
    heapq.heapify(waiting)
    found: list[MeasurableOperator] = []
    while waiting and len(found) < count:
        _, i = heapq.heappop(waiting)
        found.append(fields[i].take())
        if fields[i].gain > 0.0:
            heapq.heappush(waiting, (-fields[i].gain, i))
    return found


class _Field:
    """The candidates of one variety: the covariance of their errors given what was taken, and the best of the rest."""

    def __init__(self, candidates: Sequence[MeasurableOperator]) -> None:
        try:
            import numpy as np
        except ImportError:
            raise MissingDependency("choosing operators needs NumPy; in the clone: pip install -e '.[fit]'") from None
        self._np: Any = np
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
        self._left = np.array([each.measurable for each in self._all])
        self._next()

    def _next(self) -> None:
        gains = (self._weight @ self._covariance**2) / (self._covariance.diagonal() + NOISE)
        gains = self._np.where(self._left, gains, 0.0)
        self._best = int(self._np.argmax(gains))
        self.gain = float(gains[self._best])

    def take(self) -> MeasurableOperator:
        """Return the best candidate, and find the next best."""
        i = self._best
        column = self._covariance[:, i].copy()
        self._covariance -= self._np.outer(column, column) / (column[i] + NOISE)
        self._left[i] = False
        self._next()
        return self._all[i]


NETWORKS: tuple[tuple[str, int], ...] = tuple(own_data("validate.constants", "families.yaml")["networks"].items())
POLICIES = ("amp-bf16", "bf16", "tf32", "fp32", "fp8")
_MULTIPLE = 16  # of the sizes of products in fp8


def candidates_of(
    session: Session, device: str, networks: Sequence[tuple[str, int]] = NETWORKS
) -> list[MeasurableOperator]:
    """Return the operators of *networks* (name, batch) in training, as *device* runs them, each once.

    An operator weighs its share of its network's time times the variance of its class's errors, summed over networks.
    Keys are the cells of a row of operators as sorted (column, text) pairs.  Raises InputError for unknown networks.
    """
    names = RowNames(session=session)
    found: dict[tuple[tuple[str, str | int], ...], MeasurableOperator] = {}
    for name, batch in networks:
        network = find_network(name).build(batch)
        description = description_of(json.loads(json.dumps(network_document(network))))
        for policy in POLICIES:
            priced = list(_priced(description, policy, device, names))
            whole_s = math.fsum(time_s for _, _, _, time_s, _ in priced)
            for cells, variety, shape, time_s, variance in priced:
                key = tuple(sorted(cells.items()))
                before = found[key].weight if key in found else 0.0
                found[key] = MeasurableOperator(key, variety, shape, before + variance * time_s / whole_s)
    return list(found.values())


def _priced(
    description: Description, policy: str, device: str, names: RowNames
) -> Iterator[tuple[Mapping[str, str | int], str, Shape, float, float]]:
    """Yield each operator's cells, its main kernel's variety and shape, its seconds in a step, its class's variance."""
    first: dict[str, str] = {}
    counts: Counter[str] = Counter()  # of layers with the operator and sizes of each layer that is their first
    for layer in description.layers:
        counts[first.setdefault(f"{layer.operator} {sorted(layer.sizes.items(), key=str)}", layer.name)] += 1
    for part in operator_parts(description, policy, "train", channels_last=policy.endswith("bf16")):
        if part.reason:
            continue
        asked_cells: Mapping[str, str | int] = part.cells
        if policy == "fp8":  # torch has the product of a linear layer's forward pass alone
            sizes = {name: int(part.cells[name]) for name in ("m", "n", "k")} if part.cells["op"] == "linear" else {}
            if not sizes or part.cells["phase"] != "fwd" or any(size % _MULTIPLE for size in sizes.values()):
                continue
            asked_cells = {"op": "matmul", "phase": "fwd", "dtype": "fp8", "batch": 1, **sizes}
        cells: Mapping[str, str] = {**{name: str(value) for name, value in asked_cells.items()}, "device": device}
        try:
            asked = read_operator(lambda column, cells=cells: cells.get(column, ""), names).question  # type: ignore[misc]
            kernels = names.session.kernel_shapes(asked)
        except (NotScored, InputError):
            continue
        variety, shape, _ = max(kernels, key=lambda each: each[2])
        time_s = math.fsum(each[2] for each in kernels) * max(1, counts[part.layer])
        spread = evidence().spread(kernel_chain(variety.partition(" ")[0], "compute", cells["dtype"]))
        variance = (spread.high - spread.low) ** 2 if spread is not None else 1.0
        yield asked_cells, variety, shape, time_s, variance
