"""Corpus folders for reading: streaming, lookup, and errors that name file and line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from corpora import CARD, drawn, image, toy_corpus

from cxrlab.core.errors import ConfigError, CxrlabError, DataError
from cxrlab.core.records import ImageFile
from cxrlab.data.card import Card, card_settings, read_card
from cxrlab.data.config import ScenesConfig
from cxrlab.data.corpus import load_corpus


def test_what_was_written_is_read(tmp_path: Path) -> None:
    """Records, images and masks survive the folder; counts are in the card."""
    corpus = toy_corpus(tmp_path / "c")
    assert [study.id for study in corpus] == [f"s{n}" for n in range(6)]
    assert corpus["s4"] == drawn(4).study == list(corpus.studies())[4]
    assert np.array_equal(corpus.image(corpus["s2"]), image(2).astype(np.float32) / np.float32(255))
    assert corpus.image(corpus["s2"], size=16).shape == (16, 16)
    assert corpus.rgb(corpus["s2"]).shape == (24, 24, 3)
    mask = corpus.mask(corpus["s2"], 0)
    assert mask is not None and mask.sum() == 8 * 9 and corpus.mask(corpus["s2"], 1) is None
    assert corpus.card.counts == {"studies": 6, "patients": 6, "images": 6, "train": 2, "val": 2, "test": 2}


def test_splits_lengths_and_ids(tmp_path: Path) -> None:
    """Number k is in train, val, test for k mod 3 = 0, 1, 2."""
    corpus = toy_corpus(tmp_path / "c")
    assert len(corpus) == 6 and "s5" in corpus and "s6" not in corpus
    assert corpus.ids("val") == ("s1", "s4") == tuple(study.id for study in corpus.studies("val"))
    with pytest.raises(ConfigError, match="Did you mean 'val'"):
        corpus.ids("vla")


def test_fields_that_are_not_wanted_are_not_looked_at(tmp_path: Path) -> None:
    """They come as if absent; all else is read and checked as ever."""
    corpus = toy_corpus(tmp_path / "c")
    whole, part = list(corpus.studies()), list(corpus.studies(without=frozenset({"findings", "masks"})))
    assert part == [dataclasses.replace(study, findings=None, masks={}) for study in whole] != whole
    corpus.file.write_text('{"id": "s1", "patient": "p", "findings": 3, "split": "tset"}\n')
    with pytest.raises(DataError, match="Did you mean 'test'"):
        list(corpus.studies(without=frozenset({"findings"})))


def test_opening_reads_the_card_alone(tmp_path: Path) -> None:
    """A corpus of a hundred thousand studies opens at once; a broken line shows when it is reached."""
    corpus = toy_corpus(tmp_path / "c")
    corpus.file.write_text("broken\n")
    assert load_corpus(tmp_path / "c").card == corpus.card


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "s1", "patient"', "not valid JSON"),
        ("[1, 2]", "not an object"),
        ('{"id": "s1"}', "'patient'"),
        ('{"id": "s1", "patient": "p", "labels": {"Cardiomegalie": 1}}', "Did you mean 'Cardiomegaly'"),
        ('{"id": "s1", "patient": "p", "labels": {"Edema": 2}}', "Edema' is 2"),
        ('{"id": "s1", "patient": "p", "labels": 3}', "'labels' is 3"),
        ('{"id": "s1", "patient": "p", "split": "tset"}', "Did you mean 'test'"),
        ('{"id": "s1", "patient": "p", "images": [{"view": "PA"}]}', "'path'"),
        ('{"id": "s1", "patient": "p", "images": [{"path": "/data/x.png"}]}', "relative"),
        ('{"id": "s1", "patient": "p", "images": [{"path": "C:/x.png"}]}', "relative"),
        ('{"id": "s1", "patient": "p", "images": [{"path": "\\\\server\\\\x.png"}]}', "relative"),
        ('{"id": "s1", "patient": "p", "images": [{"path": ""}]}', "path"),
        ('{"id": "s1", "patient": "p", "images": [{"path": "../x.png"}]}', "outside the corpus folder"),
        ('{"id": "s1", "patient": "p", "images": [{"path": "a\\\\..\\\\..\\\\x.png"}]}', "outside the corpus folder"),
        ('{"id": "s1", "patient": "p", "masks": {"0": "images/../../x.png"}}', "outside the corpus folder"),
        ('{"id": "s1", "patient": "p", "masks": {"0": 5}}', "masks"),
        ('{"id": "s1", "patient": "p", "findings": [{"observation": "efusion"}]}', "not an observation"),
        ('{"id": "s0", "patient": "p"}', "earlier line"),
        ("\xff", "is not"),
    ],
)
def test_a_bad_line_is_named_with_its_number(tmp_path: Path, line: str, message: str) -> None:
    """The user opens the file at that line; the studies before it were still delivered."""
    corpus = toy_corpus(tmp_path / "c", count=1)
    corpus.file.write_bytes(corpus.file.read_bytes() + line.encode("latin1") + b"\n")
    stream = corpus.studies()
    assert next(stream).id == "s0"
    with pytest.raises(DataError, match=message) as caught:
        next(stream)
    assert str(caught.value).startswith(f"{corpus.file}:2")


def test_images_elsewhere_are_reached_through_links_inside(tmp_path: Path) -> None:
    """A path stays inside the folder by its words; a link there may lead to an image of another disk."""
    corpus = toy_corpus(tmp_path / "c", count=1)
    image_file = tmp_path / "c" / "images" / "s0.png"
    image_file.rename(tmp_path / "image.png")
    image_file.symlink_to(tmp_path / "image.png")
    assert corpus.image(corpus["s0"]).shape == (24, 24)


def test_a_study_made_in_memory_stays_inside_too(tmp_path: Path) -> None:
    """A study need not come from the file; its path is asked again before anything is opened."""
    corpus = toy_corpus(tmp_path / "c", count=1)
    (tmp_path / "c" / "images" / "s0.png").rename(tmp_path / "image.png")
    outside = dataclasses.replace(corpus["s0"], images=(ImageFile("../image.png"),), masks={"0": "../image.png"})
    with pytest.raises(DataError, match="outside the corpus folder"):
        corpus.image(outside)
    with pytest.raises(DataError, match="outside the corpus folder"):
        corpus.mask(outside, 0)


def test_a_missing_image_is_named_with_its_line(tmp_path: Path) -> None:
    """Nothing takes its place."""
    corpus = toy_corpus(tmp_path / "c")
    (corpus.path / "images" / "s3.png").unlink()
    (corpus.path / "masks" / "s3_0.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"studies\.jsonl:4, image 0: .*s3\.png does not exist"):
        corpus.image(corpus["s3"])
    with pytest.raises(DataError, match=r"studies\.jsonl:4, mask 0: .*empty"):
        corpus.mask(corpus["s3"], 0)
    with pytest.raises(DataError, match="has 1 images, so there is no image 1"):
        corpus.image(corpus["s3"], 1)


def test_an_unknown_study_has_neighbours(tmp_path: Path) -> None:
    """A typo in an id."""
    with pytest.raises(DataError, match="no study 's55'"):
        toy_corpus(tmp_path / "c")["s55"]


def test_what_is_no_corpus_is_refused(tmp_path: Path) -> None:
    """Missing, a file, a folder of something else, an unfinished one, lines that cannot be indexed."""
    corpus = toy_corpus(tmp_path / "c")
    with pytest.raises(DataError, match="does not exist"):
        load_corpus(tmp_path / "none")
    with pytest.raises(DataError, match="is a file"):
        load_corpus(corpus.file)
    with pytest.raises(DataError, match="no studies.jsonl"):
        load_corpus(tmp_path)
    (corpus.path / "card.yaml").unlink()
    with pytest.raises(DataError, match="unfinished"):
        load_corpus(corpus.path)
    corpus.file.write_text('{"id": 3}\n')
    with pytest.raises(DataError, match=r"studies.jsonl:1: a study needs a text 'id'"):
        len(type(corpus)(corpus.path, CARD))
    corpus.file.write_text('{"id": "a"}\n\n{"id": "a"}\n')
    with pytest.raises(DataError, match=r"studies.jsonl:3: the id 'a'"):
        len(type(corpus)(corpus.path, CARD))
    corpus.file.unlink()
    with pytest.raises(DataError, match="does not exist"):
        len(type(corpus)(corpus.path, CARD))


def test_lookup_survives_blank_lines_and_wide_characters(tmp_path: Path) -> None:
    """Offsets are in bytes, not in characters."""
    corpus = toy_corpus(tmp_path / "c", count=1)
    extra = [{"id": "ä–ö", "patient": "p", "caption": "naïve ✓"}, {"id": "z", "patient": "q", "caption": "ok"}]
    lines = [json.dumps(one, ensure_ascii=False) for one in extra]
    corpus.file.write_bytes(corpus.file.read_bytes() + b"\n  \n" + "\n\n".join(lines).encode() + b"\n")
    assert corpus["z"].caption == "ok" and corpus["ä–ö"].caption == "naïve ✓" and len(corpus) == 3


def test_card_round_trip_and_foreign_keys(tmp_path: Path) -> None:
    """Keys that others added are kept; a broken or empty card is a sentence with its name."""
    card = Card("x", "src", "lic", "cit", {"n": 3}, {"studies": 3}, extra={"language": "es"})
    path = tmp_path / "card.yaml"
    path.write_text(card.to_yaml())
    assert read_card(path) == card
    counts = ["name: x\ncounts: {studies: '6'}", "name: x\ncounts: {studies: yes}", "name: x\ncounts: {studies: -1}"]
    for text in ("", "name: 3", "name: x\nsettings: 5", "{{{", *counts):
        path.write_text(text)
        with pytest.raises(CxrlabError, match="card.yaml"):
            read_card(path)


def test_card_settings_leave_out_what_changes_no_byte() -> None:
    """The number of workers must not make two equal corpora differ."""
    assert card_settings(ScenesConfig(n=5, workers=2)) == {"n": 5, "size": 128, "seed": 7}


def test_the_error_for_an_empty_split_says_what_helps(tmp_path: Path) -> None:
    """A flag is advised where no study has a split, since no other split could be named there."""
    some = str(toy_corpus(tmp_path / "some", 3, {2: {"split": None}}).no_study_error("test"))
    assert "test split (splits there: none, train, val)" in some and "--split patient" not in some
    without = toy_corpus(tmp_path / "without", 3, dict.fromkeys(range(3), {"split": None}))
    assert "train or val split (splits there: none)" in str(without.no_study_error("train", "val"))
    assert "--split patient" in str(without.no_study_error("train"))
    assert "holds no study" in str(toy_corpus(tmp_path / "empty", 0).no_study_error("test"))
