"""XML that others wrote, read safely: bounded, without entities or a document type, faults with their place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from simulator.errors import Fault, InputError, one_line

__all__ = ["Element", "parse_xml"]

_DEEPEST = 200
_MOST_ELEMENTS = 200_000


@dataclass(slots=True)
class Element:
    """An element with its attributes, its text, those in it, and the line that it starts in."""

    tag: str
    given: dict[str, str]
    line: int
    inside: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str) -> Iterator[Element]:
        """Yield the elements *tag* in this, at any depth, in order."""
        for each in self.inside:
            if each.tag == tag:
                yield each
            yield from each.all(tag)


def parse_xml(text: str, shown: str) -> Element:
    """Return the root of *text*, which messages call *shown*.

    A document type without declarations is read past, as hwloc writes one; entities of one's own are refused, so
    nothing grows.  Raises InputError with the line where it is no XML.
    """
    parser = expat.ParserCreate("utf-8")  # as it is decoded already, whatever it says of itself
    stack: list[Element] = []
    roots: list[Element] = []
    count = 0

    def refuse(message: str) -> None:
        raise InputError(Fault(message, shown, parser.CurrentLineNumber, parser.CurrentColumnNumber + 1))

    def start(tag: str, given: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > _MOST_ELEMENTS or len(stack) >= _DEEPEST:
            refuse(f"has more than {_MOST_ELEMENTS} elements or is nested deeper than {_DEEPEST}")
        element = Element(tag, given, parser.CurrentLineNumber)
        (stack[-1].inside if stack else roots).append(element)
        stack.append(element)

    def content(text: str) -> None:
        if stack and text.strip():
            stack[-1].text += text

    def entity(*_: object) -> None:
        refuse("declares an entity; a dump has none")

    parser.StartElementHandler = start
    parser.EndElementHandler = lambda _tag: stack.pop() and None
    parser.CharacterDataHandler = content
    parser.EntityDeclHandler = entity
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(text.encode("utf-8", "replace"), True)
    except expat.ExpatError as error:
        words = one_line(expat.ErrorString(error.code) or error)
        raise InputError(Fault(f"is not valid XML: {words}", shown, error.lineno, error.offset + 1)) from None
    return roots[0]
