"""Causal attention over whole sequences (prefill), as inference frameworks run it.

``collector/*/collect_attn.py`` of the package's repository captures one call and replays it, so data that fit in the
last-level cache are found there.  Data are bf16 whatever the rows say.  A call also writes keys and values into a paged
cache, and TensorRT-LLM's also rotates queries and keys, by separate or fused kernels.  Attention with keys in fp8, in a
window, or of one query (decode) is not comparable and left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from validate.importing.aiconfigurator import Source, Table
from validate.importing.tables import DATASET, LeftOut, Row, Times, graded, latency_s, seconds
from validate.tables.share import Share

_NEEDED = (
    *("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "beam_width"),
    *("attn_dtype", "kv_cache_dtype", "step", "latency"),
)
_SIXTEEN_BITS = frozenset(("float16", "bfloat16"))
_INSIDE = {"trtllm": "rotates; writes cache"}
_SINKS = 64  # TensorRT-LLM's collector gives heads of this size a sink each


def attention_rows(source: Source, device: str, share: Share, left_out: LeftOut) -> tuple[list[Row], Sequence[Table]]:
    """Return the rows of *device* and their tables; *left_out* counts skipped rows by reason; raises InputError."""
    tables = source.newest("context_attention", device)
    for table in source.tables("context_attention"):
        if table.device == device and table not in tables:
            left_out["attention in a version besides the newest"] += source.count(table)
    for table in source.newest("generation_attention", device):
        left_out["attention of one query (decode): not modelled"] += source.count(table)
    found = graded({table.framework: _times(source, table, left_out) for table in tables})
    rows: list[Row] = []
    for table in tables:
        inside = _INSIDE.get(table.framework, "writes cache")
        for shape, (time_s, trust, note) in found[table.framework].items():
            if not share.holds(shape):
                continue
            batch, length, heads, kv_heads, head_size = shape
            sinks = "sinks" if table.framework == "trtllm" and head_size == _SINKS else ""
            rows.append(
                {
                    "device": device,
                    "op": "attention",
                    "variant": "causal",
                    "dtype": "bf16",
                    "batch": batch * heads,
                    "m": length,
                    "n": length,
                    "k": head_size,
                    "heads": heads,
                    "kv_heads": kv_heads,
                    "time_s": seconds(time_s),
                    "issue": "graph",
                    "software": f"{table.framework} {table.version}",
                    "trust": trust,
                    "note": "; ".join(text for text in (inside, sinks, note) if text),
                    "dataset": DATASET,
                }
            )
    return rows, tables


def _times(source: Source, table: Table, left_out: LeftOut) -> Times:
    """Return the times in seconds by shape (batch, length, heads, key-value heads, head size)."""
    times: Times = {}
    for cell, number in source.rows(table, _NEEDED):
        reason = _unlike(cell("attn_dtype"), cell("kv_cache_dtype"), cell("window_size"), cell("beam_width"))
        time_s = latency_s(cell("latency"))
        if not reason and number("step") != 0:
            reason = "attention to earlier tokens"
        if not reason and time_s is None:
            reason = "attention without a time"
        if reason or time_s is None:
            left_out[reason] += 1
            continue
        sizes = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")
        times.setdefault(tuple(number(size) for size in sizes), []).append(time_s)
    return times


def _unlike(queries: str, keys: str, window: str, beams: str) -> str:
    if not {queries, keys} <= _SIXTEEN_BITS:
        return "attention with queries or keys of 8 bits"
    if window not in ("", "0"):
        return "attention in a window: not modelled"
    return "" if beams == "1" else "attention with several beams"
