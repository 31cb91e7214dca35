from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_models import tiny_llava

from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.beam_search import DiverseBeamSearch
from cxrlab.models.hf.decoding_steps import Answer, Limits
from cxrlab.models.hf.generation import decode

WORDS, END, LONGEST = 5, 0, 4
Table = Callable[[Sequence[int]], np.ndarray]


def table(image: int, empty: bool = True) -> Table:
    """Log-probabilities of five words after the last two words, drawn once for an image; may it end with no word?"""
    logits = 1.5 * np.random.default_rng(image).normal(size=(WORDS + 1, WORDS + 1, WORDS))
    logits[WORDS, WORDS, END] -= 0.0 if empty else 50.0
    logs = (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)
    return lambda words: logs[(WORDS, WORDS, *words)[-2:]]


class TableSteps:
    """Stands for a model: rows of images, each with its table."""

    def __init__(self, images: Sequence[Table], beams: int, longest: int = LONGEST) -> None:
        self.tables = [image for image in images for _ in range(beams)]
        self.written: list[list[int]] = [[] for _ in self.tables]
        self.rows, self.longest, self.device = len(self.tables), longest, torch.device("cpu")
        self.ends = torch.tensor([END])

    def log_probabilities(self) -> torch.Tensor:
        rows = zip(self.tables, self.written, strict=True)
        return torch.from_numpy(np.stack([one(words) for one, words in rows]))

    def is_end(self, tokens: torch.Tensor) -> torch.Tensor:
        return tokens == END

    def append(self, tokens: torch.Tensor, rows: torch.Tensor) -> None:
        self.written = [[*self.written[row], token] for row, token in zip(rows.tolist(), tokens.tolist(), strict=True)]


def search(images: Sequence[Table], decoding: Decoding, longest: int = LONGEST) -> list[list[Answer]]:
    return DiverseBeamSearch(decoding)(TableSteps(images, decoding.beams, longest))  # type: ignore[arg-type]


def by_hand(image: Table, decoding: Decoding, longest: int = LONGEST) -> list[tuple[tuple[int, ...], float]]:
    """The same search for one image in plain lists: (words, sum of log-probabilities), best first."""
    groups = decoding.groups if decoding.strategy == "diverse" else 1
    penalty = decoding.diversity_penalty if decoding.strategy == "diverse" else 0.0
    size = decoding.beams // groups
    running = [[(0.0, 0.0, ())] for _ in range(groups)]
    ended: list[list[tuple[float, float, tuple[int, ...]]]] = [[] for _ in range(groups)]
    is_open = [True] * groups
    for length in range(1, longest + 1):
        used: Counter[int] = Counter()
        for g in range(groups):
            made = [
                (score + logs[word] - penalty * used[word], true + logs[word], (*words, word))
                for score, true, words in running[g]
                for logs in [image(words)]
                for word in range(WORDS)
            ]
            made.sort(key=lambda item: -item[0])
            stop = [words[-1] == END or length == longest for _, _, words in made]
            if is_open[g]:
                new = [(s / length**decoding.length_penalty, t, w) for (s, t, w), st in zip(made, stop, strict=True)][
                    :size
                ]
                ended[g] += [item for item, st in zip(new, stop[:size], strict=True) if st]
                ended[g] = sorted(ended[g], key=lambda item: -item[0])[:size]
            running[g] = [item for item in made[: 2 * size] if item[2][-1] != END][:size]
            if is_open[g]:
                used.update(words[-1] for _, _, words in running[g])
            full = len(ended[g]) == size
            best_possible = running[g][0][0] / length**decoding.length_penalty if running[g] else -math.inf
            is_open[g] &= not full or (best_possible > ended[g][-1][0] and not decoding.early_stopping)
        if not any(is_open):
            break
    every = sorted(itertools.chain(*ended), key=lambda item: -item[0])
    distinct = {words: true for _, true, words in reversed(every)}
    first = list(dict.fromkeys(words for _, _, words in every))
    return [(words, distinct[words]) for words in first]


SETTINGS = [
    Decoding(strategy="beam", beams=2, answers=2),
    Decoding(strategy="beam", beams=2, answers=2, length_penalty=0.0),
    Decoding(strategy="beam", beams=2, answers=2, early_stopping=True),
    Decoding(strategy="diverse", beams=4, groups=2, answers=4, diversity_penalty=0.5),
    Decoding(strategy="diverse", beams=6, groups=3, answers=6, diversity_penalty=0.2),  # ADA-Steal's
    Decoding(strategy="diverse", beams=6, groups=3, answers=6, diversity_penalty=2.0, length_penalty=2.0),
    Decoding(strategy="diverse", beams=4, groups=2, answers=4, diversity_penalty=1.0, early_stopping=True),
]


@pytest.mark.parametrize("decoding", SETTINGS, ids=str)
def test_a_toy_language_is_searched_as_by_hand(decoding: Decoding) -> None:
    """Thirty random tables of five words; the reference is written with lists and shares no code."""
    images = [table(number) for number in range(30)]
    for image, found in zip(images, search(images, decoding), strict=True):
        expected = by_hand(image, decoding)
        distinct = list(dict.fromkeys(answer.tokens for answer in found))
        assert distinct == [words for words, _ in expected[: len(distinct)]]
        logs = {words: true for words, true in expected}
        for answer in found[: len(distinct)]:
            assert answer.log_probability == pytest.approx(logs[answer.tokens], abs=1e-4)
            assert answer.ended is (answer.tokens[-1] == END)


def test_beams_enough_for_every_sequence_find_the_best_of_all() -> None:
    """With more beams than there are reports of up to three words nothing is lost: the answer is the true maximum."""
    image = table(3)
    every = [
        words
        for length in (1, 2, 3)
        for words in itertools.product(range(WORDS), repeat=length)
        if END not in words[:-1] and (words[-1] == END or length == 3)
    ]
    total = {words: sum(float(image(words[:place])[word]) for place, word in enumerate(words)) for words in every}
    best = max(every, key=lambda words: total[words] / len(words))
    (answers,) = search([image], Decoding(strategy="beam", beams=128, answers=1), longest=3)
    assert answers[0].tokens == best and answers[0].log_probability == pytest.approx(total[best], abs=1e-4)


def test_the_company_of_other_images_changes_nothing() -> None:
    decoding = Decoding(strategy="diverse", beams=6, groups=3, answers=6, diversity_penalty=0.7)
    images = [table(number) for number in range(40, 60)]
    assert search(images, decoding) == [search([image], decoding)[0] for image in images]


def test_a_large_penalty_makes_every_group_begin_differently() -> None:
    """To end is no word: groups may agree on it. So these images have no empty report."""
    images = [table(number, empty=False) for number in range(20)]
    alike = Decoding(strategy="diverse", beams=3, groups=3, answers=3, diversity_penalty=0.0)
    apart = Decoding(strategy="diverse", beams=3, groups=3, answers=3, diversity_penalty=1000.0)
    for found in search(images, apart):
        assert len({answer.tokens[0] for answer in found}) == 3
    # Without a penalty all groups find the same: three times one report.
    assert all(len({answer.tokens for answer in found}) == 1 and len(found) == 3 for found in search(images, alike))


def test_what_it_costs_to_differ_is_no_part_of_the_confidence() -> None:
    image = table(5)
    decoding = Decoding(strategy="diverse", beams=2, groups=2, answers=2, diversity_penalty=3.0)
    for answer in search([image], decoding)[0]:
        logs = sum(float(image(answer.tokens[:place])[word]) for place, word in enumerate(answer.tokens))
        assert answer.log_probability == pytest.approx(logs, abs=1e-4)


@pytest.fixture(scope="module")
def llava() -> tuple[Any, dict[str, Any], list[int]]:
    """A tiny LLaVA with two prompts of different length, and end tokens that it really writes."""
    model, processor = tiny_llava()
    model.lm_head.weight.data *= 40  # sharper than random weights are, so that no two scores are nearly equal
    processor.tokenizer.padding_side = "left"
    images = [Image.fromarray(np.random.default_rng(n).integers(0, 255, (40, 50, 3), dtype=np.uint8)) for n in range(2)]
    texts = ["<image>\nFindings?", "<image>\nProvide a description of the findings in the radiology image."]
    inputs = processor(images=images, text=texts, return_tensors="pt", padding=True)
    free = model.generate(**inputs, max_new_tokens=8, num_beams=4, num_return_sequences=4, do_sample=False)
    written = free[:, inputs["input_ids"].shape[1] :]
    return model, inputs, sorted({2, *written[:, 3].tolist(), *written[:, 5].tolist()})[:4]


@pytest.mark.parametrize("beams", [2, 4])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("early", [False, True])
def test_one_group_is_the_beam_search_of_transformers(
    llava: tuple[Any, dict[str, Any], list[int]], beams: int, length_penalty: float, early: bool
) -> None:
    """Same sequences in the same order, and the same scores."""
    model, inputs, ends = llava
    decoding = Decoding(
        strategy="diverse", beams=beams, groups=1, answers=beams, diversity_penalty=0.0, length_penalty=length_penalty,
        early_stopping=early,
    )  # fmt: skip
    theirs = model.generate(
        **inputs, num_beams=beams, num_return_sequences=beams, length_penalty=length_penalty, early_stopping=early,
        max_new_tokens=8, eos_token_id=ends, do_sample=False, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    ours = decode(model, [inputs], DiverseBeamSearch(decoding), rows=beams, limits=Limits(ends, [], 8))
    flat = list(itertools.chain(*ours))
    assert len(flat) == 2 * beams
    written = theirs.sequences[:, inputs["input_ids"].shape[1] :].tolist()
    for answer, tokens, score in zip(flat, written, theirs.sequences_scores.tolist(), strict=True):
        assert list(answer.tokens) == tokens[: len(answer.tokens)]
        assert answer.log_probability / len(answer.tokens) ** length_penalty == pytest.approx(score, abs=1e-4)


def test_some_of_these_answers_end_early_and_some_are_cut(llava: tuple[Any, dict[str, Any], list[int]]) -> None:
    """Else the comparison above would not have met the end token."""
    model, inputs, ends = llava
    decoding = Decoding(strategy="beam", beams=4, answers=4)
    found = decode(model, [inputs], DiverseBeamSearch(decoding), rows=4, limits=Limits(ends, [], 8))
    assert {answer.ended for answers in found for answer in answers} == {True, False}
