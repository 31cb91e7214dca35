"""Train the models that ship with the package, and put their weights into it.

    python experiments/build_builtin.py [general encoder reporter outsider] [--rehearse] [--weights FOLDER]

The recipes are configs/builtin/*.yaml; every step has a folder under runs/builtin. A second call resumes
the interrupted step; only `localisation` (experiments/localisation.py) starts again from the beginning.
`encoder` needs `general` and `reporter` needs both; missing models are built first. `outsider` needs none of them.
Fifty minutes on one H200 with 16 cores. `--rehearse` runs every step with a few images, to check that
the script works; its models are useless.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from cxrlab.core.atomic_folders import write_checksums
from cxrlab.core.config import config_from
from cxrlab.data.config import PhantomConfig, ScenesConfig
from cxrlab.models.builtin import ALIGNED, ENCODER, GENERAL, OUTSIDER, PROJECTOR, REPORTER, WEIGHTS
from cxrlab.models.model_card import read_model_card, write_model_card
from cxrlab.training.config import AlignConfig, EncoderConfig, FinetuneConfig

RECIPES = Path(__file__).parents[1] / "configs" / "builtin"
WORK = Path("runs/builtin")
LOCALISATION = "localisation"
# Settings of the corpora.
IMAGES = {
    "phantom": PhantomConfig(n=120_000, size=128, seed=101),
    "quiz": PhantomConfig(n=15_000, size=128, seed=105, masks=False),  # images for closed questions
}
WORDS = {
    "words_a": PhantomConfig(n=80_000, size=32, seed=102, masks=False, lexicon="A"),
    "words_b": PhantomConfig(n=40_000, size=32, seed=103, masks=False, lexicon="B"),
}
SCENES = ScenesConfig(n=40_000, size=128, seed=104)
REHEARSAL = 40  # studies of each corpus
KEPT = ("config.json", "generation_config.json", "processor_config.json", "preprocessor_config.json")
KEPT_WORDS = ("tokenizer.json", "tokenizer_config.json")


def main() -> None:
    """Build the named models in order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=[GENERAL, ENCODER, REPORTER, OUTSIDER])
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    given = parser.parse_args()
    builders: dict[str, Callable[[bool], None]] = {
        GENERAL: general, ENCODER: encoder, REPORTER: reporter, OUTSIDER: outsider,
    }  # fmt: skip
    for name in given.names:
        if name not in builders:
            raise SystemExit(f"Unknown built-in model '{name}'; choose from {', '.join(builders)}.")
        builders[name](given.rehearse)
        for packed in (ALIGNED, REPORTER) if name == REPORTER else (name,):
            size = pack(packed, given.weights / packed)
            print(f"{packed:<10} {size / 1e6:6.2f} MB in {given.weights / packed}", flush=True)
    total = sum(file.stat().st_size for file in given.weights.rglob("*") if file.is_file())
    print(f"all built-in weights: {total / 1e6:.2f} MB")


def general(rehearse: bool) -> None:
    """Train on scenes with captions and on reports without images; later steps' images are made at the same time."""
    _scenes(rehearse)
    for name, config in WORDS.items():
        timed(name, lambda name=name, config=config: _phantom(config, name, rehearse))
    drawing = _start_making_images(rehearse)
    try:
        _finetune(GENERAL, WORK / "scenes", rehearse)
        if drawing.wait():
            raise SystemExit("Making the phantoms failed.")
    finally:
        if drawing.poll() is None:
            os.killpg(drawing.pid, signal.SIGKILL)  # an interrupted corpus is resumed


def encoder(rehearse: bool) -> None:
    """Train the general vision encoder to localise findings on phantoms, then contrastively with reports."""
    from localisation import Settings, train_localisation

    from cxrlab.training.encoder import train_encoder

    if not (WORK / GENERAL / "checkpoint").is_dir():
        general(rehearse)
    for name, config in IMAGES.items():
        timed(name, lambda name=name, config=config: _phantom(config, name, rehearse))
    vision_encoder, settings = (
        f"hf:{WORK / GENERAL / 'checkpoint'}",
        Settings(steps=2, batch=4) if rehearse else Settings(),
    )
    timed(LOCALISATION, lambda: train_localisation(WORK / "phantom", WORK / LOCALISATION, vision_encoder, settings))
    config = _read(EncoderConfig, ENCODER, WORK / "phantom", rehearse)
    timed(ENCODER, lambda: train_encoder(config, WORK / ENCODER))


def reporter(rehearse: bool) -> None:
    """Stages 2 and 3 on the encoder's vision encoder and the general language model."""
    from cxrlab.training.align_finetune import align

    if not (WORK / ENCODER / "checkpoint").is_dir():
        encoder(rehearse)
    config = _read(AlignConfig, ALIGNED, WORK / "phantom", rehearse)
    timed(ALIGNED, lambda: align(config, WORK / ALIGNED))
    _finetune(REPORTER, WORK / "phantom", rehearse)


def outsider(rehearse: bool) -> None:
    """Train on scenes with captions and reports of lexicon B without images: no radiographs, no text of lexicon A."""
    _scenes(rehearse)
    timed("words_b", lambda: _phantom(WORDS["words_b"], "words_b", rehearse))
    _finetune(OUTSIDER, WORK / "scenes", rehearse)


def timed(name: str, work: Callable[[], Any]) -> None:
    """Run a step and print its duration."""
    start = time.monotonic()
    work()
    print(f"{name:<10} {time.monotonic() - start:6.1f} s", flush=True)


def pack(name: str, out: Path) -> int:
    """Copy a trained model into the package in bfloat16 and return its bytes."""
    import torch
    from safetensors.torch import load_file, save_file

    source = WORK / name / "checkpoint"
    out.mkdir(parents=True, exist_ok=True)
    weights = {
        GENERAL: "model.safetensors", ENCODER: "model.safetensors",
        ALIGNED: "model.safetensors", REPORTER: "adapter_model.safetensors", OUTSIDER: "model.safetensors",
    }[name]  # fmt: skip
    tensors = load_file(source / weights)
    target = weights
    if name == ALIGNED:
        target, prefix = PROJECTOR, "multi_modal_projector."
        tensors = {key.split(prefix)[1]: value for key, value in tensors.items() if prefix in key}
    if name == OUTSIDER:
        tensors = {_published(key): value for key, value in tensors.items()}
    small = {key: value.to(torch.bfloat16).contiguous() for key, value in tensors.items()}
    save_file(small, out / target, metadata={"format": "pt"})
    files = ("adapter_config.json",) if name == REPORTER else () if name == ALIGNED else (*KEPT, *KEPT_WORDS)
    for file in files:
        if (source / file).is_file():
            text = (source / file).read_text()
            (out / file).write_text(_packed_config(text) if file == "config.json" else _without_base(text))
    card = read_model_card(source)
    assert card is not None
    extra = {key: _builtin_names(value) for key, value in card.extra.items()}
    write_model_card(replace(card, base=f"builtin:{ALIGNED}" if name == REPORTER else None, extra=extra), out)
    write_checksums(out)
    for file in out.iterdir():
        file.chmod(0o644)  # readable by all users
    return sum(file.stat().st_size for file in out.iterdir())


def _published(key: str) -> str:
    """Name of a CLIP encoder's tensor in published LLaVAs, which every release of transformers reads."""
    vision_encoder, longer = "vision_tower.", "vision_tower.vision_model."
    return key if longer in key else key.replace(vision_encoder, longer)


def _packed_config(config: str) -> str:
    """A model's config with dtype bfloat16, and without the folder of its training run."""
    values = json.loads(config)
    for part in (values, *(value for value in values.values() if isinstance(value, dict))):
        if "dtype" in part:
            part["dtype"] = "bfloat16"
        part.pop("_name_or_path", None)
    return json.dumps(values, indent=2, sort_keys=True) + "\n"


def _without_base(text: str) -> str:
    """An adapter's config without the folder of its base model, which has another name in the package."""
    values = json.loads(text)
    if "base_model_name_or_path" not in values:
        return text
    return json.dumps({**values, "base_model_name_or_path": None}, indent=2, sort_keys=True) + "\n"


def _builtin_names(value: Any) -> Any:
    """Replace folders of this script by builtin:NAME or the name of the step."""
    if isinstance(value, dict):
        return {key: _builtin_names(one) for key, one in value.items()}
    if isinstance(value, str) and str(WORK) in value:
        step = value.split(f"{WORK}/")[1].split("/")[0]
        return step if step == LOCALISATION else f"builtin:{step}"
    return value


def _fewer(config: Any, rehearse: bool) -> Any:
    return replace(config, n=REHEARSAL, workers=1) if rehearse else config


def _scenes(rehearse: bool) -> None:
    from cxrlab.data.synthetic_scenes import make_scenes

    timed("scenes", lambda: make_scenes(_fewer(SCENES, rehearse), WORK / "scenes"))


def _phantom(config: PhantomConfig, name: str, rehearse: bool) -> None:
    from cxrlab.data.phantom.corpus import make_phantom

    make_phantom(_fewer(config, rehearse), WORK / name)


def _start_making_images(rehearse: bool) -> subprocess.Popen[bytes]:
    """Make the image corpora in another process, on all cores but two; later steps find them finished."""
    workers = 1 if rehearse else max(1, (os.cpu_count() or 2) - 2)
    commands = []
    for name, given in IMAGES.items():
        config = _fewer(given, rehearse)
        flags = [("n", config.n), ("size", config.size), ("seed", config.seed), ("workers", workers)]
        words = [sys.executable, "-m", "cxrlab", "data", "make", "phantom", "--out", str(WORK / name)]
        words += [word for flag, value in flags for word in (f"--{flag}", str(value))]
        commands.append(shlex.join(words if config.masks else [*words, "--no-masks"]))
    return subprocess.Popen(["sh", "-c", " && ".join(commands)], start_new_session=True)


def _finetune(name: str, data: Path, rehearse: bool) -> None:
    from cxrlab.training.align_finetune import finetune

    config = _read(FinetuneConfig, name, data, rehearse)
    timed(name, lambda: finetune(config, WORK / name))


def _read(cls: type[Any], name: str, data: Path, rehearse: bool) -> Any:
    few = ("steps=2", "batch_size=4", "workers=0", "precision=float32") if rehearse else ()
    return config_from(cls, RECIPES / f"{name}.yaml", (f"data={data}", *(f"optimisation.{one}" for one in few)))


if __name__ == "__main__":
    main()
