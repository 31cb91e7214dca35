"""ReXVal is credentialed: these files are invented in its format."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from cxrlab.core.errors import ConfigError, DataError, UnknownName
from cxrlab.evaluation.config import ValidateConfig
from cxrlab.evaluation.published_benchmarks import COUNTS, REPORTS, read_rexval
from cxrlab.evaluation.validate_metrics import run_validation

HEAD = ("study_number", "candidate_type", "error_category", "rater_index", "clinically_significant", "num_errors")
TRUTH = "Large right pneumothorax. Small left pleural effusion. The heart is enlarged."
STUDIES = [
    ("50111", TRUTH, TRUTH, "Large right pneumothorax. Small left pleural effusion."),
    ("50222", TRUTH, "Large right pneumothorax.", "The lungs are clear."),
]


def written(root: Path, names: tuple[str, str] = ("0", "1"), rows: list[tuple[object, ...]] | None = None) -> Path:
    """Two studies of two candidates; four raters count one error for each sentence that is missing."""
    with (root / REPORTS).open("w", newline="") as stream:
        csv.writer(stream).writerows([("study_id", "gt_report", "radgraph", "bleu"), *STUDIES])
    if rows is None:
        missing = {(names[0], "radgraph"): 0, (names[0], "bleu"): 1, (names[1], "radgraph"): 2, (names[1], "bleu"): 4}
        rows = [
            (
                study,
                kind,
                category,
                rater,
                significant,
                number if category == 2 and significant == "True" else rater % 2,
            )
            for (study, kind), number in missing.items()
            for category in (1, 2)
            for rater in range(4)
            for significant in ("True", "False")
        ]
    with (root / COUNTS).open("w", newline="") as stream:
        csv.writer(stream).writerows([HEAD, *rows])
    return root


@pytest.mark.parametrize("names", [("0", "1"), ("50111", "50222")])
def test_counts_are_summed_by_candidate_and_rater(tmp_path: Path, names: tuple[str, str]) -> None:
    """Studies are named by their row or their id. Raters 1 and 3 count one more in each of three other cells."""
    data = read_rexval(written(tmp_path, names))
    assert [pair.id for pair in data.pairs] == ["0:radgraph", "0:bleu", "1:radgraph", "1:bleu"]
    assert data.raters == ("0", "1", "2", "3")
    assert data.significant.tolist() == [[0, 1, 0, 1], [1, 2, 1, 2], [2, 3, 2, 3], [4, 5, 4, 5]]
    assert data.total.tolist() == [[0, 3, 0, 3], [1, 4, 1, 4], [2, 5, 2, 5], [4, 7, 4, 7]]


def test_a_metric_with_fewer_words_right_where_more_errors_were_counted_has_tau_one(tmp_path: Path) -> None:
    config = ValidateConfig(
        "rexval", written(tmp_path), metrics=("rouge1:google", "errors.total", "errors.significant"), trials=50
    )
    found = run_validation(config)
    row = found["metrics"]["rouge1:google"]
    assert row["tau"] == row["tau_significant"] == pytest.approx(1.0) and row["n"] == 4
    assert (found["n"], found["studies"]) == (4, 2)
    assert found["ceiling"]["leave_one_out_tau"] == pytest.approx([1.0] * 4)
    table = found["raters"]["significant"]
    assert table["judge"] == "errors.significant" and set(table["by_rater"]) == {"0", "1", "2", "3"}
    # Rater 0 against the mean of 1, 2, 3, who count 2/3 more on average.
    assert table["by_rater"]["0"]["rater_difference"] == pytest.approx(2 / 3)


def test_graphs_of_the_user_are_measured_beside_the_other_metrics(tmp_path: Path) -> None:
    """Every word an entity: fewer words right where more errors were counted, so the order is the raters'."""
    root = written(tmp_path)
    texts = {text for study in STUDIES for text in study[1:]}
    graphs = [
        {"text": text, "entities": {str(n): entity(word) for n, word in enumerate(text.split())}} for text in texts
    ]
    (tmp_path / "graphs.json").write_text(json.dumps(graphs))
    names = ("rouge1:google", "radgraph.simple")
    config = ValidateConfig("rexval", root, metrics=names, trials=10, graphs=tmp_path / "graphs.json")
    found = run_validation(config)["metrics"]
    assert set(found) == set(names) and found["radgraph.simple"]["tau"] == pytest.approx(1.0)
    with pytest.raises(UnknownName, match="'radcliq1' needs --graphs, --encoder, --chexbert"):
        run_validation(replace(config, metrics=("radcliq1",)))
    with pytest.raises(ConfigError, match="phantom uses no --graphs"):
        replace(config, benchmark="phantom")


def entity(word: str) -> dict[str, object]:
    return {"tokens": word, "label": "OBS-DP", "start_ix": 0, "end_ix": 0, "relations": []}


def test_the_raters_are_left_out_of_the_table_without_our_counts(tmp_path: Path) -> None:
    found = run_validation(ValidateConfig("rexval", written(tmp_path), metrics=("rouge1:google",), trials=10))
    assert found["raters"] == {}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (("0", "meteor", 1, 0, "True", 1), "no candidate 'meteor'"),
        (("7", "bleu", 1, 0, "True", 1), "no study '7' among the 2"),
        (("0", "bleu", 1, 0, "maybe", 1), "'clinically_significant' is 'maybe'"),
        (("0", "bleu", 1, 0, "True", "many"), "'num_errors' is 'many'"),
        (("0", "bleu", 1, 0, "True", -1), "'num_errors' is '-1'"),
        (("0", "bleu", 1, "", "True", 1), "'rater_index' is empty"),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_its_line(tmp_path: Path, row: tuple[object, ...], said: str) -> None:
    with pytest.raises(DataError, match=f"csv:2: .*{said}"):
        read_rexval(written(tmp_path, rows=[row]))


def test_another_layout_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    (tmp_path / COUNTS).write_text("study_number,candidate_type\n0,bleu\n")
    with pytest.raises(DataError, match="no column 'rater_index'"):
        read_rexval(tmp_path)
    written(tmp_path)
    (tmp_path / REPORTS).write_text("study_id,gt_report\n1,x\n")
    with pytest.raises(DataError, match="no column with candidates"):
        read_rexval(tmp_path)
