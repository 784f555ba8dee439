"""Operators that other programs timed, as rows of tables: Kineto's traces, SimuMax's files, Primus's tables.

With ``record_shapes=True`` PyTorch's profiler keeps ``Input Dims``, ``Input type`` and ``Concrete Inputs`` of each
call, and each kernel names the call that launched it by ``External id``.  A call's time is that of its kernels, without
any in the trace that of its own event, on a CPU.  Of equal calls the median counts.

SimuMax (MooreThreads/SimuMax, ``configs/system/*.json``) has under ``accelerator`` and ``op`` efficiencies by shape, of
the rate ``tflops``; the time of a shape is its FLOPs over both.  ``matmul`` has BLAS's letters by column: TN is the
forward pass, NN the gradient of the input, NT that of the weight.  ``group_matmul`` is of ``ng`` experts with M rows
each, K inputs and N outputs, in the backward stages too; no cache holds an expert's matrices after those of others.
``sdp_fwd`` and ``sdp_bwd`` are causal attention, counted as if it were not; 2 and 5 products.  Primus's tables are CSV,
TSV or Markdown, its products repeated with warm caches; Primus-Turbo's second operand is stored transposed.
"""

import csv
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from simulator.errors import Fault, InputError, one_line
from simulator.topology.yaml_source import read_json
from simulator.user_files import read_user_file
from validate.importing.formats import LeftOut, Row, sorted_out
from validate.importing.kineto import trace_events
from validate.tables.cells import MAX_BYTES

_OF_TORCH = {"float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16", "double": "fp64"}
_TF32 = re.compile(r"tf32|s1688|s1684", re.IGNORECASE)
_MOST_EVENTS = 2_000_000  # events that are kept
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
        if not isinstance(number, int) or len(calls) > _MOST_EVENTS:
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
        found = _traced(call, names.get(number, ""))
        if found is None:
            if kernels_us or call["name"] in {f"aten::{name}" for name in _OF_TRACES}:
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


def _traced(call: Mapping[str, Any], kernels: str) -> Reading:
    reader = _OF_TRACES.get(call["name"].removeprefix("aten::"))
    form = _OF_TORCH.get(next((kind for kind in call.get("Input type", ()) if kind in _OF_TORCH), ""))
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


def _traced_product(dims: Dims, _: Sequence[str], strides: Dims) -> Reading:
    *batch, m, k = dims[0]
    cells = {"op": "bmm", "batch": batch[0]} if batch else {"op": "matmul"}
    return {**cells, "variant": _layout(strides, 0), "m": m, "n": dims[1][len(batch) + 1], "k": k}


def _linear(dims: Dims, _: Sequence[str], strides: Dims) -> Reading:
    (m, k), n = dims[1], dims[2][1]
    return {"op": "linear", "batch": 1, "m": m, "n": n, "k": k} if _layout(strides, 1) == "NT" else None


def _numbers(text: str) -> list[int]:
    return [int(word) for word in re.findall(r"-?\d+", text)]


def _convolution(stride: int, pad: int, groups: int, dims: Dims, given: Sequence[str], strides: Dims) -> Reading:
    (batch, c_in, height, width), (c_out, _, kernel_h, kernel_w) = dims[0], dims[1]
    (down, right), (above, beside) = ((2 * _numbers(given[i]))[-2:] for i in (stride, pad))
    by_pixels = bool(strides) and len(strides[0]) == 4 and strides[0][1] == 1 and c_in > 1
    found: dict[str, object] = {"op": "conv2d", "batch": batch, "c_in": c_in, "c_out": c_out, "h_in": height}
    found |= {"w_in": width, "kernel_h": kernel_h, "kernel_w": kernel_w, "stride": down, "stride_w": right}
    found |= {"pad": above, "pad_w": beside, "groups": _numbers(given[groups])[0]}
    return found | ({"variant": "channels_last"} if by_pixels else {})


def _layer_norm(dims: Dims, given: Sequence[str], _: Dims) -> Reading:
    cols = prod(_numbers(given[1]))
    return {"op": "layer_norm", "rows": prod(dims[0]) // cols, "cols": cols}


def _softmax(dims: Dims, given: Sequence[str], _: Dims) -> Reading:
    is_last = _numbers(given[1])[0] % len(dims[0]) == len(dims[0]) - 1
    return {"op": "softmax", "rows": prod(dims[0][:-1]), "cols": dims[0][-1]} if is_last else None


def _function(variant: str, inputs: int, dims: Dims, *_: object) -> Reading:
    if not dims[0] or (inputs == 2 and list(dims[0]) != list(dims[1])):
        return None
    return {"op": "elementwise", "variant": variant, "rows": 1, "cols": prod(dims[0])}


def _traced_attention(causal: int, dims: Dims, given: Sequence[str], _: Dims) -> Reading:
    (batch, heads, queries, size), kv_heads, keys = dims[0], dims[1][1], dims[1][2]
    found: dict[str, object] = {"op": "attention", "batch": batch * heads, "m": queries, "n": keys, "k": size}
    found |= {"heads": heads, "kv_heads": kv_heads}
    return found | ({"variant": "causal"} if given[causal] == "True" else {})


_OF_TRACES: Mapping[str, Callable[[Dims, Sequence[str], Dims], Reading]] = {
    **dict.fromkeys(("mm", "bmm"), _traced_product),
    "addmm": _linear,
    "cudnn_convolution": partial(_convolution, 3, 2, 5),
    "mkldnn_convolution": partial(_convolution, 4, 3, 6),
    "native_layer_norm": _layer_norm,
    "_softmax": _softmax,
    **{name: partial(_function, name, 2) for name in ("add", "mul")},
    **{name: partial(_function, name, 1) for name in ("relu", "gelu", "tanh")},
    "_scaled_dot_product_flash_attention": partial(_traced_attention, 4),
    "_scaled_dot_product_flash_attention_for_cpu": partial(_traced_attention, 4),
    "_scaled_dot_product_cudnn_attention": partial(_traced_attention, 6),
}


_PAIR = re.compile(r"\s*(\w+)\s*=\s*([\w.]+)\s*")
_LAYOUTS = {"TN": "NT", "NN": "NN", "NT": "TN"}  # by rows, which is how frameworks store matrices
_STAGES = {"fwd": "fwd", "bwd_grad_act": "bwd_data", "bwd_grad_w": "bwd_weight"}
_SOFTWARE = "transformer_engine"
Sizes = Mapping[str, str]


def simumax_rows(path: str, device: str) -> tuple[list[Row], LeftOut]:
    """Return the rows of the file *path*, of *device*, and how many were left out, by reason; raises InputError."""
    source = read_json(Path(path), "machine's file of SimuMax")
    named = {}
    try:
        for name, of in source.data["accelerator"]["op"].items():
            if not of.get("accurate_efficient_factor"):
                continue
            try:
                named[name] = float(of["tflops"]), dict(of["accurate_efficient_factor"])
            except (KeyError, TypeError, ValueError):
                needed = "needs tflops, a number, and accurate_efficient_factor, a mapping"
                raise InputError(Fault(f"accelerator: op: {one_line(name, 40)}: {needed}", one_line(path))) from None
    except (KeyError, TypeError, AttributeError):
        missing = "holds no accelerator: op: with tflops and accurate_efficient_factor"
        raise InputError(Fault(missing, one_line(path))) from None
    return sorted_out(
        _row(name, dict(_PAIR.findall(shape)), tflops, efficiency, device)
        for name, (tflops, shapes) in named.items()
        for shape, efficiency in shapes.items()
    )


def _row(name: str, sizes: Sizes, tflops: float, efficiency: Any, device: str) -> Row | str:
    reader = _OF_SIMUMAX.get(name)
    if reader is None:
        return f"{one_line(name, 40)}: not modelled"
    if not isinstance(efficiency, int | float) or not 0.0 < efficiency * tflops < float("inf"):
        return f"{name}: no efficiency"
    try:
        flop, found = reader(sizes)
    except (KeyError, ValueError):
        return f"{name}: sizes that are not known"
    if isinstance(found, str):
        return found
    same = {"device": device, "dtype": "bf16", "issue": "stream", "software": _SOFTWARE, "dataset": "simumax"}
    return {**same, **found, "time_s": f"{flop / (efficiency * tflops * 1e12):.5g}", "trust": "A"}


ShapeReading = tuple[float, Mapping[str, object] | str]  # FLOPs of a shape, and its row or why it is left out


def _product(s: Sizes) -> ShapeReading:
    batch, m, n, k = (int(s[name]) for name in "bmnk")
    note = f"{s['layout']}, accumulate={s['accumulate']}, out={s['out_dtype']}"
    sizes = {"m": batch * m, "n": n, "k": k} if s["layout"] != "NT" else {"m": m, "n": n, "k": batch * k}
    row = {"op": "matmul", "variant": _LAYOUTS[s["layout"]], "phase": "fwd", **sizes, "cache": "warm", "note": note}
    return 2.0 * batch * m * n * k, row


def _grouped(s: Sizes) -> ShapeReading:
    experts, m, n, k = (int(s[name]) for name in ("ng", "M", "N", "K"))
    flop, phase = 2.0 * experts * m * n * k, _STAGES[s["stage"]]
    if s["dtype"] != "bf16":
        return flop, "group_matmul in 8 bits"
    if phase == "bwd_weight" and s["main_grad_dtype"] != "fp32":
        return flop, "group_matmul that adds gradients in bf16"
    sizes = {"batch": experts, "m": m, "n": n, "k": k}
    return flop, {"op": "grouped_linear", "phase": phase, **sizes, "cache": "cold", "note": s["stage"]}


def _attention(products: int, phase: str, s: Sizes) -> ShapeReading:
    batch, length, heads, kv_heads, of_keys, of_values = (
        int(s[name]) for name in ("batch", "seq_len", "head_num", "kv_head_num", "qk_head_dim", "v_head_dim")
    )
    flop = float(products * batch * length**2 * max(heads, kv_heads) * (of_keys + of_values))
    sizes = {"batch": batch * heads, "m": length, "n": length, "k": (of_keys + of_values) // 2}
    note = f"heads of {of_keys} and {of_values}, contiguous={s['qkv_contiguous']}"
    row = {"op": "attention", "variant": "causal", "phase": phase, **sizes, "heads": heads, "kv_heads": kv_heads}
    return flop, {**row, "cache": "warm", "note": note}


_OF_SIMUMAX: Mapping[str, Callable[[Sizes], ShapeReading]] = {
    "matmul": _product,
    "group_matmul": _grouped,
    "sdp_fwd": partial(_attention, 2, "fwd"),
    "sdp_bwd": partial(_attention, 5, "bwd"),
}

_FORMATS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
_COARSE_MS = 0.2  # times of two decimals are then within 2.5 %
_NEEDED = ("m", "n", "k", "dtype")


def primus_rows(path: str, device: str) -> tuple[list[Row], LeftOut]:
    """Return the rows of the file *path*, of *device*, and how many were left out, by reason; raises InputError."""
    shown = one_line(path, 1000)
    header: list[str] = []
    found = []
    for line in read_user_file(Path(path), MAX_BYTES, shown).decode("utf-8", "replace").splitlines():
        if line.strip().startswith("|"):  # of Markdown
            cells = line.strip().strip("|").split("|")
        else:
            cells = next(csv.reader([line], delimiter="\t" if "\t" in line else ","), [])
        cells = [cell.strip() for cell in cells]
        names = [cell.lower() for cell in cells]
        if set(_NEEDED) <= set(names):
            header = names
        elif header and len(cells) == len(header) and not set("".join(cells)) <= set("-: "):
            found.append(_primus_row(dict(zip(header, cells, strict=True)), device))
    if not found:
        raise InputError(Fault("holds no table with the columns m, n, k, dtype and a time", shown, 1, 1))
    return sorted_out(found)


def _primus_row(cells: Mapping[str, str], device: str) -> Row | str:
    form = _FORMATS.get(cells["dtype"].lower().removeprefix("torch."))
    if form is None:
        return f"products in {one_line(cells['dtype'], 30)}, which include quantising"
    turbo = "forward time (ms)" in cells
    try:
        sizes = {name: int(cells[name]) for name in ("m", "n", "k")}
        time_ms = float(cells["forward time (ms)" if turbo else "avg_time_ms"])
        letters = "NT" if turbo else "".join("T" if int(cells[name]) else "N" for name in ("trans_a", "trans_b"))
        if not 0.0 < time_ms < float("inf") or min(sizes.values()) < 1:
            raise ValueError
    except (KeyError, ValueError):
        return "rows without sizes or a time"
    if turbo and time_ms < _COARSE_MS:
        return f"times of two decimals below {_COARSE_MS} ms"
    same = {"device": device, "dtype": form, "issue": "stream", "dataset": "primus"}
    same |= {"op": "matmul", "variant": letters, "phase": "fwd", "cache": "warm", "trust": "A"}
    return {**same, **sizes, "software": "primus-turbo" if turbo else "primus", "time_s": f"{time_ms / 1e3:.6g}"}
