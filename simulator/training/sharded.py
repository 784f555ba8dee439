"""Sharded data parallelism (``fsdp``, ZeRO-3): each rank keeps a shard (docs/decisions/parallelism.md)."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING

from simulator.devices.dispatch import unit_time
from simulator.devices.predict import Device
from simulator.questions.step import StepQuestion
from simulator.records import dataclass, replace
from simulator.step.conversions import is_before
from simulator.step.issue import work_of
from simulator.step.launch import Launch, Part
from simulator.step.precision import gathered_bytes, storage_of
from simulator.training.data_parallel import StepOutline
from simulator.training.worker import RankRoles
from simulator.workload.kernels import Streaming
from simulator.workload.network import Network, block_name, unit_elements, unit_parameters
from simulator.workload.precision import ELEMENT_BYTES
from simulator.workload.split.experts import expert_parameters

if TYPE_CHECKING:  # loaded where a step offloads
    from simulator.training.offload import OffloadWriter

_Elements = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Unit:
    """A unit's issues in one pass by role; elements to gather and scatter, of all ranks and of divided experts."""

    part: Part
    issues: tuple[tuple[Launch, ...], ...]
    gathered: _Elements = (0, 0)
    scattered: _Elements = (0, 0)


def write_sharded(outline: StepOutline, offload: "OffloadWriter | None" = None) -> None:
    """Add the step of *outline* to its builder; with *offload*, the hosts update."""
    builder, crew, network, question, layout, both, batches = outline
    trained = network.trained_count
    policy, in_fp32 = question.options.precision, question.gathers_in_fp32
    element = gathered_bytes(policy, trained, network.parameter_count, in_fp32=in_fp32)
    summed = ELEMENT_BYTES["fp32" if question.sums_in_fp32 or in_fp32 else storage_of(policy)]
    held = ELEMENT_BYTES["fp32" if in_fp32 else storage_of(policy)]
    # Parameters and gradients of Megatron-FSDP are views of its buckets (megatron/core/distributed/fsdp).
    copies = question.contention and not question.flat_parameters and question.options.framework != "megatron"
    copying = copies, copies and _copies_out(question, crew)
    apart = expert_parameters(network) if len(both) > 1 else frozenset()
    units = _units(network, crew.passes(), apart, again=question.gathers_again)
    of_deepspeed = question.options.framework == "deepspeed-zero3"
    if not of_deepspeed:  # whose hooks are those of its layers
        units = _hooked(units, network, apart, crew)
    alone = of_deepspeed and not question.prefetches  # an exchange waits for the device, and the device for it
    exchanged: list[int] = []
    waited: list[int] = []  # by the host before it issues on

    def gather(of: Sequence[_Unit], after: Sequence[int], number: int) -> list[int]:
        """Add the all-gathers of the units *of*, whose shards may come from the host; return their activities."""
        found = []
        for among, elements in ((among, n) for unit in of for among, n in zip(both, unit.gathered, strict=False) if n):
            copied = [] if offload is None else offload.parameters(elements / among.shard_count, after, number)
            found += among.gather(elements * element, copied or after, number) or copied
        return found

    for number in batches:
        skipped = batches.skip(builder, number)
        crew.go_on(skipped)
        waited = [] if offload is None else offload.after_skipped(waited, skipped)
        end = crew.last  # of the previous unit
        gathered = gather(units[:1], [*end, *waited], number)
        for place, unit in enumerate(units):
            following = units[place + 1 : place + 2]
            # During this unit, so that at most two are in memory at once: forward when the host comes to it.
            looks = [at for at, same in enumerate(unit.issues) if same[0].waits and unit.part == "forward"]
            early = question.prefetches or (unit.part == "forward" and not alone)
            asked = looks[-1] if looks else 0 if early else len(unit.issues)
            for at, same in enumerate((*unit.issues, ())):
                if at == asked:
                    ahead = gather(following, crew.last if at else end, number)
                if same and not at and copying[1] and any(unit.gathered):
                    out = _copies(crew, same, (sum(unit.gathered), element, element), "gathered")
                    crew.issue(out, after=[*gathered, *waited], micro_batch=number)
                if same:
                    crew.issue(same, after=[*gathered, *waited], micro_batch=number)
            if copying[0] and any(unit.scattered):
                into = _copies(crew, unit.issues[-1], (sum(unit.scattered), held, summed), "to scatter")
                crew.issue(into, micro_batch=number)
            end, waited = crew.last, []
            for among, elements in zip(both, unit.scattered, strict=False):
                if not elements:
                    continue
                ends, shards = number == batches.last, among.shard_count
                reduced = among.reduce(elements * summed, end, number, ends=ends)
                if offload is not None:
                    reduced = offload.gradients(elements, elements, shards, reduced or end, number, ends=ends)
                    waited += reduced
                exchanged = reduced or exchanged
                waited += exchanged if alone else ()
            gathered = ahead
    kept = layout.kept_share(trained, sum(p.elements for p in network.parameters if p.trained and p.name in apart))
    if offload is None:
        crew.update(exchanged, batches.last, kept, sums=True)
    else:
        offload.update(trained * kept, [*crew.last, *exchanged], batches.last)


def _units(
    network: Network, passes: Sequence[tuple[Launch, ...]], apart: frozenset[str], *, again: bool = False
) -> list[_Unit]:
    """Return the units of one micro-batch in order of execution, forward and backward; *apart* names the experts.

    *again*: what runs again is a forward pass of its own, whose parameters the backward pass gathers anew.
    """
    elements, with_gradients = _elements(network, apart), _elements(network, apart, trained=True)
    found: list[_Unit] = []
    outside: list[int] = []  # units outside of blocks: gathered first, and kept until the end

    def unit_of(same: tuple[Launch, ...]) -> tuple[Part, str]:
        return "forward" if again and same[0].again else same[0].part, block_name(same[0].layer)

    for (part, name), issues in groupby(passes, key=unit_of):
        gathered = elements.get(name, (0, 0)) if name or not outside else (0, 0)
        scattered = with_gradients.get(name, (0, 0)) if name and part == "backward" else (0, 0)
        outside += [] if name else [len(found)]
        found.append(_Unit(part, tuple(issues), gathered, scattered))
    last = outside[-1] if outside else 0
    if outside and found[last].part == "backward":
        found[last] = replace(found[last], scattered=with_gradients.get("", (0, 0)))
    return found


def _copies_out(question: StepQuestion, crew: RankRoles) -> bool:
    """Return whether parameters are copied out of what was gathered: FSDP2 and ZeRO-3, not FSDP before PyTorch 2.6."""
    old = question.flat_parameters or any(is_before(role.place.device, "2.6") for role in crew.roles)
    return question.options.framework == "deepspeed-zero3" or not old


def _copies(crew: RankRoles, same: Sequence[Launch], moved: tuple[int, float, float], what: str) -> tuple[Launch, ...]:
    """Return the copies beside the issues *same*; *moved*: elements, and the bytes of each as read and written."""
    roles = zip(same, crew.roles, strict=True)
    return tuple(_copy(role.place.device, x.layer, x.part, moved, what) for x, role in roles)


@lru_cache(maxsize=1024)
def _copy(device: Device, layer: str, part: Part, moved: tuple[int, float, float], what: str) -> Launch:
    elements, read, written = moved
    kernel = Streaming("copy", elements, round(elements * read), round(elements * written))
    return Launch(f"{layer} ({what})", part, 0.0, work_of(device, (kernel,)), layer=layer)


def _hooked(units: Sequence[_Unit], network: Network, apart: frozenset[str], crew: RankRoles) -> list[_Unit]:
    """Return *units* with the time of their hooks; divided experts, and adapters beside frozen ones, are apart."""
    everything, experts = unit_parameters(network), unit_parameters(network, only=apart)
    devices = [role.place.device for role in crew.roles]
    frozen = network.trained_count < network.parameter_count
    adapters = {layer.name for layer in network.layers if layer.trained and frozen and block_name(layer.name)}

    def hooked(same: Sequence[Launch], counts: Sequence[int], *, waits: bool) -> tuple[Launch, ...]:
        spent = zip(same, (sum(unit_time(device, count) for count in counts) for device in devices), strict=True)
        return tuple(replace(x, host_s=x.host_s + hooks_s, waits=x.waits or waits) for x, hooks_s in spent)

    found: list[_Unit] = []
    for unit in units:
        name, before = block_name(unit.issues[0][0].layer), set()
        divided = len(experts.get(name, ()))
        tensors = len(everything.get(name, ())) - divided, divided
        counts = [count for count, *moved in zip(tensors, unit.gathered, unit.scattered, strict=True) if any(moved)]
        issues = [hooked(unit.issues[0], counts, waits=False), *unit.issues[1:]]
        for at, (issue, *_) in enumerate(issues if counts else ()):
            if issue.layer in adapters and (issue.layer, issue.again) not in before:
                before.add((issue.layer, issue.again))
                issues[at] = hooked(issues[at], [1], waits=True)
        found.append(replace(unit, issues=tuple(issues)))
    return found


def _elements(network: Network, apart: frozenset[str], *, trained: bool = False) -> dict[str, _Elements]:
    """Return :func:`unit_elements` of each unit, without and with only the parameters in *apart*."""
    experts = unit_elements(network, trained=trained, only=apart)
    everything = unit_elements(network, trained=trained)
    return {name: (count - experts.get(name, 0), experts.get(name, 0)) for name, count in everything.items()}
