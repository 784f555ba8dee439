"""One call of a framework: what the host issues, and what then runs (docs/decisions/step-models.md)."""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from simulator.devices import KernelCost
from simulator.devices.dispatch import graph_launch_time, host_time, in_graph
from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.questions.options import StepOptions
from simulator.records import dataclass, replace
from simulator.step.precision import storage_of
from simulator.workload import Collective
from simulator.workload.network import Network, block_name
from simulator.workload.operators import BatchNorm, Exchange
from simulator.workload.precision import ELEMENT_BYTES
from simulator.workload.split.experts import beside_exchanges

Part = Literal["forward", "backward", "update"]


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Kernels that run one after the other: the error class and cost of each, and the total time in seconds."""

    kinds: tuple[str, ...]
    costs: tuple[KernelCost, ...]
    time_s: float


class LayerCollective(NamedTuple):
    """A collective, of nccl-tests' size, among the ranks that divide a layer along one axis of the layout."""

    axis: str
    op: Collective
    size_bytes: int
    copies: int = 1  # of the same data among the bytes, or that are summed
    spare: bool = False  # only gradients of weights read the result


@dataclass(frozen=True, slots=True)
class Launch:
    """One operator as the host issues it: ``host_s`` seconds to issue, then ``work`` on the device."""

    name: str
    part: Part
    host_s: float
    work: DeviceWork
    waits: bool = False  # the host, for all earlier work of the device, to read a result
    adds: bool = False  # to gradients of earlier micro-batches; the first omits it
    layer: str = ""  # "" in the update
    again: bool = False  # recomputed in the backward pass
    sent: LayerCollective | None = None  # the collective of an exchange
    needs: tuple[str, ...] = ()  # layers whose exchanges it waits for
    over: Literal["kept", "all", "summed"] = "kept"  # parameters whose state it keeps, all gradients, or summed ones
    late: bool = False  # gradients of parameters that were put off
    whole: bool = False  # updates a matrix that ranks do not divide

    @property
    def device_s(self) -> float:
        """Seconds on the device."""
        return self.work.time_s


NOTHING = DeviceWork((), (), 0.0)


def collectives_of(
    operator: Exchange, device: Device, options: StepOptions, *, forward: bool
) -> Iterator[LayerCollective]:
    """Yield the collectives of *operator* in the forward or the backward pass, in order."""
    size_bytes = operator.elements * ELEMENT_BYTES["fp32" if operator.wide else storage_of(options.precision)]
    spare = operator.axis == "tp"
    beside = spare and not (isinstance(device, Gpu) and device.traits.operands == "warps")
    if not forward and operator.again and operator.forward and options.framework == "megatron" and not beside:
        yield LayerCollective(operator.axis, operator.forward, size_bytes, operator.copies, spare)
    op = operator.forward if forward else operator.backward
    if op is not None:
        yield LayerCollective(operator.axis, op, size_bytes, operator.copies)


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
    """Return *issues* of a compiled module, called (*taped*: by autograd) at the first of each pass."""
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
