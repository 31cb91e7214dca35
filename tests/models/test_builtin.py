from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import save_tiny_llava, tiny_dual_encoder

from cxrlab.core.atomic_folders import write_checksums
from cxrlab.core.errors import DataError, RunError, UnknownName
from cxrlab.evaluation.load_model import load_model
from cxrlab.models import builtin
from cxrlab.models.builtin import ALIGNED, ENCODER, GENERAL, OUTSIDER, PROJECTOR, REPORTER, builtin_folder
from cxrlab.models.model_card import ModelCard, write_model_card
from cxrlab.models.model_parts import load_language_model, load_vision_encoder
from cxrlab.models.model_registry import load_encoder
from cxrlab.training.align_finetune import select_trainable
from cxrlab.training.config import FinetuneConfig

pytestmark = pytest.mark.slow

IMAGE = np.linspace(0.0, 1.0, 48 * 40, dtype=np.float32).reshape(48, 40)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tiny models in the layout of the package, and a cache of their own."""
    folder = tmp_path / "weights"
    save_tiny_llava(folder / GENERAL, seed=1)
    for part in tiny_dual_encoder(seed=5):
        part.save_pretrained(folder / ENCODER)
    (folder / ALIGNED).mkdir()
    aligned = {f"linear_{n}.{what}": torch.full(shape, 0.02 * n) for n in (1, 2) for what, shape in SHAPES.items()}
    save_file(aligned, folder / ALIGNED / PROJECTOR)
    for name, stage in ((GENERAL, "finetune"), (ENCODER, "encoder"), (ALIGNED, "align")):
        write_model_card(ModelCard(stage, "llava-rad/1", ("phantom",)), folder / name)
    monkeypatch.setattr(builtin, "WEIGHTS", folder)
    monkeypatch.setenv("CXRLAB_CACHE", str(tmp_path / "cache"))
    return folder


SHAPES = {"weight": (32, 32), "bias": (32,)}


def test_the_aligned_model_is_put_together_from_its_neighbours_once(weights: Path, tmp_path: Path) -> None:
    """VisionEncoder of the encoder, language model of the general one, projector of its own."""
    folder = builtin_folder(ALIGNED)
    assert folder.parent == tmp_path / "cache" and builtin_folder(ALIGNED) == folder
    model = load_model("builtin:aligned").model  # type: ignore[attr-defined]
    vision_encoder, language = (
        load_vision_encoder("builtin:encoder").model,
        load_language_model("builtin:general").model,
    )
    for ours, theirs in ((model.model.vision_tower, vision_encoder), (model.model.language_model, language.model)):
        found = dict(ours.named_parameters())
        assert found and all(
            torch.equal(found[name], value.bfloat16().float()) for name, value in theirs.named_parameters()
        )
    assert float(model.model.multi_modal_projector.linear_2.bias[0].detach()) == pytest.approx(0.04, rel=0.01)


def test_other_weights_are_another_folder_in_the_cache(weights: Path) -> None:
    before = builtin_folder(ALIGNED)
    stored = load_file(weights / ALIGNED / PROJECTOR)
    save_file({name: value + 1 for name, value in stored.items()}, weights / ALIGNED / PROJECTOR)
    assert builtin_folder(ALIGNED) != before


def test_a_cache_that_lost_files_is_made_again(weights: Path) -> None:
    folder = builtin_folder(ALIGNED)
    (folder / "cxrlab.json").unlink()
    assert (builtin_folder(ALIGNED) / "cxrlab.json").is_file()
    stored = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(stored[: len(stored) // 2])
    assert (builtin_folder(ALIGNED) / "model.safetensors").read_bytes() == stored
    (folder / "model.safetensors").write_bytes(stored[:-1] + b"x")
    assert (builtin_folder(ALIGNED) / "model.safetensors").read_bytes() == stored
    (folder / "model.safetensors").unlink()
    assert (builtin_folder(ALIGNED) / "model.safetensors").stat().st_mode & 0o777 == 0o644


def test_shipped_weights_that_were_altered_are_refused(weights: Path) -> None:
    for part in (ALIGNED, ENCODER):
        write_checksums(weights / part)
    builtin_folder(ALIGNED)
    for file in (weights / ALIGNED / PROJECTOR, weights / ENCODER / "model.safetensors"):
        stored = file.read_bytes()
        file.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
        with pytest.raises(DataError, match=rf"is damaged: .*{file.name}"):
            builtin_folder(ALIGNED)
        file.write_bytes(stored)


def test_a_cache_that_cannot_be_made_is_told_with_its_remedy(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("CXRLAB_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(RunError, match="Set CXRLAB_CACHE to a folder that you may write to"):
        builtin_folder(ALIGNED)


def test_the_reporter_stands_on_the_aligned_model(weights: Path, tmp_path: Path) -> None:
    """An adapter of a few tensors in the package answers by its name, and not as its base does."""
    model = load_model("builtin:aligned")
    peft = select_trainable(model.model, FinetuneConfig(Path("x"), start="builtin:aligned", lora_rank=2))  # type: ignore[attr-defined]
    for name, value in peft.named_parameters():
        if "lora_B" in name:
            value.data.fill_(0.5)
    peft.save_pretrained(weights / REPORTER)
    write_model_card(ModelCard("finetune", "llava-rad/1", ("phantom",), base="builtin:aligned"), weights / REPORTER)
    reporter = load_model("builtin:reporter")
    assert reporter.name == "builtin:reporter" and reporter.collections == ("phantom",)  # type: ignore[attr-defined]
    base = load_model("builtin:aligned")
    text = ["The heart is normal in size."]
    assert float(reporter.losses([IMAGE], text)) != pytest.approx(float(base.losses([IMAGE], text)))  # type: ignore[attr-defined]
    assert len(reporter.generate([IMAGE])) == 1


def test_the_encoder_embeds_by_its_name(weights: Path) -> None:
    encoder = load_encoder("builtin:encoder")
    assert encoder.name == "builtin:encoder" and encoder.embed_images([IMAGE]).shape == (1, 16)


def test_names_that_lead_nowhere(weights: Path) -> None:
    for name, reported in (
        ("builtin:reprter", "reporter"),
        ("builtin:outsder", "outsider"),
        ("builtin:encoder", "builtin:reporter"),
    ):
        with pytest.raises(UnknownName, match=reported):
            load_model(name)
    with pytest.raises(UnknownName, match="builtin:encoder"):
        load_encoder("builtin:general")


def test_the_outsider_is_known_also_where_it_has_no_weights(weights: Path) -> None:
    """A list says so, a request is refused in one sentence, and it opens once the weights are there."""
    assert builtin.description(OUTSIDER, "a model") == "a model (no weights in this copy)"
    with pytest.raises(DataError, match="no weights for builtin:outsider"):
        load_model("builtin:outsider")
    save_tiny_llava(weights / OUTSIDER, seed=2)
    write_model_card(ModelCard("finetune", "caption/1", ("scenes", "phantom")), weights / OUTSIDER)
    assert builtin.description(OUTSIDER, "a model") == "a model"
    assert load_model("builtin:outsider").name == "builtin:outsider"


@pytest.mark.parametrize("lost", [f"{ENCODER}/model.safetensors", f"{ALIGNED}/{PROJECTOR}", ALIGNED])
def test_a_copy_without_weights_says_which_are_missing(weights: Path, lost: str) -> None:
    path = weights / lost
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(DataError, match=r"no weights for builtin:aligned"):
        builtin_folder(ALIGNED)
