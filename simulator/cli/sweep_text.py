"""The text of a sweep: what is fastest, whether that is a choice between equals, the table, and what to ask next."""

import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple

from simulator.bands.composition import OF_SHARED
from simulator.cli.step_text import MARK, mark_lines, memory_head
from simulator.cli.table import Column, next_lines, table_lines
from simulator.console import Style
from simulator.errors import few, word_of
from simulator.records import lists_by_key
from simulator.results import percent, rate_words
from simulator.results.comparison import ComparisonWidth, Ratio, ratio_of, times_words
from simulator.results.confidence import BAND_HEAD, ends_words
from simulator.results.result import listed
from simulator.step.precision import is_plain_half
from simulator.units import format_bandwidth, format_duration, format_size, parse_quantity

Row = dict[str, Any]
ERRORS = ("ways_error", "machines_error")  # half-widths, as logarithms, of what does not cancel in a comparison
OWN = ("own_error", "own_class", "network_error")  # as :class:`ComparisonWidth` has them
_OTHER_ERRORS = {"topology", "nodes", "gpus", "device", "fabric", "workload", "precision"}  # with these, less cancels
_NO_CHOICE: Mapping[str, str] = {  # why the fastest value of an option is not the one to use
    **dict.fromkeys(("workload", "mode", "optimizer", "sizes", "seq_len", "image"), "do not do the same work"),
    **dict.fromkeys(("precision", "staleness", "ns_steps"), "do not compute alike"),
    **dict.fromkeys(("slow_link", "neighbour", "straggler", "lose", "contention"), "say what happens to a machine"),
}
_SAME_RESULT = ("attention=", "gelu=", "cross_entropy=", "norms=", "expert_kernels=")  # sizes: ways to compute the same
_COST = {"nodes", "gpus", "fabric"}  # options of which more costs more


class Contest(NamedTuple):
    """The *rows* of a sweep *over* some options; those *ranked*, the best first, do most samples or tokens (*unit*)."""

    over: Sequence[str]
    rows: Sequence[Row]
    unit: str
    ranked: Sequence[Row]

    def place(self, row: Row) -> str:
        """Return the values of *row*, as the command line has them."""
        return " ".join(f"{word_of(name)[2:]}={_as_written(row[name])}" for name in self.over)

    def ratio(self, slower: Row, faster: Row) -> Ratio:
        """Return how many times as long a unit takes; of other machines, networks and precisions less errors cancel."""
        common = ERRORS[bool(_OTHER_ERRORS.intersection(self.over))]
        mine, theirs = (
            None if row[common] is None else ComparisonWidth(*(row[name] for name in (common, *OWN)))
            for row in (slower, faster)
        )
        rate = f"{self.unit}s_per_s"
        return ratio_of(1 / slower[rate], 1 / faster[rate], (mine, theirs))

    @property
    def unlike(self) -> list[str]:
        """The options whose fastest value is not the one to use."""
        alike = {"seq_len"} if self.unit == "token" else set()
        if not any(map(_plain_half, self.ranked)):
            alike.add("precision")  # mixed precision is used in place of fp32
        if "sizes" in self.over and all(str(row["sizes"]).startswith(_SAME_RESULT) for row in self.rows):
            alike.add("sizes")
        differ = [name for name in self.over if len({row[name] for row in self.ranked}) > 1]
        return [name for name in differ if name in _NO_CHOICE and name not in alike]

    def advice(self) -> tuple[Row, str]:
        """Return the row to go on from, and the words of what to do next."""
        if unlike := self.unlike:  # those values that the user named first
            base = next(row for row in self.rows if row in self.ranked)
            same = [row for row in self.ranked if all(row[name] == base[name] for name in unlike)]
            first, _ = self._replace(ranked=same)._chosen()
            return first, f"which options would make {self.place(first)} faster"
        first, why = self._chosen()
        return first, f"use {self.place(first)}{why}; which options would make it faster still"

    def _chosen(self) -> tuple[Row, str]:
        """Return the best row or, of those equal to it within the error, that which costs least, and why."""
        best, costs = self.ranked[0], _COST.intersection(self.over)
        equal = [row for row in self.ranked if not self.ratio(row, best).is_clear]
        if costs:
            least = min(equal, key=lambda row: [_amount(row[name]) for name in sorted(costs)])
            return least, ", the least that is equal to the best within the error" * (least is not best)
        if len(equal) == len(self.ranked) > 2:
            least = min(equal, key=lambda row: float(row["memory_bytes"]))
            return least, ", which needs least memory" * (least is not best)
        return best, ""

    def verdict(self) -> str:
        """Return what is best, by how much, and why it is not to be used where values do not do the same."""
        told = [self._pair() if len(self.rows) == len(self.ranked) == 2 else self._best()]
        samples = {samples_of(row) for row in self.ranked}
        if len(samples) > 1 and "batch" not in self.over and len(self.rows) > 2:
            told.append(f"effective batches differ: {min(samples):,} to {max(samples):,}")
        for why, names in lists_by_key((_NO_CHOICE[name], word_of(name)[2:]) for name in self.unlike).items():
            told.append(f"values of {listed(names)} {why}, so none is recommended")
        trains = not re.search("--mode (?!train)", self.rows[0]["question"])
        if trains and any(map(_plain_half, self.ranked)):
            told.append("plain fp16 and bf16 keep no master weights in fp32, and the loss may diverge")
        return "; ".join(told)

    def _pair(self) -> str:
        first, then = self.rows
        ratio = self.ratio(then, first)
        said = f"{times_words(1 / ratio.value)} times as fast{ratio.inverse.band}"
        if ratio.value > 1.0:
            fewer = f"{100 * (1 - 1 / ratio.value):.1f} % fewer {self.unit}s/s"
            said = f"{ratio.more_words(f'time per {self.unit}')}, {fewer}"
        saved = first["memory_bytes"] - then["memory_bytes"]
        less = "less" if saved > 0 else "more"
        memory = f"{format_size(abs(saved), 3)} {less} memory" if saved else "the same memory"
        if (gaps := (then.get("cached_bytes") or 0.0) - (first.get("cached_bytes") or 0.0)) > -saved / 2 > 0.0:
            memory += f" (fragmentation grows by {format_size(gaps, 3)})"
        return f"{self.place(then)} against {self.place(first)}: {said}, {memory}; both fit"

    def _best(self) -> str:
        most, *others = self.ranked
        name, per = self.place(most), f"{self.unit}s/s"
        ratios = {self.place(row): self.ratio(row, most) for row in others}
        alike = [place for place, ratio in ratios.items() if not ratio.is_clear]
        left = [row for row in self.rows if row not in self.ranked]
        fits = all(row["fits"] is False for row in left)  # else some are refused, or bounds
        one, some = ("fits", "fit") if fits else ("can be compared", "can be compared")
        if not others:
            return f"only {name} {one}"
        if len(alike) == len(others):
            least = ratios[alike[-1]]
            gain = f"{100 * (least.value - 1):.1f} %"
            return f"no clear difference: {name} does {gain} more {per}, within {least.unsure_words}"
        clear = [f"{times_words(r.value)} times those of {at}{r.band}" for at, r in ratios.items() if r.is_clear]
        of = f" of the {len(self.ranked)} that {some}" * bool(left)
        best = f"{name} is {'fastest' if self.unlike else 'best'}{of}"
        alike_words = f"; equal to {listed(alike)} within {ratios[alike[-1]].unsure_words}" if alike else ""
        return f"{best}: its {per} are {listed([*clear[:1], *clear[1:][-1:]])}{alike_words}"


def ranking_of(over: Sequence[str], rows: Sequence[Row]) -> Contest:
    """Return the ranking of the steps among *rows* that fit and are no bounds: by tokens where their length varies."""
    run = [row for row in rows if row["counts_software"] and row["fits"] and row["samples_per_s"]]
    unit = "token" if "seq_len" in over and all(row["tokens_per_s"] for row in run) else "sample"
    ranked = sorted(run, key=lambda row: -row[f"{unit}s_per_s"]) if len(rows) > 1 else []
    return Contest(over, rows, unit, ranked)


def sweep_lines(over: Sequence[str], rows: Sequence[Row], style: Style) -> list[str]:
    """Return the table of *rows*, with the values of the options *over* first."""

    def column(head: str, key: str, words: Any, right: bool = True, spare: int = 0) -> Column | None:
        cells = ["-" if row[key] is None else words(row[key]) for row in rows]
        return Column(head, cells, right, spare) if any(row[key] is not None for row in rows) else None

    bands = ["-" if row["low_s"] is None else ends_words(row["low_s"], row["high_s"]) for row in rows]
    sure = {None: "-", False: "no", True: "yes"}
    fits = [sure[row["fits"]] + f" {MARK}" * (row["fits"] is True and row.get("fits_by_band") is False) for row in rows]
    bound = [str(row["bound_by"] or "").partition(":")[0].replace(" (its kernels)", "") for row in rows]
    bounds = {words.partition(",")[0] for words in bound if words}
    rooms = {row["available_bytes"] for row in rows} - {None}
    samples = {samples_of(row) for row in rows if row["samples_per_s"]}
    columns = [
        *(Column(word_of(name)[2:], [_as_written(row[name]) for row in rows], right=False) for name in over),
        Column("samples a step", [f"{samples_of(row) or '-'}" for row in rows], spare=2)
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
        Column("bound by", [words or "-" for words in bound], right=False, spare=4) if len(bounds) > 1 else None,
    ]
    varied = "over " + ", ".join(word_of(name)[2:] for name in over)
    title = f"{len(rows)} runs: {varied}{_common(rows)}"
    lines = style.wrap(title if len(rows) > 1 else f"1 run: {rows[0]['question']}", "bold")
    ranking = ranking_of(over, rows)
    if ranking.ranked:
        lines += style.wrap(ranking.verdict(), "bold", hang=2)
    outside = lists_by_key((text, ranking.place(row)) for row in rows for text in row["outside"])
    for text, places in outside.items():
        which = f" ({few(places)})" if len(places) < len(rows) else ""
        lines += style.wrap(f"not validated{which}: {text}", "red", hang=2)
    lines += ["", *table_lines(columns, style), *mark_lines(fits, style)]
    if len(bounds) == 1:
        which = {1: "the one answered is", 2: "both are"}.get(sum(map(bool, bound)), "all are")
        peaks = "; MFU is of the peak of each precision" * ("precision" in over)
        lines += style.wrap(f"{which} bound by {next(iter(bounds))}{peaks}")
    if any(row.get("network_error") for row in rows):
        lines += style.wrap(f"{BAND_HEAD}: {OF_SHARED.format('')}", "dim", hang=2)
    if (least := least_unfit(rows)) is not None:
        needs = f"{ranking.place(least)} needs the least, {format_size(least['memory_bytes'], 3)}"
        lines += ["", *style.wrap(f"none fits into the memory of its devices; {needs}", "red")]
    causes = lists_by_key((row["error"], ranking.place(row)) for row in rows if row["error"])
    told = [style.wrap(f"{few(places)}: {cause}") for cause, places in causes.items()]
    lines += ["", *style.wrap("not answered", "bold"), *chain(*told)] if told else []
    if ranking.ranked:
        first, words = ranking.advice()
        lines += ["", *next_lines(words, style, first["question"])]
    return lines


def least_unfit(rows: Sequence[Row]) -> Row | None:
    """Return the step that needs the least memory where none fits; None where one does, or none is a step."""
    steps = [row for row in rows if row["fits"] is not None]
    if not steps or any(row["fits"] for row in steps):
        return None
    return min(steps, key=lambda row: float(row["memory_bytes"]))


def samples_of(row: Row) -> int:
    """Return the samples of a step."""
    return round(float(row["samples_per_s"] or 0.0) * float(row["time_s"] or 0.0))


def _plain_half(row: Row) -> bool:
    return is_plain_half(row.get("precision", "torch"))


def _amount(text: str) -> float:
    with suppress(ValueError):
        return float(text) if text.isdigit() else parse_quantity(text, "bandwidth")
    return math.inf


def _as_written(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _common(rows: Sequence[Row]) -> str:
    said = [re.findall(r"--\S+(?: (?!--)\S+)*", row["question"]) for row in rows]
    both = [words for words in said[0] if all(words in each for each in said) and not words.startswith("--jobs")]
    return f"; {' '.join(both)}" if both else ""
