"""The uncertainty of an answer: its band, what was not measured, and how to narrow it (docs/decisions/results.md)."""

import math
import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simulator.bands import FORMATS, collective_chain, evidence, step_chain
from simulator.bands.composition import (
    LEVEL,
    AnswerFacts,
    Band,
    ClassShare,
    Composition,
    Estimate,
    SharedNetwork,
    State,
    band_of,
    distance,
    estimate,
)
from simulator.errors import counted, mention, spelt, word_of
from simulator.network.machine import Machine
from simulator.records import dataclass, replace
from simulator.results import WORDS, plain, taken
from simulator.topology.parts import GpuPart, NicPart
from simulator.topology.parts import Part as AnyPart
from simulator.units import format_duration
from simulator.workload.precision import Precision

if TYPE_CHECKING:
    from simulator.questions.step import StepQuestion


BAND_HEAD = f"{100 * LEVEL:.0f} % band"


@dataclass(frozen=True, slots=True)
class Confidence:
    """The band of an answer (None if nothing similar was measured), and its aspects ``outside`` all measured rows.

    ``estimate`` is the band in logarithms, ``known`` says in words what was measured, and ``narrowed`` is the command
    that would narrow the band.  ``is_exact``: there is nothing to measure, as of a lower bound or of no time.
    ``shared`` is the network up to whose least rates the band reaches.
    """

    band: Band | None
    outside: tuple[str, ...]
    estimate: Estimate | None
    known: str
    narrowed: str
    is_exact: bool = False
    shared: SharedNetwork | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the band, ``outside``, and ``evidence``, what was measured in words, as in ``--json``."""
        shared = {} if self.shared is None else {"shared_network": plain(self.shared)}
        return {**taken(self, "band outside"), "evidence": self.known or None, **shared}

    @property
    def words(self) -> str:
        """The band in a few words, for tables; ``-`` where there is nothing to measure."""
        return "-" if self.is_exact else band_words(self.band)

    @property
    def why(self) -> str:
        """The width of the band, the rows and sources behind it, and how to tighten it; empty without a band."""
        return f"{self.brief}; to tighten it: {self.narrowed}" if self.brief and self.narrowed else self.brief

    @property
    def brief(self) -> str:
        """The width of the band, and the rows and sources behind it, for one line; empty without a band."""
        if (found := self.estimate) is None:
            return ""
        low, high = (f"{100 * math.expm1(end):+.0f}" for end in (found.low, found.high))
        rows, sources = counted(found.widest.rows, "measurement"), counted(found.widest.sources, "source")
        reaches = "" if self.shared is None else f"; {self.shared.words}"
        return f"band {low} to {high} %; {rows} of {sources}, {self.known}{reaches}"

    @property
    def widest(self) -> str:
        """What most of the width is from, in words; empty without a band."""
        most = self.estimate and self.estimate.widest
        return f"mostly {_class_words(most.name)}, on {counted(most.places, 'place')}" if most else ""


def confidence_of(
    time_s: float, composition: Composition, question: object = None, shared: SharedNetwork | None = None
) -> Confidence:
    """Return the uncertainty of *time_s* for an answer of *composition* to *question*, over a *shared* network."""
    known = evidence()
    state, outside = distance(composition.facts, known)
    found = estimate(composition, known) if time_s > 0.0 else None
    if found is None:
        shared = None
    elif shared is not None:
        more = math.log(shared.slowdown)
        found = replace(found, high=found.high + more, network=more)
    narrowed = narrowing_of(question, composition.facts, found.widest.name if found is not None else "")
    band = None if found is None else band_of(time_s, found.low, found.high)
    return Confidence(band, outside, found, _known(composition.facts, state), narrowed, time_s <= 0.0, shared)


OF_A_BOUND = Confidence(None, (), None, "", "", is_exact=True)
"""That of an ideal schedule: a lower bound, which has no band."""


def _class_words(name: str) -> str:
    head, *rest = name.split()
    told, bounds = WORDS["exchange_errors"], WORDS["bound_errors"]
    if head in ("step", "pass"):
        return "time outside kernels"
    if head == "kernel":
        from simulator.workload.kernels import without_library
        from simulator.workload.operators import CLASSES

        kind, bound = rest[0] if rest else "", [f"bound by {bounds[word]}" for word in rest[1:] if word in bounds]
        known = CLASSES.get(without_library(kind))
        words = WORDS["kernel_errors"].get(kind, kind) if known is None else known.in_sentences or known.word
        of = [words or "kernels", *bound]
    elif head == "collective":
        of = ["collectives", *(told[word] for word in rest if word in told)]
    else:
        of = [WORDS["host_errors"].get(head, head), *(f"({word})" for word in rest[:1])]
    return f"errors of {' '.join(of)}"


def _known(facts: AnswerFacts, state: State) -> str:
    if state == "outside":
        return "partly outside all measurements"
    of = "machine" if facts.changed or facts.kind in ("collective", "host") else "device"
    return f"{of} {({'calibrated': 'calibrated', 'seen': 'measured'}).get(state, 'not measured')}"


def band_words(band: Band | None) -> str:
    """Return a band in a few words: 84 to 112 ms; ``not measured`` without one."""
    return "not measured" if band is None else ends_words(band.low_s, band.high_s)


def missed_words(what: str, time_s: float, band: Band) -> str:
    """Return that measured *what* took longer, or less time, than *time_s*, if that is outside its *band*."""
    took = "longer" if time_s < band.low_s else "less time" if time_s > band.high_s else ""
    return f", but measured {what} of this kind took {took} than simulated" if took else ""


def ends_words(low_s: float, high_s: float) -> str:
    """Return the ends of a band, with one unit where both have the same."""
    low, high = format_duration(low_s, 3), format_duration(high_s, 3)
    unit = high.rpartition(" ")[2]
    return f"{low.removesuffix(' ' + unit)} to {high}"


# -- what would narrow the band --------------------------------------------------------


_GROUPS: Mapping[str, str] = {"copy": "copies", "access": "memory", "launch": "launch"}
_SIZES = {"sequence_length": "seq_len", "image": "image"}
_CALIBRATED = ", then validate calibrate measured/ --out mine.yaml and --calibration mine.yaml"


def narrowing_of(question: Any, facts: AnswerFacts, widest: str = "") -> str:
    """Return the command that measures, and the use of its result; empty if none helps; *widest*: a class of errors."""
    topic = "" if question is None else str(question.topic)
    if topic not in ("step", "collective", "operator", *_GROUPS):
        return ""
    where, device = question.where, "cpu" if facts.generation == "cpu" else "cuda:0"
    then = "" if facts.calibrated else _CALIBRATED
    options, more = f"--only {_GROUPS.get(topic, 'collectives')}", ""
    if topic == "step" and widest.partition(" ")[0] == "launch":
        options, more = "--only launch", then
    elif topic == "step" and _torch_runs(question):
        options = " ".join(_words(question, device))
    elif topic == "step":
        alone = question.device is not None or question.gpus in ((0,), ())
        options = f"--only {'ops,launch' if alone else 'ops,launch,collectives'}"
        more = f" for its parts, because plain torch has no such step{then}"
    elif topic == "collective" and where.nodes not in (None, 1):
        size = f"--workload bytes:{question.size_bytes:.0f}B --strategy nccl --collective {question.collective}"
        options, more = f"--nodes {where.nodes} {size} --prepare", " (it prints the line to run)"
    elif topic == "operator":
        options, more = "--only ops" + ("" if question.device is None else f" --device {device}"), then
    return f"validate run --topology {shlex.quote(where.topology)} {options} --out measured/{more}"


def torch_lacks(question: "StepQuestion") -> Iterator[str]:
    """Yield why torch cannot run the step by itself, each reason with its option."""
    from simulator.questions.options import NOT_IN_TORCH, USUAL, said_of
    from simulator.step.precision import is_plain_half

    layout, options, sizes = question.layout, question.options, dict(question.sizes)
    for begin, why in WORDS["not_of_torch"].items():
        if options.precision.startswith(begin):
            yield f"--precision {options.precision}: {why}"
    lacks = {
        "optimizer": options.optimizer in NOT_IN_TORCH,
        "lora_weights": said_of(question.sizes, "lora_weights") != "plain",
        "lora": "lora" in sizes and is_plain_half(options.precision),
        "cross_entropy": question.loss_way != "plain",
        "parts": options.recompute_parts != USUAL.recompute_parts or options.recompute_blocks is not None,
        "layers": layout.divides_network,
        "process": layout.process != "each",
        "stage": layout.zero in (1, 2),
        "sums": question.sums_in_fp32 and not layout.zero,
    }
    said = {
        "optimizer": options.optimizer,
        "precision": options.precision,
        "recompute": " ".join(options.recompute_words),
    }
    said |= {"way": question.way, "process": layout.process, "zero": str(layout.zero)}
    yield from (WORDS["torch_lacks"][name].format(**said) for name, holds in lacks.items() if holds)


def _torch_runs(question: "StepQuestion") -> bool:
    """Return whether ``validate run`` can measure this step: replicas or full shards, with features that torch has."""
    layout, options = question.layout, question.options
    software, adds = question.software, options.accumulation == "add" or question.micro_batches == 1 or layout.zero > 1
    other: object = (
        question.servers or question.input or question.stragglers or question.programs > 1 or question.divided
    )
    other = other or options.cuda_graph_blocks or options.launch_blocking or software.gpu_clock_Hz or layout.sync_bn
    usual = question.strategy, options.framework, software.cpu_library, software.libraries
    gathers = question.prefetches and not question.gathers_again and not question.flat_parameters
    is_usual = usual == ("nccl", "pytorch", "onednn", None) and adds and gathers
    return is_usual and not other and not any(torch_lacks(question))


def _words(question: "StepQuestion", device: str) -> Iterator[str]:
    """Yield the command-line options that describe the step; *device* is torch's name, used if the step names one."""
    from simulator.questions.options import USUAL
    from simulator.questions.step import BUCKET_BYTES

    options, nodes, shards = question.options, question.where.nodes, question.layout.shards
    bucket = f"bucket:{question.bucket_bytes / 2**20:g}MiB" if question.bucket_bytes else "none"
    named = ("mode", "precision", "optimizer")
    if nodes is not None and nodes > 1:
        yield f"{word_of('nodes')} {nodes} --prepare"
    yield from _said(
        workload=shlex.quote(question.workload),
        batch=question.batch,
        micro_batches=question.micro_batches if question.micro_batches > 1 else None,
        device=None if question.device is None else device,
        gpus=len(question.gpus) if question.device is None and question.gpus is not None else None,
        parallel=f"fsdp={shards}" if shards is not None else "fsdp" if question.layout.zero == 3 else None,
        overlap=bucket if question.bucket_bytes != BUCKET_BYTES else None,
        reduce_fp32=question.sums_in_fp32,
        gather_fp32=question.gathers_in_fp32,
        threads=question.threads,
        **{name: said if (said := getattr(options, name)) != getattr(USUAL, name) else None for name in named},
        compiled=options.compiled,
    )
    yield from options.recompute_words
    yield from _said(**{name: getattr(options, name) for name in ("channels_last", "fused_optimizer", "cuda_graph")})
    for name, value in question.sizes:
        yield from _said(**{_SIZES[name]: value} if name in _SIZES else {"sizes": f"{name}={value}"})


def _said(**options: object) -> Iterator[str]:
    for name, value in options.items():
        if value is not None and value is not False:
            yield spelt(mention(name, value), "command")


def main_format(flop_by_format: Mapping[Precision, int]) -> Precision | None:
    """Return the format of most FLOPs of matrix products, or None without products."""
    return max(flop_by_format.items(), key=lambda item: item[1], default=(None, 0))[0]


def generation_of(part: AnyPart) -> str:
    """Return the generation of a GPU, the first word of its architecture in lower case; ``cpu`` for every CPU."""
    if not isinstance(part, GpuPart):
        return "cpu"
    return part.architecture.split()[0].lower() if part.architecture else ""


def collective_composition(
    machine: Machine, ranks: Sequence[int], collective: str, size_bytes: float, strategy: str, *, changed: bool
) -> Composition:
    """Return the composition of a collective of *size_bytes* among the nodes *ranks*; only NCCL's were measured."""
    facts = exchange_facts(machine, ranks, strategy, collective, changed=changed)
    if facts.unmeasured:
        return Composition((), (), facts)
    network = _network(machine, ranks, nodes=facts.way == "nodes")
    return Composition(collective_chain(collective, size_bytes, network, len(machine.hosts_of(ranks))), (), facts)


def _network(machine: Machine, ranks: Sequence[int], *, nodes: bool) -> str:
    """Return the network between the *nodes* of *ranks*, or within the only one."""
    if not nodes:
        mine = set(ranks)
        links = ([link for link in machine.outgoing[rank] if link.kind in ("nvlink", "xgmi")] for rank in ranks)
        ends = ([link.dst in mine or machine.nodes[link.dst].kind == "nvlink-switch" for link in of] for of in links)
        return "nvlink" if all(map(any, ends)) else "pcie"
    hosts = machine.hosts_of(ranks)
    rates: dict[str, float] = defaultdict(float)
    for at, node in enumerate(machine.nodes):
        if node.host in hosts and isinstance(node.part, NicPart):
            network = node.part.network
            if network == "infiniband" and any(link.kind == "ethernet" for link in machine.outgoing[at]):
                network = "ethernet"
            on_ethernet = "roce" if node.part.gpudirect else "tcp"
            rates[on_ethernet if network == "ethernet" else network] += node.part.bandwidth
    return max(rates, key=lambda network: rates[network], default="")


def steps_alike(
    family: str | None,
    form: Precision | None,
    parts: Sequence[ClassShare] = (),
    *,
    divided: bool,
    trains: bool,
    **facts: Any,
) -> Composition:
    """Return the composition of a step of *parts*, by the *facts* of the answer that are not said otherwise.

    *form* is the format of most of its products; *divided*: devices divide the network; *trains*: it
    is a whole step of training.
    """
    way = "divided" if divided else "several" if facts["ranks"] > 1 else "one"
    shown = None if form is None else FORMATS.get(form, form)
    found = AnswerFacts(kind="step", form=shown or "fp32", way=way, **facts)
    chain = step_chain("CPU" if found.generation == "cpu" else "GPU", family, shown, way, trains=trains)
    return Composition(chain, tuple(parts), found)


def exchange_facts(
    machine: Machine, ranks: Sequence[int], strategy: str, collective: str = "all-reduce", *, changed: bool
) -> AnswerFacts:
    """Return the facts of *collective* among the nodes *ranks*, such as the exchanges of a step."""
    return AnswerFacts(
        kind="collective",
        place=machine.name.rpartition(" x ")[2],
        generation=generation_of(machine.nodes[ranks[0]].part),
        what=collective,
        way="nodes" if len(machine.hosts_of(ranks)) > 1 else "node",
        ranks=len(ranks),
        unmeasured="" if strategy == "nccl" else f"no measured collective of strategy {strategy}",
        changed=changed,
    )
