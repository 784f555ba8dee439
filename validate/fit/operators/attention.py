"""Fit the constants of attention: ``python -m validate.fit.operators.attention ops.csv ...``.

It takes tables of docs/published.md.  Constants are fitted to SGLang's alone: it runs one family of kernels on all
devices before Blackwell, and what it runs besides is a short copy.  In vLLM's keys are gathered page by page, which
training does not do, and writing the cache costs more by how many heads there are; TensorRT-LLM's kernels are its own.
Sequences of fewer than 128 tokens are left out, as nobody trains on them.  Rows of long ones with fewer blocks than a
device has SMs are left out: keys are divided among blocks there, which is done where nothing goes backward; so are, up
to Ada, heads that share keys, which SGLang's kernel packs into one tile and FlashAttention 2 does not.  One shape of
16 is held out, as docs/published.md draws it: constants have not seen it, though which rows count was chosen with all
of them in sight.  What a replay costs besides kernels is fitted along, and is no part of the model.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from simulator.devices.gpu.attention import ATTENTION, AttentionCosts, attention_cost
from simulator.devices.gpu.attention_blocks import blocks_of
from simulator.devices.kernels import FusedAttention
from simulator.devices.predict import kernel_cost
from simulator.workload.operators import Attention
from validate.fit.constants import Fitted, fit_constants
from validate.fit.operators.judge import evenly_spaced, left_out
from validate.fit.operators.rows import Measured, read_measured
from validate.importing.sample import HELD_OUT
from validate.operators.predict import as_issued, operator_kernels
from validate.operators.serving import REPLAY_S, replays

__all__ = ["Constants", "fit_attention", "is_fitted", "is_held_out", "main", "predicted_s"]

# Constant by constant: what was assumed, and how firmly it is held to it (the change of its logarithm is an error).
_ASSUMED = {
    "products": (0.8, 0.5),
    "exponentials": (0.5, 0.5),
    "block_clocks": (3000.0, 0.5),
    "exposed_memory": (1.0, 0.5),
    "alone": (1.3, 2.0),
    "last": (0.5, 2.0),
    "replay_s": (5e-6, 0.5),
}
_FACTOR = 10.0  # bounds: so many times less or more than assumed
_ROWS_EACH = 300
_SHORTEST = 128  # queries
_DIVIDED = 256  # keys, beyond which they may be divided


@dataclass(frozen=True, slots=True)
class Constants:
    """Those of the model that are fitted, and the time of a replay."""

    products: float = ATTENTION.products
    exponentials: float = ATTENTION.exponentials
    block_clocks: float = ATTENTION.block_clocks
    exposed_memory: float = ATTENTION.exposed_memory
    alone: float = ATTENTION.alone
    last: float = ATTENTION.last
    replay_s: float = REPLAY_S

    @property
    def costs(self) -> AttentionCosts:
        """The constants of the model."""
        values = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "replay_s"}
        return replace(ATTENTION, **values)


def _shape(row: Measured) -> tuple[int, ...]:
    operator = row.query.operator
    assert isinstance(operator, Attention)
    kv_heads = operator.kv_heads or operator.heads
    return operator.batch, operator.query_length, operator.heads, kv_heads, operator.head_size


def is_held_out(row: Measured) -> bool:
    """Return whether no constant may be fitted to *row*."""
    return HELD_OUT.holds(_shape(row))


def is_fitted(row: Measured) -> bool:
    """Return whether constants may be fitted to *row*."""
    kernel = next(k for k in operator_kernels(row.query) if isinstance(k, FusedAttention))
    packs = row.gpu.traits.operands == "warps"
    is_alike = packs or kernel.kv_heads == kernel.heads
    is_whole = kernel.key_length <= _DIVIDED or blocks_of(kernel, packs=packs).count >= row.gpu.sm_count
    is_trained_on = kernel.query_length >= _SHORTEST
    return row.query.software.startswith("sglang") and is_trained_on and is_alike and is_whole and not is_held_out(row)


def predicted_s(row: Measured, constants: Constants | None = None) -> float:
    """Return the predicted seconds of *row*."""
    constants = constants or Constants()
    costs = constants.costs
    time_s = constants.replay_s if replays(row.query.software) else 0.0
    for kernel in operator_kernels(row.query):
        is_attention = isinstance(kernel, FusedAttention)
        cost = attention_cost(row.gpu, kernel, costs) if is_attention else kernel_cost(row.gpu, kernel)  # type: ignore[arg-type]
        time_s += as_issued(row.gpu, cost.time_s, row.query)
    return time_s


def fit_attention(
    rows: Sequence[Measured], *, most: int = _ROWS_EACH, max_evaluations: int | None = 12
) -> Fitted[Constants]:
    """Return the constants fitted to those of *rows* for which :func:`is_fitted` holds, as many of each device."""
    used = evenly_spaced([row for row in rows if is_fitted(row)], most, lambda row: row.gpu.name)

    def errors(candidate: Constants) -> list[float]:
        found = [math.log(predicted_s(row, candidate) / row.time_s) for row in used]
        return found + [firm * math.log(getattr(candidate, n) / value) for n, (value, firm) in _ASSUMED.items()]

    bounds = {name: (value / _FACTOR, value * _FACTOR) for name, (value, _) in _ASSUMED.items()}
    bounds["alone"] = (1.0, 2.0)
    return fit_constants(Constants(), bounds, errors, max_evaluations=max_evaluations)


def main(argv: Sequence[str]) -> None:
    """Print the constants, and the errors of shapes held out: fitted to all devices, and without the device judged."""
    rows: list[Measured] = []
    for file in argv:
        if not file.startswith("--"):
            rows += read_measured(file, grades=("A", "B"), ops=("attention",))
    judged = [row for row in rows if is_held_out(row)]
    _print_errors("before", judged, lambda _: Constants())
    if "--judge" in argv:
        return
    fitted = fit_attention(rows)
    for name, spread in fitted.spread.items():
        print(f"    {name}: float = {getattr(fitted.constants, name):.3g}  # +- {spread:.0%}")  # noqa: T201
    _print_errors("shapes held out", judged, lambda _: fitted.constants)
    if "--in-sample" not in argv:
        without = left_out(rows, lambda others: fit_attention(others).constants)
        _print_errors("shapes held out, device left out", judged, lambda row: without[row.query.device])
        unseen = {
            name: fit_attention([row for row in rows if row.gpu.generation != name]).constants
            for name in sorted({row.gpu.generation for row in rows})
        }
        _print_errors("shapes held out, generation left out", judged, lambda row: unseen[row.gpu.generation])


def _print_errors(title: str, rows: Sequence[Measured], constants: Callable[[Measured], Constants]) -> None:
    groups: dict[tuple[str, str, int, str], list[float]] = {}
    for row in rows:
        error = predicted_s(row, constants(row)) / row.time_s - 1.0
        _, _, heads, kv_heads, head_size = _shape(row)
        keys = "own" if heads == kv_heads else "shared"
        groups.setdefault((row.query.device, row.query.software, head_size, keys), []).append(error)
    heading = f"{'device':16} {'software':16} {'head':>4} {'keys':6} {'rows':>5} {'median':>7} {'90 %':>7} {'bias':>7}"
    lines = ["", title, heading]
    for (device, software, head, keys), errors in sorted(groups.items()):
        sizes = sorted(abs(error) for error in errors)
        figures = (statistics.median(sizes), sizes[int(0.9 * len(sizes))], statistics.median(errors))
        percent = " ".join(f"{100 * figure:6.1f}%" for figure in figures)
        lines.append(f"{device:16} {software:16} {head:4} {keys:6} {len(errors):5} {percent}")
    print("\n".join(lines))  # noqa: T201  the command's output


if __name__ == "__main__":
    main(sys.argv[1:])
