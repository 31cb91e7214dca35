"""Clinical significance: the urgency of every observation, with its reason.

The class is that of a new radiograph read without further knowledge. Age moves a few of them, and so do
the degree of a finding and the place where a device ends; each such rule is a row as well. The
classes are judgements in the sense of a radiologist's call list, not measurements.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import Severity, observation

# Words of an indication that suspects infection, or fluid: such findings then matter more, and a sign and its cause are one.
INFECTION = (
    "fever", "febrile", "cough", "infection", "infectious", "pneumonia", "sepsis", "septic", "sputum", "chills",
    "aspiration", "leukocytosis",
)  # fmt: skip
FLUID = ("heart failure", "chf", "fluid", "volume overload", "edema", "dialysis")


class Urgency(StrEnum):
    """What a finding calls for, from most to least."""

    URGENT = "urgent"  # someone is called now
    ACTIONABLE = "actionable"  # treatment, a further test or a follow-up depends on it
    NOT_ACTIONABLE = "not actionable"  # worth reporting, changes nothing by itself
    BENIGN = "benign"  # expected or without consequence

    @property
    def rank(self) -> int:
        """0 for benign to 3 for urgent."""
        return len(Urgency) - 1 - list(Urgency).index(self)

    @property
    def matters(self) -> bool:
        """True where being wrong about it is likely to change what is done for the patient."""
        return self.rank >= Urgency.ACTIONABLE.rank


_URGENT, _ACTION, _NOTED, _BENIGN = Urgency
Row = tuple[Urgency, str]

CLASSES: Mapping[str, Row] = {
    # lung
    "lung opacity": (_ACTION, "may be infection, bleeding or tumour until explained"),
    "consolidation": (_ACTION, "infection or aspiration is treated"),
    "pneumonia": (_ACTION, "is treated"),
    "atelectasis": (_NOTED, "common and mostly clears with breathing"),
    "edema": (_ACTION, "fluid and heart are treated"),
    "vascular congestion": (_ACTION, "precedes edema; fluid is reviewed"),
    "nodule": (_ACTION, "may be an early cancer; calls for CT or follow-up"),
    "mass": (_ACTION, "is a cancer until shown otherwise"),
    "cavity": (_ACTION, "tuberculosis, abscess or tumour"),
    "granuloma": (_BENIGN, "healed and calcified"),
    "emphysema": (_NOTED, "long-standing and usually known"),
    "hyperinflation": (_NOTED, "a sign of chronic airway disease"),
    "bulla": (_NOTED, "long-standing; matters when it bursts"),
    "interstitial pattern": (_ACTION, "fibrosis or early edema; calls for CT"),
    "bronchiectasis": (_NOTED, "long-standing airway damage"),
    "bronchial wall thickening": (_NOTED, "unspecific irritation of the airways"),
    "scarring": (_BENIGN, "what a healed disease leaves"),
    "low lung volumes": (_NOTED, "limits the image rather than naming a disease"),
    # pleura
    "pleural effusion": (_ACTION, "its cause is sought, a large one is drained"),
    "pneumothorax": (_URGENT, "may collapse the lung within minutes"),
    "pleural thickening": (_NOTED, "mostly an old scar"),
    "pleural plaque": (_NOTED, "a trace of asbestos without treatment"),
    "other pleural abnormality": (_NOTED, "named too loosely to act on"),
    # heart and mediastinum
    "cardiomegaly": (_ACTION, "calls for a look at the heart"),
    "heart failure": (_ACTION, "is treated"),
    "pericardial effusion": (_URGENT, "may stop the heart from filling"),
    "enlarged cardiomediastinum": (_ACTION, "bleeding, aneurysm or nodes may be behind it"),
    "hilar enlargement": (_ACTION, "nodes, tumour or pressure in the lung arteries"),
    "lymphadenopathy": (_ACTION, "tumour or infection is sought"),
    "mediastinal mass": (_ACTION, "is worked up by CT"),
    "pulmonary artery enlargement": (_ACTION, "high pressure in the lung is sought"),
    "aortic aneurysm": (_URGENT, "may rupture; a surgeon is consulted"),
    "tortuous aorta": (_BENIGN, "comes with age and pressure"),
    "aortic calcification": (_NOTED, "marks disease of the vessels, known by other means"),
    "hiatal hernia": (_NOTED, "often without complaints"),
    "mediastinal shift": (_URGENT, "something pushes or pulls: tension or collapse"),
    "tracheal deviation": (_ACTION, "goitre, mass or collapse is sought"),
    "pneumomediastinum": (_URGENT, "a torn airway or oesophagus is sought at once"),
    # diaphragm and abdomen
    "elevated hemidiaphragm": (_NOTED, "mostly long-standing; a palsy is not urgent"),
    "pneumoperitoneum": (_URGENT, "a perforated bowel until shown otherwise"),
    "bowel distension": (_ACTION, "obstruction is sought"),
    # bones and soft tissue
    "rib fracture": (_ACTION, "pain, bleeding and collapse follow it"),
    "clavicle fracture": (_ACTION, "is splinted or fixed"),
    "vertebral fracture": (_ACTION, "osteoporosis or injury is treated"),
    "other fracture": (_ACTION, "is treated"),
    "bone deformity": (_BENIGN, "healed or inborn"),
    "dislocation": (_ACTION, "is put back"),
    "kyphosis": (_BENIGN, "a lasting shape of the spine"),
    "scoliosis": (_BENIGN, "a lasting shape of the spine"),
    "degenerative change": (_BENIGN, "wear that comes with age"),
    "osteopenia": (_NOTED, "a radiograph shows it poorly; density is measured otherwise"),
    "bone lesion": (_ACTION, "may be a metastasis"),
    "subcutaneous emphysema": (_ACTION, "air leaks from somewhere; the source is sought"),
    "foreign body": (_ACTION, "may have to be taken out"),
    "postsurgical change": (_BENIGN, "trace of a known operation"),
    # devices: in its place each is expected; a tip in the wrong place is another matter (see below)
    "endotracheal tube": (_NOTED, "known to the ward; its position is what counts"),
    "tracheostomy tube": (_NOTED, "known to the ward"),
    "enteric tube": (_NOTED, "known to the ward; its position is what counts"),
    "central venous catheter": (_NOTED, "known to the ward; its position is what counts"),
    "port": (_NOTED, "known to the patient"),
    "swan-ganz catheter": (_NOTED, "known to the ward; its position is what counts"),
    "intra-aortic balloon pump": (_NOTED, "known to the ward; its position is what counts"),
    "chest tube": (_NOTED, "known to the ward"),
    "pacemaker": (_NOTED, "known to the patient; matters before an MRI"),
    "sternal wires": (_BENIGN, "trace of a known operation"),
    "surgical clips": (_BENIGN, "trace of a known operation"),
    "prosthetic valve": (_NOTED, "known to the patient"),
    "spinal hardware": (_BENIGN, "trace of a known operation"),
    "monitoring leads": (_BENIGN, "lie on the skin"),
    "other device": (_NOTED, "known to the ward or the patient"),
}


@dataclass(frozen=True)
class AgeRule:
    """The class of an observation at some ages.

    Args:
        observation: A name of the vocabulary.
        least: Years from which the rule holds.
        below: Years from which it holds no longer.
        urgency: The class at these ages.
        reason: Why age matters here.
    """

    observation: str
    least: float
    below: float
    urgency: Urgency
    reason: str


AGE_RULES: tuple[AgeRule, ...] = (
    AgeRule("aortic calcification", 65, math.inf, _BENIGN, "expected at this age"),
    AgeRule("aortic calcification", 0, 40, _ACTION, "early vessel disease has a cause"),
    AgeRule("tortuous aorta", 0, 40, _ACTION, "not explained by age: coarctation or weak connective tissue"),
    AgeRule("degenerative change", 0, 40, _NOTED, "early wear has a cause"),
    AgeRule("osteopenia", 75, math.inf, _BENIGN, "expected at this age"),
    AgeRule("osteopenia", 0, 50, _ACTION, "early loss of bone has a cause that can be treated"),
    AgeRule("emphysema", 0, 40, _ACTION, "early emphysema may be inherited"),
    AgeRule("hyperinflation", 0, 18, _ACTION, "asthma or an inhaled object in a child"),
    AgeRule("scoliosis", 0, 18, _ACTION, "a growing spine can be braced"),
    AgeRule("kyphosis", 0, 18, _ACTION, "a growing spine can be braced"),
    AgeRule("nodule", 0, 35, _NOTED, "cancer is rare at this age; rules for follow-up begin at 35"),
    AgeRule("enlarged cardiomediastinum", 0, 3, _BENIGN, "the thymus is wide at this age"),
    AgeRule("bronchiectasis", 0, 40, _ACTION, "cystic fibrosis or an immune defect is sought"),
)

# A tip in one of these places is put right at once, or soon.
MISPLACED: Mapping[tuple[str, str], Row] = {
    ("endotracheal tube", "right main bronchus"): (_URGENT, "the left lung is not ventilated"),
    ("endotracheal tube", "high"): (_URGENT, "the tube may slip out"),
    ("enteric tube", "distal esophagus"): (_ACTION, "feeding through it may be inhaled"),
    ("central venous catheter", "right atrium"): (_ACTION, "may disturb the rhythm; is drawn back"),
    ("central venous catheter", "brachiocephalic vein"): (_ACTION, "too short for what is given through it"),
    ("port", "right atrium"): (_ACTION, "may disturb the rhythm"),
    ("intra-aortic balloon pump", "aortic arch"): (_URGENT, "may close the arteries of the head"),
}

# A degree that moves the class of an observation.
DEGREE_RULES: Mapping[tuple[str, Severity], Row] = {
    ("edema", Severity.SEVERE): (_URGENT, "breathing fails"),
    ("pleural effusion", Severity.SEVERE): (_URGENT, "is drained"),
    ("pleural effusion", Severity.TRACE): (_NOTED, "too little to sample or to treat"),
    ("cardiomegaly", Severity.TRACE): (_NOTED, "within the error of the measurement"),
    ("atelectasis", Severity.SEVERE): (_ACTION, "a collapsed lobe has a cause that is sought"),
    ("pleural thickening", Severity.SEVERE): (_ACTION, "mesothelioma or empyema is sought"),
    ("lung opacity", Severity.TRACE): (_NOTED, "may be nothing"),
}


@dataclass(frozen=True)
class Question:
    """Something in the reason for the radiograph that makes findings matter one class more, or one class less.

    Args:
        words: Any of them in the indication: whole words, also in the plural; `*` stands for any ending.
        observations: What then matters more, or less.
        reason: Why.
    """

    words: tuple[str, ...]
    observations: tuple[str, ...]
    reason: str


_LINES = (
    "endotracheal tube", "tracheostomy tube", "enteric tube", "central venous catheter", "port",
    "swan-ganz catheter", "intra-aortic balloon pump", "chest tube", "pacemaker", "other device",
)  # fmt: skip
QUESTIONS: tuple[Question, ...] = (
    Question(
        ("placement", "line", "tube", "catheter", "intubat*", "picc", "central venous"),
        (*_LINES, "pneumothorax"),
        "the image was taken to see where it lies and what it did",
    ),
    Question(
        ("trauma", "fall", "fell", "mvc", "mva", "accident", "injury", "assault"),
        ("rib fracture", "clavicle fracture", "vertebral fracture", "other fracture", "dislocation", "pneumothorax"),
        "an injury is looked for",
    ),
    Question(
        INFECTION,
        ("pneumonia", "consolidation", "lung opacity"),
        "an infection is looked for",
    ),
    Question(
        ("cancer", "carcinoma", "malignan*", "metasta*", "nodule", "mass", "smok*", "hemoptysis", "weight loss"),
        ("nodule", "mass", "cavity", "lymphadenopathy", "mediastinal mass", "bone lesion"),
        "a tumour is looked for",
    ),
    Question(
        FLUID,
        ("edema", "vascular congestion", "pleural effusion", "cardiomegaly", "heart failure"),
        "fluid is looked for",
    ),
    Question(
        ("tuberculosis", "tb", "ppd", "tuberculin", "quantiferon"),
        ("cavity", "lung opacity", "nodule", "granuloma", "lymphadenopathy", "pleural effusion"),
        "tuberculosis is looked for",
    ),
)

# What the reason for the radiograph explains is known already; it matters one class less.
EXPECTED: tuple[Question, ...] = (
    Question(
        ("laparotomy", "laparoscop*", "colectomy", "cholecystectomy", "bowel resection", "abdominal surgery"),
        ("pneumoperitoneum", "atelectasis", "low lung volumes"),
        "an opened abdomen holds air for days",
    ),
    Question(
        ("cabg", "thoracotomy", "lobectomy", "pneumonectomy", "sternotomy", "cardiac surgery", "thoracic surgery"),
        ("pneumomediastinum", "subcutaneous emphysema", "atelectasis", "low lung volumes"),
        "an opened chest leaks air and breathes shallowly for days",
    ),
    Question(
        ("copd", "emphysema"),
        ("emphysema", "hyperinflation", "bulla"),
        "the disease is known",
    ),
)


def looked_for(name: str, indication: str | None) -> bool:
    """Whether this observation is what the radiograph was taken to look for."""
    return _among(QUESTIONS, name, indication)


def expected(name: str, indication: str | None) -> bool:
    """Whether the reason for the radiograph explains this observation."""
    return _among(EXPECTED, name, indication)


def _among(rows: Sequence[Question], name: str, indication: str | None) -> bool:
    return any(name in row.observations and indicates(row.words, indication) for row in rows)


def urgency(name: str, age: float | None = None) -> Urgency:
    """The class of an observation of the vocabulary, at this age in years where it is known."""
    observation(name)
    if age is not None:
        for rule in AGE_RULES:
            if rule.observation == name and rule.least <= age < rule.below:
                return rule.urgency
    return CLASSES[name][0]


def urgency_of(finding: Finding, age: float | None = None, indication: str | None = None) -> Urgency:
    """The class of one finding: its observation's, moved by a misplaced tip, by its degree or by the indication.

    Args:
        finding: The finding.
        age: Years; None when unknown.
        indication: Why the radiograph was taken; None when unknown.
    """
    name = finding.observation
    if finding.tip is not None and (name, finding.tip) in MISPLACED:
        plain = MISPLACED[name, finding.tip][0]
    elif finding.severity is not None and (name, finding.severity) in DEGREE_RULES:
        plain = DEGREE_RULES[name, finding.severity][0]
    else:
        plain = urgency(name, age)
    if not indication:
        return plain
    steps = looked_for(name, indication) - expected(name, indication)
    rank = min(max(plain.rank + steps, Urgency.BENIGN.rank), Urgency.URGENT.rank)
    return next(level for level in Urgency if level.rank == rank)


def indicates(words: tuple[str, ...], indication: str | None) -> bool:
    """Whether any of the words stands in the indication.

    Args:
        words: Lower-case words or phrases, found also in the plural; `*` at the end stands for any ending.
        indication: Text in any case; None holds no word.
    """
    return bool(indication) and _pattern(words).search(indication.lower()) is not None  # type: ignore[union-attr]


@cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    endings = (f"{re.escape(word[:-1])}\\w*" if word.endswith("*") else f"{re.escape(word)}s?" for word in words)
    return re.compile(rf"\b(?:{'|'.join(endings)})\b")
