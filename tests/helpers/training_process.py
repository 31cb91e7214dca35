"""Run as a process by tests: the training of a pickled config in a folder; with a third argument it kills itself.

That is a step, before it is logged or saved, or `saving`: when the first checkpoint lacks its marker alone.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Any

import torch

from cxrlab.preference.config import PreferConfig
from cxrlab.preference.train import prefer
from cxrlab.training import trainer
from cxrlab.training.align_finetune import align, finetune
from cxrlab.training.config import AlignConfig


def kill_at(moment: str) -> None:
    """Patch the trainer."""

    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if moment == "saving":
        trainer.mark_complete = die
        return
    whole = trainer.Journal.on_step_end

    def stop(self: Any, args: Any, state: Any, control: Any, **named: Any) -> Any:
        if state.global_step == int(moment):
            die()
        return whole(self, args, state, control, **named)

    trainer.Journal.on_step_end = stop  # type: ignore[method-assign]


def main() -> None:
    config, out = pickle.loads(Path(sys.argv[1]).read_bytes()), Path(sys.argv[2])
    torch.set_num_threads(1)
    for moment in sys.argv[3:]:
        kill_at(moment)
    train: Any = prefer if isinstance(config, PreferConfig) else align if isinstance(config, AlignConfig) else finetune
    train(config, out)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
