"""Parse untrusted XML safely: bounded, without entities, faults with line and column."""

from __future__ import annotations

from collections.abc import Iterator
from xml.parsers import expat

from simulator.errors import Fault, InputError, one_line
from simulator.records import dataclass, field

_DEEPEST = 200
_MOST_ELEMENTS = 200_000


@dataclass(slots=True)
class Element:
    """An element with its attributes, text, children and line number."""

    tag: str
    given: dict[str, str]
    line: int
    inside: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str) -> Iterator[Element]:
        """Yield the descendants with tag *tag*, in document order."""
        for each in self.inside:
            if each.tag == tag:
                yield each
            yield from each.all(tag)


def parse_xml(text: str, shown: str) -> Element:
    """Return the root element of *text*; error messages call the file *shown*.

    A document type without declarations, as hwloc writes, is ignored.  Entity declarations are refused, so that nothing
    expands.

    Raises InputError with line and column where *text* is not valid XML.
    """
    parser = expat.ParserCreate("utf-8")  # the text is already decoded, whatever encoding it declares
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
