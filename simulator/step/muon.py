"""Muon's update of matrices (docs/decisions/kernels.md).

Momentum, then iterations of Newton and Schulz in bf16 (Keller Jordan, "Muon: An optimizer for hidden layers in neural
networks"; torch/optim/_muon.py; TensorParallelMuon of megatron/core/optimizer/emerging_optimizers.py).
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from simulator.devices.optimizer import TensorPass, matrix_passes
from simulator.questions.options import StepOptions
from simulator.step.megatron_passes import joint_products
from simulator.step.precision import updated_bytes
from simulator.workload import operators as ops
from simulator.workload.kernels import Gemm, Kernel, Streaming
from simulator.workload.network import Network, block_name, once
from simulator.workload.precision import ELEMENT_BYTES

_USUAL_STEPS, _NARROW = 5, ELEMENT_BYTES["bf16"]


class WeightMatrix(NamedTuple):
    """A matrix, or ``batch`` of one shape in one product; ``rows`` is the smaller side."""

    rows: int
    columns: int
    batch: int = 1

    @property
    def elements(self) -> int:
        """Elements of all of them."""
        return self.rows * self.columns * self.batch


@once
def orthogonalised(network: Network) -> frozenset[str]:
    """Return the names of the trained weights that Muon updates: matrices but for the output layer and embeddings."""
    last, found, others = "", set[str](), set[str]()
    for layer in network.layers:
        names = [p.name for p in layer.parameters]
        if isinstance(layer.operator, ops.Linear) and names:
            last = names.pop(0)
            found |= {last} & {p.name for p in layer.trained}
        if isinstance(layer.operator, ops.CrossEntropy | ops.InPlaceCrossEntropy):
            names.append(last)
        others.update(names)
    return frozenset(found - others)


@once
def matrices_of(network: Network, options: StepOptions) -> tuple[tuple[str, WeightMatrix], ...]:
    """Return the matrices that are orthogonalised one by one, each with the name of its parameter.

    Megatron-Core holds a matrix for each expert, joins those of a gate and of what it gates, and splits those of
    queries, keys and values (``--muon-no-split-qkv`` does not).  Others' stacked experts are one batched product.
    """
    names, is_megatron = set(orthogonalised(network)), options.framework == "megatron"
    joined = joint_products(network) if is_megatron else {}
    linear = [(x, x.operator) for x in network.layers if isinstance(x.operator, ops.Linear) and x.parameters]
    projections = Counter(block_name(layer.name) for layer, _ in linear if layer.part == "attention")
    heads = {block_name(x.name): o.inputs for x, o in linear if (x.part, x.split) == ("attention", "rows")}
    found: list[tuple[str, WeightMatrix]] = []
    for layer, operator in linear:
        name, block = layer.parameters[0].name, block_name(layer.name)
        outputs, copies, batch = [operator.outputs], 1, 1
        if name not in names:
            continue
        names.remove(name)
        if layer.name in joined and layer.part != "attention":
            joint = joined[layer.name].operator
            outputs = [joint.outputs] if isinstance(joint, ops.Linear) else []
        elif isinstance(operator, ops.GroupedLinear):
            apart = is_megatron or operator.grouping != "kernel"
            copies, batch = (operator.experts, 1) if apart else (1, operator.experts)
        elif is_megatron and block in heads and operator.outputs > heads[block] and projections[block] == 2:
            outputs = [heads[block], *[(operator.outputs - heads[block]) // 2] * 2]
        for rows in outputs * copies:
            found.append((name, WeightMatrix(min(rows, operator.inputs), max(rows, operator.inputs), batch)))
    return tuple(found)


def calls(matrix: WeightMatrix, options: StepOptions) -> Iterator[tuple[TensorPass, Kernel]]:
    """Yield the calls that update *matrix*: passes in fp32 and bf16, and iterations.

    An iteration of X is A = X Xᵀ, B = b A + c A A and a X + B X, as addmm has them, which first copies what it adds to:
    for m x n, m <= n, 4 m² n + 2 m³ FLOPs.
    """
    n, wide = matrix.elements, updated_bytes(options.precision)
    for each in matrix_passes(options.framework):
        read, written = each.reads * wide + each.half_reads * _NARROW, each.writes * wide + each.half_writes * _NARROW
        yield each, Streaming("muon_step", n, n * read, n * written)
    rows, columns, batch = matrix
    for _ in range(options.ns_steps or _USUAL_STEPS):
        yield TensorPass(0, 0), Gemm(rows, rows, columns, "bf16", batch, "NT")
        for width in (rows, columns):
            moved = batch * rows * width * _NARROW
            yield TensorPass(1, 1, called=False), Streaming("copy", batch * rows * width, moved, moved)
            yield TensorPass(0, 0), Gemm(rows, width, rows, "bf16", batch, adds=True)


def working_bytes(network: Network, options: StepOptions) -> int:
    """Return the most bytes that an update takes besides what is kept.

    Of a matrix, its step, X, A, B and a new X; in Megatron-LM the step, scaled, and scaled again.  Of all other
    parameters, one more copy in torch's passes of Adam.
    """
    wide, names = updated_bytes(options.precision), orthogonalised(network)
    matrices = {matrix for _, matrix in matrices_of(network, options)}
    if options.framework == "megatron":
        return max((3 * wide * x.elements for x in matrices), default=0)
    others = sum(p.elements for p in network.parameters if p.trained and p.name not in names)
    each = (x.elements * (wide + 2 * _NARROW) + x.batch * x.rows**2 * 2 * _NARROW for x in matrices)
    return max([others * wide, *each])
