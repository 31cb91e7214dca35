"""Small English: forks, slots, articles, lists and measures."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

_FORK = re.compile(r"[\[<]([^|\[\]<>]*)\|([^|\[\]<>]*)[\]>]")
_SLOT = re.compile(r"\{(\w+)\}")
_A_BEFORE_VOWEL = re.compile(r"\b([aA]) (?=[aeiouAEIOU]|8|1[18](?![\d.]))")
_ARTICLE = re.compile(r"^(?:an?|the) ")
_PERIODS = ((730, 365, "year"), (60, 30, "month"), (14, 7, "week"), (0, 1, "day"))


@lru_cache(maxsize=8192)
def compiled(template: str, both: bool) -> tuple[tuple[str, ...], bool]:
    """The template after its forks as (text, slot, text, slot, …, text), and whether it is plural."""
    body = template.removeprefix("+").strip()
    plural = template.startswith("+") or (both and "[" in body)
    text = _FORK.sub(lambda fork: fork.group(2 if both else 1), body)
    return tuple(_SLOT.split(text)), plural


def agreed(text: str, many: bool) -> str:
    """The text with every fork read for one thing or for many; the spaces around it stay."""
    return _FORK.sub(lambda fork: fork.group(2 if many else 1), text)


def fill(parts: Sequence[str], slot: Callable[[str], str]) -> str:
    """Put words into the slots of compiled parts and mend the articles."""
    text = "".join(slot(part) if index % 2 else part for index, part in enumerate(parts))
    return _A_BEFORE_VOWEL.sub(r"\1n ", text)


def slots(template: str) -> set[str]:
    """Names of the slots in a template."""
    return set(_SLOT.findall(template))


def without_article(phrase: str) -> str:
    """The phrase without a leading a, an or the."""
    return _ARTICLE.sub("", phrase)


def capital(text: str) -> str:
    """The same text with its first letter in upper case; the length stays."""
    return text[:1].upper() + text[1:]


def listed(items: Sequence[str], word: str) -> str:
    """'a', 'a or b', 'a, b, or c' with the joining word."""
    if len(items) < 3:
        return f" {word} ".join(items)
    return f"{', '.join(items[:-1])}, {word} {items[-1]}"


def interval(days: int) -> str:
    """'1 day', '12 days', '3 weeks', '5 months', '2 years': the nearest whole number of the unit."""
    length, unit = next((length, unit) for least, length, unit in _PERIODS if days >= least)
    number = max(1, round(days / length))
    return f"{number} {unit}{'s' if number > 1 else ''}"


def millimetres(value: float) -> str:
    """'14 mm'."""
    return f"{value:g} mm"


def centimetres(value_mm: float) -> str:
    """'1.4 cm' for 14 mm."""
    return f"{round(value_mm / 10, 2):g} cm"
