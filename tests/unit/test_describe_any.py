"""Any output of system and driver gives a draft that is a valid machine."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.network.compiling import compile_machine
from simulator.network.routing import Router
from simulator.topology.load import topology_from_text
from simulator.topology.parts import CpuPart
from tests.examples import few
from validate.cli.describe import draft_of
from validate.machine.describe.driver import Card
from validate.machine.describe.processor import CacheFacts, Processor

FLAGS = ("sse2", "avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_bf16", "asimd", "sve", "bf16")
MODELS = ("AMD EPYC 7742 64-Core Processor", "Intel(R) Xeon(R) CPU E5-2686 v4 @ 2.30GHz", "Intel(R) Core(TM) i9", "")
BOARDS = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB", "Tesla V100-SXM2-16GB", "NVIDIA GeForce RTX 3090", "mi300")
WORDS = ("SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV2", "NV4", "NV12", "NV18")
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)

processors = st.builds(
    Processor,
    model=st.one_of(st.sampled_from(MODELS), TEXT),
    vendor=st.sampled_from(("intel", "amd", "arm", "other")),
    family=st.integers(0, 30),
    flags=st.frozensets(st.sampled_from(FLAGS)),
    sockets=st.integers(1, 4),
    cores=st.integers(1, 128),
    threads=st.just(0),
    clock_Hz=st.one_of(st.none(), st.floats(0.4e9, 6e9)),
    turbo_Hz=st.none(),
    caches=st.lists(
        st.builds(CacheFacts, st.integers(1, 4), st.integers(1024, 1 << 30), st.integers(1, 16)),
        max_size=4,
        unique_by=lambda cache: cache.level,
    ).map(tuple),
    memory_bytes=st.one_of(st.none(), st.integers(1 << 28, 1 << 45)),
    socket_of=st.dictionaries(st.integers(0, 64), st.integers(0, 3), max_size=8),
).map(lambda p: Processor(**{**{name: getattr(p, name) for name in p.__slots__}, "threads": 2 * p.cores}))
cards = st.builds(
    Card,
    name=st.one_of(st.sampled_from(BOARDS), TEXT.filter(str.strip)),
    memory_bytes=st.integers(0, 1 << 38).map(lambda n: n >> 20 << 20),
    pcie_generation=st.integers(0, 7),
    pcie_lanes=st.sampled_from((0, 1, 2, 4, 8, 16, 32)),
)


@st.composite
def matrices(draw, count: int) -> str:
    words = {}
    for a in range(count):
        for b in range(a):
            words[a, b] = words[b, a] = draw(st.sampled_from(WORDS))
    affinity = draw(st.sampled_from(("", "0-3", "N/A")))
    lines = [" ".join(f"GPU{i}" for i in range(count)) + " CPU Affinity"]
    for a in range(count):
        lines.append(f"GPU{a} " + " ".join("X" if a == b else words[a, b] for b in range(count)) + f" {affinity}")
    return "\n".join(lines)


@pytest.mark.slow
@settings(deadline=None, max_examples=few(60))
@given(data=st.data(), processor=processors, boards=st.lists(cards, max_size=5), alike=st.booleans())
def test_a_draft_is_a_machine(data, processor, boards, alike) -> None:
    if alike:
        boards = boards[:1] * len(boards)
    topo = data.draw(st.one_of(matrices(len(boards)), TEXT)) if boards else ""
    text, remarks = draft_of(processor, tuple(boards), topo)
    assert all(remark.isprintable() for remark in remarks)
    machine = compile_machine(topology_from_text(text))
    assert len(machine.gpus) == len(boards)
    assert sum(isinstance(node.part, CpuPart) for node in machine.nodes) == processor.sockets
    router = Router(machine)
    for gpu in machine.gpus:
        assert router.nearest_cpu(gpu) is not None
        assert router.route(machine.gpus[0], gpu).bandwidth_Bps > 0
