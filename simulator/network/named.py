"""Devices by name, range and star: ``gpu[0-3]``, ``node*.nic[4-7]``; *said* (option, value) begins each error."""

import re
from collections.abc import Sequence

from simulator.errors import InputError, nearest, one_line
from simulator.network.machine import Machine, Node
from simulator.topology.schema import expand

_HOST = re.compile(r"node(?:\d{1,7}|\*|\[[^\]]*\])", re.ASCII)
_RANGE = re.compile(r"\[[^\]]*\]")


def names_several(text: str) -> bool:
    """Return whether *text* has a range or a star."""
    return "[" in text or "*" in text


def devices(said: str, text: str, machine: Machine) -> list[Node]:
    """Return the devices that *text* names, in its order; a star is any number.  Raises InputError."""
    head, dot, own = text.partition(".")
    numbers = hosts(said, head, machine) if dot and names_several(text) else None
    if numbers is None:
        return _among(said, text, "", machine.nodes, machine)
    found = []
    for host in numbers:
        prefix = f"node{host}."
        try:
            found += _among(said, own, prefix, machine.nodes_of(host), machine)
        except InputError:
            if head != "node*" or (host == numbers[-1] and not found):
                raise
    return found


def hosts(said: str, text: str, machine: Machine) -> list[int] | None:
    """Return the nodes *text* names whole (``node2``, ``node[0-3]``, ``node*``), or None; raises InputError."""
    if machine.n_hosts == 1 or _HOST.fullmatch(text) is None:
        return None
    if text == "node*":
        return list(range(machine.n_hosts))
    numbers = [int(name.removeprefix("node")) for name in expanded(said, text)]
    if max(numbers) >= machine.n_hosts:
        raise InputError(f"{said}: there is no node{max(numbers)}; they are node0 to node{machine.n_hosts - 1}")
    return numbers


def pairs(option: str, text: str, machine: Machine) -> list[tuple[Node, Node]]:
    """Return the pairs of devices in *text*, ``a-b``, as topology files pair ranges; raises InputError."""
    said = f"{option} {one_line(text, 60)}"
    bare = _RANGE.sub(lambda found: "#" * len(found[0]), text)
    places = [place for place, letter in enumerate(bare) if letter == "-"]
    unknown: list[list[InputError]] = []
    same: list[Node] = []
    for place in places:
        ends, errors = [], []
        for end in (text[:place], text[place + 1 :]):
            try:
                ends.append(devices(said, end, machine))
            except InputError as error:
                errors.append(error)
        unknown.append(errors)
        if not errors and ends[0] != ends[1]:
            return _paired(said, *ends)
        same = same if errors else ends[0]
    if same:
        return _paired(said, same, same)
    for errors in unknown:
        if len(errors) == 1 or (errors and len(places) == 1 and names_several(text)):
            raise errors[0]
    example = f"{machine.nodes[0].name}-{machine.nodes[len(machine.nodes) - 1].name}"
    raise InputError(f"{said}: names two devices with - between, for example {example}")


def _paired(said: str, first: Sequence[Node], second: Sequence[Node]) -> list[tuple[Node, Node]]:
    if len(first) != len(second):
        if 1 not in (len(first), len(second)):
            numbers = f"{len(first)} and {len(second)} devices; equal numbers pair up, one joins all"
            raise InputError(f"{said}: the ends stand for {numbers}")
        first, second = ([*first] * (len(second) // len(first) or 1), [*second] * (len(first) // len(second) or 1))
    found = list(zip(first, second, strict=True))
    for one, other in found:
        if one == other:
            raise InputError(f"{said}: joins {one.name} with itself; name two different devices")
    return found


def _among(said: str, own: str, prefix: str, nodes: Sequence[Node], machine: Machine) -> list[Node]:
    """Return the devices *own* among *nodes*, whose names begin with *prefix*."""
    if "*" not in own:
        names = expanded(said, own) if "[" in own else [own]
        found = [(name, machine.find(prefix + name)) for name in names]
    else:
        stem, _, tail = own.partition("*")
        wanted = re.compile(re.escape(prefix + stem) + r"\d+" + re.escape(tail), re.ASCII)
        found = [(own, node) for node in nodes if wanted.fullmatch(node.name)] or [(own, None)]
    for name, node in found:
        if node is None:
            hint = nearest(name.replace("*", "0"), [each.name.removeprefix(prefix) for each in nodes])
            raise InputError(f"{said}: no device is called '{one_line(name, 40)}'; {hint}")
    return [node for _, node in found if node is not None]


def expanded(said: str, text: str) -> list[str]:
    """Return the names in *text* as in topology files; raises InputError if its range cannot be read."""
    try:
        return expand(text)
    except ValueError as error:
        raise InputError(f"{said}: {error}") from None
