"""Shared by the command lines: error lines and exit codes, output files, terminals, late imports (:func:`later`)."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def later(name: str, *given: Any, **named: Any) -> Callable[..., Any]:
    """Return a function of what is not *given* that calls *name* (module:function), or returns it if it is a value."""

    def called(*more: Any, **others: Any) -> Any:
        module, _, what = name.partition(":")
        found = getattr(import_module(module), what)
        return found(*given, *more, **named, **others) if callable(found) else found

    return called
