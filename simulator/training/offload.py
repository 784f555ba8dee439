"""Offload: hosts' memory holds the optimiser's state, and their CPUs update (docs/decisions/parallelism.md)."""

from collections import Counter
from collections.abc import Mapping, Sequence
from math import ceil

from simulator.devices.cpu.memory import bandwidth
from simulator.devices.dispatch import dispatch_time
from simulator.devices.optimizer import optimizer_kernels, state_copies
from simulator.devices.predict import Device, kernel_cost
from simulator.errors import InputError, mention, refused
from simulator.network.routing import Router
from simulator.places import Places
from simulator.plan.plan import Flow, Part, PlanBuilder, Resource, Work
from simulator.questions.step import StepQuestion
from simulator.records import dataclass
from simulator.step.issue import work_of
from simulator.step.launch import Launch
from simulator.step.precision import casts, gradient_bytes, storage_of
from simulator.topology.parts import CpuPart, StoragePart
from simulator.training import data_parallel as dp
from simulator.training.worker import FROM_DISK, ON_CPU, TO_CPU, TO_DISK, TO_GPU, HostLabel
from simulator.workload.kernels import Streaming
from simulator.workload.operators import Copy
from simulator.workload.precision import ELEMENT_BYTES
from simulator.workload.split.experts import expert_parameters

_FP32 = ELEMENT_BYTES["fp32"]
# DeepSpeed's defaults: fp32 buffers (``buffer_count`` of offload_optimizer) of a part of the update
# (``sub_group_size``); those of units, 5 of 100 million elements (offload_param).
_BUFFERS, _PART, _UNIT_BUFFERS = 4, 1e9, 5e8
# Bytes read and written by the calls for each gradient, whose own element counts 0: cast to fp64, and its norm
# (``set_norm_for_param_grad_in_gpu``); cast, nan, inf, either, cast, largest (``_has_inf_or_nan``); the cast to send.
_CHECKS = ((0, 8), (8, 0), (0, 4), (4, 1), (4, 1), (2, 1), (1, 4), (4, 0), (0, 4))


@dataclass(frozen=True, slots=True)
class OffloadScheme:
    """What a way to offload moves and keeps, in bytes an element."""

    of_units: bool  # as stage 3 does
    has_parameters: bool
    stored_bytes: int  # of a parameter as it is computed with
    gradient_bytes: int
    on_disks: bool = False

    def update_kernels(self, question: StepQuestion, elements: int) -> list[Streaming]:
        """Return the passes of the update of *elements* on a CPU."""
        rule, fused = question.options.optimizer, question.options.fused_optimizer
        passes = optimizer_kernels(rule, elements, fused=fused or rule == "adam")  # torch's loop is refused
        scaled = Streaming("mul_scalar_inplace", elements, elements * _FP32, elements * _FP32)
        return [scaled, *passes, Streaming("copy", elements, elements * _FP32, elements * self.stored_bytes)]

    def host_bytes(self, question: StepQuestion, updated: float, kept: float) -> float:
        """Return the bytes that a rank keeps on the host: of *updated* elements, and of *kept* parameters in all."""
        state = updated * _FP32 * state_copies(question.options.optimizer)
        if self.on_disks:
            buffers = _BUFFERS * min(updated, _PART) * _FP32
            buffers += _UNIT_BUFFERS * self.stored_bytes if self.has_parameters else 0.0
            return updated * self.gradient_bytes + buffers
        held = state + 2 * updated * _FP32  # the fp32 copies of parameters and gradients
        if self.of_units:
            return held + updated * self.gradient_bytes + (kept * self.stored_bytes if self.has_parameters else 0.0)
        sums = updated * self.gradient_bytes if question.micro_batches > 1 and question.layout.zero != 1 else 0.0
        return held + sums + updated * self.stored_bytes  # with the pinned buffer

    def disk_bytes(self, question: StepQuestion, updated: float, kept: float) -> float:
        """Return the bytes that a rank keeps on disks: of *updated* elements, and of *kept* parameters in all."""
        if not self.on_disks:
            return 0.0
        state = updated * _FP32 * (1 + state_copies(question.options.optimizer))
        return state + updated * _FP32 + (kept * self.stored_bytes if self.has_parameters else 0.0)


def scheme_of(question: StepQuestion) -> OffloadScheme:
    """Return how *question*, which offloads, does so."""
    options, has_parameters = question.options, question.offload == "optimizer+parameters"
    stored = ELEMENT_BYTES["fp32" if question.gathers_in_fp32 else storage_of(options.precision)]
    of_units = has_parameters or question.layout.zero == 3 or question.offload_to == "nvme"
    gradient = gradient_bytes(options, sums_in_fp32=question.sums_in_fp32)
    return OffloadScheme(
        of_units,
        has_parameters,
        _FP32 if casts(options.precision) and not of_units else stored,
        stored if of_units and not question.sums_in_fp32 else gradient,
        question.offload_to == "nvme",
    )


class OffloadWriter:
    """Adds what passes between GPUs *ranks* and their CPUs, on one of equal machines; raises InputError."""

    def __init__(
        self, builder: PlanBuilder, places: Places, router: Router, ranks: Sequence[int], question: StepQuestion
    ) -> None:
        if question.options.cuda_graph:
            raise refused("offload", "the host updates, and no CUDA graph holds that", question.offload)
        self.scheme = scheme_of(question)
        self._builder, self._places, self._router, self._question = builder, places, router, question
        self._machine = machine = router.machine
        gpus = [nodes[0] for nodes in machine.sorts(ranks).values()]
        alone = next((gpu for gpu in gpus if router.nearest_cpu(gpu) is None), None)
        if alone is not None:
            raise InputError(f"no CPU is linked to {machine.nodes[alone].name}, and the host is to update")
        own = [node.index for node in machine.nodes_of(machine.locate(ranks[0])[1]) if node.kind == "cpu"]
        if len(gpus) == 1:
            own = [cpu for cpu in (router.nearest_cpu(gpus[0]),) if cpu is not None]
        elif not question.bind_cores:
            allowed = f"add {mention('bind_cores')} if each has its own, or take {mention('gpus', 1)}"
            why = f"share a host's cores, and published steps then take 1.3 to 5 times the predicted time; {allowed}"
            raise refused("offload", f"{len(gpus)} ranks {why}", question.offload)
        ends = [(gpu, own[number * len(own) // len(gpus)]) for number, gpu in enumerate(gpus)]  # in the order of cores
        back = [(cpu, gpu) for gpu, cpu in ends]
        self._routes = {TO_CPU: [router.route(*each) for each in ends], TO_GPU: [router.route(*each) for each in back]}
        self._cpus = Counter(cpu for _, cpu in ends)
        self._flows: dict[tuple[str, float, int], tuple[Flow, ...]] = {}  # blocks repeat
        self._disks = [  # of the machine of a rank, with their bandwidths, reading and writing
            (node, part.read_bandwidth, part.write_bandwidth)
            for node in (machine.nodes_of(machine.locate(ranks[0])[1]) if self.scheme.on_disks else ())
            if isinstance(part := node.part, StoragePart) and part.read_bandwidth and part.write_bandwidth
        ]
        if self.scheme.on_disks and not self._disks:
            allowed = "devices needs for example ssd0: {part: nvme-gen4} with a link to a CPU"
            raise refused("offload_to", f"{machine.name} has no disk with bandwidths; {allowed}", "nvme")
        self._written: list[int] = []  # the last gradients

    def checked(self, device: Device, tensors: int, elements: int, of: int, shards: int) -> Launch:
        """Return DeepSpeed's calls for those of a bucket's *tensors* that one rank copies; as :meth:`gradients`."""
        most, gradient = round(self._most(elements, of, shards)[0]), self.scheme.gradient_bytes
        passes = [Streaming("copy", most, most * (read or gradient), most * written) for read, written in _CHECKS]
        host_s = len(_CHECKS) * tensors * most / elements * dispatch_time(device, Copy(1), "fwd")
        return Launch("gradients checked", "backward", host_s, work_of(device, passes))

    def _most(self, elements: int, of: int, shards: int) -> tuple[float, int]:
        """Return the most elements of a bucket that one rank has, and the ranks that have any."""
        if self.scheme.of_units or self._question.round_robin:
            return elements / shards, shards
        return min(float(elements), of / shards), ceil(elements * shards / of)

    def gradients(
        self, elements: int, of: int, shards: int, after: Sequence[int], number: int, *, ends: bool
    ) -> list[int]:
        """Add the copies of a bucket, of which *shards* ranks have parts of *of* elements; return the last ones."""
        last, each, gradient = list(after), elements / shards, self.scheme.gradient_bytes
        fetched, sent = (TO_GPU, gradient), (TO_CPU, gradient)
        moves = [fetched] * (number > 0) + [(TO_CPU, _FP32 if ends else gradient)]
        if self.scheme.of_units:
            moves = ([fetched, sent] if number else [sent, fetched]) + [(TO_CPU, _FP32)] * ends
        most, copying = self._most(elements, of, shards)
        for stage, element_bytes in moves:
            flows = self._flows_of(stage, most * element_bytes, copying)
            last = self._added(stage, flows, each * element_bytes, last, number)
        if self.scheme.on_disks and ends:
            self._written = self._swapped(TO_DISK, each * _FP32, last, number)
        return last

    def after_skipped(self, ends: Sequence[int], skipped: Mapping[str, int]) -> list[int]:
        """Return what stands for *ends* after micro-batches that activities, by stream, stand for."""
        return [skipped.get(self._builder.tasks[number].stream, number) for number in ends]

    def parameters(self, elements: float, after: Sequence[int], number: int) -> list[int]:
        """Add the copy of *elements* parameters of each rank to its GPU, if the host keeps them; return its end."""
        if not self.scheme.has_parameters:
            return []
        size = elements * self.scheme.stored_bytes
        after = self._swapped(FROM_DISK, size, after, number)
        return self._added(TO_GPU, self._flows_of(TO_GPU, size), size, after, number)

    def update(self, elements: float, after: Sequence[int], number: int) -> list[int]:
        """Add the update of *elements* parameters of each rank, and their way back; return the last activities."""
        if round(elements) < 1:
            return list(after)
        scheme, size = self.scheme, elements * self.scheme.stored_bytes
        moments = elements * _FP32 * state_copies(self._question.options.optimizer)
        state = elements * _FP32 + moments
        after = self._swapped(FROM_DISK, state + elements * _FP32, [*after, *self._written], number)
        ends = self._updated(scheme.update_kernels(self._question, round(elements)), 2 * moments, after, number)
        ends = self._swapped(TO_DISK, state + (size if scheme.has_parameters else 0.0), ends, number)
        if scheme.has_parameters:
            return ends
        return self._added(TO_GPU, self._flows_of(TO_GPU, size, staged=scheme.of_units), size, ends, number)

    def _flows_of(
        self, stage: str, n_bytes: float, copying: int | None = None, *, staged: bool = False
    ) -> tuple[Flow, ...]:
        """Return flows of *n_bytes* of the first *copying* ranks or of all; *staged*: one thread copies them."""
        routes = self._routes[stage][:copying]
        key = stage, n_bytes, len(routes)
        if key not in self._flows:
            most = float("inf")
            rates = [bandwidth(self._places.host_of(r.src, 1), most, 1) / 2.0 if staged else most for r in routes]
            self._flows[key] = tuple(Flow(r, n_bytes, cap_Bps=rate) for r, rate in zip(routes, rates, strict=True))
        return self._flows[key]

    def _added(
        self, stage: str, parts: Sequence[Part], each_bytes: float, after: Sequence[int], number: int, place: str = ""
    ) -> list[int]:
        """Add *parts*, which move *each_bytes* of a rank on average; return their activity."""
        about = HostLabel(stage, each_bytes, number)
        return [self._builder.add(stage, parts, stream=stage, after=after, about=about, place=place)]

    def _swapped(self, stage: str, each_bytes: float, after: Sequence[int], number: int) -> list[int]:
        """Add what moves *each_bytes* of each rank, equal parts to or from each disk; return the last activities."""
        if not self._disks:
            return list(after)
        n_bytes, writes = len(self._routes[TO_CPU]) * each_bytes / len(self._disks), stage == TO_DISK
        parts: list[Part] = []
        for disk, read_Bps, written_Bps in self._disks:
            parts.append(Work(n_bytes / (written_Bps if writes else read_Bps), ((f"{disk.name}:disk", 1.0),)))
            cpu = self._router.nearest_cpu(disk.index)
            if cpu is not None:
                ends = (cpu, disk.index) if writes else (disk.index, cpu)
                parts.append(Flow(self._router.route(*ends), n_bytes))
        return self._added(stage, parts, each_bytes, after, number)

    def _updated(self, kernels: Sequence[Streaming], spread: float, after: Sequence[int], number: int) -> list[int]:
        """Add *kernels* of each rank on its cores; all threads touch *spread* bytes first, one on its node the rest."""
        n_bytes, nodes = float(sum(kernel.bytes for kernel in kernels)), self._machine.nodes
        works: list[Part] = []
        for cpu, count in self._cpus.items():
            costs = [kernel_cost(self._places.host_of(cpu), kernel, cold=1.0) for kernel in kernels]
            over = max(1.0, (part.numa_nodes if isinstance(part := nodes[cpu].part, CpuPart) else 1) / count)
            time_s, moved = sum(cost.time_s for cost in costs), sum(cost.bytes for cost in costs)
            time_s *= over - (over - 1.0) * spread / n_bytes
            loads: list[tuple[Resource, float]] = [(f"{nodes[cpu].name}:cores", float(count))]
            bus = self._machine.memory_bus.get(cpu)
            if bus is not None:
                loads.append((bus, count * min(1.0, moved / time_s / self._machine.capacity_Bps[bus])))
            works.append(Work(time_s, tuple(loads)))
        return self._added(ON_CPU, works, n_bytes, after, number, nodes[next(iter(self._cpus))].name)


def write_offloaded(outline: dp.StepOutline, offload: OffloadWriter, *, copies: bool) -> None:
    """Add the step of *outline*, whose parameters are whole on each GPU; *copies*: those into buckets count."""
    builder, crew, network, question, layout, both, batches = outline
    passes, last = crew.passes(), batches.last
    apart = expert_parameters(network) if len(both) > 1 else frozenset()
    element_bytes = gradient_bytes(question.options, sums_in_fp32=question.sums_in_fp32)
    bucket_bytes = dp.bucket_size(question, layout, element_bytes)
    ahead = dp.gather_ahead(outline, apart, bucket_bytes)
    complete = dp.ready_after([same[0] for same in passes], network)
    full: dict[int, list[tuple[dp.Sums, dp.GradientBucket]]] = {}  # by issue: those that it fills
    for among, of_experts in zip(both, (False, True), strict=False):
        ready = [tuple(p.elements for p in found if (p.name in apart) is of_experts) for found in complete]
        for bucket in dp.buckets_of(ready, bucket_bytes / element_bytes or float("inf")):
            full.setdefault(bucket.full_after, []).append((among, bucket))
    trained = network.trained_count
    experts = sum(p.elements for p in network.parameters if p.trained and p.name in apart)
    ends: list[int] = []
    for number in batches:
        skipped = batches.skip(builder, number)
        crew.go_on(skipped)
        ends = offload.after_skipped(ends, skipped)
        for place, same in enumerate(passes):
            end = crew.issue(same, after=(*dp.awaited(same[0], ahead if not number else {}), *ends), micro_batch=number)
            ends = []
            gradients = tuple(parameter.elements for parameter in complete[place])
            if gradients and copies and number == last:
                devices, layer = [role.place.device for role in crew.roles], same[0].layer
                filling = [dp.bucket_copy(device, gradients, element_bytes, layer) for device in devices]
                end = crew.issue(filling, micro_batch=number)
            for among, bucket in full.get(place, ()) if number == last or layout.zero != 1 else ():
                summed = among.reduce(bucket.elements * element_bytes, end, number, ends=number == last) or end
                part = bucket.elements, experts if among is not both[0] else trained - experts, among.shard_count
                if number == last:
                    tensors = len(bucket.gradients)
                    checks = [offload.checked(role.place.device, tensors, *part) for role in crew.roles]
                    summed = crew.issue(checks, after=summed, micro_batch=number)
                ends += offload.gradients(*part, summed, number, ends=number == last)
    updated = offload.update(trained * layout.kept_share(trained, experts), [*crew.last, *ends], last)
    for among, count in zip(both, (trained - experts, experts), strict=False):
        if count and layout.zero and not ahead:
            among.gather(count * offload.scheme.stored_bytes, updated, last)
