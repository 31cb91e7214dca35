"""A study as a page shows it: written into a run folder by whoever can open the corpus.

    examples.jsonl     one `Example` a line
    thumbs/…           their images, small

A page reads run folders alone, so everything it shows of a study has to be written down first.
"""

from __future__ import annotations

from dataclasses import dataclass

from cxrlab.core import fields
from cxrlab.core.fields import Record

EXAMPLES, THUMBS = "examples.jsonl", "thumbs"


@dataclass(frozen=True)
class Example(Record):
    """One study for people to look at.

    Args:
        id: Of the study.
        thumb: Path of its image inside the run folder.
        heading: View, age and sex in a few words.
        truth: What is known to be there, a few words each; empty for a normal image, None when nothing is known.
        reference: The findings section of its report; None when it has none.
    """

    what = "an example"
    checks = {
        "id": fields.filled,
        "thumb": fields.path,
        "heading": fields.text,
        "truth": fields.list_of(fields.text),
        "reference": fields.text,
    }

    id: str
    thumb: str
    heading: str = ""
    truth: tuple[str, ...] | None = None
    reference: str | None = None
