"""Trace one forward and backward pass through a module on ``meta``."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from simulator.errors import Fault, InputError, refused
from simulator.workload.network import Network
from simulator.workload.torch_import.factory import Subject, quietly, subject_of_module
from simulator.workload.torch_import.faults import fault_of
from simulator.workload.torch_import.library import LibraryFunctions, reaching_builtins
from simulator.workload.torch_import.recorder import ModuleStack, Recorder
from simulator.workload.torch_import.request import TracedNetwork


class _Saved:
    """Size of the distinct storages saved for the backward pass, without parameters and buffers."""

    def __init__(self, module: Any) -> None:
        own = (*module.parameters(), *module.buffers())
        self._seen = {tensor.untyped_storage()._cdata: tensor.untyped_storage() for tensor in own}
        self.bytes = 0
        self.elements = 0
        self.active = True

    def pack(self, tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if self.active and storage._cdata not in self._seen:
            self._seen[storage._cdata] = storage  # held, so that its address is not reused
            self.bytes += storage.nbytes()
            if tensor.is_floating_point():
                self.elements += storage.nbytes() // tensor.element_size()
        return tensor


def trace_subject(subject: Subject, *, training: bool = True) -> TracedNetwork:
    """Return the network and figures traced from one pass through *subject*.

    Raises InputError, with the place, if it cannot be traced, runs an unknown operator, or trains nothing.
    """
    module = subject.module.train(training)
    order: list[str] = []
    saved = _Saved(module)
    with contextlib.ExitStack() as entered:
        entered.enter_context(quietly())
        stack = entered.enter_context(ModuleStack(module))
        entered.enter_context(torch.enable_grad())
        entered.enter_context(torch.device("meta"))
        entered.enter_context(reaching_builtins())
        flops = entered.enter_context(FlopCounterMode(display=False))
        recorder = Recorder(module, stack, subject.values)
        entered.enter_context(recorder)
        entered.enter_context(LibraryFunctions(recorder))
        entered.enter_context(_hooked(module, order))
        with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor):
            loss = _forward(subject, recorder, saved, training=training)
        flop_forward = flops.get_total_flops()
        if recorder.unknown:
            faults = recorder.unknown.values()
            raise InputError([Fault(f"{subject.what}: {f.message}", f.file, f.line, f.column) for f in faults])
        if training:
            _backward(subject, loss)
        flop_backward = flops.get_total_flops() - flop_forward
    # Tensors that no layer reads or writes fall out.
    used = {n for layer in recorder.layers for n in (*layer.inputs, layer.output)}
    number = {old: new for new, old in enumerate(sorted(used))}
    layers = tuple(
        dataclasses.replace(layer, inputs=tuple(number[n] for n in layer.inputs), output=number[layer.output])
        for layer in recorder.layers
    )
    elements = tuple(recorder.elements[old] for old in number)
    network = Network(subject.name, layers, elements, subject.samples, subject.sample)
    flop_forward += recorder.recurrent_flop
    if not training:
        return TracedNetwork(network, (), 0, 0, flop_forward, 0)
    flop_backward += recorder.recurrent_backward_flop
    return TracedNetwork(network, tuple(order), saved.bytes, saved.elements, flop_forward, flop_backward)


def _forward(subject: Subject, recorder: Recorder, saved: _Saved, *, training: bool) -> Any:
    """Return the loss; records only the module, and in training its own loss function."""
    try:
        output = subject.module(*subject.args, **subject.kwargs)
    except (Exception, SystemExit) as error:
        raise fault_of(error, f"{subject.what}: the forward pass failed", path=recorder.stack.path) from None
    loss_of = subject.loss if training else None
    if loss_of is not None:
        try:
            loss = loss_of(output)
        except (Exception, SystemExit) as error:
            raise fault_of(error, f"{subject.what}: the loss failed") from None
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
            raise InputError(f"{subject.what}: the loss must be a tensor with one number")
    recorder.active = saved.active = False
    if loss_of is not None:
        return loss
    loss = output.get("loss") if isinstance(output, Mapping) else None
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return loss
    return sum(tensor.sum() for tensor in _tensors(output) if tensor.requires_grad)


def _backward(subject: Subject, loss: Any) -> None:
    if not any(parameter.requires_grad for parameter in subject.module.parameters()):
        return
    if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
        raise InputError(
            f"{subject.what}: nothing is trained, for no output depends on the parameters with gradients; "
            "is there a no_grad or a detach in the module?"
        )
    try:
        torch.autograd.backward(loss)  # loss.backward() would leave the entered modes
    except (Exception, SystemExit) as error:
        raise fault_of(error, f"{subject.what}: the backward pass failed") from None


@contextlib.contextmanager
def _hooked(module: Any, order: list[str]) -> Iterator[None]:
    """Append to *order* the names of parameters as their gradients become complete."""
    hooks = []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            hooks.append(parameter.register_post_accumulate_grad_hook(lambda _, name=name: order.append(name)))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        module.zero_grad(set_to_none=True)


def _tensors(output: Any) -> Iterator[Any]:
    """Yield the tensors in a module's output."""
    if isinstance(output, torch.Tensor):
        yield output
        return
    inside: Iterable[Any] = ()
    if isinstance(output, Mapping):
        inside = output.values()
    elif isinstance(output, tuple | list):
        inside = output
    elif dataclasses.is_dataclass(output):
        inside = [getattr(output, field.name) for field in dataclasses.fields(output)]
    for value in inside:
        yield from _tensors(value)


def network_of_module(
    module: Any, inputs: Any, loss: Callable[[Any], Any] | None, *, training: bool
) -> tuple[str, Callable[[int], Network]]:
    """Return what *module*, unchanged, is called, and what gives the network of one pass of *inputs* through it."""
    with quietly():
        subject = subject_of_module(module, inputs, loss)

    @cache
    def traced() -> Network:
        return trace_subject(subject, training=training).network

    def build(batch: int) -> Network:
        if batch not in (0, subject.samples):  # 0: any
            raise refused(
                "batch", f"the inputs hold {subject.samples} samples; give inputs of {batch}, or that batch", batch
            )
        return traced()

    return f"the module {subject.name}", build
