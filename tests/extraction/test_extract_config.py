"""The settings of an audit: those of the paper when nothing is said, and a sentence for those that cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tables import every_row

from cxrlab.core.errors import ConfigError
from cxrlab.extraction.config import Alignment, ExtractConfig, Fitting, Policy


def config(**changes: Any) -> ExtractConfig:
    return ExtractConfig("stub:normal", Path("corpus"), **changes)


def test_the_defaults_are_the_papers() -> None:
    found = config()
    assert (found.method, found.budget, found.rounds, found.budget // found.rounds) == ("ada-steal", 1500, 3, 500)
    assert (found.alignment.eps, found.alignment.steps) == ("0.2", 1)
    assert (found.shares.abnormal, found.shares.normal, found.shares.own) == (0.8, 0.1, 0.1)
    for decoding in (found.victim_decoding, found.surrogate_decoding):
        assert (decoding.strategy, decoding.beams, decoding.groups) == ("diverse", 18, 3)
        assert (decoding.diversity_penalty, decoding.max_new_tokens, decoding.answers) == (0.2, 512, 1)
    assert found.fitting.schedule == "constant" and found.fitting.wordings == 1


def test_what_the_paper_leaves_open_has_a_choice() -> None:
    found = config()
    assert (found.alignment.direction, found.alignment.picture) == ("towards", "original")
    assert (found.transcript, found.oracle, found.policy.kind) == ("accumulate", "rules", "random")
    assert (found.blend_chest, found.rewrite, found.accounts, found.defence) == (
        0.0,
        False,
        1,
        None,
    )  # no adaptive attacker


@every_row(
    ("changes", "message"),
    [
        ({"method": "knockof"}, "Did you mean 'knockoff'"),
        ({"oracle": "rulez"}, "Did you mean 'rules'"),
        ({"split": "testing"}, "Choose one of train, val, test"),
        ({"defence": "gat"}, "Did you mean 'gate'"),
        ({"budget": 0}, "budget=0"),
        ({"budget": 10_000_001}, "budget=10000001 .* 10,000,000"),
        ({"budget": 2, "rounds": 3}, "rounds=3 is more than budget=2"),
        ({"method": "in-domain"}, "--pool corpus:DIR"),
        ({"at": (100, 1500)}, "at=1500"),
        ({"at": (0,)}, "at=0"),
        ({"blend_chest": 1.5}, "blend_chest=1.5"),
        ({"size": 4}, "size=4"),
        ({"stop_after_refusals": 0}, "stop_after_refusals=0"),
    ],
)
def test_settings_that_cannot_be_are_reported(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


@every_row(
    ("kind", "changes", "message"),
    [
        (Fitting, {"steps": 0}, "steps=0"),
        (Fitting, {"round_steps": 0}, "round_steps=0"),
        (Fitting, {"learning_rate": 0.0}, "epochs and a rate above 0"),
        (Fitting, {"lora_rank": -1}, "lora_rank"),
        (Alignment, {"eps": "0,2"}, "0,2"),
        (Alignment, {"steps": 0}, "steps=0"),
        (Policy, {"rewards": ("certainti",)}, "Did you mean 'certainty'"),
        (Policy, {"rewards": ()}, "name a reward"),
        (Policy, {"groups": 1}, "at least 2 groups"),
        (Policy, {"rate": 0.0}, "a rate above 0"),
    ],
)
def test_parts_that_cannot_be_are_reported(kind: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        kind(**changes)


def test_a_ceiling_asks_with_images() -> None:
    assert config(method="in-domain", pool="corpus:images").method == "in-domain"
    assert config(method="knockoff", budget=2).rounds == 3  # which Knockoff has no use for
