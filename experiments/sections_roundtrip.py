"""Round trip of the section parser: reports of Open-I flattened to free text and parsed again.

    python experiments/sections_roundtrip.py --root OPENI

OPENI is the folder with `NLMCXR_reports.tgz` or `ecgen-radiology/`. Indication, comparison, findings and impression of
each report, in this order and where present, become one text in each of the styles below; the parser must give
back every section letter for letter, and none that is absent. A minute.

lines       "FINDINGS: text", one line per section
mixed case  "Findings: text", one line per section
MIMIC       a FINAL REPORT line, each header after one blank, an empty line, the text wrapped at 78 after one blank
wrapped     "FINDINGS: text" wrapped at 80, no empty lines
one line    "FINDINGS: text IMPRESSION: text", a blank between
mixed line  "Findings: text Impression: text", a blank between
small       "findings: text", one line per section, the text in small letters
bare        "FINDINGS" alone on its line, the text below, an empty line
HTML        "<p><b>Findings:</b> text</p>", with &, < and > escaped

Wrapping turns a run of blanks into one line end, so in the two wrapped styles blanks are compared as one. A section
that itself holds header-like text cannot be told from two sections: such are listed by the report's number, the section
and the header's name, never by text. Whatever else differs is counted as unexplained and should be nothing.
"""

from __future__ import annotations

import argparse
import html
import re
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cxrlab.core.errors import CxrlabError, DataError
from cxrlab.core.records import Report
from cxrlab.data.section_headers import BY_NAME
from cxrlab.data.sections import parse
from cxrlab.data.sources.openi import BadXml, find_files, open_files, parse_document

ORDER = ("indication", "comparison", "findings", "impression")
Sections = Mapping[str, str]

_NAMES = "|".join(re.escape(name).replace(r"\ ", r"\s+") for name in sorted(BY_NAME, key=len, reverse=True))
_HEADER_LIKE = re.compile(rf"(?<![A-Za-z])({_NAMES})\s*:", re.IGNORECASE)


def _wrapped(text: str, width: int, indent: str = "") -> str:
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


STYLES: Mapping[str, Callable[[Sections], str]] = {
    "lines": lambda parts: "\n".join(f"{name.upper()}: {text}" for name, text in parts.items()),
    "mixed case": lambda parts: "\n".join(f"{name.capitalize()}: {text}" for name, text in parts.items()),
    "MIMIC": lambda parts: " " * 33 + "FINAL REPORT\n"
    + "\n \n".join(f" {name.upper()}: \n \n{_wrapped(text, 78, ' ')}" for name, text in parts.items()),
    "wrapped": lambda parts: "\n".join(_wrapped(f"{name.upper()}: {text}", 80) for name, text in parts.items()),
    "one line": lambda parts: " ".join(f"{name.upper()}: {text}" for name, text in parts.items()),
    "mixed line": lambda parts: " ".join(f"{name.capitalize()}: {text}" for name, text in parts.items()),
    "small": lambda parts: "\n".join(f"{name}: {text.lower()}" for name, text in parts.items()),
    "bare": lambda parts: "\n\n".join(f"{name.upper()}\n{text}" for name, text in parts.items()),
    "HTML": lambda parts: "".join(f"<p><b>{n.capitalize()}:</b> {html.escape(t, False)}</p>" for n, t in parts.items()),
}  # fmt: skip
REWRAPPED = ("MIMIC", "wrapped")


@dataclass(frozen=True)
class Difference:
    """A section that differs after the round trip.

    Args:
        report: The report's number.
        style: How it was flattened.
        section: The section.
        header: Name of the header-like text in one of the report's sections; None where there is none.
    """

    report: str
    style: str
    section: str
    header: str | None


def reports(root: Path) -> Iterator[tuple[str, Sections]]:
    """Number and filled sections of every report, in order."""
    place = find_files(root)
    if place is None:
        raise DataError(f"{root} holds no reports of Open-I. Give the folder of NLMCXR_reports.tgz with --root.")
    for file in open_files(place)[0]:
        try:
            report = parse_document(file.data).report
        except BadXml:
            raise DataError(f"{place}: report {file.number} is not well-formed.") from None
        yield file.number, {name: text for name in ORDER if (text := report.section(name))}


def header_like(parts: Sections) -> str | None:
    """The header's name that one of the sections holds, by the table alone."""
    found = (_HEADER_LIKE.search(text) for text in parts.values())
    return next((" ".join(match[1].lower().split()) for match in found if match), None)


def differences(number: str, parts: Sections) -> Iterator[Difference]:
    """Sections that differ after the round trip, for each style."""
    for style, flatten in STYLES.items():
        parsed = parse(flatten(parts)).report
        wanted = Report(**parts)
        for name in ("examination", *ORDER):
            given, back = wanted.section(name), parsed.section(name)
            if style == "small" and given:
                given = given.lower()
            if style in REWRAPPED and given and back:
                given, back = " ".join(given.split()), " ".join(back.split())
            if given != back:
                yield Difference(number, style, name, header_like(parts))


def print_outcome(found: list[Difference], n_reports: int, n_sections: int) -> None:
    """Counts by style, then the reports that differ with the reason."""
    print(f"{n_reports} reports, {n_sections} sections, in {len(STYLES)} styles")
    for style in STYLES:
        here = [difference for difference in found if difference.style == style]
        explained = sum(difference.header is not None for difference in here)
        same = n_sections - len({(d.report, d.section) for d in here})
        print(f"{style:12}identical {same:6}   header-like text {explained:4}   unexplained {len(here) - explained:4}")
    for report in dict.fromkeys(difference.report for difference in found):
        own = [difference for difference in found if difference.report == report]
        sections = ", ".join(dict.fromkeys(difference.section for difference in own))
        why = f"holds '{own[0].header}:'" if own[0].header else "unexplained"
        print(f"  report {report}: {sections} ({why}; {len({d.style for d in own})} styles)")


def main() -> None:
    """Flatten, parse, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, required=True, help="folder with NLMCXR_reports.tgz")
    options = parser.parse_args()
    try:
        every = list(reports(options.root))
    except CxrlabError as error:
        parser.exit(1, f"{error}\n")
    begin = time.perf_counter()
    found = [difference for number, parts in every for difference in differences(number, parts)]
    seconds = time.perf_counter() - begin
    print_outcome(found, len(every), sum(len(parts) for _, parts in every))
    print(f"{1000 * seconds / len(every) / len(STYLES):.3f} ms per text, flattening included")


if __name__ == "__main__":
    main()
