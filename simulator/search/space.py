"""The search space: layouts, micro-batches and recomputation for a global batch (:class:`Space`)."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from simulator.errors import InputError, divisors, mention, one_line, refused
from simulator.questions.calibration import Calibration
from simulator.questions.layout import ORDER, Axis, Layout, parse_layout
from simulator.questions.options import Recompute, StepOptions
from simulator.questions.step import StepQuestion, accumulating
from simulator.records import dataclass, fields, replace
from simulator.step.recompute import reruns_of
from simulator.workload.network import Network
from simulator.workload.operators import Attention, GroupedLinear
from simulator.workload.split.stages import stages_of

SEARCHED: tuple[Recompute, ...] = ("none", "selective", "full")  # what is recomputed
_LEAST_TOKENS = 1024  # of a sequence on each rank: fewer do not fill a device
_MOST_CHUNKS = 8  # per pipeline stage
_FAR: tuple[Axis, ...] = ("tp", "cp", "pp", "dp")  # pipeline stages close together, data-parallel replicas far apart
_OF_EXPERTS = ("ep_comm", "flex", "ep_overlap", "delay_wgrad", "shared_overlap")  # words that go with ep
_BESIDE = {  # what goes with a word that is parsed by itself
    **dict.fromkeys(("ep_comm", "flex", "ep_overlap", "shared_overlap"), "ep=2,"),
    **dict.fromkeys(("vp", "schedule", "blocks"), "pp=2,"),
    **dict.fromkeys(("cp_comm", "cp_a2a"), "cp=2,"),
    "delay_wgrad": "ep=2,ep_overlap,",
    "sp": "tp=2,",
    "tp_overlap": "tp=2,sp,",
    "shards": "zero=1,",
}


@dataclass(frozen=True, slots=True)
class Candidate:
    """One candidate of the search; all degrees of ``layout`` are known.

    ``divided``: unlike replicas have so many samples each that all finish together, ``micro_batch`` in the mean.
    """

    layout: Layout
    micro_batch: int
    micro_batches: int
    recompute: Recompute
    divided: bool = False

    @property
    def words(self) -> str:
        """The candidate on one line, which identifies it."""
        said = f"{self.layout.words} micro-batch={self.micro_batch} recompute={self.recompute}"
        return f"{said} divide=best" if self.divided else said


@dataclass(frozen=True, slots=True)
class Space:
    """All candidates for a step of ``global_batch`` samples on ``device_count`` devices."""

    question: StepQuestion  # everything that is not searched
    global_batch: int
    device_count: int
    node_size: int  # devices per node
    fixed: tuple[tuple[str, Any], ...] = ()  # fields of the layout that are not searched
    micro_batch: int | None = None  # not searched where it is given
    recompute: Recompute | None = None  # not searched where it is given
    calibrations: tuple[tuple[str, Calibration], ...] = ()

    def asked(self, candidate: Candidate) -> StepQuestion:
        """Return the step's question for *candidate*."""
        of, options = candidate, self.options(candidate.recompute)
        if of.divided:
            remainder = self.global_batch - of.micro_batch * self.device_count
            return self.laid_out(of.layout, batch=of.micro_batch, options=options, divided=True, remainder=remainder)
        asked = self.laid_out(of.layout, batch=of.micro_batch, micro_batches=of.micro_batches, options=options)
        return accumulating(asked, None)

    def laid_out(self, layout: Layout, **more: Any) -> StepQuestion:
        """Return the step's question with *layout* and the fields *more*; only replicas have buckets to view."""
        views = self.question.bucket_views and layout.has_replicas
        return replace(self.question, layout=layout, bucket_views=views, **more)

    def options(self, recompute: Recompute) -> StepOptions:
        """Return the options of the step for *recompute*."""
        return replace(self.question.options, recompute=recompute)

    def check_fixed(self, network: Network) -> None:
        """Raise InputError where fixed degrees do not divide the devices together, or fixed blocks not *network*."""
        known, left = dict(self.fixed), self.device_count
        if blocks := known.get("blocks"):
            stages_of(network, len(blocks), blocks)
        for axis in ("tp", "cp", "pp", "dp"):
            degree = known.get(axis, 1)
            if left % degree:
                among = "" if left == self.device_count else f", of which the degrees before it leave {left}"
                told = f"{mention('layout')}: {axis}={degree} does not divide {self.device_count} GPUs{among}"
                raise InputError(f"{told}; {divisors(left)} would do")
            left //= degree

    def divisions(self, network: Network) -> list[Layout]:
        """Return how layers may be divided within a node into parts that fill a device; *network*: of one sample.

        Exchanges overlap, and tokens are sent once, only where that is fixed.
        """
        grouped = (o for layer in network.layers if isinstance(o := layer.operator, GroupedLinear))
        experts = max((o.experts for o in grouped), default=1)
        attends = any(isinstance(layer.operator, Attention) for layer in network.layers)
        most_cp, known = network.tokens // _LEAST_TOKENS if attends else 1, dict(self.fixed)
        splits = dict.fromkeys((bool(known.get("tp_overlap")), True)) if network.tokens else (False,)
        ways: Iterator[dict[str, Any]] = (
            {"tp": tp, "sp": sp, "cp": cp, "ep": ep, "etp": etp}
            for tp in self._degrees("tp", self.node_size)
            for cp in self._degrees("cp", most_cp)
            if self.device_count % (tp * cp) == 0
            for ep in self._degrees("ep", experts)
            for sp in self._choices("sp", splits if tp > 1 else (False,))
            for etp in self._choices("etp", (None, 1) if sp and tp > 1 and experts > 1 else (None,))
            if sp or tp == 1 or etp in (None, tp)
        )
        found = []
        for way in ways:
            goes_with = {"tp_overlap": way["sp"], **dict.fromkeys(("cp_comm", "cp_a2a"), way["cp"] > 1)}
            goes_with |= dict.fromkeys(_OF_EXPERTS, way["ep"] > 1)
            overlaps = {name: known[name] for name, goes in goes_with.items() if goes and known.get(name)}
            with suppress(InputError):  # what does not go together
                found.append(Layout(**way, **overlaps))
        return found

    def recomputes(self, network: Network) -> tuple[Recompute, ...]:
        """Return the recomputations to try: of blocks where the network has any, of attention where it saves scores."""
        if self.recompute is not None:
            return (self.recompute,)
        saves = {r: any(rerun.tensors for rerun in reruns_of(network, self.options(r))) for r in SEARCHED}
        return tuple(r for r in SEARCHED if r == "none" or saves[r])  # fused attention saves no scores

    def layouts(self, division: Layout, unit_count: int) -> Iterator[Layout]:
        """Yield every layout with *division*, for a network of *unit_count* blocks, whose degrees fit the devices."""
        tp, cp, ep = division.tp, division.cp, division.ep
        left = self.device_count // (tp * cp)
        for pp in self._degrees("pp", unit_count):
            if left % pp:
                continue
            dp = left // pp
            if dp != dict(self.fixed).get("dp", dp) or tp * cp * dp % (ep * (division.etp or tp)):
                continue
            for vp in self._choices("vp", _chunk_counts(unit_count, pp)):
                for zero, shards in self._shardings(pp, cp * dp):
                    apart = pp > 1 and dp > 1 and ep == 1 and self.device_count > self.node_size
                    for order in self._choices("order", (ORDER, _FAR) if apart else (ORDER,)):
                        rest = {key: value for key, value in self.fixed if key in ("schedule", "blocks") and pp > 1}
                        rest |= {"pp": pp, "dp": dp, "vp": vp, "zero": zero, "shards": shards, "order": order}
                        with suppress(InputError):  # what does not go together
                            yield replace(division, **rest)

    def micro_sizes(self) -> list[int]:
        """Return micro-batch sizes to try, ascending: powers of two, a replica's share, its half, and so on."""
        if self.micro_batch is not None:
            return [self.micro_batch]
        whole = self.global_batch
        shares = (whole // dp for dp in self._degrees("dp", self.device_count) if not whole % dp)
        wholes = [2 ** (whole.bit_length() - 1), *shares]
        halves = (whole >> power for whole in wholes for power in range(whole.bit_length()) if not whole % 2**power)
        return sorted(set(halves))

    def _degrees(self, axis: str, most: int) -> list[int]:
        numbers = range(1, max(1, min(most, self.device_count)) + 1)
        return list(self._choices(axis, (n for n in numbers if self.device_count % n == 0)))

    def _choices(self, name: str, usual: Any) -> tuple[Any, ...]:
        known = dict(self.fixed)
        return (known[name],) if name in known else tuple(usual)

    def _shardings(self, pp: int, group: int) -> Iterator[tuple[int, int | None]]:
        for zero in self._choices("zero", range(self.question.options.most_zero + 1) if group > 1 else (0,)):
            if zero == 0:
                yield 0, None
                continue
            if zero > 1 and pp > 1 and "zero" not in dict(self.fixed):
                continue  # gradient shards would be scattered in every micro-batch, which DeepSpeed refuses with pp
            within = zero == 3 and group > self.node_size > 1 and group % self.node_size == 0
            yield from ((zero, n) for n in self._choices("shards", (group, self.node_size) if within else (group,)))


def _chunk_counts(unit_count: int, pp: int) -> list[int]:
    """Return the chunks per stage to try: those that share out blocks evenly, unless the stages do not either."""
    if pp == 1:
        return [1]
    most = min(_MOST_CHUNKS, unit_count // pp)
    return [vp for vp in range(1, most + 1) if unit_count % (pp * vp) == 0 or unit_count % pp]


def parse_fixed(text: str | None) -> tuple[tuple[str, Any], ...]:
    """Return the layout fields that *text* fixes (``tp=8,zero=1``), as (name, value) pairs; raises InputError."""
    found: dict[str, Any] = {}
    said = one_line(text or "", 60)
    for item in text.split(",") if text else ():
        word = item.strip()
        name = word.partition("=")[0].strip()
        layout = parse_layout(_BESIDE.get(name, "") + word)
        if word == "dp":
            raise refused("layout", "dp needs a degree here, for example dp=8", said)
        names = {"zero", "shards"} if name == "fsdp" else {name}
        for field in fields(Layout):
            if field.name not in names or (name == "fsdp" and field.name == "shards" and layout.shards is None):
                continue
            if field.name in found:
                raise refused("layout", f"{field.name} is given twice", said)
            found[field.name] = getattr(layout, field.name)
    if 0 in found.get("blocks", ()):
        raise refused("layout", "best counts the layers at the ends with blocks; each part has one", said)
    if found.get("tp_overlap") and (found.get("sp") is False or found.get("tp") == 1):
        raise refused("layout", "tp_overlap overlaps what sp gathers and scatters; add sp", said)
    return tuple(found.items())
