"""An answer with its reason (:class:`HostTime`), and what refuses options that a kind of question does not use."""

from collections.abc import Mapping

from simulator.errors import InputError
from simulator.questions.single import AccessQuestion, CopyQuestion
from simulator.records import dataclass, field, fields, own_data


@dataclass(frozen=True, slots=True)
class HostTime:
    """The time of an operation, what bounds it, and why."""

    time_s: float
    of: str  # a pass, one access, a block
    bound: str  # a few words
    why: tuple[str, ...] = ()  # sentences with the figures behind the time
    figures: Mapping[str, float] = field(default_factory=dict)  # by name, in SI, with the unit in the name


def check_access_options(question: AccessQuestion, *, on_gpu: bool) -> None:
    """Raise InputError where *question* sets options that accesses of its kind do not use."""
    device = "a GPU" if on_gpu else "a CPU"
    _check(question, f"access:{question.kind} of {device}", device)


def check_copy(question: CopyQuestion) -> None:
    """Raise InputError where *question* sets options that copies of its kind do not use."""
    kind = question.kind
    if kind in ("h2d", "d2h") and question.dst:
        raise InputError(f"copy:{kind} names its GPU by src; write src={question.dst}, not dst={question.dst}")
    if kind == "d2h" and question.fresh and question.pinned:
        raise InputError("fresh applies to pageable memory; add pinned=no")
    _check(question, f"copy:{kind}", "copies")


def _check(question: AccessQuestion | CopyQuestion, what: str, kinds: str) -> None:
    reads = own_data("simulator.host", "reads.yaml")
    read, always = reads[kinds].get(question.kind, ()), reads["always"]
    said = [f.name for f in fields(question) if f.name not in always and getattr(question, f.name) != f.default]
    words, known = (
        ", ".join(name.removesuffix("_bytes").replace("_", "-") for name in names)
        for names in ([name for name in said if name not in read], sorted(read))
    )
    if words:
        raise InputError(f"{what} does not read {words}; it reads {known or 'nothing more'}")
