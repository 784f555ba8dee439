"""The package's three formats as rows of the project's tables: matrix products, causal attention, collectives.

``collect_gemm.py`` captures six operators in a row, each with its own weight, in one graph and replays it; the time is
that of one operator.  If the six together fit in the last-level cache, the next replay finds them there and the row is
warm; otherwise it is cold.  SGLang's 16-bit rows are fp16 if they say float16; the collectors of vLLM and TensorRT-LLM
make bf16 data whatever their rows say.  Rows in fp8, and in formats quantised by block or by weight only, include
quantising the input and are left out.

``collect_attn.py`` captures one call over whole sequences (prefill) and replays it, so data that fit in the last-level
cache are found there.  Data are bf16 whatever the rows say.  A call also writes keys and values into a paged cache, and
TensorRT-LLM's rotates queries and keys.  Attention with keys in fp8, in a window, or of one query (decode) is left out.

``collect_nccl.py`` runs nccl-tests with one thread per GPU (``-t n``, so ``-g 1``), with 40 warm-up and 100 to 1,000
timed iterations, and keeps the out-of-place time.  ``message_size`` is in elements of 2 bytes (half) or 1 byte (int8).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from simulator.package_data import own_data
from simulator.records import dataclass
from simulator.topology.catalogue import load_part
from simulator.topology.parts import GpuPart
from validate.importing.aiconfigurator import MACHINES, Source, SourceTable
from validate.tables.cells import figure
from validate.tables.csv_text import csv_bytes
from validate.tables.statistics import SampledShapes

OPERATORS: Sequence[str]
COLLECTIVES: Sequence[str]
OPERATORS, COLLECTIVES = (
    own_data("validate.importing", "formats.yaml")[which] for which in ("operators", "collectives")
)
Row = Mapping[str, object]
Shape = tuple[int, ...]
Times = dict[Shape, list[float]]  # seconds, one for each measurement of a shape
Graded = tuple[float, str, str]  # median time in seconds, trust grade, note
LeftOut = Counter[str]  # skipped rows by reason

_DATASET = "aiconfigurator"
_APART = 1.5  # a larger ratio means that frameworks did not run the same work
_FLOOR_S = 2e-6  # shorter times are mostly the gap between kernels
_PRODUCT = ("gemm_dtype", "m", "n", "k", "latency")
_OPERATORS = 6  # operators per graph
_OWN_INPUTS = frozenset(("sglang",))  # frameworks whose operators have separate inputs; in others they share one
_BYTES = 2  # bytes per element
_PRECISIONS = {"float16": "fp16", "bfloat16": "bf16"}
_SIZES = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")
_ATTENTION = (*_SIZES, "beam_width", "attn_dtype", "kv_cache_dtype", "step", "latency")
_INSIDE = {"trtllm": "rotates; writes cache"}
_SINKS = 64  # TensorRT-LLM's collector gives heads of this size a sink each
_COLLECTIVE = ("op_name", "nccl_dtype", "num_gpus", "message_size", "latency")
_ELEMENTS = {"half": ("fp16", 2), "int8": ("int8", 1)}
_COLLECTIVES = {"alltoall": "all_to_all", **{name: name for name in ("all_gather", "all_reduce", "reduce_scatter")}}


def csv_of(columns: Sequence[str], rows: Iterable[Row]) -> bytes:
    """Return *rows* as CSV, without columns that are empty in all rows."""
    listed = list(rows)
    used = [column for column in columns if any(row.get(column, "") != "" for row in listed)]
    return csv_bytes([used, *([row.get(column, "") for column in used] for row in listed)])


def sorted_out(found: Iterable[Row | str]) -> tuple[list[Row], LeftOut]:
    """Return the rows among *found*, and how often each reason stands in the place of one."""
    listed = list(found)
    return [each for each in listed if not isinstance(each, str)], Counter(
        each for each in listed if isinstance(each, str)
    )


def latency_s(text: str) -> float | None:
    """Return the time *text*, given in milliseconds, in seconds; None if it is not a positive number."""
    value = figure(text)
    return value * 1e-3 if value is not None and value > 0 else None


def _row(found: Graded, **cells: object) -> Row:
    """Return a row with *cells*; its time has five significant digits, more than the measurement's precision."""
    time_s, trust, note = found
    notes = "; ".join(text for text in (*str(cells.pop("note", "")).split("; "), note) if text)
    return {**cells, "time_s": f"{time_s:.5g}", "trust": trust, "note": notes, "dataset": _DATASET}


def _graded(times: Mapping[str, Times]) -> dict[str, dict[Shape, Graded]]:
    """Return times by framework and shape: A where frameworks agree, B where they differ by over 1.5, C below 2 us."""
    medians = {framework: {shape: median(found) for shape, found in of.items()} for framework, of in times.items()}
    by_shape: dict[Shape, list[float]] = {}
    for of in medians.values():
        for shape, time_s in of.items():
            by_shape.setdefault(shape, []).append(time_s)

    def graded(shape: Shape, time_s: float) -> Graded:
        apart = max(by_shape[shape]) / min(by_shape[shape])
        note = f"frameworks differ x{apart:.2g}" if max(by_shape[shape]) > _APART * min(by_shape[shape]) else ""
        return time_s, "C" if time_s < _FLOOR_S else "B" if note else "A", note

    return {framework: {shape: graded(shape, of[shape]) for shape in sorted(of)} for framework, of in medians.items()}


def _newest(source: Source, what: str, device: str, word: str, left_out: LeftOut) -> list[SourceTable]:
    """Return the newest table of *what* on *device* for each framework; rows of older ones are left out."""
    tables = source.newest(what, device)
    for table in source.tables(what):
        if table.device == device and table not in tables:
            left_out[f"{word} in a version besides the newest"] += source.count(table)
    return tables


@dataclass(frozen=True, slots=True)
class Products:
    """Seconds of shapes (m, n, k) by table, its precision and skipped rows; ``grid``: the tables' commonest shapes."""

    times: Mapping[SourceTable, Times]
    precisions: Mapping[SourceTable, str]
    left_out: Mapping[SourceTable, LeftOut]
    grid: frozenset[Shape]


def read_products(source: Source) -> Products:
    """Return products of all devices, so that the grid does not depend on those chosen; raises InputError."""
    times: dict[SourceTable, Times] = {}
    precisions: dict[SourceTable, str] = {}
    left_out: dict[SourceTable, LeftOut] = {}
    for table in source.tables("gemm"):
        times[table], left_out[table], precisions[table] = {}, Counter(), "bf16"
        for cell, number in source.rows(table, _PRODUCT):
            precision = _PRECISIONS.get(cell("gemm_dtype"))
            time_s = latency_s(cell("latency"))
            if precision is None:
                left_out[table][f"product in {cell('gemm_dtype')}: quantises its input too"] += 1
            elif time_s is None:
                left_out[table]["product without a time"] += 1
            else:
                if table.framework == "sglang":
                    precisions[table] = precision
                times[table].setdefault((number("m"), number("n"), number("k")), []).append(time_s)
    counted = Counter(frozenset(of) for of in times.values())
    grid = max(counted, key=lambda shapes: (counted[shapes], len(shapes)), default=frozenset())
    return Products(times, precisions, left_out, grid)


def product_rows(
    products: Products, device: str, share: SampledShapes, left_out: LeftOut
) -> tuple[list[Row], Sequence[SourceTable]]:
    """Return the rows of *device* and their tables, of each framework the newest with the grid, else the newest."""
    mine: dict[str, list[SourceTable]] = {}
    for table in products.times:
        if table.device == device:
            mine.setdefault(table.framework, []).append(table)
    tables = [next((t for t in of if products.grid <= products.times[t].keys()), of[0]) for of in mine.values()]
    kept: dict[str, Times] = {}
    for table, times in products.times.items():
        if table in tables:
            left_out.update(products.left_out[table])
            kept[table.framework] = {shape: found for shape, found in times.items() if shape in products.grid}
            left_out["product of a shape that few tables have"] += len(times) - len(kept[table.framework])
        elif table.device == device:
            left_out["product in a version besides the newest with the common shapes"] += sum(map(len, times.values()))
    rows, graded = [], _graded(kept)
    for table in tables:
        part = load_part(table.device)
        l2_bytes = (part.l2_size or 0.0) if isinstance(part, GpuPart) else 0.0
        same = {"device": table.device, "op": "linear", "variant": "lm_head", "dtype": products.precisions[table]}
        same |= {"issue": "graph", "software": f"{table.framework} {table.version}"}
        for shape, found in graded[table.framework].items():
            if share.holds(shape):
                cache = "cold" if is_cold(shape, table.framework, l2_bytes) else "warm"
                rows.append(_row(found, **same, **dict(zip("mnk", shape, strict=True)), cache=cache))
    return rows, tables


def is_cold(shape: Shape, framework: str, l2_bytes: float) -> bool:
    """Return whether a replay touches more than *l2_bytes*, so that the next starts cold: always if 0 (unknown).

    It touches the weights of all operators, their inputs, and one output, whose memory the operators reuse.
    """
    m, n, k = shape
    inputs = _OPERATORS if framework in _OWN_INPUTS else 1
    return _BYTES * (_OPERATORS * n * k + inputs * m * k + m * n) > l2_bytes


def attention_rows(
    source: Source, device: str, share: SampledShapes, left_out: LeftOut
) -> tuple[list[Row], Sequence[SourceTable]]:
    """Return the rows of *device* and their tables; *left_out* counts skipped rows by reason; raises InputError."""
    tables = _newest(source, "context_attention", device, "attention", left_out)
    for table in source.newest("generation_attention", device):
        left_out["attention of one query (decode): not modelled"] += source.count(table)
    graded = _graded({table.framework: _attention_times(source, table, left_out) for table in tables})
    rows: list[Row] = []
    for table in tables:
        inside = _INSIDE.get(table.framework, "writes cache")
        same = {"device": device, "op": "attention", "variant": "causal", "dtype": "bf16", "issue": "graph"}
        same["software"] = f"{table.framework} {table.version}"
        for shape, found in graded[table.framework].items():
            batch, length, heads, kv_heads, head_size = shape
            if share.holds(shape):
                sinks = "; sinks" if table.framework == "trtllm" and head_size == _SINKS else ""
                sizes = {"batch": batch * heads, "m": length, "n": length, "k": head_size}
                rows.append(_row(found, **same, **sizes, heads=heads, kv_heads=kv_heads, note=inside + sinks))
    return rows, tables


def _attention_times(source: Source, table: SourceTable, left_out: LeftOut) -> Times:
    times: Times = {}
    for cell, number in source.rows(table, _ATTENTION):
        time_s = latency_s(cell("latency"))
        reason = "" if time_s is not None else "attention without a time"
        if not {cell("attn_dtype"), cell("kv_cache_dtype")} <= _PRECISIONS.keys():
            reason = "attention with queries or keys of 8 bits"
        elif cell("window_size") not in ("", "0"):
            reason = "attention in a window: not modelled"
        elif cell("beam_width") != "1":
            reason = "attention with several beams"
        elif number("step") != 0:
            reason = "attention to earlier tokens"
        if reason or time_s is None:
            left_out[reason] += 1
        else:
            times.setdefault(tuple(number(size) for size in _SIZES), []).append(time_s)
    return times


def collective_rows(source: Source, device: str, left_out: LeftOut) -> tuple[list[Row], Sequence[SourceTable]]:
    """Return rows of *device*'s machine and their tables; *left_out* counts reasons. Raises InputError."""
    tables = _newest(source, "nccl", device, "collective", left_out)
    machine = MACHINES.get(device)
    if machine is None:
        for table in tables:
            left_out[f"collective on a machine of {device}: no topology of it"] += source.count(table)
        return [], ()
    found: dict[tuple[str, str, str], Times] = {}
    for table in tables:
        for cell, number in source.rows(table, _COLLECTIVE):
            collective, element = _COLLECTIVES.get(cell("op_name")), _ELEMENTS.get(cell("nccl_dtype"))
            time_s = latency_s(cell("latency"))
            if collective is None or element is None or time_s is None:
                left_out[f"collective {'without a time' if time_s is None else 'of another kind'}"] += 1
                continue
            dtype, element_bytes = element
            shape = number("num_gpus"), number("message_size") * element_bytes
            key = collective, dtype, cell("version") or table.version
            found.setdefault(key, {}).setdefault(shape, []).append(time_s)
    rows: list[Row] = []
    for (collective, dtype, version), times in sorted(found.items()):
        same = {"machine": machine, "n_nodes": 1, "collective": collective, "dtype": dtype, "placement": "out"}
        same["software"] = f"nccl-tests -g 1; NCCL {version}"
        for (n_gpus, size_bytes), graded in _graded({"": times})[""].items():
            rows.append(_row(graded, **same, n_gpus=n_gpus, bytes=size_bytes))
    return rows, tables
