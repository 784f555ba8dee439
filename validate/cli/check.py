"""The command ``validate check``."""

import re
from contextlib import ExitStack
from functools import partial
from typing import Any

from simulator.api import Session
from simulator.cli.options import gpus_among, parse_count, parse_nccl, software_notes
from simulator.console import Progress
from simulator.errors import InputError, one_line
from simulator.questions.where import Where
from validate.check.causes import MOST_CAUSES
from validate.check.check import MOST_JUDGED, check_log
from validate.check.pace import checked_links, evenly, links_document, links_text
from validate.check.report import as_document, as_text, check_page, headline
from validate.cli.command import Given
from validate.compare.comparison import check_contradiction
from validate.importing.nccl_tests import read_nccl_tests
from validate.importing.other_tests import is_link_test, is_osu_tests, read_link_tests, read_osu_tests
from validate.kinds.moves import MAX_RANKS
from validate.machine.describe.dumps.read import read_text

SLOW = 3  # exit status "outside the requested tolerance", see simulator/console/run.py
_PLOTS = re.compile(r".*\.(svg|png|pdf)", re.IGNORECASE)


def check_command(given: Given) -> int:
    """Say whether a log of a collective is normal, and if not, why."""
    topology, nccl, plot, report = given.topology, given.nccl, given.plot, given.report
    kind = _PLOTS.fullmatch(plot) if plot is not None else None
    if plot is not None and kind is None:
        raise InputError(f"--plot {one_line(plot, 60)}: ends in .svg, .png or .pdf")
    texts = {one_line(file, 1000): read_text(file) for file in given.files}
    of_links = {shown: text for shown, text in texts.items() if is_link_test(text)}
    logs = [shown for shown in texts if shown not in of_links]
    if len(logs) > 1:
        raise InputError("a log of nccl-tests is needed, one: validate check --topology dgx-h100 all_reduce.log")
    ran = _gpus(given.gpus) if given.gpus is not None else None
    count = len(ran) if isinstance(ran, tuple) else ran
    if (plot is not None or report is not None) and not logs:
        option = "--report" if plot is None else "--plot"
        raise InputError(f"{option}: draws a log of nccl-tests; link tests alone have no sizes")
    figures = [figure for shown, text in of_links.items() for figure in read_link_tests(text, shown)]
    links = checked_links(Session(), Where(topology), figures)
    if not logs:
        given.answer(links_document(links), partial(links_text, links))
        return SLOW if any(link.is_slow for link in links) else 0
    (shown,) = logs
    with ExitStack() as stack:
        output = stack.enter_context(given.opened("plot"))
        page = stack.enter_context(given.opened("report"))
        read = read_osu_tests if is_osu_tests(texts[shown]) else read_nccl_tests
        log = read(texts[shown], shown, collective=given.collective, n_ranks=count)
        if log.gpu:
            check_contradiction("--topology", topology, {"device": log.gpu, "gpu": {"name": log.gpu}})
        version = parse_nccl(nccl) if nccl is not None else None
        many = parse_count("nodes", given.nodes) if given.nodes is not None else None
        with Progress(len(evenly(log.points, MOST_JUDGED)) + MOST_CAUSES, "simulating", quiet=given.quiet) as progress:
            asked: dict[str, Any] = {"nodes": many, "fabric": given.fabric, "nccl": version, "links": links}
            asked["gpus"] = ran if isinstance(ran, tuple) else None
            checked = check_log(Session(), log, topology, step_done=progress.advance, **asked)
        document = as_document(checked)
        if output is not None and kind is not None:
            from reports.curves import draw_check

            output.write(draw_check(document, headline(checked), kind[1].lower()))
        if page is not None:
            again = given.again("check", *given.files, options="topology nodes fabric gpus collective nccl")
            page.write(check_page(checked, again).encode())
    given.answer(document, partial(as_text, checked))
    said = [*checked.remarks, *(software_notes(nccl) if log.nccl is None else ())]
    said += [f"wrote the plot to {one_line(plot)}"] if plot is not None else []
    given.remark([*said, *given.wrote("report")])
    amiss = checked.verdict in ("slow", "wrong") or any(link.is_slow for link in links)
    return SLOW if amiss or log.failure else 0


def _gpus(text: str) -> tuple[int, ...] | int:
    """Return the GPUs that *text* lists (0,2 or 0-3), or the number of ranks that it is; raises InputError."""
    if "," in text or "-" in text.strip()[1:]:
        return tuple(gpus_among(text, MAX_RANKS, "the largest machine that is checked"))
    return parse_count("gpus", text)
