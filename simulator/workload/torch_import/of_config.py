"""A ``config.json`` of a family that transformers builds: its own class on ``meta``, with inputs as it reads them."""

import inspect
import re
from collections.abc import Mapping
from typing import Any

import torch

from simulator.errors import InputError, mention, one_line
from simulator.topology.yaml_source import YamlSource
from simulator.workload.hugging_face import LONGEST, POSITIONS, source_of
from simulator.workload.torch_import.call import FollowingValues, KnownValues
from simulator.workload.torch_import.factory import Subject, quietly
from simulator.workload.torch_import.faults import fault_of

# Layers whose operators in torch are not what a GPU runs: kernels of mamba_ssm, flash-linear-attention and the like.
_RECURRENT = re.compile(r"Mamba\d?(Mixer|Layer)|(Bamba|FalconH1)Mixer|Rwkv|Delta(Net|Attention)|Lightning|xLSTM|Rglru")
# Of a file with no ``architectures``, the first of transformers' lists of classes that has its family.
_TASKS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "IMAGE_CLASSIFICATION", "SPEECH_SEQ_2_SEQ")


def subject_of_config(text: str, batch: int, length: int | None, training: bool) -> Subject:
    """Return the module of *text* with inputs of *batch* samples, of *length* tokens (None: its own) if it reads any.

    In *training* the loss is the class's own for labels.  Attention is torch's fused one where the class has it, and
    experts are one grouped product.

    Raises InputError, with the place in the file, where transformers does not know the family or class, cannot build
    it, or where the file does not say what goes in (speech, video); MissingDependency without transformers.
    """
    source, what = source_of(text), mention("workload", one_line(text, 80))
    values = KnownValues()
    with quietly():
        try:
            kind, config = _config(source)
            with torch.device("meta"), FollowingValues(values):
                module = kind._from_config(config)
                scan = next((part for part in module.modules() if _RECURRENT.search(type(part).__name__)), None)
                if scan is not None:
                    told = f"{type(scan).__name__} has kernels of its own on a GPU, which are not modelled"
                    raise InputError(source.fault(("model_type",), f"model_type: {told}; nemotron_h's are"))
                if any("Experts" in type(part).__name__ for part in module.modules()):
                    module = module.to(torch.bfloat16)  # which grouped products ask for
                inputs = _inputs(source, module, config, batch, length, training)
        except (InputError, ImportError):
            raise
        except Exception as error:
            raise fault_of(error, f"{what}: transformers cannot build it") from None
    name, sample = one_line(source.data["model_type"]), "sequences" if "input_ids" in inputs else "images"
    return Subject(what, name, module.to("meta"), (), inputs, None, batch, sample, values)


def _config(source: YamlSource) -> tuple[Any, Any]:
    """Return the class and configuration that *source* means."""
    import transformers
    from transformers.models.auto import modeling_auto

    transformers.logging.set_verbosity_error()
    said = {key: value for key, value in source.data.items() if key not in ("quantization_config", "auto_map")}
    known, version = transformers.CONFIG_MAPPING, f"transformers {transformers.__version__}"
    family = said.get("model_type")
    if family not in known:
        raise InputError(source.fault(("model_type",), f"no model_type '{one_line(family, 40)}' is known to {version}"))
    listed = said.get("architectures")
    maps = [getattr(modeling_auto, f"MODEL_FOR_{task}_MAPPING_NAMES") for task in _TASKS]
    names = listed or [found[family] for found in (*maps, modeling_auto.MODEL_MAPPING_NAMES) if family in found]
    kind = getattr(transformers, str(names[0]), None) if isinstance(names, list) and names else None
    if not hasattr(kind, "_from_config"):
        told = f"{one_line(listed, 60)} is no class of {version}; code of a model's own is not run"
        raise InputError(source.fault(("architectures",) if listed else ("model_type",), told))
    config = known[str(family)].from_dict(said)
    of_text = config.get_text_config().model_type
    if of_text != family and "vision_config" in said and of_text in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        config, tied = config.get_text_config(), config.tie_word_embeddings  # of a model that is given texts alone
        config.tie_word_embeddings = tied if "tie_word_embeddings" in said else config.tie_word_embeddings
        kind = getattr(transformers, modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[of_text])
    config.use_cache = False
    return kind, config


def _inputs(
    source: YamlSource, module: Any, config: Any, batch: int, length: int | None, training: bool
) -> Mapping[str, Any]:
    """Return what *module* reads, by name: tokens, images or both, a spectrum of speech; in *training* labels too."""
    takes = inspect.signature(module.forward).parameters
    main, name, inputs = module.main_input_name, type(module).__name__, {}
    of_text, images = config.get_text_config(), getattr(config, "vision_config", config)
    most = next((rows for key in POSITIONS if isinstance(rows := getattr(of_text, key, None), int)), 2048)
    most -= 2 if most % 64 == 2 else 0  # RoBERTa keeps two rows for padding
    if length and length > most:
        raise InputError(f"{mention('seq_len', length)}: {name} has {most:,} positions; a longer sequence has none")
    tokens = torch.zeros(batch, length or min(most, LONGEST), dtype=torch.int64)
    both = main != "input_ids" or (hasattr(module, "get_image_features") and not module.can_generate())  # as CLIP does
    if "input_ids" in takes:
        inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    elif main == "input_features" and hasattr(config, "max_source_positions"):
        inputs = {main: torch.empty(batch, config.num_mel_bins, 2 * config.max_source_positions)}
    if "pixel_values" in takes and both:
        side = getattr(images, "image_size", None) or 224
        sides = side if isinstance(side, list | tuple) else (side, side)
        inputs["pixel_values"] = torch.empty(batch, getattr(images, "num_channels", 3), *sides)
    if not inputs:
        told = f"how long the {main} of {name} are is not in the file; a torch: factory says it"
        raise InputError(source.fault(("model_type",), f"model_type: {told}"))
    has_labels = training and "labels" in takes and main in inputs and "PreTraining" not in name
    if training and "return_loss" in takes:
        inputs["return_loss"] = True
    elif has_labels and "Classification" in name and "Token" not in name:
        inputs["labels"] = torch.zeros(batch, dtype=torch.int64)
    elif has_labels and main != "pixel_values":
        inputs["labels"] = tokens
    elif config.is_encoder_decoder:
        inputs["decoder_input_ids"] = tokens
    return {name: value for name, value in inputs.items() if name in takes}
