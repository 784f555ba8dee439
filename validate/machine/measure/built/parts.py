"""The operators of a network description one by one, as rows of ``ops.csv``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from validate.machine.measure.built.description import DescribedLayer, Description

Cells = dict[str, str | int]
# Measured elementwise functions, with the number of tensors that they read.
_FUNCTIONS = {"add": 2, "mul": 2, "div": 2, "relu": 1, "tanh": 1, "gelu": 1, "mul_scalar": 1, "add_scalar": 1}
_PRODUCTS = frozenset(("Linear", "MatMul", "Conv2d", "Attention", "Recurrent"))
_WIDE = frozenset(("LayerNorm", "Softmax"))  # autocast computes them in fp32
_BACKWARD = {
    "linear": ("bwd_data", "bwd_weight"),
    "conv2d": ("bwd_data", "bwd_weight"),
    "layer_norm": ("bwd",),
    "softmax": ("bwd",),
    "batch_norm": ("bwd",),
}


@dataclass(frozen=True, slots=True)
class OperatorPart:
    """An operator in a phase: its cells, the first ``layer`` that uses it, and why it has no case (``reason``)."""

    layer: str
    cells: Cells
    reason: str = ""


def operator_parts(
    description: Description, policy: str, phase: str, *, channels_last: bool = False
) -> Iterator[OperatorPart]:
    """Yield each distinct operator of *description*: its forward pass and, when training, its backward pass.

    *policy* and *phase* are those of the step.  Operators that no case measures are yielded with the reason.
    """
    seen: set[tuple[tuple[str, str | int], ...]] = set()
    for layer in description.layers:
        found = _cells(layer)
        if isinstance(found, str):
            cells: Cells = {"op": layer.operator, "variant": str(layer.sizes.get("function", ""))}
            phases: tuple[str, ...] = ("fwd",)
        else:
            cells = found
            trains = phase in ("train", "bwd")
            phases = ("fwd", *(_BACKWARD.get(str(cells["op"]), ()) if trains else ()))
        cells["dtype"] = _dtype(policy, layer.operator)
        if layer.operator == "Conv2d" and channels_last:
            cells["variant"] = "channels_last"
        for each in phases:
            mine = {**cells, "phase": each}
            if each != "fwd" and cells["op"] == "linear":
                mine["variant"] = "lm_head"  # without bias, whose gradient is summed by a separate kernel
            key = tuple(sorted(mine.items()))
            if key not in seen:
                seen.add(key)
                yield OperatorPart(layer.name, mine, found if isinstance(found, str) else "")


def _dtype(policy: str, operator: str) -> str:
    """Return the format in which *operator* computes under *policy*, as written in a row."""
    if policy == "torch":
        return "tf32" if operator == "Conv2d" else "fp32"
    if policy == "tf32":
        return "tf32" if operator in _PRODUCTS else "fp32"
    return "fp32" if policy.startswith("amp-") and operator in _WIDE else policy.removeprefix("amp-")


def _cells(layer: DescribedLayer) -> Cells | str:
    """Return the cells of *layer* as an operator; where no case measures it, the reason."""
    s = layer.size
    match layer.operator:
        case "Linear" if s("experts", 1) == 1:
            bias = layer.sizes.get("bias", True)
            head: Cells = {} if bias else {"variant": "lm_head"}
            return {"op": "linear", **head, "batch": 1, "m": s("rows"), "n": s("outputs"), "k": s("inputs")}
        case "MatMul" if layer.sizes.get("layout", "NN") == "NN":
            return {"op": "bmm", "batch": s("batch", 1), "m": s("m"), "n": s("n"), "k": s("k")}
        case "Conv2d":
            return _conv(layer)
        case "LayerNorm" if layer.sizes.get("kind", "layer_norm") == "layer_norm":
            return {"op": "layer_norm", "rows": s("rows"), "cols": s("cols")}
        case "Softmax" if not layer.sizes.get("kernel"):
            return {"op": "softmax", "rows": s("rows"), "cols": s("cols")}
        case "BatchNorm":
            sizes = {"batch": s("batch"), "c_in": s("channels"), "h_in": s("height"), "w_in": s("width")}
            return {"op": "batch_norm", **sizes}
        case "Elementwise" if _FUNCTIONS.get(layer.sizes["function"]) == s("inputs", 1):
            return {"op": "elementwise", "variant": str(layer.sizes["function"]), "rows": 1, "cols": s("elements")}
        case "Embedding":
            return {"op": "embedding", "rows": s("rows"), "cols": s("cols")}
        case "Attention" if (
            s("kv_heads") in (0, s("heads")) and s("value_size") in (0, s("head_size")) and not s("window")
        ):
            way: Cells = {"variant": "causal"} if layer.sizes.get("causal") else {}
            lengths = {"m": s("query_length"), "n": s("key_length"), "k": s("head_size")}
            return {"op": "attention", **way, "batch": s("batch") * s("heads"), **lengths}
        case "Recurrent" if s("inputs") == s("hidden") and layer.sizes["cell"] != "rnn":
            cell = {"batch": s("batch"), "hidden": s("hidden"), "timesteps": s("timesteps")}
            return {"op": str(layer.sizes["cell"]), **cell}
    words = layer.sizes.get("function") or layer.operator
    return f"no case measures {words} by itself in these sizes"


def _conv(layer: DescribedLayer) -> Cells | str:
    s = layer.size
    pairs = (("h_in", "w_in", 0), ("kernel_h", "kernel_w", 0), ("stride_h", "stride_w", 1), ("pad_h", "pad_w", 0))
    if layer.sizes.get("transposed") or any(s(a, d) != s(b, d) for a, b, d in pairs) or s("dilation_h", 1) > 1:
        return "no case measures convolutions that are transposed, dilated or not square by themselves"
    found: Cells = {"op": "conv2d", "batch": s("batch"), "c_in": s("c_in"), "c_out": s("c_out")}
    found |= {"h_in": s("h_in"), "w_in": s("w_in"), "kernel_h": s("kernel_h"), "kernel_w": s("kernel_w")}
    stride, pad = s("stride_h", 1), s("pad_h")
    return found | {"stride": stride, "pad": pad, "stride_w": stride, "pad_w": pad, "groups": s("groups", 1)}
