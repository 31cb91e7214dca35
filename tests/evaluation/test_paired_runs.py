from __future__ import annotations

import json
from pathlib import Path

import pytest
from scored import batch, scored
from tallies import mean

from cxrlab.core.errors import ConfigError, DataError
from cxrlab.evaluation.compare import compare


def test_metrics_computed_differently_are_refused_with_the_reason(tmp_path: Path) -> None:
    pairs = batch(["x", "y"])
    first = scored(tmp_path / "a", pairs, [mean([1, 2]), mean([1, 2], "mine")])
    with Path(tmp_path / "a" / "tallies.json").open() as file:
        index = json.load(file)
    index["metrics"]["mean"]["signature"] = index["metrics"]["mean"]["signature"].replace("case:lower", "case:mixed")
    (tmp_path / "a" / "tallies.json").write_text(json.dumps(index))
    second = scored(tmp_path / "b", pairs, [mean([1, 2]), mean([1, 2], "shared"), mean([1, 2], "mine")])
    result = compare([first, second])
    assert [one.metric for one in result.metrics] == ["mine"]
    assert result.refused["mean"] == "computed with case:mixed and with case:lower"
    assert result.refused["shared"] == f"not in {first}"
    assert "not compared: mean" in result.text()
    with pytest.raises(ConfigError, match="'mean' cannot be compared: computed with"):
        compare([first, second], noninferior={"mean": 0.1})
    with pytest.raises(ConfigError, match="no run holds a metric 'mena'.* Did you mean 'mean'"):
        compare([first, second], metrics=["mena"])


def test_runs_that_disagree_on_what_is_better_are_not_compared(tmp_path: Path) -> None:
    """The direction decides every verdict and gate; a file in which it was turned must not."""
    first = scored(tmp_path / "a", batch(["x", "y"]), [mean([1, 2]), mean([1, 2], "other")])
    second = scored(tmp_path / "b", batch(["x", "y"]), [mean([1, 2], direction="lower"), mean([1, 2], "other")])
    assert "lower in the other" in compare([first, second]).refused["mean"]


def test_groups_of_metrics_are_known_by_the_names_that_score_knows(tmp_path: Path) -> None:
    tallies = [mean([1, 2], name) for name in ("bleu1:coco", "rougeL:coco", "rougeL:google")]
    runs = [scored(tmp_path / name, batch(["x", "y"]), tallies) for name in "ab"]
    assert [one.metric for one in compare(runs, metrics=["coco"]).metrics] == ["bleu1:coco", "rougeL:coco"]
    assert [one.metric for one in compare(runs, metrics=["*:google"]).metrics] == ["rougeL:google"]
    with pytest.raises(ConfigError, match=r"They hold: 3 \(bleu1:coco, rougeL:coco, rougeL:google\)"):
        compare(runs, metrics=["sacre"])


def test_nothing_in_common_is_an_error(tmp_path: Path) -> None:
    first = scored(tmp_path / "a", batch(["x"]), [mean([1], "one")])
    second = scored(tmp_path / "b", batch(["x"]), [mean([1], "two")])
    with pytest.raises(DataError, match="share no metric .*one: not in"):
        compare([first, second])


def test_other_studies_are_refused_with_count_and_examples(tmp_path: Path) -> None:
    first = scored(tmp_path / "a", batch(list("vwxyz")), [mean([1] * 5)])
    second = scored(tmp_path / "b", batch(list("z1")), [mean([1] * 2)])
    with pytest.raises(DataError, match=r"4 \(v, w, x, …\) only in the first, 1 \(1\) only in the second"):
        compare([first, second])


def test_other_references_are_refused(tmp_path: Path) -> None:
    first = scored(tmp_path / "a", batch(["x"]), [mean([1])])
    second = scored(tmp_path / "b", batch(["x"], reference="Other {}."), [mean([1])])
    with pytest.raises(DataError, match="different reference texts"):
        compare([first, second])


def test_other_patients_are_refused(tmp_path: Path) -> None:
    """Otherwise the unit of the test would hang on which run comes first."""
    first = scored(tmp_path / "a", batch(["x", "y"], ["p", "p"]), [mean([1, 2])])
    second = scored(tmp_path / "b", batch(["x", "y"]), [mean([1, 2])])
    with pytest.raises(DataError, match="which patient a study belongs to"):
        compare([first, second])


def test_a_pattern_takes_what_can_be_compared(tmp_path: Path) -> None:
    """`b*` finds b1 in both runs and b2 in one; a gate's metric comes along though the pattern leaves it out."""
    pairs = batch(["x", "y"])
    first = scored(tmp_path / "a", pairs, [mean([1, 2], "b1"), mean([1, 2], "b2"), mean([1, 2], "c")])
    second = scored(tmp_path / "b", pairs, [mean([1, 3], "b1"), mean([1, 2], "c"), mean([1, 2], "d")])
    result = compare([first, second], noninferior={"c": 0.1}, metrics=["b*"])
    assert [one.metric for one in result.metrics] == ["b1", "c"]
    assert list(result.refused) == ["b2"], "d was not asked for"
    with pytest.raises(ConfigError, match="'b2' cannot be compared"):
        compare([first, second], metrics=["b2"])
    with pytest.raises(ConfigError, match="no run holds a metric 'x\\*'"):
        compare([first, second], metrics=["x*"])
