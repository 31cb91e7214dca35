"""Two processes that train together, started as a launcher would."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TRAINING = Path(__file__).parent / "training_process.py"


def run_together(command: Sequence[str], seconds: float = 200.0, **environment: str) -> list[int]:
    """Run a command twice, as two processes of one group; returns how they ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        **os.environ, "OMP_NUM_THREADS": "1", "CXRLAB_QUIET": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port, **environment,
    }  # fmt: skip
    started = [
        subprocess.Popen(command, env={**shared, "RANK": rank, "LOCAL_RANK": rank}, stdout=subprocess.DEVNULL)
        for rank in "01"
    ]
    try:
        return [process.wait(seconds) for process in started]
    finally:
        for process in started:
            process.kill()


def train_together(config: Any, out: Path, kill: str | None = None, **environment: str) -> list[int]:
    """Train by two processes; see `training_process` for `kill`."""
    file = out.parent / f"{out.name}.pickle"
    file.write_bytes(pickle.dumps(config))
    command = [sys.executable, str(TRAINING), str(file), str(out), *([kill] if kill else [])]
    return run_together(command, **environment)
