"""Statements made of a part and what is said of it: "the heart is mildly enlarged", "widening of the mediastinum"."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Meaning:
    """What a predicate means of a part.

    Args:
        subjects: Names of parts.
        predicates: Names of predicates.
        observations: What it says; empty when it says only that something is normal.
        reason: Why.
        absent: Whether it denies them.
        possible: Whether it is no more than a hint.
        place: A word of `vocabulary.LOCATIONS` that it implies.
    """

    subjects: tuple[str, ...]
    predicates: tuple[str, ...]
    observations: tuple[str, ...]
    reason: str
    absent: bool = False
    possible: bool = False
    place: str | None = None


_LARGE = ("enlarged", "borderline", "prominent", "large", "increased")
MEANINGS = (
    Meaning(("heart",), _LARGE, ("cardiomegaly",), "a large heart"),
    Meaning(
        ("heart",), ("normal", "adequate"), ("cardiomegaly",), "a heart of normal size is not enlarged", absent=True
    ),
    Meaning(("interstitium",), ("grown",), ("interstitial pattern",), "more lines than before are too many"),
    Meaning(("vasculature",), ("grown",), ("vascular congestion",), "fuller than before is full"),
    Meaning(("heart",), ("grown",), ("cardiomegaly",), "larger than it was may still be normal", possible=True),
    Meaning(
        ("cardiomediastinum", "mediastinum"),
        ("grown",),
        ("enlarged cardiomediastinum",),
        "wider than it was may still be normal",
        possible=True,
    ),
    Meaning(("hilum",), ("grown",), ("hilar enlargement",), "larger than it was may still be normal", possible=True),
    Meaning(("cardiomediastinum", "mediastinum"), _LARGE, ("enlarged cardiomediastinum",), "a wide middle"),
    Meaning(
        ("cardiomediastinum",),
        ("normal",),
        ("cardiomegaly", "enlarged cardiomediastinum"),
        "normal silhouette: neither the heart nor the rest is large",
        absent=True,
    ),
    Meaning(
        ("mediastinum",), ("normal",), ("enlarged cardiomediastinum",), "a normal mediastinum is not wide", absent=True
    ),
    Meaning(
        ("mediastinum", "cardiomediastinum", "heart"), ("deviated",), ("mediastinal shift",), "moved out of the middle"
    ),
    Meaning(("mediastinum", "cardiomediastinum"), ("midline",), ("mediastinal shift",), "in the middle", absent=True),
    Meaning(("mediastinum",), ("air",), ("pneumomediastinum",), "air between the lungs"),
    Meaning(("trachea",), ("deviated",), ("tracheal deviation",), "moved out of the middle"),
    Meaning(("trachea",), ("midline",), ("tracheal deviation",), "in the middle", absent=True),
    Meaning(
        ("vasculature",),
        ("enlarged", "borderline", "prominent", "increased", "congested", "accentuated"),
        ("vascular congestion",),
        "full vessels",
    ),
    Meaning(("vasculature",), ("normal",), ("vascular congestion",), "normal vessels are not full", absent=True),
    Meaning(("hilum",), _LARGE, ("hilar enlargement",), "large lung roots"),
    Meaning(("hilum",), ("normal",), ("hilar enlargement",), "normal lung roots are not large", absent=True),
    Meaning(("node",), _LARGE, ("lymphadenopathy",), "large nodes"),
    Meaning(("node",), ("calcified",), ("granuloma",), "what an old infection leaves"),
    Meaning(("pulmonary artery",), _LARGE, ("pulmonary artery enlargement",), "a wide artery"),
    Meaning(("aorta",), ("tortuous",), ("tortuous aorta",), "a winding aorta"),
    Meaning(("aorta",), ("calcified",), ("aortic calcification",), "calcium in the aorta"),
    Meaning(("aorta",), ("aneurysmal", "enlarged"), ("aortic aneurysm",), "a wide aorta"),
    Meaning(("diaphragm",), ("elevated",), ("elevated hemidiaphragm",), "too high"),
    Meaning(("diaphragm",), ("flattened",), ("hyperinflation",), "pressed down by too much air"),
    Meaning(("diaphragm",), ("air",), ("pneumoperitoneum",), "air below the dome is outside the bowel"),
    Meaning(
        ("angle",),
        ("blunted", "deformed"),
        ("pleural effusion",),
        "the angle fills first, but thickening fills it too",
        possible=True,
        place="costophrenic angle",
    ),
    Meaning(
        ("angle",),
        ("sharp", "clear", "normal", "intact"),
        ("pleural effusion",),
        "an open angle holds no fluid",
        absent=True,
    ),
    Meaning(("pleura",), ("increased",), ("pleural thickening",), "a thick pleura"),
    Meaning(("pleura",), ("calcified",), ("pleural plaque",), "calcium in the pleura"),
    Meaning(("pleura", "angle", "fissure"), ("fluid",), ("pleural effusion",), "fluid in the pleural space"),
    Meaning(("pleura",), ("clear",), ("pleural effusion",), "a clear pleural space holds no fluid", absent=True),
    Meaning(("pleura",), ("air",), ("pneumothorax",), "air in the pleural space"),
    Meaning(("volume",), ("low",), ("low lung volumes",), "not filled"),
    Meaning(("volume",), ("large", "increased", "elevated", "enlarged"), ("hyperinflation",), "filled too far"),
    Meaning(("volume",), ("normal", "adequate", "clear"), ("low lung volumes",), "filled as it should be", absent=True),
    Meaning(
        ("interstitium",),
        ("prominent", "increased", "enlarged", "congested", "accentuated"),
        ("interstitial pattern",),
        "more lines than usual",
    ),
    Meaning(("interstitium",), ("normal",), ("interstitial pattern",), "no more lines than usual", absent=True),
    Meaning(("bronchus wall",), ("increased", "prominent"), ("bronchial wall thickening",), "a thick wall"),
    Meaning(("rib",), ("fractured",), ("rib fracture",), "a broken rib"),
    Meaning(("clavicle",), ("fractured",), ("clavicle fracture",), "a broken collar bone"),
    Meaning(("spine",), ("fractured", "deformed"), ("vertebral fracture",), "a vertebra that lost its shape"),
    Meaning(
        ("vertebral height",),
        ("normal", "intact"),
        ("vertebral fracture",),
        "a vertebra of full height is not crushed",
        absent=True,
    ),
    Meaning(("vertebral height",), ("low",), ("vertebral fracture",), "a vertebra that lost its shape"),
    Meaning(("other bone", "bone", "sternum"), ("fractured",), ("other fracture",), "another bone broken"),
    Meaning(
        ("rib", "clavicle", "other bone", "bone", "chest", "sternum"),
        ("deformed",),
        ("bone deformity",),
        "a bone of unusual shape",
    ),
    Meaning(("sternum",), ("wired",), ("sternal wires",), "wires of an opened breastbone"),
    Meaning(("pleura", "lungs"), ("drained",), ("chest tube",), "a drain of the pleural space"),
    Meaning(("airway", "bronchus wall"), ("tortuous", "enlarged"), ("bronchiectasis",), "wide bronchi"),
    Meaning(("spine",), ("bowed",), ("scoliosis",), "a spine bent to the side"),
    Meaning(("coronary artery",), ("calcified",), ("aortic calcification",), "calcium in the wall of an artery"),
    Meaning(("aorta",), ("plaque",), ("aortic calcification",), "calcium in the wall"),
    Meaning(("pleura", "diaphragm"), ("plaque",), ("pleural plaque",), "a plate on the pleura"),
    Meaning(("bone density",), ("low",), ("osteopenia",), "thin bones"),
    Meaning(("bone density",), ("normal",), ("osteopenia",), "bones as dense as they should be", absent=True),
    Meaning(("interstitium",), ("graded",), ("interstitial pattern",), "lines that have a degree are too many"),
    Meaning(("interstitium",), ("chronic", "irregular"), ("interstitial pattern",), "lines that have come to stay"),
    Meaning(
        ("rib", "clavicle", "sternum", "other bone"), ("irregular",), ("bone deformity",), "a bone of unusual shape"
    ),
    Meaning(("soft tissue",), ("air",), ("subcutaneous emphysema",), "air under the skin"),
    Meaning(("bowel",), ("enlarged", "prominent"), ("bowel distension",), "a full bowel"),
    Meaning(("lungs",), ("clear", "normal"), (), "nothing in the lungs", absent=True),
    Meaning(
        ("bone", "rib", "clavicle", "spine", "other bone", "sternum"),
        ("intact", "normal", "clear"),
        (),
        "nothing broken",
        absent=True,
    ),
    Meaning(
        ("diaphragm", "aorta", "trachea", "soft tissue", "abdomen", "bowel", "airway", "chest", "pulmonary artery")
        + ("fissure", "node"),
        ("normal", "clear", "sharp", "intact"),
        (),
        "as it should be",
        absent=True,
    ),
    Meaning(("pleura",), ("normal", "sharp", "intact"), (), "as it should be", absent=True),
)


def meanings() -> dict[tuple[str, str], Meaning]:
    """(part, predicate) → meaning."""
    return {(part, said): row for row in MEANINGS for part in row.subjects for said in row.predicates}
