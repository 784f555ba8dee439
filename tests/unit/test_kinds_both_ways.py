"""Everything measured is predicted, and everything predicted can be measured: a walk over both lists."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch", reason="torch is not installed: pip install torch")

from simulator.questions.question import Question  # noqa: E402
from simulator.questions.single import LaunchQuestion  # noqa: E402
from validate.compare.comparison import table_kind  # noqa: E402
from validate.kinds import COPIES, KINDS, STEPS  # noqa: E402
from validate.machine.measure.bench import Bench  # noqa: E402
from validate.machine.measure.case import ASKED, GROUPS, cases_of  # noqa: E402
from validate.machine.measure.cases import steps  # noqa: E402
from validate.machine.measure.table import COLUMNS  # noqa: E402
from validate.score.scoring import Scoring, ScoringOptions  # noqa: E402
from validate.tables.cells import NotScored  # noqa: E402
from validate.tables.names import MachineNames, RowNames  # noqa: E402

GPU, GPU_MACHINE, CPU, CPU_MACHINE = "a100-sxm4-40gb", "dgx-a100-40gb", "xeon-e5-2686-v4", "p3.2xlarge"
HOPPER = ("fp32", "fp16", "amp-fp16", "bf16", "amp-bf16", "tf32")
_MOST = 600  # cases per group

# Each question that simulate answers: the group that measures it, or why none does.
MEASURED_AS = {
    "CollectiveQuestion": "collectives",
    "StepQuestion": ASKED.removesuffix(".json"),
    "ProgramQuestion": "overlap",
    "OperatorQuestion": "ops",
    "CopyQuestion": "copies",
    "AccessQuestion": "memory",
    "LaunchQuestion": "launch",
    "DiskQuestion": "storage",
    "MessageQuestion": "between machines: validate cluster measures what messages make up",
    "CoreQuestion": "of a core's own latencies, which Python's calls hide",
}


class _Header:
    def __init__(self, names: tuple[str, ...]) -> None:
        self.position = {name.lower(): i for i, name in enumerate(names)}


def read(row: Mapping[str, Any], names: RowNames, kind: Any) -> Any:
    text = {key.lower(): str(value) for key, value in row.items()}
    return kind.read(lambda column: text.get(column, ""), names)


@pytest.fixture
def gpu_bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    properties = SimpleNamespace(major=8, minor=0, multi_processor_count=108, L2_cache_size=40 << 20)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _=None: properties)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda *_: True)
    monkeypatch.setattr(steps, "policies_of", lambda _: HOPPER)
    return Bench(torch.device("cuda:0"), "x", 40 << 30, 40 << 20, tmp_path)


def unpredicted(bench: Bench, names: Scoring, only: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield the cases of each group that nothing predicts, with the reason."""
    for name in only or [name for name in GROUPS if not GROUPS[name].file]:
        cases = itertools.islice(cases_of(name, bench), _MOST)
        for case in cases:
            row: dict[str, Any] = {"machine": "m", "device": "x", "software": "torch 2.9.0, nccl 2.27.5", "n_gpus": 1}
            row |= {"includes_dispatch": 0, "cache": "warm"} if case.table == "ops.csv" else {}
            row |= case.columns
            if name == "overlap" and row["note"] != "copy alone":  # the measured work
                row |= {"work": "op:mat_mul,m=64,n=64,k=64,precision=fp16", "repeats": 3}
            kind = table_kind(_Header(COLUMNS[case.table]), names.kinds)  # type: ignore[arg-type]
            assert kind is not None, case.table
            try:
                asked = read(row, names.names, kind)
                if name not in ("ops", "steps"):  # many of these are slow to answer, and other tests cover them
                    assert asked.time_s(names.names.session) > 0
            except NotScored as error:
                yield f"{name}: {case.title}", str(error)


def test_all_that_a_gpu_measures_is_predicted(gpu_bench: Bench) -> None:
    names = Scoring(ScoringOptions(topology=GPU_MACHINE, devices=(f"x={GPU}",)))
    found = dict(unpredicted(gpu_bench, names, ("launch", "memory", "copies", "overlap", "steps", "ops")))
    assert found == {}


def test_all_that_a_cpu_measures_is_predicted(tmp_path: Path) -> None:
    names = Scoring(ScoringOptions(topology="2x-gtx1080-desktop", devices=(f"x={CPU}",)))
    bench = Bench(torch.device("cpu"), "x", 8 << 30, 32 << 20, tmp_path)
    found = list(unpredicted(bench, names, ("launch", "memory", "ops", "storage")))
    reasons = Counter(reason.split(";")[0] for _, reason in found)
    # On a CPU an update is computation and not launching.
    assert set(reasons) <= {"the host's part of an update, of a CPU"}


def test_every_question_of_simulate_has_a_group_that_measures_it_or_a_reason() -> None:
    asked = {kind.__name__ for kind in get_args(Question)}
    assert asked == set(MEASURED_AS)
    groups = {name for name in MEASURED_AS.values() if " " not in name}
    assert groups < set(GROUPS)
    # Our own steps are tested like requested ones, strategies and exchanges like a library's collectives.
    # Scaling repeats steps over 1, 2, ... devices.  Clocks are what a board holds under load, not an answer, nor is
    # what its allocator keeps.  A certificate's operators and steps are those of others.
    assert set(GROUPS) - groups <= {"steps", "strategies", "scaling", "clocks", "chosen", "reserved", "judged"}
    assert {kind.name for kind in KINDS} == {
        "collectives",
        "operators",
        "training",
        "copies",
        "memory",
        "launch",
        "storage",
    }


# -- steps that read back the loss -----------------------------------------------------

STEP = {"machine": GPU_MACHINE, "n_gpus": 1, "model": "lenet", "phase": "train", "dtype": "fp32", "batch_per_gpu": 64}


def test_a_step_that_reads_its_loss_back_takes_that_much_longer() -> None:
    names = RowNames(MachineNames())
    plain = read(STEP, names, STEPS)
    waits = read({**STEP, "sync": "each step"}, names, STEPS)
    reading = LaunchQuestion(where=plain.question.where, timed="host", call="read")
    extra_s = names.session.time_s(reading)
    assert extra_s > 1e-6
    assert waits.question == plain.question
    assert waits.time_s(names.session) == pytest.approx(plain.time_s(names.session) + extra_s, rel=1e-12)
    assert waits.bound_s(names.session) == plain.bound_s(names.session)


# -- copies while the device computes --------------------------------------------------

COPY = {"machine": GPU_MACHINE, "kind": "overlap_h2d", "src": "host", "dst": "cuda:0", "bytes": 64 << 20, "pinned": 1}
PRODUCTS = {"work": "op:mat_mul,m=4096,n=4096,k=4096,precision=fp16", "repeats": 10}


def test_work_beside_a_copy_takes_the_longer_of_both_where_they_share_nothing() -> None:
    names = RowNames(MachineNames())
    time_s = {
        note: read({**COPY, "note": note, **({} if note == "copy alone" else PRODUCTS)}, names, COPIES).time_s(
            names.session
        )
        for note in ("matrix products alone", "copy alone", "copy and matrix products")
    }
    longer_s = max(time_s["matrix products alone"], time_s["copy alone"])
    assert longer_s <= time_s["copy and matrix products"] < 1.05 * longer_s
    assert time_s["copy and matrix products"] < 0.9 * (time_s["matrix products alone"] + time_s["copy alone"])


def test_work_that_is_queued_before_it_begins_takes_the_kernels_time_and_not_the_hosts() -> None:
    names = RowNames(MachineNames())
    sums = {"work": "op:elementwise,function=add,elements=1048576,inputs=2", "note": "sums alone"}
    once_s, more_s = (read({**COPY, **sums, "repeats": n}, names, COPIES).time_s(names.session) for n in (20, 40))
    assert more_s == pytest.approx(2.0 * once_s, rel=1e-6)
    assert once_s / 20 < 8e-6  # three arrays of 4 MB in a cache; the host takes longer to issue a sum
    beside_s = read({**COPY, **sums, "note": "copy and sums", "repeats": 20}, names, COPIES).time_s(names.session)
    alone_s = read({**COPY, "note": "copy alone"}, names, COPIES).time_s(names.session)
    assert beside_s == pytest.approx(alone_s, rel=0.02)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"work": ""}, "how much of it is not said"),
        ({"repeats": ""}, "how much of it is not said"),
        ({"repeats": "many"}, "repeats"),
        ({"work": "op:mat_mul,m=4096"}, "n"),
        ({"work": "rm -rf"}, "work"),
        ({"note": "something"}, "something"),
        ({"dst": "cuda:9"}, "GPU 9"),
    ],
)
def test_a_row_that_does_not_say_what_ran_is_not_scored(change: dict[str, Any], words: str) -> None:
    names = RowNames(MachineNames())
    row = {**COPY, **PRODUCTS, "note": "copy and matrix products", **change}
    with pytest.raises(NotScored, match=words):
        read(row, names, COPIES).time_s(names.session)
