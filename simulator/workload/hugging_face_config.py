"""The keys of a ``config.json``, with checks: :class:`Config`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from simulator.errors import Fault, InputError, nearest, one_line
from simulator.package_data import own_data
from simulator.spelling import mention
from simulator.topology.yaml_source import YamlSource

_LONGEST = 8192  # default limit of a sequence, in tokens: models are trained on shorter ones than they accept
_MOST = 10**9
_FROM_ZERO = ("n_shared_experts", "first_k_dense_replace")
_TOLD = 12  # unknown keys; the others are counted
_MOST_LAYERS = 1024  # the zoo's limit too
# Keys that do not affect the time of a step.
_TIMELESS = frozenset(own_data("simulator.workload", "hugging_face.json")["timeless"])
# Values with which an unknown key has no effect.
_OFF: tuple[Any, ...] = (None, False, 0, 0.0, [], {}, "")


class Config:
    """The keys of a file, its faults and notes so far, and ``length``, the sequence length (tokens) asked, or None."""

    def __init__(self, source: YamlSource, length: int | None) -> None:
        self._source = source
        self._data: Mapping[str, Any] = source.data
        self._read: set[str] = set()
        self._faults: list[Fault] = []
        self.length = length
        self.notes: list[Fault] = []

    def size(self, *names: str, default: int | None = None) -> int:
        """Return the integer under the first of *names* that is present; *default* if all are missing or null."""
        name = self._name(names)
        value = self._data.get(name)
        least, most = 0 if name in _FROM_ZERO else 1, _MOST_LAYERS if "layer" in name else _MOST
        if value is None and default is not None:
            return default
        if value is None:
            self._faults.append(self._source.fault((), f"{self._data['model_type']} needs the key '{name}'"))
        elif not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            self.refuse(name, f"must be a whole number, {least} to {most}; got {one_line(json.dumps(value), 40)}")
        else:
            return value
        return 1

    def flag(self, name: str, default: bool) -> bool:
        """Return the boolean under *name*."""
        value = self.value(name, default)
        if not isinstance(value, bool):
            self.refuse(name, f"must be true or false; got {one_line(json.dumps(value), 40)}")
        return bool(value)

    def value(self, name: str, default: Any = None) -> Any:
        """Return the value under *name*; *default* if it is missing or null."""
        self._read.add(name)
        value = self._data.get(name)
        return default if value is None else value

    def sizes(self, keys: Mapping[str, Sequence[str | int] | None]) -> dict[str, int]:
        """Return the integer of each of *keys*: names, as in :meth:`size`, and last the default of a missing key."""
        found = {}
        for size, key in keys.items():
            if key is not None:
                names = [each for each in key if isinstance(each, str)]
                found[size] = self.size(*names, default=key[-1] if isinstance(key[-1], int) else None)
        return found

    def only(self, missing: Any = None, **allowed: Sequence[Any]) -> None:
        """Record a fault for each key whose value is not the one, or among those, *allowed*: it is another network.

        *missing*: the value of a missing key; by default the first that is allowed.
        """
        for name, listed in allowed.items():
            value = self.value(name, listed[0] if missing is None else missing)
            if value not in listed:
                words = " or ".join(map(_shown, listed))
                self.refuse(name, f"{_shown(value)} is not modelled; {words} is")

    def usual(self, **allowed: Sequence[Any]) -> None:
        """Add a note on each key whose value is not among those *allowed*, of which the first is simulated."""
        for name, listed in allowed.items():
            value = self.value(name, listed[0])
            if value not in listed:
                self.note(name, f"{_shown(value)} is not modelled; simulated as {_shown(listed[0])}")

    def ignored(self, *names: str) -> None:
        """Take the keys *names* as read: they change nothing that is simulated."""
        self._read.update(names)

    def refuse(self, name: str, message: str) -> None:
        """Record a fault of the key *name*."""
        self._faults.append(self._source.fault((name,), f"{name}: {message}"))

    def note(self, name: str, message: str) -> None:
        """Add a note on the key *name*."""
        self.notes.append(self._source.fault((name,), f"{name}: {message}"))

    def tokens(self, positions: int, name: str) -> int:
        """Return the default sequence length in tokens: *positions* (the key *name*), but at most 8,192."""
        if positions > _LONGEST and self.length is None:
            self.note(name, f"sequences of {_LONGEST:,} tokens are simulated; {mention('seq_len')} says another length")
        return min(positions, _LONGEST)

    def window(self, length: int) -> None:
        """Add a note if the sliding window of attention is shorter than a sequence of *length* tokens."""
        uses = self.flag(
            "use_sliding_window", self._data["model_type"] not in ("qwen2", "qwen3", "qwen2_moe", "qwen3_moe")
        )
        window = self.size("sliding_window", default=_MOST)
        if uses and window < (self.length or length):
            self.note("sliding_window", f"{window:,} is not modelled; attention reads all tokens")

    def finish(self) -> None:
        """Add notes on the keys that nothing has read; raises InputError with all faults."""
        if self._faults:
            raise InputError(sorted(set(self._faults), key=lambda fault: (fault.line, fault.column, fault.message)))
        unread = [name for name, value in self._data.items() if self._matters(name, value)]
        for name in unread[:_TOLD]:
            if name == "quantization_config":
                self.note(name, f"is not modelled; parameters are in the format of {mention('precision')}")
                continue
            hint = nearest(name, self._read, listed=0)
            near = f"; {hint}" if hint.startswith("did") else ""
            message = f"{one_line(name, 60)}: is not known and has no effect{near}"
            self.notes.append(self._source.fault((name,), message, key=True))
        if len(unread) > _TOLD:
            more = f"{len(unread) - _TOLD:,} more keys from here on are not known and have no effect"
            self.notes.append(self._source.fault((unread[_TOLD],), more, key=True))

    def _matters(self, name: str, value: Any) -> bool:
        """Whether nothing has read the key *name*, although *value* may change a step."""
        return name not in self._read and name not in _TIMELESS and not any(value is e or value == e for e in _OFF)

    def _name(self, names: tuple[str, ...]) -> str:
        self._read.update(names)
        return next((name for name in names if self._data.get(name) is not None), names[0])


def _shown(value: Any) -> str:
    """Return *value* as the file writes it."""
    return one_line(json.dumps(value), 60)
