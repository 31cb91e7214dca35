"""The stemmer gives what NLTK's default gives, on every word we can lay hands on."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from tables import every_row

from cxrlab.core.randomness import generator
from cxrlab.findings.narrator import narrate
from cxrlab.findings.simulated_patients import draw_patient
from cxrlab.metrics.tokenization import stem

ORACLE = PorterStemmer()
ENDINGS = (
    "ational tional enci anci izer bli abli alli entli eli ousli ization ation ator alism iveness fulness ousness "
    "aliti iviti biliti fulli logi icate ative alize iciti ical ful ness al ance ence er ic able ible ant ement ment "
    "ent ion ou ism ate iti ous ive ize ed ing eed ied ies sses ss s y e ll at bl iz"
).split()


def differing(words: set[str]) -> dict[str, tuple[str, str]]:
    """Word → (ours, theirs) where they differ."""
    return {word: (stem(word), theirs) for word in words if stem(word) != (theirs := ORACLE.stem(word))}


def words_of(text: str) -> set[str]:
    return set(re.findall("[a-z0-9]+", text.lower()))


@every_row(
    ("word", "expected"),
    [
        ("effusions", "effus"), ("opacities", "opac"), ("cardiomegaly", "cardiomegali"), ("enlarged", "enlarg"),
        ("hopping", "hop"), ("sized", "size"), ("dies", "die"), ("flies", "fli"), ("agreed", "agre"), ("feed", "feed"),
        ("skies", "sky"), ("dying", "die"), ("radically", "radic"), ("geology", "geolog"), ("controlling", "control"),
        ("is", "is"), ("s", "s"), ("", ""), ("1234", "1234"),
    ],
)  # fmt: skip
def test_hand_worked_words(word: str, expected: str) -> None:
    """One word for each kind of rule; words of two letters or fewer are left whole."""
    assert stem(word) == expected


def test_words_of_the_standard_library_and_of_narrated_reports() -> None:
    """The words in the standard library's files, and what the narrator says."""
    words = set().union(*(words_of(file.read_text(errors="replace")) for file in Path(os.__file__).parent.glob("*.py")))
    for number in range(60):
        for visit in draw_patient(3, f"p{number}").visits:
            words |= words_of(json.dumps(vars(narrate(visit, 3, str(number)).report), default=str))
    assert len(words) > 10_000
    assert differing(words) == {}


def test_endings_piled_on_random_beginnings() -> None:
    """Thirty thousand invented words that meet every rule, its condition true and false."""
    rng = generator(5, "porter")
    letters = list("aeiouybcdlstxwz1")
    words = {
        "".join(rng.choice(letters, rng.integers(0, 6))) + "".join(rng.choice(ENDINGS, rng.integers(0, 4)))
        for _ in range(30_000)
    }
    assert len(words) > 20_000
    assert differing(words) == {}


@settings(max_examples=300)
@given(st.text("abcdefghijklmnopqrstuvwxyz0123456789", max_size=20))
def test_any_letters(word: str) -> None:
    """No string of letters and digits is an exception."""
    assert stem(word) == ORACLE.stem(word)


def test_a_very_long_word_takes_no_time() -> None:
    """Twenty thousand letters without a space are one word; each rule looks at it a constant number of times."""
    assert stem("y" * 20_000) == ORACLE.stem("y" * 20_000)
