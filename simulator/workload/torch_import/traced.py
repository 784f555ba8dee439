"""What a trace of a torch module gives: :class:`TracedNetwork`."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.workload.network import Network


@dataclass(frozen=True, slots=True)
class TracedNetwork:
    """A traced network, with figures from torch itself.

    ``gradient_order`` names the trained parameters in the order in which their gradients became complete; parameters
    without a gradient are missing.  ``saved_bytes`` is the size of the storages that autograd saved for the backward
    pass, without parameters and buffers, in the module's own number formats.  ``saved_elements`` counts the
    floating-point numbers among them (the rest are masks and indices).  ``flop_forward`` and ``flop_backward`` are the
    counts of torch's FlopCounterMode, plus our own for recurrent layers, which it does not know.  FlopCounterMode
    counts the backward pass of grouped convolutions as if they had one group, and does not count matrix-vector
    products.
    """

    network: Network
    gradient_order: tuple[str, ...]
    saved_bytes: int
    saved_elements: int
    flop_forward: int
    flop_backward: int
