"""What there is to structure in a study: its sections, or its whole text where it has no sections, and the language."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cxrlab.core.records import Report, Study
from cxrlab.data.structuring.prompt import laid_out
from cxrlab.data.structuring.sentences import joined, split

ENGLISH = "en"
# Nobody dictates this; whoever plants it wants a language model to obey the report.
_MACHINE = r"(?:ai|assistant|llm|language model|chatbot|chatgpt|gpt[\w.-]*)"
_ORDER = re.compile(
    r"\b(?:ignore|disregard|forget|override)\b[^.]*\b(?:instructions?|rules|prompt|everything"
    r"|above(?! (?:opacit|find|nodul|densit)))\b"
    r"|\b(?:do not|don't|never) (?:follow|obey)\b[^.]*\b(?:instructions?|rules|prompt)\b|\binstead of the above\b"
    rf"|\b(?:an?|to(?: the| any)?|dear|you(?: are|'re)(?: an?)?) {_MACHINE}\b|(?:^|[.!?]\s+)(?:{_MACHINE}[,:]|system:)"
    r"|\bsystem prompt\b|\bnew instructions?\b|<\|[^|]*\|>|\[/?inst\]|\{\s*\""
    r"|\b(?:summari[sz]|translat|rewrit|structur)ing this report\b"
    r"|\b(?:write|output|answer|respond|print|return|say|reply)\b(?: with)? (?:only|exactly|instead|the following)\b",
    re.IGNORECASE,
)
_WRITE = re.compile(
    r"(?:now |please |then |instead,? )*(?:write|output|answer|respond|print|return|say|reply|add|insert)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Source:
    """The text of a study as a structurer receives it.

    Args:
        language: Code such as `en` or `es`.
        report: What rules and checks go by: its sections, without sentences that speak to a machine; empty where the
            text is not in English.
        text: What a language model is given: everything.
        addressed: Whether there were such sentences.
    """

    language: str
    report: Report
    text: str
    addressed: bool = False

    @property
    def english(self) -> bool:
        """Whether the rules and the findings reader can read it."""
        return self.language == ENGLISH


def source_of(study: Study) -> Source | None:
    """The text of a study; None when it has none.

    Sections that hold findings or an impression are taken as they are; otherwise the whole report is
    parsed. The language is what the importer noted under `language`, English where it noted nothing.
    """
    language = str(study.extra.get("language") or ENGLISH).lower().partition("-")[0]
    whole = (study.report or "").strip()
    if language != ENGLISH:
        return Source(language, Report(), whole) if whole else None
    report = study.sections or Report()
    if not _holds(report) and whole:
        report = _parsed(whole)
    if not _holds(report):
        return None
    stated = without_orders(report)
    return Source(language, stated, laid_out(report), addressed=stated != report)


def without_orders(report: Report) -> Report:
    """The sections without sentences that tell a machine what to write: what they name is no finding."""
    texts = report.to_json()
    if not any(_ORDER.search(text) for text in texts.values() if text):
        return report
    return Report(**{name: _unordered(text) if text else None for name, text in texts.items()})


def _unordered(text: str) -> str | None:
    sentences = split(text)
    return joined(one for one in sentences if not _ORDER.search(one) and not _WRITE.match(one))


def _holds(report: Report) -> bool:
    """Whether the sections say anything of the film."""
    return any(text and text.strip() for text in (report.findings, report.impression))


def _parsed(text: str) -> Report:
    """The sections of a free text; one without any is all findings."""
    from cxrlab.data.sections import parse

    report = parse(text).report
    return report if _holds(report) else Report(findings=text)
