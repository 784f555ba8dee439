"""What torch itself says of the pass that is traced: FLOPs, what autograd saves, the order of gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from simulator.workload.backward import needs_gradient
from simulator.workload.network import Network
from simulator.workload.operators import Recurrent
from simulator.workload.torch_import import load_torch_workload, trace


@dataclass
class TracedNetwork:
    """A traced network, with figures from torch itself.

    ``gradient_order`` names the trained parameters in the order in which their gradients became complete.
    ``saved_bytes`` is the size of the storages that autograd saved for the backward pass, without parameters and
    buffers; ``saved_elements`` counts the floating-point numbers among them.  ``flop_forward`` and ``flop_backward``:
    the counts of torch's FlopCounterMode, plus our own for recurrent layers, which it does not know.
    """

    network: Network
    gradient_order: tuple[str, ...] = ()
    saved_bytes: int = 0
    saved_elements: int = 0
    flop_forward: int = 0
    flop_backward: int = 0


def traced(text: str, **sizes: Any) -> TracedNetwork:
    """Return the trace of the module that *text* names."""
    found: dict[str, int] = {"saved_bytes": 0, "saved_elements": 0}
    order: list[str] = []
    run_forward, run_backward = trace._forward, trace._backward

    def forward(subject: Any, recorder: Any, *, training: bool) -> Any:
        own = (*subject.module.parameters(), *subject.module.buffers())
        seen = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in own}

        def pack(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            if training and storage._cdata not in seen:
                seen[storage._cdata] = storage  # held, so that its address is not reused
                found["saved_bytes"] += storage.nbytes()
                if tensor.is_floating_point():
                    found["saved_elements"] += storage.nbytes() // tensor.element_size()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            loss = run_forward(subject, recorder, training=training)
        found["flop_forward"] = flops.get_total_flops()
        return loss

    def backward(subject: Any, loss: Any) -> None:
        for name, parameter in subject.module.named_parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name))
        run_backward(subject, loss)
        found["flop_backward"] = flops.get_total_flops() - found["flop_forward"]

    with pytest.MonkeyPatch.context() as patch, FlopCounterMode(display=False) as flops:
        patch.setattr(trace, "_forward", forward)
        patch.setattr(trace, "_backward", backward)
        network = load_torch_workload(text, **sizes)
    needed = needs_gradient(network)
    for layer in network.layers:
        if isinstance(layer.operator, Recurrent):
            found["flop_forward"] += layer.operator.flop
            given = [needed[tensor] for tensor in layer.inputs]
            found["flop_backward"] += layer.operator.backward_flop(bool(layer.trained), given)
    return TracedNetwork(network, tuple(order), **found)
