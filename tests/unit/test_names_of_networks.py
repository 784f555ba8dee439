"""A name of the zoo has the published number of parameters, and answers call a network what it is."""

from __future__ import annotations

import csv
import io
import re

import pytest

from simulator.cli import run
from simulator.errors import InputError
from simulator.launch.launch import read_launch
from simulator.questions.step import StepQuestion
from simulator.workload.zoo import registry
from simulator.workload.zoo.registry import build_network, find_entry, network_names
from validate.kinds import STEPS
from validate.tables.cells import csv_bytes, read_records
from validate.tables.names import RowNames
from validate.tables.table import PUBLISHED as PUBLISHED_TABLES
from validate.tables.table import made_complete, read_conventions, tabulate

# What publications say, by source.  A figure counts to its last digit: 1.7B is 1.65 to 1.75 billion.
PUBLISHED = {
    "torchvision.models, and timm for resnet200 and inception-bn": """
        alexnet=61.1M alexnet-owt=61.1M inception3=27.2M mask-rcnn=44.4M vgg11=132.9M vgg13=133.0M vgg16=138.4M
        vgg19=143.7M resnet18=11.7M resnet34=21.8M resnet50=25.6M resnet101=44.5M resnet152=60.2M resnet200=64.7M
        resnext101-32x4d=44.2M se-resnext101-32x4d=49.0M inception-bn=11.3M densenet121=8.0M densenet161=28.7M
        densenet169=14.1M
        densenet201=20.0M vit-b16=86.6M vit-b32=88.2M vit-l16=304.3M vit-l32=306.5M vit-h14=632.0M
    """,
    "He et al. 2015, arXiv 1512.03385, table 6": """
        resnet20=0.27M resnet32=0.46M resnet44=0.66M resnet56=0.85M resnet110=1.7M
    """,
    "torchvision.models, num_params of the weights": """
        efficientnet-b0=5288548 efficientnet-b1=7794184 efficientnet-b2=9109994 efficientnet-b3=12233232
        efficientnet-b4=19341616 efficientnet-b5=30389784 efficientnet-b6=43040704 efficientnet-b7=66347960
        efficientnet-v2-s=21458488 efficientnet-v2-m=54139356 efficientnet-v2-l=118515272
    """,
    "GPUNet, arXiv 2205.00841, table 3": "gpunet-0=11.9M gpunet-1=12.7M gpunet-2=25.8M",
    "OverFeat, arXiv 1312.6229, table 4; U-Net, arXiv 1505.04597": "overfeat-fast=145M unet=31.0M",
    "Devlin et al. 2018, arXiv 1810.04805, section 3": """
        bert-base=110M bert-large=340M bert-base-squad=110M bert-large-squad=340M
    """,
    "openai/gpt-2, the sizes that it names anew": "gpt2=124M gpt2-medium=355M gpt2-large=774M gpt2-xl=1558M",
    "Brown et al. 2020, arXiv 2005.14165, table 2.1": """
        gpt3-125m=125M gpt3-350m=350M gpt3-760m=760M gpt3-xl=1.3B gpt3-1.3b=1.3B gpt3-2.7b=2.7B gpt3-6.7b=6.7B
        gpt3-13b=13.0B gpt3-175b=175.0B
    """,
    "Megatron-LM: arXiv 1909.08053, 2104.04473 and 2205.05198": """
        megatron-1.2b=1.2B megatron-2.5b=2.5B megatron-4.2b=4.2B megatron-8.3b=8.3B megatron-1.7b=1.7B
        megatron-3.6b=3.6B megatron-7.5b=7.5B megatron-22b=22B megatron-175b=175B megatron-18b=18.4B
        megatron-39b=39.1B megatron-76b=76.1B megatron-145b=145.6B megatron-310b=310.1B megatron-530b=529.6B
        megatron-1t=1008.0B
    """,
    "OPT, arXiv 2205.01068; of 350m, whose embedding is half as wide, Hugging Face's card": """
        opt-1.3b=1.3B opt-2.7b=2.7B opt-6.7b=6.7B opt-13b=13B opt-30b=30B opt-66b=66B opt-175b=175B opt-125m=125M
        opt-350m=331M
    """,
    "llm-foundry, scripts/train/benchmarking": """
        mpt-125m=125M mpt-350m=356M mpt-760m=760M mpt-1b=1.3B mpt-3b=2.7B mpt-7b=6.7B mpt-13b=12.9B mpt-30b=30.0B
        mpt-70b=64.9B
    """,
    "BLOOM's model cards": """
        bloom-560m=559M bloom-1.1b=1065M bloom-1.7b=1722M bloom-3b=3003M bloom-7.1b=7069M bloom-176b=176.2B
    """,
    "Llama: arXiv 2302.13971, table 2; 2307.09288; 2407.21783; and model cards": """
        llama-7b=6.7B llama-13b=13.0B llama-33b=32.5B llama-65b=65.2B llama2-7b=6.7B llama2-13b=13.0B
        llama2-70b=69.0B llama3-8b=8.0B llama3-70b=70.6B llama3-405b=405B llama3.2-1b=1.23B llama3.2-3b=3.21B
    """,
    "Qwen and InternLM: model cards; arXiv 2407.10671, 2505.09388": """
        internlm-7b=7.3B qwen-7b=7.7B qwen2-7b=7.6B qwen2.5-32b=32.5B qwen2-72b=72.7B qwen3-8b=8.2B qwen3-32b=32.8B
        qwen2.5-0.5b=0.49B qwen2.5-1.5b=1.54B qwen2.5-3b=3.09B qwen2.5-14b=14.7B
        qwen3-0.6b=0.6B qwen3-1.7b=1.7B qwen3-4b=4.0B qwen3-14b=14.8B
        qwen3-30b-a3b=30.5B qwen3-235b-a22b=235B
    """,
    "model cards of Mistral, Microsoft, Google, TinyLlama and 01.AI": """
        mistral-7b=7.24B mistral-nemo-12b=12.2B mistral-small-24b=23.6B mistral-large-123b=123B phi-3-mini=3.82B
        phi-4=14.7B gemma-2b=2.51B gemma-7b=8.54B tinyllama-1.1b=1.1B yi-34b=34.4B
    """,
    "gpt-oss, arXiv 2508.10925, table 1": "gpt-oss-20b=20.91B gpt-oss-120b=116.83B",
    "Mixtral: arXiv 2401.04088 and Mistral's announcement of 8x22B": "mixtral-8x7b=46.7B mixtral-8x22b=141B",
    "DeepSeek: arXiv 2405.04434, 2412.19437; Kimi K2: arXiv 2507.20534": """
        deepseek-v2-lite=15.7B deepseek-v2=236B deepseek-v3=671B kimi-k2=1.04T
    """,
    "Jasper, arXiv 1904.03288, table 3; QuartzNet, arXiv 1910.10261, table 2": "jasper=333M quartznet=18.9M",
    "BART, model card of Hugging Face": "bart-large=406M",
    "Grok-1, xai-org/grok-1; Nemotron-H, arXiv 2504.03624": "grok-1=314B nemotron-h-56b=56B",
    "T5: model cards of Hugging Face": "t5-small=60.5M t5-base=223M t5-large=738M t5-3b=2.85B t5-11b=11.3B",
    "Nemotron: arXiv 2402.16819, 2406.11704, 2512.20848": """
        nemotron4-15b=15.7B nemotron4-340b=341.0B nemotron-3-nano=31.6B nemotron-3-super=120.6B
    """,
    "logs of NVIDIA's DeepLearningExamples": "gnmt=160.7M ncf=31.8M tacotron2=28.2M transformer-xl-base=192M",
    "NeuSight, as it measured": "gpt3-2.9b=2.88B",
}
# Programs whose authors publish no number, sizes without a network, and what differs, with the reason.
_WITHOUT = {
    *("lenet", "lenet-d2l", "mlp", "googlenet", "resnet18-28x28", "resnet18-cifar", "fcn-s", "fcn-r", "alexnet-s"),
    *("alexnet-s-caffe", "alexnet-s-tensorflow", "alexnet-s-mxnet", "alexnet-r-lrn"),
    *("alexnet-r", "lstm-shi2016", "ssd-resnet34", "ssd-resnet50", "unet3d", "waveglow", "gpt"),
    "transformer-xl-large",  # 257 million in its paper; 285 million as torch counts what it describes
    "electra-base",  # 110 million without the generator, whose words are the same
    "iresnet100",  # 65.2 million without its table of identities
    "mobilefacenet",  # 0.99 million without its table of identities
    "nnunet-2d",
    *("unet-industrial", "unet3d-brats", "vnet"),  # counted by their blocks in test_volumes_and_slices
    "nemotron3-8b",  # 8.5 billion, with two tables of 256,000 words, rounded down in its name
}
_UNITS = {"M": 1e6, "B": 1e9, "T": 1e12}


def test_every_name_is_compared_or_has_nothing_to_be_compared_with() -> None:
    stated = {pair.partition("=")[0] for names in PUBLISHED.values() for pair in names.split()}
    assert not stated & _WITHOUT
    assert stated | _WITHOUT == {*network_names(), "gpt3-xl"}


@pytest.mark.parametrize("source", PUBLISHED)
def test_a_network_has_the_published_number_of_parameters(source: str) -> None:
    for pair in PUBLISHED[source].split():
        name, _, said = pair.partition("=")
        digits, unit = (said, 1.0) if said.isdigit() else (said[:-1], _UNITS[said[-1]])
        stated = float(digits) * unit
        last_digit = unit / 10 ** len(digits.partition(".")[2])
        found = build_network(name, batch=1).parameter_count
        assert abs(found - stated) <= max(0.02 * stated, 0.5 * last_digit), (name, found, said)


# -- titles --------------------------------------------------------------------------------

LLAMA = "--set hidden=8192 --set heads=64 --set inner=28672 --set kv_heads=8 --set tied=0"


def title(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert run(["--topology", "dgx-h100", "--device", "gpu0", "--batch", "1", *words.split()]) == 0
    match = re.search(r" step of (.*?) \(", capsys.readouterr().out)
    assert match is not None
    return match[1]


@pytest.mark.parametrize(
    ("sizes", "called"),
    [
        ("llama2-7b", "llama2-7b"),
        ("llama2-7b --set vocabulary=32768 --set attention=eager", "llama2-7b"),
        (f"llama2-7b {LLAMA} --set layers=80 --set vocabulary=129024", "llama3-70b"),
        (f"llama2-7b {LLAMA} --set layers=80 --set vocabulary=32768", "llama2-70b"),
        (f"llama2-7b {LLAMA} --set layers=3", "a network of 3 layers of 8,192, built as llama2-7b"),
        ("qwen2-7b --set layers=2", "a network of 2 layers of 3,584, built as qwen2-7b"),  # biases: no Llama
        ("gpt --set layers=24 --set hidden=2304 --set heads=24 --set vocabulary=50304", "megatron-1.7b"),
        ("gnmt --set layers=8", "a network of 8 layers of 1,024, built as gnmt"),
    ],
)
def test_an_answer_calls_a_network_by_its_own_name(sizes: str, called: str) -> None:
    name, *words = sizes.split()
    options: dict[str, object] = {}
    for word in words[1::2]:
        key, _, value = word.partition("=")
        options[key] = int(value) if value.isdecimal() else value
    network = build_network(name, batch=1, **options)
    assert (network.title, network.name) == (called, name)


def test_the_first_line_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert title("--workload llama2-7b --set layers=1 --seq-len 64", capsys) == (
        "a network of 1 layer of 4,096, built as llama2-7b"
    )


def test_a_launch_line_names_its_network() -> None:
    line = (
        "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 8 --num-layers 80 --hidden-size 8192 "
        "--ffn-hidden-size 28672 --num-attention-heads 64 --group-query-attention --num-query-groups 8 --swiglu "
        "--vocab-size 128256 --seq-length 4096 --disable-bias-linear --position-embedding-type rope "
        "--normalization RMSNorm --untie-embeddings-and-output-weights --micro-batch-size 1 --global-batch-size 1"
    )
    launch = read_launch(line)
    network = build_network(str(launch.options["workload"]), batch=1, **launch.sizes)
    assert network.title == "llama3-70b"


def test_tables_keep_the_network_that_neusight_measured() -> None:
    row = {
        "machine": "p3.2xlarge",
        "framework": "pytorch",
        "phase": "inference",
        "dtype": "fp32",
        "batch_per_gpu": "2",
        "seq_len": "64",
    }
    for dataset, network in (("neusight_model_latency", "gpt3-2.9b"), ("mine", "gpt3-xl")):
        cells = {**row, "model": "gpt3-xl", "dataset": dataset, "step_time_s": "1", "n_gpus": "1", "trust": "A"}
        records = read_records(csv_bytes([tuple(cells), tuple(cells.values())]), "t.csv")
        table = tabulate(records, "t.csv", STEPS.needed, STEPS.columns, STEPS.name)
        written, _ = made_complete(table, read_conventions(PUBLISHED_TABLES))
        (complete,) = csv.DictReader(io.StringIO(written.decode()))
        question = STEPS.read(lambda column, seen=complete: seen.get(column, ""), RowNames()).question
        assert isinstance(question, StepQuestion)
        assert question.workload == network


# -- spellings -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "network"),
    [
        ("llama-3.1-70b", "llama3-70b"),
        ("llama-3.1-405b", "llama3-405b"),
        ("llama31_8b", "llama3-8b"),
        ("llama2-7b-sft", "llama2-7b"),
        ("Llama 2 70B-chat", "llama2-70b"),
        ("ResNet-50", "resnet50"),
        ("vit_b_16", "vit-b16"),
        ("GPT-3 175B", "gpt3-175b"),
        ("insightface", "iresnet100"),
        ("NemotronH-56B", "nemotron-h-56b"),
    ],
)
def test_other_spellings_are_found(written: str, network: str) -> None:
    assert find_entry(written) is find_entry(network)


def test_no_spelling_stands_for_two_networks() -> None:
    """Different sizes stay different: gpt3-1.3b and gpt3-13b are not one."""
    found: dict[str, set[int]] = {}
    for name in (*registry._entries(), *registry.network_aliases()):
        found.setdefault(registry.spelling(name), set()).add(id(find_entry(name)))
    assert {name: len(entries) for name, entries in found.items() if len(entries) > 1} == {}
    assert registry.spelling("gpt3-1.3b") != registry.spelling("gpt3-13b")


def test_the_generator_shares_its_words_with_the_discriminator() -> None:
    """ELECTRA-base: 110 M of BERT without its pooler and predictions, and a generator of 4 heads of 64."""
    hidden, narrow, words = 768, 256, 30522

    def stack(h: int) -> int:
        return 12 * (4 * (h * h + h) + 2 * 4 * h * h + 5 * h + 4 * h)

    tables = (words + 2 + 512) * hidden
    norms = 2 * hidden
    generator = stack(narrow) + hidden * narrow + narrow + narrow * hidden + hidden + 2 * hidden + words
    discriminator = stack(hidden) + hidden * hidden + hidden + hidden + 1
    assert build_network("electra-base", batch=1).parameter_count == tables + norms + generator + discriminator


@pytest.mark.parametrize("name", ["fastpitch", "EfficientDet-D0", "wide_and_deep", "switch-xl-4e", "SE3Transformer"])
def test_a_published_network_that_is_not_built_in_says_why(name: str) -> None:
    why = registry.why_not_built(name)
    assert why
    with pytest.raises(InputError, match=f"no network is called '{name}'; it is not built in: {re.escape(why)}"):
        registry.find_entry(name)


def test_no_network_that_is_built_in_is_said_not_to_be() -> None:
    assert not [name for name in registry.network_names() if registry.why_not_built(name)]
    assert not registry.why_not_built("simple")
