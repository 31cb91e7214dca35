"""The seven data sets of CXR-697K, imported from their true layouts with small images, under the names of the configs."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from corpora import image
from dicom_images import write_image

from cxrlab.core.image_codec import encode_jpeg, encode_png
from cxrlab.data.config import ImportConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import CorpusWriter, Dropped
from cxrlab.data.importing import IMPORTERS, ImportPlan, import_corpus

FIXTURES = Path(__file__).parents[1] / "data" / "sources" / "fixtures"
LAYOUTS = {
    "chexpert": "chexpert/v1",
    "brax": "brax",
    "candid-ptx": "candid_ptx",
    "vindr-cxr": "vindr_cxr",
    "object-cxr": "object_cxr",
    "mimic-cxr": "mimic_cxr",
    "padchest": "padchest",
}
MODEL = "gpt"


def import_seven(home: Path) -> dict[str, Corpus]:
    """corpora/NAME for all seven, and corpora/NAME-structured for the two whose text a language model restates."""
    found = {}
    for name, fixture in LAYOUTS.items():
        root = shutil.copytree(FIXTURES / fixture, home / "downloads" / name)
        plan: ImportPlan[object] = IMPORTERS.load(name)(ImportConfig(root))
        for item in plan.items:
            one = plan.read(item)
            for picture in () if isinstance(one, Dropped) else one.study.images:
                _draw(root / picture.path)
        found[name] = import_corpus(name, ImportConfig(root, workers=1), home / "corpora" / name)
    for name in ("mimic-cxr", "padchest"):
        found[f"{name}-structured"] = structured(found[name], home / "corpora" / f"{name}-structured")
    return found


def _draw(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = image(len(path.as_posix()))
    if path.suffix == ".png":
        path.write_bytes(encode_png(pixels))
    elif path.suffix == ".jpg":
        path.write_bytes(encode_jpeg(pixels))
    else:
        write_image(path)


def structured(source: Corpus, out: Path) -> Corpus:
    """Text by a model beside the source's, for every study with a report outside the test split but each third."""
    with CorpusWriter(out, dataclasses.replace(source.card, counts={}, dropped={}, remarks={})) as writer:
        writer.link("images", source.path / "images")
        for number, study in enumerate(source):
            text = {MODEL: {"findings": f"Restated report {study.id}."}}
            chosen = study.report and study.split != "test" and number % 3 != 2
            writer.add(dataclasses.replace(study, structured={**study.structured, **text}) if chosen else study)
    return writer.finish()
