"""The time of a copy: a small plan on the machine's routes, run by the engine (docs/decisions/host.md)."""

from simulator.devices.cpu import Cpu
from simulator.devices.cpu.memory import bandwidth
from simulator.devices.dispatch import cpu_call_time
from simulator.devices.gpu import Gpu
from simulator.devices.predict import kernel_cost
from simulator.errors import InputError, counted, nearest, one_line, stated
from simulator.host.answer import HostTime
from simulator.network.machine import Machine
from simulator.network.route import Route, join
from simulator.network.routing import Router
from simulator.places import Places
from simulator.plan.plan import Flow, Plan, PlanBuilder
from simulator.questions.single import CopyQuestion
from simulator.units import format_bandwidth, format_duration, format_size
from simulator.workload.kernels import Streaming

PAGE_BYTES = 4096  # on Linux on x86
_STAGED = "host-staged"
_NO_CPU = "the machine has no CPU"


def copy_within_s(question: CopyQuestion, places: Places) -> float | None:
    """Return the seconds of a copy within one memory; None where it crosses links, as in :func:`copy_plan`."""
    if question.kind == "h2h":
        cpu = places.host_of(None, question.threads)
        return cpu_call_time(cpu) + _pass_s(cpu, question.size_bytes) + page_faults_s(question, places)
    if question.kind == "d2d":
        waited_s = places.constants["copying"].waited_s if question.waited or not question.pinned else 0.0
        return waited_s + _pass_s(places.gpu(question.src), question.size_bytes * (2 if question.both_ways else 1))
    return None


def _pass_s(device: Gpu | Cpu, n_bytes: float) -> float:
    size = int(n_bytes)
    return kernel_cost(device, Streaming("copy", max(1, size // 4), size, size)).time_s


def page_faults_s(question: CopyQuestion, places: Places) -> float:
    """Return the seconds of page faults on host pages that the copy is the first to touch; 0 where it is not."""
    if not question.fresh or question.kind not in ("h2h", "d2h"):
        return 0.0
    return question.size_bytes / PAGE_BYTES * places.constants["copying"].page_s


def copy_plan(question: CopyQuestion, places: Places, router: Router) -> Plan:
    """Return the plan of the copy, or of both; raises InputError without such GPUs, a CPU or a route."""
    plan, costs, machine = PlanBuilder(), places.constants["copying"], router.machine
    size, faults_s, last = question.size_bytes, page_faults_s(question, places), []
    ways = [route := copy_route(question, router)]
    forked: list[int] = []
    if question.both_ways:
        forked = [plan.work("fork", "streams", costs.joined_s, stream="streams")]
        ends = route.dst, route.src
        ways.append(_through_host(router, *ends) if route.transport == _STAGED else router.route(*ends))
    for way in ways:
        stream, place, staged = f"{way.src}->{way.dst}", machine.nodes[way.src].name, way.transport == _STAGED
        engine_s, piece_s = _start_s(places, machine, way), 0.0
        rate_Bps = way.bandwidth_Bps * (costs.duplex_share if len(ways) > 1 and question.kind != "p2p" else 1.0)
        if question.pinned or question.kind == "p2p":
            rate_Bps = 1.0 / (1.0 / rate_Bps + (engine_s / costs.staged_piece_bytes if staged else 0.0))
            engine_s *= 2 if staged else 1
        else:
            thread_s, piece = size / thread_rate(machine, places, way) + faults_s, min(1.0, costs.piece_bytes / size)
            piece_s = piece * thread_s
            # Behind (or before) that piece the thread works beside the engine, which has one piece still (or already).
            rate_Bps = size / max(size / rate_Bps, thread_s - piece_s + piece * size / rate_Bps)
        if piece_s and question.kind == "h2d":
            plan.work("first piece", place, piece_s, stream=stream, after=forked)
        plan.work("engine", place, engine_s, stream=stream, after=forked)
        last.append(plan.transfer("copy", [Flow(way, size, cap_Bps=rate_Bps)], stream=stream))
        if piece_s and question.kind == "d2h":
            last[-1] = plan.work("last piece", place, piece_s, stream=stream)
    if forked:
        last = [plan.work("join", "streams", costs.joined_s, stream="streams", after=last)]
    if question.waited or not question.pinned:
        plan.work("wait", "host", costs.waited_s, stream="host", after=last)
    return plan.build()


def _start_s(places: Places, machine: Machine, way: Route) -> float:
    """Return the seconds until an engine's first bytes, which it has to ask host memory for unless it writes there."""
    costs = places.constants["copying"]
    return costs.engine_s + (0.0 if machine.nodes[way.dst].kind == "cpu" else costs.fetched_s)


def copy_bound_s(question: CopyQuestion, places: Places, router: Router) -> float:
    """Return the bytes over the nominal rate of the slowest link or memory, in seconds; raises as copy_plan does."""
    machine = router.machine
    if question.kind == "d2d":
        rate_Bps = places.gpu(question.src).memory_bandwidth_Bps
    elif question.kind == "h2h":
        rate_Bps = sum(machine.capacity_Bps[b] for cpu, b in machine.memory_bus.items() if machine.nodes[cpu].host == 0)
        if not rate_Bps:
            raise InputError("the machine's CPUs have no memory_bandwidth")
    else:
        route = copy_route(question, router)
        return question.size_bytes / min(machine.links[index].nominal_Bps / share for index, share in route.links)
    return 2.0 * (2 if question.both_ways else 1) * question.size_bytes / rate_Bps


def thread_rate(machine: Machine, places: Places, way: Route) -> float:
    """Return the B/s at which a thread copies between memory of the host at an end of *way* and the buffer."""
    host = next(end for end in (way.src, way.dst) if machine.nodes[end].kind == "cpu")
    cpu, piece_bytes = places.host_of(host, 1), places.constants["copying"].piece_bytes
    memory_Bps = bandwidth(cpu, float("inf"), 1)
    buffer_Bps = bandwidth(cpu, piece_bytes, 1) if cpu.vendor == "intel" else memory_Bps
    return 1.0 / (1.0 / memory_Bps + 1.0 / buffer_Bps)


def copy_route(question: CopyQuestion, router: Router) -> Route:
    """Return the route of a copy; raises InputError where none exists."""
    machine = router.machine
    src = _gpu_node(machine, question.src)
    if question.kind == "p2p":
        dst = _gpu_node(machine, question.dst)
        if src == dst:
            raise InputError(f"src and dst are both GPU {question.src}; name another one (dst=1), or write copy:d2d")
        direct = router.route(src, dst)
        staged = question.staged or direct.transport == _STAGED
        return _through_host(router, src, dst) if staged else direct
    cpu = stated(router.nearest_cpu(src), _NO_CPU)
    if question.socket:
        cpus = {node.name: node.index for node in machine.nodes if node.kind == "cpu"}
        if question.socket not in cpus:
            said = one_line(question.socket, 40)
            raise InputError(f"{machine.name} has no CPU '{said}'; {nearest(question.socket, cpus)}")
        cpu = cpus[question.socket]
    return router.route(cpu, src) if question.kind == "h2d" else router.route(src, cpu)


def _gpu_node(machine: Machine, number: int) -> int:
    if number >= len(machine.gpus):
        raise InputError(f"{machine.name} has {counted(len(machine.gpus), 'GPU')}; there is no GPU {number}")
    return machine.gpus[number]


def _through_host(router: Router, src: int, dst: int) -> Route:
    """Return the route up to the memory next to *src*, and down to *dst*; between sockets is never slowest."""
    above, below = (stated(router.nearest_cpu(gpu), _NO_CPU) for gpu in (src, dst))
    return join(router.machine, router.route(src, above), router.route(below, dst), "sys", _STAGED)


def copy_answer(question: CopyQuestion, places: Places, router: Router, time_s: float) -> HostTime:
    """Return the answer to *question*, which takes *time_s*, with its bound; raises InputError as copy_plan does."""
    costs, faults_s, size = places.constants["copying"], page_faults_s(question, places), question.size_bytes
    figures = {"bandwidth_Bps": size / time_s}
    page = f"a page fault of {format_duration(costs.page_s, 3)} for each {PAGE_BYTES // 1024} KiB"
    faults = [f"fresh: it takes {page}"] if faults_s else []
    if question.kind in ("h2h", "d2d"):
        if question.kind == "h2h":
            cpu = places.host_of(None, question.threads)
            least_s = 2.0 * size / bandwidth(cpu, 2.0 * size, cpu.threads)
        else:
            least_s = 2.0 * size / places.gpu(question.src).memory_bandwidth_Bps
        bound = "memory bandwidth" if 2.0 * least_s > time_s else "the host's call"
        bound = "page faults of the host" if faults_s > least_s else bound
        said = f"{format_size(size, 4)} are read and written"
        return HostTime(time_s, "a copy", bound, (said, *faults), figures)
    route = copy_route(question, router)
    staged = route.transport == _STAGED  # one engine writes to host memory, another reads from it
    starts_s = route.latency_s + _start_s(places, router.machine, route) * (2 if staged else 1)
    waited_s = costs.waited_s if question.waited or not question.pinned else 0.0
    link_Bps, slowest = min((router.machine.capacity_Bps[number] / share, number) for number, share in route.loads)
    link = router.machine.resource_names[slowest]
    why = [f"the engine begins after {format_duration(starts_s, 3)}"]
    if waited_s:
        why.append(f"the call and the wait for it take the host {format_duration(waited_s, 3)}")
    why.append(f"{link} gives {format_bandwidth(link_Bps, 3)}" + (", through host memory" if staged else ""))
    if question.both_ways:
        gets = "" if question.kind == "p2p" else f"each way gets {costs.duplex_share:.0%} of it, and "
        why.append(f"both ways: {gets}their streams wait for each other, {format_duration(2.0 * costs.joined_s, 3)}")
    figures |= {"engine_s": starts_s, "waited_s": waited_s, "link_Bps": link_Bps}
    crossing_s, bound = size / link_Bps, f"link {link}"
    if not question.pinned and question.kind != "p2p":
        figures["thread_Bps"] = thread_rate(router.machine, places, route)
        thread_s = size / figures["thread_Bps"]
        why += [f"pageable: one thread of the host copies at {format_bandwidth(figures['thread_Bps'], 3)}", *faults]
        if thread_s + faults_s > crossing_s:
            crossing_s = thread_s + faults_s
            bound = "page faults of the host" if faults_s > thread_s else "the host's thread that copies"
    if max(starts_s, waited_s) > crossing_s:
        bound = "start of the copy engine" if starts_s >= waited_s else "the host's call and wait"
    return HostTime(time_s, "both copies" if question.both_ways else "a copy", bound, tuple(why), figures)
