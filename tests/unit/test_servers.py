"""Steps through parameter servers: scenarios B4, B6 and B7, with closed forms."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import accumulate
from pathlib import Path

import pytest

from simulator.api import Session
from simulator.cli import run
from simulator.collectives.communicator import Unsuitable
from simulator.errors import InputError
from simulator.questions.checks import changed
from simulator.questions.layout import FSDP, parse_layout
from simulator.questions.options import StepOptions
from simulator.questions.step import BUCKET_BYTES, StepQuestion
from simulator.questions.where import Where
from simulator.results.servers import COMPUTE, cycle_of
from simulator.results.step_view import time_shares
from simulator.results.trace import step_trace
from simulator.training.servers import ARRIVES, INSIDE, PULL, PUSH, READ, SPREAD, TO_CPU, TO_GPUS, UPDATE, ServerLabel
from simulator.training.worker import LaunchLabel
from tests.without_advice import without_advice

P3 = Where("p3.16xlarge", 4)
VGG = StepQuestion(where=P3, workload="vgg16", batch=32, strategy="parameter-server-sharded")
SLOW = (("node1", 2.0),)


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def session() -> Session:
    """Return a session that answers a step once, though several tests ask it."""
    found = Session()
    found.step = cache(found.step)  # type: ignore[method-assign]
    return found


def cluster(folder: Path, nic: str, nodes: int = 4) -> Where:
    """Return nodes of one V100 each, and a server on a separate machine whose memory bandwidth does not matter."""
    (folder / "worker.yaml").write_text(
        f"""
schema_version: 1
name: worker
devices:
  gpu0: {{part: v100-sxm2-16gb}}
  cpu0: {{part: xeon-e5-2686-v4}}
  nic0: {{kind: nic, bandwidth: {nic}}}
links:
  - {{between: [gpu0, cpu0], kind: pcie, bandwidth: 100000 GB/s}}
  - {{between: [cpu0, nic0], kind: pcie, bandwidth: 100000 GB/s}}
""",
        encoding="utf-8",
    )
    (folder / "server.yaml").write_text(
        f"""
schema_version: 1
name: server
parts:
  plain-cpu: {{kind: cpu, source: a textbook's}}
devices:
  cpu0: {{part: plain-cpu}}
  nic0: {{kind: nic, bandwidth: {nic}}}
links:
  - {{between: [cpu0, nic0], kind: pcie, bandwidth: 100000 GB/s}}
""",
        encoding="utf-8",
    )
    path = folder / "cluster.yaml"
    text = "schema_version: 1\nname: cluster\ncluster:\n  groups:\n"
    path.write_text(
        f"{text}    - {{node: worker.yaml, nodes: {nodes}}}\n    - {{node: server.yaml}}\n", encoding="utf-8"
    )
    return Where(str(path))


def asked(where: Where, **more: object) -> StepQuestion:
    base = StepQuestion(where=where, workload="resnet18", batch=32, strategy="parameter-server", contention=False)
    return replace(base, **more)  # type: ignore[arg-type]


# -- B4 ------------------------------------------------------------------------------


def test_b4_all_steps_are_seen_in_the_trace_and_the_bottleneck_is_named(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(Session, "advised", without_advice)  # advice takes most of the time
    trace = tmp_path / "trace.json"
    words = ["--topology", "p3.16xlarge", "--nodes", "4", "--workload", "alexnet", "--batch", "32", "--quiet"]
    words += ["--strategy", "parameter-server-sharded", "--json", "--trace", str(trace)]
    assert run(words) == 0
    document = json.loads(capsys.readouterr().out)
    result = document["results"][0]
    assert list(result["servers"]["stages_s"]) == [READ, COMPUTE, INSIDE, TO_CPU, PUSH, UPDATE, PULL, TO_GPUS, SPREAD]
    assert re.fullmatch(r"node\d\.nic0->network|network->node\d\.nic0", result["bottleneck"]["link"])
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "X"}
    for stage in (INSIDE, TO_CPU, PUSH, UPDATE, PULL, TO_GPUS, SPREAD):
        assert any(name.startswith(f"{stage} ") for name in names), stage
    assert READ in names
    assert any(name.endswith(", backward") for name in names)


def test_a_trace_is_as_long_as_the_steps_also_where_a_latency_comes_last(session: Session) -> None:
    asked = StepQuestion(where=Where("p3.2xlarge", 2), workload="lenet", batch=1, strategy="parameter-server")
    timeline = session.step(asked).timeline
    last = max(timeline.ran(), key=lambda each: each[1].end_s)[0]
    assert last.about == ARRIVES
    events = json.loads(step_trace(timeline, "step"))["traceEvents"]
    end_s = max(event.get("ts", 0.0) + event.get("dur", 0.0) for event in events) * 1e-6
    assert end_s == pytest.approx(timeline.end_s, abs=2e-9)


def test_b4_a_step_cannot_be_faster_than_its_network(session: Session) -> None:
    result = session.step(VGG)
    s_bytes = 4 * result.step.parameter_count
    machine = session.machine(P3)
    nic = machine.links[next(i for i, link in enumerate(machine.links) if link.name == "node0.nic0->network")]
    # Each adapter carries its worker's pushes to the other three servers, and its server's sends to three workers.
    least_s = 2 * (3 / 4) * s_bytes / nic.bandwidth_Bps
    assert result.bottleneck is not None
    assert result.bottleneck.utilisation == pytest.approx(least_s / result.step_time_s, rel=0.01)
    assert result.step_time_s > least_s
    assert (result.exchanges, result.exchanged_bytes) == (16, s_bytes)
    shares = time_shares(result)
    assert sum(shares.values()) == pytest.approx(result.step_time_s)
    assert shares["data"] == pytest.approx(result.exposed_s)
    assert set(shares) <= {"computing", "slowest", "data", "host"}


# -- B6 ------------------------------------------------------------------------------


def test_b6_keys_are_pushed_while_the_backward_pass_goes_on_the_last_layer_first(session: Session) -> None:
    timeline = session.step(VGG).timeline
    spans = list(zip(timeline.plan.tasks, timeline.spans, strict=True))
    pushes = [(task.about.key, span) for task, span in spans if _is(task.about, PUSH, 1)]
    for team in range(4):  # VGG-16: one key per layer; a node does not push those on its own server
        keys = [task.about.key for task, _ in spans if _is(task.about, PUSH, 1) and task.about.team == team]
        assert keys == sorted(keys)
    assert {key for key, _ in pushes} == set(range(16))
    backward_ends_s = max(
        span.end_s
        for task, span in spans
        if isinstance(task.about, LaunchLabel) and not task.about.on_host and task.about.micro_batch == 1
    )
    assert pushes[0][1].start_s < backward_ends_s - 0.05
    label = {task.about.key: task.label for task, _ in spans if _is(task.about, PUSH, 1)}
    assert (label[0], label[15]) == ("push classifier.6", "push features.0")
    # The first layer waits only for its own key: later layers' keys still arrive while it computes.
    back_s = {task.about.key: span.end_s for task, span in spans if _is(task.about, SPREAD, 1) and not task.about.team}
    begin_s = min(
        span.start_s
        for task, span in spans
        if isinstance(task.about, LaunchLabel) and task.place == "node0.gpu0" and task.about.micro_batch == 2
    )
    assert begin_s == pytest.approx(back_s[15], abs=1e-9)


def test_b6_overlap_gains_what_it_hides(session: Session) -> None:
    assert session.step(replace(VGG, bucket_bytes=0)).step_time_s > 1.05 * session.step(VGG).step_time_s


def test_the_one_door_gives_the_time_of_a_steady_step(session: Session) -> None:
    assert session.time_s(VGG) == session.step(VGG).step_time_s


def test_large_keys_are_sliced_and_small_ones_lie_on_one_server(session: Session) -> None:
    timeline = session.step(VGG).timeline
    flows: Counter[int] = Counter()
    for task in timeline.plan.tasks:
        if _is(task.about, PUSH, 1):
            flows[task.about.key] += len(task.flows)
    assert flows[1] == 4 * 3  # 16.8 M parameters: from each node to each other node's server
    assert flows[15] == 3  # 1,792 parameters: to one server


def _is(about: object, stage: str, step: int) -> bool:
    return isinstance(about, ServerLabel) and about.stage == stage and about.step == step


# -- B7 ------------------------------------------------------------------------------


def test_b7_the_slowest_sets_the_pace_of_a_synchronous_step(session: Session, tmp_path) -> None:
    where = cluster(tmp_path, "10000 GB/s")  # so that only computation counts
    alone_s = session.step(asked(where)).servers.paces[0].busy_s  # type: ignore[union-attr]
    run_ = session.step(asked(where, stragglers=SLOW)).servers
    assert run_ is not None
    for pace in run_.paces:
        assert pace.period_s == pytest.approx(2 * alone_s, rel=0.01)
        assert (pace.staleness_max, pace.lead) == (0, 0)
    fast = next(pace for pace in run_.paces if pace.node_count == 3)
    assert fast.slack_s == pytest.approx(alone_s, rel=0.02)


@pytest.mark.parametrize("bound", [1, 3])
def test_b7_bounded_delay_gives_so_many_steps_of_slack(session: Session, tmp_path, bound: int) -> None:
    where = cluster(tmp_path, "10000 GB/s")
    result = session.step(asked(where, stragglers=SLOW, staleness=bound))
    assert result.servers is not None
    assert [pace.lead for pace in result.servers.paces] == [bound, 0, bound, bound]
    # Three that are no faster in the long run, and a slow one.
    periods = [pace.period_s for pace in result.servers.paces]
    assert periods == pytest.approx([max(periods)] * 4, rel=1e-3)


def test_b7_asynchronous_each_goes_at_its_own_pace(session: Session, tmp_path) -> None:
    where = cluster(tmp_path, "10000 GB/s")
    result = session.step(asked(where, stragglers=SLOW, staleness=None))
    assert result.servers is not None
    fast, slow, *others = result.servers.paces
    assert [each.period_s for each in others] == pytest.approx([fast.period_s] * 2, rel=0.02)
    assert slow.period_s == pytest.approx(2 * fast.period_s, rel=0.02)
    each = 1 / fast.period_s
    assert result.throughput == pytest.approx(32 * (3 * each + each / 2), rel=0.02)
    # During a step of the slow worker each of the three others updates twice, and it updates in every second of theirs.
    assert slow.staleness_mean == pytest.approx(6, abs=0.7)
    # The same of a fast one: two others update once in its period, and the slow one in every second.
    for pace in (fast, *others):
        assert pace.staleness_mean == pytest.approx(2 + 0.5, abs=0.3)


def test_asynchronous_nodes_that_are_equal_are_as_fast_as_synchronous_ones(session: Session, tmp_path) -> None:
    where = cluster(tmp_path, "10000 GB/s")
    sync, free = session.step(asked(where)), session.step(asked(where, staleness=None))
    assert free.throughput == pytest.approx(sync.throughput, rel=0.01)
    assert free.servers is not None
    assert (1.5 <= free.servers.staleness_mean <= 3 + 1e-9, free.servers.staleness_max) == (True, 3)


def test_a_slow_network_bounds_a_step_by_what_the_server_takes_in(session: Session, tmp_path) -> None:
    where = cluster(tmp_path, "0.1 GB/s")
    result = session.step(asked(where))
    s_bytes = 4 * result.step.parameter_count
    # Push and pull use opposite directions of the server's adapter and overlap: between one way and both.
    one_way_s = 4 * s_bytes / 0.1e9
    assert one_way_s < result.step_time_s < 2 * one_way_s + result.alone_s
    whole = session.step(asked(where, bucket_bytes=0))
    assert whole.step_time_s > result.step_time_s


SMALL_NODES = StepQuestion(where=Where("p3.2xlarge", 4), workload="lenet-d2l", batch=32, strategy="parameter-server")


@pytest.mark.parametrize(("strategy", "teams"), [("-sharded", 4), ("-2", 3), ("", 2)])
def test_folded_nodes_are_as_each_by_itself(session: Session, strategy: str, teams: int) -> None:
    question = replace(SMALL_NODES, strategy=f"parameter-server{strategy}")
    folded, apart = (session.step(question, fold=fold) for fold in (True, False))
    assert folded.servers is not None
    assert apart.servers is not None
    assert folded.step_time_s == pytest.approx(apart.step_time_s, rel=1e-9)
    assert (len(folded.servers.paces), len(apart.servers.paces)) == (teams, 4)


@pytest.mark.parametrize(("nodes", "strategy"), [(2, ""), (2, "-sharded"), (3, ""), (3, "-2")])
def test_more_staleness_costs_no_time_and_a_straggler_saves_none(session: Session, nodes: int, strategy: str) -> None:
    """Nodes that share a link or a server at the same moments for ever would gain from a straggler."""
    where = Where("p3.2xlarge", nodes)
    question = replace(SMALL_NODES, where=where, workload="mlp", batch=256, strategy=f"parameter-server{strategy}")
    times_s = []
    for bound in (0, 1, 2, 3):
        result = session.step(replace(question, staleness=bound))
        assert result.servers is not None
        assert result.servers.is_steady
        times_s.append(result.step_time_s)
        late = session.step(replace(question, staleness=bound, stragglers=((f"node{nodes - 1}", 2.0),)))
        assert late.step_time_s >= times_s[-1] * (1 - 1e-6)
    assert times_s[1] <= times_s[0] * (1 + 1e-6)
    assert times_s[2:] == pytest.approx(times_s[1:2] * 2, rel=1e-6)  # none gains by more than one step ahead
    assert session.step(replace(question, staleness=None)).throughput >= result.throughput * (1 - 1e-6)


def test_equal_nodes_do_not_share_a_server_at_the_same_moment_for_ever(session: Session) -> None:
    """Three nodes would take 1.8 ms in step; moved apart, one computes while another's keys pass."""
    question = replace(SMALL_NODES, where=Where("p3.2xlarge", 3), staleness=1)
    even, late = session.step(question), session.step(replace(question, stragglers=(("node2", 1.2),)))
    assert even.step_time_s <= late.step_time_s < 1.1e-3


@pytest.mark.parametrize(
    ("lengths", "cycle"),
    [
        ([9, 9, 2, 2, 2, 1], 1),
        ([9, 9, 1, 2, 1, 2, 1, 2, 1], 2),
        ([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 5], 3),
        ([1, 2, 4, 8, 16, 32], None),
        ([5, 2, 2, 7], None),
    ],
)
def test_steps_that_repeat_every_few_steps_are_steady(lengths: list[float], cycle: int | None) -> None:
    ends = list(accumulate(lengths, initial=1.0))
    assert cycle_of([ends, [end + 0.1 for end in ends]]) == cycle


# -- stragglers without servers ------------------------------------------------------


@pytest.mark.parametrize("more", [{"strategy": "nccl"}, {"strategy": "ring"}, {"layout": FSDP}])
def test_every_way_to_train_waits_for_a_straggler(session: Session, more: dict[str, object]) -> None:
    where = Where("p3.16xlarge")
    even = changed(StepQuestion(where=where, workload="resnet50", batch=32, contention=False), **more)
    slow = replace(even, stragglers=(("gpu3", 1.5),))
    plain, late = session.step(even), session.step(slow)
    assert late.step_time_s == pytest.approx(1.5 * plain.step_time_s, rel=0.05)
    shares = time_shares(late)
    assert sum(shares.values()) == pytest.approx(late.step_time_s)
    assert shares["slowest"] == pytest.approx(0.5 * shares["computing"])
    assert "fill" not in shares
    assert [device.count for device in late.memory] == [8]
    with pytest.raises(InputError, match="stragglers='gpu9': no device is called 'gpu9'; did you mean 'gpu"):
        session.step(replace(even, stragglers=(("gpu9", 2.0),)))
    with pytest.raises(InputError, match="stragglers='gpu3': no such device takes part"):
        session.step(changed(slow, gpus=(0,)))


SMALL: tuple[tuple[str, int | str], ...] = (("layers", 4), ("attention", "fused"))
GPT2 = StepQuestion(
    where=Where("p3.16xlarge"), workload="gpt2", batch=2, micro_batches=2, contention=False, sizes=SMALL
)


@pytest.mark.parametrize("words", ["tp=4", "tp=2", "cp=2", "zero=1", "tp=2,fsdp"])
def test_ranks_that_divide_the_network_wait_for_a_straggler(session: Session, words: str) -> None:
    even = replace(GPT2, layout=parse_layout(words))
    late = session.step(replace(even, stragglers=(("gpu3", 1.5),)))
    all_late = session.step(replace(even, stragglers=tuple((f"gpu{i}", 1.5) for i in range(8))))
    assert late.step_time_s == pytest.approx(all_late.step_time_s, rel=1e-3)
    assert late.step_time_s > 1.1 * session.step(even).step_time_s


def test_a_pipeline_waits_for_its_slow_stage(session: Session) -> None:
    def step_s(words: str, *slow: int) -> float:
        stragglers = tuple((f"gpu{i}", 1.5) for i in slow)
        return session.step(replace(GPT2, layout=parse_layout(words), stragglers=stragglers)).step_time_s

    even_s, late_s, all_late_s = step_s("tp=2,pp=4"), step_s("tp=2,pp=4", 3), step_s("tp=2,pp=4", *range(8))
    assert 1.02 * even_s < late_s < 0.99 * all_late_s
    assert late_s == step_s("tp=2,pp=4", 2, 3)  # the other GPU of the same stage
    # Stages 0 and 1 of the same replica are slow: GPUs 0 and 4; of two replicas: GPUs 0 and 5.
    assert step_s("pp=2", 0, 4) == pytest.approx(step_s("pp=2", *range(8)), rel=1e-9)
    assert step_s("pp=2", 0, 1) == step_s("pp=2", 0)
    with pytest.raises(InputError, match="stragglers: in a pipeline, slow GPUs must all be of one of its replicas"):
        step_s("pp=2", 0, 5)
    with pytest.raises(InputError, match="stragglers='gpu9': no device is called"):
        step_s("pp=2", 9)


@pytest.mark.parametrize("words", ["tp=2", "pp=2", "cp=2", "zero=1", "fsdp", "dataparallel"])
def test_servers_go_with_whole_replicas(session: Session, words: str, capsys) -> None:
    question = changed(GPT2, strategy="parameter-server", layout=parse_layout(words))
    with pytest.raises(Unsuitable, match=f"servers keep the parameters of whole replicas; {words} has none"):
        session.step(question)
    command = ["--topology", "p3.16xlarge", "--workload", "gpt2", "--batch", "2", "--quiet", "--parallel", words]
    for more in (["--staleness", "2"], ["--servers", "workers"], ["--lose", "cpu1@1s"]):
        assert run([*command, "--strategy", "parameter-server", *more]) == 2
        assert f"{more[0]}: is for --parallel dp; servers keep the parameters" in capsys.readouterr().err


def test_options_that_nobody_would_read_are_refused(capsys) -> None:
    step = ["--topology", "p3.16xlarge", "--batch", "8", "--quiet"]
    for words, told in [
        (["--staleness", "2"], "--staleness: is for --strategy parameter-server"),
        (["--servers", "own"], "--servers: is for --strategy parameter-server"),
        (["--straggler", "gpu3"], "--straggler gpu3: write for example gpu3:1.5x"),
        (["--straggler", "gpu3:500x"], "--straggler gpu3: must be between 1x and 100x, times as long; got 500x"),
        (
            ["--strategy", "parameter-server", "--staleness", "soon"],
            "--staleness soon: must be a whole number, or async",
        ),
        (["--strategy", "parameter-server", "--staleness", "99"], "--staleness 99: from 0 to 35, or async"),
        (["--strategy", "parameter-server", "--overlap", "bucket:1MiB"], "--overlap: servers exchange key by key"),
        (["--strategy", "parameter-server", "--mode", "backward", "--staleness", "1"], "updates nothing"),
        (["--parallel", "loop", "--strategy", "ring"], "of --parallel loop is a sum on the first GPU"),
        (["--parallel", "loop", "--mode", "backward"], "is simulated for --mode train, not backward"),
        (["--gpus", "1", "--divide", "best"], "--divide: is about an exchange"),
        (["--divide", "even,cpu0"], "a CPU gets a part of what is divided best"),
        (["--strategy", "parameter-server", "--lose", "cpu1"], "--lose cpu1: write for example node4.cpu0@100ms"),
        (["--lose", "cpu1@1s"], "others go on from a checkpoint (--mtbf)"),
        (["--strategy", "parameter-server", "--cuda-graph"], "--cuda-graph: parameters are pulled between the layers"),
    ]:
        assert run([*step, *words]) == 2, words
        assert told in capsys.readouterr().err


def test_the_last_step_which_none_follows_is_no_measure(session: Session) -> None:
    """In this case its parameters return over links that it has to itself."""
    options = StepOptions(precision="amp-fp16")
    question = replace(VGG, where=Where("p3.16xlarge"), batch=8, options=options)
    result = session.step(replace(question, strategy="parameter-server", bucket_bytes=BUCKET_BYTES))
    run_ = result.servers
    assert run_ is not None
    assert run_.is_steady
    assert run_.step_count <= 10
    assert result.step_time_s == pytest.approx(82.027e-3, rel=1e-4)
    computed = [(task.about.micro_batch, span.end_s) for task, span in result.timeline.ran(LaunchLabel)]
    before_s, last_s = (max(end_s for at, end_s in computed if at == run_.step_count - back) for back in (2, 1))
    assert last_s - before_s < 0.996 * result.step_time_s


@pytest.mark.parametrize(
    ("strategy", "staleness", "many", "teams"),
    [("-sharded", 0, True, 1), ("-sharded", 0, False, 4), ("", 0, True, 2), ("", None, True, 2), ("", None, False, 4)],
)
def test_many_nodes_are_one_and_told(
    monkeypatch: pytest.MonkeyPatch, strategy: str, staleness: int | None, many: bool, teams: int
) -> None:
    if many:
        monkeypatch.setattr("simulator.training.teams._MOST_ACTIVITIES", 1)
    question = replace(SMALL_NODES, strategy=f"parameter-server{strategy}", staleness=staleness)
    result = Session().step(question)
    run_ = result.servers
    assert run_ is not None
    told = "equal nodes are kept in step; of this network, up to 2 are not"
    if strategy:
        least = "keys count as spread evenly over the servers, so that a step takes at least this long"
        told = f"{least}; of up to 2 nodes each is simulated"
    assert run_.notes == ((told,) if many and (strategy or staleness is None) else ())
    assert len(run_.paces) == teams


@pytest.mark.parametrize(
    ("nodes", "workload", "batch", "least"),
    [(4, "resnet50", 32, 0.99), (6, "lenet", 64, 0.7), (4, "alexnet", 32, 0.99)],
)
def test_nodes_that_are_simulated_as_one_take_little_less_than_each_by_itself(
    monkeypatch: pytest.MonkeyPatch, nodes: int, workload: str, batch: int, least: float
) -> None:
    """In step, all nodes would send each key to one server at once: up to half more than nodes that drift apart."""
    where = Where("p3.16xlarge", nodes=nodes)
    question = replace(SMALL_NODES, where=where, workload=workload, batch=batch, strategy="parameter-server-sharded")
    each_s = Session().step(question).step_time_s
    monkeypatch.setattr("simulator.training.teams._MOST_ACTIVITIES", 1)
    for staleness in (0, 1):
        together_s = Session().step(replace(question, staleness=staleness)).step_time_s
        assert least * each_s <= together_s <= each_s * (1 + 1e-6)


@pytest.mark.parametrize("slow", [(), (("node1", 3.0),)])
def test_asynchronous_nodes_take_no_more_from_a_server_than_its_link_gives(
    session: Session, tmp_path, slow: tuple[tuple[str, float], ...]
) -> None:
    """The rates of all nodes are measured in the same time; with unlike windows they added up to more than the link."""
    where = cluster(tmp_path, "1 GB/s")
    result = session.step(asked(where, workload="alexnet", staleness=None, stragglers=slow))
    bound = 1e9 / (4 * result.step.parameter_count)
    in_order = session.step(asked(where, workload="alexnet", staleness=1)).throughput
    assert result.throughput / 32 <= bound * 1.005
    assert result.throughput >= 0.97 * in_order


@pytest.mark.parametrize("staleness", [0, 1, None])
def test_a_stream_works_and_waits_no_longer_than_a_step(session: Session, tmp_path, staleness: int | None) -> None:
    """Work of a step begins before it and ends after it, where steps overlap."""
    result = session.step(asked(cluster(tmp_path, "1 GB/s"), staleness=staleness))
    for use in result.streams.values():
        assert use.busy_s + sum(use.waits_s.values()) <= max(result.step_time_s, use.busy_s) * (1 + 1e-6)
