"""The card of a corpus that was written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpora import toy_corpus

from cxrlab.core.errors import DataError, RunError
from cxrlab.core.image_codec import encode_png
from cxrlab.data.check import check_corpus
from cxrlab.data.config import CardConfig
from cxrlab.data.corpus import load_corpus
from cxrlab.data.write_card import complete_card


def by_hand(folder: Path, *lines: dict[str, Any] | str) -> Path:
    (folder / "images").mkdir(parents=True, exist_ok=True)
    (folder / "images" / "a.png").write_bytes(
        encode_png(np.arange(576, dtype=np.uint16).reshape(24, 24).astype(np.uint8))
    )
    text = "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    (folder / "studies.jsonl").write_text(text)
    return folder


STUDY = {
    "id": "a", "patient": "p", "split": "test", "images": [{"path": "images/a.png", "view": "PA"}],
    "sections": {"findings": "The lungs are clear."},
}  # fmt: skip


def test_a_corpus_by_hand_gets_a_card_and_passes_the_check(tmp_path: Path) -> None:
    folder = by_hand(tmp_path / "mine", STUDY, {**STUDY, "id": "b", "patient": "q", "split": None, "images": []})
    with pytest.raises(DataError, match=rf"cxrlab data card {folder}"):
        load_corpus(folder)
    card = complete_card(folder, CardConfig(licence="internal use"))
    assert card == load_corpus(folder).card
    assert (card.name, card.licence, card.source, card.synthetic) == ("mine", "internal use", "not stated", False)
    assert card.counts == {"studies": 2, "patients": 2, "images": 1, "test": 1} and card.absent == {"split": 1}
    assert check_corpus(folder).counts == {"study without images": 1}


def test_a_card_keeps_what_it_says_and_flags_replace_it(tmp_path: Path) -> None:
    before = toy_corpus(tmp_path / "toy").card
    with (tmp_path / "toy" / "studies.jsonl").open("a") as file:
        file.write(json.dumps({**STUDY, "images": []}) + "\n")
    after = complete_card(tmp_path / "toy", CardConfig(source="elsewhere", synthetic=True, collections=("clinic",)))
    assert (after.name, after.licence, after.settings) == (before.name, before.licence, before.settings)
    assert (after.source, after.synthetic, after.collections) == ("elsewhere", True, ("clinic",))
    assert after.counts["studies"] == before.counts["studies"] + 1
    assert complete_card(tmp_path / "toy", CardConfig()) == after


def test_every_malformed_line_is_listed_with_its_number(tmp_path: Path) -> None:
    other = {**STUDY, "id": "c", "split": "train"}
    folder = by_hand(tmp_path, STUDY, "nonsense", {**STUDY, "id": "b", "sex": "X"}, STUDY, other)
    with pytest.raises(DataError) as error:
        complete_card(folder, CardConfig())
    for words in ("4 problems", ".jsonl:2 ", ".jsonl:3:", ".jsonl:4:", "'p' is in train and test"):
        assert words in str(error.value)
    assert not (folder / "card.yaml").exists()


def test_an_unfinished_import_gets_no_card(tmp_path: Path) -> None:
    folder = by_hand(tmp_path, STUDY)
    (folder / "card.partial.yaml").write_text("name: x\n")
    with pytest.raises(RunError, match="unfinished"):
        complete_card(folder, CardConfig())
