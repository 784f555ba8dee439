"""Operators by class, size and precision, as torch functions; one call per case."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812  torch's own short name

from validate.machine.measure.bench import Bench, QueuedStopwatch
from validate.machine.measure.built.description import operator_parts
from validate.machine.measure.case import Case, Mode, TimedWork, Unavailable
from validate.machine.measure.cases.shapes import CallLimits, OperatorCase, shapes, sized
from validate.machine.measure.cases.step_shapes import MeasuredStep
from validate.machine.measure.cases.stepping import set_precision

_COUNT = 700
_COUNT_CPU = 160
_SINGLE_EVERY = 6  # every sixth shape is also measured with host time
_COLD_EVERY = 8  # every eighth also with cold caches
_MOST_SETS = 256
_CHOSEN = Path(__file__).with_name("chosen.json")
_DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
Run = Callable[[], Any]


def call_limits(bench: Bench) -> CallLimits:
    """Return the limits of one call on *bench*: work for about 50 ms at a rough fp32 rate, memory, precisions."""
    if not bench.is_cuda:
        # CPUs without half-precision units emulate it a hundred times slower; nobody trains like that.
        return CallLimits(3e9, min(64e6, bench.memory_bytes / 8), ("fp32",))
    properties = torch.cuda.get_device_properties(bench.device)
    capability = (properties.major, properties.minor)
    precisions = ["fp32", "fp16"]
    if torch.version.hip is not None or capability >= (8, 0):
        precisions += ["bf16", "bf16"]
    if torch.version.hip is None and capability >= (8, 0):
        precisions.append("tf32")
    if torch.version.hip is None and capability >= (8, 9):
        precisions.append("fp8")
    per_s = properties.multi_processor_count * 256 * 1.5e9  # about the fp32 rate without tensor cores, FLOP/s
    return CallLimits(per_s * 0.05, min(4e9, bench.memory_bytes / 8), tuple(precisions))


def cases(bench: Bench) -> Iterator[Case]:
    """Yield operators; some are repeated with host time, and some with cold caches."""
    count = _COUNT if bench.is_cuda else _COUNT_CPU
    for i, shape in enumerate(shapes(call_limits(bench), count)):
        for mode, cache in _ways(bench, shape, i):
            yield operator_case(shape, bench, "ops", mode, cache)


def operator_case(shape: OperatorCase, bench: Bench, group: str, mode: Mode | None = None, cache: str = "warm") -> Case:
    """Return the case of one operator, captured in a graph on a GPU unless *mode* says otherwise."""
    mode = mode or ("graph" if bench.is_cuda else "stream")
    dispatch = int(mode == "single" or not bench.is_cuda)  # a CPU's time includes the framework's
    columns: dict[str, str | int | float] = {**shape.cells, "includes_dispatch": dispatch, "cache": cache}
    if not bench.is_cuda:
        columns["threads"] = torch.get_num_threads()
    needs = int(shape.bytes * (3 if cache == "warm" else 2)) + (3 * bench.cache_bytes if cache == "cold" else 0)
    return Case(group, "ops.csv", columns, partial(_build, shape, mode, cache), needs)


def chosen_cases(bench: Bench) -> Iterator[Case]:
    """Yield the operators whose times narrow predictions most, in that order, without those that exceed the memory.

    They are in ``chosen.json``, which ``validate design`` writes.  Where a GPU has no bf16, fp16 stands in its place;
    other formats that it lacks are left out.  Raises Unavailable on a CPU, for which they are too large.
    """
    if not bench.is_cuda:
        raise Unavailable("chosen for GPUs; --only ops measures a CPU")
    precisions = call_limits(bench).precisions
    seen = set()
    for cells in json.loads(_CHOSEN.read_text(encoding="utf-8"))["operators"]:
        form = "fp16" if cells["dtype"] == "bf16" and "bf16" not in precisions else cells["dtype"]
        mine = {**cells, "dtype": form}
        key = tuple(sorted(mine.items()))
        if key in seen or form not in precisions:
            continue
        seen.add(key)
        shape = sized(mine)
        if shape.bytes < bench.memory_bytes / 3:
            yield operator_case(shape, bench, "chosen")


def single_operators(shape: MeasuredStep, bench: Bench) -> Iterator[Case]:
    """Yield the operators of the network of *shape*, each by itself; those that cannot be measured raise the reason."""
    description = shape.description()
    for part in operator_parts(description, shape.policy, shape.phase, channels_last=shape.channels_last):
        found = operator_case(OperatorCase(part.cells, 1.0, 1.0), bench, "asked")
        if not bench.is_cuda and shape.threads:
            found = replace(found, columns={**found.columns, "threads": shape.threads})
        yield replace(found, build=partial(_left, f"{part.layer}: {part.reason}")) if part.reason else found


def _left(reason: str, bench: Bench) -> TimedWork:
    del bench
    raise Unavailable(reason)


def _ways(bench: Bench, shape: OperatorCase, i: int) -> Iterator[tuple[Mode, str]]:
    yield "graph" if bench.is_cuda else "stream", "warm"
    if bench.is_cuda and i % _SINGLE_EVERY == 0:
        yield "single", "warm"
    if i % _COLD_EVERY == 0 and bench.cache_bytes / _MOST_SETS < shape.bytes < 2 * bench.cache_bytes:
        yield "graph" if bench.is_cuda else "stream", "cold"


def _build(shape: OperatorCase, mode: Mode, cache: str, bench: Bench) -> TimedWork:
    """Return the work of *shape*; cold caches need sets of tensors that exceed the cache threefold in total."""
    cells = shape.cells
    set_precision(str(cells["dtype"]))
    torch.manual_seed(0)
    sets = 1 if cache == "warm" else max(2, math.ceil(3 * bench.cache_bytes / shape.bytes))
    make = _MAKERS[str(cells["op"])]
    asked = _Asked(cells, bench.device)
    with torch.no_grad():
        runs = [make(asked) for _ in range(sets)]
    watch = None
    if asked.taped and mode == "graph":  # work that cannot be captured is queued in a blocked stream
        mode, watch = "stream", QueuedStopwatch(bench)
    hard = bench.is_cuda and shape.flop > 0
    if len(runs) == 1:
        alone = runs[0]
        return TimedWork(lambda _: alone(), mode, watch=watch, hard=hard)
    return TimedWork(lambda i: runs[i % sets](), mode, watch=watch, at_least=sets, hard=hard)


@dataclass(slots=True)
class _Asked:
    """The cells of an operator, and tensors for it."""

    cells: Mapping[str, str | int]
    device: Any
    taped: bool = False  # whether the work cannot be captured in a graph

    @property
    def phase(self) -> str:
        return str(self.cells["phase"])

    @property
    def variant(self) -> str:
        return str(self.cells.get("variant", ""))

    def size(self, name: str) -> int:
        return int(self.cells[name])

    def sizes(self, *names: str) -> tuple[int, ...]:
        return tuple(self.size(name) for name in names)

    def tensor(self, *sizes: int) -> Any:
        """Return a random tensor; zeros would lower the power draw and so raise the clock."""
        dtype = getattr(torch, _DTYPES[str(self.cells["dtype"])])
        if str(self.cells["dtype"]) == "fp8":
            return torch.randn(sizes, device=self.device, dtype=torch.bfloat16).to(dtype)
        return torch.randn(sizes, device=self.device, dtype=dtype)


def _linear(asked: _Asked) -> Run:
    m, n, k = asked.size("batch") * asked.size("m"), asked.size("n"), asked.size("k")
    x, weight = asked.tensor(m, k), asked.tensor(n, k)
    if asked.phase == "fwd":
        bias = None if asked.variant == "lm_head" else asked.tensor(n)
        return lambda: F.linear(x, weight, bias)
    gradient = asked.tensor(m, n)
    if asked.phase == "bwd_data":
        return lambda: torch.mm(gradient, weight)
    return lambda: torch.mm(gradient.t(), x)


def _matmul(asked: _Asked) -> Run:
    m, n, k = asked.sizes("m", "n", "k")
    a = asked.tensor(m, k)
    if asked.cells["dtype"] == "fp8":
        scaled = getattr(torch, "_scaled_mm", None)
        if scaled is None:
            raise Unavailable("this torch has no products in fp8")
        right, one = asked.tensor(n, k).t(), torch.ones((), device=asked.device)
        return lambda: scaled(a, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    b = asked.tensor(k, n)
    return lambda: torch.mm(a, b)


def _bmm(asked: _Asked) -> Run:
    batch, m, n, k = asked.sizes("batch", "m", "n", "k")
    a, b = asked.tensor(batch, m, k), asked.tensor(batch, k, n)
    return lambda: torch.bmm(a, b)


def _conv2d(asked: _Asked) -> Run:
    batch, c_in, c_out, image, kernel = asked.sizes("batch", "c_in", "c_out", "h_in", "kernel_h")
    stride, pad, groups = asked.sizes("stride", "pad", "groups")
    form = torch.channels_last if asked.variant == "channels_last" else torch.contiguous_format
    x = asked.tensor(batch, c_in, image, image).contiguous(memory_format=form)
    weight = asked.tensor(c_out, c_in // groups, kernel, kernel).contiguous(memory_format=form)
    if asked.phase == "fwd":
        return lambda: F.conv2d(x, weight, None, stride, pad, 1, groups)
    out = (image + 2 * pad - kernel) // stride + 1
    gradient = asked.tensor(batch, c_out, out, out).contiguous(memory_format=form)
    wanted = [asked.phase == "bwd_data", asked.phase == "bwd_weight", False]
    backward = torch.ops.aten.convolution_backward
    two = [stride] * 2, [pad] * 2, [1, 1]
    return lambda: backward(gradient, x, weight, None, *two, False, [0, 0], groups, wanted)


def _layer_norm(asked: _Asked) -> Run:
    rows, cols = asked.sizes("rows", "cols")
    x, weight, bias = asked.tensor(rows, cols), asked.tensor(cols), asked.tensor(cols)
    if asked.phase == "fwd":
        return lambda: F.layer_norm(x, (cols,), weight, bias)
    _, mean, inverse = torch.ops.aten.native_layer_norm(x, [cols], weight, bias, 1e-5)
    gradient = asked.tensor(rows, cols)
    backward = torch.ops.aten.native_layer_norm_backward
    return lambda: backward(gradient, x, [cols], mean, inverse, weight, bias, [True, True, True])


def _softmax(asked: _Asked) -> Run:
    x = asked.tensor(*asked.sizes("rows", "cols"))
    if asked.phase == "fwd":
        return lambda: torch.softmax(x, -1)
    result, gradient = torch.softmax(x, -1), torch.randn_like(x)
    backward = torch.ops.aten._softmax_backward_data
    return lambda: backward(gradient, result, -1, x.dtype)


def _elementwise(asked: _Asked) -> Run:
    x = asked.tensor(*asked.sizes("rows", "cols"))
    two: dict[str, Callable[[Any, Any], Any]] = {"add": torch.add, "mul": torch.mul, "div": torch.div}
    one: dict[str, Callable[[Any], Any]] = {
        "relu": torch.relu,
        "tanh": torch.tanh,
        "gelu": F.gelu,
        "mul_scalar": lambda t: torch.mul(t, 1.5),
        "add_scalar": lambda t: torch.add(t, 1.5),
    }
    if asked.variant in two:
        y, function = torch.randn_like(x) + 3.0, two[asked.variant]
        return lambda: function(x, y)
    alone = one[asked.variant]
    return lambda: alone(x)


def _batch_norm(asked: _Asked) -> Run:
    batch, channels, height, width = asked.sizes("batch", "c_in", "h_in", "w_in")
    x, weight, bias = asked.tensor(batch, channels, height, width), asked.tensor(channels), asked.tensor(channels)
    mean, variance = torch.zeros_like(weight), torch.ones_like(weight)
    if asked.phase == "fwd":
        return lambda: F.batch_norm(x, mean, variance, weight, bias, training=True)
    asked.taped = True
    gradient = torch.randn_like(x)
    with torch.enable_grad():
        inputs = [t.requires_grad_() for t in (x, weight, bias)]
        y = F.batch_norm(x, mean, variance, weight, bias, training=True)
    return lambda: torch.autograd.grad(y, inputs, gradient, retain_graph=True)


def _embedding(asked: _Asked) -> Run:
    rows, cols = asked.sizes("rows", "cols")
    words = max(1024, min(rows, 50257))
    table = asked.tensor(words, cols)
    indices = torch.randint(words, (rows,), device=asked.device)
    return lambda: F.embedding(indices, table)


def _attention(asked: _Asked) -> Run:
    """Return attention of ``batch`` heads in all: one a sequence, or ``heads`` on ``kv_heads``."""
    batch, queries, keys, size = asked.sizes("batch", "m", "n", "k")
    heads, kv_heads = (int(asked.cells.get(name) or 1) for name in ("heads", "kv_heads"))
    of = ((heads, queries), (kv_heads, keys), (kv_heads, keys))
    inputs = [asked.tensor(batch // heads, count, length, size) for count, length in of]
    how: dict[str, Any] = {"is_causal": asked.variant == "causal"}
    how |= {"enable_gqa": True} if kv_heads != heads else {}
    return _in_phase(asked, inputs, lambda q, k, v: F.scaled_dot_product_attention(q, k, v, **how))


def _in_phase(asked: _Asked, inputs: Sequence[Any], call: Callable[..., Any]) -> Run:
    """Return the forward pass of *call*, or the gradients of those *inputs* that have any."""
    if asked.phase == "fwd":
        return lambda: call(*inputs)
    asked.taped = True
    with torch.enable_grad():
        trained = [x.requires_grad_() for x in inputs if x.is_floating_point()]
        y = call(*inputs)
    gradient = torch.ones_like(y)
    return lambda: torch.autograd.grad(y, trained, gradient, retain_graph=True)


def _cross_entropy(asked: _Asked) -> Run:
    rows, cols = asked.sizes("rows", "cols")
    return _in_phase(
        asked, (asked.tensor(rows, cols), torch.randint(cols, (rows,), device=asked.device)), F.cross_entropy
    )


def _permute(asked: _Asked) -> Run:
    """Return the rows of tokens copied to their experts, in a random order."""
    rows, cols, chosen = asked.sizes("rows", "cols", "batch")
    x, order = asked.tensor(rows, cols), torch.randint(rows, (rows * chosen,), device=asked.device)
    return lambda: x.index_select(0, order)


def _grouped(asked: _Asked) -> Run:
    """Return the products of equally many rows with each expert's matrix, by one kernel of torch."""
    experts, m, n, k = asked.sizes("batch", "m", "n", "k")
    product = getattr(F, "grouped_mm", None)
    if product is None:
        raise Unavailable("this torch has no grouped_mm for experts; 2.10 and later have")
    ends = torch.arange(1, experts + 1, dtype=torch.int32, device=asked.device) * m
    x, weight, y = asked.tensor(experts * m, k), asked.tensor(experts, n, k), asked.tensor(experts * m, n)
    if asked.phase == "fwd":
        return lambda: product(x, weight.transpose(-2, -1), offs=ends)
    if asked.phase == "bwd_data":
        return lambda: product(y, weight, offs=ends)
    return lambda: product(y.t(), x, offs=ends)


def _recurrent(asked: _Asked) -> Run:
    batch, hidden, steps = asked.sizes("batch", "hidden", "timesteps")
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[str(asked.cells["op"])](hidden, hidden)
    x = asked.tensor(steps, batch, hidden)
    layer = layer.to(device=asked.device, dtype=x.dtype).eval()
    asked.taped = True  # no autograd, but the library allocates its own workspace

    def run() -> Any:
        with torch.no_grad():
            return layer(x)

    return run


_MAKERS: dict[str, Callable[[_Asked], Run]] = {
    "linear": _linear,
    "matmul": _matmul,
    "bmm": _bmm,
    "conv2d": _conv2d,
    "layer_norm": _layer_norm,
    "softmax": _softmax,
    "elementwise": _elementwise,
    "batch_norm": _batch_norm,
    "embedding": _embedding,
    "attention": _attention,
    "cross_entropy": _cross_entropy,
    "grouped_linear": _grouped,
    "permute": _permute,
    "lstm": _recurrent,
    "gru": _recurrent,
}
