"""Pairs in batches: nothing but indexing, and the same as the tokenizer would give one by one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import tiny_tokenizer

from cxrlab.core.errors import DataError
from cxrlab.training.contrastive import ContrastiveDataset, Texts, tokenise
from cxrlab.training.image_cache import ImageFile, Images

REPORTS = [
    "The lungs are clear.",
    "Small left pleural effusion with adjacent atelectasis.",
    "the lungs are  clear",
    "Small left pleural effusion with adjacent atelectasis. Moderate cardiomegaly.",
]


def rows(longest: int = 64) -> ContrastiveDataset:
    store = np.arange(3 * 4 * 4, dtype=np.uint8).reshape(3, 4, 4)
    images = Images(
        (ImageFile(Path("a")), ImageFile(Path("b")), ImageFile(Path("c"))), None, "key", (4, 4), store=store
    )
    texts = tokenise(tiny_tokenizer(), REPORTS, longest)
    return ContrastiveDataset(images, np.array([0, 1, 2, 1]), texts, tiny_tokenizer().pad_token_id)


def test_a_batch_is_what_the_tokenizer_gives() -> None:
    batch = rows().__getitems__([3, 0])
    theirs = tiny_tokenizer()([REPORTS[3], REPORTS[0]], padding=True, return_tensors="pt")
    assert torch.equal(batch["ids"], theirs["input_ids"]) and torch.equal(batch["mask"], theirs["attention_mask"])
    assert torch.equal(batch["images"][1], torch.arange(16, dtype=torch.uint8).reshape(4, 4))
    assert batch["rows"].tolist() == [3, 0] and batch["image_keys"].tolist() == [1, 0]


def test_a_batch_may_be_rounded_up_and_its_mask_tells(tmp_path: Path) -> None:
    plain, rounded = rows(), replace(rows(), multiple=4)
    one, other = plain.__getitems__([0]), rounded.__getitems__([0])
    length = int(plain.texts.lengths[0])
    assert other["ids"].shape[1] == min(-(-length // 4) * 4, int(plain.texts.lengths.max()))
    assert torch.equal(other["ids"][:, :length], one["ids"]) and int(other["mask"].sum()) == length


def test_other_images_or_words_have_another_key() -> None:
    """What a stopped run compares before it goes on."""
    whole = rows()
    moved = replace(whole, image_of=np.array([0, 1, 2, 2]))
    other = replace(whole, texts=tokenise(tiny_tokenizer(), [*REPORTS[:3], "Normal."], 64))
    refilmed = replace(whole, images=replace(whole.images, key="another"))
    assert len({whole.key, moved.key, other.key, refilmed.key}) == 4 and whole.key == rows().key


def test_reports_with_the_same_words_share_a_key() -> None:
    keys = rows().texts.keys
    assert keys[0] == keys[2] and len(set(keys.tolist())) == 3


def test_reports_that_are_equal_as_far_as_they_are_read_share_a_key() -> None:
    """Cut after ten tokens, reports 1 and 3 begin alike: the encoder cannot tell them apart."""
    cut = rows(10).texts
    assert cut.lengths.max() == 10 and cut.keys[1] == cut.keys[3] != cut.keys[0]
    assert cut.cut == sum(len(tiny_tokenizer()(text)["input_ids"]) > 10 for text in REPORTS)
    assert rows().texts.cut == 0


def test_images_and_reports_must_be_as_many() -> None:
    whole = rows()
    with pytest.raises(DataError, match="2 images stand beside 4 reports"):
        ContrastiveDataset(whole.images, np.array([0, 1]), whole.texts, 0)


def test_no_report_makes_no_tokens() -> None:
    empty = tokenise(tiny_tokenizer(), [], 8)
    assert isinstance(empty, Texts) and len(empty) == 0 and empty.starts.tolist() == [0]
