"""Several texts about the same images: values, gradients and memory beside one pass per text, in every family."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from saved_bytes import saved_bytes
from tiny_families import FAMILIES, save_tiny
from torch import Tensor

from cxrlab.attacks.attack import Attack, AttackResult
from cxrlab.attacks.config import ATTACKS, AttackSettings, Budget
from cxrlab.attacks.objectives import WrongAnswers
from cxrlab.core.out_of_memory import BatchSize
from cxrlab.models.hf import image_prefix
from cxrlab.models.hf.gradient_memory import checkpoint_layers
from cxrlab.models.hf.image_prefix import image_encoder, pack, shared_length
from cxrlab.models.hf.model import HfModel

QUESTIONS = ["Is there a pleural effusion?", "Edema?", "Is the heart enlarged?", "Is there a lung nodule?"]
REPORTS = [["No effusion.", "Clear."], ["The heart is normal in size. The lungs are clear.", "Left effusion."]]
REASONS = [None, "cough"]
PREFIXED = {"llava", "llava_next", "llava_onevision", "idefics2", "idefics3", "smolvlm", "internvl"}  # causal families
TOLERANCE = {"atol": 2e-6, "rtol": 2e-4}


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HfModel]:
    yield HfModel.load(str(save_tiny(request.param, tmp_path_factory.mktemp("family") / request.param)))


def radiographs() -> Tensor:
    return torch.rand(2, 1, 40, 48, generator=torch.Generator().manual_seed(3)).requires_grad_()


def questions_one_by_one(model: HfModel, images: Tensor) -> Tensor:
    return torch.stack([model.yes_margins(images, question) for question in QUESTIONS], dim=1)


def questions_together(model: HfModel, images: Tensor) -> Tensor:
    return model.yes_margins_of_each(images, QUESTIONS)


def reports_one_by_one(model: HfModel, images: Tensor) -> Tensor:
    return torch.stack([model.losses(images, reports, REASONS) for reports in REPORTS], dim=1)


def reports_together(model: HfModel, images: Tensor) -> Tensor:
    return torch.stack(model.losses_of_each(images, REPORTS, REASONS), dim=1)


@pytest.mark.parametrize(
    ("plain", "shared"), [(questions_one_by_one, questions_together), (reports_one_by_one, reports_together)]
)
def test_texts_that_share_their_images_have_the_values_and_gradients_of_texts_alone(
    model: HfModel, plain: Callable[[HfModel, Tensor], Tensor], shared: Callable[[HfModel, Tensor], Tensor]
) -> None:
    """With and without gradients, and with the layers' activations computed again; the weights get no gradient."""
    images = radiographs()
    weights = torch.linspace(0.5, 2.0, 4).unsqueeze(0)[:, : plain(model, images).shape[1]]
    expected = plain(model, images)
    (gradient,) = torch.autograd.grad((expected * weights).sum(), images)
    scale = float(gradient.abs().max())
    assert scale > 0
    try:
        for checkpointing in (False, True):
            checkpoint_layers(model.model, checkpointing)
            found = shared(model, images)
            torch.testing.assert_close(found, expected, **TOLERANCE)
            (found_gradient,) = torch.autograd.grad((found * weights).sum(), images)
            torch.testing.assert_close(found_gradient / scale, gradient / scale, atol=1e-5, rtol=1e-4)
    finally:
        checkpoint_layers(model.model, False)
    with torch.no_grad():
        torch.testing.assert_close(shared(model, images), expected, **TOLERANCE)
    assert not any(weight.requires_grad or weight.grad is not None for weight in model.model.parameters())


@pytest.mark.parametrize("attack", ["pgd", "apgd"])
def test_attacks_end_where_they_end_without_sharing_and_in_one_batch(model: HfModel, attack: str) -> None:
    """Closed questions; one image at a time with gradient checkpointing, beside all images in one plain graph."""
    images, truths = radiographs().detach(), torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 0.0, float("nan"), 1.0]])
    settings, budget = AttackSettings(steps=2, step_size=1.0, random_start=False), Budget(4 / 255)

    def attacked(margins: Callable[[HfModel, Tensor], Tensor], micro_batch: int) -> AttackResult:
        objective = WrongAnswers(lambda some, rows: margins(model, some), truths, [0, 0])
        run: Attack = ATTACKS.load(attack)(settings)
        return run(objective, images, budget, keys=["s1", "s2"], micro_batch=BatchSize(micro_batch))

    plain = attacked(questions_one_by_one, 2)
    checkpoint_layers(model.model)
    shared = attacked(questions_together, 1)
    checkpoint_layers(model.model, False)
    assert torch.equal(shared.passes, plain.passes) and bool((plain.final_loss > plain.initial_loss).all())
    torch.testing.assert_close(shared.final_loss, plain.final_loss, atol=1e-5, rtol=1e-4)
    # The sign of a gradient near 0 may differ, in a few pixels.
    assert float(((shared.images - plain.images).abs() > 1e-6).float().mean()) < 0.01


def test_the_vision_encoder_runs_once_and_memory_does_not_grow_by_the_image_with_every_question(model: HfModel) -> None:
    images, runs = radiographs(), 0
    module, method = image_encoder(model.model)
    compute = getattr(type(module), method)

    def counted(self: object, *args: object, **kwargs: object) -> object:
        nonlocal runs
        runs += 1
        return compute(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(module), method, counted)
        found, kept = saved_bytes(model.model, lambda: questions_together(model, images))
        torch.autograd.grad(found.sum(), images)
    assert runs == 1
    _, plain = saved_bytes(model.model, lambda: questions_one_by_one(model, images))
    _, single = saved_bytes(model.model, lambda: model.yes_margins(images, QUESTIONS[0]))
    if model.model.config.model_type not in PREFIXED:  # one question at a time
        assert kept < 1.2 * single < 0.35 * plain
        return
    prompts = [model.prompts.question(question) for question in QUESTIONS]
    texts = model._encoder.encode_each(list(images), [([prompt] * 2, None) for prompt in prompts])
    tokens, prefix = [text.ids.shape[1] for text in texts], shared_length(model.model, texts, [1] * len(texts))
    assert kept < 1.1 * plain * (prefix + sum(length - prefix for length in tokens)) / sum(tokens)


def test_texts_are_packed_up_to_twice_the_prefix() -> None:
    assert pack([400, 500, 600, 100], 100) == [[0, 1], [2, 3]]  # at most 1,024 after a short prefix
    assert pack([400, 500, 600, 100], 2000) == [[0, 1, 2, 3]]
    assert pack([5, 5], 0) == [[0], [1]] and pack([9], 4) == [[0]]


def test_several_packed_sequences_give_the_values_of_one(model: HfModel, monkeypatch: pytest.MonkeyPatch) -> None:
    images = radiographs()
    expected = questions_together(model, images)
    (gradient,) = torch.autograd.grad(expected.sum(), images)
    monkeypatch.setattr(image_prefix, "pack", lambda own, prefix: [[0, 1], [2], [3]] if prefix else pack(own, prefix))
    found = questions_together(model, images)
    torch.testing.assert_close(found, expected, **TOLERANCE)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), images)[0], gradient, atol=1e-5, rtol=1e-3)


def test_causal_families_read_the_image_once(model: HfModel) -> None:
    images, prompts = list(radiographs()), [model.prompts.question(question) for question in QUESTIONS]
    texts = model._encoder.encode_each(images, [([prompt] * 2, None) for prompt in prompts])
    counts = [1] * len(texts)
    length = shared_length(model.model, texts, counts)
    first, *others = (text.ids[0].tolist() for text in texts)
    if model.model.config.model_type in PREFIXED:
        common = next(place for place, token in enumerate(first) if any(one[place] != token for one in others))
        assert length == common and not any(bool(text.image_mask[:, length:].any()) for text in texts)
    else:
        assert length == 0
    # Images of two sizes may have different numbers of tokens; then nothing before a question is common to both.
    wide = [images[0], torch.rand(1, 30, 90)]
    mixed = model._encoder.encode_each(wide, [([prompt] * 2, None) for prompt in prompts])
    assert shared_length(model.model, mixed, counts) in (0, length)
