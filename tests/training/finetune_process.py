"""Run as a process by tests: a fine-tuning, its pickled config named first and its folder second."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import torch

from cxrlab.training.align_finetune import finetune


def main() -> None:
    torch.set_num_threads(1)
    finetune(pickle.loads(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2]))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
