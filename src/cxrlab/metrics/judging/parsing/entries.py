"""The six counts under one heading: pairs in brackets, lettered or numbered lines, or names with numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from cxrlab.core.vocabulary import ErrorKind
from cxrlab.metrics.judging.parsing.kinds import KINDS, agrees, lettered, named_kind
from cxrlab.metrics.judging.parsing.numbers import Count, numbered_list, read_count
from cxrlab.metrics.judging.parsing.own_words import Answer

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
