from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from cxrlab.core.errors import DataError, VocabularyError
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import CHEXPERT_14, Presence
from cxrlab.metrics.base import Tally
from cxrlab.metrics.chexpert_labels import CHOICES, DEFAULT_CHOICES, ChexpertLabels, Support, count, observation_support
from cxrlab.metrics.report_pairs import Batch, Pair

CASES = json.loads((Path(__file__).parent / "cases" / "labels" / "scikit_learn.json").read_text())["cases"]
POSITIVE = ":uncertain-positive"


class Told:
    """A labeler that answers from a dictionary and counts how often it is asked."""

    name = "reported"

    def __init__(self, answers: dict[str, dict[str, int]]) -> None:
        self.answers, self.asked = answers, 0

    def label(self, reports: Sequence[str]) -> list[dict[str, int]]:
        self.asked += len(reports)
        return [self.answers[report] for report in reports]


def score(pairs: Sequence[tuple[dict[str, int], dict[str, int]]]) -> dict[str, Tally]:
    """Label metrics of pairs given by their labels."""
    answers = {f"r{k}": pair[0] for k, pair in enumerate(pairs)} | {f"c{k}": pair[1] for k, pair in enumerate(pairs)}
    family = ChexpertLabels(Told(answers))
    batch = Batch([Pair(str(k), f"r{k}", f"c{k}") for k in range(len(pairs))])
    return {tally.metric.name: tally for tally in family.tallies(batch)}


def test_f1_chexbert_reproduces_the_published_vector() -> None:
    """The label vectors that the five published report pairs imply; figures of the package's own test.

    Cell by cell they follow from its per-label precision, recall and support.
    """
    pairs = [
        ({"No Finding": 1, "Pleural Effusion": 0}, {"No Finding": 1, "Pleural Effusion": 0, "Cardiomegaly": 0}),
        ({"Cardiomegaly": 1}, {"No Finding": 1, "Cardiomegaly": 0}),
        ({"Cardiomegaly": 1, "Pneumonia": 0}, {"Edema": 1, "Atelectasis": 1}),
        ({"Consolidation": 1}, {"Consolidation": 1}),
        ({"Lung Opacity": -1, "Lung Lesion": 1}, {"Pleural Effusion": 0}),
    ]
    tallies = score(pairs)
    expected = {
        "chexpert5.exact.accuracy": 0.6,
        "chexpert14.micro.precision": 0.4,
        "chexpert14.micro.recall": 1 / 3,
        "chexpert14.micro.f1": 0.36363636363636365,
        "chexpert14.macro.precision": 0.10714285714285714,
        "chexpert14.macro.recall": 0.14285714285714285,
        "chexpert14.macro.f1": 0.11904761904761904,
        "chexpert14.weighted.precision": 0.25,
        "chexpert14.weighted.f1": 0.27777777777777773,
        "chexpert14.example.f1": 0.4,
        "chexpert5.micro.f1": 1 / 3,
        "chexpert5.macro.f1": 0.2,
        "chexpert5.weighted.f1": 1 / 3,
        "chexpert5.example.f1": 0.2,
        "chexpert.No Finding.f1": 2 / 3,
        "chexpert.Consolidation.f1": 1.0,
    }
    for name, value in expected.items():
        assert tallies[name + POSITIVE].value == pytest.approx(value, abs=1e-12), name
    np.testing.assert_array_equal(tallies["chexpert5.exact.accuracy" + POSITIVE].by_pair, [1, 0, 0, 1, 1])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_every_average_agrees_with_scikit_learn(case: dict[str, object]) -> None:
    rows = zip(case["reference"], case["candidate"], strict=True)  # type: ignore[call-overload]
    tallies = score([tuple(dict(zip(CHEXPERT_14, cells, strict=True)) for cells in pair) for pair in rows])  # type: ignore[misc]
    expected: dict[str, float] = case["expected"]  # type: ignore[assignment]
    assert len(expected) > 80
    for name, value in expected.items():
        assert tallies[name].value == pytest.approx(value, abs=1e-9), name


def test_the_three_policies_for_an_uncertain_label() -> None:
    """True -1 against claimed 1: right if uncertain is positive, false if it is negative, no cell if it is ignored."""
    tallies = score([({"Edema": -1}, {"Edema": 1}), ({"Edema": 1}, {"Edema": 1})])
    values = {p: tallies[f"chexpert.Edema.precision:uncertain-{p}"].value for p in ("positive", "negative", "ignored")}
    assert values == {"positive": 1.0, "negative": 0.5, "ignored": 1.0}
    assert tallies["chexpert.Edema.accuracy:uncertain-ignored"].rows.sum() == 1
    assert tallies["chexpert.Edema.accuracy:uncertain-negative"].rows.sum() == 2


def test_counts_of_single_cells() -> None:
    """Rows are (reference, candidate); the cell marked 9 is counted nowhere."""
    reference = np.array([[1], [0], [1], [0], [-1], [9]], np.int8)
    candidate = np.array([[1], [1], [0], [0], [-1], [1]], np.int8)
    tp, fp, fn, tn, none = [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [0, 0, 0, 0]
    assert count(reference, candidate, "positive")[:, 0].tolist() == [tp, fp, fn, tn, tp, none]
    assert count(reference, candidate, "negative")[:, 0].tolist() == [tp, fp, fn, tn, tn, none]
    assert count(reference, candidate, "ignored")[:, 0].tolist() == [tp, fp, fn, tn, none, none]


def test_macro_punishes_absent_labels_and_macro_seen_does_not() -> None:
    """One label of fourteen occurs and is right: 1/14 the usual way, 1 over the labels that occur."""
    tallies = score([({"Edema": 1}, {"Edema": 1})])
    assert tallies["chexpert14.macro.f1" + POSITIVE].value == pytest.approx(1 / 14)
    assert tallies["chexpert14.macro-seen.f1" + POSITIVE].value == 1
    assert tallies["chexpert14.macro.f1" + POSITIVE].metric.identity is None


def test_a_report_without_a_positive_label_counts_0_by_example_and_is_left_out_by_example_seen() -> None:
    tallies = score([({"Edema": 0}, {}), ({"Edema": 1}, {"Edema": 1})])
    usual, seen = tallies["chexpert14.example.f1" + POSITIVE], tallies["chexpert14.example-seen.f1" + POSITIVE]
    assert (usual.value, usual.n) == (0.5, 2)
    assert (seen.value, seen.n, seen.undefined) == (1.0, 1, 1)


def test_pairs_without_reference_are_undefined_and_empty_candidates_claim_nothing() -> None:
    """A wordless text never reaches the labeler: an empty report does not say that there is no finding."""
    reported = Told({"r": {"Edema": 1}, "c": {"Edema": 1, "No Finding": 0}})
    pairs = [
        Pair("1", "r", "c"),
        Pair("2", "r", None),
        Pair("3", "r", " ___ "),
        Pair("4", None, "c"),
        Pair("5", "", "c"),
    ]
    tallies = {tally.metric.name: tally for tally in ChexpertLabels(reported).tallies(Batch(pairs))}
    assert reported.asked == 2
    recall = tallies["chexpert14.micro.recall" + POSITIVE]
    assert (recall.value, recall.n, recall.undefined) == (pytest.approx(1 / 3), 3, 2)
    assert [bool(x) for x in recall.defined] == [True, True, True, False, False]
    assert not recall.rows[3:].any()
    assert math.isnan(tallies["chexpert14.exact.accuracy" + POSITIVE].by_pair[4])


def test_an_odd_batch_has_tallies_for_every_metric() -> None:
    family = ChexpertLabels()
    pairs = [Pair("1", "", ""), Pair("2", None, None), Pair("3", "word " * 4000, "😀"), Pair("4", "___", "XXXX")]
    tallies = family.tallies(Batch(pairs))
    assert [tally.metric for tally in tallies] == list(family.metrics)
    assert all(len(tally.rows) == 4 and np.isfinite(tally.rows).all() for tally in tallies)


def test_exact_findings_are_the_reference_and_an_open_parent_is_not_counted() -> None:
    """A consolidation implies an opacity that the list does not name: saying so is no error."""
    reported = Told({"said": {"Consolidation": 1, "Lung Opacity": 1}})
    pair = Pair("1", "said", "said", findings=(Finding("consolidation"),))
    tallies = {tally.metric.name: tally for tally in ChexpertLabels(reported).tallies(Batch([pair]))}
    assert tallies["chexpert14.micro.f1" + POSITIVE].value == 1
    assert tallies["chexpert14.micro.accuracy" + POSITIVE].rows[0].tolist() == [1, 0, 0, 12]


def test_labels_come_from_the_reader_by_default() -> None:
    """Exact findings need no reading, so the two sides can be distinguished without trusting the reader."""
    present, absent = Finding("edema"), Finding("edema", presence=Presence.ABSENT)
    pairs = [Pair("1", "x", "", findings=(present,)), Pair("2", "x", "", findings=(absent,))]
    family = ChexpertLabels()
    assert family.support(Batch(pairs))["Edema"] == Support(reference=1, candidate=0)
    assert family.support(Batch(pairs))["No Finding"] == Support(reference=1, candidate=0)
    assert "labeler:rules" in family.metrics[0].signature


def test_support_counts_positives_under_a_policy() -> None:
    reported = Told({"r": {"Edema": -1}, "c": {"Edema": 1}})
    batch = Batch([Pair("1", "r", "c"), Pair("2", "c", "r"), Pair("3", None, "c")])
    assert ChexpertLabels(reported).support(batch, "positive")["Edema"] == Support(2, 2)
    assert ChexpertLabels(reported).support(batch, "negative")["Edema"] == Support(1, 1)


def test_the_tally_of_one_observation_has_its_support() -> None:
    """Two references are positive or uncertain, and two candidates; a mean over observations has none."""
    reported = Told({"r": {"Edema": -1}, "c": {"Edema": 1}})
    batch = Batch([Pair("1", "r", "c"), Pair("2", "c", "r"), Pair("3", None, "c")])
    tallies = {tally.metric.name: tally for tally in ChexpertLabels(reported).tallies(batch)}
    assert observation_support(tallies["chexpert.Edema.f1:uncertain-positive"]) == Support(2, 2)
    assert observation_support(tallies["chexpert.Edema.f1:uncertain-negative"]) == Support(1, 1)
    assert observation_support(tallies["chexpert14.micro.f1:uncertain-positive"]) is None


def test_every_name_differs_and_the_defaults_are_few_and_known() -> None:
    family = ChexpertLabels()
    names = [metric.name for metric in family.metrics]
    assert len(names) == len(set(names)) == len(CHOICES) == 288
    assert set(family.default) < set(names) and len(family.default) == len(DEFAULT_CHOICES) == 22
    assert {"chexpert14.micro.f1:uncertain-positive", "chexpert5.macro.f1:uncertain-negative"} <= set(family.default)


def test_a_second_labeler_can_stand_beside_the_first() -> None:
    family = ChexpertLabels(Told({}), prefix="chexbert")
    assert family.default[0] == "chexbert14.micro.f1:uncertain-positive"
    assert "labeler:reported" in family.metrics[0].signature


def test_sums_of_rows_give_the_value_of_any_subset() -> None:
    """A slice or a bootstrap sample sums rows; it must equal scoring those pairs alone."""
    case = CASES[1]
    pairs = [
        tuple(dict(zip(CHEXPERT_14, cells, strict=True)) for cells in pair)
        for pair in zip(case["reference"], case["candidate"], strict=True)
    ]
    whole, part = score(pairs), score(pairs[::3])
    for name, tally in part.items():
        value = whole[name].value_of(whole[name].rows[::3].sum(axis=0))
        np.testing.assert_allclose(value, tally.value, rtol=1e-12, err_msg=name)


@pytest.mark.parametrize(
    ("labels", "error", "message"),
    [
        ({"Edema": 2}, DataError, "gave 2 for 'Edema'"),
        ({"Oedema": 1}, VocabularyError, "Did you mean 'Edema'"),
    ],
)
def test_a_labeler_that_answers_nonsense_is_named(labels: dict[str, int], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ChexpertLabels(Told({"a": labels})).tallies(Batch([Pair("1", "a", "a")]))


def test_a_labeler_that_loses_a_report_is_refused() -> None:
    class Short(Told):
        def label(self, reports: Sequence[str]) -> list[dict[str, int]]:
            return []

    with pytest.raises(DataError, match="answered 0 times for 1 reports"):
        ChexpertLabels(Short({})).tallies(Batch([Pair("1", "a", "a")]))
