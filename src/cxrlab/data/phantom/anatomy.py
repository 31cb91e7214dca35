"""The shape of one patient's chest in numbers, and how findings such as a large heart or a curved spine change it.

`Anatomy` is drawn once per patient and varied a little at each visit. The findings in `RESHAPES` alter it before the
projection; all others are painted onto the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Certainty, Severity, Side, View
from cxrlab.data.phantom.acquisition_presets import Preset


@dataclass(frozen=True)
class Anatomy:
    """Millimetres unless stated otherwise; see `image_plane.py` for the coordinates."""

    cage: float = 128.0  # half width of the rib cage at its widest
    apex: float = 50.0  # y of the lung apices
    widest: float = 218.0  # y where the cage is widest
    dome_right: float = 252.0  # y of the top of the right diaphragm
    dome_left: float = 264.0  # y of the top of the left diaphragm
    flatness: float = 0.0  # 0 a round dome, 1 a flat one
    heart_ratio: float = 0.45  # heart width over cage width (the cardiothoracic ratio)
    heart_left: float = 0.68  # share of the heart left of the spine
    heart_y: float = 214.0  # y of the middle of the heart
    heart_height: float = 56.0  # half height of the heart
    pedicle_right: float = 23.0  # half width of the upper mediastinum, right of the spine
    pedicle_left: float = 25.0  # the same on the left
    arch_y: float = 118.0  # y of the aortic arch
    arch_radius: float = 14.0  # radius of the aortic knob
    aorta_bow: float = 0.0  # how far the descending aorta bows to the left
    carina_y: float = 138.0  # y where the trachea divides
    spine_curve: float = 0.0  # sideways reach of the spine (positive: to the patient's left)
    rib_gap: float = 21.0  # distance of neighbouring ribs
    rib_half: float = 4.3  # half height of a rib
    rib_drop: float = 44.0  # how far a back rib falls from spine to flank
    clavicle_y: float = 78.0  # y of the inner end of the clavicles
    clavicle_rise: float = 26.0  # how much higher the outer end lies
    breast: float = 0.0  # strength of the breast shadows, 0 to 1
    bulk: float = 1.0  # thickness of soft tissue, 1 for an average adult
    lucency: float = 1.0  # air in the lungs, 1 for an average breath
    scapula: float = 0.0  # how far the shoulder blades lie over the lungs, 0 (PA) to 1 (AP)
    neck: float = 47.0  # half width of the neck
    shoulder_y: float = 58.0  # y of the top of the shoulders at the rim of the image

    def dome(self, side: Side) -> float:
        """Height y of the top of one diaphragm."""
        return self.dome_left if side is Side.LEFT else self.dome_right


def draw_anatomy(rng: np.random.Generator, sex: str, age: float, preset: Preset) -> Anatomy:
    """One patient's chest: larger for men, wider mediastinum and lower lungs with age."""

    def about(mean: float, spread: float) -> float:
        return float(mean + spread * np.clip(rng.normal(), -2.0, 2.0))

    build = preset.build
    large = (1.0 if sex == "M" else 0.94) * build * about(1.0, 0.025)
    old = min(max((age - 40.0) / 45.0, 0.0), 1.0)
    apex = about(38.0, 4.0)
    dome = apex + about(214.0, 7.0) * large * preset.depth
    return Anatomy(
        cage=about(128.0, 5.0) * large,
        apex=apex,
        widest=apex + 0.82 * (dome - apex),
        dome_right=dome,
        dome_left=dome + about(11.0, 2.0),
        heart_ratio=float(np.clip(about(0.435, 0.018) + 0.015 * old, 0.39, 0.48)),
        heart_left=about(0.68, 0.02) + preset.heart_axis,
        heart_y=dome - about(33.0, 3.0),
        heart_height=about(52.0, 2.5) * large,
        pedicle_right=about(22.0, 1.5),
        pedicle_left=about(23.0, 1.5) + 1.5 * old,
        arch_y=apex + about(67.0, 3.0),
        arch_radius=about(12.5, 1.0) + 1.5 * old,
        carina_y=apex + about(88.0, 3.0),
        rib_gap=about(20.8, 0.7) * large * preset.rib_gap,
        rib_half=about(4.2, 0.25),
        rib_drop=about(42.0, 6.0),
        clavicle_y=apex + about(27.0, 4.0),
        clavicle_rise=about(25.0, 6.0),
        breast=float(rng.uniform(0.35, 1.0)) if sex == "F" else 0.0,
        bulk=about(1.0, 0.06) * preset.bulk,
        neck=about(46.0, 2.5),
        shoulder_y=about(52.0, 7.0),
    )


def at_visit(anatomy: Anatomy, rng: np.random.Generator, view: View) -> Anatomy:
    """The same chest on another day: another breath; and the AP image's geometry."""
    breath = float(rng.normal(0.0, 2.0))
    out = _breathe(anatomy, breath)
    if view is not View.AP:
        return out
    return replace(
        _breathe(out, -5.0),
        heart_ratio=out.heart_ratio + 0.015,
        pedicle_right=out.pedicle_right + 1.5,
        pedicle_left=out.pedicle_left + 1.5,
        clavicle_y=out.clavicle_y - 9.0,
        clavicle_rise=out.clavicle_rise - 16.0,
        scapula=float(rng.uniform(0.55, 1.0)),
    )


def _breathe(anatomy: Anatomy, down: float) -> Anatomy:
    """Both domes `down` millimetres lower, the heart following by half."""
    return replace(
        anatomy,
        dome_right=anatomy.dome_right + down,
        dome_left=anatomy.dome_left + down,
        widest=anatomy.widest + 0.8 * down,
        heart_y=anatomy.heart_y + 0.7 * down,
    )


_GRADE = {Severity.TRACE: 0, Severity.MILD: 0, Severity.MODERATE: 1, Severity.SEVERE: 2, None: 1}


def grade(finding: Finding, mild: float, moderate: float, severe: float) -> float:
    """The number of a severity; without one, the middle."""
    return (mild, moderate, severe)[_GRADE[finding.severity]]


def strength(finding: Finding) -> float:
    """1, or the share of its contrast that a faint finding is drawn with."""
    return FAINT if finding.certainty is Certainty.POSSIBLE else 1.0


FAINT = 0.45


# Observations that change the shape of the chest → the size of the change for mild, moderate and severe.
RESHAPES: MappingProxyType[str, tuple[float, float, float]] = MappingProxyType(
    {
        "cardiomegaly": (0.56, 0.61, 0.67),
        "enlarged cardiomediastinum": (14.0, 19.0, 25.0),
        "tortuous aorta": (14.0, 19.0, 24.0),
        "scoliosis": (15.0, 21.0, 28.0),
        "low lung volumes": (24.0, 36.0, 50.0),
        "emphysema": (15.0, 19.0, 24.0),
        "elevated hemidiaphragm": (32.0, 42.0, 54.0),
    }
)


def reshape(anatomy: Anatomy, findings: Sequence[Finding]) -> Anatomy:
    """The chest with every present finding that changes its shape."""
    a = anatomy
    for finding in (one for one in findings if one.present and one.observation in RESHAPES):
        by, faint = grade(finding, *RESHAPES[finding.observation]), strength(finding)
        if finding.observation == "cardiomegaly":
            grown = (by - 0.45) * faint
            a = replace(a, heart_ratio=a.heart_ratio + grown, heart_height=a.heart_height * (1 + 0.55 * grown))
            continue
        by *= faint
        match finding.observation:
            case "enlarged cardiomediastinum":
                a = replace(a, pedicle_right=a.pedicle_right + by, pedicle_left=a.pedicle_left + 0.85 * by)
            case "tortuous aorta":
                a = replace(a, aorta_bow=by, arch_radius=a.arch_radius + 0.24 * by)
            case "scoliosis":
                a = replace(a, spine_curve=by)
            case "low lung volumes":
                a = replace(_breathe(a, -by), lucency=a.lucency - 0.003 * by)
            case "emphysema":
                flat, ratio = grade(finding, 0.55, 0.7, 0.85) * faint, a.heart_ratio - 0.002 * by
                a = replace(_breathe(a, by), flatness=flat, lucency=a.lucency + 0.016 * by, heart_ratio=ratio)
            case "elevated hemidiaphragm":
                right = a.dome_right - (by if finding.side in (Side.RIGHT, Side.BILATERAL) else 0.0)
                left = a.dome_left - (by if finding.side in (Side.LEFT, Side.BILATERAL) else 0.0)
                a = replace(a, dome_right=right, dome_left=left)
    return a
