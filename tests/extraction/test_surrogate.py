"""Surrogates: their names, how each learns, and that every fit begins at the same start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from prediction_runs import EFFUSION
from tiny_families import save_tiny
from training_fixtures import saved_llava

from cxrlab.core.errors import ConfigError
from cxrlab.core.records import Report
from cxrlab.extraction import surrogate
from cxrlab.extraction.config import Fitting
from cxrlab.extraction.surrogate import Parts, SurrogateTrainer, parse_surrogate
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings

FITTING = Fitting(learning_rate=1e-2, steps=2, batch_size=4, lora_rank=0, max_length=400)


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_llava(tmp_path_factory.mktemp("surrogate") / "start")


@pytest.fixture(scope="module")
def transcript(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pictures, one answer."""
    from corpora import toy_corpus

    words = {"split": "train", "findings": (), "masks": {}, "labels": {}, "sections": Report(findings=EFFUSION)}
    return toy_corpus(tmp_path_factory.mktemp("transcript") / "t", 3, dict.fromkeys(range(3), words)).path


def learner(start: Path, fitting: Fitting = FITTING, seed: int = 1) -> SurrogateTrainer:
    return SurrogateTrainer(f"hf:{start}", fitting, seed, LoadSettings(device="cpu"))


def test_names() -> None:
    assert parse_surrogate("hf:some/folder+more") == Parts(start="hf:some/folder+more")
    assert parse_surrogate("parts:hf:vision_encoder+builtin:general") == Parts(
        None, "hf:vision_encoder", "builtin:general"
    )


@pytest.mark.parametrize(
    "name", ["parts:", "parts:hf:vision_encoder", "parts:+builtin:general", "parts:hf:vision_encoder+"]
)
def test_half_a_surrogate_is_reported(name: str) -> None:
    with pytest.raises(ConfigError, match=r"write parts:VISION_ENCODER\+LANGUAGE_MODEL"):
        parse_surrogate(name)


def test_the_rate_goes_by_the_size(start: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unsaid = Fitting()
    assert learner(start, unsaid).learning_rate == 3e-3
    assert learner(start, Fitting(learning_rate=0.5)).learning_rate == 0.5
    monkeypatch.setattr(surrogate, "count_weights", lambda name, loading: 1_000_000_000)
    assert learner(start, unsaid).learning_rate == 1e-5


def test_weights_are_counted_in_files(start: Path) -> None:
    weights = start / "model.safetensors"
    assert surrogate.count_weights(f"hf:{start}", LoadSettings()) == weights.stat().st_size // 2


@pytest.mark.parametrize(
    ("fitting", "between", "steps"),
    [
        (Fitting(steps=7), True, 7),
        (Fitting(steps=7, round_steps=2), True, 2),
        (Fitting(steps=7, round_steps=2), False, 7),
        (Fitting(round_steps=2), False, None),
    ],
)
def test_steps_between_rounds(start: Path, transcript: Path, fitting: Fitting, between: bool, steps: int) -> None:
    assert learner(start, fitting).training_config(transcript, between_rounds=between).optimisation.steps == steps


def test_settings_reach_the_training(start: Path, transcript: Path) -> None:
    config = learner(start, Fitting(lora_rank=4, batch_size=2), seed=9).training_config(
        transcript, between_rounds=False
    )
    assert (config.data, config.start, config.indication) == (transcript, f"hf:{start}", False)
    assert (config.lora_rank, config.lora_alpha, config.train_vision_encoder) == (4, 8.0, False)
    settings = config.optimisation
    assert (settings.seed, settings.batch_size, settings.epochs, settings.schedule, settings.learning_rate) == (
        9,
        2,
        15,
        "constant",
        3e-3,
    )


def test_a_step_is_no_larger_than_the_transcript(start: Path, transcript: Path) -> None:
    """Behind a gate a few answers may be all there is; the audit must not end after the queries are paid."""
    config: Any = learner(start, Fitting(batch_size=32)).training_config(transcript, between_rounds=False)
    assert config.optimisation.batch_size == 3
    pairs = Fitting(batch_size=1, accumulate=8, gradient_checkpointing=True)
    settings = learner(start, pairs).training_config(transcript, between_rounds=False).optimisation
    assert (settings.batch_size, settings.accumulate, settings.gradient_checkpointing) == (1, 3, True)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["idefics", "idefics2", "smolvlm", "internvl", "qwen3_vl"])
def test_a_surrogate_of_another_family_learns(family: str, transcript: Path, tmp_path: Path) -> None:
    """The copy predicts the victim's answer better than its start, and gives the gradients that move images."""
    start = save_tiny(family, tmp_path / "start")
    fitting = Fitting(learning_rate=1e-2, steps=3, batch_size=1, accumulate=3, gradient_checkpointing=True, lora_rank=4)
    copy = learner(start, fitting).fit(transcript, tmp_path / "fit")
    image = torch.rand(32, 32, generator=torch.Generator().manual_seed(1)).requires_grad_()
    before, after = (model.losses([image], [EFFUSION]) for model in (HfModel.load(str(start)), copy))
    assert float(after.detach()) < float(before.detach()) - 0.05
    (gradient,) = torch.autograd.grad(after.sum(), image)
    assert float(gradient.abs().max()) > 0.0


def test_a_fit_leaves_its_start_alone_and_is_done_once(start: Path, transcript: Path, tmp_path: Path) -> None:
    weights = tmp_path / "fit" / "checkpoint" / "model.safetensors"
    before = (start / "model.safetensors").read_bytes()
    copy = learner(start).fit(transcript, tmp_path / "fit")
    assert copy.capabilities.gradients and copy.name == f"hf:{weights.parent}"
    assert (start / "model.safetensors").read_bytes() == before != weights.read_bytes()
    stamp = weights.stat().st_mtime_ns
    again = learner(start).fit(transcript, tmp_path / "fit")
    assert weights.stat().st_mtime_ns == stamp and again.name == copy.name


def test_the_untouched_one_is_the_start(start: Path, tmp_path: Path) -> None:
    assert learner(start).untouched(tmp_path / "u") == f"hf:{start}"
    assert not (tmp_path / "u").exists()
