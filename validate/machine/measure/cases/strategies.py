"""The strategies that a user asked for, each rank's sends and adds as the simulator plans them.

They stand in a file of the folder that is measured into, as plain data (:mod:`validate.machine.measure.exchange`).
On GPUs one process issues all of an exchange (:class:`OverDevices`), between CPUs each rank is a process and gloo
carries what it sends (:class:`OverRanks`).  What the file says nothing of but a name is torch's own: NCCL, or gloo.
The time is that of the slowest rank, and every sum is checked to the last bit before and after.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case, Columns, Unavailable, Work
from validate.machine.measure.cases.collectives import Groups, figures_of
from validate.machine.measure.exchange import Exchange, processes_of, read_exchange
from validate.machine.measure.over_devices import OverDevices
from validate.machine.measure.over_ranks import OverRanks
from validate.machine.measure.statistics import Interval
from validate.machine.measure.timing import Call, Effort
from validate.machine.measure.together import time_together
from validate.machine.measure.watches import QueuedStopwatch

__all__ = ["EXCHANGES", "cases"]

EXCHANGES = "exchanges.json"
"""The file that says which strategies a user asked for, and what each rank does in them."""

_MOST_ISSUE_S = 30e-3  # what the host may need to issue a whole exchange
_EFFORT = Effort(longest_s=2.0, warmup_s=0.02)


def cases(bench: Bench, machine: str) -> Iterator[Case]:
    """Return a case for each exchange in the folder; raises Unavailable where there is none, or too few GPUs."""
    del machine
    try:
        asked = json.loads((bench.scratch / EXCHANGES).read_text(encoding="utf-8"))["exchanges"]
    except (OSError, ValueError, KeyError, TypeError):
        raise Unavailable(
            f"{EXCHANGES} is not there or holds no exchanges; validate run --strategy writes it"
        ) from None
    if bench.alone:
        raise Unavailable("--device names one GPU; strategies take two")
    return _cases(bench, asked)


def _cases(bench: Bench, asked: list[Mapping[str, Any]]) -> Iterator[Case]:
    groups = Groups(bench)
    try:
        for each in asked:
            exchange = read_exchange(each) if "rounds" in each else None
            name, count, size = str(each["strategy"]), int(each["n_ranks"]), int(each["bytes"])
            stands = each["stands"][:count]
            gpus = ",".join(str(stand["index"]) for stand in stands) if bench.is_cuda else ""
            columns: Columns = {
                "n_nodes": len({stand["host"] for stand in stands}),
                "n_gpus": count,
                "gpu_set": gpus,
                "group_size": count,
                "n_groups_concurrent": 1,
                "collective": str(each["collective"]).replace("-", "_"),
                "bytes": size,
                "dtype": "fp32",
                "placement": "in-place",
                "strategy": "" if name == "nccl" else name,
                "note": "" if bench.is_cuda else "gloo over loopback",
            }
            build = partial(_build, groups, name, exchange, str(columns["collective"]), size, count)
            # Each buffer, what is brought and what must come out, and as much that has arrived and is not added yet.
            yield Case("strategies", "collectives.csv", columns, build, needs_bytes=4 * size)
    finally:
        groups.close()


def _build(
    groups: Groups, name: str, exchange: Exchange | None, collective: str, size: int, count: int, bench: Bench
) -> Work:
    if exchange is None:
        if name != ("nccl" if bench.is_cuda else "gloo"):
            raise Unavailable(f"{name} is not what torch does between {'GPUs' if bench.is_cuda else 'CPUs'}")
        return groups.build(collective, size, count, bench)
    if bench.is_cuda:
        return _over_devices(exchange, collective, size, bench)
    figures = partial(figures_of, collective, size, count)
    return Work(lambda _: None, own=partial(_over_ranks, groups, exchange), figures=figures)


def _over_devices(exchange: Exchange, collective: str, size: int, bench: Bench) -> Work:
    there = torch.cuda.device_count()
    if len({stand.host for stand in exchange.stands}) > 1:
        raise Unavailable("its ranks are on several machines; one process has the GPUs of one")
    if any(stand.index >= there for stand in exchange.stands if stand.kind == "gpu"):
        raise Unavailable(f"it takes more GPUs than are here ({there})")
    over = OverDevices(exchange, [stand.index if stand.kind == "gpu" else None for stand in exchange.stands])
    _check(over, exchange)

    def figures(interval: Interval) -> Mapping[str, Any]:
        _check(over, exchange)
        return figures_of(collective, size, exchange.n_ranks, interval)

    first = exchange.stands[0].index
    # Where the host adds, it cannot run ahead: its part belongs to the time.
    watch = _OnDevice(bench, first) if over.needs_host else QueuedStopwatch(bench, first, _MOST_ISSUE_S)
    return Work(lambda _: over.run(), watch=watch, figures=figures)


@dataclass(frozen=True, slots=True)
class _OnDevice:
    """The bench's stopwatch, on the current stream of another GPU."""

    bench: Bench
    device: int

    def sample(self, call: Call, calls: int) -> float:
        """Return the seconds on the device from the first of *calls* calls to the end of the last."""
        with torch.cuda.device(self.device):
            return self.bench.stopwatch().sample(call, calls)


def _check(over: OverDevices | OverRanks, exchange: Exchange) -> None:
    """Exchange once; raise Unavailable where the result is not exact."""
    over.fill()
    over.run()
    if not over.is_right():
        raise Unavailable(f"{exchange.strategy} leaves a wrong result")


def _over_ranks(groups: Groups, exchange: Exchange) -> Interval:
    found: Interval = groups.run(len(processes_of(exchange)), _time_on_rank, exchange)[0]  # of the slowest rank
    return found


def _time_on_rank(rank: int, count: int, exchange: Exchange) -> Interval:
    del count
    over = OverRanks(exchange, rank)
    _check(over, exchange)
    interval = time_together(lambda _: over.run(), _EFFORT, cuda=False, renew=over.fill)
    _check(over, exchange)
    return interval
