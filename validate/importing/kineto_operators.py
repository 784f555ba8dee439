"""The operators of a Kineto trace as rows of a table of operators: shapes from the host's events, times from kernels.

With ``record_shapes=True`` PyTorch's profiler keeps ``Input Dims``, ``Input type`` and ``Concrete Inputs`` of each
call, and each kernel names the call that launched it by ``External id``.  A call's time is that of its kernels, without
any in the trace that of its own event, on a CPU.  Of equal calls the median counts.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import prod
from statistics import median
from typing import Any

from simulator.errors import Fault, InputError, one_line
from validate.importing.formats import LeftOut, Row
from validate.importing.kineto import trace_events

_FORMATS = {"float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16", "double": "fp64"}
_TF32 = re.compile(r"tf32|s1688|s1684", re.IGNORECASE)
_MOST = 2_000_000  # events that are kept
Dims = Sequence[Sequence[int]]
Reading = Mapping[str, object] | None


def traced_rows(path: str, device: str) -> tuple[list[Row], LeftOut]:
    """Return a row per operator of the trace *path* on *device*, and what was left out; raises InputError."""
    calls: dict[int, Mapping[str, Any]] = {}
    kernels_us: dict[int, float] = {}
    names: dict[int, str] = {}
    for event in trace_events(path):
        told, category = event.get("args"), event.get("cat")
        if event.get("ph") != "X" or not isinstance(told, dict) or not isinstance(event.get("dur"), int | float):
            continue
        number = told.get("External id")
        if not isinstance(number, int) or len(calls) > _MOST:
            continue
        if category == "cpu_op" and "Input Dims" in told:
            calls[number] = {"name": str(event.get("name")), "us": float(event["dur"]), **told}
        elif category == "kernel":
            kernels_us[number] = kernels_us.get(number, 0.0) + float(event["dur"])
            names[number] = names.get(number, "") + f" {event.get('name')}"
    if not calls:
        raise InputError(Fault("holds no shapes of operators; profile with record_shapes=True", one_line(path, 1000)))
    left: LeftOut = Counter()
    times_s: dict[tuple[tuple[str, object], ...], list[float]] = {}
    for number, call in calls.items():
        if kernels_us and number not in kernels_us:
            continue  # a call that only calls others
        found = _read(call, names.get(number, ""))
        if found is None:
            if kernels_us or call["name"] in {f"aten::{name}" for name in _READERS}:
                left[f"{one_line(call['name'], 60)}: not read"] += 1
            continue
        key = tuple(sorted(found.items()))
        times_s.setdefault(key, []).append((kernels_us[number] if kernels_us else call["us"]) * 1e-6)
    same = {"device": device, "dataset": "kineto", "software": "torch", "trust": "A"}
    if not kernels_us:
        same["includes_dispatch"] = "1"
    rows: list[Row] = [
        {**same, **dict(key), "time_s": f"{median(found):.5g}"} for key, found in times_s.items() if median(found) > 0.0
    ]
    return rows, left


def _read(call: Mapping[str, Any], kernels: str) -> Reading:
    reader = _READERS.get(call["name"].removeprefix("aten::"))
    form = _FORMATS.get(next((kind for kind in call.get("Input type", ()) if kind in _FORMATS), ""))
    if reader is None or form is None:
        return None
    try:
        found = reader(call["Input Dims"], call.get("Concrete Inputs", ()), call.get("Input Strides", ()))
    except (IndexError, TypeError, ValueError):
        return None
    tf32 = form == "fp32" and _TF32.search(kernels) is not None
    return None if found is None else {"dtype": "tf32" if tf32 else form, "phase": "fwd", **found}


def _layout(strides: Dims, first: int) -> str:
    """Return whether each of two matrices is stored transposed, as the letters of a product; NN where not known."""
    two = list(strides[first : first + 2]) or [(1, 1), (1, 1)]
    return "".join("T" if len(each) > 1 and each[-2] == 1 and each[-1] > 1 else "N" for each in two)


def _product(dims: Dims, _: Sequence[str], strides: Dims) -> Reading:
    *batch, m, k = dims[0]
    cells = {"op": "bmm", "batch": batch[0]} if batch else {"op": "matmul"}
    return {**cells, "variant": _layout(strides, 0), "m": m, "n": dims[1][len(batch) + 1], "k": k}


def _linear(dims: Dims, _: Sequence[str], strides: Dims) -> Reading:
    (m, k), n = dims[1], dims[2][1]
    return {"op": "linear", "batch": 1, "m": m, "n": n, "k": k} if _layout(strides, 1) == "NT" else None


def _numbers(text: str) -> list[int]:
    return [int(word) for word in re.findall(r"-?\d+", text)]


def _convolution(stride: int, pad: int, groups: int) -> Callable[[Dims, Sequence[str], Dims], Reading]:
    """Return the reader of a convolution whose arguments have these numbers."""

    def read(dims: Dims, given: Sequence[str], strides: Dims) -> Reading:
        (batch, c_in, height, width), (c_out, _, kernel_h, kernel_w) = dims[0], dims[1]
        (down, right), (above, beside) = ((2 * _numbers(given[i]))[-2:] for i in (stride, pad))
        by_pixels = bool(strides) and len(strides[0]) == 4 and strides[0][1] == 1 and c_in > 1
        found: dict[str, object] = {"op": "conv2d", "batch": batch, "c_in": c_in, "c_out": c_out, "h_in": height}
        found |= {"w_in": width, "kernel_h": kernel_h, "kernel_w": kernel_w, "stride": down, "stride_w": right}
        found |= {"pad": above, "pad_w": beside, "groups": _numbers(given[groups])[0]}
        return found | ({"variant": "channels_last"} if by_pixels else {})

    return read


def _rows_of(op: str, at: int = 0) -> Callable[[Dims, Sequence[str], Dims], Reading]:
    """Return the reader of *op*, which works along the last axis, also the one that argument *at* names."""

    def read(dims: Dims, given: Sequence[str], *_: object) -> Reading:
        if op == "layer_norm":
            return {"op": op, "rows": prod(dims[0]) // prod(_numbers(given[1])), "cols": prod(_numbers(given[1]))}
        is_last = _numbers(given[at])[0] % len(dims[0]) == len(dims[0]) - 1
        return {"op": op, "rows": prod(dims[0][:-1]), "cols": dims[0][-1]} if is_last else None

    return read


def _function(variant: str, inputs: int) -> Callable[[Dims, Sequence[str], Dims], Reading]:
    def read(dims: Dims, *_: object) -> Reading:
        if not dims[0] or (inputs == 2 and list(dims[0]) != list(dims[1])):
            return None
        return {"op": "elementwise", "variant": variant, "rows": 1, "cols": prod(dims[0])}

    return read


def _attention(causal: int) -> Callable[[Dims, Sequence[str], Dims], Reading]:
    def read(dims: Dims, given: Sequence[str], *_: object) -> Reading:
        (batch, heads, queries, size), kv_heads, keys = dims[0], dims[1][1], dims[1][2]
        found: dict[str, object] = {"op": "attention", "batch": batch * heads, "m": queries, "n": keys, "k": size}
        found |= {"heads": heads, "kv_heads": kv_heads}
        return found | ({"variant": "causal"} if given[causal] == "True" else {})

    return read


_READERS: Mapping[str, Callable[[Dims, Sequence[str], Dims], Reading]] = {
    **dict.fromkeys(("mm", "bmm"), _product),
    "addmm": _linear,
    "cudnn_convolution": _convolution(3, 2, 5),
    "mkldnn_convolution": _convolution(4, 3, 6),
    "native_layer_norm": _rows_of("layer_norm"),
    "_softmax": _rows_of("softmax", 1),
    **{name: _function(name, 2) for name in ("add", "mul")},
    **{name: _function(name, 1) for name in ("relu", "gelu", "tanh")},
    "_scaled_dot_product_flash_attention": _attention(4),
    "_scaled_dot_product_flash_attention_for_cpu": _attention(4),
    "_scaled_dot_product_cudnn_attention": _attention(6),
}
