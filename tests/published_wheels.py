"""Small wheels of the layout of aiconfigurator, with made-up times."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

DATA = "aiconfigurator/systems/data"
GEMM = "framework,version,device,op_name,kernel_source,gemm_dtype,m,n,k,latency"
ATTENTION = (
    "framework,version,device,op_name,kernel_source,batch_size,isl,num_heads,num_key_value_heads,head_dim,"
    "window_size,beam_width,attn_dtype,kv_cache_dtype,step,latency"
)
NCCL = "framework,version,device,op_name,kernel_source,nccl_dtype,num_gpus,message_size,latency"


def gemm(rows: Iterable[tuple[object, ...]]) -> str:
    """Return a table of products of rows (dtype, m, n, k, milliseconds)."""
    return "\n".join([GEMM, *(f"X,1,NVIDIA,gemm,x,{','.join(map(str, row))}" for row in rows)]) + "\n"


def attention(rows: Iterable[tuple[object, ...]]) -> str:
    """Return a table of attention of rows (batch, length, heads, kv heads, size, window, beams, q, kv, step, ms)."""
    return "\n".join([ATTENTION, *(f"X,1,NVIDIA,context,x,{','.join(map(str, row))}" for row in rows)]) + "\n"


def nccl(rows: Iterable[tuple[object, ...]]) -> str:
    """Return a table of collectives of rows (name, dtype, GPUs, elements, milliseconds)."""
    lines = [f"X,2.99.1,NVIDIA,{name},NCCL,{','.join(map(str, rest))}" for name, *rest in rows]
    return "\n".join([NCCL, *lines]) + "\n"


def wheel(path: Path, files: Mapping[str, str | bytes]) -> str:
    """Write the wheel *path* with *files* by what follows ``systems/data/``; return its name."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("aiconfigurator/__init__.py", "")
        archive.writestr("aiconfigurator-9.dist-info/METADATA", "Name: aiconfigurator\n")
        for name, content in files.items():
            archive.writestr(f"{DATA}/{name}", content)
    return str(path)


def unpacked(path: Path, files: Mapping[str, str]) -> str:
    """Write the same as a folder."""
    for name, content in files.items():
        file = path / DATA / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return str(path)
