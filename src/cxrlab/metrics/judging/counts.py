"""Error counts in a judge's answer: which lists of counts are its own, and the counts below headings."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.judging.answers import Answer, AnswerRegions, Reading, Region, answer_regions
from cxrlab.metrics.judging.count_parts import (
    CELLS,
    KINDS,
    MATCHED,
    Cell,
    Count,
    Found,
    Parsed,
    Total,
    Unit,
    agrees,
    contradiction,
    found_in,
    lettered,
    named_kind,
    numbered_list,
    own_units,
    read_count,
    stated_totals,
    told,
    weight_of,
)
from cxrlab.metrics.judging.structured_counts import read_objects, read_tables

MOST_UNITS = 60  # lists of counts in one answer; no judge that has understood the question writes more


def parse_counts(answer: Answer, *, matched: bool = False, fractions: bool = True) -> Parsed:
    """The twelve counts of an answer, and the matched findings where they were asked for.

    An answer is looked for after the judge's mark, the last one first, else in the whole text. Lists that a report
    holds too are copies and count only where the mark vouches for them. Lists that disagree fail.

    Args:
        answer: What the judge said, its mark and the reports that it was shown.
        matched: Whether matched findings were asked for, as GREEN does.
        fractions: Whether a count may be a fraction, as a mean over readers is.
    """
    words = answer_regions(answer)
    if words.problem is not None:
        return Parsed(Reading.FAILED, reason=words.problem)
    reasons = []
    for region in words.regions:
        units = _units(region.text, answer, fractions)
        if len(units) > MOST_UNITS:
            return Parsed(Reading.FAILED, reason=f"the answer holds more than {MOST_UNITS} lists of counts")
        found = found_in(units, region.text, answer)
        if own := own_units(found, region.text, marked=region.marked) or _vouched(found, region):
            totals = [*stated_totals(region.text, answer), *(total for unit in own for total in unit.totals)]
            parsed = _merged(own, [problem for unit in units for problem in unit.problems], matched)
            return _doubted(parsed, totals, words)
        reasons.append(_why_nothing(found, units, words))
    return Parsed(Reading.FAILED, reason=reasons[0])


def _vouched(found: Sequence[Found], region: Region) -> list[Unit]:
    """Copies that are all that stands after the mark.

    What stands there alone the judge has chosen to say, also where a report would have it say the same. A copy among
    other words is a quotation.
    """
    rest, at = "", 0
    for item in found:
        rest, at = rest + region.text[at : item.unit.start], item.unit.end
    alone = not any(sign.isalnum() for sign in rest + region.text[at:])
    return [item.unit for item in found] if region.marked and alone else []


def _units(text: str, answer: Answer, fractions: bool) -> list[Unit]:
    """Every list of counts in a text; what one reader has read is taken out before the next one looks."""
    objects = read_objects(text, fractions=fractions)
    if len(objects) > MOST_UNITS:
        return objects
    text = _without(text, objects)
    tables = read_tables(text, fractions=fractions)
    if len(tables) > MOST_UNITS:
        return tables
    text = _without(text, tables)
    return [*objects, *tables, *read_sections(text, answer, fractions=fractions)]


def _without(text: str, units: Sequence[Unit]) -> str:
    """The text with units blanked out, every other sign in its place."""
    for unit in units:
        text = text[: unit.start] + "\n" * (unit.end - unit.start) + text[unit.end :]
    return text


def _merged(units: Sequence[Unit], problems: Sequence[str], matched: bool) -> Parsed:
    counts: dict[Cell, float] = {}
    pairs: float | None = None
    for unit in units:
        if unit.clash is not None:
            return Parsed(Reading.FAILED, reason=f"the answer contradicts itself: {unit.clash}")
        for cell, value in unit.counts.items():
            if counts.setdefault(cell, value) != value:
                return Parsed(Reading.FAILED, reason=f"two different answers compete: {told(cell)}")
        if unit.matched is not None:
            if pairs not in (None, unit.matched):
                return Parsed(Reading.FAILED, reason="two different answers compete: matched findings")
            pairs = unit.matched
    missing = [told(cell) for cell in CELLS if cell not in counts]
    missing += ["matched findings"] if matched and pairs is None else []
    ordered = {cell: counts[cell] for cell in CELLS if cell in counts}
    if not missing:
        return Parsed(Reading.PARSED, ordered, pairs)
    because = f" ({problems[0]})" if problems else ""
    shown = "; ".join(missing[:3]) + ("; …" if len(missing) > 3 else "")
    reason = f"{len(missing)} of {len(CELLS) + matched} counts are missing{because}: {shown}"
    return Parsed(Reading.PARTIAL if ordered or pairs is not None else Reading.FAILED, ordered, pairs, reason)


def _doubted(parsed: Parsed, totals: Sequence[Total], words: AnswerRegions) -> Parsed:
    """The same, or a failure where the answer states other totals, or refuses and leaves zeros behind."""
    if parsed.status is Reading.FAILED:
        return parsed
    if wrong := contradiction(parsed.counts, totals):
        return Parsed(Reading.FAILED, reason=f"the answer contradicts itself: {wrong}")
    if words.declined and not any(parsed.counts.values()):
        return Parsed(Reading.FAILED, reason="the judge refuses to answer, and its zeros count nothing")
    return parsed


def _why_nothing(found: Sequence[Found], units: Sequence[Unit], words: AnswerRegions) -> str:
    if found:
        return "the only counts in the answer are a copy of what a report says"
    if clash := next((unit.clash for unit in units if unit.clash), None):
        return f"the answer contradicts itself: {clash}"
    if words.refusal:
        return "the judge refuses to answer"
    if problems := [problem for unit in units for problem in unit.problems]:
        return f"no count could be read: {problems[0]}"
    return "no counts by kind were found in the answer"


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


MOST_ENTRIES = 200  # counts under one heading; a list that is longer is none
_DESCRIPTION = 300  # characters between a label and its count, at most

_PAIR = re.compile(r"\(\s{0,2}[\"']?([a-f])[\"']?\s{0,2}[,:=]\s{0,2}([^()\n,]{1,40})\s{0,2}\)", re.I)
_STRANGE = re.compile(r"\(\s{0,2}[\"']?([g-z])[\"']?\s{0,2},\s{0,2}[\"']?\d", re.I)
_OPEN_PAIR = re.compile(r"\(\s{0,2}[\"']?[a-f][\"']?\s{0,2}[,:=]", re.I)
_BRACKETED = re.compile(r"\(([a-f])\)", re.I)
_LINE = re.compile(
    r"^[^\w\n(]{0,6}(?:type |kind |category )?([a-f])[\"'*_]{0,3}(?:[.):=]| -| ?\|| (?=\())[\"'*_]{0,3}(?=\s|\d|\(|$)",
    re.I | re.M,
)
_INLINE = re.compile(r"(?<![\w'])[\"'*_`]{0,3}([a-f])[\"'*_`]{0,3}\s?[:=]", re.I)
_NUMBERED = re.compile(r"^[^\w\n]{0,6}([1-6])[.):]{1,2}[*_]{0,3} ?(?=[a-z*_])", re.I | re.M)
_NUMBERED_BRACKET = re.compile(r"\(([1-6])\) ?(?=[a-z])", re.I)
_NAMED = re.compile(r"(?:^|[\n,;{(])[\s\"'*-]{0,6}([a-z][a-z' _/-]{3,80})[\"'*_`]{0,3}\s?[:=]", re.I)
_SIX = re.compile(r"\W{0,4}\[([^\[\]()a-z]{1,200})\]", re.I)
_NAME = re.compile(r"[^\w]{0,4}([^:=|]{0,200}?)(?:[:=|]| -{1,2} )")
_LEAD = re.compile(r"[ .:)=*_,\n\"']{0,8}(?:-{1,2} )?")
_DIGIT = re.compile(r"[-~<>≈≥≤+]?\s?\d")
# Before a label: another one that shares its count ("A+B: 2"), or words that only mention it ("errors of type (a)").
_SHARED = re.compile(r"(?<![a-z\d])[a-f]\)?\s?(?:[+/,&-]|and|or|to)\s?\(?\Z", re.I)
_MENTIONED = re.compile(
    r"\b(?:(?:of|in|under|than|with)\s(?:the\s)?(?:type|kind|category)|of|in|under|than|types|kinds|categories)\s\Z",
    re.I,
)
_COUNT_IN_BRACKETS = re.compile(r"[^:\n]{3,200}?\((\d{1,3}|[a-z]{3,9})\)\s{0,2}(?:$|[.\n])", re.I)


@dataclass(frozen=True)
class Entry:
    """One kind with what stands for its count.

    Args:
        kind: Which kind.
        count: What was read.
        text: The entry as it stands there, from its label to its count.
        start: Where the label begins in the body.
        end: Where the count ends, or where reading stopped.
        stray: Whether it stands apart from the list, after other words.
    """

    kind: ErrorKind
    count: Count
    text: str
    start: int
    end: int
    stray: bool = False


def read_entries(body: str, answer: Answer, *, fractions: bool, ends_answer: bool) -> list[Entry]:
    """Entries of a section in the style that it is written in; empty where it has none.

    Args:
        body: Folded text after the heading.
        answer: Whose reports tell what is a copy.
        fractions: Whether a count may be a fraction.
        ends_answer: Whether the answer was cut off where this body ends, so that its last number may lack digits.
    """
    pairs = _pairs(body, fractions)
    if not pairs and _OPEN_PAIR.search(body):
        return []  # pairs of which none is whole: the letters are labels of nothing
    styles = [pairs, _six(body, fractions), _names(body, fractions, ends_answer)]
    styles[2:2] = [_labelled(body, style, fractions, ends_answer) for style in _STYLES]
    entries = max(styles, key=lambda style: _weight(style, answer))
    # A pair beside a list in another style is a second opinion, unless a report has it.
    further = [replace(pair, stray=True) for pair in pairs if entries is not pairs and not answer.holds(pair.text)]
    return _without_copies([*entries, *further], body, answer)


def _weight(entries: Sequence[Entry], answer: Answer) -> tuple[int, int]:
    """How much a style tells: kinds that no report has in these words, then kinds."""
    if len(entries) > MOST_ENTRIES:
        return 0, 0
    own = {entry.kind for entry in entries if not answer.holds(entry.text)}
    return len(own), len({entry.kind for entry in entries})


def _without_copies(entries: Sequence[Entry], body: str, answer: Answer) -> list[Entry]:
    """The entries without those that quote a report: told again, otherwise than before, and in a report's words.

    Where the list begins right after its heading, what is told first is the judge's, whatever the reports hold.
    """
    if len(entries) > MOST_ENTRIES or not entries:
        return []
    held = {place for place, entry in enumerate(entries) if answer.holds(entry.text)}
    own = {(entry.kind, entry.count.value) for place, entry in enumerate(entries) if place not in held}
    at_once = not any(sign.isalnum() for sign in body[: entries[0].start])
    kept: list[Entry] = []
    for place, entry in enumerate(entries):
        again = at_once and any(other.kind is entry.kind for other in kept)
        rivalled = not at_once and any(kind is entry.kind and value != entry.count.value for kind, value in own)
        if place not in held or not (again or rivalled):
            kept.append(entry)
    return kept


def strange_kind(body: str) -> str | None:
    """A letter that is none of the six but has a count, as in `(G, 1)`; None where there is none."""
    found = _STRANGE.search(body)
    return found[1].upper() if found else None


def _pairs(body: str, fractions: bool) -> list[Entry]:
    """The pairs that follow one another, and those that stand apart further down."""
    entries: list[Entry] = []
    stray = False
    for found in _PAIR.finditer(body):
        gap = body[entries[-1].end : found.start()] if entries else ""
        stray = stray or any(sign.isalnum() for sign in gap)
        count = _whole(found[2], fractions)
        entries.append(Entry(lettered(found[1]), count, found[0], found.start(), found.end(), stray))
    return entries


def _whole(text: str, fractions: bool) -> Count:
    """A count that has its place to itself."""
    count = read_count(text, fractions=fractions)
    rest = text[count.end :].strip(" \"'*_`")
    return Count(None, "more than a number") if count.value is not None and rest else count


def _six(body: str, fractions: bool) -> list[Entry]:
    """Six numbers in brackets, in the published order; another number of them is no answer."""
    found = _SIX.match(body)
    if not found:
        return []
    counts = [_whole(part, fractions) for part in found[1].split(",")]
    if len(counts) != len(KINDS):
        return []
    return [Entry(kind, count, found[0], 0, found.end()) for kind, count in zip(KINDS, counts, strict=True)]


_Label = tuple[str, int, int]  # sign, start, end
_Check = Callable[[ErrorKind, str], bool]


def _loosely(kind: ErrorKind, name: str) -> bool:
    return agrees(kind, name)


def _strictly(kind: ErrorKind, name: str) -> bool:
    # A numbered list of single errors looks the same; only the name tells that the number is a kind.
    return agrees(kind, name, named=True)


_STYLES: Sequence[tuple[re.Pattern[str], _Check]] = (
    (_BRACKETED, _loosely),
    (_LINE, _loosely),
    (_INLINE, _loosely),
    (_NUMBERED_BRACKET, _strictly),
    (_NUMBERED, _strictly),
)


def _labelled(body: str, style: tuple[re.Pattern[str], _Check], fractions: bool, ends_answer: bool) -> list[Entry]:
    pattern, check = style
    labels = [(found[1], found.start(), found.end()) for found in pattern.finditer(body)]
    stops = [start for _, start, _ in labels[1:]] + [len(body)]
    listed = zip(labels, stops[: len(labels)], strict=True)
    return [_entry(body, label, stop, fractions, check, ends_answer) for label, stop in listed]


def _entry(body: str, label: _Label, stop: int, fractions: bool, check: _Check, ends_answer: bool) -> Entry:
    sign, start, after = label
    kind = lettered(sign)
    chunk = body[after : min(stop, after + 4 * _DESCRIPTION)]
    name, at = _named_part(chunk, fractions)
    count = read_count(chunk[at:], fractions=fractions) if at is not None else Count(None, "no number")
    where = at or 0
    if count.value is not None and numbered_list(count.value, chunk[where + count.end :]):
        count = Count(None, "a numbered list instead of a count")
    if count.value is not None and not check(kind, name):
        count = Count(None, f"'{sign}' is called '{name.strip()[:40]}'")
    if count.value is not None and (problem := _not_alone(body[max(0, start - 30) : start])):
        count = Count(None, problem)
    end = after + where + count.end
    if ends_answer and count.value is not None and end >= len(body):
        count = Count(None, "the answer is cut off at the number")
    return Entry(kind, count, body[start:end], start, end)


def _not_alone(before: str) -> str | None:
    """Why a label has no count to itself, told by the words before it; None where it has."""
    if _SHARED.search(before):
        return "one count for several kinds"
    return "a kind that is mentioned only" if _MENTIONED.search(before) else None


def _named_part(chunk: str, fractions: bool) -> tuple[str, int | None]:
    """The description after a label, and where its count should begin; None where nothing marks that place."""
    head = chunk[:_DESCRIPTION]
    lead = _LEAD.match(head)
    at = lead.end() if lead else 0
    if _DIGIT.match(head, at) or read_count(head[at:], fractions=fractions).value is not None:
        return "", at
    if found := _NAME.match(head):
        return found[1], found.end()
    if found := _COUNT_IN_BRACKETS.match(head):
        return head[: found.start(1)], found.start(1)
    return head, None


def _names(body: str, fractions: bool, ends_answer: bool) -> list[Entry]:
    """`false_positive_finding: 1`, for names that mean one kind."""
    entries = []
    for found in _NAMED.finditer(body):
        kind = named_kind(found[1])
        if kind is None or len(found[1].split()) > 8:
            continue
        count = read_count(body[found.end() : found.end() + _DESCRIPTION], fractions=fractions)
        end = found.end() + count.end
        if ends_answer and end >= len(body):
            count = Count(None, "the answer is cut off at the number")
        entries.append(Entry(kind, count, body[found.start() : end], found.start(), end))
    return entries
