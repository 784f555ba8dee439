"""For pytest: import one module changed, as the variable MUTANT says (``path:index``)."""

from __future__ import annotations

import os
from importlib.machinery import SourceFileLoader
from typing import Any

from tests.mutation.mutants import mutated

_PATH, _, _INDEX = os.environ.get("MUTANT", "").rpartition(":")
_get_code = SourceFileLoader.get_code


def _changed_code(self: SourceFileLoader, name: str) -> Any:
    if _PATH and os.path.realpath(self.path) == os.path.realpath(_PATH):
        with open(self.path, encoding="utf-8") as file:
            return compile(mutated(file.read(), int(_INDEX)), self.path, "exec", dont_inherit=True)
    return _get_code(self, name)


SourceFileLoader.get_code = _changed_code  # type: ignore[method-assign]
