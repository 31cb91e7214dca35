"""The interface of the wrapper over every family: one suite, no exceptions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_families import FAMILIES, save_tiny
from torch import Tensor

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.model import HfModel
from cxrlab.models.hf.prompting import prompt_text, report_ids
from cxrlab.models.hf.saliency import report_attention
from cxrlab.models.load_settings import LoadSettings

# Sums over other lengths of padding, and convolutions over other numbers of images, are made in another order.
TOLERANCE = 2e-4
REPORTS = ["No effusion.", "The heart is normal in size. The lungs are clear.", "Left pleural effusion."]
REASONS = [None, "dyspnea", "fall from a ladder two days ago"]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> HfModel:
    return HfModel.load(str(save_tiny(request.param, tmp_path_factory.mktemp("family") / request.param)))


def images(*sizes: tuple[int, int]) -> list[Tensor]:
    source = torch.Generator().manual_seed(3)
    return [torch.rand(size, generator=source) for size in sizes]


def test_a_batch_is_its_images_one_by_one(model: HfModel) -> None:
    """Portrait, landscape and square, with reports and prompts of other lengths: loss, log-probability, gradient."""
    all_images = [radiograph.requires_grad_() for radiograph in images((48, 40), (30, 52), (36, 36))]
    reported = model.log_probabilities(all_images, REPORTS, REASONS)
    together = torch.autograd.grad(reported.means.sum(), all_images)
    for k, image in enumerate(all_images):
        alone = model.log_probabilities([image], REPORTS[k : k + 1], REASONS[k : k + 1])
        count = alone.values.shape[1]
        torch.testing.assert_close(reported.values[k, :count], alone.values[0], atol=TOLERANCE, rtol=0)
        (gradient,) = torch.autograd.grad(alone.means.sum(), image)
        assert float(gradient.abs().max()) > 1e-6
        torch.testing.assert_close(together[k], gradient, atol=TOLERANCE, rtol=0)


def test_asking_again_with_other_pixels_is_asking_for_the_first_time(model: HfModel) -> None:
    """The words of a batch are kept from one step of an attack to the next; what is kept must not show."""
    first, second = (torch.rand(3, 36, 44, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    fresh = model.losses(second, REPORTS, REASONS)
    model.losses(first, REPORTS, REASONS)
    image = second.clone().requires_grad_()
    again = model.losses(image, REPORTS, REASONS)
    assert model._encoder.text_inputs.cache_info().hits >= 2
    torch.testing.assert_close(again, fresh, atol=1e-6, rtol=0)
    (gradient,) = torch.autograd.grad(again.sum(), image)
    model._encoder.text_inputs.cache_clear()
    model._encoder.report.cache_clear()
    (forgotten,) = torch.autograd.grad(model.losses(image, REPORTS, REASONS).sum(), image)
    torch.testing.assert_close(gradient, forgotten, atol=1e-6, rtol=0)


def test_padding_is_not_seen_with_a_mask_or_without(model: HfModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every token looks back alone the mask is left out; the other families keep it, or their losses change."""
    given: list[bool] = []
    hook = model.model.register_forward_pre_hook(
        lambda module, args, named: given.append("attention_mask" in named), with_kwargs=True
    )
    all_images = images((36, 44), (36, 44), (36, 44))
    as_it_is = model.losses(all_images, REPORTS, REASONS)
    monkeypatch.setattr(type(find_family(model.model.config.model_type)), "is_causal", False)
    masked = model.losses(all_images, REPORTS, REASONS)
    hook.remove()
    looks_both_ways = ("vipllava", "paligemma", "gemma3", "qwen2_vl", "qwen2_5_vl", "qwen3_vl")
    assert given == [model.model.config.model_type in looks_both_ways, True]
    torch.testing.assert_close(as_it_is, masked, atol=2e-6, rtol=0)


def test_generation_in_a_batch_is_generation_alone(model: HfModel) -> None:
    all_images = images((48, 40), (30, 52))
    how = Decoding(max_new_tokens=6)
    together = model.answers(all_images, REASONS[:2], how)
    alone = [model.answers([image], [reason], how)[0] for image, reason in zip(all_images, REASONS, strict=False)]
    assert [row[0].text for row in together] == [row[0].text for row in alone]
    assert [row[0].mean_logprob for row in together] == pytest.approx(
        [row[0].mean_logprob for row in alone], abs=TOLERANCE
    )


def test_what_was_written_is_scored_as_it_was_written(model: HfModel) -> None:
    """Writing step by step from a cache and scoring in one pass are the same model: prefix, positions, token types."""
    image = images((48, 40))
    (answer,) = model.answers(image, None, Decoding(max_new_tokens=5))[0]
    prompt = model.prompts.ask()
    asked = model.encode(image, [prompt])
    ids: list[int] = []
    total = 0.0
    for _ in range(answer.tokens or 0):
        encoded = model._encoder.encode([radiograph[None] for radiograph in image], [prompt], [ids])
        logits = model.model(**encoded.inputs).logits[0, -1].float()
        logits[model._encoder.image_token] = -torch.inf
        ids.append(int(logits.argmax()))
        total += float(logits.log_softmax(-1).max())
    assert answer.text == model.tokenizer.decode(ids, skip_special_tokens=True).strip()
    assert answer.mean_logprob == pytest.approx(total / len(ids), abs=5e-3)
    assert asked.ids.shape[1] == encoded.ids.shape[1] - len(ids) + 1


def test_the_image_matters_and_a_missing_one_is_refused(model: HfModel) -> None:
    first, second = images((40, 40), (40, 40))
    losses = model.losses([first, second], ["No effusion."] * 2)
    assert abs(float(losses[0] - losses[1])) > 1e-6
    for nothing in ([], [None], None):
        with pytest.raises(DataError):
            model.losses(nothing, ["No effusion."])
        with pytest.raises(DataError):
            model.probability_of_yes(nothing, ["Effusion?"])


def test_special_tokens_in_words_of_people_are_text(model: HfModel) -> None:
    """Added tokens of the family in the indication and in the report: the image's tokens stay as they were."""
    image = images((40, 40))
    # Those of the image first; PaliGemma alone has a thousand more.
    marks = " ".join([*model.tokenizer.all_special_tokens, *sorted(model.tokenizer.get_added_vocab())[:20]])
    clean = model.encode(image, [model.prompts.ask("pain")], ["No effusion."])
    dirty = model.encode(image, [model.prompts.ask(f"pain {marks}")], [f"No {marks} effusion."])
    assert int(clean.image_mask.sum()) == int(dirty.image_mask.sum()) > 0
    reported = dirty.ids[dirty.report_mask].tolist()
    special = set(model.tokenizer.get_added_vocab().values())
    assert [token for token in reported if token in special] == [model.ends[0]] == reported[-1:]
    assert bool(model.losses(image, [marks], [marks]).isfinite().all())


def test_the_report_follows_its_prompt_without_a_seam(model: HfModel) -> None:
    """Prompt and report in one text give the same tokens as the two put together; the end token is the template's."""
    processor, image = model.processor, images((40, 40))
    prompt, report = model.prompts.ask("pain"), "The lungs are clear."
    ids = report_ids(processor, report)
    assert model.tokenizer.decode(ids[:-1]).strip() == report
    encoded = model.encode(image, [prompt], [report])
    assert encoded.ids[encoded.report_mask].tolist() == ids
    text = prompt_text(processor, prompt)
    if getattr(processor, "chat_template", None):
        turns = [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": prompt}]},
            {"role": "assistant", "content": [{"type": "text", "text": report}]},
        ]
        whole = processor.apply_chat_template(turns, tokenize=False)
        rest = model.tokenizer(whole[len(text) :], add_special_tokens=False)["input_ids"]
        assert whole.startswith(text) and rest[: len(ids)] == ids


def test_a_closed_question_has_a_probability_with_a_gradient(model: HfModel) -> None:
    all_images = [image.requires_grad_() for image in images((40, 40), (30, 52))]
    questions = ["Is there a pleural effusion?", "Effusion?"]
    shares = model.probability_of_yes(all_images, questions)
    alone = torch.cat([model.probability_of_yes([i], [q]) for i, q in zip(all_images, questions, strict=True)])
    torch.testing.assert_close(shares, alone, atol=TOLERANCE, rtol=0)
    assert bool(((shares > 0) & (shares < 1)).all())
    assert all(float(g.abs().max()) > 0 for g in torch.autograd.grad(shares.sum(), all_images))


def test_masks_mark_image_and_report(model: HfModel) -> None:
    all_images = images((48, 40), (30, 52))
    encoded = model.encode(all_images, [model.prompts.ask()] * 2, REPORTS[:2])
    assert encoded.image_mask.shape == encoded.report_mask.shape == encoded.ids.shape
    assert not bool((encoded.image_mask & encoded.report_mask).any())
    for row in range(2):
        last_of_image = int(encoded.image_mask[row].nonzero()[-1])
        assert last_of_image < int(encoded.report_mask[row].int().argmax())


def test_folder_is_found_again(model: HfModel) -> None:
    assert Path(model.name.removeprefix("hf:")).is_dir() and model.capabilities.gradients, model.path.reason


def test_attention_is_claimed_where_it_is_given(model: HfModel) -> None:
    """Families that cut an image into tiles, or mix its patches, have no map to give, however they are loaded."""
    eager = HfModel.load(model.name.removeprefix("hf:"), loading=LoadSettings(attention="eager"))
    image = np.random.default_rng(0).random((40, 40), dtype=np.float32)
    if eager.capabilities.attention:
        assert report_attention(eager, image, "Clear.").values.max() > 0
    else:
        with pytest.raises(ConfigError, match="no single grid"):
            report_attention(eager, image, "Clear.")
    assert not model.capabilities.attention
