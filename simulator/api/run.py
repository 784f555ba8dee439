"""A whole run of equal steps: :func:`run_of` asks for a step and a checkpoint, and adds failures in closed form."""

from __future__ import annotations

from math import inf

from simulator.api.checkpoints import checkpoint_bytes
from simulator.api.session import Session
from simulator.errors import InputError, refused
from simulator.questions.run import RunQuestion
from simulator.questions.single import CopyQuestion, DiskQuestion
from simulator.results.checkpoints import Cycle, best_interval_s
from simulator.results.run import Run
from simulator.results.training import TrainingResult
from simulator.spelling import mention


def run_of(session: Session, question: RunQuestion) -> Run:
    """Return the run of *question*; raises InputError where its step or its checkpoints cannot be answered."""
    result = session.step(question.step)
    if question.tokens and not result.tokens:
        raise refused("tokens", f"{result.step.workload} has none; say {mention('samples')}")
    whole, each = (question.tokens, result.tokens) if question.tokens else (question.samples, result.samples)
    steps = max(1, -int(-whole // each))
    saved_bytes = checkpoint_bytes(session, question.step) if question.is_saved else 0.0
    stopped_s, background_s = _writing(session, question, result, saved_bytes)
    mtbf_s = inf
    if question.fails:
        mtbf_s = question.mtbf_s or (question.gpu_mtbf_s or inf) / result.device_count
    every = _every(question, result, stopped_s, background_s, mtbf_s)
    evaluated_s = _evaluation_s(question, result)
    cycle = Cycle(
        (every or steps) * result.step_time_s,
        (every or steps) * evaluated_s,
        stopped_s,
        background_s,
        question.restart_s + (question.warmup_s if question.fails else 0.0),
        mtbf_s,
    )
    band = result.band
    ends = (None, None) if band is None else (band.low_s, band.high_s)
    return Run(question, result, steps, every, saved_bytes, cycle, question.warmup_s, *ends)


def _writing(session: Session, question: RunQuestion, result: TrainingResult, n_bytes: float) -> tuple[float, float]:
    """Return the seconds that training stops for a checkpoint, and those of its writing behind training."""
    if not question.is_saved:
        return 0.0, 0.0
    write_s = question.write_s
    if write_s is None and question.storage_Bps is not None:
        write_s = n_bytes / question.storage_Bps
    where = question.step.where
    if write_s is None:
        nodes = len(session.group(where, question.step.gpus).by_host()) if result.device_count > 1 else 1
        disk = DiskQuestion(where=where, kind="write_sequential", block_bytes=n_bytes / nodes)
        try:
            write_s = session.time_s(disk)
        except InputError as error:
            ways = f"{mention('storage_Bps', '100GB/s')}, or {mention('write_s', '30s')}"
            given = next(
                name for name in ("every_steps", "mtbf_s", "gpu_mtbf_s") if getattr(question, name) is not None
            )
            raise refused(
                given, f"checkpoints need a disk: {error}; or say how fast a checkpoint is written: {ways}"
            ) from None
    if not question.asynchronous:
        return write_s, 0.0
    copy = CopyQuestion(where=where, kind="d2h", size_bytes=n_bytes / result.device_count)
    stopped_s = session.time_s(copy)
    return min(stopped_s, write_s), write_s


def _every(question: RunQuestion, result: TrainingResult, stopped_s: float, background_s: float, mtbf_s: float) -> int:
    """Return the steps between checkpoints: as asked, or the best; never so few that one is written while another is.

    What is written behind training delays when a checkpoint is safe by as much whatever the interval, and so does not
    change the best one.
    """
    if not question.is_saved:
        return 0
    least = max(1, -int(-background_s // result.step_time_s))
    if question.every_steps is not None:
        if question.every_steps < least:
            why = f"a checkpoint is written for {least} steps behind training; {least} or more would do"
            raise refused("every_steps", why, question.every_steps)
        return question.every_steps
    return max(least, round(best_interval_s(stopped_s, mtbf_s) / result.step_time_s))


def _evaluation_s(question: RunQuestion, result: TrainingResult) -> float:
    """Return the seconds of evaluation for each step: the forward share of a step, for as many samples."""
    if not question.evaluate_every:
        return 0.0
    parts_s = result.step.parts_s
    passes_s = parts_s.get("forward", 0.0) + parts_s.get("backward", 0.0)
    share = parts_s.get("forward", 0.0) / passes_s if passes_s else 1.0
    forward_s = max(0.0, result.step_time_s - parts_s.get("update", 0.0)) * share
    return forward_s * question.evaluate_samples / result.samples / question.evaluate_every
