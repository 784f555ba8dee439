"""A layer as torch runs it (:class:`Made`), and what is known of its surroundings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from validate.machine.measure.built.description import Layer
from validate.machine.measure.built.shapes import Shape
from validate.machine.measure.case import Unavailable

__all__ = ["Made", "Neighbours", "named"]


@dataclass(frozen=True, slots=True)
class Neighbours:
    """What is known of a layer's surroundings: the operators that write what it reads, and that read what it writes."""

    before: tuple[Layer | None, ...] = ()
    after: tuple[Layer, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """A layer as it runs: ``call`` of the tensors that it reads, the ``shape`` of what it returns.

    ``module`` holds its parameters, ``names`` says which of the module's is which of the description's.
    """

    call: Callable[..., Any]
    shape: Shape
    module: Any = None
    names: dict[str, str] = field(default_factory=dict)


def named(layer: Layer, sizes: dict[str, int]) -> dict[str, str]:
    """Return which parameter of the description each of the module's is; *sizes* are the elements of these.

    Raises Unavailable where the two do not match.
    """
    left = list(layer.parameters)
    found = {}
    for name, size in sizes.items():
        match = next((p for p in left if p.elements == size), None)
        if match is None:
            raise Unavailable(f"{layer.name}: no parameter of {size} elements for its {name}")
        left.remove(match)
        found[name] = match.name
    if left:
        raise Unavailable(f"{layer.name}: nothing takes its parameter {left[0].name}")
    return found
