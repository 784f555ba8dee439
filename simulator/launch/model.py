"""The network that a launch line names, or that Megatron-LM's arguments describe: the zoo's with changed sizes."""

import re
from contextlib import suppress

from simulator.errors import InputError, one_line
from simulator.launch.arguments import ARGUMENTS, Arguments, whole_numbers
from simulator.launch.words import NAMES
from simulator.records import dataclass, field
from simulator.workload.find import is_config
from simulator.workload.zoo.registry import find_entry

_MEGATRON = NAMES["megatron"]
_POSITIONS = ("learned_absolute", "rope", "rotary", "none", "relative", "yarn", "mrope", "alibi")
_MOST_CAPACITY = 10_000  # percent
_MADE = re.compile(r"(-(hf|base|instruct|chat|it|sft|dpo|v\d+(\.\d+)?|\d{4}))+$")


@dataclass(slots=True)
class LaunchedNetwork:
    """A network of the zoo and its changed sizes; ``workload`` is "" if no argument gives a size."""

    workload: str = ""
    sizes: dict[str, int | str] = field(default_factory=dict)
    length: int | None = None
    layers: int = 0


def read_model(args: Arguments, tp: int, attention: str) -> LaunchedNetwork:
    """Return the network of *args*; its vocabulary is padded for *tp* ranks, as in Megatron-LM."""
    length = args.number("seq-length", "encoder-seq-length")
    layers = args.number("num-layers", "encoder-num-layers")
    hidden = args.number("hidden-size")
    heads = args.number("num-attention-heads")
    found = LaunchedNetwork(length=length, layers=layers or 0)
    if layers is hidden is heads is None:
        return found
    needed = {"num-layers": layers, "hidden-size": hidden, "num-attention-heads": heads}
    for name in (name for name in needed if name not in args and not args.faults):
        args.fault(name, "is missing; Megatron-LM needs it, and so does a simulation")
    if layers is None or hidden is None or heads is None:
        return found
    experts = args.number("num-experts")
    experts = None if experts == 1 else experts  # as in DeepSpeed's fork, where it is a dense network
    gated = args.has("swiglu")
    inner = args.number("ffn-hidden-size") or (int(4 * hidden * 2 / 3 / 64) * 64 if gated else 4 * hidden)
    sizes: dict[str, int | str] = {"layers": layers, "hidden": hidden, "heads": heads}
    found.workload = _family(args, gated=gated, experts=experts is not None)
    sizes |= _window(args, found.workload, length or 0)
    if experts is None:
        sizes["inner"] = inner
    groups, own_head = args.number("num-query-groups"), args.number("kv-channels")
    if found.workload not in ("gpt", "deepseek-v2-lite", "deepseek-v3"):
        sizes["kv_heads"] = groups if groups and args.has("group-query-attention") else heads
    latent = args.has("multi-latent-attention")  # which has sizes of its own
    if (own_head and own_head * heads != hidden and not latent) or found.workload.startswith("qwen3"):
        sizes["head_size"] = own_head or hidden // heads
    if experts is not None:
        sizes |= _experts(args, layers, experts, inner)
        if sizes["dense_layers"]:
            sizes["inner"] = inner
    elif args.number("mtp-num-layers"):
        args.notes.append("--mtp-num-layers: is modelled beside experts (--num-experts); simulated without")
    words = _vocabulary(args, found.workload, tp)
    sizes |= {} if words is None else {"vocabulary": words}
    sizes["tied"] = int(not args.has("untie-embeddings-and-output-weights"))
    drops, drops_attention = (bool(_rate(args, name)) for name in ("hidden-dropout", "attention-dropout"))
    positions = args.number("max-position-embeddings")
    if found.workload == "gpt":
        if drops != drops_attention:
            args.notes.append("--attention-dropout: is simulated as --hidden-dropout is, there or not")
        sizes |= {} if drops else {"dropout": 0}
        sizes |= {} if positions in (None, length) else {"positions": positions}
    elif drops:
        args.notes.append("--hidden-dropout: is not modelled here; simulated without (Megatron-LM's own is 0.1)")
    found.sizes = sizes | {"attention": attention}
    return found


def _family(args: Arguments, *, gated: bool, experts: bool) -> str:
    """Return the most similar network of the zoo; differences are notes, or faults if they are too large."""
    norm = args.choice(("layernorm", "rmsnorm"), "normalization") or "layernorm"
    positions = args.choice(_POSITIONS, "position-embedding-type") or "learned_absolute"
    rotary = positions in ("rope", "rotary", "yarn", "mrope") or args.has("use-rotary-position-embeddings")
    names = "group-query-attention", "squared-relu", "disable-bias-linear"
    grouped, squared, plain = (args.has(name) for name in names)
    qkv_bias, normalised = args.has("add-qkv-bias"), args.has("qk-layernorm")
    latent, part = args.has("multi-latent-attention"), args.text("rotary-percent")
    if latent:
        rank = args.number("q-lora-rank")
        for name, value in _MEGATRON["latent"].items():
            said = args.number(name)
            if said is not None and said != value:
                args.fault(name, f"{said} is not modelled; {value} is")
        if rank not in (None, 1536):
            args.fault("q-lora-rank", f"{rank} is not modelled; 1536, or none, is")
        if not (experts and gated):
            args.fault("multi-latent-attention", "is modelled with --num-experts and --swiglu, as DeepSeek has it")
        return "deepseek-v2-lite" if rank is None else "deepseek-v3"
    if gated and experts:
        name, kind = "qwen3-30b-a3b" if normalised else "mixtral-8x7b", "gated"
    elif gated:
        name, kind = "qwen3-8b" if normalised else "qwen2-7b" if qkv_bias else "llama2-7b", "gated"
    elif squared and not experts:
        name, kind = "nemotron4-15b", "squared"
    else:
        name, kind = "gpt", "plain"
        if experts:
            args.fault("num-experts", "experts are modelled with a gate; --swiglu says that they have one")
        if grouped:
            args.fault("group-query-attention", "is modelled for blocks of Llama's kind (--swiglu)")
    traits = {
        "norm": norm,
        "rotary": rotary,
        "half rotary": rotary and part in ("0.5", ".5"),
        "all rotary": part in (None, "1", "1.0"),
        "normalised": normalised,
        "plain": plain,
        "squared": squared,
        "biased": qkv_bias and (normalised or experts),
    }
    for argument, (trait, usual, instead) in _MEGATRON["differences"][kind].items():
        if traits[trait] != usual:
            args.notes.append(f"--{argument}: is not modelled here; simulated {instead}")
    return name


def _window(args: Arguments, workload: str, length: int) -> dict[str, int | str]:
    """Return the keys that a query sees: those before it that the line counts, and its own."""
    said, skips = re.match(r"\(?(\d{1,9})", args.text("window-size") or ""), args.number("window-attn-skip-freq")
    window = int(said[1]) + 1 if said else 0
    if not 0 < window < length:
        return {}
    if workload in ("gpt", "deepseek-v2-lite", "deepseek-v3"):
        args.fault("window-size", f"attention to {window:,} of {length:,} tokens is not modelled in such a network")
        return {}
    return {"window": window, "window_skip": skips or 0}


def _experts(args: Arguments, layers: int, experts: int, inner: int) -> dict[str, int | str]:
    if not args.has("moe-grouped-gemm"):
        args.notes.append("--moe-grouped-gemm: is not there; simulated with, all experts of a layer as one product")
    own = args.number("moe-ffn-hidden-size") or inner
    shared = args.number("moe-shared-expert-intermediate-size")
    found: dict[str, int | str] = {
        "experts": experts,
        "chosen": args.number("moe-router-topk") or 2,
        "expert_inner": own,
        "shared_inner": own * (args.number("num-shared-experts", least=0) or 0) if shared is None else shared,
        "mtp_layers": args.number("mtp-num-layers") or 0,
        "dense_layers": args.number("first-k-dense-replace", least=0) or 0,
    }
    found |= _capacity(args)
    frequency = (args.text("moe-layer-freq") or "1").strip("'\"")  # quoted for a shell that starts the program
    if frequency != "1":
        found_list = whole_numbers(frequency, layers)  # Megatron-LM evaluates it (training/arguments.py, moe_freq_type)
        pattern = found_list if isinstance(found_list, list) else []
        dense = pattern.index(1) if 1 in pattern else 0
        if pattern == [0] * dense + [1] * (layers - dense):
            found["dense_layers"] = dense
        else:
            args.fault("moe-layer-freq", f"'{frequency}' is not modelled; 1 is, or [0]*1+[1]*{layers - 1}")
    return found


def _capacity(args: Arguments) -> dict[str, int | str]:
    """Return the rows that experts have room for, in percent of an even share, if anything limits them."""
    name, pads = "moe-expert-capacity-factor", args.has("moe-pad-expert-input-to-capacity")
    text = args.text(name)
    try:
        percent = 0 if text is None else round(100 * float(text))
    except (ValueError, OverflowError):
        percent = _MOST_CAPACITY + 1
    if percent > _MOST_CAPACITY or (text is not None and percent == 0):
        args.fault(name, f"'{one_line(text or '', 40)}' is no number from 0.01 to {_MOST_CAPACITY // 100}")
    return {"expert_capacity": percent, "pad_capacity": int(pads)} if percent > 0 else {}


def _vocabulary(args: Arguments, workload: str, tp: int) -> int | None:
    """Return the padded vocabulary; None, after a fault, if nothing says it."""
    tokenizer = (args.text("tokenizer-type") or "").lower()
    words = args.number("padded-vocab-size")
    args.has("vocab-size", "make-vocab-size-divisible-by")
    if words is None:
        words = args.number("vocab-size")
        if words is not None and tokenizer == "nulltokenizer":
            words += 1  # the end-of-document token
        if words is None:
            words = _MEGATRON["tokenizers"].get(tokenizer)
        if words is None and workload == "gpt" and "vocab-file" in args and "merge-file" in args:
            words = _MEGATRON["tokenizers"]["gpt2bpetokenizer"]
        multiple = (args.number("make-vocab-size-divisible-by") or 128) * tp
        words = None if words is None else -(-words // multiple) * multiple
    if words is None:
        args.fault("vocab-size", "is missing, and the tokenizer's files are not read; add it to the launch line")
    return words


def _rate(args: Arguments, name: str) -> float:
    text = args.text(name)
    try:
        return 0.1 if text is None else float(text)
    except ValueError:
        args.fault(name, f"'{text}' is not a number")
        return 0.0


def named_network(args: Arguments) -> tuple[str, str]:
    """Return the network, or folder with a ``config.json``, that *args* name, and the argument with an unknown one."""
    unknown = ""
    for argument in ARGUMENTS["networks"]:
        said = args.text(argument)
        if not said:
            continue
        if is_config(said):
            return said, ""
        last = said.rstrip("/").rpartition("/")[2]
        for name in (_plain(last), last):
            with suppress(InputError):
                find_entry(name)
                return name, ""
        unknown = unknown or f"--{argument.replace('-', '_')} {said}"
    return "", unknown


def _plain(name: str) -> str:
    """Return *name* without what leaves the network as it is: its training, the version of its weights, its maker."""
    short = _MADE.sub("", name.lower().replace("_", "-")).removeprefix("meta-")
    short = re.sub(r"^llama-([23])-", r"llama\1-", short)
    image = re.fullmatch(r"(?:vit|deit)-(base|large|huge)-patch(\d+)-224(-.*)?", short)
    return f"vit-{image[1][0]}{image[2]}" if image is not None else short
