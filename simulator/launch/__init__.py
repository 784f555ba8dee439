"""Launch lines of Megatron-LM, torchrun and DeepSpeed, read as options of ``simulate``; nothing is executed."""
