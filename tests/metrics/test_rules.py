"""The three scores on comparisons that can be worked out on paper."""

from __future__ import annotations

import pytest

from cxrlab.core.records import Finding
from cxrlab.metrics.comparison import compare_findings
from cxrlab.metrics.pairs import Batch, Pair
from cxrlab.metrics.rules import RuleScores, clinical, crimson, green

ACUTE = [Finding("pleural effusion", side="left", severity="mild"), Finding("edema", severity="mild")]


@pytest.mark.parametrize("score", [green, crimson, clinical])
@pytest.mark.parametrize("told", [[], ACUTE, [Finding("granuloma")], [Finding("edema", "absent")]])
def test_a_report_against_itself_scores_one(score, told) -> None:  # type: ignore[no-untyped-def]
    assert score(compare_findings(told, told)) == 1


def test_green_is_matched_over_matched_and_significant_errors() -> None:
    """One of two actionable findings is named, one is missed: 1 / (1 + 1)."""
    assert green(compare_findings(ACUTE, ACUTE[:1])) == 0.5
    assert green(compare_findings([], ACUTE)) == 0


def test_green_passes_over_what_does_not_matter() -> None:
    assert green(compare_findings(ACUTE, [*ACUTE, Finding("scoliosis")])) == 1


def test_crimson_gives_the_published_gallery() -> None:
    """Its authors' rows: an effusion made up −1/3, mild edema called severe 1/2, another finding instead −1/3."""
    effusion = Finding("pleural effusion")
    assert crimson(compare_findings([Finding("pleural effusion", "absent")], [effusion])) == pytest.approx(-1 / 3)
    mild, severe = Finding("edema", severity="mild"), Finding("edema", severity="severe")
    assert crimson(compare_findings([mild], [severe])) == pytest.approx(0.5)
    atelectasis = Finding("atelectasis", change="unchanged")
    consolidation = Finding("consolidation", side="right", location="lower lobe", change="new")
    assert crimson(compare_findings([atelectasis], [consolidation])) == pytest.approx(-1 / 3)


def test_clinical_falls_with_every_error_and_more_with_a_graver_one() -> None:
    right = clinical(compare_findings(ACUTE, ACUTE))
    trivial = clinical(compare_findings(ACUTE, [*ACUTE, Finding("tortuous aorta")]))
    grave = clinical(compare_findings(ACUTE, [*ACUTE, Finding("pneumothorax")]))
    both = clinical(compare_findings(ACUTE, [*ACUTE, Finding("pneumothorax"), Finding("tortuous aorta")]))
    assert right > trivial > grave > both > 0


def test_clinical_gives_part_of_the_credit_for_a_related_word() -> None:
    pneumonia = [Finding("pneumonia", side="right", location="lower lobe")]
    opacity = [Finding("lung opacity", side="right", location="lower lobe")]
    silent, vague, right = (clinical(compare_findings(pneumonia, said)) for said in ([], opacity, pneumonia))
    assert silent < vague < right


@pytest.mark.parametrize("said", ["", "___", "the the the the", "The ferry leaves at seven."])
def test_a_candidate_that_says_nothing_of_the_film_earns_nothing(said: str) -> None:
    """Against a normal reference it makes no error; it is no report either."""
    batch = Batch([Pair("a", "The lungs are clear. No pleural effusion.", said)])
    assert [tally.value for tally in RuleScores().tallies(batch)] == [0, 0, 0]


def test_a_normal_report_against_a_normal_reference_is_right() -> None:
    batch = Batch([Pair("a", "The lungs are clear. No pleural effusion.", "Normal heart size. Clear lungs.")])
    assert [tally.value for tally in RuleScores().tallies(batch)] == [1, 1, 1]
