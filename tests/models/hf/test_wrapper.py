from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_models import TEXTS
from torch import Tensor

from cxrlab.core.errors import ConfigError, CxrlabError, DataError
from cxrlab.core.model_interfaces import HasParameterCount, HasTrainingCollections, ImageToText
from cxrlab.models.decoding import Decoding, SupportsSplitSampling
from cxrlab.models.hf.checkpoint import Checkpoint, open_checkpoint
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_card import ModelCard
from cxrlab.models.prompts import load_prompts

# Sums over other lengths of padding are made in another order: the last digits of a float32 differ.
TOLERANCE = 1e-5
REPORTS = ("No effusion.", "The heart is normal in size. The lungs are clear.", "", "Left pleural effusion.")
REASONS = (None, "dyspnea", "chest pain, fall from a ladder two days ago", " ")


def images(count: int, seed: int = 0, side: int = 32) -> Tensor:
    return torch.rand(count, side, side, generator=torch.Generator().manual_seed(seed))


def batch(count: int) -> tuple[Tensor, list[str], list[str | None]]:
    """Images with reports and indications of several lengths."""
    return images(count), [REPORTS[k % 4] for k in range(count)], [REASONS[k // 2 % 4] for k in range(count)]


def test_sixteen_images_at_once_are_sixteen_images_one_by_one(llava: HfModel) -> None:
    """Loss, log-probability and pixel gradient do not know what else stands in the batch."""
    images, reports, reasons = batch(16)
    whole = images.clone().requires_grad_()
    reported = llava.log_probabilities(whole, reports, reasons)
    llava.losses(whole, reports, reasons).sum().backward()
    for k in range(16):
        one = images[k : k + 1].clone().requires_grad_()
        alone = llava.log_probabilities(one, reports[k : k + 1], reasons[k : k + 1])
        loss = llava.losses(one, reports[k : k + 1], reasons[k : k + 1])
        loss.sum().backward()
        count = int(alone.mask.sum())
        assert int(reported.mask[k].sum()) == count and reported.ids[k, :count].tolist() == alone.ids[0].tolist()
        torch.testing.assert_close(reported.values[k, :count], alone.values[0], atol=TOLERANCE, rtol=0)
        torch.testing.assert_close(reported.means[k], -loss[0], atol=TOLERANCE, rtol=0)
        assert one.grad is not None and whole.grad is not None and float(one.grad.abs().max()) > 0
        torch.testing.assert_close(whole.grad[k], one.grad[0], atol=TOLERANCE, rtol=0)


def test_its_size_is_the_number_of_its_weights(llava: HfModel) -> None:
    assert isinstance(llava, HasParameterCount) and llava.parameter_count == llava.model.num_parameters() > 0


def test_log_probabilities_are_those_of_the_model_under_its_own_processor(llava: HfModel) -> None:
    """Text in one piece, an 8-bit image of the model's size: transformers' own loss on the report's tokens."""
    levels = np.random.default_rng(1).integers(0, 256, (32, 32), dtype=np.uint8)
    report = "The lungs are clear."
    prompt = f"<image>\n{llava.prompts.ask('dyspnea')}"
    inputs = llava.processor(
        text=f"{prompt} {report}</s>", images=Image.fromarray(levels).convert("RGB"), return_tensors="pt"
    )
    tokens = len(llava.tokenizer(f" {report}", add_special_tokens=False)["input_ids"]) + 1
    labels = inputs["input_ids"].clone()
    labels[:, :-tokens] = -100
    theirs = llava.model(**inputs, labels=labels).loss
    ours = llava.losses([levels.astype(np.float32) / 255], [report], ["dyspnea"])
    torch.testing.assert_close(ours[0], theirs, atol=1e-4, rtol=0)


def test_a_loss_is_the_mean_over_the_reports_own_tokens_and_padding_is_zero(llava: HfModel) -> None:
    images, reports, reasons = batch(4)
    reported = llava.log_probabilities(images, reports, reasons)
    assert reported.values[~reported.mask].abs().sum() == 0 and bool((reported.values[reported.mask] < 0).all())
    assert reported.ids[reported.mask].tolist().count(llava.tokenizer.eos_token_id) == 4  # every report ends
    by_hand = [-float(row[mask].mean()) for row, mask in zip(reported.values, reported.mask, strict=True)]
    assert llava.losses(images, reports, reasons).tolist() == pytest.approx(by_hand, abs=1e-6)
    assert reported.mask.sum(1)[2] == 1  # of an empty report, the end token


def test_the_gradient_is_the_slope_of_the_loss(llava: HfModel) -> None:
    """Central difference along the gradient: the loss changes by step × length of the gradient."""
    image = images(1, side=40).mul(0.8).add(0.1).requires_grad_()  # another size than the model's: through the resize
    loss = llava.losses(image, ["Left pleural effusion."])[0]
    (gradient,) = torch.autograd.grad(loss, image)
    step, length = 0.05, gradient.norm()
    with torch.no_grad():
        up, down = (llava.losses(image + s * step * gradient / length, ["Left pleural effusion."])[0] for s in (1, -1))
    assert float((up - down) / (2 * step)) == pytest.approx(float(length), rel=0.02)


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.filterwarnings("error")
def test_arrays_and_tensors_of_the_same_image_are_the_same_image(llava: HfModel) -> None:
    grey = images(1)[0]
    ways = [
        [grey.numpy()],
        [np.repeat(grey.numpy()[..., None], 3, axis=2)],
        [grey],
        grey[None],
        grey[None, None].expand(1, 3, 32, 32),
        [grey.double()],
        grey.numpy()[None],
        [grey.numpy().astype(">f4")],
        [grey.numpy()[::-1][::-1]],
        (read_only(grey.numpy()),),
    ]
    losses = [float(llava.losses(way, ["No effusion."])[0]) for way in ways]
    assert losses == pytest.approx([losses[0]] * len(ways), abs=1e-6)


def test_images_of_one_batch_may_differ_in_size(llava: HfModel) -> None:
    several = [images(1, side=side)[0] for side in (20, 32, 50)]
    together = llava.losses(several, ["No effusion."] * 3)
    alone = torch.cat([llava.losses([image], ["No effusion."]) for image in several])
    torch.testing.assert_close(together, alone, atol=TOLERANCE, rtol=0)


def test_generation_does_not_depend_on_the_batch_and_is_repeatable(llava: HfModel) -> None:
    images, _, reasons = batch(5)
    short = Decoding(max_new_tokens=12)
    together = llava.answers(images, reasons, short)
    alone = [llava.answers(images[k : k + 1], reasons[k : k + 1], short)[0] for k in range(5)]
    assert [a[0].text for a in together] == [a[0].text for a in alone]
    assert [a[0].mean_logprob for a in together] == pytest.approx([a[0].mean_logprob for a in alone], abs=TOLERANCE)
    assert together == llava.answers(images, reasons, short)
    llava.decoding, before = short, llava.decoding
    assert llava.generate(images, reasons) == [a[0] for a in together]
    llava.decoding = before
    assert llava.generate([]) == []


def test_drawn_answers_in_parts_are_those_of_one_call(llava: HfModel) -> None:
    """A server asks for them in parts where another client waits."""
    assert isinstance(llava, SupportsSplitSampling)
    how = Decoding(strategy="sample", answers=5, temperature=2.0, max_new_tokens=6)
    whole = llava.answers(images(2), None, how)
    counts = ((0, 2), (2, 3))  # number of the first answer, and how many
    parts = [llava.answers_from(images(2), None, replace(how, answers=count), first) for first, count in counts]
    for one, (before, after) in zip(whole, zip(*parts, strict=True), strict=True):
        assert [answer.text for answer in one] == [answer.text for answer in (*before, *after)]
        assert len({answer.text for answer in one}) > 1


def test_the_confidence_of_an_answer_is_what_scoring_it_gives(llava: HfModel) -> None:
    """The first token of greedy decoding is the likeliest one: its log-probability, read off a pass over the prompt."""
    image = images(1)
    (answer,) = llava.answers(image, None, Decoding(max_new_tokens=1))[0]
    encoded = llava.encode(image, [llava.prompts.ask()])
    logits = llava.model(**encoded.inputs).logits[0, -1].clone()
    logits[llava.model.config.image_token_id] = -torch.inf  # never written
    assert answer.mean_logprob == pytest.approx(float(logits.log_softmax(-1).max()), abs=1e-2)
    assert answer.tokens == 1


def test_an_indication_asks_by_the_other_prompt(llava: HfModel) -> None:
    image = images(1)
    with_reason, without = llava.prompts.ask("dyspnea"), llava.prompts.ask(None)
    losses = {reason: float(llava.losses(image, ["No effusion."], [reason])[0]) for reason in (None, "  ", "dyspnea")}
    assert losses[None] == losses["  "] != losses["dyspnea"]
    for reason, prompt in ((None, without), ("dyspnea", with_reason)):
        encoded = llava.encode(image, [prompt], ["No effusion."])
        values = torch.log_softmax(llava.model(**encoded.inputs).logits.float(), -1)[0, :-1]
        chosen = values.gather(1, encoded.ids[0, 1:, None])[:, 0][encoded.report_mask[0, 1:]]
        assert -float(chosen.mean()) == pytest.approx(losses[reason], abs=1e-5)


MARKS = ("<image>", "</s>", "<s>", "<pad>", "<im<image>age>", "<image><image>", "<|im_end|>", "[INST] </s>")


@pytest.mark.parametrize("mark", MARKS)
def test_a_special_token_typed_by_a_person_is_only_text(llava: HfModel, mark: str) -> None:
    """Neither a second image nor an early end: as many image tokens as without it, one end token."""
    image = images(1)
    clean = llava.encode(image, [llava.prompts.ask("pain")], ["No effusion."])
    dirty = llava.encode(image, [llava.prompts.ask(f"pain {mark} now")], [f"No {mark} effusion."])
    assert int(dirty.image_mask.sum()) == int(clean.image_mask.sum()) == 4
    special = set(llava.tokenizer.all_special_ids)
    reported = dirty.ids[dirty.report_mask].tolist()
    assert [token for token in reported if token in special] == [llava.tokenizer.eos_token_id] and reported[
        -1
    ] in special
    assert llava.tokenizer.decode(reported[:-1]) == f" No {mark} effusion."  # as it was written
    asked = dirty.ids[~dirty.report_mask & ~dirty.image_mask]
    assert f"pain {mark} now" in llava.tokenizer.decode(asked)
    assert llava.answers(image, [f"pain {mark}"], Decoding(max_new_tokens=2))
    assert float(llava.losses(image, [mark], [mark])[0]) > 0
    scored = llava.log_probabilities(image, [f"No {mark} effusion."], [f"pain {mark} now"])
    values = torch.log_softmax(llava.model(**dirty.inputs).logits.float(), -1)[0, :-1]
    chosen = values.gather(1, dirty.ids[0, 1:, None])[:, 0][dirty.report_mask[0, 1:]]
    assert scored.ids[0].tolist() == reported and float(scored.sums[0]) == pytest.approx(float(chosen.sum()), abs=1e-3)
    assert 0 < float(llava.probability_of_yes(image, f"Effusion {mark}?")[0]) < 1


def test_closed_questions_are_read_off_the_first_token(llava: HfModel) -> None:
    """p(yes) / (p(yes) + p(no)) over three spellings each, by a pass of its own; the batch does not matter."""
    all_images = images(3)
    questions = ["Is there a pleural effusion?", "Is the heart normal in size, in this image?", "Effusion?"]
    asked = llava.probability_of_yes(all_images, questions)
    ids = {
        w: llava.tokenizer(f" {w}", add_special_tokens=False)["input_ids"]
        for w in ("yes", "Yes", "YES", "no", "No", "NO")
    }
    yes = sorted({ids[w][0] for w in ("yes", "Yes", "YES") if len(ids[w]) == 1})
    no = sorted({ids[w][0] for w in ("no", "No", "NO") if len(ids[w]) == 1})
    assert yes and no
    for k in range(3):
        encoded = llava.encode(all_images[k : k + 1], [f"{questions[k]} Answer with yes or no."])
        shares = llava.model(**encoded.inputs).logits[0, -1].softmax(-1)
        by_hand = shares[yes].sum() / (shares[yes].sum() + shares[no].sum())
        assert float(asked[k]) == pytest.approx(float(by_hand), abs=1e-5)
    image = all_images[:1].clone().requires_grad_()
    llava.probability_of_yes(image, "Effusion?").sum().backward()
    assert image.grad is not None and float(image.grad.abs().max()) > 0


@pytest.mark.parametrize(
    ("images", "says"),
    [
        (None, "sequence of arrays"),
        ([None], "not an array or tensor"),
        (["image.png"], "not an array or tensor"),
        ([np.zeros((4, 4), np.uint8)], "scale it to float32"),
        ([np.array([[None]])], "not numbers"),
        ([np.array([["black"]])], "not numbers"),
        ([np.full((4, 4), np.nan, np.float32)], r"pixels must be in \[0, 1\]"),
        ([np.full((4, 4), 255.0, np.float32)], r"pixels must be in \[0, 1\]"),
        ([np.zeros((4, 4, 2), np.float32)], "has the shape"),
        ([np.zeros((0, 4), np.float32)], "has the shape"),
        (torch.zeros(4, 4), r"\[B, H, W\]"),
        (np.zeros((4, 4), np.float32), r"\[B, H, W\]"),
        ("image", "sequence of arrays"),
    ],
)
def test_what_is_no_image_is_refused(llava: HfModel, images: object, says: str) -> None:
    with pytest.raises(DataError, match=says):
        llava.losses(images, ["No effusion."])
    with pytest.raises(DataError, match=says):
        llava.answers(images)


def test_counts_must_agree_and_no_images_is_no_question(llava: HfModel) -> None:
    image = images(2)
    for call in (
        lambda: llava.losses(image, ["one"]),
        lambda: llava.losses(image, "one"),
        lambda: llava.losses(image, ["one", "two"], ["reason"]),
        lambda: llava.losses([], []),
        lambda: llava.encode([], []),
        lambda: llava.probability_of_yes(image, ["Effusion?"]),
        lambda: llava.answers(image, [None]),
        lambda: llava.answers(image, [None, float("nan")]),
        lambda: llava.losses(image, ["one", None]),
        lambda: llava.losses(image, ["one", "half a \ud83d"]),
        lambda: llava.answers(image, [None, "half a \ud83d"]),
        lambda: llava.losses(image, ["one", "two"], "indication"),
        lambda: llava.probability_of_yes(image, ["Effusion?", ""]),
        lambda: llava.probability_of_yes(image, [None, "Effusion?"]),
    ):
        with pytest.raises(CxrlabError):
            call()


def test_a_text_that_outgrows_the_model_is_refused_with_the_numbers(llava: HfModel) -> None:
    """512 positions: nothing is cut, since the image stands first."""
    with pytest.raises(ConfigError, match=r"image \(4 tokens\).* reads 512"):
        llava.losses(images(1), ["The lungs are clear. " * 200])


def test_half_precision_keeps_the_pixels_and_their_gradient_whole(llava: HfModel, llava_folder: Path) -> None:
    half = HfModel.load(str(llava_folder), loading=LoadSettings(dtype="bfloat16"))
    assert half.model.dtype == torch.bfloat16
    image = images(2).requires_grad_()
    losses = half.losses(image, list(REPORTS[:2]))
    losses.sum().backward()
    assert losses.dtype == torch.float32 and image.grad is not None and image.grad.dtype == torch.float32
    assert bool(image.grad.isfinite().all()) and float(image.grad.abs().max()) > 0
    torch.testing.assert_close(losses.detach(), llava.losses(images(2), list(REPORTS[:2])), atol=0.05, rtol=0)


def test_the_wrapper_is_a_model_of_the_room(llava: HfModel, llava_folder: Path) -> None:
    """Frozen weights; capabilities that are true; collections known only from a card."""
    assert isinstance(llava, ImageToText) and llava.name == f"hf:{llava_folder}"
    assert llava.capabilities.gradients and llava.capabilities.log_probabilities and not llava.capabilities.attention
    assert not any(parameter.requires_grad for parameter in llava.model.parameters())
    assert not hasattr(llava, "collections")
    found = open_checkpoint(llava_folder, LoadSettings(attention="eager"))
    card = ModelCard("finetune", "chexagent/1", ("phantom",))
    known = HfModel(
        Checkpoint(found.model, found.processor, found.tokenizer, card, found.folder),
        "hf:x",
        load_prompts(card.prompts),
        attention="eager",
    )
    assert isinstance(known, HasTrainingCollections) and known.collections == ("phantom",)
    assert known.capabilities.attention and known.prompts.name == "chexagent/1"


def test_a_tokenizer_without_padding_or_end_may_have_a_template_that_ends(llava_folder: Path, tmp_path: Path) -> None:
    """A batch is padded all the same, and not with the token of an image; what is padded does not matter."""
    folder = shutil.copytree(llava_folder, tmp_path / "bare")
    path = folder / "tokenizer_config.json"
    reported = {
        key: value for key, value in json.loads(path.read_text()).items() if key not in ("pad_token", "eos_token")
    }
    path.write_text(json.dumps(reported))
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}{% for c in m.content %}{{ '<image>' if c.type == 'image' else c.text }}{% endfor %}"
        "{% if m.role == 'assistant' %}<s>{% endif %}{% endfor %}{% if add_generation_prompt %} A:{% endif %}"
    )
    bare, image = HfModel.load(str(folder)), images(2)
    assert bare.tokenizer.pad_token_id is None and bare.tokenizer.eos_token_id is None
    together = bare.losses(image, list(REPORTS[:2]))
    alone = torch.cat([bare.losses(image[k : k + 1], [REPORTS[k]]) for k in range(2)])
    torch.testing.assert_close(together, alone, atol=TOLERANCE, rtol=0)


def test_a_tokenizer_that_has_outgrown_its_model_is_told(llava_folder: Path, tmp_path: Path) -> None:
    """Words that the model knows are answered; one that was added without an embedding is no IndexError."""
    folder = shutil.copytree(llava_folder, tmp_path / "grown")
    grown = open_checkpoint(folder).tokenizer
    grown.add_tokens(["effusions"])
    grown.save_pretrained(folder)
    model = HfModel.load(str(folder))
    assert float(model.losses(images(1), ["Clear."])[0]) > 0
    for call in (lambda: model.losses(images(1), ["effusions"]), lambda: model.generate(images(1), ["effusions"])):
        with pytest.raises(DataError, match="do not belong together"):
            call()


def test_damaged_weights_are_said_to_be_damaged(llava_folder: Path) -> None:
    model = HfModel.load(str(llava_folder))
    with torch.no_grad():
        model.model.lm_head.weight[0] = torch.nan
    with pytest.raises(DataError, match="--loading.dtype float32"):
        model.losses(images(1), [TEXTS[0]])


def test_gradients_still_flow_after_something_was_written(llava_folder: Path) -> None:
    """What is remembered while writing (filters of a size, tokens of a prompt) serves gradients later."""
    model = HfModel.load(str(llava_folder))
    model.answers(images(1, side=45), None, Decoding(max_new_tokens=1))
    image = images(1, side=45).requires_grad_()
    model.losses(image, ["No effusion."]).sum().backward()
    assert image.grad is not None and float(image.grad.abs().max()) > 0


def test_a_family_whose_steps_cannot_be_repeated_says_so(
    llava_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It writes and scores through its processor, without gradients, and a remark tells why."""
    monkeypatch.setattr("cxrlab.models.hf.pixels.max_difference_to_processor", lambda path, processor: float("inf"))
    model = HfModel.load(str(llava_folder))
    assert not model.capabilities.gradients and "in 8 bits" in capsys.readouterr().err
    levels = torch.randint(0, 256, (1, 32, 32), generator=torch.Generator().manual_seed(1)) / 255.0
    image = levels.clone().requires_grad_()
    loss = model.losses(image, ["No effusion."])
    monkeypatch.undo()
    torch.testing.assert_close(
        loss, HfModel.load(str(llava_folder)).losses(levels, ["No effusion."]), atol=1e-4, rtol=0
    )
    assert not loss.requires_grad


def test_a_model_that_does_not_name_its_image_token_is_refused(llava_folder: Path) -> None:
    found = open_checkpoint(llava_folder)
    found.model.config.image_token_id = found.processor.image_token_id = None
    with pytest.raises(ConfigError, match="image token"):
        HfModel(found, "hf:x", load_prompts())
