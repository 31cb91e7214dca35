"""What a negative or normal statement denies, and when it is true.

These are facts about meaning, shared by every lexicon: "no consolidation" would be false beside a
pneumonia, "the lungs are clear" beside any finding in the lungs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cxrlab.core.vocabulary import DRAWN, Group, observation

REGIONS: Mapping[Group, str] = {
    Group.LUNG: "lungs",
    Group.PLEURA: "pleura",
    Group.HEART: "heart",
    Group.MEDIASTINUM: "mediastinum",
    Group.DIAPHRAGM: "abdomen",
    Group.BONE: "bones",
    Group.SOFT_TISSUE: "bones",
    Group.DEVICE: "lines",
}

_LUNG = tuple(name for name in DRAWN if observation(name).group is Group.LUNG)
_PLEURA = tuple(name for name in DRAWN if observation(name).group is Group.PLEURA)
_DEVICES = tuple(name for name in DRAWN if observation(name).group is Group.DEVICE)
_AIRSPACE = ("consolidation", "pneumonia", "lung opacity")
_BONES = ("rib fracture", "clavicle fracture")
_TUBES = ("endotracheal tube", "enteric tube", "central venous catheter", "chest tube")

# Denied observation → others that would make the denial false or misleading; itself always would.
ALSO_DENIED: Mapping[str, tuple[str, ...]] = {
    "consolidation": _AIRSPACE,
    "pneumonia": _AIRSPACE,
    "lung opacity": tuple(name for name in _LUNG if name not in ("emphysema", "low lung volumes")),
    "atelectasis": ("low lung volumes",),
    "edema": ("interstitial pattern",),
    "interstitial pattern": ("edema",),
    "nodule": ("mass", "cavity", "granuloma"),
    "mass": ("nodule", "cavity"),
    "cavity": ("mass",),
    "granuloma": ("nodule", "pleural plaque"),
    "emphysema": ("subcutaneous emphysema",),
    "low lung volumes": ("atelectasis", "elevated hemidiaphragm"),
    "pleural thickening": ("pleural plaque",),
    "pleural plaque": ("pleural thickening",),
    "cardiomegaly": ("enlarged cardiomediastinum",),
    "enlarged cardiomediastinum": ("cardiomegaly", "tortuous aorta", "hilar enlargement", "hiatal hernia"),
    "hilar enlargement": ("enlarged cardiomediastinum",),
    "rib fracture": _BONES,
    "clavicle fracture": _BONES,
}

# How readily each observation is denied; what is not listed has 0.15, devices 0.03.
_PERTINENT: Mapping[str, float] = {
    "pleural effusion": 5, "pneumothorax": 5, "consolidation": 4, "edema": 3, "pneumonia": 2, "lung opacity": 1,
    "nodule": 1.2, "mass": 1, "cardiomegaly": 1, "atelectasis": 0.6, "enlarged cardiomediastinum": 0.7,
    "hilar enlargement": 0.5, "rib fracture": 1, "clavicle fracture": 0.5, "pneumoperitoneum": 1.2,
    "subcutaneous emphysema": 0.4,
}  # fmt: skip
PERTINENT: Mapping[str, float] = {name: _PERTINENT.get(name, 0.03 if name in _DEVICES else 0.15) for name in DRAWN}


@dataclass(frozen=True)
class Normal:
    """One kind of normal statement.

    Args:
        region: Where in the report it stands.
        requires: Observations that must not be present, not even possibly.
        states: Observations that the statement says are absent.
    """

    region: str
    requires: tuple[str, ...]
    states: tuple[str, ...]


NORMAL: Mapping[str, Normal] = {
    "heart": Normal("heart", ("cardiomegaly", "enlarged cardiomediastinum"), ("cardiomegaly",)),
    "mediastinum": Normal(
        "mediastinum",
        ("enlarged cardiomediastinum", "hilar enlargement", "tortuous aorta", "aortic calcification", "hiatal hernia"),
        ("enlarged cardiomediastinum",),
    ),
    "hila": Normal(
        "mediastinum",
        ("enlarged cardiomediastinum", "hilar enlargement", "tortuous aorta", "aortic calcification", "hiatal hernia"),
        ("enlarged cardiomediastinum", "hilar enlargement"),
    ),
    "lungs": Normal(
        "lungs", (*_LUNG, *_PLEURA, "elevated hemidiaphragm"), ("lung opacity", "consolidation")
    ),
    "angles": Normal("pleura", ("pleural effusion", "pleural thickening"), ("pleural effusion",)),
    "pleura": Normal("pleura", _PLEURA, ("pleural effusion", "pneumothorax")),
    "bones": Normal("bones", (*_BONES, "scoliosis"), _BONES),
    "diaphragm": Normal(
        "abdomen",
        ("elevated hemidiaphragm", "pneumoperitoneum", "hiatal hernia", "low lung volumes", "emphysema"),
        ("elevated hemidiaphragm",),
    ),
    "abdomen": Normal("abdomen", ("pneumoperitoneum", "hiatal hernia"), ("pneumoperitoneum",)),
    "lines": Normal("lines", _DEVICES, _TUBES),
    "devices": Normal("lines", _DEVICES, _DEVICES),
}  # fmt: skip

# Beside these, when nothing about them is new or worse, one may still say that nothing is acute.
CALM = frozenset(
    {
        "granuloma", "emphysema", "pleural plaque", "tortuous aorta", "aortic calcification", "hiatal hernia",
        "scoliosis", "pacemaker", "sternal wires",
    }
)  # fmt: skip


def deniable(name: str, present: frozenset[str]) -> bool:
    """Whether "no <name>" is true and not misleading on a film with these observations."""
    return name not in present and present.isdisjoint(ALSO_DENIED.get(name, ()))


def region_of(name: str) -> str:
    """The region of the report in which an observation is told."""
    return REGIONS[observation(name).group]
