"""Rehearsed servers on a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from extraction_results import share
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.core.runs import Run


def rehearsal(**changes: Any) -> dict[str, Any]:
    found = {
        "model": "builtin:reporter",
        "threat": "Threat model: who asks sees words alone.",
        "guard": {"detectors": ["chest-gate", "perturbation"], "defence": None},
        "benign": {
            "images": 500,
            "accounts": 5,
            "clients": 8,
            "blocked": 0,
            "seconds": 100.0,
            "per_second": 4.99,
            "answered": share(0.998, 0.989, 1.0, 500),
            "same_words": share(1.0, 0.993, 1.0, 499),
        },
        "alone": {"images": 20, "seconds": 15.0, "per_second": 1.33},
        "attacks": {
            "scenes": {"queries": 40, "reports": 0, "blocked_at": 3},
            "noise": {"queries": 40, "reports": 40, "blocked_at": None},
        },
    }
    return {**found, **changes}


def page(folder: Path, found: dict[str, Any]) -> str:
    with Run.open(folder / "served", {"model": "builtin:reporter"}, seed=7) as run:
        run.write("rehearsal.json", found)
    return page_of(folder / "served")


def row(shown: str, first: str) -> str:
    found = re.search(rf"<tr><td>{first}</td>.*?</tr>", shown)
    assert found is not None, first
    return found[0]


def test_who_is_answered_stands_with_interval_and_n(tmp_path: Path) -> None:
    shown = page(tmp_path, rehearsal())
    answered = row(shown, "images answered")
    assert all(part in answered for part in ("0.998", "0.9890", "1.0000", ">500<"))
    assert "4.99" in row(shown, "answers per second, 8 at once")
    assert "1.33" in row(shown, "answers per second, one by one")
    assert "Guarded by <b>chest-gate, perturbation</b>." in shown


def test_who_was_cut_off_and_who_was_not(tmp_path: Path) -> None:
    shown = page(tmp_path, rehearsal())
    assert "at query 3" in row(shown, "scenes") and ">0<" in row(shown, "scenes")
    assert "never" in row(shown, "noise") and ">40<" in row(shown, "noise")


def test_an_unguarded_server_is_called_so(tmp_path: Path) -> None:
    shown = page(tmp_path, rehearsal(guard=None, attacks={}))
    assert "<b>every client is answered</b>" in shown and "Attackers" not in shown


def test_words_of_a_file_do_not_become_markup(tmp_path: Path) -> None:
    guard = {"detectors": ["<script>"], "defence": "<b>plain"}
    shown = page(tmp_path, rehearsal(model="hf:<i>", guard=guard, attacks={"<u>": {"queries": 1}}))
    assert not re.search(r"<(script|i|u)>", shown) and "<b>&lt;b&gt;plain</b>" in shown


def test_a_page_without_a_rehearsal_has_no_such_section(tmp_path: Path) -> None:
    with Run.open(tmp_path / "other", {"model": "x"}, seed=7):
        pass
    assert "Guarded server" not in page_of(tmp_path / "other", allow_unfinished=True)


def test_another_shape_is_refused_with_the_key(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="rehearsal.json: 'benign.images' is 'many'"):
        page(tmp_path, rehearsal(benign={"images": "many"}))
