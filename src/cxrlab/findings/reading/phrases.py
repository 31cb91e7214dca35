"""Finds the phrases of all tables in tokenized text: at each word the longest pattern that matches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import product
from typing import Any

from cxrlab.findings.reading.phrase_tables import Kind, Label, PhraseRule, choices, load_rules, load_spellings
from cxrlab.findings.reading.tokens import VERTEBRA, Spelling, Token

_RULE = ""  # key under which a node of the tree keeps the rule that ends there; no word is empty
_MARKS = {
    ",": Kind.COMMA, "/": Kind.OR, ";": Kind.TERMINATION, ":": Kind.COLON, ".": Kind.FULL_STOP, "!": Kind.FULL_STOP,
    "?": Kind.QUESTION_MARK,
}  # fmt: skip
_LISTED_RIB = PhraseRule(Kind.ORDINAL, "a number in a list of ribs", ("ribs",), Label.ORDINAL_SUFFIX)
_BETWEEN_RIBS = frozenset({",", "and", "to", "through", "number"})
_BETWEEN_NUMBERS = frozenset({"x", "by", "to", "and", "or", "times"})


class Phrase:
    """A rule that matched in the text: tokens [first, last), with the number that belongs to it."""

    __slots__ = ("first", "kind", "last", "rule", "value")

    def __init__(self, rule: PhraseRule, first: int, last: int, value: float | None = None) -> None:
        self.kind = rule.kind
        self.rule = rule
        self.first = first
        self.last = last
        self.value = value

    def __repr__(self) -> str:
        return f"{self.kind.name}[{self.first}:{self.last}]"


@cache
def load_matcher() -> PhraseMatcher:
    """The matcher of the package's own tables, built on first use."""
    return PhraseMatcher(load_rules())


class PhraseMatcher:
    """All tables in one tree of words.

    Args:
        rules: Of all tables; two rules must not claim the same line of words.
    """

    def __init__(self, rules: Iterable[PhraseRule]) -> None:
        self._tree: dict[str, Any] = {}
        self.clashes: list[str] = []  # lines of words that two rules claim; the first has them
        table = load_spellings()
        self._ignored = frozenset(table.ignored)
        self._read_as = {other: word for word, others in table.synonyms.items() for other in others}
        words: set[str] = {VERTEBRA, *self._ignored, *table.synonyms, *self._read_as}
        for rule in rules:
            for pattern in rule.patterns:
                places = choices(pattern)
                for place in places:
                    words.update(place)
                self._add(places, rule)
        for mark, kind in _MARKS.items():
            self._add([[mark]], PhraseRule(kind, "punctuation", (mark,)))
        irregular = {form: base for base, forms in table.irregular.items() for form in forms}
        self.spelling = Spelling(words - {""}, self._read_as, self._ignored, irregular)

    def _add(self, places: Sequence[Sequence[str]], rule: PhraseRule) -> None:
        """Every line of words that the choices at these places stand for, as words are read."""
        read = [
            dict.fromkeys("" if word in self._ignored else self._read_as.get(word, word) for word in place)
            for place in places
        ]
        for line in product(*read):
            node = self._tree
            for word in line:
                if word:
                    node = node.setdefault(word, {})
            other = node.setdefault(_RULE, rule)
            if other is not rule and other != rule:
                self.clashes.append(" ".join(filter(None, line)))

    def find(self, tokens: Sequence[Token]) -> list[Phrase]:
        """Phrases from left to right, none overlapping; time is linear in the length of the text."""
        phrases: list[Phrase] = []
        ribs: dict[int, float] = {}
        root, index, count = self._tree, 0, len(tokens)
        while index < count:
            node = root.get(tokens[index].word)
            if node is None:
                if index in ribs:
                    phrases.append(Phrase(_LISTED_RIB, index, index + 1, ribs[index]))
                index += 1
                continue
            at = end = index + 1
            rule = node.get(_RULE)
            while at < count and (node := node.get(tokens[at].word)) is not None:
                at += 1
                if _RULE in node:
                    rule, end = node[_RULE], at
            if rule is None:
                index += 1
                continue
            if rule.kind is Kind.UNIT:
                phrases.append(_measure(tokens, index, rule))
            elif rule.kind is Kind.ORDINAL:
                # The number of a rib: "eighth", or "8th" with its number.
                number = _number(tokens[index - 1].word) if index and rule.number is None else None
                value = number if rule.number is None else rule.number
                phrases.append(Phrase(rule, index - (number is not None), index + 1, value))
            elif rule.kind is Kind.QUESTION_MARK:
                # Whether a mark is written to the word after it and not to the one before: "?infection".
                after = index + 1 < len(tokens) and tokens[index + 1].start == tokens[index].end
                before = index > 0 and tokens[index - 1].end == tokens[index].start
                phrases.append(Phrase(rule, index, end, float(after and not before)))
            else:
                phrases.append(Phrase(rule, index, end))
                if rule.label is Label.RIB:
                    ribs = _numbers_after(tokens, end)
            index = end
        return phrases


def _measure(tokens: Sequence[Token], at: int, unit: PhraseRule) -> Phrase:
    """A unit with the numbers before it, the largest of them in millimetres."""
    numbers: list[float] = []
    index = at - 1
    while index >= 0 and at - index < 8:
        number = _number(tokens[index].word)
        if number is not None:
            numbers.append(number)
        elif tokens[index].word not in _BETWEEN_NUMBERS or not numbers:
            break
        index -= 1
    return Phrase(unit, index + 1, at + 1, max(numbers) * (unit.number or 1) if numbers else None)


def _numbers_after(tokens: Sequence[Token], at: int) -> dict[int, float]:
    """The numbers of "ribs 5, 6 and 9" or "ribs 5 to 8" by token; a number with a unit is not a rib."""
    numbers: dict[int, float] = {}
    while at < len(tokens):
        number = _number(tokens[at].word)
        if number is not None and 1 <= number <= 12 and number == int(number):
            numbers[at] = number
        elif not (tokens[at].word in _BETWEEN_RIBS and at + 1 < len(tokens) and tokens[at + 1].word[0].isdigit()):
            break
        at += 1
    if at < len(tokens) and tokens[at].word in ("cm", "mm"):
        numbers.pop(at - 1, None)
    return numbers


def _number(word: str) -> float | None:
    return float(word) if word[0].isdigit() and len(word) < 9 else None
