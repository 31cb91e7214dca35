"""Evidence as columns: the same studies under every condition, or a sentence that names what is missing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from small_evidence import NORMAL, evidence, image, lines, trace, truth

from cxrlab.core.errors import DataError
from cxrlab.core.jsonl import JsonlAppender
from cxrlab.robustness.audit_metrics import read_evidence

STUDIES = [truth("s1", e=1), truth("s2", o=0)]
CLEAN = lines("a", "clean", {"s1": image(e=0.9), "s2": image(o=0.1)})


def test_a_missing_study_is_named() -> None:
    with pytest.raises(DataError, match=r"pgd@2/255 of model 'a' lacks 1 of 2 studies, such as 's2'; resume"):
        evidence(STUDIES, CLEAN, lines("a", "pgd@2/255", {"s1": image(e=0.1)}))


def test_a_image_that_stands_twice_is_named() -> None:
    with pytest.raises(DataError, match=r"the image 'a\|clean\|s1' twice"):
        evidence(STUDIES, CLEAN, CLEAN)


def test_a_study_without_truth_is_named() -> None:
    with pytest.raises(DataError, match=r"'a\|clean\|s3': the study 's3' is not in truth.jsonl"):
        evidence(STUDIES, lines("a", "clean", {"s3": image(e=0.9)}))


def test_a_model_without_clean_images_is_named() -> None:
    with pytest.raises(DataError, match="no clean images of the model 'b'"):
        evidence(STUDIES, CLEAN, lines("b", "blur@1", {"s1": image(e=0.9), "s2": image(o=0.1)}))


def test_no_line_and_no_study_are_reported() -> None:
    with pytest.raises(DataError, match="no line"):
        evidence(STUDIES)
    with pytest.raises(DataError, match="no study"):
        evidence([])


def test_unknown_labels_and_missing_answers_are_not_numbers() -> None:
    found = evidence(STUDIES, CLEAN)
    assert found.labels == ("pleural effusion", "edema")
    np.testing.assert_array_equal(found.truth, [[1, np.nan], [np.nan, 0]])
    np.testing.assert_array_equal(found.clean("a").image.probs, [[0.9, np.nan], [np.nan, 0.1]])
    assert not found.clean("a").image.has_report.any()


def test_equal_reports_are_one_text() -> None:
    found = evidence(STUDIES, lines("a", "clean", {"s1": image(NORMAL), "s2": image(NORMAL)}))
    assert found.texts == (NORMAL,)


def test_images_made_for_another_model_stand_apart() -> None:
    """The same condition three times: on a, on b, and b before the images of a."""
    both = {"s1": image(e=0.9), "s2": image(o=0.1)}
    found = evidence(
        STUDIES,
        CLEAN,
        lines("b", "clean", both),
        lines("a", "pgd@2/255", both),
        lines("b", "pgd@2/255", both),
        lines("b", "pgd@2/255", both, crafted_on="a"),
    )
    assert found.models == ("a", "b")
    assert list(found.own("b")) == list(found.transferred("b", "a")) == ["pgd@2/255"]
    assert found.transferred("a", "b") == {}


def test_the_order_of_lines_plays_no_part(tmp_path: Path) -> None:
    with JsonlAppender(tmp_path / "truth.jsonl") as file:
        for study in STUDIES:
            file.append(study)
    with JsonlAppender(tmp_path / "answers.jsonl") as file:
        for line in reversed(CLEAN):
            file.append(line)
    np.testing.assert_array_equal(read_evidence(tmp_path).clean("a").image.probs[:, 0], [0.9, np.nan])


def test_a_trace_is_kept_where_there_was_an_attack() -> None:
    found = evidence(STUDIES, CLEAN, lines("a", "fgsm@0.1", {"s1": image(), "s2": image()}, attack=trace(0.1)))
    assert found.own("a")["fgsm@0.1"].trace["linf"].tolist() == [0.1, 0.1]
    assert found.clean("a").trace == {}
