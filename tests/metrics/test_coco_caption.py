"""BLEU, ROUGE-L and CIDEr of texts, as coco-caption has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cxrlab.metrics.coco_caption import BETA, Coco, rouge_l
from cxrlab.metrics.report_pairs import Batch, Pair

PUBLISHED = {
    "bleu1:coco": "Bleu_1", "bleu2:coco": "Bleu_2", "bleu3:coco": "Bleu_3", "bleu4:coco": "Bleu_4",
    "rougeL:coco": "ROUGE_L", "cider:coco": "CIDEr",
}  # fmt: skip


def values(*pairs: tuple[str | None, str | None]) -> dict[str, float]:
    batch = Batch([Pair(str(number), reported, said) for number, (reported, said) in enumerate(pairs)])
    return {tally.metric.name: tally.value for tally in Coco().tallies(batch)}


@pytest.mark.real_data
def test_published_scores_of_a_real_run(real_data: Path) -> None:
    """382 reports scored by coco-caption: six decimals of six metrics."""
    folder = real_data / "metric_vectors" / "iu_run_a"
    reported, said, scores = (json.loads((folder / f"{name}.json").read_text()) for name in ("refs", "preds", "scores"))
    ours = values(*((reported[key][0], said[key][0]) for key in reported))
    assert {name: round(ours[name], 6) for name in PUBLISHED} == {
        name: round(scores[key], 6) for name, key in PUBLISHED.items()
    }


def test_prose_and_split_text_are_one() -> None:
    """Capitals and attached marks make no difference."""
    prose = values(
        ("No effusion. Heart (mildly) enlarged.", "No effusion, heart enlarged."), ("Clear lungs.", "Clear.")
    )
    split = values(
        ("no effusion . heart ( mildly ) enlarged .", "no effusion , heart enlarged ."), ("clear lungs .", "clear .")
    )
    assert prose == split


def test_rouge_l_by_hand() -> None:
    """Three of four words in common, three of six: P 3/4, R 1/2, F = 2.44 PR / (R + 1.44 P)."""
    expected = (1 + BETA**2) * 0.75 * 0.5 / (0.5 + BETA**2 * 0.75)
    assert rouge_l("a b c x y z".split(), "a q b c".split()) == pytest.approx(expected)
    assert rouge_l([], ["a"]) == rouge_l(["a"], []) == rouge_l([], []) == rouge_l(["a"], ["b"]) == 0.0


def test_a_second_space_in_split_text_is_a_word_of_rouge_l_alone() -> None:
    """As published: three places in common with four, while BLEU sees two words of two."""
    ours = values(("no  edema", "no edema"), ("x", "y"))
    assert ours["rougeL:coco"] == pytest.approx(rouge_l(["no", "", "edema"], ["no", "edema"]) / 2)
    assert values(("no  edema", "no edema"))["bleu2:coco"] == pytest.approx(1.0)


def test_empty_text_scores_nothing() -> None:
    """Also against empty text, and also where the reference has two spaces in a row."""
    for reported, said in (("no  edema .", ""), ("", "no edema ."), ("", ""), (" ", "\n"), ("no  edema .", None)):
        assert max(values((reported, said)).values()) == pytest.approx(0.0, abs=1e-9)


def test_weights_of_cider_leave_out_pairs_without_a_reference() -> None:
    """A pair that is not scored must not make words rarer."""
    pairs = [("heart is large", "heart is big"), ("lungs are clear", "lungs are clear")]
    assert values(*pairs)["cider:coco"] == values(*pairs, (None, "heart is big"))["cider:coco"]
