"""The command ``validate design``: which operators to measure, those whose times narrow most what is not known of all.

The choice (:func:`chosen`) is from the operators of networks, with what each weighs in their steps
(:func:`candidates_of`), by the correlations of calibration (docs/decisions/calibration.md).  All mechanisms are equally
unknown, as tables that others measured know little of some.  No measured time is read.
"""

import json
import math
import random
import sys
from collections.abc import Hashable, Iterator, Mapping, Sequence
from hashlib import sha256
from operator import attrgetter
from statistics import fmean, median
from typing import Any

import numpy as np

from simulator.api import Session
from simulator.api.calibrations import StepKernel, kernel_shapes, longest_kernel, places_of, step_kernels
from simulator.cli.options import parse_count
from simulator.cli.table import table_of
from simulator.console import choose_style
from simulator.errors import InputError
from simulator.questions.calibration import Shape
from simulator.questions.checks import From
from simulator.questions.options import StepOptions
from simulator.questions.single import OperatorQuestion
from simulator.questions.where import Where
from simulator.records import dataclass, field, lists_by_key, own_data, replace
from simulator.workload.described import network_document
from simulator.workload.find import find_network
from simulator.workload.kernels import Kernel, Rowwise, Streaming
from simulator.workload.network import Network
from simulator.workload.precision import ELEMENT_BYTES
from validate.cli.command import Given, give, print_result
from validate.constants.calibrate import NEAR, NOISE, fit_calibration
from validate.constants.families import calibrating_rows, countable, read_rows
from validate.kinds.kind import MeasuredRow
from validate.kinds.operators import read_operator
from validate.machine.measure.built.description import Description, description_of, operator_parts
from validate.tables.cells import NotScored
from validate.tables.names import RowNames, part_called

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


NETWORKS: tuple[tuple[str, int], ...] = tuple(own_data("validate.constants", "families.yaml")["networks"].items())
POLICIES: Mapping[str, float] = {"amp-bf16": 1.0, "bf16": 0.7, "tf32": 0.5, "fp32": 0.3, "fp8": 0.5}
"""Formats, and what a step in each weighs: most training is under autocast or wholly in bf16 (chosen)."""
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


_AMOUNT = From(1, 100_000)
_DRAWS, _LAYERS = 3, 8
_LAYER = own_data("validate.constants", "families.yaml")["layer"].split()  # cells that do not grow with a batch
_MOST = 1.0  # an error counts up to this


def design_command(given: Given) -> None:
    """Choose the operators whose measured times narrow predictions most."""
    workload = given.workload
    part = part_called(given.device or "h100-sxm5-80gb")
    usual = "60,200,600" if given.files else "600"
    counts = [parse_count("count", text, _AMOUNT) for text in (given.count or usual).split(",")]
    if given.files:
        print_result("\n".join(_compared(given.files, part, counts, given.grades(usual="A"))) + "\n")
        return
    networks = NETWORKS
    if workload is not None:
        batch = parse_count("batch", given.batch or "1", _AMOUNT)
        networks = tuple((name.strip(), batch) for name in workload.split(","))
    with given.opened("out") as output:
        found = chosen(candidates_of(Session(), part, networks), max(counts))
        lines = ",\n".join(json.dumps(dict(each.key), separators=(", ", ": ")) for each in found)  # type: ignore[call-overload]
        give(f'{{"schema_version": 1, "operators": [\n{lines}\n]}}\n', output)
    of = f"{len(networks)} network{'s' if len(networks) > 1 else ''}"
    given.remark([f"chose {len(found)} operators of {of}"])


def _compared(files: Sequence[str], part: str, counts: Sequence[int], trust: Sequence[str]) -> list[str]:
    """Return lines with the errors that calibrations on chosen and on random rows of *part* leave on asked rows.

    Rows are divided into halves by hash: one to choose from, one to judge.  Of the latter, a workload is an eighth of
    the layers: rows that differ in the sizes that grow with a batch alone, chosen by hash, anew in each draw.
    """
    names = RowNames()
    mine = [row for row in read_rows(files, names, ("operators",)) if names.devices.part(row.place) == part]
    usable = countable(mine, names.session, trust)
    rows = calibrating_rows(usable, {row.digest for row in usable})
    halves: tuple[list[MeasuredRow], list[MeasuredRow]] = ([], [])
    for row in rows:
        halves[_hashed("half", row.digest) % 2].append(row)
    judges, pool = halves
    if len(pool) < 2 * min(counts):
        raise InputError(f"{part}: {len(pool)} rows to choose from, which are too few for {min(counts)}")
    by_key = {row.digest: row for row in pool}
    measurable = [_operator(row, names.session, 0.0) for row in pool]
    found: dict[tuple[int, str], list[float]] = {}
    for draw in range(_DRAWS):
        asked = [row for row in judges if _hashed(str(draw), _layer(row)) % _LAYERS == 0]
        found.setdefault((0, ""), []).extend(row.asks.time_s(names.session) / row.time_s - 1.0 for row in asked)
        wanted = [replace(_operator(row, names.session, 1.0), measurable=False) for row in asked]
        for number in (count for count in counts if 2 * count <= len(pool)):
            more = random.Random(draw).sample(pool, min(len(pool), 3 * number))
            for name, some in (
                ("chosen", [by_key[str(each.key)] for each in chosen([*measurable, *wanted], number)]),
                ("random", more[:number]),
                ("three times as many", more),
            ):
                session = names.session.calibrated({part: fit_calibration(names.session, part, some).calibration})
                errors = found.setdefault((number, name), [])
                errors += [row.asks.time_s(session) / row.time_s - 1.0 for row in asked]
    bare = found.pop((0, ""))
    head = f"{part}: {len(pool)} rows to choose from, {len(bare)} judge; median, mean error"
    lines = [["operators", "chosen", "random", "three times as many"]]
    for number in dict.fromkeys(number for number, _ in found):
        lines.append([str(number), *(_errors(found[number, name]) for name in lines[0][1:])])
    return [
        f"{head}; uncalibrated {_errors(bare)}",
        *table_of(lines, (True, True, True, True), choose_style(sys.stdout)),
    ]


def _hashed(*words: str) -> int:
    return int.from_bytes(sha256(" ".join(words).encode()).digest()[:8], "big")


def _layer(row: MeasuredRow) -> str:
    """Return the cells of a row but those that grow with a batch."""
    return "|".join(f"{name}={row.cells[name]}" for name in _LAYER if row.cells.get(name))


def _errors(errors: Sequence[float]) -> str:
    sizes = [min(_MOST, abs(error)) for error in errors]
    return f"{100 * median(sizes):.1f} {100 * fmean(sizes):.1f} %"


def _operator(row: MeasuredRow, session: Session, weight: float) -> MeasurableOperator:
    variety, shape, _ = max(kernel_shapes(session, row.asks.question), key=lambda each: each[2])
    return MeasurableOperator(row.digest, variety, shape, weight)
