"""One call of a framework: what the host issues, and what then runs on the device, or the exchange that it sends.

With sequence parallelism, Megatron-LM gathers the rows that a product reads again in the backward pass, because the
product for the gradient of its weight reads them and each rank saves its part.  It starts to gather them beside the
product for the gradient of the input (``LinearWithGradAccumulationAndAsyncCommunication``; Transformer Engine alike).
A product of Hopper and later has a block on each SM until it ends (persistent kernels): blocks whose SM the exchange
holds start late, so both together last about as long as one after the other.  Before, blocks end all the time and leave
room; there the second gather is taken as hidden.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from simulator.devices import KernelCost
from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.questions.options import StepOptions
from simulator.records import dataclass
from simulator.step.precision import storage_of
from simulator.workload import Collective
from simulator.workload.operators import Exchange
from simulator.workload.precision import ELEMENT_BYTES

Part = Literal["forward", "backward", "update"]


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Kernels that run one after the other: the error class and cost of each, and the total time in seconds."""

    kinds: tuple[str, ...]
    costs: tuple[KernelCost, ...]
    time_s: float


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


@dataclass(frozen=True, slots=True)
class Launch:
    """One operator as the host issues it: ``host_s`` seconds to issue, then ``work`` on the device.

    ``layer`` names its layer ("" in the update).  ``again``: a forward operator that is recomputed in the backward
    pass.  ``waits``: the host waits for all earlier work of the device, to read a result.  ``adds``: it adds to the
    gradients of earlier micro-batches, so the first micro-batch omits it.  ``sent`` is the collective, if the operator
    is an exchange.  ``needs`` names the layers whose exchanges it waits for.  ``over``: an update is over the
    parameters whose state the rank keeps (``kept``), a pass before it over all gradients of the rank (``all``), or over
    these only if ranks sum theirs (``summed``).  ``late``: it computes gradients of parameters that were put off.
    """

    name: str
    part: Part
    host_s: float
    work: DeviceWork
    waits: bool = False
    adds: bool = False
    layer: str = ""
    again: bool = False
    sent: LayerCollective | None = None
    needs: tuple[str, ...] = ()
    over: Literal["kept", "all", "summed"] = "kept"
    late: bool = False

    @property
    def device_s(self) -> float:
        """Seconds on the device."""
        return self.work.time_s


NOTHING = DeviceWork((), (), 0.0)


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
