"""Headings of an answer (`[Clinically Significant Errors]:`, `SIGNIFICANT:`) and the counts below each."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cxrlab.metrics.judging.parsing.entries import Entry, read_entries, strange_kind
from cxrlab.metrics.judging.parsing.kinds import KINDS, weight_of
from cxrlab.metrics.judging.parsing.numbers import numbered_list, read_count
from cxrlab.metrics.judging.parsing.own_words import Answer
from cxrlab.metrics.judging.parsing.parsed import MATCHED, Cell, told
from cxrlab.metrics.judging.parsing.units import Unit

MOST_HEADINGS = 500  # more than any reader of them accepts, and few enough to be quick

_CORE = re.compile(r"significant|match(?:ed|es|ing)", re.I)
_BEFORE = re.compile(
    r"(?:\b(?:number|count|total)[\s_]of[\s_])?(?:clinically[\s_-]{1,2})?(?:(?<![a-z])(?:in|un|non[\s_-]{0,2}|not[\s_](?:clinically[\s_])?))?\Z",
    re.I,
)
_AFTER = re.compile(
    r"[\s_-]{0,2}(?:errors?|findings?|counts?|mistakes?)?(?P<by>[\s_-]{1,2}(?:by|per)[\s_-](?:type|kind|category))?"
    r"(?:[\s_]\([^()\n]{0,60}\))?(?P<close>[\"'`\]*_)]{0,4})\s?(?:(?P<colon>[:=])[\"'`*_]{0,3}|(?P<line>(?=\n)|$)|(?=[\[{]))",
    re.I,
)
_OTHER = re.compile(
    r"^\W{0,6}(?:explanations?|notes?|summary|reasoning|comments?|total|overall|justification|conclusion)\b"
    r"|^\s?\[[a-z][^\]\n]{2,60}\]",
    re.I | re.M,
)
# A sentence that says that there is none, and nothing else. "No location errors", "No further errors" and "No errors of
# kind A" leave the rest open, and so does whatever goes on after it.
_HOW = (
    "were was are is have been found identified noted present detected made observed seen here between in by of the "
    "this candidate generated reference report reports two and when compared to with"
)
_TAIL = rf"(?:[\s,]{{1,2}}(?:{_HOW.replace(' ', '|')})\b){{0,12}}"
_THERE = r"(?:there\s(?:is|are|were)\s)?no\s"
_WEIGHTY = r"(?:(?:such|clinically|significant|insignificant)\s){0,3}"
_STOP = r"[^\w?]{0,8}(?=$|\n\s?\n)"
_ZERO = re.compile(
    rf"\W{{0,4}}(?:no|none{_TAIL}|{_THERE}{_WEIGHTY}(?:errors?|mistakes?|discrepanc(?:y|ies)|differences?){_TAIL}){_STOP}",
    re.I,
)
_NO_MATCH = re.compile(
    rf"\W{{0,4}}(?:no|none{_TAIL}|{_THERE}(?:(?:matched|matching|such|common)\s)?(?:findings?|matches)(?:\smatch\w{{0,2}})?{_TAIL}"
    rf"|none\sof\sthe\s(?:\w{{1,20}}\s){{0,2}}(?:(?:is|are|was|were)\s)?match(?:es|ed)?){_STOP}",
    re.I,
)
_YET = re.compile(
    r"\b(?:except|but|however|other than|apart from|besides|although|only|still|one|two|three|miss\w{0,3})\b|\d", re.I
)
# A number between a heading and its list: "SIGNIFICANT: 2 [(A, 1), …".
_SUM = re.compile(r"[^\w-]{0,8}(\d{1,4}(?:\.\d{1,4})?)[^\w-]{0,8}")
# What a heading may follow within a line; prose ("granuloma, clinically significant: no") looks like one after a comma.
_ENDS = (".", ";", ":", "]", "}", "{", "[", "(", ">", "|", '"', "'", "*", "-", "],", "),", "},")


@dataclass(frozen=True)
class Heading:
    """Where a section begins, and what it is about."""

    start: int
    end: int
    about: str
    titled: bool  # a title of a section as GREEN writes them, where "No …" stands for zeros


def read_sections(text: str, answer: Answer, *, fractions: bool) -> list[Unit]:
    """One unit a heading; those under which nothing could be read say so.

    Args:
        text: A region of an answer.
        answer: Whose region it is.
        fractions: Whether a count may be a fraction.
    """
    headings = _headings(text, answer)[:MOST_HEADINGS]
    stops = sorted({heading.start for heading in headings} | {found.start() for found in _OTHER.finditer(text)})
    units = []
    for heading in headings:
        next_stop = bisect_left(stops, heading.end)
        stop = stops[next_stop] if next_stop < len(stops) else len(text)
        body = text[heading.end : stop]
        ends_answer = stop == len(text) and (answer.cut or text.count("{") > text.count("}"))
        if heading.about == MATCHED:
            units.append(_matched(text, heading, body, ends_answer))
        else:
            entries = read_entries(body, answer, fractions=fractions, ends_answer=ends_answer)
            unit = _unit(text, heading, entries) if entries else _zeros(text, heading, body)
            strange = strange_kind(text[unit.start : min(stop, unit.end + 40)])
            units.append(replace(unit, clash=f"a count for the unknown kind {strange}") if strange else unit)
    return units


def _headings(text: str, answer: Answer) -> list[Heading]:
    found = []
    for core in _CORE.finditer(text):
        after = _AFTER.match(text, core.end())
        before = _BEFORE.search(text, max(0, core.start() - 60), core.start())
        if after is None or before is None:
            continue
        start = before.start()
        lead = text[text.rfind("\n", 0, start) + 1 : start]
        begins_line = not any(sign.isalnum() for sign in lead)
        about = weight_of(text[start : core.end()])
        if about is None or text[start - 1 : start].isalpha() or (about == MATCHED and start < core.start()):
            continue  # "unmatched", "not matched"
        within = after["line"] is None and (after["by"] or lead.rstrip().endswith(_ENDS))
        if not begins_line and (not within or _quoted(lead, text[start : after.end() + 20], answer)):
            continue
        own_line = after["colon"] and text[after.end() : after.end() + 2].strip(" ")[:1] == "\n"
        titled = begins_line and not after["by"] and (own_line or "]" in after["close"] or _opens(lead))
        found.append(Heading(start, after.end(), about, bool(titled)))
    return found


def _quoted(lead: str, heading: str, answer: Answer) -> bool:
    """Whether a heading within a line stands in quotation marks that were not closed before it, and in a report."""
    return lead.count('"') % 2 == 1 and answer.copied(heading)


def _opens(lead: str) -> bool:
    return any(sign in lead for sign in "[*#")


def _unit(text: str, heading: Heading, entries: Sequence[Entry]) -> Unit:
    counts: dict[Cell, float] = {}
    problems: list[tuple[Cell, str]] = []
    clash = None
    for entry in entries:
        cell = (heading.about, entry.kind)
        if entry.count.value is None:
            problems.append((cell, entry.count.problem))
        elif counts.setdefault(cell, entry.count.value) != entry.count.value:
            clash = f"two different counts for {told(cell)}"
    for cell, problem in problems:
        if cell in counts and problem != "no number":
            clash = f"a count and {problem} for {told(cell)}"
    listed = [entry for entry in entries if not entry.stray] or list(entries)
    ahead = _SUM.fullmatch(text, heading.end, heading.end + min(entry.start for entry in entries))
    return Unit(
        start=heading.start,
        end=_end_of_line(text, heading.end + listed[-1].end),
        about=frozenset((heading.about,)),
        counts=counts,
        problems=tuple(f"{problem} for {told(cell)}" for cell, problem in problems if cell not in counts),
        parts=(text[heading.start : heading.end], *(entry.text for entry in listed)),
        clash=clash,
        totals=((heading.about, float(ahead[1])),) if ahead else (),
    )


def _end_of_line(text: str, end: int) -> int:
    """To the end of a line for what lists its errors there; a list in brackets ends with its bracket."""
    if text[end - 1 : end] in (")", "]", "}"):
        return end
    stop = text.find("\n", end)
    return stop if stop >= 0 else len(text)


def _zero_end(heading: Heading, body: str, pattern: re.Pattern[str]) -> int | None:
    """Where a sentence ends that says that there is none; None where there is none, or where more is said."""
    found = pattern.match(body) if heading.titled else None
    return found.end() if found and not _YET.search(body, found.end()) else None


def _zeros(text: str, heading: Heading, body: str) -> Unit:
    """No errors, where a section says so in words; else nothing that could be read."""
    about, after = frozenset((heading.about,)), _zero_end(heading, body, _ZERO)
    if after is None:
        return Unit(heading.start, heading.end, about, problems=(f"no count by kind of {heading.about} errors",))
    end = heading.end + after
    counts: Mapping[Cell, float] = {(heading.about, kind): 0.0 for kind in KINDS}
    return Unit(heading.start, end, about, counts, parts=(text[heading.start : end],))


def _matched(text: str, heading: Heading, body: str, ends_answer: bool) -> Unit:
    count = read_count(body, fractions=False, sentences=False)
    about = frozenset((MATCHED,))
    value, end, problem = count.value, count.end, count.problem
    if value is not None and numbered_list(value, body[end:]):
        value, problem = None, "a numbered list instead of a count"
    elif value is not None and ends_answer and end >= len(body):
        value, problem = None, "a number at which the answer is cut off"
    elif value is None and (after := _zero_end(heading, body, _NO_MATCH)) is not None:
        value, end = 0.0, after
    if value is None:
        return Unit(heading.start, heading.end, about, problems=(f"{problem} for matched findings",))
    stop = heading.end + end
    parts = (text[heading.start : stop],)
    return Unit(heading.start, _end_of_line(text, stop), about, matched=value, parts=parts)
