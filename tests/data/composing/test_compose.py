"""A composition is counted first, refused when a patient leaks, and written the same every time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from composition_members import config, corpus, study
from corpora import content

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.records import Study
from cxrlab.data import corpus_writer as writer_module
from cxrlab.data.check import check_corpus
from cxrlab.data.compose import ABSENT_PRIOR, PRIOR_LEFT_OUT, Row, as_text, compose_corpus, plan, total
from cxrlab.data.corpus import load_corpus
from cxrlab.data.corpus_writer import Line


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXRLAB_QUIET", "1")


def studies(count: int, **changes: Any) -> list[Study]:
    return [study(number, **changes) for number in range(count)]


@pytest.fixture
def two(tmp_path: Path) -> dict[str, Path]:
    """Two hospitals that both have studies s0, s1, …; the second with two images and two texts a study."""
    made = {"labels": {"findings": "From labels."}}
    a = corpus(tmp_path / "a", studies(4), "one")
    b = corpus(tmp_path / "b", studies(3, views=("PA", "lateral"), structured=made), "two")
    return {"a": a.path, "b": b.path}


def both(two: dict[str, Path], **changes: Any) -> Any:
    return config({"a": two["a"], "b": {"corpus": str(two["b"]), "texts": ["sections", "structured"]}}, **changes)


def test_what_is_written_is_a_sound_corpus(two: dict[str, Path], tmp_path: Path) -> None:
    done = compose_corpus(plan(both(two)), tmp_path / "out")
    assert done.ids() == ("a/s0", "a/s1", "a/s2", "a/s3", "b/s0", "b/s1", "b/s2")
    assert done.image(done["b/s1"], 1).shape == (24, 24), "images are reached through the links"
    assert check_corpus(tmp_path / "out", workers=1).ok
    assert done.card.collections == ("one", "two") and done.card.counts["patients"] == 7
    assert str(tmp_path) not in (tmp_path / "out" / "card.yaml").read_text(), "a card holds no path of a machine"
    assert done["b/s0"].extra == {"corpus": "b", "texts": ["sections", "structured:labels"]}


def test_pairs_are_images_times_texts(two: dict[str, Path]) -> None:
    """a: 4 images with one text; b: 3 studies × 2 images × 2 texts = 12, half of each kind."""
    rows = plan(both(two)).rows
    assert [(row.taken_studies, row.taken_patients, row.taken_images, row.pairs) for row in rows] == [
        (4, 4, 4, 4),
        (3, 3, 6, 12),
    ]
    assert rows[1].texts == {"sections": 6, "structured:labels": 6}
    assert total(rows).pairs == 16 and total(rows).texts == {"sections": 10, "structured:labels": 6}


def test_the_table_stands_on_the_card_and_beside_the_paper(two: dict[str, Path], tmp_path: Path) -> None:
    paper = {"patients": 1000, "pairs": 2000, "words": [3, 89, 27.8]}
    settings = {"a": {"corpus": str(two["a"]), "paper": paper}, "b": two["b"]}
    planned = plan(config(settings))
    assert as_text(planned.rows).splitlines()[:2] == [
        "member  patients  paper  images  studies taken  patients taken  images taken  pairs  paper",
        "a              4  1,000       4              4               4             4      4  2,000",
    ]
    card = compose_corpus(planned, tmp_path / "out").card
    assert as_text(planned.rows).splitlines()[-2:] == [
        "words per text, a: 4 to 4, mean 4.0; paper 3 to 89, mean 27.8",
        "words per text, b: 4 to 4, mean 4.0",
    ]
    assert card.extra["table"][0]["paper"] == paper
    assert card.extra["table"][1]["pairs"] == 6


def test_twice_the_same_bytes_and_nothing_is_touched(two: dict[str, Path], tmp_path: Path) -> None:
    for folder in ("x", "y", "x"):
        compose_corpus(plan(both(two)), tmp_path / folder)
    assert content(tmp_path / "x") == content(tmp_path / "y")
    with pytest.raises(RunError, match="a.n is null there and 2 here"):
        compose_corpus(plan(config({"a": {"corpus": str(two["a"]), "n": 2}, "b": two["b"]})), tmp_path / "x")


@pytest.mark.parametrize("stop", [0, 3, 5])
def test_a_stopped_composition_is_continued(
    two: dict[str, Path], tmp_path: Path, stop: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run writes what is missing; both folders are equal byte for byte."""
    compose_corpus(plan(both(two)), tmp_path / "whole")
    append, seen = writer_module.CorpusWriter.append, []

    def stopping(self: Any, line: Line) -> None:
        seen.append(line.id)
        if len(seen) > stop:
            raise KeyboardInterrupt
        append(self, line)

    monkeypatch.setattr(writer_module.CorpusWriter, "append", stopping)
    with pytest.raises(KeyboardInterrupt):
        compose_corpus(plan(both(two)), tmp_path / "halted")
    assert not (tmp_path / "halted" / "card.yaml").exists()
    monkeypatch.undo()
    compose_corpus(plan(both(two)), tmp_path / "halted")
    assert content(tmp_path / "halted") == content(tmp_path / "whole")


def test_a_changed_member_is_not_mixed_into_an_older_composition(two: dict[str, Path], tmp_path: Path) -> None:
    compose_corpus(plan(both(two)), tmp_path / "out")
    file = two["a"] / "studies.jsonl"
    file.write_text(file.read_text().replace("number 2", "number two"))
    with pytest.raises(RunError, match="a.studies_sha256"):
        compose_corpus(plan(both(two)), tmp_path / "out")


def test_a_prior_that_is_left_out_is_kept_apart(tmp_path: Path) -> None:
    """A prior must exist in its corpus; its id is not lost."""
    visits = [study(0, split="val", patient="p"), study(1, patient="q"), study(2, patient="q", prior="s1")]
    lost = study(3, patient="r", prior="s4")
    source = corpus(tmp_path / "a", [*visits, lost, study(4, patient="r", views=("lateral",))], "one")
    made = compose_corpus(plan(config({"a": {"corpus": str(source.path), "views": ["PA"]}})), tmp_path / "out")
    assert made["a/s2"].prior == "a/s1"
    assert made["a/s3"].prior is None and made["a/s3"].extra[ABSENT_PRIOR] == "a/s4"
    assert made.card.remarks == {PRIOR_LEFT_OUT: 1}


def leaking(tmp_path: Path, **settings: Any) -> Any:
    """A corpus whose patient p stands in train and test."""
    visits = [study(0, patient="p"), study(1, patient="p", split="test"), study(2)]
    return config({"a": {"corpus": str(corpus(tmp_path / "a", visits, "one").path), **settings}})


@pytest.mark.parametrize("splits", [["train"], ["test"], ["train", "test"]])
def test_a_patient_in_two_splits_is_an_error(tmp_path: Path, splits: list[str]) -> None:
    """Also when only one of the splits is taken: the other is where the model will be tested."""
    with pytest.raises(DataError, match="a patient is in two splits of 'a'.*'p', in train and test"):
        plan(leaking(tmp_path, splits=splits))


def test_splits_that_become_one_cannot_leak(tmp_path: Path) -> None:
    assert plan(leaking(tmp_path, splits=["train", "test"], as_split="train")).seen.taken["a"].studies == 3


def test_one_person_in_two_corpora_of_a_collection_leaks(tmp_path: Path) -> None:
    """Open-I and IU X-ray name the same people; the same ids in two hospitals are chance."""
    train = corpus(tmp_path / "iu", [study(0), study(1)], "indiana").path
    tested = [study(number, id=f"x{number}", split="test") for number in (1, 2)]
    same = corpus(tmp_path / "openi", tested, "indiana").path
    other = corpus(tmp_path / "other", tested, "elsewhere").path
    with pytest.raises(DataError, match="a patient is in two splits of 'iu' and 'openi' .*'p1', in train and test"):
        plan(config({"iu": train, "openi": {"corpus": str(same), "splits": ["test"]}}))
    assert plan(config({"iu": train, "other": {"corpus": str(other), "splits": ["test"]}})).seen.taken["other"].studies


def test_a_study_enters_once(tmp_path: Path) -> None:
    source = corpus(tmp_path / "a", studies(3), "one").path
    with pytest.raises(DataError, match="study 's0'.*'x' and 'y'"):
        plan(config({"x": source, "y": source}))


def test_compositions_that_overlap_in_part_are_refused(two: dict[str, Path], tmp_path: Path) -> None:
    """Inside a composition patients have other names, so nobody could tell who is who."""
    compose_corpus(plan(both(two)), tmp_path / "both")
    with pytest.raises(DataError, match="share the collection one"):
        plan(config({"both": tmp_path / "both", "a": two["a"]}))
    alone = plan(config({"both": tmp_path / "both"}))
    assert alone.seen.ids >= {"both/a/s0", "both/b/s2"}


def test_a_composition_of_one_collection_hides_nobody(tmp_path: Path) -> None:
    """Patient p0 is called x/p0 there; beside a test split with p0 it would not be recognised."""
    train = corpus(tmp_path / "a", [study(0)], "one").path
    tested = corpus(tmp_path / "b", [study(0, id="x0", split="test")], "one").path
    compose_corpus(plan(config({"x": train})), tmp_path / "composed")
    with pytest.raises(DataError, match="the members 'c' and 'b' share the collection one"):
        plan(config({"c": tmp_path / "composed", "b": {"corpus": str(tested), "splits": ["test"]}}))
    twice = {"corpus": str(tmp_path / "composed"), "splits": ["val"]}
    assert plan(config({"c": tmp_path / "composed", "d": twice})).seen.taken["c"].studies == 1, "the same names"


def test_a_study_without_a_split_that_gets_one_can_leak(tmp_path: Path) -> None:
    """Taken into train while its patient is in the test split of the same corpus; without a split it is in none."""
    visits = [study(0, patient="p", split=None), study(1, patient="p", split="test")]
    settings = {"corpus": str(corpus(tmp_path / "a", visits, "one").path), "splits": ["none"]}
    with pytest.raises(DataError, match="splits of 'a' and the rest .*'p', in test and no split"):
        plan(config({"a": {**settings, "as_split": "train"}}))
    assert plan(config({"a": settings})).seen.taken["a"].studies == 1


@pytest.mark.parametrize("inside", ["a/inner", "a/linked/inner"])
def test_nothing_is_written_into_a_member(tmp_path: Path, inside: str) -> None:
    """Nor into the download that a member links to."""
    source = corpus(tmp_path / "a", studies(2), "one")
    (tmp_path / "download").mkdir()
    (tmp_path / "a" / "linked").symlink_to(tmp_path / "download")
    with pytest.raises(DataError, match="in the member 'x'"):
        compose_corpus(plan(config({"x": source.path})), tmp_path / inside)
    assert not (tmp_path / inside).exists()


def test_text_of_others_in_a_test_split_is_refused(tmp_path: Path) -> None:
    source = corpus(tmp_path / "a", [study(0, split="test", structured={"gpt": {"findings": "x"}})], "one")
    with pytest.raises(DataError, match="'s0' of 'a' is in the test split and has text by gpt"):
        plan(config({"a": {"corpus": str(source.path), "splits": ["test"]}}))


def test_missing_members_are_named_with_their_command(two: dict[str, Path], tmp_path: Path) -> None:
    gone = {"nih-cxr14": tmp_path / "nih", "phantom": tmp_path / "ph", "other": tmp_path / "o"}
    with pytest.raises(DataError) as caught:
        plan(config({"a": two["a"], **gone}))
    reported = str(caught.value)
    assert "3 of 4 members have no complete corpus" in reported and "--allow-missing" in reported
    assert f"cxrlab data import nih-cxr14 --root DIR --out {tmp_path / 'nih'}" in reported
    assert (
        f"cxrlab data make phantom --out {tmp_path / 'ph'}" in reported and f"no corpus in {tmp_path / 'o'}" in reported
    )
    planned = plan(config({"a": two["a"], **gone}, allow_missing=True))
    assert [row.pairs for row in planned.rows] == [4, None, None, None]
    assert "nih-cxr14: its corpus is not there" in as_text(planned.rows)
    with pytest.raises(DataError, match="3 of 3 members"):
        plan(config(gone, allow_missing=True))


def test_a_member_that_gives_nothing_is_an_error_when_written_and_shown_when_not(
    two: dict[str, Path], tmp_path: Path
) -> None:
    planned = plan(config({"a": two["a"], "b": {"corpus": str(two["b"]), "views": ["AP"]}}))
    assert planned.lines[-3].endswith("0 studies") and "images AP" in planned.lines[-3]
    with pytest.raises(DataError, match="nothing is taken of the member 'b'"):
        compose_corpus(planned, tmp_path / "out")
    assert not os.path.exists(tmp_path / "out")


def test_a_corpus_of_a_collection_that_was_learnt_from_is_not_external(two: dict[str, Path], tmp_path: Path) -> None:
    twin = corpus(tmp_path / "twin", [study(9)], "one", name="twin").path
    with pytest.raises(DataError, match="'a' is not external: its images come from one, .* the corpus 'twin'"):
        plan(config({"a": two["a"]}, external_to=(twin,)))
    assert plan(config({"b": two["b"]}, external_to=(twin,))).notes == ()
    gone = tmp_path / "gone"
    with pytest.raises(DataError, match="gone does not exist"):
        plan(config({"b": two["b"]}, external_to=(gone,)))
    (note,) = plan(config({"b": two["b"]}, external_to=(gone,), allow_missing=True)).notes
    assert "not checked" in note and str(gone) in note


def test_a_member_without_a_collection_leaves_the_whole_unknown(two: dict[str, Path], tmp_path: Path) -> None:
    nameless = corpus(tmp_path / "n", studies(2)).path
    compose_corpus(plan(config({"a": two["a"], "n": nameless})), tmp_path / "out")
    assert load_corpus(tmp_path / "out").card.collections == ("one", "unknown")
    with pytest.raises(DataError, match="does not name all its collections"):
        plan(config({"b": two["b"]}, external_to=(tmp_path / "out",)))


def test_who_is_not_recognised_is_stated(two: dict[str, Path], tmp_path: Path) -> None:
    """Without a collection nobody can tell whether a patient of one member is one of another."""
    nameless = corpus(tmp_path / "c", studies(2), None).path
    (note,) = plan(config({"a": two["a"], "c": nameless})).notes
    assert "not checked whether patients of 'c' are in other members" in note
    assert plan(config({"c": nameless})).notes == ()


def test_the_total_of_nothing_known_is_unknown() -> None:
    assert total([Row("a"), Row("b", pairs=2)]).pairs == 2 and total([Row("a")]).pairs is None
