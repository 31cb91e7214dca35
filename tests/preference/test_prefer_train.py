"""Preference training end to end on a tiny LLaVA: exact where it can be, and honest about what it was given."""

from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from preference_runs import (
    ADAPTER,
    changed,
    history,
    losses,
    pair_lines,
    same_weights,
    single_thread,
    tiny_preference_config,
)
from processes import train_together
from training_fixtures import FAST, saved_llava
from transformers.models.llava.modeling_llava import LlavaMultiModalProjector

from cxrlab.core.errors import CxrlabError
from cxrlab.core.files import read_json
from cxrlab.core.runs import state
from cxrlab.data.corpus import load_corpus
from cxrlab.evaluation.load_model import load_model
from cxrlab.models.hf.model import HfModel
from cxrlab.models.model_card import read_model_card
from cxrlab.preference import dataset
from cxrlab.preference.config import LOSSES, LossSettings, Measure, PreferConfig, Validation
from cxrlab.preference.dataset import PreferenceDataset, read_preferences
from cxrlab.preference.losses import log_probabilities
from cxrlab.preference.train import prefer
from cxrlab.training import report_model, trainer
from cxrlab.training.align_finetune import finetune
from cxrlab.training.config import FinetuneConfig

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    with single_thread():
        yield


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> PreferConfig:
    return tiny_preference_config(tmp_path_factory.mktemp("prefer"))


@pytest.fixture(scope="module")
def aligned(config: PreferConfig) -> Path:
    out = config.data.parent / "aligned"
    prefer(config, out)
    return out


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (LossSettings("dpo"), math.log(2)),
        (LossSettings("dpo", beta=0.5), math.log(2)),
        (LossSettings("robust"), math.log(2)),
        (LossSettings("ipo"), 25.0),
        (LossSettings("ipo", beta=0.5), 1.0),
        (LossSettings("kto", desirable_weight=1.4, undesirable_weight=0.6), 0.5),
    ],
    ids=str,
)
def test_the_first_loss_is_that_of_a_model_that_has_not_moved(
    config: PreferConfig, tmp_path: Path, settings: LossSettings, expected: float
) -> None:
    """Every ratio is 0: -log(1/2), (1/2β)², and of KTO half the mean weight where good and bad are even."""
    lonely = changed(config, loss=settings, steps=1, batch_size=4 if settings.kind.paired else 50)
    prefer(lonely, tmp_path / "run")
    assert losses(tmp_path / "run") == pytest.approx([expected], rel=1e-5)
    (line,) = history(tmp_path / "run")
    assert all(abs(line[name]) < 1e-4 for name in line if name.endswith("_ratio") or name == "drift")


def test_a_language_model_that_is_trained_whole_has_not_moved_either(config: PreferConfig, tmp_path: Path) -> None:
    """In bfloat16 its weights are float32 while it is trained, and so they are for the reference."""
    whole = changed(config, lora_rank=0, precision="bfloat16", steps=1, batch_size=4, n=4)
    prefer(whole, tmp_path / "run")
    (line,) = history(tmp_path / "run")
    assert abs(line["chosen_ratio"]) < 2e-5 and abs(line["rejected_ratio"]) < 2e-5


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_every_loss_learns(config: PreferConfig, tmp_path: Path, loss: Any) -> None:
    """The same four pairs, again and again: the loss falls, and the chosen reports gain on the rejected ones."""
    few = changed(config, loss=LossSettings(loss), n=4, steps=12, learning_rate=1e-2)
    done, measured = prefer(few, tmp_path / "run")
    found = history(tmp_path / "run")
    assert measured is None and done.rows == 4 and done.steps == 12 and done.samples == 48
    assert found[-1]["loss"] < found[0]["loss"] - 0.02
    if loss != "kto":
        kind = "mean" if loss in ("orpo", "simpo") else "ratio"
        gain = [line[f"chosen_{kind}"] - line[f"rejected_{kind}"] for line in found]
        assert gain[-1] > gain[0] and found[-1]["accuracy"] >= found[0]["accuracy"]
    else:
        assert {"drift"} <= found[-1].keys()
    card = read_model_card(tmp_path / "run" / "checkpoint")
    up = Path(os.path.relpath(config.data.parent / "start", tmp_path / "run" / "checkpoint"))
    assert card is not None and card.stage == "prefer" and card.base == f"hf:{up.as_posix()}"
    assert card.extra["loss"] == loss and card.trained_on is not None


@pytest.mark.parametrize("loss", ["dpo", "ipo", "orpo"])
@pytest.mark.parametrize(("batch", "accumulate"), [(2, 2), (1, 4)])
def test_accumulating_equals_a_big_batch(
    config: PreferConfig, tmp_path: Path, loss: Any, batch: int, accumulate: int
) -> None:
    for name, changes in {"big": {}, "small": {"batch_size": batch, "accumulate": accumulate}}.items():
        prefer(changed(config, loss=LossSettings(loss), **changes), tmp_path / name)
    assert losses(tmp_path / "small") == pytest.approx(losses(tmp_path / "big"), rel=1e-5)
    # Six steps of at most 0.003; Adam makes rounding larger where a gradient is almost 0.
    assert same_weights(tmp_path / "small", tmp_path / "big", 5e-5)


def trained_job(config: PreferConfig, out: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The job of a run with its module as the run left it."""
    kept: list[Any] = []
    whole = trainer.fit

    def noted(job: Any, *rest: Any) -> Any:
        kept.append(job)
        return whole(job, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(trainer, "fit", noted)
        prefer(config, out)
    job = kept[0]
    job.module.eval()
    return job


def loss_of(job: Any, items: list[int]) -> float:
    batch = job.rows.__getitems__(items)
    batch.pop("items")
    with torch.no_grad():
        return float(job.module(**batch))


@pytest.mark.parametrize("loss", ["dpo", "kto"])
def test_what_parts_of_a_batch_add_up_to(
    config: PreferConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: Any
) -> None:
    """KTO measures how far the model has moved by the reports of one forward pass: two halves measure it twice, each
    with half of the reports, so that accumulating is not the same as a big batch. A pair of DPO stands alone."""
    mine = changed(config, loss=LossSettings(loss, beta=1.0), learning_rate=3e-2, steps=12)
    job = trained_job(mine, tmp_path / "run", monkeypatch)
    items = list(range(8))
    whole, halves = loss_of(job, items), loss_of(job, items[:4]) + loss_of(job, items[4:])
    assert (abs(whole / halves - 1) < 1e-5) is (loss == "dpo") and (abs(whole / halves - 1) > 1e-3) is (loss == "kto")


@pytest.mark.full
@pytest.mark.parametrize("sharding", ["none", "fsdp2"])
def test_two_processes_equal_one_with_twice_the_batch(config: PreferConfig, tmp_path: Path, sharding: str) -> None:
    """Also for KTO: how far the model has moved is measured over both. One process judges while the other waits."""
    mostly_good = LossSettings("kto", undesirable_weight=0.1)  # all reports become likelier: it moves
    mine = changed(
        config,
        loss=mostly_good,
        learning_rate=1e-2,
        sharding=sharding,
        cache=tmp_path / "cache",
        validation=Validation(n=2, max_new_tokens=4, every=3),
        measure=Measure(n=3, max_new_tokens=4, control_studies=0, metrics=("rougeL:google",)),
    )
    prefer(changed(mine, batch_size=8, sharding="none"), tmp_path / "one")
    assert train_together(mine, tmp_path / "two") == [0, 0]
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-5)
    assert same_weights(tmp_path / "two", tmp_path / "one", 5e-5)
    drifts = [[line["drift"] for line in history(tmp_path / name) if "drift" in line] for name in ("one", "two")]
    assert drifts[0] == pytest.approx(drifts[1], abs=1e-4) and max(drifts[0]) > 0.1
    found, alone = (read_json(tmp_path / name / "preference.json") for name in ("two", "one"))
    assert found["n"] == 3 and [line["step"] for line in found["watched"]] == [0, 3, 6]
    assert found["watched"] == alone["watched"] and found["selection"]["step"] == alone["selection"]["step"]


def test_a_finished_run_is_shown_again_wherever_its_folder_is(config: PreferConfig, tmp_path: Path) -> None:
    mine = changed(config, measure=Measure(n=3, max_new_tokens=4, control_studies=0, metrics=("rougeL:google",)))
    first = prefer(mine, tmp_path / "run")
    shutil.move(tmp_path / "run", tmp_path / "moved")
    assert prefer(mine, tmp_path / "moved") == first


def test_kept_features_equal_images_through_the_vision_encoder(
    config: PreferConfig, aligned: Path, tmp_path: Path
) -> None:
    prefer(changed(config, cache_features="off", cache=tmp_path / "cache"), tmp_path / "run")
    assert not list((tmp_path / "cache").glob("features-*")) and list(config.cache.glob("features-*"))  # type: ignore[union-attr]
    assert losses(tmp_path / "run") == pytest.approx(losses(aligned), rel=1e-5)
    assert same_weights(tmp_path / "run", aligned, 1e-5)


@pytest.mark.parametrize("kept", [True, False])
def test_a_image_is_looked_at_once_for_both_reports(
    config: PreferConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    """Six steps of four pairs and the reference of every pair: so many images are projected, and so many go through the
    vision encoder, or none where features are kept."""
    seen: list[int] = []
    projected: list[int] = []
    vision_encoder, project = report_model.vision_encoder_features, LlavaMultiModalProjector.forward

    def counted(model: Any, pixels: torch.Tensor) -> torch.Tensor:
        seen.append(len(pixels))
        return vision_encoder(model, pixels)

    def noted(self: LlavaMultiModalProjector, features: torch.Tensor) -> torch.Tensor:
        projected.append(len(features))
        return project(self, features)

    monkeypatch.setattr(report_model, "vision_encoder_features", counted)
    monkeypatch.setattr(LlavaMultiModalProjector, "forward", noted)
    prefer(changed(config, cache_features="on" if kept else "off", cache=tmp_path / "cache"), tmp_path / "run")
    pairs = len(pair_lines(config.data))
    assert sum(projected) == pairs + 6 * 4 and projected[-6:] == [4] * 6
    assert seen == ([] if kept else projected)


def test_a_second_run_takes_the_reference_from_the_cache(
    config: PreferConfig, aligned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same numbers without one forward pass; another start has others."""
    with monkeypatch.context() as patch:
        patch.setattr(dataset, "log_probabilities", lambda *_, **__: pytest.fail("computed again"))
        prefer(config, tmp_path / "again")
        with pytest.raises(pytest.fail.Exception):
            prefer(changed(config, start=f"hf:{saved_llava(tmp_path / 'other', seed=1)}"), tmp_path / "other-run")
    assert (tmp_path / "again" / ADAPTER).read_bytes() == (aligned / ADAPTER).read_bytes()


def test_same_seed_same_bytes_also_with_dropout(config: PreferConfig, tmp_path: Path) -> None:
    """Dropout is for the training alone: the reference is computed without it."""
    for name in "ab":
        prefer(changed(config, lora_dropout=0.2), tmp_path / name)
    assert (tmp_path / "a" / ADAPTER).read_bytes() == (tmp_path / "b" / ADAPTER).read_bytes()
    prefer(changed(config, lora_dropout=0.2, seed=6), tmp_path / "c")
    assert (tmp_path / "a" / ADAPTER).read_bytes() != (tmp_path / "c" / ADAPTER).read_bytes()


@pytest.fixture(scope="module")
def tuned(config: PreferConfig) -> Path:
    """A run of stage 3 whose result is an adapter with a projector of its own."""
    out = config.data.parent / "tuned"
    settings = FinetuneConfig(
        data=config.data, start=config.start, lora_rank=4, lora_alpha=8.0, optimisation=FAST, cache=config.cache
    )
    finetune(settings, out)
    return out


@pytest.mark.parametrize("kind", ["adapter", "whole", "projector", "on an adapter", "kto"])
def test_the_checkpoint_opens_with_the_log_probabilities_of_the_training(
    config: PreferConfig, tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Scored once by what was trained, in memory, and once by what `load_model` finds in the folder."""
    changes: dict[str, Any] = {
        "adapter": {},
        "whole": {"lora_rank": 0},
        "projector": {"train_projector": True},
        "on an adapter": {"start": str(tuned)},
        "kto": {"loss": LossSettings("kto")},
    }[kind]
    job = trained_job(changed(config, learning_rate=1e-2, **changes), tmp_path / "run", monkeypatch)
    items, per = list(range(6)), 2 if kind != "kto" else 1
    batch = job.rows.__getitems__(items)
    with torch.no_grad():
        expected, _ = log_probabilities(job.module.reporter, batch, copies=per)
    judged = read_preferences(config.pairs, config.data, paired=kind != "kto", seed=FAST.seed)
    samples = [judged.source.samples[2 * item + twin] for twin in range(per) for item in items]
    corpus = load_corpus(config.data)
    model = load_model(f"hf:{tmp_path / 'run' / 'checkpoint'}")
    assert isinstance(model, HfModel)
    images = [corpus.image(corpus[sample.id]) for sample in samples]
    with torch.no_grad():
        found = model.log_probabilities(
            images, [sample.report for sample in samples], [sample.indication for sample in samples]
        ).sums
    assert found.tolist() == pytest.approx(expected.tolist(), rel=1e-4)
    start = HfModel.load(str(tuned / "checkpoint") if kind == "on an adapter" else config.start.removeprefix("hf:"))
    with torch.no_grad():
        before = start.log_probabilities(
            images, [sample.report for sample in samples], [sample.indication for sample in samples]
        ).sums
    assert job.rows.reference[items, 0].tolist() == pytest.approx(before[: len(items)].tolist(), rel=1e-4)
    assert float((found - before).abs().max()) > 0.01  # it has moved


def test_what_the_figures_of_the_history_say(
    config: PreferConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the last line are of the last batch before its step: a rate of almost 0 leaves them where they were."""
    job = trained_job(changed(config, learning_rate=1e-12, steps=3), tmp_path / "run", monkeypatch)
    last = list(job.order)[-4:]
    batch = job.rows.__getitems__(last)
    batch.pop("items")
    job.module(**batch)
    line = history(tmp_path / "run")[-1]
    assert {name: line[name] for name in job.module.figures()} == pytest.approx(job.module.figures(), abs=1e-4)
    assert set(job.module.figures()) == {"chosen_ratio", "rejected_ratio", "accuracy"}


def test_a_finished_run_is_left_as_it_is(config: PreferConfig, aligned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer, "fit", lambda *_: pytest.fail("trained again"))
    done, _ = prefer(config, aligned)
    assert done.stage == "prefer" and state(aligned) == "finished" and not (aligned / "steps").exists()
    assert json.loads((aligned / "selection.json").read_text())["step"] == 6


def cut_at(monkeypatch: pytest.MonkeyPatch, batch: int, training: bool) -> None:
    """Break off when this batch is asked for, of the training or of the reference."""
    left = [batch]
    whole = PreferenceDataset.__getitems__

    def cut(self: PreferenceDataset, items: list[int]) -> Any:
        if (self.reference is not None) is training:
            left[0] -= 1
            if left[0] == 0:
                raise SystemExit("cut")
        return whole(self, items)

    monkeypatch.setattr(PreferenceDataset, "__getitems__", cut)


@pytest.mark.parametrize("loss", ["dpo", "kto"])
@pytest.mark.parametrize(("batch", "training"), [(2, False), (2, True), (4, True), (6, True)])
def test_a_run_that_was_cut_off_ends_with_the_bytes_of_a_straight_one(
    config: PreferConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loss: Any, batch: int, training: bool
) -> None:
    """While the reference is computed, before the first checkpoint, after one, and before the last step; dropout,
    order and the half-filled line of the history go on."""
    mine = changed(config, loss=LossSettings(loss), lora_dropout=0.1, log_every=4, cache=None)
    prefer(mine, tmp_path / "straight")
    with monkeypatch.context() as patch:
        cut_at(patch, batch, training)
        with pytest.raises(SystemExit):
            prefer(mine, tmp_path / "run")
    assert state(tmp_path / "run") != "finished"
    prefer(mine, tmp_path / "run")
    for name in (ADAPTER, "history.jsonl", "selection.json", "summary.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes(), name


def test_a_run_that_was_cut_off_before_its_result_takes_no_step_twice(
    config: PreferConfig, aligned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr("cxrlab.training.run_folder.RunFolder.write_folder", broken)
        with pytest.raises(SystemExit):
            prefer(config, tmp_path / "run")
    with monkeypatch.context() as patch:
        cut_at(patch, 1, training=True)
        prefer(config, tmp_path / "run")
    assert (tmp_path / "run" / ADAPTER).read_bytes() == (aligned / ADAPTER).read_bytes()


def test_a_run_does_not_go_on_with_other_pairs(
    config: PreferConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The config names the file; its words may have changed since the run was stopped."""
    mine = replace(config, pairs=Path(shutil.copy(config.pairs, tmp_path / "pairs.jsonl")))
    with monkeypatch.context() as patch:
        cut_at(patch, 5, training=True)
        with pytest.raises(SystemExit):
            prefer(mine, tmp_path / "run")
    mine.pairs.write_text(mine.pairs.read_text().replace("pneumothorax", "effusion"))
    with pytest.raises(CxrlabError, match="was begun with data: .* choose another folder"):
        prefer(mine, tmp_path / "run")
