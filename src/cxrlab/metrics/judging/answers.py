"""The part of a judge's answer that is its own: without reasoning, after its mark, without text copied from the reports."""

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
LONGEST = 200_000  # characters; no judge is allowed so many tokens

_ANY_MARK = rf"(?<![a-z]){MARK_WORD}\W{{0,4}}[0-9a-f]{{{MARK_DIGITS}}}(?![0-9a-z])"
# How models fence their thoughts: tags, [THINK], MedGemma's unused94 and 95, the channels of gpt-oss.
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
    """A judge's answer and what it is about.

    Args:
        text: As the model gave it.
        mark: The sign that only this answer knows (12 hexadecimal digits); None where none was asked for.
        reports: Texts that stood in the prompt as data; what the answer copies from them is not its own.
        cut: Whether the model stopped at its limit, so that the last number may lack digits.
    """

    text: str
    mark: str | None = None
    reports: Sequence[str] = ()
    cut: bool = False

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
        """Whether folded texts stand in one of the reports one after the other, with little between them."""
        wanted = [part for part in map(spaced, parts) if part]
        return len(wanted) > 1 and any(_in_order(wanted, report) for report in self.spaced_reports)


def _in_order(parts: Sequence[str], report: str) -> bool:
    """Whether the parts follow one another with at most `_GAP` signs between two of them.

    A wider gap would reach into the next list of the same report, and find there what this one has not.
    """
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
    """A stretch of the answer in which the judge speaks for itself.

    Args:
        text: Folded.
        marked: Whether it stands after the mark.
    """

    text: str
    marked: bool


@dataclass(frozen=True)
class AnswerRegions:
    """Where to look for what the judge says.

    Args:
        regions: In the order in which they are to be tried.
        problem: Why there is nowhere to look; None where there are regions.
        refusal: Whether the answer reads like a refusal.
        declined: Whether it says that it will not judge; zeros beside such words are none.
    """

    regions: tuple[Region, ...] = ()
    problem: str | None = None
    refusal: bool = False
    declined: bool = False


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
    marks, mine = _marks(spoken, answer.mark)
    refusal = bool(_REFUSAL.search(spoken))
    declined = any(not answer.holds(found[0]) for found in _DECLINED.finditer(spoken))
    if mine:
        ends = [mark.start() for mark in marks[1:]] + [len(spoken)]
        after = [spoken[marks[place].end() : ends[place]] for place in reversed(mine)]
    elif marks and answer.mark and not all(answer.copied(mark[0]) for mark in marks):
        return AnswerRegions(problem="the answer carries the mark of another question")
    else:
        after = [spoken]
    regions = tuple(Region(_unbarred(_before_examples(part, answer)), bool(mine)) for part in after)
    return AnswerRegions(regions, refusal=refusal, declined=declined)


def _before_examples(text: str, answer: Answer) -> str:
    """The text up to an example: what follows repeats the prompt, or is a question that the model asks itself."""
    found = next((found for found in _EXAMPLE.finditer(text) if not answer.holds(found[0])), None)
    return text[: found.start()] if found else text


def _marks(text: str, mark: str | None) -> tuple[list[re.Match[str]], list[int]]:
    """Every mark in a text, and which of them are the question's own; those may stand without their word."""
    own = rf"(?P<own>(?<![0-9a-z])(?:{MARK_WORD}\W{{0,4}})?{re.escape(mark)}(?![0-9a-z]))|" if mark else "(?P<own>$^)|"
    marks = list(re.finditer(own + _ANY_MARK, text, re.I))
    return marks, [place for place, found in enumerate(marks) if found["own"]]


def _after_thinking(text: str, answer: Answer) -> str | None:
    """What is said once the thinking is over; None where it never ends."""
    while (opening := _OPENING.search(text)) and not any(sign.isalnum() for sign in text[: opening.start()]):
        closing = _CLOSING.search(text, opening.end())
        if closing is None:
            return None
        text = text[closing.end() :]
    # A report that holds such a tag must not cut an answer short.
    closing, opening = _last(_CLOSING, text, answer), _last(_OPENING, text, answer)
    marked = bool(answer.mark) and str(answer.mark).lower() in text.lower()
    if opening and (closing is None or closing.end() <= opening.start()):
        before = text[: opening.start()]  # it begins to think again, with or without having answered
        return before if answer.mark and answer.mark.lower() in before.lower() else None
    # Some templates open the thinking in the prompt.
    return text if closing is None or marked else text[closing.end() :]


def _last(tag: re.Pattern[str], text: str, answer: Answer) -> re.Match[str] | None:
    """The last such tag; None where there is none, or where a report has one."""
    if any(tag.search(report) for report in answer.folded_reports):
        return None
    return max(tag.finditer(text), key=lambda found: found.start(), default=None)


def _unbarred(text: str) -> str:
    """The text without the bars that quoted lines begin with; rows of a table keep theirs."""
    return _ONE_BAR.sub("", text)


# Letters of other scripts that print like Latin ones, and signs that stand for plain ones.
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
    """Character → what it is folded to, worked out when first met; never in context, so that the time is bounded."""

    def __missing__(self, code: int) -> str:
        self[code] = folded = "".join(_fold_one(sign) for sign in _decomposed(chr(code)))
        return folded


def _decomposed(sign: str) -> str:
    if sign in _PLAIN:
        return _PLAIN[sign]
    # A raised 2 after a 1 is a footnote, not a twelve.
    if unicodedata.decomposition(sign).startswith(("<super>", "<sub>")):
        return " "
    return unicodedata.normalize("NFKD", sign)


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
# A letter that is taken for a digit, in a report or in its copy, does not make it another text.
_DIGITS = str.maketrans({"o": "0", "l": "1", "i": "1"})


def bare(text: str) -> str:
    """Letters and digits of a folded text alone, in one case; what two texts are compared by.

    Args:
        text: As `fold` gives it.
    """
    plain = _WORD.sub(lambda found: str(NUMBER_WORDS[found[0]]), text.casefold())
    return "".join(sign for sign in plain if sign.isalnum()).translate(_DIGITS)


_TOKEN = re.compile(r"[^\W\d_]+|\d+")
_DIGIT_WORDS = {"o": "0", "l": "1", "i": "1", **{word: str(value) for word, value in NUMBER_WORDS.items()}}


def spaced(text: str) -> str:
    """Words and numbers of a folded text in one case, each between single spaces; for short pieces such as `(A, 0)`.

    Args:
        text: As `fold` gives it.
    """
    words = _TOKEN.findall(text.casefold())
    return f" {' '.join(_DIGIT_WORDS.get(word, word) for word in words)} " if words else ""
