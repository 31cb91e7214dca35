"""Settings of the data room: every field is also a flag of the command line and a key of a YAML file."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.asking import Asking
from cxrlab.core.errors import ConfigError, nearest
from cxrlab.core.records import SPLITS
from cxrlab.data.phantom.presets import PRESETS
from cxrlab.findings.lexicon import LEXICONS

# A hundred times the largest public corpus of chest radiographs; more is a slip of the finger.
MOST_STUDIES = 10_000_000
IMPORT_SPLITS = ("official", "patient", "train")


def _whole(name: str, value: object, low: int, high: int | None = None) -> None:
    """Refuse anything but a whole number of [low, high]; True is not a number here."""
    limit = f"at least {low}" if high is None else f"from {low} to {high:,}"
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        raise ConfigError(f"{name}={value!r} is not usable; give a whole number {limit}.")


def _share(name: str, value: object) -> None:
    """Refuse anything but a number of [0, 1]."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name}={value!r} is not a share; give a number from 0 to 1.")


def _one_of(name: str, value: str, allowed: Collection[str]) -> None:
    if value not in allowed:
        hint = nearest(str(value), allowed)
        raise ConfigError(f"{name}={value!r} is unknown.{hint} Choose one of {', '.join(allowed)}.")


@dataclass(frozen=True)
class PhantomConfig:
    """A corpus of synthetic chest radiographs whose truth is known.

    Args:
        n: Number of studies, at most ten million.
        size: Side of the square images in pixels, 32 to 2048.
        seed: The same seed gives the same bytes, whatever the number of workers.
        preset: How images are taken: standard, or shifted (other geometry, exposure and noise).
        faint: Share of findings drawn with low contrast from when they are first seen, 0 to 1.
        normal: Share of studies without any finding, 0 to 1.
        lexicon: Words of the reports: A (training) or B (held out).
        masks: Write an exact mask for each drawn finding.
        mistakes: Most mistakes in a second text of every train study, which stands under structured as 'mistaken';
            a model that learns from it makes them too. 0 writes none.
        workers: Processes; 0 means one per core, the most there can be.
    """

    n: int = 1000
    size: int = 224
    seed: int = 7
    preset: str = "standard"
    faint: float = 0.05
    normal: float = 0.25
    lexicon: str = "A"
    masks: bool = True
    mistakes: int = 0
    workers: int = 0

    def __post_init__(self) -> None:
        _whole("n", self.n, 1, MOST_STUDIES)
        _whole("mistakes", self.mistakes, 0, 8)
        _whole("size", self.size, 32, 2048)
        _whole("seed", self.seed, 0)
        _one_of("preset", self.preset, PRESETS)
        _share("faint", self.faint)
        _share("normal", self.normal)
        _one_of("lexicon", self.lexicon, LEXICONS)
        _whole("workers", self.workers, 0)


@dataclass(frozen=True)
class ScenesConfig:
    """A corpus of small natural-looking colour pictures without any chest, with captions.

    Args:
        n: Number of pictures, at most ten million.
        size: Side of the square pictures in pixels, 32 to 2048.
        seed: The same seed gives the same bytes, whatever the number of workers.
        workers: Processes; 0 means one per core, the most there can be.
    """

    n: int = 1000
    size: int = 128
    seed: int = 7
    workers: int = 0

    def __post_init__(self) -> None:
        _whole("n", self.n, 1, MOST_STUDIES)
        _whole("size", self.size, 32, 2048)
        _whole("seed", self.seed, 0)
        _whole("workers", self.workers, 0)


@dataclass(frozen=True)
class ImportConfig:
    """How a downloaded data set becomes a corpus.

    Args:
        root: Folder of the data set as it was downloaded.
        layout: Which of several layouts to read, where a data set has more than one (see 'cxrlab data about'); found by
            itself when left out.
        reports: Folder or zip file with the reports, where they lie apart from the images (mimic-cxr).
        projections: Table of views (indiana_projections.csv), where it lies outside the folder (iu-xray, openi).
        split: official (a study without one has none), patient (drawn by patient with the seed), or train (all of it).
        seed: For split=patient.
        copy: Copy the images into the corpus instead of linking to the folder.
        workers: Processes; 0 means one per core, the most there can be.
    """

    root: Path
    layout: str | None = None
    reports: Path | None = None
    projections: Path | None = None
    split: str = "official"
    seed: int = 7
    copy: bool = False
    workers: int = 0

    def __post_init__(self) -> None:
        _one_of("split", self.split, IMPORT_SPLITS)
        _whole("seed", self.seed, 0)
        _whole("workers", self.workers, 0)


@dataclass(frozen=True)
class StructureConfig:
    """Clean sections beside the source's text, by rule or by a language model.

    Args:
        model: rules, or the name of a text model.
        split: Only studies of this split (train or val); both, and studies without one, when left out.
        limit: At most so many studies, the first of the corpus; all of them when left out.
        prompt: YAML file with another prompt than the built-in one.
        batch: Reports that a model is asked at once.
        retries: How often a refused answer is asked for again.
        max_tokens: Longest answer of a model.
        seed: Handed to the model; each further attempt at a report adds one.
        workers: Processes of the rules; 0 means one per core, the most there can be.
        asking: How a model is asked, what is kept of its answers, and what they may cost.
    """

    model: str = "rules"
    split: str | None = None
    limit: int | None = None
    prompt: Path | None = None
    batch: int = 16
    retries: int = 2
    max_tokens: int = 1024
    seed: int = 7
    workers: int = 0
    asking: Asking = Asking()

    def __post_init__(self) -> None:
        if self.split is not None:
            _one_of("split", self.split, ("train", "val"))
        if self.limit is not None:
            _whole("limit", self.limit, 1)
        for name, value, low in (("batch", self.batch, 1), ("retries", self.retries, 0), ("seed", self.seed, 0)):
            _whole(name, value, low)
        _whole("max_tokens", self.max_tokens, 1)
        _whole("workers", self.workers, 0)


@dataclass(frozen=True)
class CheckConfig:
    """How a corpus is checked.

    Args:
        duplicates: Look for reports and images that are nearly the same; those that are the same are always counted.
        images: Images on the sheet of the page.
        seed: Which images are drawn for the sheet.
        workers: Processes; 0 means one per core, the most there can be.
    """

    duplicates: bool = False
    images: int = 24
    seed: int = 7
    workers: int = 0

    def __post_init__(self) -> None:
        _whole("images", self.images, 1, 200)
        _whole("seed", self.seed, 0)
        _whole("workers", self.workers, 0)


@dataclass(frozen=True)
class ScrubConfig:
    """What is done with images that may name a patient.

    Args:
        blank: Write copies with new headers and blanked text; without it, findings are only listed.
        markers: Blank side markers (L, R, with or without AP or PA) too.
        workers: Processes; 0 means one per core, the most there can be.
    """

    blank: bool = False
    markers: bool = False
    workers: int = 0

    def __post_init__(self) -> None:
        _whole("workers", self.workers, 0)


@dataclass(frozen=True)
class SheetConfig:
    """A contact sheet: many pictures of a corpus on one page, with what is known of each beneath.

    Args:
        n: Number of studies shown; all of them when the corpus has fewer.
        columns: Pictures in a row.
        seed: Which studies are drawn.
        split: Only studies of this split (train, val or test); every study when left out.
        masks: Outline the mask of each finding in colour.
        size: Side of each picture on the sheet in pixels, 32 to 2048.
    """

    n: int = 40
    columns: int = 8
    seed: int = 7
    split: str | None = None
    masks: bool = False
    size: int = 224

    def __post_init__(self) -> None:
        _whole("n", self.n, 1, 2000)
        _whole("columns", self.columns, 1, 50)
        _whole("seed", self.seed, 0)
        _whole("size", self.size, 32, 2048)
        if self.split is not None:
            _one_of("split", self.split, SPLITS)
