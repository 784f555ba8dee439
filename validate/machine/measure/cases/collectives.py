"""Collectives between the GPUs of this machine by size: NCCL as called by torch.distributed, and strategies.

Sizes and bandwidths follow nccl-tests (doc/PERFORMANCE.md): the size is the whole buffer's, gathered or to scatter. In
sendrecv each rank sends to the next.  The time is the device time on the slowest rank.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import torch
import torch.distributed as dist

from validate.machine.measure import exchange as exchanges
from validate.machine.measure.bench import Bench, CpuStopwatch, CudaStopwatch, QueuedStopwatch, hold_up
from validate.machine.measure.case import EXCHANGES, Case, Columns, TimedWork, Unavailable, ladder, spread
from validate.machine.measure.exchange import BufferExchange, OverDevices, OverRanks
from validate.machine.measure.ranks import KeptRanks, Look, RanksFailed, greatest, launch, nodes_of, rank_device
from validate.machine.measure.timing import Call, Effort, Interval, time_call

_LEAST, _MOST, _FACTOR = 8, 1 << 30, 4
_EFFORT = Effort(longest_s=0.5, warmup_s=0.01)
_START_S, _TIMEOUT_S = 120.0, 40.0
_MOST_FAULTS = 3
_FLOAT_BYTES = 4
_FEWER = ("all_reduce", "sendrecv")  # collectives measured on groups smaller than all GPUs
_IN_PLACE = ("all_reduce", "broadcast", "reduce")
_SUMMED = ("all_reduce", "reduce")  # in place: each call sums the results of the previous one


def cases(bench: Bench) -> Iterator[Case]:
    """Return collectives of all GPUs, then of fewer; raises Unavailable where there are fewer than two."""
    here = launch()
    count = torch.cuda.device_count() if here is None else here.world
    if bench.alone:
        raise Unavailable("--device names one GPU; collectives take two")
    if count < 2:
        raise Unavailable("there is one GPU; collectives take two")
    return group_cases(bench, [count, *[2**i for i in range(1, count.bit_length()) if 2**i < count]])


def group_cases(bench: Bench, counts: Sequence[int], most_bytes: int = _MOST) -> Iterator[Case]:
    """Yield collectives of groups of *counts* ranks, on GPUs, or by gloo over loopback where *bench* is a CPU."""
    on_gpus = bench.is_cuda
    largest = min(most_bytes, 1 << (bench.memory_bytes // 4).bit_length() - 1)
    sizes = spread(sorted({*ladder(_LEAST, largest, _FACTOR), largest}))
    with Groups(bench) as groups:
        for count, size in product(counts, sizes):
            for name in _COLLECTIVES if count == counts[0] else _FEWER:
                whole = size if name in _ANY_SIZE else size // (count * _FLOAT_BYTES) * count * _FLOAT_BYTES
                gpus = f"0-{count - 1}" if on_gpus and nodes_of(count) == 1 else ""
                columns = _columns(nodes_of(count), gpus, count, name, whole) | Columns(n_gpus=count if on_gpus else 0)
                columns["placement"] = "in-place" if name in _IN_PLACE else "out-of-place"
                columns["algorithm_forced"] = os.environ.get("NCCL_ALGO", "") if on_gpus else ""
                columns["note"] = "" if on_gpus else "gloo over loopback"
                if whole:
                    build = partial(groups.build, name, whole, count)
                    yield Case("collectives.csv", columns, build, needs_bytes=2 * size)


def _columns(nodes: int, gpus: str, count: int, collective: str, size: int) -> Columns:
    found = Columns(n_nodes=nodes, n_gpus=count, gpu_set=gpus, group_size=count, n_groups_concurrent=1)
    return found | Columns(collective=collective, bytes=size, dtype="fp32", placement="in-place")


class Groups(KeptRanks):
    """The active ranks: one group at a time, kept from case to case, and given up after three faults."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(cuda=bench.is_cuda, start_s=_START_S, timeout_s=_TIMEOUT_S)
        self._look = bench.sensors.look
        self._faults: dict[int, list[str]] = {}

    def build(self, name: str, size: int, count: int, _: Bench) -> TimedWork:
        """Return the work of one case."""
        own = partial(self.slowest, count, _time_on_rank, name, size, _EFFORT)
        return TimedWork(lambda _: None, own=own, figures=partial(figures_of, name, size, count))

    def slowest(self, count: int, function: Callable[..., Interval], *arguments: Any) -> Interval:
        """Return the time of the slowest of *count* ranks; raises RanksFailed, after three faults Unavailable."""
        faults = self._faults.setdefault(count, [])
        if len(faults) >= _MOST_FAULTS:
            raise Unavailable(f"given up after faults, the last of them: {faults[-1]}")
        weight = _MOST_FAULTS  # starting takes long, so it is not tried again
        try:
            self.start(count)
            weight = 1
            found: Interval = self.run(count, function, *arguments, look=self._look)[0]
        except RanksFailed as fault:
            faults += [str(fault)] * weight
            raise
        return found


def figures_of(name: str, size: int, count: int, interval: Interval) -> Mapping[str, Any]:
    """Return the time in seconds, and algbw and busbw in GB/s, as nccl-tests defines them."""
    rate = size / interval.median / 1e9
    passes = 2 if name == "all_reduce" else 1 if name in ("all_gather", "reduce_scatter", "all_to_all") else 0
    factor = passes * (count - 1) / count if passes else 1.0
    return {"time_s": interval.median, "algbw_GBps": rate, "busbw_GBps": rate * factor}


def _time_on_rank(rank: int, count: int, name: str, size: int, effort: Effort) -> Interval:
    cuda = dist.get_backend() == "nccl"
    device = rank_device(cuda=cuda)
    torch.manual_seed(rank)
    made: list[torch.Tensor] = []

    def numbers(share: int = 1) -> torch.Tensor:
        made.append(torch.randn(size // share // _FLOAT_BYTES, device=device))
        return made[-1]

    def renew() -> None:  # each call of a sample multiplies the sums by *count*; they pass 1 halfway and stay finite
        for x in made:
            x.normal_().mul_(_first_size(count))

    try:
        call = _COLLECTIVES[name](rank, count, numbers)
        return time_together(call, effort, cuda=cuda, renew=renew if name in _SUMMED else None)
    finally:
        if cuda:  # free the memory for other cases
            torch.cuda.empty_cache()


MOST_CALLS = 64  # most calls per sample: what a GPU's queue takes without blocking the host
_ISSUE_S = 100e-6  # more than the host needs to issue one call


def time_together(call: Call, effort: Effort, *, cuda: bool, renew: Look = None, issue_s: float = _ISSUE_S) -> Interval:
    """Return the median time of one *call* on the slowest rank, in seconds; all ranks call this at the same point.

    Each sample starts after an all-reduce of one number, and its time is the greatest of all ranks, on which alone all
    decisions depend.  On a GPU the stream is blocked for *issue_s* seconds a call, so that only device time counts.
    *renew* is called before each sample, untimed.
    """
    return time_call(_Together(cuda, renew, issue_s), call, effort._replace(most_calls=MOST_CALLS))


class _Together:
    """A stopwatch of all ranks; ``spent_s`` leaves out the first sample, in which libraries connect the ranks."""

    def __init__(self, cuda: bool, renew: Look, issue_s: float) -> None:
        self._cuda, self._renew, self._issue_s = cuda, renew, issue_s
        self._token = torch.zeros(1, device="cuda" if cuda else "cpu")
        self.ran_dry, self.spent_s = False, float("-inf")

    def sample(self, call: Call, calls: int) -> float:
        if self._renew is not None:
            self._renew()
        how = (call, calls, self._token)
        took_s, self.ran_dry = _sample_cuda(*how, self._issue_s) if self._cuda else _sample_cpu(*how)
        self.spent_s = max(0.0, self.spent_s + took_s)
        return took_s


def _sample_cpu(call: Call, calls: int, token: torch.Tensor) -> tuple[float, bool]:
    dist.all_reduce(token)
    return greatest(CpuStopwatch().sample(call, calls), token.device), False


def _sample_cuda(call: Call, calls: int, token: torch.Tensor, issue_s: float) -> tuple[float, bool]:
    """Return the greatest time of all ranks, in seconds, and whether this rank's stream ran dry during issue."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    held = hold_up(calls * issue_s)
    dist.all_reduce(token)
    start.record()
    for i in range(calls):
        call(i)
    early = held and start.query()
    end.record()
    end.synchronize()
    return greatest(start.elapsed_time(end) / 1000, token.device), early


def _first_size(count: int) -> float:
    return max(2.0**-125, math.pow(count, -MOST_CALLS / 2))


Numbers = Callable[..., Any]  # returns a buffer of the case's size, or of the *share*-th part of it
Made = Callable[[int, int, Numbers], Callable[[int], object]]


def _calls(*names: str, parts: Callable[[int], tuple[int, ...]] = lambda _: (1,), **how: int) -> Made:
    """Return a maker of a rank's call of the first of *names* in torch.distributed; *parts* divide input and output."""

    def make(_: int, count: int, numbers: Numbers) -> Callable[[int], object]:
        buffers = [numbers(part) for part in parts(count)][::-1]
        function = next(getattr(dist, name) for name in names if hasattr(dist, name))
        return lambda _: function(*buffers, **how)

    return make


def _sendrecv(rank: int, count: int, numbers: Numbers) -> Callable[[int], object]:
    x, out = numbers(), numbers()

    def call(_: int) -> None:
        ways = [dist.P2POp(dist.isend, x, (rank + 1) % count), dist.P2POp(dist.irecv, out, (rank - 1) % count)]
        for request in dist.batch_isend_irecv(ways):
            request.wait()

    return call


_COLLECTIVES: dict[str, Made] = {
    "all_reduce": _calls("all_reduce"),
    "all_gather": _calls("all_gather_single", "all_gather_into_tensor", parts=lambda count: (count, 1)),
    "reduce_scatter": _calls("reduce_scatter_single", "reduce_scatter_tensor", parts=lambda count: (1, count)),
    "all_to_all": _calls("all_to_all_single", parts=lambda _: (1, 1)),
    "broadcast": _calls("broadcast", src=0),
    "sendrecv": _sendrecv,
    "reduce": _calls("reduce", dst=0),
}
_ANY_SIZE = ("all_reduce", "broadcast", "reduce", "sendrecv")

_MOST_ISSUE_S = 30e-3  # largest allowance for the host to issue a whole exchange
_ROUND_S = 200e-6  # allowance for a rank's host to post one round with its adds
_EXCHANGE_EFFORT = Effort(longest_s=2.0, warmup_s=0.02)


def strategy_cases(bench: Bench) -> Iterator[Case]:
    """Yield a case for each exchange in the folder; raises Unavailable where there is none, or one GPU was named."""
    try:
        asked = json.loads((bench.scratch / EXCHANGES).read_text(encoding="utf-8"))["exchanges"]
    except (OSError, ValueError, KeyError, TypeError):
        told = f"{EXCHANGES} is not there or holds no exchanges; validate run --strategy writes it"
        raise Unavailable(told) from None
    if bench.alone:
        raise Unavailable("--device names one GPU; strategies take two")
    with Groups(bench) as groups:
        for each in asked:
            exchange = exchanges.read_exchange(each) if "rounds" in each else None
            name, count, size = str(each["strategy"]), int(each["n_ranks"]), int(each["bytes"])
            collective, stands = str(each["collective"]).replace("-", "_"), each["stands"][:count]
            gpus = ",".join(str(stand["index"]) for stand in stands) if bench.is_cuda else ""
            columns = _columns(len({stand["host"] for stand in stands}), gpus, count, collective, size)
            columns["strategy"] = "" if name == "nccl" else name
            columns["note"] = "" if bench.is_cuda else "gloo over loopback" if launch() is None else "gloo"
            build = partial(_build, groups, name, exchange, collective, size, count)
            needs = 2 * size if exchange is None else _needs_bytes(exchange, is_cuda=bench.is_cuda)
            yield Case("collectives.csv", columns, build, needs_bytes=needs)


def _needs_bytes(exchange: BufferExchange, *, is_cuda: bool) -> int:
    """Return the bytes of the fullest GPU, or on a CPU those of all ranks, with their inputs and expected results."""
    parts = (exchanges.stand_parts(exchange, stand) for stand in range(len(exchange.stands)))
    held = [exchange.n_elements + exchanges.staging_count(own) for own in parts]
    return (max(held) if is_cuda else sum(held) + 2 * exchange.n_elements * len(held)) * _FLOAT_BYTES


def _build(
    groups: Groups, name: str, exchange: BufferExchange | None, collective: str, size: int, count: int, bench: Bench
) -> TimedWork:
    if exchange is None:
        if name != ("nccl" if bench.is_cuda else "gloo"):
            raise Unavailable(f"{name} is not what torch does between {'GPUs' if bench.is_cuda else 'CPUs'}")
        return groups.build(collective, size, count, bench)
    if bench.is_cuda and len({stand.host for stand in exchange.stands}) == 1:
        return _over_devices(exchange, collective, size, bench)
    if bench.is_cuda:
        _check_placed(exchange)
    own = partial(groups.slowest, len(exchanges.processes_of(exchange)), _time_exchange, exchange)
    return TimedWork(lambda _: None, own=own, figures=partial(figures_of, collective, size, count))


def _over_devices(exchange: BufferExchange, collective: str, size: int, bench: Bench) -> TimedWork:
    there = torch.cuda.device_count()
    if any(stand.index >= there for stand in exchange.stands if stand.kind == "gpu"):
        raise Unavailable(f"it takes more GPUs than are here ({there})")
    over = OverDevices(exchange, [stand.index if stand.kind == "gpu" else None for stand in exchange.stands])
    _check(over, exchange)

    def figures(interval: Interval) -> Mapping[str, Any]:
        _check(over, exchange)
        return figures_of(collective, size, exchange.n_ranks, interval)

    first = exchange.stands[0].index
    # Where the host adds, it cannot run ahead, so its time counts.
    watch = CudaStopwatch(bench, first) if over.needs_host else QueuedStopwatch(bench, first, _MOST_ISSUE_S)
    return TimedWork(lambda _: over.run(), watch=watch, figures=figures)


def _check_placed(exchange: BufferExchange) -> None:
    here = launch()
    if here is None:
        raise Unavailable("its ranks are on several machines; torchrun starts a process for each of them")
    if any(stand.kind != "gpu" for stand in exchange.stands):
        raise Unavailable(f"{exchange.strategy} gathers in a CPU's memory, which NCCL does not reach on other machines")
    for rank, stand in enumerate(exchange.stands):
        node, gpu = divmod(rank, here.local_world)
        if (stand.host, stand.index) != (node, gpu):
            wanted = f"rank {rank} is GPU {stand.index} of node {stand.host}"
            raise Unavailable(f"{wanted}, and torchrun has put it on GPU {gpu} of node {node}")


def _check(over: OverDevices | OverRanks, exchange: BufferExchange) -> None:
    over.fill()
    over.run()
    if not over.is_right():
        raise Unavailable(f"{exchange.strategy} leaves a wrong result")


def _time_exchange(rank: int, _: int, exchange: BufferExchange) -> Interval:
    cuda = dist.get_backend() == "nccl"
    device = rank_device(cuda=cuda)
    dist.all_reduce(torch.zeros(1, device=device))  # NCCL's first call must involve all ranks
    over = OverRanks(exchange, rank, device=device)
    _check(over, exchange)
    issue_s = len(exchange.rounds) * _ROUND_S
    interval = time_together(lambda _: over.run(), _EXCHANGE_EFFORT, cuda=cuda, renew=over.fill, issue_s=issue_s)
    _check(over, exchange)
    return interval
