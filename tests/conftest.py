"""Settings shared by all tests."""

from __future__ import annotations

import contextlib
import gc
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest
from hypothesis import HealthCheck, settings

from tests.examples import PROFILE, few

# In CI the same examples in every run, and no deadline: test machines are shared and slow.  The parent is named, since
# the usual one is another where a variable such as CI is set: there hypothesis draws the same examples in every run.
_USUAL = settings.get_profile("default")
_ANY_SPEED = [HealthCheck.too_slow]
settings.register_profile(
    "ci", _USUAL, derandomize=True, deadline=None, suppress_health_check=_ANY_SPEED, max_examples=few(100)
)
settings.register_profile(
    "fresh", _USUAL, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True, database=None
)
settings.register_profile("dev", _USUAL, deadline=None, suppress_health_check=_ANY_SPEED)
settings.load_profile(PROFILE)

# As the commands do: Python's default frequency of garbage collection takes a good part of the time.
gc.set_threshold(100_000, 20, 20)

# pytest-xdist's workers set the terminal width, to which commands would wrap their lines.
os.environ.pop("COLUMNS", None)

# A worker of pytest-xdist for each core: threads of torch would wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

_ROOT = Path(__file__).resolve().parent.parent
_MUCH_BYTES = 100_000_000

# What a file says that needs another program: torch and what stands on it, SimGrid, Chromium, or a network of its own.
_NEEDS_AN_ORACLE = re.compile(
    r"""(importorskip|find_spec)\("(torch|transformers)|mark\.(simgrid|torch)|"chromium"|check_rights\("""
)

_SLOW_FOLDERS = ("property", "end_to_end")
_ALL_SLOW = re.compile(r"\npytestmark = .*\bmark\.slow\b")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Choose files by whether they need an oracle: CI runs the others while oracles are installed."""
    parser.addoption(
        "--oracles", choices=("only", "without"), help="files that need torch, SimGrid, ..., or all others"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Run the slow tests, too, of which a command names one by its id, unless it chooses marks itself."""
    said = config.invocation_params.args
    if any("::" in each for each in said) and not any(each.startswith("-m") for each in said):
        config.option.markexpr = ""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files that ``--oracles`` does not choose, and those of slow tests alone where none is wanted.

    Each worker would import them, and make their tests, only to leave them out.
    """
    wanted, quick = config.getoption("--oracles"), _is_quick(config)
    if not (wanted or quick) or not collection_path.is_file() or not collection_path.name.startswith("test_"):
        return None
    if quick and collection_path.parent.name in _SLOW_FOLDERS:
        return True
    text = collection_path.read_text(encoding="utf-8")
    if quick and _ALL_SLOW.search(text):
        return True
    return True if wanted and bool(_NEEDS_AN_ORACLE.search(text)) != (wanted == "only") else None


def pytest_pycollect_makeitem(collector: pytest.Collector, obj: object) -> list[pytest.Item] | None:
    """Make no tests of a function marked slow where no slow test is wanted."""
    marks = getattr(obj, "pytestmark", ()) if isinstance(obj, FunctionType) and _is_quick(collector.config) else ()
    return [] if any(mark.name == "slow" for mark in marks) else None


def _is_quick(config: pytest.Config) -> bool:
    named = any("::" in each for each in config.args)  # one that is not collected would not be found
    return bool(config.getoption("markexpr") == "not slow") and not named


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the published measurements, completed, beside the second one; skip the test without them."""
    folder = Path(os.environ.get("TOPOCAST_CORPUS", _ROOT.parent / "shared" / "corpus"))
    if not (folder / "collectives.csv").is_file():
        pytest.skip(f"no published measurements at {folder} (TOPOCAST_CORPUS names another folder)")
    from tests.remembered import tables  # few tests need what it imports

    base = tmp_path_factory.getbasetemp()  # of a process of a run, or of the run itself
    made = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "completed"
    if not made.is_dir():
        own = tmp_path_factory.mktemp("completing")
        for each in (folder, folder.parent / f"{folder.name}-2"):
            if each.is_dir():
                tables.completed_folder(each, own / each.name)
        with contextlib.suppress(OSError):  # another process was faster
            own.rename(made)
    return made / folder.name


@pytest.fixture(scope="module")
def answered_once() -> Iterator[None]:
    """Let the tests of a file share machines and steps of built-in names (:mod:`tests.answered_once`)."""
    from tests.answered_once import answers_shared  # the tests of the lowest versions do without

    with answers_shared():
        yield


@pytest.fixture(scope="module")
def without_bands() -> Iterator[None]:
    """Let no answer have a band: the tests of a file look at errors alone, and bands take a quarter of the time."""
    from simulator.api.session import Session
    from tests.remembered import Remembering

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "composed", Remembering.composed)
        yield


@pytest.fixture(scope="module", autouse=True)
def _memory_is_given_back() -> Iterator[None]:
    """Collect the garbage of a file that left much: by the rare collections above it would stay for a hundred files."""
    before = _resident_bytes()
    yield
    if _resident_bytes() > before + _MUCH_BYTES:
        gc.collect()


def _resident_bytes() -> int:
    """Return the memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def pytest_collection_finish() -> None:
    """Leave what was collected out of later collections of garbage: thousands of tests, which all stay."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark whole folders as slow: property tests, and tests that run commands as processes.

    Order files so that slow tests come first, those on published measurements before all others: no worker is then left
    with a long test at the end.
    """
    longest: dict[Path, int] = {}
    for item in items:
        if item.path.parent.name in _SLOW_FOLDERS:
            item.add_marker(pytest.mark.slow)
        rank = 2 * bool(item.get_closest_marker("slow")) + bool(item.get_closest_marker("corpus"))
        longest[item.path] = max(rank, longest.get(item.path, 0))
    items.sort(key=lambda item: -longest[item.path])
