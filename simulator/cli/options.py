"""Values of options: each is read as its field's type says, or by a reader of its own (:func:`fields_of`)."""

import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeVar

from simulator.collectives.registry import find_strategy, strategy_names
from simulator.console import later
from simulator.errors import InputError, MissingDependency, mention, nearest, one_line, option_of, refused
from simulator.network.machine import Machine
from simulator.questions.checks import From, field_rules, out_of, refuse_all
from simulator.questions.where import MONTH_NEEDED, NCCL_TODAY, Month, Neighbour, SlowLink, month_of
from simulator.topology.schema import read_price
from simulator.units import parse_quantity
from simulator.workload.precision import precision_named

_ASYNC = "async"
_OF_WAYS = ("accumulation", "bucket_bytes", "gpus", "layout", "strategy", "workload")
_OF_SEVERAL = ("batch", "divided", "helpers", "recompute", "recompute_parts", "remainder", "sizes")
_APART = (*_OF_WAYS, *_OF_SEVERAL)  # what these say depends on other options, or is of several ways
_BEST = "best:"
_MAX_DIGITS = 18
_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,12})?(?:[eE]\d{1,2})?)\s*([kKMGBT]?)", re.ASCII)
_TIMES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}
_MOST_AMOUNT = 1e18
_SYNONYMS = {"adamw": "adam"}
T = TypeVar("T")
Word = TypeVar("Word", bound=str)
PLOT_SUFFIXES = (".svg", ".png", ".pdf")


def refuse(given: Mapping[str, bool], why: str) -> None:
    """Raise InputError for the options in *given* that were set, because nothing would read them."""
    refuse_all(f"{option}: {why}" for option, written in given.items() if written)


def check_outputs(files: Mapping[str, str | None]) -> None:
    """Check the output files: all different, a ``--plot`` that can be drawn, and a ``--report`` that is a page.

    Raises InputError, or MissingDependency if matplotlib is needed and missing.
    """
    places: dict[str, str] = {}
    for option, path in files.items():
        other = places.setdefault(os.path.realpath(path), option) if path else option
        if other != option:
            raise InputError(f"{option} {one_line(path)}: is the file of {other} too")
    if files.get("--trace") == "-":
        raise InputError("--trace -: standard output has the result; name a file, for example --trace trace.json")
    report, plot = files.get("--report"), files.get("--plot")
    if report is not None and not report.lower().endswith((".html", ".htm")):
        raise InputError(f"--report {one_line(report, 60)}: is a page; name a file that ends with .html")
    if plot is not None and not plot.lower().endswith(PLOT_SUFFIXES):
        _, dot, suffix = plot.rsplit("/", 1)[-1].rpartition(".")
        found = dot + suffix if dot else "no suffix"
        hint = nearest(found.lower(), PLOT_SUFFIXES)
        raise InputError(f"--plot {one_line(plot, 60)}: {one_line(found, 20)} cannot be drawn; {hint}")
    if plot is not None and find_spec("matplotlib") is None:
        raise MissingDependency("--plot needs matplotlib; pip install matplotlib")


def parse_count(name: str, text: str, limits: From | None = None) -> int:
    """Return the whole number *text* of the option *name*, within *limits*; raises InputError."""
    number = re.fullmatch(r"(-?)0*(\d+)", text.strip(), re.ASCII)
    if number is None:
        raise refused(name, "must be a whole number", one_line(text, 60))
    if len(number[2]) > _MAX_DIGITS:
        raise refused(name, f"is too {'small' if number[1] else 'large'}", one_line(text, 60))
    value = int(number[0])
    if limits is not None and (fault := out_of(name, value, limits)):
        raise InputError(fault)
    return value


def parse_choice(name: str, text: str, allowed: Sequence[Word]) -> Word:
    """Return the one of *allowed* that *text* of the option *name* names; raises InputError."""
    said = text.strip().lower()
    for choice in allowed:
        named = choice in (_SYNONYMS.get(said), precision_named(said))
        if named or re.sub("[-_]", "", choice.lower()) == re.sub("[-_]", "", said):  # NVLSTree, nvls-tree
            return choice
    hint = nearest(precision_named(said) or said, allowed, 24)
    raise refused(name, f"no such choice; {hint}", one_line(text, 40))


def parse_nccl(text: str) -> tuple[int, int]:
    """Return the version *text* of NCCL; raises InputError."""
    match = re.fullmatch(r"\s*(\d{1,2})\.(\d{1,3})(?:\.\d{1,3})?\s*", text, re.ASCII)
    if match is None or int(match[1]) < 2:
        why = "a version such as 2.18 is needed, from 2.0 on"
        if re.fullmatch(r"\s*\d{1,2}\s*", text, re.ASCII):
            why = f"the minor version is missing; {why}"
        elif marked := re.fullmatch(r"\s*[vV](\d{1,2}\.\d{1,3}(?:\.\d{1,3})?)\s*", text, re.ASCII):
            why = f"write it without the {text.strip()[0]}: {marked[1]}"
        raise refused("nccl", why, one_line(text, 40))
    return int(match[1]), int(match[2])


def software_notes(nccl: str | None) -> list[str]:
    """Return notes on an NCCL version newer than the known ones; raises as :func:`parse_nccl`."""
    if nccl is None or parse_nccl(nccl) <= NCCL_TODAY:
        return []
    major, minor = NCCL_TODAY
    return [f"{mention('nccl', nccl)} is not known yet: it chooses and takes what {major}.{minor} does"]


def read_all(*readers: Callable[[], Any]) -> list[Any]:
    """Return the results of all *readers*; raises InputError with the faults of all of them."""
    found: list[Any] = []
    errors: list[InputError] = []
    for read in readers:
        try:
            found.append(read())
        except InputError as error:
            errors.append(error)
    if errors:
        raise InputError([fault for error in errors for fault in error.faults], sum(error.more for error in errors))
    return found


def parse_list(name: str, text: str, read: Callable[[str], Any], example: str, *, repeats: bool = False) -> list[Any]:
    """Return *read* of the comma-separated words of *text*, once each unless *repeats*; raises InputError."""
    words = [word.strip() for word in re.split(r",(?![^\[\]]*\])", text)]  # a range has commas too: gpu[0,2]
    if not all(words):
        raise refused(name, f"a name is missing; write for example {example}", one_line(text, 60))
    found = read_all(*(partial(read, word) for word in words))
    return list(found if repeats else dict.fromkeys(found))


def parse_strategies(text: str) -> list[str]:
    """Return the strategies in *text*, without repetitions; ``all`` means every strategy; raises InputError."""

    def names(word: str) -> tuple[str, ...]:
        if word == "all":
            return tuple(strategy_names())
        find_strategy(word)
        return (word,)

    return list(dict.fromkeys(name for found in parse_list("strategy", text, names, "ring,tree") for name in found))


def wants_best(text: str | None) -> bool:
    """Whether ``--gpus`` asks for the fastest GPUs (``best:4``)."""
    return text is not None and text.strip().startswith(_BEST)


def parse_gpus(text: str | None, machine: Machine) -> Sequence[int]:
    """Return the GPUs of *machine* that are the ranks; raises InputError.

    ``4`` means the first four, ``0-4`` five GPUs, ``0,2,5`` three; ``best:4`` means four GPUs that are still to be
    found, and the first four until then.
    """
    total = len(machine.gpus)
    return range(total) if text is None else gpus_among(text, total, machine.name)


def gpus_among(text: str, total: int, name: str) -> Sequence[int]:
    """Return the GPUs that *text* chooses as :func:`parse_gpus` reads it, of the *total* GPUs that *name* has."""
    if wants_best(text):
        text = text.strip()[len(_BEST) :]
        if re.fullmatch(r"\d{1,18}", text, re.ASCII) is None:
            raise refused("gpus", f"write how many, for example {_BEST}4", _BEST + one_line(text, 60))
    shown, has = mention("gpus", one_line(text, 60)), f"{name} has {total} GPU{'s' * (total != 1)}"
    if re.fullmatch(r"\d{1,18}", text.strip(), re.ASCII):
        if int(text) > total:
            raise InputError(f"{shown}: {has}")
        if int(text) == 0:
            raise InputError(f"{shown}: at least one GPU takes part")
        return range(int(text))
    chosen: dict[int, None] = {}
    for word in text.split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", word.strip(), re.ASCII)
        if match is None:
            raise InputError(f"{shown}: write how many (4), a range (0-4), a list (0,2,5), or best:4")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise InputError(f"{shown}: the smaller number comes first; did you mean {last}-{first}?")
        if last >= total:
            raise InputError(f"{shown}: {has}, 0 to {total - 1}")
        for gpu in range(first, last + 1):
            if gpu in chosen:
                raise InputError(f"{shown}: GPU {gpu} is named twice")
            chosen[gpu] = None
    return tuple(chosen)


def fields_of(written: object, cls: Any) -> dict[str, Any]:
    """Return the fields of *cls* that options of their names say, read by type; raises InputError with all faults."""
    said = {each.name: getattr(written, option_of(each.name), None) for each in fields(cls) if each.name not in _APART}
    given = {name: value for name, value in said.items() if value is not None}
    values = read_all(*(partial(_read, cls, name, value) for name, value in given.items()))
    return dict(zip(given, values, strict=True))


_KINDS = {"_Hz": ("frequency", True), "_Bps": ("bandwidth", False), "_s": ("time", True)}  # and whether more than 0


def _read(cls: Any, name: str, said: str | bool) -> Any:
    if isinstance(said, bool):
        return said
    if name in _READERS:
        return _READERS[name](said)
    for suffix, (kind, positive) in _KINDS.items():
        if name.endswith(suffix):
            return quantity_of(name, said, kind, positive=positive)
    rule = field_rules(cls).get(name)
    if rule is None:
        return said
    choices = [each for each in rule.choices or () if each]
    return parse_choice(name, said, choices) if rule.choices else parse_count(name, said)


def _told(name: str, read: Callable[[str], T], text: str, said: str = "") -> T:
    """Return *read* of *text*; raises its ValueError as InputError about the field *name*, of which *said* is told."""
    try:
        return read(text)
    except ValueError as error:
        raise refused(name, str(error), one_line(said or text, 60)) from None


def quantity_of(name: str, text: str, kind: str, said: str = "", *, positive: bool = False) -> float:
    """Return the quantity *text* in SI units; raises InputError about the field *name*, of which *said* was written."""
    return _told(name, lambda text: parse_quantity(text, kind, positive=positive), text, said)


def _amount(name: str, text: str) -> float:
    match = _AMOUNT.fullmatch(text.strip())
    number = float(match[1]) * _TIMES[match[2]] if match else 0.0
    if not 1.0 <= number <= _MOST_AMOUNT:
        raise refused(name, "is a number above 0, for example 15T, 300B or 90M", one_line(text, 60))
    return number


def _month(text: str) -> Month:
    if (month := month_of(text)) is None:
        raise refused("libraries", MONTH_NEEDED, one_line(text, 40))
    return month


def _pairs(text: str) -> tuple[tuple[int, ...], ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"\d{1,6}>\d{1,6}", word, re.ASCII) for word in words):
        raise refused("pairs", "write for example 0>1,2>3", one_line(text, 60))
    return tuple(tuple(int(end) for end in word.split(">")) for word in words)


def _slow_link(word: str) -> SlowLink:
    said, at, when = word.partition("@")
    ends, factor = _slowed("slow_links", "gpu0-gpu1:0.5x", said)
    start, _, end = when.partition("..")
    try:
        from_s = parse_quantity(start, "time") if at else 0.0
        until_s = parse_quantity(end, "time") if end else math.inf
    except ValueError as error:
        raise refused("slow_links", f"{error}; for example {ends}:0x@10ms..50ms", one_line(word, 60)) from None
    return SlowLink(ends, factor, from_s, until_s)


def _neighbour(word: str) -> Neighbour:
    ends, _, rate = word.rpartition(":")
    return Neighbour(ends, quantity_of("neighbours", rate, "bandwidth", word))


def _staleness(text: str) -> int | None:
    if text.strip().lower() == _ASYNC:
        return None
    try:
        return parse_count("staleness", text)
    except InputError:
        raise refused("staleness", "must be a whole number, or async", one_line(text, 60)) from None


def parse_divide(text: str) -> dict[str, Any]:
    """Return whether the batch is divided so that all finish together, and the CPUs that help, as fields of a step."""
    how, *helpers = (word.strip() for word in text.split(","))
    return {"divided": parse_choice("divided", how, ("even", "best")) == "best", "helpers": tuple(helpers)}


def _lost(text: str) -> tuple[str, float]:
    name, sign, time = text.strip().rpartition("@")
    if not sign or not name:
        raise refused("lost", "write for example node4.cpu0@100ms", one_line(text, 60))
    return name, quantity_of("lost", time, "time")


def _slowed(name: str, example: str, word: str) -> tuple[str, float]:
    match = re.fullmatch(r"(.+):\s*(\d{1,6}(?:\.\d{1,9})?)\s*x", word.strip(), re.ASCII | re.IGNORECASE)
    if match is None:
        raise refused(name, f"write for example {example}", one_line(word, 60))
    return match[1].strip(), float(match[2])


def _listed(name: str, read: Callable[[str], Any], example: str, *, repeats: bool = True) -> Callable[[str], Any]:
    return lambda text: tuple(parse_list(name, text, read, example, repeats=repeats))


_READERS: Mapping[str, Callable[[str], Any]] = {
    "evaluate_every": partial(parse_count, "evaluate_every", limits=From(1)),
    "evaluate_samples": lambda text: int(_amount("evaluate_samples", text)),
    "epoch_samples": partial(parse_count, "epoch_samples", limits=From(1)),
    "gpu_hour": partial(_told, "gpu_hour", read_price),
    "input": later("simulator.questions.input:parse_input"),
    "libraries": _month,
    "lost": _lost,
    "nccl": parse_nccl,
    "neighbours": _listed("neighbours", _neighbour, "gpu0-gpu1:5GB/s"),
    "pairs": _pairs,
    "servers": _listed("servers", str, "node4.cpu0,node5.cpu0", repeats=False),
    "shared_network": lambda text: quantity_of("shared_network", text, "share", positive=True),
    "slow_links": _listed("slow_links", _slow_link, "gpu0-gpu1:0.5x"),
    "staleness": _staleness,
    "samples": partial(_amount, "samples"),
    "stragglers": _listed("stragglers", partial(_slowed, "stragglers", "gpu3:1.5x"), "gpu3:1.5x"),
    "tokens": partial(_amount, "tokens"),
}
