"""A layer as torch runs it (:class:`Made`), and its neighbours in the network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from validate.machine.measure.built.description import Layer
from validate.machine.measure.built.shapes import Shape, seen_as
from validate.machine.measure.case import Unavailable


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The neighbours of a layer: the layers that write its inputs, and those that read its output."""

    before: tuple[Layer | None, ...] = ()
    after: tuple[Layer, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """A layer as torch runs it: ``call`` on its input tensors, and the ``shape`` of the result.

    ``module`` holds its parameters; ``names`` maps the module's parameter names to the description's.
    """

    call: Callable[..., Any]
    shape: Shape
    module: Any = None
    names: dict[str, str] = field(default_factory=dict)


def named(layer: Layer, sizes: dict[str, int]) -> dict[str, str]:
    """Return the description's name for each parameter of a module, given their element counts *sizes*.

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


def seen(have: Shape, want: Shape, layer: Layer) -> Callable[[Any], Any]:
    """Return the view of a tensor of shape *have* as *want*; raises Unavailable where there is none."""
    try:
        view = seen_as(have, want)
    except ValueError as error:
        raise Unavailable(f"{layer.name}: {error}") from None
    return view or itself


def itself(x: Any) -> Any:
    """Return *x*: the view of a tensor that already has the right shape."""
    return x
