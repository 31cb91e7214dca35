"""BLEU as sacreBLEU has it, against the package."""

from __future__ import annotations

import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from cxrlab.metrics.base import Tally
from cxrlab.metrics.bleu import SacreBleu
from cxrlab.metrics.report_pairs import Batch, Pair

REPORT = st.lists(
    st.sampled_from(["No", "no", "effusion.", "effusion", "left,", "2.5", "cm", "(new)", "3-4", "x-ray", "&amp;", ""]),
    max_size=12,
).map(" ".join)


def tally(references: list[str], candidates: list[str]) -> Tally:
    pairs = zip(references, candidates, strict=True)
    return SacreBleu().tallies(Batch([Pair(str(n), reported, said) for n, (reported, said) in enumerate(pairs)]))[0]


def theirs(references: list[str], candidates: list[str]) -> float:
    return float(sacrebleu.corpus_bleu(candidates, [references], force=True).score) / 100


def test_published_value() -> None:
    """Two pairs, one of them identical: 35.49481056010054 on sacreBLEU's scale."""
    references = [
        "No acute cardiopulmonary process.",
        "Mild cardiomegaly with small bilateral pleural effusions and basilar atelectasis.",
    ]
    candidates = [
        "No acute cardiopulmonary process.",
        "Mildly enlarged cardiac silhouette with small pleural effusions and dependent bibasilar atelectasis.",
    ]
    assert tally(references, candidates).value == pytest.approx(0.3549481056010054, rel=1e-12)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(REPORT, REPORT), min_size=1, max_size=5))
def test_equals_the_package(pairs: list[tuple[str, str]]) -> None:
    """The corpus, and each pair as a corpus of its own."""
    references, candidates = [reported for reported, _ in pairs], [said for _, said in pairs]
    ours = tally(references, candidates)
    assert ours.value == pytest.approx(theirs(references, candidates), abs=1e-12)
    alone = [theirs([reported], [said]) for reported, said in pairs]
    assert ours.by_pair.tolist() == pytest.approx(alone, abs=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(REPORT, REPORT), min_size=1, max_size=5))
def test_single_words_equal_the_package(pairs: list[tuple[str, str]]) -> None:
    """As LLaVA-Rad's released evaluator calls it for BLEU-1."""
    batch = Batch([Pair(str(n), reported, said) for n, (reported, said) in enumerate(pairs)])
    (ours,) = (one for one in SacreBleu().tallies(batch) if one.metric.name == "bleu1:sacre")
    scorer = sacrebleu.BLEU(max_ngram_order=1, force=True)
    whole = scorer.corpus_score([said for _, said in pairs], [[reported for reported, _ in pairs]]).score / 100
    assert ours.value == pytest.approx(whole, abs=1e-12)


def test_case_counts() -> None:
    """Unlike the other lexical metrics."""
    assert tally(["No new left effusion"], ["no new left effusion"]).value < 1.0
