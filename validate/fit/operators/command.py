"""What ``validate fit`` does with tables of operators: constants, and how they do on devices they have not seen."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from simulator.console.progress import Progress
from simulator.console.style import PLAIN, Style, choose_style
from simulator.errors import InputError, nearest, one_line
from simulator.results.columns import lay_out
from validate.fit.operators.families import FAMILIES, Material, constant_lines, read_material
from validate.score.statistics import Errors, summarise

__all__ = ["fit_operators_command"]

_SCHEMA_VERSION = 1
Found = dict[tuple[str, str], list[float]]  # errors by device and operator


@dataclass(frozen=True, slots=True)
class _Task:
    """A fit of *family* without *devices*; *judged* are those whose errors are wanted."""

    family: str
    files: tuple[str, ...]
    trust: str
    without: tuple[str, ...]
    judged: tuple[str, ...]
    is_left_out: bool = False


def fit_operators_command(
    files: Sequence[str],
    *,
    hold_out: Sequence[str] = (),
    trust: str = "A",
    leave_one_out: bool = False,
    only: str | None = None,
    jobs: int = 1,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Fit the constants of the cost models to the tables *files* and print them with their errors.

    Raises
    ------
    InputError
        Where an option or a table cannot be used.
    MissingDependency
        Where SciPy is not installed.

    """
    names = _families(only)
    grades = "".join(sorted({grade.strip().upper() for grade in trust.split(",")}))
    materials = {name: read_material(FAMILIES[name](), files, grades) for name in names}
    names = [name for name in names if materials[name].fitted]
    devices = sorted({device for name in names for device in materials[name].devices})
    for device in hold_out:
        if device not in devices:
            raise InputError(
                f"--hold-out: the tables have no device '{one_line(device, 60)}'; {nearest(device, devices)}"
            )
    if not any(materials[name].without(hold_out).fitted for name in names):
        raise InputError("no row is left to fit to")
    tasks = list(_tasks(names, materials, files, grades, hold_out, leave_one_out=leave_one_out))
    with Progress(len(tasks), "fitting", quiet=quiet) as progress:
        results = []
        for task, result in zip(tasks, _run(tasks, jobs), strict=True):
            results.append((task, *result))
            progress.advance(task.family)
    if as_json:
        text = json.dumps(_document(results, hold_out), indent=2) + "\n"
    else:
        text = _report(results, hold_out, choose_style(sys.stdout))
    sys.stdout.write(text)


def _families(only: str | None) -> list[str]:
    if only is None:
        return list(FAMILIES)
    names = [name.strip() for name in only.split(",")]
    for name in names:
        if name not in FAMILIES:
            raise InputError(f"--only: no class '{one_line(name, 60)}'; {nearest(name, FAMILIES)}")
    return list(dict.fromkeys(names))


def _tasks(
    names: Sequence[str],
    materials: dict[str, Material],
    files: Sequence[str],
    grades: str,
    hold_out: Sequence[str],
    *,
    leave_one_out: bool,
) -> Iterator[_Task]:
    for name in names:
        devices = materials[name].devices
        held = tuple(device for device in hold_out if device in devices)
        if materials[name].without(held).fitted:
            yield _Task(name, tuple(files), grades, held, devices)
        for device in devices if leave_one_out else ():
            left = tuple(dict.fromkeys((*held, device)))
            if materials[name].without(left).fitted:
                yield _Task(name, tuple(files), grades, left, (device,), is_left_out=True)


def _run(tasks: Sequence[_Task], jobs: int) -> Iterator[tuple[list[str], Found]]:
    if jobs == 1 or len(tasks) == 1:
        yield from map(_fit, tasks)
        return
    with ProcessPoolExecutor(min(jobs, len(tasks))) as pool:
        yield from pool.map(_fit, tasks)


def _fit(task: _Task) -> tuple[list[str], Found]:
    """Return the constants as lines, and the errors of the judged devices."""
    family = FAMILIES[task.family]()
    material = read_material(family, task.files, task.trust)
    constants = family.fit(material.without(task.without), task.is_left_out)
    predict = family.predictor(constants)
    found: Found = {}
    for row in material.judged:
        if row.query.device in task.judged:
            error = (predict(row) - row.time_s) / row.time_s
            found.setdefault((row.query.device, row.query.op), []).append(error)
    return constant_lines(constants), found


def _groups(results: Sequence[tuple[_Task, list[str], Found]], hold_out: Sequence[str]) -> Iterator[tuple[str, Errors]]:
    """Yield (what the rows are, their errors): first in the sample of the fit, then of devices left out."""
    groups: dict[str, list[float]] = {}
    by_device: dict[str, list[float]] = {}
    for words in ("fitted", "held out", "fitted without the device"):
        for task, _, found in results:
            for (device, op), errors in found.items():
                unseen = "fitted without the device" if task.is_left_out else "held out"
                if words != (unseen if device in task.without else "fitted"):
                    continue
                groups.setdefault(f"{op}, {words}", []).extend(errors)
                if words == "fitted without the device" or (words == "held out" and len(hold_out) > 1):
                    by_device.setdefault(f"{op}, {device}", errors)
    for name, errors in groups.items():
        yield name, summarise(errors)
    for name, errors in sorted(by_device.items()):
        yield f"  {name}", summarise(errors)


def _left_out(results: Sequence[tuple[_Task, list[str], Found]]) -> Iterator[tuple[str, Errors]]:
    """Yield the errors of devices that a fit had not seen: of all, of each operator, of each device."""
    groups: dict[str, list[float]] = {}
    for task, _, found in results:
        for (device, op), errors in found.items() if task.is_left_out else ():
            for name in ("all", f"op {op}", f"device {device}"):
                groups.setdefault(name, []).extend(errors)
    for name in sorted(groups):
        yield name, summarise(groups[name])


def _report(results: Sequence[tuple[_Task, list[str], Found]], hold_out: Sequence[str], style: Style = PLAIN) -> str:
    lines = []
    for task, constants, _ in results:
        if not task.is_left_out:
            lines += [style.mark(task.family, "bold"), *(f"  {line}" for line in constants), ""]
    table = [["rows of", "n", "median", "p90", "mean", "bias"]]
    for name, e in _groups(results, hold_out):
        if e.median_ape is not None and e.p90_ape is not None and e.mean_ape is not None and e.bias is not None:
            percents = [f"{100 * v:.1f} %" for v in (e.median_ape, e.p90_ape, e.mean_ape)]
            table.append([name, str(e.n), *percents, f"{100 * e.bias:+.1f} %"])
    laid = lay_out(table, [False, True, True, True, True, True])
    return "\n".join([*lines, *laid]) + "\n"


def _document(results: Sequence[tuple[_Task, list[str], Found]], hold_out: Sequence[str]) -> dict[str, Any]:
    return {
        "schema_version": _SCHEMA_VERSION,
        "families": {
            task.family: {"constants": dict(line.split(" = ") for line in constants)}
            for task, constants, _ in results
            if not task.is_left_out
        },
        "held_out": list(hold_out),
        "errors": {name.strip(): asdict(errors) for name, errors in _groups(results, hold_out)},
        "left_out": {name: asdict(errors) for name, errors in _left_out(results)},
    }
