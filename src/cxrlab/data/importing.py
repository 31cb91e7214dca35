"""From a downloaded data set to a corpus folder: link or copy its images, keep its notes, resume after a kill.

Images stay where they are: `images` in the corpus is one link to the source folder, so that half a
million images cost one link; with `--copy` each image is copied to the same path. The corpus is the
same either way, and after any number of kills.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_bytes, sha256_of
from cxrlab.core.records import ImageFile, Study
from cxrlab.data.card import Card
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus import Corpus, check_inside
from cxrlab.data.corpus_writer import Dropped, NewStudy, Recipe, build_corpus, is_nonempty_file
from cxrlab.data.registry import IMPORTERS
from cxrlab.data.sources.tables import record_source_files
from cxrlab.data.splits import assign_split
from cxrlab.findings.label_report import label_report

IMAGES = "images"
NOT_IN_FOLDER = "image listed, but not in the folder"
LEAVES_FOLDER = "the path of an image leaves the source folder"
# Raised whenever the same source (see `made_from` on the card) gives another corpus than before, so that one is never
# continued by the other.
FORM = 2
# Studies that a worker reads at once: most take less than a millisecond.
BATCH = 16


def import_corpus(name: str, config: ImportConfig, out: str | Path) -> Corpus:
    """Import a data set, or continue where an interrupted import stopped.

    An image that the source lists and the folder lacks is no image of its study: it is kept under
    `absent_images`, with the same fields, and counted as a remark.
    """
    importer = IMPORTERS.load(name)
    with record_source_files() as files:
        plan: ImportPlan[object] = importer(config)
    if Path(os.path.realpath(out)).is_relative_to(os.path.realpath(config.root)):
        raise ConfigError(f"{out} lies in the source folder {config.root}; choose a folder outside of it.")
    if ignored := [key for key in ("reports", "projections") if getattr(config, key) and key not in plan.used_settings]:
        raise ConfigError(f"{ignored[0]}={str(getattr(config, ignored[0]))!r} means nothing to {name}; leave it out.")
    told = dataset_info(importer)
    card = Card(
        name=name,
        source=told.title,
        licence=told.licence,
        citation=told.citation,
        settings={
            "form": FORM,
            "layout": plan.layout,
            "images": "written" if plan.writes_images else "copied" if config.copy else "linked",
            "split": config.split,
            **({"split_seed": config.seed} if config.split == "patient" else {}),
            **(
                {
                    "made_from": {
                        (
                            file.relative_to(config.root).as_posix() if file.is_relative_to(config.root) else file.name
                        ): sha256_of(file)[:16]
                        for file in files
                    }
                }
                if files
                else {}
            ),
        },
        collections=plan.collections,
        remarks=plan.remarks,
        absent={},
    )
    recipe: Recipe[object] = Recipe(
        items=plan.items,
        ids=lambda item: (plan.study_id(item),),
        draw=partial(_take, plan.read, plan.label_style, plan.writes_images, config),
        label=f"importing {name}",
        total=plan.total,
        links={} if plan.writes_images or config.copy else {IMAGES: config.root},
        batch=BATCH,
    )
    return build_corpus(out, card, recipe, config.workers)


def _take(
    read: Callable[[Item], Imported | Dropped],
    label_style: str | None,
    writes: bool,
    config: ImportConfig,
    item: Item,
) -> list[NewStudy | Dropped]:
    """One study: read it, give it its split, tell its labels, look for its images, place them. Runs in a worker."""
    answer = read(item)
    if isinstance(answer, Dropped):
        return [answer]
    study = answer.study
    if config.split != "official":
        split = "train" if config.split == "train" else assign_split(study.patient, config.seed)
        study = dataclasses.replace(study, split=split)
    if label_style is not None:  # after the split: what is made from labels never stands in a test split
        study = with_label_report(study, label_style)
    if writes:
        return [NewStudy(study, answer.files, answer.remarks)]
    try:
        for image in study.images:
            check_inside(image.path)
    except DataError:
        return [Dropped(study.id, LEAVES_FOLDER)]
    # The study with its images by their path in the corpus, those that are not there set apart.
    here = [image for image in study.images if is_nonempty_file(config.root / image.path)]
    absent = tuple(_in_corpus(image) for image in study.images if image not in here)
    files = {f"{IMAGES}/{image.path}": read_bytes(config.root / image.path) for image in here} if config.copy else {}
    study = dataclasses.replace(study, images=tuple(map(_in_corpus, here)), absent_images=absent or None)
    return [NewStudy(study, files, (*answer.remarks, NOT_IN_FOLDER) if absent else answer.remarks)]


def _in_corpus(image: ImageFile) -> ImageFile:
    return dataclasses.replace(image, path=f"{IMAGES}/{image.path}")


Item = TypeVar("Item")

# The fields of an importer's docstring, in their order.
FIELDS = ("Counts", "Views", "Labels", "Language", "Licence", "Citation", "Obtain", "Defects")


@dataclass(frozen=True)
class Imported:
    """One study of the source.

    Args:
        study: Its images by their path in the source folder, with `/` between the parts.
        remarks: What was odd about it: a few fixed sentences without names, since they are counted.
        files: Bytes of its images by path, where the source keeps them in another form than files.
    """

    study: Study
    remarks: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportPlan(Generic[Item]):
    """A source that was found and understood, ready to be read study by study.

    Args:
        study_id: The id of an item's study, unique in the source.
        read: The study of an item, or why it is left out; importable by name, since workers run it.
        remarks: What is odd about the source and belongs to no study (a box for an unknown image) → how often.
        used_settings: Which of the settings that only some data sets have it looked at: reports, projections.
        label_style: How sentences are made from the labels (see `label_text`), where the source has no English report.
        writes_images: Whether the importer gives the bytes of images (`Imported.files`); then nothing is linked or copied.
    """

    items: Iterable[Item]
    study_id: Callable[[Item], str]
    read: Callable[[Item], Imported | Dropped]
    total: int | None
    layout: str
    collections: tuple[str, ...] = ()
    remarks: Mapping[str, int] = field(default_factory=dict)
    used_settings: tuple[str, ...] = ()
    label_style: str | None = None
    writes_images: bool = False


@dataclass(frozen=True)
class DatasetInfo:
    """What the docstring of an importer says of its data set."""

    title: str
    fields: Mapping[str, str]

    @property
    def licence(self) -> str:
        return self.fields["Licence"]

    @property
    def citation(self) -> str:
        return self.fields["Citation"]


def dataset_info(importer: Callable[..., Any]) -> DatasetInfo:
    """What the module of an importer's `plan` says of its data set; a missing field is a mistake of the programmer."""
    text = inspect.cleandoc(sys.modules[importer.__module__].__doc__ or "")
    title, _, body = text.partition("\n")
    parts = re.split(rf"^({'|'.join(FIELDS)}):", body, flags=re.MULTILINE)
    found = {name: " ".join(value.split()) for name, value in zip(parts[1::2], parts[2::2], strict=True)}
    if tuple(found) != FIELDS or not all(found.values()):
        raise ValueError(f"the docstring of {importer.__module__} needs the fields {', '.join(FIELDS)}, in this order.")
    return DatasetInfo(title.rstrip("."), found)


MAKER = "labels"
# Which of a study's label sets each style tells: CheXpert's label_vector, or the corpus's own names.
_FOURTEEN = frozenset({"chexpert", "brax"})


def with_label_report(study: Study, style: str) -> Study:
    """The study with `structured["labels"]`, the findings that its labels tell.

    The study is returned as it is where it belongs to the test split, which never holds text that is not the
    source's, or where its labels tell nothing.
    """
    if study.split == "test":
        return study
    labels: Mapping[str, int] = study.labels if style in _FOURTEEN else study.own_labels
    text = label_report(labels, study.id, style)
    if not text:
        return study
    return replace(study, structured={**study.structured, MAKER: {"findings": text}})
