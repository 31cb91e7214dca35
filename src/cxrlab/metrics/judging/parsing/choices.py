"""From a judge's answer to which of two reports it prefers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cxrlab.metrics.judging.parsing.own_words import Answer
from cxrlab.metrics.judging.parsing.parsed import ParsedChoice, Reading
from cxrlab.metrics.judging.parsing.statements import DECORATION, ENDS, Reader, Statement, meant, settle

FIRST, SECOND, EQUAL = "first", "second", "equal"
_NAMES = {
    **dict.fromkeys(("first", "a", "1"), FIRST),
    **dict.fromkeys(("second", "b", "2"), SECOND),
    **dict.fromkeys(("equal", "tie", "c", "both", "neither", "same", "draw", "tied"), EQUAL),
}
_OTHER = {FIRST: SECOND, SECOND: FIRST, EQUAL: EQUAL}
_GOOD = frozenset({"better", "superior", "preferable", "more accurate"})
_THING = r"(?:(?:the\s)?(?:report|candidate|response|answer|assistant|option|text)\s)?"
_WORD = r"(?P<word>first|second|equal|tied?|draw|both|neither|same|[abc12])(?!\w|['.]\w)"
_QUOTES = r"[\"'*_`\[({]{0,6}"
_PLAIN = re.compile(
    r"\b(?:better|best|winner|verdict|choice|preferred|preference|decision|answer|correction|result|conclusion)"
    rf"(?:\s(?:report|one|candidate))?[\"'*_`\])]{{0,4}}\s?(?:[:=]|\bis:)[*_]{{0,3}}\s?{_QUOTES}\s?{_THING}{_QUOTES}{_WORD}",
    re.I,
)
_BOXED = re.compile(r"\[\[\s?(?P<word>[abc]|first|second|equal|tie)\s?\]\]", re.I)
_PREFERS = re.compile(
    r"\b(?:(?:report|candidate|response|option|text)\s[\"'*_`(]{0,4}(?P<letter>[ab12])[\"'*_`)]{0,4}|(?:the\s)?(?P<word>first|second)"
    r"(?:\s(?:report|candidate|one|text))?)\s(?:is|was)\s(?:(?:clearly|slightly|much|far|the|a little|somewhat)\s)?"
    r"(?P<how>better|superior|preferable|more accurate|worse|inferior|less accurate)\b",
    re.I,
)
# "Equally long" and "the same length" say nothing of what they are worth.
_EVEN = re.compile(
    r"\b(?:both|they|the two|the reports)\s(?:reports\s|candidates\s)?are\s"
    r"(?:tied|(?:equal|identical|the same)(?=\s?[.,;!\n]|\s?$)"
    r"|equally\s(?:good|bad|accurate|correct|right|wrong|poor|well))"
    r"|\bneither\s(?:report\s|one\s|candidate\s)?is\sbetter(?!\sthan the other in)\b|\bit\sis\sa\s(?:tie|draw)\b",
    re.I,
)
_LEAD = re.compile(rf"[\s:=*_`\"'\[({{.]{{0,8}}{_THING}{_QUOTES}{_WORD}", re.I)
_NOTHING = re.compile(r"[\"'*_`\])}.!\s]{0,12}")
_ALONE = re.compile(rf"^[^\w\n]{{0,8}}{_WORD}[\"'*_`\])}}.!]{{0,6}}\s?$", re.I | re.M)
_WORDS = ("first", "second", "equal", "tie", "tied", "draw", "neither")  # that are no article and no number of a list


def parse_choice(answer: Answer) -> ParsedChoice:
    """Which of the two reports an answer prefers: "first", "second" or "equal".

    Args:
        answer: What the judge said, its mark and the reports that it was shown.
    """
    settled = settle(answer, Reader("choice", _find, _lead, _alone))
    return ParsedChoice(Reading.PARSED if settled.reason is None else Reading.FAILED, settled.value, settled.reason)


def _find(text: str) -> list[Statement[str]]:
    labelled = [_labelled(text, found) for found in _PLAIN.finditer(text)]
    boxed = [_named(found["word"]) for found in _BOXED.finditer(text)]
    passing = [
        Statement(choice if found["how"].lower() in _GOOD else _OTHER[choice], plain=False)
        for found in _PREFERS.finditer(text)
        for choice in (_NAMES[(found["letter"] or found["word"]).lower()],)
        if meant(text, found.start(), found.end())
    ]
    even = [Statement(EQUAL, plain=False) for found in _EVEN.finditer(text) if meant(text, found.start(), found.end())]
    return [*labelled, *boxed, *_alone(text, _WORDS), *passing, *even]


def _named(word: str) -> Statement[str]:
    return Statement(_NAMES[word.lower()])


def _labelled(text: str, found: re.Match[str]) -> Statement[str]:
    """What a label names: "Answer: A nodule is missed" chooses nothing, and "Better: FIRST or SECOND" both."""
    if ENDS.match(text, found.end("word")):
        return _named(found["word"])
    named = _NAMES[found["word"].lower()]
    return Statement(None, "more than a choice where the choice should stand", named=named)


def _alone(text: str, words: Sequence[str] = tuple(_NAMES)) -> list[Statement[str]]:
    """Lines that are a choice and nothing else."""
    return [_named(found["word"]) for found in _ALONE.finditer(text) if found["word"].lower() in words]


def _lead(text: str) -> tuple[Statement[str], bool] | None:
    found = _PLAIN.match(text, len(text) - len(text.lstrip(DECORATION)))
    if found is not None:
        return _labelled(text, found), False  # without the mark it may be a copy
    found = _LEAD.match(text)
    if found is None:
        return None
    end = _NOTHING.match(text, found.end())
    alone = end is not None and end.end() == len(text)
    rest = text[found.end() :]
    # "A pneumothorax is missed", "1. The first report …": a letter begins a sentence, a number a list.
    short = found["word"].lower() not in _WORDS and not _ALONE.match(text.lstrip(" \n").split("\n")[0])
    if not alone and (short or not ENDS.match(rest)):
        return None
    return _named(found["word"]), alone
