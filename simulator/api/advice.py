"""Advice on a step: changes that make it faster, and changes that make it fit in memory (:func:`advised`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

from simulator.api.context import Context
from simulator.api.outcome import faster, samples_words, with_change, with_size
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.rates import holds_back
from simulator.devices.predict import Device, rested_device, steady_device
from simulator.errors import InputError
from simulator.questions.checks import changed
from simulator.questions.options import SamplesOption
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.records import replace
from simulator.results.step import StepResult
from simulator.results.training import TrainingResult
from simulator.results.training_run import NOT_TRIED, StepClock
from simulator.spelling import word_of
from simulator.step.changes import Change, possible_changes
from simulator.step.issue import launches_of

_OF_THE_UPDATE = {"optimizer", "fused_optimizer"}  # irrelevant with servers, which run the update at memory rate
# A step with more simulation events is simulated once, without trying changes; an event of servers costs more.
_MOST_EVENTS, _MOST_EVENTS_OF_SERVERS = 50_000, 20_000
_MATTERS = 0.03  # of the kernels' time: a clock that costs less is not told


def advised(context: Context, question: StepQuestion, samples: SamplesOption = "batch") -> TrainingResult:
    """Return *result* with faster ``alternatives``, and ``remedies`` if it does not fit; *samples* says what is cut."""
    result = context.step(question)
    if result.input is not None:
        from simulator.api.input import with_input_cures

        result = with_input_cures(context, question, result)
    count = result.device_count
    device = context.device(question.where, result.step.device, question.threads, question.software)
    result = replace(result, clock=_clock(result.step, device))
    is_fed = result.input is None or not result.input.is_slower  # otherwise only a faster input makes the step faster
    most_events = _MOST_EVENTS_OF_SERVERS if question.has_servers else _MOST_EVENTS
    is_small = result.step.simulation_events <= most_events
    notes = result.notes if is_small or not is_fed else (*result.notes, NOT_TRIED)
    if not result.fits:
        from simulator.api.fitting import StepFitting, remedies_of

        timed = is_small and question.layout.pp == 1  # to simulate all stages again takes long
        remedies = remedies_of(StepFitting(context, question, result, device, samples, count), timed=timed)
        return replace(result, remedies=remedies, notes=notes)
    ways = ((words, context, asked) for words, asked in _ways(context, question, device, samples, several=count > 1))
    alternatives = faster(result.step_time_s, question, ways) if is_fed and is_small else ()
    return replace(result, alternatives=alternatives, notes=notes)


def _clock(step: StepResult, device: Device) -> StepClock | None:
    """Return what the clock of a long run costs *step* on *device*; None for CPUs and where it hardly matters."""
    if not isinstance(device, Gpu):
        return None
    steady, rested = steady_device(device), rested_device(device)
    if isinstance(steady, Gpu) and not holds_back(steady, rested, _MATTERS):
        return None
    runs = (launches_of(each, step.network, step.options) for each in (device, rested))
    kernels_s, rested_s = (sum(launch.device_s for launch in launches) for launches in runs)
    if rested_s > kernels_s * (1.0 - _MATTERS):
        return None
    bursts = device.above_boost or device.burst > 1.0
    state: Literal["sustained", "held", "measured"] = "sustained" if bursts else "held"
    return StepClock("measured" if device.calibration.clocks else state, kernels_s, rested_s, device.board_power_W)


def faster_options(question: StepQuestion, device: Device) -> Iterator[tuple[Change, StepQuestion]]:
    """Yield the changes of options that may make the step of *question* faster, each with the question."""
    for change in possible_changes(question.options, device):
        if change.time:
            with suppress(InputError):  # the optimiser or the loss waits for the device
                yield change, with_change(change, question)


def _ways(
    context: Context, question: StepQuestion, device: Device, samples: SamplesOption, *, several: bool
) -> Iterator[tuple[str, StepQuestion]]:
    if question.layout.pp > 1:  # each would simulate all stages
        return
    for words, setting in context.source(question).variants:
        yield words, with_size(question, setting)
    for change, asked in faster_options(question, device):
        if not (question.has_servers and change.options.keys() <= _OF_THE_UPDATE):
            yield change.words, asked
    if several and question.layout.zero < 3 and not question.bucket_bytes:
        yield f"{word_of('overlap')} bucket:25MiB", replace(question, bucket_bytes=BUCKET_BYTES)
    if question.offload != "none":
        yield f"{word_of('offload')} none", changed(question, offload="none")
        if question.layout.zero in (1, 2) and not question.round_robin:
            yield word_of("round_robin_gradients"), changed(question, round_robin=True)
    twice = replace(question, batch=2 * question.batch)
    if samples == "batch":
        yield samples_words(samples, twice), twice
    elif question.micro_batches % 2 == 0:
        whole = replace(twice, micro_batches=question.micro_batches // 2)
        yield samples_words(samples, whole), whole
