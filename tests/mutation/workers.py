"""Run tests on a changed module in processes forked from one that has imported everything, which makes them cheap."""

from __future__ import annotations

import contextlib
import functools
import gc
import io
import json
import os
import resource
import signal
import sys
import tempfile
import time
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.mutation.mutants import Mutant, mutated

_LIMIT_BYTES = 4 << 30
_NOT_CHANGED = 98  # exit status where the file differs from what was imported
_LEAST_S, _TIMES = 2.0, 5.0  # a test's CPU time limit: its usual time times _TIMES, at least _LEAST_S
_IMPORTED_BEFORE = "ignore::pytest.PytestAssertRewriteWarning"
Ran = dict[str, tuple[float, dict[str, list[int]]]]  # by test: its seconds, and the lines of each file that it runs

# As in tests/conftest.py, except that a failing example is not minimised.
settings.register_profile(
    "mutation",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.generate],
    report_multiple_bugs=False,
    print_blob=False,
)


class _Chosen:
    """pytest plugin: run only these tests, in this order; end the process where one takes far longer than before."""

    def __init__(self, took_s: Mapping[str, float]) -> None:
        self.took_s = took_s
        self.place = {test: i for i, test in enumerate(took_s)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((i for i in items if i.nodeid in self.place), key=lambda item: self.place[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):  # type: ignore[no-untyped-def]
        signal.setitimer(signal.ITIMER_PROF, _LEAST_S + _TIMES * self.took_s[item.nodeid])
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


class _Watch:
    """pytest plugin: record the duration of each test, and the lines of certain files that it runs."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.found: Ran = {}
        self._lines: dict[str, set[int]] = {path: set() for path in paths}

    def _call(self, frame: types.FrameType, _event: str, _what: object) -> Callable[..., object] | None:
        return self._line if frame.f_code.co_filename in self._lines else None

    def _line(self, frame: types.FrameType, event: str, _what: object) -> Callable[..., object]:
        if event == "line":
            self._lines[frame.f_code.co_filename].add(frame.f_lineno)
        return self._line

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item):  # type: ignore[no-untyped-def]
        for lines in self._lines.values():
            lines.clear()
        _forget()
        began_s = time.process_time()
        sys.settrace(self._call)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            lines_of = {path: sorted(lines) for path, lines in self._lines.items()}
            self.found[item.nodeid] = time.process_time() - began_s, lines_of


def _pytest(arguments: Sequence[str], plugins: Sequence[object]) -> int:
    words = ["-q", "-x", "-m", "", "-n", "0", "-p", "no:cacheprovider", "-W", _IMPORTED_BEFORE, *arguments]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        return int(pytest.main(words, plugins))


def _forget() -> None:
    """Clear all function caches, so that results from before a change do not hide it."""
    for found in gc.get_objects():
        if isinstance(found, functools._lru_cache_wrapper) and str(found.__module__).startswith("simulator"):
            found.cache_clear()


def prepare(files: Sequence[str]) -> None:
    """Import everything that *files* need, without running tests."""
    os.environ["HYPOTHESIS_PROFILE"] = "mutation"
    if status := _pytest(["--collect-only", *files], []):
        raise SystemExit(f"pytest cannot collect {' '.join(files)}: exit status {status}")


def _forked(run: Callable[[], int]) -> int:
    """Run *run* in a forked process with a memory limit; return its exit status."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_DATA, (_LIMIT_BYTES, _LIMIT_BYTES))
            quiet = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(quiet, number)
            status = run()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def ran(paths: Sequence[Path], files: Sequence[str]) -> Ran:
    """Return the duration of each test of *files*, and the lines of *paths* that it runs; all tests must pass."""
    with tempfile.TemporaryDirectory() as folder:
        noted = Path(folder, "ran.json")

        def run() -> int:
            watch = _Watch(map(str, paths))
            status = _pytest(files, [watch])
            noted.write_text(json.dumps(watch.found), encoding="utf-8")
            return status

        if status := _forked(run):
            raise SystemExit(f"{' '.join(files)}: fail without a change, exit status {status}")
        return {test: (took_s, lines) for test, (took_s, lines) in json.loads(noted.read_text()).items()}


def survives(path: Path, source: str, mutant: Mutant, tests: Ran, limit_s: float) -> bool:
    """Return whether no test notices the change *mutant* of *path*, trying the fastest tests for *limit_s* seconds.

    Usually only tests that run its lines are tried.  Where no test runs them, or the change is outside any function, it
    may act at import time: the changed module is then imported anew, and all tests are tried.
    """
    lines = set(range(mutant.line, mutant.last_line + 1))
    took_s = {
        test: s for test, (s, known) in tests.items() if mutant.function and not lines.isdisjoint(known[str(path)])
    }
    anew = not took_s
    if anew:
        took_s = {test: s for test, (s, _) in tests.items()}
    chosen: dict[str, float] = {}
    for test in sorted(took_s, key=lambda test: took_s[test]):
        if chosen and sum(chosen.values()) + took_s[test] > limit_s:
            break
        chosen[test] = took_s[test]

    def run() -> int:
        code = compile(mutated(source, mutant.index), str(path), "exec", dont_inherit=True)
        _import_changed(str(path), code) if anew else _change(str(path), code)
        _forget()
        return _pytest(sorted({test.partition("::")[0] for test in chosen}), [_Chosen(chosen)])

    status = _forked(run)
    if status == _NOT_CHANGED:
        raise SystemExit(f"{path} is no longer what was imported")
    return status == 0


def _codes(code: types.CodeType) -> dict[tuple[str, int], types.CodeType]:
    """Return all code objects within *code*, by name and first line."""
    found = {}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            found[inner.co_qualname, inner.co_firstlineno] = inner
            found |= _codes(inner)
    return found


def _change(path: str, code: types.CodeType) -> None:
    """Replace the code of every existing function of *path* by that of the same name in *code*."""
    new = _codes(code)
    changed = 0
    for function in gc.get_objects():
        if isinstance(function, types.FunctionType) and function.__code__.co_filename == path:
            key = function.__code__.co_qualname, function.__code__.co_firstlineno
            if key in new:
                function.__code__ = new[key]
                changed += 1
    if not changed:
        os._exit(_NOT_CHANGED)


def _import_changed(path: str, code: types.CodeType) -> None:
    """Unload all project modules, and import *code* in place of *path* from now on."""
    from importlib.machinery import SourceFileLoader

    before = SourceFileLoader.get_code

    def changed(self: SourceFileLoader, name: str) -> types.CodeType | None:
        return code if self.path == path else before(self, name)

    SourceFileLoader.get_code = changed  # type: ignore[method-assign,assignment]
    ours: Collection[str] = ("simulator", "validate", "reports", "tests")
    for name in list(sys.modules):
        if name.partition(".")[0] in ours and not name.startswith("tests.mutation"):
            del sys.modules[name]
