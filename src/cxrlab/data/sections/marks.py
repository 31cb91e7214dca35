"""Headers in a text: where each begins and ends, what it heads and when it counts.

A header is told by its place (first on its line, or within it), its case and its name. A line is looked at
once and a name is short, so that the time grows with the length of the text alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from cxrlab.data.sections.first_on_line import first_on_line
from cxrlab.data.sections.headers import BODY, RULE, SIGNATURE
from cxrlab.data.sections.mark import Mark
from cxrlab.data.sections.within_line import COLON, within_line

_SIGNED = re.compile(r"(?<=[.?!] )\s*(?:electronically|digitally) signed\b", re.IGNORECASE)
_BODY = re.compile(r"(?<=\s)FINAL REPORT\b")


def marks(text: str) -> list[Mark]:
    """Every header of a text in the form that `plain.plain` gives, in order and without overlap."""
    found: list[Mark] = []
    at, before, headed = 0, "", False
    for line in text.split("\n"):
        if line and not line.isspace():
            here = [mark.moved(at) for mark in _of_line(line, before, headed)]
            headed = bool(here)
            if found and here and here[0].section == RULE and not text[found[-1].end : here[0].start].strip():
                found[-1] = replace(found[-1], end=here[0].end)  # a header underlined
            else:
                found += here
        at += len(line) + 1
        before = line.strip()
    return found


def _of_line(line: str, before: str, headed: bool) -> Iterator[Mark]:
    """The headers of one line; `before` is the line above, `headed` whether the last filled line held a header."""
    first = first_on_line(line, before, headed)
    end = 0
    if first is not None:
        yield first
        end = first.end
    rest = (
        [Mark(match.start(), match.end(), BODY) for match in _BODY.finditer(line, end)] if "FINAL REP" in line else []
    )
    if "igned" in line:
        rest += [Mark(match.start(), match.end(), SIGNATURE) for match in _SIGNED.finditer(line, end)]
    floor = end
    for colon in COLON.finditer(line, end):
        mark = within_line(line, floor, colon.start(), flattened=first is not None)
        if mark is not None:
            rest.append(mark)
            floor = mark.end
    for mark in sorted(rest, key=lambda mark: mark.start):
        if mark.start >= end:
            yield mark
            end = mark.end
