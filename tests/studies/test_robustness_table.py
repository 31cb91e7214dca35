"""Audits of a study of alignment: what is planned for them, and what stands over their seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cxrlab.core.errors import ConfigError
from cxrlab.studies.preference_study import PreferenceStudy, PreferenceStudyConfig, robustness_table

HARDENED = {"hardened": {"changes": "Hardened.", "harden": {"steps": 2}}}
NOISY = {"changes": "Noise.", "finetune": {"train_vision_encoder": True, "augmentation": {"noise": 0.05}}}

CONDITION = "pgd@2/255"


def config(**changes: Any) -> PreferenceStudyConfig:
    plain: dict[str, Any] = {
        "corpora": {"drawn": {"phantom": {"n": 40, "size": 32}}},
        "data": "drawn",
        "start": {"model": "builtin:reporter"},
        "variants": {"dpo": {"changes": "DPO."}},
        "seeds": (1, 2),
        "robustness": {"attacks": ["pgd"], "eps": ["2/255"]},
    }
    return PreferenceStudyConfig(**{**plain, **changes})


def audit(start: float, aligned: float, drop: float, p_holm: float, warnings: tuple[str, ...] = ()) -> dict[str, Any]:
    """One audit of two models with one condition and one quantity."""
    clean = {"findings.f1": {"value": 0.9}, "closed_questions.accuracy": {"value": None}}
    tested = {
        "a": start,
        "b": aligned,
        "difference": aligned - start,
        "low": -0.1,
        "high": 0.1,
        "p_holm": 1.0,
        "smallest_detectable": 0.03,
        "drop": {"value": drop, "low": drop - 0.1, "high": drop + 0.1, "p_holm": p_holm},
    }
    pair = {
        "n": 30,
        "patients": 20,
        "equal_clean": True,
        "conditions": {CONDITION: {"findings.f1": tested}},
        "flips": {CONDITION: {"only_a": 1, "only_b": 2}},
        "transfer": {CONDITION: {"a_to_b": {"ratios": {"findings.f1": {"value": 1.0}}}}},
    }
    row = {
        "clean": clean,
        "attacks": {CONDITION: {"closed_questions.ece": {"value": 0.25}}},
        "temperature": {"temperature": 2.0},
    }
    models = {"one": {"key": "a", **row}, "two": {"key": "b", **row}}
    return {"threat": "One.", "warnings": list(warnings), "models": models, "comparison": {"a:b": pair}}


def over(*audits: dict[str, Any]) -> dict[str, Any]:
    return robustness_table({"dpo": "DPO."}, {"dpo": "b"}, dict(enumerate(audits, 1)))


def test_one_audit_for_each_seed_waits_for_everything_made_from_its_start(tmp_path: Path) -> None:
    found = PreferenceStudy(config(controls={**HARDENED, "noisy": NOISY}), tmp_path)
    audits = [part for part in found.parts if part.kind == "robustness"]
    assert [part.folder for part in audits] == ["seed1/robustness", "seed2/robustness"]
    assert set(audits[0].needs) == {"seed1/train/dpo", "seed1/harden/hardened", "seed1/finetune/noisy"}
    asked = audits[1].config
    assert asked.model == "builtin:reporter" and asked.seed == 2 and asked.split == "test"
    made = ("train/dpo", "harden/hardened", "finetune/noisy")
    assert asked.versus == tuple(f"hf:{tmp_path}/seed2/{folder}/checkpoint" for folder in made)
    assert found.audit_keys == {"dpo": "b", "hardened": "c", "noisy": "d"}
    harden, noisy = (found.part(f"seed2/{folder}").config for folder in made[1:])
    assert harden.model == noisy.start == "builtin:reporter"
    assert harden.seed == noisy.optimisation.seed == 2 and noisy.augmentation.noise == 0.05


def test_every_seed_has_a_start_of_its_own(tmp_path: Path) -> None:
    start = {"start": "builtin:reporter", "lora_rank": 2, "optimisation": {"steps": 1}}
    found = PreferenceStudy(config(start=start, controls=HARDENED), tmp_path)
    starts = [part.config for part in found.parts if part.kind == "start"]
    assert [one.optimisation.seed for one in starts] == [1, 2]
    for seed in (1, 2):
        own = f"hf:{tmp_path}/seed{seed}/start/checkpoint"
        assert found.part(f"seed{seed}/robustness").config.model == own
        assert found.part(f"seed{seed}/harden/hardened").config.model == own


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"controls": {"one": {"changes": "x"}}}, "either 'harden' or 'finetune'"),
        ({"controls": {"dpo": HARDENED["hardened"]}}, "'dpo' is both a variant and a control"),
        ({"controls": HARDENED, "robustness": {}}, "controls are controls of the audit"),
    ],
)
def test_controls_that_control_nothing_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(**changes)


def test_what_the_study_sets_itself_cannot_be_given(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'versus' is set by the study itself"):
        PreferenceStudy(config(robustness={"versus": ["stub:normal"]}), tmp_path)


def test_without_settings_of_an_audit_there_is_none(tmp_path: Path) -> None:
    found = PreferenceStudy(config(robustness={}), tmp_path)
    assert not any(part.kind == "robustness" for part in found.parts)
    assert not any("robustness" in trial.parts for trial in found.trials)


def test_means_and_clear_seeds_by_hand() -> None:
    """Drops of +0.02 (clear) and -0.04 (not): their mean is -0.01, and one seed is clear."""
    found = over(audit(0.4, 0.5, 0.02, 0.01), audit(0.6, 0.5, -0.04, 0.2))
    row = found["variants"]["dpo"]["conditions"][CONDITION]["findings.f1"]
    assert row["start"]["mean"] == pytest.approx(0.5) and row["aligned"]["mean"] == pytest.approx(0.5)
    assert row["drop"]["mean"] == pytest.approx(-0.01)
    assert row["drop"]["clear"] == 1 and row["difference"]["clear"] == 0
    assert [one["seed"] for one in row["drop"]["by_seed"]] == [1, 2]
    assert (
        found["variants"]["dpo"]["clean"]["closed_questions.accuracy"]["start"]["mean"] is None
    )  # unknown is not zero


def test_calibration_of_start_and_aligned_model_over_seeds() -> None:
    found = over(audit(0.4, 0.5, 0.02, 0.01), audit(0.6, 0.5, -0.04, 0.2))["variants"]["dpo"]
    assert found["calibration"][CONDITION]["closed_questions.ece"]["aligned"]["mean"] == 0.25
    assert found["temperature"]["start"]["mean"] == 2.0
    assert found["blanks_negative"] == {}


def test_significant_seeds_with_other_signs_are_marked() -> None:
    found = over(audit(0.4, 0.5, 0.02, 0.01), audit(0.6, 0.5, -0.04, 0.01))
    drop = found["variants"]["dpo"]["conditions"][CONDITION]["findings.f1"]["drop"]
    assert drop["clear"] == 2 and drop["same_way"] is False


def test_every_warning_is_kept_so_that_a_page_can_count() -> None:
    found = over(audit(0.4, 0.5, 0, 1, ("Blind.",)), audit(0.4, 0.5, 0, 1, ("Blind.", "Few.")))
    assert found["warnings"] == ["Blind.", "Blind.", "Few."]
