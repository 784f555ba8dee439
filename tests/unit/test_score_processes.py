"""Scoring in several processes: the same rows, in the same order, as in one."""

import multiprocessing

import pytest

from simulator.api import Session
from simulator.errors import SimulationError
from validate.kinds import STEPS
from validate.kinds.kind import RowQuestion
from validate.score import scoring as module
from validate.score.scoring import Scoring, ScoringOptions, in_processes
from validate.tables.names import RowNames
from validate.tables.table import read_table

_ROWS = [
    "dgx-h100,8,alexnet,32,ddp,fp32,0.01",
    "dgx-h100,1,resnet50,8,,fp32,0.02",
    "dgx-h100,1,resnet50,8,,fp32,0.02,one too many",
    "no-such-machine,1,resnet50,8,,fp32,0.02",
    "dgx-h100,8,alexnet,32,ddp,fp32,0.01",
    "1x-rtx-3090,1,alexnet,64,,fp32,0.03",
]


def _table():
    text = "\n".join(["machine,n_gpus,model,batch_per_gpu,sync,dtype,step_time_s", *_ROWS])
    return read_table(text.encode(), "steps.csv", STEPS.needed, STEPS.columns, STEPS.name)


@pytest.mark.slow
def test_processes_give_the_same_rows_in_order(monkeypatch) -> None:
    monkeypatch.setattr(module, "_MANY", 1)
    scoring = Scoring(ScoringOptions())
    alone, together = (list(scoring.score(_table(), STEPS, ("A", "B"), jobs=jobs)) for jobs in (1, 2))
    assert together == alone
    assert [row.skipped == "" for row in alone] == [True, True, False, False, True, True]
    assert not multiprocessing.active_children()


def _asked(**said: str) -> RowQuestion:
    return STEPS.question(lambda column: said.get(column, ""), RowNames())


def test_no_process_stays_where_the_rows_are_left_early() -> None:
    known = _asked(machine="1x-rtx-3090", model="resnet18", batch_per_gpu="8")
    refused = _asked(machine="1x-rtx-3090", model="resnet18", batch_per_gpu="8", channels_last="1", seq_len="7")
    rows = in_processes(Session(), 2, [known, refused, known])
    assert next(rows).predicted_s
    assert next(rows).skipped
    rows.close()
    assert not multiprocessing.active_children()


def test_a_process_that_is_killed_is_told() -> None:
    said = {"machine": "1x-rtx-3090", "model": "resnet18"}
    batches = map(str, range(8, 400))
    rows = in_processes(Session(), 1, [_asked(**said, batch_per_gpu=batch) for batch in batches])
    assert next(rows).predicted_s
    (child,) = multiprocessing.active_children()
    child.kill()
    with pytest.raises(SimulationError, match="--jobs"):
        list(rows)
    assert not multiprocessing.active_children()
