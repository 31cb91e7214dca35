"""What all lexical metrics promise, whatever they count."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cxrlab.metrics.base import Family, Tally
from cxrlab.metrics.bleu import SacreBleu
from cxrlab.metrics.coco_caption import Coco
from cxrlab.metrics.report_pairs import Batch, Pair
from cxrlab.metrics.rouge import GoogleLongest, GoogleRuns

FAMILIES: dict[str, type[Family]] = {
    "coco": Coco, "sacre": SacreBleu, "runs": GoogleRuns, "longest": GoogleLongest,
}  # fmt: skip
TEXTS = [
    ("The heart is mildly enlarged. No effusion.", "The heart is enlarged. Small effusion."),
    ("Lungs are clear. No pneumothorax is seen.", "No pneumothorax. Lungs are clear."),
    ("Stable 2.5 cm nodule in the left upper lobe.", "Nodule in the left upper lobe, unchanged."),
    ("No acute disease.", ""),
    ("", "No acute disease."),
    ("", ""),
    ("___ XXXX 🫁", "🫁"),
    ("clear", "clear"),
]


def batch_of(pairs: list[tuple[str | None, str | None]]) -> Batch:
    return Batch([Pair(str(number), reported, said) for number, (reported, said) in enumerate(pairs)])


@pytest.fixture(params=list(FAMILIES))
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]()


def test_cards_are_complete(family: Family) -> None:
    """Reproduced metrics say which oddities they keep, and what had to be decided."""
    for metric in family.metrics:
        assert metric.direction == "higher" and metric.quirk and metric.about and metric.undefined
        assert (
            metric.signature.startswith(f"{metric.name}|")
            and "tok:" in metric.signature
            and "case:" in metric.signature
        )


def test_a_pair_without_reference_is_undefined_and_changes_nothing(family: Family) -> None:
    """Its row is zero, it is counted, and the value is that of the others."""
    without, with_it = family.tallies(batch_of(TEXTS)), family.tallies(batch_of([(None, "Clear."), *TEXTS]))
    for bare, tally in zip(without, with_it, strict=True):
        assert (tally.n, tally.undefined) == (len(TEXTS), 1)
        assert not tally.rows[0].any() and math.isnan(tally.by_pair[0])
        assert tally.value == pytest.approx(bare.value, rel=1e-12)


def test_no_reference_at_all_has_no_value(family: Family) -> None:
    """Not-a-number, never 0."""
    for tally in family.tallies(batch_of([(None, "Clear."), (None, None)])):
        assert tally.n == 0 and math.isnan(tally.value)


def test_values_stay_in_range_and_empties_score_nothing(family: Family) -> None:
    """No pair crashes, none is dropped; a missing candidate counts as an empty one."""
    for tally in family.tallies(batch_of([*TEXTS, ("Clear.", None)])):
        low, high = tally.metric.range
        assert tally.n == len(TEXTS) + 1
        assert ((tally.by_pair >= low) & (tally.by_pair <= high + 1e-9)).all()
        assert tally.by_pair[[3, 4, 5, -1]] == pytest.approx(0.0, abs=1e-12)


def test_order_of_pairs_changes_no_pair(family: Family) -> None:
    """Backwards gives the same values backwards, from the same or a new instance."""
    forward, backward = family.tallies(batch_of(TEXTS)), family.tallies(batch_of(TEXTS[::-1]))
    for one, other in zip(forward, backward, strict=True):
        assert one.by_pair.tolist() == pytest.approx(other.by_pair[::-1].tolist(), rel=1e-12)
        assert one.value == pytest.approx(other.value, rel=1e-12)


def test_a_pair_alone_scores_as_in_company(family: Family) -> None:
    """Except under CIDEr, whose weights are the company's."""
    together = family.tallies(batch_of(TEXTS))
    for number, pair in enumerate(TEXTS):
        for tally, alone in zip(together, family.tallies(batch_of([pair])), strict=True):
            if tally.metric.name != "cider:coco":
                assert alone.value == pytest.approx(tally.by_pair[number], rel=1e-12, abs=1e-15)


def test_what_was_scored_before_leaves_no_trace(family: Family) -> None:
    """The texts an instance remembers change no later value: floors in any order."""
    batch = batch_of(TEXTS)
    floor = batch.with_candidates(["Normal chest."] * len(TEXTS))
    fresh = [values(type(family)().tallies(floor)), values(type(family)().tallies(batch))]
    family.tallies(batch_of(TEXTS[:3]))
    assert [values(family.tallies(floor)), values(family.tallies(batch))] == fresh


def values(tallies: list[Tally]) -> list[list[float]]:
    return [tally.rows.tolist() for tally in tallies]


def test_identity_is_what_the_card_says(family: Family) -> None:
    """Reports of four words and more score their card's identity against themselves."""
    texts = [said for _, said in TEXTS[:3]]
    for tally in family.tallies(batch_of([(text, text) for text in texts])):
        expected = tally.metric.identity
        assert expected is None or tally.value == pytest.approx(expected, abs=1e-8)


def test_long_text_and_long_words(family: Family) -> None:
    """Twenty thousand characters, as many words as can be and one that has no end."""
    long = "no effusion " * 1_700
    endless = "a" * 20_000
    for tally in family.tallies(batch_of([(long, long), (endless, endless), (long, endless), ("🫁" * 20_000, long)])):
        assert np.isfinite(tally.by_pair).all()
