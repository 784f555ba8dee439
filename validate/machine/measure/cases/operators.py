"""Operators by class, size and precision, as torch functions; one call per case."""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812  torch's own short name

from validate.machine.measure.bench import Bench, QueuedStopwatch
from validate.machine.measure.built.description import OPERATORS, operator_parts
from validate.machine.measure.built.shapes import unary
from validate.machine.measure.case import Case, Columns, Mode, TimedWork, Unavailable
from validate.machine.measure.cases.shapes import CallLimits, OperatorCase, shapes, sized
from validate.machine.measure.cases.step_shapes import MeasuredStep
from validate.machine.measure.cases.stepping import set_precision

_COUNT = 700
_COUNT_CPU = 160
_SINGLE_EVERY = 6  # every sixth shape is also measured with host time
_COLD_EVERY = 8  # every eighth also with cold caches
_MOST_SETS = 256
_SWAPPED = 1024  # numbers of a position: 16 heads of 64
_CHOSEN = Path(__file__).with_name("chosen.json")
_DTYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
Run = Callable[[], Any]


def call_limits(bench: Bench) -> CallLimits:
    """Return the limits of one call on *bench*: work for about 50 ms at a rough fp32 rate, memory, precisions."""
    if not bench.is_cuda:
        # CPUs without half-precision units emulate it a hundred times slower; nobody trains like that.
        return CallLimits(3e9, min(64e6, bench.memory_bytes / 8), ("fp32",))
    properties = torch.cuda.get_device_properties(bench.device)
    capability, ours = (properties.major, properties.minor), torch.version.hip is None
    precisions = ["fp32", "fp16"]
    precisions += ["bf16", "bf16"] if not ours or capability >= (8, 0) else []
    precisions += ["tf32"] if ours and capability >= (8, 0) else []
    precisions += ["fp8"] if ours and capability >= (8, 9) else []
    per_s = properties.multi_processor_count * 256 * 1.5e9  # about the fp32 rate without tensor cores, FLOP/s
    return CallLimits(per_s * 0.05, min(4e9, bench.memory_bytes / 8), tuple(precisions))


def cases(bench: Bench) -> Iterator[Case]:
    """Yield operators; some are repeated with host time, and some with cold caches."""
    for i, shape in enumerate(shapes(call_limits(bench), _COUNT if bench.is_cuda else _COUNT_CPU)):
        yield operator_case(shape, bench)
        if bench.is_cuda and i % _SINGLE_EVERY == 0:
            yield operator_case(shape, bench, "single")
        if i % _COLD_EVERY == 0 and bench.cache_bytes / _MOST_SETS < shape.bytes < 2 * bench.cache_bytes:
            yield operator_case(shape, bench, cache="cold")


def operator_case(shape: OperatorCase, bench: Bench, mode: Mode | None = None, cache: str = "warm") -> Case:
    """Return the case of one operator, captured in a graph on a GPU unless *mode* says otherwise."""
    mode = mode or ("graph" if bench.is_cuda else "stream")
    dispatch = int(mode == "single" or not bench.is_cuda)  # a CPU's time includes the framework's
    columns: Columns = {**shape.cells, "includes_dispatch": dispatch, "cache": cache}
    if not bench.is_cuda:
        columns["threads"] = torch.get_num_threads()
    needs = int(shape.bytes * (3 if cache == "warm" else 2)) + (3 * bench.cache_bytes if cache == "cold" else 0)
    return Case("ops.csv", columns, partial(_build, shape, mode, cache), needs)


def chosen_cases(bench: Bench) -> Iterator[Case]:
    """Yield the operators whose times narrow predictions most, in that order, without those that exceed the memory.

    They are in ``chosen.json``, which ``validate design`` writes.  Where a GPU has no bf16, fp16 stands in its place;
    other formats that it lacks are left out.
    """
    precisions = call_limits(bench).precisions
    seen = []
    for cells in json.loads(_CHOSEN.read_text(encoding="utf-8"))["operators"]:
        if cells["dtype"] == "bf16" and "bf16" not in precisions:
            cells["dtype"] = "fp16"
        if cells in seen or cells["dtype"] not in precisions:
            continue
        seen.append(cells)
        if (shape := sized(cells)).bytes < bench.memory_bytes / 3:
            yield operator_case(shape, bench)


def single_operators(shape: MeasuredStep, bench: Bench) -> Iterator[Case]:
    """Yield the operators of the network of *shape*, each by itself; those that cannot be measured raise the reason."""

    def left(reason: str, _: Bench) -> TimedWork:
        raise Unavailable(reason)

    for part in operator_parts(shape.description(), shape.policy, shape.phase, channels_last=shape.channels_last):
        found = operator_case(OperatorCase(part.cells, 1.0, 1.0), bench)
        if not bench.is_cuda and shape.threads:
            found = found._replace(columns={**found.columns, "threads": shape.threads})
        yield found._replace(build=partial(left, f"{part.layer}: {part.reason}")) if part.reason else found


def _build(shape: OperatorCase, mode: Mode, cache: str, bench: Bench) -> TimedWork:
    """Return the work of *shape*; cold caches need sets of tensors that exceed the cache threefold in total."""
    set_precision(str(shape.cells["dtype"]))
    torch.manual_seed(0)
    sets = 1 if cache == "warm" else max(2, math.ceil(3 * bench.cache_bytes / shape.bytes))
    operator = _Operator(shape.cells, bench.device)
    with torch.no_grad():
        runs: list[Run] = [operator.made() for _ in range(sets)]
    watch = None
    if operator.taped and mode == "graph":  # work that cannot be captured is queued in a blocked stream
        mode, watch = "stream", QueuedStopwatch(bench)
    hard = bench.is_cuda and shape.flop > 0
    return TimedWork(lambda i: runs[i % sets](), mode, watch=watch, at_least=sets, hard=hard)


class _Operator:
    """An operator in a phase, as *cells* say; the method of its name takes those of the sizes that it asks for."""

    def __init__(self, cells: Mapping[str, str | int], device: Any) -> None:
        self.cells, self.device = cells, device
        self.phase, self.variant = cells["phase"], cells.get("variant", "")
        self.taped = False  # whether the work cannot be captured in a graph

    def made(self) -> Run:
        make: Callable[..., Run] = getattr(self, str(self.cells["op"]))
        return make(*(int(self.cells[name]) for name in signature(make).parameters))

    def tensor(self, *sizes: int) -> Any:
        """Return a random tensor; zeros would lower the power draw and so raise the clock."""
        dtype = getattr(torch, _DTYPES[str(self.cells["dtype"])])
        if self.cells["dtype"] == "fp8":
            return torch.randn(sizes, device=self.device, dtype=torch.bfloat16).to(dtype)
        return torch.randn(sizes, device=self.device, dtype=dtype)

    def in_phase(self, inputs: Sequence[Any], call: Callable[..., Any], gradient: Callable[[Any], Any]) -> Run:
        """Return the forward pass of *call*, or the gradients of those *inputs* that have any."""
        if self.phase == "fwd":
            return lambda: call(*inputs)
        self.taped = True
        with torch.enable_grad():
            trained = [x.requires_grad_() for x in inputs if x.is_floating_point()]
            y = call(*inputs)
        seed = gradient(y)
        return lambda: torch.autograd.grad(y, trained, seed, retain_graph=True)

    def linear(self, batch: int, m: int, n: int, k: int) -> Run:
        x, weight = self.tensor(batch * m, k), self.tensor(n, k)
        if self.phase == "fwd":
            bias = None if self.variant == "lm_head" else self.tensor(n)
            return lambda: F.linear(x, weight, bias)
        gradient = self.tensor(batch * m, n)
        return lambda: torch.mm(gradient, weight) if self.phase == "bwd_data" else torch.mm(gradient.t(), x)

    def matmul(self, m: int, n: int, k: int) -> Run:
        a = self.tensor(m, k)
        if self.cells["dtype"] == "fp8":
            right, one = self.tensor(n, k).t(), torch.ones((), device=self.device)
            return lambda: torch._scaled_mm(a, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
        return partial(torch.mm, a, self.tensor(k, n))

    def bmm(self, batch: int, m: int, n: int, k: int) -> Run:
        return partial(torch.bmm, self.tensor(batch, m, k), self.tensor(batch, k, n))

    def conv2d(self, batch: int, c_in: int, c_out: int, h_in: int, kernel_h: int, stride: int, pad: int) -> Run:
        groups = int(self.cells["groups"])
        x = self.images(batch, c_in, h_in, h_in)
        weight = self.images(c_out, c_in // groups, kernel_h, kernel_h)
        if self.phase == "fwd":
            return lambda: F.conv2d(x, weight, None, stride, pad, 1, groups)
        out = (h_in + 2 * pad - kernel_h) // stride + 1
        gradient = self.images(batch, c_out, out, out)
        wanted = [self.phase == "bwd_data", self.phase == "bwd_weight", False]
        backward, two = torch.ops.aten.convolution_backward, ([stride] * 2, [pad] * 2, [1, 1])
        return lambda: backward(gradient, x, weight, None, *two, False, [0, 0], groups, wanted)

    def layer_norm(self, rows: int, cols: int) -> Run:
        x, weight, bias = self.tensor(rows, cols), self.tensor(cols), self.tensor(cols)
        if self.phase == "fwd":
            return lambda: F.layer_norm(x, (cols,), weight, bias)
        _, mean, inverse = torch.ops.aten.native_layer_norm(x, [cols], weight, bias, 1e-5)
        gradient, backward = self.tensor(rows, cols), torch.ops.aten.native_layer_norm_backward
        return lambda: backward(gradient, x, [cols], mean, inverse, weight, bias, [True, True, True])

    def softmax(self, rows: int, cols: int) -> Run:
        x = self.tensor(rows, cols)
        if self.phase == "fwd":
            return lambda: torch.softmax(x, -1)
        result, gradient = torch.softmax(x, -1), torch.randn_like(x)
        return partial(torch.ops.aten._softmax_backward_data, gradient, result, -1, x.dtype)

    def elementwise(self, rows: int, cols: int) -> Run:
        x = self.tensor(rows, cols)
        aten = torch.ops.aten
        if self.phase != "fwd":
            y = torch.randn_like(x)
            backward = getattr(aten, OPERATORS["with_gradient"][self.variant])
            saved = (x > 0, 2.0) if self.variant == "dropout" else (x, 0) if self.variant == "relu" else (x,)
            return lambda: backward(y, *saved)
        if self.variant == "dropout":
            return lambda: aten.native_dropout(x, 0.5, True)
        of, _, how = str(self.variant).partition("_")
        if of in ("add", "mul", "div") and how != "scalar":
            if how == "broadcast":  # as a rotary position's cosines are over heads
                x = x.view(-1, math.gcd(x.numel(), _SWAPPED))
            like = {"widened": x[:1, :1], "broadcast": x[0]}.get(how, x)
            dtype, function = torch.float32 if how in ("mixed", "widened") else x.dtype, getattr(torch, of)
            other = torch.randn_like(like, dtype=dtype) + 3.0
            return lambda: function(x, other)
        if self.variant == "where":  # with a mask that stays in the cache
            mask = torch.ones(x.shape[-1] if x.shape[0] > 1 else 1024, dtype=torch.bool, device=self.device)
            x = x if x.shape[0] > 1 or x.numel() % 1024 else x.view(-1, 1024)
            return lambda: torch.where(mask if x.shape[-1] == mask.numel() else mask[:1], x, -1.0)
        one = unary(str(self.variant), in_place=False)
        assert one is not None
        return lambda: one(x)

    def cast(self, rows: int, cols: int) -> Run:
        return partial(self.tensor(rows, cols).to, getattr(torch, _DTYPES[str(self.variant)]))

    def copy(self, rows: int, cols: int) -> Run:
        x = self.tensor(rows, cols)
        turned = x.t() if self.variant == "transposed" else x
        if self.variant == "strided" and x.numel() % _SWAPPED == 0:  # as heads change places with positions
            turned = x.view(-1, 16, _SWAPPED // 16).transpose(0, 1)
        elif self.variant and self.variant != "transposed":
            raise Unavailable(f"a strided copy is of blocks of {_SWAPPED} numbers")
        same = torch.contiguous_format
        return lambda: turned.clone(memory_format=same)

    def sum(self, rows: int, cols: int) -> Run:
        return partial(self.tensor(cols, rows).sum, 0)

    def update(self, rows: int, cols: int) -> Run:
        rule, _, fused = str(self.variant).partition("-")
        parameters = [torch.nn.Parameter(self.tensor(cols)) for _ in range(rows)]
        for each in parameters:
            each.grad = torch.randn_like(each)
        how: dict[str, Any] = {"capturable": True} if rule == "adam" else {"momentum": 0.9}
        of_rule = torch.optim.Adam if rule == "adam" else torch.optim.SGD
        step: Run = of_rule(parameters, lr=1e-5, **how, **({"fused": True} if fused else {})).step
        return step

    def images(self, *sizes: int) -> Any:
        form = torch.channels_last if self.variant == "channels_last" else torch.contiguous_format
        return self.tensor(*sizes).contiguous(memory_format=form)

    def max_pool(self, batch: int, c_in: int, h_in: int, w_in: int, kernel_h: int, stride: int, pad: int) -> Run:
        images = self.images(batch, c_in, h_in, w_in)
        return self.in_phase([images], lambda x: F.max_pool2d(x, kernel_h, stride, pad), torch.ones_like)

    def batch_norm(self, batch: int, c_in: int, h_in: int, w_in: int) -> Run:
        inputs = self.images(batch, c_in, h_in, w_in), self.tensor(c_in), self.tensor(c_in)
        mean, variance = torch.zeros_like(inputs[1]), torch.ones_like(inputs[1])
        call = partial(F.batch_norm, training=True)
        return self.in_phase(inputs, lambda x, *own: call(x, mean, variance, *own), torch.randn_like)

    def embedding(self, rows: int, cols: int) -> Run:
        words = max(1024, min(rows, 50257))
        table, indices = self.tensor(words, cols), torch.randint(words, (rows,), device=self.device)
        return lambda: F.embedding(indices, table)

    def attention(self, batch: int, m: int, n: int, k: int) -> Run:
        """Return attention of ``batch`` heads in all: one a sequence, or ``heads`` on ``kv_heads``."""
        heads, kv_heads = (int(self.cells.get(name) or 1) for name in ("heads", "kv_heads"))
        of = ((heads, m), (kv_heads, n), (kv_heads, n))
        inputs = [self.tensor(batch // heads, count, length, k) for count, length in of]
        shared = {"enable_gqa": True} if kv_heads != heads else {}
        call = partial(F.scaled_dot_product_attention, is_causal=self.variant == "causal", **shared)
        return self.in_phase(inputs, call, torch.ones_like)

    def cross_entropy(self, rows: int, cols: int) -> Run:
        inputs = self.tensor(rows, cols), torch.randint(cols, (rows,), device=self.device)
        return self.in_phase(inputs, F.cross_entropy, torch.ones_like)

    def permute(self, rows: int, cols: int, batch: int) -> Run:
        x, order = self.tensor(rows, cols), torch.randint(rows, (rows * batch,), device=self.device)
        return lambda: x.index_select(0, order)

    def grouped_linear(self, batch: int, m: int, n: int, k: int) -> Run:
        """Return the products of ``batch`` experts with ``m`` rows each."""
        product = getattr(F, "grouped_mm", None)
        if product is None:
            raise Unavailable("this torch has no grouped_mm for experts; 2.10 and later have")
        ends = torch.arange(1, batch + 1, dtype=torch.int32, device=self.device) * m
        x, weight, y = self.tensor(batch * m, k), self.tensor(batch, n, k), self.tensor(batch * m, n)
        if self.phase == "fwd":
            return lambda: product(x, weight.transpose(-2, -1), offs=ends)
        return lambda: product(y, weight, offs=ends) if self.phase == "bwd_data" else product(y.t(), x, offs=ends)

    def lstm(self, batch: int, hidden: int, timesteps: int) -> Run:
        layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[str(self.cells["op"])](hidden, hidden)
        x = self.tensor(timesteps, batch, hidden)
        layer = layer.to(device=self.device, dtype=x.dtype).eval()
        self.taped = True  # no autograd, but the library allocates its own workspace
        run: Run = torch.no_grad()(partial(layer, x))
        return run

    gru = lstm
