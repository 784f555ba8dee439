"""``simulate machines``, ``networks``, ``parts`` and ``strategies``: what is built in."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from simulator.cli.options import parse_choice, parse_count
from simulator.cli.output import Answers, Asked
from simulator.cli.table import row_lines
from simulator.cli.written import CommandOptions
from simulator.collectives.registry import find_strategy, strategy_names
from simulator.console import Style
from simulator.errors import InputError, nearest, one_line
from simulator.records import lists_by_key, own_data
from simulator.results import SCHEMA_VERSION
from simulator.topology import catalogue
from simulator.topology.load import load_topology

Entry = dict[str, Any]
_LABEL = 22  # characters of a figure's name
_ONE = {"machines": "built-in machine", "networks": "network of the zoo", "parts": "part", "strategies": "strategy"}


def _asked(find: Callable[..., Answers]) -> Callable[..., Asked]:

    def ask(*, words: Sequence[str] | None, json: bool, **given: Any) -> Asked:
        return Asked(CommandOptions(json=json), lambda _: find(words or (), **given))

    return ask


@_asked
def list_machines(words: Sequence[str], *, gpu: str | None, gpus: str | None, nodes: str | None) -> Answers:
    """Return the built-in machines with all *words* in their name or description; raises InputError if there are none.

    *gpu*: a part, or a piece of its name; *gpus*: the number of GPUs in all; *nodes*: the number of nodes.
    """
    count = None if gpus is None else parse_count("gpus", gpus)
    computers = None if nodes is None else parse_count("nodes", nodes)
    entries = [_machine(name, path) for name, path in catalogue.builtin_topologies().items()]
    models = sorted({model for entry in entries for model in entry["gpus"]} - {""})
    wanted = set(models if gpu is None else [model for model in models if gpu.strip().lower() in model])
    if gpu is not None and not wanted:
        names = {*models, *(model.partition("-")[0] for model in models)}
        raise InputError(f"--gpu {one_line(gpu, 60)}: no machine has such a GPU; {nearest(gpu, names)}")
    found = [
        entry
        for entry in entries
        if (gpu is None or not wanted.isdisjoint(entry["gpus"]))
        and count in (None, sum(entry["gpus"].values()))
        and computers in (None, entry["nodes"])
    ]
    return _listed("machines", _with_words("machines", found, words), ("name", "description"))


@_asked
def list_networks(words: Sequence[str], *, sample: str | None) -> Answers:
    """Return the networks of the zoo, of *sample* (images, ...) if given; raises InputError if none has all *words*."""
    from simulator.workload.zoo.registry import find_entry, network_aliases, network_names

    aliases = lists_by_key((name, alias) for alias, name in network_aliases().items())
    zoo = {name: find_entry(name) for name in network_names()}
    samples = tuple(dict.fromkeys(entry.sample for entry in zoo.values()))
    of = None if sample is None else parse_choice("sample", sample, samples)
    entries = [
        {
            "name": name,
            "sample": entry.sample,
            "description": _network_words(name),
            "sizes": dict(entry.defaults),
            "aliases": aliases.get(name, []),
        }
        for name, entry in zoo.items()
        if of in (None, entry.sample)
    ]
    return _listed("networks", _with_words("networks", entries, words), ("name", "sample", "description", "sizes"))


def _network_words(name: str) -> str:
    for pattern, words in own_data("simulator.workload.zoo", "words.yaml").items():
        if match := re.match(pattern, name):
            sizes = [size.upper() if re.search(r"\d[bmt]$|^xl$", size) else size for size in match.groups()]
            return " ".join(words.format(*sizes).split())
    return ""


@_asked
def list_parts(words: Sequence[str], *, kind: str | None) -> Answers:
    """Return the catalogue of parts, only those of *kind* if given; raises InputError if none matches."""
    of = None if kind is None else parse_choice("kind", kind, catalogue.PART_KINDS)
    paths = sorted(catalogue.builtin_folder().glob("parts/*/*.yaml"))
    entries = [_part(path) for path in paths if of in (None, path.parent.name)]
    named = "-".join(words).lower()
    exact = [entry for entry in entries if named in (entry["name"], *entry["aliases"])]
    found = exact or _with_words("parts", entries, words)
    answers = _listed("parts", found, ("name", "kind", "description"))
    return replace(answers, lines=partial(_part_lines, found[0])) if len(found) == 1 else answers


@_asked
def list_strategies(words: Sequence[str]) -> Answers:
    """Return the strategies with their descriptions; raises InputError if none has all *words*."""
    entries = [{"name": name, "description": find_strategy(name).summary} for name in strategy_names(named_only=True)]
    return _listed("strategies", _with_words("strategies", entries, words), ("name", "description"))


def _machine(name: str, path: Path) -> Entry:
    topology = load_topology(name)
    times = dict(topology.runs)
    counts: dict[str, Counter[str]] = {"gpu": Counter(), "cpu": Counter(), "nic": Counter()}
    for device in topology.devices:
        if device.kind in counts:
            counts[device.kind][device.part_name] += times.get(device.node, 1)
    return {
        "name": name,
        "description": catalogue.file_description(path),
        "nodes": topology.n_nodes,
        "gpus": dict(counts["gpu"]),
        "cpus": dict(counts["cpu"]),
        "adapters": dict(counts["nic"]),
        "aliases": list(topology.aliases),
    }


def _part(path: Path) -> Entry:
    part = catalogue.load_part(path.stem)
    assert part is not None
    words = {"description", "aliases", "source", "sources", "kind"}
    return {
        "name": path.stem,
        "kind": path.parent.name,
        "description": catalogue.file_description(path),
        "aliases": list(getattr(part, "aliases", ())),
        "figures": part.model_dump(mode="json", exclude_defaults=True, exclude=words),
    }


def _part_lines(entry: Entry, style: Style) -> list[str]:
    lines = style.wrap(f"{entry['name']}: {entry['description']}", "bold")
    lines += style.wrap(f"  {'aliases'.ljust(_LABEL)} {', '.join(entry['aliases'])}") if entry["aliases"] else []
    for label, text, source in catalogue.part_figures(entry["name"]):
        of = f"  ({source})" if source else ""
        lines += style.wrap(f"  {label.ljust(_LABEL)} {text}{of}", hang=_LABEL + 3)
    return lines


def _with_words(title: str, entries: Sequence[Entry], words: Sequence[str]) -> list[Entry]:
    found = [entry for entry in entries if all(_joined(word) in _joined(_searched(entry)) for word in words)]
    if found:
        return found
    lists = f"simulate {title} lists all"
    if not words:
        raise InputError(f"no {_ONE[title]} is like that; {lists}")
    described = {entry["name"]: entry["description"] for entry in entries}
    aliases = {alias: entry["name"] for entry in entries for alias in entry.get("aliases", ())}
    wanted = one_line(" ".join(words), 60)
    hint = nearest(wanted, described, 0, described, aliases)
    more = f"{hint} ({lists})" if hint.startswith("did") else lists
    raise InputError(f"no {_ONE[title]} has '{wanted}' in its name or description; {more}")


def _listed(title: str, found: Sequence[Entry], columns: Sequence[str]) -> Answers:
    rows = [[_cell(entry[column]) for column in columns] for entry in found]
    return Answers(document=lambda: {"schema_version": SCHEMA_VERSION, title: found}, lines=partial(_lines, rows))


def _joined(text: str) -> str:
    """Return *text* without what spellings differ in: ``rtx4090`` is in ``geforce-rtx-4090``."""
    return re.sub(r"[-_ ]", "", text.lower())


def _searched(entry: Entry) -> str:
    of = [*entry.get("aliases", ()), *entry.get("gpus", ()), entry.get("figures", {}).get("architecture", "")]
    return "\n".join([entry["name"], entry["description"], *of])


def _cell(value: Any) -> str:
    """Return *value* on one line; sizes as in ``--set``, without those that are 0 (the default)."""
    if isinstance(value, Mapping):
        return " ".join(f"{key}={_cell(size)}" for key, size in value.items() if size)
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _lines(rows: Sequence[Sequence[str]], style: Style) -> list[str]:
    lines = row_lines(rows, [False] * len(rows[0]))
    if style.width is None or max(map(len, lines)) <= style.width:
        return lines
    told = ([*style.wrap("  ".join(row[:-1]), hang=4), *style.wrap(f"  {row[-1]}", hang=2)] for row in rows)
    return [line for each in told for line in each]
