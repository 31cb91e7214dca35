"""Temperatures of closed answers: fitted on the val split, kept on file, and used for every condition of an audit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import planted_targets as planted
import pytest
import torch
from torch import Tensor

from cxrlab.attacks.config import AttackSettings
from cxrlab.core.errors import ConfigError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.robustness import audit as audits
from cxrlab.robustness.audited_studies import Case
from cxrlab.robustness.calibration import read_temperatures
from cxrlab.robustness.config import RobustnessConfig

pytestmark = pytest.mark.slow


class Certain(planted.PatternTarget):
    """Answers with its own probabilities, and the wrong one for every fourth study."""

    def probabilities(self, images: Tensor, cases: Sequence[Case]) -> Tensor:
        right = torch.tensor([float(case.truth[planted.NAME]) for case in cases])
        wrong = torch.tensor([int(case.id[-1], 36) % 4 == 0 for case in cases])
        return torch.where(wrong, 1 - right, right).clamp(0.01, 0.99)[:, None]


def settings(folder: Path, **changes: Any) -> RobustnessConfig:
    plain: dict[str, Any] = {
        "model": "planted:a", "data": folder, "attacks": ("noise",), "eps": ("4/255",), "batch_size": 16, "trials": 20,
        "only_labels": (planted.NAME,), "triptychs": 0, "control_studies": 0, "rounded": True,
        "attack": AttackSettings(steps=1), "calibration_studies": 40,
    }  # fmt: skip
    return RobustnessConfig(**{**plain, **changes})


def test_a_temperature_is_fitted_on_val_and_reported_for_every_condition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = planted.pattern_corpus(tmp_path / "corpus", 40, splits=("test", "val"))
    monkeypatch.setattr(audits, "load_audited_model", lambda key, name, labels, config, **_: Certain(key, name, labels))
    found = audits.audit(settings(corpus.path), tmp_path / "run")
    model = found["models"]["planted:a"]
    answers = [line for _, line in read_jsonl(tmp_path / "run" / "calibration.jsonl")]
    assert len(answers) == len(corpus.ids("val")) and {line["study"] for line in answers} == set(corpus.ids("val"))
    assert model["temperature"]["temperature"] > 1.5 and model["temperature"]["answers"] == len(answers)
    for row in (model["clean"], model["attacks"]["noise@4/255"]):
        assert row["closed_questions.confidence.scaled"]["value"] < row["closed_questions.confidence"]["value"]
    assert found["protocol"]["rounded"] is True
    assert (
        read_temperatures(tmp_path / "run" / "calibration.jsonl")["a"].temperature
        == model["temperature"]["temperature"]
    )


def test_what_is_audited_calibrates_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fits temperatures on the val split"):
        settings(tmp_path, split="val")
