import time
from collections import Counter
from itertools import pairwise

import pytest

from cxrlab.core.vocabulary import DRAWN, Certainty, Change, Group, Presence, Side, View, observation
from cxrlab.findings.cases import draw_patient, visit_count
from cxrlab.findings.config import CaseConfig
from cxrlab.findings.contexts import CONTEXTS
from cxrlab.findings.courses import COURSES, SHAPES, Shape

RANK = {"mild": 0, "moderate": 1, "severe": 2}


def key(finding):
    return finding.observation, finding.side, finding.location


def test_the_same_arguments_give_the_same_patient_and_another_seed_another():
    """Nothing but the arguments enters: order and other draws do not matter."""
    first = draw_patient(1, "p1")
    draw_patient(9, "other")
    assert draw_patient(1, "p1") == first
    assert any(draw_patient(2, f"p{i}") != draw_patient(1, f"p{i}") for i in range(3))


def test_visit_count_is_what_is_drawn(patients):
    """A corpus maker lays out studies by the count alone."""
    assert all(visit_count(5, case.patient, CaseConfig()) == len(case.visits) for case in patients)
    assert {len(case.visits) for case in patients} == {1, 2, 3, 4}


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.6, 1.0])
def test_the_share_of_normal_studies_is_the_one_asked_for(share):
    """3,000 patients give some 5,500 studies: a standard error near 0.9 % with visits in chains."""
    config = CaseConfig(normal=share)
    films = [not visit.present for i in range(3000) for visit in draw_patient(3, f"p{i}", config).visits]
    assert abs(sum(films) / len(films) - share) < 0.025 * (0 < share < 1) + 1e-9


def test_every_observation_is_common_enough_to_be_learned(visits):
    """2.5 % of studies is the least that a small model learns from."""
    counts = Counter(name for visit in visits for name in {f.observation for f in visit.present})
    rare = {name: counts[name] / len(visits) for name in DRAWN if counts[name] < 0.025 * len(visits)}
    assert not rare
    assert set(counts) == set(DRAWN)


def test_heart_failure_signs_occur_together(visits):
    """Odds ratio ad / bc above 2 for each pair of cardiomegaly, edema and effusion."""
    signs = ("cardiomegaly", "edema", "pleural effusion")
    rows = [{f.observation for f in visit.present} for visit in visits]
    for first in signs:
        for second in signs:
            if first < second:
                cells = Counter((first in row, second in row) for row in rows)
                assert cells[True, True] * cells[False, False] > 2 * cells[True, False] * cells[False, True]


def test_four_films_in_ten_are_ap_and_intensive_care_has_no_other(visits):
    """A patient in intensive care is not brought to the upright stand."""
    assert abs(sum(v.view is View.AP for v in visits) / len(visits) - 0.40) < 0.03
    assert {v.view for v in visits if v.context == "critical care"} == {View.AP}


def test_every_finding_is_complete(visits):
    """Side, degree, size, place and tip are there exactly where the vocabulary wants them."""
    for finding in (f for visit in visits for f in visit.present):
        row, shape = observation(finding.observation), SHAPES.get(finding.observation, Shape())
        assert (finding.side is not None) == row.sided
        assert (finding.severity is not None) == row.graded
        assert (finding.size_mm is not None) == row.measured
        assert (finding.tip is not None) == bool(row.tips)
        assert (finding.location is not None) == bool(row.locations)
        if shape.size_mm:
            assert shape.size_mm[0] <= finding.size_mm <= shape.size_mm[1]
        if finding.tip == "above carina":
            assert 20 <= finding.tip_mm <= 70
        if finding.tip == "right main bronchus":
            assert finding.tip_mm is None
        if finding.observation == "pneumoperitoneum":
            assert finding.side in (Side.RIGHT, Side.BILATERAL)


def test_present_findings_stand_before_resolved_ones_and_nine_is_the_most(visits):
    for visit in visits:
        flags = [finding.present for finding in visit.findings]
        assert flags == sorted(flags, reverse=True)
        assert len(flags) <= 9
        assert len({key(f) for f in visit.findings}) == len(flags)


def test_first_films_are_compared_with_nothing_and_later_ones_with_the_film_before(patients):
    """Each change word agrees with what severity or size really did."""
    seen = Counter()
    for case in patients:
        assert all(f.change is None for f in case.visits[0].findings)
        assert case.visits[0].days_since_prior is None
        for before, after in pairwise(case.visits):
            old = {key(f): f for f in before.present}
            assert {key(f) for f in after.findings} >= set(old), "nothing vanishes without a word"
            assert after.days_since_prior >= 1 and after.age >= before.age
            for finding in after.findings:
                seen[finding.change] += 1
                _check_change(old.get(key(finding)), finding)
    assert set(seen) == set(Change)


def _check_change(old, new):
    if new.change is Change.NEW:
        assert old is None
        return
    assert old is not None
    if new.change is Change.RESOLVED:
        assert new.presence is Presence.ABSENT and new.severity is None and new.size_mm is None
        return
    measure = (lambda f: RANK[f.severity]) if new.severity else (lambda f: f.size_mm or 0)
    step = (measure(new) > measure(old)) - (measure(new) < measure(old))
    assert {1: Change.INCREASED, 0: Change.UNCHANGED, -1: Change.DECREASED}[step] is new.change
    assert (new.tip, new.tip_mm) == (old.tip, old.tip_mm)


def test_what_lasts_a_lifetime_neither_appears_late_nor_goes(visits):
    """A scoliosis that is new since last week would be absurd."""
    for finding in (f for visit in visits for f in visit.findings):
        course = COURSES[finding.observation]
        if finding.change is Change.NEW:
            assert course.may_appear
        if finding.change is Change.RESOLVED:
            assert course.gone > 0


def test_a_broken_bone_needs_weeks_to_heal(visits):
    healed = [v for v in visits for f in v.findings if not f.present and f.observation.endswith("fracture")]
    assert healed and all(visit.days_since_prior >= 60 for visit in healed)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_faint_share_is_the_possible_share_and_devices_are_never_faint(share):
    config = CaseConfig(faint=share)
    findings = [f for i in range(1500) for v in draw_patient(4, f"p{i}", config).visits for f in v.present]
    device = [f for f in findings if observation(f.observation).group is Group.DEVICE]
    other = [f for f in findings if observation(f.observation).group is not Group.DEVICE]
    assert all(f.certainty is Certainty.CERTAIN for f in device)
    possible = sum(f.certainty is Certainty.POSSIBLE for f in other) / len(other)
    assert abs(possible - share) < 0.03 * (share > 0) + 1e-9


def test_every_context_occurs(visits):
    assert {visit.context for visit in visits} == set(CONTEXTS)


def test_drawing_a_patient_takes_less_than_a_millisecond():
    """Measured near 0.15 ms; the bound leaves room for a busy machine."""
    start = time.process_time()
    for i in range(500):
        draw_patient(6, f"p{i}")
    assert (time.process_time() - start) / 500 < 1e-3
