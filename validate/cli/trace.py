"""The command ``validate trace``."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from simulator.cli.captured import captured
from simulator.cli.options import parse_count
from simulator.console.style import choose_style
from simulator.errors import InputError, one_line
from validate.cli.output import show, tell
from validate.compare.trace import compare_traces
from validate.compare.trace_text import trace_document, trace_text
from validate.importing.kineto import read_trace

_OURS = ("--trace", "--plot", "--show-options")
_BEYOND = ("--what-if", "--epoch", "--mtbf", "--checkpoint-every", "--checkpoint-time", "--restart-time")


def trace_command(
    file: str, others: Sequence[str], *, steps: str | None = None, as_json: bool = False, quiet: bool = False
) -> int:
    """Compare the trace in *file* with the step that ``simulate`` predicts from the options *others*; return 0.

    Raises InputError if a file or an option is invalid.
    """
    for option in (*_OURS, *_BEYOND):
        if any(word == option or word.startswith(f"{option}=") for word in others):
            of = "simulate's output" if option in _OURS else "the analysis of a step"
            raise InputError(f"{option}: belongs to {of}; give only the options of the step")
    if not any(word.startswith(("--batch", "--global-batch")) for word in others):
        raise InputError("the step is needed in simulate's words: --topology p3.2xlarge --workload resnet50 --batch 64")
    count = parse_count("steps", steps) if steps is not None else None
    measured = read_trace(file)
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / "predicted.json"
        found = captured([*others, "--trace", str(drawn), "--json", "--quiet"])
        if not drawn.is_file():
            raise InputError("; ".join(found.errors) or "simulate draws no trace of that")
        predicted = read_trace(str(drawn))
    compared = compare_traces(measured, predicted, count)
    shown = one_line(file, 200)
    show(
        json.dumps(trace_document(compared, shown), indent=2) + "\n"
        if as_json
        else trace_text(compared, shown, choose_style(sys.stdout))
    )
    tell(compared.remarks, quiet=quiet)
    return 0
