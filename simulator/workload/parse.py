"""The sizes to exchange, as ``--workload`` gives them: a network, ``bytes:160MB`` or ``sweep:8B-8GB``."""

import math
import re
from collections.abc import Callable
from fractions import Fraction

from simulator.errors import nearest, one_line, refused
from simulator.records import dataclass, own_data, replace
from simulator.units import format_size, parse_quantity

OPERATIONS = ("op", "copy", "access", "launch", "disk", "message", "core")  # the words of simulator.questions.words
_MAX_SIZES = 10_000
_ANY_BATCH = 2  # parameters do not depend on it, but batch normalisation needs more than one sample


@dataclass(frozen=True, slots=True)
class Payload:
    """The sizes of the collectives to simulate, in bytes, one after the other.

    Those of a network are its gradients in fp32, until :meth:`in_type` says another type.

    ``text`` is the user's input, ``description`` an explanation or "".  A sweep is shown as a table, even with one
    size.
    ``notes``: one line for each property of a network's file that is not simulated.
    """

    text: str
    sizes: tuple[int, ...]
    description: str = ""
    is_sweep: bool = False
    notes: tuple[str, ...] = ()
    gradients: int = 0  # elements, if the text names a network

    def in_type(self, dtype: str) -> "Payload":
        """Return the payload with the network's gradients as elements of *dtype*; bytes stay what they are."""
        if not self.gradients:
            return self
        return replace(
            self, sizes=(self.gradients * type_bytes(dtype),), description=f"{self.gradients:,} gradients in {dtype}"
        )


def type_bytes(dtype: str) -> int:
    """Return the bytes of an element of the type *dtype*, which ends in its bits: bf16, int64."""
    return int(re.sub(r"\D", "", dtype)) // 8


def parse_workload(text: str) -> Payload:
    """Return the payload that *text* asks for; raises InputError, with the nearest valid form, if it is none."""
    scheme, colon, rest = text.partition(":")
    if colon and scheme in _SCHEMES:
        try:
            return _SCHEMES[scheme](text, rest)
        except ValueError as error:
            raise refused("workload", str(error), one_line(text, 60)) from None
    notes: tuple[str, ...] = ()
    # The zoo's counts for common networks, so that a command need not import the zoo.
    count: int | None = own_data("simulator.workload", "counts.json").get(text)
    is_file = not colon and count is None and text.endswith((".yaml", ".yml"))
    if not colon and count is None:
        from simulator.workload.find import is_config

        is_file = is_file or is_config(text)
    if is_file or (colon and scheme == "torch"):
        from simulator.workload.find import find_network

        source = find_network(text)
        count, notes = source.build(_ANY_BATCH).trained_count, source.notes
    elif count is None and not colon:
        from simulator.workload.zoo.registry import build_entry, entry_of

        entry = entry_of(text)
        count = build_entry(text, entry, batch=1).trained_count if entry is not None else None
    if count is not None:
        return Payload(text, (), notes=notes, gradients=count).in_type("fp32")
    from simulator.workload.zoo.registry import nearest_network

    if colon and rest.strip().endswith((".yaml", ".yml")):
        raise refused("workload", f"no such workload; a file goes alone: {one_line(rest, 60)}", one_line(text, 60))
    schemes = [f"{name}:" for name in (*_SCHEMES, *OPERATIONS)]
    hint = nearest(f"{scheme}:", schemes, listed=0) if colon else nearest_network(text, listed=0)
    forms = (
        "a network (such as resnet50 or gpt2; simulate networks), a YAML file of a network or a program, a Chakra "
        "trace (NAME.0.et), bytes:160MB, sweep:8B-8GB, or one operation "
        f"({' '.join(f'{name}:' for name in OPERATIONS)})"
    )
    found = "" if colon else " (simulate networks)"
    hint = f"{hint}{found}" if hint.startswith("did") else f"allowed: {forms}"
    raise refused("workload", f"no such workload; {hint}", one_line(text, 60))


def _whole(text: str) -> int:
    size = parse_quantity(text, "size", positive=True)
    if size != int(size):
        raise ValueError(f"a size is a whole number of bytes; {text.strip()} is {size:g} B")
    return int(size)


def _sweep(text: str, rest: str) -> Payload:
    span, colon, factor_text = rest.partition(":")
    first_text, dash, last_text = span.partition("-")
    if not dash:
        raise ValueError("a sweep goes from one size to another, for example sweep:8B-8GB")
    first, last = _whole(first_text), _whole(last_text)
    if first > last:
        raise ValueError(f"the smaller size comes first; did you mean sweep:{last_text}-{first_text}?")
    factor = Fraction(2)
    if colon:
        if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", factor_text, re.ASCII):
            raise ValueError(f"the step must be a factor, for example {span}:4; got '{one_line(factor_text, 40)}'")
        factor = Fraction(factor_text)
        if factor <= 1:
            raise ValueError(f"the step must be a factor of more than 1; got {factor_text}")
    if math.log(last / first) / math.log(factor) > _MAX_SIZES:
        raise ValueError(f"more than {_MAX_SIZES} steps; take a larger factor than {factor_text}")
    sizes: list[int] = []
    size = Fraction(first)
    while size <= last:
        if not sizes or int(size) > sizes[-1]:
            sizes.append(int(size))
        size *= factor
    if sizes[-1] < last:  # the size that was asked for, though no multiple reaches it
        sizes.append(last)
    return Payload(text, tuple(sizes), f"{len(sizes)} sizes from {format_size(first)}", is_sweep=True)


_SCHEMES: dict[str, Callable[[str, str], Payload]] = {
    "bytes": lambda text, rest: Payload(text, (_whole(rest),)),
    "sweep": _sweep,
}
