from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import tiny_llava
from torch import Tensor

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.closed_question import Verdicts, probability_of_yes, verdict_tokens
from cxrlab.models.hf.encoding import Encoded
from cxrlab.models.hf.scoring import last_logits, next_logits, report_log_probs


class Table:
    """A model of three words: after token t come the logits of row t, whatever else was said."""

    rows = torch.tensor([[0.0, math.log(3), 0.0], [math.log(2), 0.0, math.log(5)], [0.0, 0.0, 0.0]])

    def forward(self, input_ids: Tensor) -> None:
        """Its signature says that it cannot leave out logits."""

    def __call__(self, input_ids: Tensor, attention_mask: Tensor, use_cache: bool) -> Any:
        return SimpleNamespace(logits=self.rows[input_ids])


def encoded(ids: list[list[int]], report: list[list[int]]) -> Encoded:
    rows = torch.tensor(ids)
    inputs = {"input_ids": rows, "attention_mask": torch.ones_like(rows)}
    return Encoded(inputs, torch.tensor(report, dtype=torch.bool), torch.zeros_like(rows, dtype=torch.bool))


def test_log_probabilities_by_hand() -> None:
    """After 0: 1/5, 3/5, 1/5. After 1: 2/8, 1/8, 5/8. After 2: a third each."""
    found = report_log_probs(Table(), encoded([[2, 0, 1, 2], [0, 1, 0, 0]], [[0, 0, 1, 1], [0, 1, 0, 0]]))
    assert found.mask.tolist() == [[True, True], [True, False]]
    assert found.ids.tolist() == [[1, 2], [1, 0]]
    assert found.values[0].exp().tolist() == pytest.approx([3 / 5, 5 / 8])
    assert found.values[1].tolist() == pytest.approx([math.log(3 / 5), 0.0])
    assert found.sums.exp().tolist() == pytest.approx([3 / 8, 3 / 5])
    assert found.means[0].item() == pytest.approx(math.log(3 / 8) / 2)


def test_a_row_without_a_report_is_refused() -> None:
    with pytest.raises(DataError, match="give every film a report"):
        report_log_probs(Table(), encoded([[2, 0]], [[0, 0]]))


def test_the_next_token_is_read_where_each_row_ends() -> None:
    inputs = {"input_ids": torch.tensor([[2, 0, 1], [1, 0, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 0, 0]])}
    assert torch.equal(next_logits(Table(), inputs), Table.rows[[1, 1]])
    assert last_logits(Table(), inputs, 2).shape == (2, 2, 3)


def test_yes_against_no_by_hand() -> None:
    """Spellings of yes weigh 1 + 2, those of no 1: three quarters; what else might be said does not matter."""
    logits = torch.tensor([[0.0, math.log(2), 0.0, 9.0]])
    assert probability_of_yes(logits, Verdicts((0, 1), (2,))).item() == pytest.approx(0.75)
    assert probability_of_yes(logits + 1000, Verdicts((0, 1), (2,))).item() == pytest.approx(0.75, abs=1e-4)


def test_verdicts_are_whole_words_in_the_place_of_an_answer() -> None:
    _, processor = tiny_llava()
    found = verdict_tokens(processor)
    words = processor.tokenizer
    assert {words.decode([token]).strip().lower() for token in found.yes} == {"yes"}
    assert {words.decode([token]).strip().lower() for token in found.no} == {"no"}


class Letters:
    """A tokenizer that begins every answer alike, or cuts words into letters."""

    eos_token_id, all_special_tokens = 0, ()

    def __init__(self, alike: bool) -> None:
        self.alike = alike

    def __len__(self) -> int:
        return 300

    def get_added_vocab(self) -> dict[str, int]:
        return {}

    def __call__(self, text: str, add_special_tokens: bool) -> dict[str, list[int]]:
        return {"input_ids": [299 if c == " " else ord(c) for c in text if not (c == " " and not self.alike)]}


def test_where_words_come_in_pieces_the_first_pieces_count() -> None:
    class Processor:
        tokenizer, image_token, chat_template = Letters(alike=False), "<image>", None

    assert verdict_tokens(Processor()) == Verdicts((ord("Y"), ord("y")), (ord("N"), ord("n")))


def test_answers_that_all_begin_alike_cannot_be_told_apart() -> None:
    class Processor:
        tokenizer, image_token, chat_template = Letters(alike=True), "<image>", None

    with pytest.raises(ConfigError, match="the same token"):
        verdict_tokens(Processor())
