"""The contact sheet: everything is on it, nothing is hidden."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from composition_members import corpus, study
from corpora import toy_corpus
from PIL import Image, ImageFont

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.records import Finding, Report
from cxrlab.core.vocabulary import Certainty, Change, Severity, Side
from cxrlab.data.config import SheetConfig
from cxrlab.data.contact_sheet import OUTLINES, Sheet, _outline, _wrapped, contact_sheet, drawable, finding_words


def pixels(sheet: Sheet) -> np.ndarray:
    return np.asarray(Image.open(sheet.path).convert("RGB"))


def test_a_sheet_has_its_grid(tmp_path: Path) -> None:
    """Six tiles of 64 pixels in three columns make two rows; the page is three tiles and four gaps wide."""
    corpus = toy_corpus(tmp_path / "c")
    page = pixels(contact_sheet(corpus, SheetConfig(columns=3, size=64), tmp_path / "sheet.png"))
    assert page.shape[1] == 3 * 64 + 4 * 8 and page.shape[0] > 2 * 64
    assert (tmp_path / "sheet.png").read_bytes()[:4] == b"\x89PNG"


def test_the_images_themselves_are_on_it(tmp_path: Path) -> None:
    """At the image's own size the pixels are copied unchanged: the first image stands somewhere on the page."""
    corpus = toy_corpus(tmp_path / "c", count=1)
    shown = np.kron(np.arange(16, dtype=np.uint8).reshape(4, 4) * 16, np.ones((8, 8), np.uint8))
    Image.fromarray(shown).save(corpus.path / "images" / "s0.png")
    page = pixels(contact_sheet(corpus, SheetConfig(size=32), tmp_path / "s.png"))[..., 0]
    windows = np.lib.stride_tricks.sliding_window_view(page, (32, 32))
    assert (windows == shown).all(axis=(2, 3)).any()


def test_the_choice_is_random_but_repeatable(tmp_path: Path) -> None:
    """The same seed gives the same bytes, another seed other studies."""
    corpus = toy_corpus(tmp_path / "c", count=30)
    sheets = [
        contact_sheet(corpus, SheetConfig(n=4, size=32, seed=seed), tmp_path / f"{n}.png").path.read_bytes()
        for n, seed in enumerate((1, 1, 2))
    ]
    assert sheets[0] == sheets[1] != sheets[2]


def test_masks_are_outlined_outside(tmp_path: Path) -> None:
    """The finding's own pixels stay as they are; a ring around them takes its colour."""
    mask = np.zeros((9, 9), bool)
    mask[3:6, 3:6] = True
    ring = _outline(mask)
    assert ring.sum() == 12 and not (ring & mask).any()
    corpus = toy_corpus(tmp_path / "c")
    plain = pixels(contact_sheet(corpus, SheetConfig(size=64), tmp_path / "a.png"))
    marked = pixels(contact_sheet(corpus, SheetConfig(size=64, masks=True), tmp_path / "b.png"))
    colour = np.array(OUTLINES[0])
    assert not (plain == colour).all(-1).any() and (marked == colour).all(-1).sum() > 6 * 60


def test_a_image_that_cannot_be_read_is_shown_as_such(tmp_path: Path) -> None:
    """No blank takes its place: the tile says so in red on paper grey."""
    corpus = toy_corpus(tmp_path / "c", count=1)
    (corpus.path / "images" / "s0.png").write_bytes(b"x")
    page = pixels(contact_sheet(corpus, SheetConfig(size=200), tmp_path / "s.png")).astype(int)
    assert ((page[..., 0] - page[..., 1]) > 80).sum() > 20


def test_a_study_without_a_image_is_no_alarm(tmp_path: Path) -> None:
    """A table that lists images which are not in the folder is no defect: nothing in red, nothing counted."""
    sheet = contact_sheet(corpus(tmp_path / "c", [study(0, views=())]), SheetConfig(size=200), tmp_path / "s.png")
    page = pixels(sheet).astype(int)
    assert sheet.unreadable == 0 and ((page[..., 0] - page[..., 1]) > 80).sum() == 0


def test_accents_are_drawn_as_plain_letters() -> None:
    """The font has none of them and would draw boxes; what it has stays."""
    assert drawable("Müller, tórax · 3 mm …") == "Muller, torax · 3 mm ..."


def test_what_cannot_be_read_is_counted(tmp_path: Path) -> None:
    """Two studies of six: one without its image, one without its mask; both are on the sheet and in the sentence."""
    corpus = toy_corpus(tmp_path / "c")
    (corpus.path / "images" / "s0.png").unlink()
    (corpus.path / "masks" / "s0_0.png").unlink()
    (corpus.path / "masks" / "s3_0.png").write_bytes(b"x")
    sheet = contact_sheet(corpus, SheetConfig(size=200, masks=True), tmp_path / "s.png")
    assert sheet == Sheet(tmp_path / "s.png", shown=6, unreadable=2)
    assert "6 studies, 2 of them with an image or mask that cannot be read" in str(sheet)
    assert contact_sheet(corpus, SheetConfig(size=32), tmp_path / "s.png").unreadable == 1
    (corpus.path / "images" / "s0.png").write_bytes((corpus.path / "images" / "s1.png").read_bytes())
    assert str(contact_sheet(corpus, SheetConfig(size=32), tmp_path / "s.png")).endswith("s.png: 6 studies")


def test_a_mask_that_cannot_be_read_is_stated_on_the_image(tmp_path: Path) -> None:
    """The image stays, without that outline, and a red line of text tells why."""
    corpus = toy_corpus(tmp_path / "c", count=1)
    (corpus.path / "masks" / "s0_0.png").unlink()
    page = pixels(contact_sheet(corpus, SheetConfig(size=200, masks=True), tmp_path / "s.png")).astype(int)
    assert ((page[..., 0] - page[..., 1]) > 80).sum() > 20
    image = page[40:200, 10:200]
    assert image.std() > 20 and not (image == np.array(OUTLINES[0])).all(-1).any()


def test_a_sheet_too_large_is_refused_before_it_is_drawn(tmp_path: Path) -> None:
    """60 images of 2048 pixels in 8 columns would be 17,244 pixels wide and about as high: over 200 million."""
    corpus = toy_corpus(tmp_path / "c", count=60)
    with pytest.raises(ConfigError, match=r"60 pictures of 2048 pixels would be 17,\d{3} x .* fewer \(n\)"):
        contact_sheet(corpus, SheetConfig(n=60, size=2048), tmp_path / "s.png")
    assert not (tmp_path / "s.png").exists()


@pytest.mark.parametrize(
    "change",
    [
        {"findings": ()},
        {"findings": None, "caption": "A very long caption " * 30},
        {"findings": None, "labels": {"Edema": -1, "Pneumonia": 0}},
        {"findings": None, "labels": {}, "sections": Report(impression="Normal.")},
        {"findings": None, "labels": {}, "sections": None, "age": None, "sex": None},
    ],
)
def test_whatever_is_known_is_written(tmp_path: Path, change: dict[str, object]) -> None:
    """Corpora know different things of a study; each leaves ink under the image, and a long text is cut."""
    corpus = toy_corpus(tmp_path / "c", count=1, changes={0: {**change, "masks": {}}})
    page = pixels(contact_sheet(corpus, SheetConfig(size=100), tmp_path / "s.png"))
    assert (page[-40:].min(axis=(0, 2)) < 120).any() and page.shape[0] < 400


def test_a_finding_in_words() -> None:
    """Order: hedge, severity, side, name; then place, size, tip, change."""
    effusion = Finding("pleural effusion", side=Side.LEFT, severity=Severity.MODERATE, change=Change.INCREASED)
    assert finding_words(effusion) == "moderate left pleural effusion, increased"
    nodule = Finding("nodule", certainty=Certainty.POSSIBLE, side=Side.RIGHT, location="upper lobe", size_mm=8.0)
    assert finding_words(nodule) == "possible right nodule, upper lobe, 8 mm"
    assert finding_words(Finding("endotracheal tube", tip="above carina")) == "endotracheal tube, tip above carina"


def test_no_line_is_wider_than_the_picture() -> None:
    """Words break at spaces; a word too long for a line is cut; nothing is lost."""
    font = ImageFont.load_default(12)
    text = "an example with a " + "v" * 80 + " word"
    lines = list(_wrapped(text, font, 90))
    assert all(font.getlength(line) <= 90 for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("text", ["v" * 2_000_000, "v " * 1_000_000, "a \x00\u200d\u0301 b"])
def test_strange_texts_cost_no_time(tmp_path: Path, text: str) -> None:
    """A word of two million letters, a million words, letters without width: a dozen lines are drawn, the rest
    is never measured."""
    corpus = toy_corpus(tmp_path / "c", count=1)
    line = json.loads(corpus.file.read_text())
    corpus.file.write_text(json.dumps({**line, "findings": None, "caption": text}) + "\n")
    start = time.process_time()
    contact_sheet(corpus, SheetConfig(size=64), tmp_path / "s.png")
    assert time.process_time() - start < 2.0


def test_a_word_is_cut_where_the_line_is_full() -> None:
    """Halving finds the longest piece: with one letter more it would not fit."""
    font = ImageFont.load_default(12)
    word = "".join("il mW"[k % 5] for k in range(300)).replace(" ", "o")
    pieces = list(_wrapped(word, font, 90))
    for piece, following in pairwise(pieces):
        assert font.getlength(piece) <= 90 < font.getlength(piece + following[0])


def test_an_empty_choice_and_a_bad_target_are_sentences(tmp_path: Path) -> None:
    """No study in the split; a folder where the sheet should go."""
    corpus = toy_corpus(tmp_path / "c", count=1)
    with pytest.raises(DataError, match="split 'val' of .* holds no study"):
        contact_sheet(corpus, SheetConfig(split="val"), tmp_path / "s.png")
    with pytest.raises(RunError, match="folder"):
        contact_sheet(corpus, SheetConfig(size=32), tmp_path)
