"""Short descriptions of the networks in the zoo."""

from __future__ import annotations

import re

# By the beginning of the name; the first match applies.
_WORDS: tuple[tuple[str, str], ...] = (
    ("lenet-d2l", "LeNet with sigmoids and average pooling, Dive into Deep Learning"),
    ("lenet", "LeNet-5, LeCun et al. 1998"),
    ("mlp", "perceptron; inputs and widths as wanted"),
    ("alexnet-owt", "AlexNet of convnet-benchmarks"),
    ("alexnet-[sr]$", "AlexNet of Shi et al. 2016"),
    ("alexnet", "AlexNet, torchvision"),
    ("overfeat-fast", "OverFeat of convnet-benchmarks"),
    ("googlenet", "GoogLeNet of convnet-benchmarks"),
    ("inception-bn", "Inception with batch normalisation, MXNet's example"),
    ("inception3", "Inception v3, torchvision"),
    (r"vgg(\d+)", "VGG, {0} layers, torchvision"),
    ("resnet18-28x28", "ResNet-18 for grey images of 28 x 28"),
    ("resnet18-cifar", "ResNet-18 for images of 32 x 32"),
    (r"resnet(20|32|44|56|110)$", "ResNet of He et al. 2015 for CIFAR-10, {0} layers"),
    ("resnet200", "ResNet, 200 layers, as fb.resnet.torch builds it"),
    (r"resnet(\d+)", "ResNet, {0} layers, torchvision"),
    ("resnext101-32x4d", "ResNeXt-101, 32 groups of 4"),
    (r"densenet(\d+)", "DenseNet, {0} layers, torchvision"),
    ("fcn-[sr]", "perceptron of Shi et al. 2016"),
    ("lstm-shi2016", "language model of two LSTM layers, Shi et al. 2016"),
    (r"bert-(\w+)-squad", "BERT {0} for questions and answers, Hugging Face"),
    (r"bert-(\w+)", "BERT {0}, Hugging Face"),
    ("gpt3-2.9b", "GPT-3 XL as NeuSight measured it, 24 heads of 128"),
    (r"gpt3-(.+)", "GPT-3 {0}, GPT-2's code"),
    ("gpt2", "GPT-2, Hugging Face"),
    ("gpt$", "GPT of Megatron-LM; sizes as wanted"),
    (r"megatron-(.+)", "GPT of Megatron-LM's papers, {0}"),
    (r"opt-(.+)", "OPT {0}, Hugging Face"),
    (r"mpt-(.+)", "MPT {0}, llm-foundry"),
    (r"bloom-(.+)", "BLOOM {0}, Hugging Face"),
    (r"llama(\d?)-(.+)", "Llama {0} {1}"),
    (r"t5-(.+)", "T5 {0}, Hugging Face"),
    (r"vit-(.)(\d+)", "vision transformer {0}, patches of {1}"),
    ("mask-rcnn", "Mask R-CNN on a pyramid of ResNet-50, torchvision"),
    ("waveglow", "speech by flows, NVIDIA's DeepLearningExamples"),
    ("tacotron2", "spectrograms from text, NVIDIA's DeepLearningExamples"),
    (r"transformer-xl-(.+)", "Transformer-XL {0}: text with a memory of what came before"),
    ("gnmt", "translation by LSTMs, NVIDIA's DeepLearningExamples"),
    ("ncf", "NeuMF for MovieLens 20M, NVIDIA's DeepLearningExamples"),
    ("unet3d", "U-Net of volumes, MLPerf"),
    ("unet", "U-Net of images, NVIDIA's DeepLearningExamples"),
    (r"ssd-resnet(.+)", "SSD300 on ResNet-{0}, NVIDIA's DeepLearningExamples"),
    (r"internlm-(.+)", "InternLM {0}"),
    (r"qwen([\d.]*)-(.+)", "Qwen {0} {1}"),
    (r"gpt-oss-(.+)", "gpt-oss {0}, experts, every other block with a window of attention"),
    (r"mixtral-(.+)", "Mixtral {0}, experts"),
    (r"deepseek-(v\d)(.*)", "DeepSeek {0}{1}, experts and latent attention"),
    ("kimi-k2", "Kimi K2, experts and latent attention"),
    (r"nemotron-3-(.+)", "Nemotron-3 {0}, Mamba-2, experts and some attention"),
    (r"nemotron3-(.+)", "Nemotron-3 {0}"),
    (r"nemotron4-(.+)", "Nemotron-4 {0}"),
)


def network_words(name: str) -> str:
    """Return a short description of the network *name*; "" if there is none."""
    for pattern, words in _WORDS:
        match = re.match(pattern, name)
        if match is not None:
            sizes = [size.upper() if re.search(r"\d[bmt]$|^xl$", size) else size for size in match.groups()]
            return " ".join(words.format(*sizes).split())
    return ""
