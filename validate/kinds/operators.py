"""Tables of measured operators (``ops.csv``, docs/scoring.md) and of launches: a question is by shape, not by time."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, get_args

from simulator.api.calibrations import StepPass, update_pass
from simulator.api.session import Question
from simulator.errors import one_line
from simulator.questions.single import Call, Issued, Launched, LaunchQuestion, OperatorQuestion
from simulator.records import replace
from simulator.topology.parts import CpuPart, GpuPart
from simulator.workload import operators as ops
from simulator.workload.kernels import PassForm, Streaming
from simulator.workload.operators.moves import Gated, Permute, Rotary
from simulator.workload.precision import ELEMENT_BYTES, PRECISIONS, Precision
from validate.kinds import timing as clocks
from validate.kinds.kind import CELLS, WORDS, Cell, RowQuestion, Timed, kind_of
from validate.tables.cells import MOST_THREADS, NotScored, measured_s, number, whole_cell
from validate.tables.names import RowNames

_MAX_SIZE = 1e10
_PHASES = ("fwd", "bwd_data", "bwd_weight", "bwd")
_WORDS = {"cache": ("warm", "cold"), "order": ("row", "column"), "clock": ("events", "host")}
_VARIANTS: Mapping[str, Sequence[str]] = WORDS["variants"]
_GRADIENTS = {"NT": "fwd", "NN": "bwd_data", "TN": "bwd_weight"}
"""What a batched product of Transformer Engine is: it has none but of experts, whose layouts tell the gradients."""
_TWO_INPUTS = frozenset(("add", "mul", "div", "pow", "sub"))


def read_operator(cell: Cell, names: RowNames) -> RowQuestion:
    """Return a row's question, given *cell* (text of a column); raises NotScored, with the reason, if it cannot."""
    op, phase, precision = cell("op"), cell("phase") or "fwd", cell("dtype")
    _check_words(cell, op, phase, precision)

    def size(column: str, default: int | None = None) -> int:
        text = cell(column)
        if not text and default is not None:
            return default
        return 0 if text == "0" and column.startswith("pad") else whole_cell(column, text, _MAX_SIZE)

    variant, software = cell("variant"), cell("software")
    is_te = "transformer" in software.lower() and "engine" in software.lower()
    if op == "bmm" and phase == "fwd" and is_te and variant in _GRADIENTS:
        op, phase, variant = "grouped_linear", _GRADIENTS[variant], ""
    operator = _READERS[op](size, lambda column: variant if column == "variant" else cell(column))
    if isinstance(operator, ops.GroupedLinear) and is_te:  # on streams, adding gradients to Megatron-LM's buffer
        operator = replace(operator, grouping=operator.grouping if variant else "streams", into_buffer=True)
    where, device = names.devices.where(cell("device"))
    part = names.devices.described(cell("device"))
    on_cpu, alone = isinstance(part, CpuPart), cell("includes_dispatch") == "1"
    issued = "" if alone else cell("issue")
    said = CELLS["cpu threads"].fullmatch(cell("schedule"))
    threads = cell("threads") or (said[1] if said else "")
    question = OperatorQuestion(
        where=where,
        operator=operator,
        phase=cast(ops.Phase, phase),
        precision=cast(Precision, precision),
        device=device,
        channels_last=op in ("conv2d", "batch_norm", "sum") and variant == "channels_last",
        is_cold=cell("cache") == "cold",
        issued=cast(Issued, issued) if issued in get_args(Issued) else "",
        calls=alone,
        threads=whole_cell("threads", threads, MOST_THREADS) if on_cpu and threads else None,
    )
    for column in ("compiled", "searched"):
        if cell(column) not in ("", "0", "1"):
            raise NotScored(f"{column} '{one_line(cell(column), 20)}' is neither 0 nor 1")
    timing: Timed | None = None
    besides: tuple[Question, ...] = ()
    if isinstance(operator, ops.Attention):
        elements = clocks.copied_besides(operator, software)
        besides = (replace(question, operator=ops.Copy(elements), phase="fwd"),) if elements else ()
        if clocks.replays(software) and isinstance(part, GpuPart):
            clocks_s = clocks.cache_warps(operator, software) / ((part.sm_count or 1) * (part.boost_clock or math.inf))
            timing = Timed(clocks.replayed_s, (clocks_s, besides))
        timing = Timed(clocks.with_overhead_s, ("te_attention_s",)) if is_te and not alone else timing
    if alone and not on_cpu and cell("clock") == "host":
        timing = clocks.by_host(where, device, operator, is_compiled=cell("compiled") == "1")
    elif alone and not on_cpu:
        searched = op == "conv2d" and cell("searched") == "1"
        timing = clocks.between_events(device, operator, question.phase, searched=searched)
    elif issued == "alone" and isinstance(part, GpuPart) and part.vendor == "nvidia":
        timing = Timed(clocks.with_overhead_s, ("alone_s",))
    return RowQuestion(question, besides, timing)


def _check_words(cell: Cell, op: str, phase: str, precision: str) -> None:
    variants, variant = _VARIANTS.get(op), cell("variant")
    known = ", ".join([*(variants or ()), "or empty"]).removeprefix("or ")
    wrong = {
        f"no such phase: {one_line(phase, 20)}": phase not in _PHASES,
        f"no such dtype: {one_line(precision, 20) or 'none'}; {', '.join(PRECISIONS)}": precision not in PRECISIONS,
        f"no model of {one_line(op, 30) or 'an operator without a name'}": op not in _READERS,
        f"{op} in nvfp4 is not modelled; linear is": precision == "nvfp4" and op != "linear",
        f"{op} '{one_line(variant, 20)}' is not modelled; {known}": variants is not None
        and variant not in ("", *variants),
        **{
            f"no such {column}: {one_line(cell(column), 20)}; {' or '.join(words)}": cell(column) not in ("", *words)
            for column, words in _WORDS.items()
        },
    }
    for why, holds in wrong.items():
        if holds:
            raise NotScored(why)


Size = Callable[..., int]


def _matmul(size: Size, cell: Cell) -> ops.Operator:
    """Read ``batch`` products of (m, k) by (k, n); ``variant`` says whether either factor is stored transposed."""
    m, n, k, batch = size("m"), size("n"), size("k"), size("batch", 1)
    letters = cell("variant") or "NN"
    if cell("order") == "column":  # a BLAS call; by rows the same call computes C^T = B^T A^T
        m, n, letters = n, m, letters[::-1]
    return ops.MatMul(m, n, k, batch, letters)  # type: ignore[arg-type]


def _grouped(size: Size, cell: Cell) -> ops.Operator:
    """Read the products of ``batch`` experts: each multiplies ``m`` rows, and the busiest ``rows``."""
    each, experts = size("m"), size("batch")
    busiest = size("rows", each)
    if busiest < each:
        raise NotScored("rows, those of the busiest expert, are fewer than m, those of the others")
    rows = busiest + (experts - 1) * each
    sizes = rows, size("k"), size("n"), False, experts, busiest if busiest > each else 0
    return ops.GroupedLinear(*sizes, grouping=cast(ops.Grouping, cell("variant") or "kernel"))


def _conv2d(size: Size, _: Cell) -> ops.Operator:
    stride, pad = size("stride", 1), size("pad", 0)
    columns = ("batch", "c_in", "c_out", "h_in", "w_in", "kernel_h", "kernel_w")
    sizes: dict[str, Any] = {name: size(name) for name in columns}
    sizes |= {"stride_h": stride, "stride_w": size("stride_w", stride), "pad_h": pad, "pad_w": size("pad_w", pad)}
    found = ops.Conv2d(**sizes, groups=size("groups", 1))
    if found.h_out < 1 or found.w_out < 1:
        raise NotScored("the kernel is larger than the image")
    if found.c_in % found.groups or found.c_out % found.groups:
        raise NotScored("groups do not divide the channels")
    return found


def _copy_or_cast(size: Size, cell: Cell) -> ops.Operator:
    """Read a copy, in the form ``variant``, or a cast to the format ``variant``."""
    n, read = size("rows") * size("cols"), ELEMENT_BYTES[cast(Precision, cell("dtype"))]
    written, form = read, cell("variant")
    if cell("op") == "cast":
        if not form:
            raise NotScored("a cast needs the format that it writes in variant")
        written = ELEMENT_BYTES[cast(Precision, form)]
        form = "casts" if written > read else ""
    return StepPass(n, (Streaming("copy", n, n * read, n * written, cast(PassForm, form)),))


def _update(size: Size, cell: Cell) -> ops.Operator:
    rule, _, fused = (cell("variant") or "adam").partition("-")
    return update_pass(cast(Any, rule), size("rows") * size("cols"), cast(Precision, cell("dtype")), fused=bool(fused))


def _max_pool(size: Size, _: Cell) -> ops.Operator:
    kernel, stride, pad = size("kernel_h"), size("stride", 1), size("pad", 0)
    height, width = ((size(side) + 2 * pad - kernel) // stride + 1 for side in ("h_in", "w_in"))
    if min(height, width) < 1:
        raise NotScored("the window is larger than the image")
    sizes = size("batch"), size("c_in"), size("h_in"), size("w_in"), height, width
    return ops.Pool("max", *sizes, kernel, kernel)


def _elementwise(size: Size, cell: Cell) -> ops.Operator:
    function = cell("variant").lower()
    of, _, how = function.partition("_")
    n, own, wide = size("rows") * size("cols"), ELEMENT_BYTES[cast(Precision, cell("dtype"))], ELEMENT_BYTES["fp32"]
    # With another in fp32, in which the result is, as large or a row of a table; with a row in its own format.
    ways = {"mixed": (own + wide, wide, "casts"), "widened": (own, wide, "casts"), "broadcast": (own, own, "strided")}
    if how in ways:
        read, written, form = ways[how]
        return StepPass(n, (Streaming(of, n, n * read, n * written, cast(PassForm, form)),))
    return ops.Elementwise(function, n, 2 if function in _TWO_INPUTS else 1)


def _recurrent(size: Size, cell: Cell) -> ops.Operator:
    """Read a recurrent layer as wide as its state: DeepBench's adds its input, torch's multiplies it with weights."""
    hidden = size("hidden")
    inputs = hidden if cell("software").startswith("torch") else 0
    return ops.Recurrent(cell("op"), size("batch"), size("timesteps"), inputs, hidden)  # type: ignore[arg-type]


def _attention(size: Size, cell: Cell) -> ops.Operator:
    """Read ``m`` queries, ``n`` keys of size ``k``; ``batch`` heads in all, ``heads`` a sequence on ``kv_heads``."""
    if cell("dtype") in ("fp8", "int8"):
        raise NotScored("attention of 8 bits is not modelled")
    batch, heads = size("batch"), size("heads", 1)
    kv_heads = size("kv_heads", heads)
    if batch % heads:
        raise NotScored("heads do not divide batch, which counts those of all sequences")
    if heads % kv_heads:
        raise NotScored("kv_heads do not divide heads")
    queries, keys = size("m"), size("n")
    if queries == 1 < keys:
        raise NotScored("attention of one query (decode) is not modelled")
    shared, library = kv_heads if kv_heads != heads else 0, clocks.attention_library(cell("software"))
    return ops.Attention(batch // heads, heads, queries, keys, size("k"), shared, cell("variant") == "causal", library)


_READERS: dict[str, Callable[[Size, Cell], ops.Operator]] = {
    "linear": lambda size, cell: ops.Linear(
        size("batch", 1) * size("m"), size("k"), size("n"), bias=cell("variant") != "lm_head"
    ),
    **dict.fromkeys(("matmul", "bmm"), _matmul),
    "grouped_linear": _grouped,
    "conv2d": _conv2d,
    "elementwise": _elementwise,
    "cross_entropy": lambda size, cell: (ops.InPlaceCrossEntropy if cell("variant") else ops.CrossEntropy)(
        size("rows"), size("cols")
    ),
    "permute": lambda size, cell: Permute(size("rows"), size("cols"), size("batch"), cell("variant") == "back"),
    "rotary": lambda size, _: Rotary(size("rows") * size("cols")),
    "gated": lambda size, cell: Gated(size("rows") * size("cols"), "gelu" if cell("variant") == "gelu" else "silu"),
    **dict.fromkeys(("cast", "copy"), _copy_or_cast),
    "update": _update,
    "sum": lambda size, _: ops.Reduction(size("rows"), size("cols")),
    "max_pool": _max_pool,
    "softmax": lambda size, cell: ops.Softmax(
        size("rows"), size("cols"), holds_rows=clocks.is_torch_since(cell("software"), (2, 8))
    ),
    "layer_norm": lambda size, _: ops.LayerNorm(size("rows"), size("cols")),
    "batch_norm": lambda size, _: ops.BatchNorm(size("batch"), size("c_in"), size("h_in"), size("w_in")),
    "embedding": lambda size, cell: ops.Embedding(
        size("rows"), size("cols"), whole_rows=clocks.is_torch_since(cell("software"), (2, 8))
    ),
    **dict.fromkeys(("rnn", "lstm", "gru"), _recurrent),
    "attention": _attention,
}

OPERATORS = kind_of("operators", read=read_operator, measured_s=lambda cell, _names: number("time_s", cell("time_s")))


_CALLS: Mapping[str, tuple[Call, Launched]] = WORDS["calls"]
_SMALL, _ALONE, _LAYERS = (
    {name: getattr(ops, said[0])(*said[1:]) for name, said in WORDS[which].items()}
    for which in ("small", "alone", "layers")
)
_PARAMETERS: Mapping[str, int] = WORDS["parameters of layers"]
_OPTIMISED = 64  # parameters of the measured optimisers
_FLOOR = ops.Elementwise("mul_scalar", (64 << 10) // 16)  # fp64, 64 KiB read and written
_CAPTURED = ops.Elementwise("relu", 64)
_CASTS = (ops.Elementwise("cast", 16 * 16), ops.Elementwise("cast", 16))  # under autocast: of the weight and the bias
_Said = dict[str, Any]  # fields of the question


def read_launch_row(cell: Cell, names: RowNames) -> RowQuestion:
    """Return the question that a row asks; raises NotScored if it is not modelled."""
    said, way = _said(cell)
    where, device = names.devices.where(cell("device"))
    question = LaunchQuestion(where=where, device=device, **said)
    layer = CELLS["layer"].match(cell("metric"))
    casts = _CASTS if layer and layer[1].endswith(" under autocast to bf16") else ()
    besides = tuple(replace(question, operator=cast, parameters=0) for cast in casts)
    on_gpu = not isinstance(names.devices.described(cell("device")), CpuPart)
    if way == "alone" and on_gpu and question.operator is not None and not question.kernels and said != _FLOOR_SAID:
        return RowQuestion(question, timing=clocks.between_events(device, question.operator, "fwd"))
    return RowQuestion(question, besides)


def _said(cell: Cell) -> tuple[_Said, str]:
    """Return a row's fields and way of launching ("alone": by itself, on GPUs between two events); raises NotScored."""
    metric, mode = cell("metric"), cell("mode")
    layer, least = CELLS["layer"].match(metric), CELLS["least latency"].match(metric)
    for found, table in ((layer, _LAYERS), (least, _ALONE)):
        if found and found[1] not in table:
            raise NotScored(f"no model of {one_line(found[0], 50)}")
    if layer:
        said: _Said = {"operator": _LAYERS[layer[1]], "timed": "host", "is_taped": True}
        if "backward" not in layer[2]:
            return said, "host"
        return {**said, "phases": ("fwd", "bwd"), "parameters": _PARAMETERS.get(layer[1], 0)}, "both"
    if graph := CELLS["graph"].match(metric):
        way = "host" if graph[1] == "host time" else "alone" if "alone" in mode else "graph"
        return {"operator": _CAPTURED, "kernels": int(graph[2]), "timed": _TIMED[way]}, way
    if metric.startswith("per-kernel time floor, 64 KiB SCALE kernel"):
        way = "staying" if "persistent" in mode else _way(mode)
        return {**_FLOOR_SAID, "timed": way if way in ("staying", "graph") else "device"}, way
    if least:
        return {"operator": _ALONE[least[1]], "timed": "device"}, "alone"
    if metric in _CALLS:
        call, timed = _CALLS[metric]
        return {"call": call, "timed": timed}, "host"
    small = next((name for name in _SMALL if metric.removeprefix("host ").startswith(f"time of {name}")), None)
    if small is not None:
        way = "host" if metric.startswith("host") else _way(mode)
        return {"operator": _SMALL[small], "timed": _TIMED[way]}, way
    if metric.startswith("host time of a step of ") and metric.endswith((", foreach", ", fused")):
        return {"parameters": _OPTIMISED, "timed": "host"}, "host"
    raise NotScored(f"no model of {one_line(metric, 50) or 'a launch without a name'}")


_TIMED = {"graph": "graph", "alone": "device", "stream": "stream", "host": "host"}


def _way(mode: str) -> str:
    for word, way in (("graph", "graph"), ("alone", "alone"), ("one after the other", "stream"), ("stream", "stream")):
        if word in mode:
            return way
    raise NotScored(f"no model of launches by {one_line(mode, 40) or 'an unnamed way'}")


_FLOOR_SAID: _Said = {"operator": _FLOOR, "precision": "fp64", "timed": "device"}


LAUNCH = kind_of(
    "launch",
    read=read_launch_row,
    measured_s=lambda cell, _names: measured_s(cell, None),
    labelled=lambda cell, _names: {"issue": _said(cell)[1]},
)
