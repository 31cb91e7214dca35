"""Folders that are whole or absent: filled under a hidden name, then given their own."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

from cxrlab.core.errors import RunError
from cxrlab.core.files import PRIVATE, make_folder, os_error


def write_folder(out: Path, write: Callable[[Path], None]) -> Path:
    """Let `write` fill an empty folder, which then becomes `out`; after a kill there is no `out`.

    Args:
        out: The folder to make; see `refuse_taken`.
        write: Given an empty folder beside it.
    """
    refuse_taken(out)
    make_folder(out.parent)
    # Dot in front: a leftover of a killed process is never mistaken for a result.
    hidden = out.parent / f".{out.name[:100]}.{secrets.token_hex(4)}.tmp"
    try:
        make_folder(hidden)
        write(hidden)
        for file in files_of(hidden):
            file.chmod(PRIVATE)
        if out.is_dir():
            out.rmdir()  # an empty one
        os.replace(hidden, out)
    except OSError as error:
        raise os_error(error, out) from error
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return out


def files_of(folder: Path) -> list[Path]:
    """Every file of a folder and the folders in it, in the order of their paths."""
    return sorted(path for path in folder.rglob("*") if path.is_file())


def refuse_taken(out: Path) -> None:
    """A `RunError` when something is there already; an empty folder is nothing. Ask before hours are spent."""
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise RunError(f"{out} is there already; choose a new or empty folder.")
