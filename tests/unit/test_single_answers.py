"""The bounds of a copy and a launch, and refusals of single questions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.api import Session
from simulator.cli import run
from simulator.errors import InputError
from simulator.questions.where import Where
from simulator.questions.words import parse_question
from simulator.workload.operators.elementwise import FUNCTIONS, check_function

SESSION = Session()


def _answer(words: str, machine: str = "p3.8xlarge"):
    return SESSION.answer(parse_question(words, Where(machine)))


@pytest.mark.parametrize(
    ("words", "bound"),
    [
        ("copy:h2d,144MB", "link plx0->gpu0"),
        ("copy:p2p,144MB,dst=1", "link gpu0->gpu1"),
        ("copy:h2d,4B", "start of the copy engine"),
        ("copy:h2d,4B,waited", "the host's call and wait"),
        ("copy:d2h,144MB,pinned=no", "the host's thread that copies"),
        ("copy:d2h,144MB,pinned=no,fresh", "page faults of the host"),
        ("copy:h2h,144MB,fresh", "page faults of the host"),
        ("copy:h2h,1GB", "memory bandwidth"),
        ("copy:d2d,1GB", "memory bandwidth"),
        ("copy:d2d,4B", "the host's call"),
        ("launch:stream,op=elementwise,function=relu,elements=64", "issuing"),
        ("launch:stream,op=elementwise,function=relu,elements=64000000", "kernels"),
        ("launch:host,op=elementwise,function=relu,elements=64", "the host, which issues"),
        ("launch:host,call=view", "the host's call"),
    ],
)
def test_a_copy_and_a_launch_say_what_bounds_them(words: str, bound: str) -> None:
    assert _answer(words).bound == bound


def test_what_a_large_copy_gets_is_what_its_slowest_part_gives() -> None:
    pinned = _answer("copy:h2d,1GB").figures
    assert pinned["bandwidth_Bps"] == pytest.approx(pinned["link_Bps"], rel=1e-3)
    pageable = _answer("copy:h2d,1GB,pinned=no").figures
    assert pageable["bandwidth_Bps"] == pytest.approx(pageable["thread_Bps"], rel=1e-3)
    assert pageable["thread_Bps"] < pageable["link_Bps"]


@pytest.mark.parametrize(("machine", "size", "says"), [("dgx-b200", 8192, True), ("dgx-b200", 512, False)])
def test_an_operator_says_what_a_long_run_costs(machine, size, says, capsys: pytest.CaptureFixture[str]) -> None:
    run(["--topology", machine, "--workload", f"op:mat_mul,m={size},n={size},k={size},precision=bf16", "--quiet"])
    text = " ".join(capsys.readouterr().out.split())
    assert ("in runs of seconds, which power and heat limit, its kernels take 1.0" in text) is says
    assert ("% more" in text) is says


def test_a_word_that_is_not_known_is_answered_with_those_that_are() -> None:
    with pytest.raises(InputError, match=r"there is no 'pageable'; allowed: both-ways, d2d, .*, pinned, "):
        parse_question("copy:d2h,1MB,pageable", Where("p3.8xlarge"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("copy:h2d,1MB,dst=3", "names its GPU by src; write src=3, not dst=3"),
        ("copy:p2p,1MB,dst=1,fresh", "copy:p2p does not read fresh; it reads both-ways, dst"),
        ("copy:d2d,1MB,staged", "copy:d2d does not read staged"),
        ("copy:d2h,1MB,fresh", "fresh applies to pageable memory; add pinned=no"),
    ],
)
def test_what_a_copy_does_not_read_is_refused(words: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _answer(words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("access:shared,threads=2", "threads are said by threads=2"),
        ("disk:read_sequential,4KiB,track=middle", "there is no 'middle'; allowed: inner, outer"),
        ("op:mat_mul,m=0,n=1,k=1", "m is at least 1; got 0"),
        (
            "op:zzz",
            "permute, pool, ranks_found, recurrent, reduction, rotary, rows_added, rows_found, rows_taken, scattered",
        ),
        ("op:attention,zzz=3", "precision, query-length, value-size, window"),
        ("op:gated,elements=-5", "elements is at least 1; got -5"),
        ("op:linear,rows=0,inputs=4,outputs=4", "rows is at least 1; got 0"),
        ("op:conv2d,batch=1,c_in=3,c_out=8,h_in=2,w_in=2,kernel_h=5,kernel_w=5", "its output has no elements"),
        ("op:elementwise,function=rleu,elements=10", "function: there is no 'rleu'; did you mean 'relu'?"),
        ("op:elementwise,function=bogus,elements=10", "function: there is no 'bogus'; allowed: "),
        ("launch:stream,op=elementwise,function=ad,elements=10", "function: there is no 'ad'; did you mean 'add'?"),
        (
            "op:conv2d,batch=1,c_in=3,c_out=8,h_in=8,w_in=8,kernel_h=3,kernel_w=3,groups=2",
            "groups=2 must divide c-in=3 and c-out=8",
        ),
    ],
)
def test_a_wrong_word_is_answered_with_what_was_meant(words: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_question(words, Where("p3.8xlarge"))


@pytest.mark.parametrize(
    "words",
    [
        "op:elementwise,function=fill,elements=10,inputs=0",
        "op:elementwise,function=relu_inplace,elements=10",
        "op:elementwise,function=mul_scalar,elements=10",
        "op:conv2d,batch=1,c_in=3,c_out=8,h_in=8,w_in=8,kernel_h=3,kernel_w=3,pad_h=0",
    ],
)
def test_what_may_be_none_of_an_operator_is_taken(words: str) -> None:
    assert SESSION.time_s(parse_question(words, Where("p3.8xlarge"))) > 0.0


@pytest.mark.parametrize("words", ["graph", "graph,kernels=20", "device,kernels=20"])
def test_kernels_of_a_graph_take_no_longer_than_the_graph(words: str) -> None:
    found = _answer(f"launch:{words},op=elementwise,function=relu,elements=64")
    assert 0.0 < found.figures["kernels_s"] <= found.time_s


def test_no_data_sheet_says_what_issuing_takes(capsys) -> None:
    run(["--topology", "p3.2xlarge", "--workload", "launch:graph,op=elementwise,function=relu,elements=64", "--json"])
    (result,) = json.loads(capsys.readouterr().out)["results"]
    assert result["least_s"] is None
    assert result["figures"]["kernels_s"] > 0.0


def test_a_version_of_nccl_that_nobody_knows_yet_is_remarked_on(capsys) -> None:
    line = ["--topology", "p3.8xlarge", "--workload", "bytes:1MB", "--strategy", "nccl", "--nccl"]
    run([*line, "9.9"])
    later = capsys.readouterr()
    assert "warning: --nccl 9.9 is not known yet: it chooses and takes what 2.30 does\n" in later.err
    run([*line, "2.30"])
    known = capsys.readouterr()
    assert (known.out, known.err) == (later.out, "")


@given(st.sampled_from(FUNCTIONS), st.sampled_from(("", "_inplace", "_bwd")))
def test_functions_that_are_known_are_taken(name: str, ending: str) -> None:
    check_function(name + ending)


@pytest.mark.parametrize(("elements", "fits"), [(7_000_000_000, True), (8_000_000_000, False)])
def test_operands_beyond_the_memory_of_a_device_are_told(
    elements: int, fits: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    words = f"op:gated,elements={elements}"  # two read and one written, of 4 bytes each
    assert run(["--topology", "h100-pcie", "--workload", words]) == 0
    told = f"does not fit: its operands take {12 * elements / 1e9:g} GB, and h100-pcie has 85.52 GB"
    assert (told in capsys.readouterr().err) != fits


def test_the_headline_of_an_operator_names_its_precision(capsys) -> None:
    asked = "op:linear,rows=64,inputs=64,outputs=64"
    for words, named in ((asked, "fp32"), (f"{asked},precision=bf16", "bf16")):
        assert run(["--topology", "dgx-h100", "--workload", words, "-q"]) == 0
        assert capsys.readouterr().out.splitlines()[0] == f"{asked},precision={named}"
    assert run(["--topology", "dgx-h100", "--workload", "copy:h2d,1MB", "-q"]) == 0
    assert "precision" not in capsys.readouterr().out
