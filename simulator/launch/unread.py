"""Arguments that do not affect the time of a step, and arguments that do but are not modelled (``known.yaml``).

:func:`refuse_arguments` and :func:`unread` say so.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from difflib import SequenceMatcher, get_close_matches
from typing import Any

from simulator.errors import InputError, few, one_line
from simulator.launch.arguments import Arguments, is_off, spelt_flag
from simulator.package_data import own_data

KNOWN: Mapping[str, Any] = own_data("simulator.launch", "known.yaml")


def reasons(named: Mapping[str, str]) -> dict[str, str]:
    """Return the reason for each argument; *named* has the names, separated by spaces, of each reason."""
    return {name: why for why, names in named.items() for name in names.split()}


class Names:
    """The names in *text*; one with a final ``*`` stands for any that begins so."""

    def __init__(self, text: str) -> None:
        words = text.split()
        self._whole = frozenset(words)
        self._begin = tuple(word[:-1] for word in words if word.endswith("*"))

    def __contains__(self, name: str) -> bool:
        return name in self._whole or name.startswith(self._begin)


_KNOWN = KNOWN["arguments"]
_ANY, _OF_LAUNCHER = Names(_KNOWN["timeless"]), Names(_KNOWN["of_launchers"])
NOT_MODELLED = reasons(_KNOWN["instead"])
ON_CPU = "trains on the CPU; leave it out, and name a CPU with --device"
REFUSED = reasons(_KNOWN["refused"]) | dict.fromkeys(("use-cpu", "no-cuda", "cpu"), ON_CPU)
DEVICES = ("device", "accelerator")
"""Arguments that name a device; "cpu" is refused like those above."""


def is_timeless(name: str, of_launcher: bool = False) -> bool:
    """Return whether the argument *name* does not affect the time of a step; *of_launcher*: one of a launcher's."""
    return name in _ANY or (of_launcher and name in _OF_LAUNCHER)


_SHORTEST, _LONG = 4, 10  # letters of names of which one may be wrong, or two
_FILE = re.compile(r"\S+\.(ya?ml|toml|json|cfg|conf|py|sh)")
_SETTING = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@-]*=.*", re.DOTALL)


def refuse_arguments(args: Arguments, launcher: Arguments, starter: str) -> None:
    """Raise InputError with all faults, among them arguments without which a step is another one, and why.

    What is written nearly as an argument on which a step depends is told alone, as other faults may follow from it.
    Names of *launcher* count if it is *starter*.
    """
    both = [args] if launcher is args else [args, launcher]
    known = args.read | launcher.read | NOT_MODELLED.keys() | REFUSED.keys()
    misspelt = [
        each.at(name, f"is not known; did you mean '{spelt_flag(near)}'? If not, leave it out")
        for each in (both if starter else [args])
        for name in _unknown(each, of_launcher=each is launcher)
        if (near := _meant(name, known))
    ]
    if misspelt:
        raise InputError(misspelt)
    for each in both:
        for name in each:
            if name in REFUSED and name not in each.read and not is_off(each.value(name) or "true"):
                each.fault(name, REFUSED[name])
            device = (each.value(name) or "").lower().partition(":")[0] if name in DEVICES else ""
            if device == "cpu":
                each.fault(name, ON_CPU)
            elif device in ("cuda", "gpu"):
                each.has(name)  # read: what is simulated anyway
    if faults := dict.fromkeys([*args.faults, *launcher.faults]):
        raise InputError(list(faults))


def _meant(name: str, known: Collection[str]) -> str:
    """Return which of *known* differs from *name* by its hyphens, one letter, or two of a long name; or nothing.

    Words that begin otherwise are others: ``patch-size`` is no slip of ``batch-size``.
    """
    if name in known:  # one of the launcher's, given to the program
        return ""
    plain = {each.replace("-", ""): each for each in known}
    wanted = name.replace("-", "").lower()
    for near in get_close_matches(wanted, plain, n=3, cutoff=0.7):
        same = sum(block.size for block in SequenceMatcher(None, near, wanted).get_matching_blocks())
        shorter, longer = sorted((len(near), len(wanted)))
        begun = zip(name.lower().split("-"), plain[near].split("-"), strict=False)
        slips = 2 if shorter >= _LONG else 1 if shorter >= _SHORTEST else 0
        if near == wanted or (longer - same <= slips and all(word[:1] == other[:1] for word, other in begun)):
            return plain[near]
    return ""


def unread(args: Arguments, launcher: Arguments, starter: str, files: list[str]) -> list[str]:
    """Return a note for each argument that is not modelled, and one for each file that lists unknown arguments.

    Files that are not read are added to *files*.  Arguments of *launcher* count if it is *starter*; ``srun`` and
    ``mpirun`` have many that are about the cluster.
    """
    notes = _not_modelled(args)
    files += [word for word in args.others if _FILE.fullmatch(word)]
    unknown: dict[str, list[str]] = {"": []}
    for name in _unknown(args):
        first = (args.value(name) or "").partition(" ")[0]
        if _FILE.fullmatch(first):
            files.append(first)
        else:
            unknown[""].append(spelt_flag(name))
    unknown[""] += [one_line(word, 40) for word in args.others if _SETTING.fullmatch(word)]
    if starter and launcher is not args:
        notes += _not_modelled(launcher)
        for name in _unknown(launcher, of_launcher=True):
            file = launcher.at(name, "").file
            unknown.setdefault("" if file == args.file else file, []).append(spelt_flag(name))
    for file, listed in unknown.items():
        if listed:
            notes.append(f"{file}{': ' if file else ''}not known, and without effect: {few(listed)}")
    if files:
        notes.append(f"not read, and without effect: {few([one_line(file, 60) for file in files])}")
    return notes


def _not_modelled(args: Arguments) -> list[str]:
    notes = []
    for name in args:
        said = args.value(name) or ""
        usual = said and (is_off(said) or said.lower() == _KNOWN["usual"].get(name))
        if name not in args.read and name in NOT_MODELLED and not usual:
            notes.append(f"{spelt_flag(name)}: is not modelled; {NOT_MODELLED[name]}")
    return notes


def _unknown(args: Arguments, *, of_launcher: bool = False) -> list[str]:
    known = args.read | NOT_MODELLED.keys() | REFUSED.keys()
    return [name for name in args if name not in known and not is_timeless(name, of_launcher)]
