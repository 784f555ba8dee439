"""The command ``validate check``."""

import re
from contextlib import ExitStack
from functools import partial
from typing import Annotated, Any

from simulator.api import Session
from simulator.cli.options import gpus_among, parse_count, parse_nccl, software_notes
from simulator.console.style import Progress
from simulator.errors import InputError, one_line
from simulator.questions.where import Where
from validate.check.causes import MOST_CAUSES
from validate.check.check import check_log, judged
from validate.check.pace import checked_links, links_document, links_text
from validate.check.report import as_document, as_text, check_page, headline
from validate.cli.command import CHECK_EPILOG, Json, Quiet, Text, Texts, command, command_again, positional, value
from validate.cli.words import opened, print_answer, print_remarks
from validate.compare.comparison import check_contradiction
from validate.importing.nccl_tests import read_nccl_tests
from validate.importing.other_tests import is_link_test, is_osu_tests, read_link_tests, read_osu_tests
from validate.kinds.moves import MAX_RANKS
from validate.machine.describe.dumps.read import read_text

SLOW = 3  # exit status "outside the requested tolerance", see simulator/console/run.py
_NEEDED = "a log of nccl-tests is needed, one: validate check --topology dgx-h100 all_reduce.log"
_PLOTS = re.compile(r".*\.(svg|png|pdf)", re.IGNORECASE)


@command("check", epilog=CHECK_EPILOG)
def check_command(
    files: Annotated[Texts, positional("LOG", "Output of nccl-tests, rccl-tests or OSU's, and of link tests.")] = None,
    topology: Annotated[Text, value("FILE", "The machine it ran on: a path or a built-in name.")] = None,
    nodes: Annotated[Text, value("COUNT", "Number of nodes.  [default: as in the log]")] = None,
    fabric: Annotated[Text, value("PART", "Network between nodes, instead of the adapters' own.")] = None,
    gpus: Annotated[Text, value("COUNT|LIST", "GPUs that ran, if the log does not list them: 8, 0-3 or 0,2.")] = None,
    collective: Annotated[Text, value("NAME", "The collective, if the log names none or several.")] = None,
    nccl: Annotated[Text, value("VERSION", "NCCL version, if the log names none: 2.18.")] = None,
    plot: Annotated[Text, value("FILE", "Plot measured and expected: .svg, .png or .pdf.")] = None,
    report: Annotated[Text, value("FILE.html", "Write the answer and its plot as one HTML page.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Say whether a log of a collective is normal, and if not, why.

    Compares measured with expected bus bandwidth at each size. If the log is slower than healthy logs are, simulates
    the machine with faulty links, adapters and settings, and names the faults that fit.  Output of ib_write_bw and
    nvbandwidth beside the log, or alone, is compared with the machine's links.  docs/check.md explains it.

    validate check --topology dgx-h100 all_reduce.log --plot check.svg
    """
    if not files:
        raise InputError(_NEEDED)
    if topology is None:
        raise InputError("--topology: the machine that ran it is needed, a path or a built-in name")
    kind = _PLOTS.fullmatch(plot) if plot is not None else None
    if plot is not None and kind is None:
        raise InputError(f"--plot {one_line(plot, 60)}: ends in .svg, .png or .pdf")
    texts = {one_line(file, 1000): read_text(file) for file in files}
    of_links = {shown: text for shown, text in texts.items() if is_link_test(text)}
    logs = [shown for shown in texts if shown not in of_links]
    if len(logs) > 1:
        raise InputError(_NEEDED)
    ran = _gpus(gpus) if gpus is not None else None
    count = len(ran) if isinstance(ran, tuple) else ran
    if (plot is not None or report is not None) and not logs:
        option = "--report" if plot is None else "--plot"
        raise InputError(f"{option}: draws a log of nccl-tests; link tests alone have no sizes")
    figures = [figure for shown, text in of_links.items() for figure in read_link_tests(text, shown)]
    links = checked_links(Session(), Where(topology), figures)
    if not logs:
        print_answer(links_document(links), partial(links_text, links), as_json=as_json)
        return SLOW if any(link.is_slow for link in links) else 0
    (shown,) = logs
    with ExitStack() as stack:
        output = stack.enter_context(opened(plot, "--plot"))
        page = stack.enter_context(opened(report, "--report"))
        read = read_osu_tests if is_osu_tests(texts[shown]) else read_nccl_tests
        log = read(texts[shown], shown, collective=collective, n_ranks=count)
        if log.gpu:
            check_contradiction("--topology", topology, {"device": log.gpu, "gpu": {"name": log.gpu}})
        version = parse_nccl(nccl) if nccl is not None else None
        many = parse_count("nodes", nodes) if nodes is not None else None
        with Progress(len(judged(log.points)) + MOST_CAUSES, "simulating", quiet=quiet) as progress:
            asked: dict[str, Any] = {"nodes": many, "fabric": fabric, "nccl": version, "links": links}
            asked["gpus"] = ran if isinstance(ran, tuple) else None
            checked = check_log(Session(), log, topology, step_done=progress.advance, **asked)
        document = as_document(checked)
        if output is not None and kind is not None:
            from reports.curves import draw_check

            output.write(draw_check(document, headline(checked), kind[1].lower()))
        if page is not None:
            how = {"topology": topology, "nodes": nodes, "fabric": fabric, "gpus": gpus, "collective": collective}
            page.write(check_page(checked, command_again("check", *files, **how, nccl=nccl)).encode())
    print_answer(document, partial(as_text, checked), as_json=as_json)
    said = [*checked.remarks, *(software_notes(nccl) if log.nccl is None else ())]
    said += [f"wrote the plot to {one_line(plot)}"] if plot is not None else []
    print_remarks([*said, *([f"wrote {one_line(report)}"] if report is not None else [])], quiet=quiet)
    amiss = checked.verdict in ("slow", "wrong") or any(link.is_slow for link in links)
    return SLOW if amiss or log.failure else 0


def _gpus(text: str) -> tuple[int, ...] | int:
    """Return the GPUs that *text* lists (0,2 or 0-3), or the number of ranks that it is; raises InputError."""
    if "," in text or "-" in text.strip()[1:]:
        return tuple(gpus_among(text, MAX_RANKS, "the largest machine that is checked"))
    return parse_count("gpus", text)
