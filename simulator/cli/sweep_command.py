"""``simulate sweep``: one question at every combination of values of some options, as a table, CSV or JSON."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from itertools import chain, islice, product
from typing import Any

from simulator.api.session import Session
from simulator.cli.options import parse_choice, read_all, software_notes
from simulator.cli.output import Answers, Asked, Brief, answers, warn
from simulator.cli.processes import fingerprint, kept_in, process_count, runner_of
from simulator.cli.step_command import check_fits
from simulator.cli.step_questions import check_network, check_value
from simulator.cli.sweep_text import ERRORS, OWN, Row, least_unfit, sweep_lines
from simulator.cli.written import DEFAULTS, OPTIONS, CommandOptions, check_read, shell_command, written_of
from simulator.console import Progress
from simulator.console.files import OutputFile
from simulator.errors import Door, Fault, InputError, TopocastError, nearest, one_line, spelt, word_of
from simulator.results import SCHEMA_VERSION, taken
from simulator.results.rates import rates_of
from simulator.results.result import Result
from simulator.results.step_confidence import fits_by_band
from simulator.results.step_view import limiting_words
from simulator.results.training import TrainingResult
from simulator.search.run import KeptResults, Runner, here

MOST_POINTS = 100_000
_TOGETHER = 8  # points of a job, which share a network
_OF_TOKENS = ("tokens_per_s", "tokens_per_s_per_device", "energy_J_per_token")
_LISTS = ("outside", "warnings")  # texts of an answer
_FIGURES = (
    *("time_s", "low_s", "high_s", "samples_per_s", *_OF_TOKENS, "mfu", "price_per_million_tokens", "price_currency"),
    *("memory_bytes", "cached_bytes", "available_bytes", "fits", "fits_by_band", "busbw_Bps", "bound_by"),
    *("counts_software", *ERRORS, *OWN, *_LISTS, "error"),
)
_TIMES = ("step_time_s", "sync_time_s", "time_s", "done_s")  # as answers of each kind call theirs
_LESS_IS_BETTER = ("time_s", "energy_J_per_token", "price_per_million_tokens", "memory_bytes")
SORTS = (*_LESS_IS_BETTER, "samples_per_s", "tokens_per_s", "tokens_per_s_per_device", "mfu", "busbw_Bps")


def ask_sweep(**given: Any) -> Asked:
    """Return the sweep that the options *given* ask for."""
    written, own = written_of(given)
    again = shell_command(written, ["sweep"], **{name: own[name] for name in ("over", "sort", "csv", "resume")})
    return Asked(written, partial(answer_sweep, own=own), command=again)


def answer_sweep(written: CommandOptions, own: Mapping[str, Any]) -> Answers:
    """Return the answers at all points, in the order of the options, as its *own* options say; raises InputError."""
    count = process_count(own["jobs"], own["dask"])
    sort, path = own["sort"], own["csv"]
    key = None if sort is None else parse_choice("sort", sort.replace("-", "_"), SORTS)
    varied = _varied(written, own["over"])
    asked = points(written, varied)
    check_values(written, varied)
    with ExitStack() as stack:
        file = None if path is None else stack.enter_context(OutputFile("--csv", path))
        of = fingerprint("warnings", *map(shell_command, asked))
        kept = kept_in(own["resume"], of, "sweep", stack)
        runner = runner_of(min(count, len(asked)), own["dask"], stack)
        progress = stack.enter_context(Progress(len(asked), "simulating", quiet=written.quiet))
        rows = list(_rows(asked, varied, runner, kept, progress))
        if key is not None:  # the best first; those that do not fit, then those without the figure, last
            sign = 1 if key in _LESS_IS_BETTER else -1
            rows.sort(key=lambda row: (row[key] is None, row["fits"] is False, sign * (row[key] or 0.0)))
        if file is not None:
            text = io.StringIO()
            writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows({**row, **{name: " / ".join(row[name]) for name in _LISTS}} for row in rows)
            file.write(text.getvalue().encode("utf-8"))
    faults = [row["error"] for row in rows if row["error"]]
    if len(faults) == len(rows):
        raise InputError([Fault(text) for text in dict.fromkeys(faults)])
    warn(written, chain(*(row["warnings"] for row in rows)))
    return Answers(
        document=lambda: {"schema_version": SCHEMA_VERSION, "over": list(varied), "sweep": rows},
        lines=partial(sweep_lines, tuple(varied), rows),
        check=partial(_check_some_fit, asked, rows),
    )


def _check_some_fit(asked: Sequence[CommandOptions], rows: Sequence[Row]) -> None:
    if (least := least_unfit(rows)) is not None:
        point = next(point for point in asked if shell_command(point) == least["question"])
        result = answers(point, Session()).results[0]
        check_fits({result.way: result})


def _varied(written: CommandOptions, over: Sequence[str]) -> dict[str, list[str]]:
    if not over:
        raise InputError("--over is needed, once for each option that varies, for example --over batch=1,2,4")
    varied: dict[str, list[str]] = {}
    for name, values in map(_parsed, over):
        word = word_of(name)
        if name in varied:
            raise InputError(f"--over {word[2:]}: is there twice; name all its values in one, for example batch=1,2,4")
        if getattr(written, name) != DEFAULTS[name]:
            raise InputError(f"{word}: --over {word[2:]} says its values, too; leave one of the two out")
        varied[name] = values
    return varied


def _parsed(text: str) -> tuple[str, list[str]]:
    word, found, values = text.partition("=")
    name = _names().get(word.strip().lstrip("-").replace("_", "-"))
    if not found or name is None:
        hint = nearest(word, _names()) if found else "write for example batch=1,2,4"
        raise InputError(f"--over {one_line(text, 60)}: names no option that varies; {hint}")
    if name == "parallel" and "=" in values and "," in values and ";" not in values:
        apart = f"as in 'parallel=dp;tp=2,dp=4'; one alone is --parallel {one_line(values, 60)}"
        raise InputError(f"--over {one_line(text, 60)}: a layout holds commas, so ; separates layouts, {apart}")
    each = [value.strip() for value in values.split(";" if ";" in values else ",")]
    if "" in each or len(set(each)) < len(each):
        raise InputError(f"--over {one_line(text, 60)}: a value is {'missing' if '' in each else 'named twice'}")
    return name, each


@cache
def _names() -> Mapping[str, str]:
    return {word_of(name)[2:]: name for name, each in OPTIONS.items() if each.group not in ("Output", "Launch line")}


def points(written: CommandOptions, varied: Mapping[str, Sequence[object]]) -> list[CommandOptions]:
    """Return the questions at all combinations of *varied*, the last option fastest; raises InputError for too many."""
    found = []
    for values in islice(product(*varied.values()), MOST_POINTS + 1):
        given: dict[str, Any] = {name: _as_given(name, value) for name, value in zip(varied, values, strict=True)}
        found.append(written.but(quiet=True, json=False, **given))
    if len(found) > MOST_POINTS:
        raise InputError(f"--over: more than {MOST_POINTS:,} combinations")
    return found


def check_values(written: CommandOptions, varied: Mapping[str, Sequence[object]]) -> None:
    """Raise InputError for values of *varied* that cannot be read; those that a machine refuses are rows."""
    read_all(*(partial(check_value, name, _as_given(name, v)) for name, values in varied.items() for v in values))
    of_network = [name for name in ("workload", "sizes", "seq_len", "image") if name in varied]
    if "workload" not in varied or of_network == ["workload"]:
        asked = {name: values if name in of_network else values[:1] for name, values in varied.items()}
        read_all(*(partial(check_network, point) for point in points(written, asked)))


def _as_given(name: str, value: object) -> object:
    default = DEFAULTS[name]
    if isinstance(default, bool):
        switches = {"yes": True, "true": True, "no": False, "false": False}
        found = value if isinstance(value, bool) else switches.get(str(value).lower())
        if found is None:
            raise InputError(f"--over {name}: is a switch: yes or no; got {one_line(str(value), 40)}")
        return found
    if default != ():
        return str(value)
    return value if isinstance(value, tuple) else (str(value),)


def _rows(
    asked: Sequence[CommandOptions],
    varied: Mapping[str, Sequence[object]],
    runner: Runner,
    kept: KeptResults,
    progress: Progress,
    door: Door = "command",
) -> Iterator[Row]:
    named = [shell_command(point) for point in asked]
    left = [i for i, name in enumerate(named) if name not in kept.found]
    together = [left[i : i + _TOGETHER] for i in range(0, len(left), _TOGETHER)]
    done = runner(answered_rows, [([asked[i] for i in group], door) for group in together])
    for group, rows in zip(together, done, strict=True):
        for i, row in zip(group, rows, strict=True):
            kept.put(named[i], row)
            progress.advance()
    for point, name in zip(asked, named, strict=True):
        values = {option: getattr(point, option) for option in varied}
        said = {option: value[0] if isinstance(value, tuple) else value for option, value in values.items()}
        yield {**said, **kept.found[name], "question": name}


_session = cache(Brief)  # of this process, which knows the machines and networks of the points before


def answered_rows(asked: Sequence[CommandOptions], door: Door) -> list[Row]:
    """Return the figures of the best answer to each of *asked*, or its error in the words of *door*."""
    return [_row(point, door) for point in asked]


def _row(point: CommandOptions, door: Door) -> Row:
    row: Row = {**dict.fromkeys(_FIGURES), **{name: [] for name in _LISTS}}
    try:
        check_read(point)
        if point.strategy is None and point.kind == "exchange":
            point = point.but(strategy="nccl")
        found = answers(point, _session())
        if len(found.results) > 1:
            raise InputError("a row has one answer; name one machine, layout, strategy and size, or vary them: --over")
    except TopocastError as error:
        said = error.spelt(door) if isinstance(error, InputError) else spelt(str(error), door)
        return {**row, "error": " / ".join(said.splitlines())}
    best = found.results[0]
    row["outside"] = list(getattr(best.confidence, "outside", ()))
    row["warnings"] = [spelt(note, door) for note in (*software_notes(point.nccl), *found.notes)]
    row["time_s"] = next(getattr(best, name) for name in _TIMES if hasattr(best, name))
    if (band := getattr(best.confidence, "band", None)) is not None:
        row |= {"low_s": band.low_s, "high_s": band.high_s}
    if (estimate := getattr(best.confidence, "estimate", None)) is not None:
        row |= taken(estimate, "ways_error=ways machines_error=machines own_error=own own_class network_error=network")
    if isinstance(best, TrainingResult):
        need = best.tightest.need
        row |= taken(need, "memory_bytes=total_bytes cached_bytes available_bytes")
        row |= {"samples_per_s": best.throughput, "fits": best.fits, "fits_by_band": fits_by_band(best, need)}
        rates, row["bound_by"] = rates_of(best), limiting_words(best)
        row |= {name: getattr(rates, name) for name in (*_OF_TOKENS, "mfu")}
        if (price := rates.price_per_million_tokens) is not None:
            row |= {"price_per_million_tokens": price.amount, "price_currency": price.currency}
    if isinstance(best, TrainingResult | Result):
        row["counts_software"] = best.counts_software  # else its exchanges are on bare links
    if isinstance(best, Result):
        row |= {"busbw_Bps": best.busbw_Bps, "bound_by": best.bottleneck.name if best.bottleneck else None}
    return row


def swept_rows(written: CommandOptions, varied: Mapping[str, Sequence[object]]) -> list[Row]:
    """Return the rows of the sweep of *written* over *varied*, in this process."""
    check_values(written, varied)
    with Progress(0, "simulating", quiet=True) as progress:
        return list(_rows(points(written, varied), varied, here, KeptResults(), progress, "python"))
