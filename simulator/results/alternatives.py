"""What would be faster: the same step with one thing changed, simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from simulator.errors import InputError
from simulator.results.step import Alternative, StepResult
from simulator.step.options import Policy, StepOptions

__all__ = ["with_alternatives"]

_WORTH_SAYING = 1.03  # times as fast


def with_alternatives(
    result: StepResult,
    batch: int,
    run: Callable[[StepOptions, int], StepResult],
    others: Mapping[str, Callable[[], StepResult]],
) -> StepResult:
    """Return *result* with the changes that make it faster, the best first.

    *run* simulates other options and batch sizes, *others* other ways to compute the network, by their
    words.  A change that the device has no figures for is left out; one that does not fit in memory says
    so.  A larger batch is compared at equal samples.
    """
    found: list[Alternative] = []
    ways: list[tuple[str, Callable[[], StepResult], int]] = [(words, way, batch) for words, way in others.items()]
    for words, options, size in _changes(result.options, batch, on_host=result.on_host):
        ways.append((words, partial(run, options, size), size))
    for change, way, size in ways:
        try:
            other = way()
        except InputError:
            continue
        step_time_s = other.step_time_s * batch / size
        if step_time_s * _WORTH_SAYING < result.step_time_s:
            found.append(Alternative(change, step_time_s, other.memory.fits))
    found.sort(key=lambda other: round(other.step_time_s, 12))
    return replace(result, alternatives=tuple(found))


def _changes(options: StepOptions, batch: int, *, on_host: bool) -> Iterator[tuple[str, StepOptions, int]]:
    policies: dict[Policy, tuple[Policy, ...]] = {
        "fp32": ("tf32", "amp-fp16", "amp-bf16"),
        "torch": ("tf32", "amp-fp16", "amp-bf16"),
        "tf32": ("amp-fp16", "amp-bf16"),
    }
    for policy in policies.get(options.precision, ()):
        yield f"--precision {policy}", replace(options, precision=policy), batch
    if not options.channels_last and not on_host:
        yield "--channels-last", replace(options, channels_last=True), batch
    if not options.compiled:
        yield "--compile", replace(options, compiled=True), batch
    if not options.cuda_graph and not on_host:
        yield "--cuda-graph", replace(options, cuda_graph=True), batch
    yield f"--batch {2 * batch} (half a step)", options, 2 * batch
