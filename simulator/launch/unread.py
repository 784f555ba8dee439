"""Arguments that do not affect the time of a step, and arguments that do but are not modelled.

Of the latter, some change a step by little, and what is simulated instead is said (``NOT_MODELLED``); without others a
step is another one, of several times its time or memory, and they are refused (``REFUSED``).

Names are without dashes; a final ``*`` matches any ending.  :func:`refuse_arguments` and :func:`unread` say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from simulator.errors import few, nearest, one_line
from simulator.launch.arguments import Arguments, is_off, spelt_flag

_TIMELESS = """
accumulate-allreduce-grads-in-fp32 adam-beta1 adam-beta2 adam-eps adlr-autoresume* append-eod apply-layernorm-1p
apply-query-key-layer-scaling apply-residual-connection-post-layernorm async-save async-tensor-model-parallel-allreduce
attention-softmax-in-fp32 auto-detect-ckpt-format bias-* blendable-index-path cache-dir calculate-per-token-loss
check-for-nan-in-loss* check-weight-hash* checkpoint-dir ckpt-* clip-grad config-dir consumed-* data-args-path
data-cache-path data-impl data-parallel-random-init data-path data-sharding dataloader-type dataset*
ddp-average-in-collective ddp-impl ddp-timeout deepspeed deepspeed-mpi dist-ckpt-* dist-url distributed-backend
distributed-timeout-minutes do-eval do-train doc* e2e-* enable-experimental enable-one-logger end-of-document
end-weight-decay eod-mask-loss error-injection* eval-* evaluation-strategy exit-* extra-vocab-size fim-* finetune
fp16-lm-cross-entropy fp4-recipe fp8-amax* fp8-format fp8-interval fp8-margin fp8-recipe fp8-wgrad full-validation
head-lr-mult hysteresis inference-* init-method* initial-loss-scale iteration* label-smoothing* lazy-mpu-init load
load-* local-rank log-* logdir logging-* loss-scale loss-scale-window lr lr-* make-vocab-size-divisible-by manual-gc*
mask-prob master-addr master-port max-lr max-restarts max-tokens-to-oom megatron-fsdp-* merge-file merges-file
min-loss-scale min-lr mmap-* mock-data module moe-aux-loss-coeff moe-input-jitter* moe-per-layer-logging
moe-permute-fusion moe-router-bias* moe-router-dtype moe-router-enable* moe-router-group*
moe-router-load-balancing-type moe-router-num-groups moe-router-pre-softmax moe-router-score-function
moe-router-topk-scaling-factor moe-use-legacy-grouped-gemm moe-z-loss-coeff monitor-interval mscale*
nccl-communicator-config-path no-async-tensor-model-parallel-allreduce no-bias-* no-check-for-nan* no-ckpt-*
no-create-attention-mask-in-dataloader no-data-sharding no-decoupled-lr* no-initialization no-load-optim no-load-rng
no-local-rank no-log-* no-mmap-bin-files no-one-logger no-persist-layer-norm no-pipeline-parallel no-python
no-query-key* no-rope-fusion no-save-optim no-save-rng no-scatter-gather-tensors-in-pipeline node-rank non-persistent-*
norm-epsilon num-dataset-builder-threads num-workers one-logger-* onnx-safe openai-gelu output-bert-embeddings
output-dir override-lr* override-opt* overwrite-output-dir perform-initialization persist-layer-norm precision-config*
pretrained-checkpoint profile profile-* rank rdzv-* record-memory* redirects rerun-* reset-attention-mask
reset-position-ids result-* role rope-scaling-factor rotary-base rotary-scaling-factor rotary-seq-len* run-*
sample-rate save save-* seed sft sgd-momentum short-seq-prob skip-iters skip-train split standalone start-method
start-weight-decay straggler* strict-fsdp* synthetic* te-* tee tensorboard-* test-data-path test-mode tiktoken-*
timing-log-* tokenizer-* train-iters train-samples train-tokens transformer-engine* use-checkpoint-opt-param-scheduler
use-cpu-initialization use-dist-ckpt use-env use-legacy-models use-mcore-models use-one-sent-docs use-pytorch-profiler
use-ring-exchange-p2p use-rotary-position-embeddings use-tokenizer-model-from-checkpoint-args valid-data-path
validate-every verbose max-grad-norm max-steps num-train-epochs per-device-eval-batch-size report-to cpu-torch-adam
no-pin-cpu-* offload-modules optimizer-offload-fraction overlap-cpu-optimizer-d2h-h2d use-pin-memory
use-torch-optimizer-for-cpu-offload aa aa-* aug-* auto-augment clip-grad-norm color-jitter crop-pct cutmix* data-dir
data-split decoupled-* dist-backend dist-bn dist-checkpoint-* drop drop-path eos-token epochs
fsdp-transformer-layer-cls-to-wrap hflip imagenet-* jsd label-column-name lazy-preprocess learning-rate*
max-train-samples mixup* momentum no-position-embedding num-classes num-epochs num-warmup-steps output packing
padding-side pretrained print-freq ra-* random-erase recount remode remove-unused-columns reprob resplit resume sched
sched-* source-lang split-bn target-lang template train-data* train-num-samples val-* validation-* workers workspace
create-moe-param-group disable-moe-token-dropping moe-eval-capacity-factor moe-loss-coeff moe-min-capacity
moe-flex-dispatcher-backend vocab-file wandb-* warmup warmup-* weight-decay* world-size zloss*
"""
# Of torchrun, Accelerate (and the keys of its file, and of the file of FSDP's settings) and DeepSpeed's launcher.
_OF_LAUNCHERS = """
autotuning bind-core-list bind-cores-to-rank command-file commands compute-environment debug deepspeed-exclusion-filter
deepspeed-hostfile deepspeed-inclusion-filter deepspeed-moe-layer-cls-names deepspeed-multinode-launcher
distributed-type downcast-bf16 dynamo-use-* elastic-training enable-cpu-affinity enable-each-rank-log
enable-elastic-training event-log-handler exclude force-multi fp8-* fsdp-cpu-ram-efficient-loading
fsdp-limit-all-gathers fsdp-state-dict-type fsdp-sync-module-states fsdp-use-orig-params fsdp-version fsdp-xla*
gradient-clipping ipex* launcher launcher-args local-addr local-ranks-filter logs-specs m machine-rank main-process-*
main-training-function max-elastic-nodes min-elastic-nodes mpirun-* multi-gpu no-ssh no-ssh-check
num-cpu-threads-per-process numa-binding offload-optimizer-nvme-path offload-param-nvme-path quiet same-network
signals-to-handle ssh-port tpu-* use-agent-store use-mps-device use-xpu venv-script virtual-local-rank vm zero3-*
"""


class Names:
    """The names in *text*; one with a final ``*`` stands for any that begins so."""

    def __init__(self, text: str) -> None:
        words = text.split()
        self._whole = frozenset(words)
        self._begin = tuple(word[:-1] for word in words if word.endswith("*"))

    def __contains__(self, name: str) -> bool:
        return name in self._whole or name.startswith(self._begin)


_OF_LAUNCHER = Names(_OF_LAUNCHERS)
_ANY = Names(_TIMELESS)

# What is simulated instead of arguments.
_INSTEAD = {
    "layers are shared out evenly among stages": (
        "account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split "
        "decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers pipeline-model-parallel-layout "
        "pipeline-model-parallel-split-rank"
    ),
    "kernels are those of the usual mode": "deterministic-mode",
    "gradients of the embedding are computed with the others": "defer-embedding-wgrad-compute",
    "gradients of weights are computed with the others": "delay-wgrad-compute",
    "kernels are issued one by one": "enable-cuda-graph external-cuda-graph",
    "each rank keeps the inputs of its layers whole": "distribute-saved-activations partition-activations",
    "the allocator keeps what it has": "empty-unused-memory-level",
    "all blocks multiply in the narrow format": "first-last-layers-bf16",
    "parameters are gathered in 16 bits": "fp4-param-gather fp8-param-gather",
    "a sequence is split in one ring": (
        "hierarchical-context-parallel-sizes context-parallel-ulysses-degree cp-comm-type"
    ),
    "streams have equal priority": "high-priority-stream-groups",
    "micro-batches take turns in groups as large as the pipeline is long": "microbatch-group-size-per-vp-stage",
    "experts get equal numbers of tokens, and drop none": (
        "moe-train-capacity-factor moe-expert-capacity-factor moe-pad-expert-input-to-capacity"
    ),
    "the shared expert runs after the others": "moe-shared-expert-overlap",
    "gradients are added by the product that makes them, but with --accumulate add": "no-gradient-accumulation-fusion",
    "attention runs as --attention-backend, or its default, has it": "no-masked-softmax-fusion",
    "shards of the optimiser's state go over all ranks with the same parameters": "num-distributed-optimizer-instances",
    "computing waits for the all-to-all of experts": "overlap-moe-expert-parallel-comm",
    "sends between stages are as 1F1B has them": "overlap-p2p-communication-warmup-flush",
    "sends of interleaved stages overlap with computing": "no-overlap-p2p-communication",
    "the step is one of the full batch": "rampup-batch-size",
    "sizes are those of the line; no checkpoint is read": "use-checkpoint-args",
    "the optimiser's state is in fp32": "use-precision-aware-optimizer",
    "attention reads all tokens": "window-attn-skip-freq",
    "the global batch is as it is written": "decrease-batch-size-if-needed",
    "gradients lie in one buffer": "no-contiguous-buffers-in-local-ddp",
    "all parameters are trained": "freeze-lm freeze-vit",
    "gradients are divided in the exchange": "no-gradient-reduce-div-fusion",
    "gradients go in their own format": "fp16-allreduce",
    "no average of the weights is kept": "model-ema",
    "compiled as by default, and kernels are issued one by one": "dynamo-mode",
    "FSDP's units are the network's blocks": "fsdp-auto-wrap-policy fsdp-min-num-params",
    "parameters are gathered before the gradients of the unit before are computed": (
        "fsdp-backward-prefetch fsdp-backward-prefetch-policy"
    ),
    "parameters are gathered as the host reaches their unit": "fsdp-forward-prefetch",
}
NOT_MODELLED = {name: why for why, names in _INSTEAD.items() for name in names.split()}
# Values of such arguments with which the step is the simulated one.
USUAL: dict[str, tuple[str, ...]] = {
    "dynamo-mode": ("default",),
    "fsdp-auto-wrap-policy": ("transformer_based_wrap",),
    "fsdp-backward-prefetch": ("backward_pre",),
    "fsdp-backward-prefetch-policy": ("backward_pre",),
}

OFFLOADS = "moves data between GPU and host in every step, which is not modelled; the time would be far off"
_HELD = "does not say what the host holds; leave it out, and add --offload optimizer or optimizer+parameters"
_NARROW = "keeps weights in fewer bits, which is not modelled; time and memory would be far off"
ON_CPU = "trains on the CPU; leave it out, and name a CPU with --device"

# Why there is no answer with these arguments of Megatron-LM, DeepSpeed and its fork of it, Accelerate, and Trainer.
REFUSED: dict[str, str] = {
    **dict.fromkeys(
        ("optimizer-cpu-offload", "offload-optimizer-states", "fine-grained-activation-offloading"), OFFLOADS
    ),
    **dict.fromkeys(("cpu-offloading", "cpu-offloading-num-layers", "checkpoint-in-cpu", "remote-device"), OFFLOADS),
    **dict.fromkeys(("cpu-optimizer", "offload-optimizer-device", "offload-param-device"), _HELD),
    **dict.fromkeys(("fsdp-offload-params", "fsdp-cpu-offload", "fsdp-offload", "offload", "cpu-offload"), _HELD),
    **dict.fromkeys(("load-in-4bit", "load-in-8bit", "quantization-bit", "use-qlora"), _NARROW),
    **dict.fromkeys(("use-cpu", "no-cuda", "cpu"), ON_CPU),
    "hybrid-override-pattern": "layers other than attention and feed-forward layers are not modelled here",
    "use-megatron-lm": "Accelerate's degrees of parallelism are not read; launch Megatron-LM's own program",
    "yaml-cfg": "the file is not read; write its settings as arguments",
}
# Arguments that name a device; "cpu" is refused like those above.
DEVICES = ("device", "accelerator")


def is_timeless(name: str, of_launcher: bool = False) -> bool:
    """Return whether the argument *name* does not affect the time of a step; *of_launcher*: one of a launcher's."""
    return name in _ANY or (of_launcher and name in _OF_LAUNCHER)


# -- what is said of them --------------------------------------------------------------


_FILE = re.compile(r"\S+\.(ya?ml|toml|json|cfg|conf|py|sh)")
_SETTING = re.compile(r"[+~]{0,2}[A-Za-z_][\w./@-]*=.*", re.DOTALL)


def refuse_arguments(args: Arguments, launcher: Arguments) -> None:
    """Record a fault for each argument without which a step is another one, and why it has no answer."""
    for each in (args, launcher) if launcher is not args else (args,):
        for name in each.names:
            if name in REFUSED and name not in each.read and not is_off(each.value(name) or "true"):
                each.fault(name, REFUSED[name])
            device = (each.value(name) or "").lower().partition(":")[0] if name in DEVICES else ""
            if device == "cpu":
                each.fault(name, ON_CPU)
            elif device in ("cuda", "gpu"):
                each.has(name)  # read: what is simulated anyway
    args.faults += [fault for fault in launcher.faults if fault not in args.faults]


def unread(args: Arguments, launcher: Arguments, starter: str, files: list[str]) -> list[str]:
    """Return a note for each argument that is not modelled, and one for each file that lists unknown arguments.

    Files that are not read are added to *files*.  Arguments of *launcher* count if it is *starter*; ``srun`` and
    ``mpirun`` have many that are about the cluster.
    """
    notes = list(_not_modelled(args))
    unknown = {"": [spelt_flag(name) for name in _unknown(args)]}
    files += [word for word in args.others if _FILE.fullmatch(word)]
    for name in _unknown(args):
        first = (args.value(name) or "").partition(" ")[0]
        if _FILE.fullmatch(first):
            files.append(first)
            unknown[""].remove(spelt_flag(name))
    unknown[""] += [one_line(word, 40) for word in args.others if _SETTING.fullmatch(word)]
    if starter and launcher is not args:
        notes += _not_modelled(launcher)
        for name in _unknown(launcher, of_launcher=True):
            file = launcher.file_of(name)
            unknown.setdefault("" if file == args.file else file, []).append(spelt_flag(name))
    for file, listed in unknown.items():
        if listed:
            name = listed[0].lstrip("-")
            near = nearest(name, (args.read | launcher.read) - {name}, listed=0) if len(name) > 2 else ""
            hint = f"; {near}" if len(listed) == 1 and near.startswith("did") else ""
            notes.append(f"{file}{': ' if file else ''}not known, and without effect: {few(listed)}{hint}")
    if files:
        notes.append(f"not read, and without effect: {few([one_line(file, 60) for file in files])}")
    return notes


def _not_modelled(args: Arguments) -> Iterator[str]:
    for name in args.names:
        said = args.value(name) or ""
        usual = said and (is_off(said) or said.lower() in USUAL.get(name, ()))
        if name not in args.read and name in NOT_MODELLED and not usual:
            yield f"{spelt_flag(name)}: is not modelled; {NOT_MODELLED[name]}"


def _unknown(args: Arguments, *, of_launcher: bool = False) -> list[str]:
    return [
        name
        for name in args.names
        if name not in args.read and not (name in NOT_MODELLED or name in REFUSED or is_timeless(name, of_launcher))
    ]
