"""A report's text cut into its five sections, with the characters of each.

The rules are told in `docs/sections.md`. Any text is parsed, of any length; nothing raises.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

from cxrlab.core.records import SECTIONS, Report, Span
from cxrlab.data.sections.fallback import LONGEST_TITLE, How, unmerged, with_examination, with_findings
from cxrlab.data.sections.marks import marks
from cxrlab.data.sections.naming import names_a_image
from cxrlab.data.sections.plain import folded, is_markup, plain
from cxrlab.data.sections.runs import Run, runs


@dataclass(frozen=True)
class ParsedReport:
    """A report's text and where its sections are.

    Args:
        text: The text as it was given.
        spans: Section of `Report` → its stretches [start, end) of the text, in order; absent ones are left out.
        other: The same for what belongs to none of the five: technique and film beside a named examination,
            recommendation, notification, wet read, addendum, signature, preamble, administration, summary, unnamed.
        how: How findings and impression were found; counted by importers.
        merged: Whether the impression holds the findings too ("FINDINGS AND IMPRESSION").
        markup: Whether the text is HTML, of which the sections are freed.
    """

    text: str
    spans: Mapping[str, tuple[Span, ...]]
    other: Mapping[str, tuple[Span, ...]]
    how: How
    merged: bool = False
    markup: bool = False

    @cached_property
    def report(self) -> Report:
        """The five sections as text: wrapped lines joined, a new line for each stretch, paragraph and list item."""
        return Report(**{name: self.section_text(name) for name in self.spans})

    def section_text(self, name: str) -> str | None:
        """The text of one section, also of `other`; None where there is none."""
        spans = self.spans.get(name) or self.other.get(name)
        return "\n".join(folded(self.text[start:end], markup=self.markup) for start, end in spans) if spans else None


def parse(text: str | float | None) -> ParsedReport:
    """The sections of a free-text report; None and not-a-number, which tables have for no text, are an empty text."""
    if text is None or (isinstance(text, float) and math.isnan(text)):
        text = ""
    if not isinstance(text, str):
        raise TypeError(f"a report is text, not {type(text).__name__}.")
    markup = is_markup(text)
    view = plain(text, markup=markup)
    found = [_settled(view, run) for run in runs(view, marks(view)) if _says_something(view, run)]
    found, how = with_findings(view, unmerged(found))
    found = with_examination(view, found)
    spans: dict[str, list[Span]] = {name: [] for name in SECTIONS}
    for run in found:
        spans.setdefault(run.section, []).append(run.span)
    return ParsedReport(
        text=text,
        spans=MappingProxyType({name: tuple(spans[name]) for name in SECTIONS if spans[name]}),
        other=MappingProxyType({name: tuple(value) for name, value in spans.items() if name not in SECTIONS}),
        how=how,
        merged=any(run.merged for run in found),
        markup=markup,
    )


def _says_something(view: str, run: Run) -> bool:
    """Findings and impression need a letter: "___" or a date under a film's name is no finding."""
    if run.section not in ("findings", "impression"):
        return True
    return any(letter.isalpha() for letter in view[run.start : run.end])


def _settled(view: str, run: Run) -> Run:
    """What only names a film, under a film's name ("CHEST: PA AND LATERAL"), is the examination."""
    if not run.image or run.end - run.start > LONGEST_TITLE:
        return run
    return replace(run, section="examination") if names_a_image(view[run.start : run.end], strictly=True) else run
