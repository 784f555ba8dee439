"""The steps of a built network, grouped into recomputed parts and blocks that are modules."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

Recompute = Literal["", "full", "selective", "operators"]


@dataclass(slots=True)
class ForwardCall:
    """A call of the forward pass: the tensors it reads and writes, by number, and those it is the last to use."""

    call: Callable[..., Any]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    block: str
    mixes: bool = False
    over: tuple[int, ...] = ()
    module: Any = None  # holds the step's parameters


Steps = Sequence[ForwardCall]


class SpanPart(NamedTuple):
    """Consecutive steps, the tensors that enter and that leave them, and whether the backward pass runs them again."""

    steps: Steps
    inside: tuple[int, ...]
    outside: tuple[int, ...]
    again: bool = False

    def returned(self, *given: Any) -> tuple[Any, ...]:
        """Return the tensors that leave the steps, for those *given* that enter them."""
        own = dict(zip(self.inside, given, strict=True))
        _run(self.steps, own)
        return tuple(own[n] for n in self.outside)


def end(steps: Sequence[ForwardCall], outputs: Sequence[int]) -> None:
    """Set what each step drops: the tensors that no later step reads, as local variables of a module would go."""
    kept = set(outputs)
    for step in reversed(steps):
        numbers = dict.fromkeys((*step.reads, *step.writes))
        step.over = tuple(n for n in numbers if n not in kept)
        kept.update(numbers)


def _run(steps: Sequence[ForwardCall], values: dict[int, Any]) -> None:
    for step in steps:
        result = step.call(*[values[n] for n in step.reads])
        if len(step.writes) == 1:
            values[step.writes[0]] = result
        else:
            values.update(zip(step.writes, result, strict=True))
        del result
        for number in step.over:
            values.pop(number, None)


def _contexts() -> tuple[Any, Any]:
    """Return contexts of a block that keep attention and every second product, as torchtitan's checkpointing."""
    aten, ways = torch.ops.aten, ("flash", "efficient", "cudnn")
    attention = {getattr(aten, f"_scaled_dot_product_{way}_attention").default for way in ways}
    attention.add(aten._scaled_dot_product_flash_attention_for_cpu.default)
    products = {aten.mm.default, aten.addmm.default}
    counts = {False: 0, True: 0}  # of the forward pass, and of its repetition

    def policy(context: Any, operator: Any, *_args: Any, **_kwargs: Any) -> Any:
        if operator in products:
            counts[context.is_recompute] += 1
        keeps = operator in attention or (operator in products and counts[context.is_recompute] % 2 == 1)
        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE

    found: tuple[Any, Any] = create_selective_checkpoint_contexts(policy)
    return found


class StepsModule(nn.Module):  # type: ignore[misc]
    """Consecutive steps as a module; *apart*: it is a repeated block, called as a module.

    *parts* divide the *whole* of its steps; those that run again in the backward pass do as *how* says.
    """

    def __init__(self, whole: SpanPart, parts: Sequence[SpanPart], how: Mapping[str, Any], *, apart: bool) -> None:
        super().__init__()
        self.parts, self.how, self.apart = tuple(parts), how, apart
        self.steps, self.inside, self.outside, _ = whole
        self.layers = nn.ModuleList(step.module for step in self.steps if step.module is not None)

    def go(self, values: dict[int, Any]) -> None:
        """Run the steps on *values*, tensors by number."""
        for part in self.parts:
            if not part.again or not torch.is_grad_enabled():
                _run(part.steps, values)
                continue
            pass_through(part, values, partial(checkpoint, part.returned, use_reentrant=False, **self.how))

    def forward(self, *given: Any) -> tuple[Any, ...]:
        """Return the tensors that later steps read, for the inputs *given*."""
        values = dict(zip(self.inside, given, strict=True))
        self.go(values)
        return tuple(values[n] for n in self.outside)


def pass_through(part: SpanPart | StepsModule, values: dict[int, Any], call: Callable[..., Any]) -> None:
    """Replace in *values* the tensors that no step after *part* reads by what *call* returns of those that enter it."""
    given = [values[n] for n in part.inside]
    for number in {n for step in part.steps for n in step.over} & set(values):
        del values[number]
    values.update(zip(part.outside, call(*given), strict=True))


def spans(steps: Steps, outputs: Sequence[int], recompute: Recompute, *, in_blocks: bool) -> Iterator[StepsModule]:
    """Yield *steps* in spans, each block one if *in_blocks*, with recomputed parts; *outputs* are read at the end."""
    again = {} if not recompute else _attentions(steps) if recompute == "selective" else _blocks(steps)
    blocks = _blocks(steps) if in_blocks else {}
    how = {"context_fn": _contexts} if recompute == "operators" else {}
    for block, of_block in groupby(range(len(steps)), key=lambda i: blocks.get(i, -1)):
        mine = list(of_block)
        runs = groupby(mine, key=lambda i: again.get(i, -1))
        parts = [_part(steps, list(run), outputs)._replace(again=key >= 0) for key, run in runs]
        yield StepsModule(_part(steps, mine, outputs), parts, how, apart=block >= 0)


def _part(steps: Steps, places: Sequence[int], outputs: Sequence[int]) -> SpanPart:
    span = tuple(steps[i] for i in places)
    written = dict.fromkeys(n for step in span for n in step.writes)
    read = dict.fromkeys(n for step in span for n in step.reads)
    after = {n for step in steps[places[-1] + 1 :] for n in step.reads}.union(outputs)
    # What later steps read must be returned; a span without such tensors returns its last step's.
    outside = tuple(n for n in written if n in after)
    return SpanPart(span, tuple(n for n in read if n not in written), outside or span[-1].writes)


def _blocks(steps: Sequence[ForwardCall]) -> dict[int, int]:
    """Return the block number of each step that is in a block; steps that split a tensor belong to their readers."""
    names = [step.block for step in steps]
    for i, step in reversed([*enumerate(steps[:-1])]):
        if not names[i] and len(step.reads) == 1 and step.writes[0] > step.reads[0] + 1:
            names[i] = names[i + 1]
    order = {name: i for i, name in enumerate(dict.fromkeys(names))}
    return {i: order[name] for i, name in enumerate(names) if name}


def _attentions(steps: Sequence[ForwardCall]) -> dict[int, int]:
    """Return the attention number of each step between a block's first and last product of activations."""
    places: dict[str, list[int]] = {}
    for i, step in enumerate(steps):
        if step.mixes:
            places.setdefault(step.block, []).append(i)
    return {i: n for n, found in enumerate(places.values()) for i in range(found[0], found[-1] + 1)}
