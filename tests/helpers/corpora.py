"""Small corpora for tests, written through the same writer as real ones."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import Finding, ImageFile, Report, Study
from cxrlab.core.vocabulary import Severity, Side, View
from cxrlab.data.card import Card
from cxrlab.data.corpus import Corpus
from cxrlab.data.corpus_writer import CorpusWriter, NewStudy

CARD = Card("toy", source="made by a test", licence="none", citation="none", settings={"seed": 7})


def image(number: int, side: int = 24) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, (side, side), dtype=np.uint8)


def drawn(number: int, **changes: object) -> NewStudy:
    """Study number k of its own patient: one image, one finding with a mask, one label."""
    name = f"s{number}"
    mask = np.zeros((24, 24), bool)
    mask[4:12, 6:15] = True
    study = Study(
        id=name,
        patient=f"p{number}",
        images=(ImageFile(f"images/{name}.png", View.PA),),
        sections=Report(findings="There is a small left pleural effusion."),
        split=("train", "val", "test")[number % 3],
        age=60 + number,
        sex="F",
        labels={"Pleural Effusion": 1},
        findings=(Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD),),
        masks={"0": f"masks/{name}_0.png"},
    )
    files = {f"images/{name}.png": encode_png(image(number)), f"masks/{name}_0.png": encode_png(mask)}
    return NewStudy(dataclasses.replace(study, **changes), files)


def toy_corpus(path: Path, count: int = 6, changes: dict[int, dict[str, object]] | None = None) -> Corpus:
    with CorpusWriter(path, CARD) as writer:
        for number in range(count):
            one = drawn(number, **(changes or {}).get(number, {}))
            writer.add(one.study, one.files)
    return writer.finish()


def content(folder: Path) -> dict[str, bytes]:
    """Every file of a folder with its bytes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
