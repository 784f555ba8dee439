"""The options as text, and which of them each kind of question reads."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields

from simulator.errors import Fault, InputError
from simulator.programs.file import is_program
from simulator.questions.words import KINDS

__all__ = ["OVERLAP", "Written", "check_read", "command", "spelt"]

OVERLAP = "bucket:25MiB"
_EXCHANGE, _STEP, _SINGLE, _PROGRAM = "exchange", "step", "single", "program"


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """All options on the question and its output, with their defaults."""

    topology: str | None = None
    workload: str | None = None
    nodes: str | None = None
    fabric: str | None = None
    strategy: str | None = None
    gpus: str | None = None
    nccl: str | None = None
    servers: str | None = None
    slow_link: str | None = None
    neighbour: str | None = None
    collective: str = "all-reduce"
    root: str = "0"
    pairs: str | None = None
    group_size: str | None = None
    gpus_per_process: str = "1"
    algorithm: str | None = None
    dtype: str = "fp32"
    redop: str = "sum"
    fold: bool = True
    batch: str | None = None
    global_batch: str | None = None
    micro_batches: str = "1"
    micro_batch: str | None = None
    parallel: tuple[str, ...] = ()
    overlap: str = OVERLAP
    staleness: str = "0"
    straggler: str | None = None
    epoch: str | None = None
    input: str | None = None
    programs: str = "1"
    divide: str = "even"
    lose: str | None = None
    mtbf: str | None = None
    checkpoint_every: str | None = None
    checkpoint_time: str | None = None
    restart_time: str | None = None
    reduce_fp32: bool = False
    prefetch: bool = True
    contention: bool = True
    mode: str = "train"
    precision: str | None = None
    optimizer: str | None = None
    seq_len: str | None = None
    image: str | None = None
    sizes: tuple[str, ...] = ()
    compiled: bool = False
    cuda_graph: bool = False
    cuda_graph_blocks: bool = False
    launch_blocking: bool = False
    accumulate: str | None = None
    recompute: bool = False
    recompute_attention: bool = False
    recompute_operators: bool = False
    recompute_parts: str | None = None
    recompute_blocks: str | None = None
    channels_last: bool = False
    fused_optimizer: bool = False
    framework: str = "pytorch"
    cpu_library: str = "onednn"
    libraries: str | None = None
    device: str | None = None
    threads: str | None = None
    calibration: str | None = None
    what_if: bool = False
    trust_code: bool = False
    json: bool = False
    trace: str | None = None
    plot: str | None = None
    quiet: bool = False
    launch: str | None = None
    show_options: bool = False

    @property
    def what(self) -> str:
        """The workload; where none is named, the default."""
        return "resnet50" if self.workload is None else self.workload

    @property
    def kind(self) -> str:
        """The kind of question: a single operation or a program (by workload), a step (by batch), or an exchange."""
        scheme, colon, _ = self.what.partition(":")
        if colon and scheme in KINDS:
            return _SINGLE
        if is_program(self.what):
            return _PROGRAM
        return _STEP if self.batch is not None or self.global_batch is not None else _EXCHANGE


_SPELT = {
    "sizes": "--set",
    "compiled": "--compile",
    **{name: f"--no-{name}" for name in ("fold", "contention", "prefetch")},
}
_OF_AN_EXCHANGE = (
    *("collective", "root", "pairs", "group_size", "gpus_per_process", "algorithm", "dtype", "redop", "fold"),
)
_OF_A_STEP = (
    *(
        "micro_batches",
        "micro_batch",
        "parallel",
        "overlap",
        "reduce_fp32",
        "prefetch",
        "contention",
        "mode",
        "precision",
        "optimizer",
    ),
    *("seq_len", "image", "sizes", "compiled", "cuda_graph", "recompute", "channels_last", "fused_optimizer"),
    *(
        "recompute_attention",
        "recompute_operators",
        "recompute_parts",
        "recompute_blocks",
        "cuda_graph_blocks",
        "launch_blocking",
        "accumulate",
        "framework",
        "cpu_library",
        "libraries",
        "what_if",
    ),
    *("staleness", "straggler", "epoch", "input", "programs", "divide", "lose"),
    *("mtbf", "checkpoint_every", "checkpoint_time", "restart_time"),
)
_READ_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(_OF_AN_EXCHANGE, (_EXCHANGE,)),
    **dict.fromkeys(_OF_A_STEP, (_STEP,)),
    **dict.fromkeys(("batch", "global_batch"), (_STEP,)),
    **dict.fromkeys(("compiled", "cuda_graph"), (_STEP, _PROGRAM)),
    **dict.fromkeys(("strategy", "gpus", "nccl", "servers"), (_EXCHANGE, _STEP)),
    "trace": (_EXCHANGE, _STEP, _PROGRAM),
    "plot": (_EXCHANGE, _STEP, _SINGLE, _PROGRAM),
    **dict.fromkeys(("device", "threads", "calibration"), (_STEP, _SINGLE, _PROGRAM)),
    "trust_code": (_PROGRAM,),
}
_SAYS_TOO = {"batch": "global_batch", "gpus": "device"}
_WHY = {
    (_EXCHANGE, _STEP): "is about a step of a network; add --batch, for example --batch 32",
    (_STEP, _EXCHANGE): "is about an exchange alone; without --batch it is read",
    (_SINGLE, _EXCHANGE): "is about an exchange, and --workload names a single operation",
    (_SINGLE, _STEP): "is about a step of a network, and --workload names a single operation",
    **dict.fromkeys(((_EXCHANGE, _PROGRAM), (_STEP, _PROGRAM), (_SINGLE, _PROGRAM)), "is about a file that names code"),
    (_PROGRAM, _EXCHANGE): "is about an exchange, and --workload is a program, which says what it does",
    (_PROGRAM, _STEP): "is about a step of a network, and --workload is a program, which says it of each (batch: 32)",
}


_BY_WORD = "; an operator's is part of it (op:mat_mul,m=64,n=64,k=64,precision=bf16)"


def spelt(name: str) -> str:
    """Return the command-line option of the field *name*."""
    return _SPELT.get(name, f"--{name.replace('_', '-')}")


def check_read(written: Written) -> None:
    """Raise InputError for options that were given but that nothing would read."""
    said = [field.name for field in fields(Written) if getattr(written, field.name) != field.default]
    faults = []
    for name in said:
        readers = _READ_BY.get(name)
        if readers and written.kind not in readers:
            more = _BY_WORD if name == "precision" and written.kind == _SINGLE else ""
            faults.append(Fault(f"{spelt(name)}: {_WHY[written.kind, readers[0]]}{more}"))
        elif _SAYS_TOO.get(name) in said:
            faults.append(Fault(f"{spelt(name)}: {spelt(_SAYS_TOO[name])} says it already; give one of the two"))
    if faults:
        raise InputError(faults)


def command(written: Written) -> str:
    """Return the shell command that gives the options in *written*."""
    words = ["simulate"]
    for field in fields(Written):
        value = getattr(written, field.name)
        if value == field.default or field.name in ("launch", "show_options"):
            continue
        if isinstance(value, bool):
            words.append(spelt(field.name))
        else:
            for each in value if isinstance(value, tuple) else (value,):
                words += [spelt(field.name), each]
    return shlex.join(words)
