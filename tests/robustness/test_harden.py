"""Hardening of a tiny vision encoder on a few phantoms: what it gains, what it leaves alone, and how it goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from preference_runs import single_thread
from safetensors.torch import load_file
from tiny_families import save_tiny
from tiny_models import tiny_dual_encoder
from training_fixtures import phantoms, saved_llava

import cxrlab
from cxrlab.core.errors import ConfigError, CxrlabError, DataError, RunError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.registry import Registry
from cxrlab.data.corpus import load_corpus
from cxrlab.data.views import load_selected_image
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.model_card import ModelCard, read_model_card, write_model_card
from cxrlab.models.model_registry import load_encoder
from cxrlab.robustness.config import HARDENING_LOSSES, HardenConfig
from cxrlab.robustness.encoder_features import open_vision_encoder
from cxrlab.robustness.harden import batch_of, harden, plan_hardening, planned_steps, rate_at, squared_distances

pytestmark = pytest.mark.slow

CPU = LoadSettings(device="cpu")
CARD = ModelCard("finetune", "llava-rad/1", ("scenes",), extra={"seed": 3})


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with single_thread():
        yield


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> HardenConfig:
    """Forty steps of four images."""
    top = tmp_path_factory.mktemp("harden")
    start = saved_llava(top / "start")
    write_model_card(CARD, start)
    return HardenConfig(
        model=f"hf:{start}", data=phantoms(top / "corpus"), eps="32/255", steps=40, batch_size=4, attack_steps=2,
        measure_n=6, measure_steps=5, learning_rate=2e-3, log_every=10, save_every=25, cache=top / "cache", loading=CPU,
    )  # fmt: skip


@pytest.fixture(scope="module")
def done(config: HardenConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    with single_thread():
        harden(config, out := tmp_path_factory.mktemp("done") / "run")
    return out


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def start_of(config: HardenConfig) -> Path:
    return Path(config.model.removeprefix("hf:"))


def measured(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "harden.json").read_text())["measured"]
    return found


def test_an_attack_moves_the_features_less_and_clean_ones_stay_near(config: HardenConfig, done: Path) -> None:
    """The means in harden.json are those of the images in measured.jsonl, of which there are as many as it says."""
    found = measured(done)
    before, after, clean = found["attacked"]["before"], found["attacked"]["after"], found["clean"]
    assert after["distance"] < 0.7 * before["distance"] and after["cosine"] > before["cosine"]
    assert clean["distance"] < after["distance"] and clean["cosine"] > 0.9
    lines = [line for _, line in read_jsonl(done / "measured.jsonl")]
    assert found["n"] == len(lines) == len(load_corpus(config.data).ids("val")[:6])
    assert before["distance"] == pytest.approx(sum(line["before"] for line in lines) / len(lines))
    assert before["share"] == pytest.approx(before["distance"] * len(lines) / sum(line["length"] for line in lines))


def test_only_the_vision_encoder_has_learnt(config: HardenConfig, done: Path) -> None:
    """Language model and projector are the same bit for bit; so is the encoder's last layer, which LLaVA never uses."""
    old, new = weights(start_of(config)), weights(done / "checkpoint")
    assert old.keys() == new.keys()
    changed = {name for name in old if not torch.equal(old[name], new[name])}
    assert changed and all("vision_tower" in name for name in changed)


def test_the_result_opens_by_name_and_writes_a_report(config: HardenConfig, done: Path) -> None:
    corpus = load_corpus(config.data)
    model: Any = cxrlab.load_model(f"hf:{done / 'checkpoint'}", device="cpu")
    answer = model.generate([load_selected_image(corpus, corpus[corpus.ids("val")[0]])])[0]
    assert isinstance(answer.text, str) and answer.tokens is not None
    assert model.collections == ("scenes", "phantom")
    card = read_model_card(done / "checkpoint")
    assert card is not None and card.prompts == "llava-rad/1" and card.stage == "finetune" and card.extra["seed"] == 3
    assert card.trained_on == "synthetic"
    assert (
        card.extra["hardened_vision_encoder"]["eps"] == "32/255"
        and card.extra["hardened_vision_encoder"]["steps"] == 40
    )


def test_the_history_has_losses_that_add_up(done: Path) -> None:
    lines = [line for _, line in read_jsonl(done / "history.jsonl")]
    assert [line["step"] for line in lines] == [10, 20, 30, 40]
    assert all(line["loss"] == pytest.approx(line["attacked"] + line["clean"]) for line in lines)


def test_a_new_row_is_a_new_loss_with_a_weight(
    config: HardenConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its value is in the history beside the others, and its weight is a setting at once."""
    rows = Registry("hardening loss", {**HARDENING_LOSSES.rows, "repeated": HARDENING_LOSSES.rows["clean"]})
    for module in ("config", "harden"):
        monkeypatch.setattr(f"cxrlab.robustness.{module}.HARDENING_LOSSES", rows)
    harden(replace(config, steps=2, log_every=1, measure_n=0, loss_weights=("repeated=3",)), tmp_path / "run")
    for _, line in read_jsonl(tmp_path / "run" / "history.jsonl"):
        assert line["repeated"] == line["clean"]
        assert line["loss"] == pytest.approx(line["attacked"] + 4 * line["clean"])


def test_a_killed_run_goes_on_and_ends_with_the_same_bytes(
    config: HardenConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before anything was saved, and again later; weights, history and measurements are as in one go."""
    short = replace(config, steps=8, log_every=2, save_every=3)
    harden(short, tmp_path / "straight")
    true = rate_at
    for stop in (2, 5):

        def killed(step: int, *given: Any, stop: int = stop) -> float:
            if step == stop:
                raise KeyboardInterrupt
            return true(step, *given)

        monkeypatch.setattr("cxrlab.robustness.harden.rate_at", killed)
        with pytest.raises(KeyboardInterrupt):
            harden(short, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint").exists()
    monkeypatch.undo()
    state = tmp_path / "run" / "steps" / "checkpoint-3" / "state.pt"
    content = state.read_bytes()
    state.write_bytes(content[:-1] + b"x")
    with pytest.raises(RunError, match=r"checkpoint-3 is damaged: .*state.pt"):
        harden(short, tmp_path / "run")
    state.write_bytes(content)
    harden(short, tmp_path / "run")
    for name in ("history.jsonl", "harden.json", "checkpoint/model.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
    assert not (tmp_path / "run" / "steps").exists()


def test_a_finished_run_is_left_as_it_is_and_other_settings_are_refused(config: HardenConfig, done: Path) -> None:
    stamp = (done / "checkpoint" / "model.safetensors").stat().st_mtime_ns
    training, found = harden(replace(config, save_every=7), done)
    assert (training.steps, training.samples, found["measured"]) == (40, 160, measured(done))
    assert (done / "checkpoint" / "model.safetensors").stat().st_mtime_ns == stamp
    with pytest.raises(CxrlabError, match="other settings"):
        harden(replace(config, eps="2/255"), done)


def test_a_contrastive_encoder_is_hardened_without_its_text_encoder(config: HardenConfig, tmp_path: Path) -> None:
    """Its texts keep their vectors bit for bit; a model without a card gets none."""
    model, tokenizer, image_processor = tiny_dual_encoder()
    for part in (model, tokenizer, image_processor):
        part.save_pretrained(tmp_path / "encoder")
    harden(replace(config, model=f"hf:{tmp_path / 'encoder'}", steps=20), tmp_path / "run")
    found = measured(tmp_path / "run")
    assert found["attacked"]["after"]["distance"] < found["attacked"]["before"]["distance"]
    before, after = (load_encoder(f"hf:{tmp_path / name}", CPU) for name in ("encoder", "run/checkpoint"))
    assert (before.embed_texts(["no edema"]) == after.embed_texts(["no edema"])).all()
    assert read_model_card(tmp_path / "run" / "checkpoint") is None
    changed = weights(tmp_path / "run" / "checkpoint")
    assert all("vision_model" in name for name, old in weights(tmp_path / "encoder").items()
               if not torch.equal(old, changed[name]))  # fmt: skip


def test_the_vision_encoder_sees_what_its_projector_is_given(config: HardenConfig) -> None:
    """The features are those of the layer that LLaVA's config names, class token dropped."""
    encoder = open_vision_encoder(config.model, CPU)
    images = torch.rand(2, 1, 32, 32)
    found = encoder(images)
    processor = encoder.image_processor
    mean, deviation = (torch.tensor(values).view(3, 1, 1) for values in (processor.image_mean, processor.image_std))
    layers = encoder.module((images.expand(-1, 3, -1, -1) - mean) / deviation, output_hidden_states=True).hidden_states
    assert torch.allclose(found, layers[encoder.model.config.vision_feature_layer][:, 1:], atol=1e-5)


def test_gemma_has_a_vision_encoder_by_itself_and_models_of_tiles_are_refused(
    config: HardenConfig, tmp_path: Path
) -> None:
    """An image of 32 pixels in patches of 8: 16 of them reach the projector, before it pools them."""
    encoder = open_vision_encoder(f"hf:{save_tiny('gemma3', tmp_path / 'gemma')}", CPU)
    assert encoder(torch.rand(2, 1, 32, 32)).shape[:2] == (2, 16)
    for family, message in (("llava_next", "one array per image"), ("qwen2_5_vl", "no separate vision encoder")):
        with pytest.raises(ConfigError, match=message):
            harden(replace(config, model=f"hf:{save_tiny(family, tmp_path / family)}"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_copy_stays_when_the_vision_encoder_learns(config: HardenConfig) -> None:
    encoder = open_vision_encoder(config.model, CPU)
    images = torch.rand(1, 1, 32, 32)
    with torch.no_grad():
        before, old = encoder.frozen(), encoder(images)
        for value in encoder.module.parameters():
            value.mul_(0.5)
        assert torch.equal(before(images), old) and not torch.allclose(encoder(images), old)


def test_a_distance_that_a_person_can_check() -> None:
    """Patches that are (3, 4) and (0, 1) away: (25 + 1) / 2."""
    reference = torch.zeros(1, 2, 2)
    assert squared_distances(torch.tensor([[[3.0, 4.0], [0.0, 1.0]]]), reference).tolist() == [13.0]


def test_every_pass_goes_over_all_images_in_an_order_of_its_own() -> None:
    """Six images in batches of four: three batches are two passes."""
    seen = [number for step in range(3) for number in batch_of(step, 6, 4, seed=7)]
    assert sorted(seen[:6]) == sorted(seen[6:]) == list(range(6)) and seen[:6] != seen[6:]


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [rate_at(step, 40, 1.0) for step in range(40)]
    assert rates[:3] == [0.5, 1.0, 1.0] and rates[21] == pytest.approx(0.5) and 0 < rates[-1] < 0.01


def test_steps_are_counted_from_epochs(config: HardenConfig) -> None:
    assert planned_steps(replace(config, steps=None, epochs=3), 10) == 8  # 30 images in batches of 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"eps": "8"}, "8/255"),
        ({"eps": "0"}, "eps=0"),
        ({"loss_weights": ("clean=-1",)}, "loss_weights=clean=-1"),
        ({"loss_weights": ("clan=1",)}, "Did you mean .clean.*Known: attacked, clean"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"steps": 0}, "steps=0"),
    ],
)
def test_settings_out_of_range_are_refused(config: HardenConfig, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(config, **changes)


def test_what_cannot_be_hardened_is_reported_before_a_folder_is_made(config: HardenConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="'stub:normal' has no vision encoder"):
        harden(replace(config, model="stub:normal"), tmp_path / "run")
    lines = (config.data / "studies.jsonl").read_text().replace('"val"', '"test"')
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "studies.jsonl").write_text(lines)
    (tmp_path / "corpus" / "card.yaml").write_text((config.data / "card.yaml").read_text())
    with pytest.raises(DataError, match="no frontal image in its val split"):
        harden(replace(config, data=tmp_path / "corpus"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_plan_has_the_steps_and_images_of_the_training(config: HardenConfig, tmp_path: Path) -> None:
    plan = plan_hardening(replace(config, steps=5), tmp_path / "run")
    assert not list(tmp_path.iterdir())
    training, found = harden(replace(config, steps=5), tmp_path / "run")
    images, steps, measured = plan.work
    assert (steps.count, steps.measured, measured.count) == (training.steps, 3, found["measured"]["n"])
    assert (
        images.count == training.rows + measured.count and plan.facts["trained_weights"] == training.trained_parameters
    )
    assert plan.seconds > 0 and plan.disk_gb and not plan.untimed
    assert not plan_hardening(replace(config, steps=5), tmp_path / "run").work
