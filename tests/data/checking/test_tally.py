"""Counts over studies, each checkable by hand."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from cxrlab.core.records import Box, ImageFile, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.statistics import ImageFacts, Repeats, Statistics, Tally, age_band, image_facts

IMAGE = image_facts(np.arange(64, dtype=np.uint8).reshape(8, 8), View.PA)
BLACK = image_facts(np.zeros((8, 8), np.uint8), View.PA)


def study(number: int, split: str | None = "train", **fields: object) -> Study:
    return Study(id=f"s{number}", patient=f"p{number}", split=split, **fields)  # type: ignore[arg-type]


def reported(*studies: Study, images: tuple[ImageFacts, ...] = ()) -> Statistics:
    tally = Tally()
    for one in studies:
        tally.take(one, images)
    return tally.statistics({}, {}, {})


def test_counts_by_split_view_sex_and_age() -> None:
    """Three studies in two splits; what is not known is counted as unknown."""
    numbers = reported(
        study(1, sex="F", age=71, images=(ImageFile("a", View.PA), ImageFile("b", View.LATERAL))),
        study(2, sex="M", age=17.9, images=(ImageFile("c", View.PA),)),
        study(3, split=None),
    )
    assert numbers.splits == {"train": 2, "none": 1}
    assert numbers.views == {"PA": {"all": 2, "train": 2}, "lateral": {"all": 1, "train": 1}}
    assert numbers.sexes == {
        "F": {"all": 1, "train": 1},
        "M": {"all": 1, "train": 1},
        "unknown": {"all": 1, "none": 1},
    }
    assert list(numbers.ages) == ["<18", "60-79", "unknown"]


@pytest.mark.parametrize(
    ("age", "band"),
    [(None, "unknown"), (0, "<18"), (18, "18-39"), (39.9, "18-39"), (60, "60-79"), (80, "80+"), (110, "80+")],
)
def test_age_bands(age: float | None, band: str) -> None:
    """Lower ends belong to their band."""
    assert age_band(age) == band


def test_a_missing_label_is_unknown_never_absent() -> None:
    """Of three training studies one says present, one uncertain, one nothing; the test study says absent."""
    numbers = reported(
        study(1, labels={"Edema": 1}),
        study(2, labels={"Edema": -1}, own_labels={"Hernia": 0}),
        study(3),
        study(4, "test", labels={"Edema": 0}),
    )
    assert numbers.labels["Edema"] == {
        "all": {"present": 1, "absent": 1, "uncertain": 1, "unknown": 1},
        "train": {"present": 1, "absent": 0, "uncertain": 1, "unknown": 1},
        "test": {"present": 0, "absent": 1, "uncertain": 0, "unknown": 0},
    }
    assert numbers.own_labels["Hernia"]["all"] == {"present": 0, "absent": 1, "uncertain": 0, "unknown": 3}


def test_texts_are_counted_in_words_and_masks_by_study() -> None:
    """An empty section is no text; a text from labels is kept apart from the source's."""
    numbers = reported(
        study(1, sections=Report(findings="Heart is XXXX large.", impression=" ")),
        study(2, sections=Report(findings="___ clear ___"), structured={"labels": {"findings": "No effusion."}}),
        study(3, report="Sin hallazgos."),
    )
    assert {kind: (row.n, row.least, row.most) for kind, row in numbers.texts.items()} == {
        "findings": (2, 3, 4),
        "report": (1, 2, 2),
        "structured:labels": (1, 2, 2),
    }
    assert numbers.masked == {"XXXX": 1, "___": 1} and numbers.with_text == 3


def test_repeats_of_texts_and_images() -> None:
    """Case and points do not count; two equal reports in two splits are one group across splits."""
    numbers = reported(
        study(1, report="No effusion."),
        study(2, "test", report="no effusion"),
        study(3, report="Large effusion."),
        images=(IMAGE,),
    )
    assert numbers.repeats == {"same report": Repeats(1, 2, 1), "same image": Repeats(1, 3, 1)}


def test_images_boxes_priors_and_what_the_source_lacks() -> None:
    """A black image is nearly black and without contrast; images that the source lists and lacks are counted."""
    absent = (ImageFile("x.png", View.PA), ImageFile("y.png", View.LATERAL))
    numbers = reported(
        study(1, prior="s0", boxes=(Box("mass", (0, 0, 1, 1)),), absent_images=absent), images=(IMAGE, BLACK)
    )
    assert (numbers.absent_images, numbers.with_prior, numbers.with_boxes) == (2, 1, 1)
    assert numbers.images.read == 2 and numbers.images.depth == {"8 bits": 2}
    assert numbers.images.suspects == {
        "nearly black": 1,
        "nearly white": 0,
        "little contrast": 1,
        "maybe inverted": 0,
    }
    assert numbers.images.width is not None and numbers.images.width.median == 8


def test_nothing_is_counted_of_nothing() -> None:
    """An empty corpus has no quartiles, and says so by their absence."""
    numbers = reported()
    assert numbers.splits == {} and numbers.images.width is None and numbers.to_json()["images"]["read"] == 0


def test_memory_follows_what_differs_not_how_many() -> None:
    """Twenty thousand studies with a hundred different reports need less than a megabyte."""
    tally = Tally()
    tracemalloc.start()
    for number in range(20_000):
        tally.take(study(number, report=f"Nodule of {number % 100} mm."), (IMAGE,))
    grown = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert grown < 1_000_000
