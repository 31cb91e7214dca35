"""Extractions on a page, alone and side by side."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from extraction_results import AFTER, FINDINGS, extraction, extraction_run, map_json, measure, pair
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.render.drawing import Drawing
from cxrlab.render.extraction import copies_by_victim, copies_curve, copies_forest, sentence_map
from cxrlab.render.page import svg_file
from cxrlab.render.run_folder import read_runs

OPTIONS = extraction()["options"]
NASTY = "<script>alert(1)</script>"


def page(*runs: Path) -> str:
    return page_of(*runs)


def one(folder: Path, pairs: tuple[dict[str, Any], ...] = (), **changed: Any) -> str:
    return page(extraction_run(folder / "run", extraction(**changed), pairs))


def in_order(shown: str, *words: str) -> None:
    places = [shown.index(word) for word in words]
    assert places == sorted(places)


def test_threat_model_then_authorisation_then_headline(tmp_path: Path) -> None:
    shown = one(tmp_path, authorised=f"Dr Owner {NASTY}")
    order = [
        "Threat model.",
        "may spend 1500 queries",
        "Authorisation.",
        "Dr Owner &lt;script",
        "</b> the copy reaches",
        "Victim and copy",
    ]
    in_order(shown, *order, "Variety of the transcript")
    assert (NASTY in shown) is False and ("http://" in shown) is False
    assert "None is recorded" in one(tmp_path / "other")


def test_the_headline_is_the_ratio_with_its_interval_and_says_that_a_floor_is_missing(tmp_path: Path) -> None:
    shown = one(tmp_path)  # 0.45 of 0.9
    assert (
        "With <b>1,500 queries</b> the copy reaches <b>0.500 (0.440 to 0.560)</b> of the victim's findings F1." in shown
    )
    assert "Findings F1 of the copy: 0.450 (0.400 to 0.500)." in shown
    assert "Findings F1 of the victim: 0.900 (0.860 to 0.940); 40 studies of 38 patients" in shown
    assert (
        "The floor is shown when a run of the same surrogate with method none" in shown and "No price was set." in shown
    )


def test_a_price_is_reported_where_one_was_set_and_is_a_lower_bound_where_tokens_are_unknown(tmp_path: Path) -> None:
    paid = {"amount": 30.5, "currency": "EUR", "unknown": 0}
    price = {"per_query": 0.02, "per_1k_tokens": 0.0, "currency": "EUR"}
    shown = page(extraction_run(tmp_path / "a", extraction(cost=paid), price=price))
    assert "Price: 30.50 EUR." in shown and ("No price was set" in shown) is False
    assert "at least 30.50 EUR" in page(
        extraction_run(tmp_path / "b", extraction(cost={**paid, "unknown": 2}), price=price)
    )


def test_victim_copy_ratio_and_fidelity_stand_in_one_row(tmp_path: Path) -> None:
    shown = one(tmp_path)
    row = re.search(r"<tr><td>findings F1&nbsp;↑</td>.*?</tr>", shown)
    assert row is not None
    for wanted in ("0.900", "0.860 to 0.940", "0.450", "0.500<br>", "0.440 to 0.560", "0.470", ">40<"):
        assert wanted in row[0]
    rouge = re.search(r"<tr><td>ROUGE-L&nbsp;↑</td>.*?</tr>", shown)
    assert rouge is not None and "interval unknown" in rouge[0]
    folded = shown[shown.index("other metrics") : shown.index("Over the queries")]
    assert "CRIMSON by rules" in folded and "may be negative" in folded and ("-0.250" in folded) is False
    assert "1 metrics not counted" in shown


def test_variety_by_round_and_findings(tmp_path: Path) -> None:
    shown = one(tmp_path)
    part = shown[shown.index("Variety of the transcript") :]
    for wanted in ("round 0", "round 1", "<b>all</b>", "0.20 to 0.40", "0.70 to 0.90", "30.0 to 32.5", ">290<"):
        assert wanted in part


def test_a_label_without_support_has_no_score(tmp_path: Path) -> None:
    shown = one(tmp_path)
    edema, fracture = (re.search(rf"<tr><td>{name}</td>.*?</tr>", shown) for name in ("Edema", "Fracture"))
    assert edema is not None and edema[0].count("0.500") == 3 and ">12<" in edema[0] and ">9<" in edema[0]
    assert fracture is not None and ("0.000" in fracture[0]) is False and ">3<" in fracture[0]


def test_pairs_show_both_pictures_new_findings_and_what_was_wanted(tmp_path: Path) -> None:
    shown = one(tmp_path, (pair(wanted=f"Wide heart. {NASTY}"),))
    part = shown[shown.index("Perturbed images") :]
    assert part.count("data:image/png;base64,") == 2 and "<mark class=new>Marked cardiomegaly</mark>" in part
    in_order(
        part,
        "before it was perturbed",
        "after it was perturbed",
        "Wide heart. &lt;script",
        "Lungs are clear.",
        "cardiomegaly",
    )


def test_a_lost_picture_and_a_pair_without_marks_are_shown_as_what_is_there(tmp_path: Path) -> None:
    folder = extraction_run(tmp_path / "run", extraction(), (pair(spans=None),))
    (folder / "pictures" / f"{AFTER}.png").unlink()
    shown = page(folder)
    assert shown.count("data:image/png;base64,") == 1 and ("Marks:" in shown) is False


def test_a_picture_that_was_never_sent_as_it_was_stands_alone(tmp_path: Path) -> None:
    shown = one(tmp_path, (pair(before=None, spans={}),))
    assert shown.count("data:image/png;base64,") == 1 and "shown alone" in shown
    assert "the victim, after" in shown and ("the victim, before" in shown) is False
    assert ("stands alone" in one(tmp_path / "both", (pair(),))) is False


def test_a_picture_outside_the_run_folder_is_refused(tmp_path: Path) -> None:
    folder = extraction_run(tmp_path / "run", extraction(), (pair(before={"sha256": "../../x", "report": "Clear."}),))
    (tmp_path / "x.png").write_bytes(b"secret")
    with pytest.raises(DataError, match="outside the run folder"):
        page(folder)


def test_the_map_states_each_sentence_and_what_it_is_worth(tmp_path: Path) -> None:
    found = sentence_map(map_json())
    assert found is not None and sentence_map({"rows": []}) is None
    drawn = svg_file(found.drawing)
    assert "<title>clean, round 0: No &lt;b&gt;edema&lt;/b&gt;. (× 4)</title>" in drawn
    assert drawn.count("<circle") == 1 and drawn.count("<polygon") == 1  # one untouched, one moved
    shown = one(tmp_path, (pair(),))
    assert "2 different sentences by tf-idf of words" in shown and "trustworthiness 0.91 of 1" in shown
    assert "5 more were left out" in shown and "on perturbed images" in shown


def test_a_run_without_map_examples_and_curve_has_neither(tmp_path: Path) -> None:
    shown = one(tmp_path, curve={}, transcript={}, observations={}, options={}, left_out={})
    for absent in (
        "Map of the victim",
        "Perturbed images",
        "Over the queries",
        "Variety",
        "labels one by one",
        "Options",
    ):
        assert (absent in shown) is False
    assert "Victim and copy" in shown


def test_warnings_say_what_takes_the_ground_from_the_figures(tmp_path: Path) -> None:
    shown = one(tmp_path, spent=300, budget=1500, refused=300, lost=3, untouched="every answer was refused")
    assert "Nothing was learned (every answer was refused)" in shown
    assert "300 of 300 queries were refused." in shown and "3 queries brought no answer" in shown
    assert "Only 300 of 1,500 queries were spent." in shown
    said = {**extraction()["transcript"], "n": 100, "silent": 11}
    assert "11 of 100 answers contain no statement" in one(tmp_path / "other", transcript=said)
    assert ("Warning." in one(tmp_path / "third")) is False


def test_options_of_another_method_are_not_shown_as_if_they_counted(tmp_path: Path) -> None:
    shown = one(tmp_path, method="knockoff")
    assert "Without an effect in knockoff: eps, oracle." in shown and ("<dt>eps</dt>" in shown) is False
    assert "<dt>eps</dt><dd>0.2</dd>" in one(tmp_path / "other")


def svg(drawing: Drawing | None) -> str:
    assert drawing is not None
    return svg_file(drawing)


def _several(folder: Path) -> list[Path]:
    return [
        extraction_run(folder / "none", extraction("none", 0.05, 0)),
        extraction_run(folder / "kn", extraction("knockoff", 0.09)),
        extraction_run(folder / "weak", extraction(copy=0.31, options={**OPTIONS, "eps": "0.05"})),
        extraction_run(folder / "strong", extraction()),
    ]


def test_runs_of_one_victim_stand_side_by_side_with_their_floor(tmp_path: Path) -> None:
    shown = page(*_several(tmp_path))
    assert shown.count("Victim: builtin:reporter") == 1 and shown.count("Threat model.") == 1
    beside = shown[shown.index("Runs side by side") :]
    for name in ("no query", "knockoff, scenes", "ada-steal, scenes, eps 0.05", "ada-steal, scenes, eps 0.2"):
        assert f"<b>{name}</b>" in beside and f"<summary>{name}</summary>" in beside
    assert "reaches 0.050 (0.000 to 0.100): the copy is above it" in shown  # 0.26 and more
    assert shown.count("the copy is not shown to be above it") == 1  # Knockoff: 0.04 to 0.14
    assert "The untrained surrogate reaches <b>0.056" in shown and ("The floor is shown where" in shown) is False
    assert ("Nothing was learned" in shown) is False  # a run without a query is meant to learn nothing


def test_the_curve_begins_with_the_untouched_surrogate_and_shows_the_victim(tmp_path: Path) -> None:
    copies = copies_by_victim(read_runs(_several(tmp_path)))[0]
    drawn = svg(copies_curve(copies))
    assert "ada-steal, scenes, eps 0.2, queries 0: 0.050 (0.000 to 0.100)" in drawn
    assert "knockoff, scenes, queries 1500: 0.090 (0.040 to 0.140)" in drawn
    assert "the victim, queries 1500: 0.900 (0.860 to 0.940)" in drawn
    rows = svg(copies_forest(copies))
    assert rows.count("<circle") == 4 and "victim 0.900" in rows and "0.450 (0.400 to 0.500)" in rows
    assert copies_forest(copies[:1]) is copies_curve(copies[:1]) is None


def test_other_victims_and_other_surrogates_are_kept_apart(tmp_path: Path) -> None:
    other = extraction_run(tmp_path / "other", extraction(), victim="hf:/a/long/way/to/models/mine")
    shown = page(extraction_run(tmp_path / "first", extraction()), other)
    assert "Victim: builtin:reporter" in shown and "Victim: hf:…/mine" in shown
    floor = extraction_run(tmp_path / "none", extraction("none", 0.05, 0, options={**OPTIONS, "surrogate": "hf:b"}))
    copies = copies_by_victim(read_runs([tmp_path / "first", floor]))[0]
    assert [one.floor for one in copies] == [None, None]


def test_runs_that_differ_in_the_seed_alone_are_distinguished(tmp_path: Path) -> None:
    runs = [extraction_run(tmp_path / f"s{seed}", extraction(), seed=seed) for seed in (1, 2)]
    same = extraction_run(tmp_path / "again", extraction(), seed=2)
    names = [one.name for one in copies_by_victim(read_runs([*runs, same]))[0]]
    assert names == ["ada-steal, scenes, seed 1", "ada-steal, scenes, seed 2 (s2)", "ada-steal, scenes, seed 2 (again)"]


def test_a_word_for_a_number_is_refused_with_file_and_key(tmp_path: Path) -> None:
    broken = extraction(surrogate={FINDINGS: {**measure(0.5), "value": "much"}})
    with pytest.raises(DataError, match=r"extraction.json: 'surrogate.findings.f1.value'"):
        page(extraction_run(tmp_path / "run", broken))
    folder = extraction_run(tmp_path / "pairs", extraction(), (pair(),))
    (folder / "examples.json").write_text("{}")
    with pytest.raises(DataError, match=r"examples.json: it holds .* must be a list"):
        page(folder)


def test_pages_of_extractions_need_no_torch() -> None:
    code = "import sys, cxrlab.render.page; sys.exit('torch' in sys.modules or 'cxrlab.extraction' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
