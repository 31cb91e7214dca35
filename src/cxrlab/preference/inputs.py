"""What a run was made from, by content: a stage that goes on, or is asked again, must stand on the same files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from cxrlab.core.errors import RunError
from cxrlab.core.files import read_json, sha256_of
from cxrlab.core.runs import Run

INPUTS = "inputs.json"


def digests(files: Iterable[Path]) -> dict[str, str]:
    """Path → SHA-256 of each file's content."""
    return {file.as_posix(): sha256_of(file) for file in files}


def keep_inputs(run: Run, found: dict[str, str]) -> None:
    """Write down what this run is made from; a run that goes on is refused when that has changed.

    Args:
        run: The open run.
        found: From `digests`.
    """
    if run.resumed and run.path(INPUTS).is_file():
        check_inputs(run.folder)
    else:
        run.write(INPUTS, found)


def check_inputs(folder: Path) -> None:
    """Refuse a run that was made from other content under the same paths; files that are gone are not missed."""
    for path, digest in read_json(folder / INPUTS).items():
        if Path(path).is_file() and sha256_of(path) != digest:
            raise RunError(f"{path} has changed since the run in {folder} read it; choose another folder.")
