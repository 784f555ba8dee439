"""The command ``validate cluster``."""

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Annotated

from simulator.cli.options import refuse
from simulator.console.style import Progress
from simulator.errors import InputError, one_line
from simulator.units import format_duration
from validate.cli.command import Json, Quiet, Text, Texts, command, flag, value
from validate.cli.words import number_in, print_answer, print_remarks, print_result
from validate.machine.cluster import network, report
from validate.machine.cluster.cases import CaseOutcome, Predictor, make_cases, read_duration
from validate.machine.cluster.report import ClusterFiles
from validate.machine.cluster.run import ClusterResults, least_run_s, run_cases
from validate.machine.measure.host import removed_on_signals


@command("cluster")
def cluster_command(
    nodes: Annotated[str, value("N,...", "Hosts: 4, 2,4 or 2-6.")] = "4",
    rates: Annotated[
        Texts,
        value("RATE,...", "Rate of each link and direction, for example 1Gbit/s.  [default: 100Mbit/s]", "--rate"),
    ] = None,
    delay: Annotated[Text, value("TIME", "Added one-way delay between hosts: 1ms.")] = None,
    sizes: Annotated[str, value("SIZE,...", "Bytes that each host exchanges.")] = "1MB,4MB,16MB",
    strategies: Annotated[
        str, value("NAME,...", "Any schedule of simulate --strategy, or torch's own gloo and broadcast.")
    ] = "ring,halving-doubling,sharded,parameter-server,gloo,broadcast",
    repeat: Annotated[str, value("COUNT", "Most repetitions of a case.")] = "15",
    budget: Annotated[str, value("TIME", "Approximate time to measure.")] = "10 min",
    calibrate: Annotated[bool, flag("--calibrate", "Predict with the measured rate of a plain TCP stream.")] = False,
    out: Annotated[Text, value("DIR", "Write collectives.csv, cluster.json and one topology per rate.")] = None,
    topology: Annotated[Text, value("FILE", "Write the topology, for simulate --topology.")] = None,
    as_json: Json = False,
    dry_run: Annotated[bool, flag("--dry-run", "Print the commands without running them.")] = False,
    clean: Annotated[bool, flag("--clean", "Remove leftovers of a crashed run, and exit.")] = False,
    quiet: Quiet = False,
) -> None:
    """Measure and predict a real network of hosts on this machine.

    Hosts are Linux network namespaces connected by veth pairs and a bridge, with rate-limited links (tc tbf).
    Strategies run on them send by send over torch's gloo, as do gloo's own collectives; the simulator predicts the same
    from the link rate alone. Everything is removed at the end.
    Needs ip, tc, permission to create namespaces, and torch. docs/cluster.md explains the setup.
    """
    if clean or dry_run:
        others = {"--dry-run": clean and dry_run, "--json": as_json, "--out": out is not None, "--calibrate": calibrate}
        others |= {"--topology": clean and topology is not None}
        refuse(others, f"is not read with {'--clean' if clean else '--dry-run'}, which measures nothing")
    if clean:
        network.check_system()
        print_result("".join(f"removed {name}\n" for name in network.remove_leftovers()) or "nothing was left behind\n")
        return
    cases = make_cases(nodes, rates or ["100Mbit/s"], sizes, strategies, delay)
    told = "a number from 3 on is needed, such as 15"
    repeats = number_in("--repeat", repeat, r"0*([3-9]|[1-9]\d{1,3})", told, 40)
    budget_s = read_duration("--budget", budget)
    shapes = list(dict.fromkeys(case.shape for case in cases))
    most = max(case.n_nodes for case in cases)
    if topology is not None and len(shapes) > 1:
        raise InputError("--topology: a file describes one rate; name one with --rate, or take --out DIR")
    names = network.RunNames.of_this_process()
    with ExitStack() as stack:
        if dry_run:
            ClusterFiles(stack, None, topology, shapes, most).write_topologies({}, {})
            print_result(_commands(names, shapes, most))
            return
        planner = Predictor()
        about_s = [planner.predict_s(case) for case in cases]
        if least_run_s(about_s) > budget_s:
            least = format_duration(least_run_s(about_s))
            told = f"--budget: {budget} is not enough, three times of each case take about {least}"
            raise InputError(f"{told}; allow more, or name fewer --nodes, smaller --sizes or a higher --rate")
        files = ClusterFiles(stack, out, topology, shapes, most)
        network.check_system()
        network.check_torch()
        with removed_on_signals():
            network.check_rights(names, delay=any(shape.delay_s for shape in shapes))
        facts, measured = report.cluster_environment(), ClusterResults()
        if left := network.leftovers():
            said = f"an earlier run has left {len(left)} namespaces behind; validate cluster --clean removes them"
            print_remarks([said], quiet=quiet)
        progress = stack.enter_context(Progress(len(cases), "measuring", quiet=quiet))
        try:
            asked, ways = (names, cases, about_s, planner.exchange), (measured, progress.advance)
            with removed_on_signals():
                run_cases(*asked, *ways, repeats=repeats, budget_s=budget_s)
        finally:  # keep what was measured before a failure
            predictor = Predictor(measured.probes if calibrate else None, measured.costs)
            done = [case for case in cases if case in measured.times]
            outcomes = [CaseOutcome(case, measured.times[case], predictor.predict_s(case)) for case in done]
            facts |= measured.versions
            if outcomes:
                files.write(outcomes, measured, facts, calibrated=calibrate)
                probes = measured.probes
                print_remarks((report.limited_words(at, probes[at]) for at in report.limited(probes)), quiet=quiet)
                print_remarks((f"wrote {one_line(path)}" for path in files.written), quiet=quiet)
    found = report.cluster_document(outcomes, measured, facts, calibrated=calibrate)
    print_answer(found, partial(report.cluster_report, outcomes, measured), as_json=as_json)


def _commands(names: network.RunNames, shapes: Sequence[network.LinkShape], most: int) -> str:
    links = [(step, shape) for shape in shapes for step in ("shape", "limit")]
    steps = [("make", shapes[0]), ("steer", shapes[0]), *links, ("remove", shapes[0])]
    lines = [line for step, shape in steps for line in network.network_commands(step, names, most, shape)]
    return "".join(f"{shlex.join(line)}\n" for line in lines)
