"""Run as a process by tests: one toy training in the folder named first; `stall` waits for the kill at a step."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from toy_training import Toy, ToyRows, train_toy  # noqa: E402


class Stalling(ToyRows):
    """Says so and waits when the batch of one step is asked for."""

    def __init__(self, step: int, batch: int) -> None:
        super().__init__()
        self.left = step * batch

    def __getitems__(self, rows: list[int]) -> Any:
        self.left -= len(rows)
        if self.left < 0:
            sys.stdout.write("stalled\n")
            sys.stdout.flush()
            time.sleep(60)
        return super().__getitems__(rows)


def main() -> None:
    out, settings = Path(sys.argv[1]), json.loads(sys.argv[2])
    stall = settings.pop("stall", None)
    dropout = settings.pop("dropout", 0.2)
    rows = Stalling(stall, settings.get("batch_size", 4)) if stall is not None else ToyRows()
    module, _ = train_toy(out, Toy(dropout), rows, **settings)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
