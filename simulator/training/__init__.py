"""How a step is divided, among ranks (:func:`divided`) and unlike devices (:func:`divide`); each way writes a plan."""

from collections.abc import Callable, Sequence

from simulator.questions.layout import Layout
from simulator.workload.network import Network
from simulator.workload.split.experts import expert_split


def divided(network: Network, layout: Layout, *, captured: bool = False) -> Network:
    """Return one rank's part of *network*, over all pipeline stages; raises InputError if it cannot be divided.

    *captured*: in a CUDA graph, during which the host looks nothing up.
    """
    if layout.tp > 1:
        from simulator.workload.split.tensor import tensor_split

        network = tensor_split(network, layout.tp, layout.sp)
    if layout.cp > 1:
        from simulator.workload.split.context import context_split

        network = context_split(network, layout.cp, layout.cp_comm, layout.cp_a2a)
    if layout.sync_bn:
        from simulator.workload.split.statistics import synchronised

        network = synchronised(network, layout.dp or 1, captured=captured)
    by_rows = layout.tp == 1 or layout.sp
    way = "all_gather" if layout.gathers_tokens else "flex" if layout.flex else "a2a"
    return expert_split(network, layout.ep, layout.expert_tp, by_rows, way, layout.shared_overlap)


_ROUNDS = 12


def divide(times: Sequence[Callable[[int], float]], total: int) -> list[int]:
    """Return the samples of each device, of *total*, that minimise the last one's time; *times* by samples."""

    def seconds(shares: Sequence[int]) -> list[float]:
        return [time(share) if share else 0.0 for time, share in zip(times, shares, strict=True)]

    best = shares = _rounded([total / len(times)] * len(times), total)
    for _ in range(_ROUNDS):
        speeds = [share / time(share) if share else 1.0 / time(1) for share, time in zip(shares, times, strict=True)]
        shares = _rounded([total * speed / sum(speeds) for speed in speeds], total)
        if max(seconds(shares)) >= max(seconds(best)):
            break
        best = shares
    while True:
        ends_s = seconds(best)
        last = max(range(len(times)), key=lambda i: ends_s[i])
        others = [i for i in range(len(times)) if i != last]
        taker = min(others, key=lambda i: times[i](best[i] + 1), default=last)
        if taker == last or times[taker](best[taker] + 1) >= ends_s[last]:
            return best
        best = [share - (i == last) + (i == taker) for i, share in enumerate(best)]


def _rounded(wanted: Sequence[float], total: int) -> list[int]:
    """Return integers near *wanted* with the sum *total*, by the largest-remainder method."""
    whole = [int(value) for value in wanted]
    order = sorted(range(len(wanted)), key=lambda i: (round(whole[i] - wanted[i], 9), i))
    for i in order[: total - sum(whole)]:
        whole[i] += 1
    return whole
