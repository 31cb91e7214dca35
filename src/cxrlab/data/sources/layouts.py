"""Which of several layouts a data set has, and where in the folder a film lies."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from pathlib import Path, PureWindowsPath

from cxrlab.core.errors import ConfigError, DataError, nearest
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus import check_inside


def chosen_layout(config: ImportConfig, known: Sequence[str]) -> str | None:
    """The layout that the settings name, or None when they leave it to the importer; an unknown one is refused."""
    if config.layout is not None and config.layout not in known:
        choice = f"Choose one of {', '.join(known)}, or leave it out." if known else "It has one only; leave it out."
        raise ConfigError(f"layout={config.layout!r} is unknown here.{nearest(config.layout, known)} {choice}")
    return config.layout


def image_path(root: Path, candidates: Iterable[str]) -> str:
    """The first of these paths that is a file under the root; the first of all where none is.

    A path that leaves the root comes back as it is, for the engine to refuse.
    """
    several = tuple(candidates)
    return next((path for path in several if is_image(root, path)), several[0])


def is_image(root: Path, path: str) -> bool:
    """Whether a path that a table names is a file under the root; one that leaves the root is never looked at."""
    try:
        check_inside(path)
        return stat.S_ISREG(os.stat(root / path).st_mode)
    except (DataError, OSError):  # the system refuses names that are too long and links that lead in circles
        return False


def portable(path: str) -> str:
    """A path of a table with `/` between its parts, without `./` in front, however the table writes it."""
    return PureWindowsPath(path).as_posix() if "\\" in path else path.removeprefix("./")
