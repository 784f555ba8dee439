"""Products that AMD's Primus and Primus-Turbo measured, as rows of tables of operators.

- ``primus-cli benchmark gemm`` (AMD-AGI/Primus, ``primus/tools/benchmark/gemm_bench.py``): products one after the other
  for ten seconds, columns ``m n k trans_a trans_b dtype avg_time_ms``, as CSV, TSV or a table of Markdown.  Its loop
  multiplies the last of its pairs of matrices each time, so caches are warm.
- ``bench_gemm_turbo.py`` (AMD-AGI/Primus-Turbo, ``benchmark/ops``): columns ``M N K Dtype`` and ``Forward Time (ms)``
  with two decimals.  The second operand is stored transposed.  The backward pass holds two products, and is left out.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path

from simulator.errors import Fault, InputError, one_line
from simulator.user_files import read_user_file
from validate.importing.formats import LeftOut, Row, sorted_out
from validate.tables.csv_text import MAX_BYTES

_FORMATS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "bf16": "bf16", "fp16": "fp16", "fp32": "fp32"}
_COARSE_MS = 0.2  # times of two decimals are then within 2.5 %
_NEEDED = ("m", "n", "k", "dtype")


def primus_rows(path: str, device: str) -> tuple[list[Row], LeftOut]:
    """Return the rows of the file *path*, measured on the part *device*, and how many were left out, by reason.

    Raises InputError if it is no such file.
    """
    shown = one_line(path, 1000)
    text = read_user_file(Path(path), MAX_BYTES, shown).decode("utf-8", "replace")
    rows, left = sorted_out(_found(text, device))
    if not rows and not left:
        raise InputError(Fault("holds no table with the columns m, n, k, dtype and a time", shown, 1, 1))
    return rows, left


def _found(text: str, device: str) -> Iterator[Row | str]:
    """Yield the rows in *text*, or why one is left out."""
    header: list[str] = []
    for line in text.splitlines():
        cells = _cells(line)
        names = [cell.lower() for cell in cells]
        if set(_NEEDED) <= set(names):
            header = names
        elif header and len(cells) == len(header) and not set("".join(cells)) <= set("-: "):
            yield _row(dict(zip(header, cells, strict=True)), device)


def _cells(line: str) -> list[str]:
    """Return the cells of a line of CSV, TSV or Markdown."""
    if line.strip().startswith("|"):
        return [cell.strip() for cell in line.strip().strip("|").split("|")]
    return [cell.strip() for cell in next(csv.reader([line], delimiter="\t" if "\t" in line else ","), [])]


def _row(cells: Mapping[str, str], device: str) -> Row | str:
    """Return the row of *cells*, or why it is left out."""
    form = _FORMATS.get(cells["dtype"].lower().removeprefix("torch."))
    if form is None:
        return f"products in {one_line(cells['dtype'], 30)}, which include quantising"
    turbo = "forward time (ms)" in cells
    try:
        sizes = {name: int(cells[name]) for name in ("m", "n", "k")}
        time_ms = float(cells["forward time (ms)" if turbo else "avg_time_ms"])
        letters = "NT" if turbo else "".join("T" if int(cells[name]) else "N" for name in ("trans_a", "trans_b"))
    except (KeyError, ValueError):
        return "rows without sizes or a time"
    if not 0.0 < time_ms < float("inf") or min(sizes.values()) < 1:
        return "rows without sizes or a time"
    if turbo and time_ms < _COARSE_MS:
        return f"times of two decimals below {_COARSE_MS} ms"
    software = "primus-turbo" if turbo else "primus"
    same = {"device": device, "dtype": form, "issue": "stream", "software": software, "dataset": "primus"}
    same |= {"op": "matmul", "variant": letters, "phase": "fwd", "cache": "warm", "trust": "A"}
    return {**same, **sizes, "time_s": f"{time_ms / 1e3:.6g}"}
