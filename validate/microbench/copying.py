"""The time of a copy: a small plan on the machine's routes, run by the engine.

A copy engine takes time to begin, then bytes flow along the route.  From or to pageable memory the driver
copies through a buffer of its own, which one thread of the host fills or empties while the engine works: a
pipeline, of which the first (or last) piece is in nobody's shadow.  Between GPUs that do not reach each
other bytes go through host memory in the same way, by two engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from simulator.devices.calibration import Calibration
from simulator.devices.cpu.cpu import Cpu, cpu_from_part
from simulator.devices.cpu.memory import bandwidth
from simulator.devices.cpu.predict import cpu_call_time
from simulator.devices.gpu.gpu import Gpu, gpu_from_part
from simulator.devices.kernels import Streaming
from simulator.devices.predict import kernel_cost
from simulator.engine.executor import execute
from simulator.errors import InputError, SimulationError, one_line
from simulator.network.machine import Machine
from simulator.network.route import Route, join
from simulator.network.routing import Router
from simulator.plan.plan import Flow, Plan, PlanBuilder
from simulator.topology.parts import CpuPart, GpuPart
from validate.score.machines import Compiled, MachineBook
from validate.score.query import NotScored

__all__ = ["COPYING", "CopyCosts", "CopyKind", "CopyPredictor", "CopyQuery"]

_STAGED = "host-staged"
CopyKind = Literal["h2d", "d2h", "d2d", "h2h", "p2p"]


@dataclass(frozen=True, slots=True)
class CopyQuery:
    """A copy of ``bytes`` from one place to another, and the other way at once where ``both_ways``.

    ``src`` and ``dst`` are GPUs of the machine from 0.  ``staged``: the copy between GPUs goes through host
    memory, whatever the machine could do.  ``waited``: each is waited for, and the host's part counts.
    ``threads`` copy within the host, None all.  The rate of the row is of ``counted_bytes``.
    """

    machine: str
    kind: CopyKind
    src: int
    dst: int
    bytes: float
    both_ways: bool = False
    pinned: bool = True
    staged: bool = False
    waited: bool = False
    threads: int | None = None
    counted_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class CopyCosts:
    """Constants of copies, the same for all machines."""

    # From a copy's turn on the engine to its first bytes, less a link's latency: the least copies of a V100
    # (bandwidthTest, 1 to 20 kB, 2.2 to 2.9 us).
    engine_s: float = 2.0e-6
    # A call that is waited for, besides: issue, and finding out that it is done (rocm_bandwidth_test, 25 us on MI100).
    waited_s: float = 20e-6
    # Through the driver's buffer: up to so many bytes at once (CUDA's documentation of how calls synchronise).
    piece_bytes: float = 64 << 10
    # Between GPUs through host memory, an engine begins anew after so many bytes: what pairs of Titan RTX, RTX 4090
    # and H100 lose of 12, 26 and 55 GB/s with P2P disabled (p2pBandwidthLatencyTest) is the same time a byte.
    staged_piece_bytes: float = 256 << 10


COPYING = CopyCosts()


class CopyPredictor:
    """Predicts copies on the machines of *book*, with *calibrations* by part; equal ones once."""

    def __init__(
        self, book: MachineBook, calibrations: Mapping[str, Calibration] | None = None, costs: CopyCosts = COPYING
    ) -> None:
        self._book = book
        self._calibrations = calibrations or {}
        self._costs = costs
        self._gpus: dict[tuple[str, int], Gpu] = {}
        self._kept: dict[tuple[str, CopyQuery], float | str] = {}

    def time_s(self, query: CopyQuery) -> float:
        """Return the predicted seconds of *query*; raises NotScored where the machine cannot do it."""
        compiled = self._book.get(query.machine, 1)
        key = compiled.topology, query
        if key not in self._kept:
            try:
                self._kept[key] = self._time(compiled, query)
            except (InputError, SimulationError) as error:
                self._kept[key] = one_line(error)
        found = self._kept[key]
        if isinstance(found, str):
            raise NotScored(found)
        return found

    def data_sheet_s(self, query: CopyQuery) -> float:
        """Return bytes over the nominal rate of the slowest link or memory that they cross; raises as time_s."""
        compiled = self._book.get(query.machine, 1)
        machine = compiled.machine
        try:
            if query.kind in ("d2d", "h2h"):
                ways = 2 if query.both_ways else 1
                return 2.0 * ways * query.bytes / self._memory_rate(compiled, query)
            route = _route(compiled, query)
        except InputError as error:
            raise NotScored(one_line(error)) from None
        rates = [machine.links[index].nominal_Bps / share for index, share in route.links]
        return query.bytes / min(rates)

    def _time(self, compiled: Compiled, query: CopyQuery) -> float:
        waited_s = self._costs.waited_s if query.waited or not query.pinned else 0.0
        if query.kind == "h2h":
            return self._within_host(compiled, query)
        if query.kind == "d2d":
            size = int(query.bytes) * (2 if query.both_ways else 1)
            copied = Streaming("copy", max(1, size // 4), size, size)
            return waited_s + kernel_cost(self._gpu(compiled, query.src), copied).time_s
        return waited_s + execute(compiled.machine, self._plan(compiled, query)).end_s

    def _plan(self, compiled: Compiled, query: CopyQuery) -> Plan:
        """Return the copy, or both, each on an engine of its own."""
        plan = PlanBuilder()
        route = _route(compiled, query)
        for way in (route, _back(compiled.router, route)) if query.both_ways else (route,):
            stream = f"{way.src}->{way.dst}"
            place = compiled.machine.nodes[way.src].name
            staged = way.transport == _STAGED
            if query.pinned or query.kind == "p2p":
                again_s = self._costs.engine_s / self._costs.staged_piece_bytes if staged else 0.0
                cap_Bps = 1.0 / (1.0 / way.bandwidth_Bps + again_s)
                plan.work("engine", place, self._costs.engine_s * (2 if staged else 1), stream=stream)
                plan.transfer("copy", [Flow(way, query.bytes, cap_Bps=cap_Bps)], stream=stream)
                continue
            rate_Bps = self._host_rate(compiled, way)
            piece_s = min(query.bytes, self._costs.piece_bytes) / rate_Bps
            flow = Flow(way, query.bytes, cap_Bps=rate_Bps)
            if query.kind == "h2d":
                plan.work("first piece", place, piece_s, stream=stream)
            plan.work("engine", place, self._costs.engine_s, stream=stream)
            plan.transfer("copy", [flow], stream=stream)
            if query.kind == "d2h":
                plan.work("last piece", place, piece_s, stream=stream)
        return plan.build()

    def _host_rate(self, compiled: Compiled, way: Route) -> float:
        """Return at what rate one thread copies within the memory of the host at an end of *way*, in B/s."""
        nodes = compiled.machine.nodes
        host = next(end for end in (way.src, way.dst) if nodes[end].kind == "cpu")
        cpu = self._cpu(compiled.machine, host, 1)
        return bandwidth(cpu, float("inf"), 1) / 2.0

    def _within_host(self, compiled: Compiled, query: CopyQuery) -> float:
        machine = compiled.machine
        hosts = [node.index for node in machine.nodes if node.kind == "cpu" and node.host == 0]
        if not hosts:
            raise NotScored("the machine has no CPU")
        cpu = self._cpu(machine, hosts[0], len(hosts), query.threads)
        size = int(query.bytes)
        return cpu_call_time(cpu) + kernel_cost(cpu, Streaming("copy", max(1, size // 4), size, size)).time_s

    def _cpu(self, machine: Machine, index: int, sockets: int, threads: int | None = None) -> Cpu:
        node = machine.nodes[index]
        assert isinstance(node.part, CpuPart)
        calibration = self._calibrations.get(node.part_name)
        return cpu_from_part(node.part_name or node.name, node.part, sockets, threads, calibration=calibration)

    def _gpu(self, compiled: Compiled, number: int) -> Gpu:
        key = compiled.topology, number
        if key not in self._gpus:
            node = compiled.machine.nodes[_gpu_node(compiled.machine, number)]
            assert isinstance(node.part, GpuPart)
            calibration = self._calibrations.get(node.part_name)
            self._gpus[key] = gpu_from_part(node.part_name or node.name, node.part, calibration)
        return self._gpus[key]

    def _memory_rate(self, compiled: Compiled, query: CopyQuery) -> float:
        if query.kind == "d2d":
            return self._gpu(compiled, query.src).memory_bandwidth_Bps
        machine = compiled.machine
        rates = [machine.capacity_Bps[bus] for cpu, bus in machine.memory_bus.items() if machine.nodes[cpu].host == 0]
        if not rates:
            raise NotScored("the machine's CPUs have no memory_bandwidth")
        return sum(rates)


def _gpu_node(machine: Machine, number: int) -> int:
    if number >= len(machine.gpus):
        raise NotScored(f"{machine.name} has {len(machine.gpus)} GPUs; there is no GPU {number}")
    return machine.gpus[number]


def _route(compiled: Compiled, query: CopyQuery) -> Route:
    """Return the way of a copy; raises InputError where there is none."""
    machine, router = compiled.machine, compiled.router
    src = _gpu_node(machine, query.src)
    if query.kind == "p2p":
        dst = _gpu_node(machine, query.dst)
        if src == dst:
            raise NotScored("a copy between a GPU and itself is one within it")
        direct = router.route(src, dst)
        staged = query.staged or direct.transport == "host-staged"
        return _through_host(machine, router, src, dst) if staged else direct
    cpu = router.nearest_cpu(src)
    if cpu is None:
        raise NotScored("the machine has no CPU")
    return router.route(cpu, src) if query.kind == "h2d" else router.route(src, cpu)


def _through_host(machine: Machine, router: Router, src: int, dst: int) -> Route:
    """Return the way up to the memory beside *src* and down from that beside *dst*.

    Between sockets the buffer is read and written as memory, which is faster there than traffic of devices is,
    and never the slowest.
    """
    above, below = router.nearest_cpu(src), router.nearest_cpu(dst)
    if above is None or below is None:
        raise NotScored("the machine has no CPU")
    return join(machine, router.route(src, above), router.route(below, dst), "sys", _STAGED)


def _back(router: Router, route: Route) -> Route:
    """Return *route* the other way."""
    if route.transport == _STAGED:
        return _through_host(router.machine, router, route.dst, route.src)
    return router.route(route.dst, route.src)
