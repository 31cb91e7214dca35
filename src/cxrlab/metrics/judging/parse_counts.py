"""Error counts in a judge's answer: its own lists of counts, without those copied from a report."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.judging.answer_text import Answer, Reading, Region, answer_regions
from cxrlab.metrics.judging.count_formats import (
    CELLS,
    KINDS,
    MATCHED,
    WEIGHTS,
    Cell,
    Count,
    Parsed,
    Unit,
    agrees,
    contradiction,
    describe_cell,
    lettered,
    named_kind,
    numbered_list,
    read_count,
    read_objects,
    read_tables,
    stated_totals,
    weight_of,
)

_NUMBERED_KINDS = 4  # kinds in a row whose counts rise by one; fewer may be counts
MOST_UNITS = 60  # lists of counts in one answer; a judge that has understood the question writes fewer


@dataclass(frozen=True)
class Found:
    """A unit, and whether a report has it too."""

    unit: Unit
    copy: bool


def parse_counts(answer: Answer, *, matched: bool = False) -> Parsed:
    """The twelve counts of an answer and, for GREEN, the `matched` findings.

    The answer is the part after the judge's mark, the last mark first, else the whole text. Lists that a report holds
    too are copies and count only right after the mark. Lists that disagree fail.
    """
    words = answer_regions(answer)
    if words.problem is not None:
        return Parsed(Reading.FAILED, reason=words.problem)
    reasons = []
    for region in words.regions:
        units = _read_units(region.text, answer)
        if len(units) > MOST_UNITS:
            return Parsed(Reading.FAILED, reason=f"the answer holds more than {MOST_UNITS} lists of counts")
        found = [
            Found(unit, answer.copied(region.text[unit.start : unit.end]) or answer.copied_in_order(unit.parts))
            for unit in sorted(units, key=lambda unit: unit.start)
            if unit.counts or unit.matched is not None
        ]
        if own := _own_units(found, region):
            parsed = _merge(own, [problem for unit in units for problem in unit.problems], matched)
            if parsed.status is Reading.FAILED:
                return parsed
            if numbered := _numbered_weight(parsed.counts):
                return Parsed(Reading.FAILED, reason=f"the numbers of {numbered} errors only number the kinds")
            totals = [*stated_totals(region.text, answer), *(total for unit in own for total in unit.totals)]
            if wrong := contradiction(parsed.counts, totals):
                return Parsed(Reading.FAILED, reason=f"the answer contradicts itself: {wrong}")
            if words.declined and not any(parsed.counts.values()):
                return Parsed(Reading.FAILED, reason="the judge refuses to answer, and its zeros count nothing")
            return parsed
        clash = next((unit.clash for unit in units if unit.clash), None)
        problem = next((problem for unit in units for problem in unit.problems), None)
        if found:
            reasons.append("the only counts in the answer are a copy of what a report says")
        elif clash:
            reasons.append(f"the answer contradicts itself: {clash}")
        elif words.refusal:
            reasons.append("the judge refuses to answer")
        elif problem:
            reasons.append(f"no count could be read: {problem}")
        else:
            reasons.append("no counts by kind were found in the answer")
    return Parsed(Reading.FAILED, reason=reasons[0])


def _numbered_weight(counts: Mapping[Cell, float]) -> str | None:
    """The weight whose counts rise by one from each kind to the next (1, 2, 3, …): list numbers, not counts.

    An answer that names some of the kinds and begins at 0 counts: lists are numbered from 1.
    """
    for weight in WEIGHTS:
        values = [counts[weight, kind] for kind in KINDS if (weight, kind) in counts]
        steps = {after - before for before, after in zip(values, values[1:], strict=False)}
        if len(values) >= _NUMBERED_KINDS and steps == {1} and (values[0] or len(values) == len(KINDS)):
            return weight
    return None


def _read_units(text: str, answer: Answer) -> list[Unit]:
    """Every list of counts in a text; each reader gets the text without what earlier readers have taken."""
    units: list[Unit] = []
    for read in (read_objects, read_tables):
        found = read(text)
        if len(found) > MOST_UNITS:
            return found
        for unit in found:
            text = text[: unit.start] + "\n" * (unit.end - unit.start) + text[unit.end :]
        units += found
    return [*units, *read_sections(text, answer)]


def _own_units(found: Sequence[Found], region: Region) -> list[Unit]:
    """The judge's own units: every unit that is no copy, and copies that belong to one.

    What directly follows the mark is the judge's, even where a report says the same: else a report that guesses the
    counts would have them ignored, and a later list would count. What an answer without a mark begins with may be
    either, and must agree with the rest.

    A list of zeros that a report has too may still be the judge's own. It is taken as such beside a list that no
    report has, without a word or a quotation mark between them, if no list that is certainly the judge's counts the
    same. Copies that are all the text after the mark are the judge's, too; a copy among other words is a quotation.
    """
    text = region.text
    sure = frozenset().union(*(item.unit.about for item in found if not item.copy))
    leading = [_leads(item.unit, found, text) and (region.marked or bool(item.unit.about & sure)) for item in found]
    marked = [replace(item, copy=item.copy and not leads) for item, leads in zip(found, leading, strict=True)]
    sure = sure.union(*(item.unit.about for item in marked if not item.copy))
    own = [item.unit for item in marked if not item.copy]
    for place, item in enumerate(marked):
        if item.copy and not item.unit.about & sure:
            beside = [other.unit for other in marked[max(0, place - 2) : place + 3] if not other.copy]
            own += [item.unit] if any(_touch(item.unit, other, found, text) for other in beside) else []
    every = [item.unit for item in found]
    if not own and region.marked and not any(sign.isalnum() for sign in _gap(text, 0, len(text), every)):
        return every
    return own


def _leads(unit: Unit, found: Sequence[Found], text: str) -> bool:
    """Whether only units about other things stand before a unit, and no sign of a quotation."""
    before = [item.unit for item in found if item.unit.start < unit.start]
    return not any(other.about & unit.about for other in before) and not _has_words(_gap(text, 0, unit.start, before))


def _touch(unit: Unit, other: Unit, found: Sequence[Found], text: str) -> bool:
    """Whether only other units stand between two units."""
    first, last = sorted((unit, other), key=lambda one: one.start)
    between = [item.unit for item in found if first.end <= item.unit.start and item.unit.end <= last.start]
    return not _has_words(_gap(text, first.end, last.start, between))


def _gap(text: str, start: int, end: int, units: Sequence[Unit]) -> str:
    """A stretch of text without these units."""
    gap, at = "", start
    for unit in units:
        gap, at = gap + text[at : unit.start], unit.end
    return gap + text[at:end]


def _has_words(gap: str) -> bool:
    return any(sign.isalnum() or sign in "\"'`>" for sign in gap)


def _merge(units: Sequence[Unit], problems: Sequence[str], matched: bool) -> Parsed:
    counts: dict[Cell, float] = {}
    pairs: float | None = None
    for unit in units:
        if unit.clash is not None:
            return Parsed(Reading.FAILED, reason=f"the answer contradicts itself: {unit.clash}")
        for cell, value in unit.counts.items():
            if counts.setdefault(cell, value) != value:
                return Parsed(Reading.FAILED, reason=f"two different answers compete: {describe_cell(cell)}")
        if unit.matched is not None:
            if pairs not in (None, unit.matched):
                return Parsed(Reading.FAILED, reason="two different answers compete: matched findings")
            pairs = unit.matched
    missing = [describe_cell(cell) for cell in CELLS if cell not in counts]
    missing += ["matched findings"] if matched and pairs is None else []
    ordered = {cell: counts[cell] for cell in CELLS if cell in counts}
    if not missing:
        return Parsed(Reading.PARSED, ordered, pairs)
    because = f" ({problems[0]})" if problems else ""
    listed = "; ".join(missing[:3]) + ("; …" if len(missing) > 3 else "")
    reason = f"{len(missing)} of {len(CELLS) + matched} counts are missing{because}: {listed}"
    status = Reading.PARTIAL if ordered or pairs is not None else Reading.FAILED
    return Parsed(status, ordered, pairs, reason, unreadable=bool(problems))


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
# A sentence that reports no errors, and nothing else. "No location errors", "No further errors" and "No errors of kind
# A" leave the rest open, and so does any text after it.
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
# What a heading may follow within a line; after a comma it may be prose ("granuloma, clinically significant: no").
_ENDS = (".", ";", ":", "]", "}", "{", "[", "(", ">", "|", '"', "'", "*", "-", "],", "),", "},")


@dataclass(frozen=True)
class Heading:
    """A heading and the weight, or matched findings, that it is about."""

    start: int
    end: int
    about: str
    titled: bool  # a title of a section as GREEN writes them, where "No …" stands for zeros


def read_sections(text: str, answer: Answer) -> list[Unit]:
    """One unit per heading in a region of an answer; where nothing could be read, the unit has a problem."""
    headings = _find_headings(text, answer)[:MOST_HEADINGS]
    stops = sorted({heading.start for heading in headings} | {found.start() for found in _OTHER.finditer(text)})
    units = []
    for heading in headings:
        next_stop = bisect_left(stops, heading.end)
        stop = stops[next_stop] if next_stop < len(stops) else len(text)
        body = text[heading.end : stop]
        ends_answer = stop == len(text) and (answer.cut or text.count("{") > text.count("}"))
        if heading.about == MATCHED:
            units.append(_read_matched(text, heading, body, ends_answer))
        else:
            entries = read_entries(body, answer, ends_answer=ends_answer)
            unit = _unit_of_entries(text, heading, entries) if entries else _read_zeros(text, heading, body)
            # A letter that is none of the six but has a count, as in `(G, 1)`.
            unknown = _UNKNOWN_KIND.search(text[unit.start : min(stop, unit.end + 40)])
            units.append(replace(unit, clash=f"a count for the unknown kind {unknown[1].upper()}") if unknown else unit)
    return units


def _find_headings(text: str, answer: Answer) -> list[Heading]:
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
        # Within a line, a heading in open quotation marks that a report has too is a quotation.
        quoted = lead.count('"') % 2 == 1 and answer.copied(text[start : after.end() + 20])
        if not begins_line and (not within or quoted):
            continue
        own_line = after["colon"] and text[after.end() : after.end() + 2].strip(" ")[:1] == "\n"
        titled = begins_line and not after["by"] and (own_line or "]" in after["close"] or set(lead) & set("[*#"))
        found.append(Heading(start, after.end(), about, bool(titled)))
    return found


def _unit_of_entries(text: str, heading: Heading, entries: Sequence[Entry]) -> Unit:
    counts: dict[Cell, float] = {}
    problems: list[tuple[Cell, str]] = []
    clash = None
    for entry in entries:
        cell = (heading.about, entry.kind)
        if entry.count.value is None:
            problems.append((cell, entry.count.problem))
        elif counts.setdefault(cell, entry.count.value) != entry.count.value:
            clash = f"two different counts for {describe_cell(cell)}"
    for cell, problem in problems:
        if cell in counts and problem != "no number":
            clash = f"a count and {problem} for {describe_cell(cell)}"
    listed = [entry for entry in entries if not entry.stray] or list(entries)
    ahead = _SUM.fullmatch(text, heading.end, heading.end + min(entry.start for entry in entries))
    return Unit(
        start=heading.start,
        end=_end_of_line(text, heading.end + listed[-1].end),
        about=frozenset((heading.about,)),
        counts=counts,
        problems=tuple(f"{problem} for {describe_cell(cell)}" for cell, problem in problems if cell not in counts),
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
    """Where a sentence that reports none ends; None without one, or where it is taken back."""
    found = pattern.match(body) if heading.titled else None
    return found.end() if found and not _YET.search(body, found.end()) else None


def _read_zeros(text: str, heading: Heading, body: str) -> Unit:
    """Zeros where a section says in words that there are no errors; else a problem."""
    about, after = frozenset((heading.about,)), _zero_end(heading, body, _ZERO)
    if after is None:
        return Unit(heading.start, heading.end, about, problems=(f"no count by kind of {heading.about} errors",))
    end = heading.end + after
    counts: Mapping[Cell, float] = {(heading.about, kind): 0.0 for kind in KINDS}
    return Unit(heading.start, end, about, counts, parts=(text[heading.start : end],))


def _read_matched(text: str, heading: Heading, body: str, ends_answer: bool) -> Unit:
    count = read_count(body, sentences=False)
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


MOST_ENTRIES = 200  # counts under one heading; a longer list is not read
_DESCRIPTION = 300  # characters between a label and its count, at most

_PAIR = re.compile(r"\(\s{0,2}[\"']?([a-f])[\"']?\s{0,2}[,:=]\s{0,2}([^()\n,]{1,40})\s{0,2}\)", re.I)
_UNKNOWN_KIND = re.compile(r"\(\s{0,2}[\"']?([g-z])[\"']?\s{0,2},\s{0,2}[\"']?\d", re.I)
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
    """A kind with its count, from label to count in the body; a stray one stands after other words."""

    kind: ErrorKind
    count: Count
    text: str
    start: int
    end: int
    stray: bool = False


def read_entries(body: str, answer: Answer, *, ends_answer: bool) -> list[Entry]:
    """Entries of a section, folded, in the style that it is written in; empty where it has none.

    With `ends_answer` the answer was cut off where this body ends, so that its last number may lack digits.
    """
    pairs = _read_pairs(body)
    if not pairs and _OPEN_PAIR.search(body):
        return []  # pairs of which none is whole: the letters label nothing
    styles = [pairs, _read_six(body), _read_names(body, ends_answer)]
    for pattern, must_be_named in _STYLES:
        labels = list(pattern.finditer(body))
        stops = [*(label.start() for label in labels[1:]), len(body)]
        entries = [
            _read_labelled(body, label, stop, must_be_named, ends_answer)
            for label, stop in zip(labels, stops[: len(labels)], strict=True)
        ]
        styles.insert(-1, entries)

    def weight(entries: Sequence[Entry]) -> tuple[int, int]:
        own = {entry.kind for entry in entries if not answer.holds(entry.text)}
        return (len(own), len({entry.kind for entry in entries})) if len(entries) <= MOST_ENTRIES else (0, 0)

    # The style with the most kinds that no report has in these words, then the most kinds.
    best = max(styles, key=weight)
    # A pair beside a list in another style is a second opinion, unless a report has it.
    further = [replace(pair, stray=True) for pair in pairs if best is not pairs and not answer.holds(pair.text)]
    return _drop_copies([*best, *further], body, answer)


def _drop_copies(entries: Sequence[Entry], body: str, answer: Answer) -> list[Entry]:
    """The entries without quotations of a report: repeated, with another count, and in a report's words.

    Where the list begins right after its heading, the first count of a kind is the judge's, whatever the reports hold.
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


def _read_pairs(body: str) -> list[Entry]:
    """The pairs that follow one another, and those that stand apart further down."""
    entries: list[Entry] = []
    stray = False
    for found in _PAIR.finditer(body):
        gap = body[entries[-1].end : found.start()] if entries else ""
        stray = stray or any(sign.isalnum() for sign in gap)
        count = _count_alone(found[2])
        entries.append(Entry(lettered(found[1]), count, found[0], found.start(), found.end(), stray))
    return entries


def _count_alone(text: str) -> Count:
    """A count with nothing beside it."""
    count = read_count(text)
    rest = text[count.end :].strip(" \"'*_`")
    return Count(None, "more than a number") if count.value is not None and rest else count


def _read_six(body: str) -> list[Entry]:
    """Six numbers in brackets, in the published order; more or fewer are no answer."""
    found = _SIX.match(body)
    if not found:
        return []
    counts = [_count_alone(part) for part in found[1].split(",")]
    if len(counts) != len(KINDS):
        return []
    return [Entry(kind, count, found[0], 0, found.end()) for kind, count in zip(KINDS, counts, strict=True)]


# Pattern of a label, and whether the name beside it must be that of its kind: a numbered list of single errors looks the
# same as a list by kind.
_STYLES: Sequence[tuple[re.Pattern[str], bool]] = (
    (_BRACKETED, False),
    (_LINE, False),
    (_INLINE, False),
    (_NUMBERED_BRACKET, True),
    (_NUMBERED, True),
)


def _read_labelled(body: str, label: re.Match[str], stop: int, must_be_named: bool, ends_answer: bool) -> Entry:
    sign, start, after = label[1], label.start(), label.end()
    kind = lettered(sign)
    chunk = body[after : min(stop, after + 4 * _DESCRIPTION)]
    name, at = _split_name(chunk)
    count = read_count(chunk[at:]) if at is not None else Count(None, "no number")
    where, before = at or 0, body[max(0, start - 30) : start]
    problem = None
    if count.value is not None and numbered_list(count.value, chunk[where + count.end :]):
        problem = "a numbered list instead of a count"
    elif not agrees(kind, name, named=must_be_named):
        problem = f"'{sign}' is called '{name.strip()[:40]}'"
    elif _SHARED.search(before):
        problem = "one count for several kinds"
    elif _MENTIONED.search(before):
        problem = "a kind that is mentioned only"
    if count.value is not None and problem:
        count = Count(None, problem)
    end = after + where + count.end
    if ends_answer and count.value is not None and end >= len(body):
        count = Count(None, "the answer is cut off at the number")
    return Entry(kind, count, body[start:end], start, end)


def _split_name(chunk: str) -> tuple[str, int | None]:
    """The description after a label, and where its count begins; None where nothing marks that place."""
    head = chunk[:_DESCRIPTION]
    lead = _LEAD.match(head)
    at = lead.end() if lead else 0
    if _DIGIT.match(head, at) or read_count(head[at:]).value is not None:
        return "", at
    if found := _NAME.match(head):
        return found[1], found.end()
    if found := _COUNT_IN_BRACKETS.match(head):
        return head[: found.start(1)], found.start(1)
    return head, None


def _read_names(body: str, ends_answer: bool) -> list[Entry]:
    """`false_positive_finding: 1`, for names of one kind."""
    entries = []
    for found in _NAMED.finditer(body):
        kind = named_kind(found[1])
        if kind is None or len(found[1].split()) > 8:
            continue
        count = read_count(body[found.end() : found.end() + _DESCRIPTION])
        end = found.end() + count.end
        if ends_answer and end >= len(body):
            count = Count(None, "the answer is cut off at the number")
        entries.append(Entry(kind, count, body[found.start() : end], found.start(), end))
    return entries
