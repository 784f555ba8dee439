"""What resources give less than they have while a run is perturbed, and the pace of those whom it slows: :class:`Lost`.

Limits that are shares of a link's rate follow it (:mod:`simulator.plan.limits`).
"""

from __future__ import annotations

from simulator.network.machine import Machine
from simulator.plan.plan import Flow, Fragment


class Lost:
    """The rates that the resources of *machine* lack now; more than the machine's own where negative."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._now_Bps: dict[int, float] = {}
        self._everywhere_Bps: dict[int, float] = {}  # of what corresponds to these on equal hosts
        self._paces: dict[Fragment, float] = {}

    def change(self, resource: int, lost_Bps: float) -> None:
        """Let *resource* lack *lost_Bps* from now on."""
        self._now_Bps[resource] = lost_Bps
        copies = self._machine.resource_copies
        self._everywhere_Bps = {}
        for number, lost in sorted(self._now_Bps.items(), key=lambda each: each[1]):  # the most counts
            first = number - (copies.host(number) - copies.hosts(number)[0]) * copies.stride(number)
            for place in range(len(copies.hosts(number))):
                self._everywhere_Bps[first + place * copies.stride(number)] = lost
        self._paces.clear()

    def cap_Bps(self, flow: Flow) -> float:  # noqa: N802  units keep their case
        """Return the largest rate of *flow* now, in B/s."""
        if not self._now_Bps or flow.limits is None:
            return flow.cap_Bps
        return flow.limits.cap_Bps(self._now_Bps if flow.at is None else self._everywhere_Bps)

    def pace(self, fragment: Fragment, alone_s: float) -> float:
        """Return the largest pace of *fragment* now, relative to that on the machine unperturbed, *alone_s* seconds.

        Its transfers take longer where their limits follow the links; the rest takes as long.
        """
        if not self._now_Bps or alone_s <= 0.0:
            return 1.0
        if fragment not in self._paces:
            later_s = self._limited_s(fragment, now=True) - self._limited_s(fragment, now=False)
            self._paces[fragment] = alone_s / (alone_s + later_s)
        return self._paces[fragment]

    def _limited_s(self, fragment: Fragment, *, now: bool) -> float:
        """Return the seconds that the limited flows of *fragment* take; streams run at once."""
        streams: dict[str, float] = {}
        for task in fragment.plan.tasks:
            for_s = 0.0
            for flow in task.parts:
                if isinstance(flow, Flow) and flow.limits is not None and flow.wire_bytes:
                    for_s = max(for_s, flow.limits.wire_bytes / (self.cap_Bps(flow) if now else flow.cap_Bps))
            streams[task.stream] = streams.get(task.stream, 0.0) + for_s
        return max(streams.values(), default=0.0)
