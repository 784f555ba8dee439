"""Operators: the computations of a network, as shapes, each with the kernels that it alone has.

A package of its own registers an operator's class with an entry point in the group ``topocast.operators``.
"""

from collections.abc import Mapping
from functools import cache
from importlib import metadata
from inspect import isabstract

from simulator.effects import has_effects
from simulator.workload.kernels import CLASSES
from simulator.workload.operator import OPERATORS, Elements, Operator, Phase
from simulator.workload.operators.attention import Attention, AttentionLibrary, FusedAttention
from simulator.workload.operators.convolution import Conv2d, Convolution
from simulator.workload.operators.elementwise import Elementwise
from simulator.workload.operators.grouped import GroupedGemm, GroupedLinear, Grouping, Nf4Linear, ScatteredLinear
from simulator.workload.operators.moves import Copy, Embedding, Exchange, Gather
from simulator.workload.operators.products import Linear, MatMul
from simulator.workload.operators.recurrent import ChunkScan, Recurrence, Recurrent
from simulator.workload.operators.reduction import BatchNorm, LayerNorm, Pool, Pooling, Reduction
from simulator.workload.operators.softmax import CrossEntropy, InPlaceCrossEntropy, LinearCrossEntropy, Softmax

ENTRY_POINT_GROUP = "topocast.operators"
_BUILT_IN: Mapping[str, type[Operator]] = {
    cls.__name__: cls
    for cls in sorted(OPERATORS.values(), key=lambda cls: (cls.__module__, cls.__name__))
    if cls.__module__.startswith(__name__) and not isabstract(cls)
}


def known_operators() -> Mapping[str, type[Operator]]:
    """Return the operators by the names of their classes, registered ones last.

    Registered ones, which are code, are left out where a data file asks.
    """
    return {**_BUILT_IN, **_registered()} if has_effects() else _BUILT_IN


@cache
def _registered() -> Mapping[str, type[Operator]]:
    found = (point.load() for point in metadata.entry_points(group=ENTRY_POINT_GROUP))
    return {cls.__name__: cls for cls in found if cls.__name__ not in _BUILT_IN}
