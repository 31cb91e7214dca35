"""Checkpoints of a training under way: whole or ignored.

A checkpoint folder counts once it holds the marker, which is written last and after the disk has all
else. What a kill left half-written has none; it is removed when the run goes on.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from cxrlab.core.files import write_text

MARKER = "complete"
KEPT = 2
_NAME = re.compile(r"checkpoint-(\d+)")


def mark_complete(folder: Path) -> None:
    """Hand every file of a checkpoint to the disk, then write the marker."""
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            handle = os.open(file, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    write_text(folder / MARKER, "every file of this checkpoint is on disk\n")


def latest(folder: Path) -> Path | None:
    """The complete checkpoint of the highest step; None when there is none."""
    found = [(step, path) for step, path in _all(folder) if (path / MARKER).is_file()]
    return max(found)[1] if found else None


def step_of(checkpoint: Path) -> int:
    """The step after which it was written."""
    match = _NAME.fullmatch(checkpoint.name)
    if match is None:
        raise ValueError(f"{checkpoint} is not a checkpoint folder")
    return int(match[1])


def remove_incomplete(folder: Path) -> None:
    """Remove what a kill left half-written."""
    for _, path in _all(folder):
        if not (path / MARKER).is_file():
            shutil.rmtree(path)


def remove_old(folder: Path, kept: int = KEPT) -> None:
    """Remove all but the latest complete ones; called when the newest is complete, so that one is always there."""
    complete = sorted((step, path) for step, path in _all(folder) if (path / MARKER).is_file())
    for _, path in complete[: max(0, len(complete) - kept)]:
        (path / MARKER).unlink()  # first: a kill within the removal leaves an incomplete one, not a broken one
        shutil.rmtree(path)


def _all(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    matches = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    return [(int(match[1]), path) for match, path in matches if match]
