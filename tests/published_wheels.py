"""Small wheels in aiconfigurator's layout, with made-up times."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from simulator.console.run import run_app
from validate.cli import app

DATA = "aiconfigurator/systems/data"
GEMM = "framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency"
ATTENTION = (
    "framework,version,device,op_name,kernel_source,batch_size,isl,num_heads,num_key_value_heads,head_dim,"
    "window_size,beam_width,attn_dtype,kv_cache_dtype,step,latency"
)
NCCL = "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency"
SHAPES = [(1, 64, 64), (16, 4096, 4096), (8192, 8192, 8192)]
PLAIN = (0, 1, "float16", "float16", 0)


def gemm(rows: Iterable[tuple[object, ...]]) -> str:
    """Return a table of matrix products from rows of (dtype, m, n, k, milliseconds)."""
    return "\n".join([GEMM, *(f"X,1,NVIDIA,gemm,x,{','.join(map(str, row))}" for row in rows)]) + "\n"


def attention(rows: Iterable[tuple[object, ...]]) -> str:
    """Return an attention table from rows of (batch, length, heads, kv heads, size, window, beams, q, kv, step, ms)."""
    return "\n".join([ATTENTION, *(f"X,1,NVIDIA,context,x,{','.join(map(str, row))}" for row in rows)]) + "\n"


def nccl(rows: Iterable[tuple[object, ...]]) -> str:
    """Return a table of collectives from rows of (name, dtype, GPUs, elements, milliseconds)."""
    lines = [f"X,2.99.1,NVIDIA,{name},NCCL,{','.join(map(str, rest))}" for name, *rest in rows]
    return "\n".join([NCCL, *lines]) + "\n"


def wheel(path: Path, files: Mapping[str, str | bytes]) -> str:
    """Write the wheel *path* with *files*, named relative to ``systems/data/``; return its name."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("aiconfigurator/__init__.py", "")
        archive.writestr("aiconfigurator-9.dist-info/METADATA", "Name: aiconfigurator\n")
        for name, content in files.items():
            archive.writestr(f"{DATA}/{name}", content)
    return str(path)


def unpacked(path: Path, files: Mapping[str, str]) -> str:
    """Write the same files as a folder."""
    for name, content in files.items():
        file = path / DATA / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return str(path)


def products(dtype: str = "float16", factor: float = 1.0, shapes: Iterable[tuple[int, int, int]] = SHAPES) -> str:
    """Return a table of products of *shapes*: the i-th takes i times 10 us, multiplied by *factor*."""
    return gemm([(dtype, *shape, 0.01 * (i + 1) * factor) for i, shape in enumerate(shapes)])


def good_files() -> dict[str, str | bytes]:
    """Return tables of two devices, at least one of each kind."""
    return {
        "h200_sxm/sglang/0.5.9/gemm_perf.txt": products(),
        "h200_sxm/vllm/0.12.0/gemm_perf.txt": products(factor=1.2),
        "h200_sxm/vllm/0.12.0/context_attention_perf.txt": attention([(2, 512, 8, 2, 128, *PLAIN, 0.05)]),
        "h200_sxm/nccl/2.27/nccl_perf.txt": nccl([("alltoall", "half", 8, 1024, 0.02)]),
        "a100_sxm/sglang/0.5.9/gemm_perf.txt": products(),
    }


def run_import(capsys: Any, *arguments: object) -> tuple[int, str]:
    """Run ``validate import aiconfigurator``; return its exit status and its standard error."""
    status = run_app(app, "validate", ["import", "aiconfigurator", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert out == ""
    return status, err


def content(folder: Path) -> dict[str, bytes]:
    """Return the contents of all files under *folder*, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
