"""What must hold between the answers to two questions: each rule asks both and returns how they disagree."""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import replace
from typing import Any

from simulator.units import format_duration
from tests.property.anomalies import compiled_apart, in_flight_rise, tie
from tests.property.asking import Asker, RefusedError, in_python, time_s, trace_end_s
from tests.property.questions import Made, Question
from tests.property.rules_of_links import edited_link, faster_link, lower_latency, more_bytes, passing_link, slowed_link
from tests.property.ruling import Rule, SkipError, both, not_slower, told, trouble

REL = 1e-9
MEMORY = 1e-9


def folded(asker: Asker, asked: Question, rng: random.Random) -> str:
    """Folded, a question takes as long as unfolded, whatever perturbs it."""
    if asked.kind == "single":
        raise SkipError
    try:
        whole_s = asker.time(asked)
    except RefusedError as error:
        raise SkipError(str(error)) from None
    if rng.random() < 0.7:
        asked = asked.having(**trouble(asked, rng, passing=rng.random() < 0.7, whole_s=whole_s))
    try:
        first = asker.time(asked)
    except RefusedError as error:
        raise SkipError(str(error)) from None
    if asked.kind == "step":
        _, question = asker.question(asked)
        n_ranks = len(asker.session.group(question.where, question.gpus).ranks)
        if n_ranks < 2 or n_ranks > 16:
            raise SkipError
    second = asker.time(asked, fold=False)
    if asked.get("strategy") == "parameter-server" and asked.kind == "step" and asked.get("nodes"):
        raise SkipError  # nodes that hold servers are kept in step where folded, as documented (Session.step)
    if math.isclose(first, second, rel_tol=REL):
        return ""
    return f"folded {first}, unfolded {second}:\n{told(asker, (asked, ''))}"


# -- devices --------------------------------------------------------------------------


def _parts(asker: Asker, asked: Question) -> list[str]:
    from simulator.questions.where import Where

    written = asked.written(asker.folder)
    machine = asker.session.machine(Where(str(written.topology)))
    return sorted({node.part_name for node in machine.nodes if node.kind in ("gpu", "cpu") and node.part_name})


def _calibrated(asker: Asker, asked: Question, figures: str) -> Question:
    if asked.kind == "exchange":
        raise SkipError
    parts = [part for part in _parts(asker, asked) if "-" in part]
    if not parts:
        raise SkipError
    text = "schema_version: 1\ndevices:\n" + "".join(f"  {part}: {{{figures}}}\n" for part in parts)
    path = asker.folder / f"calibration-{abs(hash_of(text)):x}.yaml"
    path.write_text(text, encoding="utf-8")
    return asked.having(calibration=str(path))


def hash_of(text: str) -> int:
    """Return a number that is the same in every process."""
    import zlib

    return zlib.crc32(text.encode())


def identity_calibration(asker: Asker, asked: Question, _: random.Random) -> str:
    """A calibration that changes no constant changes nothing."""
    other = _calibrated(asker, asked, "compute: 1.0, bandwidth: 1.0, dispatch: 1.0")
    first, second = both(asker, asked, other)
    if time_s(first) == time_s(second) and _memory(first) == _memory(second):
        return ""
    return f"an identity calibration changes it:\n{told(asker, (asked, time_s(first)), (other, time_s(second)))}"


def faster_device(asker: Asker, asked: Question, rng: random.Random) -> str:
    """Devices, or their hosts, that are faster in everything or in one thing are never slower."""
    figures = rng.choice(("compute: 2.0", "bandwidth: 2.0", "dispatch: 0.5", "compute: 1.1, bandwidth: 1.1"))
    return not_slower(asker, asked, _calibrated(asker, asked, figures))


def no_straggler(asker: Asker, asked: Question, rng: random.Random) -> str:
    """A straggler makes nothing faster."""
    if asked.kind != "step":
        raise SkipError
    return not_slower(asker, asked.having(straggler=f"gpu1:{rng.choice((1.1, 2, 5))}x"), asked.having(straggler=None))


def larger_batch(asker: Asker, asked: Question, rng: random.Random) -> str:
    """More samples, and more layers, are never faster and never take less memory."""
    if asked.kind != "step":
        raise SkipError
    if asked.get("sizes") and rng.random() < 0.5:
        layers = int(asked.get("sizes")[0].partition("=")[2])
        other = asked.having(sizes=(f"layers={2 * layers}",))
    else:
        other = asked.having(batch=str(int(asked.get("batch")) * 2))
    return not_slower(asker, other, asked) or _not_more(asker, other, asked)


# -- memory ---------------------------------------------------------------------------


def _memory(result: Any) -> float:
    memory = getattr(result, "memory", ())
    return max((each.need.allocated_bytes for each in memory), default=0.0)


def _not_more(asker: Asker, asked: Question, less: Question) -> str:
    first, second = (_memory(found) for found in both(asker, asked, less))
    if second <= first * (1 + MEMORY):
        return ""
    return f"more memory, not less:\n{told(asker, (asked, first), (less, second))}"


def _layout(asked: Question) -> list[str]:
    given = ",".join(asked.get("parallel", ())) or "dp"
    return ["zero=3" if item == "fsdp" else item for item in given.split(",") if item != "dp"]


def zero_memory(asker: Asker, asked: Question, _: random.Random) -> str:
    """Memory never rises with the stage of ZeRO; stage 3 has gathered units, at most the largest two whole."""
    layout = _layout(asked)
    if asked.kind != "step" or layout in (["loop"], ["dataparallel"]) or asked.get("strategy") == "parameter-server":
        raise SkipError
    rest = [item for item in layout if not item.startswith("zero")]
    stages = [asked.having(parallel=(",".join([*rest, *zero]) or "dp",)) for zero in ([], ["zero=1"], ["zero=2"])]
    return _not_more(asker, *stages[:2]) or _not_more(asker, *stages[1:])


def sp_memory(asker: Asker, asked: Question, _: random.Random) -> str:
    """Memory never rises with sequence parallelism."""
    if asked.kind != "step" or not asked.get("seq_len"):
        raise SkipError
    rest = [item for item in _layout(asked) if not item.startswith(("tp", "sp"))]
    if rest in (["loop"], ["dataparallel"]):
        raise SkipError
    without, with_sp = (asked.having(parallel=(",".join([*rest, *tp]),)) for tp in (["tp=2"], ["tp=2", "sp"]))
    return _not_more(asker, without, with_sp)


def recompute_memory(asker: Asker, asked: Question, rng: random.Random) -> str:
    """Memory never rises with recomputation."""
    if asked.kind != "step" or not asked.get("seq_len"):
        raise SkipError
    how = rng.choice(("recompute", "recompute_attention", "recompute_operators"))
    without, recomputed = asked.having(recompute=None), asked.having(**{"recompute": None, how: True})
    found = _not_more(asker, without, recomputed)
    return found and (compiled_apart(asker, without, recomputed) or found)


def micro_batch_memory(asker: Asker, asked: Question, rng: random.Random) -> str:
    """Memory never rises with smaller micro-batches for the same samples, beyond one accumulation."""
    if asked.kind != "step":
        raise SkipError
    batch, count = int(asked.get("batch")), int(asked.get("micro_batches", "1"))
    if count == 1 or batch < 2:
        raise SkipError
    smaller = asked.having(batch=str(batch // 2), micro_batches=str(2 * count))
    return in_flight_rise(asker, asked, smaller) or _not_more(asker, asked, smaller)


# -- the same question in other words -------------------------------------------------


def renamed(asker: Asker, asked: Question, rng: random.Random) -> str:
    """Other names change nothing; nor does, for exchanges, another order of links, ends and devices that are no ranks.

    Where several choices are equally good, the first in the file is taken; only then may times differ.
    """
    made = asked.machine
    if not isinstance(made, Made):
        raise SkipError
    names = {"sw": "branch", "nic": "port", "nvs": "star"}

    def new(name: str) -> str:
        stem = name.rstrip("0123456789")
        return names.get(stem, stem) + name[len(stem) :]

    wires = [replace(wire, a=new(wire.a), b=new(wire.b)) for wire in made.wires]
    others = [(new(name), about) for name, about in made.others]
    if asked.kind == "exchange" and rng.random() < 0.6:
        rng.shuffle(wires)
        wires = [replace(wire, a=wire.b, b=wire.a) if rng.random() < 0.5 else wire for wire in wires]
        cpus = [each for each in others if each[0].startswith("cpu")]
        ports = [each for each in others if each[0].startswith("port")]  # in their order NCCL numbers and deals them
        rest = [each for each in others if each not in cpus and each not in ports]
        rng.shuffle(rest)
        others = [*rest, *ports, *cpus]
    other = replace(asked, machine=replace(made, wires=tuple(wires), others=tuple(others), name="other"))
    found: list[object] = []
    for each in (asked, other):
        try:
            found.append(asker.answer(each))
        except RefusedError as error:
            found.append(str(error))
    if any(isinstance(each, str) for each in found):
        same = all(isinstance(each, str) for each in found)
        return "" if same else f"refused but once:\n{told(asker, (asked, found[0]), (other, found[1]))}"
    first, second = map(time_s, found)
    if math.isclose(first, second, rel_tol=REL) and _memory(found[0]) == _memory(found[1]):
        return ""
    return tie(asker, asked, other, new) or f"the same, and not:\n{told(asker, (asked, first), (other, second))}"


def doors(asker: Asker, asked: Question, _: random.Random) -> str:
    """JSON, text, Python and trace tell the same; all refuse alike."""
    if asked.kind == "exchange" and not asked.get("strategy"):
        asked = asked.having(strategy="nccl")
    trace = asker.folder / "trace.json"
    trace.unlink(missing_ok=True)
    more = [] if asked.kind == "single" else ["--trace", str(trace)]
    status, text, err = asker.said(asked, *more)
    json_status, out, json_err = asker.said(asked, "--json")
    python = asker.in_python(asked)
    said = told(asker, (asked, err))
    too_large = status == 1 and ": out of memory: " in err  # of the simulated device: an answer like others
    if (status not in (0, 2) and not too_large) or status != json_status:
        return f"ends with {status} and {json_status}:\n{said}"
    if status == 2:
        if err == json_err and python == in_python(err) and err:
            return ""
        return f"refused in other words: {json_err} {python}\n{said}"
    if isinstance(python, list):
        return f"only Python refuses: {python}\n{said}"
    if getattr(python, "fits", True) == too_large:
        return f"out of memory for the command alone, or for Python alone:\n{said}"
    [entry] = (json.loads(out).get("results") or [json.loads(out)])[:1]
    expected = time_s(python)
    theirs = next(entry[name] for name in ("sync_time_s", "step_time_s", "time_s") if name in entry)
    if theirs != expected:
        return f"JSON {theirs}, Python {expected}:\n{said}"
    if asked.kind != "single" and time_s(asker.answer(asked)) != expected:
        return f"a session that answered others says {time_s(asker.answer(asked))}, Python {expected}\n{said}"
    if not _says(text, expected):
        return f"the text does not say {format_duration(expected)}:\n{said}\n{text}"
    if trace.exists() and not math.isclose(trace_end_s(trace), _last_s(python), rel_tol=1e-6, abs_tol=2e-9):
        return f"the trace ends at {trace_end_s(trace)}, not {_last_s(python)}:\n{said}"
    return ""


def _says(text: str, seconds: float) -> bool:
    """Return whether one of the times in *text* is *seconds* in as many digits as it has."""
    units = {"ps": 1e-12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
    for number, unit in re.findall(r"([\d.,]+) (ps|ns|us|ms|s|min|h|d)\b", text):
        digits = number.replace(",", "").rstrip(".")
        last = 10.0 ** -len(digits.partition(".")[2]) * units[unit]
        if abs(float(digits or "inf") * units[unit] - seconds) <= 0.51 * last and (
            last <= 0.06 * seconds or float(digits).is_integer()
        ):
            return True
    return False


def _last_s(result: Any) -> float:
    return float(result.timeline.end_s)


def what_if(asker: Asker, asked: Question, rng: random.Random) -> str:
    """What --what-if tells of an option, or of a kind of link, the question with it tells too."""
    if asked.kind != "step":
        raise SkipError
    from simulator.api.advice import what_if as what_ifs

    try:
        found = asker.answer(asked)
        session, question = asker.question(asked)
        alternatives = what_ifs(session, question, time_s(found))
    except RefusedError as error:
        raise SkipError(str(error)) from None
    for each in alternatives:
        other = _changed(asked, each.change)
        if other is None:
            continue
        try:
            second = asker.time(other)
        except RefusedError as error:
            return f"{each.change} is refused:\n{told(asker, (other, error))}"
        if not math.isclose(second, each.step_time_s, rel_tol=REL):
            return f"{each.change} tells {each.step_time_s}:\n{told(asker, (asked, time_s(found)), (other, second))}"
    return ""


def _changed(asked: Question, change: str) -> Question | None:
    """Return the question with *change*; None if no option or file here says it."""
    if change.startswith("NVLink links"):
        made = asked.machine
        if not isinstance(made, Made):
            return None
        wires = frozenset(i for i, wire in enumerate(made.wires) if wire.kind == "nvlink")
        return replace(asked, machine=made.scaled(wires, rate=2.0))
    words = change.split()
    if change[:2] != "--" or len(words) > 2 or any(c in change for c in "(;"):
        return None
    name = {"compile": "compiled"}.get(words[0][2:], words[0][2:].replace("-", "_"))
    if words[0] == "--parallel":
        return asked.having(parallel=(words[1],))
    return asked.having(**{name: True if len(words) == 1 else words[1]})


RULES: dict[str, tuple[Rule, int]] = {
    "faster link": (faster_link, 6),
    "lower latency": (lower_latency, 5),
    "more bytes": (more_bytes, 6),
    "slowed link": (slowed_link, 5),
    "edited link": (edited_link, 5),
    "passing link": (passing_link, 5),
    "folded": (folded, 6),
    "identity calibration": (identity_calibration, 2),
    "faster device": (faster_device, 4),
    "no straggler": (no_straggler, 2),
    "larger batch": (larger_batch, 3),
    "ZeRO": (zero_memory, 5),
    "sequence parallelism": (sp_memory, 5),
    "recomputation": (recompute_memory, 5),
    "micro-batches": (micro_batch_memory, 5),
    "renamed": (renamed, 6),
    "doors": (doors, 1),
    "what if": (what_if, 1),
}


def fitting(asked: Question, rng: random.Random) -> list[str]:
    """Return the rules in an order drawn by their weights, those that go with the kind of the question first."""
    left = dict(RULES)
    order = []
    while left:
        name = rng.choices(list(left), [weight for _, weight in left.values()])[0]
        order.append(name)
        del left[name]
    return order
