"""Print the table of published steps with offload: ``python -m docs.make_offload [TABLE.csv]``.

Each row of ``validate/measurements/published-steps/offload.csv`` has the ``arguments`` of ``simulate``, a ``figure``
(``step``; ``update``; ``adam``, DeepSpeed's or torch's Adam alone on *parameters* elements) and its ``measured_s``.  It
is answered or refused as the command does so; for ranks that are refused as they share cores, the table says what
ranks with cores of their own would take.  Rows that are not ``judged`` say why in their ``note``.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from simulator.api import Session
from simulator.cli import run
from simulator.devices.optimizer import optimizer_kernels
from simulator.devices.predict import kernel_cost
from simulator.questions.where import Where

TABLE = Path(__file__).parents[1] / "validate" / "measurements" / "published-steps" / "offload.csv"
SHARE = "share a host's cores"


class PublishedOffload(NamedTuple):
    """A row with its answer in seconds: None if refused, for which ``why`` is the message."""

    row: dict[str, str]
    predicted_s: float | None
    why: str

    @property
    def error(self) -> float | None:
        """Predicted over measured time, less one; None if refused."""
        return None if self.predicted_s is None else self.predicted_s / float(self.row["measured_s"]) - 1.0


def answered(row: dict[str, str], more: str = "") -> PublishedOffload:
    """Return *row* as ``simulate`` answers it, with *more* arguments."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run([*shlex.split(row["arguments"] + more), "--json"])
    if status == 2:
        return PublishedOffload(row, None, err.getvalue().strip().splitlines()[-1].removeprefix("simulate: "))
    result = json.loads(out.getvalue())["results"][0]
    figures = {"step": result["step_time_s"], "update": result["offload"]["update_s"]}
    seconds = adam(int(row["parameters"])) if row["figure"] == "adam" else figures[row["figure"]]
    return PublishedOffload(row, seconds, "")


def adam(elements: int) -> float:
    """Return the seconds of DeepSpeed's Adam on one CPU of a DGX-2."""
    session, where = Session(), Where("dgx-2")
    cpu = session.places(where).host_of(session.machine(where).node("cpu0").index)
    return sum(kernel_cost(cpu, each, cold=1.0).time_s for each in optimizer_kernels("adam", elements, fused=True))


def rows(path: Path = TABLE) -> list[dict[str, str]]:
    """Return the rows of the table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _lines(path: Path) -> Iterator[str]:
    yield "| published | measured | answer | with cores of their own |"
    yield "|---|--:|--:|--:|"
    for row in rows(path):
        found, own = answered(row), ""
        if SHARE in found.why:
            bound = answered(row, " --bind-cores-to-rank")
            assert bound.predicted_s is not None
            assert bound.error is not None
            own = f"{bound.predicted_s:.3g} s, {100 * bound.error:+.0f} %"
        said = "refused" if found.error is None else f"{found.predicted_s:.3g} s, {100 * found.error:+.0f} %"
        what = row["note"].partition("UNVERIFIED")[0].rstrip("; ")
        size = f", {float(row['parameters']) / 1e9:g} billion" if row["parameters"] else ""
        mark = "" if row["judged"] == "yes" else " (not judged)"
        yield f"| {what}{size} ({row['source']}) | {float(row['measured_s']):g} s | {said}{mark} | {own} |"


if __name__ == "__main__":
    for line in _lines(Path(sys.argv[1]) if len(sys.argv) > 1 else TABLE):
        sys.stdout.write(f"{line}\n")
