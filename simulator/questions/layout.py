"""How ranks divide a step: :class:`Layout`, and its words (``tp=8,pp=8,dp=64``)."""

from collections.abc import Iterator
from math import ceil
from typing import Annotated, ClassVar, Literal, get_args

from simulator.errors import Fault, InputError, divisors, mention, nearest, one_line, refused, spelt
from simulator.questions.checks import Checked, From, field_rules
from simulator.records import dataclass, fields, replace
from simulator.units import whole_number

Axis = Literal["tp", "cp", "dp", "pp"]
AXES: tuple[Axis, ...] = get_args(Axis)
ORDER: tuple[Axis, ...] = ("tp", "cp", "dp", "pp")  # Megatron-LM's order, nearest ranks first
Schedule = Literal["1f1b", "gpipe", "zero-bubble", "zb-v", "v-half", "v-min", "dualpipe", "dualpipe-v"]
SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
CpComm = Literal["p2p", "a2a", "all_gather"]
CP_COMMS: tuple[CpComm, ...] = get_args(CpComm)
EpComm = Literal["a2a", "all_gather"]
Process = Literal["each", "loop", "dataparallel"]
PROCESSES: tuple[Process, ...] = get_args(Process)
_DEGREE = From(1, 10**6)
_WORDED: dict[str, tuple[str, ...]] = {"schedule": SCHEDULES, "cp_comm": CP_COMMS, "ep_comm": get_args(EpComm)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout(Checked):
    """Degrees of parallelism, and the options that go with them; docs/parallel.md tells each, as an item of --parallel.

    ``dp``: by default all ranks that the other degrees leave; ``etp``: as ``tp``; ``shards``: all ``cp x dp`` ranks.
    ``blocks``: those of each part of a pipeline, in the network's order; empty: as many in each.
    ``process``: ``each``: one process per rank; or one for all, with replicas in a Python loop (``loop``) or by
    nn.DataParallel (``dataparallel``; :mod:`simulator.training.one_process`).
    """

    faults_of: ClassVar[str] = "layout"

    tp: Annotated[int, _DEGREE] = 1
    pp: Annotated[int, _DEGREE] = 1
    cp: Annotated[int, _DEGREE] = 1
    cp_comm: CpComm = "p2p"
    cp_a2a: Annotated[int, _DEGREE] = 1
    dp: Annotated[int, _DEGREE] | None = None
    ep: Annotated[int, _DEGREE] = 1
    etp: Annotated[int, _DEGREE] | None = None
    ep_comm: EpComm = "a2a"
    flex: bool = False
    ep_overlap: bool = False
    delay_wgrad: bool = False
    shared_overlap: bool = False
    sp: bool = False
    tp_overlap: bool = False
    vp: Annotated[int, _DEGREE] = 1
    blocks: tuple[int, ...] = ()
    zero: Annotated[int, From(0, 3)] = 0
    shards: Annotated[int, _DEGREE] | None = None
    sync_bn: bool = False
    schedule: Schedule = "1f1b"
    order: tuple[Axis, ...] = ORDER
    process: Process = "each"

    def _faults(self) -> Iterator[str]:
        if self.process != "each" and (self.divides_network or self.zero):
            yield f"{self.process} is one process for all, and stands alone"
        if self.sync_bn and (self.divides_network or self.process != "each"):
            yield "sync_bn is for dp, zero and fsdp, a process for each whole network"
        if self.sp and self.tp == 1:
            yield "sp splits what tp leaves whole; add tp=2 or more"
        if self.tp_overlap and not self.sp:
            yield "tp_overlap overlaps what sp gathers and scatters; add sp"
        if self.cp == 1 and (self.cp_comm != "p2p" or self.cp_a2a > 1):
            name = "cp_comm" if self.cp_comm != "p2p" else "cp_a2a"
            yield f"{name} is what ranks that split a sequence exchange; add cp=2 or more"
        elif self.cp_comm != "p2p" and self.cp_a2a > 1:
            yield f"cp_a2a={self.cp_a2a} ranks exchange heads within rings (p2p), not with cp_comm={self.cp_comm}"
        yield from self._expert_faults()
        if self.pp == 1 and (self.vp > 1 or self.schedule != "1f1b" or self.blocks):
            yield "vp, blocks and schedule apply to a pipeline; add pp=2 or more"
        elif any(count < 0 for count in self.blocks):
            yield "blocks are counts, 0 or more"
        elif self.vp > 1 and self.schedule != "1f1b":
            yield f"vp={self.vp} goes with schedule=1f1b"
        elif self.pp % 2 and self.schedule == "dualpipe":
            yield f"schedule=dualpipe takes an even number of stages, not pp={self.pp}"
        if sorted(self.order) != sorted(AXES):
            yield f"order names {', '.join(AXES)} each once, nearest ranks first: {'-'.join(ORDER)}"

    def _expert_faults(self) -> Iterator[str]:
        if self.gathers_tokens:
            words = [word for word in ("flex", "ep_overlap", "shared_overlap") if getattr(self, word)]
            if self.expert_ranks == 1:
                yield f"ep_comm={self.ep_comm} brings tokens to experts on other ranks; add ep=2 or more"
            elif words:
                yield f"ep_comm={self.ep_comm} and {words[0]} do not go together: one gathers, the other sends tokens"
            elif self.tp > 1 and not self.sp:
                yield f"ep_comm={self.ep_comm} gathers different tokens; with tp={self.tp}, add sp"
        if self.flex and self.ep == 1:
            yield "flex dispatches tokens to experts; add ep=2 or more"
        if self.ep_overlap and self.ep == 1:
            yield "ep_overlap hides how tokens reach experts; add ep=2 or more"
        elif self.ep_overlap and self.zero > 1:
            yield f"ep_overlap goes with zero=0 and zero=1, not {self.zero}"
        elif self.ep_overlap and self.pp > 1 and self.vp == 1 and self.schedule not in ("dualpipe", "dualpipe-v"):
            yield "ep_overlap runs a forward pass beside a backward pass; add vp=2 or more, or schedule=dualpipe"
        if self.delay_wgrad and not self.ep_overlap:
            yield "delay_wgrad puts off what ep_overlap could hide exchanges behind; add ep_overlap"
        if self.shared_overlap and self.ep == 1:
            yield "shared_overlap hides how tokens reach experts; add ep=2 or more"
        elif self.shared_overlap and self.ep_overlap:
            yield "shared_overlap and ep_overlap hide the same exchanges; give one of the two"

    @property
    def model_ranks(self) -> int:
        """Ranks that together hold one replica of the network; each sample passes through all of them."""
        return self.tp * self.pp * self.cp

    @property
    def divides_network(self) -> bool:
        """Whether the layers or their computation are divided among ranks, beyond replicas and their shards."""
        return self.model_ranks > 1 or self.ep > 1

    @property
    def has_replicas(self) -> bool:
        """Whether each rank is a process with a whole replica of the network."""
        return not self.divides_network and not self.zero and self.process == "each"

    @property
    def expert_tp(self) -> int:
        """Ranks that split each expert (``etp``, or ``tp`` by default)."""
        return self.tp if self.etp is None else self.etp

    @property
    def gathers_tokens(self) -> bool:
        """Whether each rank gathers the tokens of all ranks of its experts, and keeps those for its own."""
        return self.ep_comm == "all_gather"

    @property
    def expert_ranks(self) -> int:
        """Ranks that together hold the experts of a layer."""
        return self.ep * self.expert_tp

    @property
    def has_experts_apart(self) -> bool:
        """Whether the parameters of experts are replicated over other ranks than all other parameters."""
        return self.expert_ranks != self.tp

    @property
    def expert_shards(self) -> int:
        """Ranks that hold one full set of shards of an expert's parameters, at least 1.

        As for all other parameters, a set spans ``shards * tp`` ranks of a stage.
        """
        return max(1, (self.shards or 1) * self.tp // self.expert_ranks)

    def kept_share(self, count: float, of_experts: float, whole: int = 0) -> float:
        """Return the fraction of *count* elements that a rank keeps; *of_experts* of them belong to experts.

        *whole*: they lie in as many matrices that are not divided, of which a rank may have one more than others.
        """
        if not count:
            return 1.0
        share = ((count - of_experts) / (self.shards or 1) + of_experts / self.expert_shards) / count
        return ceil(round(whole * share, 6)) / whole if whole else share

    def on(self, n_ranks: int) -> "Layout":
        """Return the layout over *n_ranks* with all degrees set; raises InputError with degrees that would fit."""
        each = self.model_ranks
        named = " x ".join(f"{axis}={getattr(self, axis)}" for axis in ("tp", "pp", "cp") if getattr(self, axis) > 1)
        if n_ranks % each:
            most = n_ranks // each * each
            near = f"{most} ranks would do" if most else f"there are {n_ranks}"
            raise refused("layout", f"{named} takes {each} ranks or a multiple of them; {near}")
        if self.cp % self.cp_a2a:
            raise refused("layout", f"cp_a2a={self.cp_a2a} does not divide cp={self.cp}; {divisors(self.cp)}")
        data = n_ranks // each
        if self.dp is not None and self.dp != data:
            asked = " x ".join(filter(None, (named, f"dp={self.dp}")))
            raise refused("layout", f"{asked} is {each * self.dp} ranks, and {n_ranks} take part; dp={data} would do")
        group = self.cp * data
        if self.shards is not None and (not self.zero or group % self.shards):
            whole = f"{group} ranks have the same parameters; {divisors(group)} would do"
            raise refused("layout", f"shards={self.shards}: {whole if self.zero else 'is for zero=1, 2 or 3'}")
        shards = self.shards or (group if self.zero else None)
        self._check_experts(group, shards)
        return replace(self, dp=data, shards=shards)

    def _check_experts(self, group: int, shards: int | None) -> None:
        tp, each, stage, why = self.tp, self.expert_tp, self.tp * group, ""
        if each != tp > 1 and not self.sp:
            why = f"etp={each} with tp={tp} takes ranks of tp with tokens of their own; say sp, or etp={tp}"
        elif stage % each:
            why = f"etp={each} does not divide the {stage} ranks of a stage; {divisors(stage)}"
        elif stage % self.expert_ranks:
            among = f"{group} ranks of cp x dp" if each == tp else f"{stage // each} ranks of tp x cp x dp / etp"
            why = f"ep={self.ep} does not divide the {among}; {divisors(stage // each)}"
        elif shards is not None and shards * tp % self.expert_ranks and self.expert_ranks % (shards * tp):
            whole = f"ep={self.ep}" if each == tp else f"ep={self.ep} x etp={each} of tp={tp}"
            why = f"shards={shards} with {whole}: one is a multiple of the other"
        if why:
            raise refused("layout", why)

    @property
    def words(self) -> str:
        """The settings that differ from the defaults, as :func:`parse_layout` reads them."""
        if self.process != "each":
            return self.process
        said = []
        group = self.cp * (self.dp or 0)
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if value == field.default or (name == "shards" and (value == group or self.zero == 3)):
                continue
            if name == "zero" and value == 3:
                said.append("fsdp" if self.shards in (None, group) else f"fsdp={self.shards}")
            else:
                words = "-".join(map(str, value)) if isinstance(value, tuple) else value
                said.append(name if value is True else f"{name}={words}")
        return ",".join(said) or "dp"


REPLICAS = Layout()
FSDP = Layout(zero=3)


def parse_layout(text: str) -> Layout:
    """Return the layout of ``dp``, ``fsdp``, ``loop`` or ``tp=8,pp=8,dp=64,sp,zero=1``; raises InputError."""
    for process in PROCESSES[1:]:
        if text.strip() == process:
            return Layout(process=process)
        if process in (item.partition("=")[0].strip() for item in text.split(",")):
            raise refused("layout", f"{process} is one process for all, and stands alone", one_line(text, 60))
    found: dict[str, object] = {}
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        pairs = {name: value} if equals or name != "dp" else {}
        if name == "fsdp":
            pairs = {"zero": "3", "shards": value} if equals else {"zero": "3"}
        for key, said in pairs.items():
            if key in found:
                twice = "zero is given twice: fsdp is zero=3" if key == "zero" else f"{key} is given twice"
                raise refused("layout", twice, one_line(text, 60))
            found[key] = _value(text, key, said, bool(equals) or name == "fsdp")
    try:
        return Layout(**found)  # type: ignore[arg-type]
    except InputError as error:
        said, own = mention("layout", one_line(text, 60)), f"{mention('layout')}: "
        raise error.changed(lambda fault: Fault(f"{said}: {spelt(fault.message.removeprefix(own))}")) from None


def _value(text: str, key: str, said: str, has_value: bool) -> object:
    names = [field.name for field in fields(Layout) if field.name != "process"]
    if key not in names:
        why = f"'{one_line(key, 30)}' is none of its items; {nearest(key, [*names, 'fsdp', *PROCESSES[1:]])}"
    elif key in ("flex", "ep_overlap", "delay_wgrad", "shared_overlap", "sp", "sync_bn", "tp_overlap"):
        if not has_value or said in ("0", "1"):
            return said != "0"
        why = f"{key} stands alone, or is 0 or 1"
    elif key in _WORDED:
        if said in _WORDED[key]:
            return said
        why = f"{key} '{one_line(said, 30)}'; {nearest(said, _WORDED[key])}"
    elif key == "order":
        return tuple(said.split("-"))
    elif key == "blocks":
        counts = [count for each in said.split("-") if (count := whole_number(each)) is not None]
        if len(counts) == len(said.split("-")):
            return tuple(counts)
        why = "blocks are those of each part of the pipeline, for example blocks=8-10-10-4"
    else:
        number, limits = whole_number(said), field_rules(Layout)[key].limits or _DEGREE
        if number is not None and limits.least <= number <= limits.most:
            return number
        why = f"{key} is a whole number, {limits.least} to {limits.most}"
    raise InputError(f"{mention('layout', one_line(text, 60))}: {why}")
