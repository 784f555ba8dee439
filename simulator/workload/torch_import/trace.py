"""Trace one forward and backward pass through a module on ``meta`` (docs/torch.md)."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from math import prod
from typing import Any, Literal

import torch
from torch.overrides import TorchFunctionMode

from simulator.errors import Fault, InputError, refused
from simulator.workload.network import Network
from simulator.workload.operators import Elementwise, LayerNorm, Recurrent
from simulator.workload.torch_import.factory import Subject, quietly, subject_of_module
from simulator.workload.torch_import.faults import TraceFault, fault_of
from simulator.workload.torch_import.recorder import ModuleStack, Recorder


def trace_subject(subject: Subject, *, training: bool = True) -> Network:
    """Return the network traced from one pass through *subject*.

    Raises InputError, with the place, if it cannot be traced, runs an unknown operator, or trains nothing.
    """
    module = subject.module.train(training)
    with contextlib.ExitStack() as entered:
        entered.enter_context(quietly())
        stack = entered.enter_context(ModuleStack(module))
        entered.enter_context(torch.enable_grad())
        entered.enter_context(torch.device("meta"))
        entered.enter_context(reaching_builtins())
        recorder = Recorder(module, stack, subject.values)
        entered.enter_context(recorder)
        entered.enter_context(LibraryFunctions(recorder))
        loss = _forward(subject, recorder, training=training)
        if recorder.unknown:
            faults = recorder.unknown.values()
            raise InputError([Fault(f"{subject.what}: {f.message}", f.file, f.line, f.column) for f in faults])
        if training:
            _backward(subject, loss)
    # Tensors that no layer reads or writes fall out.
    used = {n for layer in recorder.layers for n in (*layer.inputs, layer.output)}
    number = {old: new for new, old in enumerate(sorted(used))}
    layers = tuple(
        dataclasses.replace(layer, inputs=tuple(number[n] for n in layer.inputs), output=number[layer.output])
        for layer in recorder.layers
    )
    elements = tuple(recorder.elements[old] for old in number)
    return Network(subject.name, layers, elements, subject.samples, subject.sample)


def _forward(subject: Subject, recorder: Recorder, *, training: bool) -> Any:
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
    recorder.active = False
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
        return trace_subject(subject, training=training)

    def build(batch: int) -> Network:
        if batch not in (0, subject.samples):  # 0: any
            raise refused(
                "batch", f"the inputs hold {subject.samples} samples; give inputs of {batch}, or that batch", batch
            )
        return traced()

    return f"the module {subject.name}", build


Cell = Literal["rnn", "lstm", "gru"]
_GUARDS = ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")


@contextlib.contextmanager
def reaching_builtins() -> Iterator[None]:
    """Make torch's Python functions run through, so that a mode sees the built-in functions that they call."""
    kept = [
        (module, name, getattr(module, name))
        for module in (torch.nn.functional, torch.autograd)
        for name in _GUARDS
        if hasattr(module, name)
    ]
    try:
        for module, name, _ in kept:
            setattr(module, name, lambda *_: False)
        yield
    finally:
        for module, name, guard in kept:
            setattr(module, name, guard)


class LibraryFunctions(TorchFunctionMode):  # type: ignore[misc]  # torch is not read by the type checker
    """While entered, runs each of these functions, which ``meta`` would decompose, as one operator of a library.

    Autograd saves for them what the library's kernels save: no scores, masks of one byte, gates of each time step.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self._taken: dict[Any, Callable[..., Any]] = {
            torch.nn.functional.scaled_dot_product_attention: self._attention,
            torch.dropout: self._dropout,
            torch.lstm: lambda *a: self._recurrent("lstm", torch.lstm, *a),
            torch.gru: lambda *a: self._recurrent("gru", torch.gru, *a),
            torch.rnn_tanh: lambda *a: self._recurrent("rnn", torch.rnn_tanh, *a),
            torch.rnn_relu: lambda *a: self._recurrent("rnn", torch.rnn_relu, *a),
            torch.rms_norm: self._rms_norm,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        taken = self._taken.get(func) if getattr(func, "__hash__", None) else None
        return (taken or func)(*args, **(kwargs or {}))

    def _dropout(self, input: Any, p: float, train: bool) -> Any:  # noqa: A002  torch's names
        if not train or not 0.0 < p < 1.0:
            return torch.dropout(input, p, train)
        return torch.native_dropout(input, p, train)[0]

    def _rms_norm(self, input: Any, normalized_shape: Any, weight: Any = None, eps: Any = None) -> Any:  # noqa: A002
        if not hasattr(torch.ops.aten, "_fused_rms_norm"):  # before torch 2.9 no library has it as one kernel
            return torch.rms_norm(input, normalized_shape, weight, eps)
        recorder, cols = self.recorder, prod(normalized_shape)
        with recorder.paused():
            out = _LibraryRmsNorm.apply(input, weight, cols)
        if recorder.active:
            numbers, parameters = recorder.split([tensor for tensor in (input, weight) if tensor is not None])
            number = recorder.new_number(input.numel())
            operator = LayerNorm(input.numel() // cols, cols, "rms_norm")
            recorder.append(operator, numbers, parameters, number, function="rms_norm")
            recorder.bind(out, number)
        return out

    def _attention(
        self,
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        if query.dim() == 3:
            mask = attn_mask.unsqueeze(1) if attn_mask is not None and attn_mask.dim() == 3 else attn_mask
            query, key, value = (t.unsqueeze(1) for t in (query, key, value))
            return self._attention(query, key, value, mask, dropout_p, is_causal, scale).squeeze(1)
        if query.dim() != 4:
            return torch.nn.functional.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
        batch, heads = query.shape[:2]
        key, value = (t.expand(batch, *t.shape[1:]) for t in (key, value))
        aten = torch.ops.aten
        if attn_mask is None and query.shape[-1] == value.shape[-1]:
            return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
        if key.shape[1] != heads:
            key, value = (t.repeat_interleave(heads // t.shape[1], 1) for t in (key, value))
        if attn_mask is not None:
            if attn_mask.dtype == torch.bool:  # as an additive mask
                attn_mask = torch.where(attn_mask, 0.0, float("-inf")).to(query.dtype)
            attn_mask = attn_mask.expand(batch, heads, query.shape[2], key.shape[2])
        out = aten._scaled_dot_product_efficient_attention(
            query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale
        )
        return out[0]

    def _recurrent(self, cell: Cell, func: Any, *args: Any) -> Any:
        if isinstance(args[2 if cell != "lstm" else 1], torch.Tensor):
            raise TraceFault(
                "a packed sequence has lengths that only its numbers tell; give the recurrent layer a padded tensor"
            )
        x, states, weights, has_biases, n_layers, dropout, train, bidirectional, batch_first = args
        states = tuple(states) if cell == "lstm" else (states,)
        directions, per_layer = 2 if bidirectional else 1, 4 if has_biases else 2
        if len(weights) != n_layers * directions * per_layer or x.dim() != 3:  # with projections
            return func(*args)
        batch, steps = (x.shape[0], x.shape[1]) if batch_first else (x.shape[1], x.shape[0])
        size, inputs = states[0].shape[-1], x.shape[-1]
        recorder, elements = self.recorder, steps * batch * size
        with recorder.paused():
            # The gates and the cell state of each time step, and the outputs that one layer passes to the next.
            kept = n_layers * (Recurrent(cell, 1, 1, 1, 1).gates + 1) + n_layers - 1
            sizes = (*x.shape[:2], directions * size), kept * directions * elements, len(states)
            outputs = _LibraryRnn.apply(x, *sizes, *states, *weights)
        if not recorder.active:
            return outputs
        numbers, _ = recorder.split((x,))
        states_numbers, _ = recorder.split(states)
        for layer in range(n_layers):
            written: list[int] = []
            for direction in range(directions):
                at = (layer * directions + direction) * per_layer
                _, parameters = recorder.split(weights[at : at + per_layer])
                operator = Recurrent(cell, batch, steps, inputs, size)
                # The second direction also reads the first one's result, because both share one tensor.
                read = (*numbers, *states_numbers, *written)
                written.append(recorder.new_number(elements))
                name = f".l{layer}{'_reverse' if direction else ''}"
                recorder.append(operator, read, parameters, written[-1], function=name)
            numbers, inputs = (written[-1],), directions * size
            if dropout and train and layer + 1 < n_layers:
                dropped = recorder.new_number(directions * elements)
                masked = Elementwise("dropout", directions * elements)
                recorder.append(masked, numbers, (), dropped, function=f".dropout{layer}")
                numbers = (dropped,)
        for tensor in outputs:
            recorder.bind(tensor, numbers[0])
        return outputs


class _LibraryRnn(torch.autograd.Function):  # type: ignore[misc]  # torch is not read by the type checker
    """A recurrent layer's shapes; it saves what a library saves."""

    @staticmethod
    def forward(ctx: Any, x: Any, out_shape: Any, reserved: int, n_states: int, *rest: Any) -> Any:
        out = x.new_empty(out_shape)
        ctx.save_for_backward(x, *rest, out, x.new_empty(reserved))
        return (out, *(state.new_empty(state.shape) for state in rest[:n_states]))

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        x, *rest, _out, _reserve = ctx.saved_tensors
        return (torch.empty_like(x), None, None, None, *(torch.empty_like(tensor) for tensor in rest))


class _LibraryRmsNorm(torch.autograd.Function):  # type: ignore[misc]  # torch is not read by the type checker
    """RMSNorm's shapes; it saves its input and one number per row."""

    @staticmethod
    def forward(ctx: Any, x: Any, weight: Any, cols: int) -> Any:
        ctx.save_for_backward(x, weight, x.new_empty(x.numel() // cols, dtype=torch.float32))
        return torch.empty_like(x)

    @staticmethod
    def backward(ctx: Any, _: Any) -> Any:
        x, weight, _rstd = ctx.saved_tensors
        return torch.empty_like(x), None if weight is None else torch.empty_like(weight), None
