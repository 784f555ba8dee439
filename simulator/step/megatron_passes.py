"""What Megatron-Core runs otherwise than layer by layer: joint products, passes (docs/decisions/step-models.md)."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import comb

from simulator.questions.options import StepOptions
from simulator.records import dataclass, replace
from simulator.step.launch import LayerCollective
from simulator.step.precision import storage_of
from simulator.workload import operators as ops
from simulator.workload.kernels import Streaming
from simulator.workload.network import Layer, Network, block_name, once
from simulator.workload.operators.grouped import Routing
from simulator.workload.operators.moves import rows_gathered, rows_spread
from simulator.workload.precision import ELEMENT_BYTES

_ADAPTS = ("lora_a", "lora_b", "lora_scale", "lora_add")
_ROTATES = "rotate_"
_LATENT = "kv_latent"
CHOOSING = {"forward": 6, "backward": 4}
"""Passes over tokens times experts of the fused router: scores and choice, the loss that balances experts."""
COUNTING = 10
"""Calls of the dispatcher's ``preprocess`` and its copies to the host (``token_dispatcher.py``), forward alone."""
NARROW = ("master-fp8", "nvfp4")
_WIDE = ELEMENT_BYTES["fp32"]


@dataclass(frozen=True, slots=True)
class ExpertExtras:
    """What Megatron-Core runs in one pass of a layer that the layer alone does not show."""

    own: tuple[Streaming, ...] | None = None  # in place of the layer's kernels; None: they stay
    before: tuple[Streaming, ...] = ()  # passes around them
    after: tuple[Streaming, ...] = ()
    calls: int = 0  # of plain torch for all of these, besides the layer's own
    waits: bool = False  # the host, for the device before ``own``
    sent: tuple[LayerCollective, ...] = ()  # besides an exchange's own


Extras = Mapping[tuple[str, str], ExpertExtras]  # by layer, and "forward" or "backward"


@dataclass(frozen=True, slots=True)
class JointProduct:
    """What runs for a layer: ``operator`` of all, or None, if another stands for it."""

    operator: ops.Operator | None = None
    adds_as: str = ""  # the layer where its gradients are added to others; "": nowhere


@once
def joint_products(network: Network) -> dict[str, JointProduct]:
    """Return the layers of *network* that are one product with others of the same input, by name."""
    alike: dict[tuple[object, ...], list[Layer]] = {}
    for layer in network.layers:
        operator = layer.operator
        if type(operator) is ops.Linear and layer.split == "columns" and block_name(layer.name):
            key = block_name(layer.name), layer.part, layer.inputs, bool(layer.trained), operator.bias
            alike.setdefault(key, []).append(layer)
    by_name = {layer.name: layer for layer in network.layers}
    found: dict[str, JointProduct] = {}
    for layers in alike.values():
        if len(layers) > 1:
            _join(layers, found)
            for suffix in _ADAPTS:
                adapters = [by_name[name] for layer in layers if (name := f"{layer.name}.{suffix}") in by_name]
                if len(adapters) == len(layers):
                    _join(adapters, found, widens=suffix != "lora_a")
    return found


def _join(layers: Sequence[Layer], found: dict[str, JointProduct], *, widens: bool = True) -> None:
    """Add what stands for each of *layers* to *found*; *widens*: their results are beside one another."""
    found.update((layer.name, JointProduct()) for layer in layers)
    first, elements = layers[0].operator, sum(layer.operator.output_elements for layer in layers)
    if widens and isinstance(first, ops.Linear):
        first = replace(first, outputs=elements // first.rows)
    elif isinstance(first, ops.Elementwise):
        first = replace(first, elements=elements)
    found[layers[0].name] = JointProduct(first, adds_as=layers[-1].name)


def passes_of(network: Network, options: StepOptions) -> Extras:
    """Return what Megatron-Core runs besides, or in place of, each layer's kernels, by layer and pass."""
    if options.mode == "inference" or options.compiled:
        return {}
    size = ELEMENT_BYTES[storage_of(options.precision)]
    experts = expert_passes(network, size, narrow=options.precision in NARROW)
    return {**fused_passes(network, size), **split_passes(network, size), **experts}


def _copy(elements: int, read: int, written: int, function: str = "copy") -> Streaming:
    """Return a pass that reads and writes this many bytes of each element."""
    return Streaming(function, elements, elements * read, elements * written)


def split_passes(network: Network, element: int) -> Extras:
    """Return the copies of queries out of, and of all gradients into, a joined product of attention."""
    attentions = [(each.name, each.operator) for each in network.layers if isinstance(each.operator, ops.Attention)]
    groups = {block_name(name): operator.kv_heads or operator.heads for name, operator in attentions}
    found: dict[tuple[str, str], ExpertExtras] = {}
    for layer in network.layers:
        joined = joint_products(network).get(layer.name)
        if joined is None or joined.operator is None or layer.part != "attention":
            continue
        if groups.get(block_name(layer.name), 1) > 1:
            copied = _copy(network.elements[layer.output], element, element)
            found[layer.name, "forward"] = ExpertExtras(after=(copied,))
        laid = _copy(joined.operator.output_elements, element, element)
        found[layer.name, "backward"] = ExpertExtras(before=(laid,))
    return found


def fused_passes(network: Network, element: int) -> Extras:
    """Return what runs in place of each layer's kernels, by layer and pass; *element*: bytes of an activation."""
    functions: dict[tuple[str, bool], list[Layer]] = {}  # the layers of each, and whether it rotates
    latent = {layer.name.rpartition(".")[0] for layer in network.layers if layer.name.endswith(_LATENT)}
    for layer in network.layers:
        function, _, _ = layer.name.rpartition(".")
        block, _, own = function.rpartition(".")
        passes = own.startswith(_ROTATES) and isinstance(layer.operator, ops.Elementwise | ops.Copy)
        rotates = passes and block not in latent
        if rotates or (layer.part == "feed-forward" and isinstance(layer.operator, ops.Elementwise)):
            functions.setdefault((function, rotates), []).append(layer)
    found: dict[tuple[str, str], ExpertExtras] = {}
    for (_, rotates), layers in functions.items():
        *others, last = layers
        for layer in others:
            found[layer.name, "forward"] = found[layer.name, "backward"] = ExpertExtras(())
        if others:
            inside = {layer.output for layer in layers}
            entering = {tensor for layer in layers for tensor in layer.inputs} - inside
            n = network.elements[last.output]
            entered, result = sum(network.elements[tensor] for tensor in entering) * element, n * element
            read = result if rotates else result + entered
            found[last.name, "forward"] = ExpertExtras((Streaming("fused", n, entered, result),))
            found[last.name, "backward"] = ExpertExtras((Streaming("fused", n, read, entered),))
    return found


@dataclass(frozen=True, slots=True)
class _Mixture:
    """The layers of one expert layer, from its dispatch to its combination, and their sizes on this rank."""

    layers: Sequence[Layer]
    first: ops.GroupedLinear
    last: ops.GroupedLinear
    combine: ops.Reduction
    exchange: ops.Exchange | None  # of experts
    experts: int  # on all ranks
    tokens: int

    @property
    def gathered(self) -> int:
        """Tokens of all ranks that are here before rows are taken, if ranks gather them; 0 otherwise."""
        exchange = self.exchange
        return exchange.elements // self.first.inputs if exchange is not None and exchange.gathers_tokens else 0

    @property
    def arriving(self) -> int:
        """Rows that arrive if a token is sent once to each rank that has experts of it, with balanced routing."""
        chosen, here = self.combine.cols, self.first.experts
        missed = comb(self.experts - here, chosen) / comb(self.experts, chosen)
        return round(self.tokens * self.experts // here * (1 - missed))


def expert_passes(network: Network, element: int, *, narrow: bool) -> Extras:
    """Return what runs for experts, by layer and pass, of *element* bytes; *narrow*: products in 8 or 4 bits."""
    found: dict[tuple[str, str], ExpertExtras] = {}
    router: Layer | None = None
    for part, run in groupby(network.layers, key=lambda layer: layer.part):
        layers = list(run)
        products = [x.operator for x in layers if isinstance(x.operator, ops.GroupedLinear) and part == "experts"]
        combine = next((x.operator for x in reversed(layers) if isinstance(x.operator, ops.Reduction)), None)
        chooses = [x for x in layers if isinstance(x.operator, ops.Elementwise) and x.operator.function == "topk"]
        router = chooses[-1] if chooses else router
        if products and combine is not None and router is not None and products[0].rows >= combine.cols:
            tokens = products[0].rows // combine.cols
            if products[0].routing != Routing():  # rows are those of the busiest rank, or fewer than are routed
                tokens = combine.rows // products[-1].outputs
            sent = [x for x in layers if isinstance(x.operator, ops.Exchange) and x.operator.axis == "ep"]
            exchange = sent[0].operator if sent and isinstance(sent[0].operator, ops.Exchange) else None
            if exchange is not None and exchange.gathers_tokens:
                tokens = network.elements[sent[0].inputs[0]] // products[0].inputs
            experts = max(products[0].experts, router.operator.output_elements // tokens)
            mixture = _Mixture(layers, products[0], products[-1], combine, exchange, experts, tokens)
            one = _copy(tokens * experts, _WIDE, _WIDE)
            for way, count in CHOOSING.items():
                counts = COUNTING if exchange is not None and not mixture.gathered and way == "forward" else 0
                found[router.name, way] = ExpertExtras((one,) * count, calls=count - 1 + counts)
            found.update(_layers(mixture, element, narrow=narrow))
    return found


def _layers(m: _Mixture, element: int, *, narrow: bool) -> Extras:
    hidden, rows = m.first.inputs, m.first.rows * m.first.inputs
    there, back = (each((m.gathered or m.tokens) * hidden, rows, element) for each in (rows_spread, rows_gathered))
    sorts = m.exchange is not None and m.first.experts > 1 and not m.gathered
    into = out = (_copy(rows, element, element),) * (sorts + narrow)
    laid: tuple[Streaming, ...] = (there,)
    summed: tuple[Streaming, ...] = (back,)
    if m.exchange is not None and m.exchange.flex:
        n = m.arriving * hidden * element
        into, out, laid, summed = (replace(there, read_bytes=n),), (replace(back, written_bytes=n),), (), ()
    products = [place for place, layer in enumerate(m.layers) if isinstance(layer.operator, ops.GroupedLinear)]
    first, last = products[0], products[-1]
    gate = [place for place in range(first, last) if isinstance(m.layers[place].operator, ops.Elementwise)][-1:]
    found: dict[tuple[str, str], ExpertExtras] = {}
    for place, layer in enumerate(m.layers):
        ways: tuple[ExpertExtras, ExpertExtras] | None = None
        if place == first:
            ways = ExpertExtras(before=into), ExpertExtras(after=out)
        elif place == last:
            ways = ExpertExtras(after=out), ExpertExtras(before=into)
            if m.last.bias:  # with calls of torch for each expert, and two that split and join the rows of all
                forward, backward = _biased(rows, m.first.rows, element)
                calls, calls_back = (each * m.first.experts + 2 for each in (2, 6))
                ways = (
                    ExpertExtras(after=(*forward, *out), calls=calls),
                    ExpertExtras(before=(*into, *backward), calls=calls_back),
                )
        elif isinstance(layer.operator, ops.Copy):
            ways = _taken(m, laid, summed, element) if m.gathered else (ExpertExtras(laid), ExpertExtras(summed))
        elif m.gathered and layer.operator is m.exchange:
            n = m.gathered * m.experts
            own = n * element
            sent = LayerCollective("ep", "all-gather", n), LayerCollective("ep", "all-gather", own)
            ways = ExpertExtras(sent=sent), ExpertExtras(sent=(LayerCollective("ep", "reduce-scatter", own),))
        elif isinstance(layer.operator, ops.Reduction):
            ways = ExpertExtras(summed), ExpertExtras(laid)
        elif isinstance(layer.operator, ops.Elementwise):
            ways = _activation(m, element) if place in gate else (ExpertExtras(()), ExpertExtras(()))
        if ways is not None:
            found[layer.name, "forward"], found[layer.name, "backward"] = ways
    return found


def _taken(
    m: _Mixture, laid: tuple[Streaming, ...], summed: tuple[Streaming, ...], element: int
) -> tuple[ExpertExtras, ExpertExtras]:
    """Return how rows of experts here are taken out of gathered tokens, once the host knows how many they are."""
    n = m.gathered * m.first.experts
    mask, probabilities, counted = _copy(n, 1, 1), _copy(n, element, element), _copy(n, 1, 0, "add")
    places, chosen = _copy(n, 1, _WIDE), _copy(n, 1 + element, 0)
    after = places, mask, probabilities, chosen  # ``permute``'s map of rows; both turned, and those of rows selected
    whole = _copy(m.gathered * m.experts, 0, element, "fill")  # the gradient: zeros, where those of experts here go
    before = _copy(n, 1, element), probabilities, whole, probabilities
    return ExpertExtras(laid, (mask, probabilities, counted), after, waits=True), ExpertExtras(summed, before)


def _activation(m: _Mixture, element: int) -> tuple[ExpertExtras, ExpertExtras]:
    n, wide, of_rows = m.first.rows * m.last.inputs, m.first.rows * m.first.outputs, m.first.rows * _WIDE
    forward = Streaming("silu", n, wide * element + of_rows, n * element)
    backward = Streaming("silu_bwd", n, (wide + n) * element + of_rows, wide * element + of_rows)
    if not any(isinstance(x.operator, ops.Elementwise) and x.operator.function == "clamp" for x in m.layers):
        return ExpertExtras((forward,)), ExpertExtras((backward,))
    clamp, joined = _copy(n, element, element, "clamp"), _copy(wide, element, element)
    # PyTorch's ``clamp_backward``, of one bound and of two: a mask of bytes for each, both joined, and a choice.
    mask, both = _copy(n, element, 1, "compare"), _copy(n, 2, 1, "compare")
    choice = _copy(n, element + 1, element, "where")
    return (
        ExpertExtras((forward,), before=(clamp, clamp, joined), waits=True),
        ExpertExtras((backward,), after=(mask, choice, mask, mask, both, choice, joined)),
    )


def _biased(n: int, rows: int, element: int) -> tuple[tuple[Streaming, ...], tuple[Streaming, ...]]:
    """Return the passes of ``_apply_bias`` over the *n* elements of all experts' *rows*, forward and backward."""
    forward = (
        Streaming("mul", n, rows * _WIDE, n * _WIDE),
        _copy(n, element + _WIDE, _WIDE, "add"),
        _copy(n, _WIDE, _WIDE),
        _copy(n, _WIDE, element),
    )
    summed = _copy(n, _WIDE, _WIDE, "mul"), _copy(n, _WIDE, 0, "add")
    joined = _copy(n, element, _WIDE), _copy(n, _WIDE, element), _copy(n, element, element)
    return forward, (*joined, *summed, *summed)  # of the experts' results, the biases and the probabilities


def looks_of(network: Network) -> dict[str, int]:
    """Return rows of experts by the layer before which the host reads, and waits for, how many each has."""
    found: dict[str, tuple[str, int]] = {}  # by block
    for layer in network.layers:
        operator, block = layer.operator, block_name(layer.name)
        rows = operator.rows if isinstance(operator, ops.GroupedLinear) and operator.experts > 1 else 0
        if layer.part == "experts" and (rows or isinstance(operator, ops.Exchange)):
            waited = "" if isinstance(operator, ops.Exchange) and operator.gathers_tokens else layer.name
            name, before = found.get(block, (waited, 0))
            found[block] = name, before or rows
    return dict(found.values())
