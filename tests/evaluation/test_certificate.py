"""The table of verdicts, row by row, from facts made by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.json_values import plain
from cxrlab.evaluation.certificate import RULES, SEVERITIES, Certificate, Check, Facts, decide
from cxrlab.metrics.statistics.intervals import Estimate

DOC = Path(__file__).parents[2] / "docs" / "certify.md"


def around(value: float, half: float = 0.02) -> Estimate:
    return Estimate(value, value - half, value + half, 100)


NOTHING = around(0.0)
GOOD = Facts(
    n=100, patients=100, predictions=100, references=100, extra=0, missing=0, distinct=90, repeated=around(0.05),
    repeated_gap=NOTHING, abnormal=50, abnormal_references=50, normal_gap=NOTHING, empty=NOTHING, empty_gap=NOTHING,
    silent=NOTHING, silent_gap=NOTHING,
    same=around(0.5), same_gap=NOTHING,
    compared=50, own=NOTHING, own_gap=NOTHING, half=NOTHING, half_gap=NOTHING,
    detected=around(0.8), value=0.5, shuffled=0.1, gain=around(0.4), wording=(), errors_gap=NOTHING,
    copied=None, copied_references=None, copied_gap=None, image=None, image_sentence="", untested=("image dependence",),
)  # fmt: skip
COPIES = {"copied": around(0.9), "copied_references": around(0.1), "copied_gap": around(0.8)}
# Rule → what makes it apply; each also has what applies the rows below it.
CASES: dict[str, dict[str, Any]] = {
    "unmatched": {"extra": 1, "own_gap": around(0.9)},
    "references": {"own": around(0.95), "own_gap": around(0.9), "distinct": 1, "repeated_gap": around(0.9)},
    "constant": {"distinct": 1, "repeated_gap": around(0.9), "abnormal": 0, "normal_gap": around(0.5)},
    "no findings": {"abnormal": 0, "normal_gap": around(0.5), "same": around(1.0), "same_gap": around(0.5)},
    "same findings": {"same": around(0.97), "same_gap": around(0.5), "gain": NOTHING},
    "copied at random": {**COPIES, "gain": NOTHING},
    "not about these studies": {"gain": NOTHING, "image": "ignores_image", "image_sentence": "It ignores the image."},
    "ignores the image": {"image": "ignores_image", "image_sentence": "It ignores the image.", "patients": 10},
    "few patients": {"patients": 29, "gain": around(0.1, 0.2)},
    "not shown": {"gain": around(0.1, 0.2), "repeated_gap": around(0.6)},
    "seen in training": {**COPIES, "copied_references": around(0.95), "repeated_gap": around(0.6)},
    "close to the references": {"half": around(0.5), "half_gap": around(0.4), "repeated_gap": around(0.6)},
    "empty reports": {"empty": around(0.4), "empty_gap": around(0.4), "repeated_gap": around(0.6)},
    "mostly one text": {"repeated": around(0.9), "repeated_gap": around(0.6), **COPIES},
    "mostly called normal": {"detected": around(0.1), **COPIES},
    "copied": {**COPIES, "errors_gap": around(0.3)},
    "more errors than a normal report": {"errors_gap": around(0.3)},
    "fits": {},
}


@pytest.mark.parametrize("name", CASES)
def test_the_first_row_that_applies_decides(name: str) -> None:
    rule, headline = decide(replace(GOOD, **CASES[name]))
    assert rule.name == name and headline.endswith(".")


def test_unrelated_reports_of_a_model_that_ignores_the_image_say_both() -> None:
    facts = replace(GOOD, gain=NOTHING, image="ignores_image", image_sentence="It ignores the image.")
    assert decide(facts)[1].endswith("+0.020]. It ignores the image.")
    assert "image" not in decide(replace(facts, image="uses_image"))[1]


def test_every_row_has_a_case_and_stands_in_the_document_in_this_order() -> None:
    assert [rule.name for rule in RULES] == list(CASES)
    rows = re.findall(r"^\| \d+ \| \*\*(.+?)\*\* \| (\w+) \|", DOC.read_text(), re.M)
    assert rows == [(rule.name, rule.severity) for rule in RULES]


def test_the_absence_of_fit_is_claimed_only_from_a_narrow_interval() -> None:
    """A gain of +0.01: [-0.02, 0.04] excludes a gain of 0.05, [-0.09, 0.11] does not, [0.005, 0.015] is above 0."""
    rules = [decide(replace(GOOD, gain=around(0.01, half)))[0].name for half in (0.03, 0.1, 0.005)]
    assert rules == ["not about these studies", "not shown", "fits"]
    assert decide(replace(GOOD, gain=None))[0].name == "not shown"
    nan = float("nan")
    assert decide(replace(GOOD, gain=Estimate(nan, nan, nan, 0)))[0].name == "not shown"


def test_a_file_of_empty_reports_is_called_that() -> None:
    empty = replace(GOOD, distinct=1, abnormal=0, repeated_gap=around(0.9), empty=around(1.0))
    assert decide(empty)[1] == "All 100 reports are empty."


def test_few_patients_and_untested_checks_are_never_hidden() -> None:
    assert decide(replace(GOOD, patients=29))[0].severity == "caution"
    assert "image dependence" in decide(GOOD)[1]


def test_a_certificate_comes_back_from_its_file() -> None:
    found = Certificate("fits", "ok", "It fits.", (Check("variety", "pass", "Two.", {"n": 2}),), 2, 2, "0")
    assert Certificate.from_json(plain(found.to_json())) == found
    for severity, failing in zip(SEVERITIES, ([True, False, False], [True, True, False], [True] * 3), strict=True):
        assert [replace(found, severity=severity).fails(on) for on in SEVERITIES] == failing


def test_a_certificate_is_printed_as_its_verdict_and_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    checks = (Check("variety", "pass", "Two. " * 20, {"n": 2}), Check("content", "fail", "None.", {}))
    found = Certificate("fits", "ok", "It fits.", checks, 2, 2, "0")
    lines = str(found).splitlines()
    assert lines[0] == "OK: It fits." and max(map(len, lines)) <= 60 and "digest" not in str(found)
    assert [line.split()[:2] for line in lines[3:] if line[0] != " "] == [["pass", "variety"], ["fail", "content"]]
    assert "<table>" in found._repr_html_()
    frame = pytest.importorskip("pandas") and found.to_frame()
    assert list(frame.columns) == ["verdict", "check", "finding"] and len(frame) == 2
