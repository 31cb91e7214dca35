"""What came back of a corpus: counted against the studies it was written from."""

from __future__ import annotations

from pathlib import Path

from corpora import drawn, toy_corpus

from cxrlab.core.records import Report
from cxrlab.data.corpus import load_corpus
from cxrlab.studies.round_trip import PARTS, came_back


def test_one_lost_sentence_and_one_lost_study_are_seen(tmp_path: Path) -> None:
    """Of four studies the third lost a word and the fourth did not come back: two of four are the same."""
    source = toy_corpus(tmp_path / "source", 4)
    short = {"sections": Report(findings="There is a small pleural effusion.")}
    imported = toy_corpus(tmp_path / "imported", 3, {2: short})
    (tmp_path / "ids.csv").write_text("study_id,id\n" + "".join(f"{n},s{n}\n" for n in range(4)))
    found = {row.what: row for row in came_back(source, imported, tmp_path / "ids.csv")}
    assert (found["sections, word for word"].same, found["sections, word for word"].of) == (2, 4)
    assert (found["the fourteen labels"].same, found["views"].same) == (3, 3)
    assert found.keys() == PARTS.keys()


def test_line_ends_do_not_count(tmp_path: Path) -> None:
    source = toy_corpus(tmp_path / "source", 1)
    wrapped = drawn(0).study.sections
    assert wrapped is not None and wrapped.findings is not None
    broken = {"sections": Report(findings=wrapped.findings.replace(" ", "\n"))}
    toy_corpus(tmp_path / "imported", 1, {0: broken})
    (tmp_path / "ids.csv").write_text("study_id,id\n0,s0\n")
    assert all(row.same == 1 for row in came_back(source, load_corpus(tmp_path / "imported"), tmp_path / "ids.csv"))
