"""What each drawn observation looks like and how it behaves from one visit to the next.

`Shape` says how a complete finding is drawn; `Course` gives the probabilities that it is worse,
the same, better or gone at the next visit, and whether it may appear on a later film at all (a
scoliosis does not turn up within a month).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Weights = Mapping[str, float]

_ANY: Weights = {"upper zone": 1, "mid zone": 1, "lower zone": 1}
_LOW: Weights = {"mid zone": 0.2, "lower zone": 0.8}
_UPPER: Weights = {"upper zone": 0.6, "mid zone": 0.25, "lower zone": 0.15}
_RIBS: Weights = {f"rib {number}": 1 for number in range(3, 10)}


@dataclass(frozen=True)
class Shape:
    """How one finding is drawn.

    Args:
        both: Chance of being bilateral; only for sided observations.
        leans: Whether it tends to the patient's injured or diseased side.
        places: Location → weight; empty where the name implies the place.
        size_mm: Smallest and largest diameter, for measured observations.
        tips: Tip position → weight, for devices that end somewhere.
        again: Chance of one more of the same kind elsewhere, asked twice at most.
        only: A side that it always takes when not bilateral.
    """

    both: float = 0.0
    leans: bool = False
    places: Weights | None = None
    size_mm: tuple[int, int] | None = None
    tips: Weights | None = None
    again: float = 0.0
    only: str | None = None


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
    "enteric tube": Shape(tips={"stomach": 0.72, "distal esophagus": 0.14, "beyond film": 0.14}),
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


@dataclass(frozen=True)
class Course:
    """Chances for the next visit; what is left over of 1 is 'the same'.

    Args:
        worse: One step up in degree or size.
        better: One step down.
        gone: No longer there.
        may_appear: Whether it may turn up on a later film.
        after_days: Days that must pass before it can be gone; a broken bone takes weeks.
    """

    worse: float = 0.0
    better: float = 0.0
    gone: float = 0.0
    may_appear: bool = True
    after_days: int = 0

    @property
    def lasting(self) -> bool:
        """True for what no early film can be free of again."""
        return self.gone == 0.0 or self.after_days > 0


_ACUTE = Course(worse=0.22, better=0.28, gone=0.22)
_SLOW = Course(worse=0.15, better=0.05)
_LIFELONG = Course(may_appear=False)
_TUBE = Course(gone=0.3)
_FRACTURE = Course(gone=0.5, after_days=60)
_LESION = Course(worse=0.35, better=0.12)

COURSES: Mapping[str, Course] = {
    "lung opacity": _ACUTE, "consolidation": _ACUTE, "pneumonia": _ACUTE, "atelectasis": _ACUTE, "edema": _ACUTE,
    "nodule": _LESION, "mass": Course(worse=0.5, better=0.12, may_appear=False),
    "cavity": Course(worse=0.3, better=0.3, gone=0.05, may_appear=False),
    "granuloma": _LIFELONG, "emphysema": _LIFELONG, "interstitial pattern": Course(worse=0.2, may_appear=False),
    "low lung volumes": _ACUTE,
    "pleural effusion": _ACUTE, "pneumothorax": _ACUTE, "pleural thickening": _SLOW, "pleural plaque": _LIFELONG,
    "cardiomegaly": _SLOW, "enlarged cardiomediastinum": Course(worse=0.15, better=0.2, gone=0.1),
    "hilar enlargement": Course(worse=0.2, better=0.2, gone=0.1), "tortuous aorta": _LIFELONG,
    "aortic calcification": _LIFELONG, "hiatal hernia": _LIFELONG,
    "elevated hemidiaphragm": Course(worse=0.1, better=0.2, gone=0.1),
    "pneumoperitoneum": Course(worse=0.05, better=0.35, gone=0.3),
    "rib fracture": _FRACTURE, "clavicle fracture": _FRACTURE, "scoliosis": _LIFELONG,
    "subcutaneous emphysema": Course(worse=0.2, better=0.3, gone=0.25),
    "endotracheal tube": _TUBE, "enteric tube": _TUBE, "central venous catheter": Course(gone=0.15),
    "chest tube": _TUBE, "pacemaker": Course(), "sternal wires": Course(),
}  # fmt: skip
