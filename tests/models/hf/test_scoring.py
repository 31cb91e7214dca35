from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_models import tiny_llava
from torch import Tensor

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.hf.checkpoint import Checkpoint
from cxrlab.models.hf.inputs import Encoded, Encoder
from cxrlab.models.hf.model import HfModel
from cxrlab.models.hf.pixels import pixel_path
from cxrlab.models.hf.scoring import (
    YesNoTokens,
    last_logits,
    next_logits,
    report_log_probs,
    yes_margins,
    yes_no_log_probs,
    yes_no_tokens,
)
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.prompts import load_prompts
from cxrlab.models.random_init import train_tokenizer


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


def half(folder: Path, scale: float) -> HfModel:
    """A tiny LLaVA in float16 whose logits are `scale` times as large."""
    model, processor = tiny_llava()
    model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach() * scale)
    model.config.tie_word_embeddings = model.config.text_config.tie_word_embeddings = False
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return HfModel.load(str(folder), loading=LoadSettings(dtype="float16"))


def test_float16_gives_finite_log_probabilities(tmp_path: Path) -> None:
    """Also where logits differ by more than float16 can hold (65,504), and in a batch of prompts of several lengths."""
    images, reports = (
        [torch.zeros(32, 32), torch.ones(40, 32)],
        ["The lungs are clear.", "Small left pleural effusion."],
    )
    for scale in (1.0, 8.3e4):
        model = half(tmp_path / str(scale), scale)
        exact = HfModel.load(str(tmp_path / str(scale)), loading=LoadSettings(dtype="float32"))
        assert {value.dtype for value in model.model.parameters()} == {torch.float16}
        found, expected = (one.log_probabilities(images, reports, ["dyspnea", None]) for one in (model, exact))
        torch.testing.assert_close(found.values, expected.values, rtol=1e-2, atol=1e-2 * scale)
        assert found.values.dtype == torch.float32 and (scale == 1.0 or float(found.values.min()) < -65_504)
        answers = model.generate(images, ["dyspnea", None])
        assert all(answer.mean_logprob is not None and math.isfinite(answer.mean_logprob) for answer in answers)
        assert model.yes_margins(images, "Is there an effusion?").isfinite().all()


def test_weights_too_large_for_float16_are_an_error(tmp_path: Path) -> None:
    """They become infinite; the error names the precision that holds them."""
    model = half(tmp_path, 1e9)
    with pytest.raises(DataError, match="--loading.dtype float32"):
        model.log_probabilities([torch.rand(32, 32)], ["clear"])
    with pytest.raises(DataError, match="--loading.dtype float32"):
        model.generate([torch.rand(32, 32)])


def test_a_row_without_a_report_is_refused() -> None:
    with pytest.raises(DataError, match="give every image a report"):
        report_log_probs(Table(), encoded([[2, 0]], [[0, 0]]))


def test_the_next_token_is_read_where_each_row_ends() -> None:
    inputs = {"input_ids": torch.tensor([[2, 0, 1], [1, 0, 0]]), "attention_mask": torch.tensor([[1, 1, 1], [1, 0, 0]])}
    assert torch.equal(next_logits(Table(), inputs), Table.rows[[1, 1]])
    assert last_logits(Table(), inputs, 2).shape == (2, 2, 3)


def test_yes_against_no_by_hand() -> None:
    """Spellings of yes weigh 1 + 2, those of no 1: three quarters; a constant of the image does not matter."""
    scores, verdicts = torch.tensor([[0.0, math.log(2), 0.0]]), YesNoTokens(((0,), (1,)), ((2,),))
    assert yes_margins(scores, verdicts).sigmoid().item() == pytest.approx(0.75)
    assert yes_margins(scores + 1000, verdicts).sigmoid().item() == pytest.approx(0.75, abs=1e-4)


def test_verdicts_are_whole_words_in_the_place_of_an_answer() -> None:
    _, processor = tiny_llava()
    found = yes_no_tokens(processor)
    words = processor.tokenizer
    assert found.whole
    assert {words.decode(tokens).strip().lower() for tokens in found.yes} == {"yes"}
    assert {words.decode(tokens).strip().lower() for tokens in found.no} == {"no"}


def test_words_in_pieces_are_scored_whole_with_the_chances_of_the_model() -> None:
    """The shipped tokenizer writes ' yes' as ' ', 'y', 'es': its first piece is the chance of a blank, not of yes."""
    model, processor = tiny_llava()
    narrow = train_tokenizer(["no effusion, No pneumothorax"] * 4, 300)
    processor.tokenizer = narrow
    found = yes_no_tokens(processor)
    assert not found.whole and all(len(tokens) > 1 for tokens in found.yes) and all(len(t) == 1 for t in found.no)
    encoder = Encoder(processor, pixel_path("llava", processor), narrow.image_token_id, 512, model.device, model.dtype)
    images = [torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(k)).requires_grad_() for k in range(2)]
    prompts = ["Effusion?", "Is the heart of normal size?"]
    scores = yes_no_log_probs(model, encoder, images, [prompts], found)[:, 0]
    for image in range(2):
        for column, tokens in enumerate(found.spellings):
            # By hand: one pass a piece, the pieces before it appended to the prompt.
            by_hand = 0.0
            for place, token in enumerate(tokens):
                asked = encoder.encode([images[image]], [prompts[image]], [tokens[:place]])
                by_hand += float(next_logits(model, asked.inputs)[0].detach().log_softmax(-1)[token])
            assert float(scores[image, column].detach()) == pytest.approx(by_hand, abs=1e-4)
    yes_margins(scores, found).sigmoid().sum().backward()
    assert all(float(image.grad.abs().max()) > 0 for image in images if image.grad is not None)
    assert all(image.grad is not None for image in images)


def test_what_is_neither_yes_nor_no_is_the_rest_of_the_distribution() -> None:
    model, processor = tiny_llava()
    found = yes_no_tokens(processor)
    tokenizer = processor.tokenizer
    encoder = Encoder(
        processor, pixel_path("llava", processor), tokenizer.image_token_id, 512, model.device, model.dtype
    )
    images = [torch.rand(1, 32, 32, generator=torch.Generator().manual_seed(7))]
    with torch.no_grad():
        scores = yes_no_log_probs(model, encoder, images, [["Effusion?"]], found, total=True)[0, 0]
        plain = yes_no_log_probs(model, encoder, images, [["Effusion?"]], found)[0, 0]
        by_hand = next_logits(model, encoder.encode(images, ["Effusion?"], [[]]).inputs)[0].softmax(-1)
    assert torch.equal(scores[:-1], plain)
    chosen = [tokens[0] for tokens in found.spellings]
    assert (scores[:-1] - scores[-1]).exp().tolist() == pytest.approx(by_hand[chosen].tolist(), rel=1e-4)


class Letters:
    """A tokenizer that cuts words into letters, or knows no word at all."""

    eos_token_id, all_special_tokens = 0, ()

    def __init__(self, blind: bool) -> None:
        self.blind = blind

    def __len__(self) -> int:
        return 300

    def get_added_vocab(self) -> dict[str, int]:
        return {}

    def __call__(self, text: str | list[str], add_special_tokens: bool) -> dict[str, Any]:
        return {"input_ids": self.cut(text) if isinstance(text, str) else [self.cut(each) for each in text]}

    def cut(self, text: str) -> list[int]:
        return [299 for _ in text.split()] if self.blind else [ord(letter) for letter in text if letter != " "]


def test_a_word_in_pieces_is_all_of_its_pieces() -> None:
    class Processor:
        tokenizer, image_token, chat_template = Letters(blind=False), "<image>", None

    assert yes_no_tokens(Processor()).yes == tuple(sorted(tuple(map(ord, word)) for word in ("yes", "Yes", "YES")))


def test_answers_that_are_all_alike_cannot_be_told_apart() -> None:
    class Processor:
        tokenizer, image_token, chat_template = Letters(blind=True), "<image>", None

    with pytest.raises(ConfigError, match="the same tokens"):
        yes_no_tokens(Processor())


def test_a_processor_of_another_model_is_told() -> None:
    """Image tokens by another patch size than the vision encoder's; transformers' own words are no advice."""
    model, processor = tiny_llava()
    processor.patch_size = 8
    found = HfModel(Checkpoint(model, processor, processor.tokenizer, None, Path()), "hf:x", load_prompts())
    for ask in (lambda: found.losses(torch.rand(1, 32, 32), ["Clear."]), lambda: found.generate(torch.rand(1, 32, 32))):
        with pytest.raises(DataError, match="processor and model do not belong together.*patch_size"):
            ask()
