"""Uncertainty of answers: bands of sums, distance from the evidence, and their presentation."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from simulator.api import Session
from simulator.api.calibrations import host_constants
from simulator.bands import (
    Evidence,
    MeasuredCoverage,
    Spread,
    collective_chain,
    evidence,
    kernel_chain,
    step_chain,
)
from simulator.bands.composition import AnswerFacts as Facts
from simulator.bands.composition import ClassShare, Composition, band_of, class_shares, distance, estimate
from simulator.cli import run
from simulator.network.compiling import compile_machine
from simulator.questions.calibration import Calibration
from simulator.questions.collective import CollectiveQuestion
from simulator.questions.layout import parse_layout
from simulator.questions.options import Mode, StepOptions
from simulator.questions.single import DiskQuestion, OperatorQuestion
from simulator.questions.step import StepQuestion
from simulator.questions.where import Where
from simulator.results.step_confidence import step_composition
from simulator.topology.load import topology_from_text
from simulator.workload.operators import Attention, AttentionLibrary, Linear, Softmax

pytestmark = pytest.mark.usefixtures("answered_once")

GEMM = kernel_chain("gemm", "compute", "fp32")
ROWWISE = kernel_chain("rowwise", "memory", "")
SEEN = MeasuredCoverage(
    devices={"a": ("fp32",)},
    generations={"old": ("fp32", "half")},
    machines=("box",),
    collectives={"all-reduce node": 8},
    linked=("old",),
    gpus={"one": 1, "several": 64},
    kernels=("pooling",),
    exchanging=("known in steps",),
    hosts={"copy": ("box",)},
)
INSIDE = Facts(kind="collective", place="box", generation="old", what="all-reduce", way="node", ranks=8)
BETWEEN = replace(INSIDE, way="nodes")


def spread(name: str, *, shared: float = 0.0, half: float = 0.2, **others: object) -> Spread:
    known = {"unseen": 1.5, "outside": 3.0, "calibrated": 0.5, "middle": 0.0, **others}
    return Spread(name, 100, 5, low=-half, high=half, shared=shared, **known)  # type: ignore[arg-type]


def of_kernels(*parts: ClassShare, place: str = "a", calibrated: bool = False) -> Composition:
    return Composition(
        (), parts, Facts(kind="operator", place=place, generation="old", form="fp32", calibrated=calibrated)
    )


def width(composition: Composition, *spreads: Spread) -> float:
    found = estimate(composition, Evidence({each.name: each for each in spreads}, SEEN))
    assert found is not None
    return found.high - found.low


def test_of_many_kernels_independent_errors_shrink_and_shared_ones_stay() -> None:
    many = class_shares([(GEMM, number, 1.0, 0.0) for number in range(100)], 100.0)
    one = class_shares([(GEMM, 0, 100.0, 0.0)], 100.0)
    independent, shared = spread("kernel gemm"), spread("kernel gemm", shared=1.0)
    assert width(of_kernels(*one), independent) == pytest.approx(0.4)
    assert width(of_kernels(*many), independent) == pytest.approx(0.04)
    assert width(of_kernels(*many), shared) == width(of_kernels(*one), shared) == pytest.approx(0.4)
    assert width(of_kernels(*many), spread("kernel gemm", shared=0.5)) == pytest.approx(0.4 * math.sqrt(0.505))


def test_equal_kernels_have_one_error() -> None:
    equal = class_shares([(GEMM, "same", 1.0, 0.0)] * 100, 100.0)
    assert width(of_kernels(*equal), spread("kernel gemm")) == pytest.approx(0.4)


def test_of_two_classes_each_weighs_what_it_takes() -> None:
    parts = class_shares([(GEMM, 0, 3.0, 0.0), (ROWWISE, 1, 1.0, 0.0)], 4.0)
    found = width(of_kernels(*parts), spread("kernel gemm", shared=1.0), spread("kernel rowwise", shared=1.0, half=0.4))
    assert found == pytest.approx(2 * (0.75 * 0.2 + 0.25 * 0.4))


def test_it_is_wider_the_farther_from_evidence_and_narrower_once_calibrated() -> None:
    (part,) = class_shares([(GEMM, 0, 1.0, 0.0)], 1.0)
    known = spread("kernel gemm")
    calibrated, seen, unseen = (
        width(of_kernels(part, place=place, calibrated=on), known)
        for place, on in (("b", True), ("a", False), ("b", False))
    )
    assert [calibrated, seen, unseen] == pytest.approx([0.2, 0.4, 0.6])
    assert width(of_kernels(part), spread("kernel gemm", seen=1.25)) == pytest.approx(0.5)
    strange = Composition((), (part,), Facts(kind="operator", place="c", generation="new", form="fp32"))
    assert width(strange, known) == pytest.approx(1.2)


def test_a_step_is_off_by_its_kernels_and_by_more() -> None:
    chain = step_chain("GPU", "CNN", "fp32", "one")
    facts = Facts(kind="step", place="a", generation="old", form="fp32", way="one")
    parts = class_shares([(GEMM, 0, 1.0, 0.0)], 1.0)
    step = spread(chain[0], half=0.5, of_parts=(0.3, 0.3))  # and 0.4 of the step itself
    assert width(Composition(chain, (), facts), step) == pytest.approx(1.0)
    usual, better, worse = (
        width(Composition(chain, parts, facts), step, spread("kernel gemm", shared=1.0, half=half))
        for half in (0.3, 0.0, 0.6)
    )
    assert usual == pytest.approx(1.0)
    assert better == pytest.approx(0.8)
    assert worse == pytest.approx(2 * math.hypot(0.4, 0.6))


def test_a_step_of_a_network_that_nobody_measured_is_wider() -> None:
    chain = step_chain("GPU", "CNN", "fp32", "one")
    known = Evidence({chain[0]: spread(chain[0], strange=1.25)}, replace(SEEN, networks=("resnet50",)))
    widths = []
    for network in ("resnet50", "mine"):
        facts = Facts(kind="step", place="a", generation="old", form="fp32", way="one", network=network)
        found = estimate(Composition(chain, (), facts), known)
        assert found is not None
        widths.append(found.high - found.low)
    assert widths == pytest.approx([0.4, 0.5])


def test_a_class_with_few_rows_is_that_of_the_wider_one() -> None:
    known = Evidence({name: spread(name) for name in ("kernel gemm", "kernel")}, SEEN)
    assert known.spread(GEMM) is known.spreads["kernel gemm"]
    assert known.spread(ROWWISE) is known.spreads["kernel"]
    assert known.spread(collective_chain("broadcast", 1e6, "infiniband", 2)) is None


def test_kernels_of_a_kind_that_few_measured_lean_on_those_with_the_same_limit_and_width() -> None:
    convolution, product = (kernel_chain(kind, "compute", "fp16") for kind in ("convolution", "gemm"))
    assert set(convolution) & set(product) == {"kernel narrow compute", "kernel"}
    assert not set(kernel_chain("gemm", "compute", "fp32")[:-1]) & set(product[:1] + product[-2:-1])
    assert set(kernel_chain("rowwise", "memory", "")) & set(kernel_chain("streaming", "memory", "")) == {
        *("kernel plain memory", "kernel")
    }


def test_attention_errs_by_the_library_that_it_is_from() -> None:
    session, chains = Session(), {}
    libraries: tuple[AttentionLibrary, ...] = ("flash2", "native")
    for library in libraries:
        operator = Attention(2, 8, 512, 512, 64, 8, causal=True, library=library)
        question = OperatorQuestion(where=Where("h100-sxm5-80gb"), operator=operator, precision="bf16")
        (part,) = session.composed(question).parts
        chains[library] = part.chain
    assert chains["flash2"][0].startswith("kernel fusedattention-flash2 ")
    assert set(chains["flash2"]) & set(chains["native"]) == {*chains["native"][-2:]}


def test_a_pass_alone_is_no_training_step() -> None:
    whole, alone = (step_chain("GPU", "CNN", "fp32", "one", trains=trains) for trains in (True, False))
    assert whole[0] == "step GPU one CNN fp32"
    assert alone[0] == "pass GPU one CNN fp32"
    assert set(whole) & set(alone) == {"step GPU one", "step GPU"}


def test_small_collectives_over_ethernet_are_not_measured() -> None:
    for network in ("efa", "roce", "tcp", ""):
        assert collective_chain("all-reduce", 1e3, network, 2) == ()
        assert collective_chain("all-reduce", 1e9, network, 2)
    found = Session().confidence(CollectiveQuestion(where=Where("p5.48xlarge", 2), size_bytes=1e4))
    assert found.band is None
    assert found.words == "not measured"


def test_classes_of_collectives_tell_networks_sizes_and_scale_apart() -> None:
    session = Session()
    for topology, nodes, size_bytes, name, *fabric in (
        ("dgx-h100", None, 1e9, "full node nvlink"),
        ("8x-a100-pcie", None, 1e7, "middle node pcie"),
        ("dgx-h100", 2, 1e9, "full few infiniband"),
        ("dgx-h100", 16, 1e9, "full nodes infiniband"),
        ("p5.48xlarge", 2, 1e7, "middle few efa"),
        ("dgx-1-v100-32gb-roce", 2, 1e7, "middle few roce"),
        ("p3.16xlarge", 2, 1e7, "middle few tcp"),
        ("dgx-h100", 2, 1e3, "small few infiniband"),
        ("dgx-h100", 2, 1e9, "full few roce", "roce-400g"),  # its adapters speak Ethernet too
        ("p5.48xlarge", 2, 1e9, "full few efa", "25 Gbit/s"),  # these do not
        ("8x-a100-pcie", 2, 1e9, "full few tcp", "25 Gbit/s"),
    ):
        question = CollectiveQuestion(where=Where(topology, nodes, *fabric), size_bytes=size_bytes)
        chain = session.composed(question).chain
        assert chain[:2] == (f"collective {name} all-reduce", f"collective {name}")
        assert chain[-1] == "collective"
        assert len(set(chain)) == len(chain)
    apart = collective_chain("all-reduce", 1e9, "infiniband", 2), collective_chain("all-reduce", 1e9, "tcp", 2)
    assert set(apart[0]) & set(apart[1]) == {
        *("collective full nodes", "collective large nodes", "collective large", "collective")
    }
    roce = collective_chain("all-reduce", 1e9, "roce", 2)  # where too few were measured, Ethernet as a whole counts
    assert "collective full few ethernet" in set(apart[1]) & set(roce)
    assert "collective full few roce" in set(roce) - set(apart[1])


MIXED = """schema_version: 1
name: mixed
devices:
  gpu[0-3]: {part: h100-sxm5-80gb}
  cpu0: {part: xeon-platinum-8480c}
  nic0: {part: ethernet-nic-25g}
  nic[1-2]: {part: connectx-7-ndr}
links:
  - {between: ["gpu[0-3]", cpu0], part: pcie5-x16}
  - {between: ["nic[0-2]", cpu0], part: pcie5-x16}
"""


def test_the_network_is_that_of_most_bandwidth_and_none_is_no_ethernet() -> None:
    session, where = Session(), Where("mixed")
    session.know(where, compile_machine(topology_from_text(MIXED, n_nodes=2)))
    chain = session.composed(CollectiveQuestion(where=where, size_bytes=1e9)).chain
    assert chain[0] == "collective full few infiniband all-reduce"
    assert collective_chain("all-reduce", 1e9, "", 2)[0] == "collective full nodes"


def test_an_exchange_within_a_node_is_none_between_nodes() -> None:
    """Neither is that of GPUs in one of two nodes, nor that of tensor-parallel ranks within each."""
    question = StepQuestion(where=Where("dgx-h100", 2), workload="gpt2", sizes=(("layers", 2),), batch=8)
    shares = []
    for asked in (
        question,
        replace(question, gpus=(0, 1, 2, 3)),
        replace(question, layout=parse_layout("tp=8")),
        replace(question, layout=parse_layout("tp=16")),
    ):
        found = Session().step(asked)
        parts = {part.chain[0]: part.share for part in step_composition(found).parts}
        shares.append([parts.get(f"collective large {where}", 0.0) for where in ("node", "nodes")])
        assert sum(shares[-1]) == pytest.approx(found.exposed_s / found.step_time_s)
    assert [[share > 0 for share in each] for each in shares] == [
        *([False, True], [True, False], [True, True], [False, True])
    ]
    assert shares[2][0] > 2 * shares[2][1]


def test_a_band_is_never_narrower_than_a_percent_either_way() -> None:
    band = band_of(2.0, -0.001, 0.001)
    assert (band.high_s - band.low_s) / 2 == pytest.approx(0.02)
    assert band_of(2.0, math.log(0.5), math.log(2.0)).low_s == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("facts", "state", "outside"),
    [
        (Facts(kind="operator", place="a", generation="old", form="fp32"), "seen", ()),
        (Facts(kind="operator", place="a", generation="old", form="half"), "unseen", ()),
        (Facts(kind="operator", place="b", generation="old", form="fp32"), "unseen", ()),
        (Facts(kind="operator", place="b", generation="old", form="fp8"), "outside",
         ("no measured fp8 on a device of generation Old",)),
        (Facts(kind="operator", place="b", generation="new", form="fp32"), "outside",
         ("no measured device of generation New",)),
        (Facts(kind="step", place="a", generation="old", form="fp32", way="several", ranks=64), "seen", ()),
        (Facts(kind="step", place="a", generation="old", form="fp32", way="several", ranks=65), "outside",
         ("no measured step over more than 64 GPUs",)),
        (Facts(kind="step", place="a", generation="old", form="fp32", way="divided", ranks=2), "outside",
         ("no measured step whose network is divided",)),
        (Facts(kind="collective", place="box", generation="old", what="all-reduce", way="node", ranks=8), "seen", ()),
        (Facts(kind="collective", place="x", generation="old", what="all-reduce", way="node", ranks=8), "unseen", ()),
        (Facts(kind="collective", place="box", generation="old", what="all-reduce", way="nodes", ranks=8), "outside",
         ("no measured all-reduce between nodes",)),
        (Facts(kind="collective", place="box", generation="new", what="all-reduce", way="node", ranks=16), "outside",
         ("no measured all-reduce inside a node over more than 8 GPUs",
          "no measured collective on GPUs of generation New")),
        (Facts(kind="operator", place="a", generation="old", form="fp32", kernels=("gemm",)), "seen", ()),
        (Facts(kind="operator", place="a", generation="old", form="fp32", kernels=("gemm", "pooling")), "unmeasured",
         ("no measured pooling kernels",)),
        (Facts(kind="step", place="a", generation="old", form="fp32", way="one", kernels=("gemm", "pooling")), "seen",
         ()),
        (Facts(kind="step", place="a", generation="old", form="fp32", way="one", kernels=("fft",)), "unmeasured",
         ("no measured fft kernels",)),
        (Facts(kind="step", place="a", generation="old", form="fp32", way="several", ranks=16, exchange=BETWEEN),
         "outside", ("no measured all-reduce between nodes",)),
        (Facts(kind="step", place="a", generation="old", form="fp32", way="several", ranks=8, exchange=INSIDE), "seen",
         ()),
        (Facts(kind="step", place="a", generation="old", form="fp32", way="several", ranks=8,
               exchange=replace(INSIDE, generation="new")), "outside",
         ("no measured collective on GPUs of generation New",)),
        (Facts(kind="step", place="a", generation="old", form="fp32", way="several", ranks=8,
               exchange=replace(INSIDE, generation="known in steps")), "seen", ()),
        (Facts(kind="step", place="a", generation="old", form="fp32", way="several", ranks=8,
               exchange=replace(INSIDE, unmeasured="no measured collective of strategy ring")), "outside",
         ("no measured collective of strategy ring",)),
        (Facts(kind="step", place="a", generation="old", form="fp32", way="several", ranks=8,
               unmeasured="too few measured steps through parameter servers"), "unmeasured",
         ("too few measured steps through parameter servers",)),
        (Facts(kind="host", place="box", what="copy"), "seen", ()),
        (Facts(kind="host", place="other", what="copy"), "unseen", ()),
        (Facts(kind="host", place="box", what="disk"), "outside", ("no measured disk",)),
    ],
)  # fmt: skip
def test_how_far_a_question_is_from_what_was_measured(facts: Facts, state: str, outside: tuple[str, ...]) -> None:
    assert distance(facts, Evidence({"kernel gemm": spread("kernel gemm")}, SEEN)) == (state, outside)


# -- the product's own evidence --------------------------------------------------------


def test_every_class_of_the_file_is_in_order_and_its_wider_one_is_there() -> None:
    known = evidence()
    for name, each in known.spreads.items():
        assert each.low < each.middle < each.high, name
        assert 0.5 <= each.seen <= each.unseen <= each.outside, name
        assert 0.0 <= each.shared <= 1.0, name
        assert 0.0 < each.calibrated <= 1.0, name
        head = name.split()
        assert " ".join(head[: 2 if head[0] in ("step", "pass") else 1]) in known.spreads, name


def test_every_kind_of_answer_has_a_band_or_says_why_not() -> None:
    session = Session()
    where = Where("dgx-h100")
    linear = OperatorQuestion(where=where, operator=Linear(4096, 4096, 4096), precision="bf16")
    exchange = CollectiveQuestion(where=where, collective="all-reduce", size_bytes=1e8, strategy="nccl")
    step = StepQuestion(where=Where("p3.2xlarge"), workload="resnet50", batch=32)
    for question in (linear, exchange, step):
        found = session.confidence(question)
        assert found.band is not None
        assert found.outside == ()
        assert 0 < found.band.low_s < found.band.high_s
        assert found.why.startswith("band ")
        assert f"to tighten it: validate run --topology {question.where.topology} " in found.why
    disk = session.confidence(DiskQuestion(where=Where("p3.16xlarge"), kind="read_random", block_bytes=4096.0))
    assert (disk.band, disk.outside, disk.why) == (None, ("no measured disk",), "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--workload", "resnet50", "--batch", "32", "--precision", "amp-fp16"],
         "--workload resnet50 --batch 32 --gpus 8 --precision amp-fp16 --out measured/"),
        (["--workload", "resnet50", "--batch", "32", "--nodes", "2"], "--nodes 2 --prepare --workload resnet50"),
        (["--workload", "resnet50", "--batch", "8", "--overlap", "none"], "--gpus 8 --overlap none --out measured/"),
        (["--workload", "resnet50", "--batch", "8", "--launch-blocking"],
         "--only ops,launch,collectives --out measured/ for its parts"),
        (["--workload", "gpt2", "--batch", "4", "--parallel", "tp=4"],
         "--only ops,launch,collectives --out measured/ for its parts, because plain torch has no such step"),
        (["--workload", "resnet50", "--batch", "8", "--precision", "fp16", "--reduce-fp32"],
         "--only ops,launch,collectives --out measured/ for its parts"),
        (["--workload", "bytes:100MB", "--strategy", "nccl"], "--only collectives --out measured/"),
        (["--workload", "bytes:100MB", "--strategy", "nccl", "--nodes", "2"],
         "--nodes 2 --workload bytes:100000000B --strategy nccl --collective all-reduce --prepare --out measured/"),
        (["--workload", "copy:h2d,160MB"], "--only copies --out measured/"),
        (["--workload", "op:softmax,rows=512,cols=512"], "--only ops --out measured/, then validate calibrate"),
    ],
)  # fmt: skip
def test_the_trust_line_names_what_would_narrow_the_band(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "2000")
    more = [] if words[1].startswith(("bytes:", "copy:", "op:", "sweep")) else ["-v"]  # steps say it there
    assert run(["--topology", "p3.16xlarge", *words, *more]) == 0
    lines = capsys.readouterr().out.splitlines()
    (trust,) = [line for line in lines if line.startswith("trust")]
    measured = [line for line in lines if line.startswith("validate run")]  # where it is the next step
    narrowing = trust.partition("; to tighten it: ")[2] or measured[0]
    assert narrowing.startswith("validate run --topology p3.16xlarge ")
    assert said in narrowing


@pytest.mark.parametrize(("device", "torch"), [("gpu1", "cuda:0"), ("cpu0", "cpu"), ("xeon-e5-2686-v4", "cpu")])
def test_what_narrows_it_is_measured_on_what_computes(device: str, torch: str) -> None:
    where = Where("p3.16xlarge")
    operator = OperatorQuestion(where=where, operator=Softmax(4096, 4096), device=device)
    step = StepQuestion(where=where, workload="mlp", batch=4, device=device)
    for question in (operator, step):
        assert f" --device {torch} " in Session().confidence(question).why


def test_calibrating_narrows_the_band_of_an_operator() -> None:
    """Products err less after it; calibrated from one factor, softmax errs as much as before."""
    question = OperatorQuestion(where=Where("p3.2xlarge"), operator=Linear(4096, 4096, 4096))
    plain = Session().confidence(question).estimate
    fitted = Session({"v100-sxm2-16gb": Calibration(compute=0.99)}).confidence(question).estimate
    assert plain is not None
    assert fitted is not None
    assert fitted.high - fitted.low < plain.high - plain.low


def test_waits_for_the_host_have_the_spread_of_hosts_and_its_launches_narrow_it() -> None:
    """A quarter of the step is kernels: the host decides, and its times are what a calibration lacks."""
    options = StepOptions(precision="tf32")
    question = StepQuestion(where=Where("h100-pcie"), workload="resnet18", batch=2, options=options)
    found = Session().step(question)
    parts = {part.chain[-1]: part for part in step_composition(found).parts}
    assert parts["launch"].share == pytest.approx(found.step.waiting_s / found.step_time_s)
    assert parts["launch"].alone == parts["launch"].share  # all launches of a host err alike
    assert found.confidence.estimate is not None
    assert found.confidence.estimate.widest.name.startswith("launch")
    assert "--only launch --out measured/, then validate calibrate" in found.confidence.why

    def width(calibration: Calibration) -> float:
        estimate = Session({"h100-pcie": calibration}).step(question).confidence.estimate
        assert estimate is not None
        return estimate.high - estimate.low

    host = host_constants()
    assert width(Calibration(compute=0.99, host=host)) < 0.9 * width(Calibration(compute=0.99))
    busy = Session().step(replace(question, batch=1024))
    assert "launch" not in {part.chain[-1] for part in step_composition(busy).parts if part.share > 0.02}


def test_a_step_and_its_question_are_of_one_class() -> None:
    session = Session()
    for workload, options in (("resnet50", StepOptions()), ("bert-base", StepOptions(precision="amp-fp16"))):
        question = StepQuestion(where=Where("p3.16xlarge"), workload=workload, batch=4, gpus=(0, 1), options=options)
        by_question, by_result = session.composed(question), session.step(question)
        assert by_result.confidence.estimate is not None
        assert by_result.band is not None
        from simulator.results.step_confidence import step_composition

        assert (step_composition(by_result).chain, step_composition(by_result).facts) == (
            by_question.chain,
            by_question.facts,
        )
        assert sum(part.share for part in step_composition(by_result).parts) <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("layout", "mode", "strategy", "by"),
    [
        ("dp", "train", "ring", "ring"),
        ("dp", "backward", "nccl", "nccl"),
        ("dp", "inference", "nccl", None),
        ("tp=4", "train", "ring", "nccl"),  # no gradients are exchanged
        ("tp=2", "train", "ring", "ring"),
        ("dp", "train", "parameter-server", None),
    ],
)
def test_a_step_exchanges_by_one_strategy(layout: str, mode: Mode, strategy: str, by: str | None) -> None:
    from simulator.results.step_confidence import step_composition

    where, sizes = Where("p3.16xlarge"), (("layers", 1), ("sequence_length", 64))
    question = StepQuestion(
        where=where,
        workload="gpt2",
        sizes=sizes,
        batch=1,
        gpus=(0, 1, 2, 3),
        layout=parse_layout(layout),
        strategy=strategy,
        options=StepOptions(mode=mode),
    )
    assert question.exchanges_by(4) == by
    session = Session()
    by_question, result = session.composed(question).facts.exchange, session.step(question)
    assert by_question == step_composition(result).facts.exchange
    assert (by_question is not None) == (by is not None)
    assert (by_question is not None) == (result.exchanges > 0 and result.servers is None)
    assert by_question is None or ("ring" in by_question.unmeasured) == (by == "ring")


def test_times_on_the_bare_links_have_no_band(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--topology", "p3.16xlarge", "--workload", "bytes:1MB", "--json"]) == 0
    for result in json.loads(capsys.readouterr().out)["results"]:
        assert (result["band"] is not None) == result["counts_software"]
        assert not (result["is_bound"] and result["counts_software"])


def test_what_lies_outside_stands_in_the_first_lines(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--topology", "dgx-h100", "--nodes", "64", "--strategy", "nccl", "--workload", "bytes:1GB"]
    assert run([*words, "--collective", "reduce"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "not validated: no measured reduce between nodes"


@pytest.mark.slow
def test_what_is_unmeasured_in_an_exchange_is_unmeasured_in_the_step(capsys: pytest.CaptureFixture[str]) -> None:
    amd = ["--topology", "8x-mi355x", "--nodes", "2"]
    step = ["--workload", "bert-base", "--batch", "4", "--precision", "amp-bf16"]
    for asked in (["--workload", "bytes:1GB", "--strategy", "nccl"], step):
        assert run([*amd, *asked]) == 0
        said = " ".join(capsys.readouterr().out.split())
        assert "not validated: no measured collective on GPUs of generation CDNA4" in said
        assert "among the measured ones" not in said
    assert run(["--topology", "p3.16xlarge", *step[:4], "--strategy", "gloo", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["outside"] == ["no measured collective of strategy gloo"]


@pytest.mark.parametrize("staleness", ["0", "async"])
def test_steps_of_a_kind_that_hardly_anyone_measured_have_no_band(
    staleness: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--topology", "p3.2xlarge", "--nodes", "2", "--workload", "lenet-d2l", "--batch", "32", "--json"]
    assert run([*words, "--strategy", "parameter-server-sharded", "--staleness", staleness]) == 0
    found = json.loads(capsys.readouterr().out)["results"][0]
    assert (found["band"], found["trust"]) == (None, None)
    assert found["outside"] == ["too few measured steps through parameter servers"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["--topology", "p3.2xlarge", "--workload", "resnet50", "--batch", "32"],
        ["--topology", "p3.16xlarge", "--workload", "bytes:100MB"],
        ["--topology", "p3.16xlarge", "--workload", "op:linear,rows=512,inputs=1024,outputs=4096"],
    ],
)
def test_bands_are_shown_and_fit_80_columns(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(words) == 0
    out = capsys.readouterr().out
    assert "80 % band" in out
    assert max(map(len, out.splitlines())) <= 80


def test_a_calibrated_part_narrows_by_what_its_neighbours_explain() -> None:
    def of(known: float, near: float) -> float:
        (part,) = class_shares([(GEMM, 0, 1.0, known)], 1.0)
        return width(of_kernels(part, calibrated=True), spread("kernel gemm", near=near))

    whole = of(0.0, 0.0)
    assert of(0.64, 0.0) / whole == pytest.approx(math.sqrt(1 - 0.64))
    assert of(0.64, 0.64) == pytest.approx(whole)  # as near as the rows behind `calibrated`
    assert whole < of(0.0, 0.5) < of(0.0, 0.99)
    assert of(0.0, 0.99) == pytest.approx(
        width(of_kernels(*class_shares([(GEMM, 0, 1.0, 0.0)], 1.0)), spread("kernel gemm"))
    )


def test_without_calibration_neighbours_narrow_nothing() -> None:
    (near,), (far,) = (class_shares([(GEMM, 0, 1.0, known)], 1.0) for known in (0.9, 0.0))
    assert width(of_kernels(near), spread("kernel gemm")) == width(of_kernels(far), spread("kernel gemm"))
    assert class_shares([(GEMM, 0, 1.0, 0.8), (GEMM, 1, 3.0, 0.0)], 4.0)[0].known == pytest.approx(0.2)
