"""What the way of issuing changes: hooks around layers, a compiled module, a captured graph of all or of blocks."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.devices.dispatch import graph_launch_time, host_time, in_graph
from simulator.devices.predict import Device
from simulator.records import replace
from simulator.step.launch import Launch, Part
from simulator.workload.network import Network, block_name
from simulator.workload.operators import BatchNorm
from simulator.workload.split.experts import beside_exchanges

_BUFFERS_OF_BATCH_NORM = 3  # the running mean, the running variance and the count of batches


def hooked(device: Device, network: Network, issues: Sequence[Launch]) -> list[Launch]:
    """Return *issues* with the host time of ZeRO-3's hooks at the first of each pass of a layer with parameters."""
    with_parameters = {layer.name for layer in network.layers if layer.parameters}
    found: list[Launch] = []
    seen: set[tuple[str, Part, bool]] = set()
    for issue in issues:
        key = issue.layer, issue.part, issue.again
        first = issue.layer in with_parameters and issue.part != "update" and key not in seen
        seen.add(key)
        found.append(replace(issue, host_s=issue.host_s + host_time(device, "hook_s")) if first else issue)
    return found


def called_compiled(device: Device, network: Network, issues: Sequence[Launch], *, taped: bool) -> list[Launch]:
    """Return *issues* of a compiled module with the host time of calling it, at the first of each pass.

    Without a tape there is no node of autograd, and its wrapper passes arguments on.
    """
    trained = {parameter.name: parameter.trained for parameter in network.parameters}
    buffers = _BUFFERS_OF_BATCH_NORM * sum(isinstance(layer.operator, BatchNorm) for layer in network.layers)
    call_s: dict[Part, float] = {
        "forward": host_time(device, "argument_s" if taped else "untaped_s", len(trained) + buffers),
        "backward": host_time(device, "gradient_s", sum(trained.values())),
    }
    return [replace(issue, host_s=issue.host_s + call_s.pop(issue.part, 0.0)) for issue in issues]


def shared_beside(network: Network, issues: Sequence[Launch]) -> list[Launch]:
    """Return *issues* with those of shared experts right after the exchange beside which they run, in each pass."""
    beside = beside_exchanges(network)
    names = frozenset(beside.values())
    sent = {(each.part, each.again, each.layer): place for place, each in enumerate(issues) if each.layer in names}

    def order(place: int) -> float:
        each = issues[place]
        exchange = sent.get((each.part, each.again, beside.get(each.layer, "")))
        return place if exchange is None else exchange + 0.5

    return [issues[place] for place in sorted(range(len(issues)), key=order)]


def captured_whole(device: Device, issue: Launch) -> Launch:
    """Return *issue* as part of a captured graph, where kernels follow each other with shorter gaps."""
    costs = tuple(replace(cost, time_s=in_graph(device, cost.time_s)) for cost in issue.work.costs)
    return replace(issue, work=replace(issue.work, costs=costs, time_s=sum(cost.time_s for cost in costs)))


def captured_blocks(device: Device, network: Network, issues: Sequence[Launch]) -> list[Launch]:
    """Return *issues* with one graph launch for consecutive operators of a block; experts are not captured."""
    apart = {layer.name for layer in network.layers if layer.part == "experts"}
    found: list[Launch] = []
    before: tuple[str, Part] = "", "update"
    for issue in issues:
        block = "" if issue.layer in apart or issue.part == "update" else block_name(issue.layer)
        host_s = 0.0 if before == (block, issue.part) else graph_launch_time(device)
        found.append(replace(captured_whole(device, issue), host_s=host_s) if block else issue)
        before = block, issue.part
    return found
