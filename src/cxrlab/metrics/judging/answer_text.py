"""The judge's own part of an answer: without reasoning, after its mark, without text copied from the reports."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class Reading(StrEnum):
    """How much of an answer could be read."""

    PARSED = "parsed"
    PARTIAL = "partial"
    FAILED = "failed"
    NOT_ASKED = "not asked"


MARK_WORD = "ANSWER"
MARK_DIGITS = 12
_GAP, _TRIES = 24, 50
LONGEST = 200_000  # characters, more than any limit of tokens allows

_ANY_MARK = rf"(?<![a-z]){MARK_WORD}\W{{0,4}}[0-9a-f]{{{MARK_DIGITS}}}(?![0-9a-z])"
# Delimiters of reasoning: tags, [THINK], MedGemma's unused94 and 95, the channels of gpt-oss.
_TAGS = r"(?:think|thinking|thought|reasoning|analysis)"
_OPENING = re.compile(
    rf"<{_TAGS}\b[^<>\n]{{0,40}}>|\[THINK\]|<unused94>|<\|begin_of_thought\|>|<\|channel\|>\s?analysis|◁think▷", re.I
)
_CLOSING = re.compile(
    rf"</{_TAGS}>|\[/THINK\]|<unused95>|<\|end_of_thought\|>|<\|channel\|>\s?final(?:<\|message\|>)?|◁/think▷", re.I
)
_REFUSAL = re.compile(
    r"\bI(?:'m| am)? (?:cannot|can't|can not|won't|will not|(?:am )?unable to|(?:am )?not able to|must decline|sorry)"
    r"|\bas an AI\b|\bI apologi[sz]e\b|\bsorry, (?:but )?I\b",
    re.I,
)
# "I cannot judge these", not "I cannot find an error".
_DECLINED = re.compile(
    r"\b(?:cannot|can't|can not|won't|will not|unable to|not able to|must decline to) (?:\w{1,20} ){0,2}?"
    r"(?:assess|judge|evaluate|grade|interpret|provide|compare|count|review|analy[sz]e|answer|help|assist|comply|rate|offer)\b",
    re.I,
)
_EXAMPLE = re.compile(r"^\W{0,6}Example \d{1,3}\W{0,4}$", re.I | re.M)
_ONE_BAR = re.compile(r"^\s?\| ?(?=[^|\n]*$)", re.M)


@dataclass(frozen=True)
class Answer:
    """A judge's answer and what it is about."""

    text: str  # as generated
    mark: str | None = None  # the mark of this question (12 hexadecimal digits); None where none was requested
    reports: Sequence[str] = ()  # the reports in the prompt; text copied from them is not the judge's own
    cut: bool = False  # whether the model stopped at its limit, so that the last number may lack digits

    @cached_property
    def folded_reports(self) -> tuple[str, ...]:
        """The reports as `fold` gives them."""
        return tuple(fold(report) for report in self.reports)

    @cached_property
    def bare_reports(self) -> tuple[str, ...]:
        """Letters and digits of the reports."""
        return tuple(bare(report) for report in self.folded_reports)

    @cached_property
    def spaced_reports(self) -> tuple[str, ...]:
        """Words and numbers of the reports."""
        return tuple(spaced(report) for report in self.folded_reports)

    def copied(self, text: str) -> bool:
        """Whether a folded text stands in one of the reports."""
        wanted = bare(text)
        return bool(wanted) and any(wanted in report for report in self.bare_reports)

    def holds(self, text: str) -> bool:
        """Whether the words and numbers of a short folded text stand in one of the reports."""
        wanted = spaced(text)
        return bool(wanted) and any(wanted in report for report in self.spaced_reports)

    def copied_in_order(self, parts: Sequence[str]) -> bool:
        """Whether folded texts follow one another in one of the reports, with at most `_GAP` signs between two."""
        wanted = [part for part in map(spaced, parts) if part]
        return len(wanted) > 1 and any(_in_order(wanted, report) for report in self.spaced_reports)


def _in_order(parts: Sequence[str], report: str) -> bool:
    """A wider gap than `_GAP` would reach into the next list of the same report."""
    at = -1
    for _ in range(_TRIES):
        at = report.find(parts[0], at + 1)
        if at < 0:
            return False
        end = at + len(parts[0])
        for part in parts[1:]:
            place = report.find(part, end - 1, end + _GAP + len(part))  # the space between two belongs to both
            if place < 0:
                break
            end = place + len(part)
        else:
            return True
    return False


@dataclass(frozen=True)
class Region:
    """A stretch of the judge's own words, folded, and whether it follows the mark."""

    text: str
    marked: bool


@dataclass(frozen=True)
class AnswerRegions:
    """The regions of an answer."""

    regions: tuple[Region, ...] = ()  # in the order in which they are to be tried
    problem: str | None = None  # why there are none; None where there are regions
    refusal: bool = False  # whether the answer reads like a refusal
    declined: bool = False  # whether the judge declines to judge; zeros beside such words are not counts


def answer_regions(answer: Answer) -> AnswerRegions:
    """The regions of an answer: after each of its marks, the last one first; or all of it where there is no mark."""
    if not answer.text.strip():
        return AnswerRegions(problem="the answer is empty")
    if len(answer.text) > LONGEST:
        return AnswerRegions(problem=f"the answer is longer than {LONGEST:,} characters")
    text = fold(answer.text)
    if len(text) > 2 * LONGEST:
        return AnswerRegions(problem=f"the answer is longer than {LONGEST:,} characters")
    spoken = _after_thinking(text, answer)
    if spoken is None:
        return AnswerRegions(problem="the answer ends while the judge is still thinking")
    # The question's own marks may stand without their word.
    mark = re.escape(answer.mark) if answer.mark else ""
    own = rf"(?P<own>(?<![0-9a-z])(?:{MARK_WORD}\W{{0,4}})?{mark}(?![0-9a-z]))|" if mark else "(?P<own>$^)|"
    marks = list(re.finditer(own + _ANY_MARK, spoken, re.I))
    mine = [place for place, found in enumerate(marks) if found["own"]]
    refusal = bool(_REFUSAL.search(spoken))
    declined = any(not answer.holds(found[0]) for found in _DECLINED.finditer(spoken))
    if mine:
        ends = [mark.start() for mark in marks[1:]] + [len(spoken)]
        after = [spoken[marks[place].end() : ends[place]] for place in reversed(mine)]
    elif marks and answer.mark and not all(answer.copied(mark[0]) for mark in marks):
        return AnswerRegions(problem="the answer carries the mark of another question")
    else:
        after = [spoken]
    regions = []
    for part in after:
        # An example repeats the prompt, or is a question that the model asks itself.
        example = next((found for found in _EXAMPLE.finditer(part) if not answer.holds(found[0])), None)
        part = part[: example.start()] if example else part
        # Quoted lines lose the bar that they begin with; rows of a table keep theirs.
        regions.append(Region(_ONE_BAR.sub("", part), bool(mine)))
    return AnswerRegions(tuple(regions), refusal=refusal, declined=declined)


def _after_thinking(text: str, answer: Answer) -> str | None:
    """The text after the reasoning; None where the reasoning never ends."""
    while (opening := _OPENING.search(text)) and not any(sign.isalnum() for sign in text[: opening.start()]):
        closing = _CLOSING.search(text, opening.end())
        if closing is None:
            return None
        text = text[closing.end() :]
    # A report that holds such a tag must not cut an answer short.
    closing, opening = _last(_CLOSING, text, answer), _last(_OPENING, text, answer)
    marked = bool(answer.mark) and str(answer.mark).lower() in text.lower()
    if opening and (closing is None or closing.end() <= opening.start()):
        before = text[: opening.start()]  # more reasoning, with or without an answer before it
        return before if answer.mark and answer.mark.lower() in before.lower() else None
    # Some templates open the reasoning in the prompt.
    return text if closing is None or marked else text[closing.end() :]


def _last(tag: re.Pattern[str], text: str, answer: Answer) -> re.Match[str] | None:
    """The last such tag; None where there is none, or where a report has one."""
    if any(tag.search(report) for report in answer.folded_reports):
        return None
    return max(tag.finditer(text), key=lambda found: found.start(), default=None)


# Letters of other scripts that look like Latin ones, and typographic signs for plain ones.
_ALIKE = dict(
    zip(
        "АВЕЅІЈКМНОРСТХУѴԌԚԜаеіјорсухѕԁɡһԛԝѵΑΒΕΖΗΙΚΜΝΟΡΤΥΧαεικνορτυχϲƒɑɩ",
        "ABESIJKMHOPCTXYVGQWaeijopcyxsdghqwvABEZHIKMNOPTYXaeikvoptuxcfai",
        strict=True,
    )
)
_PLAIN = {
    "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u2032": "'",
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2033": '"', "\u00ab": '"', "\u00bb": '"',
    "\u2212": "-", "\u2044": "/", "\u2215": "/", "\u2236": ":", "\ua789": ":", "\u2026": "...",
    "\u2028": "\n", "\u2029": "\n", "\u0085": "\n", "\x0b": "\n", "\x0c": "\n", "\r": "\n",
}  # fmt: skip
_KEPT = {"\n": "\n", "\t": " "}


class _Folding(dict[int, str]):
    """Character → its folded form, computed when first met; without context, so that the time is bounded."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        # A raised 2 after a 1 is a footnote, not a twelve.
        raised = unicodedata.decomposition(sign).startswith(("<super>", "<sub>"))
        decomposed = _PLAIN.get(sign) or (" " if raised else unicodedata.normalize("NFKD", sign))
        self[code] = folded = "".join(map(_fold_one, decomposed))
        return folded


def _fold_one(sign: str) -> str:
    if sign in _KEPT or sign in _PLAIN:
        return _KEPT.get(sign) or _PLAIN[sign]
    category = unicodedata.category(sign)
    if category in ("Mn", "Me", "Cf", "Cc", "Cs", "Cn", "Co"):
        return ""
    if category == "Nd":
        return str(unicodedata.digit(sign))
    if category == "Pd":
        return "-"
    return " " if category.startswith("Z") else _ALIKE.get(sign, sign)


_FOLDING = _Folding()
_BLANKS = re.compile(r"[ \t]+")
_EMPTY_LINES = re.compile(r" ?\n[ \n]*\n ?| ?\n ?")


def fold(text: str) -> str:
    """The text in plain letters, digits and signs.

    Look-alike letters become Latin, digits of any script 0–9, dashes and quotes their plain forms; accents,
    zero-width and control signs go; runs of blanks become one, runs of empty lines one empty line.
    """
    text = text.replace("\r\n", "\n").translate(_FOLDING)
    text = _BLANKS.sub(" ", text)
    return _EMPTY_LINES.sub(lambda found: "\n\n" if found[0].count("\n") > 1 else "\n", text).strip()


NUMBER_WORDS = {
    word: value
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
        "seventeen eighteen nineteen twenty".split()
    )
}
_WORD = re.compile(r"(?<![a-z])(?:" + "|".join(sorted(NUMBER_WORDS, key=len, reverse=True)) + r")(?![a-z])")
# A letter that looks like a digit, in a report or in its copy, makes no other text.
_DIGITS = str.maketrans({"o": "0", "l": "1", "i": "1"})


def bare(text: str) -> str:
    """Only the letters and digits of a folded text, in lower case, to compare texts."""
    plain = _WORD.sub(lambda found: str(NUMBER_WORDS[found[0]]), text.casefold())
    return "".join(sign for sign in plain if sign.isalnum()).translate(_DIGITS)


_TOKEN = re.compile(r"[^\W\d_]+|\d+")
_DIGIT_WORDS = {"o": "0", "l": "1", "i": "1", **{word: str(value) for word, value in NUMBER_WORDS.items()}}


def spaced(text: str) -> str:
    """Words and numbers of a folded text in lower case between single spaces; for short pieces such as `(A, 0)`."""
    words = _TOKEN.findall(text.casefold())
    return f" {' '.join(_DIGIT_WORDS.get(word, word) for word in words)} " if words else ""
