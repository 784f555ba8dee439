"""The passes over memory of an expert layer in Megatron-Core, besides its products (megatron/core/transformer/moe).

T tokens, each copied to k experts, are R = k T rows of h numbers.  With ``--moe-permute-fusion``, a fused router and a
fused activation, as NVIDIA's recipes have them, the forward pass runs, and the backward pass mirrors,

- the router (``router.py``): its choice of experts and the probabilities, in fp32 over all experts, with
  :data:`CHOOSING` passes; counts of tokens for the dispatcher with :data:`COUNTING` calls, which move next to nothing;
- ``permute``: R rows written from T tokens, and ``unpermute``: T sums read from R rows;
- with the all-to-all dispatcher, over several ranks that have several experts each: ``sort_chunks_by_idxs``, R rows
  copied from the order of ranks to that of experts, and back after the experts;
- for products in 8 or 4 bits: ``Fp8Padding``, R rows copied to aligned places, and back;
- the activation with its gate and the router's probabilities, one kernel (``weighted_bias_swiglu_impl``,
  ``weighted_bias_quick_geglu_impl``, ``weighted_squared_relu_impl``), so nothing is weighed after the experts;
- if gates are clamped (gpt-oss), plain torch clamps each half and joins both before that kernel.  The same function
  copies its offset to the device (``torch.tensor(linear_offset, device=...)``), and the host waits for this;
- if experts have biases: ``_apply_bias``, for each expert a product of its bias with the probabilities and a sum, both
  in fp32, then all rows joined and cast (``TEGroupedMLP``).

With the flex dispatcher (DeepEP, HybridEP) tokens arrive once per rank; one pass copies them to experts, aligned, and
one adds them up again, in place of permuting, sorting and padding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import comb

from simulator.records import dataclass, replace
from simulator.workload.kernels import Streaming
from simulator.workload.network import Layer, Network, block_name
from simulator.workload.operators import Copy, Elementwise, Exchange, GroupedLinear, Reduction
from simulator.workload.operators.moves import rows_gathered, rows_spread
from simulator.workload.precision import ELEMENT_BYTES

CHOOSING = {"forward": 6, "backward": 4}
"""Passes over tokens times experts of the fused router: scores and choice, the loss that balances experts."""
COUNTING = 10
"""Calls of the dispatcher's ``preprocess`` and its copies to the host (``token_dispatcher.py``), forward alone."""
NARROW = ("master-fp8", "nvfp4")
_WIDE = ELEMENT_BYTES["fp32"]
_FORWARD, _BACKWARD = "forward", "backward"


@dataclass(frozen=True, slots=True)
class ExpertExtras:
    """What Megatron-Core runs in one pass of a layer that the layer alone does not show.

    ``own`` replaces the layer's kernels; None: they stay.  ``before`` and ``after`` are passes around them.  ``calls``:
    calls of plain torch for all of these, besides the layer's own.  ``waits``: the host waits for the device before
    ``own``.
    """

    own: tuple[Streaming, ...] | None = None
    before: tuple[Streaming, ...] = ()
    after: tuple[Streaming, ...] = ()
    calls: int = 0
    waits: bool = False


@dataclass(frozen=True, slots=True)
class _Mixture:
    """The layers of one expert layer, from its dispatch to its combination, and their sizes on this rank."""

    layers: Sequence[Layer]
    first: GroupedLinear
    last: GroupedLinear
    combine: Reduction
    experts: int  # on all ranks
    tokens: int

    @property
    def hidden(self) -> int:
        return self.first.inputs

    @property
    def rows(self) -> int:
        return self.first.rows

    @property
    def exchange(self) -> Exchange | None:
        found = (layer.operator for layer in self.layers if isinstance(layer.operator, Exchange))
        return next((exchange for exchange in found if exchange.axis == "ep"), None)

    @property
    def arriving(self) -> int:
        """Rows that arrive if a token is sent once to each rank that has experts of it, with balanced routing."""
        chosen, here = self.combine.cols, self.first.experts
        missed = comb(self.experts - here, chosen) / comb(self.experts, chosen)
        return round(self.tokens * self.experts // here * (1 - missed))


def expert_passes(network: Network, element: int, *, narrow: bool) -> Mapping[tuple[str, str], ExpertExtras]:
    """Return what Megatron-Core runs besides, or instead of, the kernels of *network*'s expert layers.

    By layer and pass.  *element*: bytes of an activation.  *narrow*: products are in 8 or 4 bits.
    """
    found: dict[tuple[str, str], ExpertExtras] = {}
    router: Layer | None = None
    for part, run in groupby(network.layers, key=lambda layer: layer.part):
        layers = list(run)
        products = [
            layer.operator for layer in layers if isinstance(layer.operator, GroupedLinear) and part == "experts"
        ]
        combine = next((x.operator for x in reversed(layers) if isinstance(x.operator, Reduction)), None)
        chooses = [x for x in layers if isinstance(x.operator, Elementwise) and x.operator.function == "topk"]
        router = chooses[-1] if chooses else router
        if products and combine is not None and router is not None and products[0].rows >= combine.cols:
            tokens = products[0].rows // combine.cols
            if products[0].imbalance:  # rows are those of the busiest rank
                tokens = combine.rows // products[-1].outputs
            experts = max(products[0].experts, router.operator.output_elements // tokens)
            mixture = _Mixture(layers, products[0], products[-1], combine, experts, tokens)
            found.update(_router(router, mixture))
            found.update(_layers(mixture, element, narrow=narrow))
    return found


def _router(router: Layer, m: _Mixture) -> dict[tuple[str, str], ExpertExtras]:
    n = m.tokens * m.experts
    one = Streaming("copy", n, n * _WIDE, n * _WIDE)
    calls = COUNTING if m.exchange is not None else 0
    return {
        (router.name, _FORWARD): ExpertExtras((one,) * CHOOSING[_FORWARD], calls=CHOOSING[_FORWARD] - 1 + calls),
        (router.name, _BACKWARD): ExpertExtras((one,) * CHOOSING[_BACKWARD], calls=CHOOSING[_BACKWARD] - 1),
    }


def _layers(m: _Mixture, element: int, *, narrow: bool) -> dict[tuple[str, str], ExpertExtras]:
    rows, tokens = m.rows * m.hidden, m.tokens * m.hidden
    copy = Streaming("copy", rows, rows * element, rows * element)
    there, back = rows_spread(tokens, rows, element), rows_gathered(tokens, rows, element)
    sorts = m.exchange is not None and m.first.experts > 1
    into = out = (copy,) * (sorts + narrow)
    laid: tuple[Streaming, ...] = (there,)
    summed: tuple[Streaming, ...] = (back,)
    if m.exchange is not None and m.exchange.flex:
        n = m.arriving * m.hidden * element
        into, out, laid, summed = (replace(there, read_bytes=n),), (replace(back, written_bytes=n),), (), ()
    names = [layer.name for layer in m.layers]
    products = [layer.name for layer in m.layers if isinstance(layer.operator, GroupedLinear)]
    first, last = names.index(products[0]), names.index(products[-1])
    gate = [place for place in range(first, last) if isinstance(m.layers[place].operator, Elementwise)][-1:]
    found: dict[tuple[str, str], ExpertExtras] = {}
    for place, layer in enumerate(m.layers):
        ways: tuple[ExpertExtras, ExpertExtras] | None = None
        if place == first:
            ways = ExpertExtras(before=into), ExpertExtras(after=out)
        elif place == last:
            ways = ExpertExtras(after=out), ExpertExtras(before=into)
            if m.last.bias:
                forward, backward = _biased(m, element)
                ways = (
                    _calls(ExpertExtras(after=(*forward, *out)), m, 2),
                    _calls(ExpertExtras(before=(*into, *backward)), m, 6),
                )
        elif isinstance(layer.operator, Copy):
            ways = ExpertExtras(laid), ExpertExtras(summed)
        elif isinstance(layer.operator, Reduction):
            ways = ExpertExtras(summed), ExpertExtras(laid)
        elif isinstance(layer.operator, Elementwise):
            ways = _activation(m, element) if place in gate else (ExpertExtras(()), ExpertExtras(()))
        if ways is not None:
            found[layer.name, _FORWARD], found[layer.name, _BACKWARD] = ways
    return found


def _calls(extra: ExpertExtras, m: _Mixture, each: int) -> ExpertExtras:
    """Return *extra* with *each* calls of torch for an expert, and those that split and join the rows of all."""
    return replace(extra, calls=each * m.first.experts + 2)


def _activation(m: _Mixture, element: int) -> tuple[ExpertExtras, ExpertExtras]:
    """Return the activation with its gate and the probabilities, forward and backward."""
    n, wide = m.rows * m.last.inputs, m.rows * m.first.outputs
    forward = Streaming("silu", n, wide * element + m.rows * _WIDE, n * element)
    backward = Streaming("silu_bwd", n, (wide + n) * element + m.rows * _WIDE, wide * element + m.rows * _WIDE)
    if not any(isinstance(x.operator, Elementwise) and x.operator.function == "clamp" for x in m.layers):
        return ExpertExtras((forward,)), ExpertExtras((backward,))
    clamp = Streaming("clamp", n, n * element, n * element)
    joined = Streaming("copy", wide, wide * element, wide * element)
    return (
        ExpertExtras((forward,), before=(clamp, clamp, joined), waits=True),
        ExpertExtras((backward,), after=(*_clamped(n, element, 1), *_clamped(n, element, 2), joined)),
    )


def _clamped(n: int, element: int, bounds: int) -> tuple[Streaming, ...]:
    """Return PyTorch's ``clamp_backward`` of *n* elements: a mask of bytes for each bound, joined, and a choice."""
    masks = (Streaming("compare", n, n * element, n),) * bounds
    both = (Streaming("compare", n, 2 * n, n),) * (bounds - 1)
    return (*masks, *both, Streaming("where", n, n * (element + 1), n * element))


def _biased(m: _Mixture, element: int) -> tuple[tuple[Streaming, ...], tuple[Streaming, ...]]:
    """Return the passes of ``_apply_bias`` over all experts together, forward and backward."""
    n = m.rows * m.hidden
    forward = (
        Streaming("mul", n, m.rows * _WIDE, n * _WIDE),
        Streaming("add", n, n * (element + _WIDE), n * _WIDE),
        Streaming("copy", n, n * _WIDE, n * _WIDE),
        Streaming("copy", n, n * _WIDE, n * element),
    )
    backward = (
        Streaming("copy", n, n * element, n * _WIDE),
        Streaming("copy", n, n * _WIDE, n * element),  # the gradient of the experts' results, and joined
        Streaming("copy", n, n * element, n * element),
        Streaming("mul", n, n * _WIDE, n * _WIDE),  # of the biases, and summed
        Streaming("add", n, n * _WIDE, 0),
        Streaming("mul", n, n * _WIDE, n * _WIDE),  # of the probabilities, and summed
        Streaming("add", n, n * _WIDE, 0),
    )
    return forward, backward


def looks_of(network: Network) -> frozenset[str]:
    """Return the layers before which the host reads, and so waits for, the number of tokens of each expert.

    Megatron-LM needs these numbers for the sizes of the all-to-all or, without one, for the sizes of the products.
    """
    found: dict[str, str] = {}  # by block
    for layer in network.layers:
        operator = layer.operator
        is_sized = isinstance(operator, Exchange) or (isinstance(operator, GroupedLinear) and operator.experts > 1)
        if layer.part == "experts" and is_sized:
            found.setdefault(block_name(layer.name), layer.name)
    return frozenset(found.values())
