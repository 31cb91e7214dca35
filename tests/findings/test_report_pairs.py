from collections import Counter
from dataclasses import replace

import pytest

from cxrlab.core.errors import DataError
from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Change, ErrorKind, Severity, Side
from cxrlab.findings.disease_models import mutually_exclusive
from cxrlab.findings.planted_errors import MOST_MISTAKES, Plan, PlantedError, apply, draw_error_plan, mistaken
from cxrlab.findings.relatedness import relatedness

CASES = 400


@pytest.fixture(scope="module")
def drawn(visits):
    """Visits of all kinds, with the reports and plans of their names."""
    return [(visit, mistaken(visit, 9, f"c{number}")) for number, visit in enumerate(visits[:CASES])]


def bare(findings, count):
    """The visit's own findings of a narration, without spans; the stated negatives come after them."""
    return [replace(finding, span=None) for finding in findings[:count]]


def independent_count(reference, candidate):
    """The six counts from two exact lists, written without the code under test.

    Identical findings cancel. Of the rest, those of one observation on both sides are the same thing told
    differently, and the first attribute that differs names the kind; whatever stands alone was left out or added.
    """
    left, right = Counter(reference) - Counter(candidate), Counter(candidate) - Counter(reference)
    found = Counter()
    for was in list(left):
        reported = next((f for f in right if f.observation == was.observation), None)
        if reported is None:
            found[ErrorKind.OMITTED_FINDING if was.present else ErrorKind.OMITTED_COMPARISON] += 1
            continue
        del right[reported]
        if (was.side, was.location, was.tip) != (reported.side, reported.location, reported.tip):
            found[ErrorKind.WRONG_LOCATION] += 1
        elif (was.severity, was.size_mm) != (reported.severity, reported.size_mm):
            found[ErrorKind.WRONG_SEVERITY] += 1
        else:
            found[ErrorKind.OMITTED_COMPARISON if reported.change is None else ErrorKind.FALSE_COMPARISON] += 1
    for reported in right:
        found[ErrorKind.FALSE_FINDING if reported.present else ErrorKind.FALSE_COMPARISON] += 1
    return found


def test_the_plan_is_exactly_the_difference_of_the_two_lists(drawn):
    for number, (visit, case) in enumerate(drawn):
        # The visit's findings come before the stated negatives, and of those only resolved ones carry a change.
        reported = [f for f in case.candidate.findings if f.present or f.change]
        count = independent_count(bare(case.reference.findings, len(visit.findings)), bare(reported, len(reported)))
        assert count == Counter(error.kind for error in case.errors), f"c{number}"


def test_every_kind_is_made_significant_and_not(drawn):
    made = Counter((error.kind, error.significant) for _, case in drawn for error in case.errors)
    assert all(made[kind, weight] >= 10 for kind in ErrorKind for weight in (True, False)), made


def test_from_no_mistake_to_many(drawn):
    sizes = Counter(len(case.errors) for _, case in drawn)
    assert sizes[0] > 10 and max(sizes) >= MOST_MISTAKES - 1


def test_the_candidate_contradicts_neither_itself_nor_its_negatives(drawn):
    """It is narrated from the mistaken visit: what it asserts it does not deny, and no two findings exclude each other."""
    for _, case in drawn:
        present = [f for f in case.candidate.findings if f.present]
        denied = {f.observation for f in case.candidate.findings if not f.present and f.change is None}
        assert denied.isdisjoint(f.observation for f in present)
        assert not any(mutually_exclusive(one, other) for i, one in enumerate(present) for other in present[i + 1 :])


def test_inventions_resemble_nothing_that_is_there(drawn):
    for visit, case in drawn:
        names = [f.observation for f in visit.findings]
        for error in case.errors:
            if error.reference_span is None:
                assert not any(relatedness(error.observation, name) for name in names)


def test_spans_point_at_the_words(drawn):
    for visit, case in drawn:
        for error in case.errors:
            spans = {error.reference_span: case.reference, error.candidate_span: case.candidate}
            for span, narration in spans.items():
                if span:
                    reported = [f for f in narration.findings if f.span == span]
                    assert error.observation in {f.observation for f in reported}
        assert visit.findings == tuple(bare(case.reference.findings, len(visit.findings)))


def test_omissions_have_no_words_in_the_candidate_and_inventions_none_in_the_reference(drawn):
    for _, case in drawn:
        for error in case.errors:
            if error.kind is ErrorKind.OMITTED_FINDING:
                assert error.candidate_span is None and error.reference_span
            if error.kind is ErrorKind.FALSE_FINDING:
                assert error.reference_span is None and error.candidate_span


def test_same_name_same_case_and_other_name_other_words(visits):
    visit = next(v for v in visits if len(v.present) > 3)
    assert mistaken(visit, 1, "x") == mistaken(visit, 1, "x")
    assert mistaken(visit, 1, "x").reference != mistaken(visit, 1, "y").reference


def test_no_mistakes_leave_the_findings_as_they_are(visits):
    visit = next(v for v in visits if len(v.present) > 3)
    case = mistaken(visit, 1, "x", Plan())
    assert case.errors == ()
    assert bare(case.candidate.findings, len(visit.findings)) == list(visit.findings)
    assert case.candidate.report.findings != case.reference.report.findings, "the words differ all the same"


def test_a_number_of_mistakes_is_kept_where_the_visit_offers_as_many(visits):
    rich = [v for v in visits if len(v.present) >= 5][:20]
    for visit in rich:
        assert len(draw_error_plan(generator(2, "plan", visit.age), visit, count=3).mistakes) == 3
        assert draw_error_plan(generator(2, "plan"), visit, count=0) == Plan()


def test_a_normal_image_can_only_be_overread(visits):
    normal = next(v for v in visits if not v.findings)
    plan = draw_error_plan(generator(3, "plan"), normal, count=8)
    assert all(mistake.reference is None for mistake in plan.mistakes)
    assert 1 <= plan.count(ErrorKind.FALSE_FINDING) <= 3 and plan.count(ErrorKind.FALSE_COMPARISON) <= 1


def test_a_claimed_change_comes_with_a_claimed_prior(image):
    effusion = Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD)
    plan = Plan((PlantedError(ErrorKind.FALSE_COMPARISON, effusion, replace(effusion, change=Change.NEW)),))
    case = mistaken(image(effusion), 1, "x", plan)
    assert case.candidate.findings[0].change is Change.NEW
    assert "4 weeks" in case.candidate.report.comparison, "30 days, in the narrator's words"


def test_a_plan_of_another_visit_is_refused(image):
    effusion = Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD)
    plan = Plan((PlantedError(ErrorKind.OMITTED_FINDING, effusion, None),))
    with pytest.raises(DataError, match="pleural effusion"):
        mistaken(image(), 1, "x", plan)


def test_two_mistakes_about_one_finding_are_refused():
    effusion = Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD)
    moved = PlantedError(ErrorKind.WRONG_LOCATION, effusion, replace(effusion, side=Side.RIGHT))
    with pytest.raises(DataError, match="two mistakes"):
        apply(Plan((moved, PlantedError(ErrorKind.OMITTED_FINDING, effusion, None))), [effusion])
