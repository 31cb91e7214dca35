"""Stage 3 end to end on tiny models."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training_fixtures import FAST, killed_after, losses, phantoms, saved_llava

from cxrlab.core.errors import ConfigError, DataError, RunError
from cxrlab.core.runs import state
from cxrlab.data.images import load_image
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_card import read_model_card
from cxrlab.training import memory_estimate, trainer
from cxrlab.training.align_finetune import count_trainable, finetune, select_trainable
from cxrlab.training.config import Augmentation, ExtraCorpus, FinetuneConfig
from cxrlab.training.samples import Sample, read_source

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> FinetuneConfig:
    top = tmp_path_factory.mktemp("finetune")
    start = saved_llava(top / "start")
    return FinetuneConfig(
        data=phantoms(top / "corpus"), start=f"hf:{start}", lora_rank=4, lora_alpha=8.0, optimisation=FAST,
        cache=top / "cache",
    )  # fmt: skip


@pytest.fixture(scope="module")
def tuned(config: FinetuneConfig) -> Path:
    out = config.data.parent / "tuned"
    finetune(config, out)
    return out


def samples(config: FinetuneConfig, n: int = 8) -> tuple[Sample, ...]:
    return read_source(ExtraCorpus(config.data)).samples[:n]


def loss(folder: Path, config: FinetuneConfig, *, indication: bool = True) -> float:
    """Mean loss of a few reports as the wrapper scores them."""
    model, chosen = HfModel.load(str(folder)), samples(config)
    images = [load_image(image.path) for sample in chosen for image in sample.images]
    reasons = [sample.indication for sample in chosen] if indication else None
    with torch.no_grad():
        return float(model.losses(images, [sample.report for sample in chosen], reasons).mean())


def test_the_adapter_opens_on_its_base_and_has_learnt(config: FinetuneConfig, tuned: Path) -> None:
    """Scored by the wrapper on the same reports: below the loss of the start."""
    folder = tuned / "checkpoint"
    card = read_model_card(folder)
    assert card is not None and card.base == "hf:../../start" and card.stage == "finetune"
    assert card.trained_on == "synthetic" and HfModel.load(str(folder)).trained_on == "synthetic"
    assert (folder / "adapter_model.safetensors").is_file() and not (folder / "model.safetensors").exists()
    stored = load_file(folder / "adapter_model.safetensors")
    assert any("multi_modal_projector" in name for name in stored)
    assert all("lora_" in name or "multi_modal_projector" in name for name in stored)
    assert loss(folder, config) < loss(config.data.parent / "start", config) - 0.01


def test_the_folder_may_move_with_its_base(config: FinetuneConfig, tuned: Path, tmp_path: Path) -> None:
    """The base is named by a relative path: both folders copied elsewhere still find each other."""
    shutil.copytree(config.data.parent / "start", tmp_path / "start")
    shutil.copytree(tuned / "checkpoint", tmp_path / "tuned" / "checkpoint")
    here = loss(tmp_path / "tuned" / "checkpoint", config)
    assert here == pytest.approx(loss(tuned / "checkpoint", config), abs=1e-6)


def test_a_start_from_parts_writes_down_what_the_adapter_stands_on(config: FinetuneConfig, tmp_path: Path) -> None:
    parts = {"start": None, "encoder": "fresh:tiny", "language_model": "fresh:tiny"}
    finetune(dataclasses.replace(config, **parts), tmp_path / "run")  # type: ignore[arg-type]
    card = read_model_card(tmp_path / "run" / "checkpoint")
    assert card is not None and card.base == "hf:../base" and card.extra["made_from"] == {
        "encoder": "fresh:tiny", "language_model": "fresh:tiny",
    }  # fmt: skip
    assert np.isfinite(loss(tmp_path / "run" / "checkpoint", config))


def test_without_adapters_the_whole_language_model_is_trained(config: FinetuneConfig, tmp_path: Path) -> None:
    finetune(dataclasses.replace(config, lora_rank=0), tmp_path / "run")
    old = load_file(config.data.parent / "start" / "model.safetensors")
    new = load_file(tmp_path / "run" / "checkpoint" / "model.safetensors")
    moved = {name for name in old if not torch.equal(old[name], new[name])}
    assert moved and not any("vision_tower" in name for name in moved)
    assert any("embed_tokens" in name for name in moved) and any("projector" in name for name in moved)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({}, {"lora", "projector"}),
        ({"train_projector": False}, {"lora"}),
        ({"train_vision_encoder": True}, {"lora", "projector", "vision_encoder"}),
        ({"lora_rank": 0}, {"language", "projector"}),
        ({"lora_rank": 0, "train_projector": False}, {"language"}),
        ({"lora_rank": 0, "train_language": False}, {"projector"}),
        ({"lora_rank": 0, "train_language": False, "train_vision_encoder": True}, {"projector", "vision_encoder"}),
    ],
)
def test_what_is_trained_is_what_the_settings_say(config: FinetuneConfig, changes: Any, parts: set[str]) -> None:
    from tiny_models import tiny_llava

    model, _ = tiny_llava()
    reported = count_trainable(model, dataclasses.replace(config, **changes))
    select_trainable(model, dataclasses.replace(config, **changes))
    found, count = set(), sum(value.numel() for value in model.parameters() if value.requires_grad)
    assert count == reported or ("vision_encoder" in parts and reported - 20_000 < count < reported)
    for name, value in model.named_parameters():
        if value.requires_grad:
            found.add(
                "lora" if "lora_" in name
                else "projector" if "projector" in name
                else "vision_encoder" if "vision_tower" in name
                else "language"
            )  # fmt: skip
    assert found == parts


def test_a_trained_vision_encoder_is_written_whole(config: FinetuneConfig, tmp_path: Path) -> None:
    finetune(dataclasses.replace(config, train_vision_encoder=True), tmp_path / "run")
    old = load_file(config.data.parent / "start" / "model.safetensors")
    new = load_file(tmp_path / "run" / "checkpoint" / "model.safetensors")
    assert old.keys() == new.keys()
    assert any("vision_tower" in name and not torch.equal(old[name], new[name]) for name in old)


def test_layers_behind_the_features_are_not_trained(config: FinetuneConfig) -> None:
    """Features come from the last layer but one: the last one would never get a gradient."""
    from tiny_models import tiny_llava

    model, _ = tiny_llava()
    select_trainable(model, dataclasses.replace(config, train_vision_encoder=True))
    layers = [
        any(value.requires_grad for value in layer.parameters()) for layer in model.model.vision_tower.encoder.layer
    ]
    assert layers == [True, False]


def test_a_run_does_not_go_on_with_other_data(config: FinetuneConfig, tmp_path: Path) -> None:
    """The config names the folder; its images and words may have changed since the run was stopped."""
    corpus = shutil.copytree(config.data, tmp_path / "corpus")
    mine = dataclasses.replace(config, data=corpus)
    with killed_after(4):
        finetune(mine, tmp_path / "run")
    studies = (corpus / "studies.jsonl").read_text().replace("eart", "EART")
    (corpus / "studies.jsonl").write_text(studies)
    with pytest.raises(RunError, match="was begun with data: .* choose another folder"):
        finetune(mine, tmp_path / "run")


def test_a_run_does_not_go_on_from_a_start_that_changed(config: FinetuneConfig, tmp_path: Path) -> None:
    """The start folder holds another model by now: half of the training would belong to each."""
    start = saved_llava(tmp_path / "start")
    mine = dataclasses.replace(config, start=f"hf:{start}")
    with killed_after(4):
        finetune(mine, tmp_path / "run")
    shutil.rmtree(start)
    saved_llava(start, seed=1)
    with pytest.raises(RunError, match="was begun with weights: .* choose another folder"):
        finetune(mine, tmp_path / "run")


def test_a_result_that_was_altered_is_not_opened(
    config: FinetuneConfig, tuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two bytes of the weights; then a config that another program changed; on purpose, it is said."""
    out = Path(shutil.copytree(tuned, tmp_path / "run"))
    file = out / "checkpoint" / "adapter_model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-2] + bytes(one ^ 255 for one in content[-2:]))
    for use in (lambda: HfModel.load(str(out)), lambda: finetune(config, out)):
        with pytest.raises(DataError, match=rf"is damaged: .*{file.name}.*checksums.json"):
            use()
    file.write_bytes(content)
    finetune(config, out)
    card = out / "checkpoint" / "cxrlab.json"
    card.write_text(card.read_text().replace("finetune", "Finetune"))
    with pytest.raises(DataError, match=r"is damaged: .*cxrlab.json"):
        HfModel.load(str(out))
    (out / "checkpoint" / "checksums.json").unlink()
    capsys.readouterr()
    # The base's path counts from the folder, which has moved.
    settings = LoadSettings(base=config.start)
    assert HfModel.load(str(out), loading=settings).name and HfModel.load(str(out), loading=settings).name
    assert capsys.readouterr().err.count("was not verified") == 1


def test_what_an_adapter_stands_on_is_never_that_of_an_earlier_start(config: FinetuneConfig, tmp_path: Path) -> None:
    """Killed before the first step, after the parts were written down; then the parts changed."""
    mine = dataclasses.replace(config, start=None, encoder="fresh:tiny", language_model="fresh:tiny")
    finetune(mine, tmp_path / "straight")
    finetune(mine, tmp_path / "run")
    base, adapter = tmp_path / "run/base/model.safetensors", "checkpoint/adapter_model.safetensors"
    for name in ("summary.json", "status.json", "history.jsonl"):
        (tmp_path / "run" / name).unlink()
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    base.write_bytes(base.read_bytes()[:-4] + b"\0\0\0\0")
    finetune(mine, tmp_path / "run")
    assert base.read_bytes() == (tmp_path / "straight/base/model.safetensors").read_bytes()
    assert (tmp_path / "run" / adapter).read_bytes() == (tmp_path / "straight" / adapter).read_bytes()


def test_a_run_that_was_killed_after_its_summary_is_ended_not_repeated(
    config: FinetuneConfig, tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill came while the steps were removed: what is left of them is no longer whole, and nobody needs it."""
    out = Path(shutil.copytree(tuned, tmp_path / "run"))
    broken = out / "steps" / "checkpoint-6"
    broken.mkdir(parents=True)
    (broken / "complete").write_text("weights and optimiser are gone already")
    (out / "status.json").write_text('{"state": "running"}')
    monkeypatch.setattr(trainer, "fit", lambda *_: pytest.fail("trained again"))
    assert finetune(config, out) == finetune(config, tuned)
    assert state(out) == "finished" and not (out / "steps").exists()


def test_a_image_with_two_texts_is_decoded_once(config: FinetuneConfig, tmp_path: Path) -> None:
    """As LLaVA-Rad learns the rules' and the model's text of one corpus."""
    both = dataclasses.replace(config, extra_corpora={"again": {"data": str(config.data)}}, cache=tmp_path / "cache")
    done = finetune(both, tmp_path / "run")
    images = [folder for folder in (tmp_path / "cache").iterdir() if folder.name.startswith("images-")]
    (state_of,) = (json.loads((folder / "state.json").read_text()) for folder in images)
    assert 2 * state_of["shape"][0] == done.rows


def test_images_are_varied_for_a_vision_encoder_that_is_trained(config: FinetuneConfig, tmp_path: Path) -> None:
    """The loss of the first step differs from that of the images as they are; a stopped run ends with the same bytes."""
    plain = dataclasses.replace(config, train_vision_encoder=True, lora_rank=0)
    varied = dataclasses.replace(plain, augmentation=Augmentation())
    for name, mine in (("plain", plain), ("varied", varied)):
        finetune(mine, tmp_path / name)
    with killed_after(4):
        finetune(varied, tmp_path / "again")
    finetune(varied, tmp_path / "again")
    assert losses(tmp_path / "plain")[0] != losses(tmp_path / "varied")[0]
    assert losses(tmp_path / "again") == losses(tmp_path / "varied")
    file = "checkpoint/model.safetensors"
    assert (tmp_path / "again" / file).read_bytes() == (tmp_path / "varied" / file).read_bytes()


def test_compiled_layers_learn_the_same(
    config: FinetuneConfig, tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every layer is handed to the compiler; a backend that runs what it is given shows that nothing else changed."""
    given: list[dict[str, Any]] = []
    whole = torch.nn.Module.compile

    def noted(module: torch.nn.Module, **settings: Any) -> None:
        given.append(settings)
        whole(module, backend="eager", **settings)

    monkeypatch.setattr(torch.nn.Module, "compile", noted)
    compiled = dataclasses.replace(config.optimisation, compiled=True)
    finetune(dataclasses.replace(config, optimisation=compiled), tmp_path / "run")
    assert given == [{"dynamic": True}] * 2
    assert losses(tmp_path / "run") == pytest.approx(losses(tuned), abs=1e-5)


def test_words_alone_and_told_are_learnt_beside_images(config: FinetuneConfig, tmp_path: Path) -> None:
    """The general model's diet."""
    data = str(config.data)
    also = {
        "words": {"data": data, "images": False},
        "reported": {"data": data, "images": False, "findings_in_prompt": True},
    }
    done = finetune(dataclasses.replace(config, extra_corpora=also), tmp_path / "run")
    assert done.rows == 3 * len(read_source(ExtraCorpus(config.data)).samples)
    with pytest.raises(ConfigError, match="extra_corpora, 'words': a frozen language model learns nothing"):
        dataclasses.replace(config, extra_corpora=also, train_language=False, lora_rank=0)


def test_closed_questions_are_learnt_beside_reports(config: FinetuneConfig, tmp_path: Path) -> None:
    """Each study gives a question that is answered by yes and one by no; a model that learns them tells them apart."""
    from cxrlab.findings.closed_questions import NO, YES
    from cxrlab.training.samples import read_source

    asked = read_source(ExtraCorpus(config.data, questions=True)).samples
    assert {sample.report for sample in asked} == {YES, NO} and all(sample.question for sample in asked)
    also = {"questions": {"data": str(config.data), "questions": True}}
    done = finetune(dataclasses.replace(config, extra_corpora=also), tmp_path / "run")
    assert done.rows == len(asked) + len(read_source(ExtraCorpus(config.data)).samples)
    model = HfModel.load(str(tmp_path / "run" / "checkpoint"))
    image = np.zeros((32, 32), np.float32)
    first = asked[0].question
    assert first is not None and 0.0 < float(model.probability_of_yes([image], [first])) < 1.0


@pytest.mark.parametrize(
    "changes",
    [
        {"train_language": False},
        {"train_language": False, "lora_rank": 0, "train_projector": False},
    ],
)
def test_a_language_model_left_as_it_is_leaves_something_to_train(config: FinetuneConfig, changes: Any) -> None:
    with pytest.raises(ConfigError, match="train_language=false"):
        dataclasses.replace(config, **changes)


def test_too_little_memory_is_told_before_the_run_is_made(
    config: FinetuneConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_estimate, "available_memory", lambda device: 1000)
    with pytest.raises(ConfigError, match="training needs about .* GB"):
        finetune(config, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_indication_stands_in_the_prompt_or_does_not(config: FinetuneConfig, tuned: Path, tmp_path: Path) -> None:
    """Without it samples are shorter by its words; the model's answers depend on the image either way."""
    without = finetune(dataclasses.replace(config, indication=False), tmp_path / "run")
    with_ = finetune(config, tuned)
    assert without.extra["mean_sample"] < with_.extra["mean_sample"]


def test_bfloat16_adapters_train(config: FinetuneConfig, tmp_path: Path) -> None:
    half = dataclasses.replace(FAST, precision="bfloat16", gradient_checkpointing=True)
    finetune(dataclasses.replace(config, optimisation=half, lora_dropout=0.1), tmp_path / "run")
    stored = load_file(tmp_path / "run" / "checkpoint" / "adapter_model.safetensors")
    assert all(torch.isfinite(value).all() for value in stored.values())
    assert np.isfinite(loss(tmp_path / "run" / "checkpoint", config))


def test_same_seed_same_bytes_also_with_dropout(config: FinetuneConfig, tmp_path: Path) -> None:
    dropped = dataclasses.replace(config, lora_dropout=0.2)
    for name in "ab":
        finetune(dropped, tmp_path / name)
    one, other = ((tmp_path / name / "checkpoint/adapter_model.safetensors").read_bytes() for name in "ab")
    assert one == other


def test_a_run_that_stops_between_training_and_result_goes_on(
    config: FinetuneConfig, tuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last checkpoint is complete, the result is not: the second call takes no step and writes it."""
    from cxrlab.training import align_finetune as stage

    def broken(*_: Any) -> None:
        raise SystemExit

    monkeypatch.setattr(stage, "save_trained", broken)
    with pytest.raises(SystemExit):
        finetune(config, tmp_path / "run")
    monkeypatch.undo()
    finetune(config, tmp_path / "run")
    file = "checkpoint/adapter_model.safetensors"
    assert (tmp_path / "run" / file).read_bytes() == (tuned / file).read_bytes()


@pytest.mark.parametrize(
    ("start", "said"),
    [("nowhere", "nowhere does not exist"), ("{}/corpus", "holds no finished training")],
)
def test_a_start_of_the_wrong_kind_is_refused(
    config: FinetuneConfig, tuned: Path, tmp_path: Path, start: str, said: str
) -> None:
    with pytest.raises(DataError, match=said):
        finetune(dataclasses.replace(config, start=start.format(tuned.parent)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_training_goes_on_from_an_adapter_as_from_the_merged_model(
    config: FinetuneConfig, tuned: Path, tmp_path: Path
) -> None:
    from cxrlab.models.hf.checkpoint import open_checkpoint

    merged = tmp_path / "merged"
    opened = open_checkpoint(tuned / "checkpoint", merge=True)
    opened.model.save_pretrained(merged)
    opened.processor.save_pretrained(merged)
    runs = {"adapter": str(tuned), "merged": f"hf:{merged}"}
    weights = {}
    for name, start in runs.items():
        finetune(dataclasses.replace(config, start=start), tmp_path / f"from_{name}")
        weights[name] = load_file(tmp_path / f"from_{name}" / "checkpoint" / "adapter_model.safetensors")
    assert weights["adapter"].keys() == weights["merged"].keys()
    for key, value in weights["adapter"].items():
        torch.testing.assert_close(value, weights["merged"][key], rtol=0, atol=1e-5)
    # The second adapter names the first as its base, which stands on a whole model.
    again = open_checkpoint(tmp_path / "from_adapter" / "checkpoint", merge=True).model.state_dict()
    other = open_checkpoint(tmp_path / "from_merged" / "checkpoint", merge=True).model.state_dict()
    for key, value in again.items():
        torch.testing.assert_close(value, other[key], rtol=0, atol=1e-5)
