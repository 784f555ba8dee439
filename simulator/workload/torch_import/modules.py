"""Which submodule is running, by its name in the module."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

__all__ = ["ModuleStack"]


class ModuleStack:
    """The submodules whose forward is running, innermost last; kept by hooks while it is entered."""

    def __init__(self, module: Any) -> None:
        self._names: dict[int, str] = {id(child): name for name, child in module.named_modules()}
        self._running: list[Any] = []
        self._hooks: list[Any] = []

    def __enter__(self) -> ModuleStack:
        hooks = torch.nn.modules.module
        self._hooks = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()

    def _enter(self, module: Any, _inputs: Any) -> None:
        self._running.append(module)

    def _leave(self, module: Any, _inputs: Any, _output: Any) -> None:
        while self._running and self._running.pop() is not module:
            pass  # a module that raised, and whose error was caught, is left with the one that called it

    @property
    def path(self) -> str:
        """The name of what runs, empty for the module itself."""
        for module in reversed(self._running):
            name = self._names.get(id(module))
            if name is not None:
                return name
        return ""

    @property
    def is_leaf(self) -> bool:
        """Whether a layer of torch's own runs that holds no others."""
        if not self._running:
            return False
        module = self._running[-1]
        own = type(module).__module__.startswith("torch.nn.")
        return own and next(module.children(), None) is None
