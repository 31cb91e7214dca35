"""The plan of a training: the steps of the real one, and nothing written."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tiny_families import save_tiny
from training_fixtures import FAST, killed_after, phantoms, saved_llava

from cxrlab.core.errors import ConfigError
from cxrlab.training import memory_estimate
from cxrlab.training.align_finetune import finetune
from cxrlab.training.config import EncoderConfig, FinetuneConfig, Validation
from cxrlab.training.encoder import train_encoder
from cxrlab.training.training_plan import MOST_STEPS, Clock, plan_encoder_training, plan_report_training

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> FinetuneConfig:
    top = tmp_path_factory.mktemp("plan")
    start = saved_llava(top / "start")
    return FinetuneConfig(
        data=phantoms(top / "corpus"), start=f"hf:{start}", lora_rank=4, lora_alpha=8.0, cache=top / "cache",
        optimisation=dataclasses.replace(FAST, steps=12), validation=Validation(every=5, n=3),
    )  # fmt: skip


def test_counts_are_those_of_the_training_and_nothing_is_written(config: FinetuneConfig, tmp_path: Path) -> None:
    plan = plan_report_training("finetune", config, tmp_path / "run")
    work = {one.name: one for one in plan.work}
    assert not list(tmp_path.iterdir()) and config.cache is not None and not config.cache.exists()
    done = finetune(config, tmp_path / "run")
    history = (tmp_path / "run" / "history.jsonl").read_text()
    assert work["training steps"].count == done.steps == 12
    assert 2 <= work["training steps"].measured <= MOST_STEPS
    assert work["validations"].count == history.count('"evaluation"') == 3
    assert (plan.facts["samples"], plan.facts["trained_weights"]) == (done.rows, done.trained_parameters)
    assert plan.estimated_gb and plan.disk_gb and plan.seconds > 0 and not plan.untimed
    assert not plan_report_training("finetune", config, tmp_path / "run").work


def test_another_family_reads_the_images_of_the_measured_steps_alone(config: FinetuneConfig, tmp_path: Path) -> None:
    start = f"hf:{save_tiny('qwen2_5_vl', tmp_path / 'start')}"
    few = dataclasses.replace(config.optimisation, batch_size=2, max_length=1500)
    given = dataclasses.replace(config, start=start, optimisation=few)
    work = {one.name: one for one in plan_report_training("finetune", given).work}
    cached = work["images into the cache"]
    assert 0 < cached.measured < cached.count and work["training steps"].count == 12 and work["validations"].count == 3


def test_the_steps_of_a_stopped_training_are_done(config: FinetuneConfig, tmp_path: Path) -> None:
    with killed_after(5):
        finetune(config, tmp_path / "run")
    before = sorted(tmp_path.rglob("*"))
    plan = plan_report_training("finetune", config, tmp_path / "run")
    assert next((one.done, one.left) for one in plan.work if one.name == "training steps") == (3, 9)
    assert sorted(tmp_path.rglob("*")) == before


def test_stage_1_has_the_steps_of_the_training(config: FinetuneConfig, tmp_path: Path) -> None:
    settings = EncoderConfig(
        data=config.data, vision_encoder="fresh:phantom", text_encoder="fresh:phantom", projection_dim=16,
        validation=Validation(n=0), optimisation=dataclasses.replace(FAST, steps=3, batch_size=3, accumulate=2),
    )  # fmt: skip
    plan = plan_encoder_training(settings, tmp_path / "run")
    assert not list(tmp_path.iterdir())
    done = train_encoder(settings, tmp_path / "run")
    images, steps = plan.work
    assert (steps.count, plan.facts["samples"], plan.facts["samples_per_step"]) == (done.steps, done.rows, 6)
    assert images.count == done.rows and 0 < images.measured < images.count
    assert plan.seconds > 0 and plan.estimated_gb and plan.disk_gb


def test_what_does_not_fit_in_memory_is_refused_as_by_the_training(
    config: FinetuneConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_estimate, "available_memory", lambda device: 1000)
    with pytest.raises(ConfigError, match="needs about"):
        plan_report_training("finetune", config)


def test_the_first_step_counts_once() -> None:
    times = iter([0.0, 7.0, 9.0, 11.0])
    clock = Clock(lambda: next(times))
    for _ in range(4):
        clock.tick()
    found = clock.steps()
    assert (found.once_s, found.seconds_each, found.steps) == (5.0, 2.0, 3)
    assert found.work(100, 40).seconds == 5.0 + 60 * 2.0
