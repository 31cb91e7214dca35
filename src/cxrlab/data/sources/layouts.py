"""Which of several layouts a data set has, and where in the folder a film lies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PureWindowsPath

from cxrlab.core.errors import ConfigError, nearest
from cxrlab.data.config import ImportConfig


def chosen_layout(config: ImportConfig, known: Sequence[str]) -> str | None:
    """The layout that the settings name, or None when they leave it to the importer; an unknown one is refused."""
    if config.layout is not None and config.layout not in known:
        choice = f"Choose one of {', '.join(known)}, or leave it out." if known else "It has one only; leave it out."
        raise ConfigError(f"layout={config.layout!r} is unknown here.{nearest(config.layout, known)} {choice}")
    return config.layout


def film_path(root: Path, candidates: Iterable[str]) -> str:
    """The first of these paths that is a file under the root; the first of all where none is.

    A path that leaves the root is never looked at: it comes back as it is, for the engine to refuse.
    """
    several = tuple(candidates)
    inside = (path for path in several if ".." not in path.split("/") and not path.startswith("/"))
    return next((path for path in inside if (root / path).is_file()), several[0])


def portable(path: str) -> str:
    """A path of a table with `/` between its parts, without `./` in front, however the table writes it."""
    return PureWindowsPath(path).as_posix() if "\\" in path else path.removeprefix("./")
