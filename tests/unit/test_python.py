"""The Python API: the command line's options, answers and errors."""

import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import simulator
from simulator import InputError, compare, simulate

pytestmark = pytest.mark.usefixtures("answered_once")

ROOT = Path(__file__).parents[2]


def _command(*words):
    done = subprocess.run(
        [sys.executable, "-c", "from simulator.cli import main; main()", *words, "--json"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    return json.loads(done.stdout)


def test_offers_the_names_that_it_says():
    assert set(simulator.__all__) == {
        "AccessQuestion",
        "Calibration",
        "CheckpointQuestion",
        "CollectiveQuestion",
        "CopyQuestion",
        "CoreQuestion",
        "DiskQuestion",
        "InputError",
        "InputQuestion",
        "LaunchQuestion",
        "Layout",
        "MessageQuestion",
        "Neighbour",
        "OperatorQuestion",
        "ProgramQuestion",
        "ProgramResult",
        "Result",
        "Session",
        "SingleResult",
        "SlowLink",
        "Software",
        "StepOptions",
        "StepQuestion",
        "TopocastError",
        "TrainingResult",
        "Where",
        "compare",
        "simulate",
        "sweep",
    }
    assert all(getattr(simulator, name).__name__ == name for name in simulator.__all__)
    assert set(simulator.__all__) <= set(dir(simulator))
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        _ = simulator.simulat


def test_an_import_loads_nothing_else():
    code = "import sys, simulator; print([n for n in sys.modules if n.startswith('simulator.') or n == 'simpy'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_an_exchange_is_the_command_s():
    answer = simulate("p3.16xlarge", "ring", "100 MB", collective="all-gather", gpus=[0, 1, 2, 3])
    words = ("--strategy", "ring", "--workload", "bytes:100MB", "--collective", "all-gather", "--gpus", "0,1,2,3")
    assert answer.to_dict() == _command("--topology", "p3.16xlarge", *words)["results"][0]


@pytest.mark.slow
def test_a_step_is_the_command_s():
    asked = {"global_batch": 64, "parallel": "tp=2,dp=4", "sizes": {"layers": 2}, "seq_len": 128}
    answer = simulate("p3.16xlarge", workload="gpt2", **asked)
    words = ("--global-batch", "64", "--parallel", "tp=2,dp=4", "--set", "layers=2", "--seq-len", "128")
    found = _command("--topology", "p3.16xlarge", "--workload", "gpt2", *words)
    ours = answer.to_dict()
    # The command adds faster alternatives, which take several more steps.
    assert {**ours, "alternatives": [], "remedies": []} == {**found, "alternatives": [], "remedies": []}


def test_numbers_are_bytes_and_names_networks():
    assert simulate("p3.16xlarge", "ring", 100e6).sync_time_s == simulate("p3.16xlarge", "ring", "100 MB").sync_time_s
    assert simulate("p3.16xlarge", "ring", "resnet50").size_bytes == 4 * 25_557_032


def test_compare_gives_all_that_fit_fastest_first():
    found = compare("p3.16xlarge", workload="1 MB")
    assert len(found) > 5
    assert [each.sync_time_s for each in found] == sorted(each.sync_time_s for each in found)
    assert [each.strategy for each in compare("p3.16xlarge", ["gpu0", "ring"], "1 MB")] == ["ring", "gpu0"]


def test_simulate_gives_one():
    with pytest.raises(InputError, match="compare gives them all"):
        simulate("p3.16xlarge", "ring,gpu0", "1 MB")


@pytest.mark.slow
def test_a_result_prints_as_a_line_and_is_a_table():
    answer = simulate("p3.16xlarge", "ring", "100 MB")
    assert repr(answer).startswith("<ring on p3.16xlarge: all-reduce of 100 MB over 8 GPUs takes ")
    step = simulate("p3.16xlarge", workload="alexnet", batch=8)
    single = simulate("p3.16xlarge", workload="op:mat_mul,m=64,n=64,k=64,precision=fp32")
    assert re.fullmatch(r"<op:mat_mul,.* on p3\.16xlarge takes [\d.]+ us>", repr(single))
    assert "p3.16xlarge" in single._repr_html_()
    assert re.fullmatch(r"<alexnet, 64 images a step on 8 x v100-sxm2-16gb of p3.16xlarge: .* images/s>", repr(step))
    for each in (answer, step):
        table = each._repr_html_()
        assert table.count("<tr>") == table.count("</tr>") >= 6
        assert "p3.16xlarge" in table


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"topology": "p3.16xlarg"}, "did you mean 'p3.16xlarge'?"),
        ({"topology": 3}, "topology: must be a name or a path; got 3"),
        ({"bach": 3}, "bach: no such option; did you mean 'batch'?"),
        ({"json": True}, "json: no such option"),
        ({"batch": 2, "emit": "megatron"}, "emit: no such option"),
        ({"batch": [1]}, "batch: must be text or a number; got [1]"),
        ({"batch": True}, "batch: must be text or a number; got True"),
        ({"fold": 1}, "fold: must be True or False; got 1"),
        ({"parallel": 3, "batch": 2}, "parallel: must be text, a list of texts, or a dict; got 3"),
        ({"micro_batch": 3}, "micro_batch: is about a step of a network; add batch, for example batch=32"),
        ({"batch": 8, "global_batch": 64}, "batch: global_batch says it already"),
        ({"strategy": "rign"}, "did you mean 'ring'?"),
        ({"workload": [1]}, "workload: must be a network, a size, or a torch.nn.Module; got a list"),
        ({"workload": None}, "workload: must be a network"),
        ({"workload": "op:linear,rows=1,inputs=1,outputs=1", "batch": 1}, "batch: is about a step of a network, and"),
        ({"inputs": 3}, "inputs and loss: are for a torch.nn.Module"),
    ],
)
def test_faults_are_in_the_words_of_python(asked, said):
    with pytest.raises(InputError) as caught:
        simulate(**{"topology": "p3.16xlarge", **asked})
    assert said in str(caught.value)
    assert "--" not in str(caught.value).replace("simulate --list", "")


def test_all_faults_at_once():
    with pytest.raises(InputError) as caught:
        simulate("p3.16xlarge", batch="x", precision="fp17")
    assert len(caught.value.faults) == 2


def test_what_a_file_leaves_in_doubt_is_a_warning(tmp_path):
    """Two cards take 32 lanes, and the CPU has fewer."""
    (tmp_path / "box.yaml").write_text(
        "schema_version: 1\nname: box\ndevices:\n  gpu[0-1]: {part: gtx-1080}\n  cpu0: {part: generic-desktop-cpu}\n"
        "links:\n  - {between: ['gpu[0-1]', cpu0], part: pcie3-x16}\n"
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        simulate(tmp_path / "box.yaml", "ring", "1 MB")
    assert ["lanes" in str(each.message) for each in caught] == [True]


def test_a_module_is_a_network_and_stays_as_it_is():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.Flatten(), torch.nn.Linear(8 * 30 * 30, 10)).eval()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    images = torch.ones(4, 3, 32, 32)
    answer = simulate("p3.16xlarge", workload=module, inputs=images, loss=torch.Tensor.sum, batch=4, gpus=2)
    assert answer.samples == 8
    exchanged = simulate("p3.16xlarge", "ring", module, inputs=images)
    assert exchanged.size_bytes == 4 * sum(parameter.numel() for parameter in module.parameters())
    assert not module.training
    for name, value in module.state_dict().items():
        assert value.device.type == "cpu"
        assert torch.equal(value, before[name])
    with pytest.raises(InputError, match="batch=8: the inputs hold 4 samples"):
        simulate("p3.16xlarge", workload=module, inputs=images, batch=8)
    with pytest.raises(InputError, match="nothing says what goes in"):
        simulate("p3.16xlarge", workload=module, batch=8)


def test_tied_weights_of_a_module_are_exchanged_once():
    torch = pytest.importorskip("torch")

    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.words = torch.nn.Embedding(100, 16)
            self.out = torch.nn.Linear(16, 100, bias=False)
            self.out.weight = self.words.weight

        def forward(self, tokens):
            return self.out(self.words(tokens))

    tokens = torch.zeros(2, 5, dtype=torch.int64)
    assert simulate("p3.16xlarge", "ring", Tied(), inputs=tokens).size_bytes == 4 * 1600


@pytest.mark.slow
@pytest.mark.parametrize(("document", "count", "lines"), [("README.md", 1, 2), ("docs/results.md", 3, 7)])
def test_the_examples_of_the_docs_run(document, count, lines):
    pytest.importorskip("torch")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.DOTALL)
    assert len(blocks) == count
    code = "\n".join(blocks)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert len(done.stdout.splitlines()) == lines


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nccl": 2.20}, 'nccl: must be text, as a number has no last zero: write nccl="2.20"; got 2.2'),
        ({"nccl": 2.0}, 'nccl: must be text, as a number has no last zero: write nccl="2.20"; got 2.0'),
        ({"libraries": 2020.10}, 'as a number has no last zero: write libraries="2020-10"; got 2020.1'),
        ({"set": {"image": 128}}, "set: no such option; --set is sizes= here"),
        ({"compile": True}, "compile: no such option; --compile is compiled= here"),
        ({"no_fold": True}, "no_fold: no such option; --no-fold is fold=False here"),
    ],
)
def test_an_argument_that_would_be_misread_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        simulate("dgx-h100", "nccl", "1GB", **options)


@pytest.mark.parametrize("sizes", [{"cross_entropy": "half"}, "cross_entropy=half"])
def test_a_size_in_a_message_is_spelt_as_a_dict(sizes: object) -> None:
    with pytest.raises(InputError, match=r"^sizes=\{'cross_entropy': 'half'\}: is for scores"):
        simulate("h100-sxm5-80gb", workload="gpt2", batch=1, precision="fp32", sizes=sizes)
