"""ROUGE as rouge-score has it, against the package."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer

from cxrlab.findings.narrator import narrate
from cxrlab.findings.simulated_patients import draw_patient
from cxrlab.metrics.report_pairs import Batch, Pair
from cxrlab.metrics.rouge import GoogleLongest, GoogleRuns, GoogleUnstemmed

NAMES = ("rouge1", "rouge2", "rougeL")
SCORER = RougeScorer(list(NAMES), use_stemmer=True)
REPORT = st.lists(
    st.sampled_from(["no", "No", "effusions.", "effusion", "enlarged", "enlarging", "1.5", "é", "🫁", "\n", "the"]),
    max_size=70,
).map(" ".join)


def ours(pairs: list[tuple[str, str]]) -> dict[str, list[float]]:
    batch = Batch([Pair(str(n), reported, said) for n, (reported, said) in enumerate(pairs)])
    tallies = [*GoogleRuns().tallies(batch), *GoogleLongest().tallies(batch)]
    return {name: tally.by_pair.tolist() for name, tally in zip(NAMES, tallies, strict=True)}


def theirs(pairs: list[tuple[str, str]]) -> dict[str, list[float]]:
    scores = [SCORER.score(reported, said) for reported, said in pairs]
    return {name: [score[name].fmeasure for score in scores] for name in NAMES}


def test_narrated_reports_equal_the_package_to_the_last_digit() -> None:
    """One visit reported twice: hundreds of words a pair, shared in part."""
    visits = [visit for number in range(25) for visit in draw_patient(2, f"p{number}").visits]
    pairs = [(narrate(v, 2, "a").report.findings or "", narrate(v, 2, "b").report.findings or "") for v in visits]
    assert len(pairs) > 25 and ours(pairs) == theirs(pairs)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(REPORT, REPORT), min_size=1, max_size=3))
def test_any_text_equals_the_package(pairs: list[tuple[str, str]]) -> None:
    """Empty, one word, symbols alone, more than 64 words."""
    assert ours(pairs) == theirs(pairs)


def test_published_two_pairs() -> None:
    """RadEval's example: ROUGE-1 0.7727, ROUGE-2 0.65, ROUGE-L 0.7727 as means."""
    reported = "Mild cardiomegaly with small bilateral pleural effusions and basilar atelectasis."
    said = "Mildly enlarged cardiac silhouette with small pleural effusions and dependent bibasilar atelectasis."
    same = "No pleural effusions or pneumothoraces."
    values = ours([(reported, said), (same, same)])
    assert values["rouge2"] == pytest.approx([0.3, 1.0])
    assert values["rouge1"] == values["rougeL"] == [0.5454545454545454, 1.0]


def test_text_without_a_word_scores_nothing() -> None:
    """The published value, also of `...` against itself."""
    assert ours([("...", "..."), ("", ""), ("a", ""), ("", "a")]) == {name: [0.0] * 4 for name in NAMES}


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(REPORT, REPORT), min_size=1, max_size=3))
def test_without_stemming_any_text_equals_the_package(pairs: list[tuple[str, str]]) -> None:
    batch = Batch([Pair(str(n), reported, said) for n, (reported, said) in enumerate(pairs)])
    scorer = RougeScorer(["rouge2", "rougeL"], use_stemmer=False)
    scores = [scorer.score(reported, said) for reported, said in pairs]
    for name, tally in zip(("rouge2", "rougeL"), GoogleUnstemmed().tallies(batch), strict=True):
        assert tally.metric.name == f"{name}:google-unstemmed"
        assert tally.by_pair.tolist() == [score[name].fmeasure for score in scores]


def test_stemming_is_the_difference() -> None:
    """ "effusions" and "effusion" agree only as stems; a missing reference has no value either way."""
    batch = Batch([Pair("1", "effusions", "effusion"), Pair("2", None, "effusion")])
    values = [
        tally.by_pair.tolist() for tally in (GoogleLongest().tallies(batch)[0], GoogleUnstemmed().tallies(batch)[1])
    ]
    assert [one[0] for one in values] == [1.0, 0.0] and all(one[1] != one[1] for one in values)
