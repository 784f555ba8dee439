"""``simulate --batch`` over several GPUs, strategies and machines: one command, one ranked answer."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from simulator.cli import run

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("answered_once")]

P3 = ["--topology", "p3.16xlarge"]
RESNET = ["--workload", "resnet50", "--batch", "64"]
KEYS = {
    *("topology", "strategy", "parallel", "device_count", "step_time_s", "throughput_per_s"),
    *("exposed_communication_s", "scaling_efficiency", "bottleneck", "memory", "trust"),
}
ALONE_KEYS = {  # keys of the document for a step on a single device
    *("schema_version", "topology", "workload", "device", "part", "samples", "sample", "tokens", "calibrated"),
    *("options", "step_time_s", "throughput_per_s", "parts_s", "busy_s", "host_s", "waiting_s", "bound"),
    *("model_flop", "peak_flops_per_s", "model_flop_utilisation", "parameter_count", "flop_by_format", "memory"),
    "trained_count",
    *(
        "kinds",
        "layers",
        "gradient_order",
        "alternatives",
        "remedies",
        "remedy_costs",
        "what_if",
        "trust",
        "simulation_events",
    ),
}
Capsys = pytest.CaptureFixture[str]


def said(capsys: Capsys, *arguments: str, status: int = 0) -> str:
    """Return the output, having checked the exit status and that standard error is empty."""
    assert run([*arguments, "--quiet"]) == status
    out, err = capsys.readouterr()
    assert err == ""
    return out


def document(capsys: Capsys, *arguments: str) -> dict[str, Any]:
    return json.loads(said(capsys, *arguments, "--json"))


def result(capsys: Capsys, *arguments: str) -> dict[str, Any]:
    """Return the only result."""
    (found,) = document(capsys, *arguments)["results"]
    return found


def table(out: str) -> list[list[str]]:
    """Return the rows of the comparison as lists of cells, without the heading and the lines between groups."""
    lines = out.split("\n\n")[1].splitlines()
    return [re.split(r"\s{2,}", line) for line in lines[1:] if "bare links" not in line]


def verdict(out: str) -> str:
    """Return the sentences below the title, in one line."""
    title, *lines = out.split("\n\n", maxsplit=1)[0].splitlines()
    return " ".join([*map(str.strip, lines)]) if lines else title


# -- one way on one machine --------------------------------------------------------------


def test_all_gpus_of_a_machine_take_part_by_ddp(capsys: Capsys) -> None:
    out = said(capsys, *P3, *RESNET, "-v")
    assert out.startswith("p3.16xlarge, 8 x v100-sxm2-16gb: training step of resnet50 (25.6 M parameters), ")
    assert "batch 64 x 8 devices, fp32, momentum, DDP\n" in out
    for words in (
        "8 GPUs do ",
        " times the work of one (80 % band ",
        " of the loss is waiting for its slowest rank; communication over NVLink costs ",
        " of the step (0 s; band not measured)",
        "\nslowest link  NVLink (gpu",
        "\nstreams ",
        "\ncommunication ",
    ):
        assert words in out
    assert "memory of each device: " in out
    found = result(capsys, *P3, *RESNET)
    assert (found["device_count"], found["strategy"], found["parallel"]) == (8, "nccl", "dp")
    assert found["samples"] == 8 * 64
    assert found["throughput_per_s"] == pytest.approx(8 * 64 / found["step_time_s"])
    assert found["scaling_efficiency"] == pytest.approx(found["alone_s"] / found["step_time_s"])
    assert 0.8 < found["scaling_efficiency"] < 1


def test_one_gpu_steps_as_before(capsys: Capsys) -> None:
    one = document(capsys, *P3, "--gpus", "1", *RESNET)
    named = document(capsys, *P3, "--device", "gpu0", *RESNET)
    single = document(capsys, "--topology", "p3.2xlarge", *RESNET)
    assert one == named
    assert set(one) >= ALONE_KEYS
    assert one["step_time_s"] == single["step_time_s"]
    assert one["kinds"] == single["kinds"]
    (found,) = one["results"]
    assert (found["device_count"], found["strategy"], found["parallel"], found["bottleneck"]) == (1, None, None, None)
    assert (found["exposed_communication_s"], found["scaling_efficiency"]) == (0, 1)
    out = said(capsys, *P3, "--gpus", "1", *RESNET)
    assert out.startswith("p3.16xlarge, gpu0 (v100-sxm2-16gb): training step of resnet50 ")
    for words in ("devices", "DDP", "efficiency", "exposed", "slowest link", "streams"):
        assert words not in out


def test_the_document_of_several_has_all_keys_and_as_one_device_sees_it(capsys: Capsys) -> None:
    found = document(capsys, *P3, *RESNET)
    assert set(found) == ALONE_KEYS | {"results", "unfit", "band", "outside", "evidence", "clock"}
    (only,) = found["results"]
    assert set(only) >= KEYS
    assert found["samples"] == 64
    assert found["step_time_s"] == only["step_time_s"]
    assert found["trust"] == only["trust"]
    assert set(only["bottleneck"]) == {"link", "bytes", "utilisation"}
    (memory,) = only["memory"]
    assert (memory["part"], memory["device_count"], memory["fits"]) == ("v100-sxm2-16gb", 8, True)
    assert set(only["streams"]) == {"host", "compute", "communication"}


def test_some_gpus(capsys: Capsys) -> None:
    four, two = (result(capsys, *P3, "--gpus", which, *RESNET) for which in ("4", "0,5"))
    assert (four["device_count"], two["device_count"]) == (4, 2)
    assert four["samples"] == 4 * 64


def test_a_batch_of_all_gpus_together(capsys: Capsys) -> None:
    resnet = ["--workload", "resnet50"]
    assert result(capsys, *P3, *resnet, "--global-batch", "512") == result(capsys, *P3, *RESNET)
    shared = result(capsys, *P3, *resnet, "--global-batch", "512", "--micro-batches", "2")
    assert shared == result(capsys, *P3, *resnet, "--batch", "32", "--micro-batches", "2")
    assert shared["samples"] == 512
    assert "batch 32 x 2 micro-batches x 8 devices" in said(
        capsys, *P3, *resnet, "--global-batch", "512", "--micro-batches", "2"
    )


def test_several_machines_of_a_kind(capsys: Capsys) -> None:
    one, two = (result(capsys, *P3, *nodes, *RESNET) for nodes in ((), ("--nodes", "2")))
    assert (two["topology"], two["device_count"]) == ("2 x p3.16xlarge", 16)
    assert two["scaling_efficiency"] < one["scaling_efficiency"]
    assert "nic" in two["bottleneck"]["link"]
    slow = result(capsys, *P3, "--nodes", "2", "--fabric", "ethernet-1g", *RESNET)
    assert slow["step_time_s"] > 5 * two["step_time_s"]
    assert document(capsys, *P3, "--nodes", "2", "--fabric", "ethernet-1g", *RESNET)["bound"] == "exchange"


def test_shards_need_less_memory(capsys: Capsys) -> None:
    gpt = [*P3, "--workload", "gpt2", "--batch", "1", "--seq-len", "128"]
    whole, sharded = result(capsys, *gpt), result(capsys, *gpt, "--parallel", "fsdp")
    assert (whole["parallel"], sharded["parallel"]) == ("dp", "fsdp")
    assert (whole["bucket_bytes"], sharded["bucket_bytes"]) == (25 * 2**20, None)
    memory, shard = whole["memory"][0], sharded["memory"][0]
    assert shard["optimizer_bytes"] == pytest.approx(memory["optimizer_bytes"] / 8, rel=1e-3)
    assert shard["total_bytes"] < 0.6 * memory["total_bytes"]
    assert ", FSDP\n" in said(capsys, *gpt, "--parallel", "fsdp")


def test_inference_exchanges_nothing(capsys: Capsys) -> None:
    inference = [*P3, *RESNET, "--mode", "inference"]
    found = result(capsys, *inference)
    assert (found["device_count"], found["strategy"], found["parallel"]) == (8, None, None)
    assert found["communication_s"] == 0
    out = said(capsys, *inference)
    assert "batch 64 x 8 devices, fp32\n" in out
    assert "exposed" not in out


# -- several ways ------------------------------------------------------------------------


def test_strategies_and_overlaps_are_ranked(capsys: Capsys) -> None:
    ways = ["--strategy", "ring,parameter-server", "--overlap", "none,bucket:25MiB"]
    out = said(capsys, *P3, *RESNET, *ways)
    names = [row[0] for row in table(out)][:4]
    # Servers can be run.  They update in place of the GPUs and need no buckets; without overlap the slower links show.
    assert names == ["parameter-server", "parameter-server without overlap", "ring", "ring without overlap"]
    found = document(capsys, *P3, *RESNET, *ways)
    rates = [each["throughput_per_s"] for each in found["results"]]
    assert rates == sorted(rates, reverse=True)
    assert [(each["strategy"], each["bucket_bytes"]) for each in found["results"]] == [
        *(("parameter-server", 25 * 2**20), ("ring", 25 * 2**20), ("ring", 0), ("parameter-server", 0))
    ]
    assert [each["is_bound"] for each in found["results"]] == [False, True, True, False]
    assert not any(each["counts_software"] for each in found["results"])
    assert found["step_time_s"] == found["results"][0]["step_time_s"]
    assert "parameter-server is faster, 1.06 times as fast as parameter-server without overlap (" in verdict(out)
    assert "lower bound of each schedule: bare links, without launches and protocols" in out


def test_all_strategies_with_bounds_below_what_software_does(capsys: Capsys) -> None:
    out = said(capsys, *P3, *RESNET, "--strategy", "all")
    lines = out.split("\n\n")[1].splitlines()
    assert lines[1].startswith("nccl ")
    assert lines[2] == "on the bare links: launches and protocols add to these times"
    assert lines[6] == "lower bound of each schedule: bare links, without launches and protocols"
    assert len(lines) == 1 + 1 + 1 + 3 + 1 + 9
    assert re.search("nccl is fast(er|est), 1", verdict(out))
    assert "\nparameter-server would need 1" in out  # less than nccl, as far as the links go
    assert "\nhierarchical does not fit: it needs several nodes, and all ranks are on one" in out
    found = document(capsys, *P3, *RESNET, "--strategy", "all")
    assert [each["strategy"] for each in found["results"] if each["counts_software"]] == ["nccl"]
    assert found["step_time_s"] == next(e["step_time_s"] for e in found["results"] if e["counts_software"])
    assert found["unfit"] == [
        {"strategy": "hierarchical", "reason": "it needs several nodes, and all ranks are on one"}
    ]


def test_the_verdict_of_bounds_is_about_bounds(capsys: Capsys) -> None:
    vgg = [*P3, "--workload", "vgg16", "--batch", "32", "--strategy", "ring", "--overlap", "none,bucket:25MiB"]
    pattern = r"ring has the lowest bound, and that of ring without overlap is 1\.\d+ times as high; both fit "
    assert re.search(pattern, verdict(said(capsys, *vgg)))


def test_what_is_equal_within_one_percent_is_said_to_be(capsys: Capsys) -> None:
    equal = said(capsys, *P3, *RESNET, "--parallel", "dp,fsdp")
    first, second = [row[0] for row in table(equal)]
    assert {first, second} == {"DDP", "FSDP"}
    assert re.search(
        rf"{first} and {second} are equal within the model's error of \d+ %: 0\.\d % apart", verdict(equal)
    )
    bounds = said(capsys, *P3, *RESNET, "--strategy", "ring,multi-ring")
    assert " have the same bound (equal within 1 %)" in verdict(bounds)
    apart = said(capsys, *P3, "--nodes", "2", *RESNET, "--overlap", "none,bucket:25MiB")
    waits = r"\(80 % band [^)]*\); both fit .* waits [\d.]+ ms \(\d+ %\) of its step for communication over 25 Gbit"
    assert re.search(rf"DDP is faster, 1\.\d+ times as fast as DDP without overlap {waits}", verdict(apart))


def test_a_way_that_does_not_fit_is_named_in_full(capsys: Capsys) -> None:
    found = document(capsys, *P3, *RESNET, "--parallel", "dp,fsdp", "--strategy", "tree,nccl")
    assert [each["strategy"] for each in found["unfit"]] == ["tree with FSDP"]
    assert {(each["strategy"], each["parallel"]) for each in found["results"]} == {
        *(("nccl", "dp"), ("nccl", "fsdp"), ("tree", "dp"))
    }


# -- several machines --------------------------------------------------------------------


def test_machines_are_ranked_in_one_table(capsys: Capsys) -> None:
    three = ["--topology", "p3.16xlarge,dgx-h100,dgx-a100-80gb", *RESNET]
    out = said(capsys, *three)
    assert out.startswith("training step of resnet50 (25.6 M parameters), batch 64 per device, ")
    rows = table(out)
    assert [row[0] for row in rows] == ["dgx-h100", "dgx-a100-80gb", "p3.16xlarge"]
    assert rows[0][1] == "8 x h100-sxm5-80gb"
    told = r"dgx-h100 is fastest, 1\.\d+ times as fast as dgx-a100-80gb \(80 % band .*; [\d.]+ times by peak FLOP/s\) "
    assert re.search(told, verdict(out))
    found = document(capsys, *three)
    assert [each["topology"] for each in found["results"]] == ["dgx-h100", "dgx-a100-80gb", "p3.16xlarge"]
    assert found["topology"] == "dgx-h100"
    assert all(set(each) >= KEYS for each in found["results"])


def test_machines_of_one_gpu_and_of_several_are_ranked_by_throughput(capsys: Capsys) -> None:
    two = ["--topology", "h200-sxm,p3.16xlarge", "--workload", "resnet50", "--batch", "8", "--strategy", "ring,nccl"]
    found = document(capsys, *two)["results"]
    assert [(each["topology"], each["device_count"]) for each in found].count(("h200-sxm", 1)) == 1
    assert [each["throughput_per_s"] for each in found] == sorted(
        (each["throughput_per_s"] for each in found), reverse=True
    )
    assert " on p3.16xlarge is faster, " in verdict(said(capsys, *two))


def test_a_trace_says_of_which_machine_it_is(tmp_path, capsys: Capsys) -> None:
    for workload in (["lenet", "--batch", "4"], ["bytes:1MB"]):
        words = ["--topology", "p3.16xlarge,dgx-h100", "--strategy", "ring,nccl", "--workload", *workload]
        assert run([*words, "--trace", str(tmp_path / "t.json")]) == 0
        (wrote,) = [line for line in capsys.readouterr().err.splitlines() if "wrote" in line]
        assert wrote.startswith(
            ("wrote the trace of nccl on dgx-h100 to ", "wrote the trace of nccl on p3.16xlarge to ")
        )


# -- files -------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [[], ["--strategy", "ring,nccl"], ["--nodes", "2", "--parallel", "fsdp"]])
def test_a_trace_has_the_exchange(more: list[str], tmp_path, capsys: Capsys) -> None:
    file = tmp_path / "step.json"
    assert run([*P3, *RESNET, *more, "--trace", str(file)]) == 0
    of = " of nccl" if "--strategy" in more else ""  # ring is a bound, whatever its time
    *warned, wrote = capsys.readouterr().err.splitlines()
    assert wrote == f"wrote the trace{of} to {file}"
    flows = "warning: one TCP flow reaches 625 MB/s of an adapter's 3.125 GB/s, and several are simulated; "
    assert [line[: len(flows)] for line in warned] == ([flows] if "--nodes" in more else [])
    events = json.loads(file.read_text())["traceEvents"]
    threads = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"host", "compute", "communication"} <= threads
    told = [event["args"] for event in events if "micro-batch" in event.get("args", {})]
    assert told
    assert all(event["bytes"] > 0 for event in told)
    assert any(event["ph"] == "C" for event in events)  # rates of links


@pytest.mark.parametrize("more", [[], ["--strategy", "ring,nccl,gpu0"]])
@pytest.mark.parametrize(("kind", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_a_figure(kind: str, magic: bytes, more: list[str], tmp_path, capsys: Capsys) -> None:
    files = [tmp_path / f"{name}.{kind}" for name in ("first", "second")]
    for file in files:
        assert run([*P3, *RESNET, *more, "--plot", str(file)]) == 0
        assert capsys.readouterr().err == f"wrote the plot to {file}\n"
    first, second = (file.read_bytes() for file in files)
    assert first.startswith(magic)
    assert first == second
    if kind == "svg":
        text = first.decode()
        several = ("ring (bound)", ">gpu0<", "waiting for an exchange")
        for words in several if more else ("what the streams of gpu0 do", "communication", "DDP"):
            assert words in text
        assert ("is fast" in text) == bool(more)  # only what can be run is compared


# -- mistakes ----------------------------------------------------------------------------

STEP = [*P3, *RESNET]
WHOLE = [*P3, "--workload", "resnet50"]
NO_TREE = "a tree carries whole buffers and cannot do all-gather; ring can"
MISTAKES = {
    "unknown strategy among several": (
        [*STEP, "--strategy", "ring,rign,nccl"],
        "--strategy: no strategy is called 'rign'; did you mean 'ring'? (simulate strategies)",
    ),
    "no such overlap": (
        [*STEP, "--overlap", "non"],
        "--overlap non: no such choice; did you mean 'none'?",
    ),
    "no such overlap at all": (
        [*STEP, "--overlap", "none,always"],
        "--overlap always: no such choice; allowed: bucket:25MiB, none",
    ),
    "a bucket without a unit": (
        [*STEP, "--overlap", "bucket:25"],
        '--overlap bucket:25: size needs a unit, for example "160 MB"; got the bare number 25',
    ),
    "an overlap is missing": (
        [*STEP, "--overlap", "none,"],
        "--overlap none,: a name is missing; write for example none,bucket:25MiB",
    ),
    "a global batch that is not shared evenly": (
        [*WHOLE, "--global-batch", "100"],
        "--global-batch 100: 8 devices do not share it evenly; 96 and 104 would do",
    ),
    "a global batch that micro-batches do not share evenly": (
        [*WHOLE, "--global-batch", "40", "--micro-batches", "2"],
        "--global-batch 40: 8 devices x 2 micro-batches do not share it evenly; 32 and 48 would do",
    ),
    "a global batch of too little": (
        [*WHOLE, "--global-batch", "3"],
        "--global-batch 3: 8 devices do not share it evenly; 8 would do",
    ),
    "both batches": (
        [*STEP, "--global-batch", "512"],
        "--batch: --global-batch says it already; give one of the two",
    ),
    "GPUs and a device": (
        [*STEP, "--gpus", "2", "--device", "gpu0"],
        "--gpus: --device says it already; give one of the two",
    ),
    "no such parallelism": (
        [*STEP, "--parallel", "dp,fsd"],
        "--parallel fsd: 'fsd' is none of its items; did you mean 'fsdp'?",
    ),
    "an overlap of shards": (
        [*STEP, "--parallel", "fsdp", "--overlap", "none"],
        "--overlap: is for --parallel dp; shards are gathered one unit ahead",
    ),
    "gathering of replicas": ([*STEP, "--no-prefetch"], "--no-prefetch: is for --parallel fsdp, or zero=1 or 2"),
    "a strategy for one": (
        [*STEP, "--gpus", "1", "--strategy", "ring"],
        "--strategy: is about an exchange, and one device steps alone",
    ),
    "a strategy for inference": (
        [*STEP, "--mode", "inference", "--strategy", "ring"],
        "--strategy: is about an exchange, and --mode inference has none",
    ),
    "a division for inference": (
        [*STEP, "--mode", "inference", "--parallel", "fsdp"],
        "--parallel: --mode inference is that of one device; --mode forward divides a network over several",
    ),
    "threads of GPUs": ([*STEP, "--threads", "4"], "--threads: applies to a CPU; 8 GPUs take part"),
    "a strategy that does not fit": (
        [*STEP, "--strategy", "hierarchical"],
        "--strategy hierarchical does not fit: it needs several nodes, and all ranks are on one",
    ),
    "a strategy that does not fit shards": (
        [*STEP, "--strategy", "tree", "--parallel", "fsdp"],
        f"--strategy tree with FSDP does not fit: {NO_TREE}",
    ),
    "too many GPUs": ([*STEP, "--gpus", "9"], "--gpus 9: p3.16xlarge has 8 GPUs"),
    "GPUs of a machine without": (
        ["--topology", "cpu-i7-3820", *RESNET, "--gpus", "2"],
        "--gpus: cpu-i7-3820 has no GPU; its CPU takes part",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line(name: str, capsys: Capsys) -> None:
    arguments, message = MISTAKES[name]
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"simulate: {message}\n")


def test_every_mistake_of_a_list_is_told(capsys: Capsys) -> None:
    assert run([*STEP, "--strategy", "ring,rign,tre", "--overlap", "no", "--parallel", "tp"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1].strip(":") for line in lines] == ["--strategy", "--strategy", "--parallel", "--overlap"]


def test_what_does_not_fit_into_memory_is_shown_and_then_one_line(capsys: Capsys) -> None:
    gpt = [*P3, "--workload", "gpt2", "--batch", "64"]
    assert run(gpt) == 1
    out, err = capsys.readouterr()
    assert "more than a GPU has" in " ".join(out.split())
    assert err.startswith("simulate: out of memory: gpt2 at batch 64 needs ")
    assert err.count("\n") == 1
    (batch,) = re.findall(r"what would fit: .*--batch (\d+) or ", err)
    assert run([*gpt[:-1], batch, "--quiet"]) == 0
    assert run([*gpt[:-1], str(int(batch) + 1), "--quiet"]) == 1
    capsys.readouterr()


def test_shards_are_offered_where_replicas_do_not_fit(capsys: Capsys) -> None:
    large = ["--topology", "dgx-h100", "--workload", "llama3-8b", "--batch", "1", "--seq-len", "128", "--quiet"]
    assert run(large) == 1
    assert "what would fit: --parallel fsdp or " in capsys.readouterr().err
    assert run([*large, "--parallel", "fsdp"]) == 0
    capsys.readouterr()
    assert run([*large, "--parallel", "dp,fsdp"]) == 0  # one of the two can be run
    out, err = capsys.readouterr()
    assert [row[0] for row in table(out)][:2] == ["FSDP", "DDP"]
    assert table(out)[1][1:4] == ["-", "-", "-"]  # what does not fit takes no time
    assert "FSDP takes " in verdict(out)
    assert "DDP does not fit: needs 194 GB, 108 GB more than a GPU has, 79.6 GiB (85.5 GB)" in verdict(out)
    assert "next: make it fit on dgx-h100:\nsimulate " in out
    assert err == ""


@pytest.mark.parametrize("step", [["--workload", "resnet18", "--batch", "2"], ["--workload", "bytes:1MB"]])
def test_a_version_that_nobody_would_read_is_refused(step: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--topology", "p3.16xlarge", *step, "--strategy", "ring", "--nccl", "2.18"]) == 2
    assert capsys.readouterr().err == "simulate: --nccl: is NCCL's; --strategy nccl reads it\n"
