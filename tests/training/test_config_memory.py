"""No shipped config is refused by our own estimate on the hardware that its header names; weights are never made."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from preference_runs import tiny_preference_config
from tiny_families import tiny
from transformers import (
    BertConfig,
    CLIPVisionConfig,
    Dinov2Config,
    IdeficsConfig,
    IdeficsForVisionText2Text,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    VisionTextDualEncoderConfig,
    VisionTextDualEncoderModel,
)

from cxrlab.cli.arguments import CommandLine
from cxrlab.cli.commands import COMMANDS
from cxrlab.cli.main import command_named
from cxrlab.core.errors import ConfigError
from cxrlab.core.jsonl import read_jsonl
from cxrlab.core.plan import Plan
from cxrlab.core.registry import load_reference
from cxrlab.evaluation.config import GenerateConfig
from cxrlab.evaluation.generation_plan import estimate_generation, generation_of_sizes
from cxrlab.extraction.surrogate import SurrogateTrainer
from cxrlab.models.hf.operations import Gpus
from cxrlab.models.load_settings import LoadSettings
from cxrlab.preference.alignment_plan import alignment_of_sizes, estimate_alignment
from cxrlab.preference.config import PreferConfig
from cxrlab.robustness.audit_plan import audit_of_sizes
from cxrlab.robustness.config import RobustnessConfig
from cxrlab.training.align_finetune import check_fits, count_trainable
from cxrlab.training.config import EncoderConfig, FinetuneConfig, Optimisation
from cxrlab.training.encoder import memory as encoder_memory
from cxrlab.training.memory_estimate import Memory, check_memory, estimate, estimate_logits, estimate_vision
from cxrlab.training.size_estimate import estimate_report_training, training_of_sizes

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"(one|\d+) GPUs? of (\d+) GB")
ESTIMATED = re.compile(
    r"estimated by --plan --hardware (?P<gpus>\S+): (?P<time>[\d.]+) (?P<unit>hours|days), (?P<gb>[\d.]+) GB each,"
    r"\s+(?:#\s+)?for (?P<count>[\d,]+) (?:samples|pairs|images|studies)(?: of (?P<tokens>[\d,]+) tokens)?"
)
REPORT = 150  # tokens of a report
TOLERANCE = 0.05  # of the figures in headers, which are rounded
# Commands that take long, of which a header that names a GPU says where its figures come from.
EXPENSIVE = (
    "train",
    "prefer train",
    "prefer sample",
    "prefer judge",
    "extract",
    "robustness",
    "harden",
    "generate",
    "study",
)
QUERIES = 500  # of ada_steal_paper.yaml, per round


def llava_7b(side: int = 518, patch: int = 14) -> Any:
    """LLaVA-Rad: Vicuna-7B and a ViT-B/14 at 518 pixels, 1,369 image tokens."""
    vision = Dinov2Config(image_size=side, patch_size=patch)
    return LlavaForConditionalGeneration(LlavaConfig(vision_config=vision, text_config=LlamaConfig()))


def llava_1_5() -> Any:
    """LLaVA-1.5-7B: CLIP's ViT-L/14 at 336 pixels, 576 image tokens."""
    vision = CLIPVisionConfig(
        hidden_size=1024, intermediate_size=4096, num_hidden_layers=24, num_attention_heads=16, image_size=336,
        patch_size=14,
    )  # fmt: skip
    return LlavaForConditionalGeneration(LlavaConfig(vision_config=vision, text_config=LlamaConfig()))


def idefics_9b() -> Any:
    """idefics-9b as published: ViT-H/14 at 224 pixels, a resampler, and cross-attention before every fourth layer."""
    config = IdeficsConfig(
        additional_vocab_size=2, cross_layer_interval=4, use_resampler=True, qk_layer_norms=True,
        vision_config={"embed_dim": 1280, "image_size": 224, "patch_size": 14},
        perceiver_config={"use_resampler": True, "qk_layer_norms_perceiver": True},
    )  # fmt: skip
    return IdeficsForVisionText2Text(config)


def biomedclip_cxr() -> Any:
    """DINOv2's ViT-B/14 at 518 pixels with PubMedBERT."""
    vision = Dinov2Config(image_size=518, patch_size=14)
    return VisionTextDualEncoderModel(VisionTextDualEncoderConfig.from_vision_text_configs(vision, BertConfig()))


# File → the models that it may be used with, by its header and by the publication.
MODELS: dict[str, tuple[Callable[[], Any], ...]] = {
    "llava_rad/03_encoder.yaml": (biomedclip_cxr,),
    "llava_rad/04_align.yaml": (llava_7b,),
    "llava_rad/05_finetune.yaml": (llava_7b,),
    "llava_rad/06_generate.yaml": (llava_7b,),
    "extraction/ada_steal_paper.yaml": (llava_1_5, idefics_9b),
    **{
        f"preference/chexalign_{loss}{variant}.yaml": (llava_7b, llava_1_5)
        for loss in ("dpo", "ipo", "kto", "orpo", "rdpo")
        for variant in ("", "_launched")
    },
}


def settings_of(file: str) -> Any:
    """The config that the command in the header reads."""
    header = re.search(r"^# run:  cxrlab (.+)$", (ROOT / "configs" / file).read_text(), re.MULTILINE)
    assert header
    words = shlex.split(header[1])
    name = command_named(words)
    assert name is not None
    line = CommandLine(name, COMMANDS[name], load_reference(COMMANDS[name].target))
    return line.parse(words[len(name.split()) :]).arguments["config"]


def surrogate_settings(config: Any) -> Any:
    """Those of the training of a surrogate on the first round's queries."""
    trainer = SurrogateTrainer("hf:models/surrogate", replace(config.fitting, learning_rate=1e-5), 7, LoadSettings())
    return trainer.training_config(Path("transcript"), between_rounds=False)


def needed(config: Any, model: Any) -> Memory:
    """The estimate for samples as long as `max_length`, as the commands compute it for theirs."""
    settings = config.optimisation
    if isinstance(config, EncoderConfig):
        return encoder_memory(model, settings, settings.max_length)
    found = estimate(model, settings, settings.max_length, count_trainable(model, config))
    if model.config.model_type != "llava":
        vision = model.config.vision_config
        patches = (vision.image_size // vision.patch_size) ** 2
        found += estimate_vision(model, settings, patches, trained=config.train_vision_encoder)
        found += estimate_logits(model, settings, settings.max_length)
    return found


def hardware(file: str) -> tuple[int, int]:
    """Number of GPUs, and bytes of each, in the header."""
    found = NAMED.search((ROOT / "configs" / file).read_text())
    assert found
    return 1 if found[1] == "one" else int(found[1]), int(found[2]) * 10**9


def test_every_header_that_names_a_memory_is_checked() -> None:
    files = sorted((ROOT / "configs").rglob("*.yaml"))
    named = {path.relative_to(ROOT / "configs").as_posix() for path in files if NAMED.search(path.read_text())}
    assert named == set(MODELS)


@pytest.mark.parametrize(("file", "make"), [(file, make) for file, makers in MODELS.items() for make in makers])
def test_the_estimate_fits_on_the_hardware_of_the_header(
    file: str, make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    config = settings_of(file)
    processes, available = hardware(file)
    with torch.device("meta"):
        model = make()
    if file.startswith("extraction"):
        studies = SimpleNamespace(ids=lambda split: range(QUERIES))
        monkeypatch.setattr("cxrlab.data.corpus.load_corpus", lambda folder: studies)
        config = surrogate_settings(config)
        assert config.optimisation.batch_size * config.optimisation.accumulate == 8  # the publication's
    if isinstance(config, PreferConfig):
        assert "fsdp.yaml" in (ROOT / "configs" / file).read_text()
        check = partial(check_preference_training, config, model, monkeypatch, available)
        with pytest.raises(ConfigError, match="80.0 GB"):
            check(processes=1)
        check(processes=processes)
    elif hasattr(config, "optimisation"):
        check_memory(needed(config, model), torch.device("cuda"), available)
    else:  # generation: its weights, in the precision of loading
        assert 2 * sum(value.numel() for value in model.parameters()) < available / 2


def check_preference_training(
    config: PreferConfig, model: Any, monkeypatch: pytest.MonkeyPatch, available: int, processes: int
) -> None:
    """The check of `prefer train` before it begins, on so many GPUs that share the weights where there are several."""
    settings = config.optimisation
    dataset: Any = SimpleNamespace(longest=settings.max_length)
    monkeypatch.setattr("cxrlab.training.distributed.process_count", lambda: processes)
    monkeypatch.setattr("cxrlab.training.distributed.shares_weights", lambda settings: processes > 1)
    monkeypatch.setattr("cxrlab.training.memory_estimate.available_memory", lambda device: available)
    both = replace(settings, batch_size=2 * settings.batch_size)
    check_fits(model, dataset, config, both, whole_weights=True)


def test_the_same_training_of_a_whole_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 bytes per weight of the language model alone: more than 100 GB."""
    monkeypatch.chdir(ROOT)
    config = settings_of("extraction/ada_steal_paper.yaml")
    monkeypatch.setattr("cxrlab.data.corpus.load_corpus", lambda folder: SimpleNamespace(ids=lambda split: range(8)))
    with torch.device("meta"):
        model = llava_1_5()
    whole = replace(surrogate_settings(config), lora_rank=0)
    found = needed(whole, model)
    assert found.trained > 100e9
    with pytest.raises(ConfigError, match="80.0 GB"):
        check_memory(found, torch.device("cuda"), hardware("extraction/ada_steal_paper.yaml")[1])


def test_a_trained_vision_encoder_keeps_its_activations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A LLaVA with two images per sample: the estimate of both, for every layer of the vision encoder."""
    model, _ = tiny("llava")
    found: list[Memory] = []
    monkeypatch.setattr("cxrlab.training.memory_estimate.check_memory", lambda needed, device: found.append(needed))
    dataset: Any = SimpleNamespace(longest=20, image_tokens=4, image_of=np.zeros((3, 2), int))
    settings = Optimisation(batch_size=2)
    for trained in (False, True):
        config = FinetuneConfig(data=Path("c"), start="hf:x", train_vision_encoder=trained, optimisation=settings)
        check_fits(model, dataset, config, settings)
    seen = estimate_vision(model, settings, 8, trained=True).activations
    assert seen > 0 and found[1].activations - found[0].activations == seen


@cache
def sizes_7b() -> Any:
    """LLaVA-Rad without weights, which no estimate changes."""
    with torch.device("meta"):
        return llava_7b()


def plan_of(file: str, found: re.Match[str]) -> Plan:
    """What `--plan --hardware` computes for the count and the tokens in a header."""
    config, count, gpus = settings_of(file), int(found["count"].replace(",", "")), Gpus.parse(found["gpus"])
    model = sizes_7b()
    if isinstance(config, GenerateConfig):
        return generation_of_sizes(config, model, gpus, count)
    if isinstance(config, RobustnessConfig):
        return audit_of_sizes(config, [model], gpus, count)
    tokens, longest = int(found["tokens"].replace(",", "")), config.optimisation.max_length
    sizes = (count, tokens, REPORT, longest)
    if isinstance(config, PreferConfig):
        sharded = replace(config, optimisation=replace(config.optimisation, sharding="fsdp2"))
        return alignment_of_sizes(sharded, model, gpus, *sizes)
    return training_of_sizes("train", config, model, gpus, *sizes)


def headers() -> dict[str, str]:
    """The comment at the top of every shipped config."""
    found = {}
    for path in sorted((ROOT / "configs").rglob("*.yaml")):
        lines = path.read_text().splitlines()
        end = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
        found[path.relative_to(ROOT / "configs").as_posix()] = "\n".join(lines[:end])
    return found


IN_HEADERS = {file: found for file, text in headers().items() if (found := ESTIMATED.search(text))}


@pytest.mark.parametrize("file", IN_HEADERS)
def test_an_estimate_in_a_header_is_what_the_plan_computes(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    found = IN_HEADERS[file]
    plan = plan_of(file, found)
    seconds = float(found["time"]) * {"hours": 3600, "days": 86_400}[found["unit"]]
    assert (seconds, float(found["gb"])) == pytest.approx((plan.seconds, plan.estimated_gb), rel=TOLERANCE)
    assert plan.hardware is None and "does not fit" not in plan.facts["hardware"]


def test_every_figure_for_a_gpu_has_its_source() -> None:
    """Measured, or estimated by --plan; a header without a figure says that there is none."""
    wrong = []
    for file, text in headers().items():
        command = re.search(r"^# run:  cxrlab (.+)$", text, re.MULTILINE)
        time = re.search(r"^# time: (.+(?:\n# {7}.+)*)", text, re.MULTILINE)
        if command and time and command[1].startswith(EXPENSIVE) and re.search(r"GPU|[AH][12]00", time[1]):
            if not re.search(r"(?<!not )measured|estimated by --plan|not run|not timed", time[1]):
                wrong.append(f"{file}: {time[1]}")
    assert not wrong
    assert len(IN_HEADERS) >= 10


def test_a_file_with_pairs_gives_the_counts_of_the_estimate(tmp_path: Path) -> None:
    """Without weights: the config of the start, and the texts of the pairs."""
    given = tiny_preference_config(tmp_path)
    start = Path(given.start.removeprefix("hf:"))
    for weights in (*start.glob("*.safetensors"), *start.glob("*sums*")):
        weights.unlink()
    plan = estimate_alignment(given, Gpus.parse("2xa100-40gb"))
    work = {one.name: one for one in plan.work}
    rows = plan.facts["rows"]
    assert rows == sum(1 for _ in read_jsonl(given.pairs)) == work["reference log-probabilities"].count
    assert work["training rows"].count == 2 * 4 * given.optimisation.accumulate * 6 and plan.hardware is None
    training = FinetuneConfig(data=given.data, start=given.start, optimisation=Optimisation(epochs=3))
    found = estimate_report_training("finetune", training, Gpus.parse("a100-40gb"))
    assert found.work[0].count == 3 * found.facts["samples"] and found.command == "train finetune"
    reports = estimate_generation(GenerateConfig(given.start, given.data, split="train", n=3), Gpus("a100-40gb"))
    assert reports.work[0].count == 3 and reports.estimated_gb
