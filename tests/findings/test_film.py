from collections import Counter

import pytest

from cxrlab.core.randomness import generator
from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import DRAWN, Change, Severity, Side
from cxrlab.findings.contexts import CONTEXTS, EXTRAS
from cxrlab.findings.courses import COURSES, SHAPES
from cxrlab.findings.film import Film, between, pick, resolved


def film(context, rng, *, days=30, first=False, recovers=False, again=False):
    return Film(rng, CONTEXTS[context], Side.LEFT, days=days, first=first, recovers=recovers, again=again)


def test_the_tables_name_drawn_observations_only_and_leave_none_out():
    """A typo in a table would silently lose an observation."""
    assert set(EXTRAS) == set(COURSES) == set(DRAWN)
    assert set(SHAPES) <= set(DRAWN)
    assert all(set(row.chances) <= set(DRAWN) for row in CONTEXTS.values())
    assert all(0 < chance < 1 for row in CONTEXTS.values() for chance in row.chances.values())


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("first", [True, False])
def test_an_abnormal_film_has_a_finding_in_every_context(context, first):
    """Also where a normal film follows, which rules out everything that lasts."""
    for number in range(40):
        for recovers in {False, CONTEXTS[context].acute}:
            drawn = film(context, generator(number, context), first=first, recovers=recovers).abnormal(())
            assert any(finding.present for finding in drawn)
            if recovers:
                assert not any(COURSES[finding.observation].lasting for finding in drawn)


def test_a_normal_film_says_that_everything_is_gone():
    before = (Finding("pleural effusion", side=Side.LEFT, severity=Severity.MILD),)
    after = film("infection", generator(0)).normal(before)
    assert [(f.observation, f.side, f.change, f.present) for f in after] == [
        ("pleural effusion", Side.LEFT, Change.RESOLVED, False)
    ]


def test_resolved_keeps_the_place_and_drops_the_degree():
    gone = resolved(Finding("nodule", side=Side.RIGHT, location="mid zone", size_mm=12.0))
    assert (gone.side, gone.location, gone.size_mm, gone.change) == (Side.RIGHT, "mid zone", None, Change.RESOLVED)


def test_a_severe_finding_cannot_get_worse():
    """The scale ends at severe, so 200 visits give no increase."""
    before = (Finding("cardiomegaly", severity=Severity.SEVERE),)
    for number in range(200):
        later = film("heart failure", generator(number)).abnormal(before)
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
