"""The data card on a page: every number that was counted is there, and nothing of it becomes markup."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.core.runs import Run

NASTY = '"><script>alert(1)</script>'
SPREAD = {"n": 4, "least": 1, "first": 2, "median": 3, "third": 4, "most": 9, "mean": 3.5}
GREY = {"n": 4, "least": 0.1, "first": 0.25, "median": 0.5, "third": 0.75, "most": 0.9, "mean": 0.5}
NUMBERS: dict[str, Any] = {
    "splits": {"train": 3, "none": 1},
    "views": {"PA": {"all": 3, "train": 2, "none": 1}, "lateral": {"all": 1, "train": 1}},
    "sexes": {"F": {"all": 1, "train": 1}, "unknown": {"all": 3, "train": 2, "none": 1}},
    "ages": {"60-79": {"all": 4, "train": 3, "none": 1}},
    "labels": {
        "Edema": {
            "all": {"present": 1, "absent": 1, "uncertain": 1, "unknown": 1},
            "train": {"present": 1, "absent": 0, "uncertain": 1, "unknown": 1},
        },
        "Pneumonia": {"all": {"present": 3, "absent": 0, "uncertain": 0, "unknown": 1}},
    },
    "own_labels": {NASTY: {"all": {"present": 0, "absent": 4, "uncertain": 0, "unknown": 0}}},
    "texts": {"findings": SPREAD},
    "masked": {"XXXX": 2},
    "with_text": 4,
    "images": {
        "read": 4,
        "width": SPREAD,
        "height": SPREAD,
        "mean_grey": GREY,
        "spread_of_grey": GREY,
        "depth": {"8 bits": 4},
        "colour": 1,
        "suspects": {"nearly black": 1, "nearly white": 0},
    },
    "absent_images": 7,
    "repeats": {"same report": {"groups": 12, "members": 34, "across_splits": 5}},
    "dropped": {NASTY: 2},
    "remarks": {"view not told": 6},
}


def page(folder: Path, statistics: Any, check: Any = None) -> str:
    with Run.open(folder, {"corpus": "c"}) as run:
        run.write("statistics.json", statistics)
        if check is not None:
            run.write("check.json", check)
    return page_of(folder)


def test_every_number_is_on_the_page(tmp_path: Path) -> None:
    """Counts by split, shares, states of labels, lengths, odd images, repeats, notes."""
    text = page(tmp_path / "r", NUMBERS)
    for words in (
        "Views, sex and age", "no split", "75.0 %", "Labels of the corpus's own", "XXXX in 2 studies",
        "4 of 4 studies have a text", "nearly black", "in colour", "0.750", "7 more are listed", ">12<", ">34<", ">5<",
        "view not told",
    ):  # fmt: skip
        assert words in text or words.replace("'", "&#x27;") in text, words
    assert "nearly white" not in text and "have boxes" not in text


def test_images_that_are_only_listed_priors_and_boxes_are_reported(tmp_path: Path) -> None:
    """A corpus of tables alone is no empty page."""
    numbers = {**NUMBERS, "images": {"read": 0, "width": None}, "with_prior": 3, "with_boxes": 2}
    text = page(tmp_path / "r", numbers)
    assert "No image was read; 7 are listed by the source." in text
    assert "3 studies have an earlier study of the same patient; 2 studies have boxes." in text


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    """Labels and reasons come from files of others."""
    text = page(tmp_path / "r", NUMBERS)
    assert "<script" not in text and "&lt;script&gt;" in text


def test_labels_come_with_the_most_frequent_first(tmp_path: Path) -> None:
    """And the bar of one has three pieces: present, uncertain, absent."""
    text = page(tmp_path / "r", NUMBERS)
    assert text.index(">Pneumonia<") < text.index(">Edema<")
    assert '<span class=present style="width:25.0%">' in text and '<span class=absent style="width:25.0%">' in text


def test_defects_come_first_with_an_example(tmp_path: Path) -> None:
    """The first example of a kind is shown."""
    check = {
        "ok": False,
        "problems": {"missing image": 3},
        "examples": [{"kind": "missing image", "message": "line 1"}, {"kind": "missing image", "message": "line 2"}],
    }
    text = page(tmp_path / "r", NUMBERS, check)
    assert "missing image" in text and "line 1" in text and "line 2" not in text
    assert text.index("<h2>Defects</h2>") < text.index("<h2>Views, sex and age</h2>")


@pytest.mark.parametrize("numbers", [{"splits": {}}, {"images": {"read": 0, "width": None}}, {"texts": {"report": {}}}])
def test_what_is_not_there_is_left_out(tmp_path: Path, numbers: Any) -> None:
    """An empty corpus, images that nobody could read, a text without numbers."""
    assert "<h2>Labels" not in page(tmp_path / "r", numbers)


def test_a_run_without_statistics_has_no_card(tmp_path: Path) -> None:
    """Other runs keep their pages."""
    with Run.open(tmp_path / "r", {"model": "stub:normal"}):
        pass
    assert "Views, sex and age" not in page_of(tmp_path / "r", allow_unfinished=True)


@pytest.mark.parametrize(
    "wrong", [{"splits": {"train": "many"}}, {"labels": {"Edema": 3}}, {"images": {"read": "all"}}, {"texts": []}]
)
def test_a_word_for_a_number_is_refused_by_name(tmp_path: Path, wrong: Any) -> None:
    """The page is not drawn from a file that somebody has changed."""
    with pytest.raises(DataError, match="statistics.json"):
        page(tmp_path / "r", json.loads(json.dumps(wrong)))
