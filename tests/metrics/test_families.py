"""Every family of the table keeps the promises of its cards."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cxrlab.core.errors import UnknownName
from cxrlab.metrics.base import FAMILIES, cards, default_names, families, metric_names, ready
from cxrlab.metrics.report_pairs import Batch, Pair

TEXTS = (
    "Small left pleural effusion with adjacent atelectasis. The heart is mildly enlarged. No pneumothorax is seen.",
    "The lungs are clear. Heart size is normal. There is no pleural effusion or pneumothorax on this examination.",
    "Endotracheal tube tip 4 cm above the carina. Moderate pulmonary edema has worsened since the prior film.",
    "A 12 mm nodule projects over the right upper lobe. Acute fracture of the left seventh rib, not displaced.",
)
ODD = ("", " ", "___", "XXXX", "😀", "no", "Effusion.", "word " * 4000)


def _batch(texts, candidates=None):  # type: ignore[no-untyped-def]
    said = texts if candidates is None else candidates
    return Batch([Pair(f"s{k}", a, b, f"p{k}") for k, (a, b) in enumerate(zip(texts, said, strict=True))])


@pytest.mark.parametrize("name", FAMILIES.names())
def test_identity_range_and_definition_are_as_the_card_says(name: str) -> None:
    for tally in ready()[name].tallies(_batch(TEXTS)):
        low, high = tally.metric.range
        assert low <= tally.value <= high or math.isnan(tally.value), tally.metric.name
        # A label that none of the texts names has no value, and its card says so.
        nothing = math.isnan(tally.value) and (tally.n == 0 or "no value where" in tally.metric.undefined)
        if tally.metric.identity is not None and not nothing:
            assert tally.value == pytest.approx(tally.metric.identity, abs=1e-6), tally.metric.name


@pytest.mark.parametrize("name", FAMILIES.names())
def test_any_text_has_a_value_or_none_and_no_pair_is_lost(name: str) -> None:
    references = [a for a in (*ODD, *TEXTS[:1]) for _ in ODD]
    candidates = list(ODD) * (len(ODD) + 1)
    for tally in ready()[name].tallies(_batch(references, candidates)):
        assert tally.rows.shape[0] == len(references) == tally.n + tally.undefined
        assert np.isfinite(tally.rows).all() and (tally.rows[~tally.defined] == 0).all()


@pytest.mark.parametrize("name", FAMILIES.names())
def test_a_pair_without_a_reference_has_no_value(name: str) -> None:
    batch = Batch([Pair("a", None, "Edema."), Pair("b", "Edema.", None)])
    for tally in ready()[name].tallies(batch):
        assert list(tally.defined)[0] is np.False_ or not tally.defined[0], tally.metric.name


@pytest.mark.parametrize("name", [name for name in FAMILIES.names() if name != "coco"])
def test_order_and_batch_never_change_a_score(name: str) -> None:
    family = ready()[name]
    whole = family.tallies(_batch(TEXTS, TEXTS[1:] + TEXTS[:1]))
    turned = family.tallies(_batch(TEXTS[::-1], (TEXTS[1:] + TEXTS[:1])[::-1]))
    for one, other in zip(whole, turned, strict=True):
        assert np.array_equal(one.rows, other.rows[::-1]), one.metric.name
    alone = family.tallies(_batch(TEXTS[2:3], TEXTS[3:]))
    for one, other in zip(whole, alone, strict=True):
        assert np.array_equal(one.rows[2], other.rows[0]), one.metric.name


def test_every_signature_is_its_own_and_begins_with_the_name() -> None:
    signatures = [card.signature for card in cards().values()]
    assert len(set(signatures)) == len(signatures)
    assert all(card.signature.startswith(f"{name}|") and card.undefined for name, card in cards().items())


def test_names_patterns_families_and_all() -> None:
    assert metric_names(["bleu?:coco"]) == ("bleu1:coco", "bleu2:coco", "bleu3:coco", "bleu4:coco")
    assert set(metric_names(["rules"])) == {"green:rules", "crimson:rules", "clinical:rules"}
    assert metric_names(["all"]) == tuple(cards())
    assert metric_names() == default_names() and set(default_names()) <= set(cards())
    assert [type(family).__name__ for family in families(["findings.f1"])] == ["FindingsF1"]


def test_a_wrong_name_gets_the_nearest() -> None:
    with pytest.raises(UnknownName, match="findings.f1"):
        metric_names(["finding.f1"])
