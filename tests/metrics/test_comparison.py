"""Two lists of findings, compared: each rule by a case that a person can check."""

from __future__ import annotations

from typing import Any

from compared_findings import compare_findings

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import ErrorKind, Presence
from cxrlab.metrics.finding_scores import ErrorCounts
from cxrlab.metrics.report_pairs import Batch, Context, Pair


def kinds(reference: list[Finding], candidate: list[Finding], **context: Any) -> list[tuple[str, bool]]:
    compared = compare_findings(reference, candidate, Context(**context))
    return [(error.kind.value, error.significant) for error in compared.errors]


def effusion(**attributes: Any) -> Finding:
    return Finding("pleural effusion", **attributes)


def test_a_report_against_itself_has_no_error_and_matches_all() -> None:
    reported = [
        effusion(side="left", severity="mild", change="new"),
        Finding("edema"),
        Finding("pneumothorax", "absent"),
    ]
    same = compare_findings(reported, reported)
    assert not same.errors and len(same.matches) == 2 and all(match.credit == 1 for match in same.matches)


def test_an_invented_pneumothorax_is_significant_and_an_invented_granuloma_is_not() -> None:
    assert kinds([], [Finding("pneumothorax")]) == [("false_positive_finding", True)]
    assert kinds([], [Finding("granuloma")]) == [("false_positive_finding", False)]


def test_an_omission_points_into_the_reference_only() -> None:
    (error,) = compare_findings([effusion(span=(3, 9))], []).errors
    assert (error.kind, error.reference_span, error.candidate_span) == (ErrorKind.OMITTED_FINDING, (3, 9), None)


def test_a_denied_finding_points_at_the_denial() -> None:
    (error,) = compare_findings([effusion(span=(3, 9))], [effusion(presence=Presence.ABSENT, span=(0, 11))]).errors
    assert (error.kind, error.candidate_span) == (ErrorKind.OMITTED_FINDING, (0, 11))


def test_the_other_side_is_one_significant_error_of_place() -> None:
    assert kinds([effusion(side="left")], [effusion(side="right")]) == [("incorrect_location", True)]


def test_another_zone_is_a_lesser_error_and_a_neighbouring_word_none() -> None:
    at = lambda place: [Finding("consolidation", side="left", location=place)]  # noqa: E731
    assert kinds(at("upper zone"), at("base")) == [("incorrect_location", False)]
    assert kinds(at("lower lobe"), at("base")) == []


def test_leaving_out_a_side_or_a_degree_is_not_wrong() -> None:
    assert kinds([effusion(side="left", severity="mild")], [effusion()]) == []
    assert kinds([effusion()], [effusion(side="left", severity="mild")]) == []


def test_a_degree_two_steps_off_is_significant_and_one_step_is_not() -> None:
    assert kinds([effusion(severity="mild")], [effusion(severity="severe")]) == [("incorrect_severity", True)]
    assert kinds([effusion(severity="mild")], [effusion(severity="moderate")]) == [("incorrect_severity", False)]


def test_sizes_within_reading_error_agree() -> None:
    """A quarter of the size or two millimetres, whichever is more: 3 and 8 mm are two nodules, 3 and 5 may be one."""
    mass = lambda size: [Finding("mass", size_mm=size)]  # noqa: E731
    assert kinds(mass(32), mass(34)) == kinds(mass(3), mass(5)) == kinds(mass(40), mass(50)) == []
    assert kinds(mass(50), mass(20)) == kinds(mass(3), mass(8)) == [("incorrect_severity", True)]
    assert kinds(mass(10), mass(14)) == [("incorrect_severity", False)]


def test_no_size_of_something_benign_is_significant() -> None:
    scar = lambda size: [Finding("granuloma", size_mm=size)]  # noqa: E731
    assert kinds(scar(6), scar(18)) == [("incorrect_severity", False)]


def test_a_made_up_comparison_and_a_missing_one_are_different_kinds() -> None:
    assert kinds([effusion()], [effusion(change="increased")]) == [("false_positive_comparison", True)]
    assert kinds([effusion(change="increased")], [effusion()]) == [("omission_comparison", True)]
    assert kinds([effusion(change="unchanged")], [effusion()]) == [("omission_comparison", False)]


def test_worse_and_new_point_the_same_way() -> None:
    assert kinds([effusion(change="new")], [effusion(change="increased")]) == []
    assert kinds([effusion(change="increased")], [effusion(change="decreased")]) == [
        ("false_positive_comparison", True)
    ]


def test_a_resolution_left_out_is_an_omitted_comparison() -> None:
    gone = effusion(presence="absent", change="resolved")
    assert kinds([gone], [effusion(presence="absent")]) == [("omission_comparison", True)]
    assert kinds([gone], [gone]) == []


def test_a_misplaced_tube_is_significant() -> None:
    tube = lambda tip: [Finding("endotracheal tube", tip=tip)]  # noqa: E731
    assert kinds(tube("right main bronchus"), tube("above carina")) == [("incorrect_location", True)]


def test_a_misplaced_tip_is_not_passed_over_and_a_good_one_may_be() -> None:
    tube = lambda tip: [Finding("endotracheal tube", tip=tip)]  # noqa: E731
    assert kinds(tube("right main bronchus"), tube(None)) == [("incorrect_location", True)]
    assert kinds(tube(None), tube("right main bronchus")) == [("incorrect_location", True)]
    assert kinds(tube("above carina"), tube(None)) == [] == kinds(tube(None), tube("above carina"))


def test_two_good_tips_differ_a_little_and_a_tube_beyond_the_image_is_in_the_stomach() -> None:
    line = lambda tip: [Finding("central venous catheter", tip=tip)]  # noqa: E731
    assert kinds(line("superior vena cava"), line("cavoatrial junction")) == [("incorrect_location", False)]
    tube = lambda tip: [Finding("enteric tube", tip=tip)]  # noqa: E731
    assert kinds(tube("stomach"), tube("beyond image")) == []


def test_a_tube_height_two_centimetres_off_is_wrong_and_significant_where_one_of_them_is_unsafe() -> None:
    tube = lambda height: [Finding("endotracheal tube", tip="above carina", tip_mm=height)]  # noqa: E731
    assert kinds(tube(50), tube(35)) == []
    assert kinds(tube(60), tube(35)) == [("incorrect_location", False)]
    assert kinds(tube(40), tube(5)) == [("incorrect_location", True)]


def test_a_related_word_stands_for_the_thing_and_is_neither_missing_nor_invented() -> None:
    compared = compare_findings([Finding("pneumonia", side="right")], [Finding("lung opacity", side="right")])
    assert not compared.errors and 0 < compared.matches[0].credit < 1


def test_a_related_word_on_the_other_side_is_another_thing() -> None:
    reported = kinds([Finding("pneumonia", side="right")], [Finding("lung opacity", side="left")])
    assert sorted(reported) == [("false_positive_finding", True), ("omission_finding", True)]


def test_explanations_of_one_opacity_are_echoes_of_it() -> None:
    reference = [
        Finding("lung opacity", side="left", location="base"),
        Finding("atelectasis", certainty="possible", side="left", location="base"),
    ]
    assert kinds(reference, [Finding("lung opacity", side="left", location="base")]) == []
    assert kinds([reference[0]], reference) == []


def test_both_sides_told_one_by_one_are_both_sides() -> None:
    assert kinds([effusion(side="bilateral")], [effusion(side="left"), effusion(side="right")]) == []


def test_the_patients_age_decides_what_a_calcified_aorta_means() -> None:
    aorta = [Finding("aortic calcification")]
    assert kinds(aorta, [], age=25) == [("omission_finding", True)]
    assert kinds(aorta, [], age=82) == [("omission_finding", False)]


def test_one_side_told_again_is_an_echo_of_both() -> None:
    reference = [effusion(side="bilateral", change="unchanged"), effusion(side="right", change="increased")]
    assert kinds(reference, [effusion(side="bilateral", change="unchanged")]) == []


def test_leads_on_the_skin_make_no_report_better_or_worse() -> None:
    assert kinds([], [Finding("monitoring leads")]) == [] == kinds([Finding("monitoring leads")], [])


def test_what_was_asked_for_matters_one_class_more() -> None:
    line = [Finding("central venous catheter")]
    assert kinds(line, []) == [("omission_finding", False)]
    assert kinds(line, [], indication="Line placement") == [("omission_finding", True)]
    assert kinds([], line, indication="Line placement") == [("false_positive_finding", False)]


def test_tiny_and_small_are_one_degree() -> None:
    assert kinds([effusion(severity="trace")], [effusion(severity="mild")]) == []


def test_two_things_are_not_one_in_two_words() -> None:
    """A wide mediastinum is not said by a large heart, nor are metastases by the mass."""
    heart, mediastinum = Finding("cardiomegaly"), Finding("enlarged cardiomediastinum")
    assert kinds([heart, mediastinum], [heart]) == [("omission_finding", True)]
    assert kinds([Finding("mass")], [Finding("mass"), Finding("nodule")]) == [("false_positive_finding", True)]
    # Where each report has one word, the one stands for the other all the same.
    assert kinds([heart], [mediastinum]) == []


def counts(reference: str, candidate: str) -> dict[str, float]:
    tallies = ErrorCounts().tallies(Batch([Pair("a", reference, candidate)]))
    cells = [
        tally for tally in tallies if tally.metric.name.endswith("significant") and tally.metric.name.count(".") == 2
    ]
    return {tally.metric.name: tally.value for tally in cells}


def test_the_two_published_pairs_of_chexprompt() -> None:
    """A severe cardiomegaly made up is one significant false finding and nothing else; other words are no error."""
    found = counts(
        "The heart size is normal. The lungs are clear.", "There is severe cardiomegaly. The lungs are clear."
    )
    assert len(found) == 12 and found.pop("errors.false_positive_finding.significant") == 1
    assert not any(found.values())
    same = counts("There is pleural effusion.", "Evidence of pleural effusion.")
    assert len(same) == 12 and not any(same.values())
