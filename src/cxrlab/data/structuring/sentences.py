"""Text into sentences, without the numbers and bullets of a list; masks, decimals and abbreviations hold together."""

from __future__ import annotations

import re
from collections.abc import Iterable

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
