from __future__ import annotations

import typing

import pytest

from cxrlab.core.config import parameter_hints
from cxrlab.core.errors import ConfigError
from cxrlab.evaluation.config import ScoreConfig
from cxrlab.evaluation.metric_presets import PRESETS, preset_metrics
from cxrlab.evaluation.select_metrics import list_gated_families
from cxrlab.metrics.base import cards

FILES = {name: "given" for name in ("graphs", "encoder", "chexbert", "bert")}


def test_every_metric_of_a_preset_exists_and_states_what_it_needs() -> None:
    """A metric that needs nothing has no condition; a gated one names the flags of its family."""
    gated = {card.name: flags for family, flags in list_gated_families() for card in family.metrics}
    for rows in PRESETS.values():
        assert len({row.label for row in rows}) == len(rows)
        for row in rows:
            assert bool(row.metrics) + bool(row.judge) + bool(row.missing) == 1, row.label
            for name in row.metrics:
                assert name in (gated if row.needs else cards()), name
                assert {f"--{need}" for need in row.needs} == set(gated.get(name, "").split()), name


def test_the_setting_lists_the_presets() -> None:
    hint = parameter_hints(ScoreConfig)["preset"]
    assert typing.get_args(typing.get_args(hint)[0]) == tuple(PRESETS)


def test_files_add_their_metrics() -> None:
    without, whole = preset_metrics("paper", {}), preset_metrics("paper", FILES)
    assert without == ("bleu1:coco", "bleu2:coco", "bleu3:coco", "bleu4:coco", "rougeL:coco", "cider:coco")
    assert set(whole) - set(without) == {
        "bertscore", "radgraph.partial", "radcliq1",
        *(f"chexbert{labels}.{mean}.f1:uncertain-positive" for labels in (14, 5) for mean in ("micro", "macro")),
    }  # fmt: skip
    assert "radgraph.partial" in preset_metrics("paper", {"graphs": "given"})
    assert preset_metrics("paper", {}, ["green:hf:x", "bleu1:coco"])[-1] == "green:hf:x"


def test_a_missing_file_is_named_with_its_flag() -> None:
    rows = {row.label: row.resolve({"graphs": "given"}, ()) for row in PRESETS["paper"]}
    assert rows["RadGraph F1"].metrics == ("radgraph.partial",) and not rows["RadGraph F1"].missing
    assert not rows["RadCliQ-v1"].metrics and "--encoder" in rows["RadCliQ-v1"].missing
    assert "--chexbert FILE" in rows["CheXbert Micro-F1-14"].missing


def test_a_judge_that_was_asked_fills_its_row() -> None:
    row = next(row for row in PRESETS["paper"] if row.judge)
    asked = ("green:rules", "green:hf:model", "green.significant:hf:model")
    assert row.resolve({}, asked).metrics == ("green:hf:model",), "the formula on rules is another metric"
    assert row.resolve({}, ("green:rules",)).missing


def test_a_preset_without_anything_is_refused() -> None:
    with pytest.raises(ConfigError, match="--graphs FILE"):
        preset_metrics("rexrank", {})
