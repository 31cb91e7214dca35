from tables import every_row

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Severity, Side
from cxrlab.findings.disease_models import fits, mutually_exclusive, sides_meet

LEFT, RIGHT, BOTH = Side.LEFT, Side.RIGHT, Side.BILATERAL


def f(name, side=None, place=None, severity=Severity.MILD):
    return Finding(name, side=side, location=place, severity=severity)


CLASHES = [
    (f("emphysema"), f("low lung volumes"), "overinflated and underinflated at once"),
    (f("nodule", LEFT, "mid zone"), f("mass", LEFT, "mid zone"), "one would hide the other"),
    (f("consolidation", BOTH, "lower zone"), f("nodule", LEFT, "lower zone"), "both sides include the left"),
    (f("pneumothorax", LEFT, "apex"), f("pleural thickening", LEFT, "upper zone"), "a stuck pleura does not part"),
    (f("pleural effusion", BOTH), f("pleural effusion", LEFT), "stated twice"),
    (f("rib fracture", LEFT, "rib 4"), f("rib fracture", LEFT, "rib 4"), "the same rib twice"),
    (f("pleural effusion", LEFT, None, Severity.SEVERE), f("nodule", LEFT, "lower zone"), "drowned"),
    (
        f("pneumothorax", LEFT, "apex", Severity.MODERATE),
        f("nodule", LEFT, "upper zone"),
        "the lung has left the place",
    ),
    (f("pneumothorax", BOTH, "apex", Severity.SEVERE), f("cavity", LEFT, "upper zone"), "both sides include the left"),
    (f("pneumothorax", LEFT, "apex", Severity.SEVERE), f("interstitial pattern", None, "upper zone"), "on both sides"),
    (f("pleural effusion", RIGHT, None, Severity.MODERATE), f("pneumoperitoneum", RIGHT), "the dome is covered"),
]
COMPATIBLE = [
    (f("nodule", LEFT, "mid zone"), f("mass", RIGHT, "mid zone"), "another side"),
    (f("nodule", LEFT, "mid zone"), f("nodule", LEFT, "upper zone"), "another place"),
    (f("pneumothorax", LEFT, "apex"), f("pleural thickening", RIGHT, "upper zone"), "another side"),
    (f("pneumothorax", LEFT, "apex"), f("pleural effusion", LEFT, None, Severity.SEVERE), "hydropneumothorax"),
    (f("pleural effusion", LEFT), f("pleural effusion", RIGHT), "unequal effusions"),
    (f("pleural effusion", LEFT), f("atelectasis", LEFT, "lower zone"), "the usual company"),
    (f("pneumothorax", LEFT, "apex"), f("nodule", LEFT, "upper zone"), "a thin rim of air"),
    (f("pneumothorax", LEFT, "apex", Severity.SEVERE), f("nodule", RIGHT, "upper zone"), "another side"),
    (f("pneumothorax", LEFT, "apex", Severity.SEVERE), f("atelectasis", LEFT, "lower zone"), "another place"),
    (f("edema"), f("cardiomegaly"), "neither has a side"),
]


@every_row(("first", "second", "why"), CLASHES)
def test_contradictions_are_found_both_ways(first, second, why):
    assert mutually_exclusive(first, second) and mutually_exclusive(second, first), why
    assert not fits(first, [second])


@every_row(("first", "second", "why"), COMPATIBLE)
def test_what_can_stand_together_may(first, second, why):
    assert not mutually_exclusive(first, second) and not mutually_exclusive(second, first), why


def test_no_side_meets_nothing():
    assert not sides_meet(None, LEFT) and not sides_meet(None, None) and sides_meet(BOTH, RIGHT)


def test_no_drawn_image_contradicts_itself(visits):
    """Courses over time must not lead into a contradiction either."""
    for visit in visits:
        for index, finding in enumerate(visit.present):
            assert fits(finding, visit.present[:index])
