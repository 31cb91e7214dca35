"""Validation during training: the loss on held-out samples, the best step, early stop, and exact resume around them."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from composition_members import config as composition
from composition_members import corpus as corpus_of
from composition_members import study as study_of
from processes import run_together
from safetensors.torch import load_file
from tiny_models import tiny_dual_encoder
from toy_training import train_toy
from training_fixtures import FAST, killed_after, phantoms, saved_llava

from cxrlab.core.config import to_yaml
from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.records import Study
from cxrlab.core.runs import state
from cxrlab.data.compose import compose_corpus, plan
from cxrlab.data.corpus import load_corpus
from cxrlab.data.images import load_image
from cxrlab.models.hf.model import HfModel
from cxrlab.models.hf.scoring import report_log_probs
from cxrlab.models.model_registry import load_encoder
from cxrlab.training import align_finetune, best_weights, validation
from cxrlab.training import run_folder as folders
from cxrlab.training.align_finetune import align, finetune
from cxrlab.training.config import AlignConfig, EncoderConfig, ExtraCorpus, FinetuneConfig, Validation
from cxrlab.training.encoder import train_encoder
from cxrlab.training.run_folder import read_result
from cxrlab.training.samples import read_source
from cxrlab.training.trainer import Evaluation, ExactTrainer

pytestmark = pytest.mark.slow

SCORES = {3: 0.8, 6: 0.5, 9: 0.6, 12: 0.7}  # lowest at step 6


def scripted(scores: dict[int, float] = SCORES, patience: int | None = None, larger: bool = False) -> Evaluation:
    """These scores at these steps, every three; random numbers are drawn, as generated reports would."""

    def measure(module: Any, step: int) -> dict[str, float]:
        assert not module.training
        torch.randn(1000)
        return {"loss": scores[step], "weight": float(module.trained.weight.detach().sum())}

    return Evaluation(measure, every=3, score="loss", larger=larger, patience=patience)


def history(out: Path) -> list[dict[str, Any]]:
    return [record for _, record in read_jsonl(out / "history.jsonl")]


def evaluations(out: Path) -> dict[int, dict[str, float]]:
    return {line["step"]: line["evaluation"] for line in history(out) if "evaluation" in line}


def kept(out: Path) -> dict[str, bytes]:
    """What a finished toy run leaves: its last weights, its best weights and its history."""
    last = folders.latest(out / "steps")
    assert last is not None
    names = [last / "trained.safetensors", *(out / "steps").glob("best-*"), out / "history.jsonl"]
    return {path.name: path.read_bytes() for path in names}


def test_the_step_with_the_best_score_is_kept_and_nothing_is_disturbed(tmp_path: Path) -> None:
    for name, larger, best in (("low", False, 6), ("high", True, 3)):
        module, fitted = train_toy(tmp_path / name, evaluation=scripted(larger=larger))
        assert fitted.best is not None and (fitted.best.step, fitted.best.score) == (best, SCORES[best])
        found = evaluations(tmp_path / name)
        assert {step: one["loss"] for step, one in found.items()} == SCORES
        best_weights.restore(tmp_path / name / "steps", best, module)
        assert float(module.trained.weight.detach().sum()) == found[best]["weight"] != found[12]["weight"]
    train_toy(tmp_path / "unseen")
    for file in ("trained.safetensors", "rng_state.pth"):
        paths = [tmp_path / name / "steps" / "checkpoint-12" / file for name in ("low", "unseen")]
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_score_that_is_no_number_is_never_the_best(tmp_path: Path) -> None:
    _, fitted = train_toy(tmp_path, evaluation=scripted({3: math.nan, 6: math.inf, 9: 0.6, 12: 0.7}))
    assert fitted.best is not None and fitted.best.step == 9


@pytest.mark.parametrize(
    ("step", "moment"),
    [(step, moment) for step in SCORES for moment in ("measure", "best", "history", "checkpoint", "marker")
     if moment != "best" or step <= 6],
)  # fmt: skip
def test_a_run_killed_at_any_moment_of_a_validation_ends_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, moment: str
) -> None:
    """In the measurement, before and after the best weights, the line of the history, and the next checkpoint."""
    straight, out = tmp_path / "straight", tmp_path / "killed"
    train_toy(straight, evaluation=scripted())
    places: dict[str, tuple[Any, str]] = {
        "best": (best_weights, "keep"),
        "history": (folders.RunFolder, "record"),
        "checkpoint": (folders, "write_checksums"),
        "marker": (best_weights, "remove_except"),
    }
    reached = False

    def dying(whole: Callable[..., Any], after: bool) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            found = whole(*given) if after else None
            if reached:
                raise SystemExit
            return found if after else whole(*given)

        return call

    def measure(module: Any, at: int) -> dict[str, float]:
        nonlocal reached
        reached = at >= step
        if reached and moment == "measure":
            raise SystemExit
        return dict(scripted().measure(module, at))

    with monkeypatch.context() as patch:
        if moment in places:
            owner, name = places[moment]
            patch.setattr(owner, name, dying(getattr(owner, name), after=moment in ("best", "history", "marker")))
        with pytest.raises(SystemExit):
            train_toy(out, evaluation=dataclasses.replace(scripted(), measure=measure))
    train_toy(out, evaluation=scripted())
    assert kept(out) == kept(straight)


def test_the_best_weights_belong_to_the_checkpoint_that_a_run_resumes_from(tmp_path: Path) -> None:
    """Killed after step 7, resumed from step 4: the weights of step 6 are of a time that is repeated, those of 3 not."""
    with killed_after(7):
        train_toy(tmp_path, evaluation=scripted())
    assert {path.name for path in (tmp_path / "steps").glob("best-*")} == {
        "best-3.safetensors",
        "best-6.safetensors",
    }
    # On a GPU the repeated steps may differ: step 6 is now worse than step 3, whose weights must still be there.
    _, fitted = train_toy(tmp_path, evaluation=scripted({6: 0.9, 9: 0.9, 12: 0.9}))
    assert fitted.best is not None and fitted.best.step == 3
    assert {path.name for path in (tmp_path / "steps").glob("best-*")} == {"best-3.safetensors"}


def test_training_stops_after_validations_without_gain(tmp_path: Path) -> None:
    """Patience 1: the gain of step 6 is followed by step 9 without one; with patience 3 the run ends by itself."""
    _, fitted = train_toy(tmp_path / "early", evaluation=scripted(patience=1))
    assert fitted.steps == 9 and fitted.best is not None and fitted.best.step == 6
    assert [line["step"] for line in history(tmp_path / "early") if "loss" in line] == [3, 6, 9]
    train_toy(tmp_path / "whole")
    assert [line for line in history(tmp_path / "early") if "loss" in line] == history(tmp_path / "whole")[:3]
    assert train_toy(tmp_path / "patient", evaluation=scripted(patience=3))[1].steps == 12


def test_a_run_does_not_go_on_with_other_validation_data(tmp_path: Path) -> None:
    with killed_after(5):
        train_toy(tmp_path, evaluation=dataclasses.replace(scripted(), key="a"))
    with pytest.raises(RunError, match="was begun with evaluation data: a, and now it is b"):
        train_toy(tmp_path, evaluation=dataclasses.replace(scripted(), key="b"))


# The three stages -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phantoms(tmp_path_factory.mktemp("corpus"), n=60)


@pytest.fixture(scope="module")
def llava(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"hf:{saved_llava(tmp_path_factory.mktemp('start'))}"


def stages(corpus: Path, llava: str, drops: Path, **validation: Any) -> dict[str, Callable[[Path], Any]]:
    """Each stage with validation every two steps, from tiny starts, with dropout in two of them."""
    wanted = Validation(**{"every": 2, "n": 5, **validation})
    alone = dataclasses.replace(FAST, max_length=48, group_by_length=False)
    encoder = EncoderConfig(corpus, start=f"hf:{drops}", validation=wanted, optimisation=alone)
    aligned = AlignConfig(corpus, start=llava, validation=wanted, optimisation=FAST)
    tuned = FinetuneConfig(
        corpus, start=llava, validation=wanted, optimisation=FAST, lora_rank=4, lora_alpha=8.0, lora_dropout=0.3
    )
    return {
        "encoder": lambda out: train_encoder(encoder, out),
        "align": lambda out: align(aligned, out),
        "finetune": lambda out: finetune(tuned, out),
    }


@pytest.fixture(scope="module")
def drops(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "drops"
    for part in tiny_dual_encoder():
        part.save_pretrained(folder)
    return folder


def content(out: Path) -> dict[str, bytes]:
    """Every file of a finished run that does not name a time."""
    files = [*(out / "checkpoint").iterdir(), *(out / "best").iterdir(), out / "history.jsonl", out / "summary.json"]
    return {str(path.relative_to(out)): path.read_bytes() for path in files if path.is_file()}


@pytest.mark.parametrize("stage", ["encoder", "align", "finetune"])
def test_every_stage_keeps_its_best_step_and_resumes_to_the_same_bytes(
    stage: str, corpus: Path, llava: str, drops: Path, tmp_path: Path
) -> None:
    train = stages(corpus, llava, drops)[stage]
    done = train(tmp_path / "straight")
    found = {step: one["loss"] for step, one in evaluations(tmp_path / "straight").items()}
    assert list(found) == [2, 4, 6] and all(math.isfinite(loss) for loss in found.values())
    best = min(found, key=lambda step: found[step])
    assert done.extra["validation"] == {"samples": 5, "checkpoint": "best", "step": best, "loss": found[best]}
    card = json.loads((tmp_path / "straight" / "best" / "cxrlab.json").read_text())
    assert card["steps"] == best
    with killed_after(5):
        train(tmp_path / "killed")
    train(tmp_path / "killed")
    assert content(tmp_path / "killed") == content(tmp_path / "straight")
    # Validation changes nothing of what is learnt.
    stages(corpus, llava, drops, n=0)[stage](tmp_path / "unseen")
    assert not (tmp_path / "unseen" / "best").exists()
    for path in (tmp_path / "unseen" / "checkpoint").glob("*.safetensors"):
        assert path.read_bytes() == (tmp_path / "straight" / "checkpoint" / path.name).read_bytes()


@pytest.mark.parametrize(
    "changes",
    [
        {"lora_rank": 4},
        {"lora_rank": 4, "train_vision_encoder": True},  # merged into the model that is saved
        {"lora_rank": 0, "optimisation": {"precision": "bfloat16"}},
    ],
)
def test_the_best_checkpoint_is_what_a_run_that_ends_there_saves(
    changes: dict[str, Any], corpus: Path, llava: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step 2 is made the best of six; a run of two steps has the same weights at its end, at a constant rate."""
    scores = {2: 0.1, 4: 0.5, 6: 0.3}
    evaluation = Evaluation(lambda _, step: {"loss": scores[step]}, every=2, score="loss")
    monkeypatch.setattr(validation, "report_validation", lambda *_: evaluation)
    plain = {"schedule": "constant", "warmup": 0.0, **changes.get("optimisation", {})}
    config = FinetuneConfig(
        corpus,
        start=llava,
        validation=Validation(every=2, n=2),
        lora_alpha=8.0,
        **{**changes, "optimisation": dataclasses.replace(FAST, **plain)},
    )
    done = finetune(config, tmp_path / "six")
    assert done.steps == 6 and done.extra["validation"]["step"] == 2
    short = dataclasses.replace(config.optimisation, steps=2)
    finetune(dataclasses.replace(config, optimisation=short, validation=Validation()), tmp_path / "two")
    found = (tmp_path / run for run in ("six/best", "six/checkpoint", "two/checkpoint"))
    best, last, two = (next(folder.glob("*model.safetensors")).read_bytes() for folder in found)
    assert best == two != last


def test_the_loss_is_that_of_the_saved_model_on_the_validation_split(corpus: Path, llava: str, tmp_path: Path) -> None:
    """Mean of -log p per report token of RUN/best, computed by the generation code on the same five studies."""
    config = AlignConfig(corpus, start=llava, validation=Validation(every=2, n=5), optimisation=FAST)
    done = align(config, tmp_path / "run")
    model = HfModel.load(str(tmp_path / "run" / "best"))
    samples = read_source(ExtraCorpus(corpus), 5, FAST.seed, "val").samples
    held = set(load_corpus(corpus).ids("val"))
    assert len(samples) == 5 and {sample.id for sample in samples} <= held
    images = [load_image(image.path) for sample in samples for image in sample.images]
    encoded = model.encode(images, [""] * 5, [sample.report for sample in samples])
    with torch.no_grad():
        scores = report_log_probs(model.model, encoded)
    expected = float(-scores.values.sum() / scores.mask.sum())
    assert done.extra["validation"]["loss"] == pytest.approx(expected, rel=1e-4)


def test_the_contrastive_loss_is_computed_over_blocks_of_the_training_size(
    corpus: Path, drops: Path, tmp_path: Path
) -> None:
    """Four pairs are compared per step: five validation pairs give one block of four. With all of them in one block the
    loss equals the one that NumPy computes from the embeddings of RUN/best."""
    alone = dataclasses.replace(FAST, max_length=48, group_by_length=False, batch_size=6)
    config = EncoderConfig(corpus, start=f"hf:{drops}", validation=Validation(every=3, n=5), optimisation=alone)
    done = train_encoder(config, tmp_path / "run")
    encoder = load_encoder(f"hf:{tmp_path / 'run' / 'best'}")
    samples = read_source(ExtraCorpus(corpus), 5, FAST.seed, "val").samples
    assert len({sample.report for sample in samples}) == 5
    images = encoder.embed_images([load_image(image.path) for sample in samples for image in sample.images])
    texts = encoder.embed_texts([sample.report for sample in samples])
    logits = float(load_file(tmp_path / "run" / "best" / "model.safetensors")["logit_scale"].exp()) * images @ texts.T

    def cross_entropy(rows: Any) -> float:
        return float(np.mean(np.log(np.exp(rows).sum(1)) - np.diag(rows)))

    expected = (cross_entropy(logits) + cross_entropy(logits.T)) / 2
    assert done.extra["validation"]["loss"] == pytest.approx(expected, rel=1e-3)


def test_early_stop_ends_a_stage(corpus: Path, llava: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A learning rate so small that nothing is gained after step 1. A kill while the result is written takes no further
    step, and the result has the same bytes."""
    still = dataclasses.replace(FAST, learning_rate=1e-12, warmup=0.0)
    config = AlignConfig(corpus, start=llava, optimisation=still, validation=Validation(every=1, n=4, patience=2))
    done = align(config, tmp_path / "run")
    assert done.steps == 3 and done.extra["validation"]["step"] == 1 and state(tmp_path / "run") == "finished"
    with monkeypatch.context() as patch:
        patch.setattr(align_finetune, "save_trained", lambda *_: sys.exit())
        with pytest.raises(SystemExit):
            align(config, tmp_path / "killed")
    with monkeypatch.context() as patch:
        patch.setattr(ExactTrainer, "training_step", lambda *_: pytest.fail("another step was taken"))
        assert align(config, tmp_path / "killed") == done
    assert content(tmp_path / "killed") == content(tmp_path / "run")


def test_a_corpus_without_validation_split_trains_as_before_with_a_notice(
    corpus: Path, llava: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The notice names the flag of another corpus, which then is validated on."""
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "images").symlink_to(corpus / "images")
    (bare / "card.yaml").write_bytes((corpus / "card.yaml").read_bytes())
    lines = (corpus / "studies.jsonl").read_text().splitlines()
    (bare / "studies.jsonl").write_text("".join(f"{line}\n" for line in lines if '"val"' not in line))
    config = AlignConfig(bare, start=llava, optimisation=FAST, validation=Validation(every=2, n=5))
    done = align(config, tmp_path / "run")
    assert "--validation.data" in capsys.readouterr().err
    assert "validation" not in done.extra and not (tmp_path / "run" / "best").exists()
    other = dataclasses.replace(config, validation=Validation(every=2, n=5, data=corpus))
    assert align(other, tmp_path / "other").extra["validation"]["samples"] == 5
    assert not capsys.readouterr().err.count("No validation loss")


def test_a_validation_split_that_cannot_be_used_is_refused_before_the_run_is_made(
    corpus: Path, llava: str, tmp_path: Path
) -> None:
    studies = [json.loads(line) for line in (corpus / "studies.jsonl").read_text().splitlines()]
    for study in studies:
        if study["split"] == "val":
            study["sections"]["findings"] = None
    bare = tmp_path / "bare"
    bare.mkdir()
    (bare / "images").symlink_to(corpus / "images")
    (bare / "card.yaml").write_bytes((corpus / "card.yaml").read_bytes())
    (bare / "studies.jsonl").write_text("".join(json.dumps(study) + "\n" for study in studies))
    config = AlignConfig(bare, start=llava, optimisation=FAST, validation=Validation(every=2))
    with pytest.raises(DataError, match=r"val studies .*no text.* --validation\.n 0"):
        align(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_settings_that_mean_nothing_are_refused() -> None:
    for wrong in ({"every": 0}, {"n": -1}, {"every": 2, "patience": 0}, {"patience": 2}):
        with pytest.raises(ConfigError):
            Validation(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "samples"),
    [
        ({}, ["v1 PA sections"]),
        ({"members": ("a",)}, ["v1 PA sections"]),
        ({"views": ("PA", "lateral")}, ["v1 PA sections", "v1 lateral sections"]),
        ({"text": "sections,gpt-4"}, ["v1 PA sections", "v1 PA structured:gpt-4"]),
    ],
)
def test_validation_beside_a_composition_reads_the_same_texts_and_views(
    settings: dict[str, Any], samples: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A composition holds train studies alone, so it is validated with the val studies of a member, named by the user."""
    both = {"structured": {"gpt-4": {"findings": "Structured."}}}
    member = corpus_of(
        tmp_path / "a",
        [study_of(number, **both) for number in range(3)] + [held(1, ("PA", "lateral"), **both), held(2, ())],
    )
    composed = compose_corpus(
        plan(composition({"a": member.path, "b": corpus_of(tmp_path / "b", [study_of(9)]).path})), tmp_path / "both"
    )
    config = AlignConfig(composed.path, start="hf:none", validation=Validation(every=2), **settings)
    assert validation.validation_source(config) is None and "--validation.data" in capsys.readouterr().err
    named = dataclasses.replace(config, validation=Validation(every=2, data=member.path))
    source = validation.validation_source(named)
    assert source is not None
    found = [f"{sample.id} {sample.kind.view} {sample.kind.text}" for sample in source.samples]
    assert found == samples and source.left_out == {"no image": 1}


def held(number: int, views: tuple[str, ...], **changes: Any) -> Study:
    """A val study v<k>."""
    return study_of(number, views, id=f"v{number}", patient=f"q{number}", split="val", **changes)


def test_members_apply_to_the_corpus_that_is_validated_if_it_is_composed(tmp_path: Path) -> None:
    """Written by hand: a composition with val studies, of two members."""
    marks = {"a": {"corpus": "a", "texts": ["sections"]}, "b": {"corpus": "b", "texts": ["sections"]}}
    studies = [held(number, ("PA",), extra=marks[name]) for number, name in enumerate("aab")]
    other = corpus_of(tmp_path / "other", studies)
    main = corpus_of(tmp_path / "main", [study_of(5)])
    for members, samples in (((), 3), (("a",), 2), (("b",), 1)):
        config = EncoderConfig(
            main.path, start="hf:none", members=members, validation=Validation(every=2, data=other.path)
        )
        source = validation.validation_source(config)
        assert source is not None and len(source.samples) == samples
    unknown = EncoderConfig(main.path, start="hf:none", members=("c",), validation=config.validation)
    with pytest.raises(ConfigError, match=r"'c'.* --validation\.n 0"):
        validation.validation_source(unknown)


@pytest.mark.full
def test_two_processes_validate_as_one(corpus: Path, llava: str, tmp_path: Path) -> None:
    """Five samples in batches of two: the first process has three of them, the second two. Both stop at the same step."""
    once = dataclasses.replace(FAST, learning_rate=1e-12, warmup=0.0, batch_size=2, accumulate=2)
    config = AlignConfig(corpus, start=llava, optimisation=once, validation=Validation(every=1, n=5, patience=2))
    done = align(config, tmp_path / "one")
    file = tmp_path / "two.yaml"
    file.write_text(to_yaml(dataclasses.replace(config, optimisation=dataclasses.replace(once, accumulate=1))))
    command = [sys.executable, "-m", "cxrlab", "train", "align", "--config", str(file), "--out", str(tmp_path / "two")]
    assert run_together(command) == [0, 0]
    two = read_result(tmp_path / "two")
    assert two.steps == done.steps == 3
    for own, other in zip(evaluations(tmp_path / "one").values(), evaluations(tmp_path / "two").values(), strict=True):
        assert own["loss"] == pytest.approx(other["loss"], rel=1e-6)
    assert load_file(tmp_path / "two" / "best" / "model.safetensors").keys()
