"""``simulate best``: find the fastest layouts of a step that fit in memory."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace

from simulator.cli.best_text import best_lines
from simulator.cli.calibrations import read_calibrations
from simulator.cli.options import parse_choice, parse_count, read_all, refuse, wants_best
from simulator.cli.output import show
from simulator.cli.resume_file import kept_in
from simulator.cli.runners import dask_runner, process_runner
from simulator.cli.step_questions import ask_steps
from simulator.cli.written import Written
from simulator.console.progress import Progress
from simulator.console.style import choose_style
from simulator.errors import InputError, one_line, refused
from simulator.questions.layout import REPLICAS
from simulator.results.document import to_json
from simulator.search.document import best_document
from simulator.search.run import find_best
from simulator.search.space import SEARCHED, Space, parse_fixed
from simulator.spelling import mention

_MOST = 10**7
_MOST_JOBS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The options of the search as text."""

    parallel: str | None = None
    micro_batch: str | None = None
    recompute: str | None = None
    top: str = "10"
    jobs: str | None = None
    dask: str | None = None
    resume: str | None = None


def run_best(written: Written, wanted: Wanted) -> None:
    """Search and print the layouts; raises TopocastError."""
    if written.global_batch is None:
        raise InputError(
            f"{mention('global_batch')} is needed: the samples of a step, for example {mention('global_batch', 1024)}"
        )
    if written.topology == "-":
        raise refused("topology", "several processes read the machine; write it to a file", "-")
    refuse(
        {"--jobs": wanted.jobs is not None and wanted.dask is not None},
        "starts processes on this machine; --dask uses a cluster",
    )
    refuse(
        {mention("gpus", one_line(written.gpus or "", 60)): wants_best(written.gpus)},
        "is simulate's; name the GPUs here",
    )
    global_batch, micro_batch, top, jobs, fixed, recompute = read_all(
        lambda: _count("global_batch", written.global_batch or ""),
        lambda: None if wanted.micro_batch is None else _count("micro_batch", wanted.micro_batch),
        lambda: _count("top", wanted.top),
        lambda: _cores() if wanted.jobs is None else _count("jobs", wanted.jobs, _MOST_JOBS),
        lambda: parse_fixed(wanted.parallel),
        lambda: None if wanted.recompute is None else parse_choice("recompute", wanted.recompute, SEARCHED),
    )
    sharded = ("fsdp",) if dict(fixed).get("zero") == 3 else ()
    if written.framework == "deepspeed-zero3" and not sharded:
        raise refused("framework", f"is ZeRO-3; fix {mention('layout', 'zero=3')}", "deepspeed-zero3")
    session, questions = ask_steps(replace(written, global_batch=None, batch="1", parallel=sharded))
    question = replace(questions[0], layout=REPLICAS)
    if len(questions) > 1:
        raise refused("topology", "best searches one machine; name one")
    if question.gpus is None or len(question.gpus) < 2:
        raise InputError(
            f"best divides a step over several GPUs, and one takes part; add {mention('nodes')}, or name another"
        )
    machine = session.machine(question.where)
    calibrations = read_calibrations(written.calibration, [machine])
    group = session.group(question.where, question.gpus)
    space = Space(
        question,
        global_batch,
        len(question.gpus),
        max(map(len, group.by_host().values())),
        fixed,
        micro_batch,
        recompute,
        tuple(sorted(calibrations.items())),
    )
    with ExitStack() as stack:
        kept = kept_in(wanted.resume, space, session.network(question), stack)
        runner = dask_runner(wanted.dask, stack) if wanted.dask is not None else process_runner(jobs, stack)
        progress = stack.enter_context(Progress(0, "searching", quiet=written.quiet))

        def advance(total: int, done: str) -> None:
            progress.total = total
            progress.advance(done)

        found = find_best(space, session, top, runner, kept, advance)
    if written.json:
        sys.stdout.write(to_json(best_document(space, machine.name, found)))
    else:
        show(best_lines(space, machine.name, session.network(question), found, choose_style(sys.stdout)))


def _count(name: str, text: str, most: int = _MOST) -> int:
    value = parse_count(name, text)
    if not 1 <= value <= most:
        raise InputError(f"{mention(name, value)}: from 1 to {most}")
    return value


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
