"""What the framework issues in one step, in order: each call with its kernels and their cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from simulator.devices.cost import KernelCost
from simulator.devices.dispatch import dispatch_time, gradient_time, update_time
from simulator.devices.kernels import Kernel, Streaming
from simulator.devices.lowering import lower_operator
from simulator.devices.optimizer import optimizer_kernels
from simulator.devices.predict import Device, kernel_class, kernel_cost
from simulator.step.backward import backward_steps
from simulator.step.fusion import Group, groups_of
from simulator.step.layout import laid_out
from simulator.step.options import StepOptions
from simulator.step.precision import casts, precision_of, storage_of
from simulator.workload.network import Layer, Network, block_name
from simulator.workload.operators import BatchNorm, Conv2d, Copy, Elementwise, Operator, Phase
from simulator.workload.precision import ELEMENT_BYTES

__all__ = ["DeviceWork", "Issue", "Part", "issues_of"]

Part = Literal["forward", "backward", "update"]
# What generated code takes to issue a kernel.  UNVERIFIED: of the order of a bare launch from Python.
COMPILED_DISPATCH_S = 6e-6
FP32_BYTES = ELEMENT_BYTES["fp32"]


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Kernels that run one after the other: the class of each, its cost, and the time of all."""

    kinds: tuple[str, ...]
    costs: tuple[KernelCost, ...]
    time_s: float


@dataclass(frozen=True, slots=True)
class Issue:
    """One operator as the host issues it: ``host_s`` to issue, then ``work`` on the device.

    ``waits``: the host looks at what the device has computed before, and waits for it.
    """

    name: str
    part: Part
    host_s: float
    work: DeviceWork
    waits: bool = False

    @property
    def device_s(self) -> float:
        """Seconds on the device."""
        return self.work.time_s


class _Issuer:
    def __init__(self, device: Device, network: Network, options: StepOptions) -> None:
        self.device = device
        self.network = network
        self.options = options
        self.element_bytes = ELEMENT_BYTES[storage_of(options.precision)]
        self.casts_parameters = casts(options.precision)
        self.known: dict[tuple[Operator, Phase], tuple[float, DeviceWork] | None] = {}  # blocks repeat
        self.passes: dict[tuple[Streaming, Part], tuple[float, DeviceWork]] = {}

    def layer(self, layer: Layer, phase: Phase, part: Part) -> Iterator[Issue]:
        key = layer.operator, phase
        if key not in self.known:
            self.known[key] = self.priced(layer.operator, phase)
        priced = self.known[key]
        if priced is not None:
            host_s, work = priced
            if part == "backward":
                host_s += gradient_time(self.device, len(layer.parameters))
            yield Issue(layer.name, part, host_s, work)
        if self.casts_parameters:
            yield from self.casts(layer, part)

    def priced(self, operator: Operator, phase: Phase) -> tuple[float, DeviceWork] | None:
        """Return what *operator* costs on the host and on the device, None where nothing runs."""
        precision = precision_of(self.options.precision, operator, self.device)
        kernels = lower_operator(operator, phase, precision)
        if isinstance(operator, BatchNorm) and not self.options.trains:  # by running statistics: one pass
            n = operator.output_elements
            kernels = (Streaming("batch_norm", n, n * self.element_bytes, n * self.element_bytes),)
        if isinstance(operator, Conv2d | BatchNorm):
            kernels = laid_out(self.device, kernels, channels_last=self.is_by_pixels(operator))
        return (dispatch_time(self.device, operator, phase), self.work(kernels)) if kernels else None

    def is_by_pixels(self, operator: Operator) -> bool:
        """Return whether kernels of *operator* share pixels: as images lie, or as compilers divide sums."""
        return self.options.channels_last or (self.options.compiled and isinstance(operator, BatchNorm))

    def casts(self, layer: Layer, part: Part) -> Iterator[Issue]:
        """Autocast's conversions: of weights and their gradients, and around what stays in fp32."""
        half, elements = self.element_bytes, self.network.elements
        if precision_of(self.options.precision, layer.operator, self.device) == "fp32":
            sizes = [elements[layer.inputs[0]], elements[layer.output]] if layer.inputs else []
        else:
            sizes = [parameter.elements for parameter in layer.parameters if parameter.elements > 0]
        for n in sizes:
            yield self.streamed(f"{layer.name} (cast)", part, Streaming("copy", n, n * half, n * FP32_BYTES))

    def fused(self, group: Group, part: Part, read_elements: int, written_elements: int) -> Issue:
        """Return the one kernel of a group, by what it moves; a reduction over rows keeps its own pace."""
        read, written = read_elements * self.element_bytes, written_elements * self.element_bytes
        name = f"{group.layers[-1].name} (fused with {len(group.layers) - 1} before)"
        most = max(self.network.elements[layer.output] for layer in group.layers)
        kernel: Kernel = Streaming("fused", most, read, written)
        cost = kernel_cost(self.device, kernel)
        reducing = group.reduction
        if reducing is not None:
            precision = precision_of(self.options.precision, reducing.operator, self.device)
            kernels = lower_operator(reducing.operator, "fwd" if part == "forward" else "bwd_data", precision)
            kernel = laid_out(self.device, kernels, channels_last=self.is_by_pixels(reducing.operator))[0]
            alone = kernel_cost(self.device, kernel)
            stretched_s = alone.time_s * max(1.0, (read + written) / alone.bytes) if alone.bytes else alone.time_s
            cost = replace(alone, time_s=stretched_s, bytes=max(alone.bytes, read + written))
        return Issue(name, part, COMPILED_DISPATCH_S, DeviceWork((kernel_class(kernel),), (cost,), cost.time_s))

    def added(self, name: str, elements: int) -> Issue:
        size = elements * self.element_bytes
        return self.streamed(f"{name} (gradients added)", "backward", Streaming("add", elements, 2 * size, size))

    def streamed(self, name: str, part: Part, kernel: Streaming) -> Issue:
        key = kernel, part
        if key not in self.passes:
            n = kernel.elements
            stand_in = Copy(n) if kernel.function == "copy" else Elementwise(kernel.function, n)
            host_s = dispatch_time(self.device, stand_in, "fwd" if part == "forward" else "bwd_data")
            self.passes[key] = host_s, self.work((kernel,))
        return Issue(name, part, *self.passes[key])

    def work(self, kernels: Sequence[Kernel]) -> DeviceWork:
        costs = tuple(kernel_cost(self.device, kernel) for kernel in kernels)
        return DeviceWork(tuple(map(kernel_class, kernels)), costs, sum(cost.time_s for cost in costs))


def issues_of(device: Device, network: Network, options: StepOptions) -> list[Issue]:
    """Return what one step of *network* issues on *device*, in order.

    Raises
    ------
    InputError
        Where the device has no figure for a precision that the step needs.

    """
    issuer = _Issuer(device, network, options)
    groups = list(groups_of(network)) if options.compiled else [_alone(layer) for layer in network.layers]
    issues: list[Issue] = []
    if options.mode != "backward":
        for group in groups:
            issues += _forward(issuer, group)
    if options.mode in ("train", "backward"):
        issues += _backward(issuer, groups)
    if options.mode == "train":
        issues += _update(issuer, network, options)
    if options.compiled:
        issues = [replace(issue, host_s=min(issue.host_s, COMPILED_DISPATCH_S)) for issue in issues]
    return issues


def _alone(layer: Layer) -> Group:
    return Group((layer,), layer.inputs, (layer.output,))


def _forward(issuer: _Issuer, group: Group) -> Iterator[Issue]:
    if len(group.layers) == 1:
        yield from issuer.layer(group.layers[0], "fwd", "forward")
        return
    elements = issuer.network.elements
    read, written = (sum(elements[t] for t in tensors) for tensors in (group.reads, group.writes))
    yield issuer.fused(group, "forward", read, written)


def _backward(issuer: _Issuer, groups: Sequence[Group]) -> Iterator[Issue]:
    network = issuer.network
    steps = {id(step.layer): step for step in backward_steps(network)}
    recomputed = _recomputed(groups) if issuer.options.recompute else {}
    for place in range(len(groups) - 1, -1, -1):
        for again in recomputed.get(place, ()):
            for issue in _forward(issuer, groups[again]):
                yield replace(issue, name=f"{issue.name} (again)", part="backward")
        group = groups[place]
        found = [steps[id(layer)] for layer in group.layers if id(layer) in steps]
        if len(group.layers) > 1 and found:
            added = sum(sum(step.added_elements) for step in found)
            gradients = sum(network.elements[t] for t in group.writes)
            read = sum(network.elements[t] for t in group.reads)
            yield issuer.fused(group, "backward", gradients + read + added, read)
            continue
        for step in found:
            yield from issuer.layer(step.layer, step.phase, "backward")
            for elements in step.added_elements:
                yield issuer.added(step.layer.name, elements)


def _recomputed(groups: Sequence[Group]) -> dict[int, range]:
    """Return which groups run forward again before the backward pass of which (the last of each block)."""
    block_of = [block_name(group.layers[0].name) for group in groups]
    found: dict[int, range] = {}
    start = 0
    for place, name in enumerate(block_of):
        if place + 1 == len(block_of) or block_of[place + 1] != name:
            if name:
                found[place] = range(start, place + 1)
            start = place + 1
    return found


def _update(issuer: _Issuer, network: Network, options: StepOptions) -> Iterator[Issue]:
    """Yield the optimiser's passes over all parameters, as multi-tensor kernels do them."""
    n = network.parameter_count
    if not n or options.optimizer == "none":
        return
    if options.precision == "amp-fp16":
        yield issuer.streamed("unscale gradients", "update", Streaming("mul_scalar", n, 4 * n, 4 * n))
    size = FP32_BYTES if casts(options.precision) else ELEMENT_BYTES[storage_of(options.precision)]
    gathering_s = update_time(issuer.device, len(network.parameters))
    for kernel in optimizer_kernels(options.optimizer, n, size, fused=options.compiled):
        issue = issuer.streamed(f"{options.optimizer} step", "update", kernel)
        # The scaler of gradients asks whether all are finite before it lets the optimiser step.
        waits = gathering_s > 0.0 and options.precision == "amp-fp16"
        yield replace(issue, host_s=issue.host_s + gathering_s, waits=waits)
        gathering_s = 0.0
