from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.runs import Run
from cxrlab.preference.candidate_files import CANDIDATES, Candidate, CandidateFiles, same_text


def written(path: Path, *records: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def several(key: str, *reports: str) -> dict[str, Any]:
    return {"id": key, "report": reports[0], "answers": [{"report": text} for text in reports]}


def reports(found: CandidateFiles, key: str) -> tuple[str, ...]:
    return tuple(one.report for one in found.of(key))


def test_candidates_of_several_files_are_joined_by_id_in_order(tmp_path: Path) -> None:
    """With answers, with one report, and in another order of studies; the best of a prediction is not counted twice."""
    first = written(tmp_path / "a.jsonl", several("s1", "one", "two"), {"id": "s2", "report": "three"})
    (tmp_path / "run").mkdir()
    written(tmp_path / "run" / "predictions.jsonl", {"id": "s3", "report": "four"}, several("s1", "five", "one"))
    found = CandidateFiles([first, tmp_path / "run"])
    assert found.ids() == ("s1", "s2", "s3") and len(found) == 3
    assert reports(found, "s1") == ("one", "two", "five", "one")
    assert reports(found, "s2") == ("three",) and reports(found, "s3") == ("four",)
    assert found.place("s3") == f"{tmp_path / 'run' / 'predictions.jsonl'}:1"


def test_candidates_go_before_predictions(tmp_path: Path) -> None:
    written(tmp_path / CANDIDATES, several("s1", "drawn", "too"))
    written(tmp_path / "predictions.jsonl", {"id": "s1", "report": "greedy"})
    assert reports(CandidateFiles([tmp_path]), "s1") == ("drawn", "too")


def test_a_candidate_that_was_cut_keeps_its_mark(tmp_path: Path) -> None:
    """Of several answers each has its own; the mark of the prediction is that of its first answer, or of its report."""
    drawn = {**several("s1", "cut of", "whole.", "whole too."), "truncated": True}
    drawn["answers"][0]["truncated"], drawn["answers"][2]["truncated"] = True, False
    found = CandidateFiles(
        [written(tmp_path / "c.jsonl", drawn, {"id": "s2", "report": "cut", "truncated": True}, several("s3", "whole"))]
    )
    assert found.of("s1") == (Candidate("cut of", True), Candidate("whole."), Candidate("whole too."))
    assert found.of("s2") == (Candidate("cut", True),) and found.of("s3") == (Candidate("whole"),)


def test_blank_lines_and_wide_characters_do_not_shift_the_places(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    lines = [json.dumps({"id": f"s{n}", "report": f"“ü” {n}"}, ensure_ascii=False) for n in range(3)]
    path.write_text("\n\n".join(lines) + "\n")
    assert [reports(CandidateFiles([path]), f"s{n}") for n in range(3)] == [(f"“ü” {n}",) for n in range(3)]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "c.jsonl holds no candidate"),
        ([{"report": "x"}], "c.jsonl:1: a prediction needs a text 'id'"),
        ([{"id": 3, "report": "x"}], "c.jsonl:1: a prediction needs a text 'id'"),
        ([{"id": "a", "report": "x"}, {"id": "a", "report": "y"}], "c.jsonl:2: the id 'a' is on line 1 too"),
    ],
)
def test_files_that_cannot_be_joined_are_refused(tmp_path: Path, records: list[dict[str, Any]], message: str) -> None:
    path = written(tmp_path / "c.jsonl", *records)
    with pytest.raises(DataError, match=message):
        CandidateFiles([path])


@pytest.mark.parametrize("answers", ["private words", [{"text": "private words"}], ["private words"], [{"report": 3}]])
def test_answers_of_another_form_are_refused_without_their_words(tmp_path: Path, answers: Any) -> None:
    path = written(tmp_path / "c.jsonl", {"id": "a", "report": "x", "answers": answers})
    with pytest.raises(DataError, match="c.jsonl:1: 'answers' must be a list of objects with a text 'report'") as error:
        CandidateFiles([path]).of("a")
    assert "private" not in str(error.value)


def test_a_prediction_without_a_report_is_refused_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path / "c.jsonl", {"id": "a", "report": "x"}, {"id": "b"})
    with pytest.raises(DataError, match="c.jsonl:2: a prediction needs 'report'"):
        CandidateFiles([path]).of("b")


def test_folders_without_candidates_and_unfinished_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has neither candidates.jsonl nor predictions.jsonl"):
        CandidateFiles([tmp_path])
    with pytest.raises(DataError, match="nowhere.jsonl does not exist"):
        CandidateFiles([tmp_path / "nowhere.jsonl"])
    with pytest.raises(KeyboardInterrupt), Run.open(tmp_path / "run", {}) as run:
        run.append(CANDIDATES, {"id": "a", "report": "x"})
        raise KeyboardInterrupt
    with pytest.raises(DataError, match="has not finished.*run its command again"):
        CandidateFiles([tmp_path / "run"])
    assert CandidateFiles([tmp_path / "run" / CANDIDATES]).ids() == ("a",), "the file itself may be named"
    (tmp_path / "run" / "summary.json").write_text('{"missing": [{"id": "b", "reason": "no image"}]}')
    with pytest.raises(DataError, match=r"summary\.json.*--allow-missing") as caught:
        CandidateFiles([tmp_path / "run"])
    assert "to finish it" not in str(caught.value)


def test_texts_are_the_same_up_to_case_and_white_space() -> None:
    assert same_text(" Clear\n lungs. ") == same_text("clear lungs.") != same_text("clear lungs")
