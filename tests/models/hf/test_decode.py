from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import tiny_llava, tiny_tokenizer

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.generation import TRUNCATED, draw, generate, image_key, image_tokens

SHORT = {"max_new_tokens": 10}
STRATEGIES = {
    "greedy": Decoding(**SHORT),
    "sample": Decoding(strategy="sample", answers=3, **SHORT),
    "top-p": Decoding(strategy="sample", answers=2, top_p=0.5, temperature=1.7, **SHORT),
    "beam": Decoding(strategy="beam", answers=2, **SHORT),
    "ada-steal": Decoding(strategy="diverse", beams=6, groups=3, diversity_penalty=0.2, answers=3, **SHORT),
}
PROMPTS = ("<image>\nFindings?", "<image>\nProvide a description of the findings.", "<image>\nx", "<image>\nThe heart")


@pytest.fixture(scope="module")
def llava() -> tuple[Any, Any]:
    """Its answers differ from image to image and end before the limit now and then."""
    model, processor = tiny_llava(seed=3)
    model.lm_head.weight.data *= 12
    model.model.multi_modal_projector.linear_2.weight.data *= 30
    processor.tokenizer.padding_side = "left"
    return model, processor


def images(count: int = 4) -> list[np.ndarray]:
    return [np.random.default_rng(n).random((32, 32, 3), dtype=np.float32) for n in range(count)]


def answer(llava: tuple[Any, Any], which: list[int], decoding: Decoding, ends: tuple[int, ...] = (2,)) -> Any:
    model, processor = llava
    chosen, asked = [images()[n] for n in which], [PROMPTS[n] for n in which]
    inputs = inputs_of(processor, chosen, asked)
    keys = [image_key(image, prompt) for image, prompt in zip(chosen, asked, strict=True)]
    return generate(model, processor.tokenizer, [inputs], decoding, keys=keys, ends=ends)


def inputs_of(processor: Any, chosen: list[np.ndarray], asked: list[str]) -> Any:
    pictures = [np.round(image * 255).astype(np.uint8) for image in chosen]
    return processor(images=pictures, text=asked, return_tensors="pt", padding=True)


@pytest.mark.parametrize("name", STRATEGIES)
def test_answers_are_the_same_in_any_company(llava: tuple[Any, Any], name: str) -> None:
    """Alone, in a batch with longer prompts, and in another order: same words, same confidence to 1e-4."""
    decoding = STRATEGIES[name]
    alone = [answer(llava, [n], decoding)[0] for n in range(4)]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        for n, found in zip(order, answer(llava, order, decoding), strict=True):
            assert [one.text for one in found] == [one.text for one in alone[n]]
            assert [one.mean_logprob for one in found] == pytest.approx(
                [one.mean_logprob for one in alone[n]], abs=1e-4
            )
    assert all(len(found) == decoding.answers for found in alone)
    assert len({found[0].text for found in alone}) > 1, "a test in which all images are answered alike shows nothing"


@pytest.mark.parametrize("name", STRATEGIES)
def test_confidence_is_the_mean_log_probability_of_what_was_written(llava: tuple[Any, Any], name: str) -> None:
    """Against one pass of the model over prompt and answer, whatever the strategy did to choose the words."""
    from cxrlab.models.hf.beam_search import DiverseBeamSearch
    from cxrlab.models.hf.decoding_steps import Limits
    from cxrlab.models.hf.generation import TokenByToken, decode

    model, processor = llava
    decoding = STRATEGIES[name]
    by_beams = decoding.strategy in ("beam", "diverse")
    inputs = inputs_of(processor, images()[:1], [PROMPTS[1]])
    choose = DiverseBeamSearch(decoding) if by_beams else TokenByToken(decoding, ["a"])
    rows = decoding.beams if by_beams else decoding.answers
    (found,) = decode(model, [inputs], choose, rows=rows, limits=Limits([2], image_tokens(model), 10))
    for one in found:
        whole = torch.cat([inputs["input_ids"], torch.tensor([one.tokens])], dim=1)
        with torch.no_grad():
            logits = model(input_ids=whole, pixel_values=inputs["pixel_values"]).logits.float()
        logs = torch.log_softmax(logits[0, -len(one.tokens) - 1 : -1], dim=-1)
        expected = logs.gather(1, torch.tensor(one.tokens)[:, None]).sum().item()
        assert one.log_probability == pytest.approx(expected, abs=1e-3)


def test_greedy_is_the_greedy_of_transformers(llava: tuple[Any, Any]) -> None:
    model, processor = llava
    inputs = inputs_of(processor, images()[:2], list(PROMPTS[:2]))
    banned = image_tokens(model)
    theirs = model.generate(**inputs, max_new_tokens=10, do_sample=False, suppress_tokens=banned, eos_token_id=2)
    texts = processor.tokenizer.batch_decode(theirs[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
    assert [found[0].text for found in answer(llava, [0, 1], Decoding(**SHORT))] == [text.strip() for text in texts]


def test_settings_of_the_checkpoint_do_not_reach_the_words(llava: tuple[Any, Any]) -> None:
    """A repetition penalty or sampling that a checkpoint ships would make two models unlike for no reason told."""
    model, _ = llava
    plain = answer(llava, [0, 1], Decoding(**SHORT))
    before = model.generation_config
    model.generation_config = type(before)(
        do_sample=True, temperature=3.0, repetition_penalty=9.0, num_beams=3, no_repeat_ngram_size=1, min_new_tokens=9
    )
    try:
        assert answer(llava, [0, 1], Decoding(**SHORT)) == plain
    finally:
        model.generation_config = before


def test_sampling_follows_the_seed(llava: tuple[Any, Any]) -> None:
    def drawn(seed: int) -> list[str]:
        return [one.text for one in answer(llava, [0], Decoding(strategy="sample", answers=4, seed=seed, **SHORT))[0]]

    state = torch.random.get_rng_state()
    first = drawn(7)
    assert drawn(7) == first != drawn(8) and len(set(first)) > 1
    assert torch.equal(torch.random.get_rng_state(), state), "the global generator is nobody's to move"


def test_draws_follow_the_distribution() -> None:
    """Ten thousand evenly spaced chances fall on each token as often as its share says."""
    shares = torch.tensor([0.1, 0.5, 0.15, 0.25])
    chance = (torch.arange(10_000, dtype=torch.float64) + 0.5) / 10_000
    rows = shares.log().expand(10_000, -1)

    def frequencies(temperature: float = 1.0, top_p: float = 1.0) -> list[float]:
        drawn = draw(rows, chance, temperature, top_p)
        return [round(float((drawn == token).double().mean()), 3) for token in range(4)]

    assert frequencies() == [0.1, 0.5, 0.15, 0.25]
    assert frequencies(top_p=0.75) == [0.0, 0.667, 0.0, 0.333]  # 0.5 and 0.25 hold 0.75 already
    assert frequencies(top_p=0.76) == [0.0, 0.556, 0.167, 0.278]
    assert frequencies(top_p=1e-9) == [0.0, 1.0, 0.0, 0.0]
    assert frequencies(temperature=0.5) == [0.029, 0.725, 0.065, 0.181]  # squares, over 0.345


def test_a_token_that_is_never_written_is_never_drawn() -> None:
    rows = torch.tensor([[-torch.inf, 0.0, -torch.inf]])
    for chance in (0.0, 0.999999999999):
        assert draw(rows, torch.tensor([chance], dtype=torch.float64), 1.0, 1.0).tolist() == [1]


def test_an_answer_that_is_cut_says_so_and_counts_its_tokens(llava: tuple[Any, Any]) -> None:
    (cut,) = answer(llava, [0], Decoding(max_new_tokens=3))[0]
    assert cut.tokens == 3 and cut.extra == {TRUNCATED: True}
    first = tiny_tokenizer()  # with its first word as an end token the same answer ends at once, and has no word
    model, processor = llava
    with torch.no_grad():
        logits = model(**inputs_of(processor, images()[:1], [PROMPTS[0]])).logits[0, -1]
    logits[image_tokens(model)] = -torch.inf
    (whole,) = answer(llava, [0], Decoding(max_new_tokens=3), ends=(int(logits.argmax()), first.eos_token_id))[0]
    assert whole.tokens == 1 and whole.extra == {}
    assert whole.mean_logprob == pytest.approx(float(torch.log_softmax(logits, -1).max()), abs=0.05)


def test_no_report_holds_the_token_of_a_image(llava: tuple[Any, Any]) -> None:
    """Even where the model would write nothing else."""
    model, processor = llava
    image = processor.tokenizer.convert_tokens_to_ids("<image>")
    assert image_tokens(model) == [image]
    lines = model.lm_head.weight.data.clone()
    try:
        model.lm_head.weight.data[:] = 0
        with_image = answer(llava, [0], Decoding(max_new_tokens=2))[0][0]
    finally:
        model.lm_head.weight.data[:] = lines
    assert "<image>" not in with_image.text


def test_output_that_is_no_number_is_an_error_that_names_the_remedy(llava: tuple[Any, Any]) -> None:
    model, _ = llava
    norm = model.model.language_model.norm.weight
    before = norm.data.clone()
    try:
        norm.data[0] = torch.nan
        for decoding in STRATEGIES.values():
            with pytest.raises(DataError, match="token 1 is NaN; .*float32"):
                answer(llava, [0, 1], decoding)
    finally:
        norm.data[:] = before


def test_an_answer_that_outgrows_the_model_is_refused_before_it_starts(llava: tuple[Any, Any]) -> None:
    with pytest.raises(ConfigError, match=r"max_new_tokens=600 do not fit the 512 positions .* at most 502,"):
        answer(llava, [0], Decoding(max_new_tokens=600))


def test_the_key_of_a_image_depends_on_pixels_shape_and_prompt() -> None:
    image = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
    assert image_key(image, "a") == image_key(torch.from_numpy(image), "a") == image_key(image.T.copy().T, "a")
    assert (
        len(
            {
                image_key(image, "a"),
                image_key(image, "b"),
                image_key(image.reshape(2, 8), "a"),
                image_key(image * 0.5, "a"),
            }
        )
        == 4
    )


def test_keys_that_do_not_fit_the_images_are_a_mistake_of_the_caller(llava: tuple[Any, Any]) -> None:
    model, processor = llava
    inputs = inputs_of(processor, images()[:2], list(PROMPTS[:2]))
    with pytest.raises(ValueError, match="1 keys do not fit 2 images"):
        generate(model, processor.tokenizer, [inputs], STRATEGIES["sample"], keys=["a"], ends=[2])
