"""MIMIC-CXR's own published rules for the sections of its reports, errors included, for references equal to others'."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import as_file, files
from typing import Any

from cxrlab.core.config import read_yaml
from cxrlab.core.records import Report

# A line that begins with one blank and capitals, up to a colon and white space.
_HEADER = re.compile(r"\n ([A-Z ()/,-]+):\s")
_PARAGRAPH = "\n \n"
_LAST_PARAGRAPH = "last_paragraph"
_MAIN = ("impression", "findings")


def official_report(text: str, study: str = "") -> Report:
    """The sections of a MIMIC-CXR report by MIMIC-CXR's own rules; white space is collapsed.

    The published table has findings, impression, last paragraph and comparison. Examination and indication are found by
    the same rules; the history stands in for an indication that is absent. `study` such as s50414267 is needed for the 54
    studies whose sections were made by hand, for which that table has no text.
    """
    found = {} if study in _rules()["by_hand"] else official_sections(text)
    words = {name: " ".join(section.split()) or None for name, section in found.items()}
    return Report(
        examination=words.get("examination"),
        indication=words.get("indication") or words.get("history"),
        comparison=words.get("comparison"),
        findings=words.get("findings"),
        impression=words.get("impression"),
    )


def official_sections(text: str) -> dict[str, str]:
    """Section → its text, of several sections of one name the last; `last_paragraph` where neither main one is found."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    parts: list[tuple[str, str]] = []
    header, name, start = _HEADER.search(text), "preamble", 0
    if header is None:
        name = "full report"
    while header is not None:
        parts.append((name, text[start : header.start() if parts else header.start(1)]))
        name, start = _section_name(header[1]), header.end()
        # The rest of the header's line is never a header; where that line is over already, neither is the next one.
        header = _HEADER.search(text, max(start, text.find("\n", start)))
    parts.append((name, text[start:]))
    parts = [(name, part) for name, part in parts if part.strip() or name not in _MAIN]
    if not {name for name, _ in parts} & {*_MAIN} and _PARAGRAPH in parts[-1][1]:
        name, whole = parts.pop()
        first, _, rest = whole.partition(_PARAGRAPH)
        parts += [(name, first), (_LAST_PARAGRAPH, rest)]
    return {name: part.strip() for name, part in parts}


def _section_name(header: str) -> str:
    rules, name = _rules(), header.lower().strip()
    if name in rules["names"]:
        return str(rules["names"][name])
    known = next((part for part in rules["parts"] if part in name), None)
    return known or ("findings" if any(view in name for view in rules["views"]) else name)


@cache
def _rules() -> dict[str, Any]:
    with as_file(files("cxrlab.data") / "official_sections.yaml") as path:
        rules: dict[str, Any] = read_yaml(path)[0]
    names = {header: section for section, headers in rules["names"].items() for header in headers}
    return {**rules, "names": names, "by_hand": frozenset(study for row in rules["by_hand"] for study in row)}
