"""Whatever the command line answers, Python answers alike; whatever it refuses, Python refuses in the same words."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from typing import Any

import pytest

from simulator import Session, TopocastError, compare, simulate
from simulator.cli import run
from simulator.console.run import error_lines
from tests.without_advice import without_advice

pytestmark = pytest.mark.usefixtures("answered_once")

ANSWERED = """
--topology p3.2xlarge --workload resnet50 --batch 64
--topology p3.16xlarge --workload resnet50 --batch 64 --gpus 1
--topology p3.16xlarge --workload resnet18 --batch 4 --device cpu0
--topology p3.16xlarge --workload resnet18 --batch 4 --device gpu3 --what-if
--topology p3.16xlarge --workload alexnet --batch 8
--topology p3.16xlarge --workload alexnet --batch 8 --mode inference
--topology p3.16xlarge --workload alexnet --batch 8 --parallel dp --parallel tp=2 --strategy nccl,ring
--topology p3.8xlarge,dgx-h100 --workload alexnet --global-batch 64 --no-contention --compile
--topology p3.16xlarge --workload gpt2 --batch 2 --set layers=2 --seq-len 128 --precision amp-fp16
--topology p3.8xlarge --workload lenet --batch 8 --strategy parameter-server --staleness 2
--topology dgx-a100-80gb --workload llama2-7b --batch 1 --set layers=4 --parallel fsdp --recompute
--topology cpu-2xe5-2690v4 --workload lenet --batch 4
--topology p3.16xlarge --workload bytes:1MB
--topology p3.16xlarge --workload bytes:1GB --strategy nccl --slow-link gpu0-gpu3:0x@1ms..3ms
--topology p3.16xlarge --workload alexnet --batch 8 --straggler gpu3:2x
--topology p3.16xlarge --workload bytes:1MB --strategy nccl --algorithm tree --no-fold
--topology p3.16xlarge --workload sweep:1kB-1MB:10 --strategy nccl,ring --gpus 0,1,2,3
--topology p3.16xlarge,dgx-2 --workload resnet50 --strategy ring --collective all-gather
--topology dgx-h100,dgx-a100-40gb --workload op:mat_mul,m=512,n=512,k=512,precision=bf16
--topology dgx-h100 --workload access:chase,sweep:4KiB-1MiB --threads 1
--topology linux-host --nodes 2 --fabric ethernet-10g --workload message:4KiB
--topology p3.16xlarge --workload copy:h2d,size=1MB
--topology p3.8xlarge --workload gpt2 --launch 'torchrun --nproc_per_node 4 t.py --per_device_train_batch_size 2'
"""
REFUSED = """
--topology p3.2xlarge --workload resnet50 --batch 64 --strategy nccl
--topology p3.16xlarge --workload resnet50 --batch 64 --gpus 1 --strategy ring
--topology p3.16xlarge --workload resnet50 --batch 64 --gpus 1 --parallel fsdp
--topology p3.16xlarge --workload resnet50 --batch 64 --gpus 9
--topology p3.16xlarge --workload resnet50 --batch 64 --gpus 2 --device gpu0
--topology p3.16xlarge --workload resnet50 --batch 0
--topology p3.16xlarge --workload resnet50 --global-batch 63
--topology p3.16xlarge --workload resnet50 --batch 8 --mode inference --strategy nccl
--topology p3.16xlarge --workload resnet50 --batch 8 --precision fp17 --optimizer adamm
--topology p3.16xlarge --workload resnet50 --batch 8 --strategy ring --nccl 2.18
--topology p3.16xlarge --workload resnet50 --batch 8 --recompute-attention
--topology p3.16xlarge --workload resnet --batch 8
--topology p3.16xlarg --workload resnet50 --batch 8
--topology p3.16xlarge --workload bytes:1MB --device gpu0
--topology p3.16xlarge --workload bytes:1MX --strategy rign
--topology p3.16xlarge --workload bytes:1MB --pairs 0>1
--topology p3.16xlarge --workload bytes:1MB --slow-link gpu0-gpu9:0.5x
--topology p3.8xlarge --workload bytes:1MB --strategy hierarchical
--topology cpu-2xe5-2690v4 --workload bytes:1MB
--topology dgx-h100 --workload op:mat_mul,m=512,n=512,k=512 --precision bf16
--topology dgx-h100 --workload op:mat_mul,m=512,n=512 --batch 3
--topology dgx-h100 --workload access:chase,size=1MiB --strategy nccl
--topology dgx-h100 --workload disk:read,size=1MiB
--topology p3.8xlarge --launch 'torchrun train.py'
"""
_SPELT = {"set": "sizes", "compile": "compiled"}
_OF_SEVERAL = ("parallel", "sizes")


@pytest.fixture(autouse=True)
def no_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the search for faster alternatives, which takes longer than the answer."""
    monkeypatch.setattr(Session, "advised", without_advice)


def as_arguments(words: list[str]) -> dict[str, Any]:
    """Return the options of a command line as arguments of Python."""
    found: dict[str, Any] = {}
    for i, word in enumerate(words):
        if not word.startswith("--"):
            continue
        name = word[2:].replace("-", "_")
        name = _SPELT.get(name, name)
        value: Any = True
        if i + 1 < len(words) and not words[i + 1].startswith("--"):
            value = words[i + 1]
        elif name.startswith("no_"):
            name, value = name[3:], False
        if name in _OF_SEVERAL:
            value = [*found.get(name, []), value]
        found[name] = value
    return found


def plain(line: str) -> str:
    """Return a refusal without what differs between the spellings of options: ``--nccl 2.18`` is ``nccl=2.18``."""
    line = re.sub(r"--(no-)?([a-z][a-z-]*)", lambda m: _SPELT.get(m[2], m[2]).replace("-", "_"), line)
    line = re.sub(r"\b([a-z_]+)=(True|False)\b", r"\1", line)
    return re.sub(r"\b([a-z_]+)=('?)(?=[^ ]*)", r"\1 ", line).replace("'", "")


def python_of(words: list[str], ask: Any = compare) -> list[dict[str, Any]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = ask(**as_arguments(words))
    entries = [each.to_dict() for each in (found if isinstance(found, list) else [found])]
    return [each["results"][0] if "results" in each else each for each in entries]  # a step's is a document


@pytest.mark.parametrize("line", [line for line in ANSWERED.splitlines() if line])
def test_both_answer_alike(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line)
    assert run([*words, "--json", "--quiet"]) == 0
    theirs = json.loads(capsys.readouterr().out)["results"]
    assert json.loads(json.dumps(python_of(words, simulate if len(theirs) == 1 else compare))) == theirs


def test_simulate_asks_nccl_where_the_command_compares_all() -> None:
    words = ["--topology", "p3.16xlarge", "--workload", "bytes:1MB"]
    assert python_of(words, simulate) == python_of([*words, "--strategy", "nccl"], simulate)


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for line in REFUSED.splitlines() if line])
def test_both_refuse_in_the_same_words(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line)
    assert run([*words, "--quiet"]) == 2
    theirs = capsys.readouterr().err.splitlines()
    assert theirs
    with pytest.raises(TopocastError) as caught:
        python_of(words)
    assert [plain(line) for line in error_lines("simulate", caught.value)] == [plain(line) for line in theirs]


def test_programs_are_answered_and_refused_alike(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "loop.yaml"
    for runs, status in (("{issue: 10 us, compute: 20 us}", 0), ("{isue: 10 us}", 2)):
        file.write_text(f"schema_version: 1\nprogram:\n  - repeat: 10\n    do:\n      - run: {runs}\n  - wait: all\n")
        words = ["--topology", "p3.2xlarge,p3.8xlarge", "--workload", str(file)]
        assert run([*words, "--json", "--quiet"]) == status
        out, err = capsys.readouterr()
        if status:
            with pytest.raises(TopocastError) as caught:
                python_of(words)
            assert error_lines("simulate", caught.value) == err.splitlines()
        else:
            assert json.loads(json.dumps(python_of(words))) == json.loads(out)["results"]


@pytest.mark.slow
def test_a_step_that_does_not_fit_is_answered_by_both(capsys: pytest.CaptureFixture[str]) -> None:
    """The command line says so by its status, Python by ``fits``."""
    words = shlex.split("--topology p3.2xlarge --workload gpt2-xl --batch 1")
    assert run([*words, "--json", "--quiet"]) == 1
    theirs = json.loads(capsys.readouterr().out)["results"]
    assert python_of(words) == theirs
    assert not simulate("p3.2xlarge", workload="gpt2-xl", batch=1).fits
