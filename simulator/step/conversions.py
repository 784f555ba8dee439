"""Passes that convert numbers or layouts: casts, copies of images, nvfp4 (docs/decisions/step-models.md)."""

from collections.abc import Iterator, Mapping, Sequence

from simulator.devices.gpu import Gpu
from simulator.devices.predict import Device, allowed_ways, kernel_cost
from simulator.questions.options import Policy, StepOptions
from simulator.questions.where import TORCH_RELEASE_MONTHS
from simulator.records import dataclass, replace
from simulator.step.precision import autocasts, casts, has_master, is_plain_half, storage_of
from simulator.workload.backward import Formats, one_format, with_indices
from simulator.workload.kernels import Kernel, Rowwise, Streaming
from simulator.workload.network import Layer, Network, block_name, once, readers_of
from simulator.workload.operators import Conv2d, Convolution, Elementwise, GroupedLinear, Linear, Softmax
from simulator.workload.precision import ELEMENT_BYTES, NVFP4_BYTES

_WIDE_BYTES = ELEMENT_BYTES["fp32"]


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast of an operator's input, and of its gradient back."""

    tensor: int
    to_half: bool  # else to fp32; the gradient is cast the other way
    backward_alone: bool = False  # the operator itself promotes the input


@once
def wide_tensors(network: Network) -> tuple[bool, ...]:
    """Return for each tensor of *network* whether it is in fp32; the network's inputs are."""
    wide = [True] * len(network.elements)
    for layer in network.layers:
        operator, does = layer.operator, layer.operator.autocast
        inputs = [wide[tensor] for tensor in numbers_of(layer)]
        adds_table = isinstance(operator, Elementwise) and operator.function == "add" and len(inputs) == 1
        # Powers and sums with a mask or a table in fp32 always write fp32.
        is_wide = does.startswith("fp32") or does == "powers" or adds_table or any(inputs)
        wide[layer.output] = is_wide and not operator.is_product
    return tuple(wide)


def wide_in(network: Network, options: StepOptions) -> tuple[bool, ...]:
    """Return for each tensor whether it is in fp32: by autocast's rules, or within adapters on plain half precision.

    PEFT keeps those in fp32 (``autocast_adapter_dtype`` of get_peft_model).
    """
    if autocasts(options.precision):
        return wide_tensors(network)
    plain = is_plain_half(options.precision) and options.framework == "pytorch"
    return _within_adapters(network) if plain else (False,) * len(network.elements)


@once
def _within_adapters(network: Network) -> tuple[bool, ...]:
    within = {layer.output for layer in network.layers if layer.name.endswith((".lora_a", ".lora_b", ".lora_scale"))}
    return tuple(tensor in within for tensor in range(len(network.elements)))


@once
def read_by_products(network: Network) -> tuple[int, ...]:
    """Return the tensors that only products read: compilers write them in the format of products."""
    readers = readers_of(network).items()
    return tuple(tensor for tensor, layers in readers if all(layer.operator.is_product for layer in layers))


def numbers_of(layer: Layer) -> Sequence[int]:
    """Return the tensors that *layer* reads and that are no indices."""
    indices = layer.operator.indices
    return [tensor for at, tensor in enumerate(layer.inputs) if at not in indices] if indices else layer.inputs


def casts_of(layer: Layer, wide: Sequence[bool], policy: Policy = "amp-fp16") -> Iterator[Cast]:
    """Yield the casts of *layer*'s inputs; *wide* says which tensors are in fp32."""
    operator, does = layer.operator, layer.operator.autocast
    if isinstance(operator, Softmax) and not operator.kernel and storage_of(policy) == "bf16":
        does = "fp32 after a cast"
    if does == "half":
        yield from (Cast(tensor, to_half=True) for tensor in numbers_of(layer) if wide[tensor])
    elif does == "fp32 after a cast":
        yield from (Cast(tensor, to_half=False) for tensor in layer.inputs[:1] if not wide[tensor])
    elif does in ("promotes", "powers") and wide[layer.output]:
        backward_alone = does == "promotes"
        yield from (Cast(tensor, False, backward_alone) for tensor in layer.inputs if not wide[tensor])


def formats_of(network: Network, options: StepOptions, *, in_blocks: bool = False) -> Formats:
    """Return the formats of *network*'s tensors; *in_blocks*: its blocks are compiled, and not the loss."""
    whole = options.compiled and not in_blocks
    half = ELEMENT_BYTES[storage_of(options.precision)]
    if autocasts(options.precision):
        return _autocast(network, half, options.precision, options.compiled, whole)
    # Mixed precision computes the loss in fp32 though its scores are in half precision; and so do trainers of language
    # models in plain half precision, which cast the scores first (Hugging Face's ForCausalLMLoss and torchtitan's
    # cross_entropy_loss).
    plain = is_plain_half(options.precision) and network.tokens > 0
    if options.trains and (plain or casts(options.precision) or has_master(options.precision)):
        copied = options.framework != "megatron" and not whole
        return _wide_loss(network, half, copied=copied, wide=wide_in(network, options))
    return one_format(network, half)


@once
def _wide_loss(network: Network, half: int, *, copied: bool, wide: tuple[bool, ...]) -> Formats:
    """Return one format for all but *wide* tensors and the loss, in fp32, from copies where scores are *copied*."""
    plain = one_format(network, half)
    computed = [i for i, layer in enumerate(network.layers) if layer.operator.fp32_always or wide[layer.output]]
    copies = {i: network.layers[i].inputs[0] for i in computed if not wide[network.layers[i].inputs[0]]}
    return Formats(
        tuple(_WIDE_BYTES if is_wide else size for is_wide, size in zip(wide, plain.stored, strict=True)),
        tuple(_WIDE_BYTES if i in computed else half for i in range(len(network.layers))),
        {i: {tensor: _WIDE_BYTES} for i, tensor in copies.items()} if copied else {},
    )


@once
def _autocast(network: Network, half: int, policy: Policy, compiled: bool, whole: bool) -> Formats:
    wide = list(wide_tensors(network))
    if compiled:
        written = {layer.output for layer in network.layers}
        for tensor in written.intersection(read_by_products(network)):
            wide[tensor] = False
    stored = with_indices(network, [_WIDE_BYTES if each else half for each in wide])
    copies: dict[int, dict[int, int]] = {}
    promoted: dict[int, dict[int, int]] = {}
    for index, layer in enumerate(network.layers):
        for cast in casts_of(layer, wide, policy):
            if compiled and not cast.to_half and (whole or not network.layers[index].operator.fp32_always):
                continue  # in the registers of the kernel that reads it
            made = promoted if cast.backward_alone else copies
            made.setdefault(index, {})[cast.tensor] = half if cast.to_half else _WIDE_BYTES
    computed = tuple(_WIDE_BYTES if wide[layer.output] else half for layer in network.layers)
    return Formats(stored, computed, copies, promoted)


# The images and gradients that a convolution reads; below, also those that it writes.
_BOTH = _INPUT, _OUTPUT = "input_elements", "output_elements"
_READ = {"fwd": (_INPUT,), "bwd_data": (_OUTPUT,), "bwd_weight": _BOTH}
_IMAGES = dict.fromkeys(_READ, _BOTH)
_BY_PIXELS = frozenset(("tensor cores", "direct"))  # algorithms that read images pixel by pixel


def laid_out(device: Device, kernels: Sequence[Kernel], *, channels_last: bool) -> tuple[Kernel, ...]:
    """Return *kernels* of a convolution or normalisation, with any copies between layouts that they need."""
    by_pixels = tuple(replace(k, channels_last=True) if isinstance(k, Convolution | Rowwise) else k for k in kernels)
    if not isinstance(device, Gpu) or device.vendor != "nvidia":
        return by_pixels if channels_last else tuple(kernels)
    found: list[Kernel] = []
    for by_planes, kernel in zip(kernels, by_pixels, strict=True):
        if not isinstance(kernel, Convolution):
            found.append(kernel if channels_last else by_planes)
            continue
        if channels_last:  # with the copies around it, by the fastest way that a library may take
            ways = [
                [way] if kernel_cost(device, way).detail in _BY_PIXELS else [*_copies(kernel, _IMAGES), way]
                for way in allowed_ways(kernel)
            ]
            found += min(ways, key=lambda way: sum(kernel_cost(device, each).time_s for each in way))
        elif device.traits.kernels == "volta" and kernel_cost(device, kernel).detail == "tensor cores":
            found += [*_copies(kernel, _READ), kernel]
        else:
            found.append(by_planes)
    return tuple(found)


def _copies(kernel: Convolution, which: Mapping[str, Sequence[str]]) -> Iterator[Streaming]:
    size = ELEMENT_BYTES[kernel.precision]
    for field in which[kernel.direction]:
        elements: int = getattr(kernel.shape, field)
        yield Streaming("copy", elements, elements * size, elements * size)


def nvfp4_passes(elements: int) -> tuple[Streaming, Streaming]:
    """Return the passes that quantise a tensor of *elements* elements in bf16, by rows and transposed."""
    read = elements * ELEMENT_BYTES["bf16"]
    return Streaming("amax", elements, read, 0), Streaming("copy", elements, read, round(2 * elements * NVFP4_BYTES))


def quantised_layers(network: Network, policy: Policy) -> frozenset[int]:
    """Return the indices of the layers of *network* whose products are in nvfp4: linear ones of repeated blocks."""
    if policy != "nvfp4":
        return frozenset()
    layers = enumerate(network.layers)
    return frozenset(i for i, each in layers if isinstance(each.operator, Linear) and not is_plain(each))


def is_plain(layer: Layer) -> bool:
    """Return whether *layer*'s product is never in fp8 or nvfp4: outside of blocks, a router's, an adapter's."""
    return not block_name(layer.name) or layer.name.endswith(".router") or ".lora_" in layer.name


def nvfp4_weights(network: Network, policy: Policy) -> int:
    """Return the number of weights of *network* whose products are in nvfp4."""
    operators = (network.layers[index].operator for index in quantised_layers(network, policy))
    products = [each for each in operators if isinstance(each, Linear)]
    experts = (each.experts if isinstance(each, GroupedLinear) else 1 for each in products)
    return sum(count * each.inputs * each.outputs for count, each in zip(experts, products, strict=True))


NODES_PER_CONVOLUTION = 300  # of the graph, from which on Inductor keeps the layout (``decide_layout_opt``)
NODES_PER_LAYER = 4  # operations, views, parameters: an estimate (a ResNet has 14 a convolution, a ViT over 1,000)

_WEIGHTS = {"grouped": 1.358, "small": 0.783, "narrowing": 0.725, "other": 0.823}
_SMALL_CHANNELS = 64


def lays_out_channels_last(device: Device, network: Network, options: StepOptions) -> bool:
    """Return whether a compiler makes the convolutions of *network* read images pixel by pixel on *device*."""
    if not options.compiled or options.framework in ("tensorflow", "caffe"):
        return False
    if not isinstance(device, Gpu) or device.vendor != "nvidia" or is_before(device, "2.1"):
        return False
    return _gains(network, by_work=not options.trains and not is_before(device, "2.2"))


def is_before(device: Device, torch: str) -> bool:
    """Return whether the software of *device* is older than this version of PyTorch; never that of CPUs."""
    month = device.libraries if isinstance(device, Gpu) else None
    return month is not None and month < TORCH_RELEASE_MONTHS[torch]


@once
def _gains(network: Network, *, by_work: bool) -> bool:
    """Return whether Inductor finds that *network* gains, in inference *by_work* of each kind of convolution."""
    shapes = [layer.operator for layer in network.layers if isinstance(layer.operator, Conv2d)]
    if not shapes or len(network.layers) * NODES_PER_LAYER >= NODES_PER_CONVOLUTION * len(shapes):
        return False
    kinds: list[set[str]] = []
    for shape in shapes:
        results, each = (shape.c_in, shape.c_out) if shape.transposed else (shape.c_out, shape.c_in)
        each //= shape.groups
        found = {
            "grouped": shape.groups > 1 and each > 1,
            "small": results <= _SMALL_CHANNELS and each <= _SMALL_CHANNELS,
            "narrowing": results * 2 <= each and shape.kernel_h > 1,
        }
        kinds.append({kind for kind, is_of in found.items() if is_of})
    if by_work:  # of the first kind of each
        weights = [next((w for kind, w in _WEIGHTS.items() if kind in of), _WEIGHTS["other"]) for of in kinds]
        return sum(shape.flop * (weight - 1.0) for shape, weight in zip(shapes, weights, strict=True)) <= 0.0
    return not any({"grouped", "narrowing"} & of for of in kinds) and not all("small" in of for of in kinds)
