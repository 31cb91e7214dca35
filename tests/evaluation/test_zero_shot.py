"""Zero-shot classification: wording, margins and areas."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError, UnknownName
from cxrlab.core.json_values import dumps
from cxrlab.core.vocabulary import CHEXPERT_14, OBSERVATIONS
from cxrlab.evaluation.retrieve import (
    Entry,
    MeanAuroc,
    Sentences,
    ZeroShot,
    classify,
    load_sentences,
    margins,
    select_names,
)

ARTICLE = Sentences(("There is {name}.",), ("No {name}.",), {"nodule": "a lung nodule", "Edema": "anasarca"})
PLAIN = Sentences(("There is {name}.",), ("There is no {name}.",), {"Edema": "pulmonary edema"})


def entry(number: int, labels: dict[str, int], present: set[str] | None = None) -> Entry:
    return Entry(f"s{number}", f"p{number}", "text", labels, None if present is None else frozenset(present))


def test_the_shipped_wording_has_sentences_for_everything() -> None:
    """Each label and observation: both sides differ, begin with a capital letter and hold no placeholder."""
    sentences = load_sentences("report/1")
    for name in (*CHEXPERT_14, *OBSERVATIONS):
        there, not_there = sentences.of(name)
        assert there and not_there and not set(there) & set(not_there), name
        for text in (*there, *not_there):
            assert text[0].isupper() and "{" not in text and text.endswith("."), text
            assert not re.search(r"\b[Nn]o an? |\w(clips|leads|wires|volumes) is ", text), text


def test_words_of_a_thing_stand_in_its_sentences() -> None:
    assert PLAIN.of("Edema") == (["There is pulmonary edema."], ["There is no pulmonary edema."])
    assert ARTICLE.of("nodule") == (["There is a lung nodule."], ["No lung nodule."])
    assert ARTICLE.of("Edema")[1] == ["No anasarca."]
    assert PLAIN.of("pleural effusion")[1] == ["There is no pleural effusion."]


def test_a_file_replaces_the_table(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text('mine/1:\n  present: ["{name}"]\n  absent: ["no {name}"]\n')
    assert load_sentences(str(file)).of("edema") == (["Edema"], ["No edema"])


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ('a:\n  present: ["{name}"]\n', "absent"),
        ('a:\n  present: ["effusion"]\n  absent: ["no {name}"]\n', "{name}"),
        ('a:\n  present: ["{name}"]\n  absent: ["no {name}"]\n  names: {effusions: x}\n', "effusions"),
        ('a:\n  present: ["{name}"]\n  absent: ["no {name}"]\n  own: {edema: {present: [x]}}\n', "two lists"),
        ("a: 3\n", "group of settings"),
        ("a: {}\nb: {}\n", "holds 2 rows"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(text: str, reported: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=reported):
        load_sentences(str(file))


def test_an_unknown_name_is_told_with_those_that_exist() -> None:
    with pytest.raises(UnknownName, match="report/1"):
        load_sentences("report/9")


def test_margins_are_differences_of_cosines_to_the_mean_of_each_side() -> None:
    """'There is' points along x, 'there is no' along y: an image at 30° is nearer to presence by cos 30° − sin 30°."""

    def embed(texts: Sequence[str]) -> np.ndarray:
        return np.array([[0.0, 1.0] if " no " in text else [1.0, 0.0] for text in texts], np.float32)

    image = np.array([[math.cos(math.pi / 6), math.sin(math.pi / 6)]], np.float32)
    assert margins(image, ["edema"], PLAIN, embed)[0, 0] == pytest.approx(math.sqrt(0.75) - 0.5, abs=1e-6)
    assert margins(image, [], PLAIN, embed).shape == (1, 0)


def test_only_what_is_known_both_ways_is_asked() -> None:
    entries = [
        entry(0, {"Edema": 1, "Fracture": 0, "Pneumonia": -1}, {"edema"}),
        entry(1, {"Edema": 0, "Fracture": 0, "Pneumonia": 1}, {"edema", "nodule"}),
        entry(2, {}, None),
    ]
    assert select_names(entries) == ("Edema", "nodule")  # edema is everywhere, Fracture nowhere, Pneumonia never absent


def test_unknown_and_uncertain_studies_stay_out() -> None:
    """Of five studies two positives and one negative are known: the area counts two pairs, one in order."""
    entries = [
        entry(0, {"Edema": 1}), entry(1, {"Edema": 1}), entry(2, {"Edema": 0}), entry(3, {"Edema": -1}), entry(4, {}),
    ]  # fmt: skip
    scores = {"Edema": np.array([0.9, 0.1, 0.5, 9.0, -9.0])}
    found = classify(entries, scores, "w", trials=20, level=0.9, rng=np.random.default_rng(0))
    area = found.labels["Edema"]
    assert area.value == 0.5 and (area.positives, area.negatives) == (2, 1) and math.isnan(area.low)
    assert found.mean_labels == MeanAuroc(0.5, 1)
    assert found.observations == {} and math.isnan(found.mean_observations.value)
    back = ZeroShot.from_json(json.loads(dumps(found)))
    assert repr(back) == repr(found)  # not-a-number equals nothing, itself included
