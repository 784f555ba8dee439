"""What Megatron-LM with Transformer Engine keeps otherwise than plain PyTorch (docs/decisions/step-models.md)."""

from simulator.questions.options import StepOptions
from simulator.records import replace
from simulator.step.precision import has_master, storage_of
from simulator.workload.backward import SavedTensors, read_elements
from simulator.workload.network import Layer, Network, block_name, once, readers_of
from simulator.workload.operators import Attention, Elementwise, Exchange, GroupedLinear, Linear, Reduction
from simulator.workload.precision import ELEMENT_BYTES


@once
def has_engine(network: Network) -> bool:
    """Return whether the modules are Transformer Engine's, which alone chooses kernels of the GPU's own generation."""
    return any(isinstance(layer.operator, Attention) and layer.operator.library == "native" for layer in network.layers)


def has_gradient_buffer(options: StepOptions) -> bool:
    """Return whether gradients are summed in a buffer that always exists; DeepSpeed's sums are its own."""
    return options.framework == "megatron" and has_master(options.precision) and options.accumulation != "fp32"


def buffer_element_bytes(options: StepOptions) -> int:
    """Return the bytes of an element of the buffer."""
    return ELEMENT_BYTES["fp16" if storage_of(options.precision) == "fp16" else "fp32"]


def sums_in_fp32(options: StepOptions) -> bool:
    """Return whether the buffer is in fp32, so that the update reads gradients without a cast."""
    return has_gradient_buffer(options) and buffer_element_bytes(options) == ELEMENT_BYTES["fp32"]


def own_tensors(layer: Layer) -> int:
    """Return the trained parameters of *layer* as Megatron-Core holds them: those of each expert are its own."""
    operator = layer.operator
    return len(layer.trained) * (operator.experts if isinstance(operator, GroupedLinear) else 1)


@once
def shared_gradients(network: Network) -> int:
    """Return the elements of gradients that nobody reads: one for each shape of a weight in blocks."""
    shapes: set[tuple[int, int]] = set()
    joined: dict[tuple[str, int], tuple[int, int]] = {}
    for layer in network.layers:
        operator = layer.operator
        if not isinstance(operator, Linear) or not block_name(layer.name) or not layer.trained:
            continue
        if layer.split == "columns":
            key = block_name(layer.name), layer.inputs[0]
            rows = joined.get(key, (0, 0))[0]
            joined[key] = rows + operator.outputs, operator.inputs
        else:
            shapes.add((operator.outputs, operator.inputs))
    return sum(rows * columns for rows, columns in shapes | set(joined.values()))


def saved_by_megatron(network: Network, saved: SavedTensors, element_bytes: int) -> SavedTensors:
    """Return those of the *saved* activations that Megatron-LM's functions save, of *element_bytes* an element."""
    after = readers_of(network)
    summed = {tensor for tensor, to in after.items() if any(isinstance(each.operator, Reduction) for each in to)}
    weighed = {layer.inputs[0] for layer in network.layers if _is_step(layer) and layer.output in summed}  # of experts
    gone, parts = steps_inside(network) | weighed, dict[int, int]()
    for layer in (layer for layer in network.layers if isinstance(layer.operator, Attention)):
        for at, tensor in enumerate(layer.inputs):
            read = read_elements(network, layer, at)
            if read < network.elements[tensor]:
                parts[tensor] = parts.get(tensor, 0) + read * element_bytes
    kept = saved.part(lambda tensor: tensor not in gone, lambda _: True)
    sizes = {tensor: min(size, parts.get(tensor, size)) for tensor, size in kept.by_tensor.items()}
    return replace(kept, by_tensor=sizes)


@once
def steps_inside(network: Network) -> frozenset[int]:
    """Return the tensors between the steps of one function, never in memory, and those in a buffer that always is."""
    after = readers_of(network)
    inside = (layer.output for layer in network.layers if _is_step(layer) and after.get(layer.output))
    gathered = (layer.output for layer in network.layers if _gathers(layer))
    return frozenset((*(tensor for tensor in inside if all(map(_is_step, after[tensor]))), *gathered))


@once
def token_buffer(network: Network) -> int:
    """Return the elements of the buffer that always exists for the tokens of all ranks of experts (``mpu``)."""
    return max((network.elements[layer.output] for layer in network.layers if _gathers(layer)), default=0)


def _gathers(layer: Layer) -> bool:
    return isinstance(layer.operator, Exchange) and layer.operator.gathers_tokens


def _is_step(layer: Layer) -> bool:
    """Return whether *layer* is a step of a function around the products of a feed-forward part."""
    return layer.part in ("feed-forward", "experts") and isinstance(layer.operator, Elementwise)
