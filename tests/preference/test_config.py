from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tables import every_row

from cxrlab.core.errors import ConfigError
from cxrlab.models.decoding import Decoding
from cxrlab.preference.config import JudgeConfig, PairConfig, SampleConfig, Validation

HERE = Path("here")


def test_the_settings_of_sampling_become_those_of_decoding() -> None:
    config = SampleConfig("m", HERE, answers=3, temperature=0.5, top_p=0.9, max_new_tokens=20, seed=11)
    wanted = {"temperature": 0.5, "top_p": 0.9, "answers": 3, "max_new_tokens": 20, "seed": 11}
    assert config.decoding == Decoding(strategy="sample", **wanted)  # type: ignore[arg-type]


@every_row(
    ("changes", "message"),
    [
        ({"split": "test"}, "split='test' is kept for measuring: .* use train or val"),
        ({"split": "vall"}, "split='vall' is unknown. Did you mean 'val'"),
        ({"n": 0}, "n=0 is not usable; give a whole number of at least 1"),
        ({"answers": 0}, "answers=0 is not usable"),
        ({"max_new_tokens": 0}, "max_new_tokens=0 is not usable"),
        ({"batch_size": 0}, "batch_size=0 is not usable"),
        ({"seed": -1}, "seed=-1 is not usable; give a whole number of at least 0"),
        ({"temperature": 0.0}, "temperature=0.0 is not usable; give a number above 0"),
        ({"temperature": float("nan")}, "temperature=nan is not usable"),
        ({"top_p": 0.0}, "top_p=0.0 is not usable; give a share above 0 up to 1"),
        ({"top_p": 1.5}, "top_p=1.5 is not usable"),
    ],
)
def test_what_cannot_be_sampled_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SampleConfig(**{"model": "m", "data": HERE, **changes})


@pytest.mark.parametrize("split", ["train", "val"])
def test_both_other_splits_may_be_sampled(split: str) -> None:
    assert SampleConfig("m", HERE, split=split).split == split


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"candidates": ()}, "candidates is empty; name at least one run"),
        ({"candidates": (Path("a"), Path("b"), Path("a"))}, "candidates names a twice; name it once"),
        ({"seed": -1}, "seed=-1 is not usable"),
    ],
)
def test_what_cannot_be_judged_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        JudgeConfig(**{"candidates": (HERE,), "data": HERE, **changes})


@every_row(
    ("changes", "message"),
    [
        ({}, "give one source of pairs: --rewards RUN, or --feedback FILE with --data CORPUS"),
        ({"rewards": HERE, "feedback": HERE, "data": HERE}, "give one source of pairs"),
        ({"feedback": HERE}, "--feedback needs --data beside it"),
        ({"rewards": HERE, "data": HERE}, "--data needs --feedback beside it"),
        ({"rewards": HERE, "minor_weight": 0.2}, "--minor-weight applies to error counts of readers"),
        ({"rewards": HERE, "pairs": 0}, "pairs=0 is not usable"),
        ({"rewards": HERE, "seed": -1}, "seed=-1 is not usable"),
        ({"rewards": HERE, "margin": -0.1}, "margin=-0.1 is not usable; give a number of at least 0"),
        ({"feedback": HERE, "data": HERE, "minor_weight": -1.0}, "minor_weight=-1.0 is not usable"),
        ({"rewards": HERE, "longest_ratio": 0.0}, "longest_ratio=0.0 is not usable; give a number above 0"),
    ],
)
def test_what_cannot_be_paired_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PairConfig(**changes)


def test_patience_needs_validations_that_select_a_step() -> None:
    assert Validation(every=5, patience=2).patience == 2
    for wrong in ({"patience": 2}, {"every": 5, "patience": 0}, {"every": 0}):
        with pytest.raises(ConfigError):
            Validation(**wrong)  # type: ignore[arg-type]
    for select, n in (("last", 9), ("reward", 0)):
        with pytest.raises(ConfigError, match="patience=2 needs validations"):
            Validation(every=5, patience=2, select=select, n=n)  # type: ignore[arg-type]
