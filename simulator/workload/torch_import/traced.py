"""What one pass through a module has shown."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workload.network import Network

__all__ = ["TracedNetwork"]


@dataclass(frozen=True, slots=True)
class TracedNetwork:
    """A network, and what automatic differentiation did with it.

    ``gradient_order`` names the trained parameters as their gradients became complete in the
    backward pass; those that got none are missing.  ``saved_bytes`` is what the backward pass
    keeps of the forward pass, each storage once, parameters and buffers aside, in the module's own
    number formats; ``saved_elements`` are the floating-point numbers in it (the rest are masks and
    indices).  ``flop_forward`` and ``flop_backward`` are counted by torch's FlopCounterMode and by
    nothing of ours, but for recurrent layers, which it does not know.  It counts the backward pass of
    grouped convolutions as if they had one group, and no products of a matrix and a vector.
    """

    network: Network
    gradient_order: tuple[str, ...]
    saved_bytes: int
    saved_elements: int
    flop_forward: int
    flop_backward: int
