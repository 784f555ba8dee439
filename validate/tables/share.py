"""A share of shapes chosen by hash: the same shapes on every device and in every framework."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from simulator.errors import InputError, one_line


@dataclass(frozen=True, slots=True)
class Share:
    """One shape in *divisor*."""

    divisor: int = 1

    @classmethod
    def parse(cls, option: str, text: str) -> Share:
        """Return the share that *text* states, as in ``1/16``; raises InputError where it states none."""
        match = re.fullmatch(r"\s*1\s*/\s*0*([1-9]\d{0,5})\s*", text, re.ASCII)
        if match is None:
            raise InputError(f"{option}: a share such as 1/16 is needed; got '{one_line(text, 60)}'")
        return cls(int(match[1]))

    def holds(self, shape: tuple[int, ...]) -> bool:
        """Return whether *shape* is in the share: the hash of its comma-separated sizes is divisible by *divisor*."""
        if self.divisor == 1:
            return True
        return int(sha256(",".join(map(str, shape)).encode()).hexdigest(), 16) % self.divisor == 0


HELD_OUT = Share(16)  # shapes of matrix products and attention that no constant is fitted to
