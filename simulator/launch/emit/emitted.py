"""A step as a launch line of a framework's own options; what it cannot say, as comments: :func:`emitted`."""

from typing import Literal, get_args

from simulator.errors import mention, refused
from simulator.launch.emit.frameworks import of_accelerate, of_deepspeed, of_megatron, of_torchtitan
from simulator.launch.emit.parts import Emission, Ranks
from simulator.questions.step import StepQuestion
from simulator.workload.find import is_config, is_described
from simulator.workload.zoo.registry import find_entry

Emitter = Literal["megatron", "torchtitan", "deepspeed", "accelerate"]
EMITTERS: tuple[Emitter, ...] = get_args(Emitter)
_WRITERS = dict(zip(EMITTERS, (of_megatron, of_torchtitan, of_deepspeed, of_accelerate), strict=True))


def emitted(question: StepQuestion, ranks: Ranks, framework: Emitter) -> Emission:
    """Return how *framework* launches the step of *question* on *ranks*; raises InputError if it has no such step."""
    if question.options.mode != "train":
        raise refused("emit", f"is of training, not of {mention('mode', question.options.mode)}", framework)
    if is_config(question.workload) or is_described(question.workload) or ":" in question.workload:
        raise refused("emit", f"writes out networks of the zoo (simulate networks), not {question.workload}", framework)
    if question.layout.process != "each" or question.helpers or question.divided:
        raise refused("emit", "is of one process for each GPU, with equal samples", framework)
    if find_entry(question.workload).sample != "sequences":
        raise refused("emit", f"is of language models; {question.workload} is none", framework)
    found = _WRITERS[framework](question, ranks)
    algorithms = {"nvls": "NVLS", "nvls_tree": "NVLSTree"}
    algorithm = question.algorithm and algorithms.get(question.algorithm, question.algorithm.capitalize())
    found.environment |= {
        "CUDA_VISIBLE_DEVICES": ",".join(map(str, ranks.listed)),
        "CUDA_LAUNCH_BLOCKING": "1" if question.options.launch_blocking else "",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True" if question.options.expandable_segments else "",
        "NCCL_ALGO": algorithm or "",
        "NCCL_PROTO": question.protocol or "",
        "NCCL_NVLS_ENABLE": "" if question.nvls else "0",
    }
    found.lacks |= {
        f"{mention('strategy', question.strategy)}; NCCL exchanges": question.strategy != "nccl",
        "one CUDA graph of the whole step": question.options.cuda_graph,
        "CUDA graphs of blocks": question.options.cuda_graph_blocks,
        "channels last": question.options.channels_last,
        "batch norms of all ranks' samples": question.layout.sync_bn,
        mention("sums_whole"): question.sums_whole and framework != "deepspeed",
    }
    return found
