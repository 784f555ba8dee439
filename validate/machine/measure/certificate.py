"""A certificate: what a GPU or a node shows of itself in some minutes, in parts (docs/first-gpu-run.md).

The archive is written anew after each part.  A process of its own measures them: one whose GPU is lost, or that hangs
or dies, is followed by another for the parts that it had not begun, and ends when the time does.
"""

import io
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from validate.machine.measure.host import nvidia_smi, removed_on_signals
from validate.machine.measure.table import CERTIFICATE, write_json

MOST_BYTES = 10 << 20  # the size of an archive that is not exceeded; tables beyond it are left out, the largest first
_LAST_S = 6.0  # of the time: for the last archive, and for a process to end
_MOST_SAID = 200  # characters of what a process said last
_GRACE_S = 2.0  # that a part may run over its time before it is cut
_END_S = 2.0  # before the process is ended from outside, in which the last part writes what it has
_LEAST_S = 5.0  # with less time left, no process is begun: torch takes as long to load
_MOST_LOAD_S = 20.0  # of each of the three works of the clocks
_WORKS = 3.3  # the three works, with what they take besides
_WRITTEN = json.loads(Path(__file__).with_name("groups.json").read_text(encoding="utf-8"))["certificate"]


class CertificatePart(NamedTuple):
    """A part: its folder in the archive, the groups of cases in it, and its share of the time that parts have left."""

    name: str
    groups: tuple[str, ...]
    share: float


_ASKED = "asked"  # operators that the user has prepared
PARTS = tuple(CertificatePart(name, tuple(groups), share) for name, groups, share in _WRITTEN["parts"])
CUT = "cut: its time was over"  # how a part ends that would take longer; what it had measured is kept
JUDGES = tuple(part.name for part in PARTS[-2:])
"""The parts that nothing is fitted to: steps, and operators that were not chosen."""


def write_certificate(out: Path, minutes: float, device: str = "", asked: str = "") -> int:
    """Measure for *minutes* and write the archive *out*; return 0 if all parts came to their end, else 1.

    *asked*, a folder of ``validate run --parts --prepare``, holds operators that come first.  Raises ValueError where
    *out* is a folder or *asked* holds no steps, OSError where *out* cannot be written.
    """
    started_s = time.monotonic()
    if out.is_dir():
        raise ValueError(f"--out {out}: is a folder; name an archive, such as cert.tar.gz")
    place = out.resolve().parent
    with removed_on_signals(("SIGTERM",)), tempfile.TemporaryDirectory(dir=place, prefix=".certificate-") as held:
        folder = Path(held)
        write_json(folder / CERTIFICATE, {"schema_version": 1, "minutes": minutes, "parts": [], "began": _now()})
        if asked:
            if not (Path(asked) / "asked.json").is_file():
                raise ValueError(f"--asked {asked}: holds no asked.json; validate run --parts --prepare writes one")
            into = folder / next(part.name for part in PARTS if _ASKED in part.groups)
            into.mkdir()
            for file in Path(asked).glob("*.json"):
                shutil.copyfile(file, into / file.name)
        _pack(folder, out)

        def left_s() -> float:
            return 60.0 * minutes - _LAST_S - (time.monotonic() - started_s)

        while (waiting := _not_begun(folder)) and left_s() > _LEAST_S:
            words = ["--certificate", "--out", str(out), "--folder", str(folder), "--minutes", f"{left_s() / 60:.4f}"]
            words += ["--begun", f"{time.monotonic():.3f}"]
            words += ["--device", device] if device else []
            end = _ended([sys.executable, "-m", "validate.measure", *words], left_s())
            begun = [part.name for part in waiting if part not in _not_begun(folder)]
            _end_part(folder, begun[-1] if begun else waiting[0].name, end)
        for part in _not_begun(folder):
            _end_part(folder, part.name, "not begun: no time left")
        _pack(folder, out)
        ends = {row["name"]: row["end"] for row in _record(folder)["parts"]}
    left = [f"{name}: {end}" for name, end in ends.items() if end != "done"]
    sys.stderr.write("\n".join([*left, f"wrote {out} ({out.stat().st_size / 1e6:.2f} MB); next, elsewhere: "]))
    sys.stderr.write(f"validate certify {out} --topology FILE\n")
    return 1 if left else 0


def measure_parts(folder: Path, out: Path, minutes: float, device: str = "", begun_s: float = 0.0) -> int:
    """Measure the parts that *folder* lacks within *minutes*, and write the archive *out* after each.

    *begun_s* is the monotonic time from which the minutes count; 0: now.  Return 0; 3 where the device is lost, so that
    another process must go on; 130 where a user interrupts.
    """
    from validate.machine.measure.case import short_line
    from validate.machine.measure.run import FAILED, INTERRUPTED, Settings, measure
    from validate.machine.measure.timing import Effort

    loading_s = time.monotonic() - begun_s if begun_s else 0.0
    started_s = time.perf_counter()
    waiting = _not_begun(folder)
    for i, part in enumerate(waiting):
        left_s = 60.0 * minutes - loading_s - (time.perf_counter() - started_s) - _END_S
        budget_s = left_s * part.share / sum(each.share for each in waiting[i:])
        began_s, status, end = time.perf_counter(), 0, "done"
        record = _record(folder)
        record["parts"].append({"name": part.name, "began": _now(), "end": ""})
        write_json(folder / CERTIFICATE, record)
        into = folder / part.name
        try:
            into.mkdir(exist_ok=True)
            (into / CERTIFICATE).touch()
            if not part.groups:
                _write_machine(into, device)
            else:
                groups = tuple(name for name in part.groups if name != _ASKED or (into / "asked.json").is_file())
                load_s, effort = min(_MOST_LOAD_S, budget_s / _WORKS), Effort(interval=0.02, longest_s=0.5)
                _set_alarm(max(1e-3, min(budget_s + _GRACE_S, left_s)))
                status = measure(Settings(into, groups, device, budget_s, "", effort, load_s), lambda _: None)
        except (ValueError, OSError, RuntimeError, ImportError) as error:
            end = short_line(error)
        finally:
            _set_alarm(0.0)
        seconds = time.perf_counter() - began_s
        if status in (FAILED, INTERRUPTED):
            end = str(json.loads((into / "run.json").read_text(encoding="utf-8")).get("end") or "failed")
        if is_cut := "SIGALRM" in end:
            end = CUT
        _end_part(folder, part.name, end, seconds)
        _pack(folder, out)
        if status == FAILED:
            return 3
        if status == INTERRUPTED and not is_cut:
            return INTERRUPTED
    return 0


def _set_alarm(seconds: float) -> None:
    with suppress(ValueError, AttributeError):  # not in the main thread; not on this system
        signal.setitimer(signal.ITIMER_REAL, seconds)


def _ended(command: Sequence[str], limit_s: float) -> str:
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=said)
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return "cut: no time left"
        finally:
            process.terminate()
            try:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(_GRACE_S)
            finally:  # also where a signal ends this wait
                process.kill()
                process.wait()
        said.seek(max(0, said.seek(0, io.SEEK_END) - _MOST_SAID))
        last = " ".join(said.read().decode(errors="replace").strip().rpartition("\n")[2].split())
    end = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"{end}: {last}" if status and last else end


def _write_machine(into: Path, device: str) -> None:
    from validate.machine.measure.bench import open_bench
    from validate.machine.measure.run import RECORD, environment

    bench = open_bench(device, into)
    facts: dict[str, Any] = environment(bench)
    if bench.is_cuda:
        facts["driver_says"] = nvidia_smi(f"--query-gpu={','.join(_WRITTEN['sensors'])}", "--format=csv").splitlines()
        facts["nvlinks"] = nvidia_smi("nvlink", "-s").splitlines()
    record = {"schema_version": 1, "finished": True, "date": datetime.now(UTC).date().isoformat()}
    write_json(into / RECORD, {**record, "machine": bench.name, "environment": facts, "left": []})


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _record(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / CERTIFICATE).read_text(encoding="utf-8")))


def _not_begun(folder: Path) -> list[CertificatePart]:
    begun = {row["name"] for row in _record(folder)["parts"]}
    return [part for part in PARTS if part.name not in begun]


def _end_part(folder: Path, name: str, end: str, seconds: float | None = None) -> None:
    """Say how the part *name* ended, unless that is known; the measuring process says it first."""
    record = _record(folder)
    rows = {row["name"]: row for row in record["parts"]}
    row = rows.setdefault(name, {"name": name, "end": ""})
    if not row["end"]:
        row |= {"end": end} | ({} if seconds is None else {"seconds": round(seconds, 1)})
    record["parts"] = [*rows.values()]
    write_json(folder / CERTIFICATE, record)


def _pack(folder: Path, out: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix in (".json", ".csv"))

    def nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid, member.gid, member.uname, member.gname = 0, 0, "", ""
        return member

    while True:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for path in files:
                archive.add(path, arcname=f"certificate/{path.relative_to(folder).as_posix()}", filter=nobody)
        if packed.tell() <= MOST_BYTES or len(files) <= 1:
            break
        files.remove(max(files, key=lambda path: path.stat().st_size))
    new = out.with_name(f".{out.name}.new")
    new.write_bytes(packed.getvalue())
    new.replace(out)
