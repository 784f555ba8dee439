"""The lines of the documents that start ``validate`` run, on small files with the names that they use."""

from __future__ import annotations

import gzip
import json
import shlex
import shutil
from pathlib import Path

import pytest

from simulator.console.run import run_app
from tests.measured_folders import PART, TOPOLOGY, constant, operators, scattered, steps, timed, write
from tests.nccl_logs import as_log
from tests.unit.test_docs import DOCUMENTS, ROOT, commands, tables
from tests.unit.test_dumps import LISTED, LOG, LSPCI, NCCL_XML, NV12
from tests.unit.test_trace import document, two_steps
from validate.cli import app

pytest.importorskip("scipy")
pytestmark = pytest.mark.slow

# What measures this machine, reads a whole collection, fits for long or adds to the record of the project; tests of
# their own run these.
_ELSEWHERE = ("run", "cluster", "import", "fit", "compare measured/ --calibrate", "blind add", "blind score")
_TIMES = [(1 << size, 1e-5 + 2**size / 2e11) for size in range(20, 30, 2)]
# Files of other content, for lines with these words.
OTHERS = {
    "--nodes 2": ("all_reduce.log", as_log(_TIMES, hosts=2)),
    "--nccl 2.18": ("all_reduce.log", as_log(_TIMES, hosts=2, version=21805)),
    "--gpus 0,1,6,7": ("all_reduce.log", as_log(_TIMES, devices=(0, 1, 6, 7))),
    "lspci.txt": ("topo.txt", NV12.replace("NV12", "NV18")),
}
_MINE = """\
schema_version: 1
name: mine
devices:
  gpu[0-7]: {part: h100-sxm5-80gb}
  nic0: {part: connectx-7-ndr}
  cpu0: {part: generic-server-cpu}
links:
  - {between: ["gpu[0-7]", cpu0], part: pcie5-x16}
  - {between: [nic0, cpu0], part: pcie5-x16}
"""
_TRAINING = """\
machine,model,phase,dtype,batch_per_gpu,n_gpus,step_time_s,trust,row_id
v100-pcie-32gb,resnet50,train,fp32,32,1,0.1,A,one
"""


def _of_two_h100(drawing: str) -> str:
    lines = drawing.replace("GA100 [A100 PCIe 80GB]", "GH100 [H100 SXM5 80GB]").splitlines(keepends=True)
    return "".join(line for line in lines if "-[01]-" not in line)


def lines() -> list[str]:
    """Return the lines once each, as words without their comment."""
    found = (shlex.split(line, comments=True) for document, line in commands() if document != "docs/first-gpu-run.md")
    told = {shlex.join(words[1:]): None for words in found if words[0] == "validate"}
    here = [line for line in told if not line.startswith(_ELSEWHERE)]
    return [line for line in here if not line.startswith("describe") or "--from" in line]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the lines name."""
    folder = tmp_path_factory.mktemp("files")
    rows = timed("ops.csv", operators(60), scattered(0.02))
    measured = {"ops.csv": rows, "training.csv": timed("training.csv", steps(("alexnet",)), constant(1.1))}
    for name in ("measured", "again", "long", "exchanges", "spread"):
        write(folder / name, measured)
    write(folder / "short", {"ops.csv": rows[:20]}, seconds=110.0)
    collectives = "machine,n_gpus,collective,bytes,time_s,trust\np3.16xlarge,8,all_reduce,1048576,0.0002,A\n"
    ops = (folder / "measured" / "ops.csv").read_text(encoding="utf-8").replace("nvidia-h200", "v100-pcie-32gb")
    texts = {
        "mine.yaml": _MINE,
        "collectives.csv": collectives,
        "measured/collectives.csv": collectives.replace("p3.16xlarge,8", "netns-100mbit,8"),
        "measured/netns-100mbit.yaml": _MINE,
        "ops.csv": ops,
        "training.csv": _TRAINING,
        "baselines.csv": "row_id,predictor,predicted_s\none,roofline,0.05\n",
        "all_reduce.log": as_log(_TIMES),
        "ib_write_bw.txt": " #bytes #iterations BW peak[Gb/sec] BW average[Gb/sec]\n 1048576 5000 90.0 90.0 0.01\n",
        "nvbandwidth.txt": "Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column)\n 0 12.0 12.1\n",
        "table.txt": as_log(_TIMES, collective="all-gather", header=False),
        "nvidia-smi-L.txt": LISTED.replace("A100-SXM4-40GB", "H100 80GB HBM3"),
        "lspci.txt": _of_two_h100(LSPCI),
        "ndv4-topo.xml": NCCL_XML,
        "nccl.log": LOG,
        "calibration.yaml": "schema_version: 1\ndevices:\n  v100-pcie-32gb: {compute: 1.02}\n",
    }
    tables.write_files(DOCUMENTS["docs/dumps.md"], folder)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "trace.json.gz").write_bytes(gzip.compress(json.dumps(document(two_steps(marked=False))).encode()))
    (folder / "validate").symlink_to(ROOT / "validate")
    return folder


@pytest.mark.parametrize("line", lines())
def test_a_line_of_validate_runs(line: str, files: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    shutil.copytree(files, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(tmp_path / "here")
    words = shlex.split(line)
    if "--calibration" in words:
        Path("mine.yaml").write_text(Path("calibration.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    for word, (name, text) in OTHERS.items():
        if word in line:
            Path(name).write_text(text, encoding="utf-8")
    if words[0] == "describe":
        Path("mine.yaml").unlink(missing_ok=True)  # an edited draft is kept
    if words[0] == "compare":
        words += ["--topology", TOPOLOGY]
    status = run_app(app, "validate", words)
    out, err = capsys.readouterr()
    assert status in ((0, 3) if words[0] == "check" else (0,)), err  # 3: slower than healthy machines are
    assert out or "--out" in words, PART
