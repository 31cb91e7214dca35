"""`data scrub`: tell what in images may name a patient, and write copies without it.

    scrub.jsonl      one line a file: header elements by keyword, boxes of burned-in text, what was done
    summary.json     how much of what
    cleaned/         with --blank: copies, and nothing else; a corpus where the source is one
    pseudonyms.key   with --blank: links new identifiers with old ones; keep it or destroy it, never pass it on

Reasons are fixed sentences and values of headers are never written: only `cleaned/` is meant to be
exported, but the rest tells no more of a patient than the names of the files do.
"""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import unreadable, write_bytes
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import Study
from cxrlab.core.runs import Run
from cxrlab.core.terminal import track
from cxrlab.data.bounded_reading import read_bounded
from cxrlab.data.config import ScrubConfig
from cxrlab.data.corpus import STUDIES, load_corpus, study_files
from cxrlab.data.corpus_writer import CorpusWriter, Dropped
from cxrlab.data.deidentify import (
    Examined,
    NotOneImage,
    Pseudonyms,
    TextRemains,
    clean,
    examine,
    is_image,
    pseudonyms_in,
)
from cxrlab.data.parallel import ordered_map

LINES, SUMMARY, CLEANED = "scrub.jsonl", "summary.json", "cleaned"
FLAGGED, NOTHING, WRITTEN, LEFT_OUT, FAILED = "flagged", "nothing found", "cleaned", "left out", "failed"
NOT_A_IMAGE = "neither DICOM, PNG nor JPEG"
UNREADABLE = "cannot be read or decoded in full"
NOT_ONE_IMAGE = "DICOM without pixels (a report, or cut short), of several frames, or larger than any image"
STILL_TEXT = "shows text after it was blanked again and again"
LINK_LEAVES = "a link that leads out of the folder"
ODD_NAME = "the name of the file is not UTF-8"
IMAGE_LOST = "an image that could not be cleaned was left out"
NO_IMAGE = "no image could be cleaned"


@dataclass(frozen=True)
class Line:
    """One file: what was found and what was done.

    Args:
        state: flagged or nothing found; with blanking cleaned; left out (no image) or failed, with a reason.
    """

    file: str
    state: str
    found: Examined | None = None
    reason: str | None = None
    written: str | None = None

    def to_json(self) -> dict[str, Any]:
        line: dict[str, Any] = {"file": self.file, "state": self.state}
        if self.found is not None:
            line |= {
                "kind": self.found.kind,
                "tags": list(self.found.tags),
                "private": self.found.private,
                "burned_in_annotation": self.found.burned_in,
                "boxes": [list(box) for box in self.found.text],
                "markers": [list(box) for box in self.found.markers],
            }
        return line | {key: value for key, value in (("reason", self.reason), ("written", self.written)) if value}


@dataclass(frozen=True)
class ScrubReport:
    """What a run came to."""

    files: int
    states: Mapping[str, int]
    reasons: Mapping[str, int]
    tags: Mapping[str, int]
    private: int
    burned_in: int
    with_text: int
    with_markers: int
    cleaned: Path | None = None

    @property
    def ok(self) -> bool:
        return not self.states.get(FAILED)


def run_scrub(source: Path, config: ScrubConfig, out: Path) -> ScrubReport:
    """Examine every image of a source, and with `config.blank` write clean copies; a stopped run is continued."""
    check_source(source, out)
    settings = {"source": str(source), "blank": config.blank, "markers": config.markers, "workers": config.workers}
    with Run.open(out, settings, operational=("workers",)) as run:
        names = pseudonyms_in(run.folder) if config.blank else None
        work = partial(_scrub, source, run.folder / CLEANED, config, names)
        done = run.done(LINES, "file")
        with ExitStack() as stack:
            corpus = _corpus_writer(source, run.folder / CLEANED) if config.blank and is_corpus(source) else None
            if corpus is not None:
                stack.enter_context(corpus)
            left = (unit for unit in units(source) if not _finished(unit, done, corpus))
            results = stack.enter_context(closing(ordered_map(work, left, config.workers)))
            for unit, lines in track(results, f"scrubbing {source.name}"):
                for line in lines:
                    if line.file not in done:  # two studies may share an image
                        run.append(LINES, line)
                        done.add(line.file)
                if corpus is not None and unit.study is not None:
                    _keep(corpus, unit.study, lines)
        report = _summed((line for _, line in read_jsonl(run.folder / LINES)), out / CLEANED if config.blank else None)
        run.write(SUMMARY, {"scrub": report})
    return report


def _finished(unit: Unit, done: set[str], corpus: CorpusWriter | None) -> bool:
    if corpus is not None and unit.study is not None:
        return unit.study.id in corpus
    return all(_shown(name) in done for name in unit.files)


def _corpus_writer(source: Path, cleaned: Path) -> CorpusWriter:
    card = load_corpus(source).card
    settings = {**card.settings, "scrubbed": True}
    return CorpusWriter(cleaned, dataclasses.replace(card, settings=settings, dropped={}))


def _keep(corpus: CorpusWriter, study: Study, lines: Iterable[Line]) -> None:
    """Add a study with those of its images that were cleaned; one that lost all of them is left out."""
    written = {line.file: line.written for line in lines if line.written is not None}
    images = tuple(
        dataclasses.replace(image, path=written[_shown(image.path)])
        for image in study.images
        if _shown(image.path) in written
    )
    masks = {key: written[_shown(path)] for key, path in study.masks.items() if _shown(path) in written}
    if study.images and not images:
        corpus.drop(Dropped(study.id, NO_IMAGE))
        return
    lost = len(images) < len(study.images) or len(masks) < len(study.masks)
    corpus.add(dataclasses.replace(study, images=images, masks=masks), remarks=(IMAGE_LOST,) if lost else ())


def _scrub(
    source: Path, cleaned: Path, config: ScrubConfig, names: Pseudonyms | None, unit: Unit
) -> tuple[Unit, list[Line]]:
    """Examine the files of a unit and write their copies. Runs in a worker."""
    return unit, [_scrub_file(source, cleaned, config, names, name, unit) for name in dict.fromkeys(unit.files)]


def _scrub_file(
    source: Path, cleaned: Path, config: ScrubConfig, names: Pseudonyms | None, name: str, unit: Unit
) -> Line:
    shown = _shown(name)
    try:
        if unit.study is None and leaves(source, name):
            return Line(shown, FAILED, reason=LINK_LEAVES)
        data = read_bounded(home(source) / name)
        if not is_image(data):
            return Line(shown, LEFT_OUT, reason=NOT_A_IMAGE)
        found = examine(data, shown, mask=name in unit.masks)
        if names is None:
            told = found.tags or found.private or found.boxes
            return Line(shown, FLAGGED if told else NOTHING, found)
        if shown != name:
            return Line(shown, FAILED, found, ODD_NAME)
        copy = clean(data, shown, found, names, markers=config.markers)
    except NotOneImage:
        return Line(shown, FAILED, reason=NOT_ONE_IMAGE)
    except TextRemains:
        return Line(shown, FAILED, reason=STILL_TEXT)
    except Exception:  # whatever a hostile file brings about: its words may hold a value of its header
        return Line(shown, FAILED, reason=UNREADABLE)
    # The ids of a corpus are its own; those in the name of a loose file may be the patient's.
    target = name if unit.study is not None else names.path(name, copy.identifiers)
    write_bytes(cleaned / target, copy.data, durable=False)
    return Line(shown, WRITTEN, found, written=target)


def _shown(name: str) -> str:
    """A path that can be written down, also where its bytes are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _summed(lines: Iterable[Mapping[str, Any]], cleaned: Path | None) -> ScrubReport:
    states: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    tags: Counter[str] = Counter()
    rest: Counter[str] = Counter()
    for line in lines:
        states[str(line["state"])] += 1
        reasons.update([str(line["reason"])] if line.get("reason") else [])
        tags.update(line.get("tags") or ())
        rest["private"] += bool(line.get("private"))
        rest["burned_in"] += line.get("burned_in_annotation") == "YES"
        rest["with_text"] += bool(line.get("boxes"))
        rest["with_markers"] += bool(line.get("markers"))
    return ScrubReport(
        files=states.total(),
        states=dict(states),
        reasons=dict(reasons.most_common()),
        tags=dict(tags.most_common()),
        private=rest["private"],
        burned_in=rest["burned_in"],
        with_text=rest["with_text"],
        with_markers=rest["with_markers"],
        cleaned=cleaned,
    )


@dataclass(frozen=True)
class Unit:
    """Files that belong together.

    Args:
        masks: Those of them that are outlines of findings.
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
