"""Cut a free-text radiology report into its sections, with the character span of each."""

from __future__ import annotations

import html
import math
import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from cxrlab.core.records import SECTIONS, Report, Span
from cxrlab.data.section_headers import (
    ASIDES,
    BODY,
    COMMENT,
    IMAGE,
    NOTIFICATION,
    ORGAN,
    PREAMBLE,
    RANK,
    RECOMMENDATION,
    RULE,
    SIGNATURE,
    SUMMARY,
    TECHNIQUE,
    UNNAMED,
    Mark,
    Strength,
    marks,
    names_an_image,
)


@dataclass(frozen=True)
class ParsedReport:
    """A report's text and where its sections are."""

    text: str
    spans: Mapping[str, tuple[Span, ...]]
    # The same for what belongs to none of the five: technique and image name beside a named examination,
    # recommendation, notification, wet read, addendum, signature, preamble, administration, summary, unnamed.
    other: Mapping[str, tuple[Span, ...]]
    how: How  # how findings and impression were found; counted by importers
    merged: bool = False  # whether the impression holds the findings too ("FINDINGS AND IMPRESSION")
    markup: bool = False  # whether the text is HTML, of which the sections are freed

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
    found: list[Run] = []
    for run in runs(view, marks(view)):
        words = view[run.start : run.end]
        if run.section in ("findings", "impression") and not any(letter.isalpha() for letter in words):
            continue  # "___" or a date under the name of an image is not a finding
        if run.image and len(words) <= LONGEST_TITLE and names_an_image(words, strictly=True):
            run = replace(run, section="examination")  # "CHEST: PA AND LATERAL"
        found.append(run)
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


_FEW_WORDS = 4
LONGEST_TITLE = 100
_PASSED_OVER = (SIGNATURE, RECOMMENDATION, NOTIFICATION, IMAGE)


class How(StrEnum):
    """How findings and impression were found."""

    HEADERS = "headers"
    LAST_PARAGRAPH = "last paragraph"
    WHOLE_TEXT = "whole text"
    NOTHING = "nothing"


def unmerged(runs: list[Run]) -> list[Run]:
    """A merged section of findings and impression counts as findings if there is a separate impression."""
    if not any(run.section == "impression" and not run.merged for run in runs):
        return runs
    return [replace(run, section="findings", merged=False) if run.merged else run for run in runs]


def with_findings(text: str, runs: list[Run]) -> tuple[list[Run], How]:
    """The runs with findings made of text that no header names, and how they were found."""
    impression = next((at for at, run in enumerate(runs) if run.section == "impression"), None)
    if any(run.section == "findings" for run in runs) or (impression is not None and runs[impression].merged):
        return runs, How.HEADERS
    if impression is None:
        last = next((at for at in reversed(range(len(runs))) if runs[at].section not in _PASSED_OVER), None)
    else:
        last = impression - 1 if impression else None
    split = _split(text, runs[last], before_impression=impression is not None) if last is not None else None
    if last is None or split is None:
        headed = impression is not None or any(run.section != PREAMBLE for run in runs)
        return runs, How.HEADERS if headed else How.NOTHING
    how = How.WHOLE_TEXT if runs[last].section == PREAMBLE else How.LAST_PARAGRAPH
    return [*runs[:last], *split, *runs[last + 1 :]], how


def _split(text: str, run: Run, *, before_impression: bool) -> list[Run] | None:
    """A run with its unnamed findings parted off; None where it has none."""
    if run.section == PREAMBLE:
        start = run.start  # after the lines that only name the image
        while start < run.end:
            stop = text.find("\n", start, run.end)
            stop = run.end if stop < 0 else stop + 1
            line = text[start:stop].strip()
            if line and (len(line) > LONGEST_TITLE or not names_an_image(line)):
                break
            start = stop
        rest = Run("findings", *trimmed(text, start, run.end))
        parts = [] if rest.start == run.start else [replace(run, end=trimmed(text, run.start, rest.start)[1])]
        wanted = not before_impression or _is_prose(text[rest.start : rest.end])
        return [*parts, rest] if wanted and rest.start < rest.end else None
    paragraph = PARAGRAPH.search(text, run.start, run.end)
    if paragraph is None:
        return None
    rest = Run("findings", *trimmed(text, paragraph.end(), run.end))
    if before_impression and (run.section not in RANK or not _is_prose(text[rest.start : rest.end])):
        return None
    return [replace(run, end=trimmed(text, run.start, paragraph.start())[1]), rest]


def _is_prose(text: str) -> bool:
    return len(text.split()) >= _FEW_WORDS and any(letter.islower() for letter in text) or ". " in text


def with_examination(text: str, runs: list[Run]) -> list[Run]:
    """Where no header names the examination: the image's name on top or over the findings, else the technique."""

    def only_titles(run: Run) -> bool:
        lines = [line for line in text[run.start : run.end].split("\n") if line.strip()]
        return run.end - run.start <= 2 * LONGEST_TITLE and all(map(names_an_image, lines))

    signs: tuple[Callable[[Run], bool], ...] = (
        lambda run: run.section == "examination",
        lambda run: run.section == PREAMBLE and only_titles(run),
        lambda run: run.section == IMAGE,
        lambda run: run.section == TECHNIQUE,
    )
    sign = next((sign for sign in signs if any(map(sign, runs))), None)
    return [replace(run, section="examination") if sign and sign(run) else run for run in runs]


# Every kind of blank is a blank and every kind of line end a line end, character for character.
_SAME_LENGTH = str.maketrans(
    {
        **dict.fromkeys([0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " "),
        **dict.fromkeys("\ufeff\u200b\u200c\u200d\u2060\x00", " "),
        **dict.fromkeys("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", "\n"),
        "\t": " ",
        "：": ":",
    }
)  # fmt: skip
_INLINE_TAG = r"</?(?:b|i|u|em|strong|span|font|sup|sub|small|big|code|a)(?:\s[^<>\n]{0,200})?/?>"
_BREAK_TAG = r"</?(?:p|br|div|li|ul|ol|tr|td|th|table|h[1-6]|hr|pre|section|body|html|report)(?:\s[^<>\n]{0,200})?/?>"
_MARKUP = re.compile(rf"(?P<line>{_BREAK_TAG})|{_INLINE_TAG}|&nbsp;|&#160;|&#xa0;", re.IGNORECASE)
# Line ends that an export spelled out: "\\n", and "\\.br\\" of HL7.
_SPELLED_OUT = re.compile(r"\\\.br\\|(?:\\r)?\\n(?![a-z])")
_BOLD = re.compile(r"\*+")
_UNDERSCORED = re.compile(r"(?<![_\w])__(?=[A-Za-z][A-Za-z /&]{2,40}:?__(?!_))|(?<=[A-Za-z:])__(?![_\w])")
_HASHES = re.compile(r"^#{1,6}(?= )", re.MULTILINE)
_LIST_ITEM = re.compile(r"(?:\(?\d{1,2}[.)]|#\d{1,2}[.:)]?|\(?[a-h][.)]|[-•·*–])\s+\S")


# "Heart: normal" under "Lungs: clear" is a line of a form, not a wrapped sentence.
_LABEL = re.compile(r"[A-Z][A-Za-z]*(?:(?: and |[ /,&-]{1,2})[A-Za-z]+){0,3}:\s+\S")


def _blanks(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _blanks_and_lines(match: re.Match[str]) -> str:
    """As many characters, the last a line end where the tag ends a line."""
    return _blanks(match)[:-1] + ("\n" if match.lastgroup == "line" else " ")


def plain(text: str, *, markup: bool) -> str:
    """The text with tags and odd blanks as blanks, of the same length; in `markup` some tags are line ends."""
    text = text.translate(_SAME_LENGTH).replace("\r\n", " \n").replace("\r", "\n")
    if "\\" in text:
        text = _SPELLED_OUT.sub(lambda match: " " * (len(match[0]) - 1) + "\n", text)
    if "<" in text or "&" in text:
        text = _MARKUP.sub(_blanks_and_lines if markup else _blanks, text)
    if "*" in text:
        text = _BOLD.sub(_blanks, text)
    if "__" in text:
        text = _UNDERSCORED.sub("  ", text)
    return _HASHES.sub(_blanks, text) if "#" in text else text


def _readable(match: re.Match[str]) -> str:
    if match.lastgroup == "line":
        return "\n"
    return " " if match[0].startswith("&") else ""


def is_markup(text: str) -> bool:
    """Whether a text is written in HTML: a closing tag or two tags; a single tag is a remnant and stays text."""
    tags = re.finditer(rf"{_BREAK_TAG}|{_INLINE_TAG}", text, re.IGNORECASE) if "<" in text else iter(())
    first = next(tags, None)
    return first is not None and (first[0].startswith("</") or next(tags, None) is not None)


def folded(text: str, *, markup: bool) -> str:
    """Text for reading: wrapped lines joined; a new line for each paragraph, list item and "Heart: normal"."""
    text = text.translate(_SAME_LENGTH).replace("\r\n", "\n").replace("\r", "\n")
    if markup:
        text = html.unescape(_MARKUP.sub(_readable, text)).translate(_SAME_LENGTH)
    text = _SPELLED_OUT.sub("\n", text).replace("**", "")
    parts: list[list[str]] = []
    fresh = True
    for line in map(str.strip, text.split("\n")):
        if not line:
            fresh = True
        elif fresh or _LIST_ITEM.match(line) or _LABEL.match(line):
            parts.append([line])
            fresh = False
        else:
            parts[-1].append(line)
    return "\n".join(" ".join(part) for part in parts)


PARAGRAPH = re.compile(r"\n *\n")
_MAIN = ("findings", "impression")
_DONE = ("examination", TECHNIQUE)
# What a drawn line closes for good: the report is over, and names or addresses follow.
_CLOSED_BY_RULE = ("impression", SIGNATURE, SUMMARY)


@dataclass(frozen=True)
class Run:
    """One stretch of text."""

    section: str
    start: int
    end: int
    merged: bool = False
    image: bool = False

    @property
    def span(self) -> Span:
        return self.start, self.end


def trimmed(text: str, start: int, end: int) -> Span:
    """The same stretch without blanks at its ends; (start, start) where nothing is left."""
    inner = text[start:end]
    left = len(inner) - len(inner.lstrip())
    return (start, start) if left == len(inner) else (start + left, start + len(inner.rstrip()))


class _Ahead:
    """What comes after a mark of a text, from lists made once.

    Wet reads and addenda are small reports beside the body, often with own headers, which must not count as the body's.
    They end at "FINAL REPORT", at a drawn line, or by the order of the headers.
    """

    def __init__(self, marks: Sequence[Mark]) -> None:
        self._end = len(marks)
        self._bodies = [at for at, mark in enumerate(marks) if mark.section == BODY]
        self._rules = [at for at, mark in enumerate(marks) if mark.section == RULE]
        self._impressions = [at for at, mark in enumerate(marks) if mark.section == "impression"]
        self._ranked = [
            at for at, mark in enumerate(marks) if mark.section in RANK and mark.strength is not Strength.OUTSIDE
        ]
        # A second report: an impression, then an examination, or anything before a further impression.
        last = self._impressions[-1] if self._impressions else -1
        restarts = [
            (at, following)
            for at, following in zip(self._ranked, self._ranked[1:], strict=False)
            if marks[at].section == "impression"
            and marks[following].section != "impression"
            and (marks[following].section == "examination" or last > following)
        ]
        self._closing = [at for at, _ in restarts]
        self._restarts = [following for _, following in restarts]

    def body_after(self, aside: int, seen: Collection[str]) -> int:
        body = self._next(self._bodies, aside)
        if body is not None:
            return body
        if "impression" in seen:
            return self._end
        if "findings" in seen:
            return self._next(self._impressions, aside) or self._end
        ruled = self._next(self._rules, aside)
        if ruled is not None:
            return ruled
        second = bisect_right(self._closing, aside)
        if second < len(self._restarts):
            return self._restarts[second]
        return self._next(self._ranked, aside) or self._end

    def has_impression(self, number: int) -> bool:
        """Whether an impression has its header after mark `number`."""
        return self._next(self._impressions, number) is not None

    @staticmethod
    def _next(numbers: Sequence[int], after: int) -> int | None:
        place = bisect_right(numbers, after)
        return numbers[place] if place < len(numbers) else None


class _SectionTracker:
    """Tracks, from mark to mark, which section the text is in and where that section began."""

    def __init__(self, text: str) -> None:
        self.text, self.runs = text, list[Run]()
        self.section, self.start, self.merged, self.image = PREAMBLE, 0, False, False
        self.seen = set[str]()  # which of findings and impression are closed and not empty

    def close(self, at: int) -> None:
        first, last = trimmed(self.text, self.start, at)
        if first < last:
            self.runs.append(Run(self.section, first, last, self.merged, self.image))
            self.seen |= {self.section} & set(_MAIN)

    def turn(self, at: int, section: str, start: int, merged: bool = False) -> None:
        """Close the section at `at`; the next one's text begins at `start`."""
        self.close(at)
        self.section, self.start, self.merged, self.image = section, start, merged, False

    @property
    def has_impression(self) -> bool:
        return self.section == "impression" or "impression" in self.seen

    def counts(self, mark: Mark) -> bool:
        """Whether a mark is a header in the current section."""
        if mark.image and self.section in _DONE and not self.text[self.start : mark.start].strip():
            return False  # "EXAMINATION:" and on the next line "CHEST: FRONTAL VIEW"
        if mark.strength is Strength.OUTSIDE:
            return self.section not in _MAIN
        if mark.section == self.section and not self.text[self.start : mark.start].strip(" "):
            return False  # "INDICATION: History: cough": the second is text
        if mark.strength is Strength.FORWARD:
            return RANK.get(mark.section, 2) >= RANK.get(self.section, 0)
        return True

    def turn_to(self, mark: Mark) -> None:
        """Go on under a header; a comment that counts is the impression, and so is a summary where there is none."""
        if mark.section == ORGAN:
            self.turn(mark.start, "findings", mark.start)
            return
        self.turn(mark.start, mark.section, mark.end, mark.merged)
        self.image = mark.image
        if mark.image:
            name = self.text[mark.start : mark.end].rstrip(":=-–— ")
            self.runs.append(Run(IMAGE, *trimmed(self.text, mark.start, mark.start + len(name))))
        if mark.section == COMMENT or (mark.section == SUMMARY and "impression" not in self.seen):
            self.section = "impression"

    def sign(self, mark: Mark, until: int) -> None:
        """A signature ends the report; a letterhead, with nothing above it, ends at an empty line before `until`."""
        self.turn(mark.start, mark.section, mark.end)
        empty = None if self.runs else PARAGRAPH.search(self.text, mark.end, until)
        if empty:
            self.turn(empty.start(), PREAMBLE, empty.end())

    def rule(self, mark: Mark) -> None:
        """A drawn line separates sections; after an impression or a signature the report is over."""
        after = PREAMBLE if self.section in ASIDES else UNNAMED if self.section in _CLOSED_BY_RULE else self.section
        self.turn(mark.start, after, mark.end, self.merged and after == self.section)


def runs(text: str, marks: Sequence[Mark]) -> list[Run]:
    """The stretches of a text in order; the text before the first header is the preamble."""
    if all(mark.section in (UNNAMED, RULE) for mark in marks):
        marks = ()  # not one header that we know
    tracker, ahead = _SectionTracker(text), _Ahead(marks)
    resume = 0
    for number, mark in enumerate(marks):
        if mark.section in ASIDES:
            tracker.turn(mark.start, mark.section, mark.end)
            resume = ahead.body_after(number, tracker.seen)
        elif number < resume:
            if mark.section == RULE:
                tracker.turn(mark.start, tracker.section, mark.end)
        elif mark.section == RULE:
            tracker.rule(mark)
        elif mark.section == BODY:
            tracker.turn(mark.start, PREAMBLE, mark.end)
        elif mark.section == SIGNATURE and tracker.counts(mark):
            tracker.sign(mark, marks[number + 1].start if number + 1 < len(marks) else len(text))
        elif mark.section == COMMENT and (tracker.has_impression or ahead.has_impression(number)):
            continue
        elif tracker.counts(mark):
            tracker.turn_to(mark)
    tracker.close(len(text))
    return tracker.runs
