"""The three scores on comparisons that can be worked out on paper."""

from __future__ import annotations

import pytest
from compared_findings import compare_findings

from cxrlab.core.records import Finding
from cxrlab.metrics.base import cards, default_names
from cxrlab.metrics.finding_scores import PublishedGreenRules, RuleScores, clinical, crimson, green, green_score
from cxrlab.metrics.report_pairs import Batch, Pair

ACUTE = [Finding("pleural effusion", side="left", severity="mild"), Finding("edema", severity="mild")]


@pytest.mark.parametrize("score", [green, crimson, clinical])
@pytest.mark.parametrize("reported", [[], ACUTE, [Finding("granuloma")], [Finding("edema", "absent")]])
def test_a_report_against_itself_scores_one(score, reported) -> None:  # type: ignore[no-untyped-def]
    assert score(compare_findings(reported, reported)) == 1


def test_green_is_matched_over_matched_and_significant_errors() -> None:
    """One of two actionable findings is named, one is missed: 1 / (1 + 1)."""
    assert green(compare_findings(ACUTE, ACUTE[:1])) == 0.5
    assert green(compare_findings([], ACUTE)) == 0


@pytest.mark.parametrize(
    ("significant", "matched", "expected"),
    [
        ((2, 3, 0, 1, 0, 0), 0, 0),
        ((2, 1, 2, 0, 0, 0), 1, 1 / 6),
        ((0, 2, 1, 1, 0, 0), 2, 1 / 3),
        ((1, 0, 0, 0, 0, 0), 1, 1 / 2),
        ((1, 0, 1, 1, 0, 0), 1, 1 / 4),
        ((0, 0, 0, 0, 0, 0), 0, 0),
    ],
)
def test_green_score_gives_the_five_published_values(
    significant: tuple[int, ...], matched: int, expected: float
) -> None:
    """The counts of its authors' five completions, and its 0 where nothing matched and nothing is wrong."""
    assert green_score(matched, significant) == pytest.approx(expected)


def test_the_published_value_of_two_normal_reports_is_a_metric_of_its_own() -> None:
    """Both are the same but for 0 where nothing is matched; it is counted where it is asked for alone."""
    told = "Small left pleural effusion. No pneumothorax."
    texts = {
        "a": (told, told),
        "b": ("The lungs are clear.", "The lungs are clear."),
        "c": (told, "Clear."),
        "d": (None, told),
    }
    batch = Batch([Pair(name, *each) for name, each in texts.items()])
    plain = next(tally for tally in RuleScores().tallies(batch) if tally.metric.name == "green:rules")
    (published,) = PublishedGreenRules().tallies(batch)
    assert plain.by_pair[:3].tolist() == [1, 1, 0] and published.by_pair[:3].tolist() == [1, 0, 0]
    assert published.n == 3 and "nothing-to-match:0" in published.metric.signature
    assert published.metric.name in cards() and published.metric.name not in default_names()


def test_green_by_rule_differs_from_the_published_one_only_where_both_reports_are_normal() -> None:
    assert green(compare_findings([], [])) == 1 and green_score(0, []) == 0
    wrong = compare_findings(ACUTE, [ACUTE[0], Finding("pneumothorax")])
    assert green(wrong) == green_score(1, [1, 1]) == pytest.approx(1 / 3)


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


def test_crimson_counts_a_vaguer_name_as_a_slip_by_what_it_lacks() -> None:
    """Opacity for pneumonia, credit 0.6: worth 0.5, off 0.5 · 0.4, so 0.5 / 0.7 of it is right."""
    assert crimson(compare_findings([Finding("pneumonia")], [Finding("lung opacity")])) == pytest.approx(5 / 7)


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
def test_a_candidate_that_says_nothing_of_the_image_earns_nothing(said: str) -> None:
    """Against a normal reference it makes no error; it is no report either."""
    batch = Batch([Pair("a", "The lungs are clear. No pleural effusion.", said)])
    assert [tally.value for tally in RuleScores().tallies(batch)] == [0, 0, 0]


def test_a_normal_report_against_a_normal_reference_is_right() -> None:
    batch = Batch([Pair("a", "The lungs are clear. No pleural effusion.", "Normal heart size. Clear lungs.")])
    assert [tally.value for tally in RuleScores().tallies(batch)] == [1, 1, 1]


def test_an_explanation_read_into_an_opacity_costs_and_more_of_them_cost_more() -> None:
    """0.2 + 0.5 right; each certain extra of weight 0.5 (0.25) and credit 0.6 costs 0.5 · 0.4 of it."""
    opacity, pneumonia, collapse = Finding("lung opacity"), Finding("pneumonia"), Finding("atelectasis")
    alone, one, two = (
        clinical(compare_findings([opacity], said))
        for said in ([opacity], [opacity, pneumonia], [opacity, pneumonia, collapse])
    )
    assert alone == 1 and one == pytest.approx(0.7 / 0.8) and two == pytest.approx(0.7 / 0.85)


def test_the_cause_says_the_sign_but_the_sign_does_not_say_the_cause() -> None:
    both = [Finding("lung opacity"), Finding("pneumonia")]
    assert clinical(compare_findings(both, both[1:])) == 1 > clinical(compare_findings(both, both[:1]))


def test_naming_a_neighbour_is_better_than_saying_nothing_and_worse_than_the_thing() -> None:
    """Mass and opacity, credit 0.4: 0.36 of either weight of 0.5 is lost, against 0.5 for silence."""
    mass, opacity = [Finding("mass")], [Finding("lung opacity")]
    assert clinical(compare_findings(mass, [])) == pytest.approx(0.2 / 0.7)
    assert clinical(compare_findings(mass, opacity)) == pytest.approx(0.2 / 0.56)


def test_a_change_left_out_costs_less_than_one_that_points_the_wrong_way() -> None:
    """Off by 0.25 and by 0.5 on a weight of 0.5: a third and a half of it are lost."""
    worse = [Finding("pleural effusion", change="increased")]
    said = [[Finding("pleural effusion")], [Finding("pleural effusion", change="decreased")]]
    left_out, reversed_ = (clinical(compare_findings(worse, candidate)) for candidate in said)
    assert left_out == pytest.approx((0.2 + 0.5 / 1.5) / 0.7) and reversed_ == pytest.approx(0.45 / 0.7)


def test_a_graver_name_costs_what_it_claims_beyond_the_thing() -> None:
    """Credit 0.5 on 0.05: 0.025 is right and wrong; half of the further 0.95 is invented. Silence loses 0.05."""
    aorta, aneurysm = [Finding("tortuous aorta")], [Finding("aortic aneurysm")]
    assert clinical(compare_findings(aorta, aneurysm)) == pytest.approx(0.225 / (0.25 + 0.475))
    assert clinical(compare_findings(aorta, [])) == pytest.approx(0.2 / 0.25)


def test_what_is_unchanged_weighs_three_quarters() -> None:
    stable, new = (Finding("edema", change=change) for change in ("unchanged", "new"))
    assert clinical(compare_findings([stable], [])) == pytest.approx(0.2 / 0.575)
    assert clinical(compare_findings([new], [])) == pytest.approx(0.2 / 0.7)


def test_a_wrong_place_costs_more_than_one_left_out() -> None:
    at = lambda place: [Finding("nodule", side="left", location=place)]  # noqa: E731
    scores = [clinical(compare_findings(at("lower lobe"), at(place))) for place in ("lower lobe", None, "upper lobe")]
    assert scores == sorted(scores, reverse=True) and len(set(scores)) == 3
