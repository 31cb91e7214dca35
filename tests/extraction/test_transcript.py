"""What was asked and answered becomes a corpus: who is in it, in which words, and that it is made once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from corpora import content
from recording_victims import small_images

from cxrlab.core.image_codec import encode_png
from cxrlab.core.records import Study
from cxrlab.data.corpus_writer import CorpusWriter
from cxrlab.data.views import load_selected_image
from cxrlab.extraction.records import Query, fingerprint
from cxrlab.extraction.report_content import report_content
from cxrlab.extraction.surrogate import EmptyTranscript, write_transcript
from cxrlab.training.samples import find_image_file

LARGE, CLEAR = "There is mild cardiomegaly.", "The lungs are clear."
REFUSAL = "I can only help with chest radiographs."


def asked(run: Path, reports: Sequence[str]) -> list[Query]:
    """Queries on small pictures that lie in the run folder."""
    (run / "pictures").mkdir(parents=True)
    found = []
    for number, (one, report) in enumerate(zip(small_images(len(reports)), reports, strict=True)):
        name = fingerprint(one.pixels)
        (run / "pictures" / f"{name}.png").write_bytes(encode_png(one.pixels))
        found.append(Query(number, 0, one.key, name, report))
    return found


def test_a_picture_stands_for_a_image_and_the_answer_for_its_report(tmp_path: Path) -> None:
    queries = asked(tmp_path, [LARGE, CLEAR])
    corpus = write_transcript(queries, tmp_path, tmp_path / "t", victim="the victim")
    studies = list(corpus.studies("train"))
    assert [study.id for study in studies] == ["q000000", "q000001"]
    assert [study.sections and study.sections.findings for study in studies] == [LARGE, CLEAR]
    for study, one in zip(studies, small_images(2), strict=True):
        assert np.array_equal(np.rint(corpus.image(study) * 255), one.pixels)
    assert "the victim" in corpus.card.source and corpus.card.settings["queries"] == 2
    assert not any(study.labels or study.findings for study in studies)  # the attacker has words alone


def test_a_transcript_in_colour_is_learnt_in_colour(tmp_path: Path) -> None:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[..., 0] = 200
    name = fingerprint(pixels)
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / f"{name}.png").write_bytes(encode_png(pixels))
    queries = [Query(0, 0, "red", name, LARGE)]
    shapes = []
    for colour in (True, False):
        corpus = write_transcript(queries, tmp_path, tmp_path / f"t{colour}", victim="v", colour=colour)
        study = corpus["q000000"]
        shapes.append(load_selected_image(corpus, study).shape)
        file = find_image_file(corpus, study)
        assert not isinstance(file, str) and file.rgb is colour
    assert shapes == [(8, 8, 3), (8, 8)]


def test_what_says_nothing_of_a_image_is_left_out(tmp_path: Path) -> None:
    queries = asked(tmp_path, [REFUSAL, LARGE, "", CLEAR])
    corpus = write_transcript(queries, tmp_path, tmp_path / "t", victim="v")
    assert corpus.ids() == ("q000001", "q000003")
    assert (corpus.card.settings["first"], corpus.card.settings["last"]) == (1, 3)


@pytest.mark.parametrize("reports", [[], [REFUSAL, ""]])
def test_nothing_to_learn_from_is_reported(tmp_path: Path, reports: list[str]) -> None:
    with pytest.raises(EmptyTranscript, match=f"None of {len(reports)} answers"):
        write_transcript(asked(tmp_path, reports), tmp_path, tmp_path / "t", victim="v")
    assert not (tmp_path / "t").exists()


def test_wordings_are_studies_of_one_picture_that_say_the_same(tmp_path: Path) -> None:
    corpus = write_transcript(asked(tmp_path, [LARGE]), tmp_path, tmp_path / "t", victim="v", wordings=3, seed=5)
    studies = list(corpus.studies())
    assert [study.id for study in studies] == ["q000000", "q000000_1", "q000000_2"]
    assert {study.patient for study in studies} == {"q000000"} and len({s.images[0].path for s in studies}) == 1
    texts = [str(study.sections and study.sections.findings) for study in studies]
    assert texts[0] == LARGE and LARGE not in texts[1:]
    assert {report_content(text).findings for text in texts} == {report_content(LARGE).findings}


def test_rewriting_keeps_the_victims_words_out(tmp_path: Path) -> None:
    corpus = write_transcript(asked(tmp_path, [LARGE]), tmp_path, tmp_path / "t", victim="v", rewrite=True, seed=5)
    (study,) = corpus.studies()
    text = str(study.sections and study.sections.findings)
    assert text != LARGE and report_content(text).findings == report_content(LARGE).findings


def test_it_is_made_once(tmp_path: Path) -> None:
    queries = asked(tmp_path, [LARGE, CLEAR])
    write_transcript(queries, tmp_path, tmp_path / "t", victim="v")
    before = content(tmp_path / "t")
    write_transcript(queries, tmp_path, tmp_path / "t", victim="v")
    assert content(tmp_path / "t") == before
    assert (tmp_path / "t" / "pictures").resolve() == tmp_path / "pictures"  # no picture is kept twice


def test_it_moves_with_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finished or stopped in the middle: the pictures are found where both are now, the old place being gone."""
    before, after = tmp_path / "before", tmp_path / "after"
    queries = asked(before, [LARGE, CLEAR])
    write_transcript(queries, before, before / "whole", victim="v")

    def stop(self: CorpusWriter, study: Study) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(CorpusWriter, "add", stop)
        write_transcript(queries, before, before / "half", victim="v")
    before.rename(after)
    for name in ("whole", "half"):
        corpus = write_transcript(queries, after, after / name, victim="v")
        for study, one in zip(corpus.studies(), small_images(2), strict=True):
            assert np.array_equal(np.rint(corpus.image(study) * 255), one.pixels)


@pytest.mark.parametrize(("repeats", "kept"), [(None, [0, 1, 2, 3, 4]), (1, [0, 2]), (2, [0, 1, 2, 4])])
def test_the_same_answer_is_learnt_so_often_at_most(tmp_path: Path, repeats: int | None, kept: list[int]) -> None:
    queries = asked(tmp_path, [CLEAR, CLEAR, LARGE, CLEAR, LARGE])
    corpus = write_transcript(queries, tmp_path, tmp_path / "t", victim="v", repeats=repeats)
    assert corpus.ids() == tuple(f"q{number:06d}" for number in kept)
