"""Pages of scored and compared runs, from files made by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pages import page_of

from cxrlab.core.errors import DataError
from cxrlab.core.runs import Run
from cxrlab.render.run_folder import SHOWN_STUDIES, ScoredStudies, evenly_spaced, read_run, read_studies

REFERENCE = "Small <left> effusion. No pneumothorax."
CANDIDATE = "Small right effusion. Nodule."
ERRORS = [
    {"kind": "incorrect_location", "significant": True, "observation": "pleural effusion", "reference_span": [0, 21],
     "candidate_span": [0, 20], "detail": "right instead of left"},
    {"kind": "false_positive_finding", "significant": False, "observation": "nodule", "reference_span": None,
     "candidate_span": [22, 28]},
]  # fmt: skip


def metric(value: float | None, **changes: Any) -> dict[str, Any]:
    known = {
        "low": value,
        "high": value,
        "n": 3,
        "undefined": 0,
        "direction": "higher",
        "range": [0, 1],
        "signature": "s|v:1",
    }
    return {"value": value, **known, **changes}


def scored(folder: Path, name: str, metrics: dict[str, Any], rows: list[dict[str, Any]], **more: Any) -> Path:
    with Run.open(folder / name, {"references": "r", "level": 0.9}, seed=7) as run:
        run.write("scores.json", {"n": len(rows), "metrics": metrics, "floors": {}, "slices": {}, **more})
        run.write("per_study.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    return folder / name


def row(key: str, errors: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    return {"id": key, "reference": REFERENCE, "candidate": CANDIDATE, "errors": errors, **changes}


def page(*runs: Path) -> str:
    return page_of(*runs, out=runs[0] / "page.html")


def test_a_scored_run_shows_numbers_floors_errors_and_marked_words(tmp_path: Path) -> None:
    metrics = {
        "clinical:rules": metric(0.5, low=0.25, high=0.75),
        "other": metric(None, low=None, high=None, undefined=3),
    }
    floors = {"empty": {"clinical:rules": 0.1, "other": None}, "shuffled": {"clinical:rules": 0.3, "other": None}}
    shown = page(scored(tmp_path, "run", metrics, [row("a", ERRORS), row("b", [])], floors=floors))
    assert "0.500" in shown and "0.250–0.750" in shown and "90 % interval" in shown
    assert "0.300 <span class=later>shuffled</span>" in shown and "left:30.0%" in shown, "the best floor is the tick"
    assert "1 more metrics" in shown and "(3 undefined)" in shown and "s|v:1" in shown
    assert "<mark class=significant>Small &lt;left&gt; effusion</mark><sup>1</sup>" in shown, "escaped and marked"
    assert "<mark class=significant>Small right effusion</mark><sup>1</sup>. <mark>Nodule</mark><sup>2</sup>." in shown
    assert "right instead of left" in shown and "no error found" in shown
    assert "<script" not in shown and "http://" not in shown


def test_a_lower_is_better_metric_has_the_lowest_floor_and_an_open_scale(tmp_path: Path) -> None:
    """The scale of a metric without an upper bound ends a little above what has to fit on it."""
    metrics = {"errors.significant": metric(2.0, low=1.0, high=3.0, direction="lower", range=[0, None])}
    floors = {"empty": {"errors.significant": 4.0}, "shuffled": {"errors.significant": 2.5}}
    shown = page(scored(tmp_path, "run", metrics, [row("a", [])], floors=floors))
    assert "2.500 <span class=later>shuffled</span>" in shown and "errors.significant ↓" in shown
    assert f"left:{100 * 2.0 / (3.0 * 1.05):.1f}%" in shown


def test_two_runs_stand_side_by_side(tmp_path: Path) -> None:
    one = scored(tmp_path, "one", {"clinical:rules": metric(0.5)}, [row("a", ERRORS)])
    two = scored(tmp_path, "two", {"clinical:rules": metric(0.7), "rougeL:google": metric(0.2)}, [row("a", [])])
    shown = page(one, two)
    assert "<th>one</th><th>two</th>" in shown and "0.500" in shown and "0.700" in shown
    assert "false finding" in shown


def test_judges_that_were_asked_stand_among_the_first_with_what_could_be_read(tmp_path: Path) -> None:
    name = "chexprompt:http://127.0.0.1:8000/v1#m"
    metrics = {"green:rules": metric(0.5), "bleu2:coco": metric(0.1), name: metric(2.0, direction="lower")}
    reported = {name: {"asked": 9, "parsed": 6, "partial": 0, "failed": 3, "reasons": {"the model refuses": 3}}}
    one, other = (scored(tmp_path, run, metrics, [], judges=reported) for run in ("one", "other"))
    alone, both = page(one), page(one, other)
    assert alone.index(name) < alone.index("1 more metrics") < alone.index("Judges by language models</h4>")
    assert "the model refuses" in alone
    assert "Judges by language models, one</h4>" in both and "Judges by language models, other</h4>" in both


def test_runs_of_other_references_keep_their_own_floors(tmp_path: Path) -> None:
    """The floor belongs to the references: that of the first run says nothing of the second."""
    one, two, same = (
        scored(
            tmp_path,
            name,
            {"clinical:rules": metric(0.5)},
            [row("a", [])],
            floors={"empty": {"clinical:rules": floor}},
        )
        for name, floor in (("one", 0.1), ("two", 0.3), ("same", 0.1))
    )
    mark = "<span class=later>empty</span>"
    assert f"0.100 {mark}</span><br><span class=figure>0.300 {mark}" in page(one, two)
    assert page(one, same).count(f"0.100 {mark}") == 1


@pytest.mark.parametrize(
    ("file", "way", "wrong", "said"),
    [
        ("scores.json", ("metrics", "clinical:rules", "low"), "x", "'metrics.*low' is 'x'; it must be a number"),
        ("scores.json", ("metrics", "clinical:rules"), 3, "'metrics.clinical:rules' is 3; it must be an object"),
        ("scores.json", ("metrics", "clinical:rules"), {}, "'clinical:rules' has no 'value'"),
        ("scores.json", ("floors", "empty", "clinical:rules"), [1], "must be a number or null"),
        ("scores.json", ("slices",), [1], "'slices' is .*must be an object"),
        ("comparison.json", ("runs",), 3, "'runs' is 3; it must be a list"),
        ("comparison.json", ("metrics", "m", "against"), "x", "must be an object"),
        ("validation.json", ("metrics", "m", "tau"), "x", "must be a number or null"),
    ],
)  # fmt: skip
def test_a_word_where_a_number_belongs_is_named(
    tmp_path: Path, file: str, way: tuple[str, ...], wrong: Any, said: str
) -> None:
    folder = scored(tmp_path, "run", {"clinical:rules": metric(0.5)}, [row("a", [])], floors={"empty": {}})
    value: dict[str, Any] = {}
    if file == "scores.json":
        value = json.loads((folder / file).read_text())
    inner = value
    for key in way[:-1]:
        inner = inner.setdefault(key, {})
    inner[way[-1]] = wrong
    (folder / file).write_text(json.dumps(value))
    with pytest.raises(DataError, match=f"{file}: .*{said}"):
        page(folder)
    assert not (folder / "page.html").exists()


def test_slices_of_the_first_headline_metric(tmp_path: Path) -> None:
    slices = {"view=AP": {"clinical:rules": {"value": 0.4, "low": 0.3, "high": 0.6, "n": 12, "small": True}}}
    shown = page(scored(tmp_path, "run", {"clinical:rules": metric(0.5)}, [row("a", [])], slices=slices))
    assert "view=AP" in shown and "12 <span class=later>(few)</span>" in shown and "0.400" in shown


def test_a_comparison_shows_differences_and_gates(tmp_path: Path) -> None:
    against = {
        "a": 0.5, "b": 0.6, "difference": 0.1, "low": 0.05, "high": 0.15, "p_holm": 1e-4, "verdict": "better",
        "by_study": {"win": 5, "tie": 2, "lose": 1},
    }  # fmt: skip
    found = {
        "runs": ["base", "new"],
        "baseline": "base",
        "metrics": {
            "clinical:rules": {"direction": "higher", "against": {"new": against}},
            "findings.f1": {"direction": "higher", "against": {"new": {**against, "low": None, "high": None}}},
        },
        "gates": [
            {"run": "new", "shown": True, "sentence": "non-inferior <b>"},
            {"run": "<new>", "shown": False, "sentence": "not shown"},
            {"run": "few", "shown": False, "verdict": "not established", "sentence": "20 patients"},
        ],
    }
    with Run.open(tmp_path / "run", {"runs": ["base", "new"]}, seed=7) as run:
        run.write("comparison.json", found)
    shown = page(tmp_path / "run")
    assert "new against base" in shown and "5 / 2 / 1" in shown and "0.050 to 0.150" in shown
    assert "<span class=here>better</span>" in shown
    assert "Gate <span class=here>passed</span> for new: non-inferior &lt;b&gt;" in shown
    assert "Gate <span class=bad>failed</span> for &lt;new&gt;: not shown" in shown
    assert "Gate <span class=bad>not established</span> for few: 20 patients" in shown, "as compare words it"
    assert "0.100 <span class=later>–</span>" in shown and "– to –" not in shown
    assert "<td>&lt; 0.001</td>" in shown  # 1e-4 is not 0


def test_overlapping_spans_and_spans_beyond_the_text_are_shown_once(tmp_path: Path) -> None:
    errors = [
        {"kind": "omission_finding", "significant": False, "observation": "nodule", "reference_span": [0, 10]},
        {"kind": "omission_finding", "significant": True, "observation": "mass", "reference_span": [5, 999]},
    ]
    shown = page(
        scored(tmp_path, "run", {"x": metric(1.0)}, [row("a", errors, reference="0123456789abc", candidate=None)])
    )
    assert (
        "<mark>01234</mark><mark class=significant>56789</mark><sup>1</sup><mark class=significant>abc</mark><sup>2</sup>"
        in shown
    )
    assert "(no words)" in shown


def test_studies_from_the_fewest_errors_to_the_most(tmp_path: Path) -> None:
    """Nine studies with 8, 7, … 0 significant errors: the shown ones begin with the best and end with the worst."""
    rows = [row(f"s{count}", [ERRORS[0]] * count) for count in range(8, -1, -1)]
    rows.append(row("none", ERRORS, reference=None))
    found = read_run(scored(tmp_path, "run", {"x": metric(1.0)}, rows)).scored
    assert [study.id for study in found.studies] == ["s0", "s2", "s3", "s5", "s6", "s8"]
    assert sum(found.kinds.values()) == sum(range(9)) + 2 and len(found.studies) == SHOWN_STUDIES


def test_even_distances() -> None:
    assert evenly_spaced("abc", 6) == ["a", "b", "c"]
    assert evenly_spaced("abcdefghijk", 3) == ["a", "f", "k"]


def test_a_run_that_did_not_score_has_none(tmp_path: Path) -> None:
    assert read_studies(tmp_path) == ScoredStudies()


@pytest.mark.parametrize(
    ("scores", "line", "said"),
    [
        ({}, "{}", "holds no 'metrics'"),
        ({"metrics": {}}, '{"id": "a", "errors": 3}', "per_study.jsonl:1: 'errors' is 3"),
        ({"metrics": {}}, '{"id": "a", "errors": [{"kind": "odd"}]}', "per_study.jsonl:1: "),
    ],
)
def test_files_that_were_damaged_are_named(tmp_path: Path, scores: Any, line: str, said: str) -> None:
    run = scored(tmp_path, "run", {"x": metric(1.0)}, [])
    (run / "scores.json").write_text(json.dumps(scores))
    (run / "per_study.jsonl").write_text(line + "\n")
    with pytest.raises(DataError, match=said):
        read_run(run)
