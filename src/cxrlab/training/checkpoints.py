"""Checkpoints of a training under way: whole or ignored.

A checkpoint folder counts once it holds the marker, which is written last and after the disk has all
else. What a kill left half-written has none; it is removed when the run goes on. The marker lists every
file with its size and SHA-256, and nothing is resumed from files that differ.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

from cxrlab.core.errors import RunError
from cxrlab.core.files import read_bytes
from cxrlab.core.folders import find_damage, write_checksums
from cxrlab.core.terminal import NoticeStream

MARKER = "complete"
KEPT = 2
_WITHOUT_CHECKSUMS = b"every file of this checkpoint is on disk\n"  # the marker of version 0.1.0
_NAME = re.compile(r"checkpoint-(\d+)")


def mark_complete(folder: Path) -> None:
    """Hand every file of a checkpoint to the disk, then write the marker with their checksums."""
    write_checksums(folder, MARKER)


def resumable(folder: Path) -> Path | None:
    """The complete checkpoint of the highest step, its files compared with their checksums; None when there is none.

    Raises:
        RunError: When it is damaged; which checkpoint is resumed from instead is for the user to decide.
    """
    found = latest(folder)
    if found is None:
        return None
    if read_bytes(found / MARKER) == _WITHOUT_CHECKSUMS:
        NoticeStream(sys.stderr).write(f"{found} was not verified: it has no checksums (cxrlab 0.1.0 wrote none)\n")
    elif damage := find_damage(found, MARKER):
        before = max((one for one in _complete(folder) if one[1] != found), default=None)
        then = f"resume from {before[1].name}, the complete one before it" if before else "start anew from step 0"
        raise RunError(f"{found} is damaged: {damage}; remove that folder to {then}.")
    return found


def latest(folder: Path) -> Path | None:
    """The complete checkpoint of the highest step; None when there is none."""
    found = _complete(folder)
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
    complete = sorted(_complete(folder))
    for _, path in complete[: max(0, len(complete) - kept)]:
        (path / MARKER).unlink()  # first: a kill within the removal leaves an incomplete one, not a broken one
        shutil.rmtree(path)


def _complete(folder: Path) -> list[tuple[int, Path]]:
    return [(step, path) for step, path in _all(folder) if (path / MARKER).is_file()]


def _all(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    matches = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    return [(int(match[1]), path) for match, path in matches if match]
