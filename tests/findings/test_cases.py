import time
from collections import Counter
from itertools import pairwise

import pytest

from cxrlab.core.vocabulary import DRAWN, Certainty, Change, Group, Presence, Severity, Side, View, observation
from cxrlab.findings.disease_models import CONTEXTS, COURSES, RESHAPING, SHAPES, Shape, days_to_clear
from cxrlab.findings.simulated_patients import CaseConfig, draw_patient, visit_count

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
    assert all(visit_count(5, case.patient) == len(case.visits) for case in patients)
    assert {len(case.visits) for case in patients} == {1, 2, 3, 4}


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.6, 1.0])
def test_the_share_of_normal_studies_is_the_one_requested(share):
    """3,000 patients give some 5,500 studies: a standard error near 0.9 % with visits in chains."""
    config = CaseConfig(normal=share)
    images = [not visit.present for i in range(3000) for visit in draw_patient(3, f"p{i}", config).visits]
    assert abs(sum(images) / len(images) - share) < 0.025 * (0 < share < 1) + 1e-9


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


def test_four_images_in_ten_are_ap_and_intensive_care_has_no_other(visits):
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


def test_first_images_are_compared_with_nothing_and_later_ones_with_the_image_before(patients):
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
            assert course.appears is not None
        if finding.change is Change.RESOLVED:
            assert course.gone > 0


def test_a_broken_bone_needs_weeks_to_heal(visits):
    healed = [v for v in visits for f in v.findings if not f.present and f.observation.endswith("fracture")]
    assert healed and all(visit.days_since_prior >= 60 for visit in healed)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_faint_share_is_possible_when_first_seen_and_devices_are_never_faint(share):
    """Some 4,000 findings: a standard error near 0.7 %."""
    config = CaseConfig(faint=share)
    findings = [f for i in range(1500) for v in draw_patient(4, f"p{i}", config).visits for f in v.present]
    device = [f for f in findings if observation(f.observation).group is Group.DEVICE]
    other = [f for f in findings if observation(f.observation).group is not Group.DEVICE]
    assert all(f.certainty is Certainty.CERTAIN for f in device)
    first_seen = [f for f in other if f.change in (None, Change.NEW)]
    possible = sum(f.certainty is Certainty.POSSIBLE for f in first_seen) / len(first_seen)
    assert abs(possible - share) < 0.03 * (share > 0) + 1e-9


def pairs_in_time(patients):
    """Each finding with the same lesion on the radiograph before (None when it is new) and the later visit."""
    for case in patients:
        for before, after in pairwise(case.visits):
            old = {key(f): f for f in before.present}
            yield from ((old.get(key(f)), f, after) for f in after.findings)


def test_certainty_is_drawn_once_and_only_growth_makes_the_possible_certain(patients):
    """A faint shadow that is called unchanged must still be faint on the radiograph."""
    seen = Counter()
    for old, new, _ in pairs_in_time(patients):
        if old is not None and new.present:
            seen[old.certainty, new.certainty] += 1
            if old.certainty is not new.certainty:
                assert (new.certainty, new.change) == (Certainty.CERTAIN, Change.INCREASED)
            if new.change is Change.INCREASED:
                assert new.certainty is Certainty.CERTAIN
    assert seen[Certainty.POSSIBLE, Certainty.POSSIBLE] > 50 and seen[Certainty.POSSIBLE, Certainty.CERTAIN] > 5


def test_a_possible_finding_is_never_severe_and_mild_where_it_reshapes_the_chest():
    """A heart drawn at part of its enlargement is a mildly enlarged heart."""
    config = CaseConfig(faint=0.5)
    findings = [f for i in range(800) for v in draw_patient(7, f"p{i}", config).visits for f in v.present]
    possible = [f for f in findings if f.certainty is Certainty.POSSIBLE and f.severity]
    assert {f.severity for f in possible if f.observation in RESHAPING} == {Severity.MILD}
    assert {f.severity for f in possible} == {Severity.MILD, Severity.MODERATE}


def test_nothing_appears_grows_eases_or_goes_faster_than_its_course(patients):
    """A nodule of 13 mm is not one of 28 mm a week later, and a severe pneumonia does not clear overnight."""
    seen, hasty = Counter(), 0
    for old, new, visit in pairs_in_time(patients):
        course = COURSES[new.observation]
        seen[new.change] += 1
        if new.change is Change.RESOLVED:
            hasty += visit.days_since_prior < days_to_clear(old)
            continue
        least = {Change.NEW: course.appears, Change.INCREASED: course.grows, Change.DECREASED: course.eases}
        assert visit.days_since_prior >= least.get(new.change, 0), (old, new, visit.days_since_prior)
        if new.size_mm and old is not None:
            assert abs(new.size_mm / old.size_mm - 1) < 0.2 or visit.days_since_prior >= 21
    assert len(seen) == 5
    # A lesion whose longest stay ends between two close films is the one exception.
    assert hasty < 0.005 * seen[Change.RESOLVED]


def test_nothing_stays_longer_than_its_course_allows(patients):
    """No tube for a year: the days from the first radiograph with it to the last, over all visits."""
    longest = Counter()
    for case in patients:
        since, day = {}, 0
        for visit in case.visits:
            day += visit.days_since_prior or 0
            since = {key(f): since.get(key(f), day) for f in visit.present}
            for (name, *_), start in since.items():
                longest[name] = max(longest[name], day - start)
    for name, course in COURSES.items():
        assert course.stays is None or longest[name] <= course.stays, name
    assert longest["pneumothorax"] > 10 and longest["rib fracture"] > 60


def test_a_normal_image_waits_until_everything_could_have_gone(patients):
    """Pairs of an abnormal radiograph and a normal one: the interval gives way."""
    count = 0
    for case in patients:
        for before, after in pairwise(case.visits):
            if before.present and not after.present:
                count += 1
                assert after.days_since_prior >= max(days_to_clear(f) for f in before.present)
    assert count > 100


def test_a_drain_lies_where_air_or_fluid_is_or_has_just_been(patients):
    """Alone it stands only after surgery; nine in ten severe pneumothoraces have one."""
    drains = severe = drained = 0
    for case in patients:
        before = ()
        for visit in case.visits:
            sides = [f.side for f in (*visit.present, *before) if f.observation in ("pneumothorax", "pleural effusion")]
            for tube in (f for f in visit.present if f.observation == "chest tube"):
                drains += 1
                beside = any(side in (tube.side, Side.BILATERAL) for side in sides)
                assert beside or visit.context == "after surgery", visit
            tubes = {f.side for f in visit.present if f.observation == "chest tube"}
            for air in visit.present:
                if (air.observation, air.severity) == ("pneumothorax", Severity.SEVERE):
                    severe += 1
                    drained += bool(
                        tubes & {air.side, *((Side.LEFT, Side.RIGHT) if air.side is Side.BILATERAL else ())}
                    )
            before = visit.present
    assert drains > 200 and drained / severe > 0.7


def test_air_under_the_skin_has_a_source_on_its_side(patients):
    sources = ("pneumothorax", "chest tube", "rib fracture")
    for case in patients:
        before = ()
        for visit in case.visits:
            sides = {f.side for f in (*visit.present, *before) if f.observation in sources}
            for air in (f for f in visit.present if f.observation == "subcutaneous emphysema"):
                assert sides & {air.side, Side.BILATERAL} or (air.side is Side.BILATERAL and sides), visit
            before = visit.present


def test_the_intubated_are_imaged_in_bed_and_not_for_a_check_up(visits):
    tubes = [v for v in visits for f in v.present if f.observation == "endotracheal tube"]
    assert tubes and {v.view for v in tubes} == {View.AP}
    for visit in visits:
        new = {f.observation for f in visit.present if f.change in (None, Change.NEW)}
        if new & {"endotracheal tube", "enteric tube"}:
            assert visit.context in ("critical care", "trauma", "after surgery")


def test_age_suits_context_and_findings(visits):
    """No changes of age at nineteen: neither as a reason for the radiograph nor on it."""
    for visit in visits:
        assert visit.age >= CONTEXTS[visit.context].ages[0]
        assert all(visit.age >= COURSES[f.observation].least_age for f in visit.present)
    assert COURSES["aortic calcification"].least_age >= 45 and COURSES["pleural plaque"].least_age >= 45


def test_wires_and_fractures_are_new_only_with_a_reason(patients):
    """An operation or an accident since the radiograph before."""
    reasons = {"sternal wires": "after surgery", "rib fracture": "trauma", "clavicle fracture": "trauma"}
    seen = Counter()
    for case in patients:
        for before, after in pairwise(case.visits):
            for name in {f.observation for f in after.present if f.change is Change.NEW} & set(reasons):
                seen[name] += 1
                assert after.context == reasons[name] and before.context != after.context
    assert set(seen) == set(reasons)


def test_every_context_occurs(visits):
    assert {visit.context for visit in visits} == set(CONTEXTS)


def test_drawing_a_patient_takes_less_than_a_millisecond():
    """Measured near 0.15 ms; the bound leaves room for a busy machine."""
    start = time.process_time()
    for i in range(500):
        draw_patient(6, f"p{i}")
    assert (time.process_time() - start) / 500 < 1e-3
