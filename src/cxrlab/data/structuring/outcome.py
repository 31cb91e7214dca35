"""How the structuring of one study went: a line of `structuring.jsonl`, and the remarks that the card counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
