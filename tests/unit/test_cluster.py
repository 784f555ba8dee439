"""``validate cluster`` without a network: options, commands, names, topology, comparison, files."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from typing import Any

import pytest

from simulator.console import Style
from simulator.console.run import run_app
from simulator.errors import InputError, MissingDependency
from simulator.topology.load import load_topology, topology_from_text
from validate.cli import app
from validate.machine.cluster import network as left
from validate.machine.cluster import network as rights
from validate.machine.cluster.cases import (
    EFFICIENCY,
    CaseOutcome,
    ClusterCase,
    ClusterResults,
    MessageCosts,
    Predictor,
    find_cluster_strategy,
    machine_name,
    make_cases,
    orders,
    read_duration,
    topology_text,
)
from validate.machine.cluster.network import (
    PREFIX,
    CommandFailed,
    HostNetwork,
    LinkShape,
    RunNames,
    network_commands,
    owner_of,
    process_start,
)
from validate.machine.cluster.report import (
    ClusterFiles,
    cluster_document,
    cluster_report,
    csv_table,
    limited,
    limited_words,
)
from validate.machine.measure.host import removed_on_signals
from validate.machine.measure.timing import median_interval

FAST = LinkShape(12.5e6)  # 100 Mbit/s
PAYLOAD = 12.5e6 * 1448 / 1514
NAMES = RunNames("12-34")


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = run_app(app, "validate", ["cluster", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def case(strategy: str = "ring", n: int = 4, size: int = 1_000_000, shape: LinkShape = FAST) -> ClusterCase:
    return ClusterCase(shape, n, size, find_cluster_strategy(strategy))


def outcome(measured_s: float, predicted_s: float, **options: object) -> CaseOutcome:
    return CaseOutcome(case(**options), median_interval([measured_s] * 6), predicted_s)  # type: ignore[arg-type]


# -- options -------------------------------------------------------------------------


def test_cases_are_all_combinations_in_the_order_named() -> None:
    found = make_cases("2,4-5,4", ["100Mbit/s,1Gbit/s"], "1MB,4B,4MB", "sharded,ring", "1 ms")
    assert len(found) == 2 * 3 * 3 * 2
    assert [c.n_nodes for c in found[:18:6]] == [2, 4, 5]
    assert {c.shape for c in found} == {LinkShape(12.5e6, 1e-3), LinkShape(125e6, 1e-3)}
    assert [c.strategy.name for c in found[:2]] == ["sharded", "ring"]
    assert found[0].shape == found[17].shape != found[18].shape  # cases of one link are consecutive


def test_sizes_are_whole_numbers_of_floats() -> None:
    assert make_cases("2", ["1Gbit/s"], "1003 B", "ring", None)[0].size_bytes == 1000


def test_more_servers_than_hosts_are_left_out() -> None:
    found = make_cases("2-4", ["1Gbit/s"], "1MB", "parameter-server-3", None)
    assert [c.n_nodes for c in found] == [3, 4]
    with pytest.raises(InputError, match="more servers than nodes"):
        make_cases("2", ["1Gbit/s"], "1MB", "parameter-server-3", None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--nodes", "1"], "--nodes: numbers from 2 to 32"),
        (["--nodes", "6-2"], "--nodes: numbers from 2 to 32"),
        (["--nodes", "many"], "--nodes: numbers from 2 to 32"),
        (["--nodes", "99"], "--nodes: numbers from 2 to 32"),
        (["--rate", "100"], "--rate: bandwidth needs a unit"),
        (["--rate", "100 Mb/s"], "did you mean Mbit/s or MB/s?"),
        (["--rate", "1 kbit/s"], "--rate: 1 kbit/s is outside 1 Mbit/s to 100 Gbit/s"),
        (["--sizes", "2GB"], "--sizes: 2GB is outside 4 B to 1 GB"),
        (["--sizes", "1MB,,"], "--sizes: names or numbers with commas between"),
        (["--delay", "1"], "--delay: time needs a unit"),
        (["--strategies", "rign"], "--strategies: 'rign' is not measured; did you mean 'ring'?"),
        (["--repeat", "2"], "--repeat: a number from 3 on is needed"),
        (["--budget", "0 s"], "--budget: a time such as 120s or 2min is needed; got '0 s'"),
        (["--budget", "0"], "--budget: a time such as 120s or 2min is needed; got '0'"),
        (["--budget", "soon"], "--budget: a time such as 120s or 2min is needed; got 'soon'"),
        (["--budget", "1"], "--budget: 1 is not enough, three times of each case take about"),
        (["--sizes", "-1"], "--sizes: -1 is outside 4 B to 1 GB"),
        (["--sizes", "-1MB"], "--sizes: -1MB is outside 4 B to 1 GB"),
        (["--budget", "1 s"], "is not enough, three times of each case take about"),
        (["--rate", "1Gbit/s,2Gbit/s", "--topology", "x.yaml"], "--topology: a file describes one rate"),
        (["--topology", "no/such/folder/x.yaml"], "there is no folder"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys, arguments: list[str], words: str) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("2min", 120), ("10 min", 600), ("1 h", 3600), ("9ms", 9e-3)]
)
def test_a_budget_is_what_run_takes_and_any_time(text: str, seconds: float) -> None:
    assert read_duration("--budget", text) == pytest.approx(seconds)


# -- commands ------------------------------------------------------------------------


def test_every_command_stays_in_namespaces_of_the_run() -> None:
    commands = [
        *network_commands("make", NAMES, 3),
        *network_commands("steer", NAMES, 3, cpus=[0, 1]),
        *network_commands("shape", NAMES, 3, LinkShape(12.5e6, 1e-3)),
        *network_commands("limit", NAMES, 3, LinkShape(12.5e6, 1e-3)),
        *network_commands("remove", NAMES, 3),
    ]
    ours = {NAMES.switch, *(NAMES.host(i) for i in range(3))}
    for command in commands:
        words = list(command)
        if words[:3] in (["ip", "netns", "add"], ["ip", "netns", "delete"], ["ip", "netns", "exec"]):
            assert words[3] in ours
        elif words[1] == "-n":
            assert words[0] in ("ip", "tc")
            assert words[2] in ours
        else:  # a wire: both ends are created inside namespaces
            assert words[:3] == ["ip", "link", "add"]
            assert [words[i + 1] for i, word in enumerate(words) if word == "netns"] == [NAMES.switch, words[-1]]
            assert words[-1] in ours
    made = {c[3] for c in commands if c[:3] == ("ip", "netns", "add")}
    assert made == ours == {c[3] for c in commands if c[:3] == ("ip", "netns", "delete")}


def test_both_ends_of_every_wire_have_the_rate() -> None:
    commands = network_commands("shape", NAMES, 2, FAST)
    buckets = [c for c in commands if "tbf" in c]
    assert len(buckets) == 4
    assert {c[c.index("rate") + 1] for c in buckets} == {"100000000bit"}
    assert not [c for c in commands if "netem" in c]
    assert len([c for c in network_commands("shape", NAMES, 2, LinkShape(12.5e6, 2e-3)) if "2000us" in c]) == 2


@pytest.mark.parametrize("rate_Bps", [125e3, 12.5e6, 125e6, 12.5e9])
def test_no_packet_is_longer_than_the_bucket(rate_Bps: float) -> None:
    # tbf would split larger packets, at the processor's cost; half a bucket covers a late timer.
    shape = LinkShape(rate_Bps)
    assert 1514 < shape.packet_bytes <= 65_536
    assert shape.packet_bytes <= shape.bucket_bytes / 2


@pytest.mark.parametrize(("shape", "most"), [(LinkShape(125e6), 125_000), (LinkShape(12.5e6, 2e-3), 24_224 + 50_000)])
def test_a_connection_waits_with_what_its_link_passes_in_a_moment(shape: LinkShape, most: int) -> None:
    # 1 ms at the link's rate, at least 16 frames, and the bytes in flight of a round trip.
    assert [c[-1].split()[1] for c in network_commands("limit", NAMES, 2, shape)] == [str(most)] * 2


@pytest.mark.parametrize(("cpu", "mask"), [(0, "00000001"), (5, "00000020"), (33, "00000002,00000000")])
def test_each_interface_receives_on_one_processor(cpu: int, mask: str) -> None:
    steered = [c[-1] for c in network_commands("steer", NAMES, 1, cpus=[cpu])]
    assert steered == [f"echo {mask} > /sys/class/net/{d}/queues/rx-0/rps_cpus" for d in ("eth0", "port0")]


def test_dry_run_prints_the_commands_and_runs_none(capsys, monkeypatch, tmp_path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a command was run")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    file = tmp_path / "network.yaml"
    status, out, err = run(capsys, "--nodes", "2-3", "--rate", "1Gbit/s", "--dry-run", "--topology", str(file))
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert sum("tbf rate 1000000000bit" in line for line in lines) == 6
    assert sum(line.startswith("ip netns add") for line in lines) == 4
    assert sum(line.startswith("ip netns delete") for line in lines) == 4
    assert "nodes: 3" in file.read_text()


# -- names and leftovers -------------------------------------------------------------


def test_names_tell_whose_they_are() -> None:
    names = RunNames()
    me = (os.getpid(), process_start(os.getpid()))
    for name in (names.switch, names.probe, names.host(0), names.host(31)):
        assert name.startswith(PREFIX)
        assert owner_of(name) == me
    for other in ("", "blue", "topocast-cluster-", "topocast-cluster-x-1-host0", "topocast-cluster-1-1-host0-mine"):
        assert owner_of(other) is None
    assert process_start(2**30) is None


def test_only_what_crashed_runs_left_is_removed(monkeypatch) -> None:
    mine, dead, recycled = (
        RunNames().switch,
        f"{PREFIX}1073741824-5-host0",
        f"{PREFIX}1-99999999-switch",
    )
    there = ["blue", mine, dead, recycled, "topocast-cluster-notes"]
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(left, "list_namespaces", lambda: there)
    monkeypatch.setattr(left, "processes_in", lambda name: [])
    monkeypatch.setattr(left, "run_shell", commands.append)
    assert left.remove_leftovers() == [dead, recycled]
    assert commands == [("ip", "netns", "delete", dead), ("ip", "netns", "delete", recycled)]


def test_a_user_who_may_not_steer_packets_has_a_network_all_the_same(monkeypatch) -> None:
    def refuse_steering(command: tuple[str, ...]) -> str:
        if "rps_cpus" in command[-1]:
            raise CommandFailed("Operation not permitted")
        return ""

    monkeypatch.setattr("validate.machine.cluster.network.run_shell", refuse_steering)
    with HostNetwork(NAMES, 2) as network:
        assert not network.is_steered


def test_a_network_that_fails_half_way_is_removed(monkeypatch) -> None:
    commands: list[tuple[str, ...]] = []

    def fail_at_the_second_host(command: tuple[str, ...]) -> str:
        commands.append(command)
        if command == ("ip", "netns", "add", NAMES.host(1)):
            raise CommandFailed("no room")
        return ""

    monkeypatch.setattr("validate.machine.cluster.network.run_shell", fail_at_the_second_host)
    with pytest.raises(CommandFailed), HostNetwork(NAMES, 2):
        raise AssertionError("it was entered")
    assert set(network_commands("remove", NAMES, 2)) <= set(commands)


# -- rights --------------------------------------------------------------------------


def test_other_systems_are_refused(monkeypatch, capsys) -> None:
    monkeypatch.setattr(rights.sys, "platform", "darwin")
    assert run(capsys, "--budget", "1 h")[0] == 1
    with pytest.raises(rights.NotPossible, match="network namespaces need Linux; this is darwin"):
        rights.check_system()


def test_missing_tools_are_named(monkeypatch) -> None:
    monkeypatch.setattr(rights.sys, "platform", "linux")
    monkeypatch.setattr(rights.shutil, "which", lambda tool: None if tool == "tc" else "/sbin/ip")
    with pytest.raises(rights.NotPossible, match=r"tc not found; .* package iproute2"):
        rights.check_system()


def test_missing_torch_is_status_4(monkeypatch) -> None:
    monkeypatch.setattr(rights.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="pip install torch"):
        rights.check_torch()
    assert MissingDependency.exit_status == 4


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        ("netns add", "no right to make a network namespace .Operation not permitted.; run it as root, or .* unshare"),
        ("veth", "this kernel has no veth pairs"),
        ("tbf", "this kernel has no rates .tc tbf. .*; its module is sch_tbf"),
        ("netem", "this kernel has no --delay .tc netem."),
    ],
)
def test_what_is_not_allowed_or_there_is_said_and_the_trial_removed(monkeypatch, fails: str, words: str) -> None:
    commands: list[str] = []

    def answer(command: tuple[str, ...]) -> str:
        line = " ".join(command)
        commands.append(line)
        if fails in line and "delete" not in line:
            raise CommandFailed(f"{line}: Operation not permitted")
        return ""

    monkeypatch.setattr(rights, "run_shell", answer)
    with pytest.raises(rights.NotPossible, match=words):
        rights.check_rights(NAMES, delay=True)
    assert commands[-1] == f"ip netns delete {NAMES.probe}"


# -- operations ----------------------------------------------------------------------


def test_hosts_do_what_the_simulator_plans() -> None:
    planner = Predictor()
    for name in ("ring", "tree", "sharded", "parameter-server", "parameter-server-2"):
        found = planner.exchange(case(name, 3))
        assert found is not None
        assert (found["strategy"], found["n_ranks"], found["n_elements"]) == (name, 3, 250_000)
    assert planner.exchange(case("gloo")) is None
    assert planner.exchange(case("broadcast")) is None


@pytest.mark.parametrize("strategy", ["ring", "parameter-server", "gloo", "broadcast"])
def test_a_host_checks_what_it_has(monkeypatch, strategy) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    from validate.machine.cluster import run as cluster_run
    from validate.machine.measure import exchange as over

    class Alone:
        """A group without communication."""

        @staticmethod
        def new_group(ranks: list[int]) -> None:
            return None

        @staticmethod
        def isend(*_: object, tag: int) -> Alone:
            return Alone()

        irecv = isend
        P2POp = staticmethod(lambda *_, **__: Alone())
        batch_isend_irecv = staticmethod(list)
        all_reduce = broadcast = staticmethod(lambda *_, **__: None)

        def wait(self) -> None:
            return None

    monkeypatch.setattr(cluster_run.socket, "create_server", lambda address: None)
    monkeypatch.setattr(cluster_run, "dist", Alone)
    monkeypatch.setattr(over, "dist", Alone)
    host = cluster_run.Operations(1, ["127.0.0.1", "127.0.0.1", "127.0.0.1"], [2])
    host.prepare(strategy, 2, 4000, Predictor().exchange(case(strategy, 2, 4000)))
    assert not host.run()[1]
    host.prepare(strategy, 1, 4000, None)  # takes no part
    assert host.run()[1]


def test_a_host_sends_first_to_the_next_one(monkeypatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")
    from validate.machine.measure import exchange as over
    from validate.machine.measure.exchange import read_exchange

    posted: list[tuple[str, int]] = []

    class Recorded:
        """A group that records the peers it sends to and receives from."""

        def wait(self) -> None:
            return None

    def post(what: str) -> Callable[..., Recorded]:
        def posting(tensor: object, peer: int, tag: int) -> Recorded:
            posted.append((what, peer))
            return Recorded()

        return posting

    monkeypatch.setattr(over.dist, "isend", post("to"))
    monkeypatch.setattr(over.dist, "irecv", post("from"))
    exchange = Predictor().exchange(case("sharded", 4, 4000))
    assert exchange is not None
    host = over.OverRanks(read_exchange(exchange), 1)
    host.run()
    assert posted == [("from", 0), ("from", 3), ("from", 2), ("to", 2), ("to", 3), ("to", 0)] * 2


# -- prediction ----------------------------------------------------------------------


def test_a_case_holds_nothing_that_was_measured() -> None:
    assert [f.name for f in fields(ClusterCase)] == ["shape", "n_nodes", "size_bytes", "strategy"]


@pytest.mark.parametrize(
    ("strategy", "n", "units"),
    [
        *[("ring", n, 2 * (n - 1) / n) for n in (2, 4, 6)],
        *[("gloo", n, 2 * (n - 1) / n) for n in (2, 4, 6)],
        *[("sharded", n, 2 * (n - 1) / n) for n in (2, 4, 6)],
        *[("parameter-server-colocated", n, 2 * (n - 1) / n) for n in (2, 4, 6)],
        *[("parameter-server", n, 2 * (n - 1)) for n in (2, 4, 6)],
        *[("broadcast", n, units) for n, units in ((2, 1), (4, 3), (6, 5))],
    ],
)
def test_predictions_in_closed_form(strategy: str, n: int, units: float) -> None:
    size = 16_000_000
    assert Predictor().predict_s(case(strategy, n, size)) == pytest.approx(units * size / PAYLOAD, rel=5e-3)


def test_calibration_takes_the_place_of_the_nominal_rate() -> None:
    half = Predictor({FAST: PAYLOAD / 2}).predict_s(case(size=16_000_000))
    assert half == pytest.approx(2 * Predictor().predict_s(case(size=16_000_000)), rel=5e-3)


def test_a_delay_is_paid_once_each_way_between_hosts() -> None:
    slow = case("broadcast", 2, shape=LinkShape(12.5e6, 5e-3))
    assert Predictor().predict_s(slow) - Predictor().predict_s(case("broadcast", 2)) == pytest.approx(5e-3, rel=1e-6)


def test_messages_cost_what_the_probe_says() -> None:
    costs = MessageCosts(50e-6, 200e-6, 2)
    cluster = topology_from_text(topology_text(FAST, 4, None, costs))
    assert (cluster.messages.message, cluster.messages.round, cluster.messages.processors) == (50e-6, 200e-6, 2)
    few = case("double-tree", 6, 1_000_000, LinkShape(125e6))
    by_default, slow = Predictor().predict_s(few), Predictor(costs={LinkShape(125e6): costs}).predict_s(few)
    assert slow > 2 * by_default


@pytest.mark.parametrize(("n", "cpus"), [(6, 2), (2, 2), (2, 16), (3, 1)])
def test_the_probe_of_messages_finds_what_they_cost(monkeypatch, n: int, cpus: int) -> None:
    pytest.importorskip("torch", reason="torch is not installed: pip install torch")

    from validate.machine.cluster.run import message_costs, prepare

    message_s, round_s = 40e-6, 90e-6

    class Busy:
        """Hosts whose processors only handle messages."""

        def run(self, function: Any, case: tuple[str, int, int], what: Any, timeout_s: float) -> list[Any]:
            if function is prepare:
                self.rounds = what["rounds"]
                return [None] * n
            ends = [[move[:2] for move in step] for step in self.rounds]
            busy_s = sum(n * round_s + 2 * len(step) * message_s for step in ends) / min(n, cpus)
            assert {sum(host in pair for pair in step) for step in ends for host in range(n)} <= {2, 16}
            return [(0.0, busy_s, False)] * n

    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cpus)))
    found = message_costs(Busy(), n)  # type: ignore[arg-type]
    assert (found.message_s, found.round_s) == (pytest.approx(message_s), pytest.approx(round_s))
    assert found.processors == cpus


def test_links_are_called_by_rate_and_delay() -> None:
    assert machine_name(FAST) == "netns-100mbit"
    assert machine_name(LinkShape(125e6, 1.5e-3)) == "netns-1000mbit-1500us"
    assert f"efficiency: {EFFICIENCY:.6g}" in topology_text(FAST, 2)


# -- comparison ----------------------------------------------------------------------


def test_order_counts_pairs_that_are_apart() -> None:
    same = [outcome(1.0, 1.0), outcome(0.9, 1.01, strategy="sharded"), outcome(3, 3, strategy="parameter-server")]
    assert [order.wrong for order in orders(same)] == [()]  # predicted as equal: either may be faster
    swapped = [outcome(3.0, 1.0), outcome(1.0, 3.0, strategy="parameter-server")]
    assert orders(swapped)[0].wrong == (("ring", "parameter-server"),)
    assert orders([outcome(1, 1), outcome(1, 1, strategy="broadcast")]) == []  # a different collective is not compared


def test_report_and_document_say_the_same() -> None:
    found = [outcome(0.1, 0.11), outcome(0.4, 0.36, strategy="parameter-server")]
    probes = {FAST: 0.8 * PAYLOAD}
    costs = {FAST: MessageCosts(40e-6, 90e-6, 2)}
    text = cluster_report(found, ClusterResults({}, probes, costs))
    assert "short messages: 40 us of a host's processor each, 90 us a round, on 2 processors" in text
    assert "80.0% of what the link carries" in text
    assert "+10.0 %" in text
    assert "-10.0 %" in text
    assert "order of the strategies: as predicted in 1 of 1" in text
    for width in (60, 80, 100, 120):
        shown = cluster_report(found, ClusterResults({}, probes, costs), Style(width))
        assert max(map(len, shown.splitlines())) <= width
        assert "+10.0 %" in shown
    whole = cluster_document(found, ClusterResults({}, probes, costs), {"torch": "2"}, calibrated=False)
    assert whole["links"][0]["messages"] == {"message_s": 40e-6, "round_s": 90e-6, "processors": 2}
    assert [c["error"] for c in whole["cases"]] == pytest.approx([0.1, -0.1])
    assert whole["errors"]["all"]["median"] == pytest.approx(0.1)
    assert whole["links"][0]["probe_Bps"] / whole["links"][0]["payload_Bps"] == pytest.approx(0.8)


def test_the_table_is_scored_again_with_the_same_errors(capsys, tmp_path) -> None:
    names = ("ring", "tree", "parameter-server", "parameter-server-2", "gloo", "broadcast")
    cases = [case(name, n) for n in (2, 4) for name in names]
    found = [CaseOutcome(c, median_interval([0.2] * 6), Predictor().predict_s(c)) for c in cases]
    text = csv_table(found, "2.13")
    assert {"strategy", "gpu_set", "algbw_GBps", "note"} < {*next(csv.reader(io.StringIO(text)))}
    (tmp_path / "collectives.csv").write_text(text)
    (tmp_path / "net.yaml").write_text(topology_text(FAST, 4))
    out = tmp_path / "scored.csv"
    arguments = ["--topology", str(tmp_path / "net.yaml"), "--out", str(out), "--quiet"]
    assert run_app(app, "validate", ["score", str(tmp_path / "collectives.csv"), *arguments]) == 0
    assert f"{len(cases)} of {len(cases)} rows scored" in capsys.readouterr().out
    scored = [float(row["error"]) for row in csv.DictReader(io.StringIO(out.read_text()))]
    assert scored == pytest.approx([o.error for o in found], rel=1e-4)


def test_where_the_machine_is_the_limit_rows_are_context() -> None:
    assert [row["trust"] for row in csv.DictReader(io.StringIO(csv_table([outcome(1, 1)], "2", limited=[FAST])))] == [
        "C"
    ]
    assert [row["trust"] for row in csv.DictReader(io.StringIO(csv_table([outcome(1, 1)], "2")))] == ["A"]


def test_files_are_written_whole_and_only_what_is_asked_for(tmp_path) -> None:
    found = [outcome(0.1, 0.11)]
    costs = {FAST: MessageCosts(40e-6, 90e-6, 2)}
    measured = ClusterResults({found[0].case: found[0].measured}, {FAST: PAYLOAD / 2}, costs, {"torch": "2.13"})
    with ExitStack() as stack:
        one = ClusterFiles(stack, None, str(tmp_path / "one.yaml"), [FAST], 4)
        one.write(found, measured, {}, calibrated=True)
    assert [path.name for path in tmp_path.iterdir()] == ["one.yaml"]
    assert f"efficiency: {EFFICIENCY / 2:.6g}" in (tmp_path / "one.yaml").read_text()
    with ExitStack() as stack:
        ClusterFiles(stack, str(tmp_path / "new" / "folder"), None, [FAST, LinkShape(125e6)], 4)  # nothing was written
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    with ExitStack() as stack:
        both = ClusterFiles(stack, str(tmp_path / "out"), None, [FAST, LinkShape(125e6)], 4)
        both.write(found, measured, {"cpu": "x"}, calibrated=False)
    names = {"collectives.csv", "cluster.json", "netns-100mbit.yaml", "netns-1000mbit.yaml"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert sorted(both.written) == sorted(str(tmp_path / "out" / name) for name in names)
    assert f"efficiency: {EFFICIENCY:.6g}" in (tmp_path / "out" / "netns-100mbit.yaml").read_text()
    assert json.loads((tmp_path / "out" / "cluster.json").read_text())["environment"] == {"cpu": "x"}
    rows = csv.DictReader((tmp_path / "out" / "collectives.csv").read_text().splitlines())
    assert [row["trust"] for row in rows] == ["C"]  # the probe reached half of the payload rate


def test_links_that_the_machine_cannot_fill_are_told() -> None:
    probes = {FAST: 0.5 * PAYLOAD, LinkShape(125e6): 0.95 * PAYLOAD * 10}
    assert limited(probes) == [FAST]
    assert "at 100 Mbit/s this machine, and not the rate, is the limit" in limited_words(FAST, probes[FAST])
    assert "reaches 50% of what the links carry" in limited_words(FAST, probes[FAST])


def test_three_times_have_no_interval() -> None:
    few = [CaseOutcome(case(), median_interval([0.2, 0.2, 0.2]), 0.2)]
    line = cluster_report(few, ClusterResults()).splitlines()[1]
    assert "%" not in line.split("ms")[1]
    assert cluster_document(few, ClusterResults(), {}, calibrated=False)["cases"][0]["interval_s"] is None
    assert "median of 3\n" in csv_table(few, "2")
    enough = [CaseOutcome(case(), median_interval([0.2] * 6), 0.2)]
    assert cluster_document(enough, ClusterResults(), {}, calibrated=False)["cases"][0]["interval_s"] == [0.2, 0.2]
    assert "median of 6, 95 % interval +-0.0%" in csv_table(enough, "2")


def test_a_network_that_limits_each_flow_says_so() -> None:
    words = "one TCP flow reaches 625 MB/s of an adapter's 6.25 GB/s"
    assert [note for note in load_topology("g4dn.12xlarge", n_nodes=2).notes if words in note]
    assert not [note for note in load_topology("g4dn.12xlarge", n_nodes=2, fabric="5 Gbit/s").notes if words in note]
    assert not [note for note in load_topology("dgx-h100", n_nodes=2).notes if "TCP flow" in note]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_each_signal_interrupts_once(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    later: list[signal.Signals] = []

    def interrupted() -> None:
        with removed_on_signals():
            try:
                os.kill(os.getpid(), number)
            finally:  # what is removed then is not cut short by others
                for other in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    os.kill(os.getpid(), other)
                    later.append(other)

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(later) == 3
    assert signal.getsignal(number) == before
