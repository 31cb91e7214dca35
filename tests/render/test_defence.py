"""Defences on a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from extraction_results import attack, defence, defended
from pages import page_of

from cxrlab.core.runs import Run
from cxrlab.render.extraction_protection import defence_verdict, review


def page(folder: Path, found: dict[str, Any]) -> str:
    with Run.open(folder / "defended", {"victim": "builtin:reporter"}, seed=7) as run:
        run.write("defence.json", found)
    return page_of(folder / "defended")


def row(shown: str, name: str) -> str:
    found = re.search(rf"<tr><td><b>{name}</b></td>.*?</tr>", shown)
    assert found is not None
    return found[0]


def test_the_summary_for_the_reviewer_comes_first(tmp_path: Path) -> None:
    shown = page(tmp_path, defence())
    order = [
        "Security review",
        "Threat model.",
        "Dr Owner, own model",
        "Each defence",
        "Test for the watermark",
    ]
    places = [shown.index(words) for words in order]
    assert places == sorted(places)
    top = shown[places[0] : places[1]]
    for wanted in (
        '<span class="badge medium">medium</span>',
        "0.500 (0.440 to 0.560) of the victim's findings F1",
        "1,500 queries, 30.00 EUR; 900 come within a tenth",
        "AML.T0024.002 Extract AI Model",
        "<b>coarse</b> <span class=later>(AML.M0002 Passive AI Output Obfuscation)",
        "'coarse' takes most from the copy.",
    ):
        assert wanted in top


def test_unknown_money_and_severity_are_not_nothing() -> None:
    shown = review({"severity": None, "cost_to_copy": {"queries": 9, "money": None}, "recommended": {"control": None}})
    assert shown is not None and shown.facts["cost to copy"] == "9 queries, no price known"
    assert shown.severity == shown.badge == "unknown" and shown.facts["recommended"].value == "none"
    assert review({}) is None


def test_each_defence_has_its_benign_cost_and_both_attackers(tmp_path: Path) -> None:
    shown = page(tmp_path, defence())
    assert ("<span class=later>none</span>" in shown) is True and "0.40 to 0.50" in shown  # the copy without a defence
    gate = row(shown, "gate")
    for wanted in (
        "0.005",
        "0.00 to 0.03",
        "0.020",
        "1,490 of 1,500 refused",
        "▼&nbsp;-0.430",
        "0.440",
        "-0.10 to +0.08",
    ):
        assert wanted in gate
    assert gate.count("▼") == 1 and "? circumvented" in gate
    coarse = row(shown, "coarse")
    assert coarse.count("▼") == 2 and "✓ weakens the copy" in coarse
    quota = row(shown, "quota")
    assert "✗ harms" in quota and "refuses 12.0% of benign requests" in quota and "0.120" in quota
    assert "? no effect shown" in row(shown, "watermark")


def test_a_defence_is_not_praised_without_an_attacker_who_knows_it() -> None:
    assert defence_verdict(defended(plain=attack(0.1, -0.4, -0.2))).below == ("no adaptive attacker was tried",)
    unknown = attack(0.1, -0.4, -0.2)
    unknown["loss"]["high"] = None
    assert defence_verdict(defended(plain=unknown)) == defence_verdict(defended())
    assert defence_verdict(defended()).value == "? not measured"


@pytest.mark.parametrize("paired", [True, False])
def test_an_interval_is_called_paired_where_it_is(paired: bool, tmp_path: Path) -> None:
    found = defence()
    losses = [one["loss"] for reported in found["defences"].values() for one in reported["attacks"].values()]
    for loss in losses:
        loss["paired"] = True
    losses[-1]["paired"] = paired
    shown = page(tmp_path, found)
    assert ("Differences are paired by study." in shown) is paired
    assert ("wider than a paired one" in shown) is not paired


def test_the_watermark_shows_z_p_n_and_what_a_test_needs(tmp_path: Path) -> None:
    shown = page(tmp_path, defence())
    part = shown[shown.index("Test for the watermark") : shown.index("what each attacker did")]
    marked = re.search(r"<tr><td>victim with the mark</td>.*?</tr>", part)
    assert marked is not None
    for wanted in ("11 (1.000)", ">11<", "+5.74", "&lt; 0.001", ">4<", ">2<"):
        assert wanted in marked[0]
    assert "no sentence in a form that can carry it" in part and "one in 4 by chance" in part


def test_what_attackers_did_and_how_safe_each_is(tmp_path: Path) -> None:
    shown = page(tmp_path, defence())
    assert "blended 0.6 of a radiograph into every image" in shown
    assert "spent 280 queries to find a share that passes; at best 92% passed" in shown
    assert "reworded every answer" in shown and "<td>nothing</td>" in shown
    assert re.search(r"<tr><td>gate</td><td class=number>299</td><td class=number>1.0%</td>", shown)


def test_a_file_with_little_in_it_makes_a_page(tmp_path: Path) -> None:
    shown = page(tmp_path, {"victim": "builtin:reporter", "defences": {"gate": {}}})
    assert "? not measured" in shown
    assert ("Security review" in shown) is False and ("Test for the watermark" in shown) is False
