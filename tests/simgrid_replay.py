"""Replay rounds of flows in SimGrid, an independent engine to compare with.

Run by the Python that has Debian's ``python3-simgrid``, never imported.  Reads a list of cases from standard input
and prints the time of each round of each case, both as JSON::

    [{"links": [[bandwidth_Bps, latency_s], ...],
      "rounds": [[[[link, ...], bytes, cap_Bps or null, latency_s], ...], ...]}, ...]

A flow is a list of links (a link that it loads twice appears twice), its size in bytes, a cap on its rate, and a
latency of its own.  A round starts when the previous one has ended.

The model is set to plain max-min sharing: no TCP window, no correction factors, no weights for long routes.  In
SimGrid a flow first waits for its latency, and bandwidth is shared in inverse proportion to latency, so flows that
share a link must have equal latencies to be comparable.
"""

from __future__ import annotations

import json
import sys

from simgrid import Actor, Comm, Engine, Host, Link, LinkInRoute, NetZone

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
_NO_LIMIT_BPS = 1e15


def main() -> None:
    """Replay the cases from standard input."""
    engine = Engine([sys.argv[0], "--log=root.thresh:critical", *(f"--cfg={setting}" for setting in _SETTINGS)])
    cases = json.load(sys.stdin)
    root = NetZone.create_full_zone("root")
    rounds = [_rounds(root, number, case) for number, case in enumerate(cases)]
    home = root.create_host("home", 1e9).seal()
    root.seal()
    took: list[list[float]] = []
    Actor.create("replay", home, lambda: took.extend(_replay(flows) for flows in rounds))
    engine.run()
    sys.stdout.write(json.dumps(took) + "\n")


def _rounds(root: NetZone, number: int, case: dict) -> list[list[tuple[Host, Host, int]]]:
    """Describe a case as a separate network: each flow has two hosts, with its links between them."""
    zone = NetZone.create_full_zone(f"case{number}")
    zone.set_parent(root)
    links: list[Link] = []
    for i, (bandwidth, latency) in enumerate(case["links"]):
        links.append(zone.create_link(f"{number}.{i}", [bandwidth]).set_latency(latency).seal())
    found = []
    for r, flows in enumerate(case["rounds"]):
        listed = []
        for f, (path, n_bytes, cap, latency) in enumerate(flows):
            name = f"{number}.{r}.{f}"
            src = zone.create_host(f"{name}a", 1e9).seal()
            dst = zone.create_host(f"{name}b", 1e9).seal()
            own = zone.create_link(f"{name}.own", [_NO_LIMIT_BPS if cap is None else cap]).set_latency(latency).seal()
            way = [LinkInRoute(own), *(LinkInRoute(links[i]) for i in path)]
            zone.add_route(src.netpoint, dst.netpoint, None, None, way, False)
            listed.append((src, dst, n_bytes))
        found.append(listed)
    zone.seal()
    return found


def _replay(rounds: list[list[tuple[Host, Host, int]]]) -> list[float]:
    ends = []
    for flows in rounds:
        start = Engine.clock
        Comm.wait_all([Comm.sendto_async(src, dst, n_bytes) for src, dst, n_bytes in flows])
        ends.append(Engine.clock - start)
    return ends


if __name__ == "__main__":
    main()
