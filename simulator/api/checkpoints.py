"""The cost of checkpoints and failures over a run of equal steps: :func:`with_checkpoints`."""

from __future__ import annotations

from simulator.api.context import Context
from simulator.errors import InputError, refused
from simulator.questions.single import DiskQuestion
from simulator.questions.step import StepQuestion
from simulator.records import replace
from simulator.results.checkpoints import Checkpoints, best_interval_s
from simulator.results.training import TrainingResult
from simulator.spelling import mention
from simulator.step.memory import state_bytes
from simulator.step.precision import has_master, storage_of, updated_bytes
from simulator.workload.precision import ELEMENT_BYTES


def checkpoint_bytes(context: Context, question: StepQuestion) -> float:
    """Return the bytes of a checkpoint: parameters, master weights and optimiser state of the network, each once."""
    network, options = context.network(question), question.options
    stored = ELEMENT_BYTES[storage_of(options.precision)]
    kept = updated_bytes(options.precision) + (stored if has_master(options.precision) else 0)
    count, trained = network.parameter_count, network.trained_count
    return trained * kept + (count - trained) * stored + state_bytes(network, options, paged=True)


def with_checkpoints(context: Context, result: TrainingResult) -> TrainingResult:
    """Return *result* with the checkpoints that its question asks for.

    A checkpoint holds the parameters and the optimiser state once, written to the first disk of the first node.  Raises
    InputError if its time is not given and that disk has no write rate.
    """
    asked = result.question.checkpoints
    assert asked is not None
    write_s = asked.write_s
    if write_s is None:
        n_bytes = checkpoint_bytes(context, result.question)
        disk = DiskQuestion(where=result.question.where, kind="write_sequential", block_bytes=n_bytes)
        try:
            write_s = context.time_s(disk)
        except InputError as error:
            raise refused(
                "mtbf_s", f"{error}; or say how long a checkpoint takes, {mention('write_s', '30s')}"
            ) from None
    best_s = best_interval_s(write_s, asked.mtbf_s)
    steps = asked.every_steps or max(1, round(best_s / result.step_time_s))
    found = Checkpoints(result.step_time_s, steps, write_s, asked.restart_s, asked.mtbf_s)
    return replace(result, checkpoints=found)
