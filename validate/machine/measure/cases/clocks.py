"""What a board's power holds: the time of a call after rest, and in seconds of load (docs/measure.md).

Works are products of random numbers (equal ones take less power; bf16 where the device has it, the format of training),
streams (vector sums), and both in turn, for about as long: ``repeats`` are the sums of a turn.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case, TimedWork
from validate.machine.measure.cases.operators import call_limits
from validate.machine.measure.timing import Call, Interval, median_interval

_SIDE, _ELEMENTS = 8192, 64 << 20
_LEAST_SIDE = 1024
_LONG_S = 10e-3  # a product that takes longer is halved in its sides
_REST_S = 0.3
_BURST_S, _SAMPLE_S = 1e-3, 20e-3
_BURSTS = 5  # samples after rest, of which the fastest counts: a clock may take a millisecond to rise
_MOST_REPEATS = 100


def cases(_: Bench) -> Iterator[Case]:
    """Yield the three works."""
    needs_bytes = 3 * 2 * _SIDE**2 + 3 * 4 * _ELEMENTS
    for work in ("product", "stream", "mixture"):
        yield Case("clocks.csv", {"work": work}, partial(_build, work), needs_bytes=needs_bytes)


def _build(work: str, bench: Bench) -> TimedWork:
    watch = bench.stopwatch()
    side, half = _SIDE, "bf16" if "bf16" in call_limits(bench).precisions else "fp16"
    dtype = torch.bfloat16 if half == "bf16" else torch.float16
    while True:
        a, b, out = (torch.randn(side, side, device=bench.device).to(dtype) for _ in range(3))
        product: Call = partial(_into, torch.mm, a, b, out)
        watch.sample(product, 1)  # what libraries do once
        product_s = watch.sample(product, 2) / 2
        if product_s <= _LONG_S or side <= _LEAST_SIDE:
            break
        side //= 2
    x, y, total = torch.randn(3, _ELEMENTS, device=bench.device)
    stream: Call = partial(_into, torch.add, x, y, total)
    watch.sample(stream, 1)
    stream_s = watch.sample(stream, 2) / 2
    repeats = max(1, min(_MOST_REPEATS, round(product_s / stream_s)))

    def mixture(i: int) -> None:
        product(i)
        for _ in range(repeats):
            stream(i)

    ways = {"product": (product, product_s), "stream": (stream, stream_s)}
    call, about_s = (ways | {"mixture": (mixture, product_s + repeats * stream_s)})[work]
    burst: list[float] = []

    def own() -> Interval:
        bench.settle()
        time.sleep(_REST_S)
        calls = max(1, round(_BURST_S / about_s))
        burst.append(min(watch.sample(call, calls) / calls for _ in range(_BURSTS)))
        calls = max(1, round(_SAMPLE_S / about_s))
        samples: list[float] = []
        end_s = time.perf_counter() + bench.load_s
        while time.perf_counter() < end_s:
            samples.append(watch.sample(call, calls) / calls)
        return median_interval(samples[len(samples) // 2 :])

    cells: dict[str, Any] = {"dtype": "fp32"} if work == "stream" else {"dtype": half, "side": side}
    cells |= {"elements": _ELEMENTS} if work != "product" else {}
    cells |= {"repeats": repeats} if work == "mixture" else {}
    return TimedWork(call, own=own, figures=lambda found: {**cells, "time_s": found.median, "burst_s": burst[-1]})


def _into(function: Callable[..., object], a: Any, b: Any, out: Any, _: int) -> None:
    function(a, b, out=out)
