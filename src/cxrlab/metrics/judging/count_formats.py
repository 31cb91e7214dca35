"""The parts of a judge's error counts: labels, numbers and totals, and counts in JSON objects and tables."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.judging.answer_text import NUMBER_WORDS, Answer, Reading

SIGNIFICANT, INSIGNIFICANT, MATCHED = "significant", "insignificant", "matched"
WEIGHTS = (SIGNIFICANT, INSIGNIFICANT)
Cell = tuple[str, ErrorKind]  # one of `WEIGHTS`, and a kind
CELLS: tuple[Cell, ...] = tuple((weight, kind) for weight in WEIGHTS for kind in ErrorKind)


def describe_cell(cell: Cell) -> str:
    """A cell in words."""
    return f"{cell[1].value.replace('_', ' ')}, {cell[0]}"


@dataclass(frozen=True)
class Parsed:
    """A judge's counts."""

    # Parsed when every requested count is there, partial when some are, failed when none is or when the answer
    # contradicts itself.
    status: Reading
    # The counts that are there; a missing cell is unknown, never 0.
    counts: Mapping[Cell, float] = field(default_factory=dict)
    matched: float | None = None  # findings that both reports have; None where the answer does not contain it
    reason: str | None = None  # what is missing or wrong; None for an answer that was read whole
    unreadable: bool = False  # whether something of a partial answer could not be read, rather than being left out

    def total(self, cells: Iterable[Cell] = CELLS) -> float | None:
        """The sum over some cells; None where one of them is missing."""
        values = [self.counts.get(cell) for cell in cells]
        return None if any(value is None for value in values) else sum(value or 0.0 for value in values)

    def plain(self) -> dict[str, Any]:
        """Weight → kind → count, with the cells that are there."""
        return {
            weight: {kind.value: self.counts[weight, kind] for kind in ErrorKind if (weight, kind) in self.counts}
            for weight in WEIGHTS
        }


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
    """The kind that a description names; None where it could be several or none."""
    name = name.replace("_", " ")
    omitted, false = bool(_OMITTED.search(name)), bool(_FALSE.search(name))
    if _COMPARISON.search(name):
        if omitted == false:
            return None
        return ErrorKind.OMITTED_COMPARISON if omitted else ErrorKind.FALSE_COMPARISON
    matches = {
        ErrorKind.WRONG_LOCATION: bool(_PLACE.search(name)),
        ErrorKind.WRONG_SEVERITY: bool(_DEGREE.search(name)),
        ErrorKind.OMITTED_FINDING: omitted,
        ErrorKind.FALSE_FINDING: false,
    }
    kinds = [kind for kind, found in matches.items() if found]
    return kinds[0] if len(kinds) == 1 else None


def labelled_kind(label: str) -> ErrorKind | None:
    """The kind of a key of an object or of the first cell of a row.

    None for a letter beside the name of another kind (`a: missing finding`): one of the two is wrong.
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
    """Whether a description names this kind or, unless it must be `named`, no kind at all."""
    found = named_kind(name)
    return found is kind or (found is None and not named)


def weight_of(key: str) -> str | None:
    """Whether a key or a heading names significant errors, insignificant ones, or matched findings."""
    key = _HUMP.sub("_", key)
    if found := _WEIGHT.search(key):
        return INSIGNIFICANT if found["no"] else SIGNIFICANT
    matched = _MATCH.search(key)
    return MATCHED if matched and not matched["no"] else None


LARGEST = 100  # more errors of one kind in one report are implausible
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
# A second number right after the first: "1-2", "1~2", "1 (or 2)", "1, maybe 2", "1 → 2", "2 1".
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
# A zero with an exception: "none, except one nodule", "none of the three nodules is mentioned".
_YET = re.compile(
    r"(?:\s{0,2},?\s?[^.,;:\n\d]{0,60}?\b(?:except|but|however|other\sthan|apart\sfrom|besides|although|only|save)\b)|\sof\b",
    re.I,
)
_PROBLEMS = (
    (_MEASURE, "a measurement"),
    (_GLUED, "no plain number"),
    (_RANGE, "a range"),
    (_OPEN, "an approximate number"),
    (_RATIO, "a ratio"),
)
_FIRST_ITEM = re.compile(r"\s?(?:[.)]|[:-](?=\s))")
_SECOND_ITEM = re.compile(r"(?:^|[\s;,(])2(?:[.)](?!\d)|\s?[:-]\s)")


@dataclass(frozen=True)
class Count:
    """A number and where it ends in its text, or the problem with it."""

    value: float | None
    problem: str = ""
    end: int = 0


def read_count(text: str, *, sentences: bool = True) -> Count:
    """The count at the beginning of a folded text.

    Args:
        text: Starts where the count should be.
        sentences: Whether "no errors" counts as 0; for matched findings "no findings were missed" does not.
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
    problem = next((problem for pattern, problem in _PROBLEMS if pattern.match(text, found.end())), None)
    if found["minus"]:
        problem = "a negative number"
    elif found["digits"] and len(found["digits"]) > 12:
        problem = f"a count above {LARGEST}"
    value = _WORDS[found["word"].lower()] if found["word"] else float(found["digits"][:12])
    if problem is None and value != int(value):
        problem = "a fraction"
    if problem is None and value > LARGEST:
        problem = f"a count above {LARGEST}"
    if problem is None and value == 0 and _YET.match(text, found.end()):
        problem = _TAKEN_BACK
    return Count(None, problem) if problem else Count(float(value), end=found.end())


def numbered_list(value: float, rest: str) -> bool:
    """Whether a 1 begins a numbered list (`1. effusion 2. edema`, `(1) … (2) …`), so that it is no count."""
    return value == 1 and bool(_FIRST_ITEM.match(rest)) and bool(_SECOND_ITEM.search(rest))


Total = tuple[str | None, float]  # one of `WEIGHTS`, None where the answer does not say; and the sum
_NAME = (
    r"\W{0,6}(?:the\s)?(?:grand[\s_])?(?:totals?|sum)(?:[\s_](?:number|count))?(?:[\s_]of)?(?:[\s_]all)?"
    r"(?:[\s_](?:clinically[\s_-])?(?:in|non-?)?significant)?(?:[\s_]errors?)?(?:[\s_](?:found|count))?"
)
TOTAL = re.compile(rf"{_NAME}\W{{0,4}}", re.I)  # a cell or a key that is nothing else
_STATED = re.compile(rf"(?:^|[.;(\[,]\s?){_NAME}[\"'*_)\]]{{0,4}}\s?(?:[:=]|is\b)(?P<rest>[^\n]{{1,40}})", re.I | re.M)


def stated_totals(text: str, answer: Answer) -> tuple[Total, ...]:
    """The totals that a region of an answer states, without those that a report states too."""
    totals = []
    for found in _STATED.finditer(text):
        count = read_count(found["rest"])
        words = text[found.start() : found.start("rest") + count.end]
        about = weight_of(words)
        if count.value is not None and about != MATCHED and not answer.holds(words):
            totals.append((about, count.value))
    return tuple(totals)


def contradiction(counts: Mapping[Cell, float], totals: Sequence[Total]) -> str | None:
    """The total that is not the sum of its counts, in words; None where all agree or a count is missing.

    A total of all errors may be that of the list that it stands under.
    """
    sums: dict[str | None, float | None] = {}
    for weight in (None, *WEIGHTS):
        cells = [cell for cell in CELLS if weight in (None, cell[0])]
        sums[weight] = sum(counts[cell] for cell in cells) if all(cell in counts for cell in cells) else None
    for about, total in totals:
        may_be = list(sums.values()) if about is None else [sums[about]]
        if not any(value is None or value == total for value in may_be):
            whose = f"{about} errors" if about else "errors"
            return f"a total of {total:g} {whose} that is not the sum of the counts"
    return None


@dataclass(frozen=True)
class Unit:
    """Counts that stand together under one heading, in one object or in one table."""

    start: int  # where it begins in its region
    end: int
    # The weights (or "matched") that it counts; a unit that counts the same again begins another answer.
    about: frozenset[str]
    counts: Mapping[Cell, float] = field(default_factory=dict)  # what was read
    matched: float | None = None  # the number of matched findings; None where it has none
    problems: tuple[str, ...] = ()  # what could not be read, in words
    parts: tuple[str, ...] = ()  # heading and entries as written; a unit whose parts are all a report's is a copy
    clash: str | None = None  # why it contradicts itself; None where it does not
    totals: tuple[Total, ...] = ()  # sums that it states


DEEPEST = 8
_SINGLE = re.compile(r"'([^'\"\n]{0,160})'")
_PYTHON = {"None": "null", "True": "true", "False": "false"}
_CONSTANT = re.compile(r"\b(?:None|True|False)\b(?=\s*[,}\]])")
_COUNT_KEYS = ("count", "number", "n", "total", "value")
_KIND_KEYS = ("type", "kind", "category", "error", "error type", "error_type", "label", "name")


def objects_in(text: str) -> Iterator[tuple[int, int, Any]]:
    """Start, end and value of every outermost `{…}` of a text that can be read as an object."""
    depth = deepest = start = 0
    for place, sign in enumerate(text):
        if sign == "{":
            start = place if depth == 0 else start
            depth += 1
            deepest = max(deepest, depth)
        elif sign == "}" and depth:
            depth -= 1
            if depth == 0:
                if deepest <= DEEPEST and (value := _load_object(text[start : place + 1])) is not None:
                    yield start, place + 1, value
                deepest = 0


def _load_object(chunk: str) -> dict[str, Any] | None:
    plain = _CONSTANT.sub(lambda found: _PYTHON[found[0]], _SINGLE.sub(r'"\1"', chunk))
    for form in (chunk, plain):
        try:
            value = json.loads(
                form,
                object_pairs_hook=_Pairs,
                parse_int=lambda digits: float(digits[:20]),  # a longer number is too large for a count
                parse_constant=lambda name: name,
            )
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else None
    return None


class _Pairs(dict[str, Any]):
    """An object that remembers its keys that occur twice with different values."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__()
        self.twice: list[str] = []
        for key, value in pairs:
            if key in self and self[key] != value:
                self.twice.append(key)
            self[key] = value


@dataclass
class _ObjectCounts:
    """The counts of one object while it is walked."""

    counts: dict[Cell, float] = field(default_factory=dict)
    matched: float | None = None
    problems: list[str] = field(default_factory=list)
    clash: str | None = None
    totals: list[Total] = field(default_factory=list)

    def add(self, weight: str | None, kind: ErrorKind | None, count: Count) -> None:
        """Add a count to its cell; one without a cell is left out."""
        if weight == MATCHED and kind is None:
            if count.value is None or count.value != int(count.value):
                self.problems.append(f"{count.problem or 'a fraction'} for matched findings")
            elif self.matched not in (None, count.value):
                self.clash = "two different counts for matched findings"
            else:
                self.matched = count.value
        elif weight in WEIGHTS and kind is not None:
            cell = (str(weight), kind)
            if count.value is None:
                self.problems.append(f"{count.problem} for {describe_cell(cell)}")
            elif self.counts.setdefault(cell, count.value) != count.value:
                self.clash = f"two different counts for {describe_cell(cell)}"


def read_objects(text: str) -> list[Unit]:
    """One unit per object that holds counts."""
    units = []
    for start, end, value in objects_in(text):
        found = _ObjectCounts()
        _walk(value, None, None, found)
        about = {weight for weight, _ in found.counts} | ({MATCHED} if found.matched is not None else set())
        if about or found.problems or found.clash:
            problems, totals = tuple(found.problems), tuple(found.totals)
            units.append(
                Unit(start, end, frozenset(about), found.counts, found.matched, problems, (), found.clash, totals)
            )
    return units


def _walk(value: Any, weight: str | None, kind: ErrorKind | None, found: _ObjectCounts) -> None:
    if not isinstance(value, (dict, list)):
        found.add(weight, kind, _count_value(value))
    elif isinstance(value, dict):
        _walk_object(value, weight, kind, found)
    elif kind is not None or weight == MATCHED:
        found.add(weight, kind, Count(None, "a list instead of a count"))
    elif len(value) == len(KINDS) and all(isinstance(item, float) for item in value):
        for place, item in enumerate(value):
            found.add(weight, KINDS[place], _count_value(item))
    else:
        for item in value:
            if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str):
                found.add(weight, labelled_kind(item[0]), _count_value(item[1]))
            elif isinstance(item, dict):
                _walk_object(item, weight, None, found)


def _walk_object(value: Mapping[str, Any], weight: str | None, kind: ErrorKind | None, found: _ObjectCounts) -> None:
    if isinstance(value, _Pairs) and value.twice:
        found.clash = f"the key '{value.twice[0][:40]}' with two different values"
    labels = [labelled_kind(label) for key in _KIND_KEYS if isinstance(label := value.get(key), str)]
    named = next((label for label in labels if label is not None), None)
    kind = kind or named
    flagged = named is not None and any(key.lower() in _COUNT_KEYS for key in value)
    for key, inner in value.items():
        about = weight_of(key)
        nested = isinstance(inner, (dict, list))
        if kind is None and TOTAL.fullmatch(key) and about != MATCHED and isinstance(inner, float):
            found.totals.append((about or weight, inner))
            continue
        if key.lower() in _COUNT_KEYS:
            if not nested:
                found.add(weight, kind, _count_value(inner))
            continue
        which = kind or (named_kind(key) if about in WEIGHTS else None if about else labelled_kind(key))
        if flagged and about in WEIGHTS and not nested:
            # {"type": "A", "significant": 1, "count": 3}: whether it is significant, not how often.
            found.add(about, kind, Count(None, "a flag beside a count"))
        elif about is not None or which is not None or nested:  # else an explanation or anything else that is no cell
            _walk(inner, about or weight, which, found)


def _count_value(value: Any) -> Count:
    if isinstance(value, str):
        count = read_count(value[:80])
        rest = value[count.end :].strip(" \"'*_`.")
        return Count(None, "more than a number") if count.value is not None and rest else count
    if isinstance(value, bool) or not isinstance(value, float):
        return Count(None, "no number")
    if value != value or value < 0 or value > LARGEST:
        return Count(None, "a negative number" if value < 0 else f"a count above {LARGEST}")
    return Count(value) if value == int(value) else Count(None, "a fraction")


_ROW = re.compile(r"^[^\n|]*\|[^\n]*\|[^\n]*$", re.M)
_RULE = re.compile(r"[\s|:+-]*")
# A column about significant errors that does not count them.
_NO_COUNTS = re.compile(r"[%?]|percent|share|rate\b|probab|confiden|yes|0/1", re.I)
Row = tuple[int, int, list[str]]


def read_tables(text: str) -> list[Unit]:
    """One unit per table with a column per weight and a row per kind, or the other way round."""
    tables: list[list[Row]] = []
    for found in _ROW.finditer(text):
        # One bar at either end is the table's frame; a second one is an empty cell.
        line = found[0].strip().removeprefix("|").removesuffix("|")
        row = (found.start(), found.end(), [cell.strip(" *_`\"'") for cell in line.split("|")])
        # Another line, or an empty one, between two rows ends the table.
        if tables and found.start() - tables[-1][-1][1] <= 1:
            tables[-1].append(row)
        else:
            tables.append([row])
    return [unit for rows in tables if (unit := _read_table(rows)) is not None]


def _read_table(rows: Sequence[Row]) -> Unit | None:
    lines = [row for row in rows if not _RULE.fullmatch("|".join(row[2]))]
    if len(lines) < 2:
        return None
    head = lines[0][2]
    weights = [weight if (weight := _counted_weight(cell)) in WEIGHTS else None for cell in head]
    kinds = [labelled_kind(cell) if cell else None for cell in head]
    cells: list[tuple[Cell, str | None]] = []
    totals: list[Total] = []
    for _, _, row in lines[1:]:
        # In a row with too many or too few cells the column of a number is unknown.
        aligned: Sequence[str | None] = row if len(row) == len(head) else [None] * len(head)
        if any(weights):
            # A number alone is a count, or the number of the row.
            labels = (labelled_kind(cell) for cell in row[:2] if cell and not cell.isdigit())
            kind = next((label for label in labels if label is not None), None)
            by_weight = [(weight, cell) for weight, cell in zip(weights, aligned, strict=True) if weight is not None]
            if kind is not None:
                cells += [((weight, kind), cell) for weight, cell in by_weight]
            if row and TOTAL.fullmatch(row[0]):
                counts_of_row = [(weight, _count_cell(cell).value) for weight, cell in by_weight]
                totals += [(weight, value) for weight, value in counts_of_row if value is not None]
        elif sum(kind is not None for kind in kinds) >= 3:
            weight = _counted_weight(row[0]) if row else None
            if weight in WEIGHTS:
                pairs = zip(kinds, aligned, strict=True)
                cells += [((str(weight), kind), cell) for kind, cell in pairs if kind is not None]
    if not cells:
        return None
    counts: dict[Cell, float] = {}
    problems, clash = [], None
    for cell, text in cells:
        count = _count_cell(text)
        if count.value is None:
            problems.append(f"{count.problem} for {describe_cell(cell)}")
        elif counts.setdefault(cell, count.value) != count.value:
            clash = f"two different counts for {describe_cell(cell)}"
    about = frozenset(weight for weight, _ in counts)
    parts = tuple(" ".join(row) for _, _, row in lines)
    return Unit(rows[0][0], rows[-1][1], about, counts, None, tuple(problems), parts, clash, tuple(totals))


def _counted_weight(head: str) -> str | None:
    return None if _NO_COUNTS.search(head) else weight_of(head)


def _count_cell(text: str | None) -> Count:
    return Count(None, "a row of another length") if text is None else _count_value(text)
