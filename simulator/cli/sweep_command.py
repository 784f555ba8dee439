"""``simulate sweep``: one question at every combination of values of some options, as a table, CSV or JSON."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache, partial
from itertools import islice, product
from typing import Any

from simulator.api.session import Session
from simulator.cli.options import parse_choice
from simulator.cli.output import Answers, Asked, Brief, answers
from simulator.cli.processes import fingerprint, kept_in, process_count, runner_of
from simulator.cli.step_command import check_fits
from simulator.cli.step_text import MARK, mark_lines, memory_head
from simulator.cli.table import Column, next_lines, table_lines
from simulator.cli.written import DEFAULTS, OPTIONS, CommandOptions, check_read, shell_command, written_of
from simulator.console import Progress, Style
from simulator.console.files import OutputFile
from simulator.errors import Fault, InputError, TopocastError, few, nearest, one_line
from simulator.results import SCHEMA_VERSION, taken
from simulator.results.columns import percent, rate_words
from simulator.results.comparison import ComparisonWidth, Ratio, ratio_of, times_words
from simulator.results.confidence import BAND_HEAD, ends_words
from simulator.results.rates import rates_of
from simulator.results.result import Result, listed
from simulator.results.step_confidence import fits_by_band
from simulator.results.step_view import bound_words
from simulator.results.training import TrainingResult
from simulator.search.run import KeptResults, Runner, here
from simulator.spelling import Door, spelt, word_of
from simulator.sums import lists_by_key
from simulator.units import format_bandwidth, format_duration, format_size

Row = dict[str, Any]
MOST_POINTS = 100_000
_TOGETHER = 8  # points of a job, which share a network
_OF_TOKENS = ("tokens_per_s", "tokens_per_s_per_device", "energy_J_per_token")
_ERRORS = ("ways_error", "machines_error")  # half-widths, as logarithms, of what does not cancel in a comparison
_OWN = ("own_error", "own_class")  # as :class:`ComparisonWidth` has them
_OTHER_ERRORS = {"topology", "nodes", "gpus", "device", "fabric", "workload", "precision"}  # with these, less cancels
_FIGURES = (
    *("time_s", "low_s", "high_s", "samples_per_s", *_OF_TOKENS, "mfu", "price_per_million_tokens", "price_currency"),
    *(
        "memory_bytes",
        "cached_bytes",
        "available_bytes",
        "fits",
        "fits_by_band",
        "busbw_Bps",
        "bound_by",
        "counts_software",
    ),
    *(*_ERRORS, *_OWN, "error"),
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
    with ExitStack() as stack:
        file = None if path is None else stack.enter_context(OutputFile("--csv", path))
        of = fingerprint("own errors", *map(shell_command, asked))
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
            writer.writerows(rows)
            file.write(text.getvalue().encode("utf-8"))
    faults = [row["error"] for row in rows if row["error"]]
    if len(faults) == len(rows):
        raise InputError([Fault(text) for text in dict.fromkeys(faults)])
    return Answers(
        document=lambda: {"schema_version": SCHEMA_VERSION, "over": list(varied), "sweep": rows},
        lines=partial(sweep_lines, tuple(varied), rows),
        check=partial(_check_some_fit, asked, rows),
    )


def _check_some_fit(asked: Sequence[CommandOptions], rows: Sequence[Row]) -> None:
    if (least := _least_unfit(rows)) is not None:
        point = next(point for point in asked if shell_command(point) == least["question"])
        result = answers(point, Session()).results[0]
        check_fits({result.way: result})


def _least_unfit(rows: Sequence[Row]) -> Row | None:
    steps = [row for row in rows if row["fits"] is not None]
    if not steps or any(row["fits"] for row in steps):
        return None
    return min(steps, key=lambda row: float(row["memory_bytes"]))


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
    row: Row = dict.fromkeys(_FIGURES)
    try:
        check_read(point)
        if point.strategy is None and point.kind == "exchange":
            point = point.but(strategy="nccl")
        best = answers(point, _session()).results[0]
    except TopocastError as error:
        said = error.spelt(door) if isinstance(error, InputError) else spelt(str(error), door)
        return {**row, "error": " / ".join(said.splitlines())}
    row["time_s"] = next(getattr(best, name) for name in _TIMES if hasattr(best, name))
    if (band := getattr(best.confidence, "band", None)) is not None:
        row |= {"low_s": band.low_s, "high_s": band.high_s}
    if (found := getattr(best.confidence, "estimate", None)) is not None:
        row |= taken(found, "ways_error=ways machines_error=machines own_error=own own_class")
    if isinstance(best, TrainingResult):
        need = best.tightest.need
        row |= {
            "samples_per_s": best.throughput,
            **taken(need, "memory_bytes=total_bytes cached_bytes available_bytes"),
        }
        row |= {"fits": best.fits, "fits_by_band": fits_by_band(best, need)}
        rates, row["bound_by"] = rates_of(best), "arithmetic" if best.bound == "compute" else bound_words(best)
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
    with Progress(0, "simulating", quiet=True) as progress:
        return list(_rows(points(written, varied), varied, here, KeptResults(), progress, "python"))


def _as_written(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def sweep_lines(over: Sequence[str], rows: Sequence[Row], style: Style) -> list[str]:
    """Return the table of *rows*, with the values of the options *over* first."""

    def column(head: str, key: str, words: Any, right: bool = True, spare: int = 0) -> Column | None:
        cells = ["-" if row[key] is None else words(row[key]) for row in rows]
        return Column(head, cells, right, spare) if any(row[key] is not None for row in rows) else None

    bands = ["-" if row["low_s"] is None else ends_words(row["low_s"], row["high_s"]) for row in rows]
    sure = {None: "-", False: "no", True: "yes"}
    fits = [sure[row["fits"]] + f" {MARK}" * (row["fits"] is True and row.get("fits_by_band") is False) for row in rows]
    bounds = {_bound(row) for row in rows if row["bound_by"]}
    rooms = {row["available_bytes"] for row in rows} - {None}
    samples = {_samples(row) for row in rows if row["samples_per_s"]}
    columns = [
        *(Column(word_of(name)[2:], [_as_written(row[name]) for row in rows], right=False) for name in over),
        Column("samples a step", [f"{_samples(row) or '-'}" for row in rows], spare=2)
        if len(samples) > 1 and "batch" not in over
        else None,
        column("time", "time_s", format_duration),
        Column(BAND_HEAD, bands, spare=1) if {*bands} != {"-"} else None,
        column("samples/s", "samples_per_s", rate_words),
        column("tokens/s/GPU", "tokens_per_s_per_device", rate_words, spare=3),
        column("MFU", "mfu", percent, spare=5),
        column("a million tokens", "price_per_million_tokens", lambda amount: f"{amount:.4g}"),
        column(memory_head(rooms)[0], "memory_bytes", lambda n_bytes: format_size(n_bytes, 3)),
        Column("fits", fits) if {*fits} != {"-"} else None,
        column("busbw", "busbw_Bps", format_bandwidth),
        Column("bound by", [_bound(row) or "-" for row in rows], right=False, spare=4) if len(bounds) > 1 else None,
    ]
    varied = "over " + ", ".join(word_of(name)[2:] for name in over)
    title = f"{len(rows)} runs: {varied}{_common(rows)}"
    lines = style.wrap(title if len(rows) > 1 else f"1 run: {rows[0]['question']}", "bold")
    run = [row for row in rows if row["counts_software"] and row["fits"] and row["samples_per_s"]]
    ranked = sorted(run, key=lambda row: -row["samples_per_s"]) if len(rows) > 1 else []
    if ranked:
        lines += style.wrap(_verdict(over, rows, ranked), "bold", hang=2)
    lines += ["", *table_lines(columns, style), *mark_lines(fits, style)]
    if len(bounds) == 1:
        both = "both are" if len(rows) == 2 else "all are"
        peaks = "; MFU is of the peak of each precision" * ("precision" in over)
        lines += style.wrap(f"{both} bound by {next(iter(bounds))}{peaks}")
    if (least := _least_unfit(rows)) is not None:
        needs = f"{_place(over, least)} needs the least, {format_size(least['memory_bytes'], 3)}"
        lines += ["", *style.wrap(f"none fits into the memory of its devices; {needs}", "red")]
    lines += _refused_lines(over, rows, style)
    if ranked:
        first, alike = ranked[0], not any(_ratio(over, row, ranked[0]).is_clear for row in ranked)
        if alike and len(ranked) > 2:
            first = min(ranked, key=lambda row: float(row["memory_bytes"]))
        saves = ", which needs least memory" * (first is not ranked[0])
        words = f"use {_place(over, first)}{saves}; which options would make it faster still"
        lines += ["", *next_lines(words, style, first["question"])]
    return lines


def _samples(row: Row) -> int:
    return round(float(row["samples_per_s"] or 0.0) * float(row["time_s"]))


def _bound(row: Row) -> str:
    return str(row["bound_by"] or "").partition(":")[0].replace("arithmetic", "compute")


def _common(rows: Sequence[Row]) -> str:
    said = [re.findall(r"--\S+(?: (?!--)\S+)*", row["question"]) for row in rows]
    both = [words for words in said[0] if all(words in each for each in said) and not words.startswith("--jobs")]
    return f"; {' '.join(both)}" if both else ""


def _verdict(over: Sequence[str], rows: Sequence[Row], ranked: Sequence[Row]) -> str:
    most, *others = ranked
    name = _place(over, most)
    if len(rows) == len(ranked) == 2:
        first, then = rows
        ratio = _ratio(over, then, first)
        said = f"{times_words(1 / ratio.value)} times as fast ({ratio.inverse.band})"
        if ratio.value > 1.0:
            said = f"{ratio.more_words('time per sample')}, {100 * (1 - 1 / ratio.value):.1f} % fewer samples/s"
        saved = first["memory_bytes"] - then["memory_bytes"]
        memory = f"{format_size(abs(saved), 3)} {'less' if saved > 0 else 'more'} memory"
        if (gaps := (then.get("cached_bytes") or 0.0) - (first.get("cached_bytes") or 0.0)) > -saved / 2 > 0.0:
            memory += f" (fragmentation grows by {format_size(gaps, 3)})"
        return f"{_place(over, then)} against {_place(over, first)}: {said}, {memory}; both fit"
    ratios = {_place(over, row): _ratio(over, row, most) for row in others}
    alike = [place for place, ratio in ratios.items() if not ratio.is_clear]
    alike_words = f"equal to {listed(alike)} within {ratios[alike[-1]].unsure_words}" if alike else ""
    if len(alike) == len(others) > 0:
        least = ratios[alike[-1]]
        gain = f"{100 * (least.value - 1):.1f} %"
        told = [f"no clear difference: {name} does {gain} more samples/s, within {least.unsure_words}"]
    elif others:
        clear = [
            f"{times_words(r.value)} times those of {place} ({r.band})" for place, r in ratios.items() if r.is_clear
        ]
        best = f"{name} is best" + f" of the {len(ranked)} that fit" * (len(ranked) < len(rows))
        told = [f"{best}: its samples/s are {listed([*clear[:1], *clear[1:][-1:]])}", *filter(None, [alike_words])]
    else:
        told = [f"only {name} fits"]
    samples = {_samples(row) for row in ranked}
    if len(samples) > 1 and "batch" not in over:
        told.append(f"effective batches differ: {min(samples):,} to {max(samples):,}")
    return "; ".join(told)


def _ratio(over: Sequence[str], slower: Row, faster: Row) -> Ratio:
    """Return how many times as long a sample takes; of other machines, workloads and precisions less errors cancel."""
    common = _ERRORS[bool(_OTHER_ERRORS.intersection(over))]
    mine, theirs = (
        None if row[common] is None else ComparisonWidth(*(row[name] for name in (common, *_OWN)))
        for row in (slower, faster)
    )
    return ratio_of(1 / slower["samples_per_s"], 1 / faster["samples_per_s"], (mine, theirs))


def _place(over: Sequence[str], row: Row) -> str:
    return " ".join(f"{word_of(name)[2:]}={_as_written(row[name])}" for name in over)


def _refused_lines(over: Sequence[str], rows: Sequence[Row], style: Style) -> list[str]:
    causes = lists_by_key((row["error"], _place(over, row)) for row in rows if row["error"])
    told = [line for cause, places in causes.items() for line in style.wrap(f"{few(places)}: {cause}")]
    return ["", *style.wrap("not answered", "bold"), *told] if told else []
