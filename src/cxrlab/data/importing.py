"""From a downloaded data set to a corpus folder: link or copy its images, keep its notes, resume after a kill.

Images stay where they are: `images` in the corpus is one link to the source folder, so that half a
million images cost one link; with `--copy` each image is copied to the same path. The corpus is the
same either way, and after any number of kills.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.core.files import read_bytes, sha256_of
from cxrlab.core.records import ImageFile, Study
from cxrlab.data.building import Drawn, Recipe, build_corpus
from cxrlab.data.card import Card
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus import Corpus, check_inside
from cxrlab.data.importers import IMPORTERS
from cxrlab.data.sources.csv_file import files_found
from cxrlab.data.sources.label_text import with_label_report
from cxrlab.data.sources.source import Imported, Item, Plan, about
from cxrlab.data.splits import assign_split
from cxrlab.data.writer import Dropped, holds_something

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

    Args:
        name: A row of `IMPORTERS`.
        config: Settings; `config.root` is the folder of the data set.
        out: Folder of the corpus.

    An image that the source lists and the folder lacks is no image of its study: it is kept under
    `absent_images`, with the same fields, and counted as a remark.
    """
    importer = IMPORTERS.load(name)
    with files_found() as files:
        plan: Plan[object] = importer(config)
    if Path(os.path.realpath(out)).is_relative_to(os.path.realpath(config.root)):
        raise ConfigError(f"{out} lies in the source folder {config.root}; choose a folder outside of it.")
    if ignored := [key for key in ("reports", "projections") if getattr(config, key) and key not in plan.takes]:
        raise ConfigError(f"{ignored[0]}={str(getattr(config, ignored[0]))!r} means nothing to {name}; leave it out.")
    told = about(importer)
    card = Card(
        name=name,
        source=told.title,
        licence=told.licence,
        citation=told.citation,
        settings={
            "form": FORM,
            "layout": plan.layout,
            "images": "written" if plan.writes else "copied" if config.copy else "linked",
            "split": config.split,
            **({"split_seed": config.seed} if config.split == "patient" else {}),
            **({"made_from": {_named(file, config.root): sha256_of(file)[:16] for file in files}} if files else {}),
        },
        collections=plan.collections,
        remarks=plan.remarks,
        absent={},
    )
    recipe: Recipe[object] = Recipe(
        items=plan.items,
        ids=lambda item: (plan.study_id(item),),
        draw=partial(_take, plan.read, plan.label_style, plan.writes, config),
        label=f"importing {name}",
        total=plan.total,
        links={} if plan.writes or config.copy else {IMAGES: config.root},
        batch=BATCH,
    )
    return build_corpus(out, card, recipe, config.workers)


def _take(
    read: Callable[[Item], Imported | Dropped],
    label_style: str | None,
    writes: bool,
    config: ImportConfig,
    item: Item,
) -> list[Drawn | Dropped]:
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
        return [Drawn(study, answer.files, answer.remarks)]
    try:
        for image in study.images:
            check_inside(image.path)
    except DataError:
        return [Dropped(study.id, LEAVES_FOLDER)]
    return [_placed(study, answer.remarks, config)]


def _placed(study: Study, remarks: tuple[str, ...], config: ImportConfig) -> Drawn:
    """The study with its images by their path in the corpus, those that are not there set apart."""
    here = [image for image in study.images if holds_something(config.root / image.path)]
    absent = tuple(_in_corpus(image) for image in study.images if image not in here)
    files = {f"{IMAGES}/{image.path}": read_bytes(config.root / image.path) for image in here} if config.copy else {}
    study = dataclasses.replace(study, images=tuple(map(_in_corpus, here)), absent_images=absent or None)
    return Drawn(study, files, (*remarks, NOT_IN_FOLDER) if absent else remarks)


def _named(file: Path, root: Path) -> str:
    """A file of the source without what only this machine knows: its path in the root, or its name alone."""
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name


def _in_corpus(image: ImageFile) -> ImageFile:
    return dataclasses.replace(image, path=f"{IMAGES}/{image.path}")
