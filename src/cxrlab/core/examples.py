"""A study as a page shows it: written into a run folder by whoever can open the corpus.

    examples.jsonl     one `Example` a line
    thumbs/…           their films, small

A page reads run folders alone, so everything it shows of a study has to be written down first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cxrlab.core.errors import DataError

EXAMPLES, THUMBS = "examples.jsonl", "thumbs"


@dataclass(frozen=True)
class Example:
    """One study for people to look at.

    Args:
        id: Of the study.
        thumb: Path of its film inside the run folder.
        heading: View, age and sex in a few words.
        truth: What is known to be there, a few words each; empty for a normal film, None when nothing is known.
        reference: The findings section of its report; None when it has none.
    """

    id: str
    thumb: str
    heading: str = ""
    truth: tuple[str, ...] | None = None
    reference: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values, all of them: null is 'not known'."""
        truth = None if self.truth is None else list(self.truth)
        return {
            "id": self.id,
            "thumb": self.thumb,
            "heading": self.heading,
            "truth": truth,
            "reference": self.reference,
        }

    @classmethod
    def from_json(cls, source: Mapping[str, Any]) -> Example:
        """Read the JSON form; a wrong type is an error that names the field."""
        for key in ("id", "thumb"):
            if not isinstance(source.get(key), str):
                raise DataError(f"an example needs a text '{key}', found {source.get(key)!r}.")
        truth = source.get("truth")
        if truth is not None and not (isinstance(truth, list) and all(isinstance(item, str) for item in truth)):
            raise DataError(f"the 'truth' of an example must be a list of texts or null, not {truth!r}.")
        reference = source.get("reference")
        if reference is not None and not isinstance(reference, str):
            raise DataError(f"the 'reference' of an example must be text or null, not {reference!r}.")
        return cls(
            id=source["id"],
            thumb=source["thumb"],
            heading=str(source.get("heading") or ""),
            truth=None if truth is None else tuple(truth),
            reference=reference,
        )
