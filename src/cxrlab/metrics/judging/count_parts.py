"""Labels, numbers and totals in a judge's error counts, and the list of counts that they form."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.judging.answers import NUMBER_WORDS, Answer, Reading

SIGNIFICANT, INSIGNIFICANT, MATCHED = "significant", "insignificant", "matched"
WEIGHTS = (SIGNIFICANT, INSIGNIFICANT)
Cell = tuple[str, ErrorKind]  # one of `WEIGHTS`, and a kind
CELLS: tuple[Cell, ...] = tuple((weight, kind) for weight in WEIGHTS for kind in ErrorKind)


def told(cell: Cell) -> str:
    """A cell in words, for reasons."""
    return f"{cell[1].value.replace('_', ' ')}, {cell[0]}"


@dataclass(frozen=True)
class Parsed:
    """Counts that a judge gave.

    Args:
        status: Parsed when every count that was asked for is there, partial when some are, failed when none is or
            when the answer contradicts itself.
        counts: The counts that are there; a missing cell is unknown, never 0.
        matched: Findings that both reports have; None where the answer does not tell.
        reason: What is missing or wrong, in words; None for an answer that was read whole.
    """

    status: Reading
    counts: Mapping[Cell, float] = field(default_factory=dict)
    matched: float | None = None
    reason: str | None = None

    def total(self, cells: Iterable[Cell] = CELLS) -> float | None:
        """The sum over some cells; None where one of them is missing."""
        values = [self.counts.get(cell) for cell in cells]
        return None if any(value is None for value in values) else sum(value or 0.0 for value in values)

    def plain(self) -> dict[str, Any]:
        """The counts as a record: weight → kind → count, with the cells that are there."""
        told: dict[str, dict[str, float]] = {weight: {} for weight in WEIGHTS}
        for weight, kind in CELLS:
            if (weight, kind) in self.counts:
                told[weight][kind.value] = self.counts[weight, kind]
        return told


KINDS = tuple(ErrorKind)
LETTERS = dict(zip("abcdef", KINDS, strict=True))
NUMBERS = dict(zip("123456", KINDS, strict=True))

_LETTER = re.compile(r"\W{0,6}(?:(?:type|kind|category|error)[\s_-]{0,3})?\(?([a-f]|[1-6])\)?[.:)]{0,2}\W{0,6}", re.I)
_LETTER_AND_NAME = re.compile(
    r"\W{0,6}(?:(?:type|kind|category|error)\s)?\(?([a-f]|[1-6])(?:[).:]{1,2}|\s?-)\s?(\D.{2,159})", re.I
)

_COMPARISON = re.compile(r"compari[sn]|\bprior\b|\bprevious\b|\bchanges? (?:from|since)|\btemporal", re.I)
_OMITTED = re.compile(
    r"\bomi(?:t|ss)|\bmiss(?:ing|ed|es)?\b|\bleft out|\bleaves? out|\bfail|\bunreported|\bforgot", re.I
)
_FALSE = re.compile(
    r"\bfalse|\bhallucin|\binvent|\bmade up|\bspurious|\bextra\b|\bmention(?:s|ing|ed)?\b|\bnot (?:present )?in the ref"
    r"|\bisn'?t in the ref|\babsent from the ref",
    re.I,
)
_PLACE = re.compile(r"\blocat|\bposition|\blateral|\bplace\b|\bwrong side|\bincorrect side|\banatomic", re.I)
_DEGREE = re.compile(r"\bsever|\bdegree|\bextent|\bgrad(?:e|ing)\b", re.I)

_NOT = r"(?:(?<![a-z])(?:in|un)|(?<![a-z])non[\s_-]{0,2}|(?<![a-z])not[\s_-](?:clinically[\s_-])?)"
_WEIGHT = re.compile(rf"(?:(?P<no>{_NOT})|(?<![a-z]))significant(?!ly)", re.I)
_MATCH = re.compile(
    r"(?<![a-z])(?P<no>(?:not|non|un|mis|partial(?:ly)?|no)[\s_-]{0,2})?(?<![a-z])match(?:ed|es|ing)", re.I
)
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


def named_kind(name: str) -> ErrorKind | None:
    """The kind that a description means; None where it could be several or none."""
    name = name.replace("_", " ")
    omitted, false = bool(_OMITTED.search(name)), bool(_FALSE.search(name))
    if _COMPARISON.search(name):
        if omitted == false:
            return None
        return ErrorKind.OMITTED_COMPARISON if omitted else ErrorKind.FALSE_COMPARISON
    told = {
        ErrorKind.WRONG_LOCATION: bool(_PLACE.search(name)),
        ErrorKind.WRONG_SEVERITY: bool(_DEGREE.search(name)),
        ErrorKind.OMITTED_FINDING: omitted,
        ErrorKind.FALSE_FINDING: false,
    }
    meant = [kind for kind, said in told.items() if said]
    return meant[0] if len(meant) == 1 else None


def labelled_kind(label: str) -> ErrorKind | None:
    """The kind that a key of an object or the first cell of a row means.

    A letter whose name is that of another kind (`a: missing finding`) means none: one of the two is wrong.
    """
    if found := _LETTER.fullmatch(label):
        return lettered(found[1])
    if found := _LETTER_AND_NAME.fullmatch(label):
        return lettered(found[1]) if agrees(lettered(found[1]), found[2]) else None
    return named_kind(label) if len(label) <= 160 else None


def lettered(sign: str) -> ErrorKind:
    """The kind of a letter from a to f, or of a number from 1 to 6."""
    return LETTERS.get(sign.lower()) or NUMBERS[sign]


def agrees(kind: ErrorKind, name: str, *, named: bool = False) -> bool:
    """Whether a description may mean this kind.

    Args:
        kind: What the letter or number beside it means.
        name: The description.
        named: Whether it must mean it; else a description that tells nothing will do.
    """
    meant = named_kind(name)
    return meant is kind or (meant is None and not named)


def weight_of(key: str) -> str | None:
    """Whether a key or a heading speaks of significant errors, of the others, or of matched findings."""
    key = _HUMP.sub("_", key)
    if found := _WEIGHT.search(key):
        return INSIGNIFICANT if found["no"] else SIGNIFICANT
    matched = _MATCH.search(key)
    return MATCHED if matched and not matched["no"] else None


LARGEST = 100  # nobody makes more errors of one kind in one report
_TAKEN_BACK = "a zero that is taken back"

_WORDS = {**NUMBER_WORDS, "none": 0, "nil": 0}
_SPELLED = "|".join(sorted(_WORDS, key=len, reverse=True))
_LEAD = re.compile(r"[\s\"'*_`\[(]{0,8}")
_VALUE = re.compile(rf"(?P<minus>-\s?)?(?:(?P<digits>\d+(?:\.\d+)?)|(?P<word>(?:{_SPELLED})(?![a-z])))", re.I)
_NO_ERRORS = re.compile(
    r"no\s(?:(?:clinically\s)?(?:in)?significant\s|such\s)?(?:errors?|findings?|mistakes?)\b"
    r"(?=\s{0,2}(?:$|[.,;)\]}\n\"'*]|(?:were|was|are|is|have|has|been|here|in|found|identified|noted|but|except)\b))",
    re.I,
)
_VAGUE = re.compile(
    r"[~<>≈≥≤±]|(?:about|approx\w*|around|roughly|nearly|almost|at\s(?:least|most)|up\sto|more\sthan|less\sthan|over|under"
    r"|possibly|perhaps|maybe|probably|several|few|a\sfew|many|multiple|some|a\scouple|between|numerous)\b",
    re.I,
)
# A second number right behind the first ("1-2", "1~2", "1 (or 2)", "1, maybe 2", "1 → 2", "2 1"): which one is meant?
_RANGE = re.compile(
    rf"\s?[,(]?\s?(?:-|~|to\b|or\b|and\b|and/or\b|&|\.{{2,3}}|->|[→±×|]|vs\b\.?|x\b|maybe\b|possibly\b|perhaps\b"
    rf"|probably\b|(?:corrected|revised|actually|rather|now)\b:?)\s?\(?(?:\d|(?:{_SPELLED})\b)|(?:[ _]|, ?)\d",
    re.I,
)
_OPEN = re.compile(
    r"\s?(?:\+|\?|or\s(?:more|so|fewer|less)\b|plus\b|ish\b|(?:if|unless)\b"
    r"|[,(]?\s?(?:possibly|perhaps|maybe|approx|at least))",
    re.I,
)
_RATIO = re.compile(r"\s?(?:/|of\s\d|out\sof\b|per\b)")
_MEASURE = re.compile(
    r"[\s-]?(?:mm|cm|ml|cc|%|percent|°|degrees?|inch(?:es)?|french|fr|days?|weeks?|months?|years?)(?![a-z])|(?:st|nd|rd|th)\b",
    re.I,
)
_GLUED = re.compile(r"[A-Za-z\d^]|[,:]\d|-[A-Za-z]|\s(?:hundred|thousand|dozen)\b", re.I)
# Nothing, and then something after all: "none, except one nodule", "none of the three nodules is mentioned".
_YET = re.compile(
    r"(?:\s{0,2},?\s?[^.,;:\n\d]{0,60}?\b(?:except|but|however|other\sthan|apart\sfrom|besides|although|only|save)\b)|\sof\b",
    re.I,
)
_FIRST_ITEM = re.compile(r"\s?(?:[.)]|[:-](?=\s))")
_SECOND_ITEM = re.compile(r"(?:^|[\s;,(])2(?:[.)](?!\d)|\s?[:-]\s)")


@dataclass(frozen=True)
class Count:
    """A number that was read, or why there is none.

    Args:
        value: The number; None where it could not be read.
        problem: A few words; empty where there is a value.
        end: Where it ends in the text that it was read from.
    """

    value: float | None
    problem: str = ""
    end: int = 0


def read_count(text: str, *, fractions: bool = True, sentences: bool = True) -> Count:
    """The count at the beginning of a folded text.

    Args:
        text: From the place on where the count should stand.
        fractions: Whether 0.5 is a count, as a mean over readers is.
        sentences: Whether "no errors" is a count of them; of matched findings "no findings were missed" is none.
    """
    start = _LEAD.match(text)
    at = start.end() if start else 0
    if _VAGUE.match(text, at):
        return Count(None, "an approximate number")
    if sentences and (found := _NO_ERRORS.match(text, at)):
        return Count(None, _TAKEN_BACK) if _YET.match(text, found.end()) else Count(0.0, end=found.end())
    found = _VALUE.match(text, at)
    if found is None:
        return Count(None, "no number")
    problem = _problem(found, text)
    value = _WORDS[found["word"].lower()] if found["word"] else float(found["digits"][:12])
    if problem is None and value != int(value) and not fractions:
        problem = "a fraction"
    if problem is None and value > LARGEST:
        problem = f"a count above {LARGEST}"
    if problem is None and value == 0 and _YET.match(text, found.end()):
        problem = _TAKEN_BACK
    return Count(None, problem) if problem else Count(float(value), end=found.end())


def _problem(found: re.Match[str], text: str) -> str | None:
    end = found.end()
    if found["minus"]:
        return "a negative number"
    if found["digits"] and len(found["digits"]) > 12:
        return f"a count above {LARGEST}"
    checks = (
        (_MEASURE, "a measurement"),
        (_GLUED, "no plain number"),
        (_RANGE, "a range"),
        (_OPEN, "an approximate number"),
        (_RATIO, "a ratio"),
    )
    for pattern, problem in checks:
        if pattern.match(text, end):
            return problem
    return None


def numbered_list(value: float, rest: str) -> bool:
    """Whether a 1 begins a numbered list (`1. effusion 2. edema`, `(1) … (2) …`), so that it counts nothing.

    Args:
        value: The number that was read.
        rest: What follows it.
    """
    return value == 1 and bool(_FIRST_ITEM.match(rest)) and bool(_SECOND_ITEM.search(rest))


Total = tuple[str | None, float]  # of one of `WEIGHTS`, or of what the answer does not tell; and the sum
_NAME = (
    r"\W{0,6}(?:the\s)?(?:grand[\s_])?(?:totals?|sum)(?:[\s_](?:number|count))?(?:[\s_]of)?(?:[\s_]all)?"
    r"(?:[\s_](?:clinically[\s_-])?(?:in|non-?)?significant)?(?:[\s_]errors?)?(?:[\s_](?:found|count))?"
)
TOTAL = re.compile(rf"{_NAME}\W{{0,4}}", re.I)  # a cell or a key that is nothing else
_STATED = re.compile(rf"(?:^|[.;(\[,]\s?){_NAME}[\"'*_)\]]{{0,4}}\s?(?:[:=]|is\b)(?P<rest>[^\n]{{1,40}})", re.I | re.M)
_ROUNDING = 0.005  # of each count, where a mean over readers is written with two digits


def stated_totals(text: str, answer: Answer) -> tuple[Total, ...]:
    """The totals that a region of an answer states in words, without those that a report states too."""
    totals = []
    for found in _STATED.finditer(text):
        count = read_count(found["rest"])
        said = text[found.start() : found.start("rest") + count.end]
        about = weight_of(said)
        if count.value is not None and about != MATCHED and not answer.holds(said):
            totals.append((about, count.value))
    return tuple(totals)


def contradiction(counts: Mapping[Cell, float], totals: Sequence[Total]) -> str | None:
    """Which of the totals is not the sum of its counts, in words; None where none is.

    A total of all errors may be that of the list that it stands under. Where a count is missing nothing is known.

    Args:
        counts: What was read.
        totals: What the answer states.
    """
    sums: dict[str | None, float | None] = {None: _sum(counts, CELLS)}
    sums |= {weight: _sum(counts, [cell for cell in CELLS if cell[0] == weight]) for weight in WEIGHTS}
    for about, total in totals:
        may_be = list(sums.values()) if about is None else [sums[about]]
        if not any(value is None or abs(value - total) <= _ROUNDING * len(CELLS) for value in may_be):
            whose = f"{about} errors" if about else "errors"
            return f"a total of {total:g} {whose} that is not the sum of the counts"
    return None


def _sum(counts: Mapping[Cell, float], cells: Sequence[Cell]) -> float | None:
    return sum(counts[cell] for cell in cells) if all(cell in counts for cell in cells) else None


@dataclass(frozen=True)
class Unit:
    """Counts that stand together under one heading, in one object or in one table.

    Args:
        start: Where it begins in its region.
        end: Where it ends.
        about: The weights (or "matched") that it tells; one that tells the same again begins another answer.
        counts: What was read.
        matched: The number of matched findings; None where it does not tell.
        problems: What could not be read, in words.
        parts: Heading and entries as they stand there; a unit whose parts are all a report's is a copy.
        clash: Why it contradicts itself; None where it does not.
        totals: Sums that it states, each with the weight that it is of; None where it does not tell.
    """

    start: int
    end: int
    about: frozenset[str]
    counts: Mapping[Cell, float] = field(default_factory=dict)
    matched: float | None = None
    problems: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    clash: str | None = None
    totals: tuple[Total, ...] = ()

    @property
    def tells(self) -> bool:
        """Whether anything was read at all."""
        return bool(self.counts) or self.matched is not None


@dataclass(frozen=True)
class Found:
    """A unit, and whether a report has it too."""

    unit: Unit
    copy: bool


def found_in(units: Sequence[Unit], text: str, answer: Answer) -> list[Found]:
    """The units that tell something, in order, each with whether it is a copy."""
    telling = sorted((unit for unit in units if unit.tells), key=lambda unit: unit.start)
    return [
        Found(unit, answer.copied(text[unit.start : unit.end]) or answer.copied_in_order(unit.parts))
        for unit in telling
    ]


def own_units(found: Sequence[Found], text: str, *, marked: bool) -> list[Unit]:
    """What the judge says itself: every unit that is no copy, and those that belong to one.

    What follows the mark at once the judge says, also where a report says the same: else a report that guesses the
    counts would have them struck out, and whatever is said later would count. What an answer without a mark begins with
    may be either, and must agree with the rest.

    A list of zeros that a report has too may still be the judge's own. It is taken for that where it stands beside
    a list that no report has, without a word or a quotation mark between them, and where no list that is surely the
    judge's tells the same.
    """
    sure = frozenset().union(*(item.unit.about for item in found if not item.copy))
    led = [_leads(item.unit, found, text) and (marked or bool(item.unit.about & sure)) for item in found]
    found = [replace(item, copy=item.copy and not leads) for item, leads in zip(found, led, strict=True)]
    sure = sure.union(*(item.unit.about for item in found if not item.copy))
    own = [item.unit for item in found if not item.copy]
    for place, item in enumerate(found):
        if item.copy and not item.unit.about & sure:
            beside = [other for other in found[max(0, place - 2) : place + 3] if not other.copy]
            own += [item.unit] if any(_touch(item.unit, other.unit, found, text) for other in beside) else []
    return own


def _leads(unit: Unit, found: Sequence[Found], text: str) -> bool:
    """Whether nothing but units about other things stands before a unit, and no sign of a quotation."""
    gap, at = "", 0
    for item in found:
        if item.unit.start < unit.start:
            if item.unit.about & unit.about:
                return False
            gap, at = gap + text[at : item.unit.start], item.unit.end
    return not any(sign.isalnum() or sign in "\"'`>" for sign in gap + text[at : unit.start])


def _touch(unit: Unit, other: Unit, found: Sequence[Found], text: str) -> bool:
    """Whether nothing but other units stands between two units."""
    first, last = sorted((unit, other), key=lambda one: one.start)
    between = [item.unit for item in found if first.end <= item.unit.start and item.unit.end <= last.start]
    gap, at = "", first.end
    for inner in between:
        gap, at = gap + text[at : inner.start], inner.end
    gap += text[at : last.start]
    return not any(sign.isalnum() or sign in "\"'`>" for sign in gap)
