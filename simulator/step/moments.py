"""Memory of the forward and backward pass, tensor by tensor, as autograd has it (docs/decisions/step-models.md)."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from simulator.questions.options import StepOptions, of_tensors
from simulator.records import dataclass, field, named_tuple
from simulator.step.conversions import formats_of, quantised_layers
from simulator.step.fusion import Partition, is_generated, run_groups
from simulator.step.megatron import has_gradient_buffer, saved_by_megatron, steps_inside
from simulator.step.precision import autocasts, casts, storage_of
from simulator.step.recompute import Rerun, of_blocks, reruns_of
from simulator.workload import backward
from simulator.workload.network import Layer, Network, block_name, once
from simulator.workload.operators import Linear
from simulator.workload.precision import ELEMENT_BYTES

Use = Literal["saved", "casts", "working", "graded"]


class Moment(NamedTuple):
    """Bytes in use in the backward pass of layer ``place``, without parameters."""

    place: int  # -1: in or after the forward pass, -2: in the update
    activations_bytes: float  # with the network's inputs
    casts_bytes: float  # copies of weights in the format of products
    working_bytes: float  # gradients of activations, and scratch
    gradients_bytes: float  # of parameters

    @property
    def total_bytes(self) -> float:
        """All of them."""
        return self.casts_bytes + self.activations_bytes + self.gradients_bytes + self.working_bytes


class TensorEvent(NamedTuple):
    """A tensor that comes, by its number, use, bytes and the layer whose pass takes it; or goes, if bytes are 0."""

    number: int
    use: Use
    n_bytes: int
    place: int


@dataclass(eq=False, slots=True)
class Tape:
    """Tensors as they come and go in the forward and the backward pass."""

    forward: list[TensorEvent] = field(default_factory=list)
    backward: list[TensorEvent] = field(default_factory=list)
    moments: tuple[Moment, ...] = ()  # that may be the highest
    layers: tuple[Moment, ...] = ()  # that of each layer of the forward pass


def tape_of(network: Network, options: StepOptions, graded_element: int, *, in_blocks: bool = False) -> Tape:
    """Return a step's tensors; its moments begin with the forward pass's end, and that pass's highest.

    *graded_element*: bytes of an element of a parameter's gradient.  *in_blocks*: where compiled, blocks are so one by
    one, and the loss is not.
    """
    options = of_blocks(of_tensors(options), network)
    in_blocks = options.compiled and (in_blocks or options.recompute in ("full", "operators"))
    return _tape_of(network, options, graded_element, in_blocks)


@once
def _tape_of(network: Network, options: StepOptions, graded_element: int, in_blocks: bool) -> Tape:
    memory = _Memory()
    activations = _Activations(network, options, graded_element, memory, in_blocks)
    memory.tape.layers = forward = tuple(activations.forward())
    highest = max(forward, key=lambda moment: moment.activations_bytes + moment.casts_bytes + moment.working_bytes)
    highest = highest._replace(place=-1)
    first = memory.now(-1)
    memory.record = memory.tape.backward
    memory.tape.moments = (first, highest, *_Backward(activations, options).moments())
    return memory.tape


class _Memory:
    """What is there now, by use; and the tape on which it is recorded."""

    def __init__(self) -> None:
        self.tape = Tape()
        self.record = self.tape.forward
        self.place = -1
        self._bytes: dict[Use, int] = {"saved": 0, "casts": 0, "working": 0, "graded": 0}
        self._live: dict[int, tuple[Use, int]] = {}
        self._numbers = 0

    def take(self, use: Use, n_bytes: int) -> int:
        self._numbers = number = self._numbers + 1
        self._live[number] = use, n_bytes
        if n_bytes:
            self._bytes[use] += n_bytes
            self.record.append(named_tuple(TensorEvent, (number, use, n_bytes, self.place)))
        return number

    def give(self, number: int) -> None:
        use, n_bytes = self._live.pop(number)
        if n_bytes:
            self._bytes[use] -= n_bytes
            self.record.append(named_tuple(TensorEvent, (number, use, 0, self.place)))

    def size(self, number: int) -> int:
        return self._live[number][1]

    def now(self, place: int, scratch: int = 0) -> Moment:
        """Return the moment, with *scratch* bytes that come and go in it."""
        if scratch:
            self.give(self.take("working", scratch))
        saved, casts, working, graded = self._bytes.values()
        return Moment(place, saved, casts, working + scratch, graded)


class _Activations:
    """Activations and copies of weights, from the forward pass to the backward pass that frees them."""

    def __init__(
        self, network: Network, options: StepOptions, graded_element: int, memory: _Memory, in_blocks: bool
    ) -> None:
        self.network, self.memory, self.graded_element, self.in_blocks = network, memory, graded_element, in_blocks
        self.formats = formats = formats_of(network, options, in_blocks=in_blocks)
        narrow = quantised_layers(network, options.precision)
        saved = backward.saved_tensors(network, formats, narrow)
        self.inside: Collection[int] = ()  # tensors that are in no memory, unless they are saved
        if options.compiled:
            saved = Partition(network, formats, saved, in_blocks=in_blocks).saved(narrow)
            written = (group.writes for group in run_groups(network, options))
            self.inside = {layer.output for layer in network.layers}.difference(*written)
        elif options.framework == "megatron":
            self.inside = steps_inside(network)
            saved = saved_by_megatron(network, saved, ELEMENT_BYTES[storage_of(options.precision)])
        self._saved = saved
        reruns = reruns_of(network, options)
        self._reruns = {each.before: [rerun for rerun in reruns if rerun.before == each.before] for each in reruns}
        self._rerun_tensors = frozenset[int]().union(*(rerun.tensors for rerun in reruns))
        self._rerun_layers = {place for rerun in reruns for place in rerun.layers}
        self._recopied_layers = self._rerun_layers | {place for rerun in reruns for place in rerun.copying}
        held = {} if options.compiled else {tensor: rerun.before for rerun in reruns for tensor in rerun.stored}
        self._kept_until = {tensor: before for tensor, before in held.items() if tensor not in saved.by_tensor}
        self._places, self._needed = backward.storages(network), backward.needs_gradient(network)
        self._size = [n * width for n, width in zip(network.elements, formats.stored, strict=True)]
        self._in_part = {number: size for number, size in saved.by_tensor.items() if size != self._size[number]}
        self._cast = ELEMENT_BYTES[storage_of(options.precision)] if casts(options.precision) else 0
        self._freed_after: dict[int, list[int]] = {}  # what goes with the backward pass of each layer
        self._freed_by_rerun: dict[int, list[int]] = {}  # what goes when layers run again
        self._cached: set[str] = set()
        self.fed = 0  # the network's inputs

    def forward(self) -> Iterator[Moment]:
        self.fed = self.memory.take("saved", backward.fed_bytes(self.network, self.formats))
        yield from self._run(range(len(self.network.layers)), again=False)
        for number in self._freed_by_rerun.pop(-1, []):
            self.memory.give(number)

    def run_again(self, place: int) -> Iterator[Moment]:
        for rerun in self._reruns.get(place, ()):
            for number in self._freed_by_rerun.pop(place, []):
                self.memory.give(number)
            yield from self._run(sorted({*rerun.layers, *rerun.copying}), again=True, rerun=rerun)

    def free_after(self, place: int) -> None:
        for number in self._freed_after.pop(place, ()):
            self.memory.give(number)

    def _run(self, places: Sequence[int], *, again: bool, rerun: Rerun | None = None) -> Iterator[Moment]:
        layers = self.network.layers
        runs = set(rerun.layers if rerun else places)
        last = {self._places[tensor]: place for place in places if place in runs for tensor in layers[place].inputs}
        leaving: dict[int, list[int]] = {}
        for place in places:
            self.memory.place, layer = place, layers[place]
            passing = list(self._copies(layer, place, again=again))
            if place in runs:
                number = self._result(layer, last, again=again)
                if number is not None:
                    leaving.setdefault(last.get(self._places[layer.output], place), []).append(number)
                # What it saves besides tensors that are whole: statistics, masks, and parts of tensors.
                if again == (place in self._rerun_layers):
                    if self._saved.by_layer[place]:
                        self._keep(place, "saved", self._saved.by_layer[place])
                    if layer.operator.saves_gradients and layer.trained:
                        self._keep(place, "saved", sum(p.elements for p in layer.trained) * self.graded_element)
                for number in (self._places[tensor] for tensor in dict.fromkeys(layer.inputs if self._in_part else ())):
                    size = self._in_part.get(number, 0)
                    first = size and self._saved.first_keeper[number] == place
                    if first and again == (number in self._rerun_tensors):
                        self._keep(place, "saved", size)
            scratch = layer.operator.temporary_bytes(self.formats.computed[place])
            yield self.memory.now(rerun.before if rerun else place, scratch)
            for number in (*passing, *leaving.pop(place, ())):
                self.memory.give(number)

    def _result(self, layer: Layer, last: dict[int, int], *, again: bool) -> int | None:
        """Take the result of *layer*; return its number if it goes with the last layer that reads it."""
        tensor = layer.output
        saved = self._saved.by_tensor.get(tensor)
        is_whole = saved == self._size[tensor]
        if layer.in_place or (tensor in self.inside and saved is None):
            return None
        if again and tensor not in self._rerun_tensors:
            return None if saved is not None or tensor not in last else self.memory.take("working", self._size[tensor])
        if is_whole and (again or tensor not in self._rerun_tensors):
            self._keep(self._saved.first_keeper[tensor], "saved", self._size[tensor])
            return None
        if tensor in self._kept_until and not again:
            number = self.memory.take("saved", self._size[tensor])
            self._freed_by_rerun.setdefault(self._kept_until[tensor], []).append(number)
            return None
        return self.memory.take("working", self._size[tensor])

    def _keep(self, until: int, use: Use, n_bytes: int) -> None:
        self._freed_after.setdefault(until, []).append(self.memory.take(use, n_bytes))

    def _copies(self, layer: Layer, place: int, *, again: bool) -> Iterator[int]:
        """Take the copies that *layer* reads; yield the numbers of those that go with it."""
        is_kept = again == (place in self._recopied_layers)
        if is_kept and self._saved.copies[place]:
            self._keep(place, "saved", self._saved.copies[place])
        else:
            for tensor, width in self.formats.copies.get(place, {}).items():
                yield self.memory.take("working", self.network.elements[tensor] * width)
        if not self._cast or not layer.operator.is_product:
            return
        # Copies of weights, which autocast caches for the forward pass.
        own = [p for p in layer.trained if again or p.name not in self._cached]
        self._cached.update(p.name for p in own)
        largest = max((p.elements for p in own), default=0)
        for parameter in own:
            n_bytes = parameter.elements * self._cast
            needed = parameter.elements == largest and any(self._needed[tensor] for tensor in layer.inputs)
            if needed and is_kept:
                self._keep(place, "casts", n_bytes)
            elif again:
                yield self.memory.take("casts", n_bytes)
            else:
                self._freed_by_rerun.setdefault(-1, []).append(self.memory.take("casts", n_bytes))


class _Backward:
    def __init__(self, activations: _Activations, options: StepOptions) -> None:
        self._activations, self._options = activations, options
        self._network, self._memory, self._formats = activations.network, activations.memory, activations.formats
        self._needed, self._has_buffer = backward.needs_gradient(self._network), has_gradient_buffer(options)
        self._element = activations.graded_element
        self._cast_bytes = ELEMENT_BYTES[storage_of(options.precision)] if autocasts(options.precision) else 0
        self._of: dict[int, int] = {}  # the storage of each live tensor's gradient
        self._users: Counter[int] = Counter()  # of each storage
        self._parts: dict[int, list[int]] = {}  # storages of parts of a tensor's gradient
        self._parameters: set[str] = set()

    def moments(self) -> Iterator[Moment]:
        for step in backward.backward_steps(self._network):
            self._memory.place = step.index
            yield from self._activations.run_again(step.index)
            yield from self._layer(step)
        self._memory.give(self._activations.fed)

    def _take(self, n_bytes: int) -> int:
        number = self._memory.take("working", n_bytes)
        self._users[number] = 1
        return number

    def _give(self, storage: int) -> None:
        self._users[storage] -= 1
        if not self._users[storage]:
            self._memory.give(storage)

    def _layer(self, step: backward.BackwardStep) -> Iterator[Moment]:
        layer, place, stored, now = step.layer, step.index, self._formats.stored, self._memory.now
        parts = self._parts.pop(layer.output, [])
        whole = self._network.elements[layer.output] * stored[layer.output]
        if layer.output not in self._of:  # the start of the backward pass, or a tensor that is read in parts
            self._of[layer.output] = self._take(whole)
            if parts:
                yield now(place)
        for part in parts:
            self._give(part)
        given = self._of.pop(layer.output)
        if layer.operator.saves_gradients:
            self._activations.free_after(place)
        copies = {**self._formats.copies.get(place, {}), **self._formats.promoted.get(place, {})}
        found = list(self._gradients(layer, copies, given))
        is_cast = bool(self._cast_bytes) and layer.operator.is_product and not layer.operator.saves_gradients
        halves = sum(p.elements for p in layer.trained) * self._cast_bytes if is_cast else self._graded_by(layer)
        in_place = self._has_buffer and layer.operator.fp32_always
        in_place = in_place or (self._options.compiled and is_generated(layer, in_blocks=self._activations.in_blocks))
        scratch = 0 if in_place else layer.operator.scratch_bytes(self._formats.computed[place])
        yield now(place, halves + scratch)
        self._give(given)
        self._activations.free_after(place)
        if is_cast:
            yield now(place, halves + self._graded_by(layer))
        yield from self._joined(place, copies, found)

    def _gradients(self, layer: Layer, copies: Mapping[int, int], given: int) -> Iterator[tuple[int, int, bool]]:
        """Yield for each input that needs a gradient: its number, the gradient's storage, whether it is a part."""
        needed, sizes, passed = self._needed, self._network.elements, self._memory.size(given)
        inputs = [(at, tensor) for at, tensor in enumerate(layer.inputs) if needed[tensor]]
        wanted = [(tensor, backward.read_elements(self._network, layer, at)) for at, tensor in inputs]
        passes, whole = layer.operator.passes_gradient, sum(own for _, own in wanted)
        for tensor, read in wanted:
            width = copies.get(tensor, self._formats.stored[tensor])
            if passes and passed in (read * width, whole * width):
                self._users[given] += 1
                yield tensor, given, False
            else:
                taken = 0 if self._options.compiled and tensor in self._activations.inside else read * width
                yield tensor, self._take(taken), read < sizes[tensor]

    def _graded_by(self, layer: Layer) -> int:
        """Add the gradients of the parameters of *layer*; return the bytes of those that are added to others."""
        if self._has_buffer:
            in_blocks = isinstance(layer.operator, Linear) and block_name(layer.name)  # whose products write there
            written = self._options.accumulation == "product" and in_blocks
            return 0 if written else sum(p.elements for p in layer.trained) * self._element
        added = 0
        for parameter in layer.trained:
            if parameter.name in self._parameters:
                added += parameter.elements
            else:
                self._parameters.add(parameter.name)
                self._memory.take("graded", parameter.elements * self._element)
        return added * self._element

    def _joined(self, place: int, copies: Mapping[int, int], found: list[tuple[int, int, bool]]) -> Iterator[Moment]:
        """Cast the gradients *found* back, add them to those that exist, and keep them; yield the moments of copies."""
        stored, size = self._formats.stored, self._memory.size
        for tensor, storage, is_part in found:
            here = storage
            if tensor in copies and copies[tensor] != stored[tensor]:
                here = self._take(size(storage) // copies[tensor] * stored[tensor])
                yield self._memory.now(place)
                self._give(storage)
            if is_part:
                self._parts.setdefault(tensor, []).append(here)
            elif tensor in self._of:
                earlier = self._of[tensor]
                if self._users[earlier] > 1:  # another layer still reads it, so the sum is a new tensor
                    self._of[tensor] = self._take(size(earlier))
                    yield self._memory.now(place)
                    self._give(earlier)
                else:
                    yield self._memory.now(place)
                self._give(here)
            else:
                self._of[tensor] = here
