"""Words for readers in place of the names used in code, of which ``words.json`` has those that need no rule."""

from __future__ import annotations

from simulator.results import WORDS
from simulator.results.step import StepResult
from simulator.results.training_run import Alternative, TrainingRun
from simulator.workload.operators import CLASSES

LINK_WORDS, BOUND_WORDS, INPUT_WORDS = WORDS["links"], WORDS["bounds"], WORDS["input"]
MODE_WORDS, FORMAT_WORDS, SHARE_WORDS = WORDS["modes"], WORDS["formats"], WORDS["shares"]


def kernel_words(name: str) -> str:
    """Return what readers call the class *name* of kernels."""
    return CLASSES[name].word if name in CLASSES else name


def bound_words(result: TrainingRun) -> str:
    """Return what bounds a step; if it waits for input, with the stage of the input."""
    name = result.bound
    words = BOUND_WORDS[name]
    return f"{words}: {INPUT_WORDS[result.input.bound]}" if result.input is not None and name == "input" else words


def precision_words(result: StepResult) -> str:
    """Return the precision of a step; for PyTorch's default, the formats that this means on the device."""
    if result.options.precision != "torch":
        return result.options.precision
    return "fp32, convolutions in TF32 where faster" if result.flop_by_format.get("tf32") else "fp32"


def change_words(other: Alternative, result: TrainingRun) -> str:
    """Return the change; with another batch, also the samples that its time is for: of a device, or of all together."""
    question, step = result.question, result.step
    if other.samples == question.programs * question.batch * question.micro_batches:
        return other.change
    samples = result.samples if result.shares else step.samples
    return f"{other.change}, for {samples} {step.sample if samples != 1 else step.sample[:-1]}"


def device_words(result: TrainingRun) -> str:
    """Return the devices by part: ``8 x v100-sxm2-16gb``."""
    return " and ".join(f"{count} x {part}" if count > 1 else part for part, count in result.parts.items())


def divided_words(result: TrainingRun) -> str:
    """Return how the devices divide the step and exchange."""
    layout = result.question.layout
    if layout.divides_network or layout.zero in (1, 2) or layout.process != "each" or result.servers is not None:
        return result.way
    return f"FSDP, {result.strategy}{result.question.forced}" if layout.zero else f"DDP, {result.way}"
