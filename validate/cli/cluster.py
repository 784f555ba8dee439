"""The command ``validate cluster``."""

import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from simulator.console import Progress
from simulator.errors import InputError, one_line
from simulator.units import format_duration
from validate.cli.command import Given, number_in, print_result
from validate.machine.cluster import cases, network
from validate.machine.cluster.report import (
    ClusterFiles,
    cluster_document,
    cluster_environment,
    cluster_report,
    limited,
    limited_words,
)
from validate.machine.measure.host import removed_on_signals


def cluster_command(given: Given) -> None:
    """Measure and predict a real network of hosts on this machine."""
    calibrate, topology, clean, quiet = given.calibrate, given.topology, given.clean, given.quiet
    if clean:
        network.check_system()
        print_result("".join(f"removed {name}\n" for name in network.remove_leftovers()) or "nothing was left behind\n")
        return
    every = cases.make_cases(given.nodes, given.rate or ["100Mbit/s"], given.sizes, given.strategies, given.delay)
    told = "a number from 3 on is needed, such as 15"
    repeats = number_in("--repeat", given.repeat, r"0*([3-9]|[1-9]\d{1,3})", told, 40)
    budget_s = cases.read_duration("--budget", given.budget)
    shapes = list(dict.fromkeys(case.shape for case in every))
    most = max(case.n_nodes for case in every)
    if topology is not None and len(shapes) > 1:
        raise InputError("--topology: a file describes one rate; name one with --rate, or take --out DIR")
    names = network.RunNames()
    with ExitStack() as stack:
        if given.dry_run:
            ClusterFiles(stack, None, topology, shapes, most).write_topologies({}, {})
            print_result(_commands(names, shapes, most))
            return
        planner = cases.Predictor()
        about_s = [planner.predict_s(case) for case in every]
        if (least_s := sum(about_s) * (cases.LEAST_REPEATS + 1)) > budget_s:  # with warm-up
            least = format_duration(least_s)
            told = f"--budget: {given.budget} is not enough, three times of each case take about {least}"
            raise InputError(f"{told}; allow more, or name fewer --nodes, smaller --sizes or a higher --rate")
        files = ClusterFiles(stack, given.out, topology, shapes, most)
        network.check_system()
        network.check_torch()
        from validate.machine.cluster.run import run_cases

        with removed_on_signals():
            network.check_rights(names, delay=any(shape.delay_s for shape in shapes))
        facts, measured = cluster_environment(), cases.ClusterResults()
        if left := network.leftovers():
            said = f"an earlier run has left {len(left)} namespaces behind; validate cluster --clean removes them"
            given.remark([said])
        progress = stack.enter_context(Progress(len(every), "measuring", quiet=quiet))
        try:
            asked, ways = (names, every, about_s, planner.exchange), (measured, progress.advance)
            with removed_on_signals():
                run_cases(*asked, *ways, repeats=repeats, budget_s=budget_s)
        finally:  # keep what was measured before a failure
            predictor = cases.Predictor(measured.probes if calibrate else None, measured.costs)
            done = [case for case in every if case in measured.times]
            outcomes = [cases.CaseOutcome(case, measured.times[case], predictor.predict_s(case)) for case in done]
            facts |= measured.versions
            if outcomes:
                files.write(outcomes, measured, facts, calibrated=calibrate)
                probes = measured.probes
                given.remark(limited_words(at, probes[at]) for at in limited(probes))
                given.remark(f"wrote {one_line(path)}" for path in files.written)
    found = cluster_document(outcomes, measured, facts, calibrated=calibrate)
    given.answer(found, partial(cluster_report, outcomes, measured))


def _commands(names: network.RunNames, shapes: Sequence[network.LinkShape], most: int) -> str:
    links = [(step, shape) for shape in shapes for step in ("shape", "limit")]
    steps = [("make", shapes[0]), ("steer", shapes[0]), *links, ("remove", shapes[0])]
    lines = [line for step, shape in steps for line in network.network_commands(step, names, most, shape)]
    return "".join(f"{shlex.join(line)}\n" for line in lines)
