"""Slips of dictation and typing that can be mended without knowing the context.

A row is a word that is no English word, or a word that stands twice; what might also be meant as it
stands (`ileum` for `ilium`) is left alone, since a mended report must not say anything new.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

# Right spelling → how it is mistyped.
_SPELLINGS: Mapping[str, str] = {
    "pneumothorax": "pnuemothorax penumothorax pneumothroax pneumothrax pneumothoarx pneumothrorax",
    "pneumothoraces": "pnuemothoraces pneumothoracies",
    "pneumonia": "pnuemonia penumonia pneumonea pneumoina",
    "effusion": "effussion efusion effuson effsuion effustion",
    "effusions": "effussions efusions effusons",
    "pleural": "plural pluerl plueral pleurl pleual",
    "consolidation": "consoldation consolidaton consolidtion consolidatoin consilidation",
    "consolidations": "consoldations consolidatons",
    "cardiomegaly": "cardiomegally cardiomegly cardiomegay cardomegaly cariomegaly",
    "atelectasis": "atelectesis atelectais atalectasis atelactasis atlectasis atelecatsis",
    "atelectatic": "atelectetic atalectatic",
    "opacity": "opacitiy opactiy opacty",
    "opacities": "opacitites opactities opacitities",
    "infiltrate": "infitrate infiltate",
    "infiltrates": "infitrates infiltates",
    "mediastinal": "mediastnal mediastianl mediatinal medistinal",
    "mediastinum": "mediastinium medistinum mediastium",
    "silhouette": "silouette silhoutte silhouete sillhouette silhoette",
    "cardiac": "caridac cardiact",
    "pulmonary": "pulmonay pumonary pulmonery pulomnary",
    "vascular": "vasular vacular",
    "vasculature": "vasculatue vasulature",
    "diaphragm": "diaphram diapragm",
    "hemidiaphragm": "hemidiaphram hemidiapragm",
    "bilateral": "bilaterl bilatteral bilaterial",
    "bibasilar": "bibasliar bibasillar",
    "radiograph": "radiograh radiogaph",
    "degenerative": "degenerativ degenrative",
    "calcified": "calcifed calcfied",
    "thoracic": "thoraic thorcic",
    "unremarkable": "unremarkble unremakable unremarable",
    "evidence": "evidance evidnece",
    "abnormality": "abnormalty abnormaltiy abnomality",
    "normal": "normla noraml",
    "within": "withn witihn",
    "there": "ther thre",
    "lateral": "latearl",
    "without": "wihtout witout",
}
# "plural effusion" is a slip; "plural" elsewhere may be meant.
_ONLY_BEFORE: Mapping[str, str] = {"plural": r"(?=\s+(?:eff?us|thickening|space|fluid|plaque|surface|line))"}
# Small words that never stand twice on purpose.
_DOUBLED = "the|a|an|of|in|is|are|and|with|at|to|on|or|there"

_RIGHT: Mapping[str, str] = MappingProxyType(
    {wrong: right for right, line in _SPELLINGS.items() for wrong in line.split()}
)
_WRONG = re.compile(
    r"\b(?:" + "|".join(word + _ONLY_BEFORE.get(word, r"\b") for word in sorted(_RIGHT)) + ")", re.IGNORECASE
)
_REPEATED = re.compile(rf"\b({_DOUBLED})(?:\s+\1)+\b", re.IGNORECASE)
_GAP = re.compile(r"(?<=\w)[ \t]+(?=[,.;:](?:\s|$))")
_NO_GAP = re.compile(r"(?<=[a-z])\.(?=[A-Z][a-z])")
_MARKS = re.compile(r"(?<![.])\.\.(?![.])|,,+")


def mended(text: str) -> str:
    """The text with known slips put right: spelling, doubled small words, the gap at a mark, a doubled mark."""
    text = _WRONG.sub(_in_same_case, text)
    text = _REPEATED.sub(r"\1", text)
    text = _NO_GAP.sub(". ", _GAP.sub("", text))
    return _MARKS.sub(lambda match: match[0][0], text)


def _in_same_case(match: re.Match[str]) -> str:
    right = _RIGHT[match[0].lower()]
    if match[0].isupper():
        return right.upper()
    return right.capitalize() if match[0][0].isupper() else right
