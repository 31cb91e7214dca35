"""Stage 3 for every family that the generation wrapper opens: training, reload, generation, exact resume."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from PIL import Image
from processes import train_together
from safetensors.torch import load_file
from tiny_families import FAMILIES, save_tiny, tiny
from training_fixtures import killed_after, losses, phantoms, trained_names
from transformers import AutoModelForImageTextToText

from cxrlab.core.errors import ConfigError
from cxrlab.core.model_interfaces import StudyContext
from cxrlab.data.images import load_image
from cxrlab.models.decoding import Decoding
from cxrlab.models.hf.families import find_family
from cxrlab.models.hf.model import HfModel
from cxrlab.models.load_settings import LoadSettings
from cxrlab.models.prompts import load_prompts
from cxrlab.training.align_finetune import align, count_trainable, finetune, freeze, select_trainable
from cxrlab.training.config import AlignConfig, Augmentation, ExtraCorpus, FinetuneConfig, Optimisation, Validation
from cxrlab.training.image_features import open_family_features
from cxrlab.training.image_text import ImageTextLoss, load_image_text
from cxrlab.training.memory_estimate import estimate, estimate_logits, estimate_vision
from cxrlab.training.report_dataset import ask_for_report
from cxrlab.training.report_model import find_parts
from cxrlab.training.samples import Source, read_source
from cxrlab.training.trainer import ITEMS

pytestmark = [pytest.mark.slow, pytest.mark.full]

TOLERANCE = 2e-4
OTHERS = [name for name in FAMILIES if name != "llava"]
STEPS = Optimisation(
    batch_size=4, steps=12, max_length=1500, log_every=1, save_every=4, seed=5, learning_rate=1e-2, warmup=0.0,
    schedule="constant",
)  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return phantoms(tmp_path_factory.mktemp("families") / "corpus")


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def config(family: str, corpus: Path) -> FinetuneConfig:
    start = save_tiny(family, corpus.parent / f"start_{family}")
    return FinetuneConfig(
        data=corpus, start=f"hf:{start}", n=8, lora_rank=4, lora_alpha=8.0, lora_dropout=0.0, optimisation=STEPS,
        validation=Validation(n=0), cache=corpus.parent / "cache",
    )  # fmt: skip


@pytest.fixture(scope="module")
def tuned(config: FinetuneConfig, family: str) -> Path:
    out = config.data.parent / f"tuned_{family}"
    finetune(config, out)
    return out


def source(corpus: Path) -> Source:
    return read_source(ExtraCorpus(corpus), 4, 5)


def inputs(model: HfModel, corpus: Path) -> tuple[list[Any], list[str], list[str | None]]:
    chosen = source(corpus).samples
    images = [load_image(image.path) for sample in chosen for image in sample.images]
    return images, [sample.report for sample in chosen], [sample.indication for sample in chosen]


def test_the_loss_falls_and_the_adapter_reloads_in_plain_libraries(
    config: FinetuneConfig, tuned: Path, family: str
) -> None:
    """Plain transformers and PEFT give the log-probabilities of the wrapper, and `generate` writes reports."""
    found = losses(tuned)
    assert len(found) == 12 and found[-1] < 0.9 * found[0]
    model = HfModel.load(str(tuned / "checkpoint"))
    images, reports, reasons = inputs(model, config.data)
    ours = model.log_probabilities(images, reports, reasons).sums
    before = HfModel.load(str(config.start)[3:]).log_probabilities(images, reports, reasons).sums
    assert float((ours - before).sum()) > 1.0
    base = AutoModelForImageTextToText.from_pretrained(str(config.start)[3:], dtype=torch.float32)
    plain = PeftModel.from_pretrained(base, str(tuned / "checkpoint")).eval()
    prompts = [model.prompts.ask(reason) for reason in reasons]
    encoded = model.encode(images, prompts, reports)
    with torch.no_grad():
        logits = plain(**encoded.inputs).logits.float().log_softmax(-1)[:, :-1]
    each = logits.gather(2, encoded.ids[:, 1:, None])[..., 0]
    theirs = (each * encoded.report_mask[:, 1:]).sum(dim=1)
    torch.testing.assert_close(theirs, ours, atol=20 * TOLERANCE, rtol=1e-5)
    answers = model.answers(images[:2], reasons[:2], Decoding(max_new_tokens=4))
    assert all(isinstance(row[0].text, str) and row[0].tokens for row in answers)


def test_a_killed_training_ends_with_the_same_bytes(config: FinetuneConfig, tuned: Path, tmp_path: Path) -> None:
    out = tmp_path / "again"
    with killed_after(6):
        finetune(config, out)
    finetune(config, out)
    assert losses(out) == losses(tuned)
    file = "checkpoint/adapter_model.safetensors"
    assert (out / file).read_bytes() == (tuned / file).read_bytes()


def test_cached_features_give_the_losses_of_a_running_encoder(
    config: FinetuneConfig, tuned: Path, tmp_path: Path
) -> None:
    """In the files too: a family with a feature source has a cache, and the others run their encoder."""
    model = HfModel.load(str(config.start)[3:]).model
    source = find_family(model.config.model_type).feature_source
    named = [*(config.cache or tmp_path).glob("features-*")]
    assert bool(named) if source or model.config.model_type == "llava" else source is None
    short = dataclasses.replace(STEPS, steps=4)
    finetune(dataclasses.replace(config, cache_features="off", optimisation=short), tmp_path / "off")
    assert losses(tmp_path / "off") == pytest.approx(losses(tuned)[:4], rel=1e-5)


@pytest.mark.parametrize("name", OTHERS)
def test_cached_features_of_several_images_and_sizes(corpus: Path, name: str, tmp_path: Path) -> None:
    """Batches with cached features have the losses of batches with pixels, where a family can have both."""
    shutil.copytree(corpus, tmp_path / "corpus")
    for file in sorted((tmp_path / "corpus" / "images").glob("*.png"))[::2]:
        Image.open(file).resize((72, 40)).save(file)
    model = HfModel.load(str(save_tiny(name, tmp_path / name)))
    family = find_family(model.model.config.model_type)
    if family.feature_source is None:
        assert name in ("idefics", "qwen3_vl")
        return
    given = read_source(ExtraCorpus(tmp_path / "corpus"), 6, 5)
    pairs = tuple(
        dataclasses.replace(
            one, images=(*one.images, *other.images), context=StudyContext(one.indication, ("a", "b"), None)
        )
        for one, other in zip(given.samples[::2], given.samples[1::2], strict=True)
    )
    several = (dataclasses.replace(given, samples=pairs),) if family.same_among_several else ()
    for sources in ((given,), *([several] if several else [])):
        dataset = load_image_text(sources, model.model, model.processor, "llava-rad/2", STEPS, ask_for_report)
        features = open_family_features(
            model.model, dataset.encoder, dataset.files, dataset.sizes, tmp_path / "cache", cache="on", most_gb=1,
            dtype=torch.float32, device=torch.device("cpu"),
        )  # fmt: skip
        if features is None:
            assert name == "idefics2"  # as many patches as an image is large, of which a batch pads some
            continue
        module = ImageTextLoss(model.model, find_parts(model.model)).train()
        batches = [
            one.__getitems__(list(range(len(dataset))))
            for one in (dataset, dataclasses.replace(dataset, features=features))
        ]
        losses = []
        for batch in batches:
            del batch[ITEMS]
            losses.append(module(**batch))
        torch.testing.assert_close(losses[1], losses[0], atol=1e-2, rtol=1e-5)


def test_whole_models_and_trained_vision_encoders(config: FinetuneConfig, tmp_path: Path) -> None:
    """The parts that the settings name change, the others keep every bit; frozen rotary positions stay float32."""
    short = dataclasses.replace(STEPS, steps=3, accumulate=2, batch_size=2, gradient_checkpointing=True)
    for changes, vision_moves in (({"lora_rank": 0}, False), ({"train_vision_encoder": True}, True)):
        out = tmp_path / f"run_{vision_moves}"
        finetune(dataclasses.replace(config, optimisation=short, **changes), out)  # type: ignore[arg-type]
        model = AutoModelForImageTextToText.from_pretrained(out / "checkpoint", dtype=torch.float32)
        first = AutoModelForImageTextToText.from_pretrained(str(config.start)[3:], dtype=torch.float32)
        old, new = dict(first.named_parameters()), dict(model.named_parameters())
        parts = find_parts(first)
        vision = {id(value) for value in parts.vision_parameters()}
        moved = {name for name in old if not torch.equal(old[name], new[name])}
        language = {id(value) for value in parts.language_model.parameters()}
        assert any(id(old[name]) in language for name in moved)
        assert any(id(old[name]) in vision for name in moved) == vision_moves


@pytest.mark.parametrize("train_projector", [True, False])
def test_bfloat16_follows_float32(config: FinetuneConfig, train_projector: bool, tmp_path: Path) -> None:
    """Frozen weights in bfloat16, trained ones in float32, the vision encoder among them."""
    config = dataclasses.replace(config, train_projector=train_projector)
    found = []
    for precision in ("float32", "bfloat16"):
        settings = dataclasses.replace(STEPS, steps=3, precision=precision)  # type: ignore[arg-type]
        finetune(dataclasses.replace(config, train_vision_encoder=True, optimisation=settings), tmp_path / precision)
        found.append(losses(tmp_path / precision))
    assert found[1] == pytest.approx(found[0], rel=2e-2)
    stored = load_file(tmp_path / "bfloat16" / "checkpoint" / "model.safetensors")
    assert {str(value.dtype) for value in stored.values()} == {"torch.bfloat16"}


@pytest.mark.parametrize("name", OTHERS)
def test_the_loss_is_that_of_scoring(corpus: Path, name: str, tmp_path: Path) -> None:
    """In training mode too: -log p of the report tokens, as the wrapper scores them; padding changes nothing."""
    model = HfModel.load(str(save_tiny(name, tmp_path / name)))
    images, reports, reasons = inputs(model, corpus)
    scored = -model.log_probabilities(images, reports, reasons).sums
    own = [source(corpus)]
    dataset = load_image_text(own, model.model, model.processor, None, STEPS, ask_for_report)
    assert load_prompts(None).ask(reasons[0]) == dataset.prompts[0]
    module = ImageTextLoss(model.model, find_parts(model.model)).train()
    batch = dataset.__getitems__([0, 1, 2, 3])
    assert int(batch.pop(ITEMS)) == sum(len(report) for report in dataset.reports)
    torch.testing.assert_close(module(**batch), scored.sum(), atol=50 * TOLERANCE, rtol=1e-5)
    lengths = [int(dataset.__getitems__([row])["attention_mask"].shape[1]) for row in range(4)]
    assert lengths == dataset.lengths.tolist()
    # A limit cuts the end of a report.
    cut = dataclasses.replace(dataset, max_length=int(dataset.before_reports.max()) + 3)
    assert cut.cut == 4 and cut.longest_report >= 3 and cut.longest == cut.max_length
    assert int(cut.__getitems__([int(cut.before_reports.argmax())])[ITEMS]) == 3
    with pytest.raises(ConfigError, match="max_length=8 leaves no room"):
        dataclasses.replace(dataset, max_length=8).check_length()


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize(
    ("changes", "kinds"),
    [
        ({}, {"lora", "projector"}),
        ({"train_projector": False}, {"lora"}),
        ({"train_vision_encoder": True}, {"lora", "projector", "vision"}),
        ({"train_vision_encoder": True, "train_projector": False}, {"lora", "vision"}),
        ({"lora_rank": 0}, {"language", "projector"}),
        ({"lora_rank": 0, "train_language": False}, {"projector"}),
    ],
)
def test_what_is_trained_is_what_the_settings_name(name: str, changes: Any, kinds: set[str]) -> None:
    """By the parts that the family declares; as many weights as counted, in float32, the frozen ones in bfloat16."""
    half = dataclasses.replace(STEPS, precision="bfloat16")
    config = FinetuneConfig(data=Path("c"), start="hf:x", lora_rank=4, optimisation=half)
    config = dataclasses.replace(config, **{"lora_rank": 4, **changes})
    model, _ = tiny(name)
    parts, counted = find_parts(model), count_trainable(model, config)
    names = {id(value): "vision" for value in parts.vision_parameters()}
    names |= {id(value): "language" for value in model.parameters() if id(value) not in names}
    inside = parts.projector_name
    select_trainable(model, config)
    trained = [(key, value) for key, value in model.named_parameters() if value.requires_grad]
    assert sum(value.numel() for _, value in trained) == counted
    assert {str(value.dtype) for _, value in trained} == {"torch.float32"}
    found = {
        "lora" if "lora_" in key else "projector" if f"{inside}." in key else names[id(value)] for key, value in trained
    }
    assert found == kinds and len(trained_names(model)) == len(trained)


def test_frequencies_of_rotary_positions_keep_their_precision() -> None:
    """A model that is opened in bfloat16 keeps them in float32; training must use the same positions."""
    for name in ("llava", "qwen2_5_vl", "gemma3"):
        model, _ = tiny(name)
        before = {key: value.clone() for key, value in model.named_buffers() if "inv_freq" in key}
        freeze(model, "bfloat16")
        assert before and all(value.dtype == torch.bfloat16 for value in model.parameters())
        assert all(torch.equal(value, before[key]) for key, value in model.named_buffers() if key in before)


def test_what_suits_a_llava_alone_is_refused(corpus: Path, tmp_path: Path) -> None:
    start = f"hf:{save_tiny('qwen3_vl', tmp_path / 'start')}"
    config = FinetuneConfig(data=corpus, start=start, n=8, optimisation=STEPS, validation=Validation(n=0))
    words = {"words": {"data": str(corpus), "images": False}}
    for changes, told in (
        ({"cache_features": "on"}, "cache_features=on"),
        ({"cache_images": "on"}, "cache_images=on"),
        ({"train_vision_encoder": True, "augmentation": Augmentation()}, "augmentation"),
        ({"extra_corpora": words}, "needs an image in every sample"),
        ({"conversation": "vicuna-v1"}, "--conversation vicuna-v1"),
    ):
        with pytest.raises(ConfigError, match=told):
            finetune(dataclasses.replace(config, **changes), tmp_path / "run")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'qwen3_vl'"):
        align(AlignConfig(data=corpus, start=start), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_validation_and_several_readers_of_images(corpus: Path, tmp_path: Path) -> None:
    """The loss on the validation split is written beside that of training; worker processes change no number."""
    start = f"hf:{save_tiny('qwen2_5_vl', tmp_path / 'start')}"
    short = dataclasses.replace(STEPS, steps=4)
    config = FinetuneConfig(
        data=corpus, start=start, n=8, lora_rank=4, optimisation=short, validation=Validation(n=2, every=2)
    )
    done = finetune(config, tmp_path / "run")
    assert done.extra["validation"]["loss"] > 0 and (tmp_path / "run" / "best").is_dir()
    finetune(dataclasses.replace(config, optimisation=dataclasses.replace(short, workers=1)), tmp_path / "workers")
    assert losses(tmp_path / "run") == losses(tmp_path / "workers")
    assert HfModel.load(str(tmp_path / "run" / "best"), loading=LoadSettings()).name


@pytest.mark.parametrize("name", ["llava_onevision", "idefics2", "qwen3_vl"])
def test_two_processes_equal_one_with_twice_the_batch(corpus: Path, name: str, tmp_path: Path) -> None:
    """With a trained vision encoder, whose last layers may get no gradient: the other process would wait for them."""
    settings = dataclasses.replace(STEPS, batch_size=2, steps=4)
    config = FinetuneConfig(
        data=corpus, start=f"hf:{save_tiny(name, tmp_path / 'start')}", n=8, lora_rank=4, lora_dropout=0.0,
        train_vision_encoder=True, optimisation=settings, validation=Validation(n=2, every=2),
    )  # fmt: skip
    twice = dataclasses.replace(settings, batch_size=4)
    finetune(dataclasses.replace(config, optimisation=twice), tmp_path / "one")
    assert train_together(config, tmp_path / "two") == [0, 0]
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), rel=1e-4)
    one, two = (load_file(tmp_path / each / "checkpoint" / "model.safetensors") for each in ("one", "two"))
    assert max(float((one[key] - two[key]).abs().max()) for key in one) < 2e-3


def test_memory_of_images_and_logits() -> None:
    """Idefics2: two layers of width 32 and inner width 48; per patch 16 · 32 + 3 · 48 numbers in each layer."""
    model, _ = tiny("idefics2")
    settings, block = Optimisation(batch_size=2), 16 * 32 + 3 * 48
    assert estimate_vision(model, settings, 10, trained=False).activations == 2 * 10 * block * 4
    assert estimate_vision(model, settings, 10, trained=True).activations == 2 * 10 * 2 * block * 4
    vocabulary = model.config.text_config.vocab_size
    assert estimate_logits(model, settings, 7).activations == 2 * 7 * vocabulary * 12
    # IDEFICS has one layer of cross-attention beside the two of its language model.
    idefics, _ = tiny("idefics")
    assert estimate(idefics, settings, 10, 0).activations == 2 * 10 * 3 * block * 4
