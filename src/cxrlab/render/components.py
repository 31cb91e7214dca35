"""What pages are made of (cells, tables, marked text, pictures), and how numbers are written; templates draw them."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cxrlab.core.errors import DataError

UNKNOWN = "–"
_IMAGE_TYPES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}


# Numbers and text ---------------------------------------------------------------------------------------------------


def readable(value: Any) -> str:
    """A value for people: rounded, with thousands separators, a dash where there is none. Templates escape it."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 1 else f"{value:.3g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{readable(key)} {readable(item)}" for key, item in value.items()) or UNKNOWN
    if isinstance(value, (list, tuple)):
        return ", ".join(map(readable, value)) or UNKNOWN
    return str(value)


def part(found: Any, *keys: str) -> Mapping[str, Any]:
    """The object under these keys of a JSON file; empty where anything on the way is absent or no object."""
    for key in keys:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def number(found: Any) -> float | None:
    """A finite number, or the `value` of a measurement; None where there is none."""
    value = found.get("value") if isinstance(found, Mapping) else found
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def figure(value: Any, sign: str = "", digits: int = 3) -> str:
    """A number, or the `value` of a measurement, with fixed decimals; `sign="+"` writes the sign of a difference."""
    known = number(value)
    return UNKNOWN if known is None else f"{round(known, digits) + 0.0:{sign},.{digits}f}"  # 0 for -0


def interval(found: Mapping[str, Any], sign: str = "", digits: int = 3) -> str:
    """The ends `low` and `high` of a measurement."""
    low, high = number(found.get("low")), number(found.get("high"))
    return UNKNOWN if low is None or high is None else f"{low:{sign}.{digits}f} to {high:{sign}.{digits}f}"


def in_sentence(found: Any) -> str:
    """A measurement in running text: the value, and its interval in brackets."""
    ends = interval(part(found))
    return figure(found) if UNKNOWN in (ends, figure(found)) else f"{figure(found)} ({ends})"


def percent(share: Any, digits: int = 0) -> str:
    """A share in percent."""
    known = number(share)
    return UNKNOWN if known is None else f"{100 * known:.{digits}f} %"


def p_value(value: Any) -> str:
    """A p value with three decimals."""
    known = number(value)
    return UNKNOWN if known is None else "< 0.001" if 0 <= known < 0.001 else f"{known:.3f}"


def over_seeds(found: Mapping[str, Any]) -> dict[str, Any]:
    """A mean over seeds with Student's interval, as a measurement."""
    return {"value": found.get("mean"), "low": found.get("low"), "high": found.get("high")}


def difference(found: Mapping[str, Any]) -> dict[str, Any]:
    """The difference of a comparison, with its interval, as a measurement."""
    return {"value": found.get("difference"), "low": found.get("low"), "high": found.get("high")}


def tally(by_study: Mapping[str, Any]) -> str:
    """Studies won, tied and lost."""
    return " / ".join(readable(by_study.get(key)) for key in ("win", "tie", "lose")) if by_study else UNKNOWN


# Cells and tables ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IntervalBar:
    """A value with its interval on a horizontal scale, in percent of the width; `tick` marks what it is compared with."""

    left: str  # Start of the interval
    width: str  # Length of the interval
    value: str  # Place of the value
    tick: str | None = None  # Place of the tick, if any


def interval_bar(found: Mapping[str, Any], low: float, high: float, tick: float | None = None) -> IntervalBar | None:
    """Draw a measurement on the scale from `low` to `high`; None without a value."""
    value = number(found)
    if value is None:
        return None

    def place(at: float) -> float:
        return 100 * min(max((at - low) / (high - low), 0.0), 1.0)

    ends = [number(found.get(key)) for key in ("low", "high")]
    left, right = (place(value if end is None else end) for end in ends)
    mark = None if tick is None else f"{place(tick):.1f}"
    return IntervalBar(f"{left:.1f}", f"{max(right - left, 0.5):.1f}", f"{place(value):.1f}", mark)


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    value: Any = ""  # Shown first, as `readable`
    below: tuple[Any, ...] = ()  # Lines in small print beneath it
    aside: Any = None  # Quiet words after the value, on its line
    tone: str = ""  # Colour of the value: `here` (good), `bad`, `doubt` or `later` (quiet)
    strong: bool = False  # Whether the value is bold
    css: str = ""  # A further class of the value, such as `figure` (digits of equal width, never broken) or `name`
    bar: float | None = None  # A bar for a share in [0, 1]
    stack: tuple[tuple[str, float], ...] = ()  # Several bars beside each other: class and share of each
    scale: IntervalBar | None = None  # An interval on a scale
    shade: float | None = None  # Opacity of an orange background, from 0 to 1
    lines: tuple[Cell, ...] = ()  # Further lines of the same kind


@dataclass(frozen=True)
class Table:
    """A table; false where it has no rows."""

    head: Sequence[Any]  # Headings of the columns
    rows: Sequence[Sequence[Any]]  # One value or `Cell` for each column
    # Columns at the left that hold words; the others are set flush right. None: all hold words
    words: int | None = None
    groups: Sequence[tuple[str, int]] = ()  # Titles above several columns, with the number of columns of each
    dense: bool = False  # Whether the table is set in small letters

    def __bool__(self) -> bool:
        return bool(self.rows)

    def classes(self, column: int) -> str:
        """CSS classes of a column: numbers flush right, a line before each group."""
        edges = {sum(count for _, count in self.groups[:place]) for place in range(1, len(self.groups))}
        named = (("number", self.words is not None and column >= self.words), ("edge", column in edges))
        return " ".join(name for name, wanted in named if wanted)


def grouped_table(
    groups: Sequence[tuple[str, Sequence[Any]]], rows: Sequence[Sequence[Any]], words: int = 1, dense: bool = True
) -> Table:
    """A table with titled groups of columns: title and headings of each."""
    head = [heading for _, headings in groups for heading in headings]
    return Table(head, rows, words, [(title, len(headings)) for title, headings in groups], dense)


def measured(found: Any, sign: str = "", digits: int = 3, **more: Any) -> Cell:
    """A value with its interval beneath; fewer `digits` of the interval make a narrow column."""
    ends = interval(part(found), sign, digits)
    return Cell(figure(found, sign), below=() if ends == UNKNOWN else (ends,), **more)


def changed(found: Any, better: str, sure: bool | None = None, digits: int = 3) -> Cell:
    """A difference with its interval, marked ▼ or ▲ where it is surely worse or better.

    Args:
        better: `higher` or `lower`; with neither, nothing is marked.
        sure: Whether a test finds the difference; None: whether the interval excludes zero.
    """
    value, low, high = number(found), number(part(found).get("low")), number(part(found).get("high"))
    if sure is None:
        sure = low is not None and high is not None and not low <= 0 <= high
    shown = measured(found, "+", digits)
    if not better or not sure or not value:
        return shown
    worse = (value < 0) == (better == "higher")
    sign, tone = ("▼", "bad") if worse else ("▲", "here")
    return Cell(f"{sign}\N{NO-BREAK SPACE}{shown.value}", below=shown.below, tone=tone)


def published_table(variants: Mapping[str, Any], heads: Sequence[str], *about: str) -> Table | None:
    """Published figures of the variants that have some; `about` names further text columns of a variant."""
    metrics = list(dict.fromkeys(metric for row in variants.values() for metric in row.get("published") or {}))
    rows = [
        [name, *(row.get(key) for key in about), *(row["published"].get(metric) for metric in metrics)]
        for name, row in variants.items()
        if row.get("published")
    ]
    return Table([*heads, *metrics], rows, len(heads)) if rows else None


# Text and pictures --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
    """A stretch of a report to be marked."""

    start: int  # First character
    end: int  # Character after the last
    label: str  # Stands after its end
    css: str = ""  # Class of the mark


# A changed finding is shown by colour, by the line through or under its words, and by a sign and a word after them.
_CHANGES = {"lost": "− lost", "new": "+ new", "changed": "≠ changed"}


def change_marks(spans: Any) -> list[Mark]:
    """Marks of changed findings from `[start, end, kind]` each; what is no such span is ignored."""
    return [
        Mark(span[0], span[1], _CHANGES[span[2]], span[2])
        for span in (spans if isinstance(spans, list) else ())
        if isinstance(span, list)
        and len(span) == 3
        and span[2] in _CHANGES
        and all(isinstance(end, int) for end in span[:2])
    ]


@dataclass(frozen=True)
class Piece:
    """A piece of a report between two ends of marks; `marked` is the class of its mark, None without one."""

    text: str
    marked: str | None = None
    labels: tuple[str, ...] = ()


def pieces(words: str, marks: Iterable[Mark]) -> tuple[Piece, ...]:
    """Cut a report where marks begin and end; marks may overlap, and one that reaches beyond the text is cut."""
    length = len(words)
    known = [Mark(min(max(m.start, 0), length), min(max(m.end, 0), length), m.label, m.css) for m in marks]
    known = [mark for mark in known if mark.start < mark.end]
    cuts = sorted({0, length, *(end for mark in known for end in (mark.start, mark.end))})
    out = []
    for start, end in zip(cuts, cuts[1:], strict=False):
        over = [mark for mark in known if mark.start <= start and end <= mark.end]
        labels = dict.fromkeys(mark.label for mark in known if mark.end == end)
        css = next((mark.css for mark in over if mark.css), "") if over else None
        out.append(Piece(words[start:end], css, tuple(labels)))
    return tuple(out)


@dataclass(frozen=True)
class Report:
    """A report in a box."""

    who: str  # Its heading
    pieces: tuple[Piece, ...]  # Its text
    note: str = ""  # Small print beneath
    reference: bool = False  # Whether it is what the others are compared with


def report(who: str, words: Any, marks: Iterable[Mark] = (), note: str = "", reference: bool = False) -> Report:
    """A report with its marks; None is written as a dash, a text without words as such."""
    text = UNKNOWN if words is None else str(words)
    return Report(who, pieces(text, marks) if text.strip() else (), note, reference)


@dataclass(frozen=True)
class Picture:
    """An image that the page carries; `source` is None where the file is missing."""

    source: str | None  # Data URI
    alt: str  # What it shows
    caption: str = ""  # Stands beneath
    css: str = "image"  # Class


def picture(data: bytes, alt: str, name: str, caption: str = "", css: str = "image") -> Picture:
    """A picture from PNG or JPEG bytes; anything else is a `DataError` that names the file."""
    kind = next((kind for start, kind in _IMAGE_TYPES.items() if data.startswith(start)), None)
    if kind is None:
        raise DataError(f"{name} is not a PNG or JPEG file; repeat the run.")
    return Picture(f"data:{kind};base64,{base64.b64encode(data).decode()}", alt, caption, css)


@dataclass(frozen=True)
class Caution:
    """A caution and the runs that it is about."""

    sentence: str
    runs: tuple[str, ...]


def cautions(found: Iterable[tuple[str, Any]]) -> tuple[Caution, ...]:
    """Cautions of several runs, each sentence once; anything but a list of sentences is none."""
    about: dict[str, dict[str, None]] = {}
    for name, sentences in found:
        for sentence in sentences if isinstance(sentences, (list, tuple)) else ():
            about.setdefault(str(sentence), {})[name] = None
    return tuple(Caution(sentence, tuple(names)) for sentence, names in about.items())


@dataclass(frozen=True)
class Threat:
    """A threat model, as a heading and a sentence, and who authorised the test."""

    heading: str
    sentence: str
    authorised: str


def threat_model(threat: Any, authorised: Any) -> Threat:
    """The threat model and who authorised the test."""
    words = str(threat or "Threat model: not recorded.")
    head, colon, rest = words.partition(": ")
    given = str(authorised) if authorised else "None is recorded; a model on this machine requires none."
    if colon and head == "Threat model":
        return Threat(f"{head}.", rest[:1].upper() + rest[1:], given)
    return Threat("", words, given)
