"""A network description as stored in its file, the built-in networks, and the operators of one, one by one.

``simulator/workload/described.py`` specifies the format.  A line of the file of built-in networks describes one for one
sample, and for more: there a size that grows with the batch is its value ``at`` one sample and what each further sample
adds (``more``).  ``tests/written_networks.py`` writes the file from the simulator's networks.
"""

import json
import lzma
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

_VERSION = 1


class DescribedParameter(NamedTuple):
    """A weight or a bias; layers that name the same parameter share it."""

    name: str
    elements: int
    trained: bool


class DescribedLayer(NamedTuple):
    """An operator with its sizes, the numbers of its input tensors and the number of its output tensor."""

    name: str
    operator: str
    sizes: Mapping[str, Any]
    inputs: tuple[int, ...]
    output: int
    parameters: tuple[DescribedParameter, ...] = ()
    in_place: bool = False

    def size(self, name: str, default: int = 0) -> int:
        """Return the size *name*; *default* where the file omits it."""
        return int(self.sizes.get(name, default))


class Description(NamedTuple):
    """A network for a batch of ``samples``; ``fed`` are the tensors that no layer writes, the inputs."""

    name: str
    layers: tuple[DescribedLayer, ...]
    elements: tuple[int, ...]
    samples: int
    sample: str = "images"
    fed: tuple[int, ...] = ()

    @property
    def parameter_count(self) -> int:
        """Return the number of elements of all parameters, counting shared ones once."""
        return sum({p.name: p.elements for layer in self.layers for p in layer.parameters}.values())


class DescriptionFile(NamedTuple):
    """The location of a description: file ``name``, relative to the measurements ``folder``."""

    folder: str
    name: str

    def read(self) -> Description:
        """Return the network; raises as :func:`read_description`."""
        return read_description(str(Path(self.folder) / self.name))


@lru_cache(maxsize=4)
def read_description(path: str) -> Description:
    """Return the network in the file *path*; raises ValueError where it is invalid, OSError where it is unreadable."""
    try:
        return description_of(json.loads(Path(path).read_text(encoding="utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: is no network that is written out ({type(error).__name__}: {error})") from None


def description_of(found: Mapping[str, Any]) -> Description:
    """Return the network in the document *found*; raises ValueError, KeyError, TypeError or AttributeError."""
    if found["schema_version"] != _VERSION:
        raise ValueError(f"schema_version must be {_VERSION}")
    layers = []
    for raw in found["layers"]:
        said = str(raw["name"]), str(raw["operator"]), dict(raw["sizes"]), tuple(map(int, raw["inputs"]))
        output, parameters = int(raw["output"]), raw.get("parameters", ())
        own = tuple(DescribedParameter(str(name), int(n), bool(trained)) for name, n, trained in parameters)
        layers.append(DescribedLayer(*said, output, own, bool(raw.get("in_place"))))
    fed = tuple(sorted({number for layer in layers for number in layer.inputs} - {layer.output for layer in layers}))
    elements, samples = tuple(map(int, found["elements"])), int(found["samples"])
    return Description(str(found["network"]), tuple(layers), elements, samples, str(found["sample"]), fed)


FILE = Path(__file__).with_name("builtin.jsonl.xz")


class Sizes(NamedTuple):
    """Sizes of a sequence network; 0 stands for the network's default."""

    length: int = 0
    hidden: int = 0
    heads: int = 0
    layers: int = 0
    vocabulary: int = 0


class Facts(NamedTuple):
    """A network's kind of samples, default length or side, 0 for others; ``norms``: "fused" where it has RMSNorms."""

    sample: str
    length: int
    image: int
    norms: str = ""


@cache
def _lines() -> Mapping[tuple[str, Sizes, bool], Mapping[str, Any]]:
    lines = map(json.loads, lzma.decompress(FILE.read_bytes()).decode().splitlines())
    return {(line["model"], Sizes(**line["sizes"]), line["training"]): line for line in lines}


@cache
def names() -> tuple[str, ...]:
    """Return the names of the networks."""
    return tuple(dict.fromkeys(model for model, _, _ in _lines()))


def builtin_facts(model: str) -> Facts:
    """Return what a table says of the network *model*."""
    line = _lines()[model, Sizes(), True]
    kinds = (layer["sizes"].get("kind") for layer in line["one"]["layers"])
    return Facts(line["more"]["sample"], line["length"], line["image"], "fused" if "rms_norm" in kinds else "")


@lru_cache(maxsize=4)
def builtin_network(model: str, sizes: Sizes, batch: int, *, training: bool) -> Description:
    """Return *model* of *sizes* for *batch*, in training with its loss; raises ValueError if the file lacks it."""
    line = _lines().get((model, sizes, training))
    if line is None:
        raise ValueError(f"{model} of {sizes._asdict()} is not written out")
    return description_of(line["one"] if batch == 1 else _of_batch(line["more"], batch))


def _of_batch(value: Any, batch: int) -> Any:
    if isinstance(value, list):
        return [_of_batch(each, batch) for each in value]
    if not isinstance(value, dict):
        return value
    if "at" in value:
        return value["at"] + value["more"] * (batch - 1)
    return {key: _of_batch(each, batch) for key, each in value.items()}


Cells = dict[str, str | int]
OPERATORS: Mapping[str, Any] = json.loads(Path(__file__).with_name("operators.json").read_text(encoding="utf-8"))
"""Elementwise ``functions`` that are measured, with the number of tensors that they read, and those of them
``with_gradient`` kernels of their own, in torch.ops.aten; an operator's ``cells`` by size, where others are usual;
``products``; operators that autocast computes ``in_fp32``; the phases of ``backward`` passes; and the sizes whose
product an operator ``reads`` of each input, the last of all that follow; sizes that say the columns, or the values, of
each input that is ``fed``.  Of functions: those ``of_two`` tensors, ``choosing`` by a mask that stays in the cache,
``losses``; what torch has ``renamed``, gives an ``in_place_option`` and no function of its own, or has
``not_in_torch``; a ``scalar`` that is the second operand; ``no_unary`` functions.
"""


class OperatorPart(NamedTuple):
    """An operator in a phase: its cells, the first ``layer`` that uses it, and why it has no case (``reason``)."""

    layer: str
    cells: Cells
    reason: str = ""


def operator_parts(
    description: Description, policy: str, phase: str, *, channels_last: bool = False
) -> Iterator[OperatorPart]:
    """Yield each distinct operator of *description*, forward and when training backward, or why it has no case."""
    seen: set[tuple[tuple[str, str | int], ...]] = set()
    for layer in description.layers:
        found = _cells(layer)
        cells, reason = (found, "") if not isinstance(found, str) else (Cells(op=layer.operator), found)
        if reason:
            cells["variant"] = str(layer.sizes.get("function", ""))
        cells["dtype"] = _dtype(policy, layer.operator)
        if layer.operator in ("Conv2d", "BatchNorm", "Pool") and channels_last and not reason:
            cells["variant"] = "channels_last"
        trains = phase in ("train", "bwd") and not reason
        of_function = ("bwd",) if cells.get("variant") in OPERATORS["with_gradient"] else ()
        backward = of_function or OPERATORS["backward"].get(str(cells["op"]), ())
        for each in ("fwd", *(backward if trains else ())):
            mine = {**cells, "phase": each}
            if each != "fwd" and cells["op"] == "linear":
                mine["variant"] = "lm_head"  # without bias, whose gradient is summed by a separate kernel
            key = tuple(sorted(mine.items()))
            if key not in seen:
                seen.add(key)
                yield OperatorPart(layer.name, mine, reason)


def _dtype(policy: str, operator: str) -> str:
    if policy == "torch":
        return "tf32" if operator == "Conv2d" else "fp32"
    if policy == "tf32":
        return "tf32" if operator in OPERATORS["products"] else "fp32"
    return "fp32" if policy.startswith("amp-") and operator in OPERATORS["in_fp32"] else policy.removeprefix("amp-")


def _cells(layer: DescribedLayer) -> Cells | str:
    s, sizes = layer.size, layer.sizes
    op, columns, usual = OPERATORS["cells"].get(layer.operator, ("", {}, {}))
    if op and all((sizes.get(name) or value) == value for name, value in usual.items()):
        return {"op": op, **{column: s(name, name == "batch") for column, name in columns.items()}}
    match layer.operator:
        case "Linear":
            head: Cells = {} if sizes.get("bias", True) else {"variant": "lm_head"}
            return {"op": "linear", **head, "batch": 1, "m": s("rows"), "n": s("outputs"), "k": s("inputs")}
        case "Conv2d":
            return _conv(layer)
        case "Elementwise" if OPERATORS["functions"].get(sizes["function"]) == s("inputs", 1):
            return {"op": "elementwise", "variant": str(sizes["function"]), "rows": 1, "cols": s("elements")}
        case "Pool" if sizes["kind"] == "max" and s("kernel_h") == s("kernel_w"):
            return _max_pool(layer)
        case "Attention" if s("value_size") in (0, s("head_size")) and not s("window"):
            way: Cells = {"variant": "causal"} if sizes.get("causal") else {}
            lengths = {"m": s("query_length"), "n": s("key_length"), "k": s("head_size")}
            shared = {"heads": s("heads"), "kv_heads": s("kv_heads")} if s("kv_heads") not in (0, s("heads")) else {}
            return {"op": "attention", **way, "batch": s("batch") * s("heads"), **lengths, **shared}
        case "GroupedLinear" if not s("busiest") and sizes.get("grouping", "kernel") == "kernel":
            each = {"m": s("rows") // s("experts"), "n": s("outputs"), "k": s("inputs")}
            return {"op": "grouped_linear", "batch": s("experts"), **each}
        case "Recurrent" if s("inputs") == s("hidden") and sizes["cell"] != "rnn":
            return Cells(op=str(sizes["cell"])) | {name: s(name) for name in ("batch", "hidden", "timesteps")}
    return f"no case measures {sizes.get('function') or layer.operator} by itself in these sizes"


def _max_pool(layer: DescribedLayer) -> Cells | str:
    """Return the cells of a pool whose windows, of the usual stride and padding, are as many as the layer's."""
    s, kernel = layer.size, layer.size("kernel_h")
    for stride, pad in ((kernel, 0), (2, kernel // 2), (1, kernel // 2), (2, 0)):
        if all((s(a) + 2 * pad - kernel) // stride + 1 == s(b) for a, b in (("h_in", "h_out"), ("w_in", "w_out"))):
            sizes = {"batch": s("batch"), "c_in": s("channels"), "h_in": s("h_in"), "w_in": s("w_in")}
            return {"op": "max_pool", **sizes, "kernel_h": kernel, "stride": stride, "pad": pad}
    return "no case measures pools of such windows by themselves"


def _conv(layer: DescribedLayer) -> Cells | str:
    s = layer.size
    pairs = (("h_in", "w_in", 0), ("kernel_h", "kernel_w", 0), ("stride_h", "stride_w", 1), ("pad_h", "pad_w", 0))
    if layer.sizes.get("transposed") or any(s(a, d) != s(b, d) for a, b, d in pairs) or s("dilation_h", 1) > 1:
        return "no case measures convolutions that are transposed, dilated or not square by themselves"
    own = ("batch", "c_in", "c_out", "h_in", "w_in", "kernel_h", "kernel_w")
    stride, pad = s("stride_h", 1), s("pad_h")
    last = Cells(stride=stride, pad=pad, stride_w=stride, pad_w=pad, groups=s("groups", 1))
    return Cells(op="conv2d") | {name: s(name) for name in own} | last
