from collections import Counter

import pytest

from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import DRAWN, Change, Severity, Side
from cxrlab.findings.disease_models import CONTEXTS, COURSES, EXTRAS, SHAPES, days_to_clear
from cxrlab.findings.progression import ASSOCIATED_FINDINGS, Radiograph, between, pick, resolved

LEFT, RIGHT = Side.LEFT, Side.RIGHT


def image(context, rng, *, days=30, **settings):
    return Radiograph(rng, context, Side.LEFT, days=days, **settings)


def test_the_tables_name_drawn_observations_only_and_leave_none_out():
    """A typo in a table would silently lose an observation."""
    assert set(COURSES) == set(DRAWN)
    assert set(DRAWN) - set(EXTRAS) == {"endotracheal tube", "enteric tube", *ASSOCIATED_FINDINGS}
    assert {course.arises for course in COURSES.values()} <= {None, *CONTEXTS}
    assert all(row.alone_in <= set(CONTEXTS) and set(row.causes) < set(DRAWN) for row in ASSOCIATED_FINDINGS.values())
    assert set(SHAPES) <= set(DRAWN)
    assert all(set(row.chances) <= set(DRAWN) for row in CONTEXTS.values())
    assert all(0 < chance < 1 for row in CONTEXTS.values() for chance in row.chances.values())


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("first", [True, False])
def test_an_abnormal_image_has_a_finding_in_every_context(context, first):
    """Also where a normal film follows, which rules out everything that lasts."""
    for number in range(40):
        for recovers in {False, CONTEXTS[context].acute}:
            drawn = image(context, generator(number, context), first=first, recovers=recovers).abnormal(())
            assert any(finding.present for finding in drawn)
            if recovers:
                assert not any(COURSES[finding.observation].lasting for finding in drawn)


def test_a_normal_image_says_that_everything_is_gone():
    before = (Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD),)
    after = image("infection", generator(0)).normal(before)
    assert [(f.observation, f.side, f.change, f.present) for f in after] == [
        ("pleural effusion", Side.LEFT, Change.RESOLVED, False)
    ]


def test_resolved_keeps_the_place_and_drops_the_degree():
    gone = resolved(Finding("nodule", side=Side.RIGHT, location="mid zone", size_mm=12.0))
    assert (gone.side, gone.location, gone.size_mm, gone.change) == (Side.RIGHT, "mid zone", None, Change.RESOLVED)


def test_what_must_go_has_the_time_to():
    """The longest stay leaves room for three steps down, else the two rules would contradict."""
    for name, course in COURSES.items():
        assert course.stays is None or course.stays >= 3 * course.eases, name
        assert course.lasting or course.gone > 0


@pytest.mark.parametrize(("grade", "days"), [(Severity.MILD, 7), (Severity.MODERATE, 14), (Severity.SEVERE, 21)])
def test_a_worse_pneumonia_takes_longer_to_clear(grade, days):
    """A week for each grade."""
    assert days_to_clear(Finding("pneumonia", side=Side.LEFT, location="mid zone", severity=grade)) == days


def test_an_overdue_tube_is_removed_and_something_new_is_found():
    """After 50 days no tube stays; the film is still not normal."""
    tube = Finding("endotracheal tube", tip="above carina", tip_mm=40.0)
    for number in range(60):
        drawn = image("critical care", generator(number), days=50).abnormal((tube,))
        assert [f.change for f in drawn if f.observation == "endotracheal tube"] == [Change.RESOLVED]
        assert any(f.present for f in drawn)


def test_a_full_image_can_be_renewed():
    """Eight findings that all have to go leave room for one that comes."""
    names = ("endotracheal tube", "enteric tube", "edema", "pneumoperitoneum", "pneumonia", "consolidation")
    before = [Finding(n, side=Side.RIGHT, location="mid zone", severity=Severity.MILD) for n in names]
    before += [Finding("pneumothorax", side=side, location="apex", severity=Severity.MILD) for side in (LEFT, RIGHT)]
    for number in range(60):
        drawn = image("routine", generator(number), days=500, recovers=True).abnormal(before)
        assert sum(not f.present for f in drawn) == 8 and len(drawn) == 9


def test_a_severe_finding_cannot_get_worse():
    """The scale ends at severe, so 200 visits give no increase."""
    before = (Finding("cardiomegaly", severity=Severity.SEVERE),)
    for number in range(200):
        later = image("heart failure", generator(number)).abnormal(before)
        heart = next(f for f in later if f.observation == "cardiomegaly")
        assert heart.change in (Change.UNCHANGED, Change.DECREASED)


def test_pick_follows_its_weights():
    """Three in four for a weight of 3 against 1; 4,000 draws give a standard error of 0.7 %."""
    rng = generator(1)
    counts = Counter(pick(rng, {"a": 3, "b": 1}) for _ in range(4000))
    assert abs(counts["a"] / 4000 - 0.75) < 0.03


def test_between_includes_both_limits():
    rng = generator(2)
    assert {between(rng, (3, 5)) for _ in range(200)} == {3, 4, 5}
