"""``--report``: an answer as a page, from the text, trace and figure that it has anyway."""

from __future__ import annotations

from importlib.util import find_spec

from reports.page import Page, page_of
from simulator.cli.output import Answers
from simulator.cli.table import Collected
from simulator.results.result import Result
from simulator.results.training_run import TrainingRun
from simulator.topology.catalogue import part_figures


def answer_page(found: Answers, command: str) -> str:
    """Return the page of what is *found* for the question that *command* asks."""
    style = Collected()
    blocks = style.blocks(found.lines(style))
    text, _ = found.trace()
    figure = found.draw("svg") if find_spec("matplotlib") is not None else b""
    return page_of(Page(blocks, command, found.best, text, figure, _sources(found.best)))


def _sources(drawn: object) -> list[tuple[str, str, str, str]]:
    """Return (part, figure, value, source) of each figure of the machine's parts that come from the catalogue."""
    if not isinstance(drawn, Result | TrainingRun):
        return []
    machine = drawn.timeline.machine
    names = dict.fromkeys([node.part_name for node in machine.nodes])
    return [(name, *figure) for name in names for figure in part_figures(name)]
