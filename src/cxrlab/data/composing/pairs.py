"""What makes a pair of image and text in a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cxrlab.core.records import Study
from cxrlab.data.composing.config import Member


@dataclass(frozen=True)
class PairText:
    """A text that is paired with the images of its study.

    Args:
        kind: Whose text: `sections`, `report` or `structured:NAME`.
        text: Its words.
    """

    kind: str
    text: str


def pair_texts(study: Study, member: Member) -> list[PairText]:
    """The texts of a study that a member pairs with its images, in the order of `member.texts`; blank ones are none."""
    found: dict[str, PairText] = {}
    for choice in member.texts:
        for one in _texts(study, choice, member.section):
            if one.text.strip():
                found.setdefault(one.kind, one)
    texts = list(found.values())
    return texts[:1] if member.pair == "first" else texts


def _texts(study: Study, choice: str, section: str) -> Sequence[PairText]:
    if choice == "sections":
        text = study.sections.section(section) if study.sections is not None else None
        return [PairText(choice, text)] if text is not None else []
    if choice == "report":
        return [PairText(choice, study.report)] if study.report is not None else []
    maker = choice.partition(":")[2]
    return [
        PairText(f"structured:{name}", sections[section])
        for name, sections in study.structured.items()
        if maker in ("", name) and section in sections
    ]
