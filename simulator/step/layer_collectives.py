"""The collectives that an exchange within a layer sends in one pass.

With sequence parallelism, Megatron-LM gathers the rows that a product reads again in the backward pass, because the
product for the gradient of its weight reads them and each rank saves its part.  It starts to gather them beside the
product for the gradient of the input (``LinearWithGradAccumulationAndAsyncCommunication``; Transformer Engine alike).
A product of Hopper and later has a block on each SM until it ends (persistent kernels): blocks whose SM the exchange
holds start late, so both together last about as long as one after the other.  Before, blocks end all the time and leave
room; there the second gather is taken as hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.questions.options import StepOptions
from simulator.step.precision import storage_of
from simulator.workload import Collective
from simulator.workload.operators import Exchange
from simulator.workload.precision import ELEMENT_BYTES


class LayerCollective(NamedTuple):
    """A collective among the ranks that divide a layer, along one axis of the layout; nccl-tests' size convention.

    ``copies``: how many copies of the same data are among the bytes, or are summed.  ``spare``: only gradients of
    weights read the result.
    """

    axis: str
    op: Collective
    size_bytes: int
    copies: int = 1
    spare: bool = False


def collectives_of(
    operator: Exchange, device: Device, options: StepOptions, *, forward: bool
) -> Iterator[LayerCollective]:
    """Yield the collectives of *operator* in the forward or the backward pass, in order."""
    size_bytes = operator.elements * ELEMENT_BYTES[storage_of(options.precision)]
    spare = operator.axis == "tp"
    beside = spare and not (isinstance(device, Gpu) and device.traits.operands == "warps")
    if not forward and operator.again and operator.forward and options.framework == "megatron" and not beside:
        yield LayerCollective(operator.axis, operator.forward, size_bytes, operator.copies, spare)
    op = operator.forward if forward else operator.backward
    if op is not None:
        yield LayerCollective(operator.axis, op, size_bytes, operator.copies)
