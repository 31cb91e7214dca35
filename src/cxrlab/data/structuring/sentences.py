"""Text into sentences, without the numbers and bullets of a list; masks, decimals and abbreviations hold together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

# Full stops after these end no sentence.
_SHORT = ("dr", "mr", "mrs", "ms", "vs", "approx", "e.g", "i.e", "no", "fig", "cf", "ca", "st", "resp", "incl")
# "No." is a number only before a digit: "No. 5 rib"; elsewhere it is a word of its own and ends where it says so.
_BULLET = re.compile(r"(?:\(?\d{1,2}[.):](?!\d)|[-–—•*·▪◦])\s+")
_LINE_ITEM = re.compile(r"\n\s*(?=(?:\(?\d{1,2}[.):](?!\d)|[-–—•*·▪◦])\s)")
_END = re.compile(r"(?<=[.!?])\s+")
_INLINE_ITEM = re.compile(r"(?<=[.;])\s+(?=\(?\d{1,2}[.)]\s+[A-Z])")


def split(text: str) -> list[str]:
    """The sentences of a section, each with its end mark where it has one, in order; a list gives one for each item."""
    pieces: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        for item in _LINE_ITEM.split(block):
            for part in _INLINE_ITEM.split(item):
                pieces.extend(_sentences(" ".join(part.split())))
    return pieces


def joined(sentences: Iterable[str]) -> str | None:
    """Sentences as one text, each begun with a capital and ended with a mark; None when there is none."""
    return " ".join(_finished(sentence) for sentence in sentences) or None


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def _finished(sentence: str) -> str:
    sentence = capital(sentence.strip())
    return sentence if sentence.endswith((".", "!", "?")) else sentence.rstrip(" ,;:") + "."


def _sentences(line: str) -> list[str]:
    line = _without_bullet(line)
    found: list[str] = []
    start = 0
    for match in _END.finditer(line):
        if _ends(line[start : match.start()], line[match.end() :]):
            found.append(line[start : match.start()])
            start = match.end()
    found.append(line[start:])
    kept = (_without_bullet(one.strip(" ;")) for one in found)
    return [one for one in kept if any(sign.isalnum() for sign in one)]


def _without_bullet(text: str) -> str:
    match = _BULLET.match(text)
    return text[match.end() :] if match else text


def _ends(before: str, after: str) -> bool:
    """Whether a full stop between two pieces ends a sentence."""
    word = before.rstrip(".!?").rpartition(" ")[2].lower().lstrip("(")
    if before.endswith(".") and (word in _SHORT or (len(word) == 1 and word.isalpha())):
        return word == "no" and not after[:1].isdigit()
    return before.rstrip(".!?").strip() != word or not word.isdigit()  # "2." alone is the number of an item


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
