"""Trained weights of the best step so far, kept beside the checkpoints to resume from until a training ends.

Each is a file of its own, named by its step. It is removed once no complete checkpoint refers to it, so that a run
resumed from any of its checkpoints finds the best step of the time before.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from cxrlab.core.errors import RunError
from cxrlab.training.run_folder import tensors_key
from cxrlab.training.sharding import put_weights

_NAME = re.compile(r"best-(\d+)\.safetensors")


def best_file(folder: Path, step: int) -> Path:
    """The file with the weights of a step."""
    return folder / f"best-{step}.safetensors"


def keep(folder: Path, step: int, weights: dict[str, Tensor]) -> None:
    """Write the trained weights of this step; a kill leaves the whole file or none."""
    temporary = folder / f"best-{step}.tmp"
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, temporary, {"weights": tensors_key(weights)})
    temporary.replace(best_file(folder, step))


def restore(folder: Path, step: int, module: nn.Module) -> None:
    """Put the weights of this step into the module.

    Raises:
        RunError: When the file is missing or its content has changed since it was written.
    """
    file = best_file(folder, step)
    try:
        with safe_open(file, "pt") as stored:
            key = (stored.metadata() or {}).get("weights")
        weights = load_file(file)
    except (SafetensorError, OSError) as error:
        raise _damaged(file) from error
    if key != tensors_key(weights):
        raise _damaged(file)
    put_weights(module, weights)


def remove_except(folder: Path, steps: Collection[int]) -> None:
    """Remove the weights of all steps but these, and what a kill left half-written."""
    for path in folder.glob("best-*"):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) not in steps:
            path.unlink()


def _damaged(file: Path) -> RunError:
    return RunError(
        f"{file}, the weights of the best step so far, is damaged or missing: its content is not what was written; "
        "train again in a new folder."
    )
