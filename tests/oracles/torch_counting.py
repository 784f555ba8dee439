"""torch's own counts for a module on the meta device: parameters, FLOPs, shapes of outputs.

:data:`NAMES` holds a function for each network of the zoo that builds it independently, from torch's own modules
(``torch_written``) or from libraries (``torch_libraries``); ``torch_networks`` registers all of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

BATCH = 2
NAMES: dict[str, tuple[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]]] = {}


@dataclass(frozen=True)
class Figures:
    """The compared figures: parameters, shapes of the outputs, FLOPs of the forward pass and of a training step."""

    parameters: int
    outputs: list[list[int]]
    forward_flop: int
    training_flop: int


def measure(name: str) -> Figures:
    """Return the figures of *name* under torch's FLOP counter; of equal blocks one runs, and one more for the rest."""
    library, build = NAMES[name]
    with torch.device("meta"):
        module, inputs = build()
        parameters = sum(p.numel() for p in module.parameters())
        stacks = _stacks(module) if library == "transformers" else []
        spare = [layers[first + 1] for layers, first, _ in stacks]
        for layers, first, n in stacks:
            del layers[first + 1 : first + n]
        counted, outputs = _counted(module, inputs)
        total = list(counted)
        for (layers, first, n), another in zip(stacks, spare, strict=True):
            place = first - sum(m - 1 for others, start, m in stacks if others is layers and start < first)
            layers.insert(place + 1, another)
            more, _ = _counted(module, inputs)
            del layers[place + 1]
            total = [t + (n - 1) * (m - c) for t, m, c in zip(total, more, counted, strict=True)]
    return Figures(parameters, outputs, *total)


def _counted(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[tuple[int, int], list[list[int]]]:
    """Return the FLOPs of the forward pass and of both, and the shapes of the outputs."""
    with FlopCounterMode(display=False) as counter:
        results = _tensors(module(*inputs))
        forward = counter.get_total_flops()
        torch.autograd.backward(results, [torch.ones_like(r) for r in results])
    return (forward, counter.get_total_flops()), [list(r.shape) for r in results]


def _stacks(module: nn.Module) -> list[tuple[nn.ModuleList, int, int]]:
    """Return the stacks of blocks in *module*, the last first: list, first block of a stretch alike, its length.

    Blocks are alike that print alike and have parameters of the same shapes.
    """
    found = []
    for layers in module.modules():
        if isinstance(layers, nn.ModuleList):
            words = [(repr(layer), [p.shape for p in layer.parameters()]) for layer in layers]
            first = 0
            for _, alike in itertools.groupby(words):
                n = len(list(alike))
                found += [(layers, first, n)] if n > 1 else []
                first += n
    return found[::-1]


def _tensors(result: Any) -> list[torch.Tensor]:
    """Return the tensors from which a loss would be computed, whatever a library returns."""
    if isinstance(result, torch.Tensor):
        return [result]
    if type(result) is tuple:
        return list(result)
    keys = ("prediction_logits", "seq_relationship_logits", "start_logits", "end_logits", "logits", "aux_logits")
    found = [getattr(result, key) for key in keys if getattr(result, key, None) is not None]
    if [getattr(result, key, None) is not None for key in keys[2:4]] == [True, True]:  # one layer of two columns
        return [torch.stack(found, -1)]
    return found


def oracle(*names: str, needs: str = "torch") -> Callable[[Any], Any]:
    """Register a function that builds the networks *names*, and the library that it needs."""

    def register(function: Any) -> Any:
        for name in names:
            NAMES[name] = (needs, partial(function, name))
        return function

    return register


def images(size: int, channels: int = 3) -> tuple[torch.Tensor, ...]:
    return (torch.empty(BATCH, channels, size, size),)


def conv(c_in: int, c_out: int, kernel: int, stride: int = 1, pad: int = 0) -> list[nn.Module]:
    return [nn.Conv2d(c_in, c_out, kernel, stride, pad), nn.ReLU()]


def dense(*widths: int, activation: type[nn.Module] = nn.ReLU) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), activation()]
    return layers[:-1]
