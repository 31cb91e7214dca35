"""Text brought to one form, so that a copy is known for a copy however it was respaced, decorated or disguised."""

from __future__ import annotations

import re
import unicodedata

# Letters of other scripts that print like Latin ones, and signs that stand for plain ones.
_ALIKE = dict(
    zip(
        "АВЕЅІЈКМНОРСТХУѴԌԚԜаеіјорсухѕԁɡһԛԝѵΑΒΕΖΗΙΚΜΝΟΡΤΥΧαεικνορτυχϲƒɑɩ",
        "ABESIJKMHOPCTXYVGQWaeijopcyxsdghqwvABEZHIKMNOPTYXaeikvoptuxcfai",
        strict=True,
    )
)
_PLAIN = {
    "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u2032": "'",
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2033": '"', "\u00ab": '"', "\u00bb": '"',
    "\u2212": "-", "\u2044": "/", "\u2215": "/", "\u2236": ":", "\ua789": ":", "\u2026": "...",
    "\u2028": "\n", "\u2029": "\n", "\u0085": "\n", "\x0b": "\n", "\x0c": "\n", "\r": "\n",
}  # fmt: skip
_KEPT = {"\n": "\n", "\t": " "}


class _Folding(dict[int, str]):
    """Character → what it is folded to, worked out when first met; never in context, so that the time is bounded."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = "".join(_fold_one(sign) for sign in _decomposed(chr(code)))
        return folded


def _decomposed(sign: str) -> str:
    if sign in _PLAIN:
        return _PLAIN[sign]
    # A raised 2 after a 1 is a footnote, not a twelve.
    if unicodedata.decomposition(sign).startswith(("<super>", "<sub>")):
        return " "
    return unicodedata.normalize("NFKD", sign)


def _fold_one(sign: str) -> str:
    if sign in _KEPT or sign in _PLAIN:
        return _KEPT.get(sign) or _PLAIN[sign]
    category = unicodedata.category(sign)
    if category in ("Mn", "Me", "Cf", "Cc", "Cs", "Cn", "Co"):
        return ""
    if category == "Nd":
        return str(unicodedata.digit(sign))
    if category == "Pd":
        return "-"
    return " " if category.startswith("Z") else _ALIKE.get(sign, sign)


_FOLDING = _Folding()
_BLANKS = re.compile(r"[ \t]+")
_EMPTY_LINES = re.compile(r" ?\n[ \n]*\n ?| ?\n ?")


def fold(text: str) -> str:
    """The text in plain letters, digits and signs.

    Look-alike letters become Latin, digits of any script 0–9, dashes and quotes their plain forms; accents,
    zero-width and control signs go; runs of blanks become one, runs of empty lines one empty line.
    """
    text = text.replace("\r\n", "\n").translate(_FOLDING)
    text = _BLANKS.sub(" ", text)
    return _EMPTY_LINES.sub(lambda found: "\n\n" if found[0].count("\n") > 1 else "\n", text).strip()


NUMBER_WORDS = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty".split()
    )
}
_WORD = re.compile(r"(?<![a-z])(?:" + "|".join(sorted(NUMBER_WORDS, key=len, reverse=True)) + r")(?![a-z])")
# A letter that is taken for a digit, in a report or in its copy, does not make it another text.
_DIGITS = str.maketrans({"o": "0", "l": "1", "i": "1"})


def bare(text: str) -> str:
    """Letters and digits of a folded text alone, in one case; what two texts are compared by.

    Args:
        text: As `fold` gives it.
    """
    plain = _WORD.sub(lambda found: str(NUMBER_WORDS[found[0]]), text.casefold())
    return "".join(sign for sign in plain if sign.isalnum()).translate(_DIGITS)


_TOKEN = re.compile(r"[^\W\d_]+|\d+")
_DIGIT_WORDS = {"o": "0", "l": "1", "i": "1", **{word: str(value) for word, value in NUMBER_WORDS.items()}}


def spaced(text: str) -> str:
    """Words and numbers of a folded text in one case, each between single spaces; for short pieces such as `(A, 0)`.

    Args:
        text: As `fold` gives it.
    """
    words = _TOKEN.findall(text.casefold())
    return f" {' '.join(_DIGIT_WORDS.get(word, word) for word in words)} " if words else ""
