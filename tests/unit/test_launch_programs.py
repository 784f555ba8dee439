"""Launch lines of programs with settings of their own: nanoGPT and llm.c."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.cli.launch_line import with_launch
from simulator.cli.written import CommandOptions
from simulator.errors import InputError
from simulator.launch.launch import read_launch
from simulator.workload.find import find_network

NANO = "torchrun --standalone --nproc_per_node=8 train.py"
# As scripts/run_gpt2_124M.sh of llm.c has it.
LLM_C = (
    'mpirun -np 8 ./train_gpt2cu -i "d/train_*.bin" -j "d/val_*.bin" -o log -v 250 -s 20000 -g 144 -h 1 -b 64 -t 1024 '
    '-d 524288 -r 0 -z 1 -c 0.1 -l 0.0006 -q 0.0 -u 700 -n 5000 -y 1 -e "d12"'
)


def parameters(line: str) -> int:
    found = read_launch(line)
    length = int(str(found.options["seq_len"]))
    return find_network("gpt2", sequence_length=length, settings=found.sizes).build(1).parameter_count


def test_nanogpts_own_file_is_its_defaults() -> None:
    found = read_launch(f"{NANO} config/train_gpt2.py --wandb_log=True")
    assert found.options == {
        "workload": "gpt2", "gpus": "8", "parallel": "dp=8", "precision": "amp-bf16", "compiled": True,
        "optimizer": "adam", "fused_optimizer": True, "seq_len": "1024", "micro_batch": "12", "global_batch": "480",
    }  # fmt: skip
    assert found.sizes["gelu"] == "fused"
    assert [note.partition(":")[0] for note in found.notes] == ["config/train_gpt2.py", "--bias=False"]
    assert parameters(f"{NANO} config/train_gpt2.py") == pytest.approx(124.4e6, rel=1e-3)  # and biases


def test_nanogpts_files_and_arguments_count_in_turn(tmp_path: Path) -> None:
    file = tmp_path / "config" / "mine.py"
    file.parent.mkdir()
    file.write_text(
        "import time\nn_layer = 24 # blocks\nn_head, x = 1, 2\nn_embd = 1024\nsteps = 5\n"
        "gradient_accumulation_steps = steps * 16\nout_dir = 'out' + str(time.time())\ncompile = False\n"
    )
    found = read_launch(f"{NANO} {file} --n_head=16 --batch_size=4 --dtype=float16 --bias=True --dropout=0.1")
    assert (found.sizes["layers"], found.sizes["heads"], found.sizes["hidden"]) == (24, 16, 1024)
    assert (found.sizes["dropout"], found.options["precision"]) == (1, "amp-fp16")
    assert found.options["global_batch"] == str(4 * 80)
    assert "compiled" not in found.options
    assert found.notes == []
    file.write_text("n_layer = len('ab')\n")
    with pytest.raises(InputError, match=r"mine\.py:1:1: n_layer: len\('ab'\) is known only as the file runs"):
        read_launch(f"{NANO} {file}")
    file.write_text("n_layer = (\n")
    with pytest.raises(InputError, match=r"mine\.py:1:1: is not Python"):
        read_launch(f"{NANO} {file}")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (f"{NANO} config/mine.py --n_layer=3", "config/mine.py: "),
        (f"{NANO} --gradient_accumulation_steps=12 --n_layer=3", "12 is no multiple of 8 processes"),
        (f"{NANO} --n_layer=three", "--n-layer: three is not a whole number"),
        (f"{NANO} --n_layer=3 --init_from=resume", "sizes of a checkpoint are not read"),
        (f"{NANO} --n_layer=3 --dtype=int8", "--dtype: int8 is not known"),
        (LLM_C.replace("524288", "524287"), "524287 tokens is no multiple of 64 x 1024 x 8 processes"),
        (LLM_C.replace('"d12"', "d13"), "-e: d13: sizes of a checkpoint are not read; did you mean 'd12'"),
        (LLM_C.replace("-t 1024", "-t 2048").replace("524288", "-1"), "-t: 2048 is longer than the 1024 positions"),
    ],
)
def test_what_cannot_be_read_is_refused(line: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        read_launch(line)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_one_process_of_nanogpt_is_one_gpu() -> None:
    found = read_launch("python train.py config/train_shakespeare_char.py")
    assert (found.options["gpus"], found.options["global_batch"]) == ("1", "64")
    assert "parallel" not in found.options
    assert found.sizes["vocabulary"] == 65
    assert read_launch("python train.py config/finetune_shakespeare.py").sizes["layers"] == 48


def test_a_line_of_llm_c() -> None:
    found = read_launch(LLM_C)
    assert found.options == {
        "workload": "gpt2", "parallel": "dp=8,zero=1", "overlap": f"bucket:{12 * 768 * 768 * 2}B", "prefetch": False,
        "precision": "master-bf16", "cuda_graph": True, "optimizer": "adam", "fused_optimizer": True,
        "seq_len": "1024", "micro_batch": "64", "global_batch": "512",
    }  # fmt: skip
    (note,) = found.notes
    assert note.startswith("llm.c: simulated with cuDNN's attention")
    assert parameters(LLM_C) == 124_475_904  # as it prints
    accumulated = read_launch(LLM_C.replace("-b 64", "-b 16"))
    assert (accumulated.options["micro_batch"], accumulated.options["global_batch"]) == ("16", "512")
    assert with_launch(CommandOptions(launch=LLM_C, topology="p4d.24xlarge"))[0].nodes is None
    assert (
        with_launch(
            CommandOptions(launch=LLM_C.replace("8 .", "16 .").replace("524288", "-1"), topology="p4d.24xlarge")
        )[0].nodes
        == "2"
    )


@pytest.mark.parametrize(
    ("flags", "name", "value"),
    [
        ("-e gpt3:c2048 -t 2048", "layers", 24),
        ("-e gpt2_774M_bf16.bin", "layers", 36),
        ("-e d48", "hidden", 1600),
        ("-w 0", "precision", "bf16"),
        ("-pn 16", "parallel", "dp=16"),
    ],
)
def test_flags_of_llm_c(flags: str, name: str, value: object) -> None:
    found = read_launch(f"./train_gpt2cu {flags}")
    assert {**found.options, **found.sizes}[name] == value


@pytest.mark.parametrize(
    ("flags", "told"),
    [("-r 2", "-r 2: is not modelled"), ("-z 2", "-z 2: llm.c has stages 0 and 1"), ("-ge 1", "-ge 1: is")],
)
def test_what_llm_c_does_and_is_not_simulated_is_told(flags: str, told: str) -> None:
    assert any(note.startswith(told) for note in read_launch(f"{LLM_C} {flags}").notes)


PUBLIC: list[tuple[str, dict[str, object]]] = [
    (
        "srun -n 8 python train.py --model gpt2 --batch_size 4 --block_size 512",
        {"global_batch": "32", "seq_len": "512"},
    ),
    ("nohup torchrun --nproc_per_node=8 train.py --model resnet50 --batch-size 32 > log 2>&1 &", {"micro_batch": "32"}),
    ("torchrun train.py --model resnet50 -b 8 --opt lamb", {"optimizer": "lamb"}),
    ("torchrun train.py --model resnet50 -b 8 --optimizer fusedadam", {"optimizer": "adam", "fused_optimizer": True}),
    ("torchrun train.py --model gpt2 -b 8 --opt AdamW8bit", {"optimizer": "adam-8bit"}),
    (
        "tune run --nproc_per_node 4 full_finetune_distributed --model gpt2 --batch_size 2",
        {"gpus": "4", "parallel": "dp=4,fsdp"},
    ),
    (
        "torchrun --nproc_per_node=8 train.py /imagenet --model resnet50 -b 192 --sched cosine --lr 0.05 --amp",
        {"parallel": "dp=8", "global_batch": "1536", "precision": "amp-fp16"},
    ),
    (
        (
            "torchrun --nproc_per_node=8 train.py --model resnet50 --batch-size 128 --train-crop-size 176 "
            "--mixup-alpha 0.2"
        ),
        {"image": "176", "micro_batch": "128"},
    ),
    (
        "python main.py -a resnet50 --dist-backend nccl --multiprocessing-distributed --world-size 1 -b 256 /data",
        {"workload": "resnet50", "global_batch": "256", "micro_batch": "32"},
    ),
    (
        (
            "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path gpt2 --block_size 512 "
            "--per_device_train_batch_size 8"
        ),
        {"seq_len": "512"},
    ),
    (
        (
            "torchrun --nproc_per_node 4 train.py --model_name_or_path meta-llama/Llama-2-7b-hf --bf16 True "
            "--per_device_train_batch_size 4 --fsdp 'full_shard auto_wrap'"
        ),
        {"workload": "llama2-7b"},
    ),
    (
        (
            "torchrun --nproc_per_node 4 x.py --model_name_or_path google/vit-base-patch16-224-in21k --tf32 True "
            "--per_device_train_batch_size 4"
        ),
        {"workload": "vit-b16", "precision": "tf32"},
    ),
    (
        (
            "torchrun --nproc_per_node 4 x.py --model_name meta-llama/Meta-Llama-3-8B-Instruct "
            "--batch_size_training 2 --enable_fsdp --pure_bf16"
        ),
        {"workload": "llama3-8b", "parallel": "dp=4,fsdp", "precision": "bf16"},
    ),
    (
        (
            "python train.py --model gpt2 --devices 4 --num_nodes 2 --strategy deepspeed_stage_2 --batch_size 3 "
            "--precision bf16-mixed"
        ),
        {"nodes": "2", "parallel": "dp=8,zero=2", "precision": "amp-bf16"},
    ),
    (
        "python train.py --model gpt2 --gpus 0,1 --strategy ddp --batch_size 3",
        {"gpus": "2", "parallel": "dp=2"},
    ),
    (
        "mpirun -np 8 -H localhost:8 python tf_cnn_benchmarks.py --model resnet101 --batch_size 64",
        {"framework": "tensorflow", "global_batch": "512"},
    ),
    (
        (
            "deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 "
            "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 16 --fp16 "
            "--vocab-size 128 --deepspeed --deepspeed_config {ds} --deepspeed-activation-checkpointing"
        ),
        {"recompute": True, "overlap": "bucket:1000MB", "prefetch": False, "parallel": "dp=8,zero=2"},
    ),
    (
        (
            "deepspeed --num_gpus 8 main.py --model_name_or_path facebook/opt-1.3b --per_device_train_batch_size "
            "8 --zero_stage 2 --deepspeed --max_seq_len 512"
        ),
        {"seq_len": "512", "overlap": "none"},
    ),
]


def test_one_expert_is_a_dense_network() -> None:
    line = (
        "deepspeed --num_gpus 8 pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 2 --fp16 "
        "--seq-length 64 --max-position-embeddings 64 --micro-batch-size 2 --vocab-size 128 --num-experts 1 "
        "--moe-expert-parallel-size 1 --moe-loss-coeff 0.01 --moe-min-capacity 4"
    )
    found = read_launch(line)
    assert (found.options["workload"], found.options["parallel"]) == ("gpt", "dp=8")
    assert not any("without effect" in note for note in found.notes)


@pytest.mark.parametrize(("line", "options"), PUBLIC)
def test_lines_as_public_projects_write_them(line: str, options: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 2, "overlap_comm": true}, "fp16": {"enabled": true}}')
    found = read_launch(line.replace("{ds}", str(path)), 8).options
    assert {name: found.get(name) for name in options} == options


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("python run_clm.py --model_name_or_path gpt2 --per_device_train_batch_size 8", "the line starts one process"),
        ("torchrun train.py --model gpt2 --batch_size 3", "the line names no length of sequences: 1024 tokens"),
        ("torchrun train.py --model gpt2 --batch_size 3 --precision 8-odd", "--precision 8-odd: is not known"),
        ("torchrun train.py --model gpt2 --batch_size 3 --config x.yaml", "not read, and without effect: x.yaml"),
        ("torchrun train.py --model gpt2 --batch_size 3 model.depth=4", "without effect: model.depth=4"),
        ("torchrun train.py model.depth=4 --model gpt2 --batch_size 3", "without effect: model.depth=4"),
        ("accelerate launch --quux 3 train.py --model gpt2 --batch_size 3", "not known, and without effect: --quux"),
        ("torchrun train.py --model gpt2 --config-name=x a.b=4 --batch_size 3", "without effect: --config-name, a.b=4"),
        ("./train.sh 4 --model gpt2 --batch_size 3", "not read, and without effect: ./train.sh"),
        ("torchrun train.py --model gpt2 --batch_size 3 --opt lion", "--optimizer lion: is not known"),
        ("torchrun train.py --model gpt2 --batch_size 3 -q 4", "not known, and without effect: -q"),
        ("torchrun train.py --model gpt2 -b 3 --config-file a.yaml X 1", "not read, and without effect: a.yaml"),
        ("torchrun train.py --model gpt2 --batch_size 3 --max_length 128", "--max-length 128: all sequences are"),
        ("deepspeed main.py --model_name_or_path gpt2 --per_device_train_batch_size 8 --deepspeed --block_size 64",
         "the program makes its configuration, whose format is not known"),
    ],
)  # fmt: skip
def test_what_such_lines_leave_open_is_told(line: str, told: str) -> None:
    written, notes = with_launch(CommandOptions(launch=line, topology="dgx-h100"))
    assert any(told in note for note in notes)
    assert written.launch is None


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "accelerate launch -m axolotl.cli.train llama/lora.yml",
            "names no network, and llama/lora.yml is not read; add",
        ),
        ("torchrun -m torchtitan.train --job.config_file a/b.toml", "names no network, and a/b.toml is not read; add"),
        (
            "torchrun --nproc_per_node 4 -m open_clip_train.main --model ViT-B-32 --batch-size 320",
            "ViT-B-32 of open_clip",
        ),
        (
            "torchrun train.py --model resnet-50v --batch-size 8",
            "--model resnet-50v; did you mean 'resnet",
        ),
        (
            "python train.py --model gpt2 --strategy deepspeed_stage_2 --cpu_offload --batch_size 1",
            "does not say what the host holds",
        ),
    ],
)
def test_what_such_lines_do_not_say_is_asked_for(line: str, told: str) -> None:
    with pytest.raises(InputError) as error:
        with_launch(CommandOptions(launch=line, topology="dgx-h100"))
    assert told in str(error.value)
    assert "\n" not in str(error.value)
