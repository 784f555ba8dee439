"""The memory of each device in a step over several, with NCCL's (docs/decisions/parallelism.md)."""

from collections.abc import Iterator, Sequence
from typing import cast

from simulator.collectives.communicator import Communicator, ConcurrentGroups
from simulator.collectives.nccl.strategy import Nccl, communicator_bytes, deep_ep_bytes
from simulator.collectives.registry import strategy_of
from simulator.devices.predict import Device
from simulator.questions.layout import REPLICAS, Layout
from simulator.questions.options import StepOptions
from simulator.questions.step import StepQuestion
from simulator.records import replace
from simulator.step.megatron import has_gradient_buffer
from simulator.step.memory import ALL, MemoryNeed, NetworkMemory, Shares, held_in, memory_need, need_of, with_gaps
from simulator.step.precision import gradient_bytes, has_master, storage_of
from simulator.topology.parts import GpuPart
from simulator.training.placement import Placement
from simulator.training.schedules import chunks_of, in_flight, part_count, schedule_of, stage_parts
from simulator.workload import Collective
from simulator.workload.network import Network, network_key, unit_elements
from simulator.workload.operators import Exchange, LayerNorm
from simulator.workload.precision import ELEMENT_BYTES
from simulator.workload.split.experts import expert_parameters


def device_memory(
    network: Network,  # its part of a step
    question: StepQuestion,
    device: Device,
    layout: Layout,  # with known degrees
    in_flight: float = 1.0,  # micro-batches whose activations are saved at once
    placement: Placement | None = None,  # None: what communicators hold does not count
    *,
    gaps: bool = True,  # count what the allocator holds besides
) -> MemoryNeed:
    """Return a device's need for its part, *network*; without *placement* or *gaps*, these do not count."""
    if layout.ep_overlap and layout.pp == 1:  # block by block: one is saved as the last one of the other is freed
        in_flight = min(1.0 + 1.0 / max(1, len(unit_elements(network).keys() - {""})), float(question.micro_batches))
    options, gathered = stage_options(question.rank_options, layout), gathered_elements(network, layout)
    held = held_in(network, options, in_blocks=layout.zero == 3)
    need = held_memory(held, gathered, question, device, layout, in_flight)
    if placement is not None:
        need = replace(need, communication_bytes=communication_bytes(placement, question, network))
    if not gaps:
        return need
    shares, buckets = ALL, 0.0
    if not question.has_servers:
        shares = rank_shares(held, gathered, question, layout, in_flight)
        buckets = bucket_bytes_of(held, question, layout)
    return with_gaps(need, network, options, device, shares, buckets)


def alone_memory(network: Network, question: StepQuestion, device: Device, *, gaps: bool = True) -> MemoryNeed:
    """Return the memory that one program needs on *device* if it steps alone."""
    if question.offload != "none":
        return device_memory(network, question, device, REPLICAS, gaps=gaps)
    shares = Shares(accumulates=float(question.micro_batches > 1))
    if not gaps:
        return need_of(held_in(network, question.options), question.options, device, shares, question.software)
    return memory_need(network, question.options, device, shares, question.software)


def stage_options(options: StepOptions, layout: Layout) -> StepOptions:
    """Return *options*, which are of each chunk, for a whole stage of *layout*."""
    if options.recompute_blocks is not None:
        return replace(options, recompute_blocks=options.recompute_blocks * chunks_of(layout))
    return options


def saved_shares(network: Network, question: StepQuestion, layout: Layout, stage: int) -> tuple[float, ...]:
    """Return each chunk's share of *stage* in what it saves of a micro-batch; virtual stages are equal by default."""
    count = chunks_of(layout)
    if not (schedule_of(layout).chunks or layout.blocks) or not question.options.trains:
        return (1.0 / count,) * count
    from simulator.workload.split.stages import stages_of

    parts = stages_of(network, part_count(layout), layout.blocks)
    each = (held_in(parts[part].network, question.rank_options) for part in stage_parts(layout, stage))
    saved = [float(held.moments[0].activations_bytes) for held in each]
    return tuple(n_bytes / sum(saved) for n_bytes in saved)


def most_needed(
    network: Network,
    question: StepQuestion,
    device: Device,
    layout: Layout,
    placement: Placement | None = None,
    *,
    gaps: bool = True,
) -> MemoryNeed:
    """Return the highest need of the stages' devices, as :func:`device_memory`; with gaps if all fit without."""
    if layout.pp == 1:
        return device_memory(network, question, device, layout, 1.0, placement, gaps=gaps)
    from simulator.workload.split.stages import joined_stages, stages_of

    parts = stages_of(network, part_count(layout), layout.blocks)
    unlike: dict[object, tuple[float, Network]] = {}  # of equal stages, that with most micro-batches in flight
    for stage in range(layout.pp):
        whole = joined_stages([parts[part] for part in stage_parts(layout, stage)])
        shares, key = saved_shares(network, question, layout, stage), network_key(whole)
        count = in_flight(layout, stage, question.micro_batches, shares)
        if count > unlike.get(key, (0.0, whole))[0]:
            unlike[key] = count, whole
    for counts_gaps in (False, True) if gaps else (False,):
        needs = [
            device_memory(whole, question, device, layout, count, placement, gaps=counts_gaps)
            for count, whole in unlike.values()
        ]
        if not all(need.fits for need in needs):
            break
    return max(needs, key=lambda need: need.total_bytes)


def gathered_elements(network: Network, layout: Layout) -> int:
    """Return the elements gathered at once: of the two largest blocks, and outside; unsharded experts are not."""
    units = unit_elements(network)
    if layout.has_experts_apart and layout.expert_shards == 1:
        experts = unit_elements(network, only=expert_parameters(network))
        units = {name: count - experts.get(name, 0) for name, count in units.items()}
    outside = units.pop("", 0)
    return outside + sum(sorted(units.values())[-2:])


def held_memory(
    held: NetworkMemory, gathered: int, question: StepQuestion, device: Device, layout: Layout, in_flight: float = 1.0
) -> MemoryNeed:
    """Return :func:`device_memory` of a network with memory *held* and :func:`gathered_elements` *gathered*."""
    if question.has_servers:  # the servers hold the optimiser state
        return need_of(held, replace(question.options, optimizer="none"), device, software=question.software)
    shares = rank_shares(held, gathered, question, layout, in_flight)
    need = need_of(held, question.rank_options, device, shares, question.software)
    return replace(need, working_bytes=need.working_bytes + bucket_bytes_of(held, question, layout))


def rank_shares(
    held: NetworkMemory, gathered: int, question: StepQuestion, layout: Layout, in_flight: float = 1.0
) -> Shares:
    """Return the shares of *held* that one rank has."""
    shard = layout.kept_share(held.trained_count, held.trained_of_experts, held.matrices)
    accumulates = float(question.micro_batches > in_flight)
    offloads, parameters = question.offload != "none", question.offload == "optimizer+parameters"
    updated, waiting = (0.0, 0.0) if offloads else (shard, shard)  # the host has the state, and gradients
    if layout.zero == 3 or parameters:
        kept = layout.kept_share(held.parameter_count, held.of_experts)
        kept = 0.0 if parameters else kept
        there = min(1.0, gathered / max(1, held.parameter_count) + kept)
        in_fp32 = question.gathers_in_fp32
        return Shares(kept, there - kept, there, waiting, updated, in_flight, accumulates, in_fp32)
    if question.bucket_views:
        one = held.largest / max(1, held.trained_count)
        return Shares(gradients=one, kept_gradients=0.0, in_flight=in_flight, accumulates=accumulates)
    kept = waiting if _leave(question, layout) else 1.0
    during = kept if _has_buckets(question, layout) else 1.0  # else all wait for the end of the backward pass
    return Shares(1.0, 0.0, during, kept, updated, in_flight, accumulates)


def bucket_bytes_of(held: NetworkMemory, question: StepQuestion, layout: Layout) -> float:
    """Return the bytes of the buckets into which a replica copies its gradients, and of gathered tokens' buffer."""
    tokens = float(held.token_buffer * ELEMENT_BYTES[storage_of(question.options.precision)])
    is_part = has_gradient_buffer(question.options) and question.offload == "none"
    if is_part or layout.zero == 3 or question.offload == "optimizer+parameters":
        return tokens
    if not _has_buckets(question, layout) or question.options.mode not in ("train", "backward"):
        return tokens
    element = gradient_bytes(question.options, sums_in_fp32=question.sums_in_fp32)
    buckets = float(held.trained_count * element)
    is_freed = _leave(question, layout) or (layout.zero and has_master(question.options.precision))
    if is_freed:  # once it is scattered
        buckets = min(buckets, question.bucket_bytes + held.largest * element)
    return buckets + tokens


def _has_buckets(question: StepQuestion, layout: Layout) -> bool:
    several = layout.cp * (layout.dp or 1) > 1 or question.offload != "none"
    return bool(question.bucket_bytes and several and not question.one_process)


def _leave(question: StepQuestion, layout: Layout) -> bool:
    """Return whether gradients leave the replica as their bucket is full, for other ranks or for the host."""
    return layout.zero == 2 or (question.offload != "none" and layout.zero == 0)


_Carried = set[tuple[Collective, float]]
"""Collectives with nccl-tests' sizes in bytes."""
_Exchanging = Iterator[tuple[Sequence[Communicator], _Carried, int]]
"""The unlike groups of each kind, what they carry, and the number of ranks with which each rank has sends."""
_NUMBER: _Carried = {("all-reduce", 8.0)}


def communication_bytes(placement: Placement, question: StepQuestion, network: Network) -> float:
    """Return the bytes that NCCL takes on each GPU for *question*'s exchanges; of unlike groups, the most."""
    if question.one_process:
        return 0.0
    chosen = {name: getattr(question, name) for name in ("algorithm", "protocol", "nvls")}
    nccl = cast(Nccl, strategy_of("nccl", question.software, **chosen))
    how = question.software.nccl, *chosen.values()

    def taken(group: Communicator, carried: _Carried, n_peers: int) -> float:
        key = "buffers", how, frozenset(carried), n_peers  # which stages and trials share
        return group.once(key, lambda: communicator_bytes(nccl, group, carried, n_peers))

    layout, found = placement.layout, 0.0
    unlike = placement.group.unlike() if layout.flex and layout.ep > 1 else ()
    if unlike and all(isinstance(each.part, GpuPart) and each.part.vendor == "nvidia" for each in unlike):
        widths = (each.operator.cols for each in network.layers if isinstance(each.operator, LayerNorm))
        found = deep_ep_bytes(layout.ep, max(widths, default=0))  # the numbers of a token between layers
    return found + sum(
        max(taken(group, carried, n_peers) for group in groups)
        for groups, carried, n_peers in _communicators(placement, question, network)
    )


def _communicators(placement: Placement, question: StepQuestion, network: Network) -> _Exchanging:
    layout, framework, carried = placement.layout, question.options.framework, dict[str, _Carried]()
    element = ELEMENT_BYTES[storage_of(question.options.precision)]
    for exchange in (each.operator for each in network.layers if isinstance(each.operator, Exchange)):
        for op in (exchange.forward, exchange.backward if question.options.trains else None):
            if op is not None:
                carried.setdefault(exchange.axis, set()).add((op, float(exchange.elements * element)))
    for axis, bundles in placement.within_layers().items():
        if axis != "dp" and (axis != "ep" or not layout.flex):  # statistics go with the gradients
            n_peers = {"ep": 0 if layout.gathers_tokens else layout.ep - 1, "cp": 1, "cp heads": layout.cp_a2a - 1}
            yield _unlike(bundles), carried.get(axis, set()), n_peers.get(axis, 0)
    yield from _of_parameters(placement, question, network)
    if layout.pp > 1:
        stages = placement.group.part([placement.rank(pp=stage) for stage in range(layout.pp)])
        yield [stages], set(), min(2, layout.pp - 1)
    # Groups that sum single numbers and exchange nothing else.
    n_ranks, makes_own = placement.group.n_ranks, framework in ("megatron", "deepspeed-zero3")
    if makes_own or layout.divides_network or (layout.shards or n_ranks) < n_ranks:
        yield [placement.group], _NUMBER, 0
    if framework == "megatron" and layout.model_ranks > 1 and not layout.zero:
        ranks = sorted(placement.rank(tp=t, pp=p) for t in range(layout.tp) for p in range(layout.pp))
        yield [placement.group.part(ranks)], _NUMBER, 0


def _of_parameters(placement: Placement, question: StepQuestion, network: Network) -> _Exchanging:
    """Yield the groups that exchange gradients and shards."""
    layout, mode = placement.layout, question.options.mode
    if question.strategy != "nccl" or (layout.zero < 3 and mode not in ("train", "backward")):
        return
    element = gradient_bytes(question.options, sums_in_fp32=question.sums_in_fp32)
    n_bytes = float(network.trained_count * element)
    if layout.zero == 3:  # of the largest unit of shards
        n_bytes = float(max(unit_elements(network).values(), default=0) * element)
    elif question.bucket_bytes:
        n_bytes = min(n_bytes, question.bucket_bytes)
    gathers: _Carried = {("all-gather", n_bytes), ("reduce-scatter", n_bytes)}
    sums: _Carried = {("all-reduce", n_bytes)}
    for experts in (False, True) if layout.has_experts_apart else (False,):
        if layout.zero:
            yield _unlike(placement.shard_groups(0, experts=experts)), gathers, 0
            yield _unlike(placement.replica_groups(0, experts=experts)), sums, 0
        else:
            yield _unlike(placement.data_groups(0, experts=experts)), sums, 0


def _unlike(bundles: Sequence[ConcurrentGroups]) -> list[Communicator]:
    return [bundle.groups[0] for bundle in bundles]
