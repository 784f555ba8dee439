"""Make ``simulator/bands/memory.json`` from measured memory: ``python docs/make_memory_band.py TABLE.csv...``.

Three kinds of rows state the memory of a step, by their columns: ``arguments`` of ``simulate`` with ``measured_gb`` and
``what`` the figure is; ``arguments``, or a ``launch`` line with ``machine``, with any of ``max_allocated_gib``,
``max_reserved_gib`` and ``smi_gib``, and the ``stage`` of a pipeline (otherwise the fullest); and rows of training
steps whose ``note`` states a whole number of GB that ``nvidia-smi`` showed (taken as GiB).  With ``--table`` it prints
the errors by figure and source as Markdown instead.  A band is made of the figure of each row that counts most.
"""

from __future__ import annotations

import contextlib
import csv
import json
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from math import log
from pathlib import Path
from statistics import median
from typing import NamedTuple

from simulator.api import Session
from simulator.bands.composition import LEVEL, MEMORY_CLASSES
from simulator.cli import read
from simulator.cli.step_questions import ask_steps
from simulator.errors import SimulationError
from simulator.questions.step import StepQuestion
from simulator.step.memory import MemoryNeed
from validate.kinds import KINDS
from validate.kinds.kind import every_row, read_measurements
from validate.tables.names import RowNames
from validate.tables.table import PUBLISHED, made_complete, read_conventions, read_table

OUT = Path(__file__).parents[1] / "simulator" / "bands" / "memory.json"
_STATED = re.compile(r"\bmem(?:ory)? (\d+) ?G")
_FIGURES = {"allocated": "allocated_bytes", "reserved": "reserved_bytes", "smi": "process_bytes"}
_SESSION = Session()
_COLUMNS = {"max_allocated_gib": "allocated", "max_reserved_gib": "reserved", "smi_gib": "smi"}


class StatedMemory(NamedTuple):
    """One measured figure with its prediction, in bytes; ``framework`` is its class of frameworks.

    ``counts_most``: no other figure of the row counts more.
    """

    framework: str
    source: str
    figure: str
    measured_bytes: float
    predicted_bytes: float
    counts_most: bool = True

    @property
    def error(self) -> float:
        """log(measured / predicted)."""
        return log(self.measured_bytes / self.predicted_bytes)


# -- errors and their quantiles --------------------------------------------------------


def share_quantile(weighted: Sequence[tuple[float, float]], share: float) -> float:
    """Return the least value of (value, weight) pairs with at least *share* of the weight at or below it."""
    ordered, reached = sorted(weighted), 0.0
    whole = sum(weight for _, weight in ordered)
    for value, weight in ordered:
        reached += weight
        if reached >= share * whole * (1.0 - 1e-12):
            return value
    return ordered[-1][0]


def spread_of(errors: Mapping[str, Sequence[float]]) -> tuple[float, float]:
    """Return the quantiles that hold ``LEVEL`` of *errors* by source; all sources weigh the same."""
    alike = [(error, 1.0 / len(found)) for found in errors.values() for error in found]
    low = -share_quantile([(-error, weight) for error, weight in alike], (1.0 + LEVEL) / 2)
    return min(0.0, low), max(0.0, share_quantile(alike, (1.0 + LEVEL) / 2))


def inside_left_out(errors: Mapping[str, Sequence[float]], margin: float) -> float:
    """Return the share of rows inside the quantiles of the other sources, widened by *margin*.

    All sources weigh the same.
    """
    inside = [sum(beyond <= margin + 1e-12 for beyond, _ in _beyond(errors, each)) for each in errors]
    shares = [count / len(found) for count, found in zip(inside, errors.values(), strict=True)]
    return sum(shares) / len(shares)


def margin_of(errors: Mapping[str, Sequence[float]]) -> float:
    """Return the least margin with which ``LEVEL`` of rows lie inside the quantiles of the other sources."""
    return share_quantile([each for source in errors for each in _beyond(errors, source)], LEVEL)


def _beyond(errors: Mapping[str, Sequence[float]], source: str) -> list[tuple[float, float]]:
    """Return by how much each row of *source* exceeds the quantiles of the others, with its weight."""
    low, high = spread_of({name: found for name, found in errors.items() if name != source})
    return [(max(0.0, low - error, error - high), 1.0 / len(errors[source])) for error in errors[source]]


# -- rows ------------------------------------------------------------------------------


def stated_memory(file: Path) -> Iterator[StatedMemory]:
    """Yield the rows of *file* that state memory and can be asked; tells of others on standard error."""
    with file.open(encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    columns = rows[0].keys()
    if "measured_gb" in columns:
        for row in rows:
            figure = next((word for word in _FIGURES if word in row["what"].split(",")[0]), "not stated")
            stated = {figure: float(row["measured_gb"]) * 1e9}
            yield from _answered(row["arguments"].split(), file, row["source"], stated)
    elif not _COLUMNS.keys().isdisjoint(columns):
        for row in rows:
            asked = shlex.split(row.get("arguments", "")) or ["--topology", row["machine"], "--launch", row["launch"]]
            stated = {figure: float(row[name]) * 2**30 for name, figure in _COLUMNS.items() if row.get(name)}
            yield from _answered(asked, file, row["source"], stated, row.get("stage", ""))
    else:
        yield from _noted(file)


def _answered(
    asked: list[str], file: Path, source: str, stated: Mapping[str, float], stage: str = ""
) -> Iterator[StatedMemory]:
    try:
        with contextlib.chdir(file.parent):
            session, (question, *_) = ask_steps(read(asked).written, _SESSION)  # type: ignore[attr-defined]
            devices = [session.memory(question)] if not stage else _of_stage(session, question, int(stage))
    except SimulationError as error:
        sys.stderr.write(f"{file.name}: {source}: {str(error)[-200:]}\n")
        return
    need = max(devices, key=lambda device: device.total_bytes)
    framework = MEMORY_CLASSES.get(question.options.framework)
    assert framework is not None
    for figure, stated_bytes in stated.items():
        predicted_bytes = getattr(need, _FIGURES.get(figure, "allocated_bytes"))
        counts_most = figure == list(stated)[-1]
        yield StatedMemory(framework, _repository(source), figure, stated_bytes, predicted_bytes, counts_most)


def _of_stage(session: Session, question: StepQuestion, stage: int) -> list[MemoryNeed]:
    return [device.need for device in session.step(question).memory if device.stage == stage]


def _noted(file: Path) -> Iterator[StatedMemory]:
    table, kind = read_measurements(str(file), KINDS)
    whole, _ = made_complete(table, read_conventions(PUBLISHED))  # what authors say elsewhere, such as ZeRO's stage
    table = read_table(whole, file.name, kind.needed, kind.columns, kind.name)
    session = Session()
    for row in every_row(table, kind, RowNames()):
        stated = _STATED.search(row.cells.get("note", "") or table.cell(row.record, "note"))
        if stated is None:
            continue
        try:
            if row.asked is None:
                raise SimulationError(row.skipped)
            question = row.asked.question
            assert isinstance(question, StepQuestion)
            need = session.memory(question)
        except SimulationError as error:
            sys.stderr.write(f"{file.name}:{row.line}: {error}\n")
            continue
        framework = MEMORY_CLASSES.get(question.options.framework)
        assert framework is not None
        source = table.cell(row.record, "source")
        yield StatedMemory(framework, _repository(source), "smi", float(stated[1]) * 2**30, need.process_bytes)


def _repository(source: str) -> str:
    """Return the owner and name of the repository that *source* starts with."""
    return "/".join(re.split(r"[#@: ]", source)[0].split("/")[:2])


# -- what is made of them --------------------------------------------------------------


def by_framework(rows: Sequence[StatedMemory]) -> dict[str, dict[str, list[float]]]:
    """Return the errors of *rows* by class of frameworks, then by source; of each row the figure that counts most."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in filter(lambda each: each.counts_most, rows):
        found.setdefault(row.framework, {}).setdefault(row.source, []).append(row.error)
    return found


def memory_json(rows: Sequence[StatedMemory]) -> str:
    """Return the quantiles of *rows* by class of frameworks, as JSON; one of fewer than three sources has none."""
    entries = []
    for framework, errors in sorted(by_framework(rows).items()):
        if len(errors) < 3:
            continue
        (low, high), margin = spread_of(errors), margin_of(errors)
        entry = {"framework": framework, "sources": {name: len(found) for name, found in sorted(errors.items())}}
        entry |= {"low": round(low - margin, 3), "high": round(high + margin, 3)}
        entry |= {"inside": [round(inside_left_out(errors, each), 3) for each in (0.0, margin)]}
        entries.append(json.dumps(entry))
    return "[\n  " + ",\n  ".join(entries) + "\n]\n"


def memory_table(rows: Sequence[StatedMemory]) -> str:
    """Return the errors of *rows* by source and figure, as a Markdown table."""
    groups: dict[tuple[str, str, str], list[float]] = {}
    for row in rows:
        key = row.framework, row.source, row.figure
        groups.setdefault(key, []).append(row.predicted_bytes / row.measured_bytes - 1.0)
    lines = ["| framework | source | figure | rows | median | largest | bias |", "|---|---|---|--:|--:|--:|--:|"]
    for (framework, source, figure), errors in sorted(groups.items()):
        sizes, bias = sorted(map(abs, errors)), sum(errors) / len(errors)
        figures = f"{median(sizes) * 100:.1f} % | {sizes[-1] * 100:.1f} % | {bias * 100:+.1f} %"
        lines.append(f"| {framework} | {source} | {figure} | {len(errors)} | {figures} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Read the tables that *arguments* name, and write the JSON or print the table."""
    rows = [row for name in arguments if name != "--table" for row in stated_memory(Path(name).resolve())]
    if "--table" in arguments:
        sys.stdout.write(memory_table(rows))
    else:
        OUT.write_text(memory_json(rows), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
