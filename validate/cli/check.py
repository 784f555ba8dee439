"""The command ``validate check``."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from simulator.api import Session
from simulator.cli.options import gpus_among, parse_count, parse_software
from simulator.console.files import OutputFile
from simulator.console.progress import Progress
from simulator.console.style import choose_style
from simulator.errors import InputError, one_line
from validate.check.causes import MOST_CAUSES
from validate.check.check import check, judged
from validate.check.report import as_document, as_text, headline
from validate.cli.output import show, tell
from validate.importing.nccl_tests import read_nccl_tests
from validate.kinds.collectives import MAX_RANKS
from validate.machine.describe.dumps.read import read_text

SLOW = 3  # exit status "outside the requested tolerance", see simulator/console/run.py
_PLOTS = re.compile(r".*\.(svg|png|pdf)", re.IGNORECASE)


def check_command(
    files: Sequence[str],
    *,
    topology: str | None,
    nodes: str | None = None,
    fabric: str | None = None,
    gpus: str | None = None,
    collective: str | None = None,
    nccl: str | None = None,
    plot: str | None = None,
    as_json: bool = False,
    quiet: bool = False,
) -> int:
    """Check one log; return 0, or :data:`SLOW` if it is slow, its results are wrong or the test failed.

    Raises InputError if a file or an option is invalid.
    """
    if len(files) != 1:
        raise InputError("a log of nccl-tests is needed, one: validate check --topology dgx-h100 all_reduce.log")
    if topology is None:
        raise InputError("--topology: the machine that ran it is needed, a path or a built-in name")
    kind = _PLOTS.fullmatch(plot) if plot is not None else None
    if plot is not None and kind is None:
        raise InputError(f"--plot {one_line(plot, 60)}: ends in .svg, .png or .pdf")
    ran = _gpus(gpus) if gpus is not None else None
    count = len(ran) if isinstance(ran, tuple) else ran
    with ExitStack() as stack:
        output = stack.enter_context(OutputFile("--plot", plot)) if plot is not None else None
        log = read_nccl_tests(read_text(files[0]), one_line(files[0], 1000), collective=collective, n_ranks=count)
        version = parse_software(nccl).nccl if nccl is not None else None
        many = parse_count("nodes", nodes) if nodes is not None else None
        with Progress(len(judged(log.points)) + MOST_CAUSES, "simulating", quiet=quiet) as progress:
            checked = check(
                Session(),
                log,
                topology,
                nodes=many,
                fabric=fabric,
                gpus=ran if isinstance(ran, tuple) else None,
                nccl=version,
                step_done=progress.advance,
            )
        document = as_document(checked)
        if output is not None and kind is not None:
            from reports.check import draw_check

            output.write(draw_check(document, headline(checked), kind[1].lower()))
    show(json.dumps(document, indent=2) + "\n" if as_json else as_text(checked, choose_style(sys.stdout)))
    tell(checked.remarks, quiet=quiet)
    if plot is not None:
        tell([f"wrote the plot to {one_line(plot)}"], quiet=quiet)
    return SLOW if checked.verdict in ("slow", "wrong") or log.failure else 0


def _gpus(text: str) -> tuple[int, ...] | int:
    """Return the GPUs that *text* lists (0,2 or 0-3), or the number of ranks that it is; raises InputError."""
    if "," in text or "-" in text.strip()[1:]:
        return tuple(gpus_among(text, MAX_RANKS, "the largest machine that is checked"))
    return parse_count("gpus", text)
