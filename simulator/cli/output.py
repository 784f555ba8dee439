"""The outputs of commands: results go to standard output, everything else to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING

from simulator.cli.options import check_outputs
from simulator.cli.written import Written
from simulator.console.run import say
from simulator.console.style import printable
from simulator.errors import first_of
from simulator.spelling import spelt

if TYPE_CHECKING:
    from simulator.console.files import OutputFile


class Files:
    """The requested output files, each of which appears whole or not at all."""

    def __init__(self, written: Written, stack: ExitStack) -> None:
        self._written = written
        self._trace: OutputFile | None = None
        self._plot: OutputFile | None = None
        check_outputs({"--topology": written.topology, "--trace": written.trace, "--plot": written.plot})
        if written.trace is None and written.plot is None:
            return
        from simulator.console.files import OutputFile

        self._trace = stack.enter_context(OutputFile("--trace", written.trace)) if written.trace is not None else None
        self._plot = stack.enter_context(OutputFile("--plot", written.plot)) if written.plot is not None else None

    @property
    def plot_kind(self) -> str:
        """The suffix of the plot: svg, png or pdf; empty without a plot."""
        return self._written.plot.lower().rsplit(".", 1)[1] if self._written.plot is not None else ""

    @property
    def wants_trace(self) -> bool:
        """Whether a trace was requested."""
        return self._trace is not None

    def trace(self, text: str, which: str = "") -> None:
        """Write the trace; *which* names its content where that is not obvious."""
        assert self._trace is not None
        self._trace.write(text.encode("utf-8"))
        tell(self._written, f"wrote the trace{which} to {self._trace.shown}")

    def plot(self, content: bytes) -> None:
        """Write the plot."""
        assert self._plot is not None
        self._plot.write(content)
        tell(self._written, f"wrote the plot to {self._plot.shown}")


def show(lines: Sequence[str]) -> None:
    """Print a result."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.stdout.write(printable("\n".join(lines) + "\n", sys.stdout))


def tell(written: Written, line: str) -> None:
    """Print a remark, unless ``--quiet``."""
    if not written.quiet:
        say(spelt(line, "command"))


def warn(written: Written, notes: Iterable[str]) -> None:
    """Print the first remarks on options that are not simulated, one line each, without repetitions."""
    for note in first_of(notes):
        tell(written, f"warning: {note}")
