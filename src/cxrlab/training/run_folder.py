"""The run folder of a training: history, checkpoints, result and summary, and hashes of weights."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.core.atomic_folders import find_damage, make_private, write_checksums
from cxrlab.core.environment import usable_cores
from cxrlab.core.errors import RunError
from cxrlab.core.files import make_folder, read_bytes, read_json, write_bytes, write_json
from cxrlab.core.jsonl import JsonlAppender, line_of, read_jsonl
from cxrlab.core.runs import Run, finished
from cxrlab.core.terminal import NoticeStream
from cxrlab.models.local_files import verify_checksums

if TYPE_CHECKING:
    from torch import Tensor, nn

BASIS = "basis.json"
HISTORY, SUMMARY, RESULT, STEPS, CACHE = "history.jsonl", "summary.json", "checkpoint", "steps", "cache"
BEST = "best"  # the checkpoint of the step with the lowest validation loss, beside the last one


class RunFolder:
    """The folder of a training; writing does nothing in processes other than the main one, which have no `run`."""

    def __init__(self, folder: Path, run: Run | None) -> None:
        self.folder = folder
        self._run = run

    @property
    def writes(self) -> bool:
        """Whether this process is the one that writes."""
        return self._run is not None

    @property
    def steps(self) -> Path:
        """Folder of the checkpoints to resume from."""
        return self.folder / STEPS

    @property
    def result(self) -> Path:
        """Folder of the final checkpoint."""
        return self.folder / RESULT

    @property
    def begun(self) -> bool:
        """Whether a training has begun here, so that its basis is recorded."""
        return (self.steps / BASIS).is_file()

    def check_basis(self, basis: Mapping[str, Any]) -> None:
        """Record what the result depends on beyond the config; a resumed run must have the same.

        Raises:
            RunError: When anything differs from when the run was begun.
        """
        if self._run is None:
            return
        if not self.begun:
            write_json(make_folder(self.steps) / BASIS, dict(basis))
            return
        before = read_json(self.steps / BASIS)
        for name, now in basis.items():
            if before.get(name) != now:
                raise RunError(
                    f"{self.folder} was begun with {name}: {before.get(name)}, and now it is {now}; restore what it was, "
                    "or choose another folder."
                )

    def record(self, line: dict[str, Any]) -> None:
        """Append a line to the history."""
        if self._run is not None:
            self._run.append(HISTORY, line)

    def write(self, name: str, value: Any) -> None:
        """Write a whole file."""
        if self._run is not None:
            self._run.write(name, value)

    def write_folder(self, name: str, write: Callable[[Path], None]) -> None:
        """Write RUN/`name` with checksums: `write` fills a temporary folder, which then replaces the old one."""
        if self._run is None:
            return
        target, temporary = self.folder / name, self.folder / f".{name}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        write(make_folder(temporary))
        make_private(temporary)
        write_checksums(temporary)
        shutil.rmtree(target, ignore_errors=True)  # left by a run that was killed after this line
        os.replace(temporary, target)

    def forget_after(self, step: int) -> None:
        """Drop the history of steps after this one: they are repeated."""
        path = self.folder / HISTORY
        if self._run is None or not path.is_file():
            return
        JsonlAppender(path).close()  # removes an incomplete last line
        kept = [record for _, record in read_jsonl(path) if record["step"] <= step]
        write_bytes(path, b"".join(line_of(record, path) for record in kept))

    def remove_steps(self) -> None:
        """Remove the checkpoints to resume from, once the result is written."""
        if self._run is not None and self.steps.is_dir():
            shutil.rmtree(self.steps)


def training_finished(config: Any, out: Path, seed: int, free: Iterable[str]) -> bool:
    """Whether the folder holds a finished training with these settings; a damaged result raises a `DataError`.

    The summary is written last: a run that was killed after it is ended here.
    """
    from cxrlab.training.distributed import is_main_process

    ended = finished(out, config, seed=seed, operational=free)
    if not ended and not (out / SUMMARY).is_file():
        return False
    for name in (RESULT, BEST):
        if (out / name).is_dir():
            verify_checksums(out / name)
    if ended:
        return True
    if is_main_process():
        with Run.open(out, config, seed=seed, operational=free) as run:
            RunFolder(out, run).remove_steps()
    return True


@contextmanager
def training_run(config: Any, out: Path, seed: int, free: Iterable[str] = ()) -> Iterator[RunFolder]:
    """The folder of a new or resumed run; see `core.runs.Run.open` for what is refused."""
    from cxrlab.training.distributed import is_main_process, wait_for_all

    if is_main_process():
        with Run.open(out, config, seed=seed, operational=free) as run:
            wait_for_all()
            yield RunFolder(out, run)
    else:
        wait_for_all()
        yield RunFolder(out, None)


@dataclass(frozen=True)
class TrainingResult:
    """Summary of a training; RUN/summary.json."""

    stage: str  # encoder, align, finetune or prefer
    checkpoint: str  # the result, relative to the run folder
    steps: int  # optimiser steps
    samples: int  # samples seen, repeats included
    loss: float  # mean loss of the last line of the history
    rows: int  # distinct samples
    # Reason → unused studies of the train split, or of no split.
    left_out: Mapping[str, int] = field(default_factory=dict)
    cut: int = 0  # samples whose report was truncated by `max_length`
    trained_parameters: int = 0  # number of trained weights
    parameters: int = 0  # number of all weights
    extra: Mapping[str, Any] = field(default_factory=dict)  # further values of a stage


def read_result(out: Path) -> TrainingResult:
    """The summary of a finished run."""
    found = read_json(out / SUMMARY)
    loss = found.pop("loss", None)
    return TrainingResult(**found, loss=float("nan") if loss is None else float(loss))


def weights_key(module: nn.Module) -> str:
    """A hash of the names, types, shapes and numbers of all weights and buffers that are saved."""
    return tensors_key(module.state_dict())


def tensors_key(named: Mapping[str, Tensor]) -> str:
    """A hash of the names, types, shapes and numbers of tensors."""
    import torch

    tensors = sorted(named.items())
    digest = hashlib.blake2b(digest_size=12)
    with ThreadPoolExecutor(min(16, usable_cores())) as pool:  # hashing releases the GIL
        hashes = pool.map(
            lambda item: hashlib.blake2b(
                item[1].detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data, digest_size=12
            ).hexdigest(),
            tensors,
        )
        for (name, tensor), own in zip(tensors, hashes, strict=True):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {own}\n".encode())
    return digest.hexdigest()


MARKER = "complete"
KEPT = 2
_WITHOUT_CHECKSUMS = b"every file of this checkpoint is on disk\n"  # the marker of version 0.1.0
_NAME = re.compile(r"checkpoint-(\d+)")


def mark_complete(folder: Path) -> None:
    """Flush every file of a checkpoint to disk, then write the marker with their checksums."""
    write_checksums(folder, MARKER)


def resumable(folder: Path) -> Path | None:
    """The complete checkpoint of the highest step, verified; None when there is none.

    Raises:
        RunError: When it is damaged; the user decides which checkpoint to resume from instead.
    """
    found = latest(folder)
    if found is None:
        return None
    if read_bytes(found / MARKER) == _WITHOUT_CHECKSUMS:
        NoticeStream(sys.stderr).write(f"{found} was not verified: it has no checksums (cxrlab 0.1.0 wrote none)\n")
    elif damage := find_damage(found, MARKER):
        before = max((one for one in complete(folder) if one[1] != found), default=None)
        then = f"resume from {before[1].name}, the complete one before it" if before else "start anew from step 0"
        raise RunError(f"{found} is damaged: {damage}; remove that folder to {then}.")
    return found


def latest(folder: Path) -> Path | None:
    """The complete checkpoint of the highest step; None when there is none."""
    found = complete(folder)
    return max(found)[1] if found else None


def step_of(checkpoint: Path) -> int:
    """The step of a checkpoint."""
    match = _NAME.fullmatch(checkpoint.name)
    if match is None:
        raise ValueError(f"{checkpoint} is not a checkpoint folder")
    return int(match[1])


def remove_incomplete(folder: Path) -> None:
    """Remove checkpoints that a kill left incomplete."""
    for _, path in _all(folder):
        if not (path / MARKER).is_file():
            shutil.rmtree(path)


def remove_old(folder: Path, kept: int = KEPT) -> None:
    """Remove all but the latest complete ones."""
    found = sorted(complete(folder))
    for _, path in found[: max(0, len(found) - kept)]:
        (path / MARKER).unlink()  # first: a kill during the removal leaves an incomplete checkpoint, not a damaged one
        shutil.rmtree(path)


def complete(folder: Path) -> list[tuple[int, Path]]:
    """Step and folder of every complete checkpoint."""
    return [(step, path) for step, path in _all(folder) if (path / MARKER).is_file()]


def _all(folder: Path) -> list[tuple[int, Path]]:
    if not folder.is_dir():
        return []
    matches = [(_NAME.fullmatch(path.name), path) for path in folder.iterdir()]
    return [(int(match[1]), path) for match, path in matches if match]
