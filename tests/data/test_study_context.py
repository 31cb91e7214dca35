"""What a model receives of a study: images by view, the prior, and what happens to what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.core.jsonl import JsonlAppender
from cxrlab.core.records import ImageFile, Report, Study
from cxrlab.core.vocabulary import View
from cxrlab.data.card import Card
from cxrlab.data.config import ContextConfig
from cxrlab.data.corpus import Corpus
from cxrlab.data.study_context import SelectedContext, select_context


def study(name: str, *views: View, prior: str | None = None, patient: str = "p", **more: Any) -> Study:
    images = tuple(ImageFile(f"images/{name}_{number}.png", view) for number, view in enumerate(views))
    given: dict[str, Any] = {"split": "test", "sections": Report(findings=f"Findings of {name}."), **more}
    return Study(name, patient, images, prior=prior, **given)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    studies = [
        study("first", View.LATERAL, View.AP, View.PA),
        study("second", View.FRONTAL, prior="first"),
        study("lateral", View.LATERAL, prior="second"),
        study("after-lateral", View.PA, prior="lateral"),
        study("no-words", View.PA, sections=Report()),
        study("after-no-words", View.PA, prior="no-words"),
        study("elsewhere", View.PA, prior="absent"),
        study("other-patient", View.PA, prior="first", patient="q"),
        study("other-split", View.PA, prior="first", split="val"),
        study("itself", View.PA, prior="itself"),
        study("circle", View.PA, prior="round"),
        study("round", View.PA, prior="circle"),
        study("whole", View.PA, sections=None, report="The whole report."),
        study("after-whole", View.PA, prior="whole"),
        study("nothing"),
    ]
    with JsonlAppender(tmp_path / "studies.jsonl") as out:
        for one in studies:
            out.append(one)
    return Corpus(tmp_path, Card("c", "s", "l", "c"))


BOTH, ALL = ("frontal", "lateral"), ("image", "report")


@pytest.mark.parametrize(
    ("name", "views", "prior", "numbers", "names", "report", "missing"),
    [
        ("first", (), (), [2], ["frontal"], None, ()),
        ("first", BOTH, (), [2, 0], ["frontal", "lateral"], None, ()),
        ("first", ("AP", "PA"), (), [1, 2], ["AP", "PA"], None, ()),
        ("first", ("frontal", "PA", "AP"), (), [2, 1], ["frontal", "AP"], None, ("no PA image",)),
        ("first", ("PA", "frontal"), (), [2, 1], ["PA", "frontal"], None, ()),
        ("first", (), ALL, [2], ["frontal"], "", ("no prior study",)),
        ("second", (), ALL, [0, 2], ["frontal", "prior frontal"], "Findings of first.", ()),
        ("second", (), ("image",), [0, 2], ["frontal", "prior frontal"], None, ()),
        ("second", BOTH, ("report",), [0], ["frontal"], "Findings of first.", ("no lateral image",)),
        ("lateral", BOTH, (), [0], ["lateral"], None, ("no frontal image",)),
        ("after-lateral", (), ALL, [0], ["frontal"], "Findings of lateral.", ("no frontal image in the prior study",)),
        ("after-no-words", (), ALL, [0, 0], ["frontal", "prior frontal"], "", ("no report of the prior study",)),
        ("elsewhere", (), ALL, [0], ["frontal"], "", ("the prior study is not in the corpus",)),
        ("other-patient", (), ALL, [0], ["frontal"], "", ("the prior study is of another patient",)),
        ("other-split", (), ALL, [0], ["frontal"], "", ("the prior study is in another split",)),
        ("itself", (), ALL, [0], ["frontal"], "", ("the prior study is not an earlier one",)),
        ("circle", (), ALL, [0], ["frontal"], "", ("the prior study is not an earlier one",)),
        ("after-whole", (), ("report",), [0], ["frontal"], "The whole report.", ()),
    ],
)  # fmt: skip
def test_what_is_there_is_used_and_what_is_not_is_named(
    corpus: Corpus, name: str, views: Any, prior: Any, numbers: Any, names: Any, report: Any, missing: Any
) -> None:
    """A placeholder keeps the study with what there is; `drop` leaves it out for the first thing that is missing."""
    found = select_context(corpus, corpus[name], ContextConfig(views=views, prior=prior))
    assert isinstance(found, SelectedContext)
    assert ([one.number for one in found.images], list(found.names)) == (numbers, names)
    assert (found.prior_report, found.missing) == (report, missing)
    dropped = select_context(corpus, corpus[name], ContextConfig(views=views, prior=prior, missing="drop"))
    assert dropped == (missing[0] if missing else found)


def test_a_study_without_an_image_of_the_views_is_always_left_out(corpus: Corpus) -> None:
    assert select_context(corpus, corpus["nothing"], ContextConfig(prior=("report",))) == "no image"
    assert select_context(corpus, corpus["second"], ContextConfig(views=("lateral",))) == "no lateral image"


def test_a_view_or_part_of_the_prior_is_named_once() -> None:
    for twice in ({"views": ("PA", "PA")}, {"prior": ("image", "image")}):
        with pytest.raises(ConfigError, match="names one twice"):
            ContextConfig(**twice)  # type: ignore[arg-type]
