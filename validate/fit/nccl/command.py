"""What ``validate fit`` does, from its options to its output."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.results.columns import lay_out
from simulator.strategies.nccl.cost import Costs
from validate.collectives.query import COLUMNS_ASKED, Query, read_query
from validate.fit.nccl.fit import fit_both, predicted_s
from validate.fit.nccl.observation import Observation, observe_all
from validate.score.csv_text import MAX_BYTES
from validate.score.machines import MachineBook
from validate.score.query import NotScored, number
from validate.score.statistics import Errors, relative_error, summarise
from validate.score.table import read_table

__all__ = ["fit_command", "rows_of"]

_NEEDED = ("machine", "n_gpus", "collective", "bytes", "time_s")
_SCHEMA_VERSION = 1


def fit_command(
    files: Sequence[str],
    *,
    hold_out: Sequence[str] = (),
    trust: str = "A,B",
    leave_one_out: bool = False,
    as_json: bool = False,
) -> None:
    """Fit NCCL's constants to the tables *files* and print them, with the errors before and after.

    Raises
    ------
    InputError
        Where an option or a table cannot be used.
    MissingDependency
        Where SciPy is not installed.

    """
    if not files:
        raise InputError("a table is needed, for example: validate fit collectives.csv")
    grades = {grade.strip().upper() for grade in trust.split(",")}
    rows = [row for file in files for row in rows_of(file, grades)]
    observations = observe_all(rows, MachineBook())
    machines = list(dict.fromkeys(o.machine for o in observations))
    for name in hold_out:
        if name not in machines:
            raise InputError(
                f"--hold-out: the tables have no machine '{one_line(name, 60)}'; {nearest(name, machines)}"
            )
    fitted = [o for o in observations if o.machine not in hold_out]
    if not fitted:
        raise InputError("no row is left to fit to")
    costs = fit_both(fitted)
    errors: dict[str, Errors] = {
        "fitted": _errors(fitted, costs),
        "held out": _errors([o for o in observations if o.machine in hold_out], costs),
    }
    if leave_one_out:
        for name in machines:
            others = [o for o in observations if o.machine != name]
            if others:
                mine = [o for o in observations if o.machine == name]
                errors[f"{name}, fitted without it"] = _errors(mine, fit_both(others))
    if as_json:
        document = {
            "schema_version": _SCHEMA_VERSION,
            "costs": asdict(costs[1]),
            "earlier_costs": asdict(costs[0]),
            "errors": {name: asdict(e) for name, e in errors.items() if e.n},
        }
        print(json.dumps(_finite(document), indent=2))  # noqa: T201  the command's output
        return
    print(_report(costs, errors))  # noqa: T201  the command's output


def rows_of(file: str, grades: set[str]) -> list[tuple[Query, float]]:
    """Return what is asked and the measured seconds of the rows of *file* with one of *grades*, or without any."""
    try:
        with Path(file).open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(Fault(f"cannot be read: {error.strerror or error}", file)) from None
    table = read_table(raw, file, _NEEDED, (*COLUMNS_ASKED, "time_s", "trust"))
    found = []
    for record in table.rows:
        grade = table.cell(record, "trust").strip().upper()
        if grade and grade not in grades:
            continue
        try:
            asked = {column: table.cell(record, column) for column in COLUMNS_ASKED}
            found.append((read_query(asked.__getitem__), number("time_s", table.cell(record, "time_s"))))
        except NotScored:
            continue  # validate score names such rows
    return found


def _errors(rows: Sequence[Observation], costs: tuple[Costs, Costs]) -> Errors:
    found = []
    for is_recent in (False, True):
        mine = [o for o in rows if o.is_recent == is_recent]
        times = predicted_s(mine, costs[is_recent]) if mine else []
        found += [relative_error(t, o.measured_s) for t, o in zip(times, mine, strict=True)]
    return summarise(found)


def _finite(value: Any) -> Any:
    """Write what is without a limit as null: JSON knows no infinity."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if value == float("inf") else value


def _report(costs: tuple[Costs, Costs], errors: dict[str, Errors]) -> str:
    lines = []
    for name, mine in (("EARLIER_COSTS", costs[0]), ("DEFAULT_COSTS", costs[1])):
        lines += [f"{name} = Costs(", *_constants(mine), ")", ""]
    table = [["rows of", "n", "median", "p90", "mean", "bias"]]
    for name, e in errors.items():
        if e.median_ape is not None and e.p90_ape is not None and e.mean_ape is not None and e.bias is not None:
            percents = [f"{100 * v:.1f} %" for v in (e.median_ape, e.p90_ape, e.mean_ape)]
            table.append([name, str(e.n), *percents, f"{100 * e.bias:+.1f} %"])
    return "\n".join([*lines, *lay_out(table, [False, True, True, True, True, True])])


def _constants(costs: Costs) -> list[str]:
    lines = []
    shared = asdict(costs)
    protocols = shared.pop("protocols")
    lines += [f"    {name}={value!r}," for name, value in shared.items()]
    lines.append("    protocols={")
    for name, cost in protocols.items():
        figures = ", ".join(f"{key}={value!r}" for key, value in cost.items() if value != float("inf"))
        lines.append(f'        "{name}": ProtocolCost({figures}),')
    return [*lines, "    },"]
