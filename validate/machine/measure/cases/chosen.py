"""The operators whose times narrow predictions most, in that order (``chosen.json``; ``validate design`` writes it).

Where a GPU has no bf16, fp16 stands in its place; formats that it lacks otherwise are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from validate.machine.measure.bench import Bench
from validate.machine.measure.case import Case, Unavailable
from validate.machine.measure.cases.operators import call_limits, operator_case
from validate.machine.measure.cases.shapes import OperatorCase

FILE = Path(__file__).with_name("chosen.json")


def cases(bench: Bench) -> Iterator[Case]:
    """Yield the operators in formats of *bench*, each once, without those that exceed its memory.

    Raises Unavailable on a CPU, for which they are too large.
    """
    if not bench.is_cuda:
        raise Unavailable("chosen for GPUs; --only ops measures a CPU")
    limits = call_limits(bench)
    seen = set()
    for cells in json.loads(FILE.read_text(encoding="utf-8"))["operators"]:
        form = cells["dtype"]
        form = "fp16" if form == "bf16" and "bf16" not in limits.precisions else form
        mine = {**cells, "dtype": form}
        key = tuple(sorted(mine.items()))
        if key in seen or mine["dtype"] not in limits.precisions:
            continue
        seen.add(key)
        shape = OperatorCase(mine, 1.0 if cells["op"] in _COMPUTE else 0.0, float(_held_bytes(mine)))
        if shape.bytes < bench.memory_bytes / 3:
            yield operator_case(shape, bench, "chosen")


_COMPUTE = ("linear", "matmul", "bmm", "grouped_linear", "conv2d", "attention", "lstm", "gru")


def _held_bytes(cells: dict[str, str | int]) -> int:
    """Return about the bytes of the operands and results."""
    size = {"fp32": 4, "tf32": 4, "fp8": 1}.get(str(cells["dtype"]), 2)

    def s(name: str) -> int:
        return int(cells.get(name, 0) or 0)

    if s("m"):
        batch, m, n, k = max(1, s("batch")), s("m"), s("n"), s("k")
        if cells["op"] == "attention":
            return 4 * size * batch * (m + n) * k
        return size * batch * (m * n + n * k + m * k)
    if s("c_in"):
        outs = (s("c_out") or s("c_in")) * s("h_in") * s("w_in")
        return 3 * size * s("batch") * (s("c_in") * s("h_in") * s("w_in") + outs)
    return 3 * size * max(s("rows") * s("cols"), s("batch") * s("hidden") * s("timesteps"))
