"""Launch lines of Megatron-LM, torchrun and DeepSpeed, read as the options of ``simulate``; nothing is executed."""
