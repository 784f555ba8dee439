"""A profiler's trace compared with the predicted step: read in bounded memory, classified, compared."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from simulator.errors import InputError
from validate.cli import main
from validate.compare.trace import compare_traces
from validate.importing import kineto
from validate.importing.kineto import CLASSES, class_of_kernel, class_of_operator, read_trace

STEP = ("--topology", "p3.2xlarge", "--workload", "resnet18", "--batch", "8")


def event(
    category: str, name: str, start_us: float, time_us: float, pid: int = 0, tid: int = 7, **told: Any
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": start_us,
        "dur": time_us,
        "args": told,
    }


def cuda_step(start_us: float) -> list[dict[str, Any]]:
    """Return a step in Kineto's format: computation, a copy, and an all-reduce that is half hidden."""
    told = {"External id": 12, "device": 0, "context": 1, "stream": 7, "correlation": 34, "grid": [1, 1, 1]}
    return [
        event("cpu_op", "aten::linear", start_us - 50.0, 20.0, pid=900, tid=900),
        event("cuda_runtime", "cudaLaunchKernel", start_us - 40.0, 5.0, pid=900, tid=900),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", start_us, 10.0, **told),
        event("kernel", "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn", start_us + 10.0, 40.0, **told),
        event("kernel", "void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", start_us + 50.0, 30.0, **told),
        event("kernel", "void at::native::vectorized_elementwise_kernel<4>", start_us + 80.0, 20.0, **told),
        event(
            "kernel",
            "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            start_us + 90.0,
            20.0,
            tid=20,
        ),
        event(
            "kernel", "void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor>", start_us + 115.0, 5.0, **told
        ),
    ]


def document(events: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    device = {"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42} | more
    return {
        "schemaVersion": 1,
        "deviceProperties": [device],
        "displayTimeUnit": "ms",
        "traceEvents": events,
        "traceName": "t",
    }


def written(tmp_path: Path, content: object, name: str = "t.json") -> str:
    path = tmp_path / name
    text = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return str(path)


def two_steps(*, marked: bool = True) -> list[dict[str, Any]]:
    marks = (
        [event("gpu_user_annotation", f"ProfilerStep#{i}", 1000.0 + 125.0 * i, 125.0) for i in range(2)]
        if marked
        else []
    )
    outside = event("kernel", "sgemm_of_the_warm_up", 100.0, 500.0)
    return [*marks, *([outside] if marked else []), *cuda_step(1000.0), *cuda_step(1125.0)]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ampere_sgemm_128x64_tn", "product"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu>", "product"),
        ("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT", "product"),
        ("Cijk_Ailk_Bljk_HHS_BH_MT128x128x32", "product"),
        ("void cudnn::cnn::conv2d_grouped_direct_kernel", "convolution"),
        ("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32", "convolution"),
        ("cudnn_infer_volta_scudnn_winograd_128x128_ldg1", "convolution"),
        ("volta_scudnn_128x64_relu_small_nn_v1", "convolution"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW", "elementwise"),
        ("void at::native::vectorized_layer_norm_kernel", "elementwise"),
        ("fmha_cutlassF_f16_aligned_64x64_rf_sm80", "attention"),
        ("pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "attention"),
        ("void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>>", "optimizer"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t", "collective"),
        ("Memcpy DtoD (Device -> Device)", "copy"),
        ("triton_poi_fused_gelu_3", "elementwise"),
        ("triton_poi_fused_convolution_relu_5", "elementwise"),
        ("triton_per_fused__scaled_dot_product_flash_attention_7", "elementwise"),
        ("triton_tem_fused_addmm_12", "product"),
        ("triton_tem_fused_convolution_2", "convolution"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3", "attention"),
        ("void at::native::unrolled_elementwise_kernel<convert_to_bf16>", "elementwise"),
        ("igemm_wrw_gtcx2_nhwc_fp16_bx0_ex1_bt128x128x32", "convolution"),
        ("__amd_rocclr_copyBuffer", "copy"),
        ("__amd_rocclr_fillBufferAligned.kd", "copy"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "collective"),
        ("ncclBroadcastRingLLKernel_copy_i8(ncclColl)", "collective"),
        ("void at::native::one_shot_all_reduce_kernel<float, 16>", "collective"),
    ],
)
def test_a_kernel_s_name_says_its_class(name, kind) -> None:
    assert class_of_kernel(name) == kind


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::addmm", "product"), ("aten::mkldnn_convolution", "convolution"),
        ("aten::convolution_backward", "convolution"),
        ("aten::native_batch_norm", "elementwise"), ("aten::copy_", "copy"), ("aten::_foreach_add_", "optimizer"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "attention"), ("aten::add", "elementwise"),
    ],
)  # fmt: skip
def test_an_operator_s_name_says_its_class(name, kind) -> None:
    assert class_of_operator(name) == kind


def test_a_trace_is_compared_step_by_step(tmp_path) -> None:
    trace = read_trace(written(tmp_path, document(two_steps())))
    assert (trace.device, trace.devices, trace.on_host) == ("NVIDIA A100-SXM4-40GB", 1, False)
    found = compare_traces(trace, trace.__class__("p", trace.kernels, trace.names, []))
    assert found.steps == 2
    seen = found.measured
    assert (seen.step_s, seen.busy_s, seen.exposed_s, seen.idle_s) == pytest.approx((125e-6, 115e-6, 10e-6, 10e-6))
    measured = {each.kind: (each.measured_s, each.measured) for each in found.classes}
    assert measured == {
        "product": pytest.approx((40e-6, 1.0)), "attention": pytest.approx((30e-6, 1.0)),
        "elementwise": pytest.approx((20e-6, 1.0)), "optimizer": pytest.approx((5e-6, 1.0)),
        "copy": pytest.approx((10e-6, 1.0)), "collective": pytest.approx((20e-6, 1.0)),
    }  # fmt: skip


def early_step(start_us: float, launch: int) -> list[dict[str, Any]]:
    """Return a step in Kineto's format of 2021: capitalised categories, the step as an operator, streams by name."""
    return [
        event("Operator", f"ProfilerStep#{launch}", start_us, 200.0, pid=900, tid=900),
        event("Operator", "aten::conv2d", start_us + 5.0, 60.0, pid=900, tid=900),
        event("Runtime", "cudaMemcpyAsync", start_us + 10.0, 5.0, pid=900, tid=900, correlation=launch),
        event("Runtime", "cudaLaunchKernel", start_us + 20.0, 5.0, pid=900, tid=900, correlation=launch + 1),
        event("Memcpy", "Memcpy HtoD (Pageable -> Device)", start_us + 100.0, 50.0, correlation=launch, stream=7),
        event("Kernel", "volta_sgemm_128x32_nt", start_us + 150.0, 120.0, correlation=launch + 1, stream=7),
    ]


def test_a_device_runs_steps_after_the_host_has_issued_them(tmp_path) -> None:
    """Host steps take 200 us each, and their kernels end 270 us after the step begins: the device's steps follow."""
    early = event("Kernel", "gemm_of_the_step_before", 1020.0, 30.0, correlation=7)
    head = {"schemaVersion": 1, "computeProperties": [{"id": 0, "name": "Tesla V100-DGXS-32GB", "major": 7}]}
    trace = read_trace(
        written(tmp_path, head | {"traceEvents": [*early_step(1000.0, 10), early, *early_step(1200.0, 20)]})
    )
    assert (trace.device, trace.on_host) == ("Tesla V100-DGXS-32GB", False)
    assert [(end_s - start_s) for start_s, end_s in trace.steps] == pytest.approx([220e-6, 200e-6])
    found = compare_traces(trace, trace.__class__("p", trace.kernels, trace.names, []))
    measured = {each.kind: (each.measured_s, each.measured) for each in found.classes}
    assert measured == {"product": pytest.approx((120e-6, 1.0)), "copy": pytest.approx((50e-6, 1.0))}


def test_a_copy_hides_no_exchange(tmp_path) -> None:
    """As in Holistic Trace Analysis: only computing kernels overlap communication."""
    events = [
        event("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 0.0, 100.0, tid=20),
        event("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 10.0, 20.0),
        event("kernel", "gemm", 40.0, 30.0),
        event("python_function", "torch/nn/modules/module.py(1501): _call_impl", 0.0, 500.0, pid=900),
        {"ph": "s", "id": 5, "pid": 900, "tid": 900, "ts": 1.0, "cat": "ac2g", "name": "ac2g"},
        {"ph": "f", "id": 5, "pid": 0, "tid": 7, "ts": 40.0, "cat": "ac2g", "name": "ac2g", "bp": "e"},
        {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 900, "tid": 900, "ts": 3.0},
    ]
    trace = read_trace(written(tmp_path, document(events)))
    seen = compare_traces(trace, trace).measured
    assert (seen.step_s, seen.busy_s, seen.exposed_s) == pytest.approx((100e-6, 100e-6, 70e-6))


def test_kernels_of_a_graph_belong_to_the_step_that_launched_it(tmp_path) -> None:
    def graph(step: int) -> list[dict[str, Any]]:
        start_us, told = 1000.0 + 100.0 * step, {"correlation": 5 + step, "graph id": 3}
        return [
            event("user_annotation", f"ProfilerStep#{step}", start_us, 100.0, pid=900, tid=900),
            event("cuda_runtime", "cudaGraphLaunch", start_us + 5.0, 8.0, pid=900, tid=900, correlation=5 + step),
            *(event("kernel", "gemm", start_us + 90.0 + 20.0 * i, 20.0, **told) for i in range(4)),
        ]

    trace = read_trace(written(tmp_path, document([*graph(0), *graph(1)])))
    assert [(end_s - start_s) for start_s, end_s in trace.steps] == pytest.approx([170e-6, 100e-6])
    assert compare_traces(trace, trace).measured.busy_s == pytest.approx(80e-6)


def test_times_since_1970_keep_their_digits(tmp_path) -> None:
    """In a float, seconds since 1970 have no digits below 0.2 us; microseconds since the start have enough."""
    base = 1_698_438_996_456_480.0
    events = [event("kernel", "gemm", base + 2.5 * i, 1.25) for i in range(4)]
    trace = read_trace(written(tmp_path, document(events)))
    assert trace.kernels.start_s.tolist() == pytest.approx([2.5e-6 * i for i in range(4)], abs=1e-15)


def test_kernels_pair_up_in_order_where_there_are_as_many(tmp_path) -> None:
    def gemms(scale: float) -> list[dict[str, Any]]:
        return [event("kernel", f"gemm_{i}", 100.0 * i, scale * (10.0 + i)) for i in range(12)]

    mine = read_trace(written(tmp_path, document(gemms(1.0)), "a.json"))
    theirs = read_trace(
        written(tmp_path, document([*gemms(2.0)[:-1], event("kernel", "gemm_slow", 1100.0, 90.0)]), "b.json")
    )
    found = compare_traces(mine, theirs)
    assert [each.name for each in found.differences] == ["gemm_slow", *(f"gemm_{i}" for i in range(10, 1, -1))]
    assert found.differences[0].ran_as == "gemm_11"
    assert found.differences[0].measured_s == pytest.approx(21e-6)
    fewer = read_trace(written(tmp_path, document(gemms(1.0)[:5]), "c.json"))
    (whole,) = compare_traces(fewer, theirs).differences
    assert whole.name == "5 kernels, 12 predicted"


def test_kernels_of_one_operator_are_one(tmp_path) -> None:
    names = ["gemm_splitK", "void cublasLt::splitKreduce_kernel<32>", "flash_bwd_dot_do_o_kernel",
             "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "flash_bwd_convert_dq_kernel",
             "gemm", "elementwise"]  # fmt: skip
    times = [30.0, 5.0, 4.0, 50.0, 3.0, 20.0, 7.0]
    events = [event("kernel", name, 100.0 * i, time) for i, (name, time) in enumerate(zip(names, times, strict=True))]
    trace = read_trace(written(tmp_path, document(events)))
    assert trace.kernels.time_s.tolist() == pytest.approx([35e-6, 57e-6, 20e-6, 7e-6])
    assert [trace.names[i] for i in trace.kernels.name] == [names[0], names[3], names[5], names[6]]


def test_the_busiest_device_counts(tmp_path) -> None:
    events = [event("kernel", "gemm", 0.0, 10.0, pid=0), event("kernel", "gemm", 0.0, 30.0, pid=1)]
    found = compare_traces(*2 * (read_trace(written(tmp_path, document(events))),))
    assert found.measured.busy_s == pytest.approx(30e-6)
    assert any("2 devices; the busiest" in remark for remark in found.remarks)


def test_steps_that_are_not_marked_are_said(tmp_path) -> None:
    trace = read_trace(written(tmp_path, document(two_steps(marked=False))))
    one, two = compare_traces(trace, trace), compare_traces(trace, trace, 2)
    assert one.measured.busy_s == pytest.approx(2.0 * two.measured.busy_s)
    assert any("marks no steps" in remark for remark in one.remarks)
    assert two.remarks == ()
    marked = read_trace(written(tmp_path, document(two_steps())))
    with pytest.raises(InputError, match="marks 2 steps, where --steps says 3"):
        compare_traces(marked, trace, 3)


def test_what_runs_in_an_update_is_the_optimizer_s(tmp_path) -> None:
    events = [
        event("gpu_user_annotation", "Optimizer.step#SGD.step", 100.0, 50.0),
        event("kernel", "void at::native::vectorized_elementwise_kernel<4>", 10.0, 5.0),
        event("kernel", "void at::native::vectorized_elementwise_kernel<4>", 110.0, 5.0),
    ]
    trace = read_trace(written(tmp_path, document(events)))
    assert [CLASSES[kind] for kind in trace.kernels.kind] == ["elementwise", "optimizer"]


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.parametrize("bare", [False, True])
def test_forms_of_a_trace(tmp_path, name, bare, monkeypatch) -> None:
    monkeypatch.setattr(kineto, "_CHUNK", 37)  # events are split anywhere
    content = two_steps() if bare else document(two_steps())
    trace = read_trace(written(tmp_path, content, name))
    assert len(trace.kernels) == 13
    assert len(trace.steps) == 2


@pytest.mark.slow
def test_a_long_trace_takes_little_memory(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(kineto, "_CHUNK", 1 << 16)
    path = tmp_path / "long.json"
    line = json.dumps(event("cpu_op", "aten::add", 1.0, 1.0, Input="x" * 400))
    with path.open("w") as stream:
        stream.write('{"traceEvents": [' + json.dumps(event("kernel", "gemm", 0.0, 1.0)))
        for _ in range(15_000):
            stream.write(",\n" + line)
        stream.write("]}")
    tracemalloc.start()
    try:
        trace = read_trace(str(path))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(trace.kernels) == 1
    assert peak_bytes < 0.1 * path.stat().st_size


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello", r"t.json:1:1: is not a trace: neither an object with traceEvents nor a list"),
        ("{}", r"t.json:1:1: is not a trace: it has no list traceEvents"),
        ('{"traceEvents": [\n{"ph": "X", ]', r"t.json:2:\d+: is not valid JSON"),
        ('{"traceEvents": [\n{"ph": "M"},\n', r"t.json:3:1: ends within its list of events"),
        ('{"traceEvents": []}', r"t.json: holds no kernel and no operator"),
    ],
)
def test_what_is_no_trace_is_one_line(tmp_path, content, said) -> None:
    with pytest.raises(InputError, match=said) as told:
        read_trace(written(tmp_path, content))
    assert "\n" not in str(told.value)


def test_damage_is_told(tmp_path) -> None:
    path = Path(written(tmp_path, document(two_steps()), "t.json.gz"))
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"t.json.gz: cannot be read: is damaged"):
        read_trace(str(path))
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_trace(str(tmp_path / "none.json"))


def test_odd_events_are_passed_over(tmp_path) -> None:
    events: list[Any] = [
        {"ph": "X"}, {"ph": "X", "cat": "kernel", "name": 5, "ts": 1, "dur": 1},
        event("kernel", "gemm", "x", 1.0), event("kernel", "gemm", 1.0, -1.0), event("kernel", "gemm", True, 1.0),
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "ts": "1.5", "dur": 2},
        event("kernel", "\x1b[31m" * 90, 9.0, 1.0),
    ]  # fmt: skip
    trace = read_trace(written(tmp_path, document(events)))
    assert trace.kernels.start_s.tolist() == pytest.approx([0.0, 7.5e-6])
    assert all(name.isprintable() for name in trace.names)
    assert trace.left_out == 4


@pytest.mark.parametrize("pid", [[1], {"a": 1}, 1.5])
def test_a_kernel_without_a_place_is_counted(tmp_path, pid) -> None:
    events = [event("kernel", "gemm", 1.0, 1.0), {**event("kernel", "gemm", 3.0, 1.0), "pid": pid}]
    assert read_trace(written(tmp_path, document(events))).left_out == 1
    with pytest.raises(InputError, match=r"holds no kernel and no operator .*; 1 have no usable name, place, start"):
        read_trace(written(tmp_path, document(events[1:])))


@pytest.mark.parametrize("duration", ["NaN", "1e999", "-1", '"x"', "null", "1e300"])
def test_a_kernel_without_a_duration_is_counted_and_told(tmp_path, duration) -> None:
    text = json.dumps(document([event("kernel", "gemm", 10.0 * i, 1.0) for i in range(3)]))
    at = text.rindex('"dur": 1.0')
    path = tmp_path / "a.json"
    path.write_text(text[:at] + f'"dur": {duration}' + text[at + len('"dur": 1.0') :])
    trace = read_trace(str(path))
    assert (len(trace.kernels), trace.left_out) == (2, 1)
    told = "1 kernels without a usable name, place, start or duration are left out"
    assert told in compare_traces(trace, trace).remarks


def test_more_steps_than_kernels_are_refused(tmp_path) -> None:
    trace = read_trace(written(tmp_path, document([event("kernel", "gemm", 1.0, 1.0)])))
    with pytest.raises(InputError, match="holds 1 kernel, too few for --steps 1000"):
        compare_traces(trace, trace, 1000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"traceEvents":[' + "[" * 100_000, "is not valid JSON: it is nested too deep"),
        ('{"traceEvents":[{"ph":' + "9" * 5000 + "}]}", "is not valid JSON: Exceeds the limit"),
    ],
)
def test_deep_and_long_numbers_are_one_line(tmp_path, text, said) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InputError, match=said):
        read_trace(str(path))


def test_a_long_name_is_read_at_once(tmp_path) -> None:
    events = [event("kernel", word * 500_000, 1.0, 1.0) for word in ("miopen", "fmhabwd")]
    assert len(read_trace(written(tmp_path, document(events))).kernels) == 2


# -- the command -----------------------------------------------------------------------


def run(*arguments: str) -> object:
    with pytest.raises(SystemExit) as stopped:
        main(["trace", *arguments])
    return stopped.value.code


def test_a_predicted_step_is_as_predicted(tmp_path, capsys) -> None:
    from simulator.cli.output import captured

    drawn = tmp_path / "step.json"
    assert captured([*STEP, "--trace", str(drawn), "--quiet"]).status == 0
    assert run(str(drawn), *STEP, "--steps", "1", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    for each in found["classes"]:
        assert each["measured_s"] == pytest.approx(each["predicted_s"])
        assert each["measured"] == each["predicted"]
    assert {each["kind"] for each in found["classes"]} == {"convolution", "elementwise", "optimizer", "product"}
    assert found["measured"] == pytest.approx(found["predicted"], abs=1e-4)
    assert max(abs(each["measured_s"] - each["predicted_s"]) for each in found["differences"]) < 1e-9


def test_the_command_answers_in_80_columns(tmp_path, capsys) -> None:
    path = written(tmp_path, document(two_steps()))
    assert run(path, *STEP) == 0
    out = capsys.readouterr().out
    assert "a step takes 125 us (mean of 2 steps), predicted" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "the step is needed in simulate's words"),
        (("--topology", "p3.2xlarge", "--batch", "8", "--trace", "x"), "--trace: belongs to simulate's output"),
        (("--topology", "p3.2xlarge", "--workload", "resnet19", "--batch", "8"), "resnet19"),
        ((*STEP, "--steps", "x"), "--steps"),
        ((*STEP, "--steps", "0"), "--steps 0: "),
    ],
)
def test_what_the_command_lacks_is_told(tmp_path, capsys, words, said) -> None:
    assert run(written(tmp_path, document(two_steps())), *words) == 2
    assert said in capsys.readouterr().err


_PROFILED = """
import sys
import torch
from torch.profiler import ProfilerActivity, profile, schedule

net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten(),
    torch.nn.Linear(8 * 16 * 16, 10),
)
optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
images, labels = torch.randn(4, 3, 16, 16), torch.randint(0, 10, (4,))
with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=0, warmup=1, active=2),
    on_trace_ready=lambda p: p.export_chrome_trace(sys.argv[1]),
) as profiler:
    for _ in range(3):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()
        profiler.step()
"""


@pytest.mark.slow
def test_a_real_trace_of_torch_s_profiler(tmp_path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "real.json.gz"
    subprocess.run([sys.executable, "-c", _PROFILED, str(path)], check=True, capture_output=True, timeout=300)
    trace = read_trace(str(path))
    assert trace.on_host
    assert len(trace.steps) == 2
    found = compare_traces(trace, trace.__class__("p", trace.kernels, trace.names, []))
    seen = {each.kind: each for each in found.classes}
    assert {"convolution", "product", "elementwise", "optimizer"} <= set(seen)
    assert 0.0 < found.measured.busy_s <= found.measured.step_s
    assert sum(each.measured_s for each in found.classes) == pytest.approx(found.measured.busy_s)
