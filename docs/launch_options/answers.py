"""The options of the programs whose launch lines are read, as their own lists have them, and what becomes of each.

Each list is data with its source and version.  :func:`what_becomes_of` gives each option to launch lines: it is
modelled, without influence on time and memory, named as not modelled, or refused.
"""

from __future__ import annotations

import copy
import json
import shlex
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any, Literal, get_args

from simulator.errors import InputError, one_line
from simulator.launch.arguments import KNOWN, REFUSED, Names, is_timeless, reasons
from simulator.launch.launch import LaunchLine, read_launch
from simulator.records import dataclass, own_data

List = Literal[
    "megatron",
    "torchtitan",
    "torchtitan-0.2",
    "torchtitan-0.3",
    "deepspeed",
    "accelerate",
    "trainer",
    "llamafactory",
    "axolotl",
    "megatron-bridge",
    "nanotron",
]
LISTS: tuple[List, ...] = get_args(List)
TITLES: Mapping[List, str] = {
    "megatron": "Megatron-LM",
    "torchtitan": "torchtitan, job_config.py",
    "torchtitan-0.2": "torchtitan 0.2",
    "torchtitan-0.3": "torchtitan 0.3",
    "deepspeed": "DeepSpeed's configuration",
    "accelerate": "accelerate launch",
    "trainer": "Hugging Face's Trainer",
    "llamafactory": "LLaMA-Factory, beyond the Trainer",
    "axolotl": "Axolotl's files",
    "megatron-bridge": "Megatron-Bridge's configuration",
    "nanotron": "nanotron's files",
}
Answer = Literal["modelled", "without influence", "not modelled", "refused", "unknown"]
_MEGATRON = (
    "torchrun --nproc-per-node 2 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 "
    "--seq-length 64 --vocab-size 99 --micro-batch-size 1 --global-batch-size 4 --bf16 --swiglu "
    "--normalization RMSNorm --position-embedding-type rope --disable-bias-linear --attention-backend auto"
)
_EXPERTS = f"{_MEGATRON} --num-experts 4 --expert-model-parallel-size 2 --moe-grouped-gemm"
_SENT = f"{_EXPERTS} --moe-token-dispatcher-type alltoall"
_GPT = (
    "torchrun --nproc-per-node 2 pretrain_gpt.py --num-layers 4 --hidden-size 64 --num-attention-heads 2 "
    "--seq-length 64 --vocab-size 99 --micro-batch-size 1 --global-batch-size 4 --fp16 --hidden-dropout 0 "
    "--attention-dropout 0 --overlap-grad-reduce --use-distributed-optimizer"
)
_TRAINER = "run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 1 --block_size 64"
_TITAN = "torchrun --nproc-per-node 4 -m torchtitan.train --model.name llama3 --model.flavor 8B"
_NEW_TITAN = "torchrun --nproc-per-node 4 -m torchtitan.train --module llama3 --config llama3_8b"
_DIVIDED_EXPERTS = (
    "--model.name deepseek_v3 --model.flavor 16B --parallelism.expert_parallel_degree 2 "
    "--parallelism.tensor_parallel_degree 2"
)
_SPLIT = "--parallelism.tensor_parallel_degree 2 --parallelism.pipeline_parallel_degree 2"
# Lines on which each option is tried: some are read with others only.
_LINES: Mapping[List, tuple[str, ...]] = {
    "megatron": (
        f"{_MEGATRON} {{}}",
        f"{_GPT} {{}}",
        f"{_GPT} --tensor-model-parallel-size 2 --sequence-parallel {{}}",
        f"{_GPT} --context-parallel-size 2 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 1 2 {{}}",
        f"{_GPT} --pipeline-model-parallel-size 2 {{}}",
        f"{_EXPERTS} {{}}",
        f"{_SENT} --overlap-moe-expert-parallel-comm {{}}",
        f"{_SENT} --moe-shared-expert-intermediate-size 64 --moe-expert-capacity-factor 1 {{}}",
        f"{_MEGATRON} --use-megatron-fsdp {{}}",
        f"{_MEGATRON} --tensor-model-parallel-size 2 --optimizer muon {{}}",
        f"{_MEGATRON} --num-experts 4 --multi-latent-attention --q-lora-rank 1536 {{}}",
    ),
    "torchtitan": tuple(f"{_TITAN} {more} {{}}" for more in ("", _SPLIT, "--model.converters float8")),
    "torchtitan-0.2": tuple(
        f"{_TITAN} --compile.enable {more} {{}}"
        for more in ("", _SPLIT, _DIVIDED_EXPERTS, "--model.converters quantize.linear.float8")
    ),
    "torchtitan-0.3": (f"{_NEW_TITAN} {{}}", f"{_NEW_TITAN} {_SPLIT} {{}}"),
    "megatron-bridge": ("", "experts", "muon", "rings"),
    "axolotl": ("", "mixtral"),
    "accelerate": tuple(
        f"accelerate launch --num_processes 2 {more} {{}} {_TRAINER}" for more in ("", "--use_fsdp", "--use_deepspeed")
    ),
    "trainer": tuple(
        f"torchrun --nproc-per-node 2 {_TRAINER} {more} {{}}"
        for more in ("", "--fsdp full_shard --gradient_checkpointing")
    ),
    "llamafactory": tuple(
        "torchrun --nproc-per-node 2 src/train.py --stage sft --do_train --model_name_or_path gpt2 --cutoff_len 64 "
        f"--per_device_train_batch_size 1 --finetuning_type {more} {{}}"
        for more in ("full", "lora --lora_rank 8", "full --fsdp full_shard")
    ),
}
# What else stands in a document: the same keys are tried with and without it.
_MORE: Mapping[str, Mapping[str, Any]] = {
    "experts": {"model": {"num_moe_experts": 4, "expert_model_parallel_size": 2}},
    "mixtral": {"base_model": "mistralai/Mixtral-8x7B-v0.1"},
    "muon": {"model": {"tensor_model_parallel_size": 2}, "optimizer": {"optimizer": "muon"}},
    "rings": {
        "model": {
            "context_parallel_size": 2,
            "cp_comm_type": "a2a+p2p",
            "hierarchical_context_parallel_sizes": [1, 2],
        },
    },
}
_OF_TITAN = Names(KNOWN["torchtitan"])
_OF_BRIDGE = Names(own_data("simulator.launch", "recipes.yaml")["megatron"]["timeless"])
_REASONS = tuple(dict.fromkeys([*REFUSED.values(), *reasons(KNOWN["deepspeed"]["refused"]).values()]))
_ZERO = 'cat > ds.json <<EOF\n{"zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}\nEOF\n'
# Lines whose file has the keys of a list, and what stands in it beside the one that is tried.
_DOCUMENTS: Mapping[List, tuple[str, Mapping[str, Any]]] = {
    "deepspeed": (
        f"deepspeed --num_gpus 2 {_TRAINER} --deepspeed c.yaml",
        {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}},
    ),
    "axolotl": (
        f"{_ZERO}accelerate launch --num_processes 2 -m axolotl.cli.train c.yaml",
        {"base_model": "gpt2", "micro_batch_size": 1, "sequence_len": 64, "fsdp_config": {"state_dict_type": "FULL"}},
    ),
    "megatron-bridge": (
        "torchrun --nproc-per-node 4 pretrain.py --config-file c.yaml",
        {
            "model": {
                "num_layers": 4,
                "hidden_size": 64,
                "num_attention_heads": 2,
                "seq_length": 64,
                "vocab_size": 99,
                "gated_linear_unit": True,
                "normalization": "RMSNorm",
                "position_embedding_type": "rope",
                "add_bias_linear": False,
                "attention_backend": "auto",
                "hidden_dropout": 0,
                "attention_dropout": 0,
            },
            "train": {"micro_batch_size": 1, "global_batch_size": 4},
            "mixed_precision": {"bf16": True},
        },
    ),
    "nanotron": (
        "torchrun --nproc-per-node 4 run_train.py --config-file c.yaml",
        {
            "parallelism": {"dp": 1, "tp": 2, "pp": 2},
            "tokens": {"micro_batch_size": 1, "batch_accumulation_per_replica": 4, "sequence_length": 64},
            "model": {
                "dtype": "bfloat16",
                "model_config": {
                    "hidden_size": 64,
                    "intermediate_size": 256,
                    "num_attention_heads": 2,
                    "num_hidden_layers": 4,
                    "num_key_value_heads": 2,
                    "vocab_size": 128,
                },
            },
        },
    ),
}


@dataclass(frozen=True, slots=True)
class OptionList:
    """The options of a program: ``choices`` are the values of those that have a list of them."""

    source: str
    version: str
    options: tuple[str, ...]
    choices: Mapping[str, tuple[str, ...]]


@cache
def option_list(name: List) -> OptionList:
    """Return the list called *name*."""
    data = own_data("docs.launch_options", f"{name}.yaml")
    choices = {option: tuple(str(values).split()) for option, values in data["choices"].items()}
    return OptionList(data["source"], str(data["version"]), tuple(data["options"].split()), choices)


def what_becomes_of(name: List, most: int | None = None) -> dict[str, tuple[Answer, str]]:
    """Return what becomes of each option of the list *name*, and why of those that are not modelled or refused.

    *most* is the number of lines on which each is tried; None: all.
    """
    found = option_list(name)
    lines = _LINES.get(name, ("",))[:most]
    return {option: _answer(name, lines, option, found.choices.get(option, ())) for option in found.options}


def _answer(name: List, lines: Sequence[str], option: str, choices: tuple[str, ...]) -> tuple[Answer, str]:
    """Return what values of *option* do on any of *lines*: those of its own list, numbers, true, or none.

    One of which some values are modelled and others are not is modelled, with what is simulated in place of these.
    """
    named, is_read = "", False
    for line in lines:
        without = _read(name, line, option, None)
        for value in dict.fromkeys((*choices, "3", "2", "true", "")):
            try:
                found = _read(name, line, option, value)
            except InputError as error:
                said = error.spelt("command")
                why = next((each for each in _REASONS if each in said), "")
                if why:
                    return "refused", why
                is_read = is_read or option.rpartition(".")[2].replace("_", "-") in said.replace("_", "-")
                continue
            if any(_UNKNOWN in note for note in found.notes if note not in without.notes):
                return "unknown", ""
            if (found.options, found.sizes) != (without.options, without.sizes):
                return "modelled", named
            named = named or _instead("" if name in _DOCUMENTS else option, found.notes, without.notes)
    if named:
        return "not modelled", named
    return ("modelled" if is_read or not _is_timeless(name, option) else "without influence"), ""


_read_launch = cache(partial(read_launch, own=4))
_UNKNOWN = "not known, and without effect"


def _instead(option: str, notes: Sequence[str], usual: Sequence[str]) -> str:
    """Return what *notes* say is simulated in place of *option*, beyond the *usual* ones; empty if nothing."""
    shown = option.replace("_", "-")
    for note in notes:
        if note not in usual and "is not modelled" in note and shown in note.replace("_", "-"):
            return one_line(note.partition("is not modelled")[2].lstrip(";, "), 160)
    return ""


def _is_timeless(name: List, option: str) -> bool:
    if name in _DOCUMENTS and name != "megatron-bridge":
        return True  # keys that do anything change the options
    shown = (option.rpartition(".")[2] if name == "megatron-bridge" else option).replace("_", "-")
    return option in _OF_BRIDGE or is_timeless(shown, of_launcher=name == "accelerate") or shown in _OF_TITAN


def _read(name: List, line: str, option: str, value: str | None) -> LaunchLine:
    """Return *line* with *option* at *value*, or the one for the list *name* with it in its file; None: without it."""
    if name not in _DOCUMENTS:
        words = "" if value is None else f"--{option} {shlex.quote(value) if value else ''}"
        return _read_launch(line.format(words))
    command, base = _DOCUMENTS[name]
    data = copy.deepcopy(dict(base))
    for section, more in _MORE.get(line, {}).items():
        data[section] = more if isinstance(more, str) else data.get(section, {}) | more
    *sections, key = option.split(".")
    within = data
    for section in sections:
        within = within.setdefault(section, {})
        if section.startswith("offload_"):
            within["device"] = "cpu"
            data["zero_optimization"]["offload_optimizer"] = {"device": "cpu"} | data["zero_optimization"][section]
    if value is not None:
        within[key] = json.loads(value) if value in ("0", "1", "2", "3", "true", "false") else value or None
    return _read_launch(f"cat > c.yaml <<'EOF'\n{json.dumps(data)}\nEOF\n{command}")
