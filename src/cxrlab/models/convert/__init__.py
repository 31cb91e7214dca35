"""Published checkpoints converted to folders that transformers loads, without a tensor missing or left over."""
