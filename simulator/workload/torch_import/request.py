"""What is asked of a trace, ``--workload torch:...`` with the shapes of the inputs, and what it gives."""

import re

from simulator.errors import nearest, one_line, refused
from simulator.records import dataclass

DTYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "bool")
_FORM = "torch:package.module:factory"
_MAX_SIDE = 10**9


@dataclass(frozen=True, slots=True)
class InputShape:
    """The shape of one input without its batch dimension, and torch's name of its number format."""

    sizes: tuple[int, ...]
    dtype: str = "float32"


@dataclass(frozen=True, slots=True)
class TorchRequest:
    """A parsed ``text``.  Without ``shapes``, the factory provides the inputs."""

    text: str
    module: str
    factory: str
    shapes: tuple[InputShape, ...] = ()


def parse_torch(text: str) -> TorchRequest:
    """Return the request ``torch:package.module:factory[:3x224x224]``; raises InputError, with the valid form."""
    parts = text.split(":")
    if parts[0] != "torch" or len(parts) not in (3, 4) or not all(parts):
        raise refused(
            "workload",
            f"write {_FORM}, for example torch:models:build, or {_FORM}:3x224x224 with the shape of one input",
            one_line(text, 80),
        )
    for name, what in ((parts[1], "module"), (parts[2], "factory")):
        if not all(part.isidentifier() for part in name.split(".")) or name.endswith(".py"):
            said = "write a.b for a/b.py" if "/" in name or name.endswith(".py") else f"write {_FORM}"
            raise refused("workload", f"'{one_line(name, 60)}' is not a name of a {what}; {said}", one_line(text, 80))
    try:
        shapes = tuple(_shape(part.strip()) for given in parts[3:] for part in given.split(","))
    except ValueError as error:
        raise refused("workload", str(error), one_line(text, 80)) from None
    return TorchRequest(text, parts[1], parts[2], shapes)


def _shape(text: str) -> InputShape:
    """Return the shape of one input: ``3x224x224``, ``128xint64``; raises ValueError with the valid form."""
    *sizes, last = text.split("x")
    dtype = last if last in DTYPES else "float32"
    if re.fullmatch(r"\d+", last, re.ASCII):
        sizes.append(last)
    elif not last:
        sizes = []
    elif last not in DTYPES and re.fullmatch(r"[A-Za-z]\w*", last, re.ASCII) and sizes:
        raise ValueError(f"the shape '{one_line(text, 40)}': no number format '{last}'; {nearest(last, DTYPES)}")
    if not sizes or not all(re.fullmatch(r"\d{1,10}", size, re.ASCII) and 0 < int(size) <= _MAX_SIDE for size in sizes):
        raise ValueError(
            f"'{one_line(text, 40)}' is no shape of an input without its batch; "
            "write 3x224x224, or 128xint64 for 128 tokens"
        )
    return InputShape(tuple(int(size) for size in sizes), dtype)
