"""Lines of evidence: there and back, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_evidence import image, lines, trace

from cxrlab.core.errors import DataError
from cxrlab.core.jsonl import JsonlAppender
from cxrlab.core.records import Finding
from cxrlab.robustness.audit_records import Answer, StudyTruth, answer_id, read_answers, read_truth


def test_a_line_comes_back_as_it_was(tmp_path: Path) -> None:
    line = lines("a", "pgd@2/255", {"s1": image("Clear.", e=0.25, loss=1.5, tokens=3)}, attack=trace(0.004))[0]
    known = StudyTruth("s1", "p1", None, (Finding("edema"),), {"edema": 1})
    for file, record in (("answers.jsonl", line), ("truth.jsonl", known)):
        with JsonlAppender(tmp_path / file) as out:
            out.append(record)
    assert list(read_answers(tmp_path / "answers.jsonl")) == [line]
    assert list(read_truth(tmp_path / "truth.jsonl")) == [known]


def test_a_image_after_transfer_names_both_models() -> None:
    assert answer_id("a", "pgd@2/255", "s1", "a") == "a|pgd@2/255|s1"
    assert answer_id("b", "pgd@2/255", "s1", "a") == "b<a|pgd@2/255|s1"
    assert answer_id("b", "blur@3", "s1") == "b|blur@3|s1"


def test_no_findings_and_unknown_findings_stay_two_things() -> None:
    """An empty list is a normal image; null is an image of which nothing exact is known."""
    normal, unknown = (StudyTruth.from_json({"id": "s", "patient": "p", "findings": one}) for one in ([], None))
    assert normal.findings == ()
    assert unknown.findings is None
    assert StudyTruth.from_json(normal.to_json()).findings == ()


@pytest.mark.parametrize("value", [-1, 0.5, True, None])
def test_a_label_is_one_or_nought(value: object) -> None:
    with pytest.raises(DataError, match=r"'labels.edema' is .*left out where unknown"):
        StudyTruth.from_json({"id": "s1", "patient": "p1", "labels": {"edema": value}})


def test_a_bad_line_is_named_by_place(tmp_path: Path) -> None:
    (tmp_path / "answers.jsonl").write_text('{"id": "x", "model": "a"}\n')
    with pytest.raises(DataError, match=r"answers.jsonl:1: an examined image needs 'condition'"):
        list(read_answers(tmp_path / "answers.jsonl"))


def test_a_probability_lies_between_nought_and_one() -> None:
    values = {"id": "x", "model": "a", "condition": "clean", "study": "s", "image": {"label_probs": {"edema": 1.2}}}
    with pytest.raises(DataError, match="from 0 to 1"):
        Answer.from_json(values)
