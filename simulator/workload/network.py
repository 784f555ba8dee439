"""A network: operators in the order of the forward pass, and the tensors between them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ParamSpec, TypeVar

from simulator.workload.operators import Embedding, Operator

__all__ = ["Layer", "Network", "Parameter", "block_name", "once"]

P = ParamSpec("P")
T = TypeVar("T")

_BLOCK = re.compile(r"(?:[^.]+\.)*?\d+(?=\.)")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A trained tensor.  Layers that name the same parameter share it."""

    name: str
    elements: int


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator at its place.

    ``inputs`` and ``output`` number the tensors it reads and the one it writes; a view
    (reshape, transposition that moves nothing) has the number of what it views.
    """

    name: str
    operator: Operator
    inputs: tuple[int, ...]
    output: int
    parameters: tuple[Parameter, ...] = ()
    in_place: bool = False  # the output lies where the first input lay


@dataclass(frozen=True, eq=False)
class Network:
    """``elements[i]`` is the size of tensor ``i``; those that no layer writes are fed in.

    ``samples`` is what throughput counts: images, or sequences (``sample`` names it).  Two networks are the same only
    where they are one object, so that what is found of one is found once (:func:`once`).
    """

    name: str
    layers: tuple[Layer, ...]
    elements: tuple[int, ...]
    samples: int
    sample: str = "images"

    @cached_property
    def tokens(self) -> int:
        """Tokens that go in: what the first embedding looks up; 0 where there is none."""
        first = next((layer.operator for layer in self.layers if isinstance(layer.operator, Embedding)), None)
        return first.rows if first is not None else 0

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """Every parameter once, in the order of first use."""
        return tuple(dict.fromkeys(p for layer in self.layers for p in layer.parameters))

    @cached_property
    def parameter_count(self) -> int:
        """Trained elements."""
        return sum(p.elements for p in self.parameters)

    @cached_property
    def flop(self) -> int:
        """FLOPs of the forward pass, as FlopCounterMode counts."""
        return sum(layer.operator.flop for layer in self.layers)


def once(analysis: Callable[P, T]) -> Callable[P, T]:
    """Let what *analysis* finds of a network be remembered, for the networks that were last asked about."""
    return lru_cache(maxsize=32)(analysis)  # type: ignore[return-value]


def block_name(layer: str) -> str:
    """Return the repeated block that the layer of that name is in: ``blocks.3`` of ``blocks.3.mlp.up``, or nothing."""
    match = _BLOCK.match(layer)
    return match[0] if match else ""
