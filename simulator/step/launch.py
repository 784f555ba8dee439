"""One call of a framework: what the host issues, and what then runs on the device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from simulator.devices import KernelCost
from simulator.records import dataclass

if TYPE_CHECKING:
    from simulator.step.layer_collectives import LayerCollective

Part = Literal["forward", "backward", "update"]


@dataclass(frozen=True, slots=True)
class DeviceWork:
    """Kernels that run one after the other: the error class and cost of each, and the total time in seconds."""

    kinds: tuple[str, ...]
    costs: tuple[KernelCost, ...]
    time_s: float


@dataclass(frozen=True, slots=True)
class Launch:
    """One operator as the host issues it: ``host_s`` seconds to issue, then ``work`` on the device.

    ``layer`` names its layer ("" in the update).  ``again``: a forward operator that is recomputed in the backward
    pass.  ``waits``: the host waits for all earlier work of the device, to read a result.  ``adds``: it adds to the
    gradients of earlier micro-batches, so the first micro-batch omits it.  ``sent`` is the collective, if the operator
    is an exchange.  ``needs`` names the layers whose exchanges it waits for.  ``over``: an update is over the
    parameters whose state the rank keeps (``kept``), a pass before it over all gradients of the rank (``all``), or over
    these only if ranks sum theirs (``summed``).
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

    @property
    def device_s(self) -> float:
        """Seconds on the device."""
        return self.work.time_s


NOTHING = DeviceWork((), (), 0.0)
