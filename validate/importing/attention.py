"""Causal attention over whole sequences (prefill), as frameworks for inference run it.

``collector/*/collect_attn.py`` of the package's repository captures one call and replays it, so that what fits the
last cache is found there.  Data are bf16 whatever the rows say.  A call also writes keys and values into a paged
cache, TensorRT-LLM's rotates queries and keys besides; these are kernels of their own, or fused.  Attention with
keys in fp8 or of a window is another question, and so is that of one query (decode): they are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

from validate.importing.aiconfigurator import Source, Table
from validate.importing.tables import DATASET, LeftOut, Row, Times, graded, latency_s, seconds
from validate.tables.share import Share

__all__ = ["attention_rows"]

_NEEDED = (
    *("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim", "beam_width"),
    *("attn_dtype", "kv_cache_dtype", "step", "latency"),
)
_SIXTEEN_BITS = frozenset(("float16", "bfloat16"))
_INSIDE = {"trtllm": "rotates; writes cache"}
_SINKS = 64  # TensorRT-LLM's collector gives heads of this size a sink each


def attention_rows(source: Source, device: str, share: Share, left_out: LeftOut) -> tuple[list[Row], Sequence[Table]]:
    """Return the rows of *device* and the tables that they are of; count in *left_out* what they leave out."""
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
    """Return the times by (batch, length, heads, heads of keys, size of a head)."""
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
