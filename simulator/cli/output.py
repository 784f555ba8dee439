"""Where a command's words go: results to standard output, everything else to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import ExitStack

from simulator.cli.options import check_outputs
from simulator.cli.written import Written
from simulator.console.files import OutputFile
from simulator.console.style import printable

__all__ = ["Files", "show", "tell", "warn"]


class Files:
    """The files that were asked for: open, whole or not there at all."""

    def __init__(self, written: Written, stack: ExitStack) -> None:
        self._written = written
        check_outputs({"--topology": written.topology, "--trace": written.trace, "--plot": written.plot})
        self._trace = stack.enter_context(OutputFile("--trace", written.trace)) if written.trace is not None else None
        self._plot = stack.enter_context(OutputFile("--plot", written.plot)) if written.plot is not None else None

    @property
    def plot_kind(self) -> str:
        """The suffix of the plot: svg, png or pdf; empty where none is asked for."""
        return self._written.plot.lower().rsplit(".", 1)[1] if self._written.plot is not None else ""

    @property
    def wants_trace(self) -> bool:
        """Whether a trace is asked for."""
        return self._trace is not None

    def trace(self, text: str, which: str = "") -> None:
        """Write the trace; *which* says what it is of where that is not clear."""
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
    """Print a remark."""
    if not written.quiet and sys.stderr is not None:
        sys.stderr.write(printable(line, sys.stderr) + "\n")


def warn(written: Written, notes: Iterable[str]) -> None:
    """Print what was written and is not simulated, a line each, once."""
    for note in dict.fromkeys(notes):
        tell(written, f"warning: {note}")
