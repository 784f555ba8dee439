"""Variants of networks: with low-rank adapters (LoRA), or with another loss (docs/decisions/zoo.md)."""

from dataclasses import fields
from typing import Literal, get_args

from simulator.errors import InputError
from simulator.records import replace
from simulator.workload import operators as ops
from simulator.workload.network import Layer, Network, Parameter, Part, block_name, readers_of
from simulator.workload.operators.softmax import HalfCrossEntropy

LoraLayers = Literal["attention", "all"]
LORA_LAYERS: tuple[LoraLayers, ...] = get_args(LoraLayers)
LoraWeights = Literal["plain", "nf4", "nf4-nested"]
LORA_WEIGHTS: tuple[LoraWeights, ...] = get_args(LoraWeights)
_PARTS: dict[LoraLayers, tuple[Part, ...]] = {"attention": ("attention",), "all": ("attention", "feed-forward")}


def with_lora(network: Network, rank: int, layers: LoraLayers = "attention", weights: LoraWeights = "plain") -> Network:
    """Return *network* with adapters of *rank* beside the linear layers of its blocks.

    *layers*: ``attention`` adapts the linear layers of attention (MLPerf's fine-tuning of Llama 2 70B); ``all`` also
        those of feed-forward layers (Dettmers et al., arXiv 2305.14314, section 4), but not of experts.
    *weights*: how the frozen weights of linear layers in blocks are kept: in the format of products, or in nf4, with
        scales in fp32 or ``nested`` in 8 bits.
    """
    elements = list(network.elements)
    found: list[Layer] = []
    for layer in network.layers:
        frozen = replace(layer, parameters=tuple(replace(p, trained=False) for p in layer.parameters))
        adapted = isinstance(layer.operator, ops.Linear) and layer.split is not None and layer.part in _PARTS[layers]
        if weights != "plain" and isinstance(layer.operator, ops.ScatteredLinear):
            raise InputError(f"{network.name}: expert_kernels=scatter has plain weights, not lora_weights={weights}")
        if weights != "plain" and isinstance(layer.operator, ops.Linear) and block_name(layer.name):
            sizes = {field.name: getattr(layer.operator, field.name) for field in fields(layer.operator)}
            frozen = replace(frozen, operator=ops.Nf4Linear(**sizes, nested=weights == "nf4-nested"))
        found += _adapted(frozen, rank, elements) if adapted else [frozen]
    return replace(network, layers=tuple(found), elements=tuple(elements))


def _adapted(layer: Layer, rank: int, elements: list[int]) -> list[Layer]:
    """Return *layer*, its adapter, and their sum; appends the sizes of the tensors between them to *elements*."""
    operator = layer.operator
    assert isinstance(operator, ops.Linear)
    rows, inputs, outputs, size = operator.rows, operator.inputs, operator.outputs, operator.output_elements
    base, inner, beside, scaled = range(len(elements), len(elements) + 4)
    elements += [size, rows * rank, size, size]

    def linear(letter: str, read: int, sizes: tuple[int, int], written: int, divided: bool) -> Layer:
        name = f"{layer.name}.lora_{letter}"
        weight = Parameter(f"{name}.weight", sizes[0] * sizes[1])
        split = layer.split if divided else None
        return Layer(
            name, ops.Linear(rows, *sizes, bias=False), (read,), written, (weight,), part=layer.part, split=split
        )

    scale, add = ops.Elementwise("mul_scalar", size), ops.Elementwise("add", size, 2)
    return [
        replace(layer, output=base),
        linear("a", layer.inputs[0], (inputs, rank), inner, layer.split == "rows"),
        linear("b", inner, (rank, outputs), beside, layer.split == "columns"),
        Layer(f"{layer.name}.lora_scale", scale, (beside,), scaled, part=layer.part),
        Layer(f"{layer.name}.lora_add", add, (base, scaled), layer.output, part=layer.part),
    ]


NormWay = Literal["plain", "fused"]


def with_fused_norms(network: Network) -> Network:
    """Return *network* with each RMSNorm in one kernel: torch's since 2.9, apex's, Liger's, flash-attn's, Paddle's."""
    layers = list(network.layers)
    for place, layer in enumerate(layers):
        if isinstance(layer.operator, ops.LayerNorm):
            layers[place] = replace(layer, operator=replace(layer.operator, plain=False))
    return replace(network, layers=tuple(layers))


LossWay = Literal["plain", "half", "in-place", "fused-linear", "chunked"]
LOSS_WAYS: tuple[LossWay, ...] = get_args(LossWay)
_CHUNKS = 8  # torchtitan's default


def with_losses(network: Network, way: LossWay) -> Network:
    """Return *network* with its cross-entropies computed in another *way* (docs/networks.md, "The loss").

    Raises InputError if there is no linear layer whose result only the loss reads.
    """
    writers, readers = {layer.output: layer for layer in network.layers}, readers_of(network)
    elements, found = list(network.elements), list(network.layers)
    for layer in network.layers:
        if not isinstance(layer.operator, ops.CrossEntropy):
            continue
        place, scores, rows, classes = found.index(layer), layer.inputs[0], layer.operator.rows, layer.operator.cols
        if way == "half":
            found[place] = replace(layer, operator=HalfCrossEntropy(rows, classes))
            continue
        head = writers.get(scores)
        if head is None or not isinstance(head.operator, ops.Linear) or len(readers[scores]) > 1:
            told = f"cross_entropy={way} needs a linear layer whose result only the loss reads"
            raise InputError(f"{network.name}: {told}")
        if way == "in-place":
            found[place] = replace(layer, operator=ops.InPlaceCrossEntropy(rows, classes))
            continue
        elements[scores] = 0
        chunks = min(_CHUNKS, rows) if way == "chunked" else 0
        operator = ops.LinearCrossEntropy(rows, head.operator.inputs, classes, chunks, bool(head.trained))
        inputs = head.inputs[0], layer.inputs[1]
        found[place] = replace(layer, operator=operator, inputs=inputs, parameters=head.parameters)
        found.remove(head)
    return replace(network, layers=tuple(found), elements=tuple(elements))
