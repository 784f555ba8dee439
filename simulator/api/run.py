"""A run of equal steps, with its checkpoints and failures in closed form: :func:`run_of`."""

from contextlib import suppress
from math import inf

from simulator.api.context import Context
from simulator.errors import InputError, mention, refused
from simulator.questions.run import RunQuestion
from simulator.questions.single import CopyQuestion, DiskQuestion
from simulator.questions.step import StepQuestion
from simulator.records import replace
from simulator.results.run import Run
from simulator.results.training import TrainingResult
from simulator.results.training_run import Checkpoints, Cycle, best_interval_s
from simulator.step.memory import state_bytes
from simulator.step.precision import has_master, storage_of, updated_bytes
from simulator.workload.precision import ELEMENT_BYTES


def run_of(context: Context, question: RunQuestion) -> Run:
    """Return the run of *question*; raises InputError where its step or its checkpoints cannot be answered."""
    result = context.step(question.step)
    if question.tokens and not result.tokens:
        raise refused("tokens", f"{result.step.workload} has none; say {mention('samples')}")
    whole, each = (question.tokens, result.tokens) if question.tokens else (question.samples, result.samples)
    steps = max(1, -int(-whole // each))
    saved_bytes = checkpoint_bytes(context, question.step) if question.is_saved else 0.0
    stopped_s, background_s = _writing(context, question, result, saved_bytes)
    mtbf_s = inf
    if question.fails:
        mtbf_s = question.mtbf_s or (question.gpu_mtbf_s or inf) / result.device_count
    every = _every(question, result, stopped_s, background_s, mtbf_s)
    evaluated_s = _evaluation_s(question, result)
    restart_s = question.restart_s + (question.warmup_s if question.fails else 0.0)
    both_s = (every or steps) * result.step_time_s, (every or steps) * evaluated_s
    cycle = Cycle(*both_s, stopped_s, background_s, restart_s, mtbf_s)
    band = result.band
    ends = (None, None) if band is None else (band.low_s, band.high_s)
    return Run(question, result, steps, every, saved_bytes, cycle, question.warmup_s, *ends)


def saves(context: Context, question: RunQuestion, result: TrainingResult) -> bool:
    """Return whether *question*, or the disk of its machine, says how long a checkpoint is written."""
    with suppress(InputError):
        _writing(context, replace(question, mtbf_s=1.0), result, checkpoint_bytes(context, question.step))
        return True
    return False


def _writing(context: Context, question: RunQuestion, result: TrainingResult, n_bytes: float) -> tuple[float, float]:
    """Return the seconds that training stops for a checkpoint, and those of its writing behind training."""
    if not question.is_saved:
        return 0.0, 0.0
    write_s = question.write_s
    if write_s is None and question.storage_Bps is not None:
        write_s = n_bytes / question.storage_Bps
    where = question.step.where
    if write_s is None:
        nodes = len(context.group(where, question.step.gpus).by_host()) if result.device_count > 1 else 1
        disk = DiskQuestion(where=where, kind="write_sequential", block_bytes=n_bytes / nodes)
        try:
            write_s = context.time_s(disk)
        except InputError as error:
            ways = f"{mention('storage_Bps', '100GB/s')}, or {mention('write_s', '30s')}"
            why = f"checkpoints need a disk: {error}; or say how fast a checkpoint is written: {ways}"
            fields = ("every_steps", "mtbf_s", "gpu_mtbf_s")
            given = next(name for name in fields if getattr(question, name) is not None)
            raise refused(given, why) from None
    if not question.asynchronous:
        return write_s, 0.0
    copy = CopyQuestion(where=where, kind="d2h", size_bytes=n_bytes / result.device_count)
    stopped_s = context.time_s(copy)
    return min(stopped_s, write_s), write_s


def _every(question: RunQuestion, result: TrainingResult, stopped_s: float, background_s: float, mtbf_s: float) -> int:
    """Return the steps between checkpoints, as asked or best; never so few that one is written while another is."""
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
    if not question.evaluate_every:
        return 0.0
    parts_s = result.step.parts_s
    passes_s = parts_s.get("forward", 0.0) + parts_s.get("backward", 0.0)
    share = parts_s.get("forward", 0.0) / passes_s if passes_s else 1.0
    forward_s = max(0.0, result.step_time_s - parts_s.get("update", 0.0)) * share
    return forward_s * question.evaluate_samples / result.samples / question.evaluate_every


def checkpoint_bytes(context: Context, question: StepQuestion) -> float:
    """Return the bytes of a checkpoint: parameters, master weights and optimiser state of the network, each once."""
    network, options = context.network(question), question.options
    stored = ELEMENT_BYTES[storage_of(options.precision)]
    kept = updated_bytes(options.precision) + (stored if has_master(options.precision) else 0)
    count, trained = network.parameter_count, network.trained_count
    return trained * kept + (count - trained) * stored + state_bytes(network, options, paged=True)


def with_checkpoints(context: Context, result: TrainingResult) -> TrainingResult:
    """Return *result* with the checkpoints asked for, of the states once, to the first disk; or raise InputError."""
    asked = result.question.checkpoints
    assert asked is not None
    write_s = asked.write_s
    if write_s is None:
        n_bytes = checkpoint_bytes(context, result.question)
        disk = DiskQuestion(where=result.question.where, kind="write_sequential", block_bytes=n_bytes)
        try:
            write_s = context.time_s(disk)
        except InputError as error:
            why = f"{error}; or say how long a checkpoint takes, {mention('write_s', '30s')}"
            raise refused("mtbf_s", why) from None
    steps = asked.every_steps or max(1, round(best_interval_s(write_s, asked.mtbf_s) / result.step_time_s))
    return replace(result, checkpoints=Checkpoints(result.step_time_s, steps, write_s, asked.restart_s, asked.mtbf_s))
