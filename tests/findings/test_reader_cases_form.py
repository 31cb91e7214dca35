"""The reader's case files are themselves well formed: a slip in a case would be taken for a fault of the rules."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tables import every_row

from cxrlab.core.records import Finding
from cxrlab.core.vocabulary import CHEXPERT_14

FOLDER = Path(__file__).parent / "cases" / "reader"
FILES = sorted(FOLDER.glob("*.json"))
KEYS = {"name", "text", "expect", "reason", "partial", "chexpert", "normal", "unread"}
Case = dict[str, Any]


def _cases() -> list[Case]:
    return [case for path in FILES for case in json.loads(path.read_text("utf-8"))]


CASES = _cases()


def test_there_are_many_cases_of_every_theme() -> None:
    """A theme a file; a file that is lost or emptied would make the reader's test pass for the wrong reason."""
    assert len(FILES) >= 18 and len(CASES) >= 250
    assert all(len(json.loads(path.read_text("utf-8"))) >= 15 for path in FILES)


def test_names_are_unique_in_a_file() -> None:
    """A failing case is reported by file and name."""
    for path in FILES:
        counts = Counter(case["name"] for case in json.loads(path.read_text("utf-8")))
        assert max(counts.values()) == 1, (path.name, counts.most_common(1))


def test_no_text_stands_twice_with_two_answers() -> None:
    """The same words cannot be read in two ways."""
    answers: dict[str, Case] = {}
    for case in CASES:
        first = answers.setdefault(case["text"], case)
        kinds = [sorted((e["observation"], e.get("presence", "present")) for e in c["expect"]) for c in (first, case)]
        assert kinds[0] == kinds[1], (first["name"], case["name"])


@every_row("case", CASES, ids=lambda case: case["name"])
def test_a_case_is_well_formed(case: Case) -> None:
    """Known keys, a reason in a sentence, findings of the vocabulary, and words that stand in the text."""
    assert {"name", "text", "expect", "reason"} <= set(case) <= KEYS
    assert case["reason"].strip().endswith((".", ")")) and len(case["reason"]) > 10
    for expected in case["expect"]:
        stated = {key: value for key, value in expected.items() if key != "words" and value is not None}
        finding = Finding.from_json(stated)
        assert finding.span is None
        assert expected.get("words", "") in case["text"]
    assert case.get("partial", True) is True
    assert all(name in CHEXPERT_14 and value in (-1, 0, 1) for name, value in case.get("chexpert", {}).items())
    assert all(isinstance(case.get(key, 0), int) for key in ("normal", "unread"))


def test_every_case_can_fail() -> None:
    """A partial case without an expectation would pass whatever is read."""
    assert not [c["name"] for c in CASES if c.get("partial") and not c["expect"] and "chexpert" not in c]
