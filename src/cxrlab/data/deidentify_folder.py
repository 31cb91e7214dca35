"""`data scrub`: list what in images may name a patient, and write copies without it.

    scrub.jsonl      one line per file: header elements by keyword, boxes of burned-in text, what was done
    summary.json     counts
    cleaned/         with --blank: copies, and nothing else; a corpus if the source is one
    pseudonyms.key   with --blank: links new identifiers with old ones; keep it or destroy it, never pass it on

Only `cleaned/` is meant to be exported. The other files hold fixed sentences and names of files, never values of headers.
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
from cxrlab.data.deidentify_image import (
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
NOT_AN_IMAGE = "neither DICOM, PNG nor JPEG"
UNREADABLE = "cannot be read or decoded in full"
NOT_ONE_IMAGE = "DICOM without pixels (a report, or cut short), of several frames, or larger than any image"
STILL_TEXT = "shows text after several passes of blanking"
LINK_OUTSIDE = "a link that leads out of the folder"
ODD_NAME = "the name of the file is not UTF-8"
IMAGE_LOST = "an image that could not be cleaned was left out"
NO_IMAGE = "no image could be cleaned"


@dataclass(frozen=True)
class Line:
    """One file: what was found and what was done."""

    file: str
    state: str  # flagged or nothing found; with blanking cleaned; left out (no image) or failed, with a reason
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
    """Counts of files of a run by state, reason and header element."""

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
    with Run.open(out, settings, operational=("workers",)) as run, ExitStack() as stack:
        cleaned = run.folder / CLEANED
        pseudonyms = pseudonyms_in(run.folder) if config.blank else None
        corpus: CorpusWriter | None = None
        if config.blank and is_corpus(source):
            card = load_corpus(source).card
            card = dataclasses.replace(card, settings={**card.settings, "scrubbed": True}, dropped={})
            corpus = stack.enter_context(CorpusWriter(cleaned, card))
        done = run.done(LINES, "file")
        left = (
            unit
            for unit in units(source)
            if not (
                unit.study.id in corpus
                if corpus is not None and unit.study is not None
                else all(_printable(name) in done for name in unit.files)
            )
        )
        work = partial(_scrub, source, cleaned, config, pseudonyms)
        results = stack.enter_context(closing(ordered_map(work, left, config.workers)))
        for unit, lines in track(results, f"scrubbing {source.name}"):
            for line in lines:
                if line.file not in done:  # two studies may share an image
                    run.append(LINES, line)
                    done.add(line.file)
            if corpus is not None and unit.study is not None:
                _add_cleaned(corpus, unit.study, lines)
        stack.close()  # completes the corpus before the summary is written
        report = _summary(run.folder / LINES, out / CLEANED if config.blank else None)
        run.write(SUMMARY, {"scrub": report})
    return report


def _add_cleaned(corpus: CorpusWriter, study: Study, lines: Iterable[Line]) -> None:
    """Add a study with those of its images that were cleaned; one that lost all of them is left out."""
    written = {line.file: line.written for line in lines if line.written is not None}
    paths = [(image, written.get(_printable(image.path))) for image in study.images]
    images = tuple(dataclasses.replace(image, path=path) for image, path in paths if path is not None)
    masks = {key: written[_printable(path)] for key, path in study.masks.items() if _printable(path) in written}
    if study.images and not images:
        corpus.drop(Dropped(study.id, NO_IMAGE))
        return
    lost = len(images) < len(study.images) or len(masks) < len(study.masks)
    corpus.add(dataclasses.replace(study, images=images, masks=masks), remarks=(IMAGE_LOST,) if lost else ())


def _scrub(
    source: Path, cleaned: Path, config: ScrubConfig, pseudonyms: Pseudonyms | None, unit: Unit
) -> tuple[Unit, list[Line]]:
    """Examine the files of a unit and write their copies. Runs in a worker."""
    return unit, [_scrub_file(source, cleaned, config, pseudonyms, name, unit) for name in dict.fromkeys(unit.files)]


def _scrub_file(
    source: Path, cleaned: Path, config: ScrubConfig, pseudonyms: Pseudonyms | None, name: str, unit: Unit
) -> Line:
    printable = _printable(name)
    try:
        # In a plain folder, a link to a file outside could copy somebody else's file under an innocent name; a
        # corpus reaches its images through links by design.
        loose = unit.study is None and source.is_dir()
        if loose and not (source / name).resolve().is_relative_to(source.resolve()):
            return Line(printable, FAILED, reason=LINK_OUTSIDE)
        data = read_bounded(home(source) / name)
        if not is_image(data):
            return Line(printable, LEFT_OUT, reason=NOT_AN_IMAGE)
        found = examine(data, printable, mask=name in unit.masks)
        if pseudonyms is None:
            flagged = found.tags or found.private or found.boxes
            return Line(printable, FLAGGED if flagged else NOTHING, found)
        if printable != name:
            return Line(printable, FAILED, found, ODD_NAME)
        copy = clean(data, printable, found, pseudonyms, markers=config.markers)
    except NotOneImage:
        return Line(printable, FAILED, reason=NOT_ONE_IMAGE)
    except TextRemains:
        return Line(printable, FAILED, reason=STILL_TEXT)
    except Exception:  # of any kind, from a damaged file; the message may hold a value of its header
        return Line(printable, FAILED, reason=UNREADABLE)
    # The ids of a corpus are its own; those in the name of a loose file may be the patient's.
    target = name if unit.study is not None else pseudonyms.path(name, copy.identifiers)
    write_bytes(cleaned / target, copy.data, durable=False)
    return Line(printable, WRITTEN, found, written=target)


def _printable(name: str) -> str:
    """A path as UTF-8 text, with escapes for bytes that are not UTF-8."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _summary(lines: Path, cleaned: Path | None) -> ScrubReport:
    states, reasons, tags, rest = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for _, line in read_jsonl(lines):
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
    """Files that belong together."""

    files: tuple[str, ...]
    masks: frozenset[str] = frozenset()  # those of them that are outlines of findings
    study: Study | None = None


def units(source: Path) -> Iterator[Unit]:
    """Everything below the source, in an order that does not change."""
    if is_corpus(source):
        for study in load_corpus(source).studies():
            yield Unit(study_files(study), frozenset(study.masks.values()), study)
    elif source.is_dir():

        def refuse(error: OSError) -> None:  # a folder that cannot be listed may hold images
            raise unreadable(error, Path(error.filename))

        # All files, hidden ones too, without entering linked folders.
        for folder, folders, names in os.walk(source, onerror=refuse):
            folders.sort()
            linked = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in sorted([*names, *linked]):
                yield Unit((os.path.relpath(os.path.join(folder, name), source),))
    else:
        yield Unit((source.name,))


def is_corpus(source: Path) -> bool:
    """Whether the folder is a corpus."""
    return (source / STUDIES).is_file()


def home(source: Path) -> Path:
    """The folder that paths of units are relative to."""
    return source if source.is_dir() else source.parent


def check_source(source: Path, out: Path) -> None:
    """Refuse a source that does not exist, holds the output or is inside it."""
    if not source.exists():
        raise unreadable(FileNotFoundError(2, "no such file"), source)
    if not source.is_dir() and not source.is_file():
        raise DataError(f"{source} is a pipe or a device; name a folder or an image.")
    here, there = home(source).resolve(), out.resolve()
    if source.is_dir() and (there.is_relative_to(here) or here.is_relative_to(there)):
        raise ConfigError(
            f"--out {out} and the source {source}: one contains the other, and images are not cleaned in place; choose "
            "another --out."
        )
