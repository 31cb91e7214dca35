"""Detections on a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from extraction_results import detected, detection, share
from pages import page_of

from cxrlab.core.runs import Run
from cxrlab.render.extraction_protection import BROKEN, HOLDS, OPEN, UNMEASURED, FirstAlarm, bound_verdict, first_alarm


def page(folder: Path, found: dict[str, Any]) -> str:
    with Run.open(folder / "watch", {"benign": "corpora/x"}, seed=7) as run:
        run.write("detection.json", found)
    return page_of(folder / "watch")


def test_a_bound_holds_only_where_the_whole_interval_is_within() -> None:
    cases = [
        (0.0, 0.01, 0.01, HOLDS),
        (0.0, 0.011, 0.01, OPEN),
        (0.01, 0.2, 0.01, OPEN),
        (0.011, 0.2, 0.01, BROKEN),
        (None, None, 0.01, UNMEASURED),
        (0.0, 0.01, None, UNMEASURED),
    ]
    for low, high, bound, word in cases:
        assert bound_verdict(share(0.0, low, high, 10), bound) == word, (low, high, bound)


def test_false_alarms_stand_with_bound_interval_n_and_a_word(tmp_path: Path) -> None:
    shown = page(tmp_path, detection())
    rows = re.findall(r"<tr><td>(?:chest-gate|mmd|prada)</td><td>(?:image|account).*?</tr>", shown)
    assert len(rows) == 4
    account, image, mmd, prada = rows
    assert "✓ holds" in account and "account of 100 queries" in account
    for wanted in ("✓ holds", ">0.002<", "0.0004", "0.0001 to 0.0012", ">5,000<"):
        assert wanted in image
    assert "? not shown to hold" in mmd and "0.0000 to 0.0700" in mmd and "✗ broken" in prada
    assert "⚠ Warning.</b> prada flags more benign accounts" in shown


def test_each_stream_states_when_and_how_good_the_copy_was(tmp_path: Path) -> None:
    shown = page(tmp_path, detection())
    assert "<b>knockoff</b> was first detected after <b>3</b> of 900 queries, by chest-gate" in shown
    part = shown[shown.index("knockoff: 900 queries") :]
    gate = re.search(r"<tr><td>chest-gate</td>.*?</tr>", part)
    assert gate is not None
    for wanted in (
        "<b>3 queries</b>",
        "0.980",
        "0.96 to 0.99",
        ">900<",
        "0.210",
        "0.150 to 0.270",
        "trained on 50 queries",
    ):
        assert wanted in gate[0]
    prada = re.search(r"<tr><td>prada</td>.*?</tr>", part)
    assert prada is not None and "never" in prada[0] and "there was no alarm" in prada[0]


def test_the_first_alarm_comes_with_what_is_known_of_the_detector() -> None:
    found = detection()
    assert first_alarm(found, "knockoff").bound == "whose bound on false alarms holds"
    queries = found["streams"]["knockoff"]["detectors"]
    queries["mmd"] = detected(2)
    alarm = first_alarm(found, "knockoff")
    assert (alarm.detector, alarm.bound) == ("mmd", "whose bound on false alarms is unproven")
    queries |= {"prada": detected(1)}
    assert first_alarm(found, "knockoff").bound == "whose bound on false alarms is broken"
    found["detectors"]["prada"]["false_positives"]["account"] = share(None, None, None, 0)
    assert first_alarm(found, "knockoff").bound == "whose false alarms were not measured"
    found["streams"]["knockoff"]["detectors"] = {"prada": detected(None)}
    assert first_alarm(found, "knockoff") == FirstAlarm("knockoff", 900)


def test_without_a_stream_false_alarms_alone_are_shown(tmp_path: Path) -> None:
    shown = page(tmp_path, detection(streams={}, warnings=[]))
    assert "False alarms on benign images" in shown
    assert ("Detected after" in shown) is False and ("Warning." in shown) is False
