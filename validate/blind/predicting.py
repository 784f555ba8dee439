"""Predictions of a table whose measurements nobody has looked at, and their errors once somebody has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from simulator.bands.composition import LEVEL, Band
from simulator.errors import Fault, InputError
from simulator.records import dataclass
from validate.blind.record import BlindErrors
from validate.kinds.kind import Kind
from validate.kinds.row import MeasuredRow, every_row
from validate.score.scoring import Scoring
from validate.tables.cells import figure
from validate.tables.csv_text import csv_bytes, read_records
from validate.tables.names import RowNames
from validate.tables.statistics import relative_error, summarise
from validate.tables.table import Table, read_table, tabulate

_COLUMNS = ("row", "dataset", "predicted_s", "low_s", "high_s", "refused")
_CONTEXT = "context: trust"
_FEWEST = 5  # rows of a data set that are told apart


@dataclass(frozen=True, slots=True)
class BlindPrediction:
    """The predicted seconds of the ``row``, counted from 1, and their band, or why it is ``refused``."""

    row: int
    dataset: str
    predicted_s: float | None
    band: Band | None
    refused: str

    @property
    def is_context(self) -> bool:
        """Whether its grade, known beforehand, keeps it from counting."""
        return self.refused.startswith(_CONTEXT)


def predict_blind(
    questions: bytes,
    kind: Kind,
    scoring: Scoring,
    trust: Sequence[str],
    jobs: int = 1,
    advance: Callable[[], None] = lambda: None,
) -> list[BlindPrediction]:
    """Return the predictions of the rows of *questions*, a table without measured columns.

    Rows of another grade than those of *trust* do not count.  Raises InputError as reading a table does.
    """
    needed = [column for column in kind.needed if column not in kind.measured]
    table = tabulate(read_records(questions, "questions"), "questions", needed, kind.columns, kind.name)
    found = []
    rows = scoring.score(table, kind, trust, jobs=jobs, advance=advance)
    for number, row in enumerate(rows, start=1):
        refused = "" if row.predicted_s is not None else row.skipped or "no prediction"
        if row.grade and row.grade not in trust:
            refused = f"{_CONTEXT} {row.grade}"
        found.append(BlindPrediction(number, row.labels.get("dataset", ""), row.predicted_s, row.band, refused))
    return found


def written_predictions(predictions: Sequence[BlindPrediction]) -> bytes:
    """Return *predictions* as CSV, in the order of the table."""
    rows: list[Sequence[object]] = [_COLUMNS]
    for each in predictions:
        band = ("", "") if each.band is None else (repr(each.band.low_s), repr(each.band.high_s))
        predicted = "" if each.predicted_s is None else repr(each.predicted_s)
        rows.append([each.row, each.dataset, predicted, *band, each.refused])
    return csv_bytes(rows)


def read_predictions(raw: bytes, name: str) -> list[BlindPrediction]:
    """Return the predictions in *raw*, called *name* in messages; raises InputError where it is no such table."""
    table = read_table(raw, name, _COLUMNS, _COLUMNS, "blind predictions")
    return [_prediction(table, row.line, [table.written(row, column) for column in _COLUMNS]) for row in table.rows]


def _prediction(table: Table, line: int, cells: Sequence[str]) -> BlindPrediction:
    of, dataset, predicted, low, high, refused = cells
    predicted_s, low_s, high_s = figure(predicted), figure(low), figure(high)
    if not of.isdecimal() or (predicted_s is None) != (not predicted) or (low_s is None) != (high_s is None):
        raise InputError(Fault("is no blind prediction", table.file, line, 1))
    band = None if low_s is None or high_s is None else Band(LEVEL, low_s, high_s)
    return BlindPrediction(int(of), dataset, predicted_s, band, refused)


def outcomes_of(predictions: Sequence[BlindPrediction]) -> tuple[int, int, dict[str, int]]:
    """Return the numbers of rows that count and of those predicted, and by reason the number of those that are not."""
    count = [each for each in predictions if not each.is_context]
    refused = Counter(each.refused for each in count if each.refused)
    return len(count), len(count) - refused.total(), dict(sorted(refused.items(), key=lambda item: (-item[1], item[0])))


def errors_of(predictions: Sequence[BlindPrediction], table: Table, kind: Kind, names: RowNames) -> list[BlindErrors]:
    """Return the errors of *predictions* on the measured *table*: of all rows, then of each data set with some rows."""
    rows = {number: row for number, row in enumerate(every_row(table, kind, names), start=1) if not row.untimed}
    pairs = [(each, rows[each.row]) for each in predictions if not each.refused and each.row in rows]
    found = [_errors(pairs, "")]
    for name in sorted({each.dataset for each, _ in pairs} - {""}):
        of_name = [(each, row) for each, row in pairs if each.dataset == name]
        found += [_errors(of_name, name)] if len(of_name) >= _FEWEST else []
    return found


def _errors(pairs: Sequence[tuple[BlindPrediction, MeasuredRow]], of: str) -> BlindErrors:
    errors = [relative_error(p.predicted_s, row.time_s) for p, row in pairs if p.predicted_s is not None]
    whole = summarise(errors)
    banded = [(p.band, row.time_s) for p, row in pairs if p.band is not None]
    inside = sum(band.low_s <= time_s <= band.high_s for band, time_s in banded)
    share = round(inside / len(banded), 4) if banded else None
    median, p90, bias = (
        None if each is None else round(each, 4) for each in (whole.median_ape, whole.p90_ape, whole.bias)
    )
    return BlindErrors(whole.n, median, p90, bias, share, len(banded), of)
