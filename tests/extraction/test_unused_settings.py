"""Settings that do nothing are named, and those that do something are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.llm_requests import LLMConfig
from cxrlab.extraction.config import (
    Alignment,
    DefenceSettings,
    ExtractConfig,
    Fitting,
    OraclePrompts,
    PaperDecoding,
    Policy,
    Shares,
)
from cxrlab.extraction.preflight import unused_settings

ROUNDS = {
    "rounds": 2,
    "oracle": "none",
    "shares": Shares(1.0, 0.0, 0.0),
    "alignment": Alignment(eps="0.1", steps=5),
    "transcript": "replace",
}


def unused(**changes: Any) -> list[str]:
    return unused_settings(ExtractConfig("stub:normal", Path("corpus"), **changes))


@pytest.mark.parametrize("method", ["none", "knockoff", "ada-steal"])
def test_defaults_are_never_unused(method: str) -> None:
    assert unused(method=method) == []


def test_knockoff_has_no_rounds_to_enrich_and_align() -> None:
    names = ["alignment.eps", "alignment.steps", "oracle", "rounds", "shares.abnormal", "shares.normal", "shares.own"]
    assert unused(method="knockoff", **ROUNDS) == [*names, "transcript"]
    assert unused(method="ada-steal", **{**ROUNDS, "oracle": "rules-weak"}) == []
    assert unused(method="ada-steal", **ROUNDS) == ["shares.abnormal", "shares.normal", "shares.own"]  # no oracle


def test_what_waits_for_another_setting() -> None:
    policy, fitting = Policy(groups=4), Fitting(round_steps=5)
    assert unused(method="ada-steal", policy=policy) == ["policy.groups"]
    assert unused(method="knockoff", fitting=fitting) == ["fitting.round_steps"]
    guided = Alignment(guide="builtin:encoder")  # nothing is trained between rounds
    assert unused(method="ada-steal", fitting=fitting) == []
    assert unused(method="ada-steal", fitting=fitting, alignment=guided) == ["fitting.round_steps"]
    assert unused(method="knockoff", alignment=guided) == ["alignment.guide"]
    assert unused(method="knockoff", policy=Policy("adaptive", groups=4), fitting=fitting) == []
    assert unused(chest=Path("chest.png")) == ["chest"] and unused(chest=Path("chest.png"), blend_chest=0.5) == []
    assert unused(chest=Path("chest.png"), probes=2) == [] and unused(method="none", probes=2) == ["probes"]
    strict = DefenceSettings(quota=9)
    assert unused(defence_settings=strict) == ["defence_settings.quota"]
    assert unused(defence_settings=strict, defence="quota") == []
    assert unused(method="none", at=(5,), accounts=2) == ["accounts", "at"]


def test_a_baseline_cannot_be_configured_how_to_choose_its_words() -> None:
    config = ExtractConfig("stub:normal", Path("corpus"), victim_decoding=PaperDecoding(max_new_tokens=8))
    assert unused_settings(config) == []
    assert unused_settings(config, chooses_words=False) == ["victim_decoding.max_new_tokens"]


def test_an_oracle_by_rules_is_not_consulted_and_a_model_here_shuts_nobody_out() -> None:
    asked = {"consulting": OraclePrompts(count=3), "oracle_llm": LLMConfig(price_answer=1.0)}
    useless = ["consulting.count", "oracle_llm.price_answer"]
    assert unused(**asked) == useless and unused(**asked, oracle="scripted:answers.jsonl") == []
    assert unused(method="knockoff", **asked) == useless
    few = ExtractConfig("stub:normal", Path("corpus"), stop_after_refusals=5)
    assert unused_settings(few) == ["stop_after_refusals"] and unused_settings(few, connected=True) == []
