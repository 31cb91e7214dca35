"""Image-text pairs of a study: its texts by source, and the keys of `Study.extra` for pairs of a composed corpus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cxrlab.core.records import ImageFile, Study

# On every study of a composition: the member that it comes from, the sources of the texts that make its pairs with every
# image, and the section of these texts where it is not the findings.
MEMBER, TEXTS_KEY, SECTION_KEY = "corpus", "texts", "section"
FINDINGS, CAPTION = "findings", "caption"


@dataclass(frozen=True)
class PairText:
    """A text that is paired with the images of its study; `source` is sections, report, structured:NAME or caption."""

    source: str
    text: str


def pair_texts(study: Study, choices: Sequence[str], section: str = FINDINGS) -> list[PairText]:
    """The texts of a study that are not blank, in the order of the choices; of a picture without a chest its caption.

    Args:
        choices: sections (the source's), report (the whole as delivered), structured (by anyone) or structured:NAME.
        section: Section of these texts; the whole for report.
    """
    found: dict[str, str | None] = {}
    for choice in (CAPTION,) if study.caption is not None else choices:
        if choice == CAPTION:
            found[choice] = study.caption
        elif choice == "sections":
            found[choice] = study.sections.section(section) if study.sections is not None else None
        elif choice == "report":
            found[choice] = study.report
        else:
            maker = choice.partition(":")[2]
            for name, sections in study.structured.items():
                if maker in ("", name):
                    found.setdefault(f"structured:{name}", sections.get(section))
    return [PairText(source, text.strip()) for source, text in found.items() if text and text.strip()]


def is_composed(study: Study) -> bool:
    """Whether a composition wrote on the study which texts make its pairs."""
    return MEMBER in study.extra and TEXTS_KEY in study.extra


def view_name(image: ImageFile) -> str:
    """The view of an image in tables of pairs."""
    return "unknown" if image.view is None else str(image.view)
