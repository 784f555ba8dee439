"""Faults in the user's module, as one line each: the place, the error, and a remedy."""

import traceback
from pathlib import Path

from simulator.errors import Fault, InputError, one_line
from simulator.records import own_data

_MESSAGE_LENGTH = 200
# Torch's advice to its own developers begins so.
_TO_DEVELOPERS = ("\nException raised from", "To enable this registration", "If you believe", "\n\n", " Please ")
_OWN = str(Path(__file__).parent)


class TraceFault(Exception):  # noqa: N818  it becomes a Fault
    """A refusal by the recorder; the place in the user's code is found from the traceback."""


# Remedies, each with words of torch's messages (in lower case); the first that matches applies.
_ADVICE = own_data("simulator.workload.torch_import", "advice.json")


def fault_of(error: BaseException, doing: str, *, path: str = "", hint: str = "") -> InputError:
    """Return *error* as one line, with its place in the user's code.

    *doing* is the action that failed, *path* the submodule that was running.  Without *hint*, a remedy is guessed from
    torch's message.
    """
    if isinstance(error, InputError):
        return error
    said = str(error)
    for cut in _TO_DEVELOPERS:
        said = said.split(cut, maxsplit=1)[0]
    message = one_line(said, _MESSAGE_LENGTH).rstrip(".!; ")
    if not isinstance(error, TraceFault):
        name = type(error).__name__
        message = f"{name}: {message}" if message else name
        lowered = message.lower()
        matching = (each["advice"] for each in _ADVICE if any(word in lowered for word in each["words"]))
        hint = hint or next(matching, "")
    where = f" in {one_line(path, 80)}" if path else ""
    text = f"{doing}{where}: {message}" + (f"; {hint}" if hint else "")
    cause: BaseException | None = error
    while cause is not None:  # the innermost frame of the user's code
        for frame in reversed(traceback.extract_tb(cause.__traceback__)):
            if _is_user(frame.filename):
                return InputError(Fault(text, frame.filename, frame.lineno or 0, (frame.colno or 0) + 1))
        cause = cause.__cause__
    if isinstance(error, SyntaxError) and error.filename:
        return InputError(Fault(text, error.filename, error.lineno or 0, error.offset or 0))
    return InputError(Fault(text))


def stack_place() -> tuple[str, int]:
    """Return the file and line of the innermost running frame of the user's code; ("", 0) if there is none."""
    for frame in reversed(traceback.extract_stack()):
        if _is_user(frame.filename):
            return frame.filename, frame.lineno or 0
    return "", 0


def _is_user(filename: str) -> bool:
    parts = Path(filename).parts
    library = "torch" in parts and "site-packages" in parts
    return not (library or filename.startswith(("<", _OWN)) or "importlib" in parts or "contextlib.py" in parts)
