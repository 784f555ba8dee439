"""Accesses to a device's memory: passes, gathers, dependent loads, shared lines (docs/decisions/host.md)."""

from simulator.devices.cpu import LINE_BYTES, Cpu
from simulator.devices.cpu.memory import bandwidth, gather_times, start_time
from simulator.devices.dispatch import cpu_call_time, in_graph, stays
from simulator.devices.gpu import Gpu
from simulator.devices.gpu.memory import near_bytes
from simulator.devices.predict import Device, kernel_cost
from simulator.errors import InputError, mention, stated
from simulator.host.answer import HostTime, check_access_options
from simulator.host.latency import Chase, LatencyLevel, Memory, chase, memory_of, random_answer, strided_answer
from simulator.network.machine import Machine
from simulator.places import Places
from simulator.questions.single import AccessQuestion
from simulator.topology.parts import CpuPart, GpuPart
from simulator.units import format_bandwidth, format_duration, format_size
from simulator.workload.kernels import Kernel, Streaming
from simulator.workload.operators import Gather

_FUNCTIONS = {(1, 0): "sum", (2, 0): "sum", (0, 1): "fill", (1, 1): "copy", (2, 1): "add"}
_FLOAT_BYTES = 4
_NEARLY_ALL = 0.999  # of the loads that caches serve, where the part may leave the latency of its memory out


def access_answer(question: AccessQuestion, machine: Machine, places: Places) -> HostTime:
    """Return the time of the access in *question* and its reason; raises InputError where it does not apply."""
    part = places.part(question.device)
    if isinstance(part, GpuPart):
        return _on_gpu(question, part, places)
    check_access_options(question, on_gpu=False)
    if question.kind == "shared":
        return _shared_answer(question, part)
    memory = memory_of(machine, part, question.node, writes=question.writes > question.reads)
    if question.kind == "chase":
        found = chase(part, question.size_bytes, memory, question.page_bytes, is_cyclic=True)
        return HostTime(found.latency_s, "a load", found.bound, (*found.reasons, *memory.why), found.figures)
    cpu = places.find(question.device, threads=question.threads).device
    assert isinstance(cpu, Cpu)
    if question.kind in ("random", "strided"):
        return (random_answer if question.kind == "random" else strided_answer)(question, part, memory, cpu)
    return _passed_on_cpu(question, cpu, memory)


def _passed_on_cpu(question: AccessQuestion, cpu: Cpu, memory: Memory) -> HostTime:
    kernel, moved = _kernel(question), _moved_bytes(question)
    time_s = cpu_call_time(cpu) + kernel_cost(cpu, kernel).time_s
    if memory.bandwidth_Bps is not None:
        time_s = max(time_s, moved / memory.bandwidth_Bps)
    given_Bps = min(bandwidth(cpu, question.size_bytes, cpu.threads), memory.bandwidth_Bps or float("inf"))
    held = given_Bps > bandwidth(cpu, float("inf"), cpu.threads)
    by_bytes = "cache bandwidth" if held else "memory bandwidth"
    both = question.writes or question.kind == "gather"
    said = f"{format_bandwidth(moved / time_s, 3)} of {'read and written' if both else 'read'} bytes"
    figures = {"bandwidth_Bps": moved / time_s, "given_Bps": given_Bps}
    if isinstance(kernel, Gather):
        compute_s, wait_s, bytes_s = gather_times(cpu, kernel)
        found = {"instructions of each row": compute_s, "latency of memory": wait_s, by_bytes: bytes_s}
        found["start of a kernel"] = start_time(cpu)
        apart = (
            f"first lines of rows take {format_duration(wait_s, 3)}, bytes {format_duration(bytes_s, 3)}, "
            f"instructions {format_duration(compute_s, 3)} beside both"
        )
        bound = max(found, key=lambda name: found[name])
        return HostTime(time_s, "all of it", bound, (said, apart, *memory.why), figures)
    cores = min(cpu.threads, cpu.core_count)
    wanted_Bps = cores * cpu.clock_Hz * cpu.vector_bits / 8.0  # of vector units: a register a cycle each
    reuse = max(1.0, wanted_Bps / given_Bps)  # uses of each byte that keep the cores from waiting
    figures |= {"wanted_Bps": wanted_Bps, "reuse": reuse}
    uses = f"each byte has to be used {reuse:.3g} times while it is in a cache or a register"
    need = (
        f"{cores} cores that load a register of {cpu.vector_bits} bits a cycle want {format_bandwidth(wanted_Bps, 3)} "
        f"and get {format_bandwidth(given_Bps, 3)}: {uses if reuse > 1.0 else 'they are fed'}"
    )
    return HostTime(time_s, "all of it", by_bytes, (said, need, *memory.why), figures)


def _on_gpu(question: AccessQuestion, part: GpuPart, places: Places) -> HostTime:
    if question.kind in ("strided", "random", "shared"):
        others = f"{mention('device', 'cpu0')}, or stream, gather or chase of a GPU"
        raise InputError(f"access:{question.kind} runs on a CPU; {others}")
    if question.node != "local":
        raise InputError(f"node={question.node}: a GPU's accesses are to its own memory; copy: crosses links")
    check_access_options(question, on_gpu=True)
    is_chase = question.kind == "chase"  # by one thread, whatever is said
    device = places.find(question.device, threads=None if is_chase else question.threads).device
    assert isinstance(device, Gpu)
    if is_chase:
        return _gpu_chase_answer(question, part, device)
    cost = kernel_cost(device, _kernel(question))
    bound = "memory bandwidth" if cost.bound == "memory" else "latency of short kernels"
    time_s, slower, why = _with_few_threads(question, part, device, cost.time_s)
    if question.persistent:
        time_s = stays(device, time_s)
    elif question.in_graph:
        time_s = in_graph(device, time_s)
    moved = _moved_bytes(question)
    said = f"{format_bandwidth(moved / time_s, 3)} of read and written bytes"
    return HostTime(time_s, "all of it", slower or bound, (said, *why), {"bandwidth_Bps": moved / time_s})


def access_bound_s(question: AccessQuestion, device: Device) -> float:
    """Return the bytes over the nominal memory bandwidth, in seconds; raises InputError for latency questions."""
    if question.kind not in ("stream", "gather"):
        raise InputError("a latency has no rate")
    sockets = device.sockets if isinstance(device, Cpu) else 1
    return _moved_bytes(question) / (device.memory_bandwidth_Bps * sockets)


def _moved_bytes(question: AccessQuestion) -> float:
    return 2.0 * question.rows * question.row_bytes if question.kind == "gather" else question.size_bytes


def _kernel(question: AccessQuestion) -> Kernel:
    if question.kind == "gather":
        if question.rows < 1 or question.row_bytes < _FLOAT_BYTES or question.row_bytes > question.size_bytes:
            raise InputError("gather needs rows and row, a part of the table; for example rows=1000,row=256B")
        table_rows = int(question.size_bytes / question.row_bytes)
        return Gather("fwd", question.rows, question.row_bytes // _FLOAT_BYTES, table_rows, "fp32")
    arrays = question.reads, question.writes
    if arrays not in _FUNCTIONS:
        raise InputError(f"no pass reads {question.reads} arrays and writes {question.writes}; 1 and 1, 2 and 1, ...")
    each = question.size_bytes / sum(arrays)
    elements = max(1, int(each / question.element_bytes))
    return Streaming(_FUNCTIONS[arrays], elements, int(each * question.reads), int(each * question.writes))


def _shared_answer(question: AccessQuestion, part: CpuPart) -> HostTime:
    """Return the time of an access by the next of ``cores`` cores to shared, or falsely shared, data."""
    if question.cores < 1:
        raise InputError(f"cores is at least 1; got {question.cores}")
    is_remote = question.node == "remote"
    if question.node not in ("local", "remote"):
        raise InputError(f"node={question.node}: cores of a line's other writers are local or remote")
    here = part.core_count or question.cores
    if question.cores > here * (2 if is_remote else 1):
        raise InputError(f"cores={question.cores}: the socket has {here}; node=remote: some are on another")
    alone_s = stated(next(iter(part.caches.values()), None), "the part has no caches").latency
    own_bytes, figures = question.size_bytes / question.cores, {"alone_s": alone_s}
    if question.cores == 1 or own_bytes >= LINE_BYTES:
        said = "one core has the line to itself" if question.cores == 1 else "each core has lines of its own"
        return HostTime(alone_s, "a write", "latency of L1", (f"{said}: it stays in its first cache",), figures)
    moves = stated(part.line_moves, "the part has no line_moves: what a line that another core has takes to come")
    near_s, did = (moves.modified, "written") if question.state == "modified" else (moves.shared, "read")
    moved_s = stated(moves.remote, "the part has no line_moves.remote") if is_remote else near_s
    where = "of the other socket" if is_remote else "of the socket"
    why = (
        f"{question.cores} cores {where} use {own_bytes:.3g} B each of the same line of {LINE_BYTES} B: false sharing",
        f"the core that has {did} it last has the line, and it takes {format_duration(moved_s, 3)} to come, every time",
        f"one core alone takes {format_duration(alone_s, 3)}: together they are {moved_s / alone_s:.3g} times slower",
        f"with {LINE_BYTES} B for each core they would not wait",
    )
    figures |= {"moved_s": moved_s, "against_one_core": moved_s / alone_s}
    return HostTime(moved_s, "a write", "moves of a cache line", why, figures)


def _gpu_chase_answer(question: AccessQuestion, part: GpuPart, gpu: Gpu) -> HostTime:
    """Return the latency of dependent loads by one thread, over and over in one order."""
    shared_s = part.shared_memory_latency
    if question.level == "scratchpad":
        load_s = stated(shared_s, "the part has no shared_memory_latency")
        if part.shared_memory_per_sm is not None and question.size_bytes > part.shared_memory_per_sm:
            raise InputError(f"a multiprocessor has {format_size(part.shared_memory_per_sm)} of shared memory")
        why = ("a multiprocessor's shared memory serves all of it",)
        return HostTime(load_s, "a load", "latency of shared memory", why)
    far_s = None if part.l2_latency is None else 2.0 * part.l2_latency  # after the near half has missed
    l1, l2 = ("l1", part.l1_size_per_sm or 0.0, part.l1_latency), ("l2", near_bytes(gpu), part.l2_latency)
    stages: list[LatencyLevel] = []
    held, slope = 0.0, gpu.constants["memory"].walk_slope
    for name, size, latency_s in (l1, l2, ("far_l2", gpu.l2_bytes, far_s)):
        reach = 1.0 / (1.0 + (question.size_bytes / size) ** slope) if size else 0.0
        if reach > held and latency_s is not None:
            stages.append(LatencyLevel(name, reach - held, latency_s))
            held = reach
    if not stages:
        raise InputError("the part has no l1_latency and no l2_latency")
    if part.memory_latency is not None or held < _NEARLY_ALL:
        memory_s = stated(part.memory_latency, "the part has no memory_latency")
        stages.append(LatencyLevel("device memory", 1.0 - held, memory_s, is_memory=True))
    found = Chase(tuple(stages), 0.0, 0.0)
    reasons = [found.served]
    if shared_s is not None:
        reasons.append(f"shared memory would answer after {format_duration(shared_s, 3)}")
    return HostTime(found.data_s, "a load", found.bound, tuple(reasons), found.shares)


def _with_few_threads(
    question: AccessQuestion, part: GpuPart, gpu: Gpu, full_s: float
) -> tuple[float, str | None, tuple[str, ...]]:
    """Return a pass's time with *question*'s threads, *full_s* with all, its new bound if any, and why."""
    costs, block = gpu.constants["memory"], question.block_threads
    resident = question.resident
    if question.persistent and block and not resident:
        resident = gpu.sm_count * block  # one block stays on each SM
    each = (question.reads + question.writes) * question.element_bytes
    if resident:
        name = "memory_latency" if question.reads else "l2_latency"
        latency_s: float = stated(getattr(part, name), f"the part has no {name}")
        drawn_Bps, full_Bps = resident * each / latency_s, question.size_bytes / full_s
        sharpness = costs.occupancy_sharpness
        rate_Bps = (full_Bps**-sharpness + drawn_Bps**-sharpness) ** (-1.0 / sharpness)
        why = (
            f"{resident} threads with {each} B each under way draw {format_bandwidth(drawn_Bps, 3)}; all that the GPU "
            f"holds would have {format_bandwidth(full_Bps, 3)}"
        )
        bound = "latency: too few threads are under way" if drawn_Bps < full_Bps else None
        return question.size_bytes / rate_Bps, bound, (why,)
    if block:
        blocks = max(1.0, question.size_bytes / each / block)
        begun_s = blocks / (costs.blocks_per_clock * gpu.light_clock_Hz)
        if begun_s > full_s:
            why = f"{blocks:.0f} blocks of {block} threads are begun one after the other"
            return begun_s, "beginning of blocks", (why,)
    return full_s, None, ()
