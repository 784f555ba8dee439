"""The device memory that a step needs, and the memory that is available."""

from math import ceil

from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device
from simulator.questions.options import StepOptions, of_tensors
from simulator.questions.where import TODAY, Software
from simulator.records import dataclass, field, fields, own_data, replace
from simulator.step.conversions import formats_of, nvfp4_weights
from simulator.step.megatron import buffer_element_bytes, has_gradient_buffer, shared_gradients, token_buffer
from simulator.step.moments import Moment, tape_of
from simulator.step.precision import casts, gathered_bytes, has_master, storage_of, updated_bytes, weight_bytes
from simulator.step.recompute import of_blocks
from simulator.step.reserved import RankState, Residents, reserved_and_allocated, states_of, workspace_bytes
from simulator.workload.backward import peak_forward_bytes
from simulator.workload.network import Network, once, packed_weights, unit_elements
from simulator.workload.precision import ELEMENT_BYTES, NVFP4_BYTES, PACKED
from simulator.workload.split.experts import expert_parameters


@dataclass(frozen=True, slots=True)
class MemoryNeed:
    """Bytes by use, at the moment of the highest total."""

    parameters_bytes: float
    gradients_bytes: float  # of parameters
    optimizer_bytes: float
    activations_bytes: float
    working_bytes: float  # gradients of activations and scratch; in inference, activations that are live
    context_bytes: float
    available_bytes: float  # the device's
    cached_bytes: float = 0.0  # in the allocator's gaps between tensors
    communication_bytes: float = 0.0  # of the process's communicators
    workspace_bytes: float = 0.0  # that matrix products keep
    peak: str = field(default="", compare=False)  # when tensors take most, in words; empty in inference

    def times(self, count: int) -> "MemoryNeed":
        """Return the need of *count* processes, together."""
        names = [each.name for each in fields(self) if each.name not in ("available_bytes", "peak")]
        return replace(self, **{name: count * getattr(self, name) for name in names}) if count > 1 else self

    @property
    def by_use(self) -> dict[str, float]:
        """Bytes of each use, in words, that needs any."""
        uses = own_data("simulator.step", "uses.yaml").items()
        found = {word: sum(getattr(self, f"{of}_bytes") for of in names) for word, names in uses}
        return {word: n_bytes for word, n_bytes in found.items() if n_bytes}

    @property
    def total_bytes(self) -> float:
        """Bytes of all uses, as ``nvidia-smi`` counts those of a process."""
        return self.reserved_bytes + self.communication_bytes + self.context_bytes

    @property
    def missing_bytes(self) -> float:
        """Bytes by which the need exceeds the available memory; 0 if it fits."""
        return max(0.0, self.total_bytes - self.available_bytes)

    @property
    def fits(self) -> bool:
        """Whether the need fits into the available memory."""
        return self.missing_bytes == 0.0

    @property
    def allocated_bytes(self) -> float:
        """Bytes of tensors, as ``torch.cuda.max_memory_allocated`` counts them."""
        held = self.parameters_bytes + self.gradients_bytes + self.optimizer_bytes
        return held + self.activations_bytes + self.working_bytes + self.workspace_bytes

    @property
    def reserved_bytes(self) -> float:
        """Bytes that the framework's allocator holds, as ``torch.cuda.max_memory_reserved`` counts them."""
        return self.allocated_bytes + self.cached_bytes

    @property
    def process_bytes(self) -> float:
        """Bytes of the process, as ``nvidia-smi`` counts them."""
        return self.total_bytes


@dataclass(frozen=True, slots=True)
class Shares:
    """The shares of parameters, gradients and optimiser state that one device holds."""

    kept: float = 1.0  # of the parameters, in the format in which they are kept
    gathered: float = 0.0  # held besides in the format of computation, where others keep them
    gradients: float = 1.0  # held while computing
    kept_gradients: float = 1.0  # held until the update
    updated: float = 1.0  # of the optimiser's state, and of a ``master-`` policy's fp32 copy
    in_flight: float = 1.0  # micro-batches whose activations are saved at once
    accumulates: float = 0.0  # of gradients that earlier micro-batches left, to which later ones add
    gathers_in_fp32: bool = False  # autocast casts what was gathered


ALL = Shares()


@dataclass(frozen=True, slots=True)
class NetworkMemory:
    """The memory of a network on a device, before it is divided into shares; all counts are elements."""

    parameter_count: int
    trained_count: int
    moments: tuple[Moment, ...] = ()  # of the backward pass
    most_forward_bytes: int = 0  # peak of a forward pass alone
    of_experts: int = 0  # part of ``parameter_count``
    trained_of_experts: int = 0  # part of ``trained_count``
    largest: int = 0  # trained parameter
    quantised: int = 0  # weights kept in nvfp4 besides, by rows and transposed
    unread_gradients: int = 0  # that a framework allocates, and nobody reads
    token_buffer: int = 0  # tokens of all ranks of experts, in the format of activations
    state_bytes: int = 0  # of the optimiser
    working_bytes: int = 0  # of updates of single tensors
    matrices: int = 0  # that Muon updates whole
    packed: int = 0  # frozen weights kept in nf4, in ``packed_bytes``
    packed_bytes: int = 0
    layers: tuple[str, ...] = ()  # names of the places of ``moments``


@once
def memory_need(
    network: Network, options: StepOptions, device: Device, shares: Shares = ALL, software: Software = TODAY
) -> MemoryNeed:
    """Return the peak need of a step of *network* on *device*, which has *shares*; with a GPU's context."""
    held = held_in(network, options, in_blocks=shares.gathered > 0.0)
    need = need_of(held, options, device, shares, software)
    return with_gaps(need, network, options, device, shares)


def with_gaps(
    need: MemoryNeed, network: Network, options: StepOptions, device: Device, shares: Shares, bucket_bytes: float = 0.0
) -> MemoryNeed:
    """Return *need* with what PyTorch's allocator holds beyond tensors, and *bucket_bytes* of exchanges."""
    is_of_pytorch = isinstance(device, Gpu) and options.trains and options.framework not in ("tensorflow", "caffe")
    if not is_of_pytorch or need.missing_bytes:
        return need
    kept = updated_bytes(options.precision)
    n, gradient = network.trained_count, parameter_gradient_bytes(options)
    wide = has_wide_shards(options, shares)
    master = (kept * shares.updated,) if has_master(options.precision) and not wide else ()
    gathered = gathered_bytes(options.precision, n, network.parameter_count, in_fp32=shares.gathers_in_fp32)
    staying = shares.kept_gradients * (kept / gradient if wide else 1.0)
    held = RankState(
        weight_bytes=((kept if wide else gradient) * shares.kept, *master),
        frozen_bytes=weight_bytes(options.precision) * shares.kept,
        updated=shares.updated,
        update_bytes=sum(_update_bytes(options, wide=wide)) * shares.updated,
        working_bytes=held_in(network, options, in_blocks=shares.gathered > 0.0).working_bytes,
        buffer_bytes=round(_buffer_bytes(n, options, shares) + _sums_bytes(n, options) + bucket_bytes),
        gathered_bytes=gathered if shares.gathered else 0.0,
        kept_gradients=staying if shares.gathered else shares.gradients,
        in_flight=shares.in_flight,
        accumulates=bool(shares.accumulates),
    )
    options = of_blocks(of_tensors(options, updated=True), network)
    copied = 0
    if shares.gathered and options.framework == "pytorch":
        # FSDP's flat buffers hold parameters outside of blocks, then two blocks: one gathered, one copied out.
        units = unit_elements(network)
        copied = ceil(held.gathered_bytes * max(units.pop("", 0), sum(sorted(units.values())[-2:])))
    reserved, allocated = reserved_and_allocated(network, options, gradient, held)
    most_bytes = allocated + int(need.available_bytes - need.total_bytes) - copied
    if reserved > most_bytes:  # in more pieces, the first refused request may lead to more than where none is
        reserved = min(reserved, reserved_and_allocated(network, options, gradient, held, most_bytes)[0])
    return replace(need, cached_bytes=float(max(0, reserved - allocated) + copied))


@once
def held_in(network: Network, options: StepOptions, *, in_blocks: bool = False) -> NetworkMemory:
    """Return the memory of a step before it is divided into shares; *in_blocks*: compiled one by one (FSDP)."""
    names = expert_parameters(network)
    experts = [p for p in network.parameters if p.name in names]
    packed = packed_weights(network)
    held = NetworkMemory(
        network.parameter_count,
        network.trained_count,
        of_experts=sum(p.elements for p in experts),
        trained_of_experts=sum(p.elements for p in experts if p.trained),
        largest=max((p.elements for p in network.parameters if p.trained), default=0),
        quantised=nvfp4_weights(network, options.precision),
        state_bytes=state_bytes(network, options),
        packed=sum(p.elements for p in network.parameters if p.name in packed),
        packed_bytes=sum(packed.values()),
    )
    if options.optimizer == "muon" and options.mode == "train":
        from simulator.step.muon import matrices_of, working_bytes

        most, matrices = working_bytes(network, options), len(matrices_of(network, options))
        held = replace(held, working_bytes=most, matrices=matrices)
    formats = formats_of(network, options, in_blocks=in_blocks)
    if not options.trains:
        return replace(held, most_forward_bytes=peak_forward_bytes(network, formats))
    moments = tape_of(network, options, parameter_gradient_bytes(options), in_blocks=in_blocks).moments
    is_written = has_gradient_buffer(options) and options.accumulation == "product"
    unread = shared_gradients(network) if is_written else 0
    tokens = token_buffer(network) if options.framework == "megatron" else 0
    layers = tuple([layer.name for layer in network.layers])
    return replace(held, moments=moments, unread_gradients=unread, token_buffer=tokens, layers=layers)


def has_wide_shards(options: StepOptions, shares: Shares) -> bool:
    """Return whether a rank's shards are in fp32 alone, as of FSDP's ``MixedPrecision``; DeepSpeed has both."""
    is_fsdp = options.framework == "pytorch" and shares.gathered > 0.0 and shares.updated == shares.kept > 0.0
    return is_fsdp and has_master(options.precision) and options.trains


def state_bytes(network: Network, options: StepOptions, *, paged: bool = False) -> int:
    """Return the bytes of the optimiser's state of *network*; *paged*: with what is in managed memory, too."""
    if options.mode != "train":
        return 0
    return sum(map(sum, states_of(network, options, paged=paged)))


def parameter_gradient_bytes(options: StepOptions) -> int:
    """Return the bytes of an element of the parameters' gradients, as the backward pass leaves them."""
    policy = options.precision
    return ELEMENT_BYTES[storage_of(policy)] if has_master(policy) else updated_bytes(policy)


def need_of(
    held: NetworkMemory, options: StepOptions, device: Device, shares: Shares = ALL, software: Software = TODAY
) -> MemoryNeed:
    """Return the memory need on *device* of a step that holds *held*; otherwise as :func:`memory_need`."""
    parameters = _parameters(held, options, shares)
    context = device.constants(Residents).of(device, options, software) if isinstance(device, Gpu) else 0.0
    workspace = workspace_bytes(device, options)
    if not options.trains:
        live_bytes = held.most_forward_bytes
        return MemoryNeed(parameters, 0, 0, 0, live_bytes, context, device.memory_bytes, workspace_bytes=workspace)
    optimizer = held.state_bytes * shares.updated if options.optimizer != "none" else 0.0
    views = [shares]
    if shares.in_flight > 1.0 and not shares.accumulates:  # all in flight; the second goes back beside all gradients
        views.append(replace(shares, in_flight=shares.in_flight - 1.0, accumulates=1.0))
    most = max([_RankView(held, options, each).most() for each in views], key=lambda moment: moment.total_bytes)
    place, activations, casts_bytes, working, gradients = most
    peak = "in the update" if place == UPDATE else "at the end of the forward pass"
    peak = f"in the backward pass of {held.layers[place]}" if place >= 0 else peak
    uses = parameters + casts_bytes, gradients, optimizer, activations, working, context
    return MemoryNeed(*uses, device.memory_bytes, workspace_bytes=workspace, peak=peak)


def _parameters(held: NetworkMemory, options: StepOptions, shares: Shares) -> float:
    """Return the bytes of the parameters, without the copies that come and go in the backward pass."""
    trained, policy = held.trained_count, options.precision
    element, kept, count = weight_bytes(policy), ELEMENT_BYTES["fp32"], held.parameter_count
    each = gathered_bytes(policy, trained, count, in_fp32=True) if shares.gathers_in_fp32 else element
    whole = count * each * shares.gathered + held.quantised * 2 * NVFP4_BYTES * shares.kept
    frozen = (count - trained - held.packed) * element * shares.kept
    frozen += held.packed_bytes - held.packed / PACKED * (1.0 - shares.kept)  # each rank has the scales
    if casts(policy) or has_wide_shards(options, shares):
        copies = trained * element if casts(policy) and not options.trains else 0.0
        return whole + frozen + trained * kept * shares.kept + copies
    master = trained * kept * shares.updated if has_master(policy) and options.trains else 0.0
    return whole + frozen + trained * element * shares.kept + master


UPDATE = -2  # the place of the moment of the update; that of the end of the forward pass is -1


def moments_of(held: NetworkMemory, options: StepOptions, shares: Shares = ALL) -> list[Moment]:
    """Return the moments of the backward pass and, in training, of the update, which comes last."""
    view = _RankView(held, options, shares)
    return [*map(view.of, held.moments), *view.updates]


class _RankView:
    """The moments of what is *held* with *shares*; fp32 sums of gradients are whole (``BF16_Optimizer``)."""

    def __init__(self, held: NetworkMemory, options: StepOptions, shares: Shares) -> None:
        n, element = held.trained_count, parameter_gradient_bytes(options)
        self._held = held
        self._sums = sums = _sums_bytes(n, options)
        buffer = _buffer_bytes(n, options, shares)
        self._buffer = buffer + held.unread_gradients * element if buffer else 0.0
        self._waiting = held.moments[0].activations_bytes * (shares.in_flight - 1.0)  # of later micro-batches
        self._casts = 0.0 if shares.gathered and not shares.gathers_in_fp32 else 1.0  # else there is nothing to cast
        wide = has_wide_shards(options, shares)
        kept = n * (ELEMENT_BYTES["fp32"] if wide else element) * shares.kept_gradients
        self._gradients = shares.gradients + (shares.kept_gradients if wide else 0.0)  # of twice the bytes
        self._earlier = kept * shares.accumulates
        self.updates: tuple[Moment, ...] = ()
        if options.mode == "train":  # activations and casts are freed; a pass over all parameters writes one more copy
            copy, widened = (n * each * shares.updated for each in _update_bytes(options, wide=wide))
            gradients = (self._buffer or kept + sums) + widened
            self.updates = (Moment(UPDATE, 0.0, 0.0, copy + held.working_bytes, gradients),)

    def of(self, moment: Moment) -> Moment:
        place, saved, cast, working, graded = moment
        gradients = self._buffer or max(graded * self._gradients, self._earlier) + self._sums
        return Moment(place, saved + self._waiting, cast * self._casts, float(working), gradients)

    def most(self) -> Moment:
        """Return the highest moment: as the maximum of :meth:`of`, of which a search would make millions."""
        gradients, earlier, casts = self._gradients, self._earlier, self._casts
        if self._buffer:
            gradients = earlier = 0.0
        place, most = 0, -1.0
        for number, (_, saved, cast, working, graded) in enumerate(self._held.moments):
            own = graded * gradients
            total = cast * casts + saved + (own if own > earlier else earlier) + working
            if total > most:
                place, most = number, total
        return max([self.of(self._held.moments[place]), *self.updates], key=lambda moment: moment.total_bytes)


def _sums_bytes(trained: int, options: StepOptions) -> int:
    return trained * ELEMENT_BYTES["fp32"] if options.accumulation == "fp32" else 0


def _buffer_bytes(trained: int, options: StepOptions, shares: Shares) -> float:
    """Return the bytes of the buffer in which *trained* gradients are summed; 0 without one."""
    return trained * buffer_element_bytes(options) * shares.kept_gradients if has_gradient_buffer(options) else 0.0


def _update_bytes(options: StepOptions, *, wide: bool = False) -> tuple[int, int]:
    """Return the bytes an element that only updates take: of a pass's copy, and of gradients cast to fp32."""
    kept = updated_bytes(options.precision)
    copied = options.optimizer == "adam" and not options.fused_optimizer
    is_wide = has_gradient_buffer(options) and buffer_element_bytes(options) == kept
    widens = has_master(options.precision) and options.accumulation != "fp32" and not is_wide and not wide
    return kept if copied else 0, kept if widens else 0
