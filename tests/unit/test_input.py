"""The input pipeline of a step: closed forms of its bounds, caches, words and files, text and JSON output."""

from __future__ import annotations

import json
import random
import re
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.api import Session
from simulator.cli import run
from simulator.engine.executor import execute
from simulator.errors import InputError
from simulator.host.input import BatchLoad, DiskUse, FedStep, InputWork, hit_share, plan_input
from simulator.network.machine import Machine
from simulator.network.routing import Router
from simulator.plan.plan import Flow, PlanBuilder
from simulator.questions.input import InputFile, InputQuestion, data_sets, parse_input
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.input import step_ends
from tests.examples import few
from tests.machines import machine_from, ring_machine

pytestmark = pytest.mark.usefixtures("answered_once")

GB = 1e9


@pytest.fixture(scope="module")
def session() -> Session:
    return Session()


@pytest.fixture(scope="module")
def machine() -> Machine:
    return ring_machine(2)


def step(session: Session, words: str, **more: object) -> StepQuestion:
    asked = {"where": Where("p3.16xlarge"), "workload": "resnet50", "batch": 64, "gpus": (0,)} | more
    return StepQuestion(input=parse_input(words), **asked)  # type: ignore[arg-type]


def batch(read_s: float = 0.0, core_s: float = 0.0, disk_s: float = 0.0, **more: float) -> BatchLoad:
    disks = (DiskUse(0, disk_s, 0.0, by_operations=True),) if disk_s else ()
    given = {"samples": 1, "decode_s": 0.0, "pin_s": 0.0, "taken_s": 0.0, "batch_bytes": 0.0} | more
    return BatchLoad(read_s=read_s, core_s=core_s, disks=disks, **given)  # type: ignore[arg-type]


def period_s(
    machine: Machine,
    load: BatchLoad,
    device_s: float,
    *,
    loaders: int = 1,
    cores: int = 8,
    host_s: float = 0.0,
    **asked: int,
) -> float:
    """Return the steady-state time of a step, in seconds."""
    question = InputQuestion(name="test", sample_bytes=1.0, **asked)  # type: ignore[arg-type]
    feeding = InputWork(question, load, loaders, 1, 8, ())
    shape = FedStep(0.0, device_s, host_s, 0)
    cycle = max(1, question.workers)  # workers that start together finish together
    turns = -(-12 // cycle)
    steps = (2 + turns) * cycle + 3 * cycle * question.prefetch
    ends = step_ends(execute(machine, plan_input(machine, Router(machine), feeding, shape, steps)))
    begin = cycle * (1 + question.prefetch)
    return (ends[begin + turns * cycle] - ends[begin]) / (turns * cycle)


# -- the slowest stage sets the pace -------------------------------------------------


def test_a_step_that_is_fed_takes_its_own_time(machine: Machine) -> None:
    assert period_s(machine, batch(core_s=0.03), 0.01, workers=4) == pytest.approx(0.01)


def test_workers_that_decode_divide_the_time_of_a_batch(machine: Machine) -> None:
    assert period_s(machine, batch(core_s=0.2), 0.01, workers=4) == pytest.approx(0.2 / 4)
    assert period_s(machine, batch(core_s=0.2), 0.01, workers=8) == pytest.approx(0.2 / 8)


def test_more_workers_than_cores_gain_nothing(machine: Machine) -> None:
    assert period_s(machine, batch(core_s=0.2), 0.01, workers=16) == pytest.approx(0.2 / 8)


def test_loaders_of_several_processes_share_the_cores(machine: Machine) -> None:
    assert period_s(machine, batch(core_s=0.2), 0.01, workers=4, loaders=4) == pytest.approx(4 * 0.2 / 8)


def test_a_disk_at_its_depth_bounds_however_many_wait_for_it(machine: Machine) -> None:
    # 10 ms for one worker, of which 2 ms are disk time: five fill the disk.
    for workers, expected in ((1, 0.01), (4, 0.0025), (5, 0.002), (16, 0.002)):
        found = period_s(machine, batch(read_s=0.01, disk_s=0.002), 0.001, workers=workers)
        assert found == pytest.approx(expected), workers


def test_without_workers_loading_and_the_step_take_turns_on_the_host(machine: Machine) -> None:
    assert period_s(machine, batch(core_s=0.02), 0.03, workers=0, host_s=0.005) == pytest.approx(0.03)
    assert period_s(machine, batch(core_s=0.04), 0.03, workers=0, host_s=0.005) == pytest.approx(0.045)


def test_a_loop_that_waits_for_each_step_adds_its_own_time(machine: Machine) -> None:
    load, more = batch(core_s=0.001, taken_s=0.004), {"workers": 4, "host_s": 0.002}
    assert period_s(machine, load, 0.01, steps_under_way=1, **more) == pytest.approx(0.014)
    assert period_s(machine, load, 0.01, steps_under_way=2, **more) == pytest.approx(0.01)


@settings(max_examples=few(25), deadline=None)
@given(
    read_s=st.floats(0.0, 0.05),
    core_s=st.floats(0.001, 0.05),
    disk_share=st.floats(0.05, 1.0),
    device_s=st.floats(0.001, 0.05),
    workers=st.integers(1, 8),
    loaders=st.integers(1, 4),
)
def test_throughput_is_the_least_of_the_stages(
    machine: Machine, read_s: float, core_s: float, disk_share: float, device_s: float, workers: int, loaders: int
) -> None:
    load = batch(read_s=read_s, core_s=core_s, disk_s=disk_share * read_s)
    expected = max(device_s, (read_s + core_s) / workers, loaders * core_s / 8, loaders * disk_share * read_s)
    assert period_s(machine, load, device_s, workers=workers, loaders=loaders) == pytest.approx(expected, rel=0.02)


def test_batches_ahead_hide_a_worker_that_is_late(machine: Machine) -> None:
    """A worker's two batches arrive while the device still has some: the second of each pair is in time."""
    slow = batch(core_s=0.039)
    assert period_s(machine, slow, 0.01, workers=4, prefetch=1) == pytest.approx(0.01, rel=0.02)
    waiting = InputWork(InputQuestion(name="x", sample_bytes=1.0, workers=4, prefetch=4), slow, 1, 1, 8, ())
    plan = plan_input(machine, Router(machine), waiting, FedStep(0.0, 0.05, 0.0, 0), 40)
    timeline = execute(machine, plan)
    begun = [s.start_s for t, s in zip(plan.tasks, timeline.spans, strict=True) if t.label == "load"]
    ended = step_ends(timeline)
    assert sum(start < ended[9] for start in begun) == 10 + 16 + 1  # workers x prefetch, and one on the device


def test_many_micro_batches_pass_few_workers(machine: Machine) -> None:
    asked = InputQuestion(name="test", sample_bytes=1.0, workers=2, prefetch=1)
    feeding = InputWork(asked, batch(core_s=0.01), 1, 16, 8, ())
    ends = step_ends(execute(machine, plan_input(machine, Router(machine), feeding, FedStep(0.0, 0.01, 0.0, 0), 6)))
    assert ends[4] - ends[3] == pytest.approx(16 * 0.01 / 2)


def test_workers_that_stand_for_others_are_as_fast(machine: Machine) -> None:
    load = batch(read_s=0.03, core_s=0.05, disk_s=0.0001)
    for pace, workers in ((1.0, 32), (2.0, 16), (4.0, 8)):
        feeding = InputWork(InputQuestion(name="test", sample_bytes=1.0, workers=workers), load, 1, 1, 64, (), pace)
        plan = plan_input(machine, Router(machine), feeding, FedStep(0.0, 0.001, 0.0, 0), 200)
        ends = step_ends(execute(machine, plan))
        assert (ends[-1] - ends[-1 - 96]) / 96 == pytest.approx(0.08 / 32), workers


def test_copies_share_links_with_what_the_step_moves() -> None:
    pair = machine_from(
        """
schema_version: 1
name: a GPU and its host
devices:
  gpu0: {kind: gpu}
  cpu0: {kind: cpu}
links:
  - {between: [gpu0, cpu0], kind: pcie, bandwidth: 10 GB/s}
"""
    )
    router = Router(pair)
    down = router.route(1, 0)
    copy = PlanBuilder()
    copy.transfer("copy", [Flow(down, 1e9)])
    asked = InputQuestion(name="test", sample_bytes=1.0, workers=4)
    feeding = InputWork(asked, batch(core_s=0.01), 1, 1, 8, (copy.build(),))
    found = []
    for share in (0.0, 0.8):
        loads = ((down.links[0][0], share),) if share else ()
        shape = FedStep(0.0, 0.11, 0.0, 0, loads)
        ends = step_ends(execute(pair, plan_input(pair, router, feeding, shape, 40)))
        found.append((ends[30] - ends[10]) / 20)
    assert found[0] == pytest.approx(0.11)
    assert found[1] == pytest.approx(0.1 + 0.8 * 0.11, rel=0.02)  # the link is never idle


# -- memory ----------------------------------------------------------------------------


def test_what_was_used_last_is_kept_as_a_cache_of_a_random_order_keeps_it() -> None:
    items, room = 4000, 1400
    cache: OrderedDict[int, None] = OrderedDict()
    hits, drawn = [], random.Random(1)
    for _ in range(6):
        order = list(range(items))
        drawn.shuffle(order)
        found = 0
        for item in order:
            found += item in cache
            cache[item] = None
            cache.move_to_end(item)
            if len(cache) > room:
                cache.popitem(last=False)
        hits.append(found / items)
    asked = InputQuestion(name="set", sample_bytes=1.0, samples=items, cache="memory", epochs=2)
    assert hit_share(asked, room) == pytest.approx(sum(hits[1:]) / 5, abs=0.01)
    assert hit_share(replace(asked, shuffle=False), room) == 0.0
    assert hit_share(asked, items) == 1.0
    assert hit_share(replace(asked, cache="none"), items) == 0.0


def test_later_epochs_are_read_from_memory(session: Session) -> None:
    once = session.step(step(session, "imagenet,workers=8", gpus=tuple(range(8)))).input
    again = session.step(step(session, "imagenet,workers=8,cache=memory,epochs=3", gpus=tuple(range(8)))).input
    assert once is not None
    assert again is not None
    assert again.first_s == pytest.approx(once.first_s)
    assert again.later_s < again.first_s
    assert again.cached_share == 1.0
    assert again.bound == "step"
    assert again.total_s == pytest.approx(again.first_s + 2 * again.later_s)
    assert again.kept_bytes == pytest.approx(1281167 * 113e3)


# -- against the disk's own figures ------------------------------------------------------


def test_a_volume_gives_its_bandwidth_and_says_so(session: Session) -> None:
    result = session.step(step(session, "imagenet,workers=8", gpus=tuple(range(8))))
    assert result.input is not None
    assert result.input.bound == "disk_bandwidth"
    assert result.throughput == pytest.approx(250e6 / 113e3, rel=0.01)  # ebs-gp2
    assert 1 - result.input.idle_share == pytest.approx(result.input.step_s / result.step_time_s)


@pytest.mark.slow
def test_small_samples_are_bound_by_operations_until_they_are_packed(session: Session) -> None:
    tiny = "sample=1KB,workers=32,prefetch=4,sample_time=1us"
    apart = session.step(step(session, tiny, batch=16, workload="alexnet", gpus=tuple(range(8))))
    packed = session.step(step(session, f"{tiny},block=1MB", batch=16, workload="alexnet", gpus=tuple(range(8))))
    assert apart.input is not None
    assert packed.input is not None
    limits = apart.input.limits_s
    assert limits["disk_operations"] == pytest.approx(8 * 16 / 16e3)
    assert "disk_operations" not in packed.input.limits_s


def test_evaluation_is_on_the_first_device_alone(session: Session) -> None:
    asked = step(session, "imagenet,disk=memory,workers=16,evaluate=6400", gpus=tuple(range(8)))
    found = session.step(asked).input
    assert found is not None
    infers = replace(asked.options, mode="inference")
    alone = session.step(replace(asked, options=infers, gpus=(0,), input=None))
    assert found.evaluation_s == pytest.approx(100 * alone.step_time_s, rel=0.1)
    assert found.total_s == pytest.approx(found.first_s + found.evaluation_s)


@pytest.mark.slow
def test_the_cheapest_cure_feeds_the_step(session: Session) -> None:
    found = session.advised(step(session, "imagenet,disk=memory,workers=1", gpus=tuple(range(8)))).input
    assert found is not None
    assert found.bound == "decoders"
    assert found.cure is not None
    assert found.cure.change.startswith("workers=")
    cured = session.step(step(session, f"imagenet,disk=memory,{found.cure.change}", gpus=tuple(range(8))))
    assert cured.step_time_s == pytest.approx(found.cure.step_time_s)
    assert cured.input is not None
    assert cured.input.bound == "step"


# -- words and files ---------------------------------------------------------------------


def test_the_catalogue_can_be_read_and_says_its_sources() -> None:
    for name in data_sets():
        assert parse_input(name).samples > 0


def test_words_go_before_what_a_file_says(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("schema_version: 1\nsamples: 100\nsample: 4 KB\nworkers: 2\ndisk: ssd[0-1]\n", encoding="utf-8")
    found = parse_input(f"{path},workers=3")
    assert (found.name, found.workers, found.samples, found.disks) == ("mine", 3, 100, ("ssd0", "ssd1"))


def test_the_file_of_the_page_can_be_read_and_the_page_has_every_key(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "input.md").read_text(encoding="utf-8")
    path = tmp_path / "my-images.yaml"
    path.write_text(page.split("```yaml\n", 1)[1].split("```", 1)[0], encoding="utf-8")
    assert parse_input(str(path)).disks == ("nvme0", "nvme1", "nvme2", "nvme3")
    rows = {key for row in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE) for key in re.findall(r"`(\w+)`", row)}
    assert rows == set(InputFile.model_fields) - {"schema_version", "description", "source"}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("imagenett", r"--input imagenett: no such data set; did you mean 'imagenet'\?"),
        ("workers=3", "--input: the key 'sample' is missing"),
        ("imagenet,worker=3", r"--input: unknown key 'worker'; did you mean 'workers'\?"),
        ("imagenet,workers=x", "--input: workers: must be a whole number; got 'x'"),
        ("imagenet,workers", "--input workers: write a key and a value"),
        ("imagenet,workers=2,workers=3", "--input workers=3: workers is given twice"),
        ("imagenet,pixels=12", "pixels: width and height, for example 469x387"),
        ("imagenet,prefetch=0", "prefetch: must be greater than or equal to 1"),
        ("sample=1KB,decode=jpeg", "decode: jpeg needs pixels"),
        ("sample=1KB,epochs=2", "epochs needs samples"),
        ("sample=1KB,pinned=no,ahead=2", "ahead needs pinned"),
        ("sample=1 parsec", "sample"),
    ],
)
def test_mistakes_are_told_in_a_line(words: str, error: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_input(words)
    assert re.search(error, caught.value.spelt("command"))


def test_a_machine_without_the_disk_says_what_it_has(session: Session) -> None:
    with pytest.raises(InputError, match=r"input=\'disk=ebs1\': p3\.16xlarge has no such disk; did you mean 'ebs0'"):
        session.step(step(session, "imagenet,disk=ebs1"))
    with pytest.raises(InputError, match="has no disk; devices needs"):
        session.step(step(session, "imagenet", where=Where("p3.2xlarge")))


def test_servers_are_refused(session: Session) -> None:
    with pytest.raises(InputError, match="not for parameter servers"):
        session.step(step(session, "imagenet", gpus=tuple(range(8)), strategy="parameter-server"))


# -- the answer ----------------------------------------------------------------------------


@pytest.mark.slow
def test_text_json_and_verdict_say_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "p3.16xlarge", "--workload", "resnet50", "--batch", "64", "--input", "imagenet,workers=8"]
    assert run(words) == 0
    text = capsys.readouterr().out
    assert "bound by      its input" in text
    assert "disk bandwidth" in text
    assert "cheapest fix" in text
    assert run([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    found = document["results"][0]["input"]
    assert document["bound"] == "input"
    assert found["bound"] == next(iter(found["limits_s"])) == "disk_bandwidth"
    assert document["results"][0]["account_s"]["input"] == pytest.approx(found["period_s"] - found["step_s"])
    assert document["results"][0]["step_time_s"] == found["period_s"]


def test_a_cpu_that_computes_shares_its_cores_with_workers(session: Session) -> None:
    base = step(session, "imagenet,disk=memory,workers=8", device="cpu", gpus=None, batch=8)
    found = session.step(base)
    assert found.input is not None
    assert found.step_time_s > session.step(replace(base, input=None)).step_time_s


def test_the_same_input_gives_the_same_bytes(session: Session) -> None:
    first, second = (Session().step(step(session, "imagenet,workers=3")).input for _ in range(2))
    assert first is not None
    assert second is not None
    assert [s.end_s for s in first.timeline.spans] == [s.end_s for s in second.timeline.spans]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "words", "resized"),
    [
        ("lenet-d2l", "fashion-mnist", False),
        ("resnet20", "cifar10", False),
        ("alexnet", "fashion-mnist", True),
        ("resnet50", "cifar10", True),
        ("resnet50", "imagenet", False),  # cropped, whatever its size
    ],
)
def test_images_of_another_size_are_resized_and_the_answer_says_so(session, capsys, network, words, resized) -> None:
    disk = ",disk=memory"
    asked = step(session, f"{words}{disk}", workload=network, batch=8)
    load = session.step(asked).input.load
    assert load.is_resized == resized
    unknown = step(session, f"sample={int(asked.input.sample_bytes)}B,augment=no{disk}", workload=network, batch=8)
    if words != "imagenet":
        assert (load.core_s > session.step(unknown).input.load.core_s) == resized
    run(["--topology", "p3.2xlarge", "--workload", network, "--batch", "8", "--input", f"{words}{disk}"])
    assert ("resized to what the network reads" in " ".join(capsys.readouterr().out.split())) == resized


@pytest.mark.parametrize(
    ("network", "words", "told"),
    [
        ("bert-base", "imagenet", "--input: imagenet holds images, and bert-base reads sequences"),
        ("resnet50", "openwebtext", "--input: openwebtext holds sequences, and resnet50 reads images"),
        ("resnet50", "sample=4KB,holds=sequences", "--input: input holds sequences, and resnet50 reads images"),
        ("gpt2", "sample=4KB,pixels=64x64", "--input: input holds images, and gpt2 reads sequences"),
    ],
)
def test_images_are_not_fed_to_what_reads_sequences(session, network, words, told) -> None:
    with pytest.raises(InputError) as caught:
        session.step(step(session, f"{words},disk=memory", workload=network, batch=8))
    assert caught.value.spelt("command") == told
    with pytest.raises(InputError, match="pixels apply to images; this set holds sequences"):
        parse_input("sample=4KB,pixels=64x64,holds=sequences")
