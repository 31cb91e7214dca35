"""Import a downloaded data set as a corpus folder; its images are linked, or copied with `--copy`."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_bytes, sha256_of
from cxrlab.core.records import ImageFile, Study
from cxrlab.core.registry import Registry
from cxrlab.data.card import Card
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus import Corpus, assign_split, check_inside
from cxrlab.data.corpus_writer import Dropped, NewStudy, Recipe, build_corpus, is_nonempty_file
from cxrlab.data.source_tables import record_source_files
from cxrlab.findings.label_report import label_report

IMPORTERS = Registry(
    "data set to import",
    {
        "mimic-cxr": "cxrlab.data.sources.mimic_cxr:plan",
        "llava-rad": "cxrlab.data.sources.llava_rad:plan",
        "chexpert": "cxrlab.data.sources.chexpert:plan",
        "brax": "cxrlab.data.sources.brax:plan",
        "candid-ptx": "cxrlab.data.sources.candid_ptx:plan",
        "vindr-cxr": "cxrlab.data.sources.vindr_cxr:plan",
        "object-cxr": "cxrlab.data.sources.object_cxr:plan",
        "padchest": "cxrlab.data.sources.padchest:plan",
        "nih-cxr14": "cxrlab.data.sources.nih_cxr14:plan",
        "iu-xray": "cxrlab.data.sources.iu_xray:plan",
        "openi": "cxrlab.data.sources.openi:plan",
        "cifar100": "cxrlab.data.sources.cifar100:plan",
        "image-folder": "cxrlab.data.sources.image_folder:plan",
    },
)
IMAGES = "images"
NOT_IN_FOLDER = "image listed, but not in the folder"
OUTSIDE_FOLDER = "the path of an image leaves the source folder"
# Increase it when the same source (`made_from` on the card) yields a different corpus than before; an interrupted
# import of an older version is not continued.
IMPORT_VERSION = 3
# Studies that a worker reads at once: most take less than a millisecond.
BATCH = 16


def import_corpus(name: str, config: ImportConfig, out: str | Path) -> Corpus:
    """Import a data set, or continue an interrupted import.

    `images` in the corpus is one link to the source folder; with `--copy` each image is copied to the same path. An
    image that the source lists and the folder lacks is kept under `absent_images` and counted as a remark.
    """
    importer = IMPORTERS.load(name)
    with record_source_files() as files:
        plan: ImportPlan[object] = importer(config)
    if Path(os.path.realpath(out)).is_relative_to(os.path.realpath(config.root)):
        raise ConfigError(f"--out {out} lies in the source folder {config.root}; choose a folder outside of it.")
    optional = ("reports", "projections", "sections", "annotations")
    if ignored := [key for key in optional if getattr(config, key) and key not in plan.used_settings]:
        raise ConfigError(f"{ignored[0]}={str(getattr(config, ignored[0]))!r} has no effect on {name}; leave it out.")
    settings: dict[str, Any] = {
        "import_version": IMPORT_VERSION,
        "layout": plan.layout,
        "images": "written" if plan.writes_images else "copied" if config.copy else "linked",
        "split": config.split,
    }
    if config.split == "patient":
        settings["split_seed"] = config.seed
    if files:
        inside = {file: file.is_relative_to(config.root) for file in files}
        names = {file: file.relative_to(config.root).as_posix() if inside[file] else file.name for file in files}
        settings["made_from"] = {names[file]: sha256_of(file)[:16] for file in files}
    info = dataset_info(importer)
    card = Card(
        name=name,
        source=info.title,
        licence=info.fields["Licence"],
        citation=info.fields["Citation"],
        settings=settings,
        collections=plan.collections,
        remarks=plan.remarks,
        absent={},
    )
    recipe: Recipe[object] = Recipe(
        items=plan.items,
        ids=lambda item: (plan.study_id(item),),
        make_studies=partial(
            _import_study, plan.read, plan.label_style, plan.sentences_from, plan.writes_images, plan.keeps_test, config
        ),
        label=f"importing {name}",
        total=plan.total,
        links={} if plan.writes_images or config.copy else {IMAGES: config.root},
        batch=BATCH,
    )
    return build_corpus(out, card, recipe, config.workers)


def _import_study(
    read: Callable[[Item], Imported | Dropped],
    label_style: str | None,
    sentences_from: str,
    writes: bool,
    keeps_test: bool,
    config: ImportConfig,
    item: Item,
) -> list[NewStudy | Dropped]:
    """Read one study, set its split, add the report from its labels, find its images. Runs in a worker."""
    imported = read(item)
    if isinstance(imported, Dropped):
        return [imported]
    study = imported.study
    if config.split != "official" and not (keeps_test and study.split == "test"):
        split = "train" if config.split == "train" else assign_split(study.patient, config.seed)
        study = dataclasses.replace(study, split=split)
    if label_style is not None:  # after the split: a test split holds no text made from labels
        study = with_label_report(study, getattr(study, sentences_from), label_style)
    if writes:
        return [NewStudy(study, imported.files, imported.remarks)]
    try:
        for image in study.images:
            check_inside(image.path)
    except DataError:
        return [Dropped(study.id, OUTSIDE_FOLDER)]
    present: list[ImageFile] = []  # images by their path in the corpus
    absent: list[ImageFile] = []
    files: dict[str, bytes] = {}
    for image in study.images:
        moved = dataclasses.replace(image, path=f"{IMAGES}/{image.path}")
        found = is_nonempty_file(config.root / image.path)
        (present if found else absent).append(moved)
        if found and config.copy:
            files[moved.path] = read_bytes(config.root / image.path)
    study = dataclasses.replace(study, images=tuple(present), absent_images=tuple(absent) or None)
    return [NewStudy(study, files, (*imported.remarks, NOT_IN_FOLDER) if absent else imported.remarks)]


Item = TypeVar("Item")

# The fields of an importer's docstring, in their order.
FIELDS = ("Counts", "Views", "Labels", "Language", "Licence", "Citation", "Obtain", "Defects")


@dataclass(frozen=True)
class Imported:
    """One study of the source, with the bytes of its images where the source does not keep them as files."""

    study: Study  # its images by their path in the source folder, with `/` between the parts
    remarks: tuple[str, ...] = ()  # oddities, as fixed sentences without names, since they are counted
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class ImportPlan(Generic[Item]):
    """A source whose tables were read, ready to be read study by study."""

    items: Iterable[Item]
    study_id: Callable[[Item], str]  # the id of an item's study, unique in the source
    # The study of an item, or why it is left out; importable by name, since workers run it.
    read: Callable[[Item], Imported | Dropped]
    total: int | None
    layout: str
    collections: tuple[str, ...] = ()
    # Oddities of the source that belong to no study (a box for an unknown image) → how often.
    remarks: Mapping[str, int] = field(default_factory=dict)
    used_settings: tuple[str, ...] = ()  # optional settings that the importer uses: reports, projections, sections …
    # How sentences are made from the labels (see `label_report`), where the source has no English report.
    label_style: str | None = None
    # The field of a study that holds the labels of that style.
    sentences_from: Literal["labels", "own_labels"] = "own_labels"
    # Whether the importer gives the bytes of images (`Imported.files`); then nothing is linked or copied.
    writes_images: bool = False
    # Whether studies of the official test split stay there whatever --split says: published models are compared on
    # them.
    keeps_test: bool = False


@dataclass(frozen=True)
class DatasetInfo:
    """The docstring of an importer's module, by its fields."""

    title: str
    fields: Mapping[str, str]


def dataset_info(importer: Callable[..., Any]) -> DatasetInfo:
    """The description of a data set, from the docstring of its importer's module."""
    text = inspect.cleandoc(sys.modules[importer.__module__].__doc__ or "")
    title, _, body = text.partition("\n")
    parts = re.split(rf"^({'|'.join(FIELDS)}):", body, flags=re.MULTILINE)
    found = {name: " ".join(value.split()) for name, value in zip(parts[1::2], parts[2::2], strict=True)}
    if tuple(found) != FIELDS or not all(found.values()):
        raise ValueError(f"the docstring of {importer.__module__} needs the fields {', '.join(FIELDS)}, in this order.")
    return DatasetInfo(title.rstrip("."), found)


def with_label_report(study: Study, labels: Mapping[str, int], style: str) -> Study:
    """The study with findings written from labels as `structured["labels"]`; unchanged in the test split."""
    if study.split == "test":
        return study
    text = label_report(labels, study.id, style)
    if not text:
        return study
    return dataclasses.replace(study, structured={**study.structured, "labels": {"findings": text}})
