"""The communicators of a step's ranks, and the memory that NCCL takes for them on each GPU.

Each group that exchanges has one, even if another has the same ranks: the axes that divide layers, the ranks with the
same parameters or shards (those of experts apart), and the stages of a pipeline.  Then there are those in which ranks
wait for each other and sum single numbers:

* all ranks: ``torch.distributed``'s default group, in which trainers begin with a barrier.  It is that of the gradients
  where these are exchanged among all by plain PyTorch; Megatron-LM (megatron/core/parallel_state.py) and DeepSpeed
  (deepspeed/utils/groups.py, ``_clone_world_group``) make another one for them.
* the ranks of a replica: Megatron-LM's norm of the gradients and its check for infinities (``model_parallel_group``);
  with a distributed optimiser, all ranks (``get_grad_stats_parallel_group`` in distrib_optimizer.py).

Experts' tokens go through buffers of their dispatcher instead where it has its own (``flex``: DeepEP's).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from simulator.collectives.bundle import ConcurrentGroups
from simulator.collectives.communicator import Communicator
from simulator.collectives.nccl.buffers import communicator_bytes
from simulator.collectives.nccl.strategy import Nccl
from simulator.collectives.registry import strategy_of
from simulator.questions.step import StepQuestion
from simulator.step.precision import storage_of
from simulator.topology.parts import GpuPart
from simulator.training.data_parallel import gradient_bytes
from simulator.training.placement import Placement
from simulator.workload import Collective
from simulator.workload.network import Network, unit_elements
from simulator.workload.operators import Exchange, LayerNorm
from simulator.workload.precision import ELEMENT_BYTES

_Carried = set[tuple[Collective, float]]
"""Collectives with nccl-tests' sizes in bytes."""
_NUMBER: _Carried = {("all-reduce", 8.0)}


def groups_within_layers(placement: Placement) -> dict[str, list[ConcurrentGroups]]:
    """Return the groups that exchange within layers, by axis."""
    layout = placement.layout
    found = {axis: placement.layer_groups(axis) for axis in ("tp", "cp") if getattr(layout, axis) > 1}
    if layout.ep > 1:
        found["ep"] = placement.expert_groups()
    if layout.expert_tp > 1:
        found["etp"] = placement.split_expert_groups()
    return found


def communication_bytes(placement: Placement, question: StepQuestion, network: Network) -> float:
    """Return the bytes that NCCL takes on each GPU for the exchanges of *question*, whose ranks compute *network*.

    Where groups lie differently on their machines, those that take most count.  0 where one process launches for all
    GPUs, and for gradients that go through other strategies or servers.
    """
    if question.one_process:
        return 0.0
    nccl = cast(
        Nccl,
        strategy_of(
            "nccl",
            question.software,
            algorithm=question.algorithm,
            protocol=question.protocol,
            nvls=question.nvls,
        ),
    )
    how = question.software.nccl, question.algorithm, question.protocol, question.nvls

    def taken(group: Communicator, carried: _Carried, n_peers: int) -> float:
        key = "buffers", how, frozenset(carried), n_peers  # which stages and trials share
        return group.once(key, lambda: communicator_bytes(nccl, group, carried, n_peers))

    layout, found = placement.layout, 0.0
    unlike = placement.group.unlike() if layout.flex and layout.ep > 1 else ()
    if unlike and all(isinstance(each.part, GpuPart) and each.part.vendor == "nvidia" for each in unlike):
        from simulator.collectives.deep_ep import deep_ep_bytes

        widths = (each.operator.cols for each in network.layers if isinstance(each.operator, LayerNorm))
        found = deep_ep_bytes(layout.ep, max(widths, default=0))  # the numbers of a token between layers
    return found + sum(
        max(taken(group, carried, n_peers) for group in groups)
        for groups, carried, n_peers in _communicators(placement, question, network)
    )


def _communicators(
    placement: Placement, question: StepQuestion, network: Network
) -> Iterator[tuple[Sequence[Communicator], _Carried, int]]:
    """Yield the unlike groups of each kind, what they carry, and the number of ranks with which each rank has sends."""
    layout, carried = placement.layout, _carried_within(network, question)
    for axis, bundles in groups_within_layers(placement).items():
        if axis == "ep" and layout.flex:
            continue
        n_peers = {"ep": layout.ep - 1, "cp": 1}.get(axis, 0)
        yield _unlike(bundles), carried.get(axis, set()), n_peers
    yield from _of_parameters(placement, question, network)
    if layout.pp > 1:
        stages = placement.group.part([placement.rank(pp=stage) for stage in range(layout.pp)])
        yield [stages], set(), min(2, layout.pp - 1)
    # Groups that sum single numbers and exchange nothing else.
    framework = question.options.framework
    n_ranks, makes_own = placement.group.n_ranks, framework in ("megatron", "deepspeed-zero3")
    if makes_own or layout.divides_network or (layout.shards or n_ranks) < n_ranks:
        yield [placement.group], _NUMBER, 0
    if framework == "megatron" and layout.model_ranks > 1 and not layout.zero:
        ranks = sorted(placement.rank(tp=t, pp=p) for t in range(layout.tp) for p in range(layout.pp))
        yield [placement.group.part(ranks)], _NUMBER, 0


def _of_parameters(
    placement: Placement, question: StepQuestion, network: Network
) -> Iterator[tuple[Sequence[Communicator], _Carried, int]]:
    """Yield the groups that exchange gradients and shards, as :func:`_communicators` does."""
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


def _carried_within(network: Network, question: StepQuestion) -> dict[str, _Carried]:
    """Return the collectives of the layers of *network*, by axis."""
    element, found = ELEMENT_BYTES[storage_of(question.options.precision)], dict[str, _Carried]()
    for layer in network.layers:
        if isinstance(exchange := layer.operator, Exchange):
            for op in (exchange.forward, exchange.backward if question.options.trains else None):
                if op is not None:
                    found.setdefault(exchange.axis, set()).add((op, float(exchange.elements * element)))
    return found
