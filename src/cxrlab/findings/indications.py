"""Words in the reason for a film: whole ones, so that nobody is asked for a line by "decline"."""

from __future__ import annotations

import re
from functools import cache

# Words that ask after an infection, and after fluid: they make such findings matter more, and a sign and its cause one.
INFECTION = (
    "fever", "febrile", "cough", "infection", "infectious", "pneumonia", "sepsis", "septic", "sputum", "chills",
    "aspiration", "leukocytosis",
)  # fmt: skip
FLUID = ("heart failure", "chf", "fluid", "volume overload", "edema", "dialysis")


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
