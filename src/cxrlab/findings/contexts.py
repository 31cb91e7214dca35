"""Why the film was taken, and what is then likely to be on it.

One row is one clinical context. `weight` is its share among abnormal studies and `normal` among
normal ones (both are scaled to sum to 1), `ap` the share of portable AP films, `ages` the range in
years at a first visit (later ones may be `LATER` years older), `days` the range of the interval to
the next film, and `chances` the probability that an observation is there at a first abnormal visit.
`acute` marks contexts a patient can recover from entirely, so that a normal film may follow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LATER = 3


@dataclass(frozen=True)
class Context:
    """One reason for a film; see the head of this file for the fields."""

    weight: float
    normal: float
    ap: float
    ages: tuple[int, int]
    days: tuple[int, int]
    acute: bool
    chances: Mapping[str, float]

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
# to a routine film intubated, and drains and subcutaneous emphysema follow other findings.
EXTRA_CHANCE = 0.30
EXTRAS: Mapping[str, float] = {
    "lung opacity": 1, "consolidation": 1, "pneumonia": 1, "atelectasis": 2, "edema": 1, "nodule": 2, "mass": 1,
    "cavity": 1, "granuloma": 3, "emphysema": 2, "interstitial pattern": 2, "low lung volumes": 2,
    "pleural effusion": 1, "pneumothorax": 1, "pleural thickening": 3, "pleural plaque": 3, "cardiomegaly": 3,
    "enlarged cardiomediastinum": 2, "hilar enlargement": 2, "tortuous aorta": 3, "aortic calcification": 3,
    "hiatal hernia": 4, "elevated hemidiaphragm": 3, "pneumoperitoneum": 1, "rib fracture": 2,
    "clavicle fracture": 2, "scoliosis": 4, "central venous catheter": 1, "pacemaker": 2, "sternal wires": 2,
}  # fmt: skip
