"""What a member asks for is what is taken; what makes a pair is counted as stated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from composition_members import corpus, study
from tables import every_row

from cxrlab.core.records import Box, Finding, Report, Study
from cxrlab.data.compose import member_branch, with_images
from cxrlab.data.config import ComposeConfig, Member
from cxrlab.data.pairs import pair_texts


def member(**settings: Any) -> Member:
    return ComposeConfig({"a": {"corpus": "x", **settings}}).chosen()["a"]


def taken(path: Path, studies: list[Study], **settings: Any) -> list[Study]:
    return list(member_branch(corpus(path, studies), member(**settings)).studies())


def test_splits_and_those_without_one(tmp_path: Path) -> None:
    studies = [study(k, split=split) for k, split in enumerate(["train", "val", "test", None])]
    assert [one.id for one in taken(tmp_path / "a", studies)] == ["s0", "s3"]
    assert [one.id for one in taken(tmp_path / "b", studies, splits=["val", "test"])] == ["s1", "s2"]


def test_images_of_other_views_are_left_out_and_boxes_follow(tmp_path: Path) -> None:
    boxes = (Box("nodule", (0, 0, 5, 5), image=1), Box("nodule", (1, 1, 5, 5), image=0))
    studies = [
        study(0, ("lateral", "PA"), boxes=boxes, findings=(Finding("nodule"),), masks={"0": "images/s0_0.png"}),
        study(1, ("lateral",)),
        study(2, ()),
    ]
    (one,) = taken(tmp_path / "a", studies, views=["PA", "AP"])
    assert [image.view.value for image in one.images] == ["PA"]
    assert one.boxes == (Box("nodule", (0, 0, 5, 5), image=0),)
    assert one.masks == {}, "a mask lies on the first image, which is gone"
    assert [one.id for one in taken(tmp_path / "b", studies)] == ["s0", "s1"], "without an image there is no pair"


def test_a_study_that_keeps_its_images_is_untouched() -> None:
    one = study(0, ("PA", "lateral"), masks={"0": "images/s0_0.png"}, boxes=())
    assert with_images(one, [0, 1]) is one
    assert with_images(one, [0]).masks == one.masks


TEXTS = study(
    0,
    sections=Report(findings="By rule.", impression="Short."),
    report="All of it.",
    structured={
        "gpt": {"findings": "By a model."},
        "labels": {"findings": "From labels."},
        "empty": {"findings": "  "},
    },
)


@every_row(
    ("settings", "kinds"),
    [
        ({}, ["sections"]),
        ({"texts": ["sections", "structured"]}, ["sections", "structured:gpt", "structured:labels"]),
        ({"texts": ["structured:labels"]}, ["structured:labels"]),
        ({"texts": ["structured:gpt", "structured"]}, ["structured:gpt", "structured:labels"]),
        ({"texts": ["structured:other", "report"]}, ["report"]),
        ({"texts": ["structured:other"]}, []),
        ({"texts": ["sections"], "section": "indication"}, []),
        ({"texts": ["sections", "structured"], "section": "impression"}, ["sections"]),
    ],
)
def test_the_texts_that_make_pairs(settings: dict[str, Any], kinds: list[str]) -> None:
    """Each text once, in the order asked for; blank ones are none."""
    chosen = member(**settings)
    assert [one.source for one in pair_texts(TEXTS, chosen.texts, chosen.section)] == kinds


def test_the_words_of_a_pair_are_those_of_the_study() -> None:
    assert [one.text for one in pair_texts(TEXTS, ["sections", "report"])] == ["By rule.", "All of it."]
    assert pair_texts(study(0, sections=None), ["sections", "report"]) == []
    picture = study(0, sections=None, caption="A red disc.")
    assert [(one.source, one.text) for one in pair_texts(picture, ["sections"])] == [("caption", "A red disc.")]


def test_what_a_composition_chose_is_on_the_study(tmp_path: Path) -> None:
    """`first` stops at the first text; the section is there where it is not the findings."""
    (one,) = taken(tmp_path / "a", [TEXTS], texts=["structured", "sections"], pair="first")
    assert one.extra["texts"] == ["structured:gpt"] and "section" not in one.extra
    (one,) = taken(tmp_path / "b", [TEXTS], section="impression")
    assert (one.extra["texts"], one.extra["section"]) == (["sections"], "impression")


def test_a_study_without_text_stays_only_where_none_is_needed(tmp_path: Path) -> None:
    studies = [study(0), study(1, sections=None)]
    assert [one.extra["texts"] for one in taken(tmp_path / "a", studies)] == [["sections"]]
    assert [one.extra["texts"] for one in taken(tmp_path / "b", studies, needs_text=False)] == [["sections"], []]


def test_a_test_split_keeps_the_source_s_text_alone(tmp_path: Path) -> None:
    studies = [study(0, structured={"labels": {"findings": "From labels."}})]
    (one,) = taken(tmp_path / "a", studies, as_split="test")
    assert one.split == "test" and one.structured == {} and one.sections == studies[0].sections
    (one,) = taken(tmp_path / "b", studies, as_split="val")
    assert one.split == "val" and one.structured == studies[0].structured
