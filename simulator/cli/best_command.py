"""``simulate best``: find the fastest layouts of a step that fit in memory, and resume from a file (``--resume``)."""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from simulator import __version__
from simulator.cli.options import parse_choice, parse_count, read_all, refuse, wants_best
from simulator.cli.output import Answers
from simulator.cli.step_questions import ask_steps
from simulator.cli.table import Column, outside_words, table_lines
from simulator.cli.ways_text import rate_columns
from simulator.cli.written import CommandOptions
from simulator.console.style import Progress, Style
from simulator.effects import effect
from simulator.errors import Fault, InputError, MissingDependency, one_line, refused
from simulator.questions.checks import From
from simulator.questions.layout import REPLICAS
from simulator.records import replace
from simulator.results.columns import duration_column, rate_words
from simulator.results.confidence import BAND_HEAD, band_words
from simulator.results.step_confidence import UNSURE
from simulator.results.words import MODE_WORDS
from simulator.search.run import Ranking, Runner, StoredResults, best_document, find_best, here, loss_words
from simulator.search.space import SEARCHED, Space, parse_fixed
from simulator.spelling import mention
from simulator.topology.load import load_topology
from simulator.units import format_size
from simulator.user_files import read_user_file
from simulator.workload.network import Network

_COUNT, _JOBS = From(1, 10**7), From(1, 1024)
_CONNECT_S = 10


def answer_best(
    written: CommandOptions,
    *,
    parallel: str | None,
    micro_batch: str | None,
    recompute: str | None,
    top: str,
    jobs: str | None,
    dask: str | None,
    resume: str | None,
) -> Answers:
    """Search the layouts as the options of the search say; raises InputError."""
    if written.global_batch is None:
        raise InputError(
            f"{mention('global_batch')} is needed: the samples of a step, for example {mention('global_batch', 1024)}"
        )
    if written.topology == "-":
        raise refused("topology", "several processes read the machine; write it to a file", "-")
    refuse({"--jobs": jobs is not None and dask is not None}, "starts processes on this machine; --dask uses a cluster")
    refuse(
        {mention("gpus", one_line(written.gpus or "", 60)): wants_best(written.gpus)},
        "is simulate's; name the GPUs here",
    )
    global_batch, each, shown, processes, fixed, recomputed = read_all(
        lambda: parse_count("global_batch", written.global_batch or "", _COUNT),
        lambda: None if micro_batch is None else parse_count("micro_batch", micro_batch, _COUNT),
        lambda: parse_count("top", top, _COUNT),
        lambda: _cores() if jobs is None else parse_count("jobs", jobs, _JOBS),
        lambda: parse_fixed(parallel),
        lambda: None if recompute is None else parse_choice("recompute", recompute, SEARCHED),
    )
    sharded = ("fsdp",) if dict(fixed).get("zero") == 3 else ()
    if written.framework == "deepspeed-zero3" and not sharded:
        raise refused("framework", f"is ZeRO-3; fix {mention('layout', 'zero=3')}", "deepspeed-zero3")
    divides = any(isinstance(degree, int) and degree > (axis != "zero") for axis, degree in fixed if axis != "dp")
    if written.gradient_as_bucket_view and divides:
        raise refused(
            "bucket_views", f"is for replicas, and {mention('layout', one_line(parallel or '', 60))} has none"
        )
    session, questions = ask_steps(replace(written, global_batch=None, batch="1", parallel=sharded))
    question = replace(questions[0], layout=REPLICAS)
    if len(questions) > 1:
        raise refused("topology", "best searches one machine; name one")
    if question.gpus is None or len(question.gpus) < 2:
        raise InputError(
            f"best divides a step over several GPUs, and one takes part; add {mention('nodes')}, or name another"
        )
    machine = session.machine(question.where)
    group = session.group(question.where, question.gpus)
    space = Space(
        question,
        global_batch,
        len(question.gpus),
        max(map(len, group.by_host().values())),
        fixed,
        each,
        recomputed,
        tuple(sorted(session.calibrations.items())),
    )
    with ExitStack() as stack:
        kept = kept_in(resume, space, session.network(question), stack)
        runner = dask_runner(dask, stack) if dask is not None else process_runner(processes, stack)
        progress = stack.enter_context(Progress(0, "searching", quiet=written.quiet))

        def advance(total: int, done: str) -> None:
            progress.total = total
            progress.advance(done)

        found = find_best(space, session, shown, runner, kept, advance)
    return Answers(
        document=partial(best_document, space, machine.name, found),
        lines=partial(best_lines, space, machine.name, session.network(question), found),
    )


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def best_lines(space: Space, machine: str, network: Network, best: Ranking, style: Style) -> list[str]:
    """Return the layouts in order with what each loses time to, and the infeasible ones."""
    options = space.question.options
    title = f"{machine}, {space.device_count} GPUs: {MODE_WORDS[options.mode]} of {network.title}, "
    title += f"{space.global_batch:,} {network.sample}, {options.precision}, {options.optimizer}"
    ways = [entry.candidate for entry in best.ranking]
    unsure = [entry for entry in best.ranking if entry.fits_by_band is False]  # fits, but not by its band
    recompute = [way.recompute for way in ways]
    columns = [
        Column("layout", [way.layout.words for way in ways], right=False),
        Column("micro-batch", [f"{way.micro_batch} x {way.micro_batches}" for way in ways]),
        Column("recompute", recompute, right=False) if set(recompute) != {"none"} else None,
        Column("step", duration_column([entry.step_time_s for entry in best.ranking])),
        Column(BAND_HEAD, [band_words(entry.band) for entry in best.ranking], spare=2),
        Column(f"{network.sample}/s", [rate_words(space.global_batch / e.step_time_s) for e in best.ranking]),
        *rate_columns([entry.rates for entry in best.ranking]),
        Column("memory", [format_size(e.memory_bytes, 3) + " *" * (e in unsure) for e in best.ranking]),
        Column("time lost to", [loss_words(entry.shares_s) for entry in best.ranking], right=False, spare=1),
    ]
    lines = outside_words([text for entry in best.ranking for text in entry.outside], style)
    lines = [*style.wrap(title, "bold"), *lines, "", *table_lines(columns, style)]
    if unsure:
        lines += style.wrap(f"* {UNSURE}", "dim", hang=2)
    count = f"{best.feasible_count:,} layouts fit; the best {best.simulated_count} were simulated"
    lines += ["", *style.wrap(f"{count}, the others estimated from the costs of their parts", hang=2)]
    if best.infeasible:
        why = ", ".join(
            f"{n:,} ({reason})" for reason, n in sorted(best.infeasible.items(), key=lambda i: (-i[1], i[0]))
        )
        lines += style.wrap(f"not feasible: {why}", "dim", hang=2)
    return lines


def process_runner(count: int, stack: ExitStack) -> Runner:
    """Return a runner with *count* processes until *stack* closes, or this process alone for a count of 1."""
    if count == 1:
        return here
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    stack.callback(pool.shutdown, wait=True, cancel_futures=True)

    return partial(_submitted, pool.submit)


def dask_runner(address: str, stack: ExitStack) -> Runner:
    """Return a runner on the Dask cluster at *address* until *stack* closes.

    Raises MissingDependency if Dask is not installed, InputError if no cluster answers.
    """
    effect("opens a connection", f"--dask {one_line(address, 60)}")
    try:
        from distributed import Client
    except ImportError:
        raise MissingDependency("--dask needs Dask; pip install 'topocast[dask]'") from None
    try:
        client = stack.enter_context(Client(address, timeout=_CONNECT_S, set_as_default=False))
    except (OSError, ValueError, TypeError) as error:
        raise InputError(f"--dask {one_line(address, 60)}: no cluster answers: {one_line(error, 120)}") from None

    return partial(_submitted, partial(client.submit, pure=False))


def _submitted(
    submit: Callable[..., Any], function: Callable[..., Any], jobs: Sequence[tuple[Any, ...]]
) -> Iterator[Any]:
    """Return the results of *function* for each of *jobs*, all of which are submitted first."""
    futures = [submit(function, *job) for job in jobs]
    return (future.result() for future in futures)


# -- the file from which a search resumes ----------------------------------------------


_MAX_BYTES = 1 << 28
_NO_LINE = "is not a line of a search; --resume names a file of its own"


def kept_in(path: str | None, space: Space, network: Network, stack: ExitStack) -> StoredResults:
    """Return the results in the file *path* for the search of *space*; new ones are appended until *stack* closes.

    *network* is the searched one, at any batch.  A last line cut off by an interrupt is dropped, and its result found
    again; a modified line is refused because of its checksum.

    Raises InputError if the file cannot be read or written, or belongs to another search; the file does not change
    then.
    """
    if path is None:
        return StoredResults()
    file, shown = Path(path), one_line(path)
    effect("writes a file", f"--resume {shown}")
    head = json.dumps({"search": _fingerprint(space, network)}) + "\n"
    try:
        raw = _content(file, shown)
        whole = raw[: raw.rfind(b"\n") + 1]
        first, *lines = whole.decode("utf-8", "replace").splitlines() or [""]
        if not (first == head.rstrip() if whole else head.encode().startswith(raw)):
            other = "is of another search, or of another version; name another file"
            ours = isinstance(_read(first), dict) and "search" in _read(first)
            raise InputError(Fault(other if ours else _NO_LINE, shown, 1, 1))
        found = {}
        for number, line in enumerate(lines, start=2):
            entry = _read(line)
            if not isinstance(entry, list) or len(entry) != 3 or entry[2] != _sum(entry[0], entry[1]):
                raise InputError(Fault(_NO_LINE, shown, number, 1))
            found[str(entry[0])] = entry[1]
        stream = file.open("ab", buffering=0)  # closing it writes nothing more
        stack.callback(stream.close)
        stream.truncate(len(whole))
    except (OSError, ValueError) as error:
        raise InputError(f"--resume {shown}: {getattr(error, 'strerror', None) or 'is no path'}") from None

    def write(text: str) -> None:
        try:
            left = text.encode()
            while left:
                left = left[stream.write(left) :]
        except OSError as error:
            raise InputError(f"--resume {shown}: cannot be written: {error.strerror}") from None

    if not whole:
        write(head)
    return StoredResults(found, lambda key, value: write(json.dumps([key, value, _sum(key, value)]) + "\n"))


def _content(file: Path, shown: str) -> bytes:
    if not file.exists():
        return b""
    try:
        return read_user_file(file, _MAX_BYTES, shown)
    except InputError as error:
        raise InputError(f"--resume {error}") from None


def _read(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _sum(key: object, found: object) -> int:
    """Return the checksum of an entry, which protects its figures against changes."""
    return zlib.crc32(json.dumps([key, found]).encode())


def _fingerprint(space: Space, network: Network) -> str:
    """Return a hash of a search: question, contents of machine and network, constants and program version."""
    where = space.question.where
    topology = load_topology(where.topology, n_nodes=where.nodes, fabric=where.fabric)
    data = [file for package in ("constants", "bands") for file in files(f"simulator.{package}").iterdir()]
    constants = [file.read_text(encoding="utf-8") for file in sorted(data, key=str) if file.name.endswith(".json")]
    said = [__version__, "rates", repr(space), repr(topology), repr(network), *constants]
    return hashlib.sha256("\0".join(said).encode("utf-8", "backslashreplace")).hexdigest()
