"""Experiment trackers: the numbers of the history, no text and no path, the same training as without."""

from __future__ import annotations

import dataclasses
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from training_fixtures import FAST, killed_after, phantoms, saved_llava
from transformers.integrations import integration_utils

from cxrlab.core.errors import ConfigError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.data.corpus import load_corpus
from cxrlab.training import trackers
from cxrlab.training.align_finetune import align
from cxrlab.training.config import AlignConfig, Optimisation, Validation
from cxrlab.training.trackers import check_installed, tracked


@pytest.mark.slow
def test_tensorboard_has_the_history_of_a_run_that_was_killed_and_resumed(tmp_path: Path) -> None:
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    corpus = phantoms(tmp_path / "corpus")
    config = AlignConfig(
        corpus, start=f"hf:{saved_llava(tmp_path / 'start')}", n=12, cache=tmp_path / "cache",
        optimisation=dataclasses.replace(FAST, log_every=1), validation=Validation(every=2, n=3),
    )  # fmt: skip
    align(config, tmp_path / "plain")
    wanted = dataclasses.replace(config, track=("tensorboard",))
    for step in (2, 5):  # before the first checkpoint, and after it
        with killed_after(step):
            align(wanted, tmp_path / "run")
    align(wanted, tmp_path / "run")
    file = "checkpoint/model.safetensors"
    assert (tmp_path / "run" / file).read_bytes() == (tmp_path / "plain" / file).read_bytes()
    assert (tmp_path / "run" / "history.jsonl").read_bytes() == (tmp_path / "plain" / "history.jsonl").read_bytes()

    track = tmp_path / "run" / "track"
    found = accumulators.EventAccumulator(str(track / "tensorboard")).Reload()
    history = [line for _, line in read_jsonl(tmp_path / "run" / "history.jsonl")]
    losses = [(line["step"], line["loss"]) for line in history if "loss" in line]
    validated = [(line["step"], line["evaluation"]["loss"]) for line in history if "evaluation" in line]
    assert len(losses) == 6 and len(validated) == 3
    for tag, expected in (("train/loss", losses), ("eval/loss", validated)):
        points = {event.step: event.value for event in found.Scalars(tag)}
        assert len(found.Scalars(tag)) == len(points) and points == pytest.approx(dict(expected), rel=1e-6)
    content = b"".join(path.read_bytes() for path in track.rglob("*") if path.is_file())
    study = next(iter(load_corpus(corpus).studies("train")))
    assert study.sections is not None and study.sections.findings
    for private in (str(tmp_path), str(corpus), str(study.images[0].path), study.sections.findings[:20]):
        assert private.encode() not in content


class Recorder:
    """Stands for an integration: draws random numbers and keeps what it is given."""

    seen: list[Any] = []

    def __init__(self) -> None:
        random.random(), np.random.rand(), torch.rand(1)
        self.seen.append({name: value for name, value in os.environ.items() if name.startswith("WANDB_")})

    def on_train_begin(self, given: Any, state: Any, control: Any, **named: Any) -> None:
        random.random(), np.random.rand(), torch.rand(1)
        self.seen.append((given.run_name, given.output_dir, given.to_dict(), given.to_json_string(), named))

    def on_log(self, given: Any, state: Any, control: Any, logs: dict[str, float]) -> None:
        random.random(), np.random.rand(), torch.rand(1)
        self.seen.append((state.global_step, logs))

    def on_train_end(self, *_: Any) -> None:
        self.seen.append("end")


def random_state() -> list[Any]:
    return [random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]


def test_an_integration_gets_numbers_alone_and_goes_on_in_the_same_track(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Recorder, "seen", [])
    monkeypatch.setitem(integration_utils.INTEGRATION_TO_CALLBACK, "wandb", Recorder)
    monkeypatch.setattr("os.environ", {})
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(finish=lambda: Recorder.seen.append("finished")))
    before, settings = random_state(), Optimisation(seed=3)
    with pytest.raises(RuntimeError), tracked(["wandb"], tmp_path / "run", settings, 0) as log:
        log(1, {"loss": 2.0})
        raise RuntimeError
    assert random_state() == before and "WANDB_RUN_ID" not in os.environ
    with tracked(["wandb"], tmp_path / "run", dataclasses.replace(settings, workers=2), 1):
        pass
    first, second = Recorder.seen[:5], Recorder.seen[5:]
    assert first[0]["WANDB_MODE"] == "offline" and first[0]["WANDB_RUN_ID"] == second[0]["WANDB_RUN_ID"]
    assert first[1] == second[1] and first[1][0].startswith("run-") and str(tmp_path) not in str(first[1])
    assert first[1][2]["learning_rate"] == 1e-4 and "workers" not in first[1][2] and first[1][4] == {}
    assert first[2:] == [(1, {"loss": 2.0}), "end", "finished"] and second[2:] == ["end", "finished"]


def test_a_tracker_that_is_not_installed_is_refused_before_the_run_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "importlib", SimpleNamespace(util=SimpleNamespace(find_spec=lambda name: None)))
    with pytest.raises(ConfigError, match="--track mlflow .*pip install mlflow"):
        check_installed(["mlflow"])
    with pytest.raises(ConfigError, match="--track trackio"):
        align(AlignConfig(tmp_path, start="hf:none", track=("trackio",)), tmp_path / "run")
    assert not (tmp_path / "run").exists()
