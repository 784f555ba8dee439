"""What the zoo holds under a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.workload.zoo.builder import NetworkBuilder, Tensor

__all__ = ["Entry", "Outputs"]

Outputs = Tensor | tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A network of the zoo.

    ``defaults`` are the options that it takes, with what they are where none is given.  ``make`` writes its layers and
    returns what the loss is computed from.  ``length_known``: it is for a task whose sequences are of one length.
    ``in_half``: whoever trains it does so in half precision, bf16 where there is, with fused attention.
    """

    sample: str
    defaults: Mapping[str, Any]
    make: Callable[[NetworkBuilder, int, Mapping[str, Any]], Outputs]
    length_known: bool = False
    in_half: bool = False
