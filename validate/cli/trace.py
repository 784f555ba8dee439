"""The command ``validate trace``."""

import tempfile
from functools import partial
from pathlib import Path

from simulator.cli.options import parse_count
from simulator.cli.output import captured
from simulator.errors import InputError, one_line
from simulator.questions.checks import From
from simulator.records import asdict
from validate.cli.command import Given
from validate.compare.trace import SCHEMA_VERSION, compare_traces, trace_text
from validate.importing.kineto import read_trace

_OURS = ("--trace", "--plot", "--show-options")
_BEYOND = ("--what-if", "--epoch", "--mtbf", "--checkpoint-every", "--checkpoint-time", "--restart-time")


def trace_command(given: Given) -> int:
    """Compare a PyTorch profiler trace with the predicted step."""
    others = given.others
    for name in (*_OURS, *_BEYOND):
        if any(word == name or word.startswith(f"{name}=") for word in others):
            of = "simulate's output" if name in _OURS else "the analysis of a step"
            raise InputError(f"{name}: belongs to {of}; give only the options of the step")
    if not any(word.startswith(("--batch", "--global-batch")) for word in others):
        raise InputError("the step is needed in simulate's words: --topology p3.2xlarge --workload resnet50 --batch 64")
    count = parse_count("steps", given.steps, From(1)) if given.steps is not None else None
    measured = read_trace(given.file)
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / "predicted.json"
        found = captured([*others, "--trace", str(drawn), "--quiet"])
        if not drawn.is_file():
            raise InputError("; ".join(found.said) or "simulate draws no trace of that")
        predicted = read_trace(str(drawn))
    compared = compare_traces(measured, predicted, count)
    shown = one_line(given.file, 200)
    document = {"schema_version": SCHEMA_VERSION, "trace": shown, **asdict(compared)}
    given.answer(document, partial(trace_text, compared, shown))
    given.remark(compared.remarks)
    return 0
