"""What there is to scrub: the images of a corpus study by study, or every file of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import unreadable
from cxrlab.core.records import Study
from cxrlab.data.corpus import STUDIES, load_corpus, study_files


@dataclass(frozen=True)
class Unit:
    """Files that belong together.

    Args:
        files: Paths below the source.
        masks: Those of them that are outlines of findings.
        study: The study whose images and masks they are; None in a folder that is no corpus.
    """

    files: tuple[str, ...]
    masks: frozenset[str] = frozenset()
    study: Study | None = None


def units(source: Path) -> Iterator[Unit]:
    """Everything below the source, in an order that does not change."""
    if is_corpus(source):
        for study in load_corpus(source).studies():
            yield Unit(study_files(study), frozenset(study.masks.values()), study)
    elif source.is_dir():
        for name in _walk(source):
            yield Unit((name,))
    else:
        yield Unit((source.name,))


def is_corpus(source: Path) -> bool:
    """Whether a corpus stands there."""
    return (source / STUDIES).is_file()


def home(source: Path) -> Path:
    """The folder that paths of units are relative to."""
    return source if source.is_dir() else source.parent


def check_source(source: Path, out: Path) -> None:
    """Refuse a source that does not exist, and one that holds the output or stands in it."""
    if not source.exists():
        raise unreadable(FileNotFoundError(2, "no such file"), source)
    if not source.is_dir() and not source.is_file():
        raise DataError(f"{source} is a pipe or a device; name a folder or an image.")
    here, there = home(source).resolve(), out.resolve()
    if source.is_dir() and (there.is_relative_to(here) or here.is_relative_to(there)):
        raise ConfigError(
            f"{out} and {source} stand in one another; nothing is cleaned in place: choose another --out."
        )


def leaves(source: Path, name: str) -> bool:
    """Whether a file of a plain folder is a link that leads out of it; an image named by itself may be one.

    A corpus reaches its images through links by design; in a folder of downloads such a link would let
    somebody else's file be copied under an innocent name.
    """
    return source.is_dir() and not (source / name).resolve().is_relative_to(source.resolve())


def _refuse(error: OSError) -> None:
    """A folder that cannot be listed may hold images that nobody would have looked at."""
    raise unreadable(error, Path(error.filename))


def _walk(folder: Path) -> Iterator[str]:
    """Paths of all files, without entering linked folders; hidden files are files too."""
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders.sort()
        linked = [name for name in folders if os.path.islink(os.path.join(place, name))]
        for name in sorted([*names, *linked]):
            yield os.path.relpath(os.path.join(place, name), folder)
