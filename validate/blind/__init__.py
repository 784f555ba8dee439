"""The blind record: what was predicted before its measurements were looked at, and how good that was."""
