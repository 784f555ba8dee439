"""Parameter servers, checkpoints and the division of a batch as text."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.cli.table import table_of
from simulator.console.style import Style
from simulator.results.checkpoints import Checkpoints
from simulator.results.columns import percent
from simulator.results.servers import ServerRun
from simulator.units import format_duration


def server_lines(run: ServerRun, style: Style) -> list[str]:
    """Return the stages of a step, and the pace of each node."""
    whole_s = run.period_s or 1.0
    rows = [["through servers", "at work", "share of a step"]]
    rows += [[stage, format_duration(seconds), percent(seconds / whole_s)] for stage, seconds in run.stages_s.items()]
    lines = table_of(rows, [False, True, True], style)
    lines += style.wrap(f"servers on {', '.join(run.servers)}; {run.longest_stage} is at work longest", "dim")
    rows = [["nodes", "step", "computing", "slack", "staleness", "at most", "ahead"]]
    for pace in run.paces:
        more = f" and {pace.node_count - 1} more" if pace.node_count > 1 else ""
        times = [format_duration(seconds) for seconds in (pace.period_s, pace.busy_s, pace.slack_s)]
        stale = f"{pace.staleness_mean:.3g}"
        rows.append([f"{pace.node}{more}", *times, stale, str(pace.staleness_max), str(pace.lead)])
    return [*lines, "", *table_of(rows, [False, True, True, True, True, True, True], style)]


def checkpoint_lines(found: Checkpoints, style: Style) -> list[str]:
    """Return the cost of failures and checkpoints, and the best interval."""
    title = f"a checkpoint every {found.every_steps:,} steps, a failure every {format_duration(found.mtbf_s)}"
    rows = [
        ["", "", ""],
        ["  kept", percent(found.goodput), f"{format_duration(found.interval_s)} between checkpoints"],
        ["  writing", percent(found.written_share), f"{format_duration(found.write_s)} each"],
        ["  lost", percent(found.failed_share), f"steps done again, and {format_duration(found.restart_s)} to restart"],
        ["  best", percent(found.best_goodput), f"every {found.best_steps:,} steps (Daly)"],
    ]
    return [*style.wrap(title, "bold"), *table_of(rows, [False, True, False], style)]


def share_lines(shares: Sequence[tuple[str, str, int]], style: Style) -> list[str]:
    """Return the number of samples that each device computes."""
    rows = [["divided so that all finish together", "part", "samples"]]
    rows += [[name, part, f"{samples:,}"] for name, part, samples in shares]
    return table_of(rows, [False, False, True], style)
