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
    """Return the figures of *name*: run it forward, then forward and backward, under torch's FLOP counter."""
    with torch.device("meta"):
        module, inputs = NAMES[name][1]()
        with FlopCounterMode(display=False) as forward, torch.no_grad():
            outputs = _tensors(module(*inputs))
        with FlopCounterMode(display=False) as training:
            results = _tensors(module(*inputs))
            torch.autograd.backward(results, [torch.ones_like(r) for r in results])
    return Figures(
        sum(p.numel() for p in module.parameters()),
        [list(o.shape) for o in outputs],
        forward.get_total_flops(),
        training.get_total_flops(),
    )


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
