"""Logs in the format of recent nccl-tests versions, generated for tests."""

from __future__ import annotations

import json
from collections.abc import Sequence

from simulator.workload import Collective, bus_factor

_PROGRAMS = {
    "all-reduce": "all_reduce",
    "all-gather": "all_gather",
    "reduce-scatter": "reduce_scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "all-to-all": "alltoall",
    "send-recv": "sendrecv",
}
_REDUCES = ("all-reduce", "reduce-scatter", "reduce")


def as_log(
    times: Sequence[tuple[int, float]],
    hosts: int = 1,
    devices: Sequence[int] = tuple(range(8)),
    collective: Collective = "all-reduce",
    *,
    gpu: str = "NVIDIA H100 80GB HBM3",
    per_thread: int = 1,
    version: int = 23007,
    header: bool = True,
    wrong: int = 0,
) -> str:
    """Return a log of nccl-tests with *times*, pairs of bytes and seconds, equal out of place and in place."""
    ranks = [(host, device) for host in range(hosts) for device in devices]
    lines = [
        f"# nccl-tests version 2.17.6 nccl-headers={version} nccl-library={version}",
        f"# Collective test starting: {_PROGRAMS[collective]}_perf",
        f"# nThread 1 nGpus {per_thread} minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20",
        "#",
        "# Using devices",
        *(
            f"#  Rank {rank:2d} Group  0 Pid {900 + rank:6d} on {f'node{host}':>10} "
            f"device {device:2d} [0000:0{device}:00] {gpu}"
            for rank, (host, device) in enumerate(ranks)
        ),
        "#",
    ]
    table = [
        "#                                                              out-of-place                       in-place",
        f"#       size         count      type   redop    root{2 * '     time   algbw   busbw  #wrong'}",
        f"#        (B)    (elements)                          {2 * '     (us)  (GB/s)  (GB/s)        '}",
    ]
    redop = "sum" if collective in _REDUCES else "none"
    root = 0 if collective in ("broadcast", "reduce") else -1
    for size, time_s in times:
        algbw = size / time_s / 1e9
        busbw = algbw * bus_factor(collective, len(ranks))
        half = f"  {time_s * 1e6:7.5g}  {algbw:6.4g}  {busbw:6.4g}  {wrong:6d}"
        table.append(f"{size:12d}  {size // 4:12d}  {'float':>8}  {redop:>6}  {root:6d}{half}{half}")
    table += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 1.0", "#"]
    return "\n".join([*(lines if header else []), *table]) + "\n"


def as_json_log(times: Sequence[tuple[int, float]], devices: int = 8) -> str:
    """Return the file that ``-J`` writes for an all-reduce on one machine."""
    results = []
    for size, time_s in times:
        algbw = size / time_s / 1e9
        half = {
            "time": time_s * 1e6,
            "alg_bw": algbw,
            "bus_bw": algbw * bus_factor("all-reduce", devices),
            "nwrong": 0.0,
        }
        results.append(
            {
                "size": size,
                "count": size // 4,
                "type": "float",
                "redop": "sum",
                "root": "    -1",
                "out_of_place": half,
                "in_place": half,
            }
        )
    listed = [
        {"rank": i, "hostname": "n0", "device": i, "device_info": "NVIDIA H100 80GB HBM3"} for i in range(devices)
    ]
    config = {"nthreads": 1, "ngpus": devices, "devices": listed}
    head = {"version": 2, "args": ["./build/all_reduce_perf", "-J", "x"], "env": ["NCCL_ALGO=Tree", "HOME=/root"]}
    return json.dumps({**head, "nccl_version": 22703, "config": config, "results": results})
