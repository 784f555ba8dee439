"""Entries of the zoo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.workload.zoo.builder import NetworkBuilder, Tensor

Outputs = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A network of the zoo.

    ``defaults`` maps its options to their default values.  ``make`` adds its layers to a builder and returns the
    inputs of the loss.  ``length_known``: its task has sequences of a fixed length.  ``in_half``: usually trained in
    half precision (bf16 where available) with fused attention.  ``code`` is equal for networks that differ in their
    options alone.
    """

    sample: str
    defaults: Mapping[str, Any]
    make: Callable[[NetworkBuilder, int, Mapping[str, Any]], Outputs]
    length_known: bool = False
    in_half: bool = False
    code: object = None
