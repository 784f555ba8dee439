"""Random steps written as launch lines and read back: ``python -m tests.emitted --layouts 1000``.

A line without comments must give the same plan: the same layout, batches, exchange, options and network.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from simulator.api.session import Session
from simulator.cli.launch_line import emitted_on, with_launch
from simulator.cli.step_questions import ask_steps
from simulator.cli.written import CommandOptions
from simulator.errors import InputError
from simulator.launch.emit.emitted import EMITTERS, Emitter
from simulator.launch.emit.parts import Emission, all_sizes
from simulator.launch.stages import titan_blocks
from simulator.questions.step import StepQuestion
from simulator.training.data_parallel import bucket_size
from simulator.workload.zoo.registry import find_entry

SESSION = Session()
MACHINE, NODES = "dgx-h100", 2
_MEGATRON = (
    "gpt3-18b",
    "llama2-7b",
    "llama3-8b",
    "qwen2-7b",
    "qwen3-8b",
    "mixtral-8x7b",
    "nemotron4-15b",
    "deepseek-v3",
)
_TITAN = ("llama3-8b", "llama3-70b", "qwen3-8b", "qwen3-30b-a3b", "gpt-oss-20b")
_TRAINER = ("gpt2", "llama2-7b", "llama3-8b", "gpt3-1.3b")


def drawn(framework: Emitter, draw: random.Random) -> CommandOptions:
    """Return a random step that *framework* may be able to say; it may also be none."""
    chance = draw.random

    def one_of(*values: Any) -> Any:
        return draw.choice(values)

    divides = framework in ("megatron", "torchtitan")
    tp, pp, cp, ep = (
        (one_of(1, 1, 2, 4), one_of(1, 1, 2, 4), one_of(1, 1, 2), one_of(1, 2)) if divides else (1, 1, 1, 1)
    )
    words = [f"{name}={n}" for name, n in (("tp", tp), ("pp", pp), ("cp", cp), ("ep", ep)) if n > 1]
    words += [f"cp_a2a={cp}"] if cp > 1 and framework == "megatron" and chance() < 0.2 else []
    words += ["sp"] if tp > 1 and chance() < 0.8 else []
    words += ["tp_overlap"] if "sp" in words and chance() < 0.2 else []
    words += ["flex"] if ep > 1 and framework == "megatron" and chance() < 0.3 else []
    gathers = framework == "megatron" and (tp == 1 or "sp" in words) and tp * ep > 1 and chance() < 0.2
    words += ["ep_comm=all_gather"] if gathers and "flex" not in words else []
    words += ["ep_overlap"] if ep > 1 and framework == "megatron" and chance() < 0.3 else []
    words += (
        ["shared_overlap"]
        if ep > 1 and "ep_overlap" not in words and framework == "megatron" and chance() < 0.3
        else []
    )
    words += [f"vp={one_of(2, 2, 3)}"] if pp > 1 and chance() < 0.3 else []
    words += (
        [f"schedule={one_of('gpipe', 'zb-v')}"] if pp > 1 and "vp" not in " ".join(words) and chance() < 0.1 else []
    )
    zero = one_of(0, 1, 2, 3, 3)
    words += [] if zero == 0 else ["fsdp"] if zero == 3 else [f"zero={zero}"]
    words += [f"shards={one_of(2, 8)}"] if zero in (1, 2) and chance() < 0.2 else []
    words += ["order=tp-cp-pp-dp"] if framework == "megatron" and chance() < 0.1 else []
    said: dict[str, Any] = {"parallel": (",".join(words) or "dp",)}
    said["micro_batch"] = str(one_of(1, 2))
    said["global_batch"] = str(one_of(32, 64, 128))
    said["seq_len"] = str(one_of(1024, 2048))
    how = one_of("none", "none", "recompute", "recompute_attention", "recompute_operators")
    said |= {how: True} if how != "none" else {}
    if chance() < 0.2:
        said["overlap"] = one_of("none", "bucket:40MB", "bucket:100MB")
    if framework == "megatron":
        said["workload"] = one_of(*_MEGATRON)
        said["framework"] = "megatron"
        said["precision"] = one_of(None, "master-bf16", "master-bf16", "master-fp16", "master-fp8", "fp32")
        said["reduce_fp32"] = chance() < 0.6
        said["prefetch"] = chance() < 0.9
        said["sizes"] = (f"layers={one_of(4, 8, 12)}", f"attention={one_of('fused-native', 'fused')}")
        if "llama" in said["workload"]:
            said["sizes"] += (f"vocabulary={one_of(32000, 50257)}",)
    else:
        said["workload"] = one_of(*(_TITAN if framework == "torchtitan" else _TRAINER))
        said["fused_optimizer"] = chance() < 0.5
        said["compiled"] = chance() < 0.3
        said["precision"] = "amp-bf16"
        said["gather_again"] = zero == 3 and how == "recompute" and chance() < 0.3
        if framework == "deepspeed":
            said |= {"precision": one_of("master-bf16", "master-fp16", "fp32"), "fused_optimizer": True}
            said |= {"prefetch": zero not in (1, 2), "reduce_whole": zero in (1, 2) and chance() < 0.7}
            said |= {"framework": "deepspeed-zero3"} if zero == 3 else {}
        elif framework == "accelerate" and zero == 2:
            said["precision"] = one_of("master-bf16", "master-fp16")
    if pp > 1 and chance() < 0.2 and "schedule" not in said["parallel"][0]:
        said["parallel"] = (said["parallel"][0] + _uneven(said, pp, draw),)
    return CommandOptions(topology=MACHINE, nodes=str(NODES), **{k: v for k, v in said.items() if v is not None})


def _uneven(said: dict[str, Any], pp: int, draw: random.Random) -> str:
    """Return the blocks of each part, some with one more than others; those at the ends may have fewer."""
    sizes = dict(each.split("=") for each in said.get("sizes", ()))
    layers = int(sizes.get("layers") or find_entry(said["workload"]).defaults["layers"])
    parts = pp * int(dict(re.findall(r"(vp)=(\d)", said["parallel"][0])).get("vp", 1))
    blocks = titan_blocks(layers, parts, draw.choice((0, 1, 2)), draw.choice((0, 1, 2)))
    return f",blocks={'-'.join(map(str, blocks))}" if len(set(blocks)) > 1 and min(blocks) else ""


def asked(written: CommandOptions) -> StepQuestion:
    """Return the one question of *written*."""
    (found,) = ask_steps(written, SESSION)[1]
    return found


def read_back(found: Emission) -> StepQuestion:
    """Return the question of the launch line *found*."""
    return asked(with_launch(CommandOptions(topology=MACHINE, launch=found.text))[0])


def plan_of(question: StepQuestion, n_ranks: int) -> dict[str, Any]:
    """Return what the plan of *question* depends on, however it was said."""
    layout = question.layout.on(n_ranks)
    if layout.shards == 1:  # of one rank, nothing is sharded
        layout = replace(layout, zero=0, shards=None)
    element_bytes = 4 if question.sums_in_fp32 or question.options.precision == "fp32" else 2
    exchanges = layout.zero < 3 and layout.cp * (layout.dp or 1) > 1
    sizes = {name: size for name, size in all_sizes(question).items() if size not in (0, "plain")}
    network = (sizes, question.workload)
    if question.options.framework == "megatron":
        built = SESSION.network(question)
        network = (built.layers, built.parameters)  # type: ignore[assignment]
    return {
        "layout": layout,
        "network": network,
        "bucket": bucket_size(question, layout, element_bytes) if exchanges else None,
        "prefetches": question.prefetches if exchanges and layout.zero and question.bucket_bytes else None,
        **{
            name: getattr(question, name)
            for name in (
                "where",
                "batch",
                "micro_batches",
                "options",
                "gpus",
                "strategy",
                "sums_in_fp32",
                "sums_whole",
                "gathers_again",
                "offload",
            )
        },
    }


def differences(framework: Emitter, seed: int) -> Iterator[str]:
    """Yield how the step of *seed* differs when its line is read back; ``none`` or ``comment`` where it has no line."""
    written = drawn(framework, random.Random(f"{framework} {seed}"))
    try:
        question = asked(written)
        found = emitted_on(SESSION, question, framework)
    except InputError:
        yield "none"
        return
    back = plan_of(read_back(found), NODES * 8)
    if found.cannot:
        yield "comment"
        return
    for name, value in plan_of(question, NODES * 8).items():
        if back[name] != value:
            shown = "another network" if name == "network" else f"{value} became {back[name]}"
            yield f"{written}\n{found.text}\n{name}: {shown}"


def judged(framework: Emitter, count: int, first: int = 0) -> tuple[Counter[str], list[str]]:
    """Return how many of *count* steps read back the same, have comments or no line; and what differs in others."""
    kinds: Counter[str] = Counter()
    wrong = []
    for seed in range(first, first + count):
        said = list(differences(framework, seed))
        kinds[said[0] if said and said[0] in ("none", "comment") else "wrong" if said else "same"] += 1
        wrong += [text for text in said if text not in ("none", "comment")]
    return kinds, wrong


def main() -> None:
    """Judge random steps of each framework, and print those that differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layouts", type=int, default=1000)
    for framework in EMITTERS:
        kinds, wrong = judged(framework, parser.parse_args().layouts)
        sys.stdout.write("\n".join([f"{framework} {dict(kinds)}", *wrong[:3]]) + "\n")


if __name__ == "__main__":
    main()
