"""The user's exchange strategies: each rank's sends and adds as planned by the simulator.

A file in the measurements folder holds them as plain data (:mod:`validate.machine.measure.exchange`).  On the GPUs of
one machine, one process issues the whole exchange (:class:`OverDevices`).  Between CPUs, and between GPUs of several
machines, each rank is a process, and gloo or NCCL carries its messages (:class:`OverRanks`).  An exchange without
rounds is torch's own collective, by NCCL or gloo.  The time is that of the slowest rank, and every sum is checked to
the last bit before and after timing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from validate.machine.measure.bench import Bench, CudaStopwatch, QueuedStopwatch
from validate.machine.measure.case import EXCHANGES, Case, Columns, TimedWork, Unavailable
from validate.machine.measure.cases.collectives import Groups, figures_of
from validate.machine.measure.exchange import (
    BufferExchange,
    OverDevices,
    OverRanks,
    processes_of,
    read_exchange,
    staging_count,
    stand_parts,
)
from validate.machine.measure.launched import launch
from validate.machine.measure.ranks import rank_device, time_together
from validate.machine.measure.timing import Effort, Interval

_FLOAT_BYTES = 4
_MOST_ISSUE_S = 30e-3  # largest allowance for the host to issue a whole exchange
_ROUND_S = 200e-6  # allowance for a rank's host to post one round with its adds
_EFFORT = Effort(longest_s=2.0, warmup_s=0.02)


def cases(bench: Bench) -> Iterator[Case]:
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
            exchange = read_exchange(each) if "rounds" in each else None
            name, count, size = str(each["strategy"]), int(each["n_ranks"]), int(each["bytes"])
            collective, stands = str(each["collective"]).replace("-", "_"), each["stands"][:count]
            gpus = ",".join(str(stand["index"]) for stand in stands) if bench.is_cuda else ""
            columns = Columns(n_nodes=len({stand["host"] for stand in stands}), n_gpus=count, gpu_set=gpus)
            columns |= Columns(group_size=count, n_groups_concurrent=1, collective=collective, bytes=size, dtype="fp32")
            columns |= Columns(placement="in-place", strategy="" if name == "nccl" else name)
            columns["note"] = "" if bench.is_cuda else "gloo over loopback" if launch() is None else "gloo"
            build = partial(_build, groups, name, exchange, collective, size, count)
            needs = 2 * size if exchange is None else _needs_bytes(exchange, is_cuda=bench.is_cuda)
            yield Case("strategies", "collectives.csv", columns, build, needs_bytes=needs)


def _needs_bytes(exchange: BufferExchange, *, is_cuda: bool) -> int:
    """Return the memory needed in bytes: that of the fullest GPU, or of all processes together on a CPU.

    A stand holds its buffer and its staging buffer; on the CPU also its input and its expected result.
    """
    held = [exchange.n_elements + staging_count(stand_parts(exchange, s)) for s in range(len(exchange.stands))]
    most = max(held) if is_cuda else sum(held) + 2 * exchange.n_elements * len(held)
    return most * _FLOAT_BYTES


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
    own = partial(groups.slowest, len(processes_of(exchange)), _time_on_rank, exchange)
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
    """Raise Unavailable where the launcher's ranks are not on the GPUs that *exchange* names."""
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
    """Exchange once; raise Unavailable where the result is not exact."""
    over.fill()
    over.run()
    if not over.is_right():
        raise Unavailable(f"{exchange.strategy} leaves a wrong result")


def _time_on_rank(rank: int, _: int, exchange: BufferExchange) -> Interval:
    cuda = dist.get_backend() == "nccl"
    device = rank_device(cuda=cuda)
    dist.all_reduce(torch.zeros(1, device=device))  # NCCL's first call must involve all ranks
    over = OverRanks(exchange, rank, device=device)
    _check(over, exchange)
    issue_s = len(exchange.rounds) * _ROUND_S
    interval = time_together(lambda _: over.run(), _EFFORT, cuda=cuda, renew=over.fill, issue_s=issue_s)
    _check(over, exchange)
    return interval
