"""Sides and places."""

from __future__ import annotations

from cxrlab.core.vocabulary import Side
from cxrlab.findings.reading.rows import Kind, Word

_L, _R, _B = Side.LEFT, Side.RIGHT, Side.BILATERAL
_NUMBERS = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split()


def _place(place: str, phrases: str, reason: str, side: Side | None = None) -> Word:
    return Word(Kind.PLACE, phrases, reason, side=side, places=(place,))


BOTH = Word(Kind.SIDE, "both", 'both sides, unless it counts two statements ("both calcified and tortuous")', side=_B)
SAME_SIDE = Word(Kind.SIDE, "ipsilateral", "on the side named last")
OTHER_SIDE = Word(Kind.SIDE, "contralateral", "on the side opposite to the one named last")
NUMBERED = Word(Kind.ORDINAL, "th; st; nd; rd", "makes a rib of the number before")
ROWS = (
    BOTH,
    SAME_SIDE,
    OTHER_SIDE,
    Word(
        Kind.SIDE,
        "left|lt|l|leftward|leftwards sided|side|lateral?",
        "the patient's left",
        side=_L,
    ),
    Word(
        Kind.SIDE,
        "right|rt|r|rightward|rightwards sided|side|lateral?",
        "the patient's right",
        side=_R,
    ),
    Word(
        Kind.SIDE,
        """bilateral; bilaterally; bilat; bihilar; bilateral|both side|sided; left and right; right and left
        on both|either side; right slightly|much? greater|more|larger|worse|bigger than left
        left slightly|much? greater|more|larger|worse|bigger than right; right or left; left or right
        either side; in|of|inside|along|throughout|within|at both; each side; both right and left
        right and left sided|side; in|on each side; right > left; left > right; at both side; b / l""",
        "both sides, equal or not",
        side=_B,
    ),
    Word(
        Kind.FILLER,
        """greater|more|larger|worse|most|greatest on|in|at|within right|left side|lung|base?
        obscuring right|left heart? border
        more|most pronounced|prominent|marked on|in|at|within right|left side|lung|base?
        more|most conspicuous|extensive|severe|prevalent on|in|at|within right|left side|lung|base?
        slightly|mildly|somewhat|markedly|much more|greater|larger|worse on|in|at|within right|left side|lung|base?
        slightly|mildly|somewhat|markedly|much more pronounced|prominent|marked on|in|at right|left side|lung|base?
        slightly|mildly|somewhat|markedly|much more conspicuous|extensive|severe on|in|at right|left side|lung|base?
        right|left ventricular|atrial contour|configuration; right upper|lower quadrant; left lower quadrant
        obscuring heart border; obscuring right|left diaphragm; more on right|left; right hand|arm; left arm
        than left|right; right axis""",
        "compares the sides of a thing that is on both, or speaks of another part",
    ),
    _place("upper lobe", "upper lobe|lobar", "lobes by name"),
    _place("middle lobe", "middle|mid lobe|lobar", "lobes by name"),
    _place("lower lobe", "lower lobe|lobar", "lobes by name"),
    *(
        _place(f"{zone} zone", f"{side}{zone[0]}z", "an abbreviation carries its side", where)
        for zone in ("upper", "mid", "lower")
        for side, where in (("r", _R), ("l", _L))
    ),
    _place("upper lobe", "rul", "an abbreviation carries its side", _R),
    _place("upper lobe", "lul", "an abbreviation carries its side", _L),
    _place("middle lobe", "rml; right middle lobe", "only the right lung has one", _R),
    _place("lower lobe", "rll", "an abbreviation carries its side", _R),
    _place("lower lobe", "lll", "an abbreviation carries its side", _L),
    _place("lingula", "lingula; lingular; lingular segment", "only the left lung has one", _L),
    _place(
        "upper zone",
        "upper lung; upper lung|pulmonary? zone|field|thorax|hemithorax|chest|third|region",
        "a third of the lung",
    ),
    _place(
        "mid zone",
        """mid|middle lung; mid|middle lung|pulmonary? zone|field|thorax|hemithorax|chest|third|region
        midlung|midzone zone|field?""",
        "a third of the lung",
    ),
    _place(
        "lower zone",
        "lower lung; lower lung|pulmonary? zone|field|thorax|hemithorax|chest|third|region",
        "a third of the lung",
    ),
    _place("apex", "lung|pulmonary? apex|apical", "the top"),
    _place("apex", "biapical; both|bilateral lung? apex|apical", "both tops by the word itself", _B),
    _place(
        "base",
        """lung|pulmonary|posterior|lateral|medial? base|basilar; infrahilar; supradiaphragmatic; base of lung
        with? base|basilar predominance|predominant|distribution|prominence""",
        "the bottom",
    ),
    _place(
        "base",
        "bibasilar; bibasal; bi basilar; both|bilateral lung? base|basilar",
        "both bottoms by the word itself",
        _B,
    ),
    _place("perihilar", "perihilar|parahilar|suprahilar region|focus?; centrally", "about the lung root"),
    _place("retrocardiac", "retrocardiac region|space|focus?; behind heart", "behind the heart"),
    _place("costophrenic angle", "at|in|within lateral|posterior? costophrenic angle|sulcus", "where fluid gathers"),
    _place("peripheral", "peripheral; peripherally; subpleural; lung periphery", "the outer part"),
    _place(
        "fissure",
        "fissural; in|within|along minor|major|oblique|horizontal? fissure; minor|major fissure",
        "between two lobes",
    ),
    _place("chest wall", "chest|thoracic wall", "outside the ribs"),
    _place("neck", "neck; supraclavicular region|focus?; lower neck", "above the clavicles"),
    _place(
        "thoracic spine",
        "in|of|throughout|along|within mid|lower|upper|visualized? thoracic spine",
        "the spine as a place",
    ),
    _place("aortic arch", "at|in|within aortic arch|knob", "a part of the aorta"),
    Word(Kind.LEVEL, "upper", "short for a lobe or zone named later", places=("upper",)),
    Word(Kind.LEVEL, "lower", "short for a lobe or zone named later", places=("lower",)),
    Word(Kind.LEVEL, "middle; mid", "short for a lobe or zone named later", places=("mid",)),
    *(Word(Kind.ORDINAL, name, "the number of a rib", number=index) for index, name in enumerate(_NUMBERS, start=1)),
    NUMBERED,
    Word(
        Kind.OTHER_BODY,
        """ankle; knee; wrist; elbow; foot; hip; midfoot; plantar; forefoot; hindfoot; finger; tibia; fibula
        forearm; skull; sella; thumb; toe; calcaneus; femur; hand""",
        "not of the chest",
    ),
)
