"""The vocabulary: what can be seen on a chest radiograph, where, how much, and how it changed.

An observation is spelled in lower-case English (`"pleural effusion"`); the fourteen CheXpert observations are spelled as
CheXpert spells them (`"Pleural Effusion"`). The table below ties the two together; a new observation is one row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from cxrlab.core.errors import VocabularyError, did_you_mean, short_repr


class Presence(StrEnum):
    """Whether a report or an image shows it."""

    PRESENT = "present"
    ABSENT = "absent"


class Certainty(StrEnum):
    """How sure the statement is."""

    CERTAIN = "certain"
    POSSIBLE = "possible"


class Side(StrEnum):
    """The patient's side: the patient's right is on the left of the image."""

    LEFT = "left"
    RIGHT = "right"
    BILATERAL = "bilateral"


class Severity(StrEnum):
    """From least to most; 'small' and 'large' are the same scale."""

    TRACE = "trace"
    MILD = "mild"
    MODERATE = "moderate"
    SEVERE = "severe"

    @property
    def rank(self) -> int:
        return list(Severity).index(self)


class Change(StrEnum):
    """Against the prior study."""

    NEW = "new"
    INCREASED = "increased"
    UNCHANGED = "unchanged"
    DECREASED = "decreased"
    RESOLVED = "resolved"


class ErrorKind(StrEnum):
    """The six ways in which a candidate report can be wrong about a reference (CheXprompt, ReXVal)."""

    FALSE_FINDING = "false_positive_finding"
    OMITTED_FINDING = "omission_finding"
    WRONG_LOCATION = "incorrect_location"
    WRONG_SEVERITY = "incorrect_severity"
    FALSE_COMPARISON = "false_positive_comparison"
    OMITTED_COMPARISON = "omission_comparison"


class View(StrEnum):
    """How the image was taken; `frontal` means PA or AP, unknown which."""

    PA = "PA"
    AP = "AP"
    FRONTAL = "frontal"
    LATERAL = "lateral"
    OTHER = "other"


ZONES = ("upper zone", "mid zone", "lower zone")
LOBES = ("upper lobe", "middle lobe", "lower lobe", "lingula")
REGIONS = ("apex", "base", "perihilar", "retrocardiac", "costophrenic angle", "peripheral", "fissure")
RIBS = tuple(f"rib {number}" for number in range(1, 13))
LOCATIONS = (*ZONES, *LOBES, *REGIONS, *RIBS, "clavicle", "thoracic spine", "chest wall", "neck", "aortic arch")

_CAVAL = ("superior vena cava", "cavoatrial junction", "right atrium")
TIPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "endotracheal tube": ("above carina", "right main bronchus", "high"),
        "tracheostomy tube": ("above carina",),
        "enteric tube": ("stomach", "distal esophagus", "beyond image"),
        "central venous catheter": (*_CAVAL, "brachiocephalic vein"),
        "port": _CAVAL,
        "swan-ganz catheter": ("main pulmonary artery", "right pulmonary artery", "left pulmonary artery"),
        "intra-aortic balloon pump": ("descending aorta", "aortic arch"),
        "chest tube": ("apex", "base"),
        "pacemaker": ("right ventricle", "right atrium and right ventricle"),
    }
)


class Group(StrEnum):
    """The part of the image that an observation belongs to."""

    LUNG = "lung"
    PLEURA = "pleura"
    HEART = "heart"
    MEDIASTINUM = "mediastinum"
    DIAPHRAGM = "diaphragm"
    BONE = "bone"
    SOFT_TISSUE = "soft tissue"
    DEVICE = "device"


@dataclass(frozen=True)
class Observation:
    """One row of the vocabulary."""

    name: str
    group: Group
    chexpert: str | None = None  # The CheXpert observation that it counts as, or None
    sided: bool = False  # Whether left, right or bilateral belongs to a complete description
    graded: bool = False  # Whether a severity belongs to it
    measured: bool = False  # Whether a size in millimetres belongs to it
    locations: tuple[str, ...] = ()  # Where it may be; empty when the name implies the place

    @property
    def tips(self) -> tuple[str, ...]:
        """Where the end of this device may lie; empty for everything else."""
        return TIPS.get(self.name, ())


CHEXPERT_14 = (
    "No Finding", "Enlarged Cardiomediastinum", "Cardiomegaly", "Lung Opacity", "Lung Lesion", "Edema",
    "Consolidation", "Pneumonia", "Atelectasis", "Pneumothorax", "Pleural Effusion", "Pleural Other", "Fracture",
    "Support Devices",
)  # fmt: skip
# CheXpert's own hierarchy: a patient with the child has the parent too, whether or not a report names it.
CHEXPERT_CHILDREN: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "Lung Opacity": ("Lung Lesion", "Edema", "Consolidation", "Pneumonia", "Atelectasis"),
        "Enlarged Cardiomediastinum": ("Cardiomegaly",),
    }
)
# What CheXpert does not count against `No Finding`, besides devices.
CHEXPERT_INCIDENTAL = frozenset({"low lung volumes", "postsurgical change", "tortuous aorta"})
CHEXPERT_5 = ("Atelectasis", "Cardiomegaly", "Consolidation", "Edema", "Pleural Effusion")

_LUNG = (*ZONES, *LOBES, "apex", "base", "perihilar", "retrocardiac", "peripheral")

_ROWS = (
    # lung
    Observation("lung opacity", Group.LUNG, "Lung Opacity", sided=True, graded=True, locations=_LUNG),
    Observation("consolidation", Group.LUNG, "Consolidation", sided=True, graded=True, locations=_LUNG),
    Observation("pneumonia", Group.LUNG, "Pneumonia", sided=True, graded=True, locations=_LUNG),
    Observation("atelectasis", Group.LUNG, "Atelectasis", sided=True, graded=True, locations=_LUNG),
    Observation("edema", Group.LUNG, "Edema", graded=True),
    Observation("vascular congestion", Group.LUNG, "Edema", graded=True),
    Observation("nodule", Group.LUNG, "Lung Lesion", sided=True, measured=True, locations=_LUNG),
    Observation("mass", Group.LUNG, "Lung Lesion", sided=True, measured=True, locations=_LUNG),
    Observation("cavity", Group.LUNG, "Lung Lesion", sided=True, measured=True, locations=_LUNG),
    Observation("granuloma", Group.LUNG, sided=True, measured=True, locations=_LUNG),
    Observation("emphysema", Group.LUNG, graded=True),
    Observation("hyperinflation", Group.LUNG, graded=True),
    Observation("bulla", Group.LUNG, sided=True, measured=True, locations=_LUNG),
    Observation("interstitial pattern", Group.LUNG, graded=True, locations=_LUNG),
    Observation("bronchiectasis", Group.LUNG, sided=True, graded=True, locations=_LUNG),
    Observation("bronchial wall thickening", Group.LUNG, graded=True, locations=_LUNG),
    Observation("scarring", Group.LUNG, sided=True, graded=True, locations=_LUNG),
    Observation("low lung volumes", Group.LUNG, graded=True),
    # pleura
    Observation("pleural effusion", Group.PLEURA, "Pleural Effusion", sided=True, graded=True),
    Observation(
        "pneumothorax", Group.PLEURA, "Pneumothorax", sided=True, graded=True, locations=("apex", "base", "peripheral")
    ),
    Observation(
        "pleural thickening", Group.PLEURA, "Pleural Other", sided=True, graded=True, locations=(*ZONES, "apex", "base")
    ),
    Observation("pleural plaque", Group.PLEURA, "Pleural Other", sided=True, locations=(*ZONES, "base")),
    Observation("other pleural abnormality", Group.PLEURA, "Pleural Other", sided=True),
    # heart and mediastinum
    Observation("cardiomegaly", Group.HEART, "Cardiomegaly", graded=True),
    Observation("heart failure", Group.HEART, "Edema", graded=True),
    Observation("pericardial effusion", Group.HEART, graded=True),
    Observation("enlarged cardiomediastinum", Group.MEDIASTINUM, "Enlarged Cardiomediastinum", graded=True),
    Observation("hilar enlargement", Group.MEDIASTINUM, sided=True, graded=True),
    Observation("lymphadenopathy", Group.MEDIASTINUM, sided=True, graded=True),
    Observation("mediastinal mass", Group.MEDIASTINUM, sided=True, measured=True),
    Observation("pulmonary artery enlargement", Group.MEDIASTINUM, graded=True),
    Observation("aortic aneurysm", Group.MEDIASTINUM, graded=True, measured=True),
    Observation("tortuous aorta", Group.MEDIASTINUM, graded=True),
    Observation("aortic calcification", Group.MEDIASTINUM, graded=True),
    Observation("hiatal hernia", Group.MEDIASTINUM, graded=True),
    Observation("mediastinal shift", Group.MEDIASTINUM, sided=True, graded=True),
    Observation("tracheal deviation", Group.MEDIASTINUM, sided=True),
    Observation("pneumomediastinum", Group.MEDIASTINUM, graded=True),
    # diaphragm and abdomen
    Observation("elevated hemidiaphragm", Group.DIAPHRAGM, sided=True, graded=True),
    Observation("pneumoperitoneum", Group.DIAPHRAGM, sided=True, graded=True),
    Observation("bowel distension", Group.DIAPHRAGM, graded=True),
    # bones and soft tissue
    Observation("rib fracture", Group.BONE, "Fracture", sided=True, locations=RIBS),
    Observation("clavicle fracture", Group.BONE, "Fracture", sided=True),
    Observation("vertebral fracture", Group.BONE, "Fracture", graded=True),
    Observation("other fracture", Group.BONE, "Fracture", sided=True),
    Observation("bone deformity", Group.BONE, sided=True),
    Observation("dislocation", Group.BONE, sided=True),
    Observation("kyphosis", Group.BONE, graded=True),
    Observation("scoliosis", Group.BONE, graded=True),
    Observation("degenerative change", Group.BONE, graded=True),
    Observation("osteopenia", Group.BONE, graded=True),
    Observation("bone lesion", Group.BONE, sided=True),
    Observation("subcutaneous emphysema", Group.SOFT_TISSUE, sided=True, graded=True, locations=("chest wall", "neck")),
    Observation("foreign body", Group.SOFT_TISSUE, sided=True, measured=True),
    Observation("postsurgical change", Group.SOFT_TISSUE, sided=True),
    # devices
    Observation("endotracheal tube", Group.DEVICE, "Support Devices"),
    Observation("tracheostomy tube", Group.DEVICE, "Support Devices"),
    Observation("enteric tube", Group.DEVICE, "Support Devices"),
    Observation("central venous catheter", Group.DEVICE, "Support Devices", sided=True),
    Observation("port", Group.DEVICE, "Support Devices", sided=True),
    Observation("swan-ganz catheter", Group.DEVICE, "Support Devices", sided=True),
    Observation("intra-aortic balloon pump", Group.DEVICE, "Support Devices"),
    Observation("chest tube", Group.DEVICE, "Support Devices", sided=True),
    Observation("pacemaker", Group.DEVICE, "Support Devices", sided=True),
    Observation("sternal wires", Group.DEVICE, "Support Devices"),
    Observation("surgical clips", Group.DEVICE, "Support Devices", sided=True),
    Observation("prosthetic valve", Group.DEVICE, "Support Devices"),
    Observation("spinal hardware", Group.DEVICE, "Support Devices"),
    Observation("monitoring leads", Group.DEVICE),
    Observation("other device", Group.DEVICE, "Support Devices", sided=True),
)

OBSERVATIONS: Mapping[str, Observation] = MappingProxyType({row.name: row for row in _ROWS})

# The observations that the phantom draws and the narrator can put into words. The rest of the
# vocabulary is for reading reports of data sets.
DRAWN = (
    "lung opacity", "consolidation", "pneumonia", "atelectasis", "edema", "nodule", "mass", "cavity",
    "granuloma", "emphysema", "interstitial pattern", "low lung volumes",
    "pleural effusion", "pneumothorax", "pleural thickening", "pleural plaque",
    "cardiomegaly", "enlarged cardiomediastinum", "hilar enlargement", "tortuous aorta",
    "aortic calcification", "hiatal hernia", "elevated hemidiaphragm", "pneumoperitoneum",
    "rib fracture", "clavicle fracture", "scoliosis", "subcutaneous emphysema",
    "endotracheal tube", "enteric tube", "central venous catheter", "chest tube", "pacemaker", "sternal wires",
)  # fmt: skip


def observation(name: str) -> Observation:
    """The row of this observation, or a `VocabularyError` with the nearest names."""
    try:
        return OBSERVATIONS[name]
    except KeyError:
        raise VocabularyError(
            f"{short_repr(name)} is not an observation of the vocabulary.{did_you_mean(name, OBSERVATIONS)} "
            f"The {len(OBSERVATIONS)} observations are listed in cxrlab/core/vocabulary.py."
        ) from None


def chexpert_label(name: str) -> str:
    """The same name when it is one of the fourteen, else a `VocabularyError` with the nearest."""
    if name in CHEXPERT_14:
        return name
    raise VocabularyError(
        f"{short_repr(name)} is not one of the 14 CheXpert observations.{did_you_mean(name, CHEXPERT_14)} "
        "Spell them as CheXpert does."
    )
