"""The result of a search as text."""

from __future__ import annotations

from simulator.cli.confidence_text import outside_words
from simulator.cli.table import Column, table_lines
from simulator.console.style import Style
from simulator.results.columns import duration_column, rate_words
from simulator.results.confidence import BAND_HEAD, band_words
from simulator.results.words import MODE_WORDS
from simulator.search.document import reason_of
from simulator.search.run import Best
from simulator.search.space import Space
from simulator.units import format_size
from simulator.workload.network import Network


def best_lines(space: Space, machine: str, network: Network, best: Best, style: Style) -> list[str]:
    """Return the layouts in order with what each loses time to, and the infeasible ones."""
    options = space.question.options
    title = f"{machine}, {space.device_count} GPUs: {MODE_WORDS[options.mode]} of {network.title}, "
    title += f"{space.global_batch:,} {network.sample}, {options.precision}, {options.optimizer}"
    ways = [entry.candidate for entry in best.ranking]
    recompute = [way.recompute for way in ways]
    columns = [
        Column("layout", [way.layout.words for way in ways], right=False),
        Column("micro-batch", [f"{way.micro_batch} x {way.micro_batches}" for way in ways]),
        *([Column("recompute", recompute, right=False)] if set(recompute) != {"none"} else []),
        Column("step", duration_column([entry.step_time_s for entry in best.ranking])),
        Column(BAND_HEAD, [band_words(entry.band) for entry in best.ranking], spare=2),
        Column(f"{network.sample}/s", [rate_words(space.global_batch / e.step_time_s) for e in best.ranking]),
        Column("memory", [format_size(entry.memory_bytes, 3) for entry in best.ranking]),
        Column("time lost to", [reason_of(entry.shares) for entry in best.ranking], right=False, spare=1),
    ]
    lines = outside_words([text for entry in best.ranking for text in entry.outside], style)
    lines = [*style.wrap(title, "bold"), *lines, "", *table_lines(columns, style)]
    count = f"{best.feasible_count:,} layouts fit; the best {best.simulated_count} were simulated"
    lines += ["", *style.wrap(f"{count}, the others estimated from the costs of their parts", hang=2)]
    if best.infeasible:
        why = ", ".join(
            f"{n:,} ({reason})" for reason, n in sorted(best.infeasible.items(), key=lambda i: (-i[1], i[0]))
        )
        lines += style.wrap(f"not feasible: {why}", "dim", hang=2)
    return lines
