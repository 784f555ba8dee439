"""What AdaptDL runs besides a step: statistics of gradients (docs/decisions/step-models.md)."""

from collections.abc import Iterator, Sequence

from simulator.devices.dispatch import dispatch_time
from simulator.devices.predict import Device
from simulator.records import replace
from simulator.step.issue import work_of
from simulator.step.launch import Launch, Part
from simulator.workload.kernels import Streaming
from simulator.workload.network import Layer, Network
from simulator.workload.operators import Elementwise
from simulator.workload.precision import ELEMENT_BYTES

_WORD = ELEMENT_BYTES["fp32"]
_Passes = tuple[tuple[int, int], ...]
# Words of fp32 that each call reads and writes, for each element; (0, 0): a call on a single number.
_NORM: _Passes = ((1, 1), (1, 2), (2, 0), (0, 0))
_DIVIDED: _Passes = ((1, 1), (1, 1))
_MEAN: _Passes = ((2, 1), (1, 1))
_KEPT: _Passes = ((1, 1),)
_ADDED: _Passes = ((2, 1),)
_ZEROED: _Passes = ((0, 1),)
_BUCKETS: _Passes = ((1, 1), (1, 1))


def with_statistics(device: Device, network: Network, issues: Sequence[Launch], *, alone: bool) -> tuple[Launch, ...]:
    """Return *issues* of a training step, with AdaptDL's statistics of gradients; *alone*: one replica steps."""
    layers = {layer.name: layer for layer in network.layers}
    update = [issue for issue in issues if issue.part == "update"]
    passes = [issue for issue in issues if issue.part != "update"]
    last = {issue.layer: number for number, issue in enumerate(passes) if issue.part == "backward" and not issue.again}
    before: list[Launch] = []
    for number, issue in enumerate(passes):  # after a layer's backward pass, what is done with its gradients
        before.append(issue)
        if issue.layer in layers and last.get(issue.layer) == number:
            before += _passes(device, (layers[issue.layer],), "backward", _NORM + _ADDED)
    fused = tuple({layer.name: layer for layer in network.layers if layer.name not in last}.values())
    before += _passes(device, fused, "backward", _NORM + _ADDED)  # of layers fused with others
    if alone:
        before += _passes(device, network.layers, "update", _BUCKETS)
    for each in (_DIVIDED + _NORM, *((_NORM, _MEAN + _NORM) if alone else ())):
        read = list(_passes(device, network.layers, "update", each))
        before += [*read[:-1], *(replace(final, waits=True) for final in read[-1:])]
    if alone:
        before += _passes(device, network.layers, "update", _KEPT)
    return (*before, *update, *_passes(device, network.layers, "update", _ZEROED))


def _passes(device: Device, layers: Sequence[Layer], part: Part, passes: _Passes) -> Iterator[Launch]:
    for layer in layers:
        for parameter in layer.trained:
            n = parameter.elements
            sizes = [(n * reads, n * writes) if reads or writes else (1, 1) for reads, writes in passes]
            kernels = [Streaming("add", max(1, n), _WORD * read, _WORD * written) for read, written in sizes]
            host_s = len(kernels) * dispatch_time(device, Elementwise("mul_scalar", max(1, n)), "fwd")
            yield Launch(f"statistics of {parameter.name}", part, host_s, work_of(device, kernels))
