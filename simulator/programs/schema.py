"""The YAML of a program as pydantic models; the user documentation is ``docs/programs.md``.

Each statement is read on its own, so that a fault in one hides none in the others.  Its first word is its verb;
:data:`VERBS` lists the verbs, with the keys that each needs and may have.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from simulator.errors import one_line
from simulator.topology.parts import Strict
from simulator.units import Duration, Size
from simulator.workload.precision import Precision

MAX_COUNT = 10**9
Count = Annotated[int, Field(strict=True, ge=1, le=MAX_COUNT)]


def _names(value: Any) -> tuple[str, ...]:
    listed: list[Any] = value if isinstance(value, list) else [value]
    if not listed or not all(isinstance(name, str) and name.strip() for name in listed):
        raise ValueError(f"must be the name of a tensor, or a list of names; got {one_line(repr(value), 60)}")
    return tuple(str(name).strip() for name in listed)


Names = Annotated[tuple[str, ...], PlainValidator(_names)]


class TimesSpec(Strict):
    """The times of an operator whose times are known."""

    issue: Duration = Field(0.0, description="For which the host is busy")
    compute: Duration = Field(0.0, description="For which the device is")
    back: Duration = Field(0.0, alias="return", description="From its end until a host that waits goes on")


class SoftwareSpec(Strict):
    """The software that issues operators."""

    front_end: Literal["pytorch", "mxnet"] = Field("pytorch", description="Whose dispatch costs")
    cpu_queue: bool = Field(False, strict=True, description="Operators of CPUs are queued too, and run beside Python")
    depth: Annotated[int, Field(strict=True, ge=0, le=MAX_COUNT)] = Field(
        1024, description="Entries of a stream's queue; 0: without bound"
    )


class ProgramFile(Strict):
    """A program file; its statements are read one by one."""

    schema_version: Literal[1]
    name: str = "program"
    about: str = ""
    software: SoftwareSpec = SoftwareSpec()
    precision: Precision = Field("fp32", description="Of operators and tensors where nothing else is said")
    program: list[Any] = Field(min_length=1)


class StatementSpec(Strict):
    """A statement; ``VERBS`` says which keys go together."""

    run: str | dict[str, Any] | None = None
    tensor: str | None = None
    copy_: str | None = Field(None, alias="copy")
    move: str | None = None
    exchange: str | None = None
    read: str | None = None
    wait: str | None = None
    record: str | None = None
    hold: str | None = None
    python: Duration | None = None
    mark: str | None = None
    repeat: Count | None = None
    threads: list[list[Any]] | None = None
    device: str | None = None
    stream: str | None = None
    reads: Names | None = None
    gives: str | None = None
    holds: Size | None = None
    batch: Count | None = None
    mode: Literal["train", "inference", "forward", "backward"] | None = None
    precision: str | None = None
    optimizer: Literal["none", "sgd", "momentum", "adam"] | None = None
    compiled: Annotated[bool, Field(strict=True)] | None = None
    captured: Annotated[bool, Field(strict=True)] | None = None
    gpus: Count | None = None
    strategy: str | None = None
    shape: list[Count] | None = None
    size: Size | None = None
    to: str | None = None
    pinned: Annotated[bool, Field(strict=True)] | None = None
    blocking: Annotated[bool, Field(strict=True)] | None = None
    fresh: Annotated[bool, Field(strict=True)] | None = None
    form: Literal["number", "numpy", "print"] | None = None
    until: str | None = None
    do: list[Any] | None = None


# For each verb, the keys that it needs and those that it may have.
VERBS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "run": (
        (),
        (
            *("device", "stream", "reads", "gives", "holds", "batch", "mode"),
            *("precision", "optimizer", "compiled", "captured"),
        ),
    ),
    "tensor": ((), ("shape", "size", "device")),
    "copy": (("to",), ("gives", "pinned", "blocking", "fresh", "stream")),
    "move": (("to",), ("gives", "pinned", "blocking", "fresh", "stream")),
    "exchange": (("size", "gpus"), ("strategy", "stream", "reads")),
    "read": ((), ("form",)),
    "wait": ((), ()),
    "record": (("stream",), ()),
    "hold": (("until",), ()),
    "python": ((), ()),
    "mark": ((), ()),
    "repeat": (("do",), ()),
    "threads": ((), ()),
}
