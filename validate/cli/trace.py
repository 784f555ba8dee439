"""The command ``validate trace``."""

import tempfile
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from simulator.cli.options import parse_count
from simulator.cli.output import captured
from simulator.errors import InputError, one_line
from simulator.questions.checks import From
from simulator.records import asdict
from validate.cli.command import Json, Quiet, Text, command, positional, value
from validate.cli.words import print_answer, print_remarks
from validate.compare.trace import SCHEMA_VERSION, compare_traces, trace_text
from validate.importing.kineto import read_trace

_OURS = ("--trace", "--plot", "--show-options")
_BEYOND = ("--what-if", "--epoch", "--mtbf", "--checkpoint-every", "--checkpoint-time", "--restart-time")


@command("trace", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def trace_command(
    context: typer.Context,
    file: Annotated[str, positional("TRACE.json[.gz]", "Trace of PyTorch's profiler (export_chrome_trace).")],
    steps: Annotated[Text, value("COUNT", "Number of steps, if profiler.step() marked none.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Compare a PyTorch profiler trace with the predicted step.

    All other options are simulate's and describe the step. Shows kernels by class, exposed communication,
    device idle time, and the ten largest differences. docs/trace.md explains it.

    validate trace trace.json.gz --topology p3.2xlarge --workload resnet50 --batch 64
    """
    others = context.args
    for name in (*_OURS, *_BEYOND):
        if any(word == name or word.startswith(f"{name}=") for word in others):
            of = "simulate's output" if name in _OURS else "the analysis of a step"
            raise InputError(f"{name}: belongs to {of}; give only the options of the step")
    if not any(word.startswith(("--batch", "--global-batch")) for word in others):
        raise InputError("the step is needed in simulate's words: --topology p3.2xlarge --workload resnet50 --batch 64")
    count = parse_count("steps", steps, From(1)) if steps is not None else None
    measured = read_trace(file)
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / "predicted.json"
        found = captured([*others, "--trace", str(drawn), "--quiet"])
        if not drawn.is_file():
            raise InputError("; ".join(found.said) or "simulate draws no trace of that")
        predicted = read_trace(str(drawn))
    compared = compare_traces(measured, predicted, count)
    shown = one_line(file, 200)
    document = {"schema_version": SCHEMA_VERSION, "trace": shown, **asdict(compared)}
    print_answer(document, partial(trace_text, compared, shown), as_json=as_json)
    print_remarks(compared.remarks, quiet=quiet)
    return 0
