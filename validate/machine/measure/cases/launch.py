"""The cost of launching work: on the device by mode of issue, on the host by kind of call."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn

from validate.machine.measure.bench import Bench, CpuStopwatch, HostStopwatch, capture
from validate.machine.measure.case import Case, Mode, TimedWork
from validate.machine.measure.timing import Call, Stopwatch

_ELEMENTS = 64  # few enough that the kernel's own time is negligible
_CHAIN = 16  # operators in sequence, so that the fixed cost of a call hardly counts
_PARAMETERS = 64
_COMMON = 4  # number of layers measured early: those most common in networks
_HOST = "host time"
_AUTOCAST = "linear under autocast to bf16"


def cases(bench: Bench) -> Iterator[Case]:
    """Yield small operators under each mode of issue, then the host time by kind of call."""
    for metric, build in _ON_DEVICE.items():
        for mode, words in _MODES.items():
            if bench.is_cuda or mode != "graph":  # graphs exist only on GPUs
                yield _case(f"time of {metric}", f"torch eager, {words}", partial(_work, build, mode))
    passes = {"forward, recorded": False, "forward and backward": True}.items()
    layers = [
        _case(f"{_HOST} of {name}, {words}", f"torch eager, chain of {_CHAIN}", partial(_chain, name, backward))
        for name, (words, backward) in product(_LAYERS, passes)
    ]
    yield from layers[: 2 * _COMMON]
    for name in _OPTIMISERS:
        yield _case(f"{_HOST} of a step of {name}", f"{_PARAMETERS} parameters", partial(_optimiser, name))
    for count in (1, 10, 100) if bench.is_cuda else ():
        of = f"of a graph of {count} kernel{'s' if count > 1 else ''}"
        yield _case(f"{_HOST} {of}", "captured graph, replay", partial(_replay, count, None))
        yield _case(f"time {of}", "captured graph, replays one after the other", partial(_replay, count, "stream"))
        yield _case(f"time {of}", "captured graph, replay alone", partial(_replay, count, "single"))
    yield from layers[2 * _COMMON :]
    for metric, build in _ON_HOST.items():
        yield _case(f"{_HOST} of {metric}", "torch eager", partial(_work, build, None))
    for metric, build in _ON_QUEUE.items() if bench.is_cuda else ():
        yield _case(f"{_HOST} of {metric}", "CUDA", partial(_work, build, None))


def _case(metric: str, mode: str, build: Callable[[Bench], TimedWork]) -> Case:
    return Case("launch.csv", {"metric": metric, "mode": mode}, build)


def _host(bench: Bench) -> Stopwatch:
    """Return a stopwatch for host time; on a CPU, where issuing and computing are one, it times a single thread."""
    return HostStopwatch(bench) if bench.is_cuda else CpuStopwatch(1)


def _work(build: Callable[[Bench], Call], mode: Mode | None, bench: Bench) -> TimedWork:
    return TimedWork(build(bench), mode) if mode is not None else TimedWork(build(bench), watch=_host(bench))


def _on(call: Callable[..., Call], *shapes: Sequence[int]) -> Callable[[Bench], Call]:
    return lambda bench: call(*(torch.zeros(shape, device=bench.device) for shape in shapes))


_VECTOR, _SQUARE = (_ELEMENTS,), (_ELEMENTS, _ELEMENTS)
_RELU = _on(lambda x: lambda _: torch.relu_(x), _VECTOR)
_SUM = _on(lambda x, y, z: lambda _: torch.add(x, y, out=z), _VECTOR, _VECTOR, _VECTOR)
_ON_DEVICE: dict[str, Callable[[Bench], Call]] = {
    f"one relu in place of {_ELEMENTS} numbers": _RELU,
    f"one sum of two of {_ELEMENTS} numbers": _SUM,
}
_ON_HOST: dict[str, Callable[[Bench], Call]] = {
    "one relu in place": _RELU,
    "one sum of two into a given tensor": _SUM,
    "one sum of two into a new tensor": _on(lambda x, y: lambda _: x + y, _VECTOR, _VECTOR),
    "one matrix product into a new tensor": _on(lambda x, y: lambda _: x @ y, _SQUARE, _SQUARE),
    "one fill": _on(lambda x: lambda _: x.zero_(), _VECTOR),
    "one view, no kernel": _on(lambda x: lambda _: x.view(_ELEMENTS), (8, 8)),
    "reading one number back": _on(lambda x: lambda _: x.item(), ()),
}


def _record(_: Bench) -> Call:
    event = torch.cuda.Event()
    return lambda _: event.record()


def _wait(_: Bench) -> Call:
    event = torch.cuda.Event()
    event.record()
    stream = torch.cuda.current_stream()
    return lambda _: stream.wait_event(event)


_ON_QUEUE: dict[str, Callable[[Bench], Call]] = {
    "recording an event": _record,
    "having a stream wait for an event": _wait,
    "synchronising with an idle device": lambda _: lambda _: torch.cuda.synchronize(),
}

_WRITTEN = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
_MODES: dict[Mode, str] = _WRITTEN["modes"]
_LAYERS, _OPTIMISERS = _WRITTEN["layers"], _WRITTEN["optimisers"]
"""The layers that networks consist of: the class of torch's, what makes it, and the shape of its input and output.
Rules of optimisers, and how their kernels are run.
"""


class _Lstm(nn.LSTM):  # type: ignore[misc]  # torch is Any where it is not installed
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x)[0]  # the outputs of all time steps


class _Function(nn.Module):  # type: ignore[misc]  # torch is Any where it is not installed
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self._function(x)


def _chain(name: str, backward: bool, bench: Bench) -> TimedWork:
    kind, how, shape = _LAYERS[name]
    layer: Any = _OWN.get(name) or partial(getattr(nn, kind), **how)
    network = nn.Sequential(*(layer() for _ in range(_CHAIN))).to(bench.device)
    parameters = list(network.parameters())
    x = torch.zeros(shape, device=bench.device, requires_grad=True)
    seed = torch.ones(shape, device=bench.device)
    place, casts = bench.device.type, name == _AUTOCAST

    def call(_: int) -> None:
        with torch.autocast(place, torch.bfloat16, enabled=casts):
            y = network(x)
        if backward:
            torch.autograd.backward(y, seed.to(y.dtype))
            x.grad = None
            for parameter in parameters:  # like optimizer.zero_grad()
                parameter.grad = None

    return TimedWork(call, watch=_host(bench), figures=lambda interval: {"time_s": interval.median / _CHAIN})


_OWN: dict[str, Callable[[], Any]] = {  # of layers that torch has no module for, or one of another result
    "sum of two": lambda: _Function(lambda x: x + x),
    "attention": lambda: _Function(lambda x: nn.functional.scaled_dot_product_attention(x, x, x)),
    "lstm": lambda: _Lstm(16, 16, batch_first=True),
}


def _optimiser(name: str, bench: Bench) -> TimedWork:
    parameters = [nn.Parameter(torch.zeros(_ELEMENTS, device=bench.device)) for _ in range(_PARAMETERS)]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    rule, how = _OPTIMISERS[name]
    optimiser = getattr(torch.optim, rule)(parameters, lr=0.0, **how)
    return TimedWork(lambda _: optimiser.step(), watch=_host(bench))


def _replay(count: int, mode: Mode | None, bench: Bench) -> TimedWork:
    captured = _RELU(bench)
    graph = capture(captured, count)

    def call(_: int, kept: Call = captured) -> None:
        del kept  # keeps alive the tensors that the graph writes
        graph.replay()

    return _work(lambda _: call, mode, bench)
