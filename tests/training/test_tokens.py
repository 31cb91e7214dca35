"""Samples as tokens, and batches of them."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import tiny_llava

from cxrlab.core.errors import ConfigError
from cxrlab.models.hf.inputs import Expander
from cxrlab.models.hf.prompting import report_ids
from cxrlab.training.report_dataset import ReportDataset, tokenise

PROMPT = "Provide a description of the findings in the radiology image."
REPORTS = ("The lungs are clear.", "Small left pleural effusion with adjacent atelectasis.", "Moderate cardiomegaly.")


@pytest.fixture(scope="module")
def parts() -> tuple[Any, Any]:
    return tiny_llava()


def rows_of(parts: tuple[Any, Any], asked: list[str | None], reports: tuple[str, ...], **named: Any) -> ReportDataset:
    model, processor = parts
    tokens = tokenise(processor, model.config.image_token_id, asked, reports)
    numbers = np.cumsum([one is not None for one in asked]) - 1
    image_of = np.where([one is not None for one in asked], numbers, -1)
    settings = {"image_tokens": 4, "image_token": model.config.image_token_id, "pad": 0, "max_length": 200, **named}
    return ReportDataset(tokens, image_of.astype(np.int64)[:, None], None, None, **settings)


def test_a_sample_is_what_inference_scores(parts: tuple[Any, Any]) -> None:
    """Prompt with its widened image and report, token by token as the wrapper's encoder writes them."""
    _, processor = parts
    rows = rows_of(parts, [PROMPT] * 3, REPORTS)
    expander = Expander(processor, parts[0].config.image_token_id)
    before = list(expander.prompt(PROMPT, ((32, 32),)).ids)
    for number, report in enumerate(REPORTS):
        batch = rows.__getitems__([number])
        assert batch["input_ids"][0].tolist() == before + report_ids(processor, report)
        assert batch["targets"].tolist() == report_ids(processor, report)


def test_only_the_report_and_its_end_are_learnt(parts: tuple[Any, Any]) -> None:
    """The places before a target are the last of the prompt up to the last but one of the report: never the image."""
    rows = rows_of(parts, [PROMPT] * 3, REPORTS)
    batch = rows.__getitems__([2, 0, 1])
    ids, length = batch["input_ids"], batch["input_ids"].shape[1]
    learnt = torch.zeros(ids.numel(), dtype=torch.bool)
    learnt[batch["places"] + 1] = True
    learnt = learnt.view_as(ids)
    image = ids == parts[0].config.image_token_id
    assert not (learnt & image).any() and image.sum(1).tolist() == [4, 4, 4]
    assert batch["image_places"].tolist() == torch.nonzero(image.flatten())[:, 0].tolist()
    eos = parts[1].tokenizer.eos_token_id
    for row, number in enumerate((2, 0, 1)):
        told = report_ids(parts[1], REPORTS[number])
        assert ids[row][learnt[row]].tolist() == told and told[-1] == eos
        end = int(rows.lengths[number])
        assert (ids[row, end:] == 0).all() and not learnt[row, end:].any() and end <= length
    assert int(batch["items"]) == len(batch["targets"]) == sum(len(report_ids(parts[1], one)) for one in REPORTS)


def test_words_alone_have_neither_image_nor_prompt(parts: tuple[Any, Any]) -> None:
    rows = rows_of(parts, [None, PROMPT], REPORTS[:2])
    batch = rows.__getitems__([0, 1])
    assert (batch["input_ids"] == parts[0].config.image_token_id).sum(1).tolist() == [0, 4]
    assert batch["input_ids"][0, 0] == parts[1].tokenizer.bos_token_id
    assert rows.image_of.tolist() == [[-1], [0]]
    assert "image_places" in batch and len(batch["image_places"]) == 4


def test_what_is_told_stands_where_the_image_would(parts: tuple[Any, Any]) -> None:
    model, processor = parts
    tokens = tokenise(processor, model.config.image_token_id, [PROMPT] * 2, REPORTS[:2], ["mild edema <image>", None])
    assert tokens.images.tolist() == [[-1], [1]]
    first, second = (tokens.ids[tokens.starts[row] : tokens.starts[row + 1]].tolist() for row in range(2))
    words = processor.tokenizer.decode(first[: tokens.prompts[0]])
    assert words.startswith("<s>mild edema <image>\nProvide a description")
    image = processor.tokenizer.decode(second[: tokens.prompts[1]])
    assert words.partition("\n")[2] == image.partition("\n")[2]


def test_a_long_report_is_cut_at_its_end_and_counted(parts: tuple[Any, Any]) -> None:
    whole = rows_of(parts, [PROMPT] * 3, REPORTS)
    limit = int(whole.lengths.max()) - 2
    cut = rows_of(parts, [PROMPT] * 3, REPORTS, max_length=limit)
    assert cut.cut == 1 and whole.cut == 0 and int(cut.lengths.max()) == limit
    assert cut.__getitems__([1])["input_ids"].tolist() == whole.__getitems__([1])["input_ids"][:, :limit].tolist()


def test_a_length_that_cuts_the_image_is_refused_with_the_number(parts: tuple[Any, Any]) -> None:
    with pytest.raises(ConfigError, match=r"max_length=10 cuts into the 4 image tokens .* Use max_length >= "):
        rows_of(parts, [PROMPT] * 3, REPORTS, max_length=10)


def test_special_tokens_typed_by_people_stay_words(parts: tuple[Any, Any]) -> None:
    """An indication or report that says <image> or </s> must not add an image or end the report."""
    rows = rows_of(parts, [f"{PROMPT} <image>"], ("Tube <image> seen. </s> Clear.",))
    batch = rows.__getitems__([0])
    assert int((batch["input_ids"] == parts[0].config.image_token_id).sum()) == 4
    assert batch["targets"].tolist().count(parts[1].tokenizer.eos_token_id) == 1


def test_a_batch_is_rounded_up_and_never_beyond_the_longest_sample(parts: tuple[Any, Any]) -> None:
    """To multiples of 8 but for the longest sample, which may be all that the model reads; what is learnt stays."""
    plain, rounded = (rows_of(parts, [PROMPT] * 3, REPORTS, multiple=multiple) for multiple in (1, 8))
    for number in range(3):
        one, other = plain.__getitems__([number]), rounded.__getitems__([number])
        length, wide = int(plain.lengths[number]), other["input_ids"].shape[1]
        assert wide == min(-(-length // 8) * 8, int(plain.lengths.max()))
        assert other["input_ids"][0, :length].tolist() == one["input_ids"][0].tolist()
        assert (other["input_ids"][0, length:] == 0).all()
        for name in ("targets", "places", "image_places", "items"):
            assert torch.equal(one[name], other[name])


def test_a_batch_does_not_change_its_rows(parts: tuple[Any, Any]) -> None:
    rows = rows_of(parts, [PROMPT, None, f"{PROMPT} {PROMPT}"], REPORTS)
    together = rows.__getitems__([0, 1, 2])["input_ids"]
    for number in range(3):
        alone = rows.__getitems__([number])["input_ids"][0]
        assert together[number, : len(alone)].tolist() == alone.tolist()


def test_several_images_of_a_sample_stand_where_inference_puts_them(parts: tuple[Any, Any]) -> None:
    """Two images, none and one in a batch: tokens as the wrapper's encoder writes them, images in the order of the rows."""
    model, processor = parts
    token = model.config.image_token_id
    tokens = tokenise(processor, token, [PROMPT, None, PROMPT], REPORTS, images=[2, 0, 1])
    assert tokens.images.tolist() == [[1, 3], [-1, -1], [1, -1]]
    image_of = np.array([[4, 2], [-1, -1], [3, -1]])
    rows = ReportDataset(tokens, image_of, None, None, 4, token, 0, 200)
    assert rows.images_of(np.array([2, 1, 0])).tolist() == [3, 4, 2]
    batch = rows.__getitems__([0, 1, 2])
    expander = Expander(processor, token)
    for row, count in ((0, 2), (2, 1)):
        whole = [*expander.prompt(PROMPT, ((32, 32),) * count).ids, *report_ids(processor, REPORTS[row])]
        assert batch["input_ids"][row, : len(whole)].tolist() == whole and int(rows.lengths[row]) == len(whole)
    places = torch.nonzero(batch["input_ids"].flatten() == token)[:, 0]
    assert batch["image_places"].tolist() == places.tolist() and len(places) == 12
    assert batch["targets"].tolist() == [one for report in REPORTS for one in report_ids(processor, report)]


def test_the_key_of_samples_with_one_image_is_that_of_flat_arrays(parts: tuple[Any, Any]) -> None:
    """Caches and resumed runs of samples with one image stay valid."""
    rows = rows_of(parts, [PROMPT, None, PROMPT], REPORTS)
    digest = hashlib.blake2b(digest_size=12)
    for array in (rows.tokens.ids, rows.tokens.starts, rows.tokens.prompts, np.array([0, -1, 1], np.int64)):
        digest.update(array.tobytes())
    digest.update(b"None 200")
    assert rows.key == digest.hexdigest()
