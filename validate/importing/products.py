"""Matrix products of x (m, k) with a weight (n, k), without bias, as inference frameworks run them.

``collector/*/collect_gemm.py`` of the package's repository captures six operators in a row, each with its own weight,
in one graph and replays it; the time is that of one operator.  If the six together fit in the last-level cache, the
next replay finds them there and the row is warm; otherwise it is cold.

SGLang's 16-bit rows are fp16 if they say float16; the collectors of vLLM and TensorRT-LLM make bf16 data whatever their
rows say.  Rows in fp8, and in formats quantised by block or by weight only, include quantising the input; they are not
plain products and left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from simulator.topology.catalogue import load_part
from simulator.topology.parts import GpuPart
from validate.importing.aiconfigurator import Source, Table
from validate.importing.tables import DATASET, LeftOut, Row, Shape, Times, graded, latency_s, seconds
from validate.tables.share import Share

_NEEDED = ("gemm_dtype", "m", "n", "k", "latency")
_OPERATORS = 6  # operators per graph
_OWN_INPUTS = frozenset(("sglang",))  # frameworks whose operators have separate inputs; in others they share one
_BYTES = 2  # bytes per element
_PRECISIONS = {"float16": "fp16", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True)
class Products:
    """Times in seconds of shapes (m, n, k) by table, with each table's precision and skipped rows.

    ``grid`` is the most common set of shapes among the tables.
    """

    times: Mapping[Table, Times]
    precisions: Mapping[Table, str]
    left_out: Mapping[Table, LeftOut]
    grid: frozenset[Shape]

    def chosen(self, device: str) -> list[Table]:
        """Return for each framework the newest table with the whole grid, else its newest table."""
        tables: dict[str, list[Table]] = {}
        for table in self.times:
            if table.device == device:
                tables.setdefault(table.framework, []).append(table)
        return [next((t for t in of if self.grid <= self.times[t].keys()), of[0]) for of in tables.values()]


def read_products(source: Source) -> Products:
    """Return the products of all devices in *source*, so that the grid does not depend on the devices chosen.

    Raises InputError if a table cannot be read.
    """
    times: dict[Table, Times] = {}
    precisions: dict[Table, str] = {}
    left_out: dict[Table, LeftOut] = {}
    for table in source.tables("gemm"):
        times[table], left_out[table], precisions[table] = {}, Counter(), "bf16"
        for cell, number in source.rows(table, _NEEDED):
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


def product_rows(products: Products, device: str, share: Share, left_out: LeftOut) -> tuple[list[Row], Sequence[Table]]:
    """Return the rows of *device* and their tables; *left_out* counts skipped rows by reason."""
    tables = products.chosen(device)
    kept: dict[str, Times] = {}
    for table, of in products.times.items():
        if table.device == device and table not in tables:
            left_out["product in a version besides the newest with the common shapes"] += sum(map(len, of.values()))
    for table in tables:
        left_out.update(products.left_out[table])
        common = {shape: found for shape, found in products.times[table].items() if shape in products.grid}
        left_out["product of a shape that few tables have"] += len(products.times[table]) - len(common)
        kept[table.framework] = common
    return list(_rows(graded(kept), products, tables, share)), tables


def is_cold(shape: Shape, framework: str, l2_bytes: float) -> bool:
    """Return whether a replay exceeds a last-level cache of *l2_bytes*, so that the next starts cold.

    A replay touches the weights of all operators, their inputs, and one output, whose memory the operators reuse.  If
    *l2_bytes* is 0 (unknown), every shape is cold.
    """
    m, n, k = shape
    inputs = _OPERATORS if framework in _OWN_INPUTS else 1
    return _BYTES * (_OPERATORS * n * k + inputs * m * k + m * n) > l2_bytes


def _rows(
    found: Mapping[str, Mapping[Shape, tuple[float, str, str]]],
    products: Products,
    tables: Sequence[Table],
    share: Share,
) -> Iterator[Row]:
    for table in tables:
        part = load_part(table.device)
        l2_bytes = (part.l2_size or 0.0) if isinstance(part, GpuPart) else 0.0
        for shape, (time_s, trust, note) in found[table.framework].items():
            if share.holds(shape):
                m, n, k = shape
                yield {
                    "device": table.device,
                    "op": "linear",
                    "variant": "lm_head",
                    "dtype": products.precisions[table],
                    "m": m,
                    "n": n,
                    "k": k,
                    "time_s": seconds(time_s),
                    "cache": "cold" if is_cold(shape, table.framework, l2_bytes) else "warm",
                    "issue": "graph",
                    "software": f"{table.framework} {table.version}",
                    "trust": trust,
                    "note": note,
                    "dataset": DATASET,
                }
