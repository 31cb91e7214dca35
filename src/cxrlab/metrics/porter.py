"""Porter's stemmer with the additions that NLTK makes by default, because ROUGE is published with them.

A word is read as a pattern of consonants and vowels; its *measure* is how often a vowel run is
followed by a consonant run. Each step looks at the end of the word: the first ending of its table that
fits decides, and it is replaced only where the measure of what stands before is large enough.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

# Forms the rules would take apart.
_WHOLE = {
    "sky": "sky", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news",
    "inning": "inning", "innings": "inning", "outing": "outing", "outings": "outing",
    "canning": "canning", "cannings": "canning",
    "howe": "howe", "proceed": "proceed", "exceed": "exceed", "succeed": "succeed",
}  # fmt: skip
_PLURAL = (("sses", "ss"), ("ies", "i"), ("ss", "ss"), ("s", ""))
# Where one ending is the tail of another the longer stands first.
_LONG = (
    ("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize"), ("bli", "ble"),
    ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous"), ("ization", "ize"), ("ation", "ate"),
    ("ator", "ate"), ("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"),
    ("iviti", "ive"), ("biliti", "ble"), ("fulli", "ful"),
)  # fmt: skip
_MIDDLE = (
    ("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic"), ("ful", ""), ("ness", ""),
)  # fmt: skip
_SHORT = tuple(
    (ending, "")
    for ending in (
        "al",
        "ance",
        "ence",
        "er",
        "ic",
        "able",
        "ible",
        "ant",
        "ement",
        "ment",
        "ent",
        "ion",
        "ou",
        "ism",
        "ate",
        "iti",
        "ous",
        "ive",
        "ize",
    )  # fmt: skip
)


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The stem of a lower-case word; words of one or two letters, and a few irregular ones, are left whole."""
    if word in _WHOLE:
        return _WHOLE[word]
    if len(word) <= 2:
        return word
    word = _final_y(_past(_plural(word)))
    word = _derived(word)
    word = _replaced(word, _MIDDLE, measure=1)
    word = _replaced(word, _SHORT, measure=2)
    return _tidied(word)


def _pattern(word: str) -> str:
    """One `c` or `v` a letter; a `y` is a vowel after a consonant, digits are consonants."""
    pattern: list[str] = []
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and pattern[-1:] == ["c"])
        pattern.append("v" if vowel else "c")
    return "".join(pattern)


def _measure(word: str) -> int:
    return _pattern(word).count("vc")


def _closed(word: str) -> bool:
    """Ends consonant, vowel, consonant other than w, x, y (`hop`), or is vowel and consonant alone (`at`)."""
    pattern = _pattern(word)
    return pattern == "vc" or (pattern.endswith("cvc") and word[-1] not in "wxy")


def _replaced(word: str, endings: Iterable[tuple[str, str]], measure: int) -> str:
    """The first ending that fits is replaced if what stands before it has at least this measure."""
    for ending, other in endings:
        if word.endswith(ending):
            before = word[: -len(ending)]
            enough = _measure(before) >= measure and (ending != "ion" or before[-1] in "st")
            return before + other if enough else word
    return word


def _plural(word: str) -> str:
    if len(word) == 4 and word.endswith("ies"):
        return word[:-1]  # dies → die, flies → fli
    return _replaced(word, _PLURAL, measure=0)


def _past(word: str) -> str:
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    for ending in ("ed", "ing"):
        before = word[: -len(ending)]
        if word.endswith(ending) and "v" in _pattern(before):
            return _mended(before)
    return word


def _mended(word: str) -> str:
    """A word that lost `ed` or `ing` gets its own ending back: sized → siz → size, hopping → hopp → hop."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if len(word) > 1 and word[-1] == word[-2] and _pattern(word)[-1] == "c":
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _closed(word) else word


def _final_y(word: str) -> str:
    return word[:-1] + "i" if word.endswith("y") and len(word) > 2 and _pattern(word)[-2] == "c" else word


def _derived(word: str) -> str:
    while word.endswith("alli") and _measure(word[:-4]):
        word = word[:-2]  # radicalli → radical, and again through the table
    if word.endswith("logi"):
        return word[:-1] if _measure(word[:-3]) else word  # the l counts: geologi → geolog
    return _replaced(word, _LONG, measure=1)


def _tidied(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _closed(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
