"""A sentence with marks that say which of its characters tell what."""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.core.records import Finding
from cxrlab.findings.words import Words

# A mark's key is the index of a finding of the visit, or the name of a denied observation.
Mark = tuple[int, int, int | str]


@dataclass(frozen=True)
class Statement:
    """One sentence without capital and full stop.

    Args:
        text: The words.
        marks: (start, end, key) with characters [start, end) of `text`.
        region: The region under which it stands; empty for the whole film.
    """

    text: str
    marks: tuple[Mark, ...] = ()
    region: str = ""

    @classmethod
    def whole(cls, text: str, *keys: int | str) -> Statement:
        """A statement all of whose words say each of `keys`."""
        return cls(text, tuple((0, len(text), key) for key in keys))


def joined(first: tuple[int, Finding], second: tuple[int, Finding], words: Words) -> Statement:
    """Two certain findings in one sentence, each with its own change."""
    frame = words.pick([frame for frame in words.lexicon.full if frame.endswith("{np}")])
    noun, plural = words.noun(first[1])
    change = words.change(first[1])
    text = words.framed(frame, noun, plural)
    one = (len(text) - len(noun), len(text) + len(change), first[0])
    text += change + (", and " if change else " and ")
    other = words.noun(second[1])[0] + words.change(second[1])
    return Statement(text + other, (one, (len(text), len(text) + len(other), second[0])))
