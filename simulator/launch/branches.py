"""Which commands of a script run: ``if``, ``case``, ``&&`` and ``||`` (docs/decisions/launch-lines.md)."""

import operator
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from simulator.launch.arguments import whole_sum
from simulator.launch.words import RawWord
from simulator.records import dataclass, field

RawCommand = list[RawWord | tuple[RawWord, list[RawWord]]]
_OPENS = {"if": "if", "case": "case"} | dict.fromkeys(("for", "while", "until", "select"), "loop")
_CLOSES = {"fi": "if", "done": "loop", "esac": "case"}
_BEGIN, _END = frozenset(("[", "[[", "test")), frozenset(("]", "]]"))
_JOINS = {"&&": "&&", "||": "||", "-a": "&&", "-o": "||"}
_ALWAYS = {"true": True, ":": True, "false": False}
_COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


@dataclass(slots=True)
class _Branch:
    """A branch: whether it *runs* (None: not known), and whether one *before* it did; of ``case`` its *subject*."""

    kind: str
    asks: bool  # its test, or its pattern, is being read
    runs: bool | None = None
    before: bool | None = False
    subject: RawWord | None = None
    words: list[RawWord] = field(default_factory=list)

    def to_next(self) -> None:
        """Go on to the branch after this one."""
        self.before = _either(self.before, self.runs)
        self.words, self.asks = [], True

    def decide(self, said: bool | None) -> None:
        """Take what the test *said*."""
        self.runs = _both(said, None if self.before is None else not self.before)
        self.asks = False


class Branches:
    """Follows commands in turn; *value* returns a word as the shell expands it, None if it is not known."""

    def __init__(self, value: Callable[[RawWord], str | None]) -> None:
        self._value = value
        self._open: list[_Branch] = []
        self._last: bool | None = None  # what the command before returned

    @property
    def run(self) -> bool | None:
        """Whether the commands here run; None if it is not known."""
        states = [branch.runs for branch in self._open if not branch.asks]
        return False if False in states else None if None in states else True

    def reached(self, raw: RawCommand, before: str) -> RawCommand:
        """Return what runs of the command *raw*, after the separators *before* it: all but keywords, or nothing."""
        left = list(raw)
        inner = self._open[-1] if self._open else None
        if inner is not None and inner.kind == "case":
            if inner.asks and inner.words and ")" in before:
                inner.decide(self._matched(inner))
            if ";;" in before:
                inner.to_next()
        while left and isinstance(left[0], RawWord) and self._passes(left, left[0].text):
            pass
        words = [word for word in left if isinstance(word, RawWord)]
        joined = next((each for each in ("&&", "||") if each in before), "")
        inner = self._open[-1] if self._open else None
        if inner is not None and inner.asks:
            inner.words += [RawWord(((joined or "&&", ""),), 0, 0)] * bool(inner.words and inner.kind != "case") + words
            return left if inner.kind != "case" and self.run is not False and not _tests(words) else []
        if self.run is False or (joined and self._last is (joined == "||")):
            return []
        self._last = self._tested(words) if words else None
        return [] if _tests(words) else left

    def _passes(self, left: RawCommand, key: str) -> bool:
        """Move past the keyword *key* at the start of a command; return whether there was one."""
        inner = self._open[-1] if self._open else None
        if inner is not None and inner.kind == "case" and inner.asks and key != "esac":
            return False
        n_words = 1
        if key in _OPENS:
            self._open.append(_Branch(_OPENS[key], asks=key not in ("for", "select")))
            n_words = 3 if key == "case" else len(left) if key in ("for", "select") else 1
            if key == "case" and len(left) > 1 and isinstance(left[1], RawWord):
                self._open[-1].subject = left[1]
        elif inner is not None and inner.kind == "if" and key in ("then", "elif", "else"):
            if key == "then":
                inner.decide(self._tested(inner.words))
            else:
                inner.to_next()
            if key == "else":
                inner.decide(True)
        elif inner is not None and inner.kind == _CLOSES.get(key):
            self._open.pop()
            self._last = None
        elif key == "do" and inner is not None and inner.asks:  # how often is not known
            inner.decide(_both(self._tested(inner.words), None))
        elif key != "do":
            return False
        del left[:n_words]
        return True

    def _matched(self, branch: _Branch) -> bool | None:
        """Return whether the word of ``case`` has one of the patterns of *branch*."""
        said = None if branch.subject is None else self._value(branch.subject)
        patterns = [self._value(word) for word in branch.words]
        found = [None if said is None or each is None else fnmatchcase(said, each) for each in patterns]
        return True if "*" in patterns or True in found else None if None in found else False

    def _tested(self, words: Sequence[RawWord]) -> bool | None:
        """Return what the test *words* says: ``[ a = b ] && [ c ]``, from left to right; None if it is not known."""
        if len(words) == 1 and words[0].text[:1] not in ("(", "[", "!"):
            return _ALWAYS.get(words[0].text)
        found: bool | None = True
        joined, unit, within = "&&", list[RawWord](), False
        for word in [*words, RawWord((("&&", ""),), 0, 0)]:
            if word.text not in _JOINS or (word.text.startswith("-") and len(unit) < 2):
                unit.append(word)
                continue
            within = within or any(each.text in _BEGIN for each in unit)
            said = self._said(unit, within)
            found = _both(found, said) if joined == "&&" else _either(found, said)
            within = within and unit[:1] != [] and unit[0].text != "test" and unit[-1].text not in _END
            joined, unit = _JOINS[word.text], []
        return found

    def _said(self, words: Sequence[RawWord], within: bool) -> bool | None:
        """Return what one test says; *within*: within brackets."""
        plain = [word for word in words if word.text not in _BEGIN | _END]
        negated = False
        while plain and plain[0].text == "!":
            negated, plain = not negated, plain[1:]
        said: bool | None = None
        if not within and len(plain) == 1:
            text = plain[0].text
            total = self._value(RawWord(((f"${text}", ""),), 0, 0)) if text.startswith("((") else None
            said = _ALWAYS.get(text) if total is None else total != "0"
        elif within:
            said = self._compared(plain, patterns=any(word.text == "[[" for word in words))
        return said if said is None else said != negated

    def _compared(self, words: Sequence[RawWord], *, patterns: bool) -> bool | None:
        values = [self._value(word) for word in words]
        first, last = values[:1], values[-1:]
        if None in (*first, *last) or not values:
            return None if values else False
        left, right = str(first[0]), str(last[0])
        sign = words[-2].text if len(words) > 1 else "-n"
        if len(words) < 3 and sign in ("-z", "-n"):
            return bool(right) == (sign == "-n")
        if len(words) != 3:
            return None
        if sign in _COMPARED:
            one, other = whole_sum(left), whole_sum(right)
            return None if one is None or other is None else _COMPARED[sign](one, other)
        if sign in ("=", "==", "!="):
            is_pattern = patterns and all(not quote for _, quote in words[2].pieces)
            return (fnmatchcase(left, right) if is_pattern else left == right) == (sign != "!=")
        return left < right if sign == "<" else left > right if sign == ">" else None


def _both(one: bool | None, other: bool | None) -> bool | None:
    return False if one is False or other is False else None if None in (one, other) else True


def _either(one: bool | None, other: bool | None) -> bool | None:
    return True if one or other else None if None in (one, other) else False


def _tests(words: Sequence[RawWord]) -> bool:
    """Return whether the command *words* is a test, or the rest of one, that starts no program."""
    first = words[0].text if words else ""
    return first in _BEGIN or first.startswith("((") or any(word.text in _END for word in words)
