"""From a judge's answer to which of two reports it prefers."""

from __future__ import annotations

import re

from cxrlab.metrics.judging.parsing.own_words import Answer
from cxrlab.metrics.judging.parsing.parsed import ParsedChoice, Reading
from cxrlab.metrics.judging.parsing.statements import Reader, Statement, settle

FIRST, SECOND, EQUAL = "first", "second", "equal"
_NAMES = {
    **dict.fromkeys(("first", "a", "1"), FIRST),
    **dict.fromkeys(("second", "b", "2"), SECOND),
    **dict.fromkeys(("equal", "tie", "c", "both", "neither", "same", "draw", "tied"), EQUAL),
}
_OTHER = {FIRST: SECOND, SECOND: FIRST, EQUAL: EQUAL}
_THING = r"(?:(?:the\s)?(?:report|candidate|response|answer|assistant|option|text)\s)?"
_WORD = r"(first|second|equal|tied?|draw|both|neither|same|[abc12])(?!\w|['.]\w)"
_QUOTES = r"[\"'*_`\[({]{0,6}"
_PLAIN = re.compile(
    rf"\b(?:better|best|winner|verdict|choice|preferred|preference|decision|answer)(?:\s(?:report|one|candidate))?"
    rf"[\"'*_`\])]{{0,4}}\s?(?:[:=]|\bis:)[*_]{{0,3}}\s?{_QUOTES}\s?{_THING}{_QUOTES}{_WORD}",
    re.I,
)
_BOXED = re.compile(r"\[\[\s?([abc]|first|second|equal|tie)\s?\]\]", re.I)
_PREFERS = re.compile(
    r"\b(?:(?:report|candidate|response|option|text)\s[\"'*_`(]{0,4}(?P<letter>[ab12])[\"'*_`)]{0,4}|(?:the\s)?(?P<word>first|second)"
    r"(?:\s(?:report|candidate|one|text))?)\s(?:is|was)\s(?:(?:clearly|slightly|much|far|the|a little|somewhat)\s)?"
    r"(?P<how>better|superior|preferable|more accurate|worse|inferior|less accurate)\b",
    re.I,
)
_EVEN = re.compile(
    r"\b(?:both|they|the two|the reports)\s(?:reports\s|candidates\s)?are\s(?:equal|equally|the same|tied|identical)"
    r"|\bneither\s(?:report\s|one\s|candidate\s)?is\sbetter\b|\bit\sis\sa\s(?:tie|draw)\b",
    re.I,
)
_LEAD = re.compile(rf"[\s:=*_`\"'\[({{.]{{0,8}}{_THING}{_QUOTES}{_WORD}", re.I)
_NOTHING = re.compile(r"[\"'*_`\])}.!\s]{0,12}")


def parse_choice(answer: Answer) -> ParsedChoice:
    """Which of the two reports an answer prefers: "first", "second" or "equal".

    Args:
        answer: What the judge said, its mark and the reports that it was shown.
    """
    settled = settle(answer, Reader("choice", _find, _lead))
    return ParsedChoice(Reading.PARSED if settled.reason is None else Reading.FAILED, settled.value, settled.reason)


def _find(text: str) -> list[Statement[str]]:
    plain = [_named(found[1]) for pattern in (_PLAIN, _BOXED) for found in pattern.finditer(text)]
    passing = [
        Statement(choice if found["how"].lower() in _GOOD else _OTHER[choice], plain=False)
        for found in _PREFERS.finditer(text)
        for choice in (_NAMES[(found["letter"] or found["word"]).lower()],)
    ]
    even = [Statement(EQUAL, plain=False) for _ in _EVEN.finditer(text)]
    return [*plain, *passing, *even]


_GOOD = frozenset({"better", "superior", "preferable", "more accurate"})


def _named(word: str) -> Statement[str]:
    return Statement(_NAMES[word.lower()])


def _lead(text: str) -> tuple[Statement[str], bool] | None:
    found = _LEAD.match(text)
    if found is None:
        return None
    end = _NOTHING.match(text, found.end())
    alone = end is not None and end.end() == len(text)
    # "A pneumothorax is missed": a letter at the beginning of a sentence is an article.
    if not alone and found[1].lower() in ("a", "1", "2", "c", "b", "both", "same") and text[found.end() :][:1] == " ":
        return None
    return _named(found[1]), alone
