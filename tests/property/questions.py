"""Random questions for the rules of :mod:`tests.property.rules`: options of ``simulate``, and machines made at random.

A question follows from a number, so the same number always asks the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simulator.cli.written import CommandOptions, shell_command

Options = dict[str, Any]


@dataclass(frozen=True)
class Wire:
    """A link of a made machine: ends, kind, GB/s, us, and whether both directions share it."""

    a: str
    b: str
    kind: str
    rate: float
    latency: float
    half: bool = False


@dataclass(frozen=True)
class Made:
    """A machine made at random: a tree of PCIe switches below one or two sockets, NVLinks and adapters."""

    gpus: int
    part: str
    others: tuple[tuple[str, str], ...]  # names and descriptions of all other devices
    wires: tuple[Wire, ...]
    peers: str
    name: str = "made"

    @property
    def text(self) -> str:
        """The YAML file of the machine."""
        lines = [f"schema_version: 1\nname: {self.name}\ndevices:", f"  gpu[0-{self.gpus - 1}]: {{part: {self.part}}}"]
        lines += [f"  {name}: {{{about}}}" for name, about in self.others]
        lines.append("links:")
        lines += [
            f"  - {{between: [{w.a}, {w.b}], kind: {w.kind}, bandwidth: {w.rate:g} GB/s, latency: {w.latency:g} us"
            f"{', duplex: half' if w.half else ''}}}"
            for w in self.wires
        ]
        return "\n".join([*lines, f"transport: {{peer_to_peer: {self.peers}}}\n"])

    def scaled(self, which: frozenset[int], rate: float = 1.0, latency: float = 1.0) -> Made:
        """Return the machine with the links *which* at *rate* times their bandwidth and *latency* times theirs."""
        wires = (
            replace(w, rate=w.rate * rate, latency=w.latency * latency) if i in which else w
            for i, w in enumerate(self.wires)
        )
        return replace(self, wires=tuple(wires))


@dataclass(frozen=True)
class Question:
    """A command: its options by the names of Python, and its machine, built in (a name) or made."""

    machine: str | Made
    options: tuple[tuple[str, Any], ...]

    def having(self, **options: object) -> Question:
        """Return the question with other options; None takes one away."""
        found = {**dict(self.options), **options}
        return replace(self, options=tuple((name, value) for name, value in found.items() if value is not None))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of an option."""
        return dict(self.options).get(name, default)

    @property
    def kind(self) -> str:
        """What it is about: ``exchange``, ``step`` or ``single``."""
        return CommandOptions(topology="", **dict(self.options)).kind

    def written(self, folder: Path) -> CommandOptions:
        """Return the options, with a made machine as a file in *folder*."""
        topology = self.machine
        if isinstance(topology, Made):
            import hashlib

            text = topology.text
            path = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.yaml"
            if not path.exists():
                path.write_text(text, encoding="utf-8")
            topology = str(path)
        return CommandOptions(topology=topology, quiet=True, **dict(self.options))

    def command(self, folder: Path) -> str:
        """Return the command line."""
        return shell_command(self.written(folder).but(quiet=False))

    def simpler(self) -> Iterator[Question]:
        """Yield questions that leave one thing out, for minimising."""
        for name, _ in self.options:
            if name not in ("workload", "batch"):
                yield self.having(**{name: None})
        if isinstance(self.machine, Made):
            for i in range(len(self.machine.wires)):
                wires = (*self.machine.wires[:i], *self.machine.wires[i + 1 :])
                yield replace(self, machine=replace(self.machine, wires=wires))


SMALL = (
    "p3.16xlarge",
    "4gpu-pcie",
    "8gpu-pcie-dual-root",
    "4x-v100-sxm2-pcie",
    "2x-gtx1080-desktop",
    "2x-rtx4090-desktop",
)
SEVERAL = ("p3.16xlarge", "2x-gtx1080-desktop", "dgx-a100-80gb", "dgx-h100", "p3.2xlarge", "4x-v100-sxm2-2xedr")
LARGE = ("dgx-a100-80gb", "dgx-h100", "dgx-2", "8x-h100-pcie", "8x-mi300x", "p4d.24xlarge", "4x-a100-nvlink")
STRATEGIES = (
    *("nccl", "nccl", "nccl", "ring", "single-ring", "bidirectional-ring", "multi-ring", "naive-ring", "tree"),
    *("double-tree", "halving-doubling", "hierarchical", "parameter-server", "sharded", "gpu0", "cpu", "gloo"),
)
COLLECTIVES = ("all-reduce",) * 4 + ("all-gather", "reduce-scatter", "broadcast", "reduce", "all-to-all", "send-recv")
SIZES = ("8B", "4kB", "64KiB", "1MB", "3MB", "17MB", "100MB", "1GB")
IMAGES = ("lenet", "alexnet", "resnet18", "resnet18-cifar", "mlp")
SEQUENCES = ("gpt2", "llama2-7b", "bert-base")
PARTS = ("v100-sxm2-16gb", "a100-sxm4-80gb", "h100-sxm5-80gb", "gtx-1080")
SINGLES = (
    *("op:linear,rows={n},inputs=1024,outputs=4096", "op:mat_mul,m={n},n=512,k=512", "copy:h2d,{n}kB"),
    *("copy:d2h,{n}kB", "access:stream,{n}KiB", "access:stream,{n}MiB"),
)


def made(rng: random.Random) -> Made:
    """Return a random machine."""
    n, n_cpus, n_switches = rng.randint(2, 8), rng.randint(1, 2), rng.randint(0, 3)
    wires: list[Wire] = []

    def wire(a: str, b: str, kind: str) -> None:
        half = kind == "pcie" and rng.random() < 0.2
        wires.append(
            Wire(a, b, kind, rng.choice((3.0, 12.0, 16.0, 25.0, 50.0)), rng.choice((0.0, 0.5, 1.0, 7.0)), half)
        )

    others = [(f"cpu{i}", "part: xeon-e5-2686-v4") for i in range(n_cpus)]
    if n_cpus == 2:
        wire("cpu0", "cpu1", "socket")
    uppers = [f"cpu{i}" for i in range(n_cpus)]
    for i in range(n_switches):
        others.append((f"sw{i}", "kind: pcie-switch, latency: 0.1 us"))
        wire(f"sw{i}", rng.choice(uppers), "pcie")
        uppers.append(f"sw{i}")
    for i in range(n):
        wire(f"gpu{i}", rng.choice(uppers), "pcie")
    if rng.random() < 0.3:
        others.append(("nvs0", "kind: nvlink-switch, latency: 0.3 us"))
        rate, latency = rng.choice((50.0, 300.0)), rng.choice((0.0, 0.5))
        wires.extend(Wire(f"gpu{i}", "nvs0", "nvlink", rate, latency) for i in range(n))
    else:
        pairs = [(a, b) for a in range(n) for b in range(a + 1, n)]
        for a, b in rng.sample(pairs, min(len(pairs), rng.randint(0, 8))):
            wire(f"gpu{a}", f"gpu{b}", "nvlink")
    for i in range(rng.choice((0, 1, 1, 2))):
        others.append((f"nic{i}", f"part: {rng.choice(('ena-25g', 'connectx-5-edr', 'ethernet-nic-10g'))}"))
        wire(f"nic{i}", rng.choice(uppers), "pcie")
    if len({about for name, about in others if name.startswith("nic")}) > 1:  # a machine has one network
        others = [(name, "part: ena-25g" if name.startswith("nic") else about) for name, about in others]
    return Made(n, rng.choice(PARTS), tuple(others), tuple(wires), rng.choice(("none", "pix", "phb", "sys")))


def drawn(number: int, *, cheap: bool = False) -> tuple[Question, random.Random]:
    """Return the question *number*, and what draws its changes; *cheap*: one of those that take milliseconds."""
    rng = random.Random(number)
    roll = rng.random()
    kind = "exchange" if roll < 0.55 else "step" if roll < 0.9 else "single"
    machine: str | Made = made(rng) if rng.random() < 0.5 else rng.choice(SMALL if cheap else SMALL + LARGE)
    options: Options = {}
    has_network = isinstance(machine, str) or any(name.startswith("nic") for name, _ in machine.others)
    if kind != "single" and has_network and rng.random() < 0.3:
        if isinstance(machine, str):
            machine = rng.choice(SEVERAL[:2] if cheap else SEVERAL)
        options["nodes"] = str(rng.choice((2, 2, 3, 4)))
    if kind == "exchange":
        options |= _exchange(rng)
        if options["strategy"] == "hierarchical" and "nodes" not in options and rng.random() < 0.9:
            options["strategy"] = "ring"
    elif kind == "step":
        if machine in ("4gpu-pcie", "8gpu-pcie-dual-root"):  # their GPUs have no figures
            machine = "p3.16xlarge"
        options |= _step(rng, several="nodes" in options)
    else:
        options["workload"] = rng.choice(SINGLES).format(n=rng.choice((1, 17, 64, 512, 4096)))
        if rng.random() < 0.2:
            options["precision"] = rng.choice(("fp16", "bf16", "fp32"))
    if kind != "single" and rng.random() < 0.15:
        node = "node0." if "nodes" in options else ""
        options["neighbour"] = f"{node}gpu0-{node}{rng.choice(('gpu1', 'cpu0'))}:{rng.choice((1, 3))}GB/s"
    return Question(machine, tuple(options.items())), rng


def _exchange(rng: random.Random) -> Options:
    options: Options = {
        "workload": f"bytes:{rng.choice(SIZES)}",
        "strategy": rng.choice(STRATEGIES),
        "collective": rng.choice(COLLECTIVES),
    }
    narrow = options["strategy"] not in ("nccl", "ring", "sharded", "multi-ring", "naive-ring", "single-ring")
    if narrow and rng.random() < 0.8:  # most others do fewer collectives
        options["collective"] = "all-reduce"
    if options["strategy"] == "nccl":
        if rng.random() < 0.2:
            options["algorithm"] = rng.choice(("ring", "tree", "nvls"))
        if rng.random() < 0.2:
            options["nccl"] = rng.choice(("2.4", "2.12", "2.18", "2.23"))
    if rng.random() < 0.2:
        options["gpus"] = str(rng.randint(2, 4))
    if rng.random() < 0.1:
        options["group_size"] = "2"
    if options["collective"] in ("broadcast", "reduce") and rng.random() < 0.5:
        options["root"] = "1"
    return options


def _step(rng: random.Random, *, several: bool) -> Options:
    words = rng.random() < 0.4
    workload = rng.choice(SEQUENCES if words else IMAGES)
    options: Options = {"workload": workload, "batch": str(rng.choice((1, 2, 4, 8, 32)))}
    if words:
        options |= {"seq_len": str(rng.choice((128, 512))), "sizes": (f"layers={rng.choice((2, 4))}",)}
    layouts = ["dp", "dp", "fsdp", "zero=1", "zero=2", *([] if several else ["loop", "dataparallel"])]
    layouts += ["tp=2", "tp=2,sp", "pp=2", "tp=2,zero=1", "pp=2,schedule=gpipe", "pp=2,zero=1"] if words else []
    layout = rng.choice(layouts)
    if layout != "dp":
        options["parallel"] = (layout,)
    if "pp=" in layout or (rng.random() < 0.2 and layout not in ("loop", "dataparallel")):
        options["micro_batches"] = str(rng.choice((2, 4)))
    if layout == "dp" and rng.random() < 0.3:
        options["strategy"] = rng.choice(("ring", "tree", "parameter-server", "nccl"))
    for name, value, share in (
        *(("recompute", True, 0.2 if words else 0.0), ("compiled", True, 0.1), ("fused_optimizer", True, 0.15)),
        *(("optimizer", rng.choice(("adam", "sgd", "lamb")), 0.2), ("overlap", "none", 0.1 if layout == "dp" else 0)),
        *(("precision", rng.choice(("fp32", "amp-fp16", "master-fp16", "fp16")), 0.4), ("gpus", "2", 0.15)),
        *(
            ("straggler", "gpu1:1.5x", 0.1),
            ("contention", False, 0.1),
            ("prefetch", False, 0.2 if layout in ("fsdp", "zero=1", "zero=2") else 0.0),
        ),
        *(
            (
                "mode",
                rng.choice(("inference", "forward")),
                0.2 if layout == "dp" and "strategy" not in options else 0.0,
            ),
            ("cuda_graph", True, 0.1),
        ),
    ):
        if rng.random() < share:
            options[name] = value
    return options
