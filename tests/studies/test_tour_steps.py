"""Steps of the tour that count: the round trip through another layout, and the corpus in numbers."""

from __future__ import annotations

from pathlib import Path

from corpora import drawn, toy_corpus

from cxrlab.core.records import Report
from cxrlab.data.config import PhantomConfig, ScenesConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.phantom.corpus import make_phantom
from cxrlab.data.synthetic_scenes import make_scenes
from cxrlab.studies.tour import COMPARED, corpus_overview, round_trip


def test_one_lost_sentence_and_one_lost_study_are_seen(tmp_path: Path) -> None:
    """Of four studies the third lost a word and the fourth did not come back: two of four are the same."""
    source = toy_corpus(tmp_path / "source", 4)
    short = {"sections": Report(findings="There is a small pleural effusion.")}
    imported = toy_corpus(tmp_path / "imported", 3, {2: short})
    (tmp_path / "ids.csv").write_text("study_id,id\n" + "".join(f"{n},s{n}\n" for n in range(4)))
    found = {row.what: row for row in round_trip(source, imported, tmp_path / "ids.csv")}
    assert (found["sections, word for word"].same, found["sections, word for word"].of) == (2, 4)
    assert (found["the fourteen labels"].same, found["views"].same) == (3, 3)
    assert found.keys() == COMPARED.keys()


def test_line_ends_do_not_count(tmp_path: Path) -> None:
    source = toy_corpus(tmp_path / "source", 1)
    wrapped = drawn(0).study.sections
    assert wrapped is not None and wrapped.findings is not None
    broken = {"sections": Report(findings=wrapped.findings.replace(" ", "\n"))}
    toy_corpus(tmp_path / "imported", 1, {0: broken})
    (tmp_path / "ids.csv").write_text("study_id,id\n0,s0\n")
    assert all(row.same == 1 for row in round_trip(source, load_corpus(tmp_path / "imported"), tmp_path / "ids.csv"))


def test_each_finding_is_counted_once_per_study(tmp_path: Path) -> None:
    """Recounted in another way: studies whose set of present observations holds the name."""
    corpus = make_phantom(PhantomConfig(n=50, size=32, masks=False, workers=1), tmp_path / "corpus")
    rows = corpus_overview(corpus)["findings"]
    assert rows
    for row in rows:
        holding = [
            study for study in corpus if any(f.present and f.observation == row["observation"] for f in study.findings)
        ]
        assert row["studies"] == len(holding) == row["train"] + row["val"] + row["test"]
        assert row["test"] == sum(study.split == "test" for study in holding)
    assert [row["studies"] for row in rows] == sorted((row["studies"] for row in rows), reverse=True)


def test_a_corpus_without_known_findings_has_none_to_count(tmp_path: Path) -> None:
    corpus = make_scenes(ScenesConfig(n=3, size=32, workers=1), tmp_path / "scenes")
    found = corpus_overview(corpus)
    assert found["findings"] == [] and found["counts"]["studies"] == 3 and found["name"] == "scenes"
