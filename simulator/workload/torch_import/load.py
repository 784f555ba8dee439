"""From ``torch:package.module:factory`` to a network, without importing PyTorch before it is needed."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.errors import InputError, MissingDependency, one_line
from simulator.workload.network import Network
from simulator.workload.torch_import.request import parse_torch

__all__ = ["TracedNetwork", "load_torch_workload"]


@dataclass(frozen=True, slots=True)
class TracedNetwork:
    """A network, and what automatic differentiation did with it.

    ``gradient_order`` names the trained parameters as their gradients became complete in the backward pass; those that
    got none are missing.  ``saved_bytes`` is what the backward pass keeps of the forward pass, each storage once,
    parameters and buffers aside, in the module's own number formats; ``saved_elements`` are the floating-point numbers
    in it (the rest are masks and indices).  ``flop_forward`` and ``flop_backward`` are counted by torch's
    FlopCounterMode and by nothing of ours, but for recurrent layers, which it does not know.  It counts the backward
    pass of grouped convolutions as if they had one group, and no products of a matrix and a vector.
    """

    network: Network
    gradient_order: tuple[str, ...]
    saved_bytes: int
    saved_elements: int
    flop_forward: int
    flop_backward: int


def load_torch_workload(
    text: str,
    *,
    batch: int | None = None,
    training: bool = True,
    sequence_length: int | None = None,
    image: int | None = None,
    input_shape: str | None = None,
) -> TracedNetwork:
    """Return what one pass through the module shows that *text* names.

    The factory is called with ``batch``, ``sequence_length`` and ``image`` where they are given and it has parameters
    of these names.  Without *training* the module is in its ``eval`` mode, there is no loss and no backward pass.
    *input_shape* is what may also be written behind the factory.  Raises InputError where there is no such factory, or
    it fails, or what it returns cannot be traced; says where and what can be done.  Raises MissingDependency where
    PyTorch is not installed.
    """
    request = parse_torch(text, input_shape)
    try:
        import torch  # noqa: F401
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "torch":
            why = "PyTorch, which is not installed"
        else:
            why = f"PyTorch, which cannot be imported ({one_line(error)})"
        how = "in the clone: pip install -e '.[torch]'"
        raise MissingDependency(f"--workload {one_line(text, 80)} needs {why}; {how}") from None
    from simulator.workload.torch_import.factory import build_subject
    from simulator.workload.torch_import.trace import trace_subject

    for key, value in (("batch", batch), ("sequence_length", sequence_length), ("image", image)):
        if value is not None and value < 1:
            raise InputError(f"--workload {one_line(text, 80)}: {key} must be at least 1; got {value}")
    sizes = {"batch": batch, "sequence_length": sequence_length, "image": image}
    subject = build_subject(request, {key: value for key, value in sizes.items() if value is not None})
    return trace_subject(subject, training=training)
