"""The disease model of drawn patients: clinical contexts, and how findings look, change and exclude each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Severity, Side

LATER = 3


@dataclass(frozen=True)
class Context:
    """One reason for a radiograph."""

    weight: float  # share among abnormal studies; scaled, like the next, to sum to 1
    normal: float  # share among normal studies
    ap: float  # share of portable AP radiographs
    ages: tuple[int, int]  # range in years at a first visit; later ones may be `LATER` years older
    days: tuple[int, int]  # range of the interval to the next radiograph
    acute: bool  # whether a patient can recover from it entirely, so that a normal radiograph may follow
    chances: Mapping[str, float]  # observation → probability that it is there at a first abnormal visit

    def suits(self, age: float) -> bool:
        """Whether a patient of this age may come into the context on a later visit."""
        return self.ages[0] <= age <= self.ages[1] + LATER


CONTEXTS: Mapping[str, Context] = {
    "heart failure": Context(
        0.15, 0.06, 0.45, (52, 92), (1, 200), False,
        {
            "cardiomegaly": 0.75, "edema": 0.60, "pleural effusion": 0.60, "pacemaker": 0.25, "sternal wires": 0.20,
            "atelectasis": 0.15, "aortic calcification": 0.12, "tortuous aorta": 0.10, "lung opacity": 0.08,
            "enlarged cardiomediastinum": 0.06, "hilar enlargement": 0.10, "central venous catheter": 0.06,
        },
    ),
    "infection": Context(
        0.15, 0.20, 0.25, (18, 94), (2, 60), True,
        {
            "pneumonia": 0.45, "consolidation": 0.38, "lung opacity": 0.32, "pleural effusion": 0.25,
            "atelectasis": 0.12, "cavity": 0.12, "hilar enlargement": 0.08, "low lung volumes": 0.08,
            "pleural thickening": 0.05, "central venous catheter": 0.04,
        },
    ),
    "critical care": Context(
        0.13, 0.03, 1.00, (20, 88), (1, 6), True,
        {
            "endotracheal tube": 0.62, "enteric tube": 0.58, "central venous catheter": 0.58, "low lung volumes": 0.30,
            "atelectasis": 0.35, "pleural effusion": 0.34, "edema": 0.24, "lung opacity": 0.22, "consolidation": 0.14,
            "pneumonia": 0.12, "cardiomegaly": 0.15, "pneumothorax": 0.08, "elevated hemidiaphragm": 0.05,
        },
    ),
    "trauma": Context(
        0.13, 0.18, 0.60, (16, 85), (1, 150), True,
        {
            "rib fracture": 0.50, "pneumothorax": 0.42, "clavicle fracture": 0.30, "pleural effusion": 0.14,
            "lung opacity": 0.14, "atelectasis": 0.08,
            "enlarged cardiomediastinum": 0.12, "pneumoperitoneum": 0.04, "endotracheal tube": 0.08,
        },
    ),
    "malignancy": Context(
        0.12, 0.06, 0.12, (42, 88), (20, 300), False,
        {
            "mass": 0.45, "nodule": 0.45, "pleural effusion": 0.25, "hilar enlargement": 0.28,
            "enlarged cardiomediastinum": 0.26, "cavity": 0.12, "atelectasis": 0.10, "central venous catheter": 0.14,
            "pleural thickening": 0.14, "elevated hemidiaphragm": 0.12, "lung opacity": 0.06, "consolidation": 0.05,
        },
    ),
    "chronic lung disease": Context(
        0.11, 0.04, 0.12, (45, 88), (20, 500), False,
        {
            "emphysema": 0.42, "interstitial pattern": 0.40, "cavity": 0.16, "granuloma": 0.14,
            "pleural thickening": 0.20, "pleural plaque": 0.30, "nodule": 0.10, "hilar enlargement": 0.10,
            "pneumothorax": 0.08, "lung opacity": 0.08, "pneumonia": 0.06, "cardiomegaly": 0.05,
        },
    ),
    "changes of age": Context(
        0.10, 0.04, 0.15, (66, 92), (60, 900), False,
        {
            "tortuous aorta": 0.42, "aortic calcification": 0.42, "scoliosis": 0.28, "hiatal hernia": 0.32,
            "granuloma": 0.20, "cardiomegaly": 0.14, "pleural plaque": 0.08, "pacemaker": 0.10,
            "pleural thickening": 0.06, "interstitial pattern": 0.08, "elevated hemidiaphragm": 0.05,
        },
    ),
    "after surgery": Context(
        0.13, 0.03, 0.72, (28, 86), (1, 14), True,
        {
            "sternal wires": 0.34, "low lung volumes": 0.36, "atelectasis": 0.38, "pneumoperitoneum": 0.32,
            "elevated hemidiaphragm": 0.26, "pleural effusion": 0.22, "chest tube": 0.12, "enteric tube": 0.16,
            "central venous catheter": 0.16, "pneumothorax": 0.10,
            "endotracheal tube": 0.06, "enlarged cardiomediastinum": 0.10, "pacemaker": 0.05,
        },
    ),
    "routine": Context(
        0.06, 0.36, 0.05, (18, 82), (90, 900), True,
        {
            "nodule": 0.20, "granuloma": 0.20, "scoliosis": 0.20, "hiatal hernia": 0.18, "aortic calcification": 0.12,
            "tortuous aorta": 0.10, "pleural plaque": 0.08, "cardiomegaly": 0.10, "atelectasis": 0.08,
            "lung opacity": 0.06,
        },
    ),
}  # fmt: skip

# Chance that a visit carries a finding that has nothing to do with its context, and how likely each
# one then is. Any pair that is physically possible does occur. Tubes are missing here: nobody comes
# to a routine radiograph intubated, and drains and subcutaneous emphysema follow other findings.
EXTRA_CHANCE = 0.30
EXTRAS: Mapping[str, float] = {
    "lung opacity": 1, "consolidation": 1, "pneumonia": 1, "atelectasis": 2, "edema": 1, "nodule": 2, "mass": 1,
    "cavity": 1, "granuloma": 3, "emphysema": 2, "interstitial pattern": 2, "low lung volumes": 2,
    "pleural effusion": 1, "pneumothorax": 1, "pleural thickening": 3, "pleural plaque": 3, "cardiomegaly": 3,
    "enlarged cardiomediastinum": 2, "hilar enlargement": 2, "tortuous aorta": 3, "aortic calcification": 3,
    "hiatal hernia": 4, "elevated hemidiaphragm": 3, "pneumoperitoneum": 1, "rib fracture": 2,
    "clavicle fracture": 2, "scoliosis": 4, "central venous catheter": 1, "pacemaker": 2, "sternal wires": 2,
}  # fmt: skip


Weights = Mapping[str, float]

_ANY: Weights = {"upper zone": 1, "mid zone": 1, "lower zone": 1}
_LOW: Weights = {"mid zone": 0.2, "lower zone": 0.8}
_UPPER: Weights = {"upper zone": 0.6, "mid zone": 0.25, "lower zone": 0.15}
_RIBS: Weights = {f"rib {number}": 1 for number in range(3, 10)}


@dataclass(frozen=True)
class Shape:
    """How one finding is drawn."""

    both: float = 0.0  # chance of being bilateral; only for sided observations
    leans: bool = False  # whether it tends to the patient's injured or diseased side
    places: Weights | None = None  # location → weight; empty where the name implies the place
    size_mm: tuple[int, int] | None = None  # smallest and largest diameter, for measured observations
    tips: Weights | None = None  # tip position → weight, for devices that end somewhere
    again: float = 0.0  # chance of one more of the same kind elsewhere, drawn twice at most
    only: str | None = None  # a side that it always takes when not bilateral


SHAPES: Mapping[str, Shape] = {
    "lung opacity": Shape(both=0.25, places=_ANY, leans=True, again=0.1),
    "consolidation": Shape(both=0.15, places={**_ANY, "lower zone": 2}, again=0.1),
    "pneumonia": Shape(both=0.15, places={**_ANY, "lower zone": 2}),
    "atelectasis": Shape(both=0.35, places=_LOW, again=0.1),
    "nodule": Shape(places=_ANY, size_mm=(8, 29), again=0.35),
    "mass": Shape(places=_ANY, size_mm=(31, 70), leans=True, again=0.05),
    "cavity": Shape(places=_UPPER, size_mm=(25, 60), again=0.05),
    "granuloma": Shape(places=_ANY, size_mm=(5, 10), again=0.2),
    "interstitial pattern": Shape(places={"base": 0.7, "upper zone": 0.3}),
    "pleural effusion": Shape(both=0.5, leans=True, again=0.12),
    "pneumothorax": Shape(both=0.04, places={"apex": 1}, leans=True),
    "pleural thickening": Shape(both=0.2, places={"upper zone": 1, "mid zone": 1, "lower zone": 1}),
    "pleural plaque": Shape(both=0.3, places={"mid zone": 1, "lower zone": 1}, again=0.15),
    "hilar enlargement": Shape(both=0.35, leans=True),
    "elevated hemidiaphragm": Shape(),
    "pneumoperitoneum": Shape(both=0.35, only="right"),
    "rib fracture": Shape(places=_RIBS, leans=True, again=0.5),
    "clavicle fracture": Shape(leans=True),
    "subcutaneous emphysema": Shape(both=0.15, places={"chest wall": 1}, leans=True),
    "endotracheal tube": Shape(tips={"above carina": 0.86, "right main bronchus": 0.07, "high": 0.07}),
    "enteric tube": Shape(tips={"stomach": 0.72, "distal esophagus": 0.14, "beyond image": 0.14}),
    "central venous catheter": Shape(
        tips={"superior vena cava": 5, "cavoatrial junction": 2.5, "right atrium": 1.3, "brachiocephalic vein": 1.2}
    ),
    "chest tube": Shape(tips={"apex": 0.6, "base": 0.4}, leans=True),
    "pacemaker": Shape(tips={"right ventricle": 0.4, "right atrium and right ventricle": 0.6}),
}

# Height of an endotracheal tube's tip above the carina in millimetres, smallest and largest.
TUBE_HEIGHT_MM: Mapping[str, tuple[int, int]] = {"above carina": (20, 70), "high": (75, 95)}
# A tube in the right main bronchus lies below the carina: no height is given.

GRADES: Weights = {"mild": 0.45, "moderate": 0.33, "severe": 0.22}
# What is hard to see is not severe; a faint finding that reshapes the chest is always mild, since
# drawing it faint means drawing it small.
FAINT_GRADES: Weights = {"mild": 0.7, "moderate": 0.3}
RESHAPING = frozenset(
    {
        "cardiomegaly", "enlarged cardiomediastinum", "tortuous aorta", "scoliosis", "low lung volumes", "emphysema",
        "elevated hemidiaphragm",
    }
)  # fmt: skip


@dataclass(frozen=True)
class Course:
    """Chances for the next visit; what is left over of 1 is 'the same'."""

    worse: float = 0.0  # one step up in degree or size
    better: float = 0.0  # one step down
    gone: float = 0.0  # no longer there
    appears: int | None = 1  # days since the radiograph before that it needs to be new; None when it never appears late
    grows: int = 1  # days that one step up takes at least
    eases: int = 1  # days that one step down takes at least; from severe to gone it is three steps
    stays: int | None = None  # most days from the first radiograph that shows it to the last; None without a limit
    # The context that brings it: new on a later radiograph only when the patient has just come into it. None for any.
    arises: str | None = None
    least_age: int = 0  # years below which it does not occur

    @property
    def lasting(self) -> bool:
        """Whether it stays on every later radiograph."""
        return self.gone == 0.0


_AIRSPACE = Course(worse=0.22, better=0.28, gone=0.22, eases=7, stays=90)
_FRACTURE = Course(gone=0.5, eases=60, stays=400, arises="trauma")
_LIFELONG = Course(appears=None)

COURSES: Mapping[str, Course] = {
    "lung opacity": Course(worse=0.22, better=0.28, gone=0.22, eases=4, stays=90),
    "consolidation": _AIRSPACE,
    "pneumonia": _AIRSPACE,
    "atelectasis": Course(worse=0.22, better=0.28, gone=0.22, eases=2),
    "edema": Course(worse=0.22, better=0.28, gone=0.22, stays=60),
    "nodule": Course(worse=0.35, better=0.12, appears=60, grows=45, eases=30, least_age=25),
    "mass": Course(worse=0.5, better=0.12, appears=None, grows=30, eases=21, least_age=35),
    "cavity": Course(worse=0.3, better=0.3, gone=0.05, appears=21, grows=14, eases=30),
    "granuloma": _LIFELONG,
    "emphysema": Course(appears=None, least_age=40),
    "interstitial pattern": Course(worse=0.2, appears=None, grows=90, least_age=35),
    "low lung volumes": Course(worse=0.22, better=0.28, gone=0.22),
    "pleural effusion": Course(worse=0.22, better=0.28, gone=0.22, eases=3),
    "pneumothorax": Course(worse=0.18, better=0.32, gone=0.22, eases=2, stays=28),
    "pleural thickening": Course(worse=0.15, better=0.05, appears=60, grows=60, eases=60),
    "pleural plaque": Course(appears=None, least_age=45),
    "cardiomegaly": Course(worse=0.15, better=0.05, appears=21, grows=21, eases=21, least_age=25),
    "enlarged cardiomediastinum": Course(worse=0.15, better=0.2, gone=0.1, grows=3, eases=7),
    "hilar enlargement": Course(worse=0.2, better=0.2, gone=0.1, appears=21, grows=21, eases=21),
    "tortuous aorta": Course(appears=None, least_age=50),
    "aortic calcification": Course(appears=None, least_age=45),
    "hiatal hernia": Course(appears=None, least_age=40),
    "elevated hemidiaphragm": Course(worse=0.1, better=0.2, gone=0.1, grows=2, eases=5),
    "pneumoperitoneum": Course(worse=0.05, better=0.35, gone=0.3, eases=3, stays=21),
    "rib fracture": _FRACTURE,
    "clavicle fracture": _FRACTURE,
    "scoliosis": _LIFELONG,
    "subcutaneous emphysema": Course(worse=0.2, better=0.3, gone=0.25, eases=2, stays=21),
    "endotracheal tube": Course(gone=0.3, stays=21),
    "enteric tube": Course(gone=0.3, stays=42),
    "central venous catheter": Course(gone=0.15, stays=180),
    "chest tube": Course(gone=0.3, stays=28),
    "pacemaker": Course(least_age=35),
    "sternal wires": Course(arises="after surgery", least_age=30),
}


def days_to_clear(finding: Finding) -> int:
    """Days after which a radiograph may be free of it: one step for each grade, one where there is none."""
    steps = finding.severity.rank if finding.severity else 1
    return COURSES[finding.observation].eases * max(1, steps)


# ── findings that exclude each other on one radiograph ────────────────────────────────────────────

# Never on one radiograph.
NEVER = frozenset({frozenset({"emphysema", "low lung volumes"})})
# Never on one side: the layers of the pleura that are thickened together do not separate.
NEVER_ON_ONE_SIDE = frozenset({frozenset({"pneumothorax", "pleural thickening"})})
# At most one of these at one place: the second would lie hidden in the first.
OPAQUE = frozenset(
    {"lung opacity", "consolidation", "pneumonia", "atelectasis", "nodule", "mass", "cavity", "granuloma"}
)
LAYERED = frozenset({"pleural thickening", "pleural plaque"})
# A large effusion covers these on its side, and what lies in the lower zone.
COVERED = frozenset({"elevated hemidiaphragm", "pneumoperitoneum"})
# A collapsed lung leaves its upper zone empty: nothing of this is seen there.
COLLAPSED = OPAQUE | {"interstitial pattern"}
# Possible but seldom: the share of such pairs that is kept.
SELDOM: Mapping[frozenset[str], float] = {frozenset({"edema", "pneumothorax"}): 0.2}


def sides_meet(first: Side | None, second: Side | None) -> bool:
    """Whether two sides share one; no side at all meets nothing."""
    if first is None or second is None:
        return False
    return first is second or Side.BILATERAL in (first, second)


def mutually_exclusive(first: Finding, second: Finding) -> bool:
    """Whether the two cannot be on one radiograph, whichever comes first."""
    names = frozenset({first.observation, second.observation})
    meet = sides_meet(first.side, second.side)
    if len(names) == 1:
        both = Side.BILATERAL in (first.side, second.side)
        return both or (first.side, first.location) == (second.side, second.location)
    if names in NEVER or (meet and names in NEVER_ON_ONE_SIDE):
        return True
    if meet and first.location == second.location and (names <= OPAQUE or names <= LAYERED):
        return True
    for cause, other in ((first, second), (second, first)):
        if cause.observation == "pleural effusion" and meet:
            covered = other.observation in COVERED and cause.severity is not Severity.MILD
            low = other.observation not in COVERED and other.location == "lower zone"
            if covered or (low and cause.severity is Severity.SEVERE):
                return True
        if cause.observation == "pneumothorax" and cause.severity is not Severity.MILD:
            if other.location == "upper zone" and other.observation in COLLAPSED and (other.side is None or meet):
                return True
    return False


def fits(candidate: Finding, others: Iterable[Finding]) -> bool:
    """Whether `candidate` can be on one radiograph with all of `others`."""
    return not any(mutually_exclusive(candidate, other) for other in others)
