"""Groups phrases into sentences about the chest, without sections such as history and technique."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cxrlab.findings.reading.phrase_tables import Kind
from cxrlab.findings.reading.phrases import Phrase
from cxrlab.findings.reading.tokens import Token

# First words of headings: of the report itself, and of what stands for why and how the image was taken.
_REPORT_HEADINGS = frozenset(
    {"finding", "impression", "conclusion", "report", "summary", "opinion", "interpretation", "assessment"}
)
_EXCLUDED_HEADINGS = frozenset(
    "indication history technique comparison reason clinical procedure information type date protocol ordering"
    " diagnosis symptom complaint views view".split()
)
# These take one sentence: the report may follow on the same line.
_ONE_SENTENCE_HEADINGS = frozenset({"comparison", "technique", "views", "view"})
_LONGEST_HEADING = 5  # words before a colon
_CHEST = frozenset({"chest", "heart", "lungs", "mediastinum", "cardiomediastinum", "pleura", "aorta", "vasculature"})
LONGEST = 120  # phrases; text without a full stop is cut, so that time stays linear
# A line that ends in one of these, or begins with one of those below, continues over the line break.
_OPEN_END = frozenset(
    {
        Kind.COMMA, Kind.AND, Kind.OR, Kind.VERSUS, Kind.WITH, Kind.PREPOSITION, Kind.ARTICLE, Kind.EXISTENTIAL,
        Kind.NEGATION, Kind.HEDGE, Kind.HEDGE_EITHER, Kind.HEDGED_EXPLANATION, Kind.EXPLANATION, Kind.SEVERITY,
        Kind.SIDE, Kind.LEVEL, Kind.VERB, Kind.NOT_A_FINDING, Kind.RESOLUTION, Kind.ORDINAL, Kind.COLON,
    }
)  # fmt: skip
_OPEN_START = frozenset(
    {
        Kind.COMMA, Kind.AND, Kind.OR, Kind.VERSUS, Kind.WITH, Kind.PREPOSITION, Kind.VERB, Kind.NEGATION_BACKWARD,
        Kind.HEDGE_BACKWARD, Kind.RESOLUTION_BACKWARD, Kind.NOT_ASSESSABLE, Kind.UNLIKELY, Kind.EXPLANATION,
        Kind.HEDGED_EXPLANATION, Kind.TERMINATION, Kind.TIP, Kind.ABOVE_CARINA,
    }
)  # fmt: skip


class Sentence:
    """The phrases of one sentence, and the tokens [first, last) that it covers."""

    __slots__ = ("first", "last", "phrases")

    def __init__(self, phrases: list[Phrase], first: int, last: int) -> None:
        self.phrases = phrases
        self.first = first
        self.last = last


def chest_sentences(tokens: Sequence[Token], phrases: Sequence[Phrase]) -> Iterator[Sentence]:
    """Sentences of the report in order, without those about another part of the body.

    A heading such as "Left knee." excludes what follows until the chest is named again.
    """
    elsewhere = False
    for sentence in split_sentences(tokens, phrases):
        kinds = {phrase.kind for phrase in sentence.phrases}
        if Kind.OTHER_BODY_PART in kinds:
            elsewhere = elsewhere or not kinds & {Kind.MENTION, Kind.PREDICATE, Kind.VERB}
            continue
        elsewhere = elsewhere and not any(
            phrase.kind is Kind.BODY_PART and phrase.rule.name in _CHEST for phrase in sentence.phrases
        )
        if not elsewhere:
            yield sentence


def split_sentences(tokens: Sequence[Token], phrases: Sequence[Phrase]) -> Iterator[Sentence]:
    """Sentences in order, without headings and without what stands under history, technique and the like."""
    part: list[Phrase] = []
    excluded = one_sentence = False  # under a heading whose text is left out; for one sentence only
    # The last token at which a line or a heading of the report begins; an indication after it is one sentence long.
    restarts = (
        index
        for index in range(len(tokens) - 1, 0, -1)
        if tokens[index].lines or (tokens[index].word == ":" and tokens[index - 1].word in _REPORT_HEADINGS)
    )
    first, last_restart = 0, next(restarts, -1)
    has_lines = any(token.lines for token in tokens)
    previous: Phrase | None = None
    for phrase in phrases:
        start = phrase.first
        if previous is not None and previous.kind is not Kind.FULL_STOP:
            lines = max((token.lines for token in tokens[previous.last : start + 1]), default=0) if has_lines else 0
            if lines > 1 or (lines and previous.kind not in _OPEN_END and phrase.kind not in _OPEN_START):
                if part and not excluded:
                    yield Sentence(part, first, previous.last)
                part, first = [], start
                excluded = excluded and lines < 2
        elif previous is not None and excluded and (one_sentence or tokens[start].lines):
            excluded = False
        if phrase.kind is Kind.COLON and (heading := _heading(tokens, first, start)):
            before = [earlier for earlier in part if earlier.last <= heading.first]
            if before and heading.first > first and not excluded:
                yield Sentence(before, first, heading.first)
            excluded = heading.excluded
            one_sentence = tokens[heading.first].word in _ONE_SENTENCE_HEADINGS or start > last_restart
            if heading.section:
                part, first = [], phrase.last
                previous = phrase
                continue
        if phrase.kind is Kind.FULL_STOP or len(part) == LONGEST:
            if part and not excluded:
                yield Sentence(part, first, start)
            part, first = [], phrase.last
        else:
            part.append(phrase)
        previous = phrase
    if part and not excluded:
        yield Sentence(part, first, len(tokens))


class _Heading(NamedTuple):
    first: int  # token
    section: bool  # whether a section begins, and not only a line ("Heart: …")
    excluded: bool  # whether the text under it is left out


def _heading(tokens: Sequence[Token], first: int, colon: int) -> _Heading | None:
    """The heading before a colon in a sentence that begins at token `first`."""
    if colon and tokens[colon - 1].word in _REPORT_HEADINGS:
        return _Heading(colon - 1, section=True, excluded=False)
    short = colon - first <= _LONGEST_HEADING
    words = [token.word for token in tokens[max(first, colon - _LONGEST_HEADING) : colon]]
    for left, word in zip(range(len(words), 0, -1), words, strict=True):
        if word in _EXCLUDED_HEADINGS and (short or left <= 2):
            return _Heading(first if short else colon - left, section=True, excluded=True)
    return _Heading(first, section=False, excluded=False) if short and colon > first else None
