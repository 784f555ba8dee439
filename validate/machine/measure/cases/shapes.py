"""The operators to measure: shapes from real networks, and random shapes between, the same everywhere, in turns."""

import json
import math
import random
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, cycle, islice
from pathlib import Path
from typing import NamedTuple

_SEED = 20160730
_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
_DATA = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
# Matrix products and convolutions appear more often: they run more kinds of kernels than passes over memory do.
_TURNS = tuple(_DATA["turns"])
_WIDTHS = tuple(map(tuple, _DATA["widths"]))  # inputs, outputs of BERT, GPT-2, GPT-3 and Llama
_CONVOLUTIONS = tuple(map(tuple, _DATA["convolutions"]))  # AlexNet's, VGG's, ResNet's: c_in to pad as in the loop
_TRAINED = ("fwd", "fwd", "bwd_data", "fwd", "bwd_weight")

Cells = dict[str, str | int]  # the cells that identify an operator in a phase


class OperatorCase(NamedTuple):
    """An operator in a phase: its identifying cells, its FLOPs, and approximately the bytes it touches."""

    cells: Cells
    flop: float
    bytes: float


def sized(cells: Cells) -> OperatorCase:
    """Return the operator of *cells*, with its FLOPs and the bytes that its sizes say."""
    flop, passes = 0.0, 3.0  # of all operands and results through the memory

    def s(name: str) -> int:
        return int(cells.get(name, 0) or 0)

    match cells["op"]:
        case "linear" | "matmul" | "bmm" | "grouped_linear":
            batch, m, n, k = max(1, s("batch")), s("m"), s("n"), s("k")
            flop, passes, held = 2.0 * batch * m * n * k, 1.0, batch * (m * n + n * k + m * k)
        case "conv2d":
            kernel = s("c_in") // max(1, s("groups")) * s("kernel_h") * s("kernel_w")
            height = (s("h_in") + 2 * s("pad") - s("kernel_h")) // s("stride") + 1
            pixels = height * ((s("w_in") + 2 * s("pad_w") - s("kernel_w")) // s("stride_w") + 1)
            flop = 2.0 * s("batch") * s("c_out") * pixels * kernel
            held = s("batch") * (s("c_in") * s("h_in") * s("w_in") + s("c_out") * pixels) + s("c_out") * kernel
        case "attention":
            flop = 4.0 * s("batch") * s("m") * s("n") * s("k")
            passes, held = 2.0, s("batch") * (s("m") + s("n")) * s("k")
        case "lstm" | "gru":
            gates, hidden, steps = 4 if cells["op"] == "lstm" else 3, s("hidden"), s("batch") * s("timesteps")
            flop = 4.0 * steps * gates * hidden * hidden
            passes, held = 1.0, 2 * gates * hidden * hidden + (gates + 2) * steps * hidden
        case "update":  # parameters, gradients and two moments, in fp32, and what a step over lists makes between
            passes, held = 6.0, s("rows") * s("cols")
        case "batch_norm" | "max_pool":
            passes, held = 4.0, s("batch") * s("c_in") * s("h_in") * s("w_in")
        case op:
            passes, held = 2.0 if op == "embedding" else 3.0, s("rows") * s("cols") * max(1, s("batch"))
    return OperatorCase(cells, flop, passes * _BYTES[str(cells["dtype"])] * held)


class CallLimits(NamedTuple):
    """The most FLOPs and bytes of one call on a device, and its precisions."""

    flop: float
    bytes: float
    precisions: tuple[str, ...]


def shapes(limits: CallLimits, most: int) -> Iterator[OperatorCase]:
    """Yield up to *most* different operators within *limits*."""
    draw = _Draw(limits)
    seen: set[tuple[tuple[str, str | int], ...]] = set()
    makers = {op: _MAKERS[op](draw) for op in dict.fromkeys(_TURNS)}
    for op in islice(cycle(_TURNS), 50 * most):
        shape = sized(next(makers[op]))
        key = tuple(sorted(shape.cells.items()))
        if key not in seen and shape.flop <= limits.flop and shape.bytes <= limits.bytes:
            seen.add(key)
            yield shape
            if len(seen) >= most:
                return


class _Draw(random.Random):
    def __init__(self, limits: CallLimits) -> None:
        super().__init__(_SEED)
        self.precisions = limits.precisions

    def precision(self, *but: str) -> str:
        return self.choice([p for p in self.precisions if p not in but])

    def half(self) -> str:
        """Return a 16-bit precision; fp32 on a device without."""
        return self.precision("tf32", "fp32", "fp8") if len(self.precisions) > 2 else "fp32"

    def power(self, low: int, high: int, times: int = 1) -> int:
        """Return 2 to the power of a number from *low* to *high*, *times* so much."""
        return times << self.randint(low, high)

    def log(self, low: float, high: float) -> int:
        """Return a size between *low* and *high*, log-uniform; most are a power of two or a multiple of 8."""
        size = math.exp(self.uniform(math.log(low), math.log(high)))
        kind = self.random()
        if kind < 0.35:
            return 1 << round(math.log2(size))
        return 8 * round(size / 8) if kind < 0.7 and size >= 8 else max(1, round(size))


def _linears(draw: _Draw) -> Iterator[Cells]:
    for i, phase in enumerate(cycle(_TRAINED)):
        if i % 2:
            k, n = _WIDTHS[(i // 2) % len(_WIDTHS)] if i % 4 == 1 else draw.choice(_WIDTHS)
            m = draw.power(5, 14)
        else:
            m, n, k = draw.log(8, 16384), draw.log(16, 32768), draw.log(16, 16384)
        cells = Cells(op="linear", phase=phase, dtype=draw.precision("fp8"), batch=1, m=m, n=n, k=k)
        # without bias, whose gradient is summed by a separate kernel
        yield cells if phase == "fwd" else cells | {"variant": "lm_head"}


def _convolutions(draw: _Draw) -> Iterator[Cells]:
    order = list(_CONVOLUTIONS)
    draw.shuffle(order)
    for i, phase in enumerate(cycle(_TRAINED)):
        if i % 3 < 2:
            c_in, c_out, image, kernel, stride, pad = order[i % len(order)]
        else:
            kernel, stride = draw.choice((1, 3, 3, 5)), draw.choice((1, 1, 2))
            c_in, c_out, image, pad = draw.log(3, 1024), draw.log(8, 1024), draw.log(7, 128), kernel // 2
        batch, precision = draw.power(0, 8), draw.precision("fp8")
        cells = Cells(op="conv2d", phase=phase, dtype=precision, batch=batch, c_in=c_in, c_out=c_out)
        cells |= Cells(h_in=image, w_in=image, kernel_h=kernel, kernel_w=kernel)
        cells |= Cells(stride=stride, pad=pad, stride_w=stride, pad_w=pad, groups=1)
        if precision in ("fp16", "bf16"):
            cells["variant"] = "channels_last"  # the usual layout in half precision
        if image + 2 * pad >= kernel and not (phase == "bwd_data" and c_in == 3):
            yield cells


def _drawn(op: str, draw: _Draw) -> Iterator[Cells]:
    """Yield operators of *op* as ``shapes.json`` says, row by row in turn: each cell in drawing order, and how."""
    for turn in count():
        found: Cells = {"op": op}
        for name, how, *of in _DATA["drawn"][op][turn % len(_DATA["drawn"][op])]:
            if how == "turns":
                found[name] = of[turn % len(of)]
            elif how == "as":
                found[name] = found[of[0]]
            else:
                found[name] = draw.choice(of) if how == "choice" else getattr(draw, how)(*of)
        if found["dtype"] == "fp8":
            found |= {name: max(32, 16 * round(int(found[name]) / 16)) for name in ("m", "n", "k")}
        yield {name: found[name] for name in _DATA["cells"] if name in found}


Maker = Callable[[_Draw], Iterator[Cells]]
_MAKERS: dict[str, Maker] = {op: partial(_drawn, op) for op in _DATA["drawn"]}
_MAKERS |= {"linear": _linears, "conv2d": _convolutions}
