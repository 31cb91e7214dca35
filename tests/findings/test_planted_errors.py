from dataclasses import replace

from tables import every_row

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Change, ErrorKind, Presence, Severity, Side
from cxrlab.findings.planted_errors import (
    DIRECTIONS,
    RULES,
    PlantedError,
    changes_of,
    possible_errors,
    significant,
    size_ratio,
)

LEFT, RIGHT = Side.LEFT, Side.RIGHT
MILD, MODERATE, SEVERE = Severity.MILD, Severity.MODERATE, Severity.SEVERE
EFFUSION = Finding("pleural effusion", side=LEFT, severity=MILD)
NODULE = Finding("nodule", side=LEFT, location="mid zone", size_mm=12.0)
GRANULOMA = Finding("granuloma", side=LEFT, location="mid zone", size_mm=6.0)
TUBE = Finding("endotracheal tube", tip="above carina", tip_mm=40.0)
SPINE = Finding("scoliosis", severity=MILD)

PLACE, DEGREE = ErrorKind.WRONG_LOCATION, ErrorKind.WRONG_SEVERITY
FALSE, LOST = ErrorKind.FALSE_COMPARISON, ErrorKind.OMITTED_COMPARISON

EXAMPLES = [
    (ErrorKind.FALSE_FINDING, None, EFFUSION, True, "fluid that is not there is treated"),
    (ErrorKind.FALSE_FINDING, None, GRANULOMA, False, "a scar more or less changes nothing"),
    (ErrorKind.OMITTED_FINDING, NODULE, None, True, "a cancer may be missed"),
    (ErrorKind.OMITTED_FINDING, SPINE, None, False, "a bent spine stays bent"),
    (ErrorKind.OMITTED_FINDING, TUBE, None, False, "the ward knows of a tube in its place"),
    (ErrorKind.OMITTED_FINDING, replace(TUBE, tip="right main bronchus", tip_mm=None), None, True, "one lung is shut"),
    (PLACE, EFFUSION, replace(EFFUSION, side=RIGHT), True, "the wrong side is punctured"),
    (PLACE, GRANULOMA, replace(GRANULOMA, side=RIGHT), True, "a wrong side is wrong whatever it is"),
    (PLACE, NODULE, replace(NODULE, location="upper zone"), False, "CT will find it"),
    (PLACE, TUBE, replace(TUBE, tip="right main bronchus", tip_mm=None), True, "the tube would be drawn back"),
    (DEGREE, EFFUSION, replace(EFFUSION, severity=MODERATE), False, "one step"),
    (DEGREE, EFFUSION, replace(EFFUSION, severity=SEVERE), True, "two steps"),
    (DEGREE, SPINE, replace(SPINE, severity=SEVERE), False, "benign in every degree"),
    (DEGREE, NODULE, replace(NODULE, size_mm=24.0), True, "twice the size"),
    (DEGREE, NODULE, replace(NODULE, size_mm=17.0), False, "less than half again"),
    (FALSE, EFFUSION, replace(EFFUSION, change=Change.NEW), True, "a worsening made up"),
    (FALSE, EFFUSION, replace(EFFUSION, change=Change.UNCHANGED), False, "steady is what silence suggests"),
    (FALSE, SPINE, replace(SPINE, change=Change.NEW), False, "of something benign"),
    (LOST, replace(EFFUSION, change=Change.INCREASED), EFFUSION, True, "a worsening lost"),
    (LOST, replace(EFFUSION, change=Change.UNCHANGED), EFFUSION, False, "steady is what silence suggests"),
]


@every_row(("kind", "was", "reported", "expected", "reason"), EXAMPLES)
def test_significance_follows_the_stated_rule(kind, was, reported, expected, reason):
    assert significant(PlantedError(kind, was, reported), age=60) is expected, reason


def test_every_kind_has_a_rule_in_words_and_both_verdicts_occur():
    assert set(RULES) == set(ErrorKind) and all(words for _, words in RULES.values())
    assert {(kind, verdict) for kind, _, _, verdict, _ in EXAMPLES} == {
        (k, v) for k in ErrorKind for v in (True, False)
    }


def test_age_decides_with_the_finding():
    """Calcium in the aorta is expected at 80 and a warning at 30."""
    mistake = PlantedError(ErrorKind.OMITTED_FINDING, Finding("aortic calcification", severity=MILD), None)
    assert not significant(mistake, 80)
    assert significant(mistake, 30)


def test_each_error_changes_exactly_what_its_kind_says(examples):
    """A location slip that also changed the degree would be two errors counted as one."""
    touched = {
        PLACE: {"side", "location", "tip", "tip_mm"},
        DEGREE: {"severity", "size_mm"},
        FALSE: {"change"},
        LOST: {"change"},
    }
    for rows in examples.values():
        for finding in (replace(row, change=change) for row in rows[:4] for change in (None, Change.UNCHANGED)):
            for mistake in possible_errors(finding):
                assert mistake.reference is finding
                if mistake.candidate is None:
                    assert mistake.kind is ErrorKind.OMITTED_FINDING
                    continue
                differing = {key for key in vars(finding) if getattr(mistake.candidate, key) != getattr(finding, key)}
                assert differing and differing <= touched[mistake.kind]
                assert len(differing - {"tip_mm"}) == 1
                assert mistake.detail


def test_new_and_increased_are_not_taken_for_each_other():
    reported = {m.candidate.change for m in possible_errors(replace(EFFUSION, change=Change.NEW)) if m.kind is FALSE}
    assert reported == {Change.UNCHANGED, Change.DECREASED}
    assert DIRECTIONS[Change.NEW] == DIRECTIONS[Change.INCREASED]


def test_what_two_readers_differ_by_is_no_mistake():
    """A nodule of 8 mm called 11 is within five millimetres."""
    small = replace(NODULE, size_mm=8.0)
    assert [m.candidate.size_mm for m in possible_errors(small) if m.kind is DEGREE] == [16.0]


def test_of_a_resolved_finding_only_the_change_can_be_lost():
    gone = Finding("edema", presence=Presence.ABSENT, change=Change.RESOLVED)
    assert [(m.kind, m.candidate) for m in possible_errors(gone)] == [(LOST, None)]


def test_a_tube_that_leaves_the_image_does_not_contradict_the_stomach():
    tips = {m.candidate.tip for m in possible_errors(Finding("enteric tube", tip="stomach")) if m.kind is PLACE}
    assert tips == {"distal esophagus"}


def test_a_device_or_a_bone_does_not_grow():
    assert changes_of(TUBE) == (Change.NEW, Change.UNCHANGED)
    assert changes_of(SPINE) == (Change.NEW, Change.UNCHANGED)
    assert Change.DECREASED in changes_of(EFFUSION)


def test_size_ratio_does_not_ask_which_is_larger():
    assert size_ratio(10, 15) == size_ratio(15, 10) == 1.5
