"""All-reduces on SimGrid's own fat tree: its platform, its routes, and schedules written here from the textbook.

Run by the Python that has Debian's ``python3-simgrid``, never imported.  Reads one case from standard input as JSON and
prints the seconds that it takes::

    {"leaves": 8, "hosts": 8, "spines": 8, "bandwidth_Bps": 1e10, "latency_s": 1e-6,
     "schedule": "ring", "size_bytes": 256000000, "rounds": null}

``hosts`` are those of each leaf switch.  Every link has the bandwidth in each direction, and the latency.  SimGrid
routes by D-mod-k: all that goes to a host goes by the same spine.  The schedules:

``ring``
    2(n-1) rounds, in each of which every rank sends 1/n of the buffer to the next.
``halving-doubling``
    log2 n rounds of exchanges with the rank at half the distance, of half the bytes each; then all backwards.  n is a
    power of two.
``sharded``
    Every rank sends 1/n of the buffer to every other, all at once; then again.  n(n-1) flows: at 64 ranks 4,032, at 256
    65,280, which takes 17 s; at 1,024 it would be a million.
``sharded in turns``
    The same bytes between the same ranks in n-1 turns: in turn k each rank sends to the k-th after it.

With ``rounds``, only as many of the schedule's rounds are run, and the seconds are of these.

The network model is set as in ``tests/simgrid_replay.py``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from simgrid import (
    Actor,
    ClusterCallbacks,
    Comm,
    Engine,
    FatTreeParams,
    Host,
    Link,
    NetZone,
)

_SETTINGS = (
    "network/model:CM02",
    "network/TCP-gamma:0",
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "network/crosstraffic:0",
    "surf/precision:1e-12",
    "maxmin/precision:1e-9",
)

Round = list[tuple[int, int, int]]  # sender, receiver, bytes


def main() -> None:
    """Run the case from standard input."""
    engine = Engine([sys.argv[0], "--log=root.thresh:critical", *(f"--cfg={setting}" for setting in _SETTINGS)])
    case = json.load(sys.stdin)
    hosts: list[Host] = []

    def add(zone: NetZone, _coordinates: list[int], number: int) -> tuple[object, None]:
        hosts.append(zone.create_host(f"host{number}", 1e9).seal())
        return hosts[-1].netpoint, None

    NetZone.create_fatTree_zone(
        "fat tree",
        None,
        FatTreeParams(2, [case["hosts"], case["leaves"]], [1, case["spines"]], [1, 1]),
        ClusterCallbacks(add, None, None),
        case["bandwidth_Bps"],
        case["latency_s"],
        Link.SharingPolicy.SPLITDUPLEX,
    ).seal()
    schedule = _SCHEDULES[case["schedule"]]

    def run() -> None:
        for number, sends in enumerate(schedule(len(hosts), case["size_bytes"])):
            if number == case["rounds"]:
                break
            Comm.wait_all([Comm.sendto_async(hosts[src], hosts[dst], size) for src, dst, size in sends])

    Actor.create("all", hosts[0], run)
    engine.run()
    sys.stdout.write(json.dumps(Engine.clock) + "\n")


def _ring(n: int, size: int) -> Iterator[Round]:
    for _ in range(2 * (n - 1)):
        yield [(rank, (rank + 1) % n, size // n) for rank in range(n)]


def _halving_doubling(n: int, size: int) -> Iterator[Round]:
    distances = [1 << power for power in range(n.bit_length() - 1)]
    for distance in [*reversed(distances), *distances]:
        yield [(rank, rank ^ distance, size * distance // n) for rank in range(n)]


def _sharded(n: int, size: int) -> Iterator[Round]:
    for _ in ("reduce-scatter", "all-gather"):
        yield [(src, dst, size // n) for src in range(n) for dst in range(n) if src != dst]


def _in_turns(n: int, size: int) -> Iterator[Round]:
    for _ in ("reduce-scatter", "all-gather"):
        for turn in range(1, n):
            yield [(rank, (rank + turn) % n, size // n) for rank in range(n)]


_SCHEDULES = {
    "ring": _ring,
    "halving-doubling": _halving_doubling,
    "sharded": _sharded,
    "sharded in turns": _in_turns,
}


if __name__ == "__main__":
    main()
