"""What there is to structure in a study: its sections, or its whole text where it has no sections, and the language."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cxrlab.core.records import SECTIONS, Report, Study
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


def structuring_source(study: Study) -> Source | None:
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
    return Source(language, stated, text_with_headings(report), addressed=stated != report)


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


def text_with_headings(report: Report) -> str:
    """Sections as one text under their headings; those that are absent are left out."""
    parts = [(name, report.section(name)) for name in SECTIONS]
    return "\n".join(f"{name.upper()}: {text.strip()}" for name, text in parts if text and text.strip())


TEST = "test split: the source's text alone"
NOT_CHOSEN = "not chosen"
NO_TEXT = "no report to structure"
FOREIGN = "not in English; needs a model to translate"
BY_MODEL = "structured by the model"
BY_MODEL_AGAIN = "structured by the model at a later attempt"
BY_RULES = "structured by rules"
KEPT_RULES = "kept rule-based: every answer of the model was refused"
NOT_TRANSLATED = "not translated: every answer of the model was refused"
DECLINED = "the model refused to answer"
UNCHECKED = "translated without labels to check it against"
ADDRESSED = "a sentence that speaks to a machine counts for nothing"
COMPARES = "rules: a sentence still speaks of an earlier film, since a finding hung on it"
RESTORED = "rules: a change was taken back, since the whole text would have read differently"


@dataclass(frozen=True)
class Outcome:
    """What became of one study.

    Args:
        id: The study.
        result: One of the fixed sentences above.
        by: Under which name of `structured` the text stands; None when there is none.
        attempts: How often a model was asked.
        refused: Why each refused answer was refused, in order; kinds and observations, never words of a report.
        prompt_tokens: Tokens asked, all attempts together.
        tokens: Tokens answered, all attempts together.
        remarks: Further fixed sentences.
    """

    id: str
    result: str
    by: str | None = None
    attempts: int = 0
    refused: tuple[tuple[str, ...], ...] = ()
    prompt_tokens: int = 0
    tokens: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def counted(self) -> tuple[str, ...]:
        """What the card counts: the result, further remarks, and the kinds of refusal, each once."""
        kinds = (f"an answer was refused: {reason.partition(':')[0]}" for reasons in self.refused for reason in reasons)
        return tuple(dict.fromkeys((self.result, *self.remarks, *kinds)))


@dataclass(frozen=True)
class Structured:
    """The text for one study, by who made it, and how that went."""

    texts: Mapping[str, Mapping[str, str]]
    outcome: Outcome
