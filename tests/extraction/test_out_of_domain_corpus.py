"""Scenes with bland reports: a few short normal reports, of pictures that no pool queries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.core.vocabulary import View
from cxrlab.data.views import load_selected_image
from cxrlab.extraction.out_of_domain_corpus import (
    MOST_WORDS,
    OutOfDomainConfig,
    make_out_of_domain_corpus,
    normal_reports,
)
from cxrlab.extraction.query_pools import open_pool
from cxrlab.extraction.transcript_analysis import transcript_diversity

SMALL = OutOfDomainConfig(n=30, size=32, seed=5, reports=3, workers=1)


def test_the_reports_are_short_normal_and_different() -> None:
    texts = [report.findings or "" for report in normal_reports(5, 12)]
    assert len(set(texts)) == 12 and max(len(text.split()) for text in texts) <= MOST_WORDS
    diversity = transcript_diversity(texts)
    assert diversity["abnormal_share"] == 0.0 and diversity["silent"] == 0 and diversity["distinct_finding_sets"] == 1


def test_fewer_reports_begin_more_of_the_same_seed() -> None:
    assert normal_reports(5, 12)[:3] == normal_reports(5, 3) and normal_reports(6, 3) != normal_reports(5, 3)


def test_every_picture_is_a_frontal_image_to_learn_from(tmp_path: Path) -> None:
    corpus = make_out_of_domain_corpus(SMALL, tmp_path / "bland")
    assert len(corpus.ids("train")) == 30 and not corpus.ids("test")
    studies = [corpus[key] for key in corpus.ids("train")]
    assert {study.images[0].view for study in studies} == {View.FRONTAL}
    diversity = [study.sections.findings for study in studies if study.sections is not None]
    assert len(diversity) == 30 and set(diversity) == {report.findings for report in normal_reports(5, 3)}
    assert load_selected_image(corpus, studies[0]).shape == (32, 32)  # grey, as an image is shown


def test_in_colour_the_same_pictures_keep_their_colours(tmp_path: Path) -> None:
    grey = make_out_of_domain_corpus(SMALL, tmp_path / "grey")
    assert "colour" not in grey.card.settings  # as on cards from before there was a choice
    corpus = make_out_of_domain_corpus(replace(SMALL, n=2, colour=True), tmp_path / "bland")
    image = load_selected_image(corpus, corpus[corpus.ids("train")[0]])
    assert image.shape == (32, 32, 3) and np.ptp(image, axis=2).max() > 0.1 and corpus.card.settings["colour"] is True


def test_no_pool_of_the_same_seed_asks_these_pictures(tmp_path: Path) -> None:
    corpus = make_out_of_domain_corpus(SMALL, tmp_path / "bland")
    ours = {
        (load_selected_image(corpus, corpus[key]) * 255).round().astype(np.uint8).tobytes()
        for key in corpus.ids("train")
    }
    asked = {one.pixels.tobytes() for one in open_pool("scenes", size=32, seed=5).draw(30)}
    assert len(ours) == 30 and not ours & asked


def test_a_corpus_that_was_begun_is_continued_with_the_same_settings_alone(tmp_path: Path) -> None:
    make_out_of_domain_corpus(SMALL, tmp_path / "bland")
    before = (tmp_path / "bland" / "card.yaml").read_bytes()
    make_out_of_domain_corpus(SMALL, tmp_path / "bland")
    assert (tmp_path / "bland" / "card.yaml").read_bytes() == before


@pytest.mark.parametrize(
    ("changes", "message"), [({"n": 0}, "n=0"), ({"size": 16}, "size=16"), ({"size": 4096}, "32 to 2048")]
)
def test_sizes_that_make_no_sense_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        OutOfDomainConfig(**changes)


def test_more_reports_than_there_are_words_for_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cxrlab.extraction.out_of_domain_corpus.MOST_WORDS", 3)
    with pytest.raises(ConfigError, match="reports=2 .* only 0 .* 3 words"):
        normal_reports(5, 2)
