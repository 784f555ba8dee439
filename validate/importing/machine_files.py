"""Files of makers' simulators and benchmarks of a machine, SimuMax and Primus, as rows of tables of operators.

SimuMax (MooreThreads/SimuMax, ``configs/system/*.json``) has under ``accelerator`` and ``op`` efficiencies by shape, of
the rate ``tflops``; the time of a shape is its FLOPs over both.  The scripts beside it measured them with Transformer
Engine on the host's clock, one call after the other.  ``matmul`` has BLAS's letters by column: TN is the forward pass,
NN the gradient of the input, NT that of the weight.  ``group_matmul`` is of ``ng`` experts with M rows each, K inputs
and N outputs, in the backward stages too; no cache holds an expert's matrices after those of others.  ``sdp_fwd`` and
``sdp_bwd`` are causal attention, counted as if it were not; 2 and 5 products.  Rows in 8 bits, and gradients that are
added in bf16, are left out.  AMD's ``primus-cli benchmark gemm`` (AMD-AGI/Primus,
``primus/tools/benchmark/gemm_bench.py``) repeats a product for ten seconds, with warm caches; its table is CSV, TSV or
Markdown.  ``bench_gemm_turbo.py`` (AMD-AGI/Primus-Turbo, ``benchmark/ops``) has times with two decimals, of a second
operand stored transposed; its backward pass holds two products, and is left out.
"""

import csv
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simulator.errors import Fault, InputError, one_line
from simulator.topology.yaml_source import read_json
from simulator.user_files import read_user_file
from validate.importing.formats import LeftOut, Row, sorted_out
from validate.tables.csv_text import MAX_BYTES

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
    reader = _READERS.get(name)
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


def _attention(products: int, phase: str) -> Callable[[Sizes], ShapeReading]:
    def read(s: Sizes) -> ShapeReading:
        batch, length, heads, kv_heads, of_keys, of_values = (
            int(s[name]) for name in ("batch", "seq_len", "head_num", "kv_head_num", "qk_head_dim", "v_head_dim")
        )
        flop = float(products * batch * length**2 * max(heads, kv_heads) * (of_keys + of_values))
        sizes = {"batch": batch * heads, "m": length, "n": length, "k": (of_keys + of_values) // 2}
        note = f"heads of {of_keys} and {of_values}, contiguous={s['qkv_contiguous']}"
        row = {"op": "attention", "variant": "causal", "phase": phase, **sizes, "heads": heads, "kv_heads": kv_heads}
        return flop, {**row, "cache": "warm", "note": note}

    return read


_READERS: Mapping[str, Callable[[Sizes], ShapeReading]] = {
    "matmul": _product,
    "group_matmul": _grouped,
    "sdp_fwd": _attention(2, "fwd"),
    "sdp_bwd": _attention(5, "bwd"),
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
