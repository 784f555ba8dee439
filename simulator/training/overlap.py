"""Two micro-batches at once: one computes while the other's tokens are on their way to experts and back.

Megatron-Core's ``--overlap-moe-expert-parallel-comm`` (``TransformerModelChunkSchedulePlan.run`` in
megatron/core/models/common/model_chunk_schedule_plan.py) and DualPipe run the forward pass of a micro-batch and the
backward pass of another in turns, each up to its next exchange of experts, which has a stream of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TypeVar

from simulator.step.launch import Launch

_T = TypeVar("_T")


def in_turns(backward: Iterable[_T], forward: Iterable[_T], launch_of: Callable[[_T], Launch]) -> list[_T]:
    """Return both passes as one, each in turn up to and with its next exchanges of experts."""
    both = zip_longest(_stretches(backward, launch_of), _stretches(forward, launch_of), fillvalue=())
    return [each for turn in both for stretch in turn for each in stretch]


def _stretches(items: Iterable[_T], launch_of: Callable[[_T], Launch]) -> Iterator[list[_T]]:
    found: list[_T] = []
    was_sent = False
    for each in items:
        sent = launch_of(each).sent
        is_sent = sent is not None and sent.axis == "ep"
        if was_sent and not is_sent:
            yield found
            found = []
        found.append(each)
        was_sent = is_sent
    yield found


def turns_of(passes: Sequence[Launch], numbers: Sequence[int], *, overlaps: bool) -> Iterator[list[tuple[int, int]]]:
    """Yield the order of *passes*, as (number of the micro-batch, place in passes), from one micro-batch to the next.

    If it *overlaps*, the forward pass of each micro-batch but the first runs with the backward pass of that before.
    """
    first = next((place for place, issue in enumerate(passes) if issue.part == "backward"), len(passes))
    if not overlaps:
        first = len(passes)
    before: list[tuple[int, int]] = []
    for number in numbers:
        yield in_turns(before, [(number, place) for place in range(first)], lambda each: passes[each[1]])
        before = [(number, place) for place in range(first, len(passes))]
    if before:
        yield before
