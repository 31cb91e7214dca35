"""`cxrlab read`: the findings of a report, with the words that state them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cxrlab.cli.output import Result, columns
from cxrlab.core.errors import DataError
from cxrlab.core.files import read_text
from cxrlab.core.json_values import dumps
from cxrlab.core.records import Finding, chexpert_labels
from cxrlab.core.terminal import terminal_safe
from cxrlab.core.vocabulary import Certainty

if TYPE_CHECKING:
    from cxrlab.findings.reader import Reading

_MANY = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".xlsx", ".parquet")
_FILES = (*_MANY, ".txt", ".text", ".md")
_SGR = {"present": "1;31", "possible": "33", "absent": "32"}


def read(text: str) -> Result:
    """Read a report: which findings it states as present, possible or absent, and the words that state them.

    Takes the report itself; a text file with one report; a JSONL, JSON or CSV file with many, which gives one JSON line
    per report; or - for the standard input.

    Args:
        text: The report, a file, or -.
    """
    from cxrlab.evaluation.report_files import fill_ids, read_rows
    from cxrlab.findings.reader import read as read_report

    file = _file(text)
    if file is not None and file.suffix.lower() in _MANY:
        rows = fill_ids([row for _, row in read_rows(file)])
        data = [{"id": row.id or str(number), **_data(read_report(_report(row)))} for number, row in enumerate(rows, 1)]
        return Result("\n".join(map(dumps, data)), data)
    reading = read_report(read_text(file) if file is not None else sys.stdin.read() if text == "-" else text)
    table = []
    for finding in reading:
        details: list[Any] = [finding.severity, finding.side, finding.location, finding.change, finding.tip]
        words = [str(getattr(item, "value", item)) for item in details if item is not None]
        sizes = {"": finding.size_mm, "tip at ": finding.tip_mm}
        words += [f"{name}{size:g} mm" for name, size in sizes.items() if size is not None]
        quote = f'"{_one_line(_words(reading.text, finding))}"' if finding.span else ""
        table.append([finding.observation, _kind(finding), ", ".join(words), quote])
    lines = [_coloured(reading), ""] if _colours() else []
    lines.append(columns(table) if table else "no finding of the vocabulary is stated")
    lines += [f'normal: "{_one_line(reading.text[start:end])}"' for start, end in reading.normal]
    lines += [f'not understood: "{_one_line(reading.text[start:end])}"' for start, end in reading.unread]
    return Result("\n".join(lines), _data(reading), coloured=_colours())


def _file(text: str) -> Path | None:
    """The file that is named; None for a report. A name that ends like a file but does not exist is refused."""
    if text == "-" or not text.strip() or "\n" in text or "\0" in text:
        return None
    path, is_name = Path(text), not any(c.isspace() for c in text)
    try:
        if path.is_dir() and is_name:
            raise DataError(f"{text} is a folder; name a file in it, or put the text of a report in quotes.")
        if path.exists():  # also a pipe
            return path
    except OSError:  # the text is longer than any file name may be
        return None
    if path.suffix.lower() in _FILES and is_name:
        raise DataError(f"{text} does not exist; name an existing file, or put the text of a report in quotes.")
    return None


def _report(row: Any) -> str | None:
    from cxrlab.evaluation.report_files import CANDIDATE_NAMES, REFERENCE_NAMES, classify_column, find_text_columns

    sections = row.values.get("sections")
    if isinstance(sections, dict):
        found = sections.get("findings")
        return found if isinstance(found, str) else None
    kinds = {classify_column(name): name for name in find_text_columns([row])}
    known = ("report", *REFERENCE_NAMES, *CANDIDATE_NAMES, "findings")
    report: str | None = row.text(*(kinds.get(kind, kind) for kind in known))
    return report


def _data(reading: Reading) -> dict[str, Any]:
    from cxrlab.metrics.report_pairs import wordless

    return {
        "text": reading.text,
        "findings": [{**finding.to_json(), "words": _words(reading.text, finding)} for finding in reading],
        "normal": reading.normal,
        "unread": reading.unread,
        "labels": {} if wordless(reading.text) else chexpert_labels(reading.findings, complete=False),
    }


def _kind(finding: Finding) -> str:
    return "absent" if not finding.present else "possible" if finding.certainty is Certainty.POSSIBLE else "present"


def _words(text: str, finding: Finding) -> str:
    return text[slice(*finding.span)] if finding.span else ""


def _one_line(text: str) -> str:
    return terminal_safe(" ".join(text.split()))


def _colours() -> bool:
    return sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _coloured(reading: Reading) -> str:
    """The text with each finding in the colour of its kind; where two overlap, that of the first."""
    marks: list[str | None] = [None] * len(reading.text)
    for finding in reversed(reading.findings):
        if finding.span:
            start, end = finding.span
            marks[start:end] = [_SGR[_kind(finding)]] * (end - start)
    out, now = [], None
    for character, mark in zip(reading.text, marks, strict=True):
        if mark != now:
            out.append(("\033[0m" if now else "") + (f"\033[{mark}m" if mark else ""))
            now = mark
        out.append(terminal_safe(character))
    return "".join([*out, "\033[0m" if now else ""]).strip()
