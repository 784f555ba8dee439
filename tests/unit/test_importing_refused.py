"""Files that cannot be imported are refused in one line and leave nothing behind."""

import io
from contextlib import redirect_stderr
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.console.run import run_app
from tests.published_wheels import ATTENTION, GEMM, NCCL, content, good_files, products, run_import, wheel
from validate.cli import app

pytestmark = pytest.mark.slow


def refused(capsys, tmp_path, *arguments):
    """Return the one-line reason, having checked that nothing was written."""
    status, err = run_import(capsys, *arguments, "--out", tmp_path / "out")
    assert status == 2
    assert err.count("\n") == 1, err
    assert content(tmp_path / "out") == {}
    return err


def test_no_zip_no_file_no_tables(capsys, tmp_path):
    text = tmp_path / "text.whl"
    text.write_text("no zip")
    assert "text.whl: is not a zip; a wheel or an unpacked folder is needed" in refused(capsys, tmp_path, text)
    assert "absent.whl: cannot be read: No such file" in refused(capsys, tmp_path, tmp_path / "absent.whl")
    assert "holds no file" in refused(capsys, tmp_path, wheel(tmp_path / "empty.whl", {}))
    (tmp_path / "folder").mkdir()
    assert "folder: holds no file" in refused(capsys, tmp_path, tmp_path / "folder")


def test_no_such_device_names_the_nearest(capsys, tmp_path):
    source = wheel(tmp_path / "a.whl", good_files())
    err = refused(capsys, tmp_path, source, "--device", "h200-smx")
    assert "--device: no measurements of 'h200-smx'" in err
    assert "did you mean 'h200-sxm'?" in err
    assert "did you mean 'h200-sxm'?" in refused(capsys, tmp_path, source, "--device", "h200")
    assert "no measurements of 'l40s'" in refused(capsys, tmp_path, source, "--device", "h200-sxm,l40s")


def test_a_missing_column_is_named_with_its_file(capsys, tmp_path):
    table = products().replace("gemm_dtype", "dtype")
    err = refused(capsys, tmp_path, wheel(tmp_path / "a.whl", {"h200_sxm/vllm/1.0/gemm_perf.txt": table}))
    told = "no table of measurements: missing column gemm_dtype; found: framework, version"
    assert f"a.whl/h200_sxm/vllm/1.0/gemm_perf.txt:1:1: {told}" in err


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("X,1,N,gemm,x,float16,16,64,6x4,0.01", "k is not a whole number: '6x4'"),
        ("X,1,N,gemm,x,float16,16,64,0.01", "9 fields where the header has 10"),
    ],
)
def test_a_wrong_row_is_named_with_its_line(capsys, tmp_path, row, said):
    files = {
        **good_files(),
        "l40s/vllm/1.0/gemm_perf.txt": f"{GEMM}\nX,1,N,gemm,x,float16,16,64,64,0.01\n{row}\n",
    }
    err = refused(capsys, tmp_path, wheel(tmp_path / "a.whl", files))
    assert f"gemm_perf.txt:3:1: {said}" in err


def test_a_damaged_wheel_is_refused(capsys, tmp_path):
    path = Path(wheel(tmp_path / "a.whl", good_files()))
    raw = bytearray(path.read_bytes())
    place = raw.find(b"float16")
    raw[place : place + 7] = b"float61"
    path.write_bytes(raw)
    assert "cannot be read: Bad CRC-32" in refused(capsys, tmp_path, path)


@given(
    st.sampled_from(["gemm", "context_attention", "generation_attention", "nccl"]),
    st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode)),
    st.booleans(),
)
def test_any_file_is_imported_or_refused(what, content, after_header):
    header = {"gemm": GEMM, "context_attention": ATTENTION, "generation_attention": ATTENTION, "nccl": NCCL}[what]
    text = f"{header}\n".encode() + content if after_header else content
    with TemporaryDirectory() as folder:
        files = {"h200_sxm/vllm/1.0/gemm_perf.txt": products(), f"h200_sxm/trtllm/1.0/{what}_perf.txt": text}
        source = wheel(Path(folder) / "a.whl", files)
        with redirect_stderr(io.StringIO()) as err:
            status = run_app(app, "validate", ["import", "aiconfigurator", source, "--out", f"{folder}/out"])
        assert status in (0, 2)
        assert "Traceback" not in err.getvalue()
        assert Path(folder, "out", "h200-sxm", "ops.csv").exists() is (status == 0)


@pytest.mark.parametrize("text", ["2/16", "0.1", "1/0", "1/", "x"])
def test_a_share_that_is_none(capsys, tmp_path, text):
    source = wheel(tmp_path / "a.whl", good_files())
    assert f"--sample: a share such as 1/16 is needed; got '{text}'" in refused(
        capsys, tmp_path, source, "--sample", text
    )


def test_what_cannot_be_written_leaves_nothing(capsys, tmp_path):
    source = wheel(tmp_path / "a.whl", good_files())
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "h200-sxm").write_text("in the way")
    status, err = run_import(capsys, source, "--out", tmp_path / "out")
    assert (status, err.count("\n")) == (2, 1)
    assert content(tmp_path / "out") == {"h200-sxm": b"in the way"}


def test_another_collection_and_no_folder(capsys, tmp_path):
    assert run_app(app, "validate", ["import", "aiconfigurater", "x", "--out", "y"]) == 2
    assert "did you mean 'aiconfigurator'?" in capsys.readouterr().err
    assert run_app(app, "validate", ["import", "aiconfigurator", "x"]) == 2
    assert "--out: a folder" in capsys.readouterr().err
