"""What becomes of a pair before any metric looks at it."""

from __future__ import annotations

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.records import Finding
from cxrlab.metrics.base import ready
from cxrlab.metrics.report_pairs import Batch, Pair, Status, wordless

OURS = ("findings", "errors", "rules", "chexpert")


@pytest.mark.parametrize(
    ("reference", "candidate", "status"),
    [
        ("Edema.", "Edema.", Status.SCORED),
        (None, "Edema.", Status.NO_REFERENCE),
        (None, None, Status.NO_REFERENCE),
        ("Edema.", None, Status.MISSING_CANDIDATE),
        ("___", "Edema.", Status.EMPTY_REFERENCE),
        ("Edema.", " ", Status.EMPTY_CANDIDATE),
        ("XXXX", "", Status.BOTH_EMPTY),
    ],
)
def test_every_pair_has_a_status(reference: str | None, candidate: str | None, status: Status) -> None:
    assert Pair("a", reference, candidate).status is status


def test_masks_and_signs_are_no_words() -> None:
    assert all(map(wordless, ("", " \n", "___", "XXXX XXXX", "...", "😀"))) and not wordless("5")


@pytest.mark.parametrize("candidate", ["", None, "___", "Edema."])
@pytest.mark.parametrize("reference", ["", "___", None])
@pytest.mark.parametrize("family", OURS)
def test_a_reference_without_a_word_has_no_value_whatever_the_candidate(
    family: str, reference: str | None, candidate: str | None
) -> None:
    """Nothing was said, so nothing can be right; two empty texts are not a perfect report."""
    for tally in ready()[family].tallies(Batch([Pair("a", reference, candidate), Pair("b", "Edema.", "Edema.")])):
        assert not tally.defined[0], tally.metric.name


@pytest.mark.parametrize("family", ["findings", "errors", "rules"])
def test_exact_findings_are_a_reference_even_where_the_text_is_empty(family: str) -> None:
    pairs = [Pair("a", "", "Pulmonary edema.", findings=(Finding("edema"),)), Pair("b", "", "", findings=())]
    for tally in ready()[family].tallies(Batch(pairs)):
        assert tally.n == 2, tally.metric.name
        if tally.metric.identity is not None:
            assert tally.by_pair[0] == tally.metric.identity, tally.metric.name


def test_silence_about_a_image_that_is_known_to_be_normal_is_no_report() -> None:
    """The exact list of a normal image is empty; saying nothing makes no error and earns nothing."""
    batch = Batch([Pair("a", "", "", findings=()), Pair("b", "", "The lungs are clear.", findings=())])
    for tally in ready()["rules"].tallies(batch):
        assert tally.by_pair.tolist() == [0, 1], tally.metric.name


def test_no_pair_is_nothing_to_score() -> None:
    with pytest.raises(DataError, match="nothing to score"):
        Batch([])


def test_a_text_is_read_once_for_all_batches_of_the_same_references() -> None:
    batch = Batch([Pair("a", "Edema.", "Clear lungs.")])
    other = batch.with_candidates(["Edema."])
    assert other.read("Edema.") is batch.read("Edema.") and other.references == batch.references
